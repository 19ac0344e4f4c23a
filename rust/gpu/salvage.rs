// SPDX-License-Identifier: GPL-2.0

//! What can be saved of user queues before the engines are reset.
//!
//! The scheduler firmware does not answer, so every queue is taken off by registers. A compute
//! queue is asked to save itself, which its pipe can do although the scheduler is dead; then its
//! descriptor is complete. One that does not stop is reset, and goes on from where it had fetched
//! up to: a packet that was being executed is lost or half done. SDMA queues are stopped between
//! two packets and their pointers read, as KFD does it (`kgd_hqd_sdma_destroy`). One that does not
//! come to the end of its packet is ended by a reset of its copy engine ([`end_copies`]) where there is one, else by a
//! reset of the chip only.
//!
//! Source of the order: hardware contract, escalation ladder; `amdgpu_amdkfd_gfx_v9.c`
//! (`kgd_gfx_v9_hqd_destroy`, `kgd_gfx_v9_hqd_reset`).

use kernel::prelude::*;

use super::{
    access::Hw,
    gfx,
    reset,
    sdma, //
};
use crate::hw::{
    num::join,
    regs::{
        gc,
        hqd::{
            self,
            DequeueRequest,
            DoorbellControl,
            HqdActive,
            HqdVmid,
            Slot,
            SLOTS_PER_MEC, //
        },
        sdma::{
            Block,
            ContextStatus,
            DoorbellOffset,
            RbCntl,
            RLC_QUEUES, //
        }, //
    }, //
};

/// Time for a stale queue to stop; no process waits for it.
const STOP_MS: u32 = 100;
/// Slots of MEC1 and SDMA queues of all engines.
const MAX_QUEUES: usize = SLOTS_PER_MEC as usize + 64;

/// How a queue left the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The descriptor holds everything.
    Saved,
    /// It stopped between two packets; the descriptor does not know yet where.
    Stopped,
    /// It did not stop when asked.
    Refused,
}

/// A user queue that was on the hardware.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SavedQueue {
    /// Doorbell, dword index on BAR2.
    pub(crate) doorbell: u32,
    /// Read pointer as the register has it: dwords of the ring, or bytes for SDMA.
    pub(crate) rptr: u64,
    /// Write pointer, likewise.
    pub(crate) wptr: u64,
    /// Its end.
    pub(crate) outcome: Outcome,
}

/// Memory for [`save`], which must not fail half way.
pub(super) struct SaveBuffers {
    saved: KVec<SavedQueue>,
    slots: KVec<(Slot, DoorbellControl)>,
    blocks: KVec<Block>,
}

impl SaveBuffers {
    /// For as many queues as there can be.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            saved: KVec::with_capacity(MAX_QUEUES, GFP_KERNEL)?,
            slots: KVec::with_capacity(MAX_QUEUES, GFP_KERNEL)?,
            blocks: KVec::with_capacity(MAX_QUEUES, GFP_KERNEL)?,
        })
    }
}

/// Takes all user queues off the hardware and returns the state of each. Sleeps; bounded.
///
/// All are asked before any is waited for, so that each has the same `timeout_ms` milliseconds, which
/// are what the firmware would have given it: one that is slow is not yet one that hangs. The one with doorbell `refused`
/// had its time before, and gets only what the others take.
pub(super) fn save(
    hw: &Hw,
    buffers: SaveBuffers,
    timeout_ms: u32,
    refused: Option<u32>,
) -> KVec<SavedQueue> {
    let SaveBuffers {
        mut saved,
        mut slots,
        mut blocks,
    } = buffers;
    // There is room for as many as there are.
    for slot in (0..SLOTS_PER_MEC).filter_map(Slot::from_bit) {
        if let Some(doorbell) = ask(hw, slot) {
            let _ = slots.push_within_capacity((slot, doorbell));
        }
    }
    for block in copies(hw) {
        if !hw.is_lost() && Copying::of(hw, &block) != Copying::Idle {
            disable(hw, &block);
            let _ = blocks.push_within_capacity(block);
        }
    }
    // Queues that did not stop are found below.
    let _ = hw.wait(timeout_ms.saturating_mul(1000), || {
        let had_time = |doorbell: u32| refused == Some(doorbell);
        let off = slots.iter().all(|(slot, doorbell)| {
            had_time(doorbell.get(DoorbellControl::OFFSET)) || is_free(hw, *slot)
        }) && blocks
            .iter()
            .all(|block| is_idle(hw, block) || had_time(doorbell_of(hw, block)));
        Ok(off.then_some(()))
    });
    for (slot, doorbell) in &slots {
        let _ = saved.push_within_capacity(take(hw, *slot, *doorbell));
    }
    for block in &blocks {
        let _ = saved.push_within_capacity(stopped(hw, block));
    }
    saved
}

