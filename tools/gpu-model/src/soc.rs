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
pub struct Soc {
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
    /// Faults to inject.
    pub inject: Injections,
    /// Rules that are on.
    pub rules: Rules,
    /// How ranges of invalidations are read.
    pub ranges: Reading,
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
    /// When the step that runs has to end.
    pub step_ends: Option<Instant>,
    pub(crate) msi: Box<dyn MsiSink>,
    pub(crate) kicked: bool,
}

impl Soc {
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
