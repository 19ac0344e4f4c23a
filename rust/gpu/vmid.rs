// SPDX-License-Identifier: GPL-2.0

//! VMIDs given to address spaces by the driver, where no scheduler firmware does it.
//!
//! The firmware does the same at MAP_PROCESS. Source: `amdgpu_amdkfd_gfx_v9.c`
//! (`set_pasid_vmid_mapping`, `program_sh_mem_settings`, `program_trap_handler_settings`,
//! `set_vm_context_page_table_base`), `kfd_device_queue_manager.c` (`allocate_vmid`,
//! `deallocate_vmid`).

use kernel::prelude::*;

use super::{
    access::Hw,
    hub, //
};
use crate::hw::{
    num::{
        hi32,
        lo32, //
    },
    regs::{
        athub::{
            self,
            PasidMapping,
            ATC_VMID_PASID_MAPPING_UPDATE_STATUS, //
        },
        gc::{
            self,
            GrbmGfxCntl, //
        },
        hub::FlushType,
        osssys,
        Reg, //
    },
    timeouts::PASID_MAPPING_MS, //
};

/// An address space, as a VMID shall show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VmidContext {
    /// PASID, not 0.
    pub(crate) pasid: u16,
    /// Root of the page table with its flags.
    pub(crate) page_table_base: u64,
    /// SH_MEM_CONFIG.
    pub(crate) sh_mem_config: u32,
    /// SH_MEM_BASES.
    pub(crate) sh_mem_bases: u32,
    /// Trap handler, 0 if there is none.
    pub(crate) tba: u64,
    /// Memory of the trap handler.
    pub(crate) tma: u64,
}

/// Makes `vmid`, which nothing uses, show `context`. Sleeps.
///
/// # Errors
///
/// `ETIMEDOUT` if the device does not answer, `EIO` if it is lost.
pub(crate) fn bind(hw: &Hw, vmid: u32, context: &VmidContext) -> Result {
    map(hw, vmid, PasidMapping::of(context.pasid))?;
    {
        let _bank = hw.select(GrbmGfxCntl::new().with(GrbmGfxCntl::VMID, vmid));
        hw.write(gc::SH_MEM_CONFIG, context.sh_mem_config);
        hw.write(gc::SH_MEM_BASES, context.sh_mem_bases);
        for ([lo, hi], address) in [
            ([gc::SQ_SHADER_TBA_LO, gc::SQ_SHADER_TBA_HI], context.tba),
            ([gc::SQ_SHADER_TMA_LO, gc::SQ_SHADER_TMA_HI], context.tma),
        ] {
            hw.write(lo, lo32(address >> 8));
            hw.write(hi, hi32(address >> 8));
        }
    }
    for hub in hw.asic().hubs() {
        hw.write_pair(hub.page_table_base(vmid), context.page_table_base);
    }
    // What the former owner left in the caches.
    hub::flush_vmid(hw, vmid, FlushType::Heavy)
}

/// Takes `vmid`, which nothing uses any more, from its address space. Sleeps.
///
/// # Errors
///
/// As [`bind`].
pub(crate) fn unbind(hw: &Hw, vmid: u32) -> Result {
    hub::flush_vmid(hw, vmid, FlushType::Heavy)?;
    map(hw, vmid, PasidMapping::new())
}

/// Sets the PASID of `vmid` in the translation hubs and the interrupt handler.
fn map(hw: &Hw, vmid: u32, mapping: PasidMapping) -> Result {
    for (target, lut, bit) in [
        (
            athub::pasid_mapping(vmid),
            osssys::vmid_lut(vmid),
            1 << vmid,
        ),
        (
            athub::pasid_mapping_mm(vmid),
            osssys::vmid_lut_mm(vmid),
            0x1_0000 << vmid,
        ),
    ] {
        install(hw, target, mapping, bit)?;
        hw.write(lut, mapping.raw());
    }
    Ok(())
}

/// Writes one mapping and waits until it is in force. The status bit cannot be distinguished from one of an
/// earlier mapping unless it is cleared each time.
fn install(hw: &Hw, target: Reg, mapping: PasidMapping, bit: u32) -> Result {
    hw.write(target, mapping.raw());
    let status = ATC_VMID_PASID_MAPPING_UPDATE_STATUS;
    hw.poll(status, bit, bit, PASID_MAPPING_MS * 1000)?;
    hw.write(status, bit);
    Ok(())
}
