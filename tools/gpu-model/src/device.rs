// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The GPU: its blocks, its entry points (registers, doorbells, reset) and its scheduler of work.
//!
//! One `Gpu` is a single-threaded machine.  The server wraps it in a lock; a worker thread calls [`Gpu::step`],
//! which runs a bounded amount of queue work, so the thread that answers trapped accesses never waits long.

use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::asic::Asic;
use crate::board::Board;
use crate::clock::Clock;
use crate::cp::Cp;
use crate::hws::Hws;
use crate::ih::Ih;
use crate::inject::{Injections, Rules};
use crate::latency::Latency;
use crate::mem::{Bus, Phys, Unwritten};
use crate::regs::array::GFX_INDEX_RESET;
use crate::regs::dispatch::Writer;
use crate::regs::{gc, mp, nbio, RegFile, BAR5_SIZE};
use crate::sdma::regs::BLOCKS;
use crate::sdma::Engine;
use crate::strays::{Kind as StrayKind, Strays};
use crate::trace::{Log, Origin, Reason, Ring};
use crate::vm::fault::RetryCam;
use crate::vm::hub::Hub;
use crate::vm::own::BarAddresses;
use crate::vm::space::Spaces;
use crate::vm::HubId;
use crate::waves::pool::Pool;
use crate::waves::units::Units;

/// Bytes of BAR2.
pub const BAR2_SIZE: u64 = 2 * 1024 * 1024;
/// MC address of the first byte of VRAM, as boards of this family have it.
pub const FB_BASE: u64 = 0x80_0000_0000;
/// How long at least the device is gone during a mode-1 reset.
const MODE1_NS: u64 = 20_000_000;

/// BIOS_SCRATCH_7: the board is posted (`ATOM_S7_ASIC_INIT_COMPLETE_MASK` of `atombios.h`).
const ASIC_INIT_COMPLETE: u32 = 1 << 9;

/// UMCCHn_0_EccCtrl.UCFatalEn: errors that cannot be corrected are fatal, memory is not poisoned, as the data fabric
/// has it (HardwareAssertMask registers of 0).
const UC_FATAL_EN: u32 = 1 << 8;

/// Where messages go.
pub trait MsiSink: Send {
    /// Sends the device's only message.
    fn raise(&self);
}

/// A sink that is not connected.
#[derive(Debug, Default)]
pub struct NoMsi;

impl MsiSink for NoMsi {
    fn raise(&self) {}
}

/// What the worker should do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// More work is at hand.
    Busy,
    /// Nothing to do before this time (nanoseconds of the device's clock), or before somebody writes to the device.
    Idle(Option<u64>),
}

/// Trapped accesses that wait for the device.
#[derive(Debug, Clone, Default)]
pub struct Callers(Arc<AtomicUsize>);

