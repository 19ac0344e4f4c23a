// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Memory access by GPU virtual address.
//!
//! Every access first translates all pages it touches and only then reads or writes, so a replay after a retry
//! fault repeats no side effect.

use super::hub::Hub;
use super::own::OwnBar;
use super::walk::{walk, Page, WalkFault};
use super::{Access, Client, HubId};
use crate::device::Gpu;
use crate::mem::Phys;

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
pub enum Place {
    /// Memory.
    Memory(Phys),
    /// A page that reads zero and drops writes.
    Nothing,
    /// One of the device's own BARs; reads are zero.
    Own(OwnBar),
}

/// A piece of an access that is physically contiguous.
type Segment = (Place, usize);

impl Gpu {
    /// The hub's state.
    pub fn hub(&self, id: HubId) -> &Hub {
        match id {
            HubId::Gfx => &self.gfxhub,
            HubId::Mm => &self.mmhub,
        }
    }

    /// The hub's state, for change.
    pub fn hub_mut(&mut self, id: HubId) -> &mut Hub {
        match id {
            HubId::Gfx => &mut self.gfxhub,
            HubId::Mm => &mut self.mmhub,
        }
    }

    fn lookup(&mut self, c: Client, va: u64) -> Result<Page, WalkFault> {
        let hub = self.hub_mut(c.hub);
        if c.vmid == 0 {
            let (low, high) = hub.system_aperture();
            if (low..=high).contains(&va) {
                return Self::aperture(hub, va).ok_or(WalkFault::Range);
            }
        }
        let cached = hub.tlb.lookup(c.vmid, va);
        let hub = self.hub(c.hub);
        if let Some(page) = cached {
            self.log.stats.tlb_hits += 1;
            return Ok(page);
        }
        let ctx = hub.context(c.vmid);
        let fb_offset = hub.fb_offset();
        self.log.stats.tlb_misses += 1;
        let hub = match c.hub {
            HubId::Gfx => &mut self.gfxhub,
            HubId::Mm => &mut self.mmhub,
        };
        let page = walk(&self.mem, &ctx, fb_offset, va, hub.tlb.directories(c.vmid))?;
        // All of a page has to be there, not only what is accessed now.
        let last = page.phys.map(|p| p.offset((1u64 << page.shift) - 1));
        if let Some(last) = last.filter(|_| page.shift > 12) {
            if !self.mem.exists(last, false) && !self.mem.blocked(last) {
                return Err(WalkFault::Nowhere {
                    entry: page.perms,
                    target: last,
                    level: u32::MAX,
                });
            }
        }
        hub.tlb.insert(c.vmid, va, page);
        Ok(page)
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
                perms,
            });
        }
        let (bot, top, agp_base) = hub.agp()?;
        (bot..=top).contains(&va).then(|| Page {
            phys: Some(Phys::Bus((base - bot).wrapping_add(agp_base))),
            shift: 12,
            perms,
        })
    }

    /// Translates one address; returns the place and how many bytes of the page follow it.
    ///
    /// # Errors
    /// Raises the fault and says whether to replay.
    pub fn vm_translate(&mut self, c: Client, va: u64, access: Access) -> VmResult<(Place, u64)> {
        self.translate(c, va, access)
            .map_err(|why| self.vm_fault(c, va, access, why))
    }

    /// Translates one address without raising anything.  `None` as the reason of a failure is missing permission.
    fn translate(
        &mut self,
        c: Client,
        va: u64,
        access: Access,
    ) -> Result<(Place, u64), Option<WalkFault>> {
        let page = self.lookup(c, va).map_err(Some)?;
        if !page.permits(access) {
            return Err(None);
        }
        let off = va & ((1u64 << page.shift) - 1);
        let left = (1u64 << page.shift) - off;
        let Some(base) = page.phys else {
            return Ok((Place::Nothing, left));
        };
        let at = base.offset(off);
        if self.mem.blocked(at) {
            return Err(Some(WalkFault::Blocked));
        }
        if !self.mem.exists(at, access.writes()) {
            if let Some(own) = self.own_bar(at) {
                return Ok((Place::Own(own), left));
            }
            return Err(Some(WalkFault::Nowhere {
                entry: page.perms,
                target: at,
                level: u32::MAX,
            }));
        }
        Ok((Place::Memory(at), left))
    }

    fn segments(
        &mut self,
        c: Client,
        va: u64,
        len: usize,
        access: Access,
    ) -> VmResult<Vec<Segment>> {
        let mut out = Vec::with_capacity(1 + len / 4096);
        let mut done = 0;
        while done < len {
            let (at, left) = self.vm_translate(c, va.wrapping_add(done as u64), access)?;
            let n = (len - done).min(usize::try_from(left).unwrap_or(usize::MAX));
            out.push((at, n));
            done += n;
        }
        Ok(out)
    }

    /// Reads bytes.
    ///
    /// # Errors
    /// Nothing usable was read.
    pub fn vm_read(&mut self, c: Client, va: u64, buf: &mut [u8]) -> VmResult<()> {
        self.bytes_moved = self.bytes_moved.wrapping_add(buf.len() as u64);
        let mut rest = buf;
        for (at, n) in self.segments(c, va, rest.len(), Access::Read)? {
            let (now, later) = rest.split_at_mut(n);
            match at {
                Place::Memory(at) => self.mem.read(at, now).map_err(|_| VmError::Fault)?,
                Place::Nothing | Place::Own(_) => now.fill(0),
            }
            rest = later;
        }
        Ok(())
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// Nothing was written.
    pub fn vm_write(&mut self, c: Client, va: u64, buf: &[u8]) -> VmResult<()> {
        let segments = self.segments(c, va, buf.len(), Access::Write)?;
        self.write_segments(segments, buf)
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
        let mut segments = Vec::with_capacity(1 + buf.len() / 4096);
        let mut done = 0;
        while done < buf.len() {
            let at = va.wrapping_add(done as u64);
            let (place, left) = match self.translate(c, at, Access::Write) {
                Ok(found) => found,
                Err(why) => {
                    self.latch_no_retry(c, at, Access::Write, why);
                    return Err(why);
                }
            };
            let n = (buf.len() - done).min(usize::try_from(left).unwrap_or(usize::MAX));
            segments.push((place, n));
            done += n;
        }
        // What was translated exists.
        let _ = self.write_segments(segments, buf);
        Ok(())
    }

    fn write_segments(&mut self, segments: Vec<Segment>, buf: &[u8]) -> VmResult<()> {
        self.bytes_moved = self.bytes_moved.wrapping_add(buf.len() as u64);
        let mut rest = buf;
        for (at, n) in segments {
            let (now, later) = rest.split_at(n);
            match at {
                Place::Memory(at) => self.mem.write(at, now).map_err(|_| VmError::Fault)?,
                Place::Own(own) => self.own_write(own, now),
                Place::Nothing => {}
            }
            rest = later;
        }
        Ok(())
    }

    /// Checks that a range can be accessed, raising the fault if not.
    ///
    /// # Errors
    /// Some page cannot.
    pub fn vm_probe(&mut self, c: Client, va: u64, len: usize, access: Access) -> VmResult<()> {
        self.segments(c, va, len, access).map(|_| ())
    }

    /// Whether a range of memory can be accessed now; no fault is raised.
    pub fn vm_accessible(&mut self, c: Client, va: u64, len: usize, access: Access) -> bool {
        let mut done = 0u64;
        while done < len as u64 {
            let at = va.wrapping_add(done);
            let Ok(page) = self.lookup(c, at) else {
                return false;
            };
            let size = 1u64 << page.shift;
            let off = at & (size - 1);
            let there = page.phys.is_some_and(|p| {
                page.permits(access) && self.mem.exists(p.offset(off), access.writes())
            });
            if !there {
                return false;
            }
            done += size - off;
        }
        true
    }

    /// Reads a 32-bit word without raising a fault.
    pub fn peek_u32(&mut self, c: Client, va: u64) -> Option<u32> {
        let page = self.lookup(c, va).ok()?;
        let at = page.phys?.offset(va & ((1u64 << page.shift) - 1));
        self.mem.read_u32(at).ok()
    }

    /// Reads a 32-bit word.
    ///
    /// # Errors
    /// See [`Gpu::vm_read`].
    pub fn vm_read_u32(&mut self, c: Client, va: u64) -> VmResult<u32> {
        let mut b = [0; 4];
        self.vm_read(c, va, &mut b)?;
        Ok(u32::from_le_bytes(b))
    }

    /// Reads a 64-bit word; single copy if 8-byte aligned.
    ///
    /// # Errors
    /// See [`Gpu::vm_read`].
    pub fn vm_read_u64(&mut self, c: Client, va: u64) -> VmResult<u64> {
        let (at, left) = self.vm_translate(c, va, Access::Read)?;
        if va % 8 == 0 && left >= 8 {
            return match at {
                Place::Memory(at) => self.mem.read_u64(at).map_err(|_| VmError::Fault),
                Place::Nothing | Place::Own(_) => Ok(0),
            };
        }
        let mut b = [0; 8];
        self.vm_read(c, va, &mut b)?;
        Ok(u64::from_le_bytes(b))
    }

    /// Reads dwords.
    ///
    /// # Errors
    /// See [`Gpu::vm_read`].
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
    /// See [`Gpu::vm_read`].
    pub fn vm_read_hosted(&mut self, c: Client, va: u64, out: &mut [u32]) -> VmResult<bool> {
        let mut stale = false;
        let mut words = out;
        for (at, n) in self.segments(c, va, words.len() * 4, Access::Read)? {
            let (now, later) = words.split_at_mut(n / 4);
            words = later;
            let Place::Memory(at) = at else { continue };
            let (mut seen, mut real) = (vec![0; n], vec![0; n]);
            self.mem
                .read_hosted(at, &mut seen)
                .map_err(|_| VmError::Fault)?;
            self.mem.read(at, &mut real).map_err(|_| VmError::Fault)?;
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
    /// See [`Gpu::vm_write`].
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
        let (at, _) = self.vm_translate(c, va, Access::Atomic)?;
        let Place::Memory(at) = at else {
            return Ok(0);
        };
        let old = if wide {
            self.mem.update_u64(at, f)
        } else {
            self.mem
                .update_u32(at, |v| f(u64::from(v)) as u32)
                .map(u64::from)
        };
        old.map_err(|_| VmError::Fault)
    }
}
