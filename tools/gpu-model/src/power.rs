// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Power-on, resets and sleep.

use crate::cp::Cp;
use crate::device::{Gpu, FB_BASE};
use crate::hws::Hws;
use crate::mem::{Noise, Unwritten};
use crate::regs::array::GFX_INDEX_RESET;
use crate::regs::{gc, mp, nbio, RegFile};
use crate::sdma::regs::BLOCKS;
use crate::sdma::Engine;
use crate::strays::Strays;
use crate::trace::{Origin, Reason, Ring};
use crate::vm::HubId;

/// How long at least the device is gone during a mode-1 reset.
const MODE1_NS: u64 = 20_000_000;

/// BIOS_SCRATCH_7: the board is posted (`ATOM_S7_ASIC_INIT_COMPLETE_MASK` of `atombios.h`).
const ASIC_INIT_COMPLETE: u32 = 1 << 9;

/// UMCCHn_0_EccCtrl.UCFatalEn: errors that cannot be corrected are fatal, memory is not poisoned, as the data fabric
/// has it (HardwareAssertMask registers of 0).
const UC_FATAL_EN: u32 = 1 << 8;

impl Gpu {
    /// Records that a reset takes every queue off its slot; nothing is saved.
    fn unseat_all(&mut self) {
        let busy: Vec<_> = self
            .cp
            .iter()
            .filter(|(_, h)| h.active())
            .map(|(s, _)| s)
            .collect();
        self.hold_all_waves();
        for slot in busy {
            self.kill_queue(slot, Reason::Reset);
        }
        for engine in 0..self.sdma.len() {
            for block in 0..BLOCKS {
                self.sdma_stop(engine, block, Reason::Reset);
            }
        }
    }

    /// All registers and blocks as after power-on; VRAM stays.
    pub(crate) fn power_on(&mut self) {
        self.unseat_all();
        let size = self.soc.mem.vram_size();
        for hub in [HubId::Gfx, HubId::Mm] {
            self.soc.hub_mut(hub).reset(FB_BASE, size);
        }
        self.soc.regs = RegFile::default();
        self.soc.ih_reset();
        self.cp = Cp::default();
        self.hws = Hws::default();
        drop(self.soc.take_rung());
        self.waves.drop_posts();
        self.soc.mem.hdp_reset();
        self.soc.strays = Strays::default();
        self.sdma = self
            .soc
            .asic
            .sdma
            .iter()
            .map(|_| Engine::new(&self.soc.asic.sdma_layout, self.soc.board.sdma_firmware))
            .collect();
        let mib = u32::try_from(size >> 20).unwrap_or(u32::MAX);
        let (nb, mpb) = (self.soc.asic.nbio2, self.soc.asic.mp);
        for (r, v) in [
            (nb + nbio::CONFIG_MEMSIZE, mib),
            (nb + nbio::BIF_FB_EN, 3),
            (nbio::BIOS_SCRATCH_7, ASIC_INIT_COMPLETE),
            (gc::CP_MEC_CNTL, 0x5000_0000),
            // Who loads firmware leaves its version in the address register; the boot firmware has.
            (gc::CP_MEC_ME1_UCODE_ADDR, self.soc.board.mec_firmware),
            (gc::GRBM_GFX_INDEX, GFX_INDEX_RESET),
            (gc::GB_ADDR_CONFIG, 0x2A11_0012),
            (gc::CP_IQ_WAIT_TIME1, 0x4040_4040),
            (gc::CP_IQ_WAIT_TIME2, 0x4040_4040),
            (mpb + mp::MP0_C2PMSG_33, 0x8000_0000),
            (mpb + mp::MP0_C2PMSG_35, 0x8000_0000),
            (mpb + mp::MP0_C2PMSG_64, 0x8000_0000),
            (mpb + mp::MP1_C2PMSG_90, 1),
            self.soc.asic.df_interleave,
        ] {
            self.soc.regs.set_plain(r, v);
        }
        for &r in self.soc.asic.ecc_controls {
            self.soc.regs.set_plain(r, UC_FATAL_EN);
        }
    }

    /// Function-level or VMM reset: everything to power-on state.  In the middle of a mode-1 reset the device stays away
    /// until the rest of VRAM is lost.
    pub fn device_reset(&mut self) {
        self.soc.log.stats.resets += 1;
        let losing = self.losing.is_some();
        self.in_reset_until = losing.then(|| self.soc.clock.now_ns());
        self.asleep = false;
        self.soc.inject.revive();
        self.power_on();
        self.soc.log.event(
            self.soc.clock.now_ns(),
            Ring::Device,
            Origin::default(),
            "RESET",
            "device reset".into(),
        );
    }

    /// Mode-1 reset: the device is gone for a while and comes back posted, its VRAM lost.
    pub fn mode1_reset(&mut self, by: &'static str) {
        let now = self.soc.clock.now_ns();
        self.soc.log.stats.resets += 1;
        self.soc.log.event(
            now,
            Ring::Device,
            Origin::default(),
            "RESET",
            format!("mode-1 reset through the {by}"),
        );
        self.power_on();
        self.lose_vram();
        self.soc.inject.clear_hangs();
        self.in_reset_until = Some(now + MODE1_NS);
    }

    /// What is in VRAM that nobody has written is noise everywhere, from now on and after each loss.  What is in VRAM now is
    /// lost.
    pub fn make_noise_everywhere(&mut self) {
        self.noise = Noise::Everywhere;
        self.lose_vram();
        while self.lose_some_vram() {}
    }

    /// Begins to lose what is in VRAM.
    pub(crate) fn lose_vram(&mut self) {
        self.losing = Some(Unwritten::all(&self.soc.mem, self.noise));
    }

    /// Carries out a piece of the loss of VRAM that is under way.  False if there is nothing left of it.
    pub(crate) fn lose_some_vram(&mut self) -> bool {
        let Some(mut losing) = self.losing.take() else {
            return false;
        };
        match losing.piece(&self.soc.mem) {
            Ok(true) => self.losing = Some(losing),
            Ok(false) => {}
            Err(e) => self.soc.log.note(&format!("VRAM keeps its content: {e:#}")),
        }
        self.losing.is_some()
    }

    /// PCI power state D3hot, or D0 again.  Asleep the device does nothing and answers to nothing but configuration
    /// accesses.  It wakes with its registers as after power-on; VRAM stays.
    pub fn set_asleep(&mut self, asleep: bool) {
        if asleep == self.asleep {
            return;
        }
        self.asleep = asleep;
        let text = if asleep {
            "D3hot"
        } else {
            self.power_on();
            "D0, registers are reset"
        };
        let now = self.soc.clock.now_ns();
        self.soc.log.event(
            now,
            Ring::Device,
            Origin::default(),
            "POWER",
            text.to_string(),
        );
    }

    /// Whether the device answers nothing: asleep, dead on request, or in a reset that is not over.
    pub(crate) fn absent(&mut self) -> bool {
        if self.asleep || self.soc.inject.dead() {
            return true;
        }
        match self.in_reset_until {
            Some(t) if self.soc.clock.now_ns() < t || self.losing.is_some() => true,
            Some(_) => {
                self.in_reset_until = None;
                false
            }
            None => false,
        }
    }
}
