// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The interrupt handler block: three rings of 32-byte vectors.
//!
//! Registers and rules: `vega20_ih.c`, `amdgpu_ih.c` and the osssys headers of Linux.

use crate::mem::Phys;
use crate::soc::Soc;
use crate::trace::{Origin, Ring};
use crate::vm::{Client, HubId};

/// Interrupt client ids (`soc15_ih_clientid.h`).
pub mod client {
    /// The IH itself.
    pub const IH: u8 = 0x00;
    /// Waves of the first shader engine; three more follow.
    pub const SE0SH: u8 = 0x0A;
    /// MMHUB faults.
    pub const VMC: u8 = 0x12;
    /// Command processor.
    pub const GRBM_CP: u8 = 0x14;
    /// GFXHUB faults.
    pub const UTCL2: u8 = 0x1B;
}

/// Register offsets from the OSSSYS base.
pub mod reg {
    /// IH_VMID_0_LUT.
    pub const VMID_LUT: u32 = 0x00;
    /// IH_VMID_0_LUT_MM.
    pub const VMID_LUT_MM: u32 = 0x10;
    /// First register of each ring.
    pub const RING: [u32; 3] = [0x80, 0x8C, 0x98];
    /// IH_RB_CNTL within a ring.
    pub const CNTL: u32 = 0;
    /// IH_RB_BASE.
    pub const BASE: u32 = 1;
    /// IH_RB_BASE_HI.
    pub const BASE_HI: u32 = 2;
    /// IH_RB_RPTR.
    pub const RPTR: u32 = 3;
    /// IH_RB_WPTR.
    pub const WPTR: u32 = 4;
    /// IH_RB_WPTR_ADDR_HI (ring 0).
    pub const WPTR_ADDR_HI: u32 = 5;
    /// IH_RB_WPTR_ADDR_LO (ring 0).
    pub const WPTR_ADDR_LO: u32 = 6;
    /// IH_DOORBELL_RPTR.
    pub const DOORBELL: u32 = 7;
    /// IH_DOORBELL_RETRY_CAM.
    pub const DOORBELL_CAM: u32 = 0x88;
    /// IH_RETRY_CAM_ACK.
    pub const CAM_ACK: u32 = 0xA4;
}

mod cntl {
    pub const ENABLE: u32 = 1 << 0;
    pub const WPTR_WRITEBACK: u32 = 1 << 8;
    pub const OVERFLOW_ENABLE: u32 = 1 << 16;
    pub const ENABLE_INTR: u32 = 1 << 17;
    pub const RPTR_REARM: u32 = 1 << 21;
    pub const OVERFLOW_CLEAR: u32 = 1 << 31;
}

const OFFSET_MASK: u32 = 0x3_FFFC;
const OVERFLOW: u32 = 1;
const IV_BYTES: u32 = 32;
const CHICKEN_MC_SPACE_GPA: u32 = 1 << 4;

/// An interrupt vector before the IH adds timestamp and PASID.
#[derive(Debug, Clone, Copy, Default)]
pub struct Iv {
    /// Client id.
    pub client: u8,
    /// Source id.
    pub source: u8,
    /// Ring id.
    pub ring_id: u8,
    /// VMID.
    pub vmid: u8,
    /// The VMID is one of the MMHUB.
    pub mm: bool,
    /// Source data ("context id").
    pub data: [u32; 4],
}

/// State that no register shows.
#[derive(Debug)]
pub struct Ih {
    armed: bool,
    last_tick: u64,
}

impl Default for Ih {
    fn default() -> Self {
        Self {
            armed: true,
            last_tick: 0,
        }
    }
}

impl Soc {
    fn ih_reg(&self, ring: usize, r: u32) -> u32 {
        let base = reg::RING.get(ring).copied().unwrap_or(0x80);
        self.regs.plain(self.asic.osssys + base + r)
    }

    fn ih_set(&mut self, ring: usize, r: u32, v: u32) {
        let base = reg::RING.get(ring).copied().unwrap_or(0x80);
        self.regs.set_plain(self.asic.osssys + base + r, v);
    }

    /// Whether a ring is on.
    pub fn ih_ring_enabled(&self, ring: usize) -> bool {
        self.ih_reg(ring, reg::CNTL) & cntl::ENABLE != 0
    }

    /// Whether the retry CAM is on.
    pub fn ih_cam_enabled(&self) -> bool {
        self.regs.plain(self.asic.osssys + self.asic.ih_cam_cntl) & (1 << 16) != 0
    }

    /// The PASID that the IH's lookup table gives a VMID.
    pub fn pasid_of(&self, vmid: u8, hub: HubId) -> u16 {
        let table = if hub == HubId::Mm {
            reg::VMID_LUT_MM
        } else {
            reg::VMID_LUT
        };
        self.regs
            .plain(self.asic.osssys + table + u32::from(vmid & 0xF)) as u16
    }

