// SPDX-License-Identifier: GPL-2.0

//! Arrays of pages, and their mapping for DMA.
//!
//! C headers: [`include/linux/mm.h`](srctree/include/linux/mm.h),
//! [`include/linux/dma-mapping.h`](srctree/include/linux/dma-mapping.h)

use core::ptr::NonNull;

use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    devres::Devres,
    dma::DataDirection,
    error::to_result,
    new_mutex,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
    types::Opaque, //
};

use super::{
    task::fatal_signal_pending,
    vma::Transfer, //
};

/// Pages taken at once where the allocator can: 2 MiB, so that the GPU can map them as one.
const LARGE_ORDER: u32 = 9;
/// The next best: 64 KiB.
const MEDIUM_ORDER: u32 = 4;

/// Whose the pages are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Each page was allocated and is ours.
    Allocated,
    /// The pages belong to a process that may do with them what it wants. Only their frame numbers
    /// are of use.
    User,
}

/// A sequence of pages, in the order in which they follow each other in a buffer.
///
/// # Invariants
///
/// All pointers point to a `struct page`. If `origin` says allocated, this object owns a reference
/// to each of these pages.
pub(crate) struct Pages {
    pages: KVVec<*mut bindings::page>,
    origin: Origin,
}

// SAFETY: Pages may be freed and unpinned in any context that may sleep.
unsafe impl Send for Pages {}
// SAFETY: Shared access only reads the array; the content of the pages is shared with users and
// devices anyway and only accessed by copies that tolerate races.
unsafe impl Sync for Pages {}

impl Pages {
    /// Allocates `count` zeroed pages, charged to the memory control group of the caller.
    ///
    /// # Errors
    ///
    /// `EINVAL` for none, `ENOMEM`, `EINTR` if the caller is being killed.
    pub(crate) fn alloc(count: usize) -> Result<Self> {
        if count == 0 {
            return Err(EINVAL);
        }
        let mut this = Self {
            pages: KVVec::with_capacity(count, GFP_KERNEL)?,
            origin: Origin::Allocated,
        };
        let mut orders = [LARGE_ORDER, MEDIUM_ORDER, 0].into_iter();
        let mut order = LARGE_ORDER;
        while this.pages.len() < count {
            let left = count - this.pages.len();
            let block = if left >> order != 0 {
                // SAFETY: Allocation has no precondition but that sleeping is allowed, which it
                // is in every caller (`GFP_KERNEL` above).
                NonNull::new(unsafe { crate::bindings::rkfd_alloc_pages(order) })
            } else {
                None
            };
            match block {
                Some(first) => {
                    for i in 0..1usize << order {
                        // The helper split the block, so each of its pages, whose `struct page`s
                        // follow each other, has a reference of its own.
                        let page = first.as_ptr().wrapping_add(i);
                        // INVARIANT: The page is ours; capacity was reserved above, so that the
                        // push cannot fail and forget it.
                        this.pages.push(page, GFP_KERNEL)?;
                    }
                }
                None if order == 0 => return Err(ENOMEM),
                None => order = orders.find(|smaller| *smaller < order).unwrap_or(0),
            }
            if fatal_signal_pending() {
                return Err(EINTR);
            }
        }
        Ok(this)
    }

    /// The pages that a process had at `frames`, the result of `rkfd_user_fault`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for none, `ENOMEM`.
    pub(super) fn of_user(frames: &[c_ulong]) -> Result<Self> {
        if frames.is_empty() {
            return Err(EINVAL);
        }
        let mut pages = KVVec::with_capacity(frames.len(), GFP_KERNEL)?;
        for frame in frames {
            // SAFETY: Arithmetic on the frame number, which was found to have a `struct page`.
            let page = unsafe { crate::bindings::rkfd_user_page(*frame) };
            pages.push(page, GFP_KERNEL)?;
        }
        // INVARIANT: All of them are a `struct page`, and none is owned.
        Ok(Self {
            pages,
            origin: Origin::User,
        })
    }

