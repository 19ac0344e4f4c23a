// SPDX-License-Identifier: GPL-2.0

//! The progress watchdog: names queues that have work and do not get on.
//!
//! A dead shader, a fence that nobody signals or an engine that hangs looks the same from outside:
//! the write pointer of a queue is ahead of its read pointer, and the read pointer stands. Nothing
//! else notices before somebody wants the queue off the hardware, which may be never. So the
//! watchdog looks at the hardware's slots now and then, and reports a queue once per standstill,
//! with its registers. It resets nothing: to wait long is no crime.
//!
//! A list that the firmware never takes up shows in no register, nor do queues that wait for a turn which
//! does not come. So each look also asks the firmware for a sign of life while it has a list.
//!
//! A queue is only judged while it sits in a slot. One that waits for its turn neither gets on nor
//! stands still; its clock runs on only if it is found where it was, [`SIGHTINGS`] times.

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

use super::{
    health::{
        Failure,
        Health, //
    },
    machine::Machine,
    mqd::MqdMem,
    record::{
        Phase,
        ProcRec,
        QueueSpec,
        SpecKind, //
    },
    seat::{
        self,
        Seat, //
    },
    state::QUEUE_MASK, //
};
use crate::{
    hw::{
        num::{
            join,
            widen, //
        },
        regs::{
            hqd::{
                self,
                DoorbellControl,
                HqdActive,
                IbControl,
                PqControl,
                Slot, //
            },
            sdma::{
                RbCntl,
                RLC_QUEUES, //
            },
            Reg, //
        }, //
    },
    kapi::ticker::Tick, //
};

/// How often a queue must have been seen with the same pointer before it counts as stuck, beside
/// the time.
const SIGHTINGS: u32 = 3;
/// Looks per [`Config::watchdog_ms`](super::params::Config::watchdog_ms).
pub(super) const LOOKS: u32 = 4;
/// Queues reported per look. Others that are stuck are reported by the next one.
const REPORTS: usize = 4;

/// Queues reported per [`REPORT_SPAN_US`]. A program can let queues stand still as often as it likes,
/// and each report is dozens of lines.
const REPORTS_PER_SPAN: u64 = 16;
/// A minute.
const REPORT_SPAN_US: u64 = 60_000_000;

/// How much the watchdog may still say.
pub(super) struct Voice {
    /// When the span began, microseconds.
    since: Atomic<u64>,
    /// Reports that were due in it.
    due: Atomic<u64>,
}

impl Voice {
    /// Nothing was said.
    pub(super) const fn new() -> Self {
        Self {
            since: Atomic::new(0),
            due: Atomic::new(0),
        }
    }

    /// Whether one more report may be made at `now`; and how many of the span before were not, if a
    /// new one begins. Only one look is under way at a time.
    fn may_speak(&self, now: u64) -> (bool, u64) {
        let mut silent = 0;
        if now.saturating_sub(self.since.load(Relaxed)) >= REPORT_SPAN_US {
            self.since.store(now, Relaxed);
            silent = self.due.load(Relaxed).saturating_sub(REPORTS_PER_SPAN);
            self.due.store(0, Relaxed);
        }
        let due = self.due.load(Relaxed).saturating_add(1);
        self.due.store(due, Relaxed);
        (due <= REPORTS_PER_SPAN, silent)
    }
}

/// What the watchdog remembers of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Watch {
    /// Read pointer, and the place in an indirect buffer, at the last look, if the queue had work.
    place: Option<(u64, Option<u32>)>,
    /// When it was first seen there, in microseconds.
    since: u64,
    sightings: u32,
    told: bool,
}

/// A queue in a slot, as the registers show it.
#[derive(Clone, Copy, Debug)]
struct Sample {
    seat: Seat,
    /// Dword index of the doorbell.
    doorbell: u32,
    rptr: u64,
    wptr: u64,
    /// The hardware says that the pointers are equal because there is work for all of the ring.
    full: bool,
    /// Where it is in an indirect buffer, dwords: the read pointer is past the packet that called that.
    in_buffer: Option<u32>,
}

/// A queue that is stuck.
struct Stuck {
    sample: Sample,
    queue: u64,
    pid: i32,
    pasid: u16,
    spec: QueueSpec,
    mqd: MqdMem,
    for_ms: u64,
}

/// Whether pointers of a queue say that there is work.
///
/// The write pointer counts on, the read pointer of a compute queue wraps at the ring's size. For
/// AQL the one counts packets, and whether the other does depends on the microcode, so that only
/// what is work either way counts. An AQL ring may be full, which pointers alone do not show.
fn has_work(spec: &QueueSpec, sample: &Sample) -> bool {
    let dwords = widen(spec.ring_size / 4);
    let packets = widen(spec.ring_size / 64);
    let differ = |a: u64, b: u64, size: u64| match size {
        0 => false,
        size => a % size != b % size,
    };
    let (rptr, wptr) = (sample.rptr, sample.wptr);
    if sample.in_buffer.is_some() {
        return true;
    }
    match spec.kind {
        SpecKind::Pm4 => differ(rptr, wptr, dwords),
        SpecKind::Aql => {
            sample.full
                || differ(rptr, wptr, packets) && differ(rptr, wptr.wrapping_mul(16), dwords)
        }
        SpecKind::Sdma { .. } => rptr != wptr,
    }
}

