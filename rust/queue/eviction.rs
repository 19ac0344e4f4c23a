// SPDX-License-Identifier: GPL-2.0

//! Queues that stop while memory of their address space moves.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    sched::{
        EvictCause,
        SchedProcess,
        Scheduler, //
    },
    vm::{
        Vm,
        VmQueues, //
    },
};

/// The queues of one address space.
struct Queues {
    sched: Arc<Scheduler>,
    process: Arc<SchedProcess>,
}

impl VmQueues for Queues {
    fn stop(&self) -> Result {
        match self.sched.evict(&self.process, EvictCause::Memory) {
            // Nothing runs: it is being forgotten, or the GPU is gone.
            Err(error) if error == ESRCH || error == ENODEV => Ok(()),
            result => result,
        }
    }

    fn resume(&self) {
        // What fails here has failed and was reported before.
        let _ = self.sched.restore(&self.process, EvictCause::Memory);
    }
}

/// Has the queues of `process` stopped when memory of `vm` moves; to be called before the first one runs.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn follow(vm: &Vm, sched: &Arc<Scheduler>, process: &Arc<SchedProcess>) -> Result {
    let queues = Queues {
        sched: sched.clone(),
        process: process.clone(),
    };
    vm.set_queues(Arc::new(queues, GFP_KERNEL_ACCOUNT)?);
    Ok(())
}
