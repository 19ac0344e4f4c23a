// SPDX-License-Identifier: GPL-2.0

//! What the interrupt thread has seen of queues, until a thread that may wait acts on it.
//!
//! The interrupt thread serves all processes and must not sleep on the state mutex. It leaves a [`Halt`] or the id
//! of a process here, under a spinlock that is held for a few instructions, and queues a work item that acts on
//! them. There is room for [`CAPACITY`] of each kind per GPU. What finds none is dropped: a queue that stops at a
//! bad packet, and one whose access is refused, is reported again when it is mapped next.
//!
//! A [`Halt`] names a queue by its doorbell, which another queue may get. So all halts are entered into the state
//! before a queue is added, and before any thread looks whether a queue may run
//! ([`changes::noted`](super::changes)).

use kernel::sync::Arc;

use crate::{
    hw::ih::PacketException,
    kapi::workqueue::OwnedQueue, //
};

/// Most notes of a kind.
pub(super) const CAPACITY: usize = 32;

/// A compute queue stopped at a packet that cannot be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Halt {
    /// The address space.
    pub(crate) pasid: u16,
    /// Id of the doorbell in the slice of the process.
    pub(crate) doorbell: u32,
    /// What is wrong with the packet.
    pub(crate) reason: PacketException,
}

/// Notes of one kind, each once.
struct List<T> {
    entries: [Option<T>; CAPACITY],
}

impl<T: Copy + PartialEq> List<T> {
    const fn new() -> Self {
        Self {
            entries: [None; CAPACITY],
        }
    }

    /// Adds `note` if it is not there. Returns false if there is no room.
    fn add(&mut self, note: T) -> bool {
        if self.entries.contains(&Some(note)) {
            return true;
        }
        let Some(free) = self.entries.iter_mut().find(|entry| entry.is_none()) else {
            return false;
        };
        *free = Some(note);
        true
    }

    fn take(&mut self) -> Option<T> {
        self.entries.iter_mut().find_map(Option::take)
    }
}

/// What is not acted on yet.
pub(super) struct Notes {
    halts: List<Halt>,
    /// Ids of processes.
    faults: List<u64>,
    /// Runs the work item; taken at shutdown.
    queue: Option<Arc<OwnedQueue>>,
}

impl Notes {
    /// None. Without a `queue` the caller that drives the scheduler acts on them.
    pub(super) const fn new(queue: Option<Arc<OwnedQueue>>) -> Self {
        Self {
            halts: List::new(),
            faults: List::new(),
            queue,
        }
    }

    /// Adds a halt. Returns false if there is no room.
    pub(super) fn add_halt(&mut self, halt: Halt) -> bool {
        self.halts.add(halt)
    }

    /// Adds a process that faulted. Returns false if there is no room.
    pub(super) fn add_fault(&mut self, proc: u64) -> bool {
        self.faults.add(proc)
    }

    /// Takes a halt.
    pub(super) fn take_halt(&mut self) -> Option<Halt> {
        self.halts.take()
    }

    /// Takes a process that faulted.
    pub(super) fn take_fault(&mut self) -> Option<u64> {
        self.faults.take()
    }

    /// Runs the work item.
    pub(super) fn queue(&self) -> Option<&OwnedQueue> {
        self.queue.as_deref()
    }

    /// Ends the use of the workqueue, whose last reference the caller drops, without locks.
    pub(super) fn close(&mut self) -> Option<Arc<OwnedQueue>> {
        self.queue.take()
    }
}
