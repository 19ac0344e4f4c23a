// SPDX-License-Identifier: GPL-2.0

//! The top of the crate: composes the layers, per module and per PCI device.

use kernel::{
    device::Core,
    driver::Registration,
    pci,
    prelude::*,
    str::BStr,
    sync::Arc,
    InPlaceModule,
    ModuleMetadata, //
};

pub(crate) mod force_probe;
pub(crate) mod power;
mod recovery;

use self::{
    force_probe::Decision,
    recovery::Recovery, //
};
use crate::{
    drm,
    drm::Windows,
    event::tenants::Tenants,
    gpu::{
        debug::DebugFiles,
        registry,
        registry::Published,
        reserved::Reserved,
        Config,
        Gpu,
        Registry,
        MODEL_SUBSYSTEM, //
    },
    hw::asic::{
        AsicDesc,
        GFX906,
        GFX90A, //
    },
    kapi::{
        parameters,
        pci::{
            Adapter,
            Enabled, //
        }, //
    },
    kfd::facade,
    sched::{
        self,
        Scheduler, //
    }, //
};

/// The loaded module.
#[pin_data]
pub(crate) struct RkfdModule {
    // Dropped in this order: the GPUs go before the interface that serves them.
    #[pin]
    _pci: Registration<Adapter<PciDriver>>,
    _kfd: crate::kfd::Registration,
    _registry: Published,
}

impl InPlaceModule for RkfdModule {
    fn init(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        if let Some(entry) = force_probe::malformed(parameters::force_probe()) {
            pr_warn!(
                "force_probe: {:?} is no PCI device id in hexadecimal\n",
                BStr::from_bytes(entry)
            );
        }
        let reserved = Reserved::new(parameters::reserved_vram());
        try_pin_init!(Self {
            _: {
                // A wrong guess would use memory that belongs to another owner.
                if let Some(entry) = reserved.malformed() {
                    pr_err!(
                        "reserved_vram: {:?} is no SIZE@START, nor is the list none\n",
                        BStr::from_bytes(entry)
                    );
                    Err(EINVAL)?;
                }
            },
            // A bad parameter shall fail the load, also where there is no GPU.
            _: {
                sched::Config::from_parameters()?;
            },
            // SAFETY: The module is being loaded and nothing else of it runs yet.
            _registry: unsafe { Registry::publish() }?,
            // SAFETY: The one call, at load; all that calls `facade` (`open` below, the PCI driver) comes after it.
            _kfd: unsafe { crate::kfd::Registration::new(drm::take_file) }?,
            _pci <- Registration::new(<Self as ModuleMetadata>::NAME, module),
            // Last: a file that is open does not keep a module that fails to load.
            _: {
                facade()?.open()?;
            },
        })
    }
}

/// The id of one of our devices.
const fn id(device: u32) -> pci::DeviceId {
    pci::DeviceId::from_id(pci::Vendor::ATI, device)
}

kernel::pci_device_table!(
    PCI_TABLE,
    <PciDriver as pci::Driver>::IdInfo,
    [
        (id(0x66a0), &GFX906),
        (id(0x66a1), &GFX906),
        (id(0x66a2), &GFX906),
        (id(0x66a3), &GFX906),
        (id(0x66a4), &GFX906),
        (id(0x66a7), &GFX906),
        (id(0x66af), &GFX906),
        (id(0x7408), &GFX90A),
        (id(0x740c), &GFX90A),
        (id(0x740f), &GFX90A),
        (id(0x7410), &GFX90A)
    ]
);

/// The PCI side: one [`BoundGpu`] per device.
pub(crate) struct PciDriver;

/// What lives from probe to unbind.
pub(crate) struct BoundGpu<'bound> {
    /// The render node; taken away first.
    render: Option<drm::Registration<'bound>>,
    // First: files must not be read while the GPU goes down.
    debug: Option<Pin<KBox<DebugFiles>>>,
    sched: Arc<Scheduler>,
    gpu: Arc<Gpu>,
    registry: Arc<Registry>,
    // Last: registers answer until then.
    _enabled: Enabled,
}

