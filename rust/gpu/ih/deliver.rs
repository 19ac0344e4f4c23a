// SPDX-License-Identifier: GPL-2.0

//! Delivery of vectors: counters, reports, and the sink of the layers above.

use super::{
    super::{
        access::Hw,
        hub,
        retry::FaultToken, //
    },
    Ih,
    IrqSink,
    VmFault, //
};
use crate::{
    hw::{
        ih::{
            Event,
            Fault,
            Hub,
            Vector, //
        },
        regs::hub::FaultStatus, //
    },
    kapi::log::dev_limited, //
};

impl Ih {
    /// Counts `vector` of ring number `ring`, and passes it to `sink` if it is a user's.
    pub(crate) fn deliver(
        &self,
        hw: &Hw,
        ring: usize,
        vector: &Vector,
        sink: Option<&dyn IrqSink>,
    ) {
        let count = &self.counters;
        if let Some(counter) = count.vectors.get(ring) {
            counter.inc();
        }
        let event = vector.event();
        if let Event::Fault(fault) = event {
            self.deliver_fault(hw, vector, fault, sink);
            return;
        }
        let user = vector.pasid != 0 && hw.asic().owns_vmid(u32::from(vector.vmid));
        let pasid = vector.pasid;
        match event {
            Event::EndOfPipe { context, .. } if user => {
                count.eop.inc();
                // On ASICs whose EOP packets of kernel origin carry context 0, KFD ignores it.
                if let (Some(sink), true) = (sink, context != 0) {
                    sink.eop(pasid, context);
                }
            }
            Event::SdmaTrap { context, .. } if pasid != 0 => {
                count.sdma_trap.inc();
                if let Some(sink) = sink {
                    sink.sdma_trap(pasid, context);
                }
            }
            Event::SdmaTrap { .. } if vector.vmid == 0 => {
                count.copy.inc();
                if let Some(copy) = self.copy.as_ref() {
                    copy.retire();
                }
            }
            Event::Sq(data) if user => {
                count.sq.inc();
                if let Some(sink) = sink {
                    sink.sq(pasid, data);
                }
            }
            Event::BadPacket { .. } => {
                count.bad_opcode.inc();
                dev_limited!(
                    dev_info,
                    hw.dev(),
                    "a queue stopped at a bad packet: {}\n",
                    format_args!("{vector}")
                );
                if let (Some(sink), true) = (sink, user) {
                    sink.bad_opcode(pasid, vector.data[0]);
                }
            }
            Event::PrivilegedRegister(_)
            | Event::PrivilegedInstruction(_)
            | Event::SdmaOther { .. } => {
                count.other.inc();
                dev_limited!(
                    dev_info,
                    hw.dev(),
                    "a queue used a privileged register or packet: {}\n",
                    format_args!("{vector}")
                );
            }
            Event::SdmaPoison(_) | Event::VmPoison => {
                count.other.inc();
                dev_limited!(
                    dev_err,
                    hw.dev(),
                    "uncorrectable memory error: {}\n",
                    format_args!("{vector}")
                );
            }
            Event::EndOfPipe { .. } | Event::Sq(_) | Event::SdmaTrap { .. } => {
                count.foreign.inc();
            }
            Event::OtherRing(_)
            | Event::UnattachedDoorbell
            | Event::KiqFence
            | Event::QueryStatus(_)
            | Event::Unknown
            | Event::Fault(_) => count.other.inc(),
        }
    }

    fn deliver_fault(&self, hw: &Hw, vector: &Vector, fault: Fault, sink: Option<&dyn IrqSink>) {
        if fault.retry {
            self.counters.retry_faults.inc();
        } else {
            self.counters.faults.inc();
        }
        // Dropped where no sink takes it: the access is repeated, and reported again.
        let token = fault
            .retry
            .then(|| FaultToken::new(&self.cam, fault.cam_index));
        let fault = VmFault {
            pasid: vector.pasid,
            vmid: vector.vmid,
            timestamp: vector.timestamp,
            fault,
        };
        let user = sink.filter(|_| fault.pasid != 0);
        if fault.pasid == 0 {
            self.counters.foreign.inc();
        }
        match (user, token) {
            (Some(sink), Some(token)) => sink.vm_retry(&fault, token),
            (None, Some(_)) => {}
            (user, None) => {
                let logged_later = user.is_some_and(|sink| sink.vm_fault(&fault));
                if !logged_later {
                    Self::log_latched(hw, &fault);
                }
            }
        }
    }

    /// Reports a fault that was not retried, and clears the hub's latch for the next one.
    pub(super) fn log_latched(hw: &Hw, vm_fault: &VmFault) {
        let VmFault {
            pasid, vmid, fault, ..
        } = vm_fault;
        let hub = match fault.hub {
            Hub::Gfx => &hw.asic().gfxhub,
            Hub::Mm => &hw.asic().mmhub,
        };
        let status = hub::take_fault_status(hw, hub);
        // The hub latches the first of several faults, which may be of another address space.
        let client = status
            .filter(|status| status.get(FaultStatus::VMID) == u32::from(*vmid))
            .and_then(|status| hub.client(status))
            .unwrap_or("unknown client");
        let flag = |on: bool, name: &'static str| if on { name } else { "" };
        let status = status.map_or(0, |status| status.raw());
        let (read, write, execute) = (
            flag(fault.read, "read "),
            flag(fault.write, "write "),
            flag(fault.execute, "execute "),
        );
        let (name, address) = (hub.name, fault.address);
        if *vmid == 0 {
            dev_limited!(
                dev_err,
                hw.dev(),
                "{name} fault at {address:#x} of the kernel: {read}{write}{execute}from {client} (status {status:#010x})\n"
            );
        } else {
            // An error of the user's program, not of the driver or the device.
            dev_limited!(
                dev_info,
                hw.dev(),
                "{name} fault at {address:#x}: PASID {pasid} VMID {vmid} {read}{write}{execute}from {client} (status {status:#010x})\n"
            );
        }
    }
}
