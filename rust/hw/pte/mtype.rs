// SPDX-License-Identifier: GPL-2.0

//! Memory types, and which one an ASIC wants for memory of a place and a use.
//!
//! Source: `gmc_v9_0.c`.

/// Memory type: how caches treat a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mtype {
    /// Cached, not coherent.
    Nc = 0,
    /// Cached, local memory.
    Rw = 1,
    /// Cached, coherent.
    Cc = 2,
    /// Not cached.
    Uc = 3,
}

impl Mtype {
    /// Memory type in the lowest bits; those above are ignored.
    pub(super) const fn from_bits(bits: u64) -> Self {
        match bits & 3 {
            0 => Self::Nc,
            1 => Self::Rw,
            2 => Self::Cc,
            _ => Self::Uc,
        }
    }
}

/// How memory types are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MtypePolicy {
    /// gfx906: coherent or uncached memory is UC, all else NC.
    Vega,
    /// gfx90a: local memory is RW, CC or UC; all else NC or UC.
    Aldebaran,
}

/// Where a page lies, as seen by the GPU that maps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Its own VRAM.
    Local,
    /// VRAM of another GPU.
    Peer,
    /// System memory.
    System,
}

/// What the user asked of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coherence {
    /// Nothing.
    Default,
    /// Coherent while a kernel runs.
    Coherent,
    /// Never cached.
    Uncached,
}

impl MtypePolicy {
    /// Memory type of a mapping (`gmc_v9_0_get_coherence_flags`).
    pub(crate) const fn mtype(self, memory: Memory, coherence: Coherence) -> Mtype {
        match (self, memory, coherence) {
            (Self::Aldebaran, Memory::Local, Coherence::Default) => Mtype::Rw,
            (Self::Aldebaran, Memory::Local, Coherence::Coherent) => Mtype::Cc,
            (_, _, Coherence::Coherent | Coherence::Uncached) => Mtype::Uc,
            (_, _, Coherence::Default) => Mtype::Nc,
        }
    }
}
