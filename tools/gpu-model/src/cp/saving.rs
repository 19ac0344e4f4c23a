// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Writing the waves of a queue that leaves its slot to its save area, in pieces.
//!
//! When all waves are given back, none of them executes any more, and the queue stays connected, and runs nothing, until
//! they are off the compute units and written: ACTIVE stays 1, and who wants the queue off its slot waits as for those who
//! execute.  Each piece is translated when it is written.  The record and the first entry of the control stack, which make
//! the area valid, are written last, when the queue is off its slot.  What is under way belongs to the connected queue: when
//! that is reset, nothing more is written, and when the queue stays after all, its waves go on where they were.

use super::cwsr::{
    bytes_of, filler, record_of, Area, Sum, ENTRY, MAGIC, PAGE, RECORD_BYTES, STACK_PAGE,
};
use super::hqd::Hqd;
use super::mqd::MEC;
use super::queue::{Role, Run};
use super::slot::SlotId;
use crate::device::{Gpu, Wake};
use crate::feed::{CHUNK, PIECE};
use crate::vm::access::Reach;
use crate::vm::Access;
use crate::waves::front::Flight;
use crate::waves::measure::{Entries, Measure};
use crate::waves::saved::Encoder;

/// Longest control stack, as CP_HQD_CNTL_STACK_SIZE can tell (`gc_9_4_2_sh_mask.h`).
const MAX_STACK: u32 = 0xF000;
/// Bytes of the header of the area (`kfd_context_save_area_header`), which the driver writes.
const HEADER: usize = 40;
/// Bytes of an area whose pages are looked at between two looks at what else there is to do.
const LOOK: u32 = 1 << 17;
/// Groups that are measured between two such looks.
const GROUPS: usize = 256;
/// Groups that are taken off their units, or put into order when all are off, between two such looks.
const LEAVE: usize = 64;
/// Groups whose entries are written to the control stack at once, 16 KiB at most.
const STACK_GROUPS: usize = 128;

/// How far a save is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The waves are being taken off the compute units.
    Leaves,
    /// How much there is to save is being measured.
    Measures,
    /// So many bytes have been looked at; nothing is written before all have.
    Looks(u32),
    /// So many bytes behind the record are written.
    Writes(u32),
    /// So many bytes of the control stack are written, the first entry as if it was.
    Stacks(u32),
    /// All is written but the record and the first entry of the control stack.
    Written,
    /// Nothing is saved, which was told.
    Refused,
}

/// A save under way.
#[derive(Debug)]
pub struct Saving {
    area: Area,
    /// Where the record lies, and bytes from there on.
    at: u64,
    bytes: u32,
    measure: Measure,
    /// Where the control stack lies, and bytes of it that are used.
    stack: u64,
    used: u32,
    /// Number of the save.
    serial: u32,
    stage: Stage,
    /// A page was beyond reach because bus mastering is off.
    blocked: bool,
    /// The dispatches; what is encoded of them, how many bytes of that are written; how long they are, and their checksum.
    encoder: Encoder,
    buffer: Vec<u8>,
    taken: usize,
    waves: u32,
    sum: Sum,
    entries: Entries,
}

impl Saving {
    fn new(area: Area, mqd: u64) -> Self {
        Self {
            area,
            at: area.base.wrapping_add(u64::from(area.stack)),
            bytes: 0,
            measure: Measure::default(),
            stack: mqd.wrapping_add(STACK_PAGE),
            used: 0,
            serial: 0,
            stage: Stage::Leaves,
            blocked: false,
            encoder: Encoder::new(Measure::default()),
            buffer: Vec::new(),
            taken: 0,
            waves: 0,
            sum: Sum::default(),
            entries: Entries::default(),
        }
    }

    /// Where the used part of the control stack begins.
    fn first_entry(&self) -> u64 {
        let free = self.area.stack.saturating_sub(self.used);
        self.stack.wrapping_add(u64::from(free))
    }

