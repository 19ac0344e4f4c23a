// SPDX-License-Identifier: GPL-2.0

//! Buffers: memory that GPUs and user space map.
//!
//! A [`Bo`] is a handle to [`Memory`], which lies in a GEM object so that files of the render node
//! can map it. User mappings hold the `Memory`, not the `Bo`: dropping the `Bo` frees the memory once
//! no mapping of it is left.

use core::ops::Range;

use kernel::{
    drm,
    prelude::*,
    sync::Arc, //
};

use super::pt::PAGE;
use crate::{
    gpu::{
        Gpu,
        Hw, //
    },
    hw::pte::{
        Aperture,
        Memory as Where,
        Mtype,
        PageAttrs, //
    },
    kapi::{
        dma_buf::DmaBuf,
        drm_file::{
            DrmDevice,
            DrmFile,
            OnlyDriver,
            OpenFile, //
        },
        gem::{
            Object,
            ObjectDriver, //
        },
        pages::Vmap,
        userpages::UserPages, //
    },
};

mod args;
mod backing;
mod foreign;
mod memory;
pub(super) mod moving;
mod place;
mod window;

pub(crate) use self::{
    args::{
        BoArgs,
        BoFlags,
        BoKind,
        UserMemory, //
    },
    memory::Memory,
    window::DoorbellWindow, //
};
pub(super) use self::{
    backing::{
        push_run,
        Backing, //
    },
    place::{
        FreeNotice,
        Place, //
    }, //
};
use self::{
    backing::{
        Dma,
        Extent,
        Piece, //
    },
    memory::Storage, //
};

/// A buffer.
pub(crate) struct Bo {
    kind: BoKind,
    flags: BoFlags,
    size: u64,
    userptr: Option<u64>,
    object: Object<Memory>,
}

impl Bo {
    /// Makes a buffer on `gpu`. User space maps it through files in which it has a handle.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: size 0; a doorbell or register buffer of the wrong size; no user address, or no
    ///   doorbells given.
    /// - `ENOMEM`: no memory, limits exceeded, a size that overflows, no register page.
    /// - `EFAULT`, `EPERM`: no memory at the user address, or memory that cannot be accessed so.
    /// - `EAGAIN`: the memory at the user address does not stop changing.
    /// - `EINTR`: the caller is being killed.
    /// - `ENODEV`, `EIO`: the GPU is gone or lost.
    pub(crate) fn new(gpu: &Arc<Gpu>, dev: &DrmDevice, args: BoArgs) -> Result<Arc<Self>> {
        if args.size == 0 {
            return Err(EINVAL);
        }
        // The guard is not kept: finding pages may take as long as user space wants.
        drop(gpu.enter()?);
        // An unaligned user address lends its first page as a whole.
        let userptr = args.user.as_ref().map(|user| user.address);
        let head = userptr.unwrap_or(0) % PAGE;
        let size = args
            .size
            .checked_add(head)
            .and_then(|size| size.checked_next_multiple_of(PAGE))
            .ok_or(ENOMEM)?;
        let (kind, flags) = (args.kind, args.flags);
        let memory = Memory::new(gpu, dev, size, args)?;
        let lru = match memory.movable() {
            Some(_) => Some(gpu.buffers_in_vram(dev)?),
            None => None,
        };
        let size_of_object = usize::try_from(size).map_err(|_| ENOMEM)?;
        let object = Object::with_lru(dev, size_of_object, memory, lru)?;
        // From here on it can be evicted.
        object.touch();
        let bo = Self {
            kind,
            flags,
            size,
            userptr,
            object,
        };
        Ok(Arc::new(bo, GFP_KERNEL_ACCOUNT)?)
    }

    /// The object that address spaces and files know.
    pub(super) fn object(&self) -> &Object<Memory> {
        &self.object
    }

    /// A buffer for `gpu`, whose device is `dev`, of the memory that is shared as `dma_buf`: writable and executable. Memory
    /// of this driver has the coherence that it was made for. The caller holds no reservation.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: memory of this driver that `gpu` cannot reach (VRAM of another).
    /// - `ENOMEM`.
    /// - Those of [`Self::adopt`].
    pub(crate) fn import(gpu: &Arc<Gpu>, dev: &DrmDevice, dma_buf: &DmaBuf) -> Result<Arc<Self>> {
        let Some(object) = Object::<Memory>::of_dma_buf(dma_buf) else {
            return Self::with_rights(Self::adopt(gpu, dev, dma_buf)?, true, true);
        };
        let kind = object.shared_kind().ok_or(EINVAL)?;
        if kind == BoKind::Vram && !Arc::ptr_eq(gpu, &object.gpu) {
            return Err(EINVAL);
        }
        Self::with_rights(object, true, true)
    }

