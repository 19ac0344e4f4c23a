// SPDX-License-Identifier: GPL-2.0

//! What a queue that is off the hardware has left in its descriptor: its waves, for a debugger, and
//! all of it, for a checkpoint.

use kernel::prelude::*;

use crate::sched::{
    core::SchedCore,
    mqd::{
        saved::{
            QueueImage,
            WaveState, //
        },
        MqdMem, //
    },
    params::QueueSpec, //
};

impl SchedCore {
    /// Descriptor and values of a queue that is off the hardware.
    fn at_rest(&self, proc: u64, queue: u64) -> Result<(MqdMem, QueueSpec)> {
        let mut state = self.state.lock();
        let rec = state.queue_mut(proc, queue)?;
        if rec.phase.on_hardware() {
            return Err(EBUSY);
        }
        Ok((rec.mqd.clone(), rec.spec))
    }

    /// The saved waves of a queue that does not run. Nothing must start it meanwhile.
    ///
    /// # Errors
    ///
    /// `EINVAL`: not a compute queue with a save area, or it runs. `ENOENT`: destroyed. `EIO`, `ENODEV`: the scheduler
    /// is out of service, or shut down. Else those of [`MqdMem::wave_state`].
    pub(in crate::sched) fn wave_state(&self, proc: u64, queue: u64) -> Result<WaveState> {
        // A queue that was stopped in vain would read as one that runs.
        self.check()?;
        {
            let mut state = self.state.lock();
            let evicted = state.proc_mut(proc).map_err(|_| ENOENT)?.is_evicted();
            let rec = state.queue_mut(proc, queue)?;
            if rec.spec.cwsr.is_none() || rec.newest_spec().is_active() && !evicted {
                return Err(EINVAL);
            }
        }
        let (mqd, spec) = self
            .at_rest(proc, queue)
            .map_err(|error| match error == EBUSY {
                true => EINVAL,
                false => error,
            })?;
        mqd.wave_state(&spec)
    }

    /// Copies a queue that is off the hardware, so that one like it can be made elsewhere.
    ///
    /// # Errors
    ///
    /// `EBUSY`: it is on the hardware; evict it first. `ENOENT`, `ENOMEM`, `ENODEV`.
    pub(in crate::sched) fn checkpoint(&self, proc: u64, queue: u64) -> Result<QueueImage> {
        let (mqd, spec) = self.at_rest(proc, queue)?;
        mqd.checkpoint(&spec)
    }
}
