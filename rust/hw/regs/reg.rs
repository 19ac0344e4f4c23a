// SPDX-License-Identifier: GPL-2.0

//! The address of a register.

use super::super::num;

/// Length of BAR5 in bytes; a register at or above it is only reachable through PCIE_INDEX2/DATA2.
pub(crate) const MMIO_SIZE: u32 = 0x8_0000;

/// Address of a 32-bit register.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reg(u32);

impl Reg {
    /// The register `offset` dwords into the IP segment that begins at dword `base`.
    pub(crate) const fn new(base: u32, offset: u32) -> Self {
        Self((base + offset) * 4)
    }

    /// Byte offset in BAR5.
    pub(crate) const fn byte(self) -> usize {
        num::index(self.0)
    }

    /// Byte offset in BAR5 as the 32-bit number that SDMA POLL_REGMEM takes.
    pub(crate) const fn byte32(self) -> u32 {
        self.0
    }

    /// Absolute dword number, as WRITE_DATA and WAIT_REG_MEM take it.
    pub(crate) const fn dword(self) -> u32 {
        self.0 / 4
    }

    /// The register `n` dwords further on: the high half of a pair, or an array element.
    pub(crate) const fn nth(self, n: u32) -> Self {
        Self(self.0 + n * 4)
    }

    /// Whether BAR5 reaches the register directly.
    pub(crate) const fn in_mmio(self) -> bool {
        self.0 < MMIO_SIZE
    }
}

/// Declares registers of one IP segment as `NAME = dword offset`.
macro_rules! regs {
    ($base:expr; $($(#[$meta:meta])* $name:ident = $offset:literal;)*) => {
        $(
            $(#[$meta])*
            pub(crate) const $name: $crate::hw::regs::Reg =
                $crate::hw::regs::Reg::new($base, $offset);
        )*
    };
}
pub(crate) use regs;