/// The contexts of user queues on all copy engines.
fn copies(hw: &Hw) -> impl Iterator<Item = Block> + '_ {
    (0..hw.asic().sdma_engines())
        .filter_map(|n| hw.asic().sdma.engine(n))
        .flat_map(|engine| (0..RLC_QUEUES).filter_map(move |queue| engine.rlc(queue)))
}

/// All contexts that packets run in: those of user queues, and the kernel's on each copy engine. An earlier driver may
/// have had a ring there, too.
fn contexts(hw: &Hw) -> impl Iterator<Item = Block> + '_ {
    let engines = (0..hw.asic().sdma_engines()).filter_map(|n| hw.asic().sdma.engine(n));
    Iterator::chain(engines.map(|engine| engine.gfx()), copies(hw))
}

/// What a copy engine does with the queue in one of its contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copying {
    /// Nothing: no queue, or one that was stopped between two packets. So a context is after a reset.
    Idle,
    /// It takes packets from the ring.
    Running,
    /// It takes no more, but is in the middle of one.
    Ending,
}

impl Copying {
    /// From RB_CNTL and CONTEXT_STATUS.
    pub(crate) fn decode(cntl: u32, status: u32) -> Self {
        let enabled = RbCntl::from_raw(cntl).is_set(RbCntl::RB_ENABLE);
        let idle = ContextStatus::from_raw(status).is_set(ContextStatus::IDLE);
        match (enabled, idle) {
            (true, _) => Self::Running,
            (false, false) => Self::Ending,
            (false, true) => Self::Idle,
        }
    }

    fn of(hw: &Hw, block: &Block) -> Self {
        Self::decode(hw.read(block.rb_cntl()), hw.read(block.context_status()))
    }
}

/// Whether a copy engine is still in the middle of a packet of a queue that was stopped, by [`save`], by the end of the
/// kernel's own ring, or by a firmware that came no further.
///
/// GRBM_SOFT_RESET does not reach SDMA: the engine is halted, and when it runs again it goes on with the packet,
/// whatever has the memory by then. See [`end_copies`].
pub(super) fn is_copying(hw: &Hw) -> bool {
    contexts(hw).any(|block| Copying::of(hw, &block) == Copying::Ending)
}

/// Resets each copy engine that [is in the middle of a packet](is_copying), where an engine can be reset alone. All
/// must be halted and their queues disabled. Sleeps.
pub(super) fn end_copies(hw: &Hw) {
    for n in 0..hw.asic().sdma_engines() {
        let Some(engine) = hw.asic().sdma.engine(n) else {
            continue;
        };
        let mut blocks = Iterator::chain(
            (0..RLC_QUEUES).filter_map(|queue| engine.rlc(queue)),
            [engine.gfx()],
        );
        if engine.can_be_reset() && blocks.any(|b| Copying::of(hw, &b) == Copying::Ending) {
            dev_warn!(hw.dev(), "resetting copy engine {}\n", n);
            sdma::reset(hw, &engine);
        }
    }
}

/// Ends queues that an earlier driver left on the hardware, if there are any: one that crashed, or
/// whose device did not answer when it was to be taken down. Their memory is not theirs any more, so
/// they must not save anything. Sleeps; bounded.
///
/// Returns whether all came to rest. If not, a copy engine that cannot be reset alone is in the middle of a packet; it
/// is halted, and must not run again before the chip was reset.
///
/// # Errors
///
/// `EIO` if the device does not answer.
pub(super) fn quiesce_stale_queues(hw: &Hw) -> Result<bool> {
    let occupied = |slot: Slot| {
        let _bank = hw.select(slot.select());
        hw.read(hqd::CP_HQD_ACTIVE) & HqdActive::ACTIVE.mask() != 0
    };
    let user_slots = (0..SLOTS_PER_MEC).filter_map(Slot::from_bit);
    let compute = Iterator::chain(user_slots, [Slot::HIQ, Slot::KIQ])
        .filter(|slot| occupied(*slot))
        .count();
    // One that was disabled counts, too, while its packet goes on.
    let copying = contexts(hw)
        .filter(|block| Copying::of(hw, block) != Copying::Idle)
        .count();
    hw.check_alive()?;
    if compute + copying == 0 {
        return Ok(true);
    }
    dev_notice!(
        hw.dev(),
        "an earlier driver left {} compute and {} SDMA queues: resetting the engines\n",
        compute,
        copying
    );
    // The scheduler firmware first, for contexts that it has mapped are its own.
    reset::compute(hw)?;
    for block in contexts(hw).filter(|block| Copying::of(hw, block) != Copying::Idle) {
        disable(hw, &block);
    }
    // An engine that runs has this time to complete its packet. One that the earlier driver halted stays
    // halted, for the owner of the memory that it would write is not known.
    match hw.wait(STOP_MS * 1000, || Ok((!is_copying(hw)).then_some(()))) {
        Err(error) if error != ETIMEDOUT => return Err(error),
        Ok(()) | Err(_) => {}
    }
    sdma::halt(hw);
    end_copies(hw);
    hw.check_alive()?;
    Ok(!is_copying(hw))
}

