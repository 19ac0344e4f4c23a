// SPDX-License-Identifier: GPL-2.0

//! Changes of queues: create, update, destroy.

use kernel::{
    prelude::*,
    rbtree::{
        RBTreeNode,
        RBTreeNodeReservation, //
    },
    sync::Arc, //
};

use super::pending::Pending;
use crate::{
    hw::num::is_aligned,
    sched::{
        config::Policy,
        desired::{
            admit,
            ib::ListBuffer,
            process::ProcRec,
            progress::Progress,
            queue::{
                HaltState,
                HangState,
                PendingUpdate,
                Phase,
                QueueHold,
                QueueRec, //
            },
            state::State, //
        },
        diag::trace,
        mqd::{
            saved::QueueImage,
            MqdMem, //
        },
        params::{
            QueueSpec,
            QueueUpdate,
            UpdateError,
            MAX_PRIORITY, //
        },
        worker::Worker, //
    }, //
};

impl Worker {
    /// Adds a queue. Never waits for a preemption (unless coalescing is off).
    ///
    /// # Errors
    ///
    /// `EINVAL`: the descriptor cannot be encoded. `ENOSPC`: no slot (see [`admit::admit`]) or no
    /// memory of the device. `EPERM`: what is held against the process, see [`Conduct`]. `ESRCH`, `ENOMEM`, `EIO`,
    /// `ENODEV`.
    ///
    /// [`Conduct`]: crate::gpu::conduct::Conduct
    #[cfg(rkfd_kunit)]
    pub(in crate::sched) fn create_queue(
        self: &Arc<Self>,
        proc: u64,
        spec: QueueSpec,
        hold: QueueHold,
    ) -> Result<u64> {
        self.add_queue(proc, spec, hold, None)
    }

    /// As [`Worker::create_queue`], with the state of a queue that was checkpointed.
    ///
    /// # Errors
    ///
    /// As there; `EINVAL`: the image is not that of such a queue.
    pub(in crate::sched) fn add_queue(
        self: &Arc<Self>,
        proc: u64,
        mut spec: QueueSpec,
        hold: QueueHold,
        image: Option<&QueueImage>,
    ) -> Result<u64> {
        self.core.check()?;
        check_spec(&spec)?;
        spec.trap = self.core.state.lock().proc_mut(proc)?.params.tba != 0;
        let mqd = MqdMem::new(&*self.core.platform, &self.core.sdma_mqds, &spec)?;
        if let Some(image) = image {
            mqd.restore(&spec, image)?;
        }
        let active = spec.is_active();
        let rec = QueueRec {
            spec,
            mqd,
            phase: Phase::Created,
            destroyed: false,
            orphan: false,
            update: None,
            hang: HangState::None,
            halt: HaltState::None,
            pending_since: None,
            listed: false,
            mqd_room: Some(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?),
            progress: Progress::default(),
            hold,
        };
        let id = self.core.new_id();
        let mut node = Some(RBTreeNode::new(id, rec, GFP_KERNEL_ACCOUNT)?);
        // A buffer that the state did not take, or gave back; freed without the lock.
        let mut spare = None;
        let serialized = self.core.begin_serialized()?;
        loop {
            let mut state = self.core.state.lock();
            if self.core.life().is_shut_down() {
                return Err(ENODEV);
            }
            // Of queues that had the doorbell before.
            self.enter_halts(&mut state);
            let standing = &state.proc_mut(proc)?.standing;
            let cost_chip = standing.has_cost_chip() && !spec.kind.is_compute();
            if standing.is_barred() || cost_chip {
                return Err(EPERM);
            }
            state.buffers.swap(&mut spare);
            let dwords = admit::list_dwords(&state, self.core.platform.asic(), 1);
            if self.core.config.policy != Policy::Direct && dwords > state.buffers.capacity() {
                drop(state);
                spare = Some(ListBuffer::new(
                    &*self.core.platform,
                    dwords.saturating_mul(2),
                )?);
                continue;
            }
            admit::admit(
                &state,
                proc,
                active,
                spec.kind.is_compute(),
                self.core.platform.asic(),
                &self.core.config,
            )?;
            let change = state.next_change();
            let evicted = {
                let rec = state.proc_mut(proc)?;
                if let Some(node) = node.take() {
                    rec.queues.insert(node);
                }
                rec.is_evicted()
            };
            self.core.counters.creates.inc();
            trace::created(&self.core, &state, proc, id);
            if active && !evicted {
                self.kick(&state, change, !self.core.config.coalesce);
                drop(state);
                if let Err(error) = self.end_serialized() {
                    // The caller gets no handle, so the queue is destroyed here.
                    drop(serialized);
                    let _ = trace::destroyed(&self.core, proc, id, || {
                        let _ = self.begin_destroy(proc, id, true);
                        Ok(())
                    });
                    return Err(error);
                }
            }
            return Ok(id);
        }
    }

