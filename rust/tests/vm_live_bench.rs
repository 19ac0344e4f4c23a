// SPDX-License-Identifier: GPL-2.0

//! An address space and buffers on a GPU that was probed, without an open file. What was mapped is read
//! back from VRAM and decoded entry by entry.

use core::ops::Range;

use kernel::{
    device::DeviceContext,
    drm::{
        self,
        gem, //
    },
    faux,
    prelude::*,
    str::CString,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    },
};

use crate::{
    gpu::Gpu,
    hw::pte::{
        Aperture,
        Entry,
        Level,
        Meaning,
        PageAttrs, //
    },
    kapi::{
        drm_file::DrmDevice,
        task::{
            current_mm,
            MmKey, //
        },
        userpages::Watcher, //
    },
    vm::{
        Bo,
        BoArgs,
        BoFlags,
        BoKind,
        UserAccount,
        UserMemory,
        Vm, //
    },
};

/// How long another thread may take that is at work.
const PATIENCE: Delta = Delta::from_secs(60);

/// Waits until `done`.
pub(super) fn eventually(done: impl Fn() -> bool) -> Result {
    let start: Instant<Monotonic> = Instant::now();
    while !done() {
        if start.elapsed() > PATIENCE {
            return Err(ETIMEDOUT);
        }
        fsleep(Delta::from_micros(100));
    }
    Ok(())
}

/// A DRM driver whose devices nobody sees; buffers need one to have an offset on.
struct FakeDrm;

#[pin_data]
struct FakeObject {}

struct FakeFile;

impl gem::DriverObject for FakeObject {
    type Driver = FakeDrm;
    type Args = ();

    fn new(_dev: &drm::Device<FakeDrm>, _size: usize, (): ()) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {})
    }
}

impl drm::file::DriverFile for FakeFile {
    type Driver = FakeDrm;

    fn open(_dev: &drm::Device<FakeDrm>) -> Result<Pin<KBox<Self>>> {
        Err(ENODEV)
    }
}

#[vtable]
impl drm::Driver for FakeDrm {
    type Data = ();
    type RegistrationData<'a> = ();
    type File = FakeFile;
    type Object = gem::Object<FakeObject>;
    type ParentDevice<Ctx: DeviceContext> = faux::Device<Ctx>;

    const INFO: drm::DriverInfo = drm::DriverInfo {
        major: 0,
        minor: 0,
        patchlevel: 0,
        name: c"rkfd-kunit",
        desc: c"rkfd KUnit",
    };
    const IOCTLS: &'static [drm::ioctl::DrmIoctlDescriptor] = &[];
}

/// Does nothing when pages change.
struct Unwatched(MmKey);

impl Watcher for Unwatched {
    fn address_space(&self) -> MmKey {
        self.0
    }

    fn learns_of_end(&self) -> bool {
        true
    }

    fn before_change(&self) {}

    fn invalidated(&self, _range: Range<u64>) {}

    fn missing(&self) {}
}

/// A DRM device without hardware, which objects can be made for.
pub(super) struct FakeDevice {
    pub(super) device: DrmDevice,
    // Last: the parent of `device`.
    _parent: faux::Registration,
}

/// Numbers the devices, whose names must differ.
static NUMBER: Atomic<u32> = Atomic::new(0);

impl FakeDevice {
    pub(super) fn new() -> Result<Self> {
        // A file of an earlier one may go later than its test.
        let number = NUMBER.fetch_add(1, Relaxed);
        let name = CString::try_from_fmt(fmt!("rkfd-kunit-{number}"))?;
        let parent = faux::Registration::new(&name, None)?;
        let dev = drm::UnregisteredDevice::<FakeDrm>::new(parent.as_ref(), Ok::<_, Error>(()))?;
        Ok(Self {
            device: DrmDevice::of(&dev),
            _parent: parent,
        })
    }
}

/// An address space, and what it takes to make buffers without an open file.
pub(super) struct Bench {
    pub(super) gpu: Arc<Gpu>,
    pub(super) vm: Arc<Vm>,
    pub(super) device: DrmDevice,
    // Last: what `device` is a reference to.
    _fake: FakeDevice,
}

impl Bench {
    pub(super) fn new(gpu: &Arc<Gpu>) -> Result<Self> {
        let fake = FakeDevice::new()?;
        Ok(Self {
            gpu: gpu.clone(),
            vm: Vm::new(gpu, &fake.device)?,
            device: fake.device.clone(),
            _fake: fake,
        })
    }

    pub(super) fn make(&self, kind: BoKind, size: u64, flags: BoFlags) -> Result<Arc<Bo>> {
        let doorbells = match kind {
            BoKind::Doorbell => Some(self.gpu.doorbells().alloc_slice()?),
            _ => None,
        };
        let args = BoArgs {
            kind,
            size,
            flags,
            user: None,
            doorbells,
        };
        Bo::new(&self.gpu, &self.device, args)
    }

    /// A buffer of `size` bytes of the memory that the running test has at `address`, whose changes nobody watches.
    pub(super) fn make_user(&self, address: u64, size: u64) -> Result<Arc<Bo>> {
        let (_, key) = current_mm().ok_or(EINVAL)?;
        let args = BoArgs {
            kind: BoKind::Userptr,
            size,
            flags: BoFlags::default(),
            user: Some(UserMemory {
                address,
                watcher: Arc::new(Unwatched(key), GFP_KERNEL)?,
                account: UserAccount::new()?,
            }),
            doorbells: None,
        };
        Bo::new(&self.gpu, &self.device, args)
    }

    /// Walks the page table in VRAM: the address and attributes for `va`, if it is mapped.
    pub(super) fn walk(&self, va: u64) -> Result<Option<(u64, PageAttrs)>> {
        let flavour = self.gpu.asic().pte;
        let fb_offset = self.gpu.info().fb.offset;
        let base = self.vm.page_table_base();
        // V alone: the root lies in VRAM.
        assert_eq!(base & 0xfff, 1);
        let mut table = base & !0xfff;
        for level in Level::ALL {
            let mut word = [0; 8];
            // CAST: An index below 512.
            let at = table - fb_offset + 8 * level.index(va) as u64;
            self.gpu.enter()?.vram_read(at, &mut word)?;
            match flavour.decode(level, Entry::from_raw(u64::from_le_bytes(word))) {
                Meaning::Table { pa, aperture } => {
                    assert_eq!(aperture, Aperture::Vram);
                    table = pa;
                }
                Meaning::Page { pa, attrs } => {
                    return Ok(Some((pa + (va & (level.span() - 1)), attrs)));
                }
                Meaning::Invalid => return Ok(None),
                _ => return Err(EPROTO),
            }
        }
        Err(EPROTO)
    }
}
