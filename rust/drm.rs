// SPDX-License-Identifier: GPL-2.0

//! The render node.
//!
//! Opening it makes an address space ([`Vm`](crate::vm::Vm)); opening it again makes another.
//! User mappings of buffers go through it. It answers the few queries of `amdgpu` that ROCm's
//! user libraries make before they use `/dev/kfd`, and has an interface of its own ([`native`]) that needs no
//! `/dev/kfd`. It shows nothing.

use kernel::{
    device::DeviceContext,
    drm::{
        self,
        gem,
        ioctl::DrmIoctlDescriptor, //
    },
    pci,
    prelude::*,
    sync::Arc, //
};

use crate::{
    event::tenants::Tenants,
    gpu::Gpu,
    kapi::{
        dma_buf::DmaBuf,
        drm_file::{
            DrmDevice,
            OnlyDriver, //
        },
        drm_ioctl::{
            self,
            Ioctl,
            Reply, //
        },
        drm_prime::{
            Importer,
            PrimeDriver, //
        },
        gem::{
            Object,
            ObjectDriver, //
        },
    },
    sched::Scheduler,
    vm::{
        bo::Memory,
        Bo, //
    },
};

mod client;
mod debug;
mod device;
pub(crate) mod info;
mod native;
pub(crate) mod regs;
mod windows;

use self::debug::{
    Files,
    VmList, //
};

pub(crate) use self::{
    client::{
        take_file,
        Client, //
    },
    device::{
        DrmData,
        RkfdDrm, //
    },
    windows::Windows, //
};

/// Buffers are GEM objects of our own ([`kapi::gem`](crate::kapi::gem)); the driver trait wants a
/// type nevertheless, of which no object is ever made.
#[pin_data]
pub(crate) struct NoObject {}

impl gem::DriverObject for NoObject {
    type Driver = RkfdDrm;
    type Args = ();

    fn new(_dev: &drm::Device<RkfdDrm>, _size: usize, (): ()) -> impl PinInit<Self, Error> {
        Err::<Self, Error>(EOPNOTSUPP)
    }
}

// SAFETY: `drm::Registration::new` is called once in this crate, for `RkfdDrm`.
unsafe impl OnlyDriver for RkfdDrm {}

// SAFETY: No `NoObject` is ever made, imports give handles of objects with `Memory` alone, and address spaces' common
// objects have no handle.
unsafe impl ObjectDriver for RkfdDrm {
    type Held = Memory;
}

impl Importer for RkfdDrm {
    fn adopt(dev: &drm::Device<Self>, dma_buf: &DmaBuf) -> Result<Object<Memory>> {
        Bo::adopt(dev.gpu(), &DrmDevice::of(dev), dma_buf)
    }
}

/// `DRM_IOCTL_AMDGPU_INFO`.
struct Info;

// SAFETY: Named in the table of `RkfdDrm` only.
unsafe impl Ioctl for Info {
    type Driver = RkfdDrm;
    type Arg = [u32; 8];
    const NR: u32 = info::NR;
    const NAME: &'static CStr = c"AMDGPU_INFO";

    fn run(
        dev: &drm::Device<RkfdDrm, drm::Registered>,
        arg: [u32; 8],
        _file: &drm::File<Client>,
    ) -> Result<Reply> {
        info::query(&dev.gpu, arg)
    }
}

/// Driver commands by number. The native commands follow those of `amdgpu`.
const IOCTLS: [DrmIoctlDescriptor; native::END] = {
    let mut table = [const { drm_ioctl::HOLE }; native::END];
    table[info::NR as usize] = drm_ioctl::render::<Info>();
    native::add_to(table)
};

#[vtable]
impl drm::Driver for RkfdDrm {
    type Data = DrmData;
    type RegistrationData<'a> = ();
    type Object = gem::Object<NoObject>;
    type File = Client;
    type ParentDevice<Ctx: DeviceContext> = pci::Device<Ctx>;

    // Libraries want major 3 and take the minor as a promise of what amdgpu of that age answers.
    const INFO: drm::DriverInfo = drm::DriverInfo {
        major: 3,
        minor: 64,
        patchlevel: 0,
        name: c"rkfd",
        desc: c"HSA compute driver for AMD gfx9 GPUs",
    };
    const IOCTLS: &'static [DrmIoctlDescriptor] = &IOCTLS;
    const FEAT_RENDER: bool = true;
}

/// The driver's table with import of shared buffers.
static PRIME_DRIVER: PrimeDriver<RkfdDrm> = PrimeDriver::new();

/// The render node of one GPU, from probe to unbind. Dropping it refuses new users, waits for
/// those inside an ioctl or a fault, and removes all user mappings of buffers.
pub(crate) struct Registration<'bound> {
    _files: Option<Pin<KBox<Files>>>,
    registration: drm::Registration<'bound, RkfdDrm>,
}

impl<'bound> Registration<'bound> {
    /// Makes the render node of `gpu`, the driver's object of `pdev`, whose queues `sched` runs and whose address spaces
    /// belong to `tenants`.
    ///
    /// # Errors
    ///
    /// What the DRM core reports, `ENOMEM`.
    pub(crate) fn new(
        pdev: &'bound pci::Device<kernel::device::Bound>,
        gpu: &Arc<Gpu>,
        sched: &Arc<Scheduler>,
        tenants: &Arc<Tenants>,
    ) -> Result<Self> {
        let vms = VmList::new()?;
        // A render node without its file is better than none.
        let files = gpu.debugfs().and_then(|dir| Files::new(&dir, &vms).ok());
        let data = DrmData {
            gpu: gpu.clone(),
            sched: sched.clone(),
            tenants: tenants.clone(),
            vms,
        };
        let dev = drm::UnregisteredDevice::<RkfdDrm>::new(pdev, Ok::<_, Error>(data))?;
        PRIME_DRIVER.install(&dev)?;
        // SAFETY: The caller keeps the result in the data of the PCI driver, which is dropped at
        // unbind and never forgotten.
        let registration =
            unsafe { drm::Registration::new(pdev.as_ref(), dev, Ok::<_, Error>(()), 0)? };
        match crate::kapi::drm_file::render_minor(registration.device()) {
            Some(minor) => gpu.set_render_minor(minor),
            None => dev_warn!(pdev, "no render node\n"),
        }
        Ok(Self {
            _files: files,
            registration,
        })
    }

    /// The device, to reach its mappings.
    fn device(&self) -> DrmDevice {
        DrmDevice::of(self.registration.device())
    }
}
