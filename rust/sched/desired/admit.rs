// SPDX-License-Identifier: GPL-2.0

//! Admission of queues: limits, and room in the hardware where queues do not take turns.

use kernel::prelude::*;

use super::state::{
    State,
    COMPUTE_SLOTS, //
};
use crate::{
    hw::{
        asic::AsicDesc,
        num::index,
        pm4::{
            MapQueues,
            RunList, //
        }, //
    },
    sched::config::{
        Config,
        Policy, //
    }, //
};

/// Queues of one process in a list: MAP_PROCESS.num_queues has 10 bits.
const MAX_QUEUES_PER_PROCESS: usize = 1023;

/// Processes that the firmware may run at once.
pub(in crate::sched) fn max_processes(asic: &AsicDesc, config: &Config) -> usize {
    let vmids = index(asic.vmid_count());
    match config.turn_processes {
        None => vmids,
        // One can always run.
        Some(limit) => index(limit).clamp(1, vmids),
    }
}

/// Dwords that the runlist of everything attached takes at most, with `extra` further queues.
pub(in crate::sched) fn list_dwords(state: &State, asic: &AsicDesc, extra: usize) -> usize {
    let load = state.load();
    load.processes * asic.map_process.dwords()
        + (load.queues + extra) * MapQueues::DWORDS
        + RunList::DWORDS
}

/// Whether there is room for one more queue of `proc`, `active` if it should run at once.
///
/// # Errors
///
/// `ENOSPC`: the device or the process has its limit of queues, or, without
/// over-subscription, no slot or VMID is left.
pub(in crate::sched) fn admit(
    state: &State,
    proc: u64,
    active: bool,
    compute: bool,
    asic: &AsicDesc,
    config: &Config,
) -> Result {
    let load = state.load();
    let total = state
        .procs
        .get(&proc)
        .map_or(0, |proc| proc.queues.values().count());
    let per_process = index(config.max_queues_per_process).min(MAX_QUEUES_PER_PROCESS);
    if load.queues >= index(config.max_queues) || total >= per_process {
        return Err(ENOSPC);
    }
    match active {
        true => admit_active(state, proc, compute, asic, config),
        false => Ok(()),
    }
}

/// Whether there is room for one more queue of `proc` that should run.
///
/// Evicted queues count, for they must find room when they come back.
///
/// # Errors
///
/// `ENOSPC`: without over-subscription, and no slot or VMID is left.
pub(in crate::sched) fn admit_active(
    state: &State,
    proc: u64,
    compute: bool,
    asic: &AsicDesc,
    config: &Config,
) -> Result {
    if config.policy == Policy::Oversubscribe {
        return Ok(());
    }
    let mut slots = usize::from(compute);
    let mut processes = 0;
    for (id, rec) in state.procs.iter().filter(|(_, rec)| !rec.destroyed) {
        let taking_part = || rec.queues.values().filter(|queue| queue.takes_part());
        processes += usize::from(*id == proc || taking_part().next().is_some());
        slots += taking_part()
            .filter(|queue| queue.spec.kind.is_compute())
            .count();
    }
    if slots > COMPUTE_SLOTS || processes > max_processes(asic, config) {
        return Err(ENOSPC);
    }
    Ok(())
}
