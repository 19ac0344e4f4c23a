// SPDX-License-Identifier: GPL-2.0 OR MIT
//! One state of what the device can reach.
//!
//! A [`Map`] never changes.  The [`Bus`](super::Bus) publishes another one in its place, and what a map refers to
//! stays mapped into this process as long as somebody holds the map.

use std::fmt::Debug;
use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use vm_memory::{AtomicAccess, Bytes, FileOffset, MmapRegion, VolatileMemory};

use super::host::{HostPath, Root};
use super::{NoMemory, Phys};

/// Upper bound of simultaneous DMA mappings; a VMM uses a few dozen.
const MAX_MAPPINGS: usize = 65536;
/// Bytes of the pages that the host data path keeps, and of the smallest page of the device.
pub(super) const PAGE: u64 = 4096;

/// Memory that is contiguous for the device and for this process.
#[derive(Debug)]
pub(super) struct Region {
    /// Bus address, 0 for VRAM.
    start: u64,
    size: u64,
    writable: bool,
    /// `None` for a mapping without memory: the range is taken, but nothing answers there.
    memory: Option<MmapRegion<()>>,
}

impl Region {
    /// Maps `size` bytes of a file.
    ///
    /// # Errors
    /// The mmap failed.
    pub(super) fn of_file(
        start: u64,
        size: u64,
        file: Option<FileOffset>,
        writable: bool,
    ) -> anyhow::Result<Self> {
        let memory = match file {
            Some(file) => Some(map_file(file, size, writable)?),
            None => None,
        };
        Ok(Self {
            start,
            size,
            writable,
            memory,
        })
    }

    fn end(&self) -> u64 {
        self.start + self.size
    }

    /// The part at `range` as a mapping of its own.
    fn part(&self, range: Range<u64>) -> anyhow::Result<Self> {
        let file = self.memory.as_ref().and_then(MmapRegion::file_offset);
        let file = file.map(|file| {
            let at = file.start() + (range.start - self.start);
            FileOffset::from_arc(Arc::clone(file.arc()), at)
        });
        Self::of_file(range.start, range.end - range.start, file, self.writable)
    }

    /// The file behind it.
    pub(super) fn file(&self) -> Option<&File> {
        let memory = self.memory.as_ref()?;
        memory.file_offset().map(FileOffset::file)
    }
}

/// A place in host memory, found in a [`Map`].  It means nothing to a map of another generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    region: u32,
    offset: u64,
}

impl Frame {
    /// The place `n` bytes further on.
    #[must_use]
    #[inline]
    pub fn offset(self, n: u64) -> Frame {
        Frame {
            offset: self.offset.wrapping_add(n),
            ..self
        }
    }

    /// Whether `len` bytes are few aligned dwords.
    fn is_dwords(self, len: usize) -> bool {
        len <= 16 && len % 4 == 0 && self.offset % 4 == 0
    }
}

/// Number of VRAM in [`Map::regions`].
const VRAM: u32 = 0;

/// What the device can reach at one time.
#[derive(Debug, Clone)]
pub struct Map {
    generation: u64,
    bus_master: bool,
    bus_bits: u32,
    host: Arc<HostPath>,
    /// VRAM, then what is mapped for DMA by ascending address.
    regions: Vec<Arc<Region>>,
}

impl Map {
    /// VRAM only; bus mastering is on.
    pub(super) fn new(vram: Region, host: Arc<HostPath>) -> Self {
        Self {
            generation: 0,
            bus_master: true,
            bus_bits: u64::BITS,
            host,
            regions: vec![Arc::new(vram)],
        }
    }

    fn next(&self) -> Self {
        Self {
            generation: self.generation + 1,
            ..self.clone()
        }
    }

    pub(super) fn with_bus_master(&self, on: bool) -> Self {
        Self {
            bus_master: on,
            ..self.next()
        }
    }

    pub(super) fn with_bus_bits(&self, bits: u32) -> Self {
        Self {
            bus_bits: bits,
            ..self.next()
        }
    }

