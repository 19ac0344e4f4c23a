// SPDX-License-Identifier: GPL-2.0

//! Buffers: memory that GPUs and user space map.
//!
//! A [`Bo`] is a handle to [`Memory`], which lies in a GEM object so that files of the render node
//! can map it. User mappings hold the `Memory`, not the `Bo`: dropping the `Bo` frees the memory once
//! nobody has it mapped.

use kernel::{
    new_mutex,
    page::PAGE_SHIFT,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};

use super::pt::{
    Run,
    HUGE,
    PAGE, //
};
use crate::{
    gpu::{
        account::{
            self,
            Charge, //
        },
        DoorbellSlice,
        Gpu,
        Hw,
        VramBlock, //
    },
    hw::pte::{
        Access,
        Coherence,
        Memory as Where,
        Mtype,
        PageAttrs,
        Place, //
    },
    kapi::{
        drm_file::{
            DrmDevice,
            FileTag, //
        },
        gem::{
            Mappable,
            Object, //
        },
        pages::{
            DmaMap,
            Pages,
            Vmap, //
        },
        vma::{
            Transfer,
            UserCaching, //
        },
    },
};

/// VRAM that is zeroed at once; in between a lost device is noticed.
const ZERO_STEP: u64 = 16 << 20;

/// What a buffer is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoKind {
    /// Memory of the GPU.
    Vram,
    /// Pages of the system, allocated for the GPU.
    System,
    /// Pages of the process that makes the buffer.
    Userptr,
    /// The doorbells of a process.
    Doorbell,
    /// The page with the HDP flush registers.
    MmioRemap,
}

/// How a buffer may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BoFlags {
    /// The GPU may write.
    pub(crate) writable: bool,
    /// The GPU may fetch instructions.
    pub(crate) executable: bool,
    /// Caches keep to what others write while a kernel runs.
    pub(crate) coherent: bool,
    /// Never cached.
    pub(crate) uncached: bool,
    /// The CPU is meant to access VRAM. All VRAM that is handed out can be.
    pub(crate) public: bool,
    /// VRAM must be one block.
    pub(crate) contiguous: bool,
}

impl BoFlags {
    fn access(self) -> Access {
        Access {
            read: true,
            write: self.writable,
            execute: self.executable,
        }
    }

    fn coherence(self) -> Coherence {
        if self.uncached {
            Coherence::Uncached
        } else if self.coherent {
            Coherence::Coherent
        } else {
            Coherence::Default
        }
    }
}

/// What to make.
pub(crate) struct BoArgs {
    /// What of.
    pub(crate) kind: BoKind,
    /// Bytes; rounded up to whole pages.
    pub(crate) size: u64,
    /// What for.
    pub(crate) flags: BoFlags,
    /// Address in the current process, for [`BoKind::Userptr`].
    pub(crate) userptr: u64,
    /// The doorbells, for [`BoKind::Doorbell`].
    pub(crate) doorbells: Option<Arc<DoorbellSlice>>,
}

/// What holds the bytes.
enum Backing {
    Vram(KVec<VramBlock>),
    Pages { pages: Arc<Pages>, user: bool },
    Doorbell(Arc<DoorbellSlice>),
    MmioRemap,
}

/// The bytes of a buffer, with what was charged for them.
pub(crate) struct Memory {
    gpu: Arc<Gpu>,
    backing: Backing,
    // After `backing`: what is given back must be free.
    _charges: [Option<Charge>; 2],
}

impl Memory {
    /// Finds the block of VRAM that holds byte `offset`, and where in the VRAM that is. Returns
    /// also how many bytes follow there.
    fn vram_at(blocks: &[VramBlock], offset: u64) -> Result<(u64, u64)> {
        let mut rest = offset;
        for block in blocks {
            if rest < block.size() {
                return Ok((block.offset() + rest, block.size() - rest));
            }
            rest -= block.size();
        }
        Err(EINVAL)
    }

    fn transfer_vram(&self, blocks: &[VramBlock], offset: usize, transfer: Transfer<'_>) -> Result {
        let hw = self.gpu.enter()?;
        let mut done = 0;
        let len = transfer.len();
        let mut transfer = transfer;
        while done < len {
            // CAST: `usize` is at most 64 bits wide.
            let (at, follow) = Self::vram_at(blocks, (offset + done) as u64)?;
            let part = usize::try_from(follow)
                .unwrap_or(usize::MAX)
                .min(len - done);
            let range = done..done + part;
            match &mut transfer {
                Transfer::Read(dst) => hw.vram_read(at, dst.get_mut(range).ok_or(EINVAL)?)?,
                Transfer::Write(src) => hw.vram_write(at, src.get(range).ok_or(EINVAL)?)?,
            }
            done += part;
        }
        if matches!(transfer, Transfer::Write(_)) {
            hw.hdp_flush();
        }
        Ok(())
    }
}

