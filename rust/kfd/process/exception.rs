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
//! `Process::failures` is taken with the process lock held or without it, and is innermost. The lock of the
//! interrupt rings comes after the process lock.

use super::{
    Process,
    State, //
};
use crate::{
    hw::ih::PacketException,
    kapi::{
        abi::abi_struct,
        task::{
            bring_in,
            read_present,
            with_user_memory,
            write_present, //
        }, //
    },
    kfd::device::Device,
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
        /// Event that tells of reasons.
        err_event_id: u32,
        /// Unused.
        reserved: u32,
    }
}

/// Reasons, one bit each: `KFD_EC_MASK` of `linux/kfd_ioctl.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reasons(u64);

/// First and last exception of packets.
const PACKET_CODES: core::ops::RangeInclusive<u32> = 16..=23;
/// First and last exception of waves.
const WAVE_CODES: core::ops::RangeInclusive<u32> = 1..=6;
/// Others of queues: preemption error, new.
const QUEUE_CODES: core::ops::RangeInclusive<u32> = 30..=31;
/// A message of the trap handler: doorbell id below, reasons from here on.
const TRAP_SHIFT: u32 = 10;

const fn mask(codes: &core::ops::RangeInclusive<u32>) -> u64 {
    // CAST: Codes are below 64.
    (u64::MAX >> (64 - *codes.end())) & (u64::MAX << (*codes.start() - 1))
}

impl Reasons {
    /// The reason that a packet was refused for; `None` where the interface has no name for it.
    pub(crate) fn of_packet(code: PacketException) -> Option<Self> {
        let code = code.code();
        PACKET_CODES.contains(&code).then(|| Self(1 << (code - 1)))
    }

    /// What a trap handler reports in its message, with the doorbell id of the queue; `None` if that is no
    /// failure of a queue.
    pub(crate) fn of_trap(message: u32) -> Option<(u32, Self)> {
        let reasons = u64::from(message >> TRAP_SHIFT);
        let known = mask(&PACKET_CODES) | mask(&WAVE_CODES) | mask(&QUEUE_CODES);
        (reasons & known != 0).then_some((message & ((1 << TRAP_SHIFT) - 1), Self(reasons)))
    }

    /// The bits.
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }
}

/// A queue that failed.
struct Failed {
    gpu_id: u32,
    /// Id in the slice.
    doorbell: u32,
    reasons: u64,
    /// How often memory for the report was absent.
    absent: u32,
}

/// So often memory for a report may be absent.
const MAX_ABSENT: u32 = 8;

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
    /// The report is done with; the event to signal, if somebody wants to know.
    Done(Option<u32>),
    /// To be repeated when the memory is there.
    Absent(Absent),
}

/// Failures that were not delivered yet, at most one entry per doorbell.
pub(super) struct Failures(KVec<Failed>);

impl Failures {
    pub(super) const fn new() -> Self {
        Self(KVec::new())
    }
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
    /// Tells the runtime of the process, if it wants to know, why the queue with `doorbell` failed.
    pub(crate) fn queue_failed(self: &Arc<Self>, device: &Device, doorbell: u32, reasons: Reasons) {
        if !self.is_runtime_enabled() {
            return;
        }
        let gpu_id = device.gpu_id();
        {
            let list = &mut self.failures.lock().0;
            let known = list
                .iter_mut()
                .find(|failed| failed.gpu_id == gpu_id && failed.doorbell == doorbell);
            match known {
                Some(failed) => failed.reasons |= reasons.bits(),
                None => {
                    let failed = Failed {
                        gpu_id,
                        doorbell,
                        reasons: reasons.bits(),
                        absent: 0,
                    };
                    // In the interrupt thread, which reclaim may have to wait for.
                    if list.push(failed, GFP_NOWAIT).is_err() {
                        pr_warn!("pid {}: no memory to report a failed queue\n", self.pid());
                        return;
                    }
                }
            }
        }
        self.enqueue::<1>();
    }

    /// Forgets what failed of queues that had `doorbell` before the one that is being made, which must not
    /// be on the hardware yet. `_state` keeps it from being found meanwhile.
    ///
    /// A vector names a queue by its doorbell and may be served late. A doorbell is free only when its queue is
    /// off the hardware, so what that queue raised is on the interrupt ring by now, and in the list after the
    /// ring was served. Here and not where the queue is destroyed, because a doorbell whose queue did not
    /// let go comes back later, after a reset for one.
    pub(crate) fn forget_failures(&self, _state: &State, device: &Device, doorbell: u32) {
        device.gpu().catch_up();
        let gpu_id = device.gpu_id();
        self.failures
            .lock()
            .0
            .retain(|failed| failed.gpu_id != gpu_id || failed.doorbell != doorbell);
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
        let list = &mut self.failures.lock().0;
        let Some(failed) = list.first_mut() else {
            return Step::Idle;
        };
        let area = match self.device(failed.gpu_id) {
            Ok((index, _)) if self.is_runtime_enabled() => {
                save_area(&state, index, failed.doorbell)
            }
            _ => None,
        };
        let event = match area.map(|area| deliver(area, failed.reasons)) {
            Some(Ok(event)) => Some(event),
            Some(Err(part)) if failed.absent < MAX_ABSENT => {
                failed.absent += 1;
                return Step::Absent(part);
            }
            Some(Err(part)) => {
                pr_debug!(
                    "pid {}: nothing at {:#x} to tell why a queue failed\n",
                    self.pid(),
                    part.address
                );
                None
            }
            None => None,
        };
        let _ = list.remove(0);
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
