// SPDX-License-Identifier: GPL-2.0

//! Tracepoints of the scheduler: one call per place, and no work while nobody listens.

use kernel::prelude::*;

use super::{
    machine::Machine,
    params::EvictCause,
    record::{
        Phase,
        QueueRec,
        SpecKind, //
    },
    state::{
        ActiveList,
        Scope, //
    },
    ticket::Ticket, //
};
use crate::{
    hw::doorbell::DoorbellOffset,
    kapi::{
        task,
        trace::{
            self,
            errno,
            ResetKind, //
        }, //
    },
};

impl SpecKind {
    /// Number in the records.
    const fn code(self) -> u32 {
        match self {
            Self::Pm4 => 0,
            Self::Aql => 1,
            Self::Sdma { .. } => 2,
        }
    }
}

impl Scope {
    /// Number in the records, and the PASID that it names.
    const fn code(&self) -> (u32, u16) {
        match self {
            Self::Dynamic | Self::All => (0, 0),
            Self::Pasid(pasid) => (1, *pasid),
            Self::Doorbells(..) => (2, 0),
        }
    }
}

/// Byte offset of a doorbell that is given in dwords.
const fn byte(dword: u32) -> u32 {
    dword.wrapping_mul(4)
}

fn offset(doorbell: DoorbellOffset) -> u32 {
    byte(doorbell.dword())
}

/// Microseconds on the machine's clock since `start`.
fn since(machine: &Machine, start: u64) -> u64 {
    machine.platform.now().saturating_sub(start)
}

/// What identifies a queue in records after it is gone.
pub(super) struct Who {
    pid: i32,
    pasid: u16,
    queue: u64,
    doorbell: u32,
    start: u64,
}

/// Looks up process `proc` and its queue `queue` (0: none) before something happens to them. `None`
/// if they do not exist.
pub(super) fn who(machine: &Machine, proc: u64, queue: u64) -> Option<Who> {
    let start = machine.platform.now();
    let state = machine.state.lock();
    let rec = state.procs.get(&proc)?;
    let doorbell = match queue {
        0 => 0,
        _ => offset(rec.queues.get(&queue)?.spec.doorbell),
    };
    Some(Who {
        pid: rec.pid,
        pasid: rec.params.pasid,
        queue,
        doorbell,
        start,
    })
}

/// A queue was made.
pub(super) fn created(machine: &Machine, proc: u64, queue: u64) {
    if !trace::queue_create_enabled() {
        return;
    }
    let state = machine.state.lock();
    let Some((rec, found)) = state
        .procs
        .get(&proc)
        .and_then(|rec| Some((rec, rec.queues.get(&queue)?)))
    else {
        return;
    };
    trace::queue_create(
        machine.platform.gpu_id(),
        rec.pid,
        rec.params.pasid,
        queue,
        found.spec.kind.code(),
        offset(found.spec.doorbell),
        found.spec.ring_base,
        found.spec.ring_size,
    );
}

/// A queue came to its end.
fn gone(machine: &Machine, who: &Who, result: &Result) {
    trace::queue_destroy(
        machine.platform.gpu_id(),
        who.pid,
        who.pasid,
        who.queue,
        who.doorbell,
        since(machine, who.start),
        errno(result),
    );
}

/// Runs `destroy`, which destroys a queue, and tells of it.
pub(super) fn destroyed(
    machine: &Machine,
    proc: u64,
    queue: u64,
    destroy: impl FnOnce() -> Result,
) -> Result {
    if !trace::queue_destroy_enabled() {
        return destroy();
    }
    let who = who(machine, proc, queue);
    let result = destroy();
    if let Some(who) = who {
        gone(machine, &who, &result);
    }
    result
}

/// Runs `detach`, which ends a process with all its queues, and tells of each of them.
pub(super) fn detached(machine: &Machine, proc: u64, detach: impl FnOnce() -> Result) -> Result {
    if !trace::queue_destroy_enabled() {
        return detach();
    }
    let start = machine.platform.now();
    let count = {
        let state = machine.state.lock();
        let rec = state.procs.get(&proc);
        rec.map_or(0, |rec| rec.queues.values().count())
    };
    // Where memory is short, so are the records.
    let mut queues_gone = KVec::with_capacity(count, GFP_KERNEL).unwrap_or_default();
    {
        let state = machine.state.lock();
        let found = state.procs.get(&proc);
        let queues = found.iter().flat_map(|rec| {
            let queues = rec.queues.iter().filter(|(_, queue)| !queue.doomed);
            queues.map(move |(id, queue)| Who {
                pid: rec.pid,
                pasid: rec.params.pasid,
                queue: *id,
                doorbell: offset(queue.spec.doorbell),
                start,
            })
        });
        for who in queues {
            // Nobody makes queues for a process that ends.
            let _ = queues_gone.push_within_capacity(who);
        }
    }
    let result = detach();
    for who in queues_gone {
        gone(machine, &who, &result);
    }
    result
}

/// Runs `evict`, which evicts a process, and tells of it.
pub(super) fn evicted(
    machine: &Machine,
    proc: u64,
    cause: EvictCause,
    evict: impl FnOnce() -> Result,
) -> Result {
    if !trace::evict_enabled() {
        return evict();
    }
    let who = who(machine, proc, 0);
    let result = evict();
    if let Some(who) = who {
        // CAST: One of a handful.
        let cause = cause.index() as u32;
        trace::evict(
            machine.platform.gpu_id(),
            who.pid,
            who.pasid,
            cause,
            since(machine, who.start),
            errno(&result),
        );
    }
    result
}