    /// # Errors
    ///
    /// `EPERM` unless the pages are ours.
    fn check_owned(&self) -> Result {
        match self.origin {
            Origin::Allocated => Ok(()),
            Origin::User => Err(EPERM),
        }
    }

    /// Number of pages.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Bytes.
    pub(crate) fn size(&self) -> usize {
        self.pages.len() << PAGE_SHIFT
    }

    /// Frame number of page `index`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such page, `EPERM` if it is not ours.
    pub(crate) fn pfn(&self, index: usize) -> Result<usize> {
        self.check_owned()?;
        let page = *self.pages.get(index).ok_or(EINVAL)?;
        // SAFETY: By the type invariant the page is valid.
        Ok(unsafe { crate::bindings::rkfd_page_to_pfn(page) })
    }

    /// Copies between a buffer and the bytes from `offset` on. Races with users and devices are
    /// possible and harmless: bytes are copied, nothing is interpreted.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range leaves the pages, `EPERM` if they are not ours.
    pub(crate) fn copy(&self, offset: usize, mut transfer: Transfer<'_>) -> Result {
        self.check_owned()?;
        let len = transfer.len();
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if end > self.size() {
            return Err(EINVAL);
        }
        let mut done = 0;
        while done < len {
            let at = offset + done;
            let page = *self.pages.get(at >> PAGE_SHIFT).ok_or(EINVAL)?;
            let inside = at % PAGE_SIZE;
            let part = (PAGE_SIZE - inside).min(len - done);
            // SAFETY: By the type invariant the page is valid, for it is ours.
            let addr = unsafe { bindings::kmap_local_page(page) };
            let ptr = addr.cast::<u8>().wrapping_add(inside);
            match &mut transfer {
                Transfer::Read(dst) => {
                    if let Some(dst) = dst.get_mut(done..done + part) {
                        // SAFETY: `part` bytes from `ptr` lie in the mapped page; `dst` is a
                        // buffer of the same length elsewhere.
                        unsafe { core::ptr::copy(ptr, dst.as_mut_ptr(), part) };
                    }
                }
                Transfer::Write(src) => {
                    if let Some(src) = src.get(done..done + part) {
                        // SAFETY: As above.
                        unsafe { core::ptr::copy(src.as_ptr(), ptr, part) };
                    }
                }
            }
            // SAFETY: The most recent local mapping of this thread.
            unsafe { bindings::kunmap_local(addr) };
            done += part;
        }
        Ok(())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        match self.origin {
            Origin::Allocated => {
                for page in self.pages.iter() {
                    // SAFETY: By the type invariant we own a reference to this single page.
                    unsafe { bindings::__free_pages(*page, 0) };
                }
            }
            Origin::User => {}
        }
    }
}

/// A contiguous mapping of [`Pages`] for the kernel.
///
/// # Invariants
///
/// `addr` maps all of `pages`.
pub(crate) struct Vmap {
    addr: NonNull<u8>,
    pages: Arc<Pages>,
}

// SAFETY: A kernel mapping is valid in every context and may be unmapped in any that may sleep.
unsafe impl Send for Vmap {}
// SAFETY: All access is volatile and to memory that users share.
unsafe impl Sync for Vmap {}

impl Vmap {
    /// Maps `pages`.
    ///
    /// # Errors
    ///
    /// `EPERM` if the pages are not ours, `ENOMEM`.
    pub(crate) fn new(pages: Arc<Pages>) -> Result<Self> {
        pages.check_owned()?;
        let count = c_uint::try_from(pages.len())?;
        // SAFETY: The array holds `count` valid pages; the C function reads it only.
        let addr = unsafe { crate::bindings::rkfd_vmap(pages.pages.as_ptr().cast_mut(), count) };
        // INVARIANT: Mapped just now.
        Ok(Self {
            addr: NonNull::new(addr.cast()).ok_or(ENOMEM)?,
            pages,
        })
    }

