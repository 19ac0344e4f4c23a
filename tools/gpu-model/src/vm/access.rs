// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Memory access by GPU virtual address.
//!
//! Every access first translates all pages it touches and only then reads or writes, so a replay after a retry
//! fault repeats no side effect.

use super::hub::Hub;
use super::own::OwnBar;
use super::walk::{Page, WalkFault};
use super::{Access, Client};
use crate::mem::{Frame, Map, Phys};
use crate::soc::Soc;

/// How an access ended that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VmError {
    /// A retry fault is outstanding: replay the access later.
    Retry,
    /// The access is dropped; an interrupt has told the driver.
    Fault,
}

/// Result of a virtual access.
pub type VmResult<T> = Result<T, VmError>;

/// Where an access goes after translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Memory: as the device names it, and where it is in the map that the access uses.
    Memory(Phys, Frame),
    /// A page that reads zero and drops writes.
    Nothing,
    /// One of the device's own BARs; reads are zero.
    Own(OwnBar),
}

/// Whether a range of memory can be accessed, as far as that is known without an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// All of it can.
    There,
    /// A part is on the bus, or is translated by a table that is, and bus mastering is off: what is there is not known.
    Blocked,
    /// A part cannot.
    Missing,
}

/// Where a piece of a write goes, all of it to one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    /// Its first byte; nowhere for a page that drops writes.
    pub to: Option<Phys>,
    /// Bytes of the piece.
    pub len: usize,
    /// log2 of the size of the page.
    pub page: u32,
}

/// A piece of an access that is physically contiguous.
type Segment = (Place, usize);

/// How many of `wanted` bytes lie in a piece of `left` bytes.
fn part(wanted: usize, left: u64) -> usize {
    wanted.min(usize::try_from(left).unwrap_or(usize::MAX))
}

fn read_place(map: &Map, place: Place, buf: &mut [u8]) -> VmResult<()> {
    match place {
        Place::Memory(_, frame) => map.load_bytes(frame, buf).map_err(|_| VmError::Fault)?,
        Place::Nothing | Place::Own(_) => buf.fill(0),
    }
    Ok(())
}

impl Soc {
    fn lookup(&mut self, map: &Map, c: Client, va: u64) -> Result<Page, WalkFault> {
        if c.vmid == 0 {
            let hub = self.hub(c.hub);
            let (low, high) = hub.system_aperture();
            if (low..=high).contains(&va) {
                return Self::aperture(hub, va).ok_or(WalkFault::Range);
            }
        }
        let space = self.spaces.space(c.hub, c.vmid);
        let of = (c.hub, c.vmid);
        if let Some(page) = self.recent.find(of, space, va) {
            self.log.stats.tlb_hits += 1;
            return Ok(page);
        }
        let found = space.translate(map, va);
        if found.is_ok_and(|t| t.hit) {
            self.log.stats.tlb_hits += 1;
        } else {
            self.log.stats.tlb_misses += 1;
        }
        let found = found?;
        self.recent.keep(of, va, found);
        Ok(found.page)
    }

    /// Untranslated VMID 0 access inside the system aperture.
    fn aperture(hub: &Hub, va: u64) -> Option<Page> {
        let perms = super::walk::bits::R | super::walk::bits::W | super::walk::bits::X;
        let (fb_base, fb_top) = hub.fb();
        let base = va & !0xFFF;
        if (fb_base..=fb_top).contains(&va) {
            return Some(Page {
                phys: Some(Phys::Vram(base - fb_base)),
                shift: 12,
                whole: 12,
                perms,
            });
        }
        let (bot, top, agp_base) = hub.agp()?;
        (bot..=top).contains(&va).then(|| Page {
            phys: Some(Phys::Bus((base - bot).wrapping_add(agp_base))),
            shift: 12,
            whole: 12,
            perms,
        })
    }

