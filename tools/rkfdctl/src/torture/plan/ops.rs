// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What a lane can do.

use rkfd::native::Hint;

use super::super::shadow::Access;

/// A packet of a GPU.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum GpuOp {
    /// Stores dwords.
    Write {
        page: usize,
        offset: usize,
        data: Vec<u32>,
    },
    /// Stores one dword again and again.
    Fill {
        page: usize,
        offset: usize,
        data: u32,
        bytes: usize,
    },
    /// Adds to a qword, atomically, more than once.
    Add {
        page: usize,
        offset: usize,
        value: u64,
        times: u32,
    },
    /// Copies from one page to another.
    Copy {
        from: (usize, usize),
        to: (usize, usize),
        bytes: usize,
    },
    /// Copies to where the program compares.
    Read {
        page: usize,
        offset: usize,
        wanted: Vec<u8>,
    },
}

/// What the CPU does.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum MemoryOp {
    MapPrivate {
        first: usize,
        count: usize,
        access: Access,
    },
    MapShared {
        first: usize,
        count: usize,
        from: usize,
        access: Access,
    },
    Unmap {
        first: usize,
        count: usize,
    },
    Move {
        from: usize,
        count: usize,
        to: usize,
    },
    Protect {
        first: usize,
        count: usize,
        access: Access,
    },
    Discard {
        first: usize,
        count: usize,
    },
    Free {
        first: usize,
        count: usize,
    },
    /// A hole in the file.
    Punch {
        first: usize,
        count: usize,
    },
    Advise {
        first: usize,
        count: usize,
        advice: Advice,
    },
    /// Memory goes to VRAM of a GPU, or to system memory by a mirror of that GPU. All that is there keeps its content.
    Migrate {
        first: usize,
        count: usize,
        gpu: usize,
        to: Place,
        /// Also pages that have no memory yet; to VRAM alone.
        fill: bool,
    },
    /// What a mirror of a GPU is told of where memory is to be when that GPU accesses it; nothing moves by this itself.
    Hint {
        first: usize,
        count: usize,
        gpu: usize,
        hint: Option<Hint>,
    },
    Fork,
    /// Stores in the CPU's stripes of pages; the bytes follow from `seed`.
    Write {
        first: usize,
        count: usize,
        seed: u64,
    },
    /// Compares the stripes of pages that no GPU writes.
    Check {
        first: usize,
        count: usize,
    },
}

/// Advice that changes no content.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Advice {
    Huge,
    Small,
    Collapse,
    Cold,
    PageOut,
}

/// Where memory can be.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Place {
    Vram,
    System,
}

impl Advice {
    pub const ALL: [Self; 5] = [
        Self::Huge,
        Self::Small,
        Self::Collapse,
        Self::Cold,
        Self::PageOut,
    ];
}