    /// An object of `dev`, the device of `gpu`, for memory of another driver. The caller holds no reservation.
    ///
    /// # Errors
    ///
    /// - `ENODEV`, `EIO`: the GPU is gone or lost.
    /// - Those of [`DmaMapper::import`](crate::kapi::dma_map::DmaMapper::import).
    pub(crate) fn adopt(
        gpu: &Arc<Gpu>,
        dev: &DrmDevice,
        dma_buf: &DmaBuf,
    ) -> Result<Object<Memory>> {
        let memory = Memory::foreign(gpu, dma_buf)?;
        Object::new(dev, usize::try_from(dma_buf.size())?, memory)
    }

    /// Attaches `gpu` to memory of another driver; nothing for other buffers. To be called before [`Self::backing`] for
    /// a GPU other than [`Self::gpu`], without reservations.
    ///
    /// # Errors
    ///
    /// Those of [`Self::adopt`].
    pub(super) fn attach(&self, gpu: &Arc<Gpu>) -> Result {
        match &self.object.storage {
            Storage::Foreign(foreign) => foreign.attach(gpu),
            _ => Ok(()),
        }
    }

    /// Shares it by the handle that `file` has.
    ///
    /// # Errors
    ///
    /// - `EPERM`: it is neither VRAM nor system memory of the driver.
    /// - Those of [`Object::export_handle`].
    pub(crate) fn export<D: OnlyDriver>(&self, file: &DrmFile<D>, handle: u32) -> Result<DmaBuf> {
        self.object.export_handle(file, handle, self.flags.writable)
    }

    /// Finds out where the buffer lies for `gpu`, which `hw` belongs to, and fixes it there. Pages of
    /// a process are not fixed: they are those of this moment, or none. Where they are what `known` has of them, an
    /// earlier result for `gpu`, that is taken over. Of memory that moves the caller has the reservation, until the entries
    /// are written and listed.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `gpu` cannot reach it (VRAM, doorbells or registers of another; memory of another driver that it is not
    /// attached to); `ENOMEM`; what the DMA layer reports.
    pub(super) fn backing(
        &self,
        gpu: &Arc<Gpu>,
        hw: &Hw,
        known: Option<&Backing>,
    ) -> Result<Backing> {
        let local = Arc::ptr_eq(gpu, &self.object.gpu);
        let snooped = Aperture::System { snooped: true };
        let mut version = 0;
        let mut place = None;
        let (aperture, memory, pieces) = match &self.object.storage {
            Storage::Vram(movable) if local => {
                version = movable.moves();
                match &**place.insert(movable.place()) {
                    Place::Vram { blocks, .. } => {
                        let mut runs = KVVec::new();
                        for span in blocks.spans() {
                            push_run(&mut runs, blocks.pa(span.start), span.size)?;
                        }
                        let extent = Extent::new(runs, None, version, self.size)?;
                        (Aperture::Vram, Where::Local, self.whole(extent)?)
                    }
                    Place::System { pages, .. } => {
                        let dma = hw.dma().pages(hw.dev(), pages, self.flags.writable)?;
                        let extent = Extent::of_dma(Dma::Own(dma), version, self.size)?;
                        (snooped, Where::System, self.whole(extent)?)
                    }
                }
            }
            Storage::Pages(pages) => {
                let dma = hw.dma().pages(hw.dev(), pages, self.flags.writable)?;
                let extent = Extent::of_dma(Dma::Own(dma), 0, self.size)?;
                (snooped, Where::System, self.whole(extent)?)
            }
            Storage::User(user) => {
                // Before the pages are looked at: what changes meanwhile makes it out of date.
                version = user.version();
                (snooped, Where::System, self.user_pieces(hw, user, known)?)
            }
            Storage::Foreign(foreign) => {
                let import = foreign.seen_by(gpu).ok_or(EINVAL)?;
                let extent = Extent::of_dma(Dma::Import(import), 0, self.size)?;
                (snooped, Where::System, self.whole(extent)?)
            }
            Storage::Doorbell(slice) if local => {
                let map = hw.doorbell_map();
                let run = map.part(slice.bar_offset(), self.size)?;
                let extent = Extent::of_dma(Dma::Part(map.clone(), [run]), 0, self.size)?;
                (snooped, Where::System, self.whole(extent)?)
            }
            Storage::MmioRemap if local => {
                let map = hw.mmio_remap().ok_or(ENODEV)?;
                let run = map.part(0, self.size)?;
                let extent = Extent::of_dma(Dma::Part(map.clone(), [run]), 0, self.size)?;
                (snooped, Where::System, self.whole(extent)?)
            }
            _ => return Err(EINVAL),
        };
        let mtype = match self.kind {
            BoKind::Doorbell | BoKind::MmioRemap => Mtype::Uc,
            _ => gpu.asic().mtype.mtype(memory, self.flags.coherence()),
        };
        let attrs = PageAttrs {
            aperture,
            access: self.flags.access(),
            mtype,
            fragment: 0,
        };
        let is_of_user = self.kind == BoKind::Userptr;
        Ok(Backing::new(pieces, attrs, version, is_of_user, place))
    }

