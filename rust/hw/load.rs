// SPDX-License-Identifier: GPL-2.0

//! Loading queues into hardware by registers, where no scheduler firmware does it.
//!
//! A load is a sequence of register writes that follows from the queue's descriptor in memory, so
//! it is computed here and written elsewhere. Source: `amdgpu_amdkfd_gfx_v9.c` (`hqd_load`,
//! `hqd_sdma_load`, `hqd_sdma_destroy`).

use super::mqd::layout::{
    compute as at,
    sdma as sdma_at, //
};
use super::num::{
    hi32,
    join,
    lo32, //
};
use super::regs::gc::CP_PQ_WPTR_POLL_CNTL1;
use super::regs::hqd::{
    self,
    AqlControl,
    DequeueRequest,
    DoorbellControl,
    EopRptr,
    HqdActive,
    HqdVmid,
    PqControl,
    Slot,
    WINDOW, //
};
use super::regs::sdma::{
    Block,
    Doorbell,
    RbCntl,
    WptrPollCntl, //
};
use super::regs::Reg;

/// Most writes that [`compute`] makes.
pub(crate) const COMPUTE_WRITES: usize = WINDOW.len() + 8;
/// Writes that [`sdma`] makes.
pub(crate) const SDMA_WRITES: usize = 16;

/// Gives `put` the writes that load a user queue of `vmid` into `slot`, in order, all under the
/// selection of the slot.
///
/// `read` returns a dword of the descriptor, `wptr` is where user space stores the write pointer.
///
/// # Errors
///
/// Those of `read`; what was given to `put` before must not be written then.
pub(crate) fn compute<E>(
    slot: Slot,
    vmid: u32,
    wptr: u64,
    mut read: impl FnMut(usize) -> Result<u32, E>,
    mut put: impl FnMut(Reg, u32),
) -> Result<(), E> {
    for entry in WINDOW {
        let value = match entry.reg {
            // The last write starts the queue; a request that ended it before must not end it again.
            hqd::CP_HQD_ACTIVE => 0,
            hqd::CP_HQD_DEQUEUE_REQUEST => DequeueRequest::NONE.raw(),
            hqd::CP_HQD_VMID => HqdVmid::from_raw(read(entry.mqd_dw)?)
                .with(HqdVmid::VMID, vmid)
                .raw(),
            _ => read(entry.mqd_dw)?,
        };
        put(entry.reg, value);
    }
    // The doorbell must count before the write pointer is fetched.
    let doorbell = DoorbellControl::from_raw(read(at::CP_HQD_PQ_DOORBELL_CONTROL)?)
        .with(DoorbellControl::EN, 1);
    put(hqd::CP_HQD_PQ_DOORBELL_CONTROL, doorbell.raw());

    // What was rung while the queue had no slot is in memory: the engine fetches the pointer from
    // there, once. Until then it must find nothing to do.
    let start = start_pointer(&mut read)?;
    put(hqd::CP_HQD_PQ_WPTR_LO, lo32(start));
    put(hqd::CP_HQD_PQ_WPTR_HI, hi32(start));
    put(hqd::CP_HQD_PQ_WPTR_POLL_ADDR, lo32(wptr));
    put(hqd::CP_HQD_PQ_WPTR_POLL_ADDR_HI, hi32(wptr));
    put(CP_PQ_WPTR_POLL_CNTL1, slot.poll_mask());

    let eop = EopRptr::from_raw(read(at::CP_HQD_EOP_RPTR)?).with(EopRptr::INIT_FETCHER, 1);
    put(hqd::CP_HQD_EOP_RPTR, eop.raw());
    put(
        hqd::CP_HQD_ACTIVE,
        HqdActive::new().with(HqdActive::ACTIVE, 1).raw(),
    );
    Ok(())
}

/// The 64-bit write pointer with which a saved queue is empty.
///
/// A PM4 queue saves the read pointer wrapped at the ring's size: the write pointer, whose high part
/// was saved, is less than one ring ahead of it. An AQL queue's write pointer counts packets and
/// its read pointer does not, so that it starts with the pointer that it had.
fn start_pointer<E>(read: &mut impl FnMut(usize) -> Result<u32, E>) -> Result<u64, E> {
    let saved = join(read(at::CP_HQD_PQ_WPTR_LO)?, read(at::CP_HQD_PQ_WPTR_HI)?);
    if AqlControl::from_raw(read(at::CP_HQD_AQL_CONTROL)?).get(AqlControl::CONTROL0) != 0 {
        return Ok(saved);
    }
    let control = PqControl::from_raw(read(at::CP_HQD_PQ_CONTROL)?);
    // The descriptor is memory that the device writes: the field goes up to 63, beyond any ring.
    let ring = 2_u64
        .checked_shl(control.get(PqControl::QUEUE_SIZE))
        .unwrap_or(0);
    let rptr = u64::from(read(at::CP_HQD_PQ_RPTR)?);
    // Below zero only if memory was tampered with; the engine looks at the low bits alone then.
    Ok(saved.wrapping_sub(saved.wrapping_sub(rptr) & ring.wrapping_sub(1)))
}

/// RB_CNTL that stops the queue of an SDMA block, from its present value.
pub(crate) fn sdma_stopped(rb_cntl: u32) -> u32 {
    RbCntl::from_raw(rb_cntl).with(RbCntl::RB_ENABLE, 0).raw()
}

/// Gives `put` the writes that load a user queue of `vmid` into `block`, which is idle, in order.
///
/// The driver has no eyes in the process' memory, so the engine polls the write pointer at `wptr`
/// itself, as it does under a hypervisor that hides doorbells (`sdma_v4_0.c`).
///
/// # Errors
///
/// As [`compute`].
pub(crate) fn sdma<E>(
    block: Block,
    vmid: u32,
    wptr: u64,
    mut read: impl FnMut(usize) -> Result<u32, E>,
    mut put: impl FnMut(Reg, u32),
) -> Result<(), E> {
    let doorbell = Doorbell::from_raw(read(sdma_at::DOORBELL)?).with(Doorbell::ENABLE, 1);
    let rptr = [read(sdma_at::RB_RPTR)?, read(sdma_at::RB_RPTR_HI)?];
    put(block.doorbell_offset(), read(sdma_at::DOORBELL_OFFSET)?);
    put(block.doorbell(), doorbell.raw());
    put(block.rb_rptr(), rptr[0]);
    put(block.rb_rptr_hi(), rptr[1]);
    put(block.minor_ptr_update(), 1);
    put(block.rb_wptr(), rptr[0]);
    put(block.rb_wptr_hi(), rptr[1]);
    put(block.minor_ptr_update(), 0);
    put(block.rb_base(), read(sdma_at::RB_BASE)?);
    put(block.rb_base_hi(), read(sdma_at::RB_BASE_HI)?);
    put(block.rb_rptr_addr_lo(), read(sdma_at::RB_RPTR_ADDR_LO)?);
    put(block.rb_rptr_addr_hi(), read(sdma_at::RB_RPTR_ADDR_HI)?);
    put(block.rb_wptr_poll_addr_lo(), lo32(wptr));
    put(block.rb_wptr_poll_addr_hi(), hi32(wptr));
    put(block.rb_wptr_poll_cntl(), WptrPollCntl::USER.raw());
    let cntl = RbCntl::from_raw(read(sdma_at::RB_CNTL)?)
        .with(RbCntl::RB_VMID, vmid)
        .with(RbCntl::RB_ENABLE, 1);
    put(block.rb_cntl(), cntl.raw());
    Ok(())
}
