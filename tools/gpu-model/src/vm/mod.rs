// SPDX-License-Identifier: GPL-2.0 OR MIT
//! GPU virtual memory: the two hubs, the page-table walker, the address spaces with their cached translations.
//!
//! [`space::Spaces`] is shared by all threads.  The register files of the hubs ([`hub`]), faults and what they lead to
//! ([`fault`]) and the accesses of the packet engines ([`access`]) belong to the device behind its lock.

pub mod access;
pub mod executor;
pub mod fault;
pub mod hub;
pub mod lanes;
pub mod own;
pub mod range;
mod recent;
pub mod space;
pub mod tlb;
pub mod walk;
pub mod window;

pub use recent::Recent;

use walk::bits;

/// Which hub (and so which translation cache and register file) an access goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HubId {
    /// Command processor and shaders.
    Gfx,
    /// SDMA, IH.
    Mm,
}

/// The kind of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Load.
    Read,
    /// Store or atomic.
    Write,
    /// Atomic read-modify-write.
    Atomic,
    /// Instruction fetch of a shader.
    Execute,
}

impl Access {
    /// The permission bits of an entry that it needs.
    #[inline]
    pub fn needs(self) -> u64 {
        match self {
            Access::Read => bits::R,
            Access::Write => bits::W,
            Access::Atomic => bits::R | bits::W,
            Access::Execute => bits::X,
        }
    }

    /// Changes memory.
    pub fn writes(self) -> bool {
        matches!(self, Access::Write | Access::Atomic)
    }
}

/// Who makes an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// Hub.
    pub hub: HubId,
    /// Address space.
    pub vmid: u8,
    /// Client id as the fault status register shows it.
    pub cid: u16,
}

/// Client id of the CP fetcher in the GFXHUB.
pub const CID_CPF: u16 = 4;
/// Client id of the compute CP in the GFXHUB.
pub const CID_CPC: u16 = 5;
/// Client id of the vector memory unit in the GFXHUB.
pub const CID_TCP: u16 = 8;
