// SPDX-License-Identifier: GPL-2.0

//! A process and the schedulers of its GPUs.

use super::{
    shared::Process,
    state::State, //
};
use crate::{
    gpu::devmem::Told,
    kfd::svm::{
        make_mirror,
        OnGpu, //
    },
    mirror::{
        Mirrors,
        Rules, //
    },
    queue::{
        eviction,
        userptr::publish, //
    },
    sched::SchedProcess,
    vm::Vm, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

impl Process {
    /// The process as the scheduler of GPU `index` knows it; it is made known with the first queue.
    ///
    /// # Errors
    ///
    /// - `ENODEV`: no address space yet, or the GPU is gone.
    /// - Those of the scheduler.
    pub(crate) fn attach(&self, state: &State, index: usize) -> Result<Arc<SchedProcess>> {
        let device = self.devices.get(index).ok_or(EINVAL)?;
        if let Some(known) = device.space().process() {
            return Ok(known);
        }
        let params = state.process_params(index)?;
        let sched = device.device().sched();
        let known = sched.attach(params)?;
        let tenants = device.device().tenants().clone();
        let followed = state
            .device(index)
            .and_then(|own| eviction::follow(own.vm()?, sched, &known, tenants, self.group()));
        if let Err(error) = followed {
            // It has no queue, so this only forgets it.
            let _ = sched.detach(&known);
            return Err(error);
        }
        if let Some(mirrors) = device.mirrors() {
            // Before it has a queue: if memory changes just now, none is to run.
            drop(mirrors.set_process(Some(known.clone())));
        }
        publish(self, device.space(), &known);
        Ok(known)
    }

    /// Makes what shows memory of the process to GPU `index`, whose address space is `vm`: nothing is shown yet. To be closed in
    /// the end.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no such GPU.
    /// - `ENODEV`: the module is being unloaded. `ENOMEM`.
    pub(crate) fn mirrors(&self, index: usize, vm: &Arc<Vm>) -> Result<Arc<Mirrors>> {
        let device = self.devices.get(index).ok_or(EINVAL)?.device();
        let rules: Arc<dyn Rules> = OnGpu::new(&self.svm, device, index)?;
        let mirrors = Mirrors::new(vm, device.sched(), Some(rules))?;
        if let Err(error) = make_mirror(&mirrors, self.svm.xnack()) {
            mirrors.close();
            return Err(error);
        }
        Ok(mirrors)
    }

    /// Has moves reported of what the process has in VRAM of GPU `index`, as long as the result lives.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no such GPU. `ENOMEM`.
    pub(crate) fn report_moves(&self, index: usize) -> Result<Told> {
        let device = self.devices.get(index).ok_or(EINVAL)?.device();
        let witness = OnGpu::new(&self.svm, device, index)?;
        device.gpu().tell_of_moves(self.key, witness)
    }

    /// Tells the scheduler of GPU `index` what changed, if it knows the process.
    ///
    /// # Errors
    ///
    /// Those of the scheduler.
    pub(crate) fn reinstall(&self, state: &State, index: usize) -> Result {
        let device = self.devices.get(index).ok_or(EINVAL)?;
        let Some(known) = device.space().process() else {
            return Ok(());
        };
        let new = state.process_params(index)?;
        device.device().sched().update_process(&known, |params| {
            params.sh_mem_config = new.sh_mem_config;
            params.sh_mem_bases = new.sh_mem_bases;
            params.tba = new.tba;
            params.tma = new.tma;
        })
    }

    /// Destroys every queue, in one step per GPU. When this returns no queue reaches memory of the process's
    /// own, whose pages go next: where queues do not stop, its entries are taken away.
    ///
    /// Takes the locks of [`Space`](crate::queue::space::Space)'s and the
    /// [`Vm`](crate::vm::Vm)'s under that of the process.
    pub(super) fn stop_queues(&self, state: &mut State) {
        let mut failed = 0u64;
        for (index, device) in self.devices.iter().enumerate() {
            let Some(known) = device.space().process() else {
                continue;
            };
            match device.device().sched().detach(&known) {
                Ok(()) => {}
                Err(error) if error == ENODEV => {}
                Err(error) => {
                    // The scheduler keeps the memory of what may still run.
                    pr_warn!(
                        "pid {}: queues on GPU {:#x} do not stop: {:?}\n",
                        self.pid(),
                        device.gpu_id(),
                        error
                    );
                    // What the queues hold is not unmapped below, and no notifier reports the end of pages.
                    device.space().zap_userptr(self.pid());
                    failed |= 1 << index.min(63);
                }
            }
        }
        state.queues.clear(|index| failed & 1 << index.min(63) == 0);
        for device in &self.devices {
            device.space().set_process(None);
            if let Some(mirrors) = device.mirrors() {
                drop(mirrors.set_process(None));
            }
        }
    }
}
