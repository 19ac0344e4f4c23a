// SPDX-License-Identifier: GPL-2.0

//! Tracepoints of the scheduler: one call per place, and no work while none is enabled.

use kernel::prelude::*;

use crate::{
    hw::doorbell::DoorbellOffset,
    kapi::trace::errno,
    sched::{
        backend::load::LoadRequest,
        core::SchedCore,
        desired::{
            plan::{
                ActiveList,
                Scope, //
            },
            queue::{
                Phase,
                QueueRec, //
            },
            state::State, //
        },
        params::{
            EvictCause,
            QueueKind, //
        }, //
    },
    trace::{
        self,
        ResetKind, //
    }, //
};

impl QueueKind {
    /// Number in the records.
    const fn code(self) -> u32 {
        match self {
            Self::Pm4 => 0,
            Self::Aql => 1,
            Self::Sdma(_) => 2,
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

/// Microseconds on the device's clock since `start`.
fn since(core: &SchedCore, start: u64) -> u64 {
    core.platform.now().saturating_sub(start)
}

/// What identifies a queue in records after it is gone.
pub(in crate::sched) struct Identity {
    pid: i32,
    pasid: u16,
    queue: u64,
    doorbell: u32,
    start: u64,
}

/// Looks up process `proc` and its queue `queue` (0: none) before something happens to them. `None`
/// if they do not exist.
pub(in crate::sched) fn identity(core: &SchedCore, proc: u64, queue: u64) -> Option<Identity> {
    let start = core.platform.now();
    let state = core.state.lock();
    let rec = state.procs.get(&proc)?;
    let doorbell = match queue {
        0 => 0,
        _ => offset(rec.queues.get(&queue)?.spec.doorbell),
    };
    Some(Identity {
        pid: rec.pid,
        pasid: rec.params.pasid,
        queue,
        doorbell,
        start,
    })
}

/// A queue was made, as `state` has it. Called before anything may map it, so that no record of the queue precedes this
/// one.
pub(in crate::sched) fn created(core: &SchedCore, state: &State, proc: u64, queue: u64) {
    if !trace::queue_create_enabled() {
        return;
    }
    let Some((rec, found)) = state
        .procs
        .get(&proc)
        .and_then(|rec| Some((rec, rec.queues.get(&queue)?)))
    else {
        return;
    };
    trace::queue_create(
        core.platform.gpu_id(),
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
fn gone(core: &SchedCore, identity: &Identity, result: &Result) {
    trace::queue_destroy(
        core.platform.gpu_id(),
        identity.pid,
        identity.pasid,
        identity.queue,
        identity.doorbell,
        since(core, identity.start),
        errno(result),
    );
}

/// Runs `destroy`, which destroys a queue, and records it.
pub(in crate::sched) fn destroyed(
    core: &SchedCore,
    proc: u64,
    queue: u64,
    destroy: impl FnOnce() -> Result,
) -> Result {
    if !trace::queue_destroy_enabled() {
        return destroy();
    }
    let identity = identity(core, proc, queue);
    let result = destroy();
    if let Some(identity) = identity {
        gone(core, &identity, &result);
    }
    result
}

/// Runs `detach`, which ends a process with all its queues, and records each of them.
pub(in crate::sched) fn detached(
    core: &SchedCore,
    proc: u64,
    detach: impl FnOnce() -> Result,
) -> Result {
    if !trace::queue_destroy_enabled() {
        return detach();
    }
    let start = core.platform.now();
    let count = {
        let state = core.state.lock();
        let rec = state.procs.get(&proc);
        rec.map_or(0, |rec| rec.queues.values().count())
    };
    // Where memory is short, so are the records.
    let mut queues_gone = KVec::with_capacity(count, GFP_KERNEL).unwrap_or_default();
    {
        let state = core.state.lock();
        let found = state.procs.get(&proc);
        let queues = found.iter().flat_map(|rec| {
            let queues = rec.queues.iter().filter(|(_, queue)| !queue.destroyed);
            queues.map(move |(id, queue)| Identity {
                pid: rec.pid,
                pasid: rec.params.pasid,
                queue: *id,
                doorbell: offset(queue.spec.doorbell),
                start,
            })
        });
        for identity in queues {
            // No queue is created for a process that ends.
            let _ = queues_gone.push_within_capacity(identity);
        }
    }
    let result = detach();
    for identity in queues_gone {
        gone(core, &identity, &result);
    }
    result
}

/// Runs `evict`, which evicts a process, and records it.
pub(in crate::sched) fn evicted(
    core: &SchedCore,
    proc: u64,
    cause: EvictCause,
    evict: impl FnOnce() -> Result,
) -> Result {
    if !trace::evict_enabled() {
        return evict();
    }
    let identity = identity(core, proc, 0);
    let result = evict();
    if let Some(identity) = identity {
        // CAST: One of a handful.
        let cause = cause.index() as u32;
        trace::evict(
            core.platform.gpu_id(),
            identity.pid,
            identity.pasid,
            cause,
            since(core, identity.start),
            errno(&result),
        );
    }
    result
}

/// A cause not to run is over.
pub(in crate::sched) fn restored(core: &SchedCore, proc: u64, cause: EvictCause, result: &Result) {
    if !trace::restore_enabled() {
        return;
    }
    if let Some(identity) = identity(core, proc, 0) {
        // CAST: One of a handful.
        let cause = cause.index() as u32;
        trace::restore(
            core.platform.gpu_id(),
            identity.pid,
            identity.pasid,
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

fn moved(core: &SchedCore, which: impl Fn(&QueueRec) -> bool, how: Move) {
    let state = core.state.lock();
    let gpu_id = core.platform.gpu_id();
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
pub(in crate::sched) fn mapped(core: &SchedCore, list: &ActiveList, result: &Result) {
    if trace::runlist_enabled() {
        // CAST: Counts of things that fit the memory of the device.
        trace::runlist(
            core.platform.gpu_id(),
            list.processes as u32,
            list.queues as u32,
            list.dwords,
            list.chained,
            errno(result),
        );
    }
    if result.is_ok() && trace::queue_map_enabled() {
        moved(core, |queue| queue.phase == Phase::Mapped, Move::On);
    }
}

/// Queues that were being preempted are off, as is about to be noted.
pub(in crate::sched) fn unmapped(core: &SchedCore) {
    if trace::queue_unmap_enabled() {
        moved(core, |queue| queue.phase == Phase::Preempting, Move::Off);
    }
}

/// The queue with a doorbell was reset alone and is off, as is about to be noted.
pub(in crate::sched) fn reset_off(core: &SchedCore, doorbell: u32) {
    if trace::queue_unmap_enabled() {
        let named =
            |queue: &QueueRec| queue.phase.on_hardware() && queue.spec.doorbell.dword() == doorbell;
        moved(core, named, Move::Off);
    }
}

/// All queues are off, because the engines were reset, as is about to be noted.
pub(in crate::sched) fn all_off(core: &SchedCore) {
    if trace::queue_unmap_enabled() {
        moved(core, |queue| queue.phase.on_hardware(), Move::Off);
    }
}

fn moved_alone(core: &SchedCore, request: &LoadRequest, how: Move) {
    let Some(identity) = identity(core, request.process, request.queue) else {
        return;
    };
    let record = match how {
        Move::On => trace::queue_map,
        Move::Off => trace::queue_unmap,
    };
    record(
        core.platform.gpu_id(),
        identity.pid,
        identity.pasid,
        identity.queue,
        request.spec.kind.code(),
        identity.doorbell,
    );
}

/// A queue was loaded by registers.
pub(in crate::sched) fn loaded(core: &SchedCore, request: &LoadRequest) {
    if trace::queue_map_enabled() {
        moved_alone(core, request, Move::On);
    }
}

/// A queue was unloaded by registers, in `us` microseconds.
pub(in crate::sched) fn unloaded(
    core: &SchedCore,
    request: &LoadRequest,
    us: u64,
    result: &Result,
) {
    let doorbell = request.spec.doorbell.dword();
    let refused = if result.is_err() { doorbell } else { 0 };
    let scope = Scope::Doorbells([doorbell, 0, 0, 0], 1);
    preempted(core, &scope, us, refused, result);
    if result.is_ok() && trace::queue_unmap_enabled() {
        moved_alone(core, request, Move::Off);
    }
}

/// The hardware was asked to take queues off.
pub(in crate::sched) fn preempted(
    core: &SchedCore,
    scope: &Scope,
    us: u64,
    refused: u32,
    result: &Result,
) {
    if !trace::preempt_enabled() {
        return;
    }
    let queues = {
        let state = core.state.lock();
        let all = state.procs.values().flat_map(|proc| proc.queues.values());
        all.filter(|queue| queue.phase == Phase::Preempting).count()
    };
    let (code, pasid) = scope.code();
    trace::preempt(
        core.platform.gpu_id(),
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
pub(in crate::sched) fn queue_reset(core: &SchedCore, doorbell: u32, start: u64, result: &Result) {
    trace::reset(
        core.platform.gpu_id(),
        // CAST: The discriminants are small.
        ResetKind::Queue as u32,
        byte(doorbell),
        1,
        since(core, start),
        errno(result),
    );
}
