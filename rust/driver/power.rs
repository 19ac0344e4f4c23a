// SPDX-License-Identifier: GPL-2.0

//! Sleep of the system.
//!
//! User space is frozen when this is called. First all memory of programs that has moved to VRAM comes back: a fault needs no
//! GPU that sleeps then. Where that cannot be, the system stays awake. The scheduler takes all queues off and parks, then the
//! blocks stop; on the way back the blocks start as after a probe, and the scheduler maps what was
//! running. Descriptors, page tables and buffers stay where they are: system memory survives, and
//! the content of VRAM is checked. What mirrors show does not: memory that reclaim takes while the device has no power
//! could not be taken out of page tables in its VRAM. It goes before, and is found again when the GPU is awake. A GPU that
//! lost its VRAM is reset and bound anew, and its processes get an exception.
//!
//! Resets run on a queue that is frozen before devices are suspended, so that none is under way. One
//! that is due, because the scheduler gave up a moment ago, keeps the system awake (`EBUSY`): what
//! the queues were doing can only be saved while the hardware still has it. The work
//! that restores user-pointer buffers, and memory that was evicted, is frozen likewise; besides, no memory moves
//! between VRAM and system memory while the GPU sleeps, see [`evict`]. The watchdog looks at no hardware while the
//! scheduler is parked, and a TLB needs no flush while the GPU stands still.

use kernel::{
    device::Bound,
    pci,
    prelude::*,
    sync::Arc, //
};

use super::{
    recovery,
    PciDriver, //
};
use crate::{
    gpu::{
        registry,
        Gpu, //
    },
    kapi::pci::PowerManagement,
    kfd::facade,
    sched::Scheduler,
    vm::evict, //
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
/// `EIO` if its queues do not stop, `EBUSY` if a reset is due or under way, `ENOMEM`: the system does
/// not sleep then, and may try again. What was stopped before goes on.
pub(crate) fn suspend(gpu: &Gpu, sched: &Scheduler) -> Result {
    // Nobody makes any more: user space is frozen.
    let mirrors = gpu.mirrors().lists()?;
    evict::while_nothing_moves(gpu, || {
        sched.suspend()?;
        gpu.suspend().inspect_err(|_| {
            // It is wedged if that fails, and then gets a reset.
            let _ = sched.resume();
        })
    })?;
    // Nothing is shown from here on. The device has power until this returns.
    for list in &mirrors {
        list.hide();
    }
    Ok(())
}

/// Brings a GPU back.
///
/// # Errors
///
/// As [`Gpu::resume`] and [`Scheduler::resume`].
#[cfg(rkfd_kunit)]
pub(crate) fn resume(gpu: &Gpu, sched: &Scheduler) -> Result {
    evict::while_nothing_moves(gpu, || gpu.resume())?;
    sched.resume()?;
    evict::wake(gpu);
    Ok(())
}

/// Has memory of programs come back from VRAM, where none moves to from then on.
///
/// # Errors
///
/// `EBUSY`: it does not, and all is as before.
pub(crate) fn prepare(gpu: &Gpu) -> Result {
    gpu.bring_pages_back_for_sleep()
}

/// Ends what [`prepare`] has begun.
pub(crate) fn complete(gpu: &Gpu) {
    gpu.device_pages().wake();
}

impl PowerManagement for PciDriver {
    fn prepare(pdev: &pci::Device<Bound>) -> Result {
        let (gpu, _) = find(pdev)?;
        prepare(&gpu)
    }

    fn complete(pdev: &pci::Device<Bound>) {
        // It may have been unbound meanwhile.
        if let Ok((gpu, _)) = find(pdev) {
            complete(&gpu);
        }
    }

    fn suspend(pdev: &pci::Device<Bound>) -> Result {
        let (gpu, sched) = find(pdev)?;
        suspend(&gpu, &sched)?;
        facade()?.queues_suspended(&gpu);
        Ok(())
    }

    fn resume(pdev: &pci::Device<Bound>) -> Result {
        let (gpu, sched) = find(pdev)?;
        if let Err(e) = evict::while_nothing_moves(&gpu, || gpu.resume()) {
            dev_err!(
                pdev,
                "no resume: {:?}; its memory and its processes are lost\n",
                e
            );
            recovery::reset_chip(&gpu, &sched);
            return Err(e);
        }
        // A scheduler that fails is wedged; its reset hook resets the engines.
        sched
            .resume()
            .inspect_err(|e| dev_err!(pdev, "the scheduler does not resume: {:?}\n", e))?;
        evict::wake(&gpu);
        facade()?.queues_resumed(&gpu);
        Ok(())
    }
}
