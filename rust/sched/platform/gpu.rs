// SPDX-License-Identifier: GPL-2.0

//! A GPU as the scheduler's [`Platform`].

use kernel::{
    fmt,
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

use crate::{
    gpu::{
        conduct::Standing,
        vmid::{
            self,
            VmidContext, //
        },
        GartBuffer,
        Gpu,
        Hw,
        KernelDoorbell,
        VramBlock, //
    },
    hw::{
        asic::AsicDesc,
        doorbell::DoorbellOffset,
        regs::{
            hqd::Slot,
            Reg, //
        }, //
    },
    kapi::{
        log::monotonic_ns,
        task::ThreadGroup, //
    },
    sched::platform::{
        DeviceMem,
        Domain,
        Platform, //
    }, //
};

/// `EIO` if the last access found the device lost.
fn alive(hw: &Hw) -> Result {
    match hw.is_lost() {
        true => Err(EIO),
        false => Ok(()),
    }
}

/// GART memory.
struct GartMem(GartBuffer);

impl DeviceMem for GartMem {
    fn gpu_addr(&self) -> u64 {
        self.0.gpu_addr()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn read32(&self, offset: usize) -> Result<u32> {
        self.0.read32(offset)
    }

    fn read64(&self, offset: usize) -> Result<u64> {
        self.0.read64(offset)
    }

    fn write32(&self, offset: usize, value: u32) -> Result {
        self.0.write32(offset, value)
    }

    fn write64(&self, offset: usize, value: u64) -> Result {
        self.0.write64(offset, value)
    }

    fn write_dwords(&self, offset: usize, words: &[u32]) -> Result {
        self.0.write_dwords(offset, words)
    }

    fn clear(&self, offset: usize, len: usize) -> Result {
        if len % 4 != 0 {
            return Err(EINVAL);
        }
        self.0.fill_dwords(offset, len / 4, 0)
    }

    fn flush(&self) -> Result {
        // Coherent: nothing to flush.
        Ok(())
    }
}

/// A block of VRAM, accessed through the aperture.
struct VramMem {
    block: VramBlock,
    gpu: Arc<Gpu>,
}

impl VramMem {
    /// Offset in VRAM of `len` bytes at `offset` of the block.
    fn vram_offset(&self, offset: usize, len: usize, align: usize) -> Result<u64> {
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if end > self.size() || offset % align != 0 {
            return Err(EINVAL);
        }
        Ok(self.block.offset() + u64::try_from(offset)?)
    }
}

impl DeviceMem for VramMem {
    fn gpu_addr(&self) -> u64 {
        self.block.mc()
    }

    fn size(&self) -> usize {
        // A block that does not fit a `usize` could not be mapped in the first place.
        usize::try_from(self.block.size()).unwrap_or(usize::MAX)
    }

    fn read32(&self, offset: usize) -> Result<u32> {
        let at = self.vram_offset(offset, 4, 4)?;
        let mut bytes = [0; 4];
        self.gpu.enter()?.vram_read(at, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn read64(&self, offset: usize) -> Result<u64> {
        let at = self.vram_offset(offset, 8, 8)?;
        let mut bytes = [0; 8];
        self.gpu.enter()?.vram_read(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn write32(&self, offset: usize, value: u32) -> Result {
        let at = self.vram_offset(offset, 4, 4)?;
        self.gpu.enter()?.vram_write(at, &value.to_le_bytes())
    }

    fn write64(&self, offset: usize, value: u64) -> Result {
        let at = self.vram_offset(offset, 8, 8)?;
        self.gpu.enter()?.vram_write_u64s(at, &[value])
    }

    fn write_dwords(&self, offset: usize, words: &[u32]) -> Result {
        let at = self.vram_offset(offset, words.len() * 4, 4)?;
        let hw = self.gpu.enter()?;
        for (at, word) in (at..).step_by(4).zip(words) {
            hw.vram_write(at, &word.to_le_bytes())?;
        }
        Ok(())
    }

    fn clear(&self, offset: usize, len: usize) -> Result {
        let at = self.vram_offset(offset, len, 4)?;
        self.gpu.enter()?.vram_fill(at, u64::try_from(len)?, 0)
    }

    fn flush(&self) -> Result {
        self.gpu.enter()?.hdp_flush();
        Ok(())
    }
}

/// A GPU.
pub(in crate::sched) struct GpuPlatform {
    gpu: Arc<Gpu>,
    doorbell: KernelDoorbell,
}

impl GpuPlatform {
    /// Takes the HIQ's doorbell of `gpu`.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the kernel's doorbells are taken, `ENOMEM`.
    pub(in crate::sched) fn new(gpu: &Arc<Gpu>) -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                gpu: gpu.clone(),
                doorbell: gpu.doorbells().alloc_kernel()?,
            },
            GFP_KERNEL,
        )?)
    }
}

impl Platform for GpuPlatform {
    fn asic(&self) -> &'static AsicDesc {
        self.gpu.asic()
    }

    fn gpu_id(&self) -> u32 {
        self.gpu.id()
    }

    fn standing(&self) -> Result<Standing> {
        let conducts = self.gpu.conducts();
        conducts.standing(self.gpu.id(), &ThreadGroup::current())
    }

    fn alloc(&self, size: usize, domain: Domain) -> Result<Arc<dyn DeviceMem>> {
        let hw = self.gpu.enter()?;
        match domain {
            Domain::Gart | Domain::GartMqd => {
                let gart = self.gpu.gart();
                let (buffer, flags) = match domain {
                    Domain::GartMqd => (gart.alloc_mqd(&hw, size)?, GFP_KERNEL_ACCOUNT),
                    _ => (gart.alloc(&hw, size)?, GFP_KERNEL),
                };
                let mem: Arc<dyn DeviceMem> = Arc::new(GartMem(buffer), flags)?;
                Ok(mem)
            }
            Domain::Vram => {
                let block = self
                    .gpu
                    .vram()
                    .alloc(u64::try_from(size)?, crate::hw::pte::PAGE)?;
                hw.vram_fill(block.offset(), block.size(), 0)?;
                let mem: Arc<dyn DeviceMem> = Arc::new(
                    VramMem {
                        block,
                        gpu: self.gpu.clone(),
                    },
                    GFP_KERNEL_ACCOUNT,
                )?;
                Ok(mem)
            }
        }
    }

    fn hiq_doorbell(&self) -> DoorbellOffset {
        self.doorbell.offset()
    }

    fn map_hiq(&self, mqd: u64, wptr: u64) -> Result {
        self.gpu
            .kiq()
            .map_hiq(&*self.gpu.enter()?, mqd, wptr, self.doorbell.offset())
    }

    fn unmap_hiq(&self) -> Result {
        self.gpu
            .kiq()
            .unmap_hiq(&*self.gpu.enter()?, self.doorbell.offset())
    }

    fn read(&self, reg: Reg) -> Result<u32> {
        let hw = self.gpu.enter()?;
        let value = hw.read(reg);
        match hw.is_lost() {
            true => Err(EIO),
            false => Ok(value),
        }
    }

    fn write(&self, reg: Reg, value: u32) -> Result {
        let hw = self.gpu.enter()?;
        hw.write(reg, value);
        alive(&hw)
    }

    fn write_slot(&self, slot: Slot, writes: &[(Reg, u32)]) -> Result {
        let hw = self.gpu.enter()?;
        let selected = hw.select(slot.select());
        for (reg, value) in writes {
            hw.write(*reg, *value);
        }
        drop(selected);
        alive(&hw)
    }

    fn reset_slot(&self, slot: Slot, timeout: u64) -> Result {
        let timeout = u32::try_from(timeout).unwrap_or(u32::MAX);
        crate::gpu::gfx::reset_queue(&*self.gpu.enter()?, slot, timeout)
    }

    fn bind_vmid(&self, vmid: u32, context: &VmidContext) -> Result {
        vmid::bind(&*self.gpu.enter()?, vmid, context)
    }

    fn unbind_vmid(&self, vmid: u32) -> Result {
        vmid::unbind(&*self.gpu.enter()?, vmid)
    }

    fn read_slot(&self, slot: Slot, regs: &[Reg], words: &mut [u32]) -> Result {
        let hw = self.gpu.enter()?;
        let selected = hw.select(slot.select());
        for (word, reg) in words.iter_mut().zip(regs) {
            *word = hw.read(*reg);
        }
        drop(selected);
        alive(&hw)
    }

    fn ring_hiq(&self, wptr: u64) -> Result {
        self.gpu
            .enter()?
            .doorbell64(self.hiq_doorbell().byte(), wptr);
        Ok(())
    }

    fn check(&self) -> Result {
        self.gpu.enter()?.check_alive()
    }

    fn err(&self, what: fmt::Arguments<'_>) {
        dev_err!(self.gpu.dev(), "scheduler: {what}\n");
    }

    fn warn(&self, what: fmt::Arguments<'_>) {
        dev_warn!(self.gpu.dev(), "scheduler: {what}\n");
    }

    fn now(&self) -> u64 {
        // Not since this scheduler began: see the trait.
        u64::try_from(monotonic_ns() / 1000).unwrap_or(0)
    }

    fn pause(&self, us: u64) {
        fsleep(Delta::from_micros(i64::try_from(us).unwrap_or(i64::MAX)));
    }
}