    /// The queue can leave its slot.
    fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Written | Stage::Refused)
    }

    /// The next `len` bytes, the first of which is dword `i` of the state.
    fn next(&mut self, run: &Run, len: usize, i: u32) -> &[u8] {
        while self.buffer.len() - self.taken < len {
            self.buffer.drain(..self.taken);
            self.taken = 0;
            let before = self.buffer.len();
            if !self.encoder.put(run.flights(), &mut self.buffer) {
                break;
            }
            self.sum.add(self.buffer.get(before..).unwrap_or(&[]));
        }
        let from = i + ((self.buffer.len() - self.taken) / 4) as u32;
        for i in from..i + (len / 4) as u32 {
            let word = filler(self.serial, i);
            self.buffer.extend_from_slice(&word.to_le_bytes());
        }
        let from = self.taken;
        self.taken += len;
        self.buffer.get(from..self.taken).unwrap_or(&[])
    }
}

impl Gpu {
    /// Begins to save the waves of a queue that is about to leave its slot, if it has any and an area for them.  Returns
    /// whether it can leave: the waves are in its area, or there is no place for them.  The device is woken when that is so.
    pub(crate) fn is_saved(&mut self, slot: SlotId, mqd: u64) -> bool {
        let Some(run) = self.cp.hqd(slot).run() else {
            return true;
        };
        if let Some(saving) = &run.saving {
            return saving.is_over();
        }
        let has_waves = run.role == Role::User && run.flights().any(Flight::is_on);
        let Some(area) = self.save_area(slot).filter(|_| has_waves) else {
            return true;
        };
        self.freeze_kernel(slot);
        let Some(mut run) = self.cp.hqd_mut(slot).run.take() else {
            return true;
        };
        run.saving = Some(Box::new(Saving::new(area, mqd)));
        self.cp.hqd_mut(slot).run = Some(run);
        // The first piece is one of the next step, at the latest.
        self.soc.kick();
        false
    }

    /// Goes on with a save, if one is under way: with one piece at least, and as many as the step has time for.
    pub(crate) fn save_some(&mut self, wake: &mut Wake) {
        let saves = |run: &Run| run.saving.as_ref().is_some_and(|s| !s.is_over());
        // While bus mastering is off, the scheduler takes no queue off its slot, nor goes on with that.  A register does, and
        // loses what cannot be written.  The write that turns bus mastering on begins a step.
        let master = self.soc.mem.bus_master();
        let first = self
            .cp
            .iter()
            .find(|(_, h)| h.run().is_some_and(saves) && (master || h.dequeue_at.is_some()));
        let Some(slot) = first.map(|(slot, _)| slot) else {
            return;
        };
        let Some(mut run) = self.cp.hqd_mut(slot).run.take() else {
            return;
        };
        if let Some(mut saving) = run.saving.take() {
            for _ in 0..CHUNK / PIECE {
                self.save_piece(slot, &mut run, &mut saving);
                if saving.is_over() || self.soc.pressed() {
                    break;
                }
            }
            if saving.is_over() {
                // Who waits for that looks at it in the next step.
                self.soc.kick();
            }
            run.saving = Some(saving);
        }
        self.cp.hqd_mut(slot).run = Some(run);
        wake.busy();
    }

    /// Lets the waves go on that are being saved, but for those of a queue that a register takes off: who else stops taking
    /// queues off has no part in that.  A halt of its engine has.
    pub(crate) fn give_up_saves(&mut self) {
        let given_up = |slot: SlotId, h: &Hqd| {
            h.run().is_some_and(|run| run.saving.is_some())
                && (h.dequeue_at.is_none() || self.mec_halted(slot))
        };
        let slots: Vec<SlotId> = self
            .cp
            .iter()
            .filter(|(slot, h)| given_up(*slot, h))
            .map(|(slot, _)| slot)
            .collect();
        for slot in slots {
            if let Some(mut run) = self.cp.hqd_mut(slot).run.take() {
                run.saving = None;
                self.reseat_waves(&mut run);
                self.cp.hqd_mut(slot).run = Some(run);
            }
            self.soc.kick();
        }
    }

