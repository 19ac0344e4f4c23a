// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the engines of the GPU have in common: memory and its translations, the registers, the interrupt handler, the
//! clock, the log, and what the outside world asks of the device.
//!
//! The command processor, its scheduler, the SDMA engines and those who look after waves own their state and borrow this.
//! Nothing here knows any of them: what an access, a fault or an interrupt needs is all in this structure.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Instant;

use crate::asic::Asic;
use crate::board::Board;
use crate::clock::Clock;
use crate::device::FB_BASE;
use crate::ih::Ih;
use crate::inject::{Injections, Rules};
use crate::mem::Bus;
use crate::regs::RegFile;
use crate::strays::Strays;
use crate::trace::{Log, Origin, Ring};
use crate::vm::fault::RetryCam;
use crate::vm::hub::Hub;
use crate::vm::own::BarAddresses;
use crate::vm::range::Reading;
use crate::vm::space::Spaces;
use crate::vm::{HubId, Recent};

/// Mistakes of user programs that the log file gets; the counter and the trace go on.
const MAX_NOTES: u64 = 1000;

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

/// What all engines share.
///
/// Who drives a device (the server, the control socket, a test) reaches the handles of memory and of address spaces, the
/// clock, the log, and what is switched on and off.  The registers and what the interrupt handler has are the engines'.
/// All else is changed by the functions below.
pub struct Soc {
    /// What is modelled.
    pub(crate) asic: &'static Asic,
    /// On which board.
    pub(crate) board: Board,
    /// Time.
    pub clock: Clock,
    /// VRAM and guest RAM.
    pub mem: Arc<Bus>,
    /// Address spaces.
    pub spaces: Arc<Spaces>,
    /// Trace, errors, counters.
    pub log: Log,
    /// VM hub of the command processor and shaders.
    gfxhub: Hub,
    /// VM hub of SDMA and IH.
    mmhub: Hub,
    /// Register storage.
    pub(crate) regs: RegFile,
    /// Interrupt handler.
    pub(crate) ih: Ih,
    /// Retry CAM.
    pub(crate) cam: RetryCam,
    /// Faults to inject.
    pub inject: Injections,
    /// Rules that are on.
    pub rules: Rules,
    /// How ranges of invalidations are read.
    ranges: Reading,
    /// Where the guest has put the BARs.
    bars: BarAddresses,
    /// Doorbells that nobody listened to.
    pub(crate) strays: Strays,
    /// Pages that the packet engines have used last.
    pub(crate) recent: Recent,
    /// Bytes that accesses by GPU address have read and written.
    bytes_moved: u64,
    /// Doorbells rung by queues: byte offset and data.
    self_doorbells: Vec<(u64, Vec<u8>)>,
    /// Who waits for the device.
    callers: Callers,
    /// When the step that runs has to end.
    step_ends: Option<Instant>,
    msi: Box<dyn MsiSink>,
    kicked: bool,
}

/// Most doorbells that queues ring in one step; further ones are lost, which bounds the memory a user can claim.
const MAX_PENDING: usize = 4096;

impl Soc {
    /// As after power-on, without a guest.
    pub(crate) fn new(
        asic: &'static Asic,
        board: Board,
        clock: Clock,
        mem: Arc<Bus>,
        log: Log,
        msi: Box<dyn MsiSink>,
    ) -> Self {
        let spaces = Arc::new(Spaces::default());
        let hub = |id| Hub::new(id, Arc::clone(&spaces), FB_BASE, mem.vram_size());
        Self {
            asic,
            board,
            clock,
            gfxhub: hub(HubId::Gfx),
            mmhub: hub(HubId::Mm),
            mem,
            log,
            spaces,
            regs: RegFile::default(),
            ih: Ih::default(),
            cam: RetryCam::default(),
            inject: Injections::default(),
            rules: Rules::default(),
            ranges: Reading::default(),
            bars: BarAddresses::default(),
            strays: Strays::default(),
            recent: Recent::default(),
            bytes_moved: 0,
            self_doorbells: Vec::new(),
            callers: Callers::default(),
            step_ends: None,
            msi,
            kicked: false,
        }
    }

