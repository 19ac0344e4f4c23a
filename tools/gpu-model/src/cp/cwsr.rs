// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Saving a preempted queue into its context save area, and going on from there.
//!
//! On hardware a trap handler writes the waves there.  Here the device writes them, in a form of its own
//! ([`crate::waves::saved`]), behind a record of the queue, and fills up to what its waves would take.  A queue with
//! unfinished work and without waves leaves what one wave with the fewest registers would.  Sizes, offsets and places are those of `kfd_mqd_manager_v9.c`: an entry of 8 bytes on the
//! control stack in the pages behind the MQD, which grows downwards, and the state in the queue's own save area
//! behind its control stack, growing upwards.  As on hardware, the command processor's own state is in the MQD: the
//! record has to be there when the queue goes on, but queues that share an area do not lose their place.
//!
//! How large the area and the stack have to be depends on the compute units that work (`kfd_queue.c`); a queue that is
//! connected with less is the driver's mistake, whether or not it is ever preempted.

use super::hqd::{f, r};
use super::mqd::{MAX_FRAMES, MEC};
use super::queue::{Outcome, Role, Run};
use super::slot::SlotId;
use crate::device::Gpu;
use crate::soc::Soc;
use crate::vm::access::{Reach, VmError, VmResult};
use crate::vm::{Access, Client};
use crate::waves::front::{Flight, MAX_LATER};
use crate::waves::saved;

/// "CWSR".
const MAGIC: u32 = 0x5253_5743;
/// Bytes of one entry of the control stack.
const ENTRY: u32 = 8;
/// Longest control stack, as CP_HQD_CNTL_STACK_SIZE can tell (`gc_9_4_2_sh_mask.h`).
const MAX_STACK: u32 = 0xF000;
/// Dwords of the record.
const RECORD: usize = 64;
/// Bytes of the header of the area (`kfd_context_save_area_header`), which the driver writes.
const HEADER: usize = 40;
/// Pages of the area.
const PAGE: u32 = 4096;
/// Where the frames begin.
const FRAMES: usize = 12;
/// Where the length of the saved dispatch lies, in dwords; its checksum follows.
const WAVES: usize = FRAMES + 4 * MAX_FRAMES;
/// Where the serial number of the save lies.
const SERIAL: usize = FRAMES - 1;
/// Dwords that are written or read at a time: they stay in the processor's cache between two copies.
const PIECE: usize = 4096;
/// Sums that a checksum is made of, which a processor can add beside each other.
const LANES: usize = 8;
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
    let add = |sum: u32, word: &u32| sum.rotate_left(5).wrapping_add(*word);
    let mut lanes = [MAGIC; LANES];
    let parts = words.chunks_exact(LANES);
    let rest = parts.remainder();
    for part in parts {
        for (lane, word) in lanes.iter_mut().zip(part) {
            *lane = add(*lane, word);
        }
    }
    lanes.iter().chain(rest).fold(MAGIC, add)
}

/// Writes dwords to a place that was looked at before.
fn write(soc: &mut Soc, client: Client, at: u64, words: &[u32]) {
    let mut bytes = vec![0; 4 * PIECE.min(words.len())];
    let mut to = at;
    for part in words.chunks(PIECE) {
        let (bytes, _) = bytes.split_at_mut(4 * part.len());
        for (byte, word) in bytes.chunks_exact_mut(4).zip(part) {
            byte.copy_from_slice(&word.to_le_bytes());
        }
        // As was looked at.
        let _ = soc.vm_write(client, to, bytes);
        to = to.wrapping_add(bytes.len() as u64);
    }
}

