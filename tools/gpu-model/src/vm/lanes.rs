// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A [`Window`] as the memory of a wave.
//!
//! Every access translates the addresses of all its lanes first and only then touches memory, so an instruction that
//! faults can run again.  The map is pinned: what was found is still there.

use std::sync::atomic::{fence, Ordering};

use gfx9_isa::env::{AtomicOp, Lanes, Memory, MemoryFault, Wide};

use super::window::{Fault, Place, Window, PAGE};
use super::Access;
use crate::mem::Frame;

/// Most bytes of a lane.
const WIDEST: usize = 16;

/// Where the bytes of one lane lie.
#[derive(Debug, Clone, Copy)]
enum Spot {
    /// In one piece.
    Whole(Place),
    /// In several pages: entry of [`Spots::split`].
    Split(u8),
}

/// The places of an access.
struct Spots {
    lanes: [Spot; 64],
    /// Places of lanes whose bytes lie in several pieces, and how many bytes in each.
    split: Vec<Vec<(Place, usize)>>,
}

fn each(lanes: u64) -> impl Iterator<Item = usize> {
    let mut rest = lanes;
    std::iter::from_fn(move || {
        let lane = (rest != 0).then(|| rest.trailing_zeros() as usize);
        rest &= rest.wrapping_sub(1);
        lane
    })
}

impl Window<'_> {
    /// The wave cannot go on; what the executor needs to tell the device is kept.
    pub(crate) fn refuse(&mut self, fault: Fault) -> MemoryFault {
        self.note_fault(fault);
        let address = fault.va;
        if fault.retry {
            MemoryFault::Retry { address }
        } else {
            MemoryFault::Denied { address }
        }
    }

    fn spots(
        &mut self,
        address: &Wide,
        lanes: u64,
        bytes: usize,
        access: Access,
    ) -> Result<Spots, MemoryFault> {
        let mut spots = Spots {
            lanes: [Spot::Whole(Place::Nothing); 64],
            split: Vec::new(),
        };
        for lane in each(lanes) {
            spots.lanes[lane] = self
                .spot(address[lane], bytes, access, &mut spots.split)
                .map_err(|fault| self.refuse(fault))?;
        }
        Ok(spots)
    }

    #[inline]
    fn spot(
        &mut self,
        va: u64,
        bytes: usize,
        access: Access,
        split: &mut Vec<Vec<(Place, usize)>>,
    ) -> Result<Spot, Fault> {
        if va % PAGE + bytes as u64 <= PAGE {
            if let Some(frame) = self.hit(va, access) {
                return Ok(Spot::Whole(Place::Memory(frame)));
            }
        }
        let (place, left) = self.translate(va, access)?;
        if left >= bytes as u64 {
            return Ok(Spot::Whole(place));
        }
        // Less than `bytes`, which a usize holds.
        let mut pieces = vec![(place, left as usize)];
        let mut done = left as usize;
        while done < bytes {
            let (place, left) = self.translate(va.wrapping_add(done as u64), access)?;
            let n = (bytes - done).min(usize::try_from(left).unwrap_or(usize::MAX));
            pieces.push((place, n));
            done += n;
        }
        split.push(pieces);
        // There are 64 lanes.
        Ok(Spot::Split((split.len() - 1) as u8))
    }

    /// Reads the bytes of a lane, the rest of the buffer stays.
    fn get(&self, spots: &Spots, spot: Spot, buf: &mut [u8]) {
        let read = |place: Place, buf: &mut [u8]| match place {
            Place::Memory(frame) => {
                // It was found in the pinned map.
                let _ = self.map().load_bytes(frame, buf);
            }
            Place::Nothing | Place::Own(_) => buf.fill(0),
        };
        match spot {
            Spot::Whole(place) => read(place, buf),
            Spot::Split(at) => {
                let mut rest = buf;
                for &(place, n) in spots.split.get(usize::from(at)).into_iter().flatten() {
                    let (now, later) = rest.split_at_mut(n);
                    read(place, now);
                    rest = later;
                }
            }
        }
    }

    fn put_at(&mut self, place: Place, buf: &[u8]) {
        match place {
            Place::Memory(frame) => {
                // It was found in the pinned map.
                let _ = self.map().store_bytes(frame, buf);
            }
            Place::Own(own) => self.write_own(own, buf),
            Place::Nothing => {}
        }
    }

    /// Writes the bytes of a lane.
    fn put(&mut self, spots: &Spots, spot: Spot, buf: &[u8]) {
        match spot {
            Spot::Whole(place) => self.put_at(place, buf),
            Spot::Split(at) => {
                let mut rest = buf;
                for &(place, n) in spots.split.get(usize::from(at)).into_iter().flatten() {
                    let (now, later) = rest.split_at(n);
                    self.put_at(place, now);
                    rest = later;
                }
            }
        }
    }

    /// Tells the host data path what was written, once for all lanes.
    fn note(&self, spots: &Spots, lanes: u64, bytes: usize) {
        // Pairs with the fence of the host data path, as `Map::needs_note` asks for.
        fence(Ordering::SeqCst);
        let note = |place: Place, n: usize| {
            let last = |frame: Frame| frame.offset(n.saturating_sub(1) as u64);
            if let Place::Memory(frame) = place {
                if self.map().needs_note(frame) || self.map().needs_note(last(frame)) {
                    self.map().stored(frame, n as u64);
                }
            }
        };
        for lane in each(lanes) {
            match spots.lanes[lane] {
                Spot::Whole(place) => note(place, bytes),
                Spot::Split(at) => {
                    for &(place, n) in spots.split.get(usize::from(at)).into_iter().flatten() {
                        note(place, n);
                    }
                }
            }
        }
    }

    fn words(
        &mut self,
        address: u64,
        words: &mut [u32],
        access: Access,
    ) -> Result<(), MemoryFault> {
        let mut found = vec![0; words.len() * 4];
        self.read(address, &mut found, access)
            .map_err(|fault| self.refuse(fault))?;
        for (word, bytes) in words.iter_mut().zip(found.chunks_exact(4)) {
            *word = bytes.try_into().map(u32::from_le_bytes).unwrap_or(0);
        }
        Ok(())
    }
}

