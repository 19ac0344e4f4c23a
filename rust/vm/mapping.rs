// SPDX-License-Identifier: GPL-2.0

//! One buffer in one address space.

use core::ops::Range;

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};

use super::bo::{
    Backing,
    Bo,
    BoKind,
    BoUse, //
};

/// The content of the entries of a mapping.
struct Contents {
    /// Where the buffer lies; `None` until entries are written. The memory stays there while this lives.
    backing: Option<Arc<Backing>>,
    /// The entries were taken away; the TLB may still know them.
    cleared: bool,
}

/// A buffer that is mapped, and what keeps its memory where the entries point.
#[pin_data]
pub(super) struct Mapping {
    va: u64,
    bo: BoUse,
    /// The content of the entries. Taken under the lock of the `Vm`; nothing is allocated under it.
    #[pin]
    contents: Mutex<Contents>,
    /// Queues that use it. Taken under the lock of the `Vm`, returned without.
    holds: Atomic<i32>,
}

impl Mapping {
    /// A mapping without entries.
    pub(super) fn new(bo: BoUse, va: u64) -> Result<Arc<Self>> {
        let contents = Contents {
            backing: None,
            cleared: false,
        };
        Arc::pin_init(
            pin_init!(Self {
                va,
                bo,
                contents <- new_mutex!(contents, "rkfd_mapping"),
                holds: Atomic::new(0),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Whether the entries are there, and are those of moment `version` of the buffer.
    pub(super) fn is_of(&self, version: u64) -> bool {
        let contents = self.contents.lock();
        let written = contents.backing.as_ref();
        !contents.cleared && written.is_some_and(|backing| backing.version == version)
    }

    /// What the entries show; `None` if there are none.
    pub(super) fn shown(&self) -> Option<Arc<Backing>> {
        let contents = self.contents.lock();
        contents.backing.clone().filter(|_| !contents.cleared)
    }

    /// Where the buffer was when entries were written last, whether or not they are there.
    pub(super) fn backing(&self) -> Option<Arc<Backing>> {
        self.contents.lock().backing.clone()
    }

    /// Notes that entries for `backing` were written. Returns what they named before, which the TLB may hold.
    pub(super) fn set_backing(&self, backing: Option<Arc<Backing>>) -> Option<Arc<Backing>> {
        let mut contents = self.contents.lock();
        contents.cleared = false;
        core::mem::replace(&mut contents.backing, backing)
    }

    /// Notes that the entries were taken away.
    pub(super) fn set_cleared(&self) {
        self.contents.lock().cleared = true;
    }

    /// The entries were taken away because the memory moves: gives up where it was.
    pub(super) fn vacate(&self) -> Option<Arc<Backing>> {
        let mut contents = self.contents.lock();
        contents.cleared = true;
        contents.backing.take()
    }

    /// Whether there are no entries.
    pub(super) fn is_vacant(&self) -> bool {
        let contents = self.contents.lock();
        contents.cleared || contents.backing.is_none()
    }

    /// Whether the entries were taken away.
    pub(super) fn is_cleared(&self) -> bool {
        self.contents.lock().cleared
    }

    /// Whether `len` bytes of the buffer from byte `offset` on show what a process has at addresses of `range`.
    pub(super) fn is_over(&self, offset: u64, len: u64, range: &Range<u64>) -> bool {
        let Some(own) = self.bo.user_range() else {
            return false;
        };
        let start = own.start.saturating_add(offset);
        start < range.end && range.start < start.saturating_add(len)
    }

    pub(super) fn bo(&self) -> &Bo {
        &self.bo
    }

    /// Whether the buffer is made of memory of a process.
    pub(super) fn is_user(&self) -> bool {
        self.bo.kind() == BoKind::Userptr
    }

    /// The buffer, to be kept.
    pub(super) fn buffer(&self) -> &Arc<Bo> {
        self.bo.buffer()
    }

    pub(super) fn is_held(&self) -> bool {
        self.holds.load(Relaxed) != 0
    }

    pub(super) fn hold(self: &Arc<Self>) -> MappingHold {
        self.holds.add(1, Relaxed);
        MappingHold {
            mapping: self.clone(),
        }
    }

    pub(super) fn info(&self) -> MappingInfo {
        MappingInfo {
            va: self.va,
            size: self.bo.size(),
            bo: self.bo.buffer().clone(),
        }
    }
}

/// What [`Vm::lookup`](super::Vm::lookup) finds.
#[cfg_attr(not(rkfd_kunit), expect(dead_code, reason = "seen by tests"))]
pub(crate) struct MappingInfo {
    /// First address.
    pub(crate) va: u64,
    /// Bytes.
    pub(crate) size: u64,
    /// The buffer.
    pub(crate) bo: Arc<Bo>,
}

/// Keeps a mapping from being unmapped. If the address space ends nevertheless, it still keeps
/// the memory.
pub(crate) struct MappingHold {
    mapping: Arc<Mapping>,
}

impl MappingHold {
    /// First address of the mapping.
    #[cfg_attr(not(rkfd_kunit), expect(dead_code, reason = "seen by tests"))]
    pub(crate) fn va(&self) -> u64 {
        self.mapping.va
    }
}

impl Drop for MappingHold {
    fn drop(&mut self) {
        self.mapping.holds.add(-1, Relaxed);
    }
}
