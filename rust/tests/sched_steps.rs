// SPDX-License-Identifier: GPL-2.0

//! What the suites of the scheduler do to queues where the test is the worker: it decides when the
//! scheduler converges.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    fake::Fake,
    machine::{
        Machine,
        Pending, //
    },
    params::{
        EvictCause,
        QueueUpdate, //
    }, //
};
use crate::kapi::waitqueue::Sleep;

/// Dooms a queue, lets the scheduler converge and collects the record, as `destroy_queue` does
/// with a worker.
pub(super) fn destroy(machine: &Arc<Machine>, proc: u64, queue: u64) -> Result {
    let pending = machine.doom_queue(proc, queue, false);
    machine.converge();
    if let Pending::Change(change) = pending {
        machine.wait(change, Sleep::Uninterruptible)?;
    }
    let node = machine.state.lock().collect_queue(queue);
    match node {
        Some(_) => Ok(()),
        None => {
            pr_err!("a destroyed queue left no record\n");
            Err(ENOENT)
        }
    }
}

/// Evicts and converges.
pub(super) fn evict(machine: &Arc<Machine>, proc: u64, cause: EvictCause) -> Result {
    let _ = machine.begin_evict(proc, cause)?;
    machine.converge();
    Ok(())
}

/// Restores and converges.
pub(super) fn restore(machine: &Arc<Machine>, proc: u64, cause: EvictCause) -> Result {
    machine.restore(proc, cause)?;
    machine.converge();
    Ok(())
}

/// Updates and converges.
pub(super) fn update(machine: &Arc<Machine>, proc: u64, queue: u64, update: QueueUpdate) -> Result {
    let _ = machine.begin_update(proc, queue, update)?;
    machine.converge();
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
pub(super) fn mqd(machine: &Machine, proc: u64, queue: u64) -> Result<u64> {
    Ok(machine.state.lock().queue_mut(proc, queue)?.mqd.gpu_addr())
}

/// Dword of the descriptor at `mqd` as the device sees it.
pub(super) fn mqd_word(fake: &Fake, mqd: u64, dw: usize) -> Option<u32> {
    fake.load(mqd + dw as u64 * 4) // CAST: A small index.
}
