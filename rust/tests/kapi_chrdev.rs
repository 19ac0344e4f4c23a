// SPDX-License-Identifier: GPL-2.0

//! Character devices that nobody opens.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

use crate::kapi::chrdev::{
    CharDevice,
    FileOps,
    MmapRequest, //
};

/// What the files of a device would share; counts its drops.
struct Shared(Arc<Atomic<i32>>);

impl Drop for Shared {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

struct NoFile;

impl FileOps for NoFile {
    type Context = Shared;

    fn open(_context: &Arc<Shared>) -> Result<KBox<Self>> {
        Err(ENODEV)
    }

    fn ioctl(&self, _command: u32, _argument: usize) -> Result<isize> {
        Err(ENOTTY)
    }

    fn mmap(&self, _request: MmapRequest<'_>) -> Result {
        Err(ENODEV)
    }
}

type Device = Pin<KBox<CharDevice<NoFile>>>;

fn device(dropped: &Arc<Atomic<i32>>) -> Result<Device> {
    let shared = Arc::new(Shared(dropped.clone()), GFP_KERNEL)?;
    CharDevice::new(c"rkfd-kunit", shared)
}

/// Major and minor number.
fn numbers(device: &Device) -> (u32, u32) {
    (device.devt() >> 20, device.devt() & 0xf_ffff)
}

#[kunit_tests(rkfd_kapi_chrdev)]
mod suite {
    use super::*;

    #[test]
    fn each_device_has_a_major_number_until_it_is_dropped() -> Result {
        let dropped = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let (one, two) = (device(&dropped)?, device(&dropped)?);
        assert_eq!((numbers(&one).1, numbers(&two).1), (0, 0));
        assert!(numbers(&one).0 > 0);
        assert_ne!(numbers(&one).0, numbers(&two).0);
        drop((one, two));
        // There are some hundred numbers of the kind that the kernel chooses from.
        for _ in 0..1000 {
            let one = device(&dropped)?;
            one.add()?;
        }
        assert_eq!(dropped.load(Relaxed), 1002);
        Ok(())
    }

    #[test]
    fn device_is_added_once() -> Result {
        let dropped = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let one = device(&dropped)?;
        // Before and after it is: there is nothing to unmap.
        one.unmap(0, 0);
        one.add()?;
        assert_eq!(one.add(), Err(EBUSY));
        one.unmap(u64::MAX << 12, 0x1000);
        one.unmap(0, 0);
        assert_eq!(dropped.load(Relaxed), 0);
        drop(one);
        assert_eq!(dropped.load(Relaxed), 1);
        Ok(())
    }
}