/// A cause not to run is over.
#[cfg_attr(not(rkfd_kunit), allow(dead_code, reason = "seen by tests"))]
pub(super) fn restored(machine: &Machine, proc: u64, cause: EvictCause, result: &Result) {
    if !trace::restore_enabled() {
        return;
    }
    if let Some(who) = who(machine, proc, 0) {
        // CAST: One of a handful.
        let cause = cause.index() as u32;
        trace::restore(
            machine.platform.gpu_id(),
            who.pid,
            who.pasid,
            cause,
            errno(result),
        );
    }
}

/// Which record a change of a queue's place makes.
#[derive(Clone, Copy)]
enum Move {
    On,
    Off,
}

fn moved(machine: &Machine, which: impl Fn(&QueueRec) -> bool, how: Move) {
    let state = machine.state.lock();
    let gpu_id = machine.platform.gpu_id();
    for proc in state.procs.values() {
        for (id, queue) in proc.queues.iter().filter(|(_, queue)| which(queue)) {
            let record = match how {
                Move::On => trace::queue_map,
                Move::Off => trace::queue_unmap,
            };
            record(
                gpu_id,
                proc.pid,
                proc.params.pasid,
                *id,
                queue.spec.kind.code(),
                offset(queue.spec.doorbell),
            );
        }
    }
}

/// A list was submitted, by which all mapped queues came to be so.
pub(super) fn mapped(machine: &Machine, list: &ActiveList, result: &Result) {
    if trace::runlist_enabled() {
        // CAST: Counts of things that fit the memory of the device.
        trace::runlist(
            machine.platform.gpu_id(),
            list.processes as u32,
            list.queues as u32,
            list.dwords,
            list.chained,
            errno(result),
        );
    }
    if result.is_ok() && trace::queue_map_enabled() {
        moved(machine, |queue| queue.phase == Phase::Mapped, Move::On);
    }
}

/// Queues that were being preempted are off, as is about to be noted.
pub(super) fn unmapped(machine: &Machine) {
    if trace::queue_unmap_enabled() {
        moved(machine, |queue| queue.phase == Phase::Preempting, Move::Off);
    }
}

/// The queue with a doorbell was reset alone and is off, as is about to be noted.
pub(super) fn reset_off(machine: &Machine, doorbell: u32) {
    if trace::queue_unmap_enabled() {
        let named =
            |queue: &QueueRec| queue.phase.on_hardware() && queue.spec.doorbell.dword() == doorbell;
        moved(machine, named, Move::Off);
    }
}

/// All queues are off, because the engines were reset, as is about to be noted.
pub(super) fn all_off(machine: &Machine) {
    if trace::queue_unmap_enabled() {
        moved(machine, |queue| queue.phase.on_hardware(), Move::Off);
    }
}

fn moved_alone(machine: &Machine, ticket: &Ticket, how: Move) {
    let Some(who) = who(machine, ticket.process, ticket.queue) else {
        return;
    };
    let record = match how {
        Move::On => trace::queue_map,
        Move::Off => trace::queue_unmap,
    };
    record(
        machine.platform.gpu_id(),
        who.pid,
        who.pasid,
        who.queue,
        ticket.spec.kind.code(),
        who.doorbell,
    );
}

/// A queue was loaded by registers.
pub(super) fn loaded(machine: &Machine, ticket: &Ticket) {
    if trace::queue_map_enabled() {
        moved_alone(machine, ticket, Move::On);
    }
}

/// A queue was unloaded by registers, in `us` microseconds.
pub(super) fn unloaded(machine: &Machine, ticket: &Ticket, us: u64, result: &Result) {
    let doorbell = ticket.spec.doorbell.dword();
    let refused = if result.is_err() { doorbell } else { 0 };
    let scope = Scope::Doorbells([doorbell, 0, 0, 0], 1);
    preempted(machine, &scope, us, refused, result);
    if result.is_ok() && trace::queue_unmap_enabled() {
        moved_alone(machine, ticket, Move::Off);
    }
}

/// The hardware was asked to let go of `queues` queues.
pub(super) fn preempted(machine: &Machine, scope: &Scope, us: u64, refused: u32, result: &Result) {
    if !trace::preempt_enabled() {
        return;
    }
    let queues = {
        let state = machine.state.lock();
        let all = state.procs.values().flat_map(|proc| proc.queues.values());
        all.filter(|queue| queue.phase == Phase::Preempting).count()
    };
    let (code, pasid) = scope.code();
    trace::preempt(
        machine.platform.gpu_id(),
        code,
        pasid,
        // CAST: A count.
        queues as u32,
        us,
        byte(refused),
        errno(result),
    );
}

/// A queue was reset alone.
pub(super) fn queue_reset(machine: &Machine, doorbell: u32, start: u64, result: &Result) {
    trace::reset(
        machine.platform.gpu_id(),
        ResetKind::Queue as u32,
        byte(doorbell),
        1,
        since(machine, start),
        errno(result),
    );
}

/// The calling process, for records of what it asks for.
pub(super) fn caller() -> i32 {
    task::current_tgid()
}