    /// Without any DMA mapping.
    pub(super) fn with_vram_only(&self) -> Self {
        let mut next = self.next();
        next.regions.truncate(1);
        next
    }

    /// Number in `regions` of the first DMA mapping that ends behind `address`.
    fn after(&self, address: u64) -> usize {
        1 + self.dma().partition_point(|r| r.end() <= address)
    }

    fn dma(&self) -> &[Arc<Region>] {
        self.regions.get(1..).unwrap_or(&[])
    }

    /// With `address..address + size` mapped.
    ///
    /// # Errors
    /// Overlap, overflow, too many mappings or a failing mmap.
    pub(super) fn with_mapping(
        &self,
        address: u64,
        size: u64,
        file: Option<FileOffset>,
        writable: bool,
    ) -> anyhow::Result<Self> {
        let end = address.checked_add(size).filter(|_| size > 0);
        let Some(end) = end else {
            anyhow::bail!("DMA mapping of {size:#x} bytes at {address:#x} wraps")
        };
        if self.dma().len() >= MAX_MAPPINGS {
            anyhow::bail!("too many DMA mappings");
        }
        let at = self.after(address);
        if self.regions.get(at).is_some_and(|r| r.start < end) {
            anyhow::bail!("DMA mapping {address:#x}..{end:#x} overlaps another");
        }
        let region = Region::of_file(address, size, file, writable)?;
        let mut next = self.next();
        next.regions.insert(at, Arc::new(region));
        Ok(next)
    }

    /// Without a range, also from the middle of mappings; and how many it touched.
    ///
    /// # Errors
    /// It cuts a mapping that it does not take whole, and not between two pages of it, or what is left of one cannot be
    /// mapped again.
    pub(super) fn without_range(&self, address: u64, size: u64) -> anyhow::Result<(Self, usize)> {
        let end = address.saturating_add(size);
        let mut touched = 0;
        let mut next = self.next();
        next.regions.truncate(1);
        for region in self.dma() {
            if region.end() <= address || region.start >= end {
                next.regions.push(Arc::clone(region));
                continue;
            }
            touched += 1;
            let (start, stop) = (region.start, region.end());
            let (head, tail) = (start..address.max(start), end.min(stop)..stop);
            for left in [head, tail].into_iter().filter(|left| !left.is_empty()) {
                for cut in [left.start, left.end] {
                    // A file is mapped by pages, and ends where the mapping does.
                    if cut != stop && (cut - start) % PAGE != 0 {
                        anyhow::bail!("{cut:#x} is inside of a page of {start:#x}..{stop:#x}");
                    }
                }
                next.regions.push(Arc::new(region.part(left)?));
            }
        }
        Ok((next, touched))
    }

    /// Tells maps apart: it grows with every change.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Bytes of VRAM.
    pub fn vram_size(&self) -> u64 {
        self.regions.first().map_or(0, |r| r.size)
    }

    pub(super) fn vram(&self) -> Option<&Region> {
        self.regions.first().map(Arc::as_ref)
    }

    /// Whether the device may reach the bus.
    pub fn bus_master(&self) -> bool {
        self.bus_master
    }

    /// Whether the place is on the bus and bus mastering is off: the access waits, nobody is to blame.
    pub fn blocked(&self, at: Phys) -> bool {
        !self.bus_master && matches!(at, Phys::Bus(_))
    }