impl Callers {
    /// There are some.
    pub fn are_waiting(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// One more, until `get` returns.
    pub fn wait<T>(&self, get: impl FnOnce() -> T) -> T {
        self.0.fetch_add(1, Ordering::Relaxed);
        let got = get();
        self.0.fetch_sub(1, Ordering::Relaxed);
        got
    }
}

/// How long things have taken that somebody waits for, by the machine's clock.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
pub struct Latencies {
    /// Trapped accesses, from the request on.
    pub access: Latency,
    /// Steps.
    pub step: Latency,
}

/// The device.
pub struct Gpu {
    /// What is modelled.
    pub asic: &'static Asic,
    /// On which board.
    pub board: Board,
    /// Time.
    pub clock: Clock,
    /// VRAM and guest RAM.
    pub mem: Arc<Bus>,
    /// Address spaces.
    pub spaces: Arc<Spaces>,
    /// Trace, errors, counters.
    pub log: Log,
    /// VM hub of the command processor and shaders.
    pub gfxhub: Hub,
    /// VM hub of SDMA and IH.
    pub mmhub: Hub,
    /// Register storage.
    pub regs: RegFile,
    /// Interrupt handler.
    pub ih: Ih,
    /// Retry CAM.
    pub cam: RetryCam,
    /// Compute micro-engines.
    pub cp: Cp,
    /// Hardware scheduler.
    pub hws: Hws,
    /// SDMA engines.
    pub sdma: Vec<Engine>,
    /// Kernels under way.
    pub waves: Pool,
    /// Faults to inject.
    pub inject: Injections,
    /// Rules that are on.
    pub rules: Rules,
    /// Where the guest has put the BARs.
    pub bars: BarAddresses,
    /// Doorbells that nobody listened to.
    pub strays: Strays,
    /// Bytes that accesses by GPU address have read and written, for the length of stretches.
    pub bytes_moved: u64,
    /// Doorbells rung by queues: byte offset and data.
    pub self_doorbells: Vec<(u64, Vec<u8>)>,
    /// Who waits for the device.
    pub callers: Callers,
    /// Measurements of the server.
    pub latency: Latencies,
    /// When the step that runs has to end.
    pub step_ends: Option<Instant>,
    sdma_first: bool,
    msi: Box<dyn MsiSink>,
    kicked: bool,
    in_reset_until: Option<u64>,
    /// VRAM that a reset in progress has still to lose.
    losing: Option<Unwritten>,
    asleep: bool,
}

impl Gpu {
    /// A posted device.
    ///
    /// # Errors
    /// The ASIC has no such board, or VRAM cannot be mapped.
    pub fn new(
        asic: &'static Asic,
        board: Board,
        vram: File,
        vram_size: u64,
        clock: Clock,
        log: Log,
        msi: Box<dyn MsiSink>,
    ) -> anyhow::Result<Self> {
        board.check(asic).map_err(anyhow::Error::msg)?;
        let spaces = Arc::new(Spaces::default());
        let hub = |id| Hub::new(id, Arc::clone(&spaces), FB_BASE, vram_size);
        let mem = Arc::new(Bus::new(vram, vram_size)?);
        let units = std::array::from_fn(|engine| {
            let exists = engine < asic.engines as usize;
            let units = !board.inactive_units(asic, engine as u32) as u16;
            if exists {
                units
            } else {
                0
            }
        });
        let isa = asic.isa();
        let waves = Pool::new(
            Units::new(isa, &units),
            &mem,
            &spaces,
            &clock,
            board.engine_clock,
        );
        let mut gpu = Self {
            asic,
            board,
            clock,
            waves,
            mem,
            log,
            gfxhub: hub(HubId::Gfx),
            mmhub: hub(HubId::Mm),
            spaces,
            regs: RegFile::default(),
            ih: Ih::default(),
            cam: RetryCam::default(),
            cp: Cp::default(),
            hws: Hws::default(),
            sdma: Vec::new(),
            inject: Injections::default(),
            rules: Rules::default(),
            bars: BarAddresses::default(),
            strays: Strays::default(),
            bytes_moved: 0,
            self_doorbells: Vec::new(),
            callers: Callers::default(),
            latency: Latencies::default(),
            step_ends: None,
            sdma_first: false,
            msi,
            kicked: false,
            in_reset_until: None,
            losing: None,
            asleep: false,
        };
        gpu.mem.set_bus_bits(asic.bus_bits);
        gpu.losing = Some(Unwritten::all(&gpu.mem));
        while gpu.lose_some_vram() {}
        gpu.power_on();
        Ok(gpu)
    }

    /// Records that a reset takes every queue off its slot; nothing is saved.
    fn unseat_all(&mut self) {
        let busy: Vec<_> = self
            .cp
            .iter()
            .filter(|(_, h)| h.active())
            .map(|(s, _)| s)
            .collect();
        for slot in busy {
            self.stop_queue(slot, Reason::Reset);
        }
        for engine in 0..self.sdma.len() {
            for block in 0..BLOCKS {
                self.sdma_stop(engine, block, Reason::Reset);
            }
        }
    }

