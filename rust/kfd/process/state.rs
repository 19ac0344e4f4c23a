// SPDX-License-Identifier: GPL-2.0

//! What a process has, under its lock.

use super::Process;
use kernel::prelude::*;

/// State of a process that the process lock protects.
pub(crate) struct State {
    /// By the index of [`Process::devices`].
    pub(crate) devices: KVec<DeviceState>,
    /// RUNTIME_ENABLE is in force.
    pub(crate) runtime_enabled: bool,
    /// Retry faults were asked for.
    pub(crate) xnack: bool,
    /// Handle of the buffer that holds the signal page; 0 for none. It cannot be freed.
    pub(crate) signal_handle: u64,
}

impl State {
    pub(super) fn new(devices: KVec<DeviceState>) -> Self {
        Self {
            devices,
            runtime_enabled: false,
            xnack: false,
            signal_handle: 0,
        }
    }

    /// Destroys every queue.
    pub(super) fn stop_queues(&mut self, _process: &Process) {}

    /// Takes all memory out, to be dropped without the lock.
    pub(super) fn take_memory(&mut self) -> KVec<DeviceState> {
        core::mem::take(&mut self.devices)
    }
}

/// State of a process on one GPU.
pub(crate) struct DeviceState {}

impl DeviceState {
    pub(super) fn new() -> Self {
        Self {}
    }
}
