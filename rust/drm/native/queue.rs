// SPDX-License-Identifier: GPL-2.0

//! QUEUE_CREATE, QUEUE_UPDATE and QUEUE_DESTROY.

use kernel::prelude::*;

use super::{
    args::{
        require_zero,
        user_slice, //
        Device,
        File,
    },
    uapi::{
        queue,
        update,
        QueueCreate,
        QueueDestroy,
        QueueUpdate, //
    }, //
};
use crate::{
    hw::num::index,
    kapi::drm_file::DrmDevice,
    queue::{
        manager::{
            Fit,
            QueueMemory, //
        },
        request::{
            check_share,
            Change,
            Kind,
            Properties,
            SdmaEngine,
            MIN_RING, //
        },
    },
    vm::va, //
};

/// Rings and buffers of the CP begin at multiples of this.
const ALIGN: u64 = 256;
/// Bits of a compute unit mask.
const MAX_CU_MASK: u32 = 1024;

/// Checks an address of a queue's memory: inside what can be bound, and a multiple of `align`.
fn check_address(address: u64, align: u64) -> Result {
    if address % align != 0 || !(va::USER_START..va::USER_END).contains(&address) {
        return Err(EINVAL);
    }
    Ok(())
}

fn check_ring(ring: u64, size: u32) -> Result {
    check_address(ring, ALIGN)?;
    if size < MIN_RING || !size.is_power_of_two() {
        return Err(EINVAL);
    }
    Ok(())
}

/// Checks what does not depend on what is bound.
fn properties(dev: &Device, arg: &QueueCreate) -> Result<Properties> {
    require_zero(&[arg.flags, arg.pad, arg.id, arg.doorbell])?;
    if arg.percentage > 100 || arg.doorbell_map != 0 {
        return Err(EINVAL);
    }
    check_share(arg.percentage, arg.priority)?;
    check_ring(arg.ring, arg.ring_size)?;
    check_address(arg.read_pointer, 8)?;
    check_address(arg.write_pointer, 8)?;
    let kind = match arg.queue_type {
        queue::PM4 => Kind::Pm4,
        queue::AQL => Kind::Aql,
        queue::SDMA if arg.engine == queue::ANY_ENGINE => Kind::Sdma(SdmaEngine::General),
        queue::SDMA if arg.engine < dev.gpu().asic().sdma_engines() => {
            Kind::Sdma(SdmaEngine::Number(arg.engine))
        }
        _ => return Err(EINVAL),
    };
    if kind.is_compute() {
        require_zero(&[arg.engine])?;
        check_address(arg.save, ALIGN)?;
        match arg.eop {
            0 => require_zero(&[arg.eop_size])?,
            eop => check_address(eop, ALIGN)?,
        }
    } else {
        require_zero(&[arg.eop_size, arg.save_size, arg.ctl_stack_size])?;
        if arg.eop != 0 || arg.save != 0 {
            return Err(EINVAL);
        }
    }
    Ok(Properties {
        kind,
        ring_base: arg.ring,
        ring_size: arg.ring_size,
        metadata_size: 0,
        wptr: arg.write_pointer,
        rptr: arg.read_pointer,
        eop: arg.eop,
        eop_size: arg.eop_size,
        ctx: arg.save,
        ctx_size: arg.save_size,
        ctl_stack_size: arg.ctl_stack_size,
        percent: arg.percentage,
        priority: arg.priority,
    })
}

