// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Memory the device can reach: its VRAM and the guest RAM that the VMM has shared for DMA.

mod host;

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use nix::fcntl::FallocateFlags;
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};

use host::HostPath;

/// A physical place, after all translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phys {
    /// Byte offset in VRAM.
    Vram(u64),
    /// Bus address (guest physical, or IOVA behind an IOMMU).
    Bus(u64),
}

impl Phys {
    /// The place `n` bytes further on.
    pub fn offset(self, n: u64) -> Phys {
        match self {
            Phys::Vram(o) => Phys::Vram(o.wrapping_add(n)),
            Phys::Bus(a) => Phys::Bus(a.wrapping_add(n)),
        }
    }
}

/// Nothing answers at this place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no memory at {0:x?}")]
pub struct NoMemory(pub Phys);

#[derive(Debug)]
struct Mapping {
    size: u64,
    writable: bool,
    region: Option<MmapRegion<()>>,
}

/// VRAM plus the current DMA mappings.
#[derive(Debug)]
pub struct Memory {
    vram: MmapRegion<()>,
    vram_size: u64,
    dma: BTreeMap<u64, Mapping>,
    bus_master: bool,
    bus_bits: u32,
    host: HostPath,
}

/// Bytes at either end of VRAM that are all noise when nobody has written them yet.
const NOISE_ENDS: u64 = 4 << 20;
/// Between the ends each block of this size ...
const NOISE_BLOCK: u64 = 1 << 20;
/// ... begins with so much noise; the rest is zeros.  All of it would cost the host as much memory as the board has.
const NOISE_HEAD: u64 = 16 << 10;
/// Upper bound of simultaneous DMA mappings; a VMM uses a few dozen.
const MAX_MAPPINGS: usize = 65536;

impl Memory {
    /// Maps `size` bytes of `vram` (a memfd) as the device's local memory.
    ///
    /// # Errors
    /// The mmap failed.
    pub fn new(vram: File, size: u64) -> anyhow::Result<Self> {
        let len = usize::try_from(size)?;
        Ok(Self {
            vram: MmapRegion::from_file(FileOffset::new(vram, 0), len)?,
            vram_size: size,
            dma: BTreeMap::new(),
            bus_master: true,
            bus_bits: u64::BITS,
            host: HostPath::default(),
        })
    }

    /// Says how many address bits the device drives on the bus; nothing answers beyond.
    pub fn set_bus_bits(&mut self, bits: u32) {
        self.bus_bits = bits;
    }

    /// Lets the device reach the bus or not (PCI command register, bus master enable).
    pub fn set_bus_master(&mut self, on: bool) {
        self.bus_master = on;
    }

