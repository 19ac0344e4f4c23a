// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The GPU: its blocks, its entry points and its scheduler of work.
//!
//! One `Gpu` is a single-threaded machine.  The server wraps it in a lock; a worker thread calls [`Gpu::step`],
//! which runs a bounded amount of queue work, so the thread that answers trapped accesses never waits long.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::asic::Asic;
use crate::board::Board;
use crate::clock::Clock;
use crate::cp::feed::Compute;
use crate::cp::Cp;
use crate::hws::Hws;
use crate::latency::Latency;
use crate::mem::{Bus, Noise, Phys, Unwritten};
use crate::regs::dispatch::Writer;
use crate::regs::BAR5_SIZE;
use crate::sdma::feed::Copies;
use crate::sdma::Engine;
use crate::soc::{MsiSink, Soc};
use crate::trace::Log;
use crate::waves::pool::Pool;
use crate::waves::units::Units;

/// Bytes of BAR2.
pub const BAR2_SIZE: u64 = 2 * 1024 * 1024;
/// MC address of the first byte of VRAM, as boards of this family have it.
pub const FB_BASE: u64 = 0x80_0000_0000;
/// What the worker should do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// More work is at hand.
    Busy,
    /// Nothing to do before this time (nanoseconds of the device's clock), or before somebody writes to the device.
    Idle(Option<u64>),
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
    /// What the blocks below share.
    pub soc: Soc,
    /// Compute micro-engines.
    pub cp: Cp,
    /// Hardware scheduler.
    pub hws: Hws,
    /// SDMA engines.
    pub sdma: Vec<Engine>,
    /// Kernels under way.
    pub waves: Pool,
    /// Measurements of the server.
    pub latency: Latencies,
    sdma_first: bool,
    pub(crate) in_reset_until: Option<u64>,
    /// Where VRAM that nobody has written is noise.
    pub(crate) noise: Noise,
    /// VRAM that a reset in progress has still to lose.
    pub(crate) losing: Option<Unwritten>,
    pub(crate) asleep: bool,
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
        let soc = Soc::new(asic, board, clock, mem, log, msi);
        let waves = Pool::new(
            Units::new(isa, &units),
            &soc.mem,
            &soc.spaces,
            &soc.clock,
            soc.board.engine_clock,
        );
        let mut gpu = Self {
            soc,
            cp: Cp::default(),
            hws: Hws::default(),
            sdma: Vec::new(),
            waves,
            latency: Latencies::default(),
            sdma_first: false,
            in_reset_until: None,
            noise: Noise::default(),
            losing: None,
            asleep: false,
        };
        gpu.soc.mem.set_bus_bits(asic.bus_bits);
        gpu.lose_vram();
        while gpu.lose_some_vram() {}
        gpu.power_on();
        Ok(gpu)
    }

    /// A trapped read of BAR5.
    pub fn mmio_read(&mut self, offset: u64, data: &mut [u8]) {
        self.soc.log.stats.mmio_reads += 1;
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
        self.soc.log.stats.mmio_writes += 1;
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
        if offset >= u64::from(self.soc.asic.hdp_remap) {
            self.soc.user_error("mmio-shape", text);
        } else {
            self.soc.protocol_error("mmio-shape", text);
        }
    }

    fn mmio_shape(offset: u64, len: usize) -> bool {
        matches!(len, 4 | 8) && offset % 4 == 0 && offset.saturating_add(len as u64) <= BAR5_SIZE
    }

    /// Reads VRAM through an unmapped BAR0 (before the VMM has mapped it).
    pub fn vram_read(&mut self, offset: u64, data: &mut [u8]) {
        if self.absent() || self.soc.mem.read(Phys::Vram(offset), data).is_err() {
            data.fill(0xFF);
        }
    }

    /// Writes VRAM through an unmapped BAR0.
    pub fn vram_write(&mut self, offset: u64, data: &[u8]) {
        if !self.absent() {
            // Beyond VRAM nothing answers, as on a bus.
            let _ = self.soc.mem.write_hosted(offset, data);
        }
    }

    /// Runs work for `limit`, or until a trapped access waits, if these are less than [`Gpu::step`] would take.
    pub fn step_within(&mut self, limit: Duration) -> Step {
        let begun = Instant::now();
        self.soc.set_step_end(Some(begun + limit));
        let step = self.step();
        self.soc.set_step_end(None);
        self.latency.step.note(begun.elapsed());
        step
    }

    /// Runs a bounded amount of work.
    pub fn step(&mut self) -> Step {
        let absent = self.absent();
        self.waves.stand_still(absent);
        if absent {
            if self.waves.drop_some(|| self.soc.pressed()) {
                return Step::Busy;
            }
            while self.lose_some_vram() {
                if self.soc.pressed() {
                    return Step::Busy;
                }
            }
            return Step::Idle(self.in_reset_until);
        }
        if self.soc.take_kick() {
            self.try_all_again();
        }
        let now = self.soc.clock.now_ns();
        let mut next = Wake::default();
        if let Some(t) = self.settle_invalidations() {
            next.at(t);
        }
        self.hws_tick(now, &mut next);
        if let Some(t) = self.poll_write_pointers(now) {
            next.at(t);
        }
        self.serve_driver(now, &mut next);
        self.save_some(&mut next);
        // The one that did not run in a step that ended early is first in the next one.
        for sdma in [self.sdma_first, !self.sdma_first] {
            let ran = if sdma {
                self.feed::<Copies>(now, &mut next)
            } else {
                self.feed::<Compute>(now, &mut next)
            };
            if ran && self.soc.pressed() {
                self.sdma_first = !sdma;
                next.busy();
                break;
            }
        }
        self.waves_run(now, &mut next);
        if self.waves.drop_some(|| self.soc.pressed()) {
            next.busy();
        }
        self.ring_own_doorbells();
        self.soc.report_unflushed();
        if next.busy || self.soc.is_kicked() {
            Step::Busy
        } else {
            Step::Idle(next.at)
        }
    }

    /// What waits is looked at now, not when its interval is over.
    fn try_all_again(&mut self) {
        let contexts = self.sdma.iter_mut().flat_map(Engine::contexts_mut);
        let contexts = contexts.map(|c| &mut c.pace);
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