    fn power_on(&mut self) {
        self.unseat_all();
        let size = self.mem.vram_size();
        self.gfxhub.reset(FB_BASE, size);
        self.mmhub.reset(FB_BASE, size);
        self.regs = RegFile::default();
        self.ih_reset();
        self.cp = Cp::default();
        self.hws = Hws::default();
        self.self_doorbells.clear();
        self.waves.drop_posts();
        self.mem.hdp_flush();
        self.strays = Strays::default();
        self.sdma = self
            .asic
            .sdma
            .iter()
            .map(|_| Engine::new(&self.asic.sdma_layout, self.board.sdma_firmware))
            .collect();
        let mib = u32::try_from(size >> 20).unwrap_or(u32::MAX);
        let (nb, mpb) = (self.asic.nbio2, self.asic.mp);
        for (r, v) in [
            (nb + nbio::CONFIG_MEMSIZE, mib),
            (nb + nbio::BIF_FB_EN, 3),
            (nbio::BIOS_SCRATCH_7, ASIC_INIT_COMPLETE),
            (gc::CP_MEC_CNTL, 0x5000_0000),
            // Who loads firmware leaves its version in the address register; the boot firmware has.
            (gc::CP_MEC_ME1_UCODE_ADDR, self.board.mec_firmware),
            (gc::GRBM_GFX_INDEX, GFX_INDEX_RESET),
            (gc::GB_ADDR_CONFIG, 0x2A11_0012),
            (gc::CP_IQ_WAIT_TIME1, 0x4040_4040),
            (gc::CP_IQ_WAIT_TIME2, 0x4040_4040),
            (mpb + mp::MP0_C2PMSG_33, 0x8000_0000),
            (mpb + mp::MP0_C2PMSG_35, 0x8000_0000),
            (mpb + mp::MP0_C2PMSG_64, 0x8000_0000),
            (mpb + mp::MP1_C2PMSG_90, 1),
            self.asic.df_interleave,
        ] {
            self.regs.set_plain(r, v);
        }
        for &r in self.asic.ecc_controls {
            self.regs.set_plain(r, UC_FATAL_EN);
        }
    }

    /// Replaces the message sink.
    pub fn set_msi(&mut self, msi: Box<dyn MsiSink>) {
        self.msi = msi;
    }

    /// Sends the message.
    pub fn raise_msi(&mut self) {
        if self.inject.take_msi() {
            self.log.stats.msi_dropped += 1;
            self.log.event(
                self.clock.now_ns(),
                Ring::Device,
                Origin::default(),
                "MSI_DROPPED",
                "message lost on request".into(),
            );
            return;
        }
        if !self.mem.bus_master() {
            // A message is a write to memory.
            self.log.stats.msi_blocked += 1;
            return;
        }
        self.log.stats.msi_raised += 1;
        self.msi.raise();
    }

    /// Counts and reports a broken rule.
    pub fn protocol_error(&mut self, rule: &'static str, text: String) {
        let now = self.clock.now_ns();
        self.log.event(
            now,
            Ring::Device,
            Origin::default(),
            "PROTOCOL_ERROR",
            format!("{rule}: {text}"),
        );
        self.log.protocol_error(now, rule, text);
    }

    /// Lets every stalled queue try again at once.
    pub fn kick(&mut self) {
        self.kicked = true;
    }

    /// Takes the request of [`Gpu::kick`].
    fn take_kick(&mut self) -> bool {
        std::mem::take(&mut self.kicked)
    }

    /// Function-level or VMM reset: everything to power-on state.
    pub fn device_reset(&mut self) {
        self.log.stats.resets += 1;
        while self.lose_some_vram() {}
        self.in_reset_until = None;
        self.asleep = false;
        self.inject.revive();
        self.power_on();
        self.log.event(
            self.clock.now_ns(),
            Ring::Device,
            Origin::default(),
            "RESET",
            "device reset".into(),
        );
    }

    /// Mode-1 reset: the device is gone for a while and comes back posted, its VRAM lost.
    pub fn mode1_reset(&mut self, by: &'static str) {
        let now = self.clock.now_ns();
        self.log.stats.resets += 1;
        self.log.event(
            now,
            Ring::Device,
            Origin::default(),
            "RESET",
            format!("mode-1 reset through the {by}"),
        );
        self.power_on();
        self.losing = Some(Unwritten::all(&self.mem));
        self.inject.clear_hangs();
        self.in_reset_until = Some(now + MODE1_NS);
    }

