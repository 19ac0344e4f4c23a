// SPDX-License-Identifier: GPL-2.0

//! What holds the bytes of a buffer, and how user space and debuggers reach them.

use kernel::{
    page::PAGE_SHIFT,
    prelude::*,
    sync::Arc, //
};

use super::{
    args::{
        BoArgs,
        BoFlags,
        BoKind, //
    },
    foreign::Foreign,
    place::{
        Movable,
        Place, //
    }, //
};
use crate::{
    gpu::{
        account::{
            self,
            Charge, //
        },
        DoorbellSlice,
        Gpu,
        Moment,
        VramBlocks, //
    },
    kapi::{
        dma_buf::DmaBuf,
        drm_file::DrmDevice,
        mappable::{
            ExportOps,
            FaultStamp,
            Mappable,
            Region,
            Transfer,
            UserCaching, //
        },
        pages::Pages,
        userpages::UserPages, //
    },
    vm::{
        account::UserCharge,
        pt::PAGE,
        rooms::Whose, //
    },
};

/// What holds the bytes.
pub(super) enum Storage {
    Vram(Arc<Movable>),
    Pages(Arc<Pages>),
    User(UserPages),
    Doorbell(Arc<DoorbellSlice>),
    MmioRemap,
    /// Memory of another driver.
    Foreign(Arc<Foreign>),
    /// Doorbells for the CPU alone, see [`DoorbellWindow`](super::DoorbellWindow).
    Window(Arc<DoorbellSlice>),
}

/// How buffers of this driver are shared.
static EXPORT_OPS: ExportOps<Memory> = ExportOps::new();

/// The bytes of a buffer, with what was charged for them.
pub(crate) struct Memory {
    pub(super) gpu: Arc<Gpu>,
    pub(super) storage: Storage,
    /// What the buffer was made for; importers get some of it, too.
    pub(super) flags: BoFlags,
    // After `storage`: what is given back must be free.
    _charges: Charges,
}

