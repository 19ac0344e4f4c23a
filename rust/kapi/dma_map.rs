// SPDX-License-Identifier: GPL-2.0

//! Mapping of [pages](Pages), device registers and [buffers of other drivers](DmaImport) for DMA, until the device goes.
//!
//! C header: [`include/linux/dma-mapping.h`](srctree/include/linux/dma-mapping.h)

use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    devres::Devres,
    dma::DataDirection,
    error::to_result,
    impl_has_work, new_mutex, new_spinlock, new_work,
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
        Mutex,
        SpinLock, //
    },
    types::Opaque,
    workqueue::{
        Work,
        WorkItem, //
    },
};

use super::{
    dma_buf::DmaBuf,
    dma_table::{
        as_raw,
        map_table,
        unmap_table, //
    },
    pages::Pages,
    workqueue::OwnedQueue, //
};

mod import;

use self::import::MappedImport;
pub(crate) use super::dma_table::DmaRun;

/// Imports that are ended at a time: one whose exporter keeps others waiting does not hold them all up.
const ENDERS: u16 = 4;

/// [`Pages`] mapped for one device.
///
/// # Invariants
///
/// `sgt` is what [`map_table`] made from `pages` for `dev` in direction `dir`, and is not unmapped.
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
        // being unbound: the object lives in a `DmaMapper`, or was being made for a bound device. It is not used
        // any more.
        unsafe { unmap_table(as_raw(&self.dev), &self.sgt, self.dir) };
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
    Import(#[expect(dead_code, reason = "kept, not used")] MappedImport),
}

/// A mapping that is there until its owner or the device goes.
#[pin_data]
struct Live {
    /// Locked while it is unmapped, so that a second caller returns after that.
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
    /// Ends those of imports that were given up; `None` once the device goes.
    #[pin]
    enders: SpinLock<Option<OwnedQueue>>,
}

impl LiveMaps {
    /// Ends the mapping with number `id`.
    fn end(&self, live: &Live, id: u64) {
        // In this order: what empties the list when the device goes must find what is being ended.
        live.end();
        let listed = self.maps.lock().remove(&id);
        drop(listed);
    }
}

/// Memory for one more entry of [`LiveMaps`].
type LiveNode = RBTreeNodeReservation<u64, Arc<Live>>;

/// Ends all mappings of a device when dropped.
struct Drain(Arc<LiveMaps>);

impl Drop for Drain {
    fn drop(&mut self) {
        // What is queued comes to its end here; what is given up from now on is still listed.
        let enders = self.0.enders.lock().take();
        drop(enders);
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
        let enders = OwnedQueue::leisurely(c"rkfd_dma_import", ENDERS)?;
        let maps = Arc::pin_init(
            pin_init!(LiveMaps {
                maps <- new_mutex!(RBTree::new(), "rkfd_dma_maps"),
                next: Atomic::new(0),
                enders <- new_spinlock!(Some(enders), "rkfd_dma_enders"),
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
            GFP_KERNEL_ACCOUNT,
        )?;
        Ok((RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?, live))
    }

    /// Maps `pages` for `dev`, which may write them if `writable`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `dev` is another device.
    /// - `EOPNOTSUPP`: the machine gives `dev` copies of memory (bounce buffers). Nothing says here when the device
    ///   and the CPU take turns, and pages of a process may have other users when a copy would come back.
    /// - `ENOMEM`, and what the DMA layer reports.
    pub(crate) fn pages(
        &self,
        dev: &Device<Bound>,
        pages: &Arc<Pages>,
        writable: bool,
    ) -> Result<DmaMap> {
        self.check(dev)?;
        let dir = if writable {
            DataDirection::Bidirectional
        } else {
            DataDirection::ToDevice
        };
        let dir = bindings::dma_data_direction::from(dir);
        // SAFETY: `dev` is bound, and the result is unmapped before it is not any more, see `MappedTable`, whose
        // pages outlive it.
        let sgt = unsafe { map_table(as_raw(dev), pages, dir) }?;
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
                _ => runs.push(DmaRun { addr, len }, GFP_KERNEL_ACCOUNT)?,
            }
            // SAFETY: `sg` is an entry of the table; the function returns null after the last one.
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
        runs.push(DmaRun { addr: bus, len }, GFP_KERNEL_ACCOUNT)?;
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
        self.maps.end(&self.live, self.id);
    }
}

impl DmaMap {
    /// Where the device finds `len` bytes from byte `offset` on.
    ///
    /// # Errors
    ///
    /// `EINVAL` for none, if the range leaves the mapping, or if it is not in one piece for the device.
    pub(crate) fn part(&self, offset: u64, len: u64) -> Result<DmaRun> {
        let [run] = self.runs.as_slice() else {
            return Err(EINVAL);
        };
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if len == 0 || end > run.len {
            return Err(EINVAL);
        }
        Ok(DmaRun {
            addr: run.addr + offset,
            len,
        })
    }

