// SPDX-License-Identifier: GPL-2.0 OR MIT
//! HSA signals: 64 bytes of memory with a value that AQL packets decrement (`amd_signal_t`).

use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use crate::device::Device;
use crate::error::Error;
use crate::error::Result;
use crate::event::Event;
use crate::memory::Buffer;
use crate::memory::Kind;
use crate::queue::poll;

/// Bytes of a signal; its alignment, too.
pub const BYTES: usize = 64;

const KIND: usize = 0;
const VALUE: usize = 8;
const MAILBOX: usize = 16;
const EVENT_ID: usize = 24;
const START: usize = 32;
const END: usize = 40;

/// `AMD_SIGNAL_KIND_USER`.
const KIND_USER: u64 = 1;

/// Signals in one buffer.
#[derive(Debug)]
pub struct Signals {
    memory: Buffer,
    count: usize,
}

/// Clocks of the GPU at which a packet began and ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// When the packet was taken up.
    pub start: u64,
    /// When it was done.
    pub end: u64,
}

impl Signals {
    /// Allocates `count` signals with value 0.
    ///
    /// # Errors
    /// Those of [`Buffer::new`].
    pub fn new(device: &Arc<Device>, count: usize) -> Result<Self> {
        let bytes = count
            .checked_mul(BYTES)
            .ok_or(Error::Argument("More signals than memory"))?;
        let memory = Buffer::new(device, Kind::Gtt, bytes)?;
        for n in 0..count {
            memory.write_u64(n * BYTES + KIND, KIND_USER)?;
        }
        Ok(Self { memory, count })
    }

    fn offset(&self, index: usize) -> Result<usize> {
        if index < self.count {
            Ok(index * BYTES)
        } else {
            Err(Error::OutOfRange {
                offset: index.saturating_mul(BYTES),
                len: BYTES,
                size: self.count * BYTES,
            })
        }
    }

    /// Address for packets.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] where there is no such signal.
    pub fn address(&self, index: usize) -> Result<u64> {
        Ok(self.memory.address() + self.offset(index)? as u64) // CAST: a size in memory.
    }

    fn value(&self, index: usize) -> Result<&AtomicI64> {
        let offset = self.offset(index)? + VALUE;
        // SAFETY: `offset` is 8-byte aligned and inside the buffer, which lives as long as `self`; all access to the value
        // is atomic, the GPU's included.
        Ok(unsafe {
            AtomicI64::from_ptr(
                (self.memory.address() as usize as *mut u8)
                    .add(offset)
                    .cast(),
            )
        })
    }

    /// The value, after everything that the packet that set it had written.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn load(&self, index: usize) -> Result<i64> {
        Ok(self.value(index)?.load(Ordering::Acquire))
    }

    /// Sets the value, after everything written before.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn store(&self, index: usize, value: i64) -> Result<()> {
        self.value(index)?.store(value, Ordering::Release);
        Ok(())
    }

    /// Lets completions of this signal raise `event` too.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn attach(&self, index: usize, event: &Event) -> Result<()> {
        let base = self.offset(index)?;
        self.memory
            .write_u64(base + MAILBOX, event.slot_address())?;
        self.memory.write_u32(base + EVENT_ID, event.id())
    }

    /// When the packet that completed the signal ran.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn times(&self, index: usize) -> Result<Times> {
        let base = self.offset(index)?;
        Ok(Times {
            start: self.memory.read_u64(base + START)?,
            end: self.memory.read_u64(base + END)?,
        })
    }

    /// Polls until the value is below `bound`, without entering the kernel.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::TimedOut`].
    pub fn wait_below(&self, index: usize, bound: i64, limit: Duration) -> Result<i64> {
        let value = self.value(index)?;
        let mut last = 0;
        poll("a signal", limit, || {
            last = value.load(Ordering::Acquire);
            (last < bound, last as u64) // CAST: the bits, for a message.
        })?;
        Ok(last)
    }
}