/// What was charged.
enum Charges {
    /// For VRAM, which has its charge where it is at present.
    Place,
    /// For memory of another driver, which has charged it by its own rules.
    Exporter,
    /// To the budget of the machine.
    One(#[expect(dead_code, reason = "given back when dropped")] Charge),
    /// To both budgets of system memory.
    System(#[expect(dead_code, reason = "given back when dropped")] [Charge; 2]),
    /// To the account of the process.
    User(#[expect(dead_code, reason = "given back when dropped")] UserCharge),
}

impl Memory {
    /// Takes memory of `size` bytes, whole pages, on `gpu`.
    ///
    /// # Errors
    ///
    /// Those of [`Bo::new`](super::Bo::new).
    pub(super) fn new(gpu: &Arc<Gpu>, dev: &DrmDevice, size: u64, args: BoArgs) -> Result<Self> {
        let (storage, charges) = match args.kind {
            BoKind::Vram => {
                let hw = gpu.enter()?;
                let contiguous = args.flags.contiguous;
                let movable = gpu.with_room(dev, &hw, size, Whose::All, |charge| {
                    Movable::new(gpu, &hw, charge, contiguous)
                })?;
                (Storage::Vram(movable), Charges::Place)
            }
            BoKind::System => {
                let system = account::system();
                let charges = [
                    system.all.charge_module(size)?,
                    system.allocated.charge_module(size)?,
                ];
                let pages = Arc::new(Pages::alloc(page_count(size)?)?, GFP_KERNEL_ACCOUNT)?;
                (Storage::Pages(pages), Charges::System(charges))
            }
            BoKind::Userptr => {
                let user = args.user.ok_or(EINVAL)?;
                if user.address == 0 {
                    return Err(EINVAL);
                }
                let first = user.address & !(PAGE - 1);
                let end = first.checked_add(size).ok_or(EFAULT)?;
                let charge = user.account.charge(first..end)?;
                let start = usize::try_from(first).map_err(|_| EFAULT)?;
                let writable = args.flags.writable;
                let pages = UserPages::new(start, page_count(size)?, writable, user.watcher)?;
                // May take as long as user space wants: without access to the device, whose removal
                // would wait.
                pages.find()?;
                (Storage::User(pages), Charges::User(charge))
            }
            BoKind::Doorbell => {
                if args.size != u64::from(DoorbellSlice::SIZE) {
                    return Err(EINVAL);
                }
                let slice = args.doorbells.ok_or(EINVAL)?;
                (Storage::Doorbell(slice), handle_charge(size)?)
            }
            BoKind::MmioRemap => {
                if args.size != PAGE {
                    return Err(EINVAL);
                }
                gpu.enter()?.mmio_remap_bus_addr().ok_or(ENOMEM)?;
                (Storage::MmioRemap, handle_charge(size)?)
            }
        };
        Ok(Self {
            gpu: gpu.clone(),
            storage,
            flags: args.flags,
            _charges: charges,
        })
    }

    /// Memory of another driver, which `gpu` is attached to from here on. The caller holds no reservation.
    ///
    /// # Errors
    ///
    /// Those of [`Foreign::attach`].
    pub(super) fn foreign(gpu: &Arc<Gpu>, dma_buf: &DmaBuf) -> Result<Self> {
        let foreign = Foreign::new(dma_buf)?;
        foreign.attach(gpu)?;
        Ok(Self {
            gpu: gpu.clone(),
            storage: Storage::Foreign(foreign),
            // Cached as system memory is that nothing was asked for: all that share it wait for kernels to end.
            flags: BoFlags::default(),
            _charges: Charges::Exporter,
        })
    }

    /// The doorbells of `slice`, for the CPU to map.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: limits exceeded.
    pub(super) fn window(gpu: &Arc<Gpu>, slice: Arc<DoorbellSlice>) -> Result<Self> {
        Ok(Self {
            gpu: gpu.clone(),
            storage: Storage::Window(slice),
            flags: BoFlags::default(),
            _charges: handle_charge(u64::from(DoorbellSlice::SIZE))?,
        })
    }

    /// The pages of a process, if it is made of those.
    pub(super) fn user(&self) -> Option<&UserPages> {
        match &self.storage {
            Storage::User(pages) => Some(pages),
            _ => None,
        }
    }

    /// Where it is, if it is VRAM.
    pub(crate) fn movable(&self) -> Option<&Arc<Movable>> {
        match &self.storage {
            Storage::Vram(movable) => Some(movable),
            _ => None,
        }
    }

    /// What buffers that share it are made of; `None` if it is not to be shared.
    pub(super) fn shared_kind(&self) -> Option<BoKind> {
        match &self.storage {
            Storage::Vram(_) => Some(BoKind::Vram),
            Storage::Pages(_) | Storage::Foreign(_) => Some(BoKind::System),
            _ => None,
        }
    }

    fn transfer_vram(&self, blocks: &VramBlocks, offset: usize, transfer: Transfer<'_>) -> Result {
        let hw = self.gpu.enter()?;
        let mut done = 0;
        let len = transfer.len();
        let mut transfer = transfer;
        while done < len {
            // CAST: `usize` is at most 64 bits wide.
            let (at, follow) = blocks.locate((offset + done) as u64).ok_or(EINVAL)?;
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
        match &self.storage {
            Storage::Vram(_) => Ok(UserCaching::WriteCombined),
            Storage::Pages(_) => Ok(UserCaching::Cached),
            Storage::Window(_) => Ok(UserCaching::Uncached),
            // User memory is mapped already; doorbells and registers are mapped by `/dev/kfd`,
            // which knows whose they are; memory of another driver is mapped by its descriptor, as the exporter wants it.
            _ => Err(EPERM),
        }
    }

    fn begin_fault(&self) -> Result<FaultStamp> {
        match &self.storage {
            // A reset takes mappings away before it begins, and they shall stay away until it is over.
            Storage::Window(_) => Ok(FaultStamp(self.gpu.wait_up()?.number())),
            _ => Ok(FaultStamp::default()),
        }
    }

    fn is_revoked_since(&self, begin: FaultStamp) -> bool {
        match &self.storage {
            Storage::Window(_) => self.gpu.was_reset_since(Moment::from_number(begin.0)),
            _ => false,
        }
    }

    fn pfn(&self, index: usize) -> Result<usize> {
        match &self.storage {
            Storage::Vram(movable) => match &*movable.place() {
                Place::Vram { blocks, .. } => {
                    let hw = self.gpu.enter()?;
                    // CAST: `usize` is at most 64 bits wide.
                    let (offset, _) = blocks.locate((index as u64) << PAGE_SHIFT).ok_or(EINVAL)?;
                    Ok(usize::try_from(
                        (hw.vram_bus_addr() + offset) >> PAGE_SHIFT,
                    )?)
                }
                Place::System { pages, .. } => pages.pfn(index),
            },
            Storage::Pages(pages) => pages.pfn(index),
            Storage::Window(slice) => {
                // CAST: `usize` is at most 64 bits wide.
                let offset = (index as u64) << PAGE_SHIFT;
                if offset >= u64::from(DoorbellSlice::SIZE) {
                    return Err(EINVAL);
                }
                let base = self.gpu.enter()?.doorbell_bus_addr() + slice.bar_offset();
                Ok(usize::try_from((base + offset) >> PAGE_SHIFT)?)
            }
            _ => Err(EPERM),
        }
    }

    fn moving_caching(&self) -> Option<UserCaching> {
        Some(if self.movable()?.is_home() {
            UserCaching::WriteCombined
        } else {
            UserCaching::Cached
        })
    }

    fn transfer(&self, offset: usize, transfer: Transfer<'_>) -> Result {
        match &self.storage {
            Storage::Vram(movable) => match &*movable.place() {
                Place::Vram { blocks, .. } => self.transfer_vram(blocks, offset, transfer),
                Place::System { pages, .. } => pages.copy(offset, transfer),
            },
            Storage::Pages(pages) => pages.copy(offset, transfer),
            _ => Err(EPERM),
        }
    }

    fn export_ops() -> &'static ExportOps<Self> {
        &EXPORT_OPS
    }

    fn may_export(&self) -> Result {
        // Memory of a process is the process's to share; doorbells and registers are not. Memory of another driver
        // has its `dma_buf`, which the DRM core and `/dev/kfd` hand on.
        if matches!(self.storage, Storage::Foreign(_)) {
            return Err(EPERM);
        }
        self.shared_kind().map(|_| ()).ok_or(EPERM)
    }

    fn pages(&self) -> Option<&Arc<Pages>> {
        match &self.storage {
            Storage::Pages(pages) => Some(pages),
            _ => None,
        }
    }

    fn region(&self) -> Option<Region> {
        match &self.storage {
            Storage::Vram(movable) if movable.is_home() => Some(Region::Vram),
            Storage::Vram(_) => Some(Region::Gtt),
            Storage::Pages(_) | Storage::User(_) | Storage::Foreign(_) => Some(Region::Gtt),
            Storage::Doorbell(_) | Storage::MmioRemap | Storage::Window(_) => None,
        }
    }
}

/// A charge for a buffer that needs no memory but for itself, so that their number is bounded.
fn handle_charge(size: u64) -> Result<Charges> {
    Ok(Charges::One(account::system().all.charge_module(size)?))
}

fn page_count(size: u64) -> Result<usize> {
    let count = usize::try_from(size >> PAGE_SHIFT).map_err(|_| ENOMEM)?;
    // The C interfaces count pages in 32 bits.
    if i32::try_from(count).is_err() {
        return Err(ENOMEM);
    }
    Ok(count)
}
