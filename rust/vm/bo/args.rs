// SPDX-License-Identifier: GPL-2.0

//! What a caller asks of a buffer.

use kernel::sync::Arc;

use crate::{
    gpu::DoorbellSlice,
    hw::pte::{
        Access,
        Coherence, //
    },
    kapi::userpages::Watcher,
    vm::account::UserAccount, //
};

/// What a buffer is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoKind {
    /// Memory of the GPU.
    Vram,
    /// Pages of the system, allocated for the GPU.
    System,
    /// Pages of the process that makes the buffer.
    Userptr,
    /// The doorbells of a process.
    Doorbell,
    /// The page with the HDP flush registers.
    MmioRemap,
}

/// How a buffer may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BoFlags {
    /// The GPU may write.
    pub(crate) writable: bool,
    /// The GPU may fetch instructions.
    pub(crate) executable: bool,
    /// Caches keep to what others write while a kernel runs.
    pub(crate) coherent: bool,
    /// Never cached.
    pub(crate) uncached: bool,
    /// The CPU is meant to access VRAM. All VRAM that is handed out can be.
    pub(crate) public: bool,
    /// VRAM must be one block.
    pub(crate) contiguous: bool,
}

impl BoFlags {
    /// What the GPU may do with the pages.
    pub(super) fn access(self) -> Access {
        Access {
            read: true,
            write: self.writable,
            execute: self.executable,
        }
    }

    /// How caches treat the pages.
    pub(super) fn coherence(self) -> Coherence {
        if self.uncached {
            Coherence::Uncached
        } else if self.coherent {
            Coherence::Coherent
        } else {
            Coherence::Default
        }
    }
}

/// Memory of a process that a buffer is made of.
pub(crate) struct UserMemory {
    /// Address in the current process.
    pub(crate) address: u64,
    /// Notified before the pages there change.
    pub(crate) watcher: Arc<dyn Watcher>,
    /// Charged for the pages.
    pub(crate) account: Arc<UserAccount>,
}

/// What to make.
pub(crate) struct BoArgs {
    /// What of.
    pub(crate) kind: BoKind,
    /// Bytes; rounded up to whole pages.
    pub(crate) size: u64,
    /// What for.
    pub(crate) flags: BoFlags,
    /// Memory of the current process, for [`BoKind::Userptr`].
    pub(crate) user: Option<UserMemory>,
    /// The doorbells, for [`BoKind::Doorbell`].
    pub(crate) doorbells: Option<Arc<DoorbellSlice>>,
}