    /// Ring size in bytes.
    fn ih_size(&self, ring: usize) -> u32 {
        4u32.checked_shl((self.ih_reg(ring, reg::CNTL) >> 1) & 0x1F)
            .unwrap_or(0)
    }

    /// Writes to a ring's memory, in the address space that MC_SPACE selects.
    fn ih_write(&mut self, ring: usize, addr: u64, bytes: &[u8]) {
        if !self.mem.bus_master() {
            self.log.stats.dma_blocked += 1;
            return;
        }
        let space = (self.ih_reg(ring, reg::CNTL) >> 28) & 7;
        let failed = match space {
            4 => {
                let c = Client {
                    hub: HubId::Mm,
                    vmid: 0,
                    cid: self.asic.ih_cid,
                };
                // A fault of its own must not post a vector: that one would fault as well.
                match self.vm_write_unraised(c, addr, bytes) {
                    Ok(()) => None,
                    Err(None) => Some("permission".into()),
                    Err(Some(why)) => Some(format!("{why:x?}")),
                }
            }
            _ => self
                .mem
                .write(Phys::Bus(addr), bytes)
                .is_err()
                .then(|| "no memory".into()),
        };
        if let Some(why) = failed {
            let why: String = why;
            let text = format!(
                "IH ring {ring} writes {} bytes to {addr:#x} (MC_SPACE {space}): {why}",
                bytes.len()
            );
            self.protocol_error("ih-nowhere", text);
        }
    }

