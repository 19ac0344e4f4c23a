// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The device's side of dispatches: starting them, and what follows from what waves come to.
//!
//! Interrupt words of waves: `kfd_int_process_v9.c`.

use super::errors::ProgramError;
use super::job::Frozen;
use super::kernel::Kernel;
use super::progress::Leaving;
use super::report::{Failure, Report, What};
use super::saved::Saved;
use super::units::Seat;
use crate::aql::QueueError;
use crate::cp::queue::Run;
use crate::cp::slot::SlotId;
use crate::device::{Gpu, Wake};
use crate::ih::{client, Iv};
use crate::vm::own::Post;
use crate::vm::HubId;

/// Interrupt source of shader engines.
const SQ_INTERRUPT: u8 = 239;
/// How often translations that waves wait for are looked for again.
const RETRY_MIN_NS: u64 = 50_000;
const RETRY_MAX_NS: u64 = 2_000_000;

/// ENCODING of an SQ interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    /// `s_sendmsg`.
    Wave = 1,
    /// An error.
    Error = 2,
}

/// Types of SQ errors, in bits 23:20 of the data.
mod sq_error {
    pub const ILLEGAL_INST: u32 = 1 << 20;
    pub const MEMVIOL: u32 = 2 << 20;
}

/// How a dispatch stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stand {
    /// It executes.
    Running,
    /// It ended at this time (ticks).
    Done(u64),
    /// It ended, and its signal says so; its packet waits for those before it.
    Told,
    /// A wave has halted for good; the flag tells that the runtime knows.
    Failed(QueueError, bool),
}

/// Dispatches that a queue has under way behind the one at its read index.
pub const MAX_LATER: usize = 7;

/// A dispatch of a queue.
#[derive(Debug)]
pub struct Flight {
    /// Its serial number.
    pub serial: u64,
    /// When it began (ticks).
    pub started: u64,
    /// How it stands.
    pub stand: Stand,
    /// It uses private memory, of which the queue has one.
    pub private: bool,
    /// Its groups are leaving the compute units, as the queue is to be taken off.
    pub leaving: Option<Box<Leaving>>,
    /// Its groups, when they are off.
    pub frozen: Option<Frozen>,
}

impl Flight {
    /// It executes, or could.
    pub fn is_on(&self) -> bool {
        let is_off = self.leaving.is_some() || self.frozen.is_some();
        !matches!(self.stand, Stand::Done(_) | Stand::Told) && !is_off
    }
}

impl Failure {
    /// What the runtime learns: value of the inactive signal (0: none), exception of KFD, words.
    pub(super) fn error(self) -> QueueError {
        let error = |signal, exception, why| QueueError {
            signal,
            exception,
            why,
        };
        match self {
            Failure::Illegal { .. } => error(0x4000_0000, 4, "illegal instruction"),
            Failure::Aperture { .. } => error(0x2000_0000, 6, "memory aperture violation"),
            // The fault has its own interrupt.
            Failure::Memory { .. } => error(0, 5, "memory violation"),
            Failure::Abort => error(0x8000_0000, 1, "a wave aborted"),
            Failure::Trap(_) => error(0x8000_0000, 2, "a wave trapped"),
            Failure::Math(_) => error(0, 3, "floating-point exception"),
        }
    }

    /// The error interrupt of the hardware, if it has one.
    fn sq_error(self) -> Option<u32> {
        match self {
            Failure::Illegal { .. } => Some(sq_error::ILLEGAL_INST),
            Failure::Aperture { .. } | Failure::Memory { .. } => Some(sq_error::MEMVIOL),
            Failure::Abort | Failure::Trap(_) | Failure::Math(_) => None,
        }
    }
}

impl Gpu {
    /// Starts a dispatch.
    pub(crate) fn start_kernel(&mut self, kernel: Kernel) -> Flight {
        self.resume_kernel(Frozen::new(kernel, 0, false), self.soc.clock.ticks())
    }