    /// Carries out a piece of the loss of VRAM that is under way.  False if there is nothing left of it.
    fn lose_some_vram(&mut self) -> bool {
        let Some(mut losing) = self.losing.take() else {
            return false;
        };
        match losing.piece(&self.mem) {
            Ok(true) => self.losing = Some(losing),
            Ok(false) => {}
            Err(e) => self.log.note(&format!("VRAM keeps its content: {e:#}")),
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
        let now = self.clock.now_ns();
        self.log.event(
            now,
            Ring::Device,
            Origin::default(),
            "POWER",
            text.to_string(),
        );
    }

    fn absent(&mut self) -> bool {
        if self.asleep || self.inject.dead() {
            return true;
        }
        match self.in_reset_until {
            Some(t) if self.clock.now_ns() < t || self.losing.is_some() => true,
            Some(_) => {
                self.in_reset_until = None;
                false
            }
            None => false,
        }
    }

    /// A trapped read of BAR5.
    pub fn mmio_read(&mut self, offset: u64, data: &mut [u8]) {
        self.log.stats.mmio_reads += 1;
        if self.absent() {
            data.fill(0xFF);
            return;
        }
        data.fill(0);
        if !Self::mmio_shape(offset, data.len()) {
            self.misshapen_access(
                offset,
                format!("read of {} bytes at BAR5 {offset:#x}", data.len()),
            );
            return;
        }
        for (i, chunk) in data.chunks_exact_mut(4).enumerate() {
            let v = self.reg_read((offset / 4) as u32 + i as u32);
            chunk.copy_from_slice(&v.to_le_bytes());
        }
    }

    /// A trapped write to BAR5.
    pub fn mmio_write(&mut self, offset: u64, data: &[u8]) {
        self.log.stats.mmio_writes += 1;
        if self.absent() {
            return;
        }
        if !Self::mmio_shape(offset, data.len()) {
            self.misshapen_access(
                offset,
                format!("write of {} bytes at BAR5 {offset:#x}", data.len()),
            );
            return;
        }
        for (i, chunk) in data.chunks_exact(4).enumerate() {
            let v = chunk.try_into().map(u32::from_le_bytes).unwrap_or(0);
            self.reg_write((offset / 4) as u32 + i as u32, v, Writer::Cpu);
        }
    }

    /// Reports an access that no register takes.  The page of the HDP flush registers is also in the hands of user
    /// programs.
    fn misshapen_access(&mut self, offset: u64, text: String) {
        if offset >= u64::from(self.asic.hdp_remap) {
            self.user_error("mmio-shape", text);
        } else {
            self.protocol_error("mmio-shape", text);
        }
    }

    fn mmio_shape(offset: u64, len: usize) -> bool {
        matches!(len, 4 | 8) && offset % 4 == 0 && offset.saturating_add(len as u64) <= BAR5_SIZE
    }

    /// A trapped write to BAR2.
    pub fn doorbell_write(&mut self, offset: u64, data: &[u8]) {
        self.log.stats.doorbells += 1;
        if self.absent() {
            return;
        }
        let end = offset.saturating_add(data.len() as u64);
        let value = match (<[u8; 4]>::try_from(data), <[u8; 8]>::try_from(data)) {
            (Ok(w), _) if offset % 4 == 0 => u64::from(u32::from_le_bytes(w)),
            (_, Ok(q)) if offset % 8 == 0 => u64::from_le_bytes(q),
            _ => {
                self.log.stats.user_errors += 1;
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
            self.protocol_error(
                "doorbell-range",
                format!("doorbell at {offset:#x} beyond BAR2"),
            );
            return;
        }
        if self.regs.plain(self.asic.nbio2 + nbio::DOORBELL_APER_EN) & 1 == 0 {
            self.protocol_error(
                "doorbell-aperture",
                format!("doorbell {offset:#x} while RCC_DOORBELL_APER_EN is 0"),
            );
            return;
        }
        if !self.route_doorbell(offset, value, data.len() == 8) {
            self.stray_doorbell(offset, value, false);
        }
        self.hws_doorbell();
        self.kick();
    }

    fn stray_doorbell(&mut self, byte: u64, value: u64, malformed: bool) {
        let now = self.clock.now_ns();
        let stray = self.strays.note(byte, value, malformed, now);
        let stats = &mut self.log.stats;
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
            self.log
                .event(now, Ring::Device, origin, "DOORBELL_UNMATCHED", text);
        }
        // The doorbells in the ranges of other units never come to the CP.
        if stray.kind == StrayKind::Foreign && self.doorbell_target(byte) == DoorbellTarget::Cp {
            self.unattached_doorbell((byte / 4) as u32);
        }
    }

    /// Which unit the low 12 bits of a doorbell's byte address select.
    pub fn doorbell_target(&self, byte: u64) -> DoorbellTarget {
        let low = (byte & 0xFFF) as u32;
        let inside = |reg: u32| {
            let v = self.regs.plain(reg);
            let (start, dwords) = (v & 0xFFC, (v >> 16) & 0x1F);
            dwords != 0 && (start..start + dwords * 4).contains(&low)
        };
        if let Some(i) = self.asic.sdma.iter().position(|e| inside(e.range_reg)) {
            return DoorbellTarget::Sdma(i);
        }
        if inside(self.asic.ih_range_reg) {
            return DoorbellTarget::Ih;
        }
        DoorbellTarget::Cp
    }

    fn route_doorbell(&mut self, byte: u64, value: u64, wide: bool) -> bool {
        match self.doorbell_target(byte) {
            DoorbellTarget::Ih => self.ih_doorbell(byte, value as u32),
            DoorbellTarget::Sdma(i) => self.sdma_doorbell(i, byte, value, wide),
            DoorbellTarget::Cp => self.cp_doorbell(byte, value, wide),
        }
    }

    /// Reads VRAM through an unmapped BAR0 (before the VMM has mapped it).
    pub fn vram_read(&mut self, offset: u64, data: &mut [u8]) {
        if self.absent() || self.mem.read(Phys::Vram(offset), data).is_err() {
            data.fill(0xFF);
        }
    }

    /// Writes VRAM through an unmapped BAR0.
    pub fn vram_write(&mut self, offset: u64, data: &[u8]) {
        if !self.absent() {
            // Beyond VRAM nothing answers, as on a bus.
            let _ = self.mem.write_hosted(offset, data);
        }
    }

    /// Runs work for `limit`, or until a trapped access waits, if these are less than [`Gpu::step`] would take.
    pub fn step_within(&mut self, limit: Duration) -> Step {
        let begun = Instant::now();
        self.step_ends = Some(begun + limit);
        let step = self.step();
        self.step_ends = None;
        self.latency.step.note(begun.elapsed());
        step
    }

    /// Runs a bounded amount of work.
    pub fn step(&mut self) -> Step {
        let absent = self.absent();
        self.waves.stand_still(absent);
        if absent {
            while self.lose_some_vram() {
                if self.pressed() {
                    return Step::Busy;
                }
            }
            return Step::Idle(self.in_reset_until);
        }
        if self.take_kick() {
            self.try_all_again();
        }
        let now = self.clock.now_ns();
        let mut next = Wake::default();
        if let Some(t) = self.settle_invalidations() {
            next.at(t);
        }
        self.hws_tick(now, &mut next);
        // The one that did not run in a step that ended early is first in the next one.
        for sdma in [self.sdma_first, !self.sdma_first] {
            let ran = if sdma {
                self.sdma_run(now, &mut next)
            } else {
                self.cp_run(now, &mut next)
            };
            if ran && self.pressed() {
                self.sdma_first = !sdma;
                next.busy();
                break;
            }
        }
        self.waves_run(now, &mut next);
        self.ring_own_doorbells();
        if next.busy || self.kicked {
            Step::Busy
        } else {
            Step::Idle(next.at)
        }
    }

    /// What waits is looked at now, not when its interval is over.
    fn try_all_again(&mut self) {
        let contexts = self.sdma.iter_mut().flat_map(|e| e.contexts.iter_mut());
        let contexts = contexts.flatten().map(|c| &mut c.pace);
        for pace in self.cp.runs_mut().map(|run| &mut run.pace).chain(contexts) {
            pace.not_before = 0;
        }
        self.retry_waves();
    }
}

/// Collects when to run again.
#[derive(Debug, Default)]
pub struct Wake {
    busy: bool,
    at: Option<u64>,
}

impl Wake {
    /// There is more work now.
    pub fn busy(&mut self) {
        self.busy = true;
    }

    /// Run again at this time at the latest.
    pub fn at(&mut self, t: u64) {
        self.at = Some(self.at.map_or(t, |a| a.min(t)));
    }
}

/// The unit a doorbell goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoorbellTarget {
    /// Interrupt handler.
    Ih,
    /// SDMA engine.
    Sdma(usize),
    /// Command processor.
    Cp,
}