    /// Bytes.
    pub(crate) fn size(&self) -> usize {
        self.pages.size()
    }

    fn word(&self, offset: usize) -> Result<*mut u64> {
        let end = offset.checked_add(8).ok_or(EINVAL)?;
        if end > self.size() || offset % 8 != 0 {
            return Err(EINVAL);
        }
        Ok(self.addr.as_ptr().wrapping_add(offset).cast())
    }

    /// Reads 64 bits at byte `offset`, untorn.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `offset` is outside or not a multiple of eight.
    pub(crate) fn read64(&self, offset: usize) -> Result<u64> {
        let ptr = self.word(offset)?;
        // SAFETY: `word` checked range and alignment; by the type invariant the mapping is there.
        Ok(unsafe { ptr.read_volatile() })
    }

    /// Writes 64 bits at byte `offset`, untorn.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `offset` is outside or not a multiple of eight.
    pub(crate) fn write64(&self, offset: usize, value: u64) -> Result {
        let ptr = self.word(offset)?;
        // SAFETY: As in `read64`.
        unsafe { ptr.write_volatile(value) };
        Ok(())
    }
}

impl Drop for Vmap {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this is a mapping of ours, and nobody else has it.
        unsafe { crate::bindings::rkfd_vunmap(self.addr.as_ptr().cast()) };
    }
}

/// A part of device address space: `len` bytes from `addr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DmaRun {
    /// Bus address.
    pub(crate) addr: u64,
    /// Length in bytes.
    pub(crate) len: u64,
}

/// The C device behind `dev`.
fn as_raw(dev: &Device) -> *mut bindings::device {
    // `Device` is `repr(transparent)` over `Opaque<struct device>`.
    core::ptr::from_ref(dev).cast_mut().cast()
}

/// [`Pages`] mapped for one device.
///
/// # Invariants
///
/// `sgt` was made from `pages` and is mapped for `dev` in direction `dir`.
struct MappedTable {
    sgt: KBox<Opaque<bindings::sg_table>>,
    dev: ARef<Device>,
    dir: bindings::dma_data_direction,
    _pages: Arc<Pages>,
}

// SAFETY: Nothing in it is bound to a thread.
unsafe impl Send for MappedTable {}
// SAFETY: There is no shared access.
unsafe impl Sync for MappedTable {}

impl Drop for MappedTable {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the table is mapped for `dev`, which is still bound or
        // being unbound: the object lives in a `DmaMapper`, or was being made for a bound device.
        unsafe {
            bindings::dma_unmap_sgtable(as_raw(&self.dev), self.sgt.get(), self.dir, 0);
        }
        // SAFETY: Made in `DmaMap::pages` and unmapped above.
        unsafe { bindings::sg_free_table(self.sgt.get()) };
    }
}

/// Device registers mapped for a device.
///
/// # Invariants
///
/// `addr` is a resource mapping of `size` bytes for `dev`.
struct MappedResource {
    dev: ARef<Device>,
    addr: u64,
    size: usize,
}

impl Drop for MappedResource {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; the object lives in a `DmaMapper`, or was being made for a bound
        // device, so `dev` is bound or being unbound.
        unsafe {
            crate::bindings::rkfd_dma_unmap_resource(as_raw(&self.dev), self.addr, self.size);
        }
    }
}

