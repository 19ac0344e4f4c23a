// SPDX-License-Identifier: GPL-2.0

//! Names of registers, for people.

use core::fmt;

use super::gc;
use super::hqd;
use super::Reg;

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match name(*self) {
            Some(name) => f.write_str(name),
            None => write!(f, "reg:{:#x}", self.byte32()),
        }
    }
}

impl fmt::Debug for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reg({:#x} {})", self.byte32(), self)
    }
}

/// Name of a register of the graphics and compute block, or of the window of a queue slot.
pub(crate) fn name(reg: Reg) -> Option<&'static str> {
    gc::name(reg).or_else(|| {
        let entry = hqd::WINDOW.iter().find(|entry| entry.reg == reg)?;
        Some(entry.name)
    })
}
