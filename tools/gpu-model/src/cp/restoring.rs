// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Reading the state of a queue back from its save area before it runs on, in pieces.
//!
//! A piece is a turn of the queue, which runs nothing until all are read.  What is read is checked and made to waves as it
//! comes; none of them goes on before the last piece has shown that the state is whole.  A queue that leaves its slot before
//! that begins anew when it comes back: until then, its registers and its area are as they were.

use super::cwsr::{filler, Area, Record, Sum, ENTRY, MAGIC, RECORD_BYTES, STACK_PAGE};
use super::hqd::r;
use super::mqd::MEC;
use super::queue::{Outcome, Run};
use super::slot::SlotId;
use crate::device::Gpu;
use crate::feed::{CHUNK, PIECE};
use crate::vm::access::{Reach, VmError};
use crate::vm::Access;
use crate::waves::front::MAX_LATER;
use crate::waves::saved::{Decoder, Saved};

/// What is read back of a queue.
#[derive(Debug)]
pub struct Restoring {
    area: Area,
    /// Where the record lies, bytes from there on, and how many of them were read.
    at: u64,
    bytes: u32,
    done: u32,
    /// Number of the save, from the entry in the kernel's control stack.
    serial: u32,
    /// Waves were saved.
    had_waves: bool,
    /// All that was read is what was saved.
    intact: bool,
    record: Record,
    piece: Vec<u8>,
    /// Bytes of dispatches that are still to be read; those that were read, and are not decoded yet.
    left: usize,
    waves: Vec<u8>,
    sum: Sum,
    /// What is decoded; `None` if it is something else than was saved.
    decoder: Option<Decoder>,
}

impl Restoring {
    /// Takes what was read.
    fn take(&mut self, decoder: impl FnOnce() -> Decoder) {
        let piece = std::mem::take(&mut self.piece);
        let mut bytes = piece.as_slice();
        let mut at = self.done / 4;
        if self.done == 0 {
            let (record, rest) = bytes.split_at(bytes.len().min(RECORD_BYTES as usize));
            (bytes, at) = (rest, RECORD_BYTES / 4);
            self.record = Record::read(record);
            let behind = self.bytes.saturating_sub(RECORD_BYTES) / 4;
            let fits = self.record.waves <= behind && self.record.serial == self.serial;
            self.intact &= self.record.whole && fits;
            if self.intact {
                self.left = self.record.waves as usize * 4;
                self.decoder = Some(decoder());
            }
        }
        if self.intact {
            let (waves, rest) = bytes.split_at(bytes.len().min(self.left));
            self.sum.add(waves);
            self.left -= waves.len();
            self.waves.extend_from_slice(waves);
            self.decode();
            let from = at + (waves.len() / 4) as u32;
            let mut words = rest.chunks_exact(4).zip(from..);
            let filled = |(word, i): (&[u8], u32)| word == filler(self.serial, i).to_le_bytes();
            self.intact = words.all(filled);
        }
        self.done += piece.len() as u32;
        self.piece = piece;
    }

    fn decode(&mut self) {
        let mut rest = self.waves.as_slice();
        while let Some(decoder) = &mut self.decoder {
            let enough = rest.len() >= Decoder::LONGEST || self.left == 0 && !rest.is_empty();
            if !enough {
                break;
            }
            if decoder.take(&mut rest).is_none() {
                self.decoder = None;
            }
        }
        let taken = self.waves.len() - rest.len();
        self.waves.drain(..taken);
        if self.decoder.is_none() {
            self.waves.clear();
        }
    }

    /// All was read, or cannot be: whether it is what was saved.
    fn is_intact(&self) -> bool {
        let whole = self.done == self.bytes && self.record.whole;
        self.intact && whole && self.left == 0 && self.sum.value() == self.record.sum
    }
}

impl Gpu {
    /// Looks for the record of a queue before it runs on.
    ///
    /// # Errors
    /// The save area is not there yet, there is more of it, or what is there is not what was saved.
    pub fn cwsr_restore(&mut self, slot: SlotId, run: &mut Run, mqd: u64) -> Result<(), Outcome> {
        let under_way = run.restoring.take();
        let Some(area) = self.save_area(slot) else {
            run.restore = None;
            return Ok(());
        };
        let mut restoring = match under_way {
            Some(restoring) => restoring,
            None => Box::new(self.begin_restore(slot, area, mqd)?),
        };
        let outcome = self.restore_some(slot, run, &mut restoring);
        if outcome != Outcome::Done {
            run.restoring = Some(restoring);
            return Err(outcome);
        }
        let intact = restoring.is_intact();
        if !intact {
            self.soc.log.stats.saves_changed += 1;
            let text = format!(
                "the record at {:#x} is not the one that was saved ({}, found {})",
                restoring.at, restoring.serial, restoring.record.serial
            );
            self.trace_sched(slot, "SAVE_AREA_CHANGED", text);
        }
        run.restore = None;
        self.set_saved(slot, restoring.area, 0, 0);
        self.trace_sched(slot, "RESTORE", format!("from {:#x}", restoring.at));
        if intact {
            self.restore_waves(slot, run, restoring.decoder.and_then(Decoder::end))
        } else if restoring.had_waves {
            Err(Outcome::Halt("the saved waves are gone"))
        } else {
            Ok(())
        }
    }

    fn begin_restore(&mut self, slot: SlotId, area: Area, mqd: u64) -> Result<Restoring, Outcome> {
        let offset = self.cp.hqd(slot).reg(r::CNTL_STACK_OFFSET);
        let saved = self.cp.hqd(slot).reg(r::WG_STATE_OFFSET);
        let entry = mqd + STACK_PAGE + u64::from(offset);
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
        Ok(Restoring {
            area,
            at: area.base.wrapping_add(u64::from(area.stack)),
            bytes: saved.min(area.size).saturating_sub(area.stack) & !3,
            done: 0,
            serial,
            had_waves: area.stack.saturating_sub(offset) > ENTRY,
            intact: magic == MAGIC,
            record: Record::default(),
            piece: Vec::new(),
            left: 0,
            waves: Vec::new(),
            sum: Sum::default(),
            decoder: None,
        })
    }

    /// Reads one piece at least, and as many as the step has time for.
    fn restore_some(&mut self, slot: SlotId, run: &Run, restoring: &mut Restoring) -> Outcome {
        for _ in 0..CHUNK / PIECE {
            let len = (restoring.bytes - restoring.done).min(PIECE as u32);
            if len == 0 {
                return Outcome::Done;
            }
            restoring.piece.resize(len as usize, 0);
            let at = restoring.at.wrapping_add(u64::from(restoring.done));
            match self.soc.vm_read(run.client(), at, &mut restoring.piece) {
                Ok(()) => {}
                Err(VmError::Retry) => return Outcome::Wait,
                Err(VmError::Fault) => {
                    restoring.intact = false;
                    restoring.record = Record::default();
                    return Outcome::Done;
                }
            }
            let most = if run.aql { 1 + MAX_LATER } else { 1 };
            restoring.take(|| Decoder::new(self.kernel_of(slot, run, [0; 3], 0), most));
            if self.soc.pressed() {
                break;
            }
        }
        if restoring.done == restoring.bytes {
            Outcome::Done
        } else {
            Outcome::Yield
        }
    }

    /// Lets the dispatches go on that were read back, if there are any.
    fn restore_waves(
        &mut self,
        slot: SlotId,
        run: &mut Run,
        saved: Option<Vec<Saved>>,
    ) -> Result<(), Outcome> {
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
}