    /// Changes a queue. Returns the change to wait for.
    ///
    /// # Errors
    ///
    /// `EINVAL`: bad values. `EACCES`: the queue hung and was reset, or stopped at a bad packet. `EBUSY`, `ENODEV`: see
    /// [`Worker::may_have_gws`]. `ENOSPC`: the queue would run and finds no room, see
    /// [`admit::admit_active`]. `ENOENT`: no such queue. `ENOMEM`, `EIO`, `ENODEV`.
    pub(in crate::sched) fn begin_update(
        self: &Arc<Self>,
        proc: u64,
        queue: u64,
        update: QueueUpdate,
    ) -> Result<Pending> {
        self.core.check()?;
        let keep = match update.keep {
            Some(keep) => Some((keep, RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?)),
            None => None,
        };
        let mut state = self.core.state.lock();
        self.enter_halts(&mut state);
        let change = state.next_change();
        if !state.queue_mut(proc, queue)?.may_run() {
            // It does not run again, whatever it is given.
            return Err(EACCES);
        }
        if let Some(on) = update.gws {
            self.may_have_gws(&mut state, proc, queue, on)?;
        }
        let rec = state.queue_mut(proc, queue)?;
        // A change that is not in force yet is built upon.
        let mut spec = rec.update.as_ref().map_or(rec.spec, |update| update.spec);
        spec.ring_base = update.ring_base.unwrap_or(spec.ring_base);
        spec.ring_size = update.ring_size.unwrap_or(spec.ring_size);
        spec.percent = update.percent.unwrap_or(spec.percent);
        spec.priority = update.priority.unwrap_or(spec.priority);
        spec.cu_mask = update.cu_mask.or(spec.cu_mask);
        spec.gws = update.gws.unwrap_or(spec.gws);
        let starts = spec.is_active() && !rec.takes_part();
        let compute = spec.kind.is_compute();
        let asic = self.core.platform.asic();
        let mut checked = check_spec(&spec).and_then(|()| MqdMem::check(asic, &spec));
        if checked.is_ok() && starts {
            checked = admit::admit_active(&state, proc, compute, asic, &self.core.config);
        }
        if let Err(error) = checked {
            // What the caller brought is dropped without the lock.
            drop(state);
            return Err(error);
        }
        let rec = state.queue_mut(proc, queue)?;
        let unused = match rec.update.take() {
            Some(old) if keep.is_none() => {
                rec.update = Some(PendingUpdate {
                    spec,
                    keep: old.keep,
                });
                None
            }
            old => {
                rec.update = Some(PendingUpdate { spec, keep });
                old
            }
        };
        let wait = rec.require_off(change);
        self.core.counters.updates.inc();
        let settled = match wait {
            true => Ok(()),
            false => state.settle().map(|_| ()),
        };
        self.kick(&state, change, wait);
        // Before an error is returned, too: foreign code must not run under the lock.
        drop(state);
        // A keep-alive that never came into force.
        drop(unused);
        self.core.hand_off();
        settled?;
        Ok(match wait {
            true => Pending::Change(change),
            false => Pending::Done,
        })
    }

