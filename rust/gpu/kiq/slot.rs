// SPDX-License-Identifier: GPL-2.0

//! The slot of a queue that the driver itself puts on the hardware: loading it, draining it and emptying it by
//! registers.
//!
//! Source: `gfx_v9_0.c` (`kiq_setting`, `kiq_init_register`, `kiq_fini_register`).
//!
//! Lock order: the bank lock of [`Hw::select`] is taken here and held while waiting for the slot.

use kernel::prelude::*;

use crate::{
    gpu::{
        access::Hw,
        gfx, //
    },
    hw::{
        mqd::ComputeMqd,
        regs::{
            gc::{
                self,
                CpMecCntl,
                PqWptrPollCntl,
                RlcCpSchedulers, //
            },
            hqd::{
                self,
                DequeueRequest,
                DoorbellControl,
                HqdActive,
                Slot, //
            },
            Reg, //
        },
        timeouts::HQD_DEQUEUE_MS, //
    }, //
};

/// Registers that are loaded from the descriptor before the doorbell is turned on, in order.
const LOAD: [Reg; 10] = [
    hqd::CP_MQD_BASE_ADDR,
    hqd::CP_MQD_BASE_ADDR_HI,
    hqd::CP_MQD_CONTROL,
    hqd::CP_HQD_PQ_BASE,
    hqd::CP_HQD_PQ_BASE_HI,
    hqd::CP_HQD_PQ_CONTROL,
    hqd::CP_HQD_PQ_RPTR_REPORT_ADDR,
    hqd::CP_HQD_PQ_RPTR_REPORT_ADDR_HI,
    hqd::CP_HQD_PQ_WPTR_POLL_ADDR,
    hqd::CP_HQD_PQ_WPTR_POLL_ADDR_HI,
];
/// Registers that come after it; the last one starts the queue.
const LOAD_LATE: [Reg; 6] = [
    hqd::CP_HQD_PQ_DOORBELL_CONTROL,
    hqd::CP_HQD_PQ_WPTR_LO,
    hqd::CP_HQD_PQ_WPTR_HI,
    hqd::CP_HQD_VMID,
    hqd::CP_HQD_PERSISTENT_STATE,
    hqd::CP_HQD_ACTIVE,
];

/// Writes the register that mirrors a dword of the descriptor.
fn mirror(hw: &Hw, mqd: &ComputeMqd, reg: Reg) -> Result {
    let entry = hqd::WINDOW
        .iter()
        .find(|entry| entry.reg == reg)
        .ok_or(EINVAL)?;
    hw.write(reg, mqd.word(entry.mqd_dw));
    Ok(())
}

/// Loads a privileged queue of VMID 0 into `slot`. Sleeps.
///
/// # Errors
///
/// `ETIMEDOUT` if what was in the slot does not leave it; `EIO` if the slot does not become active, or
/// the device is lost.
pub(super) fn load(hw: &Hw, slot: Slot, mqd: &ComputeMqd) -> Result {
    // Which slot belongs to the kernel; the valid bit comes in a second write.
    for code in [
        slot.scheduler_code() & !gc::SCHEDULER_VALID,
        slot.scheduler_code(),
    ] {
        hw.modify(gc::RLC_CP_SCHEDULERS, |raw| {
            RlcCpSchedulers::from_raw(raw)
                .with(RlcCpSchedulers::SCHEDULER0, code)
                .raw()
        });
    }

    // A queue of an earlier driver must go first.
    dequeue(hw, slot)?;
    let _bank = hw.select(slot.select());
    hw.modify(gc::CP_PQ_WPTR_POLL_CNTL, |raw| {
        PqWptrPollCntl::from_raw(raw)
            .with(PqWptrPollCntl::EN, 0)
            .raw()
    });
    for reg in [
        hqd::CP_HQD_EOP_BASE_ADDR,
        hqd::CP_HQD_EOP_BASE_ADDR_HI,
        hqd::CP_HQD_EOP_CONTROL,
    ] {
        mirror(hw, mqd, reg)?;
    }
    hw.write(hqd::CP_HQD_PQ_RPTR, 0);
    for reg in LOAD {
        mirror(hw, mqd, reg)?;
    }
    gfx::doorbell_range(hw);
    for reg in LOAD_LATE {
        mirror(hw, mqd, reg)?;
    }
    if hw.read(hqd::CP_HQD_ACTIVE) & HqdActive::ACTIVE.mask() == 0 {
        dev_err!(hw.dev(), "the KIQ's slot does not become active\n");
        return Err(EIO);
    }
    Ok(())
}