/// The number of bytes of a lane, which the instruction set limits.
fn width(bytes: u32) -> usize {
    (bytes as usize).min(WIDEST)
}

impl Memory for Window<'_> {
    fn load(
        &mut self,
        address: &Wide,
        lanes: u64,
        bytes: u32,
        data: &mut [Lanes],
    ) -> Result<(), MemoryFault> {
        let bytes = width(bytes);
        let spots = self.spots(address, lanes, bytes, Access::Read)?;
        for lane in each(lanes) {
            let mut buf = [0; WIDEST];
            self.get(&spots, spots.lanes[lane], &mut buf[..bytes]);
            for (row, word) in data
                .iter_mut()
                .zip(buf[..bytes.next_multiple_of(4)].chunks(4))
            {
                row[lane] = word.try_into().map(u32::from_le_bytes).unwrap_or(0);
            }
        }
        Ok(())
    }

    fn store(
        &mut self,
        address: &Wide,
        lanes: u64,
        bytes: u32,
        data: &[Lanes],
    ) -> Result<(), MemoryFault> {
        let bytes = width(bytes);
        let before = self.own_found();
        let spots = self.spots(address, lanes, bytes, Access::Write)?;
        if !self.has_room_since(before) {
            // Nothing is wrong with the access: it waits until the device has delivered those before it.
            let first = each(lanes).next().unwrap_or(0);
            return Err(MemoryFault::Retry {
                address: address[first],
            });
        }
        for lane in each(lanes) {
            let mut buf = [0; WIDEST];
            for (row, word) in data.iter().zip(buf.chunks_exact_mut(4)) {
                word.copy_from_slice(&row[lane].to_le_bytes());
            }
            self.put(&spots, spots.lanes[lane], &buf[..bytes]);
        }
        self.note(&spots, lanes, bytes);
        Ok(())
    }

    fn atomic(
        &mut self,
        op: AtomicOp,
        address: &Wide,
        lanes: u64,
        bytes: u32,
        data: [&Wide; 2],
        old: &mut Wide,
    ) -> Result<(), MemoryFault> {
        let wide = bytes == 8;
        let bytes = width(bytes);
        // An atomic across pages is none; the instruction set refuses it before.
        let crooked = |lane: &usize| address[*lane] % bytes as u64 != 0;
        if let Some(lane) = each(lanes).find(crooked) {
            return Err(MemoryFault::Denied {
                address: address[lane],
            });
        }
        let spots = self.spots(address, lanes, bytes, Access::Atomic)?;
        for lane in each(lanes) {
            let (first, second) = (data[0][lane], data[1][lane]);
            let Spot::Whole(Place::Memory(frame)) = spots.lanes[lane] else {
                old[lane] = 0;
                continue;
            };
            let before = if wide {
                self.map()
                    .update_u64(frame, |old| op.apply(true, old, first, second))
            } else {
                let apply = |old: u32| op.apply(false, old.into(), first, second) as u32;
                self.map().update_u32(frame, apply).map(u64::from)
            };
            // It was found in the pinned map.
            old[lane] = before.unwrap_or(0);
        }
        self.note(&spots, lanes, bytes);
        Ok(())
    }

    fn scalar_load(&mut self, address: u64, data: &mut [u32]) -> Result<(), MemoryFault> {
        self.words(address, data, Access::Read)
    }

    fn scalar_store(&mut self, address: u64, data: &[u32]) -> Result<(), MemoryFault> {
        // As a vector store whose lanes have a dword each.  No instruction stores more than 16.
        let count = data.len().min(64);
        let lanes = u64::MAX.checked_shr(64 - count as u32).unwrap_or(0);
        let at = std::array::from_fn(|lane| address.wrapping_add(4 * lane as u64));
        let row = std::array::from_fn(|lane| data.get(lane).copied().unwrap_or(0));
        self.store(&at, lanes, 4, &[row])
    }
    fn fetch(&mut self, address: u64, data: &mut [u32]) -> Result<(), MemoryFault> {
        self.words(address, data, Access::Execute)
    }
}
