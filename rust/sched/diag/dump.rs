// SPDX-License-Identifier: GPL-2.0

//! What the scheduler and the hardware hold, as text for people.

use kernel::fmt::{
    self,
    Write, //
};

use super::text::Lines;
use crate::{
    hw::{
        mqd::layout,
        num::join,
        pm4::Packets,
        regs::{
            hqd::{
                self,
                DoorbellControl,
                HqdActive,
                HqdVmid,
                Slot, //
            },
            sdma::{
                ContextStatus,
                RbCntl,
                RLC_QUEUES, //
            },
            Reg, //
        }, //
    },
    sched::{
        core::SchedCore,
        desired::{
            process::ProcRec,
            queue::{
                HaltState,
                HangState,
                QueueRec, //
            },
            state::{
                COMPUTE_SLOTS,
                QUEUE_MASK, //
            }, //
        },
        params::EvictCause, //
    }, //
};

/// Registers of a slot that the table shows.
const COLUMNS: [Reg; 9] = [
    hqd::CP_HQD_ACTIVE,
    hqd::CP_HQD_VMID,
    hqd::CP_HQD_PQ_DOORBELL_CONTROL,
    hqd::CP_HQD_PQ_BASE,
    hqd::CP_HQD_PQ_BASE_HI,
    hqd::CP_HQD_PQ_RPTR,
    hqd::CP_HQD_PQ_WPTR_LO,
    hqd::CP_HQD_PQ_WPTR_HI,
    hqd::CP_HQD_ERROR,
];

/// The active runlist, packet by packet.
pub(in crate::sched) fn runlist(core: &SchedCore, f: &mut impl Write) -> fmt::Result {
    let state = core.state.lock();
    let load = state.load();
    writeln!(
        f,
        "wanted: {} of {} processes, {} compute queues ({} slots), {} SDMA queues; on hardware: {} queues",
        load.active_processes,
        load.processes,
        load.active_compute,
        COMPUTE_SLOTS,
        load.active_sdma,
        load.on_hardware
    )?;
    let Some(list) = &state.active else {
        return f.write_str("no runlist is active\n");
    };
    let buffer = state.buffers.current();
    writeln!(
        f,
        "active: {} dwords at {:#x}, {} processes, {} queues{}",
        list.dwords,
        buffer.gpu_addr(),
        list.processes,
        list.queues,
        if list.chained { ", takes turns" } else { "" }
    )?;
    let mut at = 0;
    for packet in Packets::new(buffer.words()) {
        writeln!(f, "{at:6}  {packet}")?;
        at += packet.dwords;
    }
    Ok(())
}

/// All processes, queues and descriptors.
pub(in crate::sched) fn mqds(core: &SchedCore, f: &mut impl Write) -> fmt::Result {
    let state = core.state.lock();
    for proc in state.procs.values() {
        process(proc, f)?;
        for (id, queue) in proc.queues.iter() {
            mqd(*id, queue, f)?;
        }
    }
    if state.procs.is_empty() {
        f.write_str("no processes\n")?;
    }
    Ok(())
}

fn process(proc: &ProcRec, f: &mut impl Write) -> fmt::Result {
    write!(
        f,
        "pasid {} pid {} page table {:#x}",
        proc.params.pasid, proc.pid, proc.params.page_table_base
    )?;
    for cause in EvictCause::ALL {
        match proc.evictions(cause) {
            0 => {}
            count => write!(f, ", evicted: {} x{count}", cause.name())?,
        }
    }
    f.write_str(if proc.destroyed { ", going\n" } else { "\n" })
}

fn mqd(id: u64, queue: &QueueRec, f: &mut impl Write) -> fmt::Result {
    let spec = &queue.spec;
    writeln!(
        f,
        "  queue {id} {} {}{} doorbell {:#x} ring {:#x}+{:#x} rptr {:#x} wptr {:#x} priority {} percent {} mqd {:#x}",
        spec.kind.name(),
        queue.phase.name(),
        match queue.hang {
            HangState::None if queue.destroyed => ", going",
            HangState::None if queue.halt != HaltState::None => ", halted",
            HangState::None => "",
            HangState::Pending | HangState::Reported => ", hung",
        },
        spec.doorbell.byte(),
        spec.ring_base,
        spec.ring_size,
        spec.rptr,
        spec.wptr,
        spec.priority,
        spec.percent,
        queue.mqd.gpu_addr()
    )?;
    let fields = match spec.kind.is_compute() {
        true => layout::compute::FIELDS,
        false => layout::sdma::FIELDS,
    };
    // Zero is what most words are and what they mean by default.
    for field in fields {
        match queue.mqd.read(field.dw) {
            Ok(0) => {}
            Ok(word) => writeln!(f, "    {:<34} {word:#010x}", field.name)?,
            Err(_) => return f.write_str("    the device is gone\n"),
        }
    }
    Ok(())
}

