// SPDX-License-Identifier: GPL-2.0

//! The scheduler's module parameters: what they may be, and the [`Config`] that follows.
//!
//! Defaults and limits are those of `amdgpu` and `amdkfd` where they have the parameter
//! (`amdgpu_drv.c`, `kfd_module.c`, `kfd_priv.h`, `kfd_device.c`).

use core::ops::RangeInclusive;

use kernel::{
    fmt,
    prelude::*, //
};

use super::params::{
    Config,
    Policy, //
};
use crate::module_parameters;

/// Upstream's limit of processes (`KFD_MAX_NUM_OF_PROCESSES`).
pub(crate) const MAX_PROCESSES: u32 = 512;
/// Upstream's limit of queues of a process (`KFD_MAX_NUM_OF_QUEUES_PER_PROCESS`).
pub(crate) const MAX_QUEUES_PER_PROCESS: u32 = 1024;
/// Upstream's limit of queues of a device (`KFD_MAX_NUM_OF_QUEUES_PER_DEVICE`).
pub(crate) const MAX_QUEUES: u32 = MAX_PROCESSES * MAX_QUEUES_PER_PROCESS;
/// Upstream's default of it (`KFD_MAX_NUM_OF_QUEUES_PER_DEVICE_DEFAULT`).
pub(crate) const DEFAULT_QUEUES: u32 = 4096;

/// The parameters as the user gave them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tunables {
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

impl Tunables {
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
        let config = Tunables::given().config().map_err(|bad| {
            pr_err!("{bad}\n");
            EINVAL
        })?;
        Ok(config)
    }
}