impl Watch {
    /// Notes what was seen at `now`. Returns for how many microseconds a queue has stood still that
    /// became stuck by this look.
    fn look(&mut self, now: u64, limit: u64, sample: &Sample, work: bool) -> Option<u64> {
        let place = Some((sample.rptr, sample.in_buffer));
        if !work || self.place != place {
            *self = Self {
                place: place.filter(|_| work),
                since: now,
                sightings: 1,
                told: false,
            };
            return None;
        }
        self.sightings = self.sightings.saturating_add(1);
        let stood = now.saturating_sub(self.since);
        if self.told || self.sightings < SIGHTINGS || stood < limit {
            return None;
        }
        self.told = true;
        Some(stood)
    }

    /// Forgets a report, so that it is made by the next look.
    fn untell(&mut self) {
        self.told = false;
    }
}

impl Machine {
    /// Looks at all queues on the hardware, and reports those that have become stuck.
    pub(super) fn watch(&self) {
        let limit = widen(self.config.watchdog_ms) * 1000;
        // Whoever parks the scheduler waits for the end of this look.
        let _look = self.looks.lock();
        if limit == 0 || self.health() != Health::Running || self.is_parked() {
            return;
        }
        let samples = match self.is_on_hardware() {
            true => self.samples(),
            false => Ok(KVec::new()),
        };
        // A look that fails, for want of memory or of the device, is made up for by the next one.
        let Ok(samples) = samples else {
            return;
        };
        let mut stuck = [const { None }; REPORTS];
        let mut count = 0;
        {
            let now = self.platform.now();
            let mut state = self.state.lock();
            for proc in state.procs.values_mut() {
                let (pid, pasid) = (proc.pid, proc.params.pasid);
                let runs = proc.runs();
                for (id, queue) in proc.queues.iter_mut() {
                    if !queue.wanted(runs) {
                        queue.watch = Watch::default();
                        continue;
                    }
                    // Between two runlists; the clock runs on.
                    if queue.phase != Phase::Mapped {
                        continue;
                    }
                    let doorbell = queue.spec.doorbell.dword();
                    let Some(sample) = samples.iter().find(|s| s.doorbell == doorbell) else {
                        continue;
                    };
                    let work = has_work(&queue.spec, sample);
                    let Some(stood) = queue.watch.look(now, limit, sample, work) else {
                        continue;
                    };
                    let Some(place) = stuck.get_mut(count) else {
                        queue.watch.untell();
                        continue;
                    };
                    *place = Some(Stuck {
                        sample: *sample,
                        queue: *id,
                        pid,
                        pasid,
                        spec: queue.spec,
                        mqd: queue.mqd.clone(),
                        for_ms: stood / 1000,
                    });
                    count += 1;
                }
            }
        }
        for stuck in stuck.iter().flatten() {
            self.counters.stuck.inc();
            let (speak, silent) = self.voice.may_speak(self.platform.now());
            if silent > 0 {
                self.platform.warn(fmt!(
                    "{silent} more queues made no progress and were not reported"
                ));
            }
            if speak {
                self.report_stuck(stuck);
            }
        }
    }

    /// Asks the firmware for a sign of life, if it has a list with queues.
    pub(super) fn probe(&self) {
        let has_work = {
            let state = self.state.lock();
            // Never without firmware. A list stays when its last queue was taken off alone.
            state.active.is_some() && state.procs.values().any(ProcRec::on_hardware)
        };
        if !has_work {
            return;
        }
        let failure = {
            let mut engine = self.engine.lock();
            if self.health() != Health::Running || self.is_parked() {
                return;
            }
            let Err(error) = engine.handshake(&*self.platform, &self.config) else {
                return;
            };
            let failure = match error == ETIMEDOUT {
                true => {
                    self.counters.timeouts.inc();
                    Failure::Silent
                }
                false => Failure::Device(error),
            };
            // Who gets the engine next must find it out of service.
            self.mark_failed(&failure);
            failure
        };
        self.report_failure(&failure);
    }

    /// Whether a queue sits in a slot, by the registers.
    ///
    /// # Errors
    ///
    /// `ENOENT`: no such queue. `ENOMEM`, `EIO`, `ENODEV`.
    #[cfg_attr(not(rkfd_kunit), allow(dead_code, reason = "seen by tests"))]
    pub(super) fn is_occupied(&self, proc: u64, queue: u64) -> Result<bool> {
        let doorbell = {
            let mut state = self.state.lock();
            state.queue_mut(proc, queue)?.spec.doorbell.dword()
        };
        let samples = self.samples()?;
        Ok(samples.iter().any(|sample| sample.doorbell == doorbell))
    }