/// Asks the queue in `slot` to save itself, if there is one of a user. Returns its doorbell.
fn ask(hw: &Hw, slot: Slot) -> Option<DoorbellControl> {
    let _bank = hw.select(slot.select());
    if hw.is_lost() || hw.read(hqd::CP_HQD_ACTIVE) & HqdActive::ACTIVE.mask() == 0 {
        return None;
    }
    let vmid = HqdVmid::from_raw(hw.read(hqd::CP_HQD_VMID)).get(HqdVmid::VMID);
    if !hw.asic().owns_vmid(vmid) {
        return None;
    }
    let doorbell = hw.read(hqd::CP_HQD_PQ_DOORBELL_CONTROL);
    hw.write(
        hqd::CP_HQD_DEQUEUE_REQUEST,
        DequeueRequest::SAVE_WAVES.raw(),
    );
    Some(DoorbellControl::from_raw(doorbell))
}

fn is_free(hw: &Hw, slot: Slot) -> bool {
    let _bank = hw.select(slot.select());
    hw.read(hqd::CP_HQD_ACTIVE) & HqdActive::ACTIVE.mask() == 0
}

/// Takes the queue off `slot` that was asked to leave it, whether it did or not.
fn take(hw: &Hw, slot: Slot, doorbell: DoorbellControl) -> SavedQueue {
    let outcome = match is_free(hw, slot) {
        true => Outcome::Saved,
        false => Outcome::Refused,
    };
    let bank = hw.select(slot.select());
    hw.write(hqd::CP_HQD_DEQUEUE_REQUEST, DequeueRequest::NONE.raw());
    // Only now the pointers stand still, if they ever do.
    let queue = SavedQueue {
        doorbell: doorbell.get(DoorbellControl::OFFSET),
        rptr: u64::from(hw.read(hqd::CP_HQD_PQ_RPTR)),
        wptr: join(
            hw.read(hqd::CP_HQD_PQ_WPTR_LO),
            hw.read(hqd::CP_HQD_PQ_WPTR_HI),
        ),
        outcome,
    };
    if outcome != Outcome::Saved {
        hw.write(gc::SPI_COMPUTE_QUEUE_RESET, 1);
        drop(bank);
        // The reset of the engines, which follows, makes up for a failure.
        let _ = gfx::wait_free(hw, slot, STOP_MS * 1000);
    }
    queue
}

/// Lets a copy engine take no more packets of a queue.
fn disable(hw: &Hw, block: &Block) {
    hw.modify(block.rb_cntl(), |raw| {
        RbCntl::from_raw(raw).with(RbCntl::RB_ENABLE, 0).raw()
    });
    hw.write(block.doorbell(), 0);
}

fn is_idle(hw: &Hw, block: &Block) -> bool {
    ContextStatus::from_raw(hw.read(block.context_status())).is_set(ContextStatus::IDLE)
}

/// Doorbell of an SDMA queue, dword index on BAR2.
fn doorbell_of(hw: &Hw, block: &Block) -> u32 {
    DoorbellOffset::from_raw(hw.read(block.doorbell_offset())).get(DoorbellOffset::OFFSET)
}

/// Where an SDMA queue stands that was disabled. One that the firmware was about to stop has not been
/// saved either.
fn stopped(hw: &Hw, block: &Block) -> SavedQueue {
    SavedQueue {
        doorbell: doorbell_of(hw, block),
        rptr: join(hw.read(block.rb_rptr()), hw.read(block.rb_rptr_hi())),
        wptr: join(hw.read(block.rb_wptr()), hw.read(block.rb_wptr_hi())),
        outcome: match is_idle(hw, block) {
            true => Outcome::Stopped,
            false => Outcome::Refused,
        },
    }
}
