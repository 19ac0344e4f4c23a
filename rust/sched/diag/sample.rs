// SPDX-License-Identifier: GPL-2.0

//! Which queues sit in the hardware's slots, and where they stand.

use kernel::prelude::*;

use super::slot::HwSlot;
use crate::{
    hw::{
        num::{
            join,
            widen, //
        },
        regs::{
            hqd::{
                self,
                DoorbellControl,
                HqdActive,
                IbControl,
                PqControl,
                Slot, //
            },
            sdma::{
                DoorbellOffset,
                RbCntl,
                RLC_QUEUES, //
            },
            Reg, //
        }, //
    },
    sched::{
        core::SchedCore,
        desired::{
            progress::Pointers,
            state::QUEUE_MASK, //
        }, //
    }, //
};

/// A queue in a slot, as the registers show it.
#[derive(Clone, Copy, Debug)]
pub(in crate::sched) struct Sample {
    /// Where it sits.
    pub(in crate::sched) slot: HwSlot,
    /// Dword index of the doorbell.
    pub(in crate::sched) doorbell: u32,
    /// Where it stands.
    pub(in crate::sched) pointers: Pointers,
}

/// The queues in the slots. `is_full` tells whether a ring with equal pointers is full.
///
/// # Errors
///
/// `ENOMEM`, `EIO`, `ENODEV`.
pub(in crate::sched) fn samples(
    core: &SchedCore,
    is_full: impl Fn(PqControl) -> bool,
) -> Result<KVec<Sample>> {
    const REGS: [Reg; 8] = [
        hqd::CP_HQD_ACTIVE,
        hqd::CP_HQD_PQ_DOORBELL_CONTROL,
        hqd::CP_HQD_PQ_RPTR,
        hqd::CP_HQD_PQ_WPTR_LO,
        hqd::CP_HQD_PQ_WPTR_HI,
        hqd::CP_HQD_PQ_CONTROL,
        hqd::CP_HQD_IB_CONTROL,
        hqd::CP_HQD_IB_RPTR,
    ];
    let mut samples = KVec::new();
    for slot in (0..64)
        .filter(|bit| QUEUE_MASK & 1 << bit != 0)
        .filter_map(Slot::from_bit)
    {
        let mut words = [0; REGS.len()];
        core.platform.read_slot(slot, &REGS, &mut words)?;
        let [active, doorbell, rptr, wptr, wptr_hi, control, ib, ib_rptr] = words;
        if HqdActive::from_raw(active).is_set(HqdActive::ACTIVE) {
            let sample = Sample {
                slot: HwSlot::Compute(slot),
                doorbell: DoorbellControl::from_raw(doorbell).get(DoorbellControl::OFFSET),
                pointers: Pointers {
                    rptr: widen(rptr),
                    wptr: join(wptr, wptr_hi),
                    full: is_full(PqControl::from_raw(control)),
                    in_buffer: IbControl::from_raw(ib)
                        .is_set(IbControl::PROCESSING_IB)
                        .then_some(ib_rptr),
                },
            };
            samples.push(sample, GFP_KERNEL)?;
        }
    }
    sdma(core, &mut samples)?;
    Ok(samples)
}

fn sdma(core: &SchedCore, samples: &mut KVec<Sample>) -> Result {
    // The ids in use bound what has to be read.
    if core.sdma.in_use() == 0 && core.load().active_sdma == 0 {
        return Ok(());
    }
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
            let cntl = RbCntl::from_raw(read(block.rb_cntl())?);
            if !cntl.is_set(RbCntl::RB_ENABLE) {
                continue;
            }
            let offset = read(block.doorbell_offset())?;
            let sample = Sample {
                slot: HwSlot::Sdma(number, queue),
                doorbell: DoorbellOffset::from_raw(offset).get(DoorbellOffset::OFFSET),
                pointers: Pointers {
                    rptr: join(read(block.rb_rptr())?, read(block.rb_rptr_hi())?),
                    wptr: join(read(block.rb_wptr())?, read(block.rb_wptr_hi())?),
                    full: false,
                    in_buffer: None,
                },
            };
            samples.push(sample, GFP_KERNEL)?;
        }
    }
    Ok(())
}

/// Whether a queue sits in a slot, by the registers.
///
/// # Errors
///
/// `ENOENT`: no such queue. `ENOMEM`, `EIO`, `ENODEV`.
#[cfg(rkfd_kunit)]
pub(in crate::sched) fn is_occupied(core: &SchedCore, proc: u64, queue: u64) -> Result<bool> {
    let doorbell = {
        let mut state = core.state.lock();
        state.queue_mut(proc, queue)?.spec.doorbell.dword()
    };
    let samples = samples(core, |_| false)?;
    Ok(samples.iter().any(|sample| sample.doorbell == doorbell))
}