    /// Where the memory is for the device, in the order of the buffer.
    pub(crate) fn runs(&self) -> &[DmaRun] {
        &self.runs
    }
}

/// What ends a mapping for callers that must not wait.
#[pin_data]
struct Ending {
    #[pin]
    work: Work<Self>,
    live: Arc<Live>,
    id: u64,
    maps: Arc<LiveMaps>,
}

impl_has_work! {
    impl HasWork<Self> for Ending { self.work }
}

impl WorkItem for Ending {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.maps.end(&this.live, this.id);
    }
}

/// Addresses at which a device reaches a buffer of another driver, for as long as this object lives or its [`DmaMapper`]
/// does, whichever ends first. The buffer lives at least as long.
pub(crate) struct DmaImport {
    ending: Arc<Ending>,
    runs: KVVec<DmaRun>,
}

impl DmaImport {
    /// Where the memory is for the device, in the order of the buffer: whole pages, as many as the buffer has.
    pub(crate) fn runs(&self) -> &[DmaRun] {
        &self.runs
    }
}

impl Drop for DmaImport {
    fn drop(&mut self) {
        let enders = self.ending.maps.enders.lock();
        if let Some(queue) = &*enders {
            // It is queued here alone.
            let _ = queue.enqueue(self.ending.clone());
        }
        // Without a queue the device is being unbound, and that ends all mappings.
    }
}

impl DmaMapper {
    /// Attaches `dev` to a buffer of another driver, and maps it. The caller holds no reservation.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `dev` is another device; or the exporter gives other than whole pages, as many as the buffer has.
    /// - `EOPNOTSUPP`: the machine gives `dev` copies of memory (bounce buffers): nothing says here when the device and
    ///   others take turns.
    /// - What the exporter reports: that `dev` cannot reach the buffer, for one; `ERESTARTSYS`: a signal came while the
    ///   exporter was moving it.
    /// - `ENOMEM`.
    pub(crate) fn import(&self, dev: &Device<Bound>, dma_buf: &DmaBuf) -> Result<DmaImport> {
        self.check(dev)?;
        // A class of its own: the reservation is taken under this lock, and never under that of other mappings.
        let live = Arc::pin_init(
            pin_init!(Live { held <- new_mutex!(None, "rkfd_dma_import") }),
            GFP_KERNEL_ACCOUNT,
        )?;
        let node = LiveNode::new(GFP_KERNEL_ACCOUNT)?;
        let id = u64::try_from(self.maps.next.fetch_add(1, Relaxed))?;
        let ended = live.clone();
        let ending = Arc::pin_init(
            pin_init!(Ending {
                work <- new_work!("rkfd_dma_import"),
                live: ended,
                id,
                maps: self.maps.clone(),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        // SAFETY: `dev` is bound. The result goes before it is not any more: here, or by the list of mappings, which is
        // emptied before. Page tables are written from a `DmaImport` that is kept until the device has forgotten them.
        let mapped = unsafe { MappedImport::new(dev, dma_buf) }?;
        let runs = mapped.runs()?;
        *live.held.lock() = Some(Held::Import(mapped));
        self.maps.maps.lock().insert(node.into_node(id, live));
        Ok(DmaImport { ending, runs })
    }
}
