// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The address spaces, the walker and the caches of the model, as they are, and what little they need beside.

#[path = "../../src/vm/range.rs"]
pub mod range;
#[path = "../../src/vm/space.rs"]
pub mod space;
#[path = "../../src/vm/tlb.rs"]
pub mod tlb;
#[path = "../../src/vm/walk.rs"]
pub mod walk;

pub mod hub {
    /// Few are enough: spaces share nothing but the list of executors.
    pub const VMIDS: usize = 2;

    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Context {
        pub enabled: bool,
        pub depth: u32,
        pub block_size: u32,
        pub base: u64,
        pub start: u64,
        pub end: u64,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HubId {
    Gfx,
    Mm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access;

impl Access {
    pub fn needs(self) -> u64 {
        walk::bits::R
    }
}
