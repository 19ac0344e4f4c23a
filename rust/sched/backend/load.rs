// SPDX-License-Identifier: GPL-2.0

//! The desired state, queue by queue: what is to be loaded and unloaded where no runlist does it.

use kernel::prelude::*;

use crate::{
    gpu::vmid::VmidContext,
    sched::{
        config::Hurry,
        desired::{
            queue::Phase,
            state::State, //
        },
        mqd::MqdMem,
        params::QueueSpec, //
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
    /// It gets less time to leave, and why.
    pub(in crate::sched) hurry: Option<Hurry>,
}

impl LoadRequest {
    fn new(state: &State, process: u64, queue: u64) -> Option<Self> {
        let proc = state.procs.get(&process)?;
        let rec = proc.queues.get(&queue)?;
        Some(Self {
            process,
            queue,
            spec: rec.spec,
            mqd: rec.mqd.clone(),
            context: proc.params.context(),
            destroyed: proc.destroyed || rec.destroyed,
            pending_since: rec.pending_since.unwrap_or(0),
            hurry: state.hurry(process, proc),
        })
    }
}

/// Takes the next queue that is on the hardware and should not be (or, if `all`, any), which
/// counts as being preempted from now on.
///
/// The one with the oldest change comes first, so that no change waits for later ones. Queues of processes with a
/// record come last: no change of another process waits for one of them that has not begun to leave.
pub(in crate::sched) fn next_unload(state: &mut State, all: bool) -> Option<LoadRequest> {
    let mut next = None;
    for (process, proc) in state.procs.iter() {
        let runs = proc.runs();
        for (queue, rec) in proc.queues.iter() {
            let leaves = all || !rec.wanted(runs) || rec.pending_since.is_some();
            if rec.phase != Phase::Mapped || !leaves {
                continue;
            }
            let turn = (proc.has_record(), rec.pending_since.unwrap_or(0));
            match next {
                Some((first, _, _)) if first <= turn => {}
                _ => next = Some((turn, *process, *queue)),
            }
        }
    }
    let (_, process, queue) = next?;
    let proc = state.procs.get_mut(&process)?;
    let rec = proc.queues.get_mut(&queue)?;
    rec.phase = rec.phase.preempting();
    LoadRequest::new(state, process, queue)
}

/// Takes the next queue that should be on the hardware and is not, which counts as mapped from
/// now on.
///
/// # Errors
///
/// `EINVAL`: a queue in the wrong phase; a driver bug.
pub(in crate::sched) fn next_load(state: &mut State) -> Result<Option<LoadRequest>> {
    let mut coming = None;
    for (process, proc) in state.procs.iter_mut() {
        let runs = proc.runs();
        let mut queues = proc.queues.iter_mut();
        if let Some((queue, rec)) =
            queues.find(|(_, rec)| rec.wanted(runs) && !rec.phase.on_hardware())
        {
            rec.phase = rec.phase.mapped()?;
            coming = Some((*process, *queue));
            break;
        }
    }
    Ok(coming.and_then(|(process, queue)| LoadRequest::new(state, process, queue)))
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