    /// Fills the save area of a stopped queue, if it has one.
    pub fn cwsr_save(&mut self, slot: SlotId, mqd: u64, run: &mut Run) {
        let Some(area) = self.save_area(slot).filter(|_| run.role == Role::User) else {
            return;
        };
        if run.restore.is_some() {
            // It never got to look at its record: that is still where it was.
            return;
        }
        let fetched = !run.fetch_rptr && !run.poll_wptr;
        let inside = !run.frames.is_empty()
            || run.progress != 0
            || run.stalled
            || run.in_vendor
            || run.flight.is_some();
        let idle = !inside && (!fetched || run.pending() == 0);
        if idle {
            self.set_saved(slot, area, 0, 0);
            return;
        }
        let mut saving = match run.saving.take() {
            Some(saving) => *saving,
            None => Saving::new(area, mqd),
        };
        while !saving.is_over() {
            self.save_piece(slot, run, &mut saving);
        }
        if saving.stage == Stage::Written {
            self.end_save(slot, run, &mut saving);
        }
        if saving.stage == Stage::Refused {
            self.set_saved(slot, saving.area, 0, 0);
        }
    }

    /// All is measured: whether there is room for it.
    fn save_room(&mut self, slot: SlotId, run: &Run, saving: &mut Saving) {
        let waves = saving.measure.bytes() as u32;
        let seats = saving.measure.waves();
        let bytes = (RECORD_BYTES + waves)
            .max(saving.measure.hardware_bytes())
            .max(self.soc.asic.least_wave());
        (saving.bytes, saving.waves) = (bytes, waves);
        saving.used = ENTRY * (1 + seats);
        saving.stage = Stage::Looks(0);
        let area = saving.area;
        let room = area.stack >= saving.used && area.size >= area.stack.saturating_add(bytes);
        let behind = self.reach_stack(saving);
        if !room || behind == Reach::Missing {
            self.refuse_stack(slot, saving);
            return;
        }
        self.look(slot, run, saving, area.base, HEADER);
        saving.blocked |= behind == Reach::Blocked;
    }

    fn reach_stack(&mut self, saving: &Saving) -> Reach {
        let length = saving.area.stack.min(MAX_STACK) as usize;
        self.soc.vm_reach(MEC, saving.stack, length, Access::Write)
    }

    fn refuse_stack(&mut self, slot: SlotId, saving: &mut Saving) {
        let text = format!(
            "{slot}: cntl_stack_size {:#x} ctx_save_size {:#x}, control stack at {:#x}: {:#x} bytes of {} waves cannot be \
             saved",
            saving.area.stack,
            saving.area.size,
            saving.stack,
            saving.bytes,
            saving.used / ENTRY - 1,
        );
        self.soc.protocol_error("cwsr", text);
        saving.stage = Stage::Refused;
    }

    /// A write would not leave the device: what the queue was doing is lost.
    fn lose(&mut self, saving: &mut Saving) {
        self.soc.log.stats.dma_blocked += 1;
        saving.stage = Stage::Refused;
    }

    /// Looks at a part of the area, `name` of which stands for it; the save is refused if that is missing.
    fn look(&mut self, slot: SlotId, run: &Run, saving: &mut Saving, at: u64, len: usize) {
        let name = if at >= saving.at && at < saving.at.wrapping_add(u64::from(saving.bytes)) {
            saving.at
        } else {
            at
        };
        match self.soc.vm_reach(run.client(), at, len, Access::Write) {
            Reach::There => {}
            Reach::Blocked => saving.blocked = true,
            Reach::Missing => {
                let text = format!("{slot}: the save area at {name:#x} is not writable");
                self.soc.user_error("cwsr-area", text);
                saving.stage = Stage::Refused;
            }
        }
    }

    fn save_piece(&mut self, slot: SlotId, run: &mut Run, saving: &mut Saving) {
        match saving.stage {
            Stage::Leaves => {
                if !self.unseat_waves(run, LEAVE) {
                    self.save_measure(slot, run, saving);
                }
            }
            Stage::Measures => self.save_measure(slot, run, saving),
            Stage::Looks(done) => self.save_look(slot, run, saving, done),
            Stage::Writes(done) => self.save_write(slot, run, saving, done),
            Stage::Stacks(done) => self.save_entries(slot, run, saving, done),
            Stage::Written | Stage::Refused => {}
        }
    }

