// SPDX-License-Identifier: GPL-2.0

//! What the suites of the scheduler do to queues where the test is the worker: it decides when the
//! scheduler converges.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    changes::pending::Pending,
    fake::Fake,
    notes::Halt,
    params::{
        EvictCause,
        QueueUpdate, //
    },
    worker::Worker, //
};
use crate::{
    hw::ih::PacketException,
    kapi::waitqueue::Sleep, //
};

/// Dooms a queue, lets the scheduler converge and collects the record, as `destroy_queue` does
/// with a worker.
pub(super) fn destroy(sched: &Arc<Worker>, proc: u64, queue: u64) -> Result {
    let pending = sched.begin_destroy(proc, queue, false);
    sched.converge();
    if let Pending::Change(change) = pending {
        sched.core.wait(change, Sleep::Uninterruptible)?;
    }
    let node = sched.core.state.lock().collect_queue(queue);
    match node {
        Some(_) => Ok(()),
        None => {
            pr_err!("a destroyed queue left no record\n");
            Err(ENOENT)
        }
    }
}

/// Notes what the interrupt thread does when the queue of `pasid` with doorbell `n` stops at a bad packet.
pub(super) fn note_halt(sched: &Arc<Worker>, pasid: u16, n: u32) -> bool {
    sched.note_halt(Halt {
        pasid,
        doorbell: n,
        reason: PacketException::DispatchDimensions,
    })
}

/// The same, and acts on it.
pub(super) fn halt(sched: &Arc<Worker>, pasid: u16, n: u32) {
    assert!(note_halt(sched, pasid, n));
    sched.act_on_notes();
}

/// Frees what nobody needs any more, as the worker does.
pub(super) fn reap(sched: &Worker) {
    let garbage = sched.core.state.lock().take_garbage();
    drop(garbage);
}

/// Evicts and converges.
pub(super) fn evict(sched: &Arc<Worker>, proc: u64, cause: EvictCause) -> Result {
    let _ = sched.begin_evict(proc, cause)?;
    sched.converge();
    Ok(())
}

/// Restores and converges.
pub(super) fn restore(sched: &Arc<Worker>, proc: u64, cause: EvictCause) -> Result {
    sched.restore(proc, cause)?;
    sched.converge();
    Ok(())
}

/// Updates and converges.
pub(super) fn update(sched: &Arc<Worker>, proc: u64, queue: u64, update: QueueUpdate) -> Result {
    let _ = sched.begin_update(proc, queue, update)?;
    sched.converge();
    Ok(())
}

/// A change of the share alone.
pub(super) fn percent(percent: u32) -> QueueUpdate {
    QueueUpdate {
        percent: Some(percent),
        ..QueueUpdate::default()
    }
}

/// GPU address of a queue's descriptor.
pub(super) fn mqd(sched: &Worker, proc: u64, queue: u64) -> Result<u64> {
    Ok(sched
        .core
        .state
        .lock()
        .queue_mut(proc, queue)?
        .mqd
        .gpu_addr())
}

/// Dword of the descriptor at `mqd` as the device sees it.
pub(super) fn mqd_word(fake: &Fake, mqd: u64, dw: usize) -> Option<u32> {
    fake.load(mqd + dw as u64 * 4) // CAST: A small index.
}
