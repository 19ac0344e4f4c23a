// SPDX-License-Identifier: GPL-2.0

//! Queues that stop while memory of their address space moves.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    kapi::task::ThreadGroup,
    sched::{
        EvictCause,
        SchedProcess,
        Scheduler, //
    },
    vm::{
        MoveMonitor,
        Moved,
        Vm,
        VmQueues, //
    },
};

/// The queues of one address space.
struct Queues {
    sched: Arc<Scheduler>,
    process: Arc<SchedProcess>,
    monitor: Arc<dyn MoveMonitor>,
    /// Their owner, for the monitor.
    group: ThreadGroup,
}

impl VmQueues for Queues {
    fn stop(&self) -> Result {
        let result = self.sched.evict(&self.process, EvictCause::Memory);
        if is_absent(&result) {
            return Ok(());
        }
        // Also of queues that do not stop: they are restored all the same.
        self.monitor.moved(&self.group, Moved::Off);
        result
    }

    fn resume(&self) {
        // What else fails here has failed and was reported before.
        let result = self.sched.restore(&self.process, EvictCause::Memory);
        if !is_absent(&result) {
            self.monitor.moved(&self.group, Moved::On);
        }
    }
}

/// Whether nothing runs: the process is being forgotten, or the GPU is gone.
fn is_absent(result: &Result) -> bool {
    matches!(result, Err(error) if *error == ESRCH || *error == ENODEV)
}

/// Has the queues of `process`, which are those of `group`, stopped when memory of `vm` moves, of which `monitor`
/// learns; to be called before the first one runs.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn follow(
    vm: &Vm,
    sched: &Arc<Scheduler>,
    process: &Arc<SchedProcess>,
    monitor: Arc<dyn MoveMonitor>,
    group: &ThreadGroup,
) -> Result {
    let queues = Queues {
        sched: sched.clone(),
        process: process.clone(),
        monitor,
        group: group.clone(),
    };
    vm.set_queues(Arc::new(queues, GFP_KERNEL_ACCOUNT)?);
    Ok(())
}