    /// See [`super::Scheduler::num_gws`].
    pub(in crate::sched) fn num_gws(&self) -> u32 {
        match self.core.config.policy {
            Policy::Direct => 0,
            _ => self
                .core
                .platform
                .asic()
                .num_gws(self.core.config.mec_firmware),
        }
    }

    /// Whether global wave sync may go to (or from) a queue: one queue of a process may have it.
    fn may_have_gws(&self, state: &mut State, proc: u64, queue: u64, on: bool) -> Result {
        let compute = state.queue_mut(proc, queue)?.spec.kind.is_compute();
        if self.num_gws() == 0 {
            return Err(ENODEV);
        }
        let has = state.procs.get(&proc).is_some_and(ProcRec::has_gws);
        match (on, has) {
            _ if !compute => Err(EINVAL),
            (true, true) => Err(EBUSY),
            (false, false) => Err(EINVAL),
            _ => Ok(()),
        }
    }

    /// Changes a queue and waits until the change is in force.
    ///
    /// # Errors
    ///
    /// As [`Worker::begin_update`] ([`UpdateError::Refused`]) and [`SchedCore::wait`](crate::sched::core::SchedCore::wait).
    pub(in crate::sched) fn update_queue(
        self: &Arc<Self>,
        proc: u64,
        queue: u64,
        update: QueueUpdate,
    ) -> Result<(), UpdateError> {
        self.core.await_reset().map_err(UpdateError::Refused)?;
        let _serialized = self.core.begin_serialized().map_err(UpdateError::Refused)?;
        let begun = self.begin_update(proc, queue, update);
        match begun.map_err(UpdateError::Refused)? {
            Pending::Done => Ok(()),
            Pending::Change(change) => self.core.wait_through_reset(change),
        }
        .and_then(|()| self.end_serialized())
        .map_err(UpdateError::Unconfirmed)
    }

    /// Begins to destroy a queue.
    pub(in crate::sched) fn begin_destroy(
        self: &Arc<Self>,
        proc: u64,
        queue: u64,
        orphan: bool,
    ) -> Pending {
        let mut state = self.core.state.lock();
        let change = state.next_change();
        let Ok(rec) = state.queue_mut(proc, queue) else {
            return Pending::Done;
        };
        rec.destroyed = true;
        rec.orphan = orphan;
        let wait = rec.require_off(change);
        self.core.counters.destroys.inc();
        self.finish_destroy(state, change, wait)
    }

    /// Takes a queue off the hardware and forgets it. A queue that is not there is no error.
    ///
    /// # Errors
    ///
    /// As [`Worker::detach`].
    pub(in crate::sched) fn destroy_queue(self: &Arc<Self>, proc: u64, queue: u64) -> Result {
        // A caller that is being killed, or finds the hardware dead, does not wait for other changes.
        let serialized = self.core.begin_serialized();
        let result = match self.begin_destroy(proc, queue, false) {
            Pending::Done => Ok(()),
            Pending::Change(change) => self
                .core
                .wait_through_reset(change)
                .and_then(|()| self.end_serialized()),
        };
        drop(serialized);
        let node = {
            let mut state = self.core.state.lock();
            let node = state.collect_queue(queue);
            if node.is_none() {
                state.disown_queue(proc, queue);
            }
            node
        };
        let done = node.is_some();
        // Frees descriptor, doorbell and mappings without any lock of the scheduler.
        drop(node);
        match result {
            Err(_) if done => Ok(()),
            result => result,
        }
    }
}

/// Checks what no descriptor encoder checks.
fn check_spec(spec: &QueueSpec) -> Result {
    // MAP_QUEUES names the write pointer by dwords, but it is one of 64 bits.
    if spec.priority > MAX_PRIORITY || spec.percent > 100 || !is_aligned(spec.wptr, 8) {
        return Err(EINVAL);
    }
    Ok(())
}
