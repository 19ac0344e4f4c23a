// SPDX-License-Identifier: GPL-2.0

//! Sleep of the system.
//!
//! User space is frozen when this is called. The scheduler takes all queues off and parks, then the
//! blocks stop; on the way back the blocks start as after a probe, and the scheduler maps what was
//! running. Descriptors, page tables and buffers stay where they are: system memory survives, and
//! VRAM is looked at. A GPU that lost its VRAM is reset and bound anew, and its processes are told.

use kernel::{
    device::Bound,
    pci,
    prelude::*,
    sync::Arc, //
};

use super::PciDriver;
use crate::{
    gpu::{
        registry,
        Gpu, //
    },
    kapi::pci::{
        reprobe,
        PowerManagement, //
    },
    kfd::facade,
    sched::Scheduler, //
};

/// The GPU at `pdev` and its scheduler.
fn find(pdev: &pci::Device<Bound>) -> Result<(Arc<Gpu>, Arc<Scheduler>)> {
    let gpu = registry()?.find_device(pdev).ok_or(ENODEV)?;
    let sched = facade()?.scheduler(&gpu).ok_or(ENODEV)?;
    Ok((gpu, sched))
}

/// Stops a GPU.
///
/// # Errors
///
/// `EIO` if its scheduler does not let go. What was stopped before goes on then.
pub(crate) fn suspend(gpu: &Gpu, sched: &Scheduler) -> Result {
    sched.suspend()?;
    gpu.suspend().inspect_err(|_| {
        // It is wedged if that fails, and then gets a reset.
        let _ = sched.resume();
    })
}

/// Brings a GPU back.
///
/// # Errors
///
/// As [`Gpu::resume`] and [`Scheduler::resume`].
pub(crate) fn resume(gpu: &Gpu, sched: &Scheduler) -> Result {
    gpu.resume()?;
    sched.resume()
}

impl PowerManagement for PciDriver {
    fn suspend(pdev: &pci::Device<Bound>) -> Result {
        let (gpu, sched) = find(pdev)?;
        suspend(&gpu, &sched)
    }

    fn resume(pdev: &pci::Device<Bound>) -> Result {
        let (gpu, sched) = find(pdev)?;
        resume(&gpu, &sched).inspect_err(|e| {
            dev_err!(
                pdev,
                "no resume: {:?}; its memory and its processes are lost\n",
                e
            );
            // Not from here: the device is locked.
            let lost = gpu.clone();
            let reset = registry().and_then(|registry| {
                registry.reset(&gpu, move || {
                    lost.reset_at_shutdown();
                    if let Err(e) = reprobe(lost.pdev()) {
                        dev_err!(lost.dev(), "the GPU could not be bound again: {:?}\n", e);
                    }
                })
            });
            if let Err(e) = reset {
                dev_err!(pdev, "no reset: {:?}\n", e);
            }
        })
    }
}
