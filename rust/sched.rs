// SPDX-License-Identifier: GPL-2.0

//! The scheduler: which queues of which processes the GPU runs.
//!
//! The GPU's scheduler firmware (HWS) maps queues to hardware slots (HQDs) and processes to VMIDs.
//! The driver does not tell it single steps: it hands over a *runlist* with everything that should
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
//! told. If that does not help, or a fence does not come, the scheduler is *wedged*: sleepers wake
//! up, later changes fail with `EIO` at once, and what may still be on the hardware keeps its memory.
//! A [`ResetHook`] may reset the device and bring the scheduler back. When the device is removed,
//! changes fail with `ENODEV`.
//!
//! # Locks
//!
//! Outer to inner (before them all comes the turn, which serialises changes that are not to be
//! collected, see [`Config::coalesce`], and for which a killed task does not wait):
//!
//! 1. `engine`: the HIQ and its fences. Held across waits for the device. Only the worker, start,
//!    watchdog, shutdown, sleep and reset take it. Whoever waits for a change waits for the worker, page
//!    reclaim among them, so nothing is done under it that may wait for memory or foreign locks:
//!    freeing and telling of hung queues are work items of their own.
//! 2. `state`: the desired state. Never held across a wait. Nothing is allocated or freed under it,
//!    nor under `engine` once the scheduler runs, so that eviction works from MMU notifiers.
//! 3. `SdmaPool::used`, a spinlock.
//!
//! `looks`, which the watchdog holds while it looks at the hardware, comes before `state`, and is not held while
//! it asks the firmware for a sign of life, which takes `engine`; `hook` comes after `engine`, and nothing is
//! taken under it.
//!
//! Sleepers wait on atomics, without a lock. Keep-alives are dropped without any of these locks.

mod admit;
mod change;
mod debugfs;
mod device;
mod dump;
mod engine;
mod fence;
mod health;
mod hiq;
mod machine;
mod mqd;
mod packets;
mod params;
mod platform;
mod record;
mod recover;
mod runlist;
mod saved;
mod scheduler;
mod sdma;
mod seat;
mod state;
mod stats;
mod ticket;
mod trace;
mod tunables;
mod watchdog;

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
#[path = "tests/sched_direct.rs"]
mod test_direct;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_failures.rs"]
mod test_failures;
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
#[path = "tests/sched_revival.rs"]
mod test_revival;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_saved.rs"]
mod test_saved;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_scenes.rs"]
mod test_scenes;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_tunables.rs"]
mod test_tunables;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_watchdog.rs"]
mod test_watchdog;
#[cfg(rkfd_kunit)]
#[path = "tests/sched_worker.rs"]
mod test_worker;

pub(crate) use self::{
    health::{
        Failure,
        ResetHook, //
    },
    params::{
        Config,
        Cwsr,
        EvictCause,
        KeepAlive,
        ProcessParams,
        QueueKind,
        QueueParams,
        QueueUpdate,
        UpdateError, //
    },
    saved::WaveState,
    scheduler::{
        SchedProcess,
        SchedQueue,
        Scheduler, //
    },
    sdma::SdmaSlot, //
};

/// Value of `sched_policy` with which the driver schedules.
const NO_HWS: u32 = 2;

/// Whether GPUs of this module are scheduled by their firmware; otherwise the driver does it.
pub(crate) fn has_firmware() -> bool {
    crate::module_parameters::sched_policy.value() != NO_HWS
}
