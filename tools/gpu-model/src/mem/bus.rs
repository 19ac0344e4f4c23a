// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The bus: the present map, and who still uses an older one.

use std::fs::File;
use std::ops::{Deref, Range};
use std::sync::atomic::{fence, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use vm_memory::FileOffset;

use super::host::{HostPath, Root, Unflushed};
use super::map::{Map, Region};
use super::{NoMemory, Phys};

/// VRAM, the current DMA mappings and the host data path, for all threads.
#[derive(Debug)]
pub struct Bus {
    map: ArcSwap<Map>,
    /// Maps that have been replaced and may be in use.  The lock also puts changes in order.
    replaced: Mutex<Vec<Weak<Map>>>,
    host: Arc<HostPath>,
}

/// The map of this moment, for one access.  A thread has few of them at once, and none across a wait.
#[derive(Debug)]
pub struct Current(Guard<Arc<Map>>);

impl Deref for Current {
    type Target = Map;

    #[inline]
    fn deref(&self) -> &Map {
        &self.0
    }
}

/// A map that somebody goes on using for a while; what it has stays mapped so long.
#[derive(Debug, Clone)]
pub struct Pin(Arc<Map>);

impl Deref for Pin {
    type Target = Map;

    #[inline]
    fn deref(&self) -> &Map {
        &self.0
    }
}

/// Maps that have been replaced by a change.
#[derive(Debug)]
#[must_use = "what is unmapped may be in use until the wait is over"]
pub struct Retired(Vec<Weak<Map>>);

impl Retired {
    /// Whether nobody uses an older map any more.
    pub fn is_over(&self) -> bool {
        let over = self.0.iter().all(|map| map.strong_count() == 0);
        // Orders what the last users of the maps did before what the caller does now.
        fence(Ordering::Acquire);
        over
    }

    /// Waits for those who use an older map.  The caller has none itself.
    pub fn wait(self) {
        const LONGEST: Duration = Duration::from_micros(200);
        let mut pause = Duration::from_micros(5);
        // Pins are renewed every few microseconds.  To wake who waits would cost each of them a full fence.
        while !self.is_over() {
            std::thread::sleep(pause);
            pause = LONGEST.min(pause * 2);
        }
    }
}

impl Bus {
    /// Maps `size` bytes of `vram` (a memfd) as the device's local memory.
    ///
    /// # Errors
    /// The mmap failed.
    pub fn new(vram: File, size: u64) -> anyhow::Result<Self> {
        let region = Region::of_file(0, size, Some(FileOffset::new(vram, 0)), true)?;
        let host = Arc::new(HostPath::new(size));
        Ok(Self {
            map: ArcSwap::from_pointee(Map::new(region, Arc::clone(&host))),
            replaced: Mutex::default(),
            host,
        })
    }

    /// The present map, for one access.
    #[inline]
    pub fn current(&self) -> Current {
        Current(self.map.load())
    }

    /// The present map, for as long as the caller keeps it.  A DMA unmap waits for it: give it back soon.
    pub fn pin(&self) -> Pin {
        Pin(self.map.load_full())
    }

    /// Replaces the map by what `change` makes of it.
    fn publish<T>(&self, change: impl FnOnce(&Map) -> (Map, T)) -> (Retired, T) {
        let mut replaced = self.replaced.lock();
        let (next, result) = change(&self.map.load());
        let last = self.map.swap(Arc::new(next));
        replaced.retain(|map| map.strong_count() != 0);
        replaced.push(Arc::downgrade(&last));
        (Retired(replaced.clone()), result)
    }

    /// Says how many address bits the device drives on the bus; nothing answers beyond.
    pub fn set_bus_bits(&self, bits: u32) {
        let _ = self.publish(|map| (map.with_bus_bits(bits), ()));
    }

    /// Lets the device reach the bus or not (PCI command register, bus master enable).  Who holds a pin goes on until
    /// it is renewed.
    pub fn set_bus_master(&self, on: bool) {
        if self.bus_master() != on {
            let _ = self.publish(|map| (map.with_bus_master(on), ()));
        }
    }

    /// The host's writes through BAR0 reach memory.
    pub fn hdp_flush(&self) {
        self.current().hdp_flush();
    }

    /// The device is reset: the host's writes through BAR0 reach memory, and what was read before is forgotten.
    pub fn hdp_reset(&self) {
        self.host.reset();
    }

    /// See [`Map::claim_tables`].
    pub fn claim_tables(&self, root: Root) {
        self.current().claim_tables(root);
    }

    /// The entries of tables that were used since the last call, though they were not flushed when their address space was
    /// invalidated.
    pub fn take_unflushed(&self) -> Vec<Unflushed> {
        self.host.take_used()
    }

    /// Bytes of VRAM.
    pub fn vram_size(&self) -> u64 {
        self.current().vram_size()
    }

    /// Makes guest memory reachable at bus addresses `address..address + size`.
    ///
    /// # Errors
    /// Overlap, overflow, too many mappings or a failing mmap.
    pub fn dma_map(
        &self,
        address: u64,
        size: u64,
        file: Option<(File, u64)>,
        writable: bool,
    ) -> anyhow::Result<()> {
        let file = file.map(|(file, at)| FileOffset::new(file, at));
        let (_, done) = self.publish(
            |map| match map.with_mapping(address, size, file, writable) {
                Ok(next) => (next, Ok(())),
                Err(e) => (map.clone(), Err(e)),
            },
        );
        done
    }

    /// Takes a range away, also from the middle of mappings; returns how many it touched, and the maps that still have
    /// it.  The range may be in use until [`Retired::wait`] has returned.
    ///
    /// # Errors
    /// The range begins or ends inside of a page of a mapping that it cuts, or what is left of one cannot be mapped again.
    /// All is mapped as before then.
    pub fn dma_retire(&self, address: u64, size: u64) -> (Retired, anyhow::Result<usize>) {
        self.publish(|map| match map.without_range(address, size) {
            Ok((next, touched)) => (next, Ok(touched)),
            Err(e) => (map.clone(), Err(e)),
        })
    }

    /// Takes away all DMA mappings; see [`Bus::dma_retire`].
    pub fn dma_retire_all(&self) -> Retired {
        self.publish(|map| (map.with_vram_only(), ())).0
    }

    /// As [`Bus::dma_retire`], and waits for those who use the range.  The caller has no pin itself.
    ///
    /// # Errors
    /// As [`Bus::dma_retire`].
    pub fn dma_unmap(&self, address: u64, size: u64) -> anyhow::Result<usize> {
        let (retired, done) = self.dma_retire(address, size);
        retired.wait();
        done
    }

    /// Takes away all DMA mappings and waits for those who use them.  The caller has no pin itself.
    pub fn dma_unmap_all(&self) {
        self.dma_retire_all().wait();
    }

    /// The bus address ranges that are mapped now.
    pub fn dma_ranges(&self) -> Vec<Range<u64>> {
        self.current().dma_ranges().collect()
    }

    /// Whether the place is on the bus and bus mastering is off: the access waits, nobody is to blame.
    pub fn blocked(&self, at: Phys) -> bool {
        self.current().blocked(at)
    }

    /// Whether the device may reach the bus.
    pub fn bus_master(&self) -> bool {
        self.current().bus_master()
    }

    /// Whether a byte at this place can be accessed.
    pub fn exists(&self, at: Phys, write: bool) -> bool {
        self.current().exists(at, write)
    }

    /// See [`Map::read`].
    ///
    /// # Errors
    /// Some byte of the range does not exist; the buffer's content is then unspecified.
    pub fn read(&self, at: Phys, buf: &mut [u8]) -> Result<(), NoMemory> {
        self.current().read(at, buf)
    }

    /// See [`Map::write`].
    ///
    /// # Errors
    /// Some byte of the range does not exist or is read-only; earlier bytes may have been written.
    pub fn write(&self, at: Phys, buf: &[u8]) -> Result<(), NoMemory> {
        self.current().write(at, buf)
    }

    /// See [`Map::read_hosted`].
    ///
    /// # Errors
    /// Some byte of the range does not exist.
    pub fn read_hosted(&self, at: Phys, buf: &mut [u8]) -> Result<(), NoMemory> {
        self.current().read_hosted(at, buf)
    }

    /// Writes VRAM as the host does through BAR0.
    ///
    /// # Errors
    /// See [`Bus::write`].
    pub fn write_hosted(&self, offset: u64, buf: &[u8]) -> Result<(), NoMemory> {
        self.current().write_hosted(offset, buf)
    }

    /// Reads a 32-bit word (acquire).
    ///
    /// # Errors
    /// The place does not exist or is not 4-byte aligned.
    pub fn read_u32(&self, at: Phys) -> Result<u32, NoMemory> {
        let map = self.current();
        map.load(map.find(at, false)?.0)
    }

    /// Reads a 64-bit word (acquire).
    ///
    /// # Errors
    /// The place does not exist or is not 8-byte aligned.
    pub fn read_u64(&self, at: Phys) -> Result<u64, NoMemory> {
        let map = self.current();
        map.load(map.find(at, false)?.0)
    }

    /// Replaces a 32-bit word by `f` of it, atomically; returns the old value.
    ///
    /// # Errors
    /// The place does not exist, is read-only or is not aligned.
    pub fn update_u32(&self, at: Phys, f: impl Fn(u32) -> u32) -> Result<u32, NoMemory> {
        let map = self.current();
        let (frame, _) = map.find(at, true)?;
        let old = map.update_u32(frame, f)?;
        map.stored(frame, 4);
        Ok(old)
    }

    /// Replaces a 64-bit word by `f` of it, atomically; returns the old value.
    ///
    /// # Errors
    /// The place does not exist, is read-only or is not aligned.
    pub fn update_u64(&self, at: Phys, f: impl Fn(u64) -> u64) -> Result<u64, NoMemory> {
        let map = self.current();
        let (frame, _) = map.find(at, true)?;
        let old = map.update_u64(frame, f)?;
        map.stored(frame, 8);
        Ok(old)
    }
}