    /// Puts a vector into a ring and interrupts the host.
    pub fn ih_post(&mut self, ring: usize, iv: Iv) {
        let now = self.clock.now_ns();
        let hub = if iv.mm { HubId::Mm } else { HubId::Gfx };
        let pasid = self.pasid_of(iv.vmid, hub);
        let origin = Origin {
            vmid: iv.vmid,
            pasid,
            doorbell: 0,
        };
        if self.inject.take_interrupt() {
            self.log.event(
                now,
                Ring::Ih,
                origin,
                "DROPPED",
                "interrupt dropped on request".into(),
            );
            return;
        }
        let rb = self.ih_reg(ring, reg::CNTL);
        if rb & cntl::ENABLE == 0 {
            return;
        }
        let size = self.ih_size(ring);
        if !(64..=1 << 18).contains(&size) {
            self.protocol_error("ih-size", format!("IH ring {ring} has {size} bytes"));
            return;
        }
        let mask = size - 1;
        let wptr_reg = self.ih_reg(ring, reg::WPTR);
        let wptr = wptr_reg & OFFSET_MASK & mask;
        let rptr = self.ih_reg(ring, reg::RPTR) & OFFSET_MASK & mask;
        let next = (wptr + IV_BYTES) & mask;
        let mut overflow = wptr_reg & OVERFLOW;
        if next == rptr {
            self.log.stats.ih_overflows += 1;
            if rb & cntl::OVERFLOW_ENABLE == 0 {
                return;
            }
            // While the driver holds OVERFLOW_CLEAR, an overflow happens but is not latched.
            if rb & cntl::OVERFLOW_CLEAR == 0 {
                overflow = OVERFLOW;
            }
            // The oldest entry is lost: what is left begins behind the new one, where the driver will restart.
            self.ih_set(ring, reg::RPTR, (next + IV_BYTES) & mask);
        }
        // Timestamps never go back, whatever the clock does.
        let ticks = self.clock.ticks().max(self.ih.last_tick) & 0xFFFF_FFFF_FFFF;
        self.ih.last_tick = ticks;
        let words = [
            u32::from(iv.client)
                | (u32::from(iv.source) << 8)
                | (u32::from(iv.ring_id) << 16)
                | (u32::from(iv.vmid & 0xF) << 24)
                | (u32::from(iv.mm) << 31),
            ticks as u32,
            (ticks >> 32) as u32,
            u32::from(pasid),
            iv.data[0],
            iv.data[1],
            iv.data[2],
            iv.data[3],
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let base = (u64::from(self.ih_reg(ring, reg::BASE)) << 8)
            | (u64::from(self.ih_reg(ring, reg::BASE_HI) & 0xFF) << 40);
        self.ih_write(ring, base + u64::from(wptr), &bytes);
        let value = next | overflow;
        self.ih_set(ring, reg::WPTR, value);
        self.log.stats.interrupts_posted += 1;
        self.log.packet(now, Ring::Ih, origin, &words, words.len());
        if ring == 0 {
            if rb & cntl::WPTR_WRITEBACK != 0 {
                let addr = (u64::from(self.ih_reg(0, reg::WPTR_ADDR_HI) & 0xFFFF) << 32)
                    | u64::from(self.ih_reg(0, reg::WPTR_ADDR_LO));
                self.ih_write(0, addr, &value.to_le_bytes());
            }
            self.ih_interrupt();
        } else {
            // Only ring 0 interrupts; the others announce themselves there.
            let ring_id = u8::try_from(ring).unwrap_or(0);
            self.ih_post(
                0,
                Iv {
                    client: client::IH,
                    source: 0,
                    ring_id,
                    ..Iv::default()
                },
            );
        }
    }

    fn ih_interrupt(&mut self) {
        let rb = self.ih_reg(0, reg::CNTL);
        if rb & cntl::ENABLE_INTR == 0 {
            return;
        }
        if rb & cntl::RPTR_REARM != 0 {
            if !self.ih.armed {
                return;
            }
            self.ih.armed = false;
        }
        self.raise_msi();
    }

    /// A write to IH_RB_CNTL.
    pub fn ih_write_cntl(&mut self, ring: usize, v: u32) {
        let was = self.ih_reg(ring, reg::CNTL);
        self.ih_set(ring, reg::CNTL, v);
        // It takes the step from 0 to 1: a driver that leaves the bit at 1 clears once.
        if v & !was & cntl::OVERFLOW_CLEAR != 0 {
            let w = self.ih_reg(ring, reg::WPTR) & !OVERFLOW;
            self.ih_set(ring, reg::WPTR, w);
        }
        if v & cntl::ENABLE != 0 && was & cntl::ENABLE == 0 {
            self.ih_enabled(ring, v);
        }
    }

    fn ih_enabled(&mut self, ring: usize, v: u32) {
        if ring == 0 {
            self.ih.armed = true;
        }
        let chicken = self.regs.plain(self.asic.osssys + self.asic.ih_chicken);
        if self.asic.ih_needs_gpa && (v >> 28) & 7 == 1 && chicken & CHICKEN_MC_SPACE_GPA == 0 {
            let text = format!("IH ring {ring} uses bus addresses, IH_CHICKEN {chicken:#x} lacks MC_SPACE_GPA_ENABLE");
            self.protocol_error("ih-space", text);
        }
    }

    /// The driver moves a read pointer, by register or doorbell.
    pub fn ih_write_rptr(&mut self, ring: usize, v: u32) {
        let enabled = self.ih_ring_enabled(ring);
        let size = self.ih_size(ring);
        if enabled && (64..=1 << 18).contains(&size) {
            let mask = size - 1;
            let wptr_reg = self.ih_reg(ring, reg::WPTR);
            let wptr = wptr_reg & OFFSET_MASK & mask;
            let old = self.ih_reg(ring, reg::RPTR) & OFFSET_MASK & mask;
            if v % IV_BYTES != 0 || v > mask {
                let text = format!(
                    "IH ring {ring}: RPTR {v:#x} is not an entry of a ring of {size:#x} bytes"
                );
                self.protocol_error("ih-rptr", text);
            } else if wptr_reg & OVERFLOW == 0
                && v.wrapping_sub(old) & mask > wptr.wrapping_sub(old) & mask
            {
                let text =
                    format!("IH ring {ring}: RPTR {v:#x} beyond WPTR {wptr:#x} (was {old:#x})");
                self.protocol_error("ih-rptr", text);
            }
        }
        self.ih_set(ring, reg::RPTR, v & OFFSET_MASK);
        if ring == 0 && enabled {
            self.ih.armed = true;
            if self.ih_reg(0, reg::WPTR) & OFFSET_MASK != v & OFFSET_MASK {
                self.ih_interrupt();
            }
        }
    }

    /// The driver releases a retry CAM entry.
    pub fn ih_release_cam(&mut self, index: u32) {
        if !self.cam.release(index) {
            self.protocol_error(
                "cam-release",
                format!("retry CAM entry {index} released but not in use"),
            );
        }
        self.kick();
    }

    /// A doorbell write in the range of the IH (byte offset in BAR2).
    pub fn ih_doorbell(&mut self, byte: u64, v: u32) -> bool {
        let matches = |r: u32| r & (1 << 28) != 0 && u64::from(r & 0x03FF_FFFF) * 4 == byte;
        for ring in 0..3 {
            if matches(self.ih_reg(ring, reg::DOORBELL)) {
                self.ih_write_rptr(ring, v);
                return true;
            }
        }
        if matches(self.regs.plain(self.asic.osssys + reg::DOORBELL_CAM)) {
            self.ih_release_cam(v);
            return true;
        }
        false
    }

    /// Reset of the block.
    pub fn ih_reset(&mut self) {
        let last_tick = self.ih.last_tick;
        self.ih = Ih {
            last_tick,
            ..Ih::default()
        };
        self.cam.reset();
    }
}
