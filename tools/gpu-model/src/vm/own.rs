// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The device's own BARs seen from its queues.
//!
//! A driver may map doorbell pages and the HDP flush page into a process' GPU address space, as bus addresses.
//! Doorbells come back through the self-ring aperture of the BIF (`nbio_v7_4.c`).

use crate::device::{Gpu, BAR2_SIZE};
use crate::mem::Phys;
use crate::regs::{nbio, BAR5_SIZE};

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

/// Most doorbells that queues ring in one step; further ones are lost, which bounds the memory a user can claim.
const MAX_PENDING: usize = 4096;

impl Gpu {
    /// The device's own place behind a bus address, if there is one.
    pub(super) fn own_bar(&mut self, at: Phys) -> Option<OwnBar> {
        let Phys::Bus(addr) = at else { return None };
        let nb = self.asic.nbio2;
        let enabled = self.regs.plain(nb + nbio::SELFRING_CNTL) & 1 != 0;
        let aperture = u64::from(self.regs.plain(nb + nbio::SELFRING_LOW))
            | (u64::from(self.regs.plain(nb + nbio::SELFRING_HIGH)) << 32);
        if enabled && (aperture..aperture.saturating_add(BAR2_SIZE)).contains(&addr) {
            return Some(OwnBar::Doorbell(addr - aperture));
        }
        let bars = self.bars;
        let flush = bars.registers + u64::from(self.asic.hdp_remap);
        if bars.registers != 0 && (flush..bars.registers + BAR5_SIZE).contains(&addr) {
            return Some(OwnBar::Flush(addr - flush));
        }
        if bars.doorbells != 0 && (bars.doorbells..bars.doorbells + BAR2_SIZE).contains(&addr) {
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
        if self.self_doorbells.len() < MAX_PENDING {
            self.self_doorbells.push((offset, bytes.to_vec()));
        }
    }

    /// Delivers doorbells that queues rang; the ringing queue may be its own target.
    pub fn ring_own_doorbells(&mut self) {
        for (offset, bytes) in std::mem::take(&mut self.self_doorbells) {
            self.doorbell_write(offset, &bytes);
        }
    }
}
