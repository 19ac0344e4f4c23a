// SPDX-License-Identifier: GPL-2.0

//! The object that stands for a GPU, and what the layers above ask of it.

use core::any::Any;

use kernel::{
    debugfs::Dir,
    device::Device,
    pci,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            AtomicFlag,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};

use super::{
    access::{
        self,
        Access,
        HwGuard, //
    },
    account::{
        Budget,
        TableBudget, //
    },
    conduct::Conducts,
    copy::CopyEngine,
    devmem::DevicePages,
    doorbell::DoorbellManager,
    gart::Gart,
    gfx, hub,
    identity::GpuInfo,
    ids::GpuId,
    ih::{
        Ih,
        IrqSink,
        VmFault, //
    },
    kiq::Kiq,
    mirrors::MirrorFigures,
    pasid::PasidPool,
    reserved::Reserved,
    reset,
    stage::Power,
    vram::{
        VramBlock,
        VramManager, //
    },
};
use crate::{
    hw::{
        asic::AsicDesc,
        regs::hub::FlushType, //
    },
    kapi::{
        dma::DmaBuffer,
        dmem,
        irq::Msi, //
    },
};

/// Choices made when the module was loaded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Config {
    /// Retry faults where an ASIC has one setting for the whole device.
    pub(crate) xnack: bool,
    /// VRAM that is not the driver's.
    pub(crate) reserved: Reserved,
}

/// No render node.
pub(super) const NO_MINOR: i32 = -1;

/// One GPU.
#[pin_data]
pub(crate) struct Gpu {
    pub(super) asic: &'static AsicDesc,
    pub(super) id: u32,
    /// See [`Gpu::conducts`].
    pub(super) conducts: Arc<Conducts>,
    /// Keeps the id from others until shutdown.
    #[pin]
    pub(super) lease: Mutex<Option<GpuId>>,
    pub(super) info: GpuInfo,
    pub(super) pdev: ARef<pci::Device>,
    pub(super) access: Arc<Access>,
    pub(super) vram: Arc<VramManager>,
    pub(super) vram_budget: Arc<Budget>,
    pub(super) table_budget: Arc<TableBudget>,
    pub(super) dmem: Arc<dmem::Region>,
    pub(super) gart: Gart,
    pub(super) doorbells: Arc<DoorbellManager>,
    pub(super) pasids: Arc<PasidPool>,
    pub(super) ih: Arc<Ih>,
    #[pin]
    pub(super) kiq: Kiq,
    pub(super) copy: Arc<CopyEngine>,
    #[pin]
    pub(super) power: Power,
    pub(super) config: Config,
    pub(super) render_minor: Atomic<i32>,
    /// See [`Gpu::rewritten`].
    pub(super) rewritten: Atomic<u64>,
    pub(super) mirrors: Arc<MirrorFigures>,
    /// See [`Gpu::device_pages`].
    #[pin]
    pub(super) device_pages: DevicePages,
    /// See [`Gpu::debugfs`].
    #[pin]
    pub(super) debugfs: Mutex<Option<Dir>>,
    /// The interrupt, until shutdown.
    #[pin]
    pub(super) irq: Mutex<Option<Msi<Ih>>>,
    /// Reset the device at shutdown.
    pub(super) reset: AtomicFlag,
    /// See [`Gpu::upper`].
    #[pin]
    pub(super) upper: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
    /// A page of system memory that answers accesses to nowhere.
    pub(super) dummy: DmaBuffer,
    /// The same in VRAM, for accesses to a hole in the system aperture.
    pub(super) scratch: VramBlock,
    /// Parts that are not the driver's.
    pub(super) _reserved: KVec<VramBlock>,
}

