// SPDX-License-Identifier: GPL-2.0

//! The scheduler: which queues of which processes the GPU runs.
//!
//! The GPU's scheduler firmware (HWS) maps queues to hardware slots (HQDs) and processes to VMIDs.
//! The driver does not order single steps: it hands over a *runlist* with everything that should
//! run, or asks it to take queues off the hardware. One [`Scheduler`] per GPU holds the *desired
//! state* (processes, queues, reasons not to run) and lets the hardware converge to it.
//!
//! # How it converges
//!
//! Callers change the desired state under a mutex and get a number for their change. One worker per
//! GPU compares desired and hardware state and takes the next step: nothing, a preemption
//! (UNMAP_QUEUES, QUERY_STATUS and a wait for the fence), or a RUN_LIST. The list is built after the
//! preemption, from the state of that moment, so that all changes that came meanwhile share it.
//!
//! The firmware takes a new runlist only after the old one was unmapped. *Adding work never waits
//! for a preemption* all the same:
//!
//! - creating or restoring a queue returns when the queue is part of the desired state. All errors
//!   that depend on the request (memory, slots, a dead scheduler) are reported then. The worker
//!   activates it: at once if no list is active, else with the next list. A doorbell rung before that
//!   is not lost, because the firmware reads the write pointer from memory when it maps a queue
//!   ([`Config::coalesce`] off is the exception: then creation waits until the queue runs);
//! - additions that would preempt running work wait some milliseconds for further ones, so that a
//!   burst of creations ends in one or two lists.
//!
//! What takes memory away from the hardware (destroy, update, evict) waits until the hardware is
//! done with it. Such a change is not delayed, and if nothing else changed and the firmware is not
//! taking turns, only the queues concerned are unmapped and no new list is needed.
//!
//! # When the hardware does not follow
//!
//! Each wait for the device is bounded, and so is each preemption as a whole. A compute queue that the
//! firmware names because it refused preemption is reset alone, does not run again, and its owner is
//! notified. If that does not help, or a fence does not come, the scheduler is out of service: sleepers wake
//! up, later changes fail with `EIO` at once, and what may still be on the hardware keeps its memory.
//! A [`ResetHook`] may reset the device and bring the scheduler back. When the device is removed,
//! changes fail with `ENODEV`. The states and the ways between them: [`lifecycle`].
//!
//! # Files
//!
//! From bottom to top; each knows only what stands before it:
//!
//! - [`params`], [`config`], [`platform`], [`notes`], [`failure`], [`lifecycle`], [`counters`], [`sdma_ids`]: what
//!   callers give, module parameters, the device, what the interrupt thread saw, why and how the scheduler fails;
//! - [`mqd`]: descriptors of queues, and what a queue off the hardware has left in its own;
//! - [`desired`]: the desired state, and [`desired::plan`], which decides what follows from it;
//! - [`core`](self::core): what all of the following share; how far changes are applied, and the waits for them;
//! - [`diag`]: observers. Tracepoints, counters, debugfs and the log read the state and change nothing;
//! - [`backend`]: moves queues, by runlists of the firmware ([`backend::hws`]) or by registers
//!   ([`backend::direct`]);
//! - [`worker`]: lets the back end converge; [`recovery`]: reset, sleep, shutdown; [`changes`]: what callers
//!   ask for, one file per object; the watchdog ([`diag::watchdog`]);
//! - [`scheduler`]: the handles that other layers hold.
//!
//! # Locks
//!
//! Outer to inner (before them all comes the serialized change, for changes that are not to be
//! collected, see [`Config::coalesce`], and for which a killed task does not wait):
//!
//! 1. `Worker::backend`: the back end, that is the HIQ and its fences. Held across waits for the device. Only
//!    the worker, start, watchdog, shutdown, sleep and reset take it. A thread that waits for a change waits for the
//!    worker, page reclaim among them, so nothing is done under it that may wait for memory or foreign locks:
//!    freeing and the report of hung queues are work items of their own.
//! 2. `SchedCore::state`: the desired state, and the changes of the lifecycle. Never held across a wait. Nothing
//!    is allocated or freed under it, nor under `backend` once the scheduler runs, so that eviction works from
//!    MMU notifiers.
//! 3. `SdmaPool::used` and `SchedCore::notes`, spinlocks, and those of `gpu/conduct.rs`. Of all these locks the interrupt
//!    thread takes that of the notes alone.
//!
//! `SchedCore::watchdog_lock`, which the watchdog holds while it samples the hardware, comes before `state`, and
//! is not held while it asks the firmware for an answer, which takes `backend`; `SchedCore::hook` comes after
//! `backend`, and nothing is taken under it.
//!
//! Sleepers wait on atomics, without a lock. Keep-alives are dropped without any of these locks.

mod backend;
mod changes;
mod config;
mod core;
mod counters;
mod desired;
mod diag;
mod failure;
mod lifecycle;
mod mqd;
mod notes;
mod params;
mod platform;
mod recovery;
mod scheduler;
mod sdma_ids;
mod worker;

#[cfg(rkfd_kunit)]
#[path = "tests/sched_bench.rs"]
mod bench;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_fake.rs"]
mod fake;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_fake_firmware.rs"]
mod fake_firmware;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_fake_mem.rs"]
mod fake_mem;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_fake_platform.rs"]
mod fake_platform;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_fake_regs.rs"]
mod fake_regs;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_fixtures.rs"]
mod fixtures;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_steps.rs"]
mod steps;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_backends.rs"]
mod test_backends;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_changes.rs"]
mod test_changes;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_conduct.rs"]
mod test_conduct;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_config.rs"]
mod test_config;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_direct.rs"]
mod test_direct;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_failures.rs"]
mod test_failures;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_faults.rs"]
mod test_faults;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_hiq.rs"]
mod test_hiq;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_limits.rs"]
mod test_limits;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_live.rs"]
mod test_live;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_notes.rs"]
mod test_notes;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_offenders.rs"]
mod test_offenders;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_revival.rs"]
mod test_revival;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_saved.rs"]
mod test_saved;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_scenes.rs"]
mod test_scenes;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_watchdog.rs"]
mod test_watchdog;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_worker.rs"]
mod test_worker;

pub(crate) use self::{
    config::Config,
    desired::queue::QueueHold,
    failure::{
        Failure,
        ResetHook, //
    },
    mqd::saved::WaveState,
    notes::Halt,
    params::{
        EvictCause,
        KeepAlive,
        ProcessParams,
        QueueKind,
        QueueSpec,
        QueueUpdate,
        UpdateError, //
    },
    scheduler::{
        SchedProcess,
        SchedQueue,
        Scheduler, //
    },
    sdma_ids::{
        SdmaSlot,
        QUEUES_PER_ENGINE, //
    },
};

/// Value of `sched_policy` with which the driver schedules.
const NO_HWS: u32 = 2;

/// Whether GPUs of this module are scheduled by their firmware; otherwise the driver does it.
pub(crate) fn has_firmware() -> bool {
    crate::module_parameters::sched_policy.value() != NO_HWS
}
