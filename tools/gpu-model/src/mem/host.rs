// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The host data path: what the CPU writes through BAR0 reaches memory at some time, surely at an HDP flush.
//!
//! BAR0 is mapped into the guest, so the model does not see these writes.  It sees to it that the structures which a
//! driver writes and the device reads (page tables, MQDs) are old until the flush: a page of VRAM that the device has
//! read one from is kept as it was then, and read again after the next flush only.  What the device itself writes
//! is in both.
//!
//! A page of tables is forgotten by the flush and kept anew when it is next read, so what is written in between is seen.
//! There are too many of them to be copied at each flush.  MQDs are few: a page that one of the last loads has read an MQD
//! from stays kept, and the flush copies it, so that an MQD which is written after the flush and then loaded is an old one.
//!
//! Reader and writer meet without a lock as long as the page is not kept.  The reader marks the page and then copies
//! it, the writer stores and then looks for the mark, each with a full fence between the two steps.  So either the
//! writer sees the mark and brings the copy up to date, or the copy has been made after the store.
//!
//! A driver that invalidates the translations of an address space says that its tables are written.  Entries that are not
//! flushed at this moment will not be seen afterwards either, unless by chance: [`HostPath::claim`] notes them, and a walk
//! that comes to one is the driver's mistake.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{fence, AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

/// Bytes of a page that is kept.
const PAGE: u64 = 4096;
/// Most pages kept; others are always up to date, as if hardware had drained its buffer.
const MAX_PAGES: usize = 16384;
/// Reads of MQDs whose pages flushes copy; what has been read before is forgotten as pages of tables are.
const MQD_READS: u64 = 128;
/// Writes of the device after which a page is none of MQDs any more, unless one is read there again: a queue that leaves its
/// slot takes fewer.  Otherwise each access of programs to memory that once was an MQD would come here.
const MQD_WRITES: u32 = 4096;

/// Most entries that are noted as not flushed, and most mistakes that wait to be reported.
const MAX_NOTES: usize = 4096;
/// Bytes of an entry of a table.
const ENTRY: usize = 8;

/// A page as the device sees it.
#[derive(Debug)]
struct Kept {
    bytes: Box<[u8; PAGE as usize]>,
    /// Who has read it last.
    reader: Reader,
    /// Writes of the device since.
    writes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// A walk of the tables with this root.
    Walk(Root),
    /// The load of an MQD, by its number.
    Load(u64),
}

/// What an address space is known by here: the entry-like pointer to its root.
pub type Root = u64;

/// An entry of a table that a walk has used as it was, though memory held another one when the translations of the address
/// space were invalidated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unflushed {
    /// VRAM offset of the entry.
    pub at: u64,
    /// The entry that was used.
    pub used: u64,
    /// The one in memory.
    pub written: u64,
}

#[derive(Debug, Default)]
struct Pages {
    kept: HashMap<u64, Kept>,
    /// Reads of MQDs.
    loads: u64,
    /// Entries that were not flushed when their address space was invalidated: root, VRAM offset.
    claimed: HashSet<(Root, u64)>,
    /// Those of them that have been used since.
    used: Vec<Unflushed>,
}

/// Pages of VRAM as they were when the device first read them since the last flush, or at the flush.
#[derive(Debug)]
pub(super) struct HostPath {
    pages: Mutex<Pages>,
    /// [`Pages::used`] has something.
    told: AtomicBool,
    /// A bit for each page of VRAM: it may be kept.
    marks: Box<[AtomicU64]>,
}

