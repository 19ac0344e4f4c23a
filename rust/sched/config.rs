// SPDX-License-Identifier: GPL-2.0

//! How a scheduler works: its [`Config`], and the module parameters that it follows from.
//!
//! Defaults and limits are those of `amdgpu` and `amdkfd` where they have the parameter
//! (`amdgpu_drv.c`, `kfd_module.c`, `kfd_priv.h`, `kfd_device.c`).

use core::ops::RangeInclusive;

use kernel::{
    fmt,
    prelude::*, //
};

use crate::{
    hw::{
        num::widen,
        timeouts::{
            unmap_latency_ms,
            AWAITED_PREEMPT_MS,
            HWS_PREEMPTION_MS,
            RECORD_PREEMPT_MS, //
        }, //
    },
    module_parameters, //
};

/// Upstream's limit of processes (`KFD_MAX_NUM_OF_PROCESSES`).
const MAX_PROCESSES: u32 = 512;
/// Upstream's limit of queues of a process (`KFD_MAX_NUM_OF_QUEUES_PER_PROCESS`).
const MAX_QUEUES_PER_PROCESS: u32 = 1024;
/// Upstream's limit of queues of a device (`KFD_MAX_NUM_OF_QUEUES_PER_DEVICE`).
const MAX_QUEUES: u32 = MAX_PROCESSES * MAX_QUEUES_PER_PROCESS;
/// Upstream's default of it (`KFD_MAX_NUM_OF_QUEUES_PER_DEVICE_DEFAULT`).
const DEFAULT_QUEUES: u32 = 4096;

/// Whether more may be mapped than the hardware has slots for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The firmware takes turns.
    Oversubscribe,
    /// A queue or process too many is refused with `ENOSPC`.
    Strict,
    /// The same, and without the firmware: the driver loads queues into hardware slots itself.
    Direct,
}

/// Why a queue has less time to leave the hardware than the firmware gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sched) enum Hurry {
    /// Another user waits for it.
    Awaited,
    /// A queue of the same process refused to leave before.
    Record,
}

/// How a scheduler works; fixed for the life of a scheduler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    /// How long a preemption may take before the firmware counts as hung, in milliseconds.
    pub(crate) timeout_ms: u32,
    /// How long an addition waits for further ones when it would preempt running work, in
    /// microseconds.
    pub(crate) gather_us: u32,
    /// Off: each creation, update and destruction takes a preemption of everything and a runlist of
    /// its own, one after the other, and its caller waits for both, as upstream does.
    pub(crate) coalesce: bool,
    /// Unmap single queues or one process where that is enough.
    pub(crate) targeted: bool,
    /// What to do when hardware slots run out.
    pub(crate) policy: Policy,
    /// Processes per turn, at most and by default as many as there are VMIDs.
    pub(crate) turn_processes: Option<u32>,
    /// How long a queue with work may make no progress before it is reported, in milliseconds;
    /// 0: for ever.
    pub(crate) watchdog_ms: u32,
    /// Queues on the device.
    pub(crate) max_queues: u32,
    /// Queues of one process on the device.
    pub(crate) max_queues_per_process: u32,
    /// Processes on the device.
    pub(crate) max_processes: u32,
    /// MEC firmware version, which decides about SET_RESOURCES flags and global wave sync; 0: not known.
    pub(crate) mec_firmware: u32,
}

impl Config {
    /// Microseconds of [`Config::timeout_ms`].
    pub(super) fn timeout_us(&self) -> u64 {
        u64::from(self.timeout_ms) * 1000
    }

    /// Microseconds that one preemption may take, with all resets of queues that refuse it, before
    /// the hardware counts as hung. One refusal takes the firmware nine tenths of the time-out, and
    /// the reset of the queue as long at worst.
    pub(super) fn cycle_us(&self) -> u64 {
        self.timeout_us() * CYCLE
    }

    /// Microseconds that a queue may take to leave its slot when the driver asks it by registers.
    pub(super) fn unload_us(&self) -> u64 {
        widen(unmap_latency_ms(self.timeout_ms)) * 1000
    }

    /// The same for a queue that has to be quicker: at most half as long, so that the driver comes before the firmware
    /// gives up.
    pub(super) fn hurry_us(&self, hurry: Hurry) -> u64 {
        let ms = match hurry {
            Hurry::Awaited => AWAITED_PREEMPT_MS,
            Hurry::Record => RECORD_PREEMPT_MS,
        };
        (widen(ms) * 1000).min(self.unload_us() / 2)
    }

    /// Waits for convergence are bounded by this many milliseconds: within them a change is in force
    /// or the scheduler is out of service.
    ///
    /// With the firmware, the worker may have begun a preemption when the change comes, and then
    /// submits a list (a wait for ring space, one for further additions); the preemption that follows
    /// applies the change. Before it the watchdog may ask the firmware for an answer (a wait for ring space, one for
    /// the fence). Without it, queues leave in the order in which that was asked for: those
    /// that take long share the time of a preemption, in the cycle that runs and in the one that
    /// the change belongs to; the last one of each may overrun it by an attempt and a reset; all
    /// others are fast.
    pub(super) fn converge_ms(&self) -> u32 {
        let us = 2 * self.cycle_us()
            + match self.policy {
                Policy::Oversubscribe | Policy::Strict => {
                    3 * self.timeout_us() + u64::from(self.gather_us)
                }
                Policy::Direct => (4 + MAX_LOADED / SLOW_SHARE) * self.unload_us(),
            };
        u32::try_from(us / 1000)
            .unwrap_or(u32::MAX)
            .saturating_add(1000)
    }
}

