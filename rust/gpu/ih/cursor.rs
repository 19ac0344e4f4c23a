// SPDX-License-Identifier: GPL-2.0

//! Reading a ring that a device fills: the part that needs no device.
//!
//! A [`Cursor`] is the place up to which a ring was read. It trusts nothing: a write pointer
//! outside the ring is reported and nothing is read, an overflow skips to the oldest vector that
//! survives, and a pass ends after a fixed number of rounds however fast the device appends.

use kernel::prelude::*;

use crate::hw::ih::{
    Pending,
    Ring,
    Vector, //
};

/// How often a pass looks for new vectors before it leaves the rest to the next interrupt.
pub(crate) const MAX_ROUNDS: u32 = 16;

/// One ring as the device shows it.
pub(crate) trait Port {
    /// The write pointer with its flags, as the device reports it.
    ///
    /// # Errors
    ///
    /// `EIO` if the device is lost, `ENODEV` if its memory is gone.
    fn wptr(&mut self) -> Result<u32>;
    /// The vector at byte `position`, which is inside the ring. Called after [`Port::wptr`] has
    /// shown that it is complete.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the memory is gone.
    fn vector(&mut self, position: u32) -> Result<Vector>;
    /// Writes the read pointer of the device.
    fn set_rptr(&mut self, position: u32);
    /// Lets the device report the next overflow.
    fn clear_overflow(&mut self);
}

/// What a pass met besides vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pass {
    /// Vectors delivered.
    pub(crate) vectors: u32,
    /// Overflows.
    pub(crate) overflows: u32,
    /// A write pointer that cannot be, at which the pass ended.
    pub(crate) bad_pointer: Option<u32>,
}

/// The place up to which a ring was read.
pub(crate) struct Cursor {
    ring: Ring,
    rptr: u32,
}

impl Cursor {
    /// The start of a ring.
    pub(crate) const fn new(ring: Ring) -> Self {
        Self { ring, rptr: 0 }
    }

    /// The ring.
    pub(crate) const fn ring(&self) -> Ring {
        self.ring
    }

    /// Byte position of the next vector.
    pub(crate) const fn position(&self) -> u32 {
        self.rptr
    }

    /// Goes back to the start, with the hardware's pointers.
    pub(crate) fn reset(&mut self) {
        self.rptr = 0;
    }

    /// Delivers all vectors that are there.
    ///
    /// # Errors
    ///
    /// Those of the port; what was delivered before stays delivered.
    pub(crate) fn drain<P: Port>(
        &mut self,
        port: &mut P,
        mut deliver: impl FnMut(&mut P, &Vector),
    ) -> Result<Pass> {
        let mut pass = Pass::default();
        for _ in 0..MAX_ROUNDS {
            let end = match self.ring.pending(port.wptr()?) {
                Pending::UpTo(end) => end,
                Pending::Overflow { restart, end } => {
                    pass.overflows += 1;
                    self.rptr = restart;
                    port.clear_overflow();
                    end
                }
                Pending::Bad(raw) => {
                    pass.bad_pointer = Some(raw);
                    return Ok(pass);
                }
            };
            if end == self.rptr {
                return Ok(pass);
            }
            for _ in 0..self.ring.count(self.rptr, end) {
                let vector = port.vector(self.rptr)?;
                deliver(port, &vector);
                self.rptr = self.ring.next(self.rptr);
                pass.vectors += 1;
            }
            port.set_rptr(self.rptr);
        }
        Ok(pass)
    }
}