/// The hardware's slots: compute queues, HIQ, KIQ, SDMA queues.
pub(in crate::sched) fn hqds(core: &SchedCore, f: &mut impl Write) -> fmt::Result {
    f.write_str("slot           vmid  doorbell  ring              rptr      wptr      error\n")?;
    let scheduled = (0..64).filter(|bit| QUEUE_MASK & 1 << bit != 0);
    let slots = Iterator::chain(scheduled.filter_map(Slot::from_bit), [Slot::HIQ, Slot::KIQ]);
    let mut idle = 0;
    for slot in slots {
        let mut words = [0; COLUMNS.len()];
        if core.platform.read_slot(slot, &COLUMNS, &mut words).is_err() {
            return f.write_str("the device does not answer\n");
        }
        let [active, vmid, doorbell, base, base_hi, rptr, wptr, wptr_hi, error] = words;
        if !HqdActive::from_raw(active).is_set(HqdActive::ACTIVE) {
            idle += 1;
            continue;
        }
        writeln!(
            f,
            "me {} pipe {} q {}  {:>4}  {:#8x}  {:#016x}  {rptr:#8x}  {wptr:#8x}  {error:#x}",
            slot.me(),
            slot.pipe(),
            slot.queue(),
            HqdVmid::from_raw(vmid).get(HqdVmid::VMID),
            DoorbellControl::from_raw(doorbell).get(DoorbellControl::OFFSET) * 4,
            join(base, base_hi) << 8,
            wptr = join(wptr, wptr_hi),
        )?;
    }
    writeln!(f, "{idle} slots idle")?;
    sdma(core, f)
}

fn sdma(core: &SchedCore, f: &mut impl Write) -> fmt::Result {
    let asic = core.platform.asic();
    let read = |reg| core.platform.read(reg);
    for number in 0..asic.sdma_engines() {
        let Some(engine) = asic.sdma.engine(number) else {
            continue;
        };
        for queue in 0..RLC_QUEUES {
            let Some(block) = engine.rlc(queue) else {
                continue;
            };
            let Ok(cntl) = read(block.rb_cntl()).map(RbCntl::from_raw) else {
                return f.write_str("the device does not answer\n");
            };
            if !cntl.is_set(RbCntl::RB_ENABLE) {
                continue;
            }
            let word = |reg| read(reg).unwrap_or(u32::MAX);
            let status = ContextStatus::from_raw(word(block.context_status()));
            writeln!(
                f,
                "SDMA {number} q {queue}       {:>4}  {:#8x}  {:#016x}  {:#8x}  {:#8x}{}",
                cntl.get(RbCntl::RB_VMID),
                word(block.doorbell_offset()),
                join(word(block.rb_base()), word(block.rb_base_hi())) << 8,
                join(word(block.rb_rptr()), word(block.rb_rptr_hi())),
                join(word(block.rb_wptr()), word(block.rb_wptr_hi())),
                if status.is_set(ContextStatus::SELECTED) {
                    "  selected"
                } else {
                    ""
                }
            )?;
        }
    }
    Ok(())
}

/// Life, load and counters: a name and a value per line, for people and programs.
pub(in crate::sched) fn stats(core: &SchedCore, f: &mut impl Write) -> fmt::Result {
    writeln!(f, "health {}", core.life().name())?;
    writeln!(f, "sdma_ids {}", core.sdma.in_use())?;
    for (name, value) in core.counters.snapshot().entries() {
        writeln!(f, "{name} {value}")?;
    }
    let load = core.load();
    for (name, value) in [
        ("processes", load.processes),
        ("active_processes", load.active_processes),
        ("queues", load.queues),
        ("active_compute", load.active_compute),
        ("active_sdma", load.active_sdma),
        ("on_hardware", load.on_hardware),
    ] {
        writeln!(f, "{name} {value}")?;
    }
    Ok(())
}

/// Gives `put` the lines that say what the hardware was doing, for an error report.
pub(in crate::sched) fn report(core: &SchedCore, put: &mut dyn FnMut(&str)) {
    // `Lines` never fails.
    let _ = hqds(core, &mut Lines::to(put));
}
