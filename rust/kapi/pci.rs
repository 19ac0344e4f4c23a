// SPDX-License-Identifier: GPL-2.0

//! What the PCI abstraction does not do: undo.
//!
//! C header: [`include/linux/pci.h`](srctree/include/linux/pci.h)

use kernel::{
    bindings,
    device::{
        Bound,
        Core,
        Device,
        DeviceContext, //
    },
    error::to_result,
    pci,
    prelude::*,
    sync::aref::ARef, //
};

/// The C device behind `pdev`.
pub(crate) fn as_raw<Ctx: DeviceContext>(pdev: &pci::Device<Ctx>) -> *mut bindings::pci_dev {
    // `pci::Device` is `repr(transparent)` over `Opaque<struct pci_dev>`.
    core::ptr::from_ref(pdev).cast_mut().cast()
}

/// An enabled PCI function that masters the bus until dropped.
pub(crate) struct Enabled {
    pdev: ARef<pci::Device>,
}

impl Enabled {
    /// Enables memory decoding and bus mastering.
    ///
    /// # Errors
    ///
    /// What the PCI core reports.
    pub(crate) fn new(pdev: &pci::Device<Core<'_>>) -> Result<Self> {
        pdev.enable_device_mem()?;
        pdev.set_master();
        Ok(Self {
            pdev: (&**pdev).into(),
        })
    }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        let raw = as_raw(&self.pdev);
        // SAFETY: `raw` is a valid device that `new` enabled once.
        unsafe {
            bindings::pci_clear_master(raw);
            bindings::pci_disable_device(raw);
        }
    }
}

/// PCI domain (segment) of the function.
pub(crate) fn domain(pdev: &pci::Device) -> u32 {
    // SAFETY: `pdev` is a valid device, whose bus outlives it.
    let domain = unsafe { crate::bindings::rkfd_pci_domain_nr(as_raw(pdev)) };
    u32::try_from(domain).unwrap_or(0)
}

/// Saved configuration of a function whose bus mastering is off; dropping restores it.
pub(crate) struct SavedState<'a> {
    pdev: &'a pci::Device<Bound>,
}

impl<'a> SavedState<'a> {
    /// Turns bus mastering off and saves the configuration.
    ///
    /// # Errors
    ///
    /// What the PCI core reports.
    pub(crate) fn new(pdev: &'a pci::Device<Bound>) -> Result<Self> {
        let raw = as_raw(pdev);
        // SAFETY: `raw` is a bound device.
        unsafe { bindings::pci_clear_master(raw) };
        // SAFETY: As above.
        to_result(unsafe { bindings::pci_save_state(raw) })?;
        Ok(Self { pdev })
    }
}

impl Drop for SavedState<'_> {
    fn drop(&mut self) {
        // SAFETY: The device is bound and its state was saved by `new`.
        unsafe { bindings::pci_restore_state(as_raw(self.pdev)) };
    }
}

/// Unbinds the driver of the device, if it has one, and looks for a driver anew. Sleeps.
///
/// Must not be called by the driver's own callbacks, nor by anything that they wait for.
///
/// # Errors
///
/// What the driver core reports; that the new probe failed is not among it.
pub(crate) fn reprobe(pdev: &pci::Device) -> Result {
    let dev: &Device = pdev.as_ref();
    // `Device` is `repr(transparent)` over `Opaque<struct device>`.
    let raw = core::ptr::from_ref(dev).cast_mut().cast();
    // SAFETY: `raw` is a valid device, which `pdev` keeps.
    to_result(unsafe { bindings::device_reprobe(raw) })
}