/// Lets the queue in `slot` drain, if there is one, and waits until the slot is free. Sleeps.
///
/// # Errors
///
/// `ETIMEDOUT` if the slot stays active, `EIO` if the device is lost.
pub(super) fn dequeue(hw: &Hw, slot: Slot) -> Result {
    let _bank = hw.select(slot.select());
    let active = HqdActive::ACTIVE.mask();
    if hw.read(hqd::CP_HQD_ACTIVE) & active == 0 {
        return Ok(());
    }
    if hw.is_lost() {
        return Err(EIO);
    }
    hw.write(hqd::CP_HQD_DEQUEUE_REQUEST, DequeueRequest::DRAIN.raw());
    let done = hw.poll(hqd::CP_HQD_ACTIVE, active, 0, HQD_DEQUEUE_MS * 1000);
    hw.write(hqd::CP_HQD_DEQUEUE_REQUEST, DequeueRequest::NONE.raw());
    if done.is_ok() {
        hw.write(hqd::CP_HQD_PQ_RPTR, 0);
        hw.write(hqd::CP_HQD_PQ_WPTR_LO, 0);
        hw.write(hqd::CP_HQD_PQ_WPTR_HI, 0);
    }
    done.map(|_| ())
}

/// Empties `slot` for good (`gfx_v9_0_kiq_fini_register`). Sleeps.
///
/// The ACTIVE bit of a slot that does not drain is not cleared by hand, as the C driver does it: its engine may
/// still work on it. Its pipe is reset, which ends that.
///
/// # Errors
///
/// `ETIMEDOUT` if the slot stays active after the reset, `EIO` if the device is lost.
pub(super) fn unload(hw: &Hw, slot: Slot) -> Result {
    let result = dequeue(hw, slot).or_else(|e| {
        dev_warn!(
            hw.dev(),
            "queue me {} pipe {} does not drain ({:?}): resetting its pipe\n",
            slot.me(),
            slot.pipe(),
            e
        );
        reset_pipe(hw, slot)
    });
    let bank = hw.select(slot.select());
    hw.write(hqd::CP_HQD_PERSISTENT_STATE, 0);
    hw.write(
        hqd::CP_HQD_PQ_DOORBELL_CONTROL,
        DoorbellControl::new().with(DoorbellControl::EN, 0).raw(),
    );
    drop(bank);
    clear_schedulers(hw);
    result
}

/// Resets the pipe of `slot` and waits until the slot is free.
fn reset_pipe(hw: &Hw, slot: Slot) -> Result {
    let _bank = hw.select(slot.select());
    hw.write(gc::CP_MEC_CNTL, CpMecCntl::reset_pipe(slot).raw());
    hw.write(gc::CP_MEC_CNTL, CpMecCntl::RUN.raw());
    hw.poll(
        hqd::CP_HQD_ACTIVE,
        HqdActive::ACTIVE.mask(),
        0,
        HQD_DEQUEUE_MS * 1000,
    )
    .map(|_| ())
}

/// No slot is the driver's own any more.
pub(super) fn clear_schedulers(hw: &Hw) {
    hw.modify(gc::RLC_CP_SCHEDULERS, |raw| {
        RlcCpSchedulers::from_raw(raw)
            .with(RlcCpSchedulers::SCHEDULER0, 0)
            .with(RlcCpSchedulers::SCHEDULER1, 0)
            .raw()
    });
}