    fn save_measure(&mut self, slot: SlotId, run: &Run, saving: &mut Saving) {
        saving.stage = Stage::Measures;
        if !saving.measure.measure(run.flights(), GROUPS) {
            self.save_room(slot, run, saving);
        }
    }

    /// Looks at what will be written, and at the end of what a queue full of waves would write.
    fn save_look(&mut self, slot: SlotId, run: &Run, saving: &mut Saving, done: u32) {
        let len = (saving.bytes - done).min(LOOK);
        let at = saving.at.wrapping_add(u64::from(done));
        saving.stage = Stage::Looks(done + len);
        self.look(slot, run, saving, at, len as usize);
        if saving.stage != Stage::Looks(saving.bytes) {
            return;
        }
        let Area { base, size, .. } = saving.area;
        let last = base.wrapping_add(u64::from(size.saturating_sub(PAGE)));
        self.look(slot, run, saving, last, PAGE as usize);
        if saving.stage == Stage::Refused {
            return;
        }
        if saving.blocked {
            self.lose(saving);
            return;
        }
        self.cp.saves = self.cp.saves.wrapping_add(1);
        saving.serial = self.cp.saves;
        saving.encoder = Encoder::new(std::mem::take(&mut saving.measure));
        saving.stage = Stage::Writes(0);
    }

    fn save_write(&mut self, slot: SlotId, run: &Run, saving: &mut Saving, done: u32) {
        let total = saving.bytes - RECORD_BYTES;
        let len = (total - done).min(PIECE as u32) as usize;
        let at = saving.at.wrapping_add(u64::from(RECORD_BYTES + done));
        // The pages may be others than those that were looked at.
        self.look(slot, run, saving, at, len);
        if saving.stage == Stage::Refused {
            return;
        }
        if saving.blocked {
            self.lose(saving);
            return;
        }
        let bytes = saving.next(run, len, (RECORD_BYTES + done) / 4);
        // As was looked at.
        let _ = self.soc.vm_write(run.client(), at, bytes);
        let done = done + len as u32;
        if done < total {
            saving.stage = Stage::Writes(done);
            return;
        }
        saving.stage = Stage::Stacks(ENTRY);
        if len + saving.used as usize <= PIECE as usize {
            // They are a part of the same piece.
            self.save_entries(slot, run, saving, ENTRY);
        }
    }

    /// Writes a part of the control stack.
    fn save_entries(&mut self, slot: SlotId, run: &Run, saving: &mut Saving, done: u32) {
        let mut entries = Vec::new();
        let more = saving
            .entries
            .put(run.flights(), STACK_GROUPS, &mut entries);
        let len = 4 * entries.len() as u32;
        let at = saving.first_entry().wrapping_add(u64::from(done));
        match self.soc.vm_reach(MEC, at, len as usize, Access::Write) {
            Reach::There => {}
            Reach::Blocked => return self.lose(saving),
            Reach::Missing => return self.refuse_stack(slot, saving),
        }
        // It was looked at.
        let _ = self.soc.vm_write_dwords(MEC, at, &entries);
        saving.stage = if more {
            Stage::Stacks(done + len)
        } else {
            Stage::Written
        };
    }

    /// Writes the record and the first entry of the control stack.
    fn end_save(&mut self, slot: SlotId, run: &Run, saving: &mut Saving) {
        let behind = self.reach_stack(saving);
        if behind == Reach::Missing {
            self.refuse_stack(slot, saving);
            return;
        }
        self.look(slot, run, saving, saving.at, RECORD_BYTES as usize);
        if saving.stage == Stage::Refused {
            return;
        }
        if saving.blocked || behind == Reach::Blocked {
            self.lose(saving);
            return;
        }
        let record = record_of(run, saving.serial, (saving.waves, saving.sum.value()));
        // Both places were looked at.
        let _ = self
            .soc
            .vm_write(run.client(), saving.at, &bytes_of(&record));
        let entry = [MAGIC, saving.serial];
        let _ = self.soc.vm_write_dwords(MEC, saving.first_entry(), &entry);
        self.set_saved(slot, saving.area, saving.used, saving.bytes);
        let text = format!("{:#x} bytes at {:#x}", saving.bytes, saving.at);
        self.trace_sched(slot, "SAVE", text);
    }
}