enum Held {
    Pages(#[expect(dead_code, reason = "kept, not used")] MappedTable),
    Resource(#[expect(dead_code, reason = "kept, not used")] MappedResource),
}

/// A mapping that is there until its owner or the device goes.
#[pin_data]
struct Live {
    /// Locked while it is unmapped: who wants it gone waits for who is at it.
    #[pin]
    held: Mutex<Option<Held>>,
}

impl Live {
    fn end(&self) {
        let mut held = self.held.lock();
        let gone = held.take();
        drop(gone);
    }
}

/// All mappings of a device, by a number of their own.
#[pin_data]
struct LiveMaps {
    /// Nothing is allocated under it.
    #[pin]
    maps: Mutex<RBTree<u64, Arc<Live>>>,
    next: Atomic<i64>,
}

/// Memory for one more entry of [`LiveMaps`].
type LiveNode = RBTreeNodeReservation<u64, Arc<Live>>;

/// Ends all mappings of a device when dropped.
struct Drain(Arc<LiveMaps>);

impl Drop for Drain {
    fn drop(&mut self) {
        loop {
            let live = {
                let mut maps = self.0.maps.lock();
                let first = maps.cursor_front().map(|cursor| *cursor.current().0);
                first.and_then(|id| maps.remove(&id))
            };
            let Some(live) = live else { return };
            live.end();
        }
    }
}

/// What maps pages and registers for a bound device.
///
/// Mappings end with it. They are its own and not the device's, one by one: the device core searches the
/// list of what a device has to find what goes, with interrupts off, and a GPU has many mappings.
///
/// # Invariants
///
/// Every mapping that lives is in `maps`, which `drain` empties before the device is unbound.
pub(crate) struct DmaMapper {
    maps: Arc<LiveMaps>,
    drain: Devres<Drain>,
}

impl DmaMapper {
    /// For a device.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(dev: &Device<Bound>) -> Result<Self> {
        let maps = Arc::pin_init(
            pin_init!(LiveMaps {
                maps <- new_mutex!(RBTree::new(), "rkfd_dma_maps"),
                next: Atomic::new(0),
            }),
            GFP_KERNEL,
        )?;
        let drain = Devres::new(dev, Ok::<_, Error>(Drain(maps.clone())))?;
        // INVARIANT: There is no mapping yet, and `drain` goes at the latest when `dev` is unbound.
        Ok(Self { maps, drain })
    }

    /// Makes a mapping of this device live, with memory for its entry.
    fn keep(&self, node: LiveNode, live: Arc<Live>, runs: KVVec<DmaRun>) -> Result<DmaMap> {
        let id = u64::try_from(self.maps.next.fetch_add(1, Relaxed))?;
        let node = node.into_node(id, live.clone());
        self.maps.maps.lock().insert(node);
        Ok(DmaMap {
            live,
            id,
            maps: self.maps.clone(),
            runs,
        })
    }

    fn prepare() -> Result<(LiveNode, Arc<Live>)> {
        let live = Arc::pin_init(
            pin_init!(Live { held <- new_mutex!(None, "rkfd_dma_map") }),
            GFP_KERNEL,
        )?;
        Ok((RBTreeNodeReservation::new(GFP_KERNEL)?, live))
    }

    /// Maps `pages` for `dev`, which may write them if `writable`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `dev` is another device, `ENOMEM`, and what the DMA layer reports.
    pub(crate) fn pages(
        &self,
        dev: &Device<Bound>,
        pages: &Arc<Pages>,
        writable: bool,
    ) -> Result<DmaMap> {
        self.check(dev)?;
        let raw = as_raw(dev);
        let dir = if writable {
            DataDirection::Bidirectional
        } else {
            DataDirection::ToDevice
        };
        let dir = bindings::dma_data_direction::from(dir);
        // SAFETY: `dev` is a valid device.
        let longest = unsafe { bindings::dma_max_mapping_size(raw) };
        let longest = longest.min(u32::MAX as usize) & !(PAGE_SIZE - 1);
        let sgt = KBox::new(Opaque::zeroed(), GFP_KERNEL)?;
        // SAFETY: `sgt` is memory for a table, and the array holds valid pages, which the C
        // function only reads. There is at least one.
        to_result(unsafe {
            bindings::sg_alloc_table_from_pages_segment(
                sgt.get(),
                pages.pages.as_ptr().cast_mut(),
                c_uint::try_from(pages.len())?,
                0,
                pages.size(),
                c_uint::try_from(longest)?,
                bindings::GFP_KERNEL,
            )
        })?;
        // SAFETY: `dev` is bound and the table was just made.
        let mapped = to_result(unsafe { bindings::dma_map_sgtable(raw, sgt.get(), dir, 0) });
        if let Err(e) = mapped {
            // SAFETY: Made above and not mapped.
            unsafe { bindings::sg_free_table(sgt.get()) };
            return Err(e);
        }
        // INVARIANT: Made and mapped above.
        let table = MappedTable {
            sgt,
            dev: (&**dev).into(),
            dir,
            _pages: pages.clone(),
        };
        let runs = Self::runs_of(&table)?;
        let (node, live) = Self::prepare()?;
        *live.held.lock() = Some(Held::Pages(table));
        self.keep(node, live, runs)
    }

    fn check(&self, dev: &Device<Bound>) -> Result {
        // `Device` is `repr(transparent)`, so this compares the C devices.
        if !core::ptr::eq(self.drain.device(), &**dev) {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// The mapped segments, neighbours joined.
    fn runs_of(table: &MappedTable) -> Result<KVVec<DmaRun>> {
        let mut runs: KVVec<DmaRun> = KVVec::new();
        // SAFETY: By the type invariant of `MappedTable` the table is valid.
        let sgt = unsafe { &*table.sgt.get() };
        let mut sg = sgt.sgl;
        for _ in 0..sgt.nents {
            if sg.is_null() {
                break;
            }
            // SAFETY: `sg` is one of the first `nents`, mapped entries of the table.
            let (addr, len) = unsafe {
                (
                    bindings::sg_dma_address(sg),
                    u64::from(bindings::sg_dma_len(sg)),
                )
            };
            match runs.last_mut() {
                Some(last) if last.addr + last.len == addr => last.len += len,
                _ => runs.push(DmaRun { addr, len }, GFP_KERNEL)?,
            }
            // SAFETY: As above; returns null after the last entry.
            sg = unsafe { bindings::sg_next(sg) };
        }
        Ok(runs)
    }

    /// Maps `size` bytes of device registers at CPU physical address `addr` for `dev`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `dev` is another device, what the DMA layer reports, `ENOMEM`.
    pub(crate) fn resource(&self, dev: &Device<Bound>, addr: u64, size: usize) -> Result<DmaMap> {
        self.check(dev)?;
        let mut bus = 0;
        // SAFETY: `dev` is bound, and `bus` takes the result.
        to_result(unsafe {
            crate::bindings::rkfd_dma_map_resource(as_raw(dev), addr, size, &mut bus)
        })?;
        // INVARIANT: Mapped above.
        let resource = MappedResource {
            dev: (&**dev).into(),
            addr: bus,
            size,
        };
        let mut runs = KVVec::new();
        // CAST: `usize` is at most 64 bits wide.
        let len = size as u64;
        runs.push(DmaRun { addr: bus, len }, GFP_KERNEL)?;
        let (node, live) = Self::prepare()?;
        *live.held.lock() = Some(Held::Resource(resource));
        self.keep(node, live, runs)
    }
}

/// Addresses at which a device reaches memory or registers, for as long as this object lives or
/// its [`DmaMapper`] does, whichever ends first.
pub(crate) struct DmaMap {
    live: Arc<Live>,
    id: u64,
    maps: Arc<LiveMaps>,
    runs: KVVec<DmaRun>,
}

impl Drop for DmaMap {
    fn drop(&mut self) {
        // In this order: who empties the list when the device goes must find what is being ended.
        self.live.end();
        let live = self.maps.maps.lock().remove(&self.id);
        drop(live);
    }
}

impl DmaMap {
    /// Where the memory is for the device, in the order of the buffer.
    pub(crate) fn runs(&self) -> &[DmaRun] {
        &self.runs
    }
}

/// Bytes of memory that the machine has.
pub(crate) fn total_ram() -> u64 {
    // SAFETY: Reads counters only.
    unsafe { crate::bindings::rkfd_total_ram() }
}
