// SPDX-License-Identifier: GPL-2.0

//! The slot of one queue on the hardware, decoded for people: what its registers and its descriptor say.

use kernel::fmt::{
    self,
    Write, //
};

use super::text::{
    words,
    Lines, //
};
use crate::{
    hw::{
        mqd::layout,
        num::{
            join,
            widen, //
        },
        regs::{
            hqd::{
                self,
                DequeueRequest,
                DoorbellControl,
                HqdVmid,
                IbControl,
                PqControl,
                Slot, //
            },
            sdma::{
                ContextStatus,
                RbCntl, //
            },
            Reg, //
        }, //
    },
    sched::{
        core::SchedCore,
        mqd::MqdMem,
        params::QueueSpec, //
    }, //
};

/// Where a queue sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sched) enum HwSlot {
    /// In a compute slot.
    Compute(Slot),
    /// On an SDMA engine: engine and queue.
    Sdma(u32, u32),
}

impl fmt::Display for HwSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compute(slot) => write!(
                f,
                "me {} pipe {} queue {}",
                slot.me(),
                slot.pipe(),
                slot.queue()
            ),
            Self::Sdma(engine, queue) => write!(f, "SDMA {engine} queue {queue}"),
        }
    }
}

/// Gives `put` what the registers in `slot` and the descriptor of its queue say: a line in words, then the
/// words that are not 0, some in a line.
pub(in crate::sched) fn describe(
    core: &SchedCore,
    slot: HwSlot,
    spec: &QueueSpec,
    mqd: &MqdMem,
    put: &mut dyn FnMut(&str),
) {
    let mut lines = Lines::to(put);
    // `Lines` never fails.
    let _ = match slot {
        HwSlot::Compute(slot) => compute(core, slot, &mut lines),
        HwSlot::Sdma(engine, queue) => sdma(core, engine, queue, &mut lines),
    }
    .and_then(|()| descriptor(spec, mqd, &mut lines));
}

/// Of a flag: `yes` if it is set.
fn either(is_set: bool, yes: &'static str, no: &'static str) -> &'static str {
    match is_set {
        true => yes,
        false => no,
    }
}

fn compute(core: &SchedCore, slot: Slot, f: &mut impl Write) -> fmt::Result {
    let read = |reg: Reg| {
        let mut word = [0];
        // What cannot be read is left out.
        let _ = core.platform.read_slot(slot, &[reg], &mut word);
        word[0]
    };
    let ring = PqControl::from_raw(read(hqd::CP_HQD_PQ_CONTROL));
    let doorbell = DoorbellControl::from_raw(read(hqd::CP_HQD_PQ_DOORBELL_CONTROL));
    let ib = IbControl::from_raw(read(hqd::CP_HQD_IB_CONTROL));
    let request = DequeueRequest::from_raw(read(hqd::CP_HQD_DEQUEUE_REQUEST));
    writeln!(
        f,
        "  hardware: vmid {}, pipe priority {}, queue priority {}, ring of {} dwords at {:#x}, doorbell {}{}",
        HqdVmid::from_raw(read(hqd::CP_HQD_VMID)).get(HqdVmid::VMID),
        read(hqd::CP_HQD_PIPE_PRIORITY),
        read(hqd::CP_HQD_QUEUE_PRIORITY),
        // Six bits: 64 of them would be more than there is memory.
        2u64.checked_shl(ring.get(PqControl::QUEUE_SIZE)).unwrap_or(0),
        join(read(hqd::CP_HQD_PQ_BASE), read(hqd::CP_HQD_PQ_BASE_HI)) << 8,
        either(doorbell.is_set(DoorbellControl::EN), "on", "off"),
        either(doorbell.is_set(DoorbellControl::HIT), ", rung", ""),
    )?;
    match ib.is_set(IbControl::PROCESSING_IB) {
        true => write!(
            f,
            "  in an indirect buffer of {} dwords at {:#x}, at dword {}",
            ib.get(IbControl::IB_SIZE),
            join(
                read(hqd::CP_HQD_IB_BASE_ADDR),
                read(hqd::CP_HQD_IB_BASE_ADDR_HI)
            ),
            read(hqd::CP_HQD_IB_RPTR)
        )?,
        false => f.write_str("  in no indirect buffer")?,
    }
    let asked = match request.get(DequeueRequest::DEQUEUE_REQ) {
        0 => "not asked to leave",
        1 => "asked to leave when waves are done",
        2 => "asked to leave and kill waves",
        3 => "asked to leave and save waves",
        _ => "asked to leave in an unknown way",
    };
    writeln!(f, ", {asked}")?;
    f.write_str("  registers:\n")?;
    words(
        f,
        hqd::WINDOW
            .iter()
            .map(|entry| (entry.name, read(entry.reg))),
    )
}

fn sdma(core: &SchedCore, engine: u32, queue: u32, f: &mut impl Write) -> fmt::Result {
    let platform = &*core.platform;
    let engine = platform.asic().sdma.engine(engine);
    let Some(block) = engine.and_then(|engine| engine.rlc(queue)) else {
        return Ok(());
    };
    let read = |reg| platform.read(reg).unwrap_or(0);
    let cntl = RbCntl::from_raw(read(block.rb_cntl()));
    let status = ContextStatus::from_raw(read(block.context_status()));
    writeln!(
        f,
        "  hardware: vmid {}, ring at {:#x}, {}, {}",
        cntl.get(RbCntl::RB_VMID),
        join(read(block.rb_base()), read(block.rb_base_hi())) << 8,
        either(
            status.is_set(ContextStatus::SELECTED),
            "has the engine",
            "waits for the engine"
        ),
        either(status.is_set(ContextStatus::IDLE), "idle", "busy"),
    )?;
    f.write_str("  registers:\n")?;
    words(
        f,
        [
            ("RB_CNTL", block.rb_cntl()),
            ("RB_BASE", block.rb_base()),
            ("RB_BASE_HI", block.rb_base_hi()),
            ("RB_RPTR", block.rb_rptr()),
            ("RB_RPTR_HI", block.rb_rptr_hi()),
            ("RB_WPTR", block.rb_wptr()),
            ("RB_WPTR_HI", block.rb_wptr_hi()),
            ("IB_CNTL", block.ib_cntl()),
            ("CONTEXT_STATUS", block.context_status()),
            ("DOORBELL", block.doorbell()),
            ("DOORBELL_OFFSET", block.doorbell_offset()),
            ("STATUS", block.status()),
        ]
        .into_iter()
        .map(|(name, reg)| (name, read(reg))),
    )
}

fn descriptor(spec: &QueueSpec, mqd: &MqdMem, f: &mut impl Write) -> fmt::Result {
    writeln!(
        f,
        "  descriptor at {:#x}: {} ring of {} bytes at {:#x}, priority {}, share {} %, pointers reported at {:#x} and read at {:#x}",
        mqd.gpu_addr(),
        spec.kind.name(),
        widen(spec.ring_size),
        spec.ring_base,
        spec.priority,
        spec.percent,
        spec.rptr,
        spec.wptr
    )?;
    let fields = match spec.kind.is_compute() {
        true => layout::compute::FIELDS,
        false => layout::sdma::FIELDS,
    };
    // What cannot be read is left out.
    let read = |dw| mqd.read(dw).unwrap_or(0);
    words(f, fields.iter().map(|field| (field.name, read(field.dw))))
}