    /// A VM hub.
    pub fn hub(&self, id: HubId) -> &Hub {
        match id {
            HubId::Gfx => &self.gfxhub,
            HubId::Mm => &self.mmhub,
        }
    }

    /// A VM hub, for change.
    pub fn hub_mut(&mut self, id: HubId) -> &mut Hub {
        match id {
            HubId::Gfx => &mut self.gfxhub,
            HubId::Mm => &mut self.mmhub,
        }
    }

    /// How ranges of invalidations are read.
    pub fn ranges(&self) -> Reading {
        self.ranges
    }

    /// Reads ranges of invalidations differently, from the next request on.
    pub fn set_ranges(&mut self, ranges: Reading) {
        self.ranges = ranges;
    }

    /// Where the guest has put the BARs.
    pub fn bars(&self) -> BarAddresses {
        self.bars
    }

    /// The guest has put the BARs elsewhere.
    pub fn set_bars(&mut self, bars: BarAddresses) {
        self.bars = bars;
    }

    /// Who waits for the device.
    pub fn callers(&self) -> &Callers {
        &self.callers
    }

    /// Counts bytes that an access by GPU address reads or writes.
    pub(crate) fn note_moved(&mut self, bytes: usize) {
        self.bytes_moved = self.bytes_moved.wrapping_add(bytes as u64);
    }

    /// Bytes that accesses by GPU address have read and written; it wraps.
    pub(crate) fn bytes_moved(&self) -> u64 {
        self.bytes_moved
    }

    /// A queue has rung a doorbell, which is delivered at the end of the step.  What is beyond [`MAX_PENDING`] is lost.
    pub(crate) fn ring_later(&mut self, offset: u64, bytes: &[u8]) {
        if self.self_doorbells.len() < MAX_PENDING {
            self.self_doorbells.push((offset, bytes.to_vec()));
        }
    }

    /// Takes the doorbells that queues have rung: byte offsets and data.
    pub(crate) fn take_rung(&mut self) -> Vec<(u64, Vec<u8>)> {
        std::mem::take(&mut self.self_doorbells)
    }

    /// How many doorbells of queues wait for the end of the step.
    pub fn rung(&self) -> usize {
        self.self_doorbells.len()
    }

    /// Says when the step that runs has to end, if it has to.
    pub(crate) fn set_step_end(&mut self, at: Option<Instant>) {
        self.step_ends = at;
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

    /// Whether somebody has asked for that.
    pub(crate) fn is_kicked(&self) -> bool {
        self.kicked
    }

    /// Takes the request of [`Soc::kick`].
    pub(crate) fn take_kick(&mut self) -> bool {
        std::mem::take(&mut self.kicked)
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

    /// Counts a mistake of a user program.
    pub fn user_error(&mut self, rule: &'static str, text: String) {
        self.log.stats.user_errors += 1;
        if self.log.stats.user_errors <= MAX_NOTES {
            let line = format!(
                "user error t={}us {rule}: {text}",
                self.clock.now_ns() / 1000
            );
            self.log.note(&line);
        }
        self.log.event(
            self.clock.now_ns(),
            Ring::Device,
            Origin::default(),
            "USER_ERROR",
            format!("{rule}: {text}"),
        );
    }

    /// Reports entries of page tables that were used though the host had written others and not flushed them, when it
    /// invalidated the translations of their address space.
    pub(crate) fn report_unflushed(&mut self) {
        for entry in self.mem.take_unflushed() {
            let text = format!(
                "the entry at VRAM {:#x} is used as {:#x}; {:#x} was written there before the translations of its address \
                 space were invalidated, and not flushed",
                entry.at, entry.used, entry.written
            );
            self.protocol_error("hdp-flush", text);
        }
    }

    /// Whether the step has to end: its time is over, or a trapped access waits.
    pub fn pressed(&self) -> bool {
        self.callers.are_waiting() || self.step_ends.is_some_and(|t| Instant::now() >= t)
    }
}