    /// A buffer whose memory is one piece.
    fn whole(&self, extent: Extent) -> Result<KVVec<Piece>> {
        let extent = Arc::new(extent, GFP_KERNEL_ACCOUNT)?;
        let mut pieces = KVVec::with_capacity(1, GFP_KERNEL_ACCOUNT)?;
        let piece = Piece::new(0..self.size, Some(extent));
        pieces.push(piece, GFP_KERNEL_ACCOUNT)?;
        Ok(pieces)
    }

    /// A piece for each window of pages of a process.
    fn user_pieces(
        &self,
        hw: &Hw,
        user: &UserPages,
        known: Option<&Backing>,
    ) -> Result<KVVec<Piece>> {
        let mut pieces = KVVec::new();
        while let Some(window) = user.window(pieces.len()) {
            let index = pieces.len();
            // CAST: `usize` is at most 64 bits wide.
            let range = window.start as u64..window.end as u64;
            let now = user.snapshot(index);
            let extent = match (&now.pages, known.and_then(|known| known.extent(index))) {
                (None, _) => None,
                (Some(_), Some(old)) if old.is_of(now.version) => Some(old.clone()),
                (Some(pages), _) => {
                    let dma = hw.dma().pages(hw.dev(), pages, self.flags.writable)?;
                    let len = range.end - range.start;
                    let extent = Extent::of_dma(Dma::Own(dma), now.version, len)?;
                    Some(Arc::new(extent, GFP_KERNEL_ACCOUNT)?)
                }
            };
            pieces.push(Piece::new(range, extent), GFP_KERNEL_ACCOUNT)?;
        }
        Ok(pieces)
    }

    /// Finds the pages of a process again that have changed; nothing for other buffers.
    ///
    /// # Errors
    ///
    /// Those of [`UserPages::find`](crate::kapi::userpages::UserPages::find).
    pub(crate) fn find_pages(&self) -> Result {
        self.object.user().map_or(Ok(()), |user| user.find())
    }

    /// Runs `f`, if the pages are those of `version`, while they do not change. `f` must not
    /// allocate.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if they have changed, and those of `f`.
    pub(super) fn commit<R>(&self, version: u64, f: impl FnOnce() -> Result<R>) -> Result<R> {
        match self.object.user() {
            Some(user) => user.commit(version, f),
            None => f(),
        }
    }

    /// From now on, and as long as the result lives, the watcher of the pages is notified of changes.
    pub(crate) fn begin_use(self: &Arc<Self>) -> BoUse {
        if let Some(user) = self.object.user() {
            user.start_use();
        }
        BoUse(self.clone())
    }

    /// Which pages of the process the buffer has now, or how often it has moved; another number after each change.
    pub(super) fn version(&self) -> u64 {
        match &self.object.storage {
            Storage::User(user) => user.version(),
            Storage::Vram(movable) => movable.moves(),
            _ => 0,
        }
    }

    /// Has the watcher of the pages find them; nothing for other buffers.
    pub(super) fn tell_missing(&self) {
        if let Some(user) = self.object.user() {
            user.tell_missing();
        }
    }

    /// The addresses of the process that it shows, whole pages, for [`BoKind::Userptr`].
    pub(super) fn user_range(&self) -> Option<Range<u64>> {
        let start = self.userptr? & !(PAGE - 1);
        Some(start..start.checked_add(self.size)?)
    }

    /// What it is made of.
    pub(crate) fn kind(&self) -> BoKind {
        self.kind
    }

    /// What it may be used for.
    pub(crate) fn flags(&self) -> BoFlags {
        self.flags
    }

