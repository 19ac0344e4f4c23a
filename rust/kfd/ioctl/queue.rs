// SPDX-License-Identifier: GPL-2.0

//! CREATE_QUEUE, UPDATE_QUEUE, DESTROY_QUEUE and what else acts on queues.

use super::call::Call;
use crate::{
    kapi::task::access_ok,
    kfd::uapi::{
        AllocQueueGws,
        CreateQueue,
        DestroyQueue,
        GetQueueWaveState,
        SetCuMask,
        UpdateQueue, //
    },
    queue::{
        manager::{
            Fit,
            Queue,
            QueueMemory,
            Target, //
        },
        request::{
            Change,
            Kind,
            SdmaEngine, //
        },
    },
};
use core::ops::Range;

use kernel::{
    prelude::*,
    sync::Arc,
    transmute::AsBytes,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

/// Bits of a compute unit mask that are looked at.
const MAX_CU_MASK: u32 = 1024;

/// Makes a queue.
///
/// # Errors
///
/// - `EINVAL`: percentage, priority or sizes; an unknown GPU or SDMA engine; memory that is not mapped on
///   the GPU as required.
/// - `EFAULT`: a pointer outside the user's range.
/// - `ENOTSUPP`: unknown type.
/// - `ESRCH`: no address space on this GPU yet.
/// - `EPERM`: queues of the process refused to leave this GPU twice; or an SDMA queue of it took a reset of the chip, and this
///   is another one.
/// - `ENOSPC`: too many queues on this GPU.
/// - `ENOMEM`: too many queues, no SDMA queue, no memory.
/// - `EUSERS`: no doorbells, because too many processes use this GPU.
/// - `EBUSY`: no doorbell.
/// - `EINTR`: the caller was killed while the GPU was being reset.
/// - `EIO`, `ENODEV`: the GPU does not answer or is gone.
pub(super) fn create_queue(call: &Call<'_>, args: &mut CreateQueue) -> Result {
    let properties = args.check(access_ok)?;
    args.ring_size = properties.ring_size;

    let (index, device) = call.process.device(args.gpu_id)?;
    let vm = {
        let state = call.process.state.lock();
        state.device(index)?.vm().map_err(|_| ESRCH)?.clone()
    };
    device.device().check()?;
    // Without the lock, as what follows.
    device.device().sched().await_reset()?;
    let asic = device.device().gpu().asic();
    if let Kind::Sdma(SdmaEngine::Number(number)) = properties.kind {
        if number >= asic.sdma_engines() {
            return Err(EINVAL);
        }
    }
    let units = device.device().gpu().info().silicon.units;
    // Without the lock: this waits while another thread unmaps something.
    let kept = |range: &Range<u64>| call.process.svm.keeps_for(index, range);
    let memory =
        QueueMemory::hold(&vm, asic, units, &properties, Fit::Exact, kept).map_err(|error| {
            if error == EFAULT {
                EINVAL
            } else {
                error
            }
        })?;
    let state = call.process.state.lock();
    let doorbells = device.doorbells()?;
    let process = call.process.attach(&state, index)?;
    let target = Target {
        device: index,
        asic,
        units,
        sched: device.device().sched(),
        process: &process,
        doorbells: &doorbells,
    };
    let prepared = state.queues.prepare(&target, &properties, memory)?;
    drop(state);
    // Without the lock, which other calls need: the interrupt rings may have to be read first.
    call.process.forget_failures(index, prepared.doorbell_id());
    let mut state = call.process.state.lock();
    let created = state.queues.create(&target, &properties, prepared)?;
    args.queue_id = created.id;
    args.doorbell_offset = device.doorbell_offset(created.doorbell);
    Ok(())
}

/// The queue with an id. What is done with it is done without the process lock, which other calls need: it
/// may take as long as the hardware does.
fn find(call: &Call<'_>, id: u32) -> Option<Arc<Queue>> {
    call.process.state.lock().queues.find(id)
}

/// Destroys a queue and waits until the hardware is done with its memory.
///
/// # Errors
///
/// - `EINVAL`: no such queue.
/// - `EIO`: the queue does not stop.
pub(super) fn destroy_queue(call: &Call<'_>, args: &mut DestroyQueue) -> Result {
    let queue = {
        let mut state = call.process.state.lock();
        state.queues.take(args.queue_id).ok_or(EINVAL)?
    };
    let number = queue.device();
    let destroyed = queue.destroy();
    if let Some(mirrors) = call
        .process
        .devices
        .get(number)
        .and_then(|device| device.mirrors())
    {
        // Accesses that were reported up to now may be of its waves.
        mirrors.note_queue_end();
    }
    destroyed
}

/// Changes ring, share and priority. A queue without ring or share stops.
///
/// # Errors
///
/// - `EINVAL`: percentage, priority or ring size.
/// - `EFAULT`: no such queue, or the ring is not mapped as required.
/// - `EACCES`: the queue hung and was reset.
/// - `EIO`, `ENODEV`: the GPU does not answer or is gone.
pub(super) fn update_queue(call: &Call<'_>, args: &mut UpdateQueue) -> Result {
    let change = args.check(access_ok)?;
    let (queue, vm) = {
        let state = call.process.state.lock();
        let queue = state.queues.find(args.queue_id).ok_or(EFAULT)?;
        let vm = state.device(queue.device())?.vm()?.clone();
        (queue, vm)
    };
    queue.update(&change, &vm).map_err(gone)
}

/// What a call on a queue answers that another thread has destroyed: what it would have, had it come later.
fn gone(error: Error) -> Error {
    if error == ENOENT {
        EFAULT
    } else {
        error
    }
}

/// Restricts a queue to some compute units.
///
/// # Errors
///
/// - `EINVAL`: no bits, or a number of bits that is not a multiple of 32.
/// - `EFAULT`: the mask cannot be read; no such queue.
/// - `EACCES`: the queue hung and was reset.
/// - `EIO`, `ENODEV`: the GPU does not answer or is gone.
pub(super) fn set_cu_mask(call: &Call<'_>, args: &mut SetCuMask) -> Result {
    if args.num_cu_mask % 32 != 0 || args.num_cu_mask == 0 {
        return Err(EINVAL);
    }
    let count = args.num_cu_mask.min(MAX_CU_MASK);
    let words = usize::try_from(count / 32)?;
    let address = usize::try_from(args.cu_mask_ptr)?;
    let mut reader = UserSlice::new(UserPtr::from_addr(address), words * 4).reader();
    let mut mask = KVec::with_capacity(words, GFP_KERNEL_ACCOUNT)?;
    for _ in 0..words {
        mask.push(reader.read()?, GFP_KERNEL_ACCOUNT)?;
    }
    let queue = find(call, args.queue_id).ok_or(EFAULT)?;
    if !queue.is_compute() {
        return Ok(());
    }
    let vm = {
        let state = call.process.state.lock();
        state.device(queue.device())?.vm()?.clone()
    };
    let change = Change {
        cu_mask: Some((&mask, count)),
        ..Change::default()
    };
    queue.update(&change, &vm).map_err(gone)
}

/// Tells what waves a stopped compute queue has saved: fills the first four words of the header of the save
/// area, and the used part of the control stack, which the hardware keeps elsewhere.
///
/// # Errors
///
/// - `EFAULT`: no such queue; the area cannot be written.
/// - `EINVAL`: the queue runs, or is no compute queue.
/// - `EIO`, `ENODEV`: the GPU does not answer or is gone.
pub(super) fn get_queue_wave_state(call: &Call<'_>, args: &mut GetQueueWaveState) -> Result {
    let saved = find(call, args.queue_id).ok_or(EFAULT)?.wave_state()?;
    // Without a lock, which a thread that serves faults may want. A process that starts the queue
    // meanwhile gets what it was before.
    args.ctl_stack_used = saved.ctl_stack_used;
    args.save_area_used = saved.save_area_used;
    write_user(args.ctl_stack_address, AsBytes::as_bytes(&saved.header))?;
    let [stack_offset, ..] = saved.header;
    let stack = args
        .ctl_stack_address
        .checked_add(u64::from(stack_offset))
        .ok_or(EFAULT)?;
    write_user(stack, AsBytes::as_bytes(saved.ctl_stack.as_slice()))
}

fn write_user(address: u64, bytes: &[u8]) -> Result {
    let address = usize::try_from(address).map_err(|_| EFAULT)?;
    UserSlice::new(UserPtr::from_addr(address), bytes.len())
        .writer()
        .write_slice(bytes)
}

/// Gives all of the GPU's global wave sync to a queue; with `num_gws` 0 takes it back.
///
/// # Errors
///
/// - `EINVAL`: no such queue, not a compute queue, or no queue of the process has it to give back.
/// - `ENODEV`: the GPU has none, or no firmware schedules it (`num_gws` of the topology is 0).
/// - `EBUSY`: a queue of the process has it.
/// - Those of the scheduler.
pub(super) fn alloc_queue_gws(call: &Call<'_>, args: &mut AllocQueueGws) -> Result {
    find(call, args.queue_id)
        .ok_or(EINVAL)?
        .set_gws(args.num_gws != 0)?;
    args.first_gws = 0;
    Ok(())
}
