// SPDX-License-Identifier: GPL-2.0

//! The desired state, queue by queue: what is to be loaded and unloaded where no runlist does it.

use kernel::prelude::*;

use crate::{
    gpu::vmid::VmidContext,
    sched::{
        desired::{
            queue::{
                Phase,
                QueueRec, //
            },
            state::State, //
        },
        mqd::MqdMem,
        params::{
            ProcessParams,
            QueueSpec, //
        }, //
    }, //
};

/// A queue that is to be loaded or unloaded by registers, with all that it takes.
pub(in crate::sched) struct LoadRequest {
    /// Its process.
    pub(in crate::sched) process: u64,
    /// The queue.
    pub(in crate::sched) queue: u64,
    /// Its values.
    pub(in crate::sched) spec: QueueSpec,
    /// Its descriptor.
    pub(in crate::sched) mqd: MqdMem,
    /// Its address space.
    pub(in crate::sched) context: VmidContext,
    /// Its owner destroyed it: nothing has to be saved.
    pub(in crate::sched) destroyed: bool,
    /// The oldest change that needs it off the hardware, 0 for none.
    pub(in crate::sched) pending_since: u64,
}

impl LoadRequest {
    fn new(
        process: u64,
        proc: &ProcessParams,
        destroyed: bool,
        queue: u64,
        rec: &QueueRec,
    ) -> Self {
        Self {
            process,
            queue,
            spec: rec.spec,
            mqd: rec.mqd.clone(),
            context: proc.context(),
            destroyed: destroyed || rec.destroyed,
            pending_since: rec.pending_since.unwrap_or(0),
        }
    }
}

/// Takes the next queue that is on the hardware and should not be (or, if `all`, any), which
/// counts as being preempted from now on.
///
/// The one with the oldest change comes first, so that no change waits for later ones.
pub(in crate::sched) fn next_unload(state: &mut State, all: bool) -> Option<LoadRequest> {
    let mut next = None;
    for (process, proc) in state.procs.iter() {
        let runs = proc.runs();
        for (queue, rec) in proc.queues.iter() {
            let leaves = all || !rec.wanted(runs) || rec.pending_since.is_some();
            if rec.phase != Phase::Mapped || !leaves {
                continue;
            }
            let since = rec.pending_since.unwrap_or(0);
            match next {
                Some((oldest, _, _)) if oldest <= since => {}
                _ => next = Some((since, *process, *queue)),
            }
        }
    }
    let (_, process, queue) = next?;
    let proc = state.procs.get_mut(&process)?;
    let rec = proc.queues.get_mut(&queue)?;
    rec.phase = rec.phase.preempting();
    Some(LoadRequest::new(
        process,
        &proc.params,
        proc.destroyed,
        queue,
        rec,
    ))
}

/// Takes the next queue that should be on the hardware and is not, which counts as mapped from
/// now on.
///
/// # Errors
///
/// `EINVAL`: a queue in the wrong phase; a driver bug.
pub(in crate::sched) fn next_load(state: &mut State) -> Result<Option<LoadRequest>> {
    for (process, proc) in state.procs.iter_mut() {
        let runs = proc.runs();
        for (queue, rec) in proc.queues.iter_mut() {
            if rec.wanted(runs) && !rec.phase.on_hardware() {
                rec.phase = rec.phase.mapped()?;
                let request = LoadRequest::new(*process, &proc.params, false, *queue, rec);
                return Ok(Some(request));
            }
        }
    }
    Ok(None)
}

/// Notes that a queue that [`next_unload`] returned is off the hardware.
pub(in crate::sched) fn unloaded(state: &mut State, process: u64, queue: u64) {
    if let Some(rec) = state
        .procs
        .get_mut(&process)
        .and_then(|proc| proc.queues.get_mut(&queue))
    {
        rec.phase = rec.phase.preempted();
    }
}
