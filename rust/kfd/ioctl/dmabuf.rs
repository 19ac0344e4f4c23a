// SPDX-License-Identifier: GPL-2.0

//! GET_DMABUF_INFO, IMPORT_DMABUF and EXPORT_DMABUF: buffers that processes and drivers share by descriptors.

use super::{
    call::Call,
    memory, //
};
use crate::{
    kapi::dma_buf::DmaBuf,
    kfd::{
        process::{
            Allocation,
            Handle, //
        },
        uapi::{
            ExportDmabuf,
            GetDmabufInfo,
            ImportDmabuf, //
        },
    },
    vm::{
        file::BoHandle,
        SharedMemory, //
    },
};
use kernel::prelude::*;

/// Tells what a shared buffer is, and which GPU it was made on. No buffer has metadata.
///
/// # Errors
///
/// - `EBADF`: no such file.
/// - `EINVAL`: no dma-buf, or none of this driver; without a GPU at once.
pub(super) fn get_dmabuf_info(call: &Call<'_>, args: &mut GetDmabufInfo) -> Result {
    if call.process.devices.is_empty() {
        return Err(EINVAL);
    }
    let memory = SharedMemory::of(&DmaBuf::from_fd(args.dmabuf_fd)?)?;
    args.size = memory.size;
    args.metadata_size = 0;
    args.gpu_id = memory.gpu.id();
    args.flags = memory::shared_flags(&memory);
    Ok(())
}

/// Makes a buffer of shared memory; it is not mapped on any GPU yet.
///
/// # Errors
///
/// - `EINVAL`: unknown GPU; no dma-buf, or VRAM of another GPU.
/// - `ENODEV`: no address space yet, or the GPU is gone.
/// - `EBADF`: no such file.
/// - `ENOMEM`.
/// - Those of [`DmaMapper::import`](crate::kapi::dma_map::DmaMapper::import), for memory of another driver.
pub(super) fn import_dmabuf(call: &Call<'_>, args: &mut ImportDmabuf) -> Result {
    let (index, device) = call.process.device(args.gpu_id)?;
    let render = call
        .process
        .state
        .lock()
        .device_mut(index)?
        .shared_render()?;
    let dma_buf = DmaBuf::from_fd(args.dmabuf_fd)?;
    device.device().check()?;
    let allocation = Allocation::new(BoHandle::import(&*render, dma_buf)?, args.va)?;
    let mut state = call.process.state.lock();
    let handle = state.device_mut(index)?.insert(args.gpu_id, allocation)?;
    args.handle = handle.encode();
    Ok(())
}

/// Shares a buffer by a descriptor of the caller.
///
/// # Errors
///
/// - `EINVAL`: unknown GPU or handle, or user space has closed the buffer's handle in the render node.
/// - `EPERM`: neither VRAM nor system memory that was allocated.
/// - `EMFILE`, `ENFILE`: too many files.
/// - `ENOMEM`.
pub(super) fn export_dmabuf(call: &Call<'_>, args: &mut ExportDmabuf) -> Result {
    let handle = Handle::decode(args.handle);
    let (index, _) = call.process.device(handle.gpu_id)?;
    let allocation = {
        let state = call.process.state.lock();
        state.allocation(index, handle.index).ok_or(EINVAL)?.clone()
    };
    let dma_buf = allocation.handle.export()?;
    args.dmabuf_fd = dma_buf.into_fd(args.flags)?;
    Ok(())
}
