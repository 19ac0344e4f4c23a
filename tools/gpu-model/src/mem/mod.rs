// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Memory the device can reach: its VRAM and the guest RAM that the VMM has shared for DMA.
//!
//! The [`Bus`] is shared by all threads and needs no lock to be used: [`Bus::current`] and [`Bus::pin`] give the
//! present [`Map`].  A change of the DMA mappings publishes another map, and what is unmapped goes when the last pin of
//! a map that has it is gone: [`Retired::wait`].

mod bus;
mod host;
mod map;
mod unwritten;

pub use bus::{Bus, Current, Pin, Retired};
pub use host::{Root, Unflushed};
pub use map::{Frame, Map};
pub use unwritten::{Noise, Unwritten};

/// A physical place, after all translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phys {
    /// Byte offset in VRAM.
    Vram(u64),
    /// Bus address (guest physical, or IOVA behind an IOMMU).
    Bus(u64),
}

impl Phys {
    /// The place `n` bytes further on.
    pub fn offset(self, n: u64) -> Phys {
        match self {
            Phys::Vram(o) => Phys::Vram(o.wrapping_add(n)),
            Phys::Bus(a) => Phys::Bus(a.wrapping_add(n)),
        }
    }
}

/// Nothing answers at this place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no memory at {0:x?}")]
pub struct NoMemory(pub Phys);