    /// Lets a dispatch go on that began at `started`.
    fn resume_kernel(&mut self, frozen: Frozen, started: u64) -> Flight {
        let private = frozen.kernel.scratch.is_some();
        let ranges = self.soc.own_ranges();
        self.waves.dispatcher.posts.set_ranges(ranges);
        let serial = self.waves.dispatcher.start(frozen);
        self.soc.kick();
        Flight {
            serial,
            started,
            stand: Stand::Running,
            private,
            leaving: None,
            frozen: None,
        }
    }

    /// Lets a dispatch go on that was saved.
    pub(crate) fn resume_flight(&mut self, saved: Saved) -> Flight {
        let Saved {
            started,
            stand,
            frozen,
        } = saved;
        match frozen {
            Some(frozen) => Flight {
                stand,
                ..self.resume_kernel(frozen, started)
            },
            None => Flight {
                serial: 0,
                started,
                stand,
                private: false,
                leaving: None,
                frozen: None,
            },
        }
    }

    /// Asks for the waves of a queue that is about to leave its slot.  Returns whether nobody executes one any more, and all
    /// is known that they have come to, so that [`Gpu::stop_queue`] waits for nobody; the device is woken when that is so.
    pub(crate) fn hold_waves(&self, slot: SlotId) -> bool {
        let run = self.cp.hqd(slot).run();
        let on = run.into_iter().flat_map(Run::flights);
        // All are asked before one is waited for.
        on.filter(|flight| flight.is_on())
            .fold(true, |held, flight| {
                self.waves.dispatcher.hold(flight.serial) && held
            })
    }

    /// As [`Gpu::hold_waves`], of all queues: taking them off waits once, and not for each of them.
    pub(crate) fn hold_all_waves(&self) {
        for (slot, _) in self.cp.iter() {
            let _ = self.hold_waves(slot);
        }
    }

    /// Waves of queues that were to leave, and stay after all, go on, also those that were being saved.  Those of one that is
    /// still to leave are asked for again.
    pub(crate) fn release_waves(&mut self) {
        self.give_up_saves();
        let runs = self.cp.iter().filter_map(|(_, h)| h.run());
        for flight in runs.flat_map(Run::flights).filter(|f| f.is_on()) {
            self.waves.dispatcher.release(flight.serial);
        }
    }

    /// Takes the waves of a queue that stops: none of them executes any more.  They leave the compute units later.
    pub(crate) fn freeze_kernel(&mut self, slot: SlotId) {
        let Some(run) = self.cp.hqd(slot).run() else {
            return;
        };
        let on: Vec<u64> = run
            .flights()
            .filter(|flight| flight.is_on())
            .map(|flight| flight.serial)
            .collect();
        if on.is_empty() {
            return;
        }
        let held = self.hold_waves(slot);
        let leaving: Vec<_> = on
            .into_iter()
            .map(|serial| (serial, self.waves.dispatcher.freeze(serial)))
            .collect();
        if !held {
            // What its waves have come to before.
            self.take_wave_reports(true);
        }
        for (serial, leaving) in leaving {
            if let Some((flight, _)) = self.flight_mut(serial) {
                flight.leaving = leaving.map(Box::new);
            }
        }
    }

    /// Takes waves of a queue whose waves do not execute any more off the compute units: `groups` at most, each of which is
    /// moved twice.  Returns whether there are more.
    pub(crate) fn unseat_waves(&self, run: &mut Run, groups: usize) -> bool {
        let mut flights = run.flight.iter_mut().chain(&mut run.later);
        let Some(flight) = flights.find(|flight| flight.leaving.is_some()) else {
            return false;
        };
        if let Some(mut leaving) = flight.leaving.take() {
            if self.waves.dispatcher.unseat(&mut leaving, groups) {
                flight.leaving = Some(leaving);
                return true;
            }
            flight.frozen = Some(leaving.end());
        }
        flights.any(|flight| flight.leaving.is_some())
    }

