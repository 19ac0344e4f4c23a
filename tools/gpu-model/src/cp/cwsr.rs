// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Saving a preempted queue into its context save area, and going on from there.
//!
//! On hardware a trap handler writes the waves there; nothing runs in waves here, so what a queue with unfinished
//! work leaves is an opaque record of it.  Sizes, offsets and places are those of `kfd_mqd_manager_v9.c`: an entry on
//! the control stack in the page behind the MQD, which grows downwards, and the record in the queue's own save area
//! behind its control stack, growing upwards.  As on hardware, the command processor's own state is in the MQD: the
//! record has to be there when the queue goes on, but queues that share an area do not lose their place.

use super::hqd::{f, r};
use super::mqd::{MAX_FRAMES, MEC};
use super::queue::{Outcome, Role, Run};
use super::slot::SlotId;
use crate::device::Gpu;
use crate::vm::access::VmError;
use crate::vm::Access;

/// "CWSR".
const MAGIC: u32 = 0x5253_5743;
/// Bytes of one entry of the control stack.
const ENTRY: u32 = 8;
/// Dwords of the state.
const RECORD: usize = 64;
/// Where the frames begin.
const FRAMES: usize = 12;
/// Where the serial number of the save lies.
const SERIAL: usize = FRAMES - 1;
/// From the MQD to its control stack.
const STACK_PAGE: u64 = 4096;

/// A queue's save area.
#[derive(Debug, Clone, Copy)]
struct Area {
    /// Address in the queue's VMID.
    base: u64,
    /// Bytes of control stack.
    stack: u32,
    /// Bytes of all of it.
    size: u32,
}

fn checksum(words: &[u32]) -> u32 {
    words
        .iter()
        .fold(MAGIC, |sum, w| sum.rotate_left(5).wrapping_add(*w))
}

impl Gpu {
    fn save_area(&self, slot: SlotId) -> Option<Area> {
        let h = self.cp.hqd(slot);
        let base = h.pair(r::CTX_SAVE_BASE);
        let on = h.reg(r::PERSISTENT_STATE) & f::QSWITCH_MODE != 0;
        (on && base != 0).then(|| Area {
            base,
            stack: h.reg(r::CNTL_STACK_SIZE),
            size: h.reg(r::CTX_SAVE_SIZE),
        })
    }

    fn set_saved(&mut self, slot: SlotId, area: Area, stack: u32, state: u32) {
        let h = self.cp.hqd_mut(slot);
        h.set(r::CNTL_STACK_OFFSET, area.stack.wrapping_sub(stack));
        h.set(r::WG_STATE_OFFSET, area.stack.wrapping_add(state));
    }

    /// Empties the save area of a queue.
    pub fn cwsr_forget(&mut self, slot: SlotId) {
        if let Some(area) = self.save_area(slot) {
            self.set_saved(slot, area, 0, 0);
        }
    }

    /// Whether the registers of a queue say that something was saved.
    pub fn cwsr_saved(&self, slot: SlotId) -> bool {
        let h = self.cp.hqd(slot);
        self.save_area(slot)
            .is_some_and(|a| h.reg(r::WG_STATE_OFFSET) > a.stack)
    }

