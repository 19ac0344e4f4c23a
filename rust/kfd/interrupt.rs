// SPDX-License-Identifier: GPL-2.0

//! From what a GPU reports to the owners of its address spaces.
//!
//! Runs in the interrupt thread, which serves all processes: it waits for no lock that a thread of one of them may
//! hold for long, and allocates nothing that it has to wait for. Faults are left to a worker ([`faults`](super::faults)).
//! Reports of an address space that belongs to no process are dropped: its process has ended.

use super::{
    device::Device,
    faults::FaultWorker, //
};
use crate::{
    event::{
        payload::{
            HwExceptionData,
            MemoryExceptionData, //
        },
        reasons::Reasons,
        tenants::Loss, //
    },
    gpu::{
        retry::FaultToken,
        IrqSink,
        VmFault, //
    },
    hw::{
        asic::IpVersion,
        ih::{
            bad_packet,
            Fault,
            SqInterrupt, //
        },
    },
    kapi::workqueue::OwnedQueue,
    sched::Halt,
    trace, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// First graphics version whose CP never sends a meaningful context id 0.
const DROPS_CONTEXT_ZERO: IpVersion = IpVersion(9, 4, 1);

/// Receives the reports of one GPU.
pub(crate) struct Sink {
    device: Arc<Device>,
    faults: Arc<FaultWorker>,
    /// Runs the worker; finishes what it has to do when the sink is dropped.
    queue: OwnedQueue,
}

impl Sink {
    /// For the reports of `device`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(device: &Arc<Device>) -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                device: device.clone(),
                faults: FaultWorker::new(device)?,
                queue: OwnedQueue::new(c"rkfd_faults", 1)?,
            },
            GFP_KERNEL,
        )?)
    }

    /// A queue failed. Returns whether a runtime learns of it.
    fn fail(&self, pasid: u16, doorbell: u32, reasons: Reasons) -> bool {
        let tenant = self.device.tenants().get(pasid);
        tenant.is_some_and(|tenant| tenant.queue_failed(doorbell, reasons))
    }

    fn signal(&self, pasid: u16, id: u32) {
        if let Some(tenant) = self.device.tenants().get(pasid) {
            tenant.interrupt(id);
        }
    }

    fn trace_fault(&self, fault: &VmFault) {
        let access = &fault.fault;
        trace::vm_fault(
            self.device.gpu().id(),
            fault.pasid,
            fault.vmid.into(),
            access.address,
            access.write,
            access.execute,
            access.retry,
        );
    }
}

impl IrqSink for Sink {
    fn eop(&self, pasid: u16, ctx: u32) {
        if ctx == 0 && self.device.gpu().asic().ip.gc >= DROPS_CONTEXT_ZERO {
            return;
        }
        self.signal(pasid, ctx);
    }

    fn sdma_trap(&self, pasid: u16, ctx: u32) {
        self.signal(pasid, ctx & 0xfff_ffff);
    }

    fn sq(&self, pasid: u16, data: SqInterrupt) {
        match data {
            SqInterrupt::Message {
                data,
                privileged: true,
            } => {
                let reported = Reasons::of_trap(data & 0xff_ffff)
                    .is_some_and(|(doorbell, reasons)| self.fail(pasid, doorbell, reasons));
                if !reported {
                    self.signal(pasid, data & 0xff_ffff);
                }
            }
            SqInterrupt::Message { data, .. } | SqInterrupt::Auto(data) => {
                self.signal(pasid, data & 0xff_ffff);
            }
            SqInterrupt::Error(error) => {
                pr_debug!("PASID {}: wave error {:?}\n", pasid, error);
                self.signal(pasid, 0);
            }
            SqInterrupt::Reserved => {}
        }
    }

    fn bad_opcode(&self, pasid: u16, ctx0: u32) {
        let (doorbell, reason) = bad_packet(ctx0);
        let halt = Halt {
            pasid,
            doorbell,
            reason,
        };
        // Before the runtime learns of it, which may change the queue at once. One that finds no room stops again.
        let _ = self.device.sched().note_halt(halt);
        if let Some(reasons) = Reasons::of_packet(reason) {
            self.fail(pasid, doorbell, reasons);
        }
    }

    fn vm_fault(&self, fault: &VmFault) -> bool {
        self.trace_fault(fault);
        let Some(tenant) = self.device.tenants().get(fault.pasid) else {
            return false;
        };
        self.faults.add(&self.queue, tenant, fault)
    }

    fn vm_retry(&self, fault: &VmFault, token: FaultToken) {
        self.trace_fault(fault);
        let Some(tenant) = self.device.tenants().get(fault.pasid) else {
            return;
        };
        if let Some(token) = tenant.repeats(fault, token) {
            // A report as any other. It is repeated until the queues stop.
            self.faults.add(&self.queue, tenant, fault);
            drop(token);
        }
    }

    fn overflow(&self) {
        // The owners of the lost vectors are unknown, but the slot of each was written.
        self.device
            .tenants()
            .for_each(|tenant| tenant.interrupts_lost());
    }
}

/// Signals to every process with an address space on `device` that the GPU does not run its work any more.
pub(crate) fn signal_lost(device: &Device) {
    device.tenants().for_each(|tenant| tenant.lost(Loss::Gpu));
}

/// What a waiter for memory faults learns.
pub(crate) fn memory_exception(fault: &Fault, gpu_id: u32) -> MemoryExceptionData {
    // The bit of the interrupt's ring id that upstream calls "valid protection": no valid entry.
    let not_present = fault.protection;
    MemoryExceptionData {
        not_present: u32::from(not_present),
        read_only: u32::from(!not_present && fault.write),
        no_execute: u32::from(!not_present && fault.execute),
        imprecise: 0,
        va: fault.address & !0xfff,
        gpu_id,
        error_type: 0,
    }
}

/// Signals to the process with address space `pasid` that a queue of it hung and was reset.
pub(crate) fn queue_lost(device: &Device, pasid: u16) {
    if let Some(tenant) = device.tenants().get(pasid) {
        tenant.lost(Loss::Queue);
    }
}

/// What a waiter for hardware exceptions learns when a GPU hung or went away.
pub(crate) fn gpu_lost(gpu_id: u32) -> HwExceptionData {
    HwExceptionData {
        reset_type: 0,
        reset_cause: 0,
        memory_lost: 1,
        gpu_id,
    }
}
