// SPDX-License-Identifier: GPL-2.0

//! Who may have a queue: limits, and room in the hardware where nobody takes turns.

use kernel::prelude::*;

use super::{
    params::{
        Config,
        Policy, //
    },
    runlist::MAX_QUEUES_PER_PROCESS,
    state::{
        State,
        COMPUTE_SLOTS, //
    }, //
};
use crate::hw::{
    asic::AsicDesc,
    num::index, //
};

/// Processes that the firmware may run at once.
pub(super) fn max_processes(asic: &AsicDesc, config: &Config) -> usize {
    let vmids = index(asic.vmid_count());
    match config.turn_processes {
        None => vmids,
        // One can always run.
        Some(limit) => index(limit).clamp(1, vmids),
    }
}

impl State {
    /// Whether there is room for one more queue of `proc`, `active` if it should run at once.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: the device or the process has its limit of queues, or, without
    /// over-subscription, no slot or VMID is left.
    pub(super) fn admit(
        &self,
        proc: u64,
        active: bool,
        compute: bool,
        asic: &AsicDesc,
        config: &Config,
    ) -> Result {
        let load = self.load();
        let total = self
            .procs
            .get(&proc)
            .map_or(0, |proc| proc.queues.values().count());
        let per_process = index(config.max_queues_per_process).min(MAX_QUEUES_PER_PROCESS);
        if load.queues >= index(config.max_queues) || total >= per_process {
            return Err(ENOSPC);
        }
        match active {
            true => self.admit_active(proc, compute, asic, config),
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
    pub(super) fn admit_active(
        &self,
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
        for (id, rec) in self.procs.iter().filter(|(_, rec)| !rec.doomed) {
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
}
