// SPDX-License-Identifier: GPL-2.0

//! Identity of a GPU: memory, PCI location, revision, and the facts that the device reports.

use kernel::{
    device::Bound,
    pci,
    prelude::*, //
};

use super::{
    access::{
        Hw,
        MIN_VRAM, //
    },
    hub,
    nbio,
    silicon, //
};

/// Subsystem ids of the device model.
pub(crate) const MODEL_SUBSYSTEM: (u16, u16) = (0x1af4, 0x6b66);

/// What identifies a GPU and its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuInfo {
    /// VRAM in bytes, as the device reports it.
    pub(crate) vram_size: u64,
    /// Bytes of it that the CPU sees through BAR0.
    pub(crate) vram_visible: u64,
    /// First and last GPU address of VRAM.
    pub(crate) fb: hub::FbLocation,
    /// PCI domain.
    pub(crate) domain: u32,
    /// Bus number << 8 | device and function.
    pub(crate) location_id: u32,
    /// PCI device id.
    pub(crate) device_id: u16,
    /// PCI revision.
    pub(crate) pci_revision: u8,
    /// Silicon revision.
    pub(crate) revision: u32,
    /// PCI subsystem vendor and device.
    pub(crate) subsystem: (u16, u16),
    /// What differs between devices of the ASIC.
    pub(crate) silicon: silicon::Silicon,
}

impl GpuInfo {
    /// Whether this is the device model and not a card.
    pub(crate) fn is_model(&self) -> bool {
        self.subsystem == MODEL_SUBSYSTEM
    }

    /// Asks the device.
    ///
    /// # Errors
    ///
    /// `EIO`: it does not answer, or reports what cannot be.
    pub(super) fn identify(pdev: &pci::Device<Bound>, hw: &Hw) -> Result<Self> {
        let vram_size = nbio::vram_size(hw)?;
        if vram_size < MIN_VRAM {
            dev_err!(
                pdev,
                "{:#x} bytes of VRAM are too few; need {:#x}\n",
                vram_size,
                MIN_VRAM
            );
            return Err(EIO);
        }
        let fb = hub::fb_location(hw, vram_size)?;
        Ok(Self {
            vram_size,
            vram_visible: hw.vram_visible(),
            fb,
            domain: crate::kapi::pci::domain(pdev),
            location_id: u32::from(pdev.dev_id()),
            device_id: pdev.device_id(),
            pci_revision: pdev.revision_id(),
            revision: nbio::revision(hw),
            subsystem: (pdev.subsystem_vendor_id(), pdev.subsystem_device_id()),
            silicon: silicon::Silicon::probe(hw)?,
        })
    }

    /// A number that a device in a slot keeps across reloads (FNV-1a over what identifies it).
    pub(super) fn id_seed(&self) -> u32 {
        [
            self.domain,
            self.location_id,
            u32::from(self.device_id),
            u32::from(self.subsystem.0),
            u32::from(self.subsystem.1),
            crate::hw::num::lo32(self.vram_size >> 20),
        ]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
    }
}
