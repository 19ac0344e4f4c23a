// SPDX-License-Identifier: GPL-2.0

//! What the interrupt thread leaves [noted](crate::sched::notes), and the worker acts on.

use kernel::{
    sync::Arc,
    workqueue::WorkItem, //
};

use crate::sched::{
    desired::state::State,
    diag::trace,
    notes::{
        Halt,
        Notes, //
    },
    params::EvictCause,
    worker::Worker, //
};

impl WorkItem<3> for Worker {
    type Pointer = Arc<Worker>;

    fn run(this: Arc<Worker>) {
        this.act_on_notes();
    }
}

impl Worker {
    /// Notes that a queue stopped at a bad packet. Returns false if there is no room. Does not sleep.
    pub(in crate::sched) fn note_halt(self: &Arc<Self>, halt: Halt) -> bool {
        self.note(|notes| notes.add_halt(halt))
    }

    /// Notes that process `proc` is to be stopped, because an access was refused. Returns false if there is no room.
    /// Does not sleep.
    pub(in crate::sched) fn note_fault(self: &Arc<Self>, proc: u64) -> bool {
        self.note(|notes| notes.add_fault(proc))
    }

    fn note(self: &Arc<Self>, add: impl FnOnce(&mut Notes) -> bool) -> bool {
        let mut notes = self.core.notes.lock();
        let added = add(&mut notes);
        if let Some(queue) = notes.queue() {
            // Already queued is fine: it takes what is there when it runs. The caller has a reference, so that the
            // one that is given back here is not the last.
            let _ = queue.enqueue::<Arc<Self>, 3>(self.clone());
        }
        added
    }

    /// Acts on all notes.
    pub(in crate::sched) fn act_on_notes(self: &Arc<Self>) {
        self.enter_halts(&mut self.core.state.lock());
        self.core.hand_off();
        // Taken apart from the loop's condition, which would hold the lock.
        let next = || self.core.notes.lock().take_fault();
        while let Some(proc) = next() {
            // Where the process is being forgotten, or the GPU is gone, nothing runs; that the hardware does not
            // follow is reported where it is found out.
            let _ = trace::evicted(&self.core, proc, EvictCause::Fault, || {
                self.begin_evict(proc, EvictCause::Fault).map(|_| ())
            });
        }
    }

    /// Enters the halts that were noted: each keeps its queue from running for good.
    pub(in crate::sched) fn enter_halts(self: &Arc<Self>, state: &mut State) {
        let next = || self.core.notes.lock().take_halt();
        while let Some(halt) = next() {
            // Vectors of a queue that is on its way off the hardware may follow.
            if state.halt(&halt) {
                self.core.counters.halts.inc();
                let change = state.newest_change();
                self.kick(state, change, false);
            }
        }
    }
}