    /// Lets the waves go on that were taken off, or are being taken off.
    pub(crate) fn reseat_waves(&self, run: &mut Run) {
        for flight in run.flight.iter_mut().chain(&mut run.later) {
            if let Some(leaving) = flight.leaving.take() {
                self.waves.dispatcher.rejoin(*leaving);
            }
            if let Some(frozen) = flight.frozen.take() {
                flight.serial = self.waves.dispatcher.start(frozen);
            }
        }
    }

    /// Forgets the dispatches of a queue; waves that are still there are killed.
    pub(crate) fn drop_flights(&mut self, run: &mut Run) {
        let flights = run.flight.take().into_iter().chain(run.later.drain(..));
        flights.for_each(|flight| self.waves.forget(flight));
    }

    /// Executes waves if nobody else does, and takes what waves have come to.
    pub(crate) fn waves_run(&mut self, now: u64, wake: &mut Wake) {
        let mut any = self.take_wave_reports(false);
        if self.waves.dispatcher.is_waiting() {
            if now >= self.waves.retry_at {
                self.waves.dispatcher.retry();
                self.waves.retry_ns = (self.waves.retry_ns * 2).clamp(RETRY_MIN_NS, RETRY_MAX_NS);
                self.waves.retry_at = now + self.waves.retry_ns;
            }
            wake.at(self.waves.retry_at);
        } else {
            self.waves.retry_ns = 0;
        }
        if let Some(mut runner) = self.waves.inline.take() {
            if let Some(work) = self.waves.dispatcher.take() {
                runner.run(&self.waves.dispatcher, work, &|| self.soc.pressed());
                any = true;
            }
            self.waves.inline = Some(runner);
            any |= self.take_wave_reports(false);
        }
        if any {
            wake.busy();
        }
    }

    /// Waves that wait for translations try again.
    pub(crate) fn retry_waves(&mut self) {
        self.waves.dispatcher.retry();
        self.waves.retry_ns = 0;
    }

    /// Takes what waves have come to so far: all of it, or as much as the step has time for.  Returns whether there was
    /// anything.
    fn take_wave_reports(&mut self, all: bool) -> bool {
        let mut any = false;
        // Others tell more meanwhile.
        for _ in 0..self.waves.dispatcher.reports() {
            let Some(report) = self.waves.dispatcher.take_report() else {
                break;
            };
            self.wave_report(&report);
            if report.dispatch.is_told() {
                // What waits for that looks at it in the next step.
                self.soc.kick();
            }
            any = true;
            if !all && self.soc.pressed() {
                break;
            }
        }
        any
    }

    fn flight_mut(&mut self, serial: u64) -> Option<(&mut Flight, &mut u64)> {
        self.cp.runs_mut().find_map(|run| {
            let mut flights = run.flight.iter_mut().chain(&mut run.later);
            let flight = flights.find(|flight| flight.serial == serial)?;
            Some((flight, &mut run.pace.not_before))
        })
    }

    fn slot_of(&self, serial: u64) -> Option<SlotId> {
        let has = |run: &Run| run.flights().any(|flight| flight.serial == serial);
        let mut slots = self.cp.iter();
        slots.find_map(|(slot, h)| h.run().filter(|run| has(run)).map(|_| slot))
    }

