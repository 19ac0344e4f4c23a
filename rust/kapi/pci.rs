// SPDX-License-Identifier: GPL-2.0

//! What the PCI abstraction does not do: undo, and power management.
//!
//! C header: [`include/linux/pci.h`](srctree/include/linux/pci.h)

use core::marker::PhantomData;

use kernel::{
    bindings,
    device::{
        Bound,
        Core,
        Device,
        DeviceContext, //
    },
    driver::{
        DriverLayout,
        RegistrationOps, //
    },
    error::{
        from_result,
        to_result, //
    },
    pci,
    prelude::*,
    sync::aref::ARef,
    types::Opaque, //
};

use super::trace;

/// The C device behind `pdev`.
pub(crate) fn as_raw<Ctx: DeviceContext>(pdev: &pci::Device<Ctx>) -> *mut bindings::pci_dev {
    // `pci::Device` is `repr(transparent)` over `Opaque<struct pci_dev>`.
    core::ptr::from_ref(pdev).cast_mut().cast()
}

/// `pdev`, known to be bound.
///
/// # Safety
///
/// The device stays bound to a driver as long as the result is used.
pub(crate) unsafe fn assume_bound(pdev: &pci::Device) -> &pci::Device<Bound> {
    // SAFETY: The context parameter does not change the representation; what it stands for is the function's
    // contract.
    unsafe { &*core::ptr::from_ref(pdev).cast() }
}

/// An enabled PCI function. It may master the bus, which ends when this is dropped at the latest.
pub(crate) struct Enabled {
    pdev: ARef<pci::Device>,
}

impl Enabled {
    /// Enables memory decoding. Bus mastering is off.
    ///
    /// # Errors
    ///
    /// What the PCI core reports.
    pub(crate) fn new(pdev: &pci::Device<Core<'_>>) -> Result<Self> {
        // The previous driver may have left it on.
        clear_master(pdev);
        pdev.enable_device_mem()?;
        Ok(Self {
            pdev: (&**pdev).into(),
        })
    }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        clear_master(&self.pdev);
        // SAFETY: A valid device that `new` enabled once.
        unsafe { bindings::pci_disable_device(as_raw(&self.pdev)) };
    }
}

/// Turns bus mastering of a function off. What the function posted before is in memory when this returns, for the
/// completion of a configuration write does not pass posted writes. May be called anywhere.
pub(crate) fn clear_master<Ctx: DeviceContext>(pdev: &pci::Device<Ctx>) {
    let raw = as_raw(pdev);
    // SAFETY: A valid device; configuration space has a lock of its own.
    unsafe { bindings::pci_clear_master(raw) };
    if trace::bus_master_off_enabled() {
        // SAFETY: A valid device, whose number does not change.
        let (number, devfn) = unsafe { (bindings::pci_dev_id(raw), (*raw).devfn) };
        trace::bus_master_off(domain(pdev), u32::from(number) >> 8, devfn);
    }
}

