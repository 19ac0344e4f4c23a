// SPDX-License-Identifier: GPL-2.0

//! The bytes that wait for the reader of one file.

use kernel::prelude::*;

/// Bytes that wait at most (`KFD_MAX_KFIFO_SIZE` of `kfd_smi_events.c`).
pub(crate) const SIZE: usize = 8192;

/// Lines in the order in which they came.
///
/// Positions count all bytes that ever came; the byte at position `p` lies at `p % SIZE`.
pub(crate) struct Fifo {
    /// `SIZE` bytes.
    bytes: KVec<u8>,
    /// Position behind the last byte.
    end: u64,
    /// Position of the first byte that was not taken.
    start: u64,
}

/// Bytes that were taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Position of the first one.
    start: u64,
    /// Their number.
    pub(crate) len: usize,
}

impl Fifo {
    /// Empty.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            bytes: KVec::from_elem(0, SIZE, GFP_KERNEL_ACCOUNT)?,
            end: 0,
            start: 0,
        })
    }

    fn len(&self) -> usize {
        // At most `SIZE`.
        usize::try_from(self.end - self.start).unwrap_or(SIZE)
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.end == self.start
    }

    /// Adds a line, or nothing of it; returns whether there was room. Allocates nothing.
    pub(crate) fn push(&mut self, line: &[u8]) -> bool {
        if line.len() > SIZE - self.len() {
            return false;
        }
        for byte in line {
            if let Some(place) = place(self.end).and_then(|at| self.bytes.get_mut(at)) {
                *place = *byte;
            }
            self.end += 1;
        }
        true
    }

    /// Takes as many bytes as there are and `to` has room for.
    pub(crate) fn take(&mut self, to: &mut [u8]) -> Taken {
        let start = self.start;
        let mut len = 0;
        for (byte, position) in to.iter_mut().zip(start..self.end) {
            let found = place(position).and_then(|at| self.bytes.get(at));
            *byte = found.copied().unwrap_or(0);
            len += 1;
        }
        // CAST: `usize` is at most 64 bits wide.
        self.start = start + len as u64;
        Taken { start, len }
    }

    /// Takes [`Self::take`] back, if nothing was taken and nothing came over it since.
    pub(crate) fn put_back(&mut self, taken: Taken) {
        // CAST: `usize` is at most 64 bits wide.
        let next = self.start == taken.start + taken.len as u64;
        if next && self.end - taken.start <= SIZE as u64 {
            self.start = taken.start;
        }
    }
}

/// Where the byte at `position` lies.
fn place(position: u64) -> Option<usize> {
    // CAST: `usize` is at most 64 bits wide.
    usize::try_from(position % SIZE as u64).ok()
}
