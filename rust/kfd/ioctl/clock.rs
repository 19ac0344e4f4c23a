// SPDX-License-Identifier: GPL-2.0

//! GET_CLOCK_COUNTERS.

use super::call::Call;
use crate::kfd::uapi::GetClockCounters;
use kernel::prelude::*;

/// Samples the clocks of GPU, CPU and system, one after the other. Never fails: the counter of an unknown
/// GPU is 0.
pub(super) fn get_clock_counters(call: &Call<'_>, args: &mut GetClockCounters) -> Result {
    args.gpu = call
        .process
        .device(args.gpu_id)
        .map_or(0, |(_, device)| device.device().clock_counter());
    args.cpu = crate::kapi::task::raw_ns();
    args.system = crate::kapi::task::boottime_ns();
    args.system_freq = 1_000_000_000;
    Ok(())
}
