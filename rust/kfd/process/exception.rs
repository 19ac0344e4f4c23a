// SPDX-License-Identifier: GPL-2.0

//! What the runtime of a process learns when one of its queues fails.
//!
//! A runtime that has called RUNTIME_ENABLE puts the address of a 64-bit word and the id of an event into the
//! header of each queue's context save area. The driver adds the reasons to the word, one bit each, and
//! signals the event (`kfd_send_exception_to_runtime` of upstream).
//!
//! Interrupts bring the reports; a work item delivers them, because that touches memory of the process and
//! takes its lock, for which interrupts must not wait. Memory is touched with the lock held, so that a queue
//! that is destroyed is not found and its save area may become something else; but only while it is present.
//! What is absent is brought in without the lock, which the thread that serves the fault may want.
//!
//! `Process::failures`, a spinlock for the sake of the interrupt thread, is taken with the process lock held or
//! without it, and is innermost.

use super::{
    shared::Process,
    state::State, //
};
use crate::{
    event::reasons::Reasons,
    kapi::{
        abi::abi_struct,
        task::{
            bring_in,
            read_present,
            with_user_memory,
            write_present, //
        }, //
    },
};
use kernel::{
    impl_has_work,
    mm::MmWithUser,
    prelude::*,
    sync::Arc,
    transmute::AsBytes,
    workqueue::WorkItem, //
};

abi_struct! {
    /// Header of a context save area (`kfd_context_save_area_header`).
    struct SaveAreaHeader: 40 {
        /// Of the control stack and the wave state: offset and size of each, bytes.
        wave_state: [u32; 4],
        /// Offset of the debugger's memory.
        debug_offset: u32,
        /// Bytes of it.
        debug_size: u32,
        /// Where reasons are reported, 0: nowhere.
        err_payload_addr: u64,
        /// Event that is signalled with reasons.
        err_event_id: u32,
        /// Unused.
        reserved: u32,
    }
}

/// User memory that cannot be touched without waiting.
struct Absent {
    address: u64,
    len: usize,
    write: bool,
}

/// How the delivery of a report went.
enum Step {
    /// There was none.
    Idle,
    /// The report is done with; the event to signal, if there is one.
    Done(Option<u32>),
    /// To be repeated when the memory is there.
    Absent(Absent),
}

impl_has_work! {
    impl HasWork<Self, 1> for Process { self.report }
}

impl WorkItem<1> for Process {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let Some(mm) = this.mm.mmget_not_zero() else {
            return;
        };
        // The address space cannot end in here, where its end would be waited for.
        let mm = MmWithUser::into_mmput_async(mm);
        // Fails for callers with memory of their own only, which this is none of.
        let _ = with_user_memory(&mm, || this.report_failures());
    }
}

impl Process {
    /// Reports to the runtime of the process, if it has enabled that, why the queue with `doorbell` on GPU
    /// `device` failed. Returns whether it has.
    pub(super) fn queue_failed(
        self: &Arc<Self>,
        device: usize,
        doorbell: u32,
        reasons: Reasons,
    ) -> bool {
        if !self.is_runtime_enabled() {
            return false;
        }
        let added = self.failures.lock().add(device, doorbell, reasons);
        if added.is_err() {
            pr_warn!("pid {}: no memory to report a failed queue\n", self.pid());
        } else {
            self.enqueue::<1>();
        }
        true
    }

    /// Forgets what failed of queues that had `doorbell` on GPU `device` before the one that is being made,
    /// which must have the doorbell and not be on the hardware, nor found by its doorbell, yet. Without the
    /// process lock: it waits for the interrupt rings to be read.
    ///
    /// A vector names a queue by its doorbell and may be served late. A doorbell is free only when its queue is
    /// off the hardware, so what that queue raised is on the interrupt ring by now, and in the list after the
    /// ring was served. Here and not where the queue is destroyed, because a doorbell whose queue did not
    /// stop comes back later, after a reset for one.
    pub(crate) fn forget_failures(&self, device: usize, doorbell: u32) {
        if let Some(own) = self.devices.get(device) {
            own.device().gpu().catch_up();
        }
        self.failures.lock().forget(device, doorbell);
    }

    /// Delivers what there is, in a thread with the memory of the process.
    fn report_failures(&self) {
        loop {
            match self.report_one() {
                Step::Idle => return,
                Step::Done(Some(event)) => {
                    // An id that is none of a signal event is the runtime's mistake.
                    let _ = self.events.set(event);
                }
                Step::Done(None) => {}
                // Where this fails the next attempt finds nothing, either, and at last none is made.
                Step::Absent(part) => {
                    let _ = bring_in(part.address, part.len, part.write);
                }
            }
        }
    }

    /// Delivers the oldest report.
    fn report_one(&self) -> Step {
        let state = self.state.lock();
        let Some(failed) = self.failures.lock().first() else {
            return Step::Idle;
        };
        let area = if self.is_runtime_enabled() {
            save_area(&state, failed.device, failed.doorbell)
        } else {
            None
        };
        let event = match area.map(|area| deliver(area, failed.reasons)) {
            Some(Ok(event)) => Some(event),
            Some(Err(part)) => {
                if self.failures.lock().is_worth_another_attempt(&failed) {
                    return Step::Absent(part);
                }
                pr_debug!(
                    "pid {}: nothing at {:#x} to tell why a queue failed\n",
                    self.pid(),
                    part.address
                );
                None
            }
            None => None,
        };
        self.failures.lock().done(&failed);
        Step::Done(event)
    }
}

/// Address of the context save area of a queue.
fn save_area(state: &State, device: usize, doorbell: u32) -> Option<u64> {
    let area = state.queues.save_area(device, doorbell)?;
    (area != 0).then_some(area)
}

/// Adds reasons to the word that the save area at `area` names; returns the event to signal.
fn deliver(area: u64, reasons: u64) -> core::result::Result<u32, Absent> {
    let read = |address: u64, bytes: &mut [u8]| {
        read_present(address, bytes).map_err(|_| Absent {
            address,
            len: bytes.len(),
            write: false,
        })
    };
    let mut header = SaveAreaHeader::default();
    read(area, header.as_bytes_mut())?;
    let word = header.err_payload_addr;
    let mut payload = 0u64;
    read(word, AsBytes::as_bytes_mut(&mut payload))?;
    payload |= reasons;
    write_present(word, AsBytes::as_bytes(&payload)).map_err(|_| Absent {
        address: word,
        len: core::mem::size_of_val(&payload),
        write: true,
    })?;
    Ok(header.err_event_id)
}
