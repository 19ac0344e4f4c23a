// SPDX-License-Identifier: GPL-2.0

//! The desired state, queue by queue: what is to be loaded and unloaded where no runlist does it.

use kernel::prelude::*;

use super::{
    mqd::MqdMem,
    params::ProcessParams,
    record::{
        Phase,
        QueueRec,
        QueueSpec, //
    },
    state::State, //
};
use crate::gpu::vmid::VmidContext;

/// A queue that is to be loaded or unloaded by registers, with all that it takes.
pub(super) struct Ticket {
    /// Its process.
    pub(super) process: u64,
    /// The queue.
    pub(super) queue: u64,
    /// Its values.
    pub(super) spec: QueueSpec,
    /// Its descriptor.
    pub(super) mqd: MqdMem,
    /// Its address space.
    pub(super) context: VmidContext,
    /// Its owner gave it up: nothing has to be saved.
    pub(super) doomed: bool,
    /// The oldest change that needs it off the hardware, 0 for none.
    pub(super) need: u64,
}

impl Ticket {
    fn new(process: u64, proc: &ProcessParams, doomed: bool, queue: u64, rec: &QueueRec) -> Self {
        Self {
            process,
            queue,
            spec: rec.spec,
            mqd: rec.mqd.clone(),
            context: proc.context(),
            doomed: doomed || rec.doomed,
            need: rec.need.unwrap_or(0),
        }
    }
}

impl State {
    /// Takes the next queue that is on the hardware and should not be (or, if `all`, any), which
    /// counts as being preempted from now on.
    ///
    /// The one that was asked for first comes first, so that nobody waits for those who came later.
    pub(super) fn next_leaving(&mut self, all: bool) -> Option<Ticket> {
        let mut next = None;
        for (process, proc) in self.procs.iter() {
            let runs = proc.runs();
            for (queue, rec) in proc.queues.iter() {
                let leaves = all || !rec.wanted(runs) || rec.need.is_some();
                if rec.phase != Phase::Mapped || !leaves {
                    continue;
                }
                let need = rec.need.unwrap_or(0);
                match next {
                    Some((oldest, _, _)) if oldest <= need => {}
                    _ => next = Some((need, *process, *queue)),
                }
            }
        }
        let (_, process, queue) = next?;
        let proc = self.procs.get_mut(&process)?;
        let rec = proc.queues.get_mut(&queue)?;
        rec.phase = rec.phase.preempting();
        Some(Ticket::new(process, &proc.params, proc.doomed, queue, rec))
    }

    /// Takes the next queue that should be on the hardware and is not, which counts as mapped from
    /// now on.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a queue in the wrong phase; a driver bug.
    pub(super) fn next_coming(&mut self) -> Result<Option<Ticket>> {
        for (process, proc) in self.procs.iter_mut() {
            let runs = proc.runs();
            for (queue, rec) in proc.queues.iter_mut() {
                if rec.wanted(runs) && !rec.phase.on_hardware() {
                    rec.phase = rec.phase.mapped()?;
                    let ticket = Ticket::new(*process, &proc.params, false, *queue, rec);
                    return Ok(Some(ticket));
                }
            }
        }
        Ok(None)
    }

    /// Notes that a queue that [`State::next_leaving`] returned is off the hardware.
    pub(super) fn has_left(&mut self, process: u64, queue: u64) {
        if let Some(rec) = self
            .procs
            .get_mut(&process)
            .and_then(|proc| proc.queues.get_mut(&queue))
        {
            rec.phase = rec.phase.preempted();
        }
    }
}
