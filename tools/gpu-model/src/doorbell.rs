// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Doorbells on their way to the units, from the CPU, from queues and from waves.

use crate::device::{Gpu, BAR2_SIZE};
use crate::regs::nbio;
use crate::soc::DoorbellTarget;
use crate::strays::Kind as StrayKind;
use crate::trace::{Origin, Ring};

impl Gpu {
    /// A trapped write to BAR2.
    pub fn doorbell_write(&mut self, offset: u64, data: &[u8]) {
        self.soc.log.stats.doorbells += 1;
        if self.absent() {
            return;
        }
        let end = offset.saturating_add(data.len() as u64);
        let value = match (<[u8; 4]>::try_from(data), <[u8; 8]>::try_from(data)) {
            (Ok(w), _) if offset % 4 == 0 => u64::from(u32::from_le_bytes(w)),
            (_, Ok(q)) if offset % 8 == 0 => u64::from_le_bytes(q),
            _ => {
                self.soc.log.stats.user_errors += 1;
                let value = data
                    .iter()
                    .take(8)
                    .rev()
                    .fold(0, |v, b| (v << 8) | u64::from(*b));
                self.stray_doorbell(offset, value, true);
                return;
            }
        };
        if end > BAR2_SIZE {
            self.soc.protocol_error(
                "doorbell-range",
                format!("doorbell at {offset:#x} beyond BAR2"),
            );
            return;
        }
        if self
            .soc
            .regs
            .plain(self.soc.asic.nbio2 + nbio::DOORBELL_APER_EN)
            & 1
            == 0
        {
            self.soc.protocol_error(
                "doorbell-aperture",
                format!("doorbell {offset:#x} while RCC_DOORBELL_APER_EN is 0"),
            );
            return;
        }
        if !self.route_doorbell(offset, value, data.len() == 8) {
            self.stray_doorbell(offset, value, false);
        }
        self.hws_doorbell();
        self.soc.kick();
    }

    fn stray_doorbell(&mut self, byte: u64, value: u64, malformed: bool) {
        let now = self.soc.clock.now_ns();
        let stray = self.soc.strays.note(byte, value, malformed, now);
        let stats = &mut self.soc.log.stats;
        stats.doorbells_unmatched += 1;
        match stray.kind {
            StrayKind::Unmapped => stats.doorbells_unmapped += 1,
            StrayKind::Foreign => stats.doorbells_foreign += 1,
            StrayKind::Malformed => stats.doorbells_malformed += 1,
        }
        // A queue that waits for its turn rings as usual; that would fill the trace.
        if stray.kind != StrayKind::Unmapped {
            let origin = Origin {
                doorbell: (byte / 4) as u32,
                pasid: stray.pasid,
                vmid: 0,
            };
            let text = format!("doorbell byte {byte:#x} value {value:#x}: {:?}", stray.kind);
            self.soc
                .log
                .event(now, Ring::Device, origin, "DOORBELL_UNMATCHED", text);
        }
        // The doorbells in the ranges of other units never come to the CP.
        if stray.kind == StrayKind::Foreign && self.soc.doorbell_target(byte) == DoorbellTarget::Cp
        {
            self.unattached_doorbell((byte / 4) as u32);
        }
    }

    fn route_doorbell(&mut self, byte: u64, value: u64, wide: bool) -> bool {
        match self.soc.doorbell_target(byte) {
            DoorbellTarget::Ih => self.soc.ih_doorbell(byte, value as u32),
            DoorbellTarget::Sdma(i) => self.sdma_doorbell(i, byte, value, wide),
            DoorbellTarget::Cp => self.cp_doorbell(byte, value, wide),
        }
    }

    /// Delivers doorbells that queues and waves rang; the ringing queue may be its own target.
    pub fn ring_own_doorbells(&mut self) {
        for (offset, bytes) in self.soc.take_rung() {
            self.doorbell_write(offset, &bytes);
        }
        let posted = self.waves.take_posted();
        for post in &posted {
            self.doorbell_write(post.offset, post.bytes());
        }
        self.waves.delivered(posted.len());
    }
}