    fn wave_report(&mut self, report: &Report) {
        let ticks = self.soc.clock.ticks();
        let (serial, spot) = (report.dispatch.serial, report.spot);
        let seat = spot.seat;
        if let What::Posted(posts) = &report.what {
            self.take_posts(serial, posts);
            return;
        }
        // Of a queue that was reset meanwhile nothing is left that anybody could be interested in.
        let Some(slot) = self.slot_of(serial) else {
            return;
        };
        let Some(run) = self.cp.hqd(slot).run() else {
            return;
        };
        let (vmid, doorbell) = (run.vmid, run.doorbell);
        match report.what {
            // The last report of those that are asked for wakes those who wait for that.
            What::Posted(_) | What::Held => {}
            What::Handled(failure) => {
                let of = (self.soc.pasid_of(vmid, HubId::Gfx), doorbell);
                let error = ProgramError::failed(&report.dispatch, spot, of, failure);
                self.waves.errors.add(self.soc.clock.now_ns(), error);
            }
            What::Lds(ref findings) => {
                let of = (self.soc.pasid_of(vmid, HubId::Gfx), doorbell);
                for finding in findings {
                    let error = ProgramError::lds(&report.dispatch, spot, of, finding);
                    let text = format!(
                        "{slot} doorbell {doorbell:#x} vmid {vmid}: {} at {:#x}, in {}, wave {} of group {:?}, PC {:#x}",
                        error.text,
                        finding.address,
                        report.dispatch.title(),
                        error.wave,
                        error.group,
                        error.pc,
                    );
                    self.soc.user_error(error.kind, text);
                    self.waves.errors.add(self.soc.clock.now_ns(), error);
                }
            }
            What::Done => {
                if let Some((flight, not_before)) = self.flight_mut(serial) {
                    flight.stand = Stand::Done(ticks);
                    *not_before = 0;
                }
                self.soc.kick();
            }
            What::Retry(fault) | What::Fault { fault, .. } => {
                // How it ends is seen when the wave tries again.
                let _ = self
                    .soc
                    .vm_fault(fault.client, fault.va, fault.access, fault.why);
            }
            What::Message(data, privileged) => {
                self.sq_interrupt(vmid, seat, Encoding::Wave, privileged, data);
            }
            What::Failed(failure) => {
                let error = failure.error();
                self.soc.log.stats.waves_failed += 1;
                let text = format!(
                    "{slot} doorbell {doorbell:#x} vmid {vmid}: {}: {failure:x?} in {}, wave {} of group {:?}, \
                     PC {:#x}, on {seat:?}",
                    error.why,
                    report.dispatch.title(),
                    spot.wave,
                    spot.group,
                    spot.pc,
                );
                self.soc.user_error("wave", text);
                let of = (self.soc.pasid_of(vmid, HubId::Gfx), doorbell);
                let told = ProgramError::failed(&report.dispatch, spot, of, failure);
                self.waves.errors.add(self.soc.clock.now_ns(), told);
                if let Some(data) = failure.sq_error() {
                    self.sq_interrupt(vmid, seat, Encoding::Error, false, data);
                }
                // What the trap handler of the runtime sends, had it been there.
                let data = doorbell / 2 & 0x3FF | 1 << (10 + error.exception - 1);
                self.sq_interrupt(vmid, seat, Encoding::Wave, true, data);
                if let Some((flight, not_before)) = self.flight_mut(serial) {
                    if flight.stand == Stand::Running {
                        flight.stand = Stand::Failed(error, error.signal == 0);
                        *not_before = 0;
                    }
                }
                self.soc.kick();
            }
        }
    }

    /// Takes stores to doorbells, unless the dispatch is gone.
    fn take_posts(&mut self, serial: u64, posts: &[Post]) {
        if self.slot_of(serial).is_some() {
            self.waves.posted.extend_from_slice(posts);
        } else {
            self.waves.dispatcher.posts.delivered(posts.len());
        }
    }

    fn sq_interrupt(&mut self, vmid: u8, seat: Seat, encoding: Encoding, priv_: bool, data: u32) {
        let word = data & 0xFFF
            | u32::from(priv_) << 13
            | u32::from(seat.slot & 0xF) << 14
            | u32::from(seat.simd & 3) << 18
            | u32::from(seat.unit & 0xF) << 20
            | u32::from(seat.engine & 3) << 24
            | (encoding as u32) << 26
            | (data >> 12 & 0xF) << 28;
        let iv = Iv {
            // There are clients for four engines.
            client: client::SE0SH + (seat.engine & 3),
            source: SQ_INTERRUPT,
            ring_id: 0,
            vmid,
            mm: false,
            data: [word, data >> 16 & 0xFF, 0, 0],
        };
        self.soc.ih_post(0, iv);
    }
}