impl Mappable for Memory {
    fn may_mmap(&self) -> Result<UserCaching> {
        match &self.backing {
            Backing::Vram(_) => Ok(UserCaching::WriteCombined),
            Backing::Pages { user: false, .. } => Ok(UserCaching::Cached),
            // User memory is mapped already; doorbells and registers are mapped by `/dev/kfd`,
            // which knows whose they are.
            _ => Err(EPERM),
        }
    }

    fn pfn(&self, index: usize) -> Result<usize> {
        match &self.backing {
            Backing::Vram(blocks) => {
                let hw = self.gpu.enter()?;
                // CAST: `usize` is at most 64 bits wide.
                let (offset, _) = Self::vram_at(blocks, (index as u64) << PAGE_SHIFT)?;
                Ok(usize::try_from(
                    (hw.vram_bus_addr() + offset) >> PAGE_SHIFT,
                )?)
            }
            Backing::Pages { pages, user: false } => pages.pfn(index),
            _ => Err(EPERM),
        }
    }

    fn transfer(&self, offset: usize, transfer: Transfer<'_>) -> Result {
        match &self.backing {
            Backing::Vram(blocks) => self.transfer_vram(blocks, offset, transfer),
            Backing::Pages { pages, user: false } => pages.copy(offset, transfer),
            _ => Err(EPERM),
        }
    }
}

/// Where a buffer lies for one GPU; keeps it there.
pub(super) struct Placed {
    pub(super) runs: KVVec<Run>,
    pub(super) attrs: PageAttrs,
    _dma: Option<DmaMap>,
}

/// Distinguishes buffers; never repeats.
static NEXT_ID: Atomic<i64> = Atomic::new(1);

/// A buffer.
pub(crate) struct Bo {
    id: u64,
    kind: BoKind,
    flags: BoFlags,
    size: u64,
    userptr: Option<u64>,
    object: Object<Memory>,
    grants: Arc<Grants>,
}

impl Bo {
    /// Makes a buffer on `gpu` that files with `grants` may map.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: size 0; a doorbell or register buffer of the wrong size; no user address, or no
    ///   doorbells given.
    /// - `ENOMEM`: no memory, limits exceeded, a size that overflows, no register page.
    /// - `EFAULT`: no memory at the user address, or memory that cannot be pinned.
    /// - `ENODEV`, `EIO`: the GPU is gone or lost.
    pub(crate) fn with_grants(
        gpu: &Arc<Gpu>,
        dev: &DrmDevice,
        grants: &Arc<Grants>,
        args: BoArgs,
    ) -> Result<Arc<Self>> {
        if args.size == 0 {
            return Err(EINVAL);
        }
        let hw = gpu.enter()?;
        // An unaligned user address lends its first page as a whole.
        let head = match args.kind {
            BoKind::Userptr => args.userptr % PAGE,
            _ => 0,
        };
        let size = args
            .size
            .checked_add(head)
            .and_then(|size| size.checked_next_multiple_of(PAGE))
            .ok_or(ENOMEM)?;
        let memory = match args.kind {
            BoKind::Vram => Self::vram(gpu, &hw, size, args.flags.contiguous)?,
            BoKind::System => {
                let system = account::system();
                let charges = [
                    Some(system.all.charge_module(size)?),
                    Some(system.allocated.charge_module(size)?),
                ];
                Memory {
                    gpu: gpu.clone(),
                    backing: Backing::Pages {
                        pages: Arc::new(Pages::alloc(page_count(size)?)?, GFP_KERNEL)?,
                        user: false,
                    },
                    _charges: charges,
                }
            }
            BoKind::Userptr => {
                if args.userptr == 0 {
                    return Err(EINVAL);
                }
                let charge = account::system().all.charge_module(size)?;
                let start = usize::try_from(args.userptr - head).map_err(|_| EFAULT)?;
                let pages = Pages::pin(start, page_count(size)?, args.flags.writable)?;
                Memory {
                    gpu: gpu.clone(),
                    backing: Backing::Pages {
                        pages: Arc::new(pages, GFP_KERNEL)?,
                        user: true,
                    },
                    _charges: [Some(charge), None],
                }
            }
            BoKind::Doorbell => {
                if args.size != u64::from(DoorbellSlice::SIZE) {
                    return Err(EINVAL);
                }
                Memory {
                    gpu: gpu.clone(),
                    backing: Backing::Doorbell(args.doorbells.ok_or(EINVAL)?),
                    _charges: [None, None],
                }
            }
            BoKind::MmioRemap => {
                if args.size != PAGE {
                    return Err(EINVAL);
                }
                hw.mmio_remap_bus_addr().ok_or(ENOMEM)?;
                Memory {
                    gpu: gpu.clone(),
                    backing: Backing::MmioRemap,
                    _charges: [None, None],
                }
            }
        };
        let object = Object::new(dev, usize::try_from(size).map_err(|_| ENOMEM)?, memory)?;
        grants.allow(&object)?;
        let id = u64::try_from(NEXT_ID.fetch_add(1, Relaxed))?;
        let bo = Self {
            id,
            kind: args.kind,
            flags: args.flags,
            size,
            userptr: (args.kind == BoKind::Userptr).then_some(args.userptr),
            object,
            grants: grants.clone(),
        };
        Ok(Arc::new(bo, GFP_KERNEL)?)
    }

