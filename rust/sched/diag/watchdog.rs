// SPDX-License-Identifier: GPL-2.0

//! The progress watchdog: reports queues that have work and do not get on.
//!
//! A dead shader, a fence that is never signalled or an engine that hangs looks the same from outside:
//! the write pointer of a queue is ahead of its read pointer, and the read pointer stands. It shows
//! nowhere else before the queue has to leave the hardware, which may be never. So the
//! watchdog samples the hardware's slots now and then, and reports a queue once per standstill,
//! with its registers. It resets nothing: a queue may wait as long as it likes.
//!
//! A list that the firmware never takes up shows in no register, nor do queues that wait for a turn which
//! does not come. So with each sample the firmware is asked for an answer while it has a list.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

use super::{
    sample::{
        samples,
        Sample, //
    },
    slot, //
};
use crate::{
    hw::{
        num::widen,
        regs::hqd::PqControl, //
    },
    kapi::ticker::Tick,
    sched::{
        core::SchedCore,
        desired::{
            process::ProcRec,
            progress::Progress,
            queue::Phase, //
        },
        lifecycle::Lifecycle,
        mqd::MqdMem,
        params::QueueSpec,
        worker::Worker, //
    }, //
};

/// Samples per [`Config::watchdog_ms`](crate::sched::config::Config::watchdog_ms).
pub(in crate::sched) const SAMPLES: u32 = 4;
/// Queues reported per sample. Others that are stuck are reported by the next one.
const REPORTS: usize = 4;

/// Queues reported per [`REPORT_SPAN_US`]. A program can let queues stand still as often as it likes,
/// and each report is dozens of lines.
const REPORTS_PER_SPAN: u64 = 16;
/// A minute.
const REPORT_SPAN_US: u64 = 60_000_000;

/// Bounds how many reports the log gets.
struct ReportRateLimit {
    /// When the span began, microseconds.
    since: Atomic<u64>,
    /// Reports that were due in it.
    due: Atomic<u64>,
}

impl ReportRateLimit {
    /// Nothing was reported.
    const fn new() -> Self {
        Self {
            since: Atomic::new(0),
            due: Atomic::new(0),
        }
    }

    /// Whether one more report may be made at `now`; and how many of the span before were not, if a
    /// new one begins. Only one sample is taken at a time.
    fn allow(&self, now: u64) -> (bool, u64) {
        let mut suppressed = 0;
        if now.saturating_sub(self.since.load(Relaxed)) >= REPORT_SPAN_US {
            self.since.store(now, Relaxed);
            suppressed = self.due.load(Relaxed).saturating_sub(REPORTS_PER_SPAN);
            self.due.store(0, Relaxed);
        }
        let due = self.due.load(Relaxed).saturating_add(1);
        self.due.store(due, Relaxed);
        (due <= REPORTS_PER_SPAN, suppressed)
    }
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

/// The watchdog of a scheduler.
pub(in crate::sched) struct Watchdog {
    worker: Arc<Worker>,
    limit: ReportRateLimit,
    /// The hardware was seen to mark a ring as empty.
    marks_empty: Atomic<bool>,
}

impl Watchdog {
    /// Of the scheduler of `worker`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(in crate::sched) fn new(worker: &Arc<Worker>) -> Result<Arc<Self>> {
        let watchdog = Self {
            worker: worker.clone(),
            limit: ReportRateLimit::new(),
            marks_empty: Atomic::new(false),
        };
        Ok(Arc::new(watchdog, GFP_KERNEL)?)
    }

    /// Samples all queues on the hardware, and reports those that have become stuck.
    pub(in crate::sched) fn sample(&self) {
        let core = &self.worker.core;
        // A suspend of the scheduler waits for the end of this sample.
        let _sampling = core.watchdog_lock.lock();
        if core.config.watchdog_ms == 0 || core.life() != Lifecycle::Running {
            return;
        }
        let on_hardware = core.state.lock().procs.values().any(ProcRec::on_hardware);
        let samples = match on_hardware {
            true => samples(core, |control| self.is_full(control)),
            false => Ok(KVec::new()),
        };
        // A sample that fails, for want of memory or of the device, is made up for by the next one.
        let Ok(samples) = samples else {
            return;
        };
        for stuck in find_stuck(core, &samples).iter().flatten() {
            core.counters.stuck.inc();
            let (allowed, suppressed) = self.limit.allow(core.platform.now());
            if suppressed > 0 {
                core.platform.warn(fmt!(
                    "{suppressed} more queues made no progress and were not reported"
                ));
            }
            if allowed {
                report(core, stuck);
            }
        }
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
}

impl Tick for Watchdog {
    fn tick(&self) {
        self.sample();
        self.worker.probe();
        self.worker.core.counters.samples.inc();
    }
}

/// Notes `samples` with the queues that they are of, and returns those that have become stuck.
fn find_stuck(core: &SchedCore, samples: &[Sample]) -> [Option<Stuck>; REPORTS] {
    let limit = widen(core.config.watchdog_ms) * 1000;
    let mut stuck = [const { None }; REPORTS];
    let mut count = 0;
    let now = core.platform.now();
    let mut state = core.state.lock();
    for proc in state.procs.values_mut() {
        let (pid, pasid) = (proc.pid, proc.params.pasid);
        let runs = proc.runs();
        for (id, queue) in proc.queues.iter_mut() {
            if !queue.wanted(runs) {
                queue.progress = Progress::default();
                continue;
            }
            // Between two runlists; the time runs on.
            if queue.phase != Phase::Mapped {
                continue;
            }
            let doorbell = queue.spec.doorbell.dword();
            let Some(sample) = samples.iter().find(|s| s.doorbell == doorbell) else {
                continue;
            };
            let pointers = &sample.pointers;
            let work = pointers.have_work(&queue.spec);
            let Some(stood) = queue.progress.sample(now, limit, pointers, work) else {
                continue;
            };
            let Some(entry) = stuck.get_mut(count) else {
                queue.progress.put_off();
                continue;
            };
            *entry = Some(Stuck {
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
    stuck
}

fn report(core: &SchedCore, stuck: &Stuck) {
    let sample = &stuck.sample;
    core.platform.warn(fmt!(
        "{} queue {} of pid {} (pasid {}, doorbell {:#x}, {}) has work and makes no progress for {} ms: read pointer {:#x}, write pointer {:#x}",
        stuck.spec.kind.name(),
        stuck.queue,
        stuck.pid,
        stuck.pasid,
        widen(sample.doorbell) * 4,
        sample.slot,
        stuck.for_ms,
        sample.pointers.rptr,
        sample.pointers.wptr
    ));
    slot::describe(core, sample.slot, &stuck.spec, &stuck.mqd, &mut |line| {
        core.platform.warn(fmt!("{line}"))
    });
}
