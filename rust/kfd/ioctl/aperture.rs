// SPDX-License-Identifier: GPL-2.0

//! GET_PROCESS_APERTURES and GET_PROCESS_APERTURES_NEW.

use super::call::Call;
use crate::kfd::{
    device::apertures,
    uapi::{
        GetProcessApertures,
        GetProcessAperturesNew, //
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

/// The apertures of the first GPUs, as many as fit. Never fails.
pub(super) fn get_process_apertures(call: &Call<'_>, args: &mut GetProcessApertures) -> Result {
    args.num_nodes = 0;
    for (place, device) in args.apertures.iter_mut().zip(&call.process.devices) {
        *place = apertures(device.gpu_id());
        args.num_nodes += 1;
    }
    Ok(())
}

/// The apertures of the GPUs, or their number if the caller has no room.
///
/// # Errors
///
/// - `EINVAL`: room for more nodes than the topology has.
/// - `EFAULT`: the room is not there.
pub(super) fn get_process_apertures_new(
    call: &Call<'_>,
    args: &mut GetProcessAperturesNew,
) -> Result {
    let devices = &call.process.devices;
    let room = usize::try_from(args.num_nodes)?;
    if room == 0 {
        args.num_nodes = u32::try_from(devices.len())?;
        return Ok(());
    }
    if room > call.system.node_count() {
        return Err(EINVAL);
    }
    let count = room.min(devices.len());
    args.num_nodes = u32::try_from(count)?;

    let mut bytes = KVVec::new();
    for device in devices.iter().take(count) {
        bytes.extend_from_slice(apertures(device.gpu_id()).as_bytes(), GFP_KERNEL_ACCOUNT)?;
    }
    let address = usize::try_from(args.apertures_ptr)?;
    UserSlice::new(UserPtr::from_addr(address), bytes.len())
        .writer()
        .write_slice(&bytes)
}
