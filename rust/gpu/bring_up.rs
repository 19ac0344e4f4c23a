// SPDX-License-Identifier: GPL-2.0

//! Bringing a GPU up, and stopping it.

use kernel::{
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
    str::CString,
    sync::{
        atomic::{
            Atomic,
            AtomicFlag, //
        },
        Arc, //
    },
};

use super::{
    access::{
        self,
        Access,
        Hw, //
    },
    account::{
        self,
        Budget,
        TableBudget, //
    },
    copy::CopyEngine,
    device::{
        Config,
        Gpu,
        NO_MINOR, //
    },
    devmem::DevicePages,
    doorbell::DoorbellManager,
    gart::{
        self,
        Gart, //
    },
    gfx, hub,
    identity::GpuInfo,
    ih, kiq,
    mirrors::MirrorFigures,
    nbio,
    pasid::PasidPool,
    registry::Registry,
    reserved::Reserved,
    reset, salvage, sdma,
    stage::Power,
    vram::{
        VramBlock,
        VramManager, //
    },
};
use crate::{
    hw::{
        asic::AsicDesc,
        pte,
        regs::hub::FlushType, //
    },
    kapi::{
        dma::{
            self,
            DmaBuffer, //
        },
        dmem,
        irq::Msi, //
    },
};

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
        // SAFETY: The device is being probed, and nothing has been allocated or mapped for it.
        unsafe { pdev.dma_set_max_seg_size(u32::MAX) };

        let access = Arc::pin_init(Access::new(Hw::new(pdev, asic)?), GFP_KERNEL)?;
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
        access: &Arc<Access>,
    ) -> Result<Arc<Self>> {
        let hw = access.enter().ok_or(ENODEV)?;
        let mut info = GpuInfo::identify(pdev, &hw)?;
        // Before anything that they might touch is set up.
        if Self::clear_away(&hw)? {
            info = GpuInfo::identify(pdev, &hw)?;
        }
        ih::disable(&hw)?;
        // Nothing of an earlier driver is left that could use memory which has another owner by now.
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
        let dummy = DmaBuffer::new(hw.dev(), dma::PAGE, GFP_KERNEL)?;
        let scratch = vram.alloc(pte::PAGE, 0)?;
        hw.vram_fill(scratch.offset(), scratch.size(), 0)?;
        let ih = ih::Ih::new(access, &hw)?;
        let doorbells = DoorbellManager::new(&asic.doorbell, hw.doorbell_len())?;
        let kiq = kiq::Kiq::new(&hw, &gart, &asic.doorbell)?;
        let copy = CopyEngine::new(&hw, &gart)?;
        ih.set_copy(copy.clone());

        let name: &Device = pdev.as_ref();
        let debugfs = registry.debugfs().map(|dir| dir.subdir(name.name()));
        let lease = registry.ids().reserve(info.id_seed())?;
        // Counted before anything but the bring-up has taken VRAM.
        let vram_budget = Budget::for_vram(info.vram_size, vram.available())?;
        let reserve = account::table_reserve(info.vram_size);
        let region = CString::try_from_fmt(fmt!("drm/{}/vram", name.name()))?;
        let gpu = Arc::pin_init(
            try_pin_init!(Self {
                asic,
                id: lease.get(),
                conducts: registry.conducts().clone(),
                lease <- new_mutex!(Some(lease), "rkfd_gpu_id"),
                info,
                pdev: (&**pdev).into(),
                access: access.clone(),
                table_budget: TableBudget::new(&vram_budget, reserve)?,
                vram_budget,
                dmem: dmem::Region::new(&region, vram.total())?,
                vram,
                gart,
                kiq <- kiq,
                copy,
                power <- Power::new(),
                config,
                doorbells,
                pasids: PasidPool::new()?,
                ih,
                render_minor: Atomic::new(NO_MINOR),
                rewritten: Atomic::new(0),
                mirrors: MirrorFigures::new()?,
                device_pages <- DevicePages::new(registry.keeper()?),
                debugfs <- new_mutex!(debugfs, "rkfd_debugfs"),
                irq <- new_mutex!(None, "rkfd_irq"),
                reset: AtomicFlag::new(false),
                upper <- new_mutex!(None, "rkfd_gpu_upper"),
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
        reserved: Reserved,
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
    pub(super) fn start(&self, hw: &Hw) -> Result {
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
    pub(super) fn halt(&self, hw: &Hw) {
        self.stop_blocks(hw);
        // Before anything is freed.
        hw.end_dma();
        self.kiq.release();
        self.copy.release();
    }

    /// Stops all blocks.
    pub(super) fn stop_blocks(&self, hw: &Hw) {
        // While the engines run: what it was given comes to its end.
        self.copy.stop(hw);
        // Taken out before: the lock must not be held while the last interrupt ends.
        let irq = self.irq.lock().take();
        drop(irq);
        self.kiq.stop(hw);
        gfx::halt(hw);
        sdma::halt(hw);
        self.ih.stop(hw);
        nbio::shutdown(hw);
        hub::quiesce(hw);
    }
}
