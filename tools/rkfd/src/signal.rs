// SPDX-License-Identifier: GPL-2.0 OR MIT
//! HSA signals: 64 bytes of memory with a value that AQL packets decrement (`amd_signal_t`).

use std::sync::atomic::fence;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;

use crate::backoff::Backoff;
use crate::clock::Deadline;
use crate::device::Device;
use crate::error::Error;
use crate::error::Result;
use crate::event;
use crate::event::Event;
use crate::memory::Buffer;
use crate::memory::Kind;

/// Bytes of a signal; its alignment, too.
pub const BYTES: usize = 64;

pub(crate) const KIND: usize = 0;
pub(crate) const VALUE: usize = 8;
pub(crate) const MAILBOX: usize = 16;
pub(crate) const EVENT_ID: usize = 24;
const START: usize = 32;
const END: usize = 40;

/// `AMD_SIGNAL_KIND_USER`.
pub(crate) const KIND_USER: u64 = 1;

/// Signals in one buffer.
#[derive(Debug)]
pub struct Signals {
    device: Arc<Device>,
    memory: Buffer,
    count: usize,
    /// Threads that sleep on events of these signals, or are about to.
    sleepers: AtomicU32,
}

/// How long a waiter sleeps at most before it looks by itself: a program may also store to the memory behind the
/// library's back, which raises no event.
const SLEEP: Duration = Duration::from_millis(50);

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
        Ok(Self {
            device: device.clone(),
            memory,
            count,
            sleepers: AtomicU32::new(0),
        })
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

    /// Sets the value, after everything written before, and wakes who sleeps for it in [`Signals::wait_below`].
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn store(&self, index: usize, value: i64) -> Result<()> {
        self.value(index)?.store(value, Ordering::Release);
        // Either this sees the sleeper, or the sleeper sees the value: each looks after a fence that follows its store.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            if let Some(id) = self.event_of(index)? {
                // One that was destroyed wakes nobody; who slept on it looks by itself.
                let _ = event::raise(&self.device, id);
            }
        }
        Ok(())
    }

    /// Id of the event that completions of the signal raise.
    fn event_of(&self, index: usize) -> Result<Option<u32>> {
        let base = self.offset(index)?;
        Ok(match self.memory.read_u64(base + MAILBOX)? {
            0 => None,
            _ => Some(self.memory.read_u32(base + EVENT_ID)?),
        })
    }

    /// Lets packets of another GPU of this process wait for these signals and complete them: they have the same addresses
    /// there. Nothing happens where they are shared already.
    ///
    /// # Errors
    /// Those of [`Buffer::share`].
    pub fn share(&self, device: &Arc<Device>) -> Result<()> {
        self.memory.share(device)
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

    /// Waits until the value is below `bound`: spins for a moment, then sleeps, until the signal's event is raised where
    /// it has one, and for short times where not.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::TimedOut`].
    pub fn wait_below(&self, index: usize, bound: i64, limit: Duration) -> Result<i64> {
        let value = self.value(index)?;
        let deadline = Deadline::after(limit);
        let mut backoff = Backoff::new();
        let mut age = event::FIRST_AGE;
        loop {
            let last = value.load(Ordering::Acquire);
            if last < bound {
                return Ok(last);
            }
            let waited = deadline.elapsed();
            if deadline.passed() {
                return Err(Error::TimedOut {
                    what: "a signal",
                    seen: last as u64, // CAST: the bits, for a message.
                    ms: waited.as_millis(),
                });
            }
            let left = limit.saturating_sub(waited);
            if backoff.is_spinning() || !self.sleep(index, bound, &mut age, left)? {
                backoff.pause(left);
            }
        }
    }

    /// Sleeps on the signal's event. Returns whether it has one.
    fn sleep(&self, index: usize, bound: i64, age: &mut u64, left: Duration) -> Result<bool> {
        let Some(id) = self.event_of(index)? else {
            return Ok(false);
        };
        let _asleep = Asleep::new(&self.sleepers);
        if self.value(index)?.load(Ordering::Acquire) < bound {
            return Ok(true);
        }
        match event::wait_past(&self.device, id, age, left.min(SLEEP)) {
            Ok(_) => Ok(true),
            // The event was destroyed, though the signal still names it.
            Err(e) if matches!(e.errno(), Some(Errno::EINVAL | Errno::EIO)) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// Counts a thread as a sleeper while it lives.
struct Asleep<'a>(&'a AtomicU32);

impl<'a> Asleep<'a> {
    fn new(sleepers: &'a AtomicU32) -> Self {
        sleepers.fetch_add(1, Ordering::Relaxed);
        // See `Signals::store`.
        fence(Ordering::SeqCst);
        Self(sleepers)
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