/// Makes a queue of this file.
///
/// # Errors
///
/// - `EINVAL`: an unknown type, flag or engine; addresses, sizes, percentage or priority that no queue can have.
/// - `EFAULT`: memory of the queue is not bound, or not in one range.
/// - `EBUSY`: `/dev/kfd` has the address space; no doorbell of the kind is left.
/// - `ENOSPC`: too many queues.
/// - `EUSERS`: other files have all doorbells.
/// - `ENOMEM`: no SDMA queue left; no memory.
/// - `EPERM`: queues of the process refused to leave this GPU twice; or an SDMA queue of it took a reset of the chip, and this
///   is another one.
/// - `EINTR`: the caller was killed while the GPU was being reset.
/// - `EIO`, `ENODEV`: the GPU does not answer or is gone.
pub(super) fn create(dev: &Device, file: &File, arg: &mut QueueCreate) -> Result {
    let properties = properties(dev, arg)?;
    let gpu = dev.gpu();
    drop(gpu.enter()?);
    let context = file.inner().get_ref().context();
    context.claim()?;
    let units = gpu.info().silicon.units;
    // Without the lock: this waits while another thread changes ranges.
    let memory = QueueMemory::hold(
        context.vm(),
        gpu.asic(),
        units,
        &properties,
        Fit::Within,
        |_| false,
    )?;
    let (id, doorbell) = context.create_queue(&DrmDevice::of(dev), file, &properties, memory)?;
    arg.id = id;
    arg.doorbell = doorbell.byte;
    arg.doorbell_map = doorbell.mmap_offset;
    Ok(())
}

/// Changes a queue of this file, in one step, and waits until that is in force.
///
/// # Errors
///
/// - `EINVAL`: nothing to change, an unknown flag, or a value that no queue can have; a mask for an SDMA queue.
/// - `EFAULT`: the mask cannot be read; the ring is not bound, or not in one range.
/// - `ENOENT`: no such queue in this file.
/// - `EACCES`: the queue hung and was reset, or stopped at a bad packet.
/// - `ENOSPC`: the queue would run, and finds no place.
/// - `EINTR`, `ENOMEM`, `EIO`, `ENODEV`.
pub(super) fn update(_dev: &Device, file: &File, arg: &mut QueueUpdate) -> Result {
    if arg.flags == 0 || arg.flags & !update::ALL != 0 {
        return Err(EINVAL);
    }
    let has = |flag: u32| arg.flags & flag != 0;
    if has(update::RING) {
        check_ring(arg.ring, arg.ring_size)?;
    }
    if has(update::PERCENTAGE) && arg.percentage > 100 {
        return Err(EINVAL);
    }
    if has(update::PRIORITY) {
        check_share(0, arg.priority)?;
    }
    let mask = if has(update::CU_MASK) {
        read_mask(arg)?
    } else {
        KVec::new()
    };
    let context = file.inner().get_ref().context();
    let queue = context.queue(arg.id)?;
    if has(update::CU_MASK) && !queue.is_compute() {
        return Err(EINVAL);
    }
    let change = Change {
        ring: has(update::RING).then_some((arg.ring, arg.ring_size)),
        percent: has(update::PERCENTAGE).then_some(arg.percentage),
        priority: has(update::PRIORITY).then_some(arg.priority),
        cu_mask: has(update::CU_MASK).then_some((&mask, arg.cu_count)),
    };
    queue.update(&change, context.vm())
}

fn read_mask(arg: &QueueUpdate) -> Result<KVec<u32>> {
    if arg.cu_count == 0 || arg.cu_count % 32 != 0 || arg.cu_count > MAX_CU_MASK {
        return Err(EINVAL);
    }
    let words = index(arg.cu_count / 32);
    let mut reader = user_slice(arg.cu_mask, 4 * words)?.reader();
    let mut mask = KVec::with_capacity(words, GFP_KERNEL_ACCOUNT)?;
    for _ in 0..words {
        mask.push(reader.read()?, GFP_KERNEL_ACCOUNT)?;
    }
    Ok(mask)
}

/// Destroys a queue of this file. When this returns, the hardware does not use its memory any more.
///
/// # Errors
///
/// - `EINVAL`: padding that is not 0.
/// - `ENOENT`: no such queue in this file.
/// - `EIO`: the queue does not stop.
/// - `EINTR`: the caller is being killed.
pub(super) fn destroy(_dev: &Device, file: &File, arg: &mut QueueDestroy) -> Result {
    require_zero(&[arg.pad])?;
    let context = file.inner().get_ref().context();
    let destroyed = context.take_queue(arg.id)?.destroy();
    context.mirrors().note_queue_end();
    destroyed
}
