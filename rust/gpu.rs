// SPDX-License-Identifier: GPL-2.0

//! One GPU: a PCI device.
//!
//! [`Gpu::new`] brings a posted device up in the order that the hardware requires (the same as
//! `amdgpu`'s: bus interface, hubs, interrupts, compute block, SDMA, kernel queue) and
//! [`Gpu::shutdown`] takes it down again. In between the object hands out what the layers above
//! share: video memory, the GART window, doorbells, address space ids, and the hardware itself
//! through a gate ([`access`]).
//!
//! A [`Gpu`] is reference-counted and may outlive its device; then every operation answers
//! `ENODEV`.
//!
//! Lock order, outermost first: IH rings, IH sink, KIQ, range allocators; hardware locks
//! ([`access`]) are innermost.

use kernel::{
    debugfs::Dir,
    device::{
        Bound,
        Core,
        Device, //
    },
    dma::{
        Device as _,
        DmaMask, //
    },
    new_mutex, pci,
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

use crate::{
    hw::{
        asic::AsicDesc,
        regs::hub::FlushType, //
    },
    kapi::{
        dma::{
            self,
            DmaBuffer, //
        },
        irq::Msi, //
    },
};

pub(crate) mod access;
pub(crate) mod account;
pub(crate) mod debug;
pub(crate) mod doorbell;
pub(crate) mod gart;
pub(crate) mod gfx;
pub(crate) mod hub;
mod identity;
pub(crate) mod ih;
pub(crate) mod kiq;
mod nbio;
pub(crate) mod pasid;
pub(crate) mod poll;
mod power;
pub(crate) mod registry;
pub(crate) mod reserved;
mod reset;
pub(crate) mod salvage;
mod sdma;
pub(crate) mod silicon;
mod smu;
pub(crate) mod vmid;
pub(crate) mod vram;

pub(crate) use self::{
    access::{
        Hw,
        HwGuard, //
    },
    account::{
        Budget,
        TableBudget, //
    },
    doorbell::{
        Doorbell,
        DoorbellManager,
        DoorbellSlice,
        KernelDoorbell, //
    },
    gart::{
        Gart,
        GartBuffer, //
    },
    identity::{
        GpuInfo,
        MIN_VRAM,
        MODEL_SUBSYSTEM, //
    },
    ih::{
        IrqSink,
        VmFault, //
    },
    pasid::{
        Pasid,
        PasidPool, //
    },
    registry::{
        registry,
        GpuId,
        Registry, //
    },
    vram::{
        VramBlock,
        VramManager, //
    },
};

/// Choices made when the module was loaded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Config {
    /// Retry faults where an ASIC has one setting for the whole device.
    pub(crate) xnack: bool,
    /// VRAM that is not the driver's.
    pub(crate) reserved: reserved::Reserved,
}

/// No render node.
const NO_MINOR: i32 = -1;

/// One GPU.
#[pin_data]
pub(crate) struct Gpu {
    asic: &'static AsicDesc,
    id: u32,
    /// Keeps the id from others until shutdown.
    #[pin]
    lease: Mutex<Option<GpuId>>,
    info: GpuInfo,
    pdev: ARef<pci::Device>,
    access: Arc<access::Access>,
    vram: Arc<VramManager>,
    vram_budget: Arc<Budget>,
    table_budget: Arc<TableBudget>,
    gart: Gart,
    doorbells: Arc<DoorbellManager>,
    pasids: Arc<PasidPool>,
    ih: Arc<ih::Ih>,
    #[pin]
    kiq: kiq::Kiq,
    #[pin]
    power: power::Power,
    config: Config,
    render_minor: Atomic<i32>,
    /// See [`Gpu::debugfs`].
    #[pin]
    debugfs: Mutex<Option<Dir>>,
    /// The interrupt, until shutdown.
    #[pin]
    irq: Mutex<Option<Msi<ih::Ih>>>,
    /// Reset the device at shutdown.
    reset: AtomicFlag,
    /// A page of system memory that answers accesses to nowhere.
    dummy: DmaBuffer,
    /// The same in VRAM, for accesses to a hole in the system aperture.
    scratch: VramBlock,
    /// Parts that are not the driver's.
    _reserved: KVec<VramBlock>,
}