    /// Takes VRAM, in as few blocks as there are holes, and zeroes it.
    fn vram(gpu: &Arc<Gpu>, hw: &Hw, size: u64, contiguous: bool) -> Result<Memory> {
        let charge = gpu.vram_budget().charge(size)?;
        let mut blocks = KVec::new();
        let mut left = size;
        let mut step = size;
        while left != 0 {
            step = step.min(left);
            match gpu.vram().alloc(step, PAGE) {
                Ok(block) => {
                    left = left.saturating_sub(block.size());
                    blocks.push(block, GFP_KERNEL)?;
                }
                Err(e) if e == ENOSPC && !contiguous && step > PAGE => {
                    step = smaller(step);
                }
                Err(e) if e == ENOSPC => return Err(ENOMEM),
                Err(e) => return Err(e),
            }
        }
        for block in &blocks {
            let mut offset = 0;
            while offset < block.size() {
                let len = ZERO_STEP.min(block.size() - offset);
                hw.vram_fill(block.offset() + offset, len, 0)?;
                offset += len;
            }
        }
        hw.hdp_flush();
        Ok(Memory {
            gpu: gpu.clone(),
            backing: Backing::Vram(blocks),
            _charges: [Some(charge), None],
        })
    }

    /// Finds out where the buffer lies for `gpu`, which `hw` belongs to, and fixes it there.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `gpu` cannot reach it (VRAM, doorbells or registers of another); `ENOMEM`; what
    /// the DMA layer reports.
    pub(super) fn place(&self, gpu: &Arc<Gpu>, hw: &Hw) -> Result<Placed> {
        let local = Arc::ptr_eq(gpu, &self.object.gpu);
        let snooped = Place::System { snooped: true };
        let mut runs = KVVec::new();
        let (place, memory, dma) = match &self.object.backing {
            Backing::Vram(blocks) if local => {
                for block in blocks {
                    push_run(&mut runs, block.pa(), block.size())?;
                }
                (Place::Vram, Where::Local, None)
            }
            Backing::Pages { pages, .. } => {
                let dma = DmaMap::pages(hw.dev(), pages, self.flags.writable)?;
                (snooped, Where::System, Some(dma))
            }
            Backing::Doorbell(slice) if local => {
                let addr = hw.doorbell_bus_addr() + slice.bar_offset();
                let dma = DmaMap::resource(hw.dev(), addr, usize::try_from(self.size)?)?;
                (snooped, Where::System, Some(dma))
            }
            Backing::MmioRemap if local => {
                let addr = hw.mmio_remap_bus_addr().ok_or(ENODEV)?;
                let dma = DmaMap::resource(hw.dev(), addr, usize::try_from(self.size)?)?;
                (snooped, Where::System, Some(dma))
            }
            _ => return Err(EINVAL),
        };
        if let Some(dma) = &dma {
            for run in dma.runs() {
                push_run(&mut runs, run.addr, run.len)?;
            }
        }
        // What is mapped must be what was asked for, byte by byte.
        if runs.iter().map(|run| run.len).sum::<u64>() != self.size {
            return Err(EIO);
        }
        let mtype = match self.kind {
            BoKind::Doorbell | BoKind::MmioRemap => Mtype::Uc,
            _ => gpu.asic().mtype.mtype(memory, self.flags.coherence()),
        };
        Ok(Placed {
            runs,
            attrs: PageAttrs {
                place,
                access: self.flags.access(),
                mtype,
                fragment: 0,
            },
            _dma: dma,
        })
    }

