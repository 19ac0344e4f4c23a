// SPDX-License-Identifier: GPL-2.0

//! Who is told of memory of a program that moves.
//!
//! A CPU fault knows no mirror, only the address space whose page it is about. Who reports moves of a program is
//! listed here by its address space, with memory that was made before: a look-up allocates nothing. Tested by
//! `rkfd_mirror_rules_live`.

use core::ops::Range;

use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    },
};

use crate::kapi::task::MmKey;

/// Why memory moves. The numbers are those of `rkfd_show_trigger`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Trigger {
    /// A program wants it.
    Request = 0,
    /// The GPU has accessed it, and a program wants it to move then.
    Access = 1,
    /// The CPU has touched it.
    Fault = 2,
    /// Others are to have the VRAM.
    Eviction = 3,
    /// The GPU ends, or sleeps.
    End = 4,
}

/// Where a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is about to begin.
    Begins,
    /// It is over. An error says why some stays; not all that does has one.
    Ended(Result),
}

/// A move between the system and the VRAM of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Movement {
    /// Addresses of what is to move, as far as it can.
    pub(crate) range: Range<u64>,
    /// To the system, else to VRAM.
    pub(crate) is_out: bool,
    /// Why.
    pub(crate) trigger: Trigger,
    /// Where it is.
    pub(crate) stage: Stage,
}

/// Is told of moves.
pub(crate) trait Witness: Send + Sync {
    /// Memory of the program moves. Called with the mmap lock and page locks, too: does not allocate, nor take a lock under
    /// which memory is allocated.
    fn memory_moves(&self, movement: &Movement);
}

/// A program, and who is told of moves of its memory.
struct Listed {
    /// The address space.
    program: MmKey,
    /// No other one has it.
    key: u64,
    witness: Arc<dyn Witness>,
}

/// Who is told of moves of a GPU's programs.
#[pin_data]
pub(crate) struct Witnesses {
    /// Innermost: nothing is allocated or dropped under it.
    #[pin]
    list: SpinLock<KVec<Listed>>,
    /// The key that was given last.
    last: Atomic<u64>,
}

impl Witnesses {
    /// Nobody.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            list <- new_spinlock!(KVec::new(), "rkfd_witnesses"),
            last: Atomic::new(0),
        })
    }

    /// From now on `witness` is told of moves of `program`, unless another one is already, until [`Self::remove`] with the key that
    /// is returned.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn add(&self, program: MmKey, witness: Arc<dyn Witness>) -> Result<u64> {
        let key = self.last.fetch_add(1, Relaxed).wrapping_add(1);
        let listed = Listed {
            program,
            key,
            witness,
        };
        let mut room = KVec::new();
        loop {
            let mut list = self.list.lock();
            let len = list.len();
            if len < list.capacity() {
                list.push_within_capacity(listed).map_err(|_| ENOMEM)?;
                return Ok(key);
            }
            if room.capacity() > len {
                for known in list.drain_all() {
                    room.push_within_capacity(known).map_err(|_| ENOMEM)?;
                }
                room.push_within_capacity(listed).map_err(|_| ENOMEM)?;
                let old = core::mem::replace(&mut *list, room);
                drop(list);
                drop(old);
                return Ok(key);
            }
            drop(list);
            room.reserve(2 * len + 1, GFP_KERNEL_ACCOUNT)?;
        }
    }

    /// Takes that back, if it was done.
    pub(super) fn remove(&self, key: u64) {
        let mut list = self.list.lock();
        let at = list.iter().position(|listed| listed.key == key);
        let removed = at.and_then(|at| list.remove(at).ok());
        drop(list);
        drop(removed);
    }

    /// Who is told of moves of `program`.
    pub(super) fn of(&self, program: MmKey) -> Option<Arc<dyn Witness>> {
        let list = self.list.lock();
        let listed = list.iter().find(|listed| listed.program == program);
        listed.map(|listed| listed.witness.clone())
    }
}