impl Gpu {
    /// Brings up the posted device `pdev`.
    ///
    /// # Errors
    ///
    /// - `ENODEV`: a BAR is missing or too small.
    /// - `EBUSY`: another driver holds the device.
    /// - `EIO`: the device does not answer, or reports what cannot be.
    /// - `ETIMEDOUT`: a block does not respond.
    /// - `ENOMEM`, `ENOSPC`: no memory or no interrupt.
    ///
    /// Every error was logged.
    pub(crate) fn new(
        pdev: &pci::Device<Core<'_>>,
        asic: &'static AsicDesc,
        registry: &Arc<Registry>,
        config: Config,
    ) -> Result<Arc<Self>> {
        let mask = DmaMask::try_new(asic.dma_bits)?;
        // SAFETY: The device is being probed and nothing has been mapped for it.
        unsafe { pdev.dma_set_mask_and_coherent(mask)? };
        // Page tables take segments of any length.
        // SAFETY: As above.
        unsafe { pdev.dma_set_max_seg_size(u32::MAX) };

        let access = Arc::pin_init(access::Access::new(Hw::new(pdev, asic)?), GFP_KERNEL)?;
        Self::bring_up(pdev, asic, registry, config, &access).inspect_err(|_| {
            // What a failure has left for the end of the binding finds the gate closed.
            drop(access::shut(&access));
        })
    }

    fn bring_up(
        pdev: &pci::Device<Core<'_>>,
        asic: &'static AsicDesc,
        registry: &Arc<Registry>,
        config: Config,
        access: &Arc<access::Access>,
    ) -> Result<Arc<Self>> {
        let hw = access.enter().ok_or(ENODEV)?;
        let mut info = GpuInfo::identify(pdev, &hw)?;
        // Before anything that they might touch is set up.
        if Self::clear_away(&hw)? {
            info = GpuInfo::identify(pdev, &hw)?;
        }
        ih::disable(&hw)?;
        // Nothing of an earlier driver is left that could use memory which is somebody else's by now.
        pdev.set_master();
        let vram = VramManager::new(
            info.vram_size.min(info.vram_visible),
            info.fb.base,
            info.fb.offset,
        )?;
        let reserved = Self::reserve(pdev, &info, &vram, config.reserved)?;
        let gart_start = gart::window_start(info.fb.base, info.fb.top).ok_or_else(|| {
            dev_err!(pdev, "no room for the GART beside VRAM\n");
            EIO
        })?;

        // What is put into the GART is flushed.
        hub::cover_all(&hw);
        // CPU access to VRAM comes first: the GART table lies there.
        nbio::init(&hw)?;
        nbio::hdp_init(&hw, info.fb.base);
        let gart = Gart::new(access, &hw, &vram, gart_start)?;
        let dummy = DmaBuffer::new(hw.dev(), dma::PAGE)?;
        let scratch = vram.alloc(crate::hw::pte::PAGE, 0)?;
        hw.vram_fill(scratch.offset(), scratch.size(), 0)?;
        let ih = ih::Ih::new(access, &hw)?;
        let doorbells = DoorbellManager::new(&asic.doorbell, hw.doorbell_len())?;
        let kiq = kiq::Kiq::new(&hw, &gart, &asic.doorbell)?;

        let name: &Device = pdev.as_ref();
        let debugfs = registry.debugfs().map(|dir| dir.subdir(name.name()));
        let lease = registry.reserve_id(info.id_seed())?;
        // Counted before anything but the bring-up has taken VRAM.
        let vram_budget = Budget::for_vram(info.vram_size, vram.available())?;
        let reserve = account::table_reserve(info.vram_size);
        let gpu = Arc::pin_init(
            try_pin_init!(Self {
                asic,
                id: lease.get(),
                lease <- new_mutex!(Some(lease), "rkfd_gpu_id"),
                info,
                pdev: (&**pdev).into(),
                access: access.clone(),
                table_budget: TableBudget::new(&vram_budget, reserve)?,
                vram_budget,
                vram,
                gart,
                kiq <- kiq,
                power <- power::Power::new(),
                config,
                doorbells,
                pasids: PasidPool::new()?,
                ih,
                render_minor: Atomic::new(NO_MINOR),
                debugfs <- new_mutex!(debugfs, "rkfd_debugfs"),
                irq <- new_mutex!(None, "rkfd_irq"),
                reset: AtomicFlag::new(false),
                dummy,
                scratch,
                _reserved: reserved,
            }? Error),
            GFP_KERNEL,
        )?;
        // From here on blocks run that use memory of `gpu`, so a failure stops them first.
        gpu.start(&hw).inspect_err(|e| {
            dev_err!(pdev, "bring-up failed: {:?}\n", e);
            gpu.halt(&hw);
        })?;
        Ok(gpu)
    }