    /// Translates one address; returns the place and how many bytes that can be accessed alike begin there.
    ///
    /// # Errors
    /// Raises the fault and says whether to replay.
    fn vm_translate(
        &mut self,
        map: &Map,
        c: Client,
        va: u64,
        access: Access,
    ) -> VmResult<(Place, u64)> {
        self.translate(map, c, va, access)
            .map_err(|why| self.vm_fault(c, va, access, why))
    }

    /// Translates one address without raising anything.  `None` as the reason of a failure is missing permission.
    fn translate(
        &mut self,
        map: &Map,
        c: Client,
        va: u64,
        access: Access,
    ) -> Result<(Place, u64), Option<WalkFault>> {
        let page = self.lookup(map, c, va).map_err(Some)?;
        if !page.permits(access) {
            return Err(None);
        }
        let off = va & ((1u64 << page.shift) - 1);
        let left = (1u64 << page.shift) - off;
        let Some(base) = page.phys else {
            return Ok((Place::Nothing, left));
        };
        let at = base.offset(off);
        match map.find(at, access.writes()) {
            Ok((frame, there)) => Ok((Place::Memory(at, frame), left.min(there))),
            Err(_) if map.blocked(at) => Err(Some(WalkFault::Blocked)),
            Err(_) => match self.own_bar(at) {
                Some(own) => Ok((Place::Own(own), left)),
                None => Err(Some(WalkFault::Nowhere {
                    entry: page.perms,
                    target: at,
                    level: u32::MAX,
                })),
            },
        }
    }

    fn segments(
        &mut self,
        map: &Map,
        c: Client,
        va: u64,
        len: usize,
        access: Access,
    ) -> VmResult<Vec<Segment>> {
        let mut out = Vec::with_capacity(1 + len / 4096);
        let mut done = 0;
        while done < len {
            let at = va.wrapping_add(done as u64);
            let (place, left) = self.vm_translate(map, c, at, access)?;
            let n = part(len - done, left);
            out.push((place, n));
            done += n;
        }
        Ok(out)
    }