/// Time-outs that one preemption may take.
const CYCLE: u64 = 4;
/// An unload by registers that takes more than this part of its time-out is slow.
pub(super) const SLOW_SHARE: u64 = 8;
/// Queues that may be loaded by registers, compute and SDMA together.
const MAX_LOADED: u64 = 64;

impl Default for Config {
    fn default() -> Self {
        Self {
            timeout_ms: HWS_PREEMPTION_MS,
            gather_us: 2_000,
            coalesce: true,
            targeted: true,
            policy: Policy::Oversubscribe,
            turn_processes: None,
            watchdog_ms: 0,
            max_queues: DEFAULT_QUEUES,
            max_queues_per_process: MAX_QUEUES_PER_PROCESS,
            max_processes: MAX_PROCESSES,
            mec_firmware: 0,
        }
    }
}

/// The parameters as the user gave them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameters {
    pub(super) sched_policy: u32,
    pub(super) hws_max_conc_proc: i32,
    pub(super) coalesce: bool,
    pub(super) targeted: bool,
    pub(super) gather_us: u32,
    pub(super) preempt_timeout_ms: u32,
    pub(super) watchdog_ms: u32,
    pub(super) max_queues: u32,
    pub(super) max_queues_per_process: u32,
    pub(super) max_processes: u32,
}

/// A parameter outside its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BadValue {
    pub(super) name: &'static str,
    pub(super) value: i64,
    pub(super) range: RangeInclusive<i64>,
    /// What the values mean, where that is not plain.
    hint: &'static str,
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.range.start(), self.range.end());
        write!(
            f,
            "{}={} is not within {first} to {last}{}",
            self.name, self.value, self.hint
        )
    }
}

/// `value`, if it is within `range`.
fn check<T: Copy + PartialOrd + Into<i64>>(
    name: &'static str,
    value: T,
    range: RangeInclusive<T>,
    hint: &'static str,
) -> Result<T, BadValue> {
    if range.contains(&value) {
        return Ok(value);
    }
    let (first, last) = range.into_inner();
    Err(BadValue {
        name,
        value: value.into(),
        range: first.into()..=last.into(),
        hint,
    })
}

impl Parameters {
    /// The values of the loaded module.
    fn given() -> Self {
        use module_parameters as given;
        Self {
            sched_policy: given::sched_policy.value(),
            hws_max_conc_proc: given::hws_max_conc_proc.value(),
            coalesce: given::coalesce.value(),
            targeted: given::targeted.value(),
            gather_us: given::gather_us.value(),
            preempt_timeout_ms: given::preempt_timeout_ms.value(),
            watchdog_ms: given::watchdog_ms.value(),
            max_queues: given::max_queues.value(),
            max_queues_per_process: given::max_queues_per_process.value(),
            max_processes: given::max_processes.value(),
        }
    }

    /// Checks the values.
    ///
    /// # Errors
    ///
    /// The first value outside its range.
    pub(super) fn config(&self) -> Result<Config, BadValue> {
        let policy = check(
            "sched_policy",
            self.sched_policy,
            0..=2,
            " (0: HWS, 1: HWS without over-subscription, 2: no HWS)",
        )?;
        let turn_processes = check(
            "hws_max_conc_proc",
            self.hws_max_conc_proc,
            -1..=i32::MAX,
            " (-1: as many as there are VMIDs)",
        )?;
        Ok(Config {
            policy: match policy {
                0 => Policy::Oversubscribe,
                1 => Policy::Strict,
                _ => Policy::Direct,
            },
            turn_processes: u32::try_from(turn_processes).ok(),
            coalesce: self.coalesce,
            targeted: self.targeted,
            gather_us: check("gather_us", self.gather_us, 0..=1_000_000, "")?,
            timeout_ms: check(
                "preempt_timeout_ms",
                self.preempt_timeout_ms,
                1..=60_000,
                "",
            )?,
            watchdog_ms: check(
                "watchdog_ms",
                self.watchdog_ms,
                0..=3_600_000,
                " (0: no watchdog)",
            )?,
            max_queues: check("max_queues", self.max_queues, 1..=MAX_QUEUES, "")?,
            max_queues_per_process: check(
                "max_queues_per_process",
                self.max_queues_per_process,
                1..=MAX_QUEUES_PER_PROCESS,
                "",
            )?,
            max_processes: check("max_processes", self.max_processes, 1..=MAX_PROCESSES, "")?,
            mec_firmware: 0,
        })
    }
}

impl Config {
    /// What the module's parameters ask for.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a parameter is outside its range; says which and what it may be.
    pub(crate) fn from_parameters() -> Result<Self> {
        let config = Parameters::given().config().map_err(|bad| {
            pr_err!("{bad}\n");
            EINVAL
        })?;
        Ok(config)
    }
}
