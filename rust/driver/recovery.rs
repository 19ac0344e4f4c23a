// SPDX-License-Identifier: GPL-2.0

//! What happens when the scheduler of a GPU gives up.
//!
//! 1. A queue that refuses preemption was reset alone before it comes to this.
//! 2. The engines are reset in place. Memory survives, and so do the queues of all processes but
//!    those at fault; their work goes on.
//! 3. If that does not help, the whole chip is reset. All memory of the device is lost and cannot
//!    be given back to its owners, so the driver is bound anew: old handles answer `ENODEV`, and the
//!    processes get an exception that reports lost memory.
//!
//! Resets of the engines that come too often are not repeated: the chip is reset. A chip that was reset
//! too often, a device that does not answer at all (there is nothing to reset it by), and any device
//! where `gpu_recovery` is off, is left alone: its processes get an exception, and `EIO` until
//! it is bound anew.
//!
//! All of this runs on a queue of its own: the scheduler's worker has reported and gone.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    drm::Windows,
    gpu::{
        registry::{
            registry,
            Kind, //
        },
        salvage::SavedQueue,
        Gpu, //
    },
    kapi::{
        log::{
            dev_limited,
            monotonic_ns, //
        },
        pci,
        trace::errno, //
    },
    kfd::facade,
    module_parameters,
    sched::{
        Failure,
        Halt,
        ResetHook,
        Scheduler, //
    },
    trace::{
        self,
        ResetKind, //
    }, //
};

/// Brings a GPU back after its scheduler has given up.
///
/// The scheduler owns it, and gives it back at shutdown, which ends the cycle.
pub(super) struct Recovery {
    gpu: Arc<Gpu>,
    sched: Arc<Scheduler>,
    /// Where programs map doorbells through the render node.
    windows: Arc<Windows>,
}

impl Recovery {
    /// Of `gpu`, its scheduler, and the mappings of its render node.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(
        gpu: &Arc<Gpu>,
        sched: &Arc<Scheduler>,
        windows: &Arc<Windows>,
    ) -> Result<Arc<Self>> {
        let recovery = Self {
            gpu: gpu.clone(),
            sched: sched.clone(),
            windows: windows.clone(),
        };
        Ok(Arc::new(recovery, GFP_KERNEL)?)
    }
}

impl ResetHook for Recovery {
    fn wedged(&self, failure: &Failure) {
        let (gpu, sched) = (&self.gpu, &self.sched);
        if gpu.is_lost() {
            out_of_service(gpu, sched, "a lost GPU is not reset", None);
            return;
        }
        if !*module_parameters::gpu_recovery.value_ref() {
            out_of_service(gpu, sched, "gpu_recovery is off", None);
            return;
        }
        let (job_gpu, job_sched, failure) = (gpu.clone(), sched.clone(), *failure);
        let windows = self.windows.clone();
        let reset = registry().and_then(|registry| {
            registry.reset(gpu, Kind::Engines, move || {
                run(&job_gpu, &job_sched, &windows, &failure)
            })
        });
        match reset {
            Ok(()) => {}
            Err(e) if e == EBUSY => {
                // What hangs again and again may be in a state that this reset does not reach.
                dev_err!(gpu.dev(), "the engines were reset too often\n");
                sched.note_chip_reset(&[], &failure);
                reset_chip(gpu, sched);
            }
            Err(e) => out_of_service(gpu, sched, "no reset", Some(e)),
        }
    }

    fn queue_hung(&self, pasid: u16, _doorbell: u32) {
        if let Ok(facade) = facade() {
            facade.queue_hung(&self.gpu, pasid);
        }
    }

    fn queue_halted(&self, halt: &Halt) {
        dev_limited!(
            dev_info,
            self.gpu.dev(),
            "PASID {}: the queue with doorbell id {:#x} stopped at a bad packet ({:?}) and does not run again\n",
            halt.pasid,
            halt.doorbell,
            halt.reason
        );
    }
}