    /// Distinguishes the buffer from all others that ever were.
    pub(super) fn id(&self) -> u64 {
        self.id
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

    /// Where the render node maps it, for the file that it was made with.
    pub(crate) fn mmap_offset(&self) -> u64 {
        self.object.mmap_offset()
    }

    /// Its bytes.
    #[cfg(rkfd_kunit)]
    pub(crate) fn memory(&self) -> &Memory {
        &self.object
    }

    /// Whether the file behind `tag` may map it.
    #[cfg(rkfd_kunit)]
    pub(crate) fn is_allowed(&self, tag: FileTag) -> bool {
        self.object.is_allowed(tag)
    }

    /// Maps it for the kernel.
    ///
    /// # Errors
    ///
    /// `EINVAL` unless it is [`BoKind::System`], `ENOMEM`.
    pub(crate) fn vmap(&self) -> Result<BoVmap> {
        match &self.object.backing {
            Backing::Pages { pages, user: false } => Ok(BoVmap(Vmap::new(pages.clone())?)),
            _ => Err(EINVAL),
        }
    }
}

impl Drop for Bo {
    fn drop(&mut self) {
        self.grants.revoke(&self.object);
    }
}

/// Appends a run, or lengthens the last one.
fn push_run(runs: &mut KVVec<Run>, addr: u64, len: u64) -> Result {
    match runs.last_mut() {
        Some(last) if last.addr + last.len == addr => last.len += len,
        _ => runs.push(Run { addr, len }, GFP_KERNEL)?,
    }
    Ok(())
}

/// The next size to try for a block of VRAM when there is no hole of `size` bytes.
pub(crate) fn smaller(size: u64) -> u64 {
    let unit = if size > HUGE { HUGE } else { PAGE };
    (size / 2).next_multiple_of(unit).min(size - PAGE)
}

fn page_count(size: u64) -> Result<usize> {
    let count = usize::try_from(size >> PAGE_SHIFT).map_err(|_| ENOMEM)?;
    // The C interfaces count pages in 32 bits.
    if i32::try_from(count).is_err() {
        return Err(ENOMEM);
    }
    Ok(count)
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
    #[cfg_attr(not(rkfd_kunit), allow(dead_code, reason = "seen by tests"))]
    pub(crate) fn size(&self) -> usize {
        self.0.size()
    }
}

/// Which buffers one open file may map.
///
/// The DRM core compares files by address, and an address comes again after a file was closed. So
/// a permission has to end before its file does, even if the buffer stays.
#[pin_data]
pub(crate) struct Grants {
    #[pin]
    state: Mutex<GrantState>,
}

struct GrantState {
    /// The file, once it is known and until it is closed.
    tag: Option<FileTag>,
    closed: bool,
    objects: RBTree<usize, Object<Memory>>,
}

impl Grants {
    /// Nothing may be mapped yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let state = GrantState {
            tag: None,
            closed: false,
            objects: RBTree::new(),
        };
        Arc::pin_init(
            try_pin_init!(Self {
                state <- new_mutex!(state, "rkfd_grants"),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Says which file this is about; only the first call counts.
    pub(crate) fn set_file(&self, tag: FileTag) {
        self.state.lock().tag.get_or_insert(tag);
    }

    fn allow(&self, object: &Object<Memory>) -> Result {
        let node = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let mut state = self.state.lock();
        if state.closed {
            return Err(ENODEV);
        }
        let tag = state.tag.ok_or(EINVAL)?;
        object.allow(tag)?;
        state
            .objects
            .insert(node.into_node(object.key(), object.clone()));
        Ok(())
    }

    fn revoke(&self, object: &Object<Memory>) {
        let mut state = self.state.lock();
        let node = state.objects.remove_node(&object.key());
        if let (Some(_), Some(tag)) = (&node, state.tag) {
            object.revoke(tag);
        }
        drop(state);
        // Outside the lock: may free the object.
        drop(node);
    }

    /// The file is being closed.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let objects = core::mem::replace(&mut state.objects, RBTree::new());
        let tag = state.tag;
        drop(state);
        if let Some(tag) = tag {
            for object in objects.values() {
                object.revoke(tag);
            }
        }
    }

    /// Buffers that can be mapped.
    #[cfg_attr(not(rkfd_kunit), allow(dead_code, reason = "seen by tests"))]
    pub(crate) fn len(&self) -> usize {
        self.state.lock().objects.iter().count()
    }
}