/// Reads so many dwords, or nothing: all pages are looked at first.
fn read(soc: &mut Soc, client: Client, at: u64, count: usize) -> VmResult<Vec<u32>> {
    soc.vm_probe(client, at, 4 * count, Access::Read)?;
    let mut words = Vec::with_capacity(count);
    let mut bytes = vec![0; 4 * PIECE.min(count)];
    while words.len() < count {
        let from = at.wrapping_add(4 * words.len() as u64);
        let (part, _) = bytes.split_at_mut(4 * PIECE.min(count - words.len()));
        soc.vm_read(client, from, part)?;
        let part = part.chunks_exact(4);
        words.extend(part.map(|b| b.try_into().map_or(0, u32::from_le_bytes)));
    }
    Ok(words)
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

    /// Whether a queue has a dispatch that cannot be saved: it leaves when its waves have ended, and not before.
    pub fn holds_waves(&self, slot: SlotId) -> bool {
        let run = self.cp.hqd(slot).run.as_ref();
        let held = run.is_some_and(|run| {
            let flight = run.flight.as_ref();
            // A packet of an AQL queue is complete when its signal is.
            flight.is_some_and(|flight| run.aql || flight.is_on())
        });
        held && self.save_area(slot).is_none()
    }

    /// As [`Gpu::holds_waves`]; such a queue starts no further dispatch then.
    pub fn drain(&mut self, slot: SlotId) -> bool {
        let holds = self.holds_waves(slot);
        if let Some(run) = self.cp.hqd_mut(slot).run.as_mut().filter(|_| holds) {
            run.draining = true;
        }
        holds
    }

    /// Reports a save area that does not hold what the waves of the queue may leave.
    pub fn cwsr_check(&mut self, slot: SlotId, role: Role) {
        let Some(area) = self.save_area(slot).filter(|_| role == Role::User) else {
            return;
        };
        let units = self.soc.active_units();
        let least = self.soc.asic.save_sizes(units);
        let aligned = area.base % u64::from(PAGE) == 0 && area.stack % PAGE == 0;
        if area.stack < least.stack || area.size < least.area || !aligned {
            let text = format!(
                "{slot}: ctx_save_base_addr {:#x} cntl_stack_size {:#x} ctx_save_size {:#x}; {units} compute units need \
                 {:#x} and {:#x}, in whole pages",
                area.base, area.stack, area.size, least.stack, least.area
            );
            self.soc.protocol_error("cwsr", text);
        }
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
        let mut words = vec![0; RECORD];
        saved::encode_all(run.flights(), &mut words);
        let seats = run.flights().map(Flight::waves).sum::<u32>();
        let hardware = run.flights().map(Flight::hardware_bytes).sum::<u32>();
        let bytes = (words.len() as u32 * 4)
            .max(hardware)
            .max(self.soc.asic.least_wave());
        let used = ENTRY * (1 + seats);
        let room = area.stack >= used && area.size >= area.stack.saturating_add(bytes);
        let stack = mqd.wrapping_add(STACK_PAGE);
        let entry = stack.wrapping_add(u64::from(area.stack.saturating_sub(used)));
        let at = area.base.wrapping_add(u64::from(area.stack));
        let length = area.stack.min(MAX_STACK) as usize;
        let behind = self.soc.vm_reach(MEC, stack, length, Access::Write);
        if !room || behind == Reach::Missing {
            let text = format!(
                "{slot}: cntl_stack_size {:#x} ctx_save_size {:#x}, control stack at {stack:#x}: {bytes:#x} bytes of \
                 {seats} waves cannot be saved",
                area.stack, area.size
            );
            self.soc.protocol_error("cwsr", text);
            self.set_saved(slot, area, 0, 0);
            return;
        }
        // The header, what is written, and the end of what a queue full of waves would write.
        let page = PAGE as usize;
        let last = area
            .base
            .wrapping_add(u64::from(area.size.saturating_sub(PAGE)));
        let places = [(area.base, HEADER), (at, bytes as usize), (last, page)];
        let reach = places.map(|(at, len)| {
            let reach = self.soc.vm_reach(run.client(), at, len, Access::Write);
            (at, reach)
        });
        if let Some((lacks, _)) = reach.iter().find(|(_, r)| *r == Reach::Missing) {
            let text = format!("{slot}: the save area at {lacks:#x} is not writable");
            self.soc.user_error("cwsr-area", text);
            self.set_saved(slot, area, 0, 0);
            return;
        }
        if behind == Reach::Blocked || reach.iter().any(|(_, r)| *r == Reach::Blocked) {
            // A write that does not leave the device: what the queue was doing is lost.
            self.soc.log.stats.dma_blocked += 1;
            self.set_saved(slot, area, 0, 0);
            return;
        }
        self.cp.saves = self.cp.saves.wrapping_add(1);
        let serial = self.cp.saves;
        fill(&mut words, bytes as usize / 4, run, serial);
        let mut entries = vec![MAGIC, serial];
        entries.extend(run.flights().flat_map(Flight::entries).flatten());
        write(&mut self.soc, run.client(), at, &words);
        // This place was looked at as well.
        let _ = self.soc.vm_write_dwords(MEC, entry, &entries);
        self.set_saved(slot, area, used, bytes);
        self.trace_sched(slot, "SAVE", format!("{bytes:#x} bytes at {at:#x}"));
    }

    /// Lets the dispatches go on that lie in a saved state, if there are any.
    fn restore_waves(&mut self, slot: SlotId, run: &mut Run, words: &[u32]) -> Result<(), Outcome> {
        let length = words.get(WAVES).copied().unwrap_or(0) as usize;
        if length == 0 {
            return Ok(());
        }
        let part = words.get(RECORD..).and_then(|words| words.get(..length));
        let base = self.kernel_of(slot, run, [0; 3], 0);
        let most = if run.aql { 1 + MAX_LATER } else { 1 };
        let saved = part.and_then(|words| saved::decode_all(words, &base, most));
        let held = saved.filter(|all| {
            all.iter().all(|saved| {
                let kernel = saved.frozen.as_ref().map(|frozen| &frozen.kernel);
                kernel.is_none_or(|kernel| self.waves.dispatcher.can_hold(kernel))
            })
        });
        let Some(saved) = held else {
            self.soc
                .user_error("cwsr-waves", format!("{slot}: its waves were changed"));
            return Err(Outcome::Halt("the saved waves are none"));
        };
        for saved in saved {
            let flight = self.resume_flight(saved);
            if run.flight.is_none() {
                run.flight = Some(flight);
            } else {
                run.later.push_back(flight);
            }
        }
        Ok(())
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
        let saved = self.cp.hqd(slot).reg(r::WG_STATE_OFFSET);
        let offset = self.cp.hqd(slot).reg(r::CNTL_STACK_OFFSET);
        let had_waves = area.stack.saturating_sub(offset) > ENTRY;
        let bytes = saved.min(area.size).saturating_sub(area.stack);
        let mut head = [0u32; 2];
        match self.soc.vm_reach(MEC, entry, 4 * head.len(), Access::Read) {
            Reach::There => {
                // What can be reached is read.
                let _ = self.soc.vm_read_dwords(MEC, entry, &mut head);
            }
            Reach::Blocked => {
                self.soc.log.stats.dma_blocked += 1;
                return Err(Outcome::Wait);
            }
            // Zeros are no entry.
            Reach::Missing => {}
        }
        let [magic, serial] = head;
        let (intact, words) = match read(&mut self.soc, run.client(), at, bytes as usize / 4) {
            Ok(words) => (magic == MAGIC && is_state(&words, serial), words),
            Err(VmError::Retry) => return Err(Outcome::Wait),
            Err(VmError::Fault) => (false, Vec::new()),
        };
        if !intact {
            self.soc.log.stats.saves_changed += 1;
            let text = format!(
                "the record at {at:#x} is not the one that was saved ({serial}, found {})",
                words.get(SERIAL).copied().unwrap_or(0)
            );
            self.trace_sched(slot, "SAVE_AREA_CHANGED", text);
        }
        run.restore = None;
        self.set_saved(slot, area, 0, 0);
        self.trace_sched(slot, "RESTORE", format!("from {at:#x}"));
        if intact {
            self.restore_waves(slot, run, &words)
        } else if had_waves {
            Err(Outcome::Halt("the saved waves are gone"))
        } else {
            Ok(())
        }
    }
}

