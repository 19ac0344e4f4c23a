// SPDX-License-Identifier: GPL-2.0

//! ACQUIRE_VM, ALLOC_MEMORY_OF_GPU, FREE_MEMORY_OF_GPU, MAP_MEMORY_TO_GPU, UNMAP_MEMORY_FROM_GPU and
//! AVAILABLE_MEMORY.

use super::{
    call::Call,
    svm::pay_for_accesses, //
};
use crate::{
    kfd::{
        device::ProcessDevice,
        process::{
            Allocation,
            Handle,
            Process, //
        },
        smi::SmiEvent,
        uapi::{
            alloc_flags,
            AcquireVm,
            AllocMemory,
            AvailableMemory,
            FreeMemory,
            MapMemory,
            MMAP_GPU_SHIFT,
            MMAP_TYPE_MMIO, //
        },
    },
    queue::userptr::Watch,
    vm::{
        file::BoHandle,
        BoArgs,
        BoFlags,
        BoKind,
        Interface,
        SharedMemory,
        UserMemory,
        Vm, //
    },
};
use kernel::{
    fs::LocalFile,
    prelude::*,
    sync::Arc,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

/// Entries of the GPU list of MAP and UNMAP. The interface names no limit; memory does.
const MAX_LIST: u32 = 1 << 16;

/// Takes the address space of a render node file for the process. What kind of file it is counts only where the
/// process has none yet.
///
/// # Errors
///
/// - `EINVAL`: no such file, or not one of this GPU's render node, an unknown GPU, or an address space that
///   another process has taken.
/// - `EBUSY`: the process has the address space of another file; or that of this one was changed by calls of the render
///   node's own.
/// - `ENODEV`: the GPU is gone.
/// - `ENOMEM`.
pub(super) fn acquire_vm(call: &Call<'_>, args: &mut AcquireVm) -> Result {
    let file = LocalFile::fget(args.drm_fd).map_err(|_| EINVAL)?;
    let mut state = call.process.state.lock();
    let (index, device) = call.process.device(args.gpu_id)?;
    let own = state.device_mut(index)?;
    if let Some(present) = &own.render {
        return if present.is(&file) {
            Ok(())
        } else {
            Err(EBUSY)
        };
    }
    let file = (call.system.take_file)(file)?;
    device.device().check()?;
    if !Arc::ptr_eq(file.vm().gpu(), device.device().gpu()) {
        return Err(EINVAL);
    }
    let told = call.process.report_moves(index)?;
    file.vm().claim(Interface::Kfd)?;
    let mirrors = match call.process.mirrors(index, file.vm()) {
        // Another process object shows its memory there.
        Err(error) if error == EADDRINUSE => return Err(EINVAL),
        other => other?,
    };
    if let Err(error) = announce(call, index, device, file.vm()) {
        mirrors.close();
        return Err(error);
    }
    device.space().set_vm(Some(file.vm().clone()));
    device.set_mirrors(mirrors.clone(), told);
    own.render = Some(file);
    let start = SmiEvent::ProcessStart(call.process.group());
    device.device().report(&start);
    drop(state);
    // Without the lock, as pages are looked for. What cannot be shown now is as if it had changed.
    let _attributes = call.process.svm.lock_attributes();
    let _ = call.process.svm.apply_all(&mirrors);
    pay_for_accesses(call, index);
    Ok(())
}

/// Has reports about an address space come to the process.
fn announce(call: &Call<'_>, index: usize, device: &ProcessDevice, vm: &Vm) -> Result {
    let tenants = device.device().tenants();
    tenants.set(vm.pasid(), call.process.tenant(index)?)
}

/// What flags ask for. Where several kinds are named, the order is upstream's.
fn kind_of(flags: u32) -> Result<BoKind> {
    const KINDS: [(u32, BoKind); 5] = [
        (alloc_flags::VRAM, BoKind::Vram),
        (alloc_flags::GTT, BoKind::System),
        (alloc_flags::USERPTR, BoKind::Userptr),
        (alloc_flags::DOORBELL, BoKind::Doorbell),
        (alloc_flags::MMIO_REMAP, BoKind::MmioRemap),
    ];
    KINDS
        .iter()
        .find(|(flag, _)| flags & flag != 0)
        .map(|(_, kind)| *kind)
        .ok_or(EINVAL)
}

/// The use that flags ask for.
pub(crate) fn flags_of(flags: u32) -> BoFlags {
    let has = |flag: u32| flags & flag != 0;
    BoFlags {
        writable: has(alloc_flags::WRITABLE),
        executable: has(alloc_flags::EXECUTABLE),
        coherent: has(alloc_flags::COHERENT | alloc_flags::EXT_COHERENT),
        uncached: has(alloc_flags::UNCACHED),
        public: has(alloc_flags::PUBLIC),
        contiguous: has(alloc_flags::CONTIGUOUS),
    }
}

/// What shared memory is, in flags.
pub(super) fn shared_flags(memory: &SharedMemory) -> u32 {
    let kind = match memory.kind {
        BoKind::Vram => alloc_flags::VRAM,
        _ => alloc_flags::GTT,
    };
    if memory.flags.public {
        kind | alloc_flags::PUBLIC
    } else {
        kind
    }
}

/// Makes a buffer; it is not mapped on any GPU yet.
///
/// # Errors
///
/// - `EINVAL`: size 0, an unknown GPU, no kind, a wrong size of doorbell or register buffers, a user
///   pointer 0, host-visible VRAM where the CPU does not reach it, or doubled mappings, which only older
///   hardware has.
/// - `ENODEV`: no address space yet, or the GPU is gone.
/// - `ENOMEM`: no memory, no register page.
/// - `EUSERS`: no doorbells, because too many processes use this GPU.
/// - `EFAULT`: no memory at the user pointer.
/// - `EPERM`: writable for the GPU, but not for the process.
/// - `EINTR`: the caller is being killed.
/// - `EADDRINUSE`: the addresses, or those of the memory of the process, have attributes of SVM.
pub(super) fn alloc_memory(call: &Call<'_>, args: &mut AllocMemory) -> Result {
    if args.size == 0 {
        return Err(EINVAL);
    }
    let is_shared = |start: u64| {
        let range = start..start.saturating_add(args.size);
        call.process.svm.meets(&range)
    };
    let has_address = args.va != 0 || args.flags & alloc_flags::VRAM == 0;
    let is_user = args.flags & alloc_flags::USERPTR != 0;
    if (has_address && is_shared(args.va)) || (is_user && is_shared(args.mmap_offset)) {
        return Err(EADDRINUSE);
    }
    let (index, device) = call.process.device(args.gpu_id)?;
    let wants_public = alloc_flags::PUBLIC | alloc_flags::VRAM;
    if args.flags & wants_public == wants_public && !device.device().facts().large_bar {
        return Err(EINVAL);
    }
    let mut state = call.process.state.lock();
    let render = state.device_mut(index)?.shared_render()?;
    device.device().check()?;
    if args.flags & alloc_flags::AQL_QUEUE_MEM != 0 {
        return Err(EINVAL);
    }
    let kind = kind_of(args.flags)?;
    let doorbells = match kind {
        BoKind::Doorbell if args.size != u64::from(crate::gpu::DoorbellSlice::SIZE) => {
            return Err(EINVAL)
        }
        BoKind::Doorbell => Some(device.doorbells()?),
        _ => None,
    };
    drop(state);
    // Without the lock: pages of the process may be found by a thread that wants it, and much VRAM takes
    // its time. The file stays the process' one.
    let bo_args = BoArgs {
        kind,
        size: args.size,
        flags: flags_of(args.flags),
        user: match kind {
            BoKind::Userptr => Some(UserMemory {
                address: args.mmap_offset,
                watcher: Watch::over(call.process, call.process.key())?,
                account: call.process.account.clone(),
            }),
            _ => None,
        },
        doorbells,
    };
    let allocation = Allocation::new(BoHandle::new(render, bo_args)?, args.va)?;
    let offset = match kind {
        BoKind::MmioRemap => MMAP_TYPE_MMIO | u64::from(args.gpu_id) << MMAP_GPU_SHIFT,
        _ => allocation.bo.mmap_offset(),
    };
    state = call.process.state.lock();
    let handle = state.device_mut(index)?.insert(args.gpu_id, allocation)?;
    args.handle = handle.encode();
    args.mmap_offset = offset;
    Ok(())
}

/// Frees a buffer that no GPU has mapped.
///
/// # Errors
///
/// - `EPERM`: it holds the signal page.
/// - `EINVAL`: unknown GPU or handle.
/// - `EBUSY`: a GPU has it mapped.
pub(super) fn free_memory(call: &Call<'_>, args: &mut FreeMemory) -> Result {
    let handle = Handle::decode(args.handle);
    let (index, _) = call.process.device(handle.gpu_id)?;
    let allocation = {
        let state = call.process.state.lock();
        state.allocation(index, handle.index).ok_or(EINVAL)?.clone()
    };
    // A thread that maps the buffer holds this.
    let mut freed = allocation.freed.lock();
    if *freed {
        return Err(EINVAL);
    }
    let is_mapped = call.process.is_mapped(&allocation.bo);
    let mut state = call.process.state.lock();
    if state.signal_handle == args.handle {
        return Err(EPERM);
    }
    if is_mapped {
        return Err(EBUSY);
    }
    *freed = true;
    let own = state.device_mut(index)?;
    let handle = own.allocations.remove(handle.index);
    let vm = own.vm().cloned();
    drop(state);
    drop(freed);
    drop(handle);
    drop(allocation);
    // The caller's control group has room now.
    if let Ok(vm) = vm {
        vm.bring_home();
    }
    Ok(())
}

/// Reads the list of GPU ids.
fn read_ids(args: &MapMemory) -> Result<KVVec<u32>> {
    if args.num_devices == 0 || args.num_success > args.num_devices {
        return Err(EINVAL);
    }
    if args.num_devices > MAX_LIST {
        return Err(ENOMEM);
    }
    let count = usize::try_from(args.num_devices)?;
    let mut ids = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
    let address = usize::try_from(args.device_ids_ptr)?;
    let mut reader = UserSlice::new(UserPtr::from_addr(address), count * 4).reader();
    for _ in 0..count {
        ids.push(reader.read()?, GFP_KERNEL_ACCOUNT)?;
    }
    Ok(ids)
}

/// Runs `step` in the address space of each GPU that is not done yet and counts progress. The caller does not hold
/// the process lock: `step` waits for the hardware.
///
/// # Errors
///
/// - `EINVAL`: an unknown GPU.
/// - `unbound`: one without address space.
/// - Those of `step`.
fn for_each_gpu(
    process: &Process,
    args: &mut MapMemory,
    ids: &[u32],
    unbound: Error,
    step: impl Fn(&Arc<Vm>, &ProcessDevice) -> Result,
) -> Result {
    let done = usize::try_from(args.num_success)?;
    for id in ids.iter().skip(done) {
        let (index, device) = process.device(*id)?;
        let vm = process.state.lock().device(index)?.vm().cloned();
        let vm = vm.map_err(|_| unbound)?;
        step(&vm, device)?;
        args.num_success += 1;
    }
    Ok(())
}

/// Maps a buffer on GPUs, each at the address that it was made for. Where it is mapped already, that is
/// success. `num_success` tells how far it got.
///
/// # Errors
///
/// - `EINVAL`: an empty list, more done than asked for, an unknown GPU, or an address at which the buffer
///   cannot be mapped.
/// - `EFAULT`: the list cannot be read.
/// - `ENODEV`: a GPU without address space, or gone.
/// - `ENOMEM`: unknown handle; no memory.
/// - `EOPNOTSUPP`: the machine gives the GPU copies of system memory (bounce buffers).
pub(super) fn map_memory(call: &Call<'_>, args: &mut MapMemory) -> Result {
    let ids = read_ids(args)?;
    let handle = Handle::decode(args.handle);
    let (owner, _) = call.process.device(handle.gpu_id)?;
    let allocation = {
        let state = call.process.state.lock();
        state.device(owner)?.vm()?;
        state.allocation(owner, handle.index).ok_or(ENOMEM)?.clone()
    };
    // Without a lock: a thread that wants it may serve the faults.
    match allocation.bo.find_pages() {
        // Memory that is not there (any more) is mapped as such: an access faults. Pages that do not stop
        // changing are found as after a change.
        Err(e) if e != EFAULT && e != EPERM && e != ESRCH && e != EAGAIN => return Err(e),
        _ => {}
    }
    let freed = allocation.freed.lock();
    if *freed {
        return Err(ENOMEM);
    }
    for_each_gpu(call.process, args, &ids, ENODEV, |vm, device| {
        device.device().check()?;
        vm.map(&allocation.bo, allocation.va)?;
        vm.bring_home();
        Ok(())
    })
}

/// Takes a buffer off GPUs; when this returns no wave reaches it. `num_success` tells how far it got.
///
/// # Errors
///
/// - `EINVAL`: an empty list, more done than asked for, an unknown GPU, or not mapped there.
/// - `EFAULT`: the list cannot be read.
/// - `ENOMEM`: unknown handle; no memory.
/// - `EBUSY`: a queue uses it.
pub(super) fn unmap_memory(call: &Call<'_>, args: &mut MapMemory) -> Result {
    let ids = read_ids(args)?;
    let handle = Handle::decode(args.handle);
    let (owner, _) = call.process.device(handle.gpu_id)?;
    let allocation = {
        let state = call.process.state.lock();
        state.allocation(owner, handle.index).ok_or(ENOMEM)?.clone()
    };
    let freed = allocation.freed.lock();
    if *freed {
        return Err(ENOMEM);
    }
    // Without an address space nothing is mapped there.
    for_each_gpu(call.process, args, &ids, EINVAL, |vm, _| {
        vm.unmap(&allocation.bo)
    })
}

/// Tells how much VRAM can still be allocated, in units of 2 MiB.
///
/// # Errors
///
/// `EINVAL`: unknown GPU.
pub(super) fn available_memory(call: &Call<'_>, args: &mut AvailableMemory) -> Result {
    let (_, device) = call.process.device(args.gpu_id)?;
    args.available = device.device().gpu().vram_budget().available();
    Ok(())
}