    /// Reads bytes.
    ///
    /// # Errors
    /// Nothing usable was read.
    pub fn vm_read(&mut self, c: Client, va: u64, buf: &mut [u8]) -> VmResult<()> {
        self.note_moved(buf.len());
        if buf.is_empty() {
            return Ok(());
        }
        let map = self.mem.current();
        let (place, left) = self.vm_translate(&map, c, va, Access::Read)?;
        if part(buf.len(), left) == buf.len() {
            return read_place(&map, place, buf);
        }
        let mut rest = buf;
        for (place, n) in self.segments(&map, c, va, rest.len(), Access::Read)? {
            let (now, later) = rest.split_at_mut(n);
            read_place(&map, place, now)?;
            rest = later;
        }
        Ok(())
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// Nothing was written.
    pub fn vm_write(&mut self, c: Client, va: u64, buf: &[u8]) -> VmResult<()> {
        if buf.is_empty() {
            return Ok(());
        }
        let map = self.mem.current();
        let (place, left) = self.vm_translate(&map, c, va, Access::Write)?;
        if part(buf.len(), left) == buf.len() {
            return self.write_place(&map, place, buf);
        }
        let segments = self.segments(&map, c, va, buf.len(), Access::Write)?;
        self.write_segments(&map, segments, buf)
    }

    /// Writes bytes for the interrupt handler.  A fault is latched in the hub, but raises no vector: it is a vector
    /// that could not be written.
    ///
    /// # Errors
    /// Nothing was written; says why, `None` for missing permission.
    pub fn vm_write_unraised(
        &mut self,
        c: Client,
        va: u64,
        buf: &[u8],
    ) -> Result<(), Option<WalkFault>> {
        let map = self.mem.current();
        let mut segments = Vec::with_capacity(1 + buf.len() / 4096);
        let mut done = 0;
        while done < buf.len() {
            let at = va.wrapping_add(done as u64);
            let (place, left) = match self.translate(&map, c, at, Access::Write) {
                Ok(found) => found,
                Err(why) => {
                    self.latch_no_retry(c, at, Access::Write, why);
                    return Err(why);
                }
            };
            let n = part(buf.len() - done, left);
            segments.push((place, n));
            done += n;
        }
        // What was translated exists.
        let _ = self.write_segments(&map, segments, buf);
        Ok(())
    }

    fn write_segments(&mut self, map: &Map, segments: Vec<Segment>, buf: &[u8]) -> VmResult<()> {
        let mut rest = buf;
        for (place, n) in segments {
            let (now, later) = rest.split_at(n);
            self.write_place(map, place, now)?;
            rest = later;
        }
        Ok(())
    }

    fn write_place(&mut self, map: &Map, place: Place, buf: &[u8]) -> VmResult<()> {
        self.note_moved(buf.len());
        match place {
            Place::Memory(_, frame) => {
                map.store_bytes(frame, buf).map_err(|_| VmError::Fault)?;
                map.stored(frame, buf.len() as u64);
            }
            Place::Own(own) => self.own_write(own, buf),
            Place::Nothing => {}
        }
        Ok(())
    }

    /// Checks that a range can be accessed, raising the fault if not.
    ///
    /// # Errors
    /// Some page cannot.
    pub fn vm_probe(&mut self, c: Client, va: u64, len: usize, access: Access) -> VmResult<()> {
        let map = self.mem.current();
        self.segments(&map, c, va, len, access).map(|_| ())
    }

    /// Whether a range of memory can be accessed now; no fault is raised.
    pub fn vm_accessible(&mut self, c: Client, va: u64, len: usize, access: Access) -> bool {
        self.vm_reach(c, va, len, access) == Reach::There
    }

    /// As [`Soc::vm_accessible`]; of several pages that cannot be accessed the first tells.  Counts nothing.
    pub fn vm_reach(&mut self, c: Client, va: u64, len: usize, access: Access) -> Reach {
        let map = self.mem.current();
        let mut done = 0u64;
        while done < len as u64 {
            let at = va.wrapping_add(done);
            let page = match self.lookup(&map, c, at) {
                Ok(page) => page,
                Err(WalkFault::Blocked) => return Reach::Blocked,
                Err(_) => return Reach::Missing,
            };
            let size = 1u64 << page.shift;
            let off = at & (size - 1);
            let Some(place) = page.phys.filter(|_| page.permits(access)) else {
                return Reach::Missing;
            };
            let place = place.offset(off);
            if map.blocked(place) {
                return Reach::Blocked;
            }
            if !map.exists(place, access.writes()) {
                return Reach::Missing;
            }
            done += size - off;
        }
        Reach::There
    }

    /// Where a write of a range would go, piece by piece. No fault is raised; `None` if some of the range cannot be
    /// written, or is a place of the device's own.
    pub fn vm_destinations(&mut self, c: Client, va: u64, len: usize) -> Option<Vec<Destination>> {
        let map = self.mem.current();
        let mut out = Vec::with_capacity(1 + len / 4096);
        let mut done = 0;
        while done < len {
            let at = va.wrapping_add(done as u64);
            let page = self.lookup(&map, c, at).ok()?;
            let size = 1u64 << page.shift;
            let off = at & (size - 1);
            let to = page.phys.map(|p| p.offset(off));
            if !page.permits(Access::Write) || to.is_some_and(|p| !map.exists(p, true)) {
                return None;
            }
            let n = (len - done).min(usize::try_from(size - off).unwrap_or(usize::MAX));
            out.push(Destination {
                to,
                len: n,
                page: page.whole,
            });
            done += n;
        }
        Some(out)
    }

    /// Reads a 32-bit word without raising a fault.
    pub fn peek_u32(&mut self, c: Client, va: u64) -> Option<u32> {
        let map = self.mem.current();
        let page = self.lookup(&map, c, va).ok()?;
        let at = page.phys?.offset(va & ((1u64 << page.shift) - 1));
        map.load(map.find(at, false).ok()?.0).ok()
    }

    /// Reads a 32-bit word.
    ///
    /// # Errors
    /// See [`Soc::vm_read`].
    pub fn vm_read_u32(&mut self, c: Client, va: u64) -> VmResult<u32> {
        let mut b = [0; 4];
        self.vm_read(c, va, &mut b)?;
        Ok(u32::from_le_bytes(b))
    }

    /// Reads a 64-bit word; single copy if 8-byte aligned.
    ///
    /// # Errors
    /// See [`Soc::vm_read`].
    pub fn vm_read_u64(&mut self, c: Client, va: u64) -> VmResult<u64> {
        let mut b = [0; 8];
        self.vm_read(c, va, &mut b)?;
        Ok(u64::from_le_bytes(b))
    }

    /// Reads dwords.
    ///
    /// # Errors
    /// See [`Soc::vm_read`].
    pub fn vm_read_dwords(&mut self, c: Client, va: u64, out: &mut [u32]) -> VmResult<()> {
        let mut bytes = vec![0u8; out.len() * 4];
        self.vm_read(c, va, &mut bytes)?;
        for (d, s) in out.iter_mut().zip(bytes.chunks_exact(4)) {
            *d = s.try_into().map(u32::from_le_bytes).unwrap_or(0);
        }
        Ok(())
    }

    /// Reads dwords that the driver has written, as of the last HDP flush; the flag tells that memory holds others.
    ///
    /// # Errors
    /// See [`Soc::vm_read`].
    pub fn vm_read_hosted(&mut self, c: Client, va: u64, out: &mut [u32]) -> VmResult<bool> {
        let mut stale = false;
        let mut words = out;
        let map = self.mem.current();
        for (place, n) in self.segments(&map, c, va, words.len() * 4, Access::Read)? {
            let (now, later) = words.split_at_mut(n / 4);
            words = later;
            let Place::Memory(at, frame) = place else {
                continue;
            };
            let (mut seen, mut real) = (vec![0; n], vec![0; n]);
            let read = map.read_hosted(at, &mut seen);
            read.and_then(|()| map.load_bytes(frame, &mut real))
                .map_err(|_| VmError::Fault)?;
            if !self.rules.mqd_flush {
                seen.clone_from(&real);
            }
            stale |= seen != real;
            for (d, s) in now.iter_mut().zip(seen.chunks_exact(4)) {
                *d = s.try_into().map(u32::from_le_bytes).unwrap_or(0);
            }
        }
        Ok(stale)
    }

    /// Writes dwords.
    ///
    /// # Errors
    /// See [`Soc::vm_write`].
    pub fn vm_write_dwords(&mut self, c: Client, va: u64, words: &[u32]) -> VmResult<()> {
        if let [w] = words {
            return self.vm_write(c, va, &w.to_le_bytes());
        }
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.vm_write(c, va, &bytes)
    }

    /// Atomically replaces a naturally aligned word; returns the old value.  `wide` selects 64 bits.
    ///
    /// # Errors
    /// Nothing was changed.
    pub fn vm_atomic(
        &mut self,
        c: Client,
        va: u64,
        wide: bool,
        f: impl Fn(u64) -> u64,
    ) -> VmResult<u64> {
        let map = self.mem.current();
        let (place, _) = self.vm_translate(&map, c, va, Access::Atomic)?;
        let Place::Memory(_, frame) = place else {
            return Ok(0);
        };
        let old = if wide {
            map.update_u64(frame, f)
        } else {
            map.update_u32(frame, |v| f(u64::from(v)) as u32)
                .map(u64::from)
        };
        let old = old.map_err(|_| VmError::Fault)?;
        map.stored(frame, if wide { 8 } else { 4 });
        Ok(old)
    }
}
