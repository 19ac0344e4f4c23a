// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Saving a preempted queue into its context save area, and going on from there.
//!
//! On hardware a trap handler writes the waves there.  Here the device writes them, in a form of its own
//! ([`crate::waves::saved`]), behind a record of the queue, and fills up to what its waves would take.  A queue with
//! unfinished work and without waves leaves what one wave with the fewest registers would.  Sizes, offsets and places are
//! those of `kfd_mqd_manager_v9.c`: an entry of 8 bytes on the control stack in the pages behind the MQD, which grows
//! downwards, and the state in the queue's own save area behind its control stack, growing upwards.  As on hardware, the command processor's own state is in the MQD: the
//! record has to be there when the queue goes on, but queues that share an area do not lose their place.
//!
//! [`super::saving`] writes it and [`super::restoring`] reads it, both in pieces, so that no step is long.
//!
//! How large the area and the stack have to be depends on the compute units that work (`kfd_queue.c`); a queue that is
//! connected with less is the driver's mistake, whether or not it is ever preempted.

use super::hqd::{f, r};
use super::mqd::MAX_FRAMES;
use super::queue::{Role, Run};
use super::slot::SlotId;
use crate::device::Gpu;

/// "CWSR".
pub(super) const MAGIC: u32 = 0x5253_5743;
/// Bytes of one entry of the control stack.
pub(super) const ENTRY: u32 = 8;
/// Dwords of the record.
pub(super) const RECORD: usize = 64;
/// Bytes of the record.
pub(super) const RECORD_BYTES: u32 = 4 * RECORD as u32;
/// Pages of the area.
pub(super) const PAGE: u32 = 4096;
/// Where the frames begin.
const FRAMES: usize = 12;
/// Where the length of the saved dispatches lies, in dwords; its checksum follows.
const WAVES: usize = FRAMES + 4 * MAX_FRAMES;
/// Where the serial number of the save lies.
const SERIAL: usize = FRAMES - 1;
/// Sums that a checksum is made of, which a processor can add beside each other.
const LANES: usize = 8;
/// From the MQD to its control stack.
pub(super) const STACK_PAGE: u64 = 4096;

/// A queue's save area.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    /// Address in the queue's VMID.
    pub(super) base: u64,
    /// Bytes of control stack.
    pub(super) stack: u32,
    /// Bytes of all of it.
    pub(super) size: u32,
}

/// A checksum of dwords, which come a part at a time.
#[derive(Debug)]
pub(super) struct Sum {
    lanes: [u32; LANES],
    /// Dwords that are no whole row of lanes yet.
    rest: Vec<u32>,
}

impl Default for Sum {
    fn default() -> Self {
        Self {
            lanes: [MAGIC; LANES],
            rest: Vec::with_capacity(LANES),
        }
    }
}

impl Sum {
    fn step(sum: u32, word: u32) -> u32 {
        sum.rotate_left(5).wrapping_add(word)
    }

    fn row(&mut self, row: impl Iterator<Item = u32>) {
        for (lane, word) in self.lanes.iter_mut().zip(row) {
            *lane = Self::step(*lane, word);
        }
    }

    /// Adds whole dwords.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let lacks = (LANES - self.rest.len()) % LANES;
        let (first, bytes) = bytes.split_at(bytes.len().min(4 * lacks));
        self.rest.extend(dwords(first));
        if self.rest.len() == LANES {
            let mut rest = std::mem::take(&mut self.rest);
            self.row(rest.drain(..));
            self.rest = rest;
        }
        let rows = bytes.chunks_exact(4 * LANES);
        let last = rows.remainder();
        for row in rows {
            self.row(dwords(row));
        }
        self.rest.extend(dwords(last));
    }

    /// The checksum.
    pub(super) fn value(&self) -> u32 {
        let all = self.lanes.iter().chain(&self.rest);
        all.fold(MAGIC, |sum, word| Self::step(sum, *word))
    }
}

/// The dwords of bytes.
pub(super) fn dwords(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let words = bytes.chunks_exact(4);
    words.map(|word| word.try_into().map_or(0, u32::from_le_bytes))
}

/// The bytes of dwords.
pub(super) fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// What lies behind the record and the waves at dword `i` of a state.
pub(super) fn filler(serial: u32, i: u32) -> u32 {
    serial.wrapping_mul(0x9E37_79B9) ^ i
}

/// The record of a queue in front of `waves` bytes of dispatches with the checksum `sum`.
pub(super) fn record_of(run: &Run, serial: u32, (waves, sum): (u32, u32)) -> [u32; RECORD] {
    let mut words = [0; RECORD];
    let head = [
        MAGIC,
        RECORD_BYTES,
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
    let frames = words.get_mut(FRAMES..WAVES).unwrap_or(&mut []);
    for (d, fr) in frames.chunks_exact_mut(4).zip(&run.frames) {
        d.copy_from_slice(&[fr.base as u32, (fr.base >> 32) as u32, fr.size, fr.pos]);
    }
    if let Some([to, behind, ..]) = words.get_mut(WAVES..) {
        (*to, *behind) = (waves / 4, sum);
    }
    if let Some((last, rest)) = words.split_last_mut() {
        *last = checksum(rest);
    }
    words
}

/// What a record tells of what is behind it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Record {
    /// It is one.
    pub(super) whole: bool,
    /// Serial number of the save.
    pub(super) serial: u32,
    /// Dwords of dispatches, and their checksum.
    pub(super) waves: u32,
    pub(super) sum: u32,
}

impl Record {
    /// Reads a record.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let words: Vec<u32> = dwords(bytes).take(RECORD).collect();
        let at = |i: usize| words.get(i).copied().unwrap_or(0);
        let summed = words
            .split_last()
            .is_some_and(|(last, rest)| *last == checksum(rest));
        Self {
            whole: words.len() == RECORD && summed && (at(0), at(1)) == (MAGIC, RECORD_BYTES),
            serial: at(SERIAL),
            waves: at(WAVES),
            sum: at(WAVES + 1),
        }
    }
}

fn checksum(words: &[u32]) -> u32 {
    let mut sum = Sum::default();
    sum.add(&bytes_of(words));
    sum.value()
}

impl Gpu {
    pub(super) fn save_area(&self, slot: SlotId) -> Option<Area> {
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

    pub(super) fn set_saved(&mut self, slot: SlotId, area: Area, stack: u32, state: u32) {
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
}