    /// Takes the VRAM that is not the driver's.
    ///
    /// # Errors
    ///
    /// `EINVAL`: not within the VRAM, or twice. `ENOMEM`.
    fn reserve(
        pdev: &pci::Device<Bound>,
        info: &GpuInfo,
        vram: &Arc<VramManager>,
        reserved: reserved::Reserved,
    ) -> Result<KVec<VramBlock>> {
        let mut blocks = KVec::new();
        for span in reserved.spans() {
            let within = span.start + span.size <= info.vram_size;
            let block = match within {
                true => vram.reserve(span),
                false => Err(EINVAL),
            };
            let block = block.inspect_err(|e| {
                dev_err!(
                    pdev,
                    "reserved_vram: {:#x} bytes at {:#x} of {:#x}: {:?}\n",
                    span.size,
                    span.start,
                    info.vram_size,
                    e
                )
            });
            match block {
                Ok(Some(block)) => blocks.push(block, GFP_KERNEL)?,
                Ok(None) => {}
                Err(e) if e == ENOSPC => return Err(EINVAL),
                Err(e) => return Err(e),
            }
        }
        Ok(blocks)
    }

    /// Ends what an earlier driver left running. Returns whether that took a reset of the
    /// chip, after which the device is as when it was powered on. Nothing of it may be in use yet.
    ///
    /// # Errors
    ///
    /// `EIO` if the device does not answer or does not stop, `ETIMEDOUT` if it does not come back.
    fn clear_away(hw: &Hw) -> Result<bool> {
        if salvage::quiesce_stale_queues(hw)? {
            return Ok(false);
        }
        dev_warn!(
            hw.dev(),
            "an SDMA engine is in the middle of a packet of an earlier driver: resetting the chip\n"
        );
        let at_rest = reset::mode1(hw).and_then(|()| salvage::quiesce_stale_queues(hw));
        match at_rest {
            Ok(true) => Ok(true),
            Ok(false) => {
                dev_err!(
                    hw.dev(),
                    "an SDMA engine goes on with a packet after a reset of the chip\n"
                );
                Err(EIO)
            }
            Err(e) => {
                dev_err!(hw.dev(), "the GPU could not be reset: {:?}\n", e);
                Err(e)
            }
        }
    }

    /// Starts all blocks.
    fn start(&self, hw: &Hw) -> Result {
        // Address translation.
        let retry = self.asic.xnack_per_process || self.config.xnack;
        hub::enable_fault_defaults(hw);
        hub::cover_all(hw);
        hub::flush_vmid(hw, 0, FlushType::Legacy)?;
        hub::program(
            hw,
            &hub::HubSetup {
                fb: self.info.fb,
                gart_start: self.gart.start(),
                gart_end: self.gart.end(),
                gart_base: self.gart.table_base(),
                scratch_page: self.scratch.pa(),
                dummy_page: self.dummy.bus_addr(),
                retry,
            },
        );
        hub::flush_vmid(hw, 0, FlushType::Legacy)?;

        // Interrupts.
        let irq = Msi::new(hw.pdev(), c"rkfd", self.ih.clone())
            .inspect_err(|e| dev_err!(hw.dev(), "no MSI vector: {:?}\n", e))?;
        *self.irq.lock() = Some(irq);
        self.ih.start(hw, self.dummy.bus_addr());
        hub::enable_fault_interrupts(hw, retry);

        self.start_engines(hw)
    }

    /// Stops all blocks for good. An engine that does not stop reaches no memory after this.
    fn halt(&self, hw: &Hw) {
        self.stop_blocks(hw);
        // Before anything is freed.
        hw.end_dma();
        self.kiq.release();
    }

    /// Stops all blocks.
    fn stop_blocks(&self, hw: &Hw) {
        // Taken out first: the lock must not be held while the last interrupt ends.
        let irq = self.irq.lock().take();
        drop(irq);
        self.kiq.stop(hw);
        gfx::halt(hw);
        sdma::halt(hw);
        self.ih.stop(hw);
        nbio::shutdown(hw);
        hub::quiesce(hw);
    }

    /// The ASIC.
    pub(crate) fn asic(&self) -> &'static AsicDesc {
        self.asic
    }

    /// KFD's number of the GPU: 1 to 65535, distinct, the same after a reload.
    pub(crate) fn id(&self) -> u32 {
        self.id
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

    /// Video memory.
    pub(crate) fn vram(&self) -> &Arc<VramManager> {
        &self.vram
    }

    /// What of the video memory buffers may take, and have taken.
    pub(crate) fn vram_budget(&self) -> &Arc<Budget> {
        &self.vram_budget
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
    pub(crate) fn ih(&self) -> &ih::Ih {
        &self.ih
    }

    /// Delivers all interrupts that were raised up to now. When this returns, nothing more is delivered of
    /// queues that were off the hardware before. Sleeps; bounded. The sink must not wait for locks of the caller.
    pub(crate) fn catch_up(&self) {
        if let Some(hw) = self.access.enter() {
            self.ih.flush(&hw);
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

    /// The kernel interface queue.
    pub(crate) fn kiq(&self) -> &kiq::Kiq {
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