impl HostPath {
    /// For `size` bytes of VRAM.
    pub(super) fn new(size: u64) -> Self {
        let words = size.div_ceil(PAGE * u64::from(u64::BITS));
        Self {
            pages: Mutex::default(),
            told: AtomicBool::new(false),
            marks: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn mark(&self, page: u64) -> Option<(&AtomicU64, u64)> {
        let bits = u64::from(u64::BITS);
        let word = self.marks.get(usize::try_from(page / bits).ok()?)?;
        Some((word, 1 << (page % bits)))
    }

    fn unmark(&self, page: u64) {
        if let Some((word, bit)) = self.mark(page) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Keeps those pages for which `stays` is true.
    fn retain(&self, pages: &mut Pages, mut stays: impl FnMut(u64, &mut Kept) -> bool) {
        pages.kept.retain(|&page, kept| {
            let stays = stays(page, kept);
            if !stays {
                self.unmark(page);
            }
            stays
        });
        pages.claimed.clear();
    }

    /// The host's writes arrive.  `load` reads a page of memory; false if there is none.
    pub(super) fn flush(&self, load: impl Fn(u64, &mut [u8]) -> bool) {
        let mut pages = self.pages.lock();
        let old = pages.loads.saturating_sub(MQD_READS);
        // A page that stays is marked all the time, so what the device writes meanwhile waits in `written` and comes after.
        self.retain(&mut pages, |page, kept| match kept.reader {
            Reader::Load(number) if number > old => load(page * PAGE, kept.bytes.as_mut_slice()),
            _ => false,
        });
    }

    /// The device is reset: the host's writes arrive, and it has read nothing yet.
    pub(super) fn reset(&self) {
        self.retain(&mut self.pages.lock(), |_, _| false);
    }

    /// Whether the page of a VRAM offset may be kept.  The caller has stored and executed a full fence.
    pub(super) fn is_marked(&self, offset: u64) -> bool {
        self.mark(offset / PAGE)
            .is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// The device has written `len` bytes at a VRAM offset; `load` reads memory.
    pub(super) fn written(&self, offset: u64, len: u64, load: impl Fn(u64, &mut [u8])) {
        // Pairs with the fence in `read_kept`.
        fence(Ordering::SeqCst);
        let end = offset.saturating_add(len);
        let mut at = offset;
        while at < end {
            let stop = end.min((at / PAGE + 1) * PAGE);
            if self.is_marked(at) {
                // What is there now, not what the caller wrote: another writer may have been faster, and the copy
                // must end as memory does.
                let mut pages = self.pages.lock();
                let (first, last) = ((at % PAGE) as usize, ((stop - 1) % PAGE) as usize);
                let mut reused = false;
                if let Some(kept) = pages.kept.get_mut(&(at / PAGE)) {
                    kept.writes = kept.writes.saturating_add(1);
                    reused = kept.writes > MQD_WRITES && matches!(kept.reader, Reader::Load(_));
                    if let Some(bytes) = kept.bytes.get_mut(first..=last) {
                        load(at, bytes);
                    }
                }
                if reused {
                    pages.kept.remove(&(at / PAGE));
                    self.unmark(at / PAGE);
                }
            }
            at = stop;
        }
    }

    /// Reads a part of an MQD within one page, as of the last flush.  `load` reads the whole page; false if it does not exist.
    pub(super) fn read(
        &self,
        offset: u64,
        buf: &mut [u8],
        load: impl FnOnce(u64, &mut [u8]) -> bool,
    ) -> bool {
        let mut pages = self.pages.lock();
        pages.loads += 1;
        let reader = Reader::Load(pages.loads);
        self.read_kept(&mut pages, offset, reader, buf, load)
    }

    /// Reads the entry of a table of the address space with this root, as of the last flush.  `load` reads memory; `None` if
    /// there is none.
    pub(super) fn read_entry(
        &self,
        offset: u64,
        root: Root,
        load: impl Fn(u64, &mut [u8]) -> bool,
    ) -> Option<u64> {
        let mut pages = self.pages.lock();
        let mut entry = [0; ENTRY];
        if !self.read_kept(&mut pages, offset, Reader::Walk(root), &mut entry, &load) {
            return None;
        }
        // Told once, as long as nothing is flushed.
        if pages.claimed.remove(&(root, offset)) {
            let mut written = [0; ENTRY];
            if load(offset, &mut written) && written != entry && pages.used.len() < MAX_NOTES {
                pages.used.push(Unflushed {
                    at: offset,
                    used: u64::from_le_bytes(entry),
                    written: u64::from_le_bytes(written),
                });
                self.told.store(true, Ordering::Release);
            }
        }
        Some(u64::from_le_bytes(entry))
    }

    /// The translations of the address space with this root are invalidated: notes the entries of its tables that are not
    /// flushed.  `load` reads memory.
    pub(super) fn claim(&self, root: Root, load: impl Fn(u64, &mut [u8]) -> bool) {
        let mut pages = self.pages.lock();
        let Pages { kept, claimed, .. } = &mut *pages;
        let mut now = [0; PAGE as usize];
        let walked = Reader::Walk(root);
        for (page, kept) in kept.iter().filter(|(_, kept)| kept.reader == walked) {
            if !load(page * PAGE, &mut now) || now == *kept.bytes {
                continue;
            }
            let both = now.chunks_exact(ENTRY).zip(kept.bytes.chunks_exact(ENTRY));
            for (number, _) in (0..).zip(both).filter(|(_, (now, kept))| now != kept) {
                if claimed.len() < MAX_NOTES {
                    claimed.insert((root, page * PAGE + number * ENTRY as u64));
                }
            }
        }
    }

    /// The entries that were used unflushed since the last call.
    pub(super) fn take_used(&self) -> Vec<Unflushed> {
        if !self.told.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut self.pages.lock().used)
    }

    fn read_kept(
        &self,
        pages: &mut Pages,
        offset: u64,
        reader: Reader,
        buf: &mut [u8],
        load: impl FnOnce(u64, &mut [u8]) -> bool,
    ) -> bool {
        let page = offset / PAGE;
        if !pages.kept.contains_key(&page) {
            if pages.kept.len() >= MAX_PAGES {
                self.retain(pages, |_, _| false);
            }
            let Some((word, bit)) = self.mark(page) else {
                return false;
            };
            word.fetch_or(bit, Ordering::Relaxed);
            // Pairs with the fence in `written`.
            fence(Ordering::SeqCst);
            let mut bytes = Box::new([0u8; PAGE as usize]);
            if !load(page * PAGE, bytes.as_mut_slice()) {
                word.fetch_and(!bit, Ordering::Relaxed);
                return false;
            }
            let writes = 0;
            pages.kept.insert(
                page,
                Kept {
                    bytes,
                    reader,
                    writes,
                },
            );
        }
        let Some(kept) = pages.kept.get_mut(&page) else {
            return false;
        };
        (kept.reader, kept.writes) = (reader, 0);
        let inside = (offset % PAGE) as usize;
        let bytes = kept.bytes.get(inside..inside + buf.len());
        if let Some(bytes) = bytes {
            buf.copy_from_slice(bytes);
        }
        bytes.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const ROOT: Root = 0x1000;

    /// Pages that all have this in each byte; counts how often one is loaded.
    fn memory<'a>(
        byte: &'a Cell<u8>,
        loads: &'a Cell<u64>,
    ) -> impl Fn(u64, &mut [u8]) -> bool + 'a {
        move |_, buf| {
            loads.set(loads.get() + 1);
            buf.fill(byte.get());
            true
        }
    }

    fn mqd(host: &HostPath, page: u64, load: impl Fn(u64, &mut [u8]) -> bool) -> u8 {
        let mut seen = [0];
        assert!(host.read(page * PAGE + 8, &mut seen, load));
        seen[0]
    }

    #[test]
    fn a_flush_copies_the_mqds_that_were_read_last_and_nothing_else() {
        let (byte, loads) = (Cell::new(1), Cell::new(0));
        let load = memory(&byte, &loads);
        let host = HostPath::new(1024 * PAGE);
        for page in 0..MQD_READS + 10 {
            assert_eq!(mqd(&host, page, &load), 1);
        }
        host.read_entry(1000 * PAGE, ROOT, &load).unwrap();
        byte.set(2);
        assert_eq!(mqd(&host, MQD_READS + 9, &load), 1);
        loads.set(0);
        host.flush(&load);
        // One has been read twice.
        assert_eq!(loads.get(), MQD_READS - 1);
        byte.set(3);
        assert_eq!(mqd(&host, 5, &load), 3, "too long ago");
        assert_eq!(mqd(&host, MQD_READS + 9, &load), 2, "as of the flush");
        let entry = host.read_entry(1000 * PAGE, ROOT, &load);
        assert_eq!(entry, Some(0x0303_0303_0303_0303), "a table");
        assert!(!host.is_marked(6 * PAGE) && host.is_marked((MQD_READS + 8) * PAGE));
        host.reset();
        assert_eq!(mqd(&host, MQD_READS + 9, &load), 3);
        assert!(!host.is_marked((MQD_READS + 8) * PAGE));
    }

    #[test]
    fn a_page_that_was_a_table_last_is_none_of_mqds() {
        let (byte, loads) = (Cell::new(1), Cell::new(0));
        let load = memory(&byte, &loads);
        let host = HostPath::new(16 * PAGE);
        mqd(&host, 3, &load);
        host.flush(&load);
        host.read_entry(3 * PAGE, ROOT, &load).unwrap();
        loads.set(0);
        host.flush(&load);
        assert_eq!(loads.get(), 0);
        assert!(!host.is_marked(3 * PAGE));
    }

    #[test]
    fn memory_that_is_written_much_is_no_mqd() {
        let (byte, loads) = (Cell::new(1), Cell::new(0));
        let load = memory(&byte, &loads);
        let store = |_: u64, buf: &mut [u8]| buf.fill(9);
        let host = HostPath::new(16 * PAGE);
        for _ in 0..2 {
            mqd(&host, 3, &load);
            for _ in 0..MQD_WRITES {
                host.written(3 * PAGE + 8, 1, store);
            }
            assert!(host.is_marked(3 * PAGE));
        }
        assert_eq!(mqd(&host, 3, &load), 9);
        for _ in 0..=MQD_WRITES {
            host.written(3 * PAGE + 8, 1, store);
        }
        assert!(!host.is_marked(3 * PAGE));
        byte.set(2);
        assert_eq!(mqd(&host, 3, &load), 2);
    }
}
