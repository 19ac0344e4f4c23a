// SPDX-License-Identifier: GPL-2.0

//! SMI_EVENTS.

use super::call::Call;
use crate::kfd::uapi::SmiEvents;
use kernel::prelude::*;

/// Opens a file that reports events of a GPU, see [`smi`](crate::kfd::smi). Where the result cannot be copied to the
/// caller (`EFAULT`) the file stays open until the process ends, as with upstream.
///
/// # Errors
///
/// - `EINVAL`: unknown GPU.
/// - Those of [`Smi::open`](crate::kfd::smi::Smi::open).
pub(super) fn smi_events(call: &Call<'_>, args: &mut SmiEvents) -> Result {
    let (_, device) = call.process.device(args.gpu_id)?;
    args.anon_fd = call.system.smi.open(device.gpu_id())?;
    Ok(())
}
