// SPDX-License-Identifier: GPL-2.0

//! How waves of a process run: SET_MEMORY_POLICY, SET_SCRATCH_BACKING_VA, SET_TRAP_HANDLER,
//! SET_XNACK_MODE, RUNTIME_ENABLE and GET_TILE_CONFIG.

use super::{
    call::Call,
    svm::pay_for_accesses, //
};
use crate::kfd::{
    svm,
    uapi::{
        GetTileConfig,
        RuntimeEnable,
        SetMemoryPolicy,
        SetScratchBackingVa,
        SetTrapHandler,
        SetXnackMode, //
    },
};
use kernel::{
    prelude::*,
    transmute::AsBytes,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

/// Largest number of a cache policy: 0 coherent, 1 not.
const MAX_POLICY: u32 = 1;
/// Trap handlers begin at multiples of this; hardware has no lower bits.
const TRAP_ALIGN: u64 = 256;
/// Bit of RUNTIME_ENABLE: enable, else disable.
const MODE_ENABLE: u32 = 1;
/// Words of the tile mode tables. gfx9 has the tables without content: addressing is in GB_ADDR_CONFIG.
const TILE_MODES: u32 = 32;
/// As above, for macro tiles.
const MACRO_TILE_MODES: u32 = 16;

/// Sets cache policies. On gfx9 caching follows the page tables, so valid policies change nothing.
///
/// # Errors
///
/// - `EINVAL`: a policy that does not exist; an unknown GPU.
/// - `ESRCH`: no address space yet.
pub(super) fn set_memory_policy(call: &Call<'_>, args: &mut SetMemoryPolicy) -> Result {
    if args.default_policy > MAX_POLICY || args.alternate_policy > MAX_POLICY {
        return Err(EINVAL);
    }
    let state = call.process.state.lock();
    let (index, _) = call.process.device(args.gpu_id)?;
    state.device(index)?.vm().map_err(|_| ESRCH)?;
    call.process.reinstall(&state, index)
}

/// Tells where scratch memory lies. Only a scheduler without firmware would install it; with firmware the
/// queue's own descriptor counts.
///
/// # Errors
///
/// - `EINVAL`: unknown GPU.
/// - `ENODEV`: no address space yet.
pub(super) fn set_scratch_backing_va(call: &Call<'_>, args: &mut SetScratchBackingVa) -> Result {
    let mut state = call.process.state.lock();
    let (index, _) = call.process.device(args.gpu_id)?;
    let device = state.device_mut(index)?;
    device.vm()?;
    device.scratch_base = args.va;
    Ok(())
}

/// Sets the trap handler of a process on a GPU; 0 is none.
///
/// # Errors
///
/// - `EINVAL`: unknown GPU.
/// - `ESRCH`: no address space yet.
/// - `EIO`, `ENODEV`: the GPU does not answer or is gone.
pub(super) fn set_trap_handler(call: &Call<'_>, args: &mut SetTrapHandler) -> Result {
    let mut state = call.process.state.lock();
    let (index, _) = call.process.device(args.gpu_id)?;
    let device = state.device_mut(index)?;
    device.vm().map_err(|_| ESRCH)?;
    device.tba = args.tba & !(TRAP_ALIGN - 1);
    device.tma = args.tma & !(TRAP_ALIGN - 1);
    call.process.reinstall(&state, index)
}

/// Asks for (negative) or sets the mode in which page faults of waves are retried.
///
/// # Errors
///
/// - `EBUSY`: the process has queues.
/// - `EPERM`: a GPU of the process cannot retry per process.
/// - `ENOMEM`.
pub(super) fn set_xnack_mode(call: &Call<'_>, args: &mut SetXnackMode) -> Result {
    if args.xnack_enabled < 0 {
        args.xnack_enabled = i32::from(call.process.state.lock().xnack);
        return Ok(());
    }
    // Before attributes change again, all of them hold in the new mode.
    let _attributes = call.process.svm.lock_attributes();
    let mut state = call.process.state.lock();
    if !state.queues.is_empty() {
        return Err(EBUSY);
    }
    let enable = args.xnack_enabled != 0;
    if state.xnack == enable {
        return Ok(());
    }
    let per_process =
        |device: &crate::kfd::device::ProcessDevice| device.device().gpu().asic().xnack_per_process;
    if enable
        && !call
            .process
            .devices
            .iter()
            .all(|device| per_process(device))
    {
        return Err(EPERM);
    }
    state.xnack = enable;
    call.process.svm.set_xnack(enable);
    for index in 0..call.process.devices.len() {
        call.process.reinstall(&state, index)?;
    }
    drop(state);
    // Without the lock: what is shown goes, and pages are looked for. What cannot be shown now is as if it had changed.
    for (index, device) in call.process.devices.iter().enumerate() {
        let Some(mirrors) = device.mirrors() else {
            continue;
        };
        svm::make_mirror(&mirrors, enable)?;
        let _ = call.process.svm.apply_all(&mirrors);
        pay_for_accesses(call, index);
    }
    Ok(())
}

/// Says that a runtime handles exceptions of this process, or no longer does.
///
/// # Errors
///
/// - `EBUSY`: enabled already.
/// - `EEXIST`: the process has queues.
pub(super) fn runtime_enable(call: &Call<'_>, args: &mut RuntimeEnable) -> Result {
    let mut state = call.process.state.lock();
    if args.mode_mask & MODE_ENABLE == 0 {
        call.process.set_runtime_enabled(&mut state, false);
        return Ok(());
    }
    if call.process.is_runtime_enabled() {
        return Err(EBUSY);
    }
    if !state.queues.is_empty() {
        return Err(EEXIST);
    }
    call.process.set_runtime_enabled(&mut state, true);
    Ok(())
}

/// Tells how surfaces are tiled.
///
/// # Errors
///
/// - `EINVAL`: unknown GPU.
/// - `EFAULT`: a table cannot be written; its count is then 0.
/// - `EIO`, `ENODEV`: the GPU does not answer or is gone.
pub(super) fn get_tile_config(call: &Call<'_>, args: &mut GetTileConfig) -> Result {
    let (_, device) = call.process.device(args.gpu_id)?;
    args.gb_addr_config = device.device().gpu().gb_addr_config()?;
    args.num_banks = 0;
    args.num_ranks = 0;
    write_zeroes(args.tile_ptr, &mut args.num_tile, TILE_MODES)?;
    write_zeroes(
        args.macro_tile_ptr,
        &mut args.num_macro_tile,
        MACRO_TILE_MODES,
    )
}

/// Writes as many zero words as there is room and content.
fn write_zeroes(address: u64, room: &mut u32, content: u32) -> Result {
    *room = (*room).min(content);
    let zeroes = [0u32; TILE_MODES as usize];
    let words = zeroes
        .get(..crate::hw::num::index(*room))
        .unwrap_or_default();
    let len = core::mem::size_of_val(words);
    let written = usize::try_from(address)
        .map_err(|_| EFAULT)
        .and_then(|address| {
            UserSlice::new(UserPtr::from_addr(address), len)
                .writer()
                .write_slice(AsBytes::as_bytes(words))
        });
    if written.is_err() {
        *room = 0;
    }
    written
}