/// PCI domain (segment) of the function.
pub(crate) fn domain<Ctx: DeviceContext>(pdev: &pci::Device<Ctx>) -> u32 {
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
        clear_master(pdev);
        // SAFETY: `pdev` is a bound device, and stays so while it is borrowed.
        to_result(unsafe { bindings::pci_save_state(as_raw(pdev)) })?;
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

/// What a driver does when the system sleeps. Called for bound devices only, in a context that may
/// sleep, while user space is frozen.
pub(crate) trait PowerManagement: pci::Driver {
    /// The system is about to sleep: gives back what needs memory for that, which there is now, and later may not be.
    ///
    /// # Errors
    ///
    /// Any error stops the transition of the whole system; [`Self::complete`] is not called then.
    fn prepare(pdev: &pci::Device<Bound>) -> Result;

    /// The system is awake, or stays so. Whatever else was called since [`Self::prepare`] has succeeded.
    fn complete(pdev: &pci::Device<Bound>);

    /// Stops the device; its memory must be kept as far as the device can. It is powered down, or
    /// an image of the system is made, when this returns.
    ///
    /// # Errors
    ///
    /// Any error stops the transition of the whole system.
    fn suspend(pdev: &pci::Device<Bound>) -> Result;

    /// Brings the device back, also if the system did not get as far as powering it down.
    ///
    /// # Errors
    ///
    /// Are logged by the caller; the device is not used any more then.
    fn resume(pdev: &pci::Device<Bound>) -> Result;
}

/// [`pci::Adapter`] for drivers that take part in power management.
pub(crate) struct Adapter<T: PowerManagement>(PhantomData<T>);

// SAFETY: As for `pci::Adapter<T>`, to which all of it is delegated.
unsafe impl<T: PowerManagement> DriverLayout for Adapter<T> {
    type DriverType = bindings::pci_driver;
    type DriverData<'bound> = T::Data<'bound>;
    const DEVICE_DRIVER_OFFSET: usize = <pci::Adapter<T> as DriverLayout>::DEVICE_DRIVER_OFFSET;
}

// SAFETY: As for `pci::Adapter<T>`, to which both calls go.
unsafe impl<T: PowerManagement + 'static> RegistrationOps for Adapter<T> {
    unsafe fn register(
        pdrv: &Opaque<Self::DriverType>,
        name: &'static CStr,
        module: &'static ThisModule,
    ) -> Result {
        // SAFETY: The driver is not registered yet, so its fields may be set; the operations are
        // static.
        unsafe { (*pdrv.get()).driver.pm = &Self::OPS };
        // SAFETY: By the function's contract.
        unsafe { <pci::Adapter<T> as RegistrationOps>::register(pdrv, name, module) }
    }

    unsafe fn unregister(pdrv: &Opaque<Self::DriverType>) {
        // SAFETY: By the function's contract.
        unsafe { <pci::Adapter<T> as RegistrationOps>::unregister(pdrv) }
    }
}

impl<T: PowerManagement + 'static> Adapter<T> {
    /// `DEFINE_SIMPLE_DEV_PM_OPS`, and what comes before and after.
    const OPS: bindings::dev_pm_ops = bindings::dev_pm_ops {
        prepare: Some(Self::prepare),
        complete: Some(Self::complete),
        suspend: Some(Self::suspend),
        resume: Some(Self::resume),
        freeze: Some(Self::suspend),
        thaw: Some(Self::resume),
        poweroff: Some(Self::suspend),
        restore: Some(Self::resume),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// `dev` is that of a PCI device, which stays bound during the call.
    unsafe fn pdev<'a>(dev: *mut bindings::device) -> &'a pci::Device<Bound> {
        // SAFETY: By the function's contract `dev` lies in a `pci_dev`, and the device is bound;
        // `pci::Device` is `repr(transparent)` over `Opaque<struct pci_dev>`.
        unsafe { &*kernel::container_of!(dev, bindings::pci_dev, dev).cast() }
    }

    /// # Safety
    ///
    /// Called by the PM core for a bound device of the driver.
    unsafe extern "C" fn prepare(dev: *mut bindings::device) -> c_int {
        // SAFETY: The PM core holds the device's lock, so that it stays bound.
        let pdev = unsafe { Self::pdev(dev) };
        from_result(|| T::prepare(pdev).map(|()| 0))
    }

    /// # Safety
    ///
    /// Called by the PM core for a bound device of the driver.
    unsafe extern "C" fn complete(dev: *mut bindings::device) {
        // SAFETY: The PM core holds the device's lock, so that it stays bound.
        T::complete(unsafe { Self::pdev(dev) });
    }

    /// # Safety
    ///
    /// Called by the PM core for a bound device of the driver.
    unsafe extern "C" fn suspend(dev: *mut bindings::device) -> c_int {
        // SAFETY: The PM core holds the device's lock, so that it stays bound.
        let pdev = unsafe { Self::pdev(dev) };
        from_result(|| T::suspend(pdev).map(|()| 0))
    }

    /// # Safety
    ///
    /// Called by the PM core for a bound device of the driver.
    unsafe extern "C" fn resume(dev: *mut bindings::device) -> c_int {
        // SAFETY: The PM core holds the device's lock, so that it stays bound.
        let pdev = unsafe { Self::pdev(dev) };
        from_result(|| T::resume(pdev).map(|()| 0))
    }
}
