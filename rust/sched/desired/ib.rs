// SPDX-License-Identifier: GPL-2.0

//! The memory that runlists lie in. It belongs to the desired state, because a queue is only admitted when
//! there is memory for the list that it will be part of.
//!
//! The memory is edited in place: a list differs little from the one before it, and as long as nothing
//! in front of a process came or went, what the device reads of that process is not touched.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    hw::{
        num::index,
        pm4::RunList, //
    },
    sched::platform::{
        DeviceMem,
        Domain,
        Platform, //
    }, //
};

/// Room for a runlist: the memory that the firmware reads, and the copy that it is built in.
pub(in crate::sched) struct ListBuffer {
    mem: Arc<dyn DeviceMem>,
    /// The list as composed last.
    words: KVVec<u32>,
    /// What the memory holds: the list before it, or the start of it.
    held: KVVec<u32>,
    capacity: usize,
}

/// Granularity of [`ListBuffer`]'s edits in dwords: a cache line.
const EDIT: usize = 16;

impl ListBuffer {
    /// Dwords of the first buffer: enough for a dozen processes with two dozen queues.
    pub(in crate::sched) const FIRST_DWORDS: usize = 1024;

    /// Allocates room for `dwords`, rounded up to whole pages.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: longer than a runlist can be. `ENOMEM`, `ENODEV`.
    pub(in crate::sched) fn new(platform: &dyn Platform, dwords: usize) -> Result<Self> {
        let bytes = dwords
            .checked_mul(4)
            .and_then(|bytes| bytes.checked_next_multiple_of(kernel::page::PAGE_SIZE))
            .ok_or(ENOSPC)?;
        let capacity = bytes / 4;
        if dwords > index(RunList::MAX_IB_DWORDS) {
            return Err(ENOSPC);
        }
        Ok(Self {
            mem: platform.alloc(bytes, Domain::Gart)?,
            words: KVVec::with_capacity(capacity, GFP_KERNEL)?,
            held: KVVec::with_capacity(capacity, GFP_KERNEL)?,
            capacity,
        })
    }

    /// Dwords that fit.
    pub(in crate::sched) fn capacity(&self) -> usize {
        self.capacity.min(index(RunList::MAX_IB_DWORDS))
    }

    /// The list as built last.
    pub(in crate::sched) fn words(&self) -> &[u32] {
        &self.words
    }

    /// GPU address.
    pub(in crate::sched) fn gpu_addr(&self) -> u64 {
        self.mem.gpu_addr()
    }

    /// Has `compose` fill in a list of `dwords`, given its GPU address, and gives it to the device. Returns
    /// how many dwords were written: what the former list has in common with it stays as it is.
    ///
    /// # Errors
    ///
    /// Of `compose`; `ENODEV`.
    pub(in crate::sched) fn fill(
        &mut self,
        dwords: usize,
        compose: impl FnOnce(u64, &mut [u32]) -> Result,
    ) -> Result<usize> {
        // Never allocates: as many words were there when the buffer was made.
        self.words.clear();
        self.words
            .extend_with(dwords.min(self.capacity()), 0, GFP_NOWAIT)?;
        compose(self.mem.gpu_addr(), &mut self.words)?;
        let written = self.edit()?;
        self.mem.flush()?;
        Ok(written)
    }

    /// Brings the memory from what it holds to what was composed.
    fn edit(&mut self) -> Result<usize> {
        let mut written = 0;
        for (nth, new) in self.words.chunks(EDIT).enumerate() {
            let at = nth * EDIT;
            if self.held.get(at..at + new.len()) == Some(new) {
                continue;
            }
            self.mem.write_dwords(at * 4, new)?;
            written += new.len();
            // Noted at once, so that an error leaves the copy true. Never allocates either.
            match self.held.get_mut(at..) {
                Some(held) if held.len() >= new.len() => {
                    held.get_mut(..new.len())
                        .ok_or(EINVAL)?
                        .copy_from_slice(new);
                }
                _ => {
                    self.held.truncate(at);
                    self.held.extend_from_slice(new, GFP_NOWAIT)?;
                }
            }
        }
        Ok(written)
    }
}

/// The buffer of the active list, and those that wait to take its place or to be freed.
pub(in crate::sched) struct ListBuffers {
    current: ListBuffer,
    /// A larger one that replaces `current` when no list is active.
    next: Option<ListBuffer>,
    /// One that was replaced; freed by the next caller that brings one.
    old: Option<ListBuffer>,
}

impl ListBuffers {
    /// Begins with `first`.
    pub(super) fn new(first: ListBuffer) -> Self {
        Self {
            current: first,
            next: None,
            old: None,
        }
    }

    /// Dwords that the next list may have.
    pub(in crate::sched) fn capacity(&self) -> usize {
        let next = self.next.as_ref().map_or(0, ListBuffer::capacity);
        self.current.capacity().max(next)
    }

    /// Takes a larger buffer for the next list, and gives back one that is not needed any more.
    pub(in crate::sched) fn swap(&mut self, buffer: &mut Option<ListBuffer>) {
        if let Some(new) = buffer.take() {
            if new.capacity() > self.capacity() {
                *buffer = self.next.replace(new);
            } else {
                *buffer = Some(new);
            }
        }
        if buffer.is_none() {
            *buffer = self.old.take();
        }
    }

    /// The buffer of the active list.
    pub(in crate::sched) fn current(&self) -> &ListBuffer {
        &self.current
    }

    /// The buffer for the next list. None may be active.
    pub(in crate::sched) fn take_next(&mut self) -> &mut ListBuffer {
        if let Some(next) = self.next.take() {
            self.old = Some(core::mem::replace(&mut self.current, next));
        }
        &mut self.current
    }
}