    /// What is in VRAM that nobody has written: noise where drivers allocate, zeros elsewhere.
    pub fn make_noise(&self) {
        let noise = |at: u64, bytes: u64| {
            let data: Vec<u8> = (at / 8..(at + bytes) / 8)
                .flat_map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1).to_le_bytes())
                .collect();
            // What lies beyond a small VRAM is not there to be written.
            let _ = self.write(Phys::Vram(at), &data);
        };
        let ends = NOISE_ENDS.min(self.vram_size / 2);
        noise(0, ends);
        noise(self.vram_size - ends, ends);
        for at in (ends..self.vram_size - ends).step_by(NOISE_BLOCK as usize) {
            noise(at, NOISE_HEAD);
        }
        self.host.flush();
    }

    /// The host's writes through BAR0 reach memory.
    pub fn hdp_flush(&self) {
        self.host.flush();
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
            let n = rest.len().min(4096 - (offset % 4096) as usize);
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

    /// Writes VRAM as the host does through BAR0.
    ///
    /// # Errors
    /// See [`Memory::write`].
    pub fn write_hosted(&self, offset: u64, buf: &[u8]) -> Result<(), NoMemory> {
        self.store(Phys::Vram(offset), buf)
    }

    /// Forgets what is in VRAM.
    ///
    /// # Errors
    /// The kernel refuses to drop the pages.
    pub fn lose_vram(&self) -> anyhow::Result<()> {
        let file = self.vram.file_offset().map(FileOffset::file);
        let file = file.ok_or_else(|| anyhow::anyhow!("VRAM is not a file"))?;
        nix::fcntl::fallocate(
            file.as_raw_fd(),
            FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE,
            0,
            i64::try_from(self.vram_size)?,
        )?;
        self.make_noise();
        Ok(())
    }

    /// Bytes of VRAM.
    pub fn vram_size(&self) -> u64 {
        self.vram_size
    }

    /// Makes guest memory reachable at bus addresses `address..address + size`.
    ///
    /// # Errors
    /// Overlap, overflow, too many mappings or a failing mmap.
    pub fn dma_map(
        &mut self,
        address: u64,
        size: u64,
        file: Option<(File, u64)>,
        writable: bool,
    ) -> anyhow::Result<()> {
        let end = address.checked_add(size).filter(|_| size > 0);
        let Some(end) = end else {
            anyhow::bail!("DMA mapping of {size:#x} bytes at {address:#x} wraps")
        };
        if self.dma.len() >= MAX_MAPPINGS {
            anyhow::bail!("too many DMA mappings");
        }
        if self
            .dma
            .range(..end)
            .next_back()
            .is_some_and(|(&a, m)| a + m.size > address)
        {
            anyhow::bail!("DMA mapping {address:#x}..{end:#x} overlaps another");
        }
        let region = match file {
            Some((file, offset)) => Some(Self::map_file(
                FileOffset::new(file, offset),
                size,
                writable,
            )?),
            None => None,
        };
        self.dma.insert(
            address,
            Mapping {
                size,
                writable,
                region,
            },
        );
        Ok(())
    }

    /// Takes a range away, also from the middle of mappings; returns how many it touched.
    ///
    /// # Errors
    /// What is left of a mapping that was cut cannot be mapped again; it is gone as well.
    pub fn dma_unmap(&mut self, address: u64, size: u64) -> anyhow::Result<usize> {
        let end = address.saturating_add(size);
        let touched: Vec<u64> = self
            .dma
            .range(..end)
            .rev()
            .take_while(|(&a, m)| a + m.size > address)
            .map(|(&a, _)| a)
            .collect();
        let mut lost = None;
        for start in &touched {
            let Some(old) = self.dma.remove(start) else {
                continue;
            };
            let (start, stop) = (*start, *start + old.size);
            for left in [start..address.max(start), end.min(stop)..stop] {
                if left.is_empty() {
                    continue;
                }
                let file = old.region.as_ref().and_then(|r| r.file_offset());
                let part = match (file, &old.region) {
                    (Some(file), _) => {
                        let at = file.start() + (left.start - start);
                        Self::map_file(
                            FileOffset::from_arc(Arc::clone(file.arc()), at),
                            left.end - left.start,
                            old.writable,
                        )
                        .map(Some)
                    }
                    (None, _) => Ok(None),
                };
                match part {
                    Ok(region) => {
                        let mapping = Mapping {
                            size: left.end - left.start,
                            writable: old.writable,
                            region,
                        };
                        self.dma.insert(left.start, mapping);
                    }
                    Err(e) => lost = Some(e),
                }
            }
        }
        lost.map_or(Ok(touched.len()), Err)
    }

    fn map_file(file: FileOffset, size: u64, writable: bool) -> anyhow::Result<MmapRegion<()>> {
        let len = usize::try_from(size)?;
        Ok(MmapRegion::build(
            Some(file),
            len,
            libc_prot(writable),
            MAP_SHARED_NORESERVE,
        )?)
    }

    /// Takes away all DMA mappings.
    pub fn dma_unmap_all(&mut self) {
        self.dma.clear();
    }

    /// The bus address ranges that are mapped now.
    pub fn dma_ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.dma.iter().map(|(&a, m)| a..a + m.size)
    }

    fn locate(&self, at: Phys, write: bool) -> Result<(&MmapRegion<()>, usize, usize), NoMemory> {
        match at {
            Phys::Vram(off) if off < self.vram_size => {
                let left = self.vram_size - off;
                Ok((&self.vram, usize_of(off, at)?, usize_of(left, at)?))
            }
            Phys::Vram(_) => Err(NoMemory(at)),
            Phys::Bus(_) if !self.bus_master => Err(NoMemory(at)),
            Phys::Bus(addr) if addr.checked_shr(self.bus_bits).unwrap_or(0) != 0 => {
                Err(NoMemory(at))
            }
            Phys::Bus(addr) => {
                let (start, m) = self.dma.range(..=addr).next_back().ok_or(NoMemory(at))?;
                let off = addr - start;
                if off >= m.size || (write && !m.writable) {
                    return Err(NoMemory(at));
                }
                let region = m.region.as_ref().ok_or(NoMemory(at))?;
                Ok((region, usize_of(off, at)?, usize_of(m.size - off, at)?))
            }
        }
    }

    /// Whether the place is on the bus and bus mastering is off: the access waits, nobody is to blame.
    pub fn blocked(&self, at: Phys) -> bool {
        !self.bus_master && matches!(at, Phys::Bus(_))
    }

    /// Whether the device may reach the bus.
    pub fn bus_master(&self) -> bool {
        self.bus_master
    }

    /// Whether a byte at this place can be accessed.
    pub fn exists(&self, at: Phys, write: bool) -> bool {
        self.locate(at, write).is_ok()
    }

    /// Reads bytes; aligned 4- and 8-byte reads are single copies.
    ///
    /// # Errors
    /// Some byte of the range does not exist; the buffer's content is then unspecified.
    pub fn read(&self, mut at: Phys, mut buf: &mut [u8]) -> Result<(), NoMemory> {
        while !buf.is_empty() {
            let (region, off, left) = self.locate(at, false)?;
            let n = buf.len().min(left);
            let (now, rest) = buf.split_at_mut(n);
            region
                .as_volatile_slice()
                .read_slice(now, off)
                .map_err(|_| NoMemory(at))?;
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
        if let Phys::Vram(offset) = at {
            self.host.written(offset, buf);
        }
        self.store(at, buf)
    }

    fn store(&self, mut at: Phys, mut buf: &[u8]) -> Result<(), NoMemory> {
        while !buf.is_empty() {
            let (region, off, left) = self.locate(at, true)?;
            let n = buf.len().min(left);
            let (now, rest) = buf.split_at(n);
            let slice = region.as_volatile_slice();
            let done = match (<[u8; 4]>::try_from(now), <[u8; 8]>::try_from(now)) {
                (Ok(w), _) if off % 4 == 0 => {
                    slice.store(u32::from_le_bytes(w), off, Ordering::Release)
                }
                (_, Ok(q)) if off % 8 == 0 => {
                    slice.store(u64::from_le_bytes(q), off, Ordering::Release)
                }
                _ => slice.write_slice(now, off),
            };
            done.map_err(|_| NoMemory(at))?;
            buf = rest;
            at = at.offset(n as u64);
        }
        Ok(())
    }

    /// Reads a 32-bit word (acquire).
    ///
    /// # Errors
    /// The place does not exist or is not 4-byte aligned.
    pub fn read_u32(&self, at: Phys) -> Result<u32, NoMemory> {
        let (region, off, _) = self.locate(at, false)?;
        region
            .as_volatile_slice()
            .load(off, Ordering::Acquire)
            .map_err(|_| NoMemory(at))
    }

    /// Reads a 64-bit word (acquire).
    ///
    /// # Errors
    /// The place does not exist or is not 8-byte aligned.
    pub fn read_u64(&self, at: Phys) -> Result<u64, NoMemory> {
        let (region, off, _) = self.locate(at, false)?;
        region
            .as_volatile_slice()
            .load(off, Ordering::Acquire)
            .map_err(|_| NoMemory(at))
    }

    /// Replaces a 32-bit word by `f` of it, atomically; returns the old value.
    ///
    /// # Errors
    /// The place does not exist, is read-only or is not aligned.
    pub fn update_u32(&self, at: Phys, f: impl Fn(u32) -> u32) -> Result<u32, NoMemory> {
        let (region, off, _) = self.locate(at, true)?;
        let slice = region.as_volatile_slice();
        let cell: &AtomicU32 = slice.get_atomic_ref(off).map_err(|_| NoMemory(at))?;
        let old = cell
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |v| Some(f(v)))
            .unwrap_or_else(|v| v);
        if let Phys::Vram(offset) = at {
            self.host.written(offset, &f(old).to_le_bytes());
        }
        Ok(old)
    }

    /// Replaces a 64-bit word by `f` of it, atomically; returns the old value.
    ///
    /// # Errors
    /// The place does not exist, is read-only or is not aligned.
    pub fn update_u64(&self, at: Phys, f: impl Fn(u64) -> u64) -> Result<u64, NoMemory> {
        let (region, off, _) = self.locate(at, true)?;
        let slice = region.as_volatile_slice();
        let cell: &AtomicU64 = slice.get_atomic_ref(off).map_err(|_| NoMemory(at))?;
        let old = cell
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |v| Some(f(v)))
            .unwrap_or_else(|v| v);
        if let Phys::Vram(offset) = at {
            self.host.written(offset, &f(old).to_le_bytes());
        }
        Ok(old)
    }
}

fn usize_of(v: u64, at: Phys) -> Result<usize, NoMemory> {
    usize::try_from(v).map_err(|_| NoMemory(at))
}

const MAP_SHARED_NORESERVE: i32 = nix::libc::MAP_SHARED | nix::libc::MAP_NORESERVE;

fn libc_prot(writable: bool) -> i32 {
    nix::libc::PROT_READ | if writable { nix::libc::PROT_WRITE } else { 0 }
}