impl Gpu {
    /// The ASIC.
    pub(crate) fn asic(&self) -> &'static AsicDesc {
        self.asic
    }

    /// KFD's number of the GPU: 1 to 65535, distinct, the same after a reload.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// What is held against processes, on this GPU and others.
    pub(crate) fn conducts(&self) -> &Arc<Conducts> {
        &self.conducts
    }

    /// Identity and memory.
    pub(crate) fn info(&self) -> &GpuInfo {
        &self.info
    }

    /// The device, bound or not, for messages.
    pub(crate) fn dev(&self) -> &Device {
        let pdev: &pci::Device = &self.pdev;
        pdev.as_ref()
    }

    /// The PCI device, bound or not.
    pub(crate) fn pdev(&self) -> &pci::Device {
        &self.pdev
    }

    /// Access to the hardware, for as long as the result lives. May sleep inside, may nest.
    ///
    /// # Errors
    ///
    /// `ENODEV` once the device was unbound, `EIO` if it has stopped to answer.
    pub(crate) fn enter(&self) -> Result<HwGuard<'_>> {
        let hw = self.access.enter().ok_or(ENODEV)?;
        if hw.is_lost() {
            return Err(EIO);
        }
        Ok(hw)
    }

    /// Whether the device is bound and answers no more.
    pub(crate) fn is_lost(&self) -> bool {
        self.access.enter().is_some_and(|hw| hw.is_lost())
    }

    /// Whether the device was unbound.
    pub(crate) fn is_gone(&self) -> bool {
        !self.access.is_open()
    }

    /// The GPU's directory in debugfs, named by its PCI address, until shutdown.
    pub(crate) fn debugfs(&self) -> Option<Dir> {
        self.debugfs.lock().clone()
    }

    /// What the layer above keeps with the GPU, of which this layer knows no more: made by `make` at the first call. It
    /// must not keep the GPU.
    ///
    /// # Errors
    ///
    /// Those of `make`; `ENOMEM`; `EINVAL`: it is of another type.
    pub(crate) fn upper<T: Any + Clone + Send + Sync>(
        &self,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let mut upper = self.upper.lock();
        if upper.is_none() {
            let made: Arc<dyn Any + Send + Sync> = Arc::new(make()?, GFP_KERNEL)?;
            *upper = Some(made);
        }
        let known = upper.as_deref().ok_or(EINVAL)?;
        known.downcast_ref::<T>().cloned().ok_or(EINVAL)
    }

    /// Video memory.
    pub(crate) fn vram(&self) -> &Arc<VramManager> {
        &self.vram
    }

    /// What of the video memory buffers may take, and have taken.
    pub(crate) fn vram_budget(&self) -> &Arc<Budget> {
        &self.vram_budget
    }

    /// What of the video memory control groups have taken, until shutdown.
    pub(crate) fn dmem(&self) -> &dmem::Region {
        &self.dmem
    }

    /// What of the video memory page tables have taken.
    pub(crate) fn table_budget(&self) -> &Arc<TableBudget> {
        &self.table_budget
    }

    /// System memory for VMID 0.
    pub(crate) fn gart(&self) -> &Gart {
        &self.gart
    }

    /// Doorbells.
    pub(crate) fn doorbells(&self) -> &Arc<DoorbellManager> {
        &self.doorbells
    }

    /// Address space ids.
    pub(crate) fn pasids(&self) -> &Arc<PasidPool> {
        &self.pasids
    }

    /// Interrupt statistics and rings.
    pub(crate) fn ih(&self) -> &Ih {
        &self.ih
    }

    /// Delivers all interrupts that were raised up to now. When this returns, nothing more is delivered of
    /// queues that were off the hardware before. Sleeps; bounded. The sink must not wait for locks of the caller.
    pub(crate) fn catch_up(&self) {
        if let Some(hw) = self.access.enter() {
            self.ih.flush(&hw);
        }
    }

    /// Logs a fault that was not retried, with what the hub says of it, and has the hub keep the next one. Nothing of a
    /// GPU that is asleep, lost or gone. Not for the sink itself, which is called with the lock that this takes.
    pub(crate) fn log_fault(&self, fault: &VmFault) {
        if let Ok(hw) = self.enter() {
            self.ih.log_fault(&hw, fault);
        }
    }

    /// How addresses of images are swizzled.
    ///
    /// # Errors
    ///
    /// `EIO`, `ENODEV`: the device is lost or gone.
    pub(crate) fn gb_addr_config(&self) -> Result<u32> {
        gfx::gb_addr_config(&*self.enter()?)
    }

    /// Sets or removes the sink of interrupts; the previous one is not called any more when this returns.
    pub(crate) fn set_sink(&self, sink: Option<Arc<dyn IrqSink>>) {
        self.ih.set_sink(sink);
    }

    /// The number of the render node.
    pub(crate) fn set_render_minor(&self, minor: u32) {
        self.render_minor
            .store(i32::try_from(minor).unwrap_or(NO_MINOR), Relaxed);
    }

    /// The number of the render node, if there is one.
    pub(crate) fn render_minor(&self) -> Option<u32> {
        u32::try_from(self.render_minor.load(Relaxed)).ok()
    }

    /// The GPU's free-running clock.
    ///
    /// # Errors
    ///
    /// `ENODEV`, `EIO` as [`Gpu::enter`].
    pub(crate) fn clock_counter(&self) -> Result<u64> {
        gfx::clock(&*self.enter()?)
    }

    /// Drops what both hubs cache for an address space, heavyweight: when this returns, no access
    /// through an old entry is under way.
    ///
    /// # Errors
    ///
    /// `ENODEV`, `EIO` as [`Gpu::enter`], `ETIMEDOUT` if the GPU does not answer.
    pub(crate) fn flush_tlb(&self, pasid: u16) -> Result {
        if self.is_asleep() {
            // Nothing is cached that would be used again, and the device may be out of reach.
            return Ok(());
        }
        let hw = self.enter()?;
        match self.kiq.invalidate_tlbs(&hw, pasid, FlushType::Heavy) {
            Ok(true) => return Ok(()),
            Err(e) if hw.is_lost() => return Err(e),
            // The queue is out of service, or has just gone: by registers.
            Ok(false) | Err(_) => {}
        }
        let vmids = hub::vmids_of(&hw, pasid);
        for vmid in (0..16).filter(|vmid| vmids & 1 << vmid != 0) {
            hub::flush_vmid(&hw, vmid, FlushType::Heavy)?;
        }
        Ok(())
    }

    /// Notes that the entries of so many pages of processes were written anew, or taken away, because pages changed.
    pub(crate) fn note_rewritten(&self, pages: u64) {
        self.rewritten.add(pages, Relaxed);
    }

    /// The sum of what was noted.
    pub(crate) fn rewritten(&self) -> u64 {
        self.rewritten.load(Relaxed)
    }

    /// What mirrors have done, and which there are.
    pub(crate) fn mirrors(&self) -> &MirrorFigures {
        &self.mirrors
    }

    /// Pages of programs in its VRAM.
    pub(crate) fn device_pages(&self) -> &DevicePages {
        &self.device_pages
    }

    /// Ends all use of the device, because of `why`: when this returns, it reaches no memory, and counts as
    /// lost until it is bound anew. For memory that goes while the device does not confirm that it dropped its
    /// translations. Allocates nothing and does not sleep.
    pub(crate) fn give_up(&self, why: &str) {
        if let Some(hw) = self.access.enter() {
            hw.give_up(why);
        }
    }

    /// Keeps `value`, memory that the device may still reach, until the device is unbound. It is dropped at
    /// once if the device reaches no memory, which is seen to where the value cannot be kept.
    pub(crate) fn keep_until_unbind<T: Send + 'static>(&self, value: T) {
        if let Ok(hw) = self.enter() {
            access::keep_until_unbind(&self.access, &hw, value);
        }
    }

    /// The kernel's copy engine.
    pub(crate) fn copy(&self) -> &CopyEngine {
        &self.copy
    }

    /// The kernel interface queue.
    pub(crate) fn kiq(&self) -> &Kiq {
        &self.kiq
    }

    /// Takes the device down and closes the gate; everything that used it answers `ENODEV`, and the device
    /// reaches no memory.
    ///
    /// The layers above must have stopped before. Waits for those inside the gate. Later calls do
    /// nothing.
    pub(crate) fn shutdown(&self) {
        let debugfs = self.debugfs.lock().take();
        drop(debugfs);
        // The next life of the device gets the same id, though this object may still be held.
        let lease = self.lease.lock().take();
        drop(lease);
        // No fault waits for the GPU from here on.
        self.device_pages.end();
        // What programs keep is charged until they give it up.
        self.dmem.unregister();
        self.set_sink(None);
        self.take_down();
        let Some(hw) = access::shut(&self.access) else {
            return;
        };
        if self.reset.load(Relaxed) {
            match reset::mode1(&hw) {
                Ok(()) => dev_info!(self.dev(), "the GPU was reset; its memory is lost\n"),
                Err(e) => dev_err!(self.dev(), "the GPU could not be reset: {:?}\n", e),
            }
        }
    }

    /// Lets [`Gpu::shutdown`] end with a reset of the device.
    pub(crate) fn reset_at_shutdown(&self) {
        self.reset.store(true, Relaxed);
    }
}