    /// The bus address ranges that are mapped.
    pub fn dma_ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.dma().iter().map(|r| r.start..r.end())
    }

    /// Where a place is, and how many bytes that can be accessed alike begin there.
    ///
    /// # Errors
    /// Nothing answers there.
    pub fn find(&self, at: Phys, write: bool) -> Result<(Frame, u64), NoMemory> {
        let (number, address) = match at {
            Phys::Vram(offset) => (VRAM as usize, offset),
            Phys::Bus(_) if !self.bus_master => return Err(NoMemory(at)),
            Phys::Bus(address) if address.checked_shr(self.bus_bits).unwrap_or(0) != 0 => {
                return Err(NoMemory(at))
            }
            Phys::Bus(address) => (self.after(address), address),
        };
        let region = self.regions.get(number).ok_or(NoMemory(at))?;
        let offset = address.checked_sub(region.start).ok_or(NoMemory(at))?;
        if offset >= region.size || (write && !region.writable) || region.memory.is_none() {
            return Err(NoMemory(at));
        }
        let frame = Frame {
            region: u32::try_from(number).map_err(|_| NoMemory(at))?,
            offset,
        };
        Ok((frame, region.size - offset))
    }

    /// Whether a byte at this place can be accessed.
    pub fn exists(&self, at: Phys, write: bool) -> bool {
        self.find(at, write).is_ok()
    }

    /// Whether the memory at a place can be written.
    pub fn is_writable(&self, frame: Frame) -> bool {
        let region = self.regions.get(frame.region as usize);
        region.is_some_and(|r| r.writable)
    }

    /// The place as the device names it.
    fn phys(&self, frame: Frame) -> Phys {
        match self.regions.get(frame.region as usize) {
            Some(region) if frame.region != VRAM => Phys::Bus(region.start + frame.offset),
            _ => Phys::Vram(frame.offset),
        }
    }

    #[inline]
    fn memory(&self, frame: Frame) -> Option<(&MmapRegion<()>, usize)> {
        let region = self.regions.get(frame.region as usize)?;
        // What cannot be counted in a usize lies in no memory of this process.
        let offset = usize::try_from(frame.offset).ok()?;
        Some((region.memory.as_ref()?, offset))
    }

    /// Reads one, two, four or eight bytes that are naturally aligned, as a single copy (acquire).
    ///
    /// # Errors
    /// Not aligned, or beyond the memory that the place is in.
    #[inline]
    pub fn load<T: AtomicAccess>(&self, frame: Frame) -> Result<T, NoMemory> {
        self.memory(frame)
            .and_then(|(m, at)| m.as_volatile_slice().load(at, Ordering::Acquire).ok())
            .ok_or_else(|| NoMemory(self.phys(frame)))
    }

    /// Writes one, two, four or eight bytes that are naturally aligned, in a single store (release).
    ///
    /// The host data path does not notice: call [`Map::stored`] afterwards.
    ///
    /// # Errors
    /// Not aligned, beyond the memory that the place is in, or read-only.
    #[inline]
    pub fn store<T: AtomicAccess>(&self, frame: Frame, value: T) -> Result<(), NoMemory> {
        self.writable_memory(frame)
            .and_then(|(m, at)| {
                let slice = m.as_volatile_slice();
                slice.store(value, at, Ordering::Release).ok()
            })
            .ok_or_else(|| NoMemory(self.phys(frame)))
    }

    #[inline]
    fn writable_memory(&self, frame: Frame) -> Option<(&MmapRegion<()>, usize)> {
        // A store to a read-only mapping would be a signal.
        let region = self.regions.get(frame.region as usize)?;
        self.memory(frame).filter(|_| region.writable)
    }

    /// Replaces an aligned 32-bit word by `f` of it, atomically; returns the old value.
    ///
    /// The host data path does not notice: call [`Map::stored`] afterwards.
    ///
    /// # Errors
    /// As [`Map::store`].
    pub fn update_u32(&self, frame: Frame, f: impl Fn(u32) -> u32) -> Result<u32, NoMemory> {
        let missing = || NoMemory(self.phys(frame));
        let (memory, at) = self.writable_memory(frame).ok_or_else(missing)?;
        let slice = memory.as_volatile_slice();
        let cell: &AtomicU32 = slice.get_atomic_ref(at).map_err(|_| missing())?;
        Ok(cell
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |v| Some(f(v)))
            .unwrap_or_else(|v| v))
    }

    /// As [`Map::update_u32`], on 64 bits.
    ///
    /// # Errors
    /// As [`Map::store`].
    pub fn update_u64(&self, frame: Frame, f: impl Fn(u64) -> u64) -> Result<u64, NoMemory> {
        let missing = || NoMemory(self.phys(frame));
        let (memory, at) = self.writable_memory(frame).ok_or_else(missing)?;
        let slice = memory.as_volatile_slice();
        let cell: &AtomicU64 = slice.get_atomic_ref(at).map_err(|_| missing())?;
        Ok(cell
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |v| Some(f(v)))
            .unwrap_or_else(|v| v))
    }

    /// Reads bytes that lie in one piece of memory.  Aligned 4- and 8-byte reads are single copies, and of up to 16
    /// aligned bytes each dword is.
    ///
    /// # Errors
    /// They do not.
    #[inline]
    pub fn load_bytes(&self, frame: Frame, buf: &mut [u8]) -> Result<(), NoMemory> {
        if buf.len() == 8 && frame.offset % 8 == 0 {
            buf.copy_from_slice(&self.load::<u64>(frame)?.to_le_bytes());
            return Ok(());
        }
        if frame.is_dwords(buf.len()) {
            for (n, word) in buf.chunks_exact_mut(4).enumerate() {
                let value: u32 = self.load(frame.offset(4 * n as u64))?;
                word.copy_from_slice(&value.to_le_bytes());
            }
            return Ok(());
        }
        self.memory(frame)
            .and_then(|(m, at)| m.as_volatile_slice().read_slice(buf, at).ok())
            .ok_or_else(|| NoMemory(self.phys(frame)))
    }

    /// Writes bytes that lie in one piece of memory.  Aligned 4- and 8-byte writes are single stores, and of up to 16
    /// aligned bytes each dword is.
    ///
    /// The host data path does not notice: call [`Map::stored`] afterwards.
    ///
    /// # Errors
    /// They do not, or it is read-only; a part may have been written.
    #[inline]
    pub fn store_bytes(&self, frame: Frame, buf: &[u8]) -> Result<(), NoMemory> {
        match <[u8; 8]>::try_from(buf) {
            Ok(q) if frame.offset % 8 == 0 => return self.store(frame, u64::from_le_bytes(q)),
            _ => {}
        }
        if frame.is_dwords(buf.len()) {
            for (n, word) in buf.chunks_exact(4).enumerate() {
                let value = word.try_into().map(u32::from_le_bytes).unwrap_or(0);
                self.store(frame.offset(4 * n as u64), value)?;
            }
            return Ok(());
        }
        self.writable_memory(frame)
            .and_then(|(m, at)| m.as_volatile_slice().write_slice(buf, at).ok())
            .ok_or_else(|| NoMemory(self.phys(frame)))
    }

    /// Whether the frame is in VRAM and its page may be kept by the host data path.  The caller has stored there and
    /// has executed a full fence since.
    #[inline]
    pub fn needs_note(&self, frame: Frame) -> bool {
        frame.region == VRAM && self.host.is_marked(frame.offset)
    }

    /// The device has stored `len` bytes at a frame: what it writes is seen at once, whatever the host data path holds.
    pub fn stored(&self, frame: Frame, len: u64) {
        if frame.region == VRAM {
            self.host.written(frame.offset, len, |at, now| {
                // It was there to be written.
                let _ = self.read(Phys::Vram(at), now);
            });
        }
    }

    /// Reads bytes; aligned 4- and 8-byte reads are single copies.
    ///
    /// # Errors
    /// Some byte of the range does not exist; the buffer's content is then unspecified.
    pub fn read(&self, mut at: Phys, mut buf: &mut [u8]) -> Result<(), NoMemory> {
        while !buf.is_empty() {
            let (frame, n) = self.piece(at, buf.len(), false)?;
            let (now, rest) = buf.split_at_mut(n);
            self.load_bytes(frame, now)?;
            buf = rest;
            at = at.offset(n as u64);
        }
        Ok(())
    }

    /// Writes bytes; aligned 4- and 8-byte writes are single stores.
    ///
    /// # Errors
    /// Some byte of the range does not exist or is read-only; earlier bytes may have been written.
    pub fn write(&self, at: Phys, buf: &[u8]) -> Result<(), NoMemory> {
        self.write_pieces(at, buf, |frame, n| self.stored(frame, n))
    }

    /// Writes VRAM as the host does through BAR0.
    ///
    /// # Errors
    /// See [`Map::write`].
    pub fn write_hosted(&self, offset: u64, buf: &[u8]) -> Result<(), NoMemory> {
        self.write_pieces(Phys::Vram(offset), buf, |_, _| {})
    }

    fn write_pieces(
        &self,
        mut at: Phys,
        mut buf: &[u8],
        stored: impl Fn(Frame, u64),
    ) -> Result<(), NoMemory> {
        while !buf.is_empty() {
            let (frame, n) = self.piece(at, buf.len(), true)?;
            let (now, rest) = buf.split_at(n);
            self.store_bytes(frame, now)?;
            stored(frame, n as u64);
            buf = rest;
            at = at.offset(n as u64);
        }
        Ok(())
    }

    fn piece(&self, at: Phys, len: usize, write: bool) -> Result<(Frame, usize), NoMemory> {
        let (frame, left) = self.find(at, write)?;
        Ok((frame, len.min(usize::try_from(left).unwrap_or(usize::MAX))))
    }

    /// The host's writes through BAR0 reach memory.
    pub fn hdp_flush(&self) {
        let load = |page: u64, copy: &mut [u8]| self.read(Phys::Vram(page), copy).is_ok();
        self.host.flush(load);
    }

    /// Reads what the host writes and the device reads, as of the last HDP flush.
    ///
    /// # Errors
    /// Some byte of the range does not exist.
    pub fn read_hosted(&self, at: Phys, buf: &mut [u8]) -> Result<(), NoMemory> {
        let Phys::Vram(mut offset) = at else {
            return self.read(at, buf);
        };
        let mut rest = buf;
        while !rest.is_empty() {
            let n = rest.len().min((PAGE - offset % PAGE) as usize);
            let (now, later) = rest.split_at_mut(n);
            let load = |page: u64, copy: &mut [u8]| self.read(Phys::Vram(page), copy).is_ok();
            if !self.host.read(offset, now, load) {
                return Err(NoMemory(at));
            }
            rest = later;
            offset += n as u64;
        }
        Ok(())
    }

    /// Reads an entry of the tables of the address space with this root, as of the last HDP flush.
    ///
    /// # Errors
    /// There is none.
    pub fn read_entry(&self, slot: Phys, root: Root) -> Result<u64, NoMemory> {
        let Phys::Vram(offset) = slot else {
            let mut entry = [0; 8];
            self.read(slot, &mut entry)?;
            return Ok(u64::from_le_bytes(entry));
        };
        let load = |at: u64, buf: &mut [u8]| self.read(Phys::Vram(at), buf).is_ok();
        let entry = self.host.read_entry(offset, root, load);
        entry.ok_or(NoMemory(slot))
    }

    /// The translations of the address space with this root are invalidated: what its tables have that is not flushed is
    /// the driver's mistake from now on, if a walk comes to it.
    pub fn claim_tables(&self, root: Root) {
        let load = |at: u64, buf: &mut [u8]| self.read(Phys::Vram(at), buf).is_ok();
        self.host.claim(root, load);
    }
}

const MAP_SHARED_NORESERVE: i32 = nix::libc::MAP_SHARED | nix::libc::MAP_NORESERVE;

fn map_file(file: FileOffset, size: u64, writable: bool) -> anyhow::Result<MmapRegion<()>> {
    // Beyond the end of a file pages cannot be accessed: that would be a signal.
    let about = file.file().metadata()?;
    let end = file.start().checked_add(size);
    if about.is_file() && end.is_none_or(|end| end > about.len()) {
        anyhow::bail!("{size:#x} bytes at {:#x} go beyond the file", file.start());
    }
    let write = if writable { nix::libc::PROT_WRITE } else { 0 };
    Ok(MmapRegion::build(
        Some(file),
        usize::try_from(size)?,
        nix::libc::PROT_READ | write,
        MAP_SHARED_NORESERVE,
    )?)
}