/// What lies behind the record at dword `i` of a state.
fn filler(serial: u32, i: usize) -> u32 {
    serial.wrapping_mul(0x9E37_79B9) ^ i as u32
}

/// Makes a state of `count` dwords of the room for the record and the waves behind it.
fn fill(words: &mut Vec<u32>, count: usize, run: &Run, serial: u32) {
    let waves = words.get(RECORD..).unwrap_or(&[]);
    let (length, sum) = (waves.len() as u32, checksum(waves));
    words.extend((words.len()..count).map(|i| filler(serial, i)));
    let words = words.get_mut(..RECORD).unwrap_or(&mut []);
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
    if let Some([to, behind, ..]) = words.get_mut(WAVES..) {
        (*to, *behind) = (length, sum);
    }
    if let Some((last, rest)) = words.split_last_mut() {
        *last = checksum(rest);
    }
}

/// Whether a state is whole and the one that the entry in the kernel's control stack names.
fn is_state(words: &[u32], serial: u32) -> bool {
    let Some((record, rest)) = words.split_at_checked(RECORD) else {
        return false;
    };
    let whole = record
        .split_last()
        .is_some_and(|(last, rest)| *last == checksum(rest));
    let waves = record.get(WAVES).map_or(0, |&n| n as usize);
    let Some((waves, rest)) = rest.split_at_checked(waves) else {
        return false;
    };
    let first = RECORD + waves.len();
    let filled = |(i, w): (usize, &u32)| *w == filler(serial, first + i);
    let whole = whole && record.get(WAVES + 1) == Some(&checksum(waves));
    let head = [record.first(), record.get(1), record.get(SERIAL)];
    whole
        && rest.iter().enumerate().all(filled)
        && head == [Some(&MAGIC), Some(&(RECORD as u32 * 4)), Some(&serial)]
}