    /// Bytes, whole pages.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The GPU that it was made on.
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.object.gpu
    }

    /// The user address that was given, for [`BoKind::Userptr`].
    pub(crate) fn userptr(&self) -> Option<u64> {
        self.userptr
    }

    /// Where the render node maps it, for files that have a handle of it.
    pub(crate) fn mmap_offset(&self) -> u64 {
        self.object.mmap_offset()
    }

    /// Its bytes.
    #[cfg(rkfd_kunit)]
    pub(crate) fn memory(&self) -> &Memory {
        &self.object
    }

    /// Another buffer of the same memory.
    ///
    /// # Errors
    ///
    /// Those of [`Self::with_rights`].
    #[cfg(rkfd_kunit)]
    pub(crate) fn twin(&self, writable: bool) -> Result<Arc<Self>> {
        Self::with_rights(self.object.clone(), writable, self.flags.executable)
    }

    /// Gives it a handle in `file`.
    ///
    /// # Errors
    ///
    /// Those of [`Object::create_handle`].
    pub(crate) fn create_handle<'a>(&self, file: impl Into<OpenFile<'a>>) -> Result<u32> {
        self.object.create_handle(file)
    }

    /// The memory with `handle` in `file`: VRAM or system memory. `None` if there is none.
    pub(crate) fn of_handle<F>(file: &drm::File<F>, handle: u32) -> Option<Object<Memory>>
    where
        F: drm::file::DriverFile,
        F::Driver: ObjectDriver<Held = Memory>,
    {
        let object = Object::of_handle(file, handle)?;
        object.shared_kind().is_some().then_some(object)
    }

    /// A buffer of `object`, which [`Self::of_handle`] gave, for mappings with these rights. Its coherence is what it
    /// was made for.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not memory that can be shared so; `ENOMEM`.
    pub(crate) fn with_rights(
        object: Object<Memory>,
        writable: bool,
        executable: bool,
    ) -> Result<Arc<Self>> {
        let bo = Self {
            kind: object.shared_kind().ok_or(EINVAL)?,
            flags: BoFlags {
                writable,
                executable,
                ..object.flags
            },
            size: u64::try_from(object.size())?,
            userptr: None,
            object,
        };
        Ok(Arc::new(bo, GFP_KERNEL_ACCOUNT)?)
    }

    /// Takes a handle back, if it still is one of this buffer.
    pub(crate) fn delete_handle<D: OnlyDriver>(&self, file: &DrmFile<D>, handle: u32) {
        self.object.delete_handle(file, handle);
    }

    /// Maps it for the kernel.
    ///
    /// # Errors
    ///
    /// `EINVAL` unless it is [`BoKind::System`] and of this driver, `ENOMEM`.
    pub(crate) fn vmap(&self) -> Result<BoVmap> {
        match &self.object.storage {
            Storage::Pages(pages) => Ok(BoVmap(Vmap::new(pages.clone())?)),
            _ => Err(EINVAL),
        }
    }
}

/// What shared memory is, see [`Bo::import`].
pub(crate) struct SharedMemory {
    /// The GPU that it was made on.
    pub(crate) gpu: Arc<Gpu>,
    /// Bytes.
    pub(crate) size: u64,
    /// What it is made of.
    pub(crate) kind: BoKind,
    /// What it was made for.
    pub(crate) flags: BoFlags,
}

impl SharedMemory {
    /// What is shared as `dma_buf`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: not memory of this driver.
    pub(crate) fn of(dma_buf: &DmaBuf) -> Result<Self> {
        let object = Object::<Memory>::of_dma_buf(dma_buf).ok_or(EINVAL)?;
        Ok(Self {
            gpu: object.gpu.clone(),
            size: u64::try_from(object.size())?,
            kind: object.shared_kind().ok_or(EINVAL)?,
            flags: object.flags,
        })
    }
}

/// A buffer whose pages are used, see [`Bo::begin_use`].
pub(crate) struct BoUse(Arc<Bo>);

impl BoUse {
    /// The buffer.
    pub(crate) fn buffer(&self) -> &Arc<Bo> {
        &self.0
    }
}

impl core::ops::Deref for BoUse {
    type Target = Bo;

    fn deref(&self) -> &Bo {
        &self.0
    }
}

impl Drop for BoUse {
    fn drop(&mut self) {
        if let Some(user) = self.0.object.user() {
            user.end_use();
        }
    }
}

/// A kernel mapping of a buffer, for 64-bit words.
pub(crate) struct BoVmap(Vmap);

impl BoVmap {
    /// Reads the word at byte `offset`, untorn.
    ///
    /// # Errors
    ///
    /// `EINVAL` outside the buffer or if not aligned.
    pub(crate) fn read64(&self, offset: usize) -> Result<u64> {
        self.0.read64(offset)
    }

    /// Writes the word at byte `offset`, untorn.
    ///
    /// # Errors
    ///
    /// `EINVAL` outside the buffer or if not aligned.
    pub(crate) fn write64(&self, offset: usize, value: u64) -> Result {
        self.0.write64(offset, value)
    }

    /// Bytes.
    #[cfg_attr(not(rkfd_kunit), expect(dead_code, reason = "seen by tests"))]
    pub(crate) fn size(&self) -> usize {
        self.0.size()
    }
}