    fn is_on_hardware(&self) -> bool {
        let state = self.state.lock();
        let mut procs = state.procs.values();
        procs.any(|proc| proc.on_hardware())
    }

    fn report_stuck(&self, stuck: &Stuck) {
        let sample = &stuck.sample;
        self.platform.warn(fmt!(
            "{} queue {} of pid {} (pasid {}, doorbell {:#x}, {}) has work and makes no progress for {} ms: read pointer {:#x}, write pointer {:#x}",
            stuck.spec.kind.name(),
            stuck.queue,
            stuck.pid,
            stuck.pasid,
            widen(sample.doorbell) * 4,
            sample.seat,
            stuck.for_ms,
            sample.rptr,
            sample.wptr
        ));
        seat::describe(self, sample.seat, &stuck.spec, &stuck.mqd, &mut |line| {
            self.platform.warn(fmt!("{line}"))
        });
    }

    /// What sits in the slots.
    fn samples(&self) -> Result<KVec<Sample>> {
        const REGS: [Reg; 8] = [
            hqd::CP_HQD_ACTIVE,
            hqd::CP_HQD_PQ_DOORBELL_CONTROL,
            hqd::CP_HQD_PQ_RPTR,
            hqd::CP_HQD_PQ_WPTR_LO,
            hqd::CP_HQD_PQ_WPTR_HI,
            hqd::CP_HQD_PQ_CONTROL,
            hqd::CP_HQD_IB_CONTROL,
            hqd::CP_HQD_IB_RPTR,
        ];
        let mut samples = KVec::new();
        for slot in (0..64)
            .filter(|bit| QUEUE_MASK & 1 << bit != 0)
            .filter_map(Slot::from_bit)
        {
            let mut words = [0; REGS.len()];
            self.platform.read_slot(slot, &REGS, &mut words)?;
            let [active, doorbell, rptr, wptr, wptr_hi, control, ib, ib_rptr] = words;
            if HqdActive::from_raw(active).is_set(HqdActive::ACTIVE) {
                let sample = Sample {
                    seat: Seat::Slot(slot),
                    doorbell: DoorbellControl::from_raw(doorbell).get(DoorbellControl::OFFSET),
                    rptr: widen(rptr),
                    wptr: join(wptr, wptr_hi),
                    full: self.is_full(PqControl::from_raw(control)),
                    in_buffer: IbControl::from_raw(ib)
                        .is_set(IbControl::PROCESSING_IB)
                        .then_some(ib_rptr),
                };
                samples.push(sample, GFP_KERNEL)?;
            }
        }
        self.sdma_samples(&mut samples)?;
        Ok(samples)
    }

    /// Whether a ring is not empty by what the hardware says.
    ///
    /// A descriptor is loaded without the mark of an empty ring, and whether hardware keeps the mark up to
    /// date no public document says: it is believed where it was seen set.
    fn is_full(&self, control: PqControl) -> bool {
        if control.is_set(PqControl::PQ_EMPTY) {
            self.marks_empty.store(true, Relaxed);
            return false;
        }
        self.marks_empty.load(Relaxed)
    }

    fn sdma_samples(&self, samples: &mut KVec<Sample>) -> Result {
        // The ids in use bound what has to be looked at.
        if self.sdma.in_use() == 0 && self.load().active_sdma == 0 {
            return Ok(());
        }
        let asic = self.platform.asic();
        let read = |reg| self.platform.read(reg);
        for number in 0..asic.sdma_engines() {
            let Some(engine) = asic.sdma.engine(number) else {
                continue;
            };
            for queue in 0..RLC_QUEUES {
                let Some(block) = engine.rlc(queue) else {
                    continue;
                };
                let cntl = RbCntl::from_raw(read(block.rb_cntl())?);
                if !cntl.is_set(RbCntl::RB_ENABLE) {
                    continue;
                }
                let offset = read(block.doorbell_offset())?;
                let sample = Sample {
                    seat: Seat::Sdma(number, queue),
                    doorbell: crate::hw::regs::sdma::DoorbellOffset::from_raw(offset)
                        .get(crate::hw::regs::sdma::DoorbellOffset::OFFSET),
                    rptr: join(read(block.rb_rptr())?, read(block.rb_rptr_hi())?),
                    wptr: join(read(block.rb_wptr())?, read(block.rb_wptr_hi())?),
                    full: false,
                    in_buffer: None,
                };
                samples.push(sample, GFP_KERNEL)?;
            }
        }
        Ok(())
    }
}

impl Tick for Machine {
    fn tick(&self) {
        self.watch();
        self.probe();
    }
}
