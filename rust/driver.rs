// SPDX-License-Identifier: GPL-2.0

//! The top of the crate: composes the layers, per module and per PCI device.

use kernel::{
    device::Core,
    driver::Registration,
    pci,
    prelude::*,
    InPlaceModule,
    ModuleMetadata, //
};

/// The loaded module.
#[pin_data]
pub(crate) struct RkfdModule {
    #[pin]
    _pci: Registration<pci::Adapter<PciDriver>>,
}

impl InPlaceModule for RkfdModule {
    fn init(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            _pci <- Registration::new(<Self as ModuleMetadata>::NAME, module),
        })
    }
}

kernel::pci_device_table!(
    PCI_TABLE,
    <PciDriver as pci::Driver>::IdInfo,
    [(pci::DeviceId::from_id(pci::Vendor::ATI, 0x740f), ())]
);

/// The PCI side: one [`BoundGpu`] per device.
pub(crate) struct PciDriver;

/// What lives from probe to unbind.
pub(crate) struct BoundGpu {
    _enabled: crate::kapi::pci::Enabled,
}

impl pci::Driver for PciDriver {
    type IdInfo = ();
    type Data<'bound> = BoundGpu;

    const ID_TABLE: pci::IdTable<Self::IdInfo> = &PCI_TABLE;

    fn probe<'bound>(
        pdev: &'bound pci::Device<Core<'_>>,
        _info: Option<&'bound Self::IdInfo>,
    ) -> impl PinInit<Self::Data<'bound>, Error> + 'bound {
        let probe = *crate::module_parameters::force_probe.value_ref();
        dev_info!(pdev, "force_probe {:#x}\n", probe);
        Ok(BoundGpu {
            _enabled: crate::kapi::pci::Enabled::new(pdev)?,
        })
    }
}
