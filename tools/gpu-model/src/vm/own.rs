// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The device's own BARs seen from its queues and waves.
//!
//! A driver may map doorbell pages and the HDP flush page into a process' GPU address space, as bus addresses.
//! Doorbells come back through the self-ring aperture of the BIF (`nbio_v7_4.c`).  Stores there are posted: who stores
//! goes on, and the device delivers doorbells at the end of its step.

use crate::device::BAR2_SIZE;
use crate::mem::Phys;
use crate::regs::{nbio, BAR5_SIZE};
use crate::soc::Soc;

/// A place in one of the device's BARs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnBar {
    /// Byte offset in the doorbell BAR.
    Doorbell(u64),
    /// Byte offset in the HDP flush page.
    Flush(u64),
}

/// Bus addresses of the BARs as configured by the guest; 0 while they are not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BarAddresses {
    /// BAR2.
    pub doorbells: u64,
    /// BAR5.
    pub registers: u64,
}

/// Where on the bus the device itself answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnRanges {
    /// First address of the self-ring aperture, which stands for the doorbell BAR; `None` while it is disabled.
    pub doorbells: Option<u64>,
    /// First address of the HDP flush page; `None` while BAR5 has no address.
    pub flush: Option<u64>,
    /// Bytes from there to the end of BAR5.
    pub flush_size: u64,
}

impl OwnRanges {
    /// The device's own place behind a bus address, if there is one.
    pub fn find(&self, at: Phys) -> Option<OwnBar> {
        let Phys::Bus(address) = at else { return None };
        let within = |first: Option<u64>, size: u64| {
            let offset = address.checked_sub(first?)?;
            (offset < size).then_some(offset)
        };
        within(self.doorbells, BAR2_SIZE)
            .map(OwnBar::Doorbell)
            .or_else(|| within(self.flush, self.flush_size).map(OwnBar::Flush))
    }
}

/// Most bytes that a lane stores at once.
const WIDEST: usize = 16;

/// A store of a lane to the doorbell BAR, on its way to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Post {
    /// Byte offset in the doorbell BAR.
    pub offset: u64,
    bytes: [u8; WIDEST],
    len: usize,
}

impl Post {
    /// A store of up to 16 bytes.
    pub fn new(offset: u64, data: &[u8]) -> Self {
        let mut bytes = [0; WIDEST];
        for (to, from) in bytes.iter_mut().zip(data) {
            *to = *from;
        }
        Self {
            offset,
            bytes,
            len: data.len().min(WIDEST),
        }
    }

    /// What is stored.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}

impl Soc {
    /// Where on the bus the device itself answers now.
    pub(crate) fn own_ranges(&self) -> OwnRanges {
        let nb = self.asic.nbio2;
        let enabled = self.regs.plain(nb + nbio::SELFRING_CNTL) & 1 != 0;
        let aperture = u64::from(self.regs.plain(nb + nbio::SELFRING_LOW))
            | (u64::from(self.regs.plain(nb + nbio::SELFRING_HIGH)) << 32);
        let remap = u64::from(self.asic.hdp_remap);
        let registers = self.bars().registers;
        OwnRanges {
            doorbells: enabled.then_some(aperture),
            flush: (registers != 0).then(|| registers.wrapping_add(remap)),
            flush_size: BAR5_SIZE.saturating_sub(remap),
        }
    }

    /// The device's own place behind a bus address, if there is one.
    pub(super) fn own_bar(&mut self, at: Phys) -> Option<OwnBar> {
        let found = self.own_ranges().find(at);
        if found.is_some() {
            return found;
        }
        let Phys::Bus(addr) = at else { return None };
        let doorbells = self.bars().doorbells;
        // A guest may put the BAR at the end of all addresses.
        let inside = addr.checked_sub(doorbells).is_some_and(|o| o < BAR2_SIZE);
        if doorbells != 0 && inside {
            let text = format!(
                "a queue reaches doorbell {addr:#x}, but the self-ring aperture does not cover it"
            );
            self.protocol_error("selfring", text);
        }
        None
    }

    /// A queue writes to one of the device's own BARs.
    pub(super) fn own_write(&mut self, to: OwnBar, bytes: &[u8]) {
        let offset = match to {
            OwnBar::Doorbell(offset) => offset,
            // The first dword of the page is the flush of memory, the second that of registers.
            OwnBar::Flush(offset) => {
                if offset < 4 {
                    self.mem.hdp_flush();
                }
                return;
            }
        };
        self.ring_later(offset, bytes);
    }
}
