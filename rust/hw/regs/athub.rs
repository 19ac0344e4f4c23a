// SPDX-License-Identifier: GPL-2.0

//! Address translation hub: which PASID a VMID stands for.
//!
//! Source: `athub_1_0_offset.h`, `gmc_v9_0.c`, `amdgpu_amdkfd_gfx_v9.c`. The scheduler writes these
//! registers at MAP_PROCESS; the driver reads them to find the VMIDs of a PASID.

use super::super::bits::fields;
use super::Reg;

/// Dword base of segment 0.
pub(crate) const SEG0: u32 = 0xC20;

/// Bit n is set when the mapping of VMID n (16 + n for MMHUB) is in force; write back to clear.
pub(crate) const ATC_VMID_PASID_MAPPING_UPDATE_STATUS: Reg = Reg::new(SEG0, 0xB);

/// PASID mapping of `vmid` for GFXHUB clients.
pub(crate) const fn pasid_mapping(vmid: u32) -> Reg {
    Reg::new(SEG0, 0xC + (vmid & 0xf))
}

/// PASID mapping of `vmid` for MMHUB clients.
pub(crate) const fn pasid_mapping_mm(vmid: u32) -> Reg {
    Reg::new(SEG0, 0x3D + (vmid & 0xf))
}

fields! {
    /// ATC_VMIDn_PASID_MAPPING.
    pub(crate) struct PasidMapping {
        /// The PASID.
        PASID [15:0];
        /// Exempt from invalidation requests.
        NO_INVALIDATION [30:30];
        /// In use.
        VALID [31:31];
    }
}

impl PasidMapping {
    /// The mapping to `pasid`.
    pub(crate) const fn of(pasid: u16) -> Self {
        // CAST: Lossless.
        Self::new()
            .with(Self::PASID, pasid as u32)
            .with(Self::VALID, 1)
    }

    /// Whether the VMID stands for `pasid`.
    pub(crate) const fn maps(self, pasid: u16) -> bool {
        // CAST: Lossless.
        self.is_set(Self::VALID) && self.get(Self::PASID) == pasid as u32
    }
}
