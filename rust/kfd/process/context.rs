// SPDX-License-Identifier: GPL-2.0

//! A context: a process object of one open file alone, beside the one that its address space has (CREATE_PROCESS).

use super::{
    shared::Process,
    work::Runner, //
};
use crate::{
    gpu::registry::registry,
    kapi::task::{
        current_mm,
        MmRelease,
        MmWatch, //
    },
    kfd::device::Device,
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Ends a context with its address space.
struct Release(Arc<Process>);

impl MmRelease for Release {
    fn mm_released(&self) {
        self.0.teardown();
    }
}

/// A process object that ends with the file that has it, or with the address space if that ends first.
pub(crate) struct Context {
    process: Arc<Process>,
    _watch: MmWatch,
}

impl Context {
    /// A context of the caller, who may use `devices` in it.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the caller has no address space.
    /// - `EINTR`: the caller has a signal to take first.
    /// - `ENODEV`: the module is being unloaded.
    /// - `ENOMEM`: no memory.
    pub(crate) fn new(devices: &[Arc<Device>]) -> Result<Self> {
        let (mm, key) = current_mm().ok_or(EINVAL)?;
        let process = Process::new(&mm, key, devices, Runner::Shared(registry()?))?;
        let release = Release(process.clone());
        let watch = MmWatch::new(&mm, Arc::new(release, GFP_KERNEL_ACCOUNT)?)?;
        Ok(Self {
            process,
            _watch: watch,
        })
    }

    /// What calls by the file are about.
    pub(crate) fn process(&self) -> &Arc<Process> {
        &self.process
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // No call is under way, and nothing is mapped, because both hold the file.
        self.process.teardown();
    }
}