/// Whether the module parameters allow this device to be bound.
///
/// # Errors
///
/// `ENODEV` for a card that `force_probe` does not name or of which `reserved_vram` says nothing, and for a device
/// that is forbidden. The reason is logged.
fn may_bind(pdev: &pci::Device) -> Result {
    let subsystem = (pdev.subsystem_vendor_id(), pdev.subsystem_device_id());
    let device = pdev.device_id();
    let is_model = subsystem == MODEL_SUBSYSTEM;
    match force_probe::decide(parameters::force_probe(), device) {
        Decision::Forbidden => {
            dev_info!(pdev, "not bound: force_probe forbids {:04x}\n", device);
            Err(ENODEV)
        }
        _ if is_model => Ok(()),
        Decision::Forced if !Reserved::new(parameters::reserved_vram()).is_given() => {
            dev_err!(
                pdev,
                "not bound: where the VRAM of the VBIOS, the trusted memory region (TMR) of the PSP and retired pages are cannot be read from a card; reserved_vram=SIZE@START,... tells it, reserved_vram=none says that there is none\n"
            );
            Err(ENODEV)
        }
        Decision::Forced => {
            dev_notice!(
                pdev,
                "force_probe: driving a card (subsystem {:04x}:{:04x}), which this driver is not meant for yet\n",
                subsystem.0,
                subsystem.1
            );
            Ok(())
        }
        Decision::Unnamed => {
            dev_info!(
                pdev,
                "not bound: {:04x}:{:04x} (subsystem {:04x}:{:04x}) is a card, not the GPU model; force_probe={:04x} binds it all the same\n",
                pdev.vendor_id().as_raw(),
                device,
                subsystem.0,
                subsystem.1,
                device
            );
            Err(ENODEV)
        }
    }
}

impl<'bound> BoundGpu<'bound> {
    fn new(pdev: &'bound pci::Device<Core<'_>>, asic: &'static AsicDesc) -> Result<Self> {
        may_bind(pdev)?;
        let registry = registry()?;
        let enabled = Enabled::new(pdev)?;
        let config = Config {
            xnack: false,
            reserved: Reserved::new(parameters::reserved_vram()),
        };
        let gpu = Gpu::new(pdev, asic, &registry, config)?;
        let sched = Scheduler::new(&gpu).inspect_err(|error| {
            dev_err!(pdev, "no scheduler: {:?}\n", error);
            gpu.shutdown();
        })?;
        let mut bound = Self {
            render: None,
            debug: None,
            sched,
            gpu,
            registry,
            _enabled: enabled,
        };
        let windows = Windows::new()?;
        let recovery = Recovery::new(&bound.gpu, &bound.sched, &windows)?;
        bound.sched.set_reset_hook(Some(recovery));
        let tenants = Tenants::new()?;
        let render = drm::Registration::new(pdev, &bound.gpu, &bound.sched, &tenants)?;
        windows.set(&render);
        bound.render = Some(render);
        bound.debug = DebugFiles::new(&bound.gpu)?;
        bound.registry.add(&bound.gpu)?;
        facade()?.add(&bound.gpu, &bound.sched, &tenants)?;
        bound.announce(pdev);
        Ok(bound)
    }

    fn announce(&self, pdev: &pci::Device) {
        let (gpu, asic, info) = (&self.gpu, self.gpu.asic(), self.gpu.info());
        dev_info!(
            pdev,
            "{}{} rev {}, {} MiB VRAM ({} MiB visible) at {:#x}, gpu_id {}, VMIDs {}-15\n",
            asic.name,
            if info.is_model() { " model" } else { "" },
            info.revision,
            info.vram_size >> 20,
            info.vram_visible >> 20,
            info.fb.base,
            gpu.id(),
            asic.first_vmid
        );
    }
}

impl Drop for BoundGpu<'_> {
    fn drop(&mut self) {
        // No new address spaces, and no user mappings of VRAM.
        drop(self.render.take());
        if let Ok(facade) = facade() {
            facade.remove(&self.gpu);
        }
        drop(self.debug.take());
        self.registry.remove(&self.gpu);
        self.sched.set_reset_hook(None);
        self.sched.shutdown();
        // No queue writes them any more, and the VRAM is within reach.
        self.gpu.bring_pages_back_for_good();
        self.gpu.shutdown();
        // The rest of a scheduler that was hung: from here on the GPU reaches no memory.
        self.sched.release();
    }
}

impl pci::Driver for PciDriver {
    type IdInfo = &'static AsicDesc;
    type Data<'bound> = BoundGpu<'bound>;

    const ID_TABLE: pci::IdTable<Self::IdInfo> = &PCI_TABLE;

    fn probe<'bound>(
        pdev: &'bound pci::Device<Core<'_>>,
        info: Option<&'bound Self::IdInfo>,
    ) -> impl PinInit<Self::Data<'bound>, Error> + 'bound {
        BoundGpu::new(pdev, info.ok_or(ENODEV)?)
    }
}