/// Leaves a GPU as it is until it is bound anew: its processes get an exception, and later calls fail
/// with `EIO`.
fn out_of_service(gpu: &Arc<Gpu>, sched: &Scheduler, why: &str, error: Option<Error>) {
    sched.abandon();
    // Without the facade there are no processes.
    if let Ok(facade) = facade() {
        facade.gpu_lost(gpu);
    }
    match error {
        None => dev_err!(gpu.dev(), "{}: compute stays out of service\n", why),
        Some(e) => dev_err!(
            gpu.dev(),
            "{}: {:?}; compute stays out of service\n",
            why,
            e
        ),
    }
}

/// Resets the chip of a GPU in the background and binds it anew. All its memory is lost.
///
/// Not in the caller's thread, which may hold the device's lock.
pub(super) fn reset_chip(gpu: &Arc<Gpu>, sched: &Arc<Scheduler>) {
    let job = gpu.clone();
    let reset =
        registry().and_then(|registry| registry.reset(gpu, Kind::Chip, move || rebind(&job)));
    match reset {
        Ok(()) => {}
        Err(e) if e == EBUSY => out_of_service(gpu, sched, "the chip was reset too often", None),
        Err(e) => out_of_service(gpu, sched, "no reset", Some(e)),
    }
}

fn run(gpu: &Arc<Gpu>, sched: &Arc<Scheduler>, windows: &Windows, failure: &Failure) {
    // It may have been unbound meanwhile, which is not undone; or another reset helped.
    if gpu.is_gone() || !sched.is_wedged() {
        return;
    }
    dev_warn!(gpu.dev(), "resetting the engines\n");
    let mut saved = KVec::new();
    match in_place(gpu, sched, windows, failure, &mut saved) {
        Ok(()) => return,
        // It is being unbound, which is not undone.
        Err(_) if sched.is_shut_down() || gpu.is_gone() => return,
        Err(e) => dev_err!(
            gpu.dev(),
            "the reset of the engines did not help: {:?}; resetting the chip, its memory and its processes are lost\n",
            e
        ),
    }
    sched.note_chip_reset(&saved, failure);
    rebind(gpu);
}

/// Unbinds the driver, resets the chip and binds it again.
fn rebind(gpu: &Arc<Gpu>) {
    if gpu.is_gone() {
        return;
    }
    gpu.reset_at_shutdown();
    let start = monotonic_ns();
    let report = facade().map(|facade| facade.reset_begins(gpu, "chip"));
    let bound = pci::reprobe(gpu.pdev());
    record(gpu, ResetKind::Chip, 0, start, &bound);
    match (bound, report) {
        (Ok(()), Ok(report)) => report.over(),
        (Ok(()), Err(_)) => {}
        (Err(e), _) => dev_err!(gpu.dev(), "the GPU could not be bound again: {:?}\n", e),
    }
}

/// Resets the engines under all that use them. `saved` is what the queues were doing, which is known even if that does
/// not help.
fn in_place(
    gpu: &Arc<Gpu>,
    sched: &Arc<Scheduler>,
    windows: &Windows,
    failure: &Failure,
    saved: &mut KVec<SavedQueue>,
) -> Result {
    // Doorbells that ring during the reset would be lost. Threads that fault wait until it is over;
    // doorbells that rang before are served, for the write pointer in memory counts.
    let revoke = || {
        if let Ok(facade) = facade() {
            facade.revoke(gpu);
        }
        windows.revoke();
    };
    let start = monotonic_ns();
    let report = facade().map(|facade| facade.reset_begins(gpu, "engines"));
    let result = gpu
        .reset_engines(sched.unload_ms(), failure.named_queue(), saved, revoke)
        .and_then(|()| sched.recover(saved, failure));
    record(gpu, ResetKind::Engines, saved.len(), start, &result);
    if let (Ok(()), Ok(report)) = (&result, report) {
        report.over();
    }
    result
}

/// Traces a reset that began at `start`.
fn record(gpu: &Gpu, kind: ResetKind, queues: usize, start: i64, result: &Result) {
    let us = u64::try_from((monotonic_ns() - start) / 1000).unwrap_or(0);
    // CAST: The discriminant; and there are fewer than a hundred slots.
    trace::reset(gpu.id(), kind as u32, 0, queues as u32, us, errno(result));
}