    /// Fills the save area of a stopped queue, if it has one.
    pub fn cwsr_save(&mut self, slot: SlotId, mqd: u64, run: &Run) {
        let Some(area) = self.save_area(slot).filter(|_| run.role == Role::User) else {
            return;
        };
        if run.restore.is_some() {
            // It never got to look at its record: that is still where it was.
            return;
        }
        let fetched = !run.fetch_rptr && !run.poll_wptr;
        let inside = !run.frames.is_empty() || run.progress != 0 || run.stalled || run.in_vendor;
        let idle = !inside && (!fetched || run.pending() == 0);
        if idle {
            self.set_saved(slot, area, 0, 0);
            return;
        }
        let bytes = RECORD as u32 * 4;
        let room = area.stack >= ENTRY && area.size >= area.stack.saturating_add(bytes);
        let entry = (mqd + STACK_PAGE + u64::from(area.stack)).wrapping_sub(ENTRY.into());
        let at = area.base.wrapping_add(u64::from(area.stack));
        if !room || self.peek_u32(MEC, entry).is_none() {
            let text = format!(
                "{slot}: cntl_stack_size {:#x} ctx_save_size {:#x}, control stack at {entry:#x}: nothing can be saved",
                area.stack, area.size
            );
            self.protocol_error("cwsr", text);
            self.set_saved(slot, area, 0, 0);
            return;
        }
        if !self.vm_accessible(run.client(), at, bytes as usize, Access::Write) {
            let text = format!("{slot}: the save area at {at:#x} is not writable");
            self.user_error("cwsr-area", text);
            self.set_saved(slot, area, 0, 0);
            return;
        }
        self.cp.saves = self.cp.saves.wrapping_add(1);
        let serial = self.cp.saves;
        let words = record(run, serial);
        // Both places were looked at above.
        let _ = self.vm_write_dwords(run.client(), at, &words);
        let _ = self.vm_write_dwords(MEC, entry, &[MAGIC, serial]);
        self.set_saved(slot, area, ENTRY, bytes);
        self.trace_sched(slot, "SAVE", format!("{bytes:#x} bytes at {at:#x}"));
    }

    /// Looks for the record of a queue before it runs on.
    ///
    /// # Errors
    /// The save area is not there yet.
    pub fn cwsr_restore(&mut self, slot: SlotId, run: &mut Run, mqd: u64) -> Result<(), Outcome> {
        let Some(area) = self.save_area(slot) else {
            run.restore = None;
            return Ok(());
        };
        let at = area.base.wrapping_add(u64::from(area.stack));
        let entry = mqd + STACK_PAGE + u64::from(self.cp.hqd(slot).reg(r::CNTL_STACK_OFFSET));
        let mut words = [0u32; RECORD];
        let mut head = [0u32; 2];
        if self.peek_u32(MEC, entry).is_some() {
            // A failing read leaves zeros, which are no entry.
            let _ = self.vm_read_dwords(MEC, entry, &mut head);
        }
        let [magic, serial] = head;
        let intact = match self.vm_read_dwords(run.client(), at, &mut words) {
            Ok(()) => magic == MAGIC && is_record(&words, serial),
            Err(VmError::Retry) => return Err(Outcome::Wait),
            Err(VmError::Fault) => false,
        };
        if !intact {
            self.log.stats.saves_changed += 1;
            let text = format!(
                "the record at {at:#x} is not the one that was saved ({serial}, found {})",
                words.get(SERIAL).copied().unwrap_or(0)
            );
            self.trace_sched(slot, "SAVE_AREA_CHANGED", text);
        }
        run.restore = None;
        self.set_saved(slot, area, 0, 0);
        self.trace_sched(slot, "RESTORE", format!("from {at:#x}"));
        Ok(())
    }
}

fn record(run: &Run, serial: u32) -> [u32; RECORD] {
    let mut words = [0u32; RECORD];
    let head = [
        MAGIC,
        RECORD as u32 * 4,
        run.doorbell,
        u32::from(run.stalled) | (u32::from(run.in_vendor) << 1),
        run.progress as u32,
        (run.progress >> 32) as u32,
        run.frames.len().min(MAX_FRAMES) as u32,
        run.rptr as u32,
        (run.rptr >> 32) as u32,
        run.wptr as u32,
        (run.wptr >> 32) as u32,
        serial,
    ];
    for (d, s) in words.iter_mut().zip(head) {
        *d = s;
    }
    let frames = words.get_mut(FRAMES..).unwrap_or(&mut []);
    for (d, fr) in frames.chunks_exact_mut(4).zip(&run.frames) {
        d.copy_from_slice(&[fr.base as u32, (fr.base >> 32) as u32, fr.size, fr.pos]);
    }
    if let Some((last, rest)) = words.split_last_mut() {
        *last = checksum(rest);
    }
    words
}

/// Whether a record is whole and the one that the entry in the kernel's control stack names.
fn is_record(words: &[u32; RECORD], serial: u32) -> bool {
    let whole = words
        .split_last()
        .is_some_and(|(last, rest)| *last == checksum(rest));
    let [magic, size, ..] = *words;
    magic == MAGIC && size == RECORD as u32 * 4 && whole && words.get(SERIAL) == Some(&serial)
}
