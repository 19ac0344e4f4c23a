// SPDX-License-Identifier: GPL-2.0

//! Objects in the order of their use, on a device without hardware.

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

use super::vm_live_bench::FakeDevice;
use crate::kapi::{
    drm_file::DrmDevice,
    gem::Object,
    lru::ObjectLru,
    mappable::{
        ExportOps,
        Mappable,
        Region,
        Transfer,
        UserCaching, //
    },
    pages::Pages, //
};

/// Content that says which object it is of, and counts how many live.
struct Numbered {
    number: u32,
    live: Arc<Atomic<i32>>,
}

impl Drop for Numbered {
    fn drop(&mut self) {
        self.live.add(-1, Relaxed);
    }
}

impl Mappable for Numbered {
    fn may_mmap(&self) -> Result<UserCaching> {
        Err(EPERM)
    }

    fn pfn(&self, _index: usize) -> Result<usize> {
        Err(EPERM)
    }

    fn transfer(&self, _offset: usize, _transfer: Transfer<'_>) -> Result {
        Err(EPERM)
    }

    fn export_ops() -> &'static ExportOps<Self> {
        static OPS: ExportOps<Numbered> = ExportOps::new();
        &OPS
    }

    fn may_export(&self) -> Result {
        Err(EPERM)
    }

    fn pages(&self) -> Option<&Arc<Pages>> {
        None
    }

    fn region(&self) -> Option<Region> {
        None
    }
}

type List = Arc<ObjectLru<Numbered>>;

fn object(
    dev: &DrmDevice,
    list: &List,
    number: u32,
    live: &Arc<Atomic<i32>>,
) -> Result<Object<Numbered>> {
    live.add(1, Relaxed);
    let data = Numbered {
        number,
        live: live.clone(),
    };
    Object::with_lru(dev, PAGE_SIZE, data, Some(list.clone()))
}

/// Numbers of the objects in the list.
fn order(list: &List, dev: &DrmDevice) -> Result<KVec<u32>> {
    let mut numbers = KVec::new();
    for object in list.snapshot(dev)? {
        numbers.push(object.number, GFP_KERNEL)?;
    }
    Ok(numbers)
}

#[kunit_tests(rkfd_kapi_lru)]
mod suite {
    use super::*;

    #[test]
    fn whoever_was_used_longest_ago_comes_first() -> Result {
        let fake = FakeDevice::new()?;
        let (dev, live) = (&fake.device, Arc::new(Atomic::new(0), GFP_KERNEL)?);
        let list = ObjectLru::new(dev)?;
        let one = object(dev, &list, 1, &live)?;
        let two = object(dev, &list, 2, &live)?;
        let three = object(dev, &list, 3, &live)?;
        // Nobody is in it before the first use.
        assert!(order(&list, dev)?.is_empty());
        for object in [&two, &one, &three] {
            object.touch();
        }
        assert_eq!(&*order(&list, dev)?, &[2, 1, 3]);
        two.touch();
        assert_eq!(&*order(&list, dev)?, &[1, 3, 2]);
        three.unlist();
        assert_eq!(&*order(&list, dev)?, &[1, 2]);
        three.touch();
        assert_eq!(&*order(&list, dev)?, &[1, 2, 3]);
        Ok(())
    }

    #[test]
    fn objects_leave_the_list_when_they_end() -> Result {
        let fake = FakeDevice::new()?;
        let (dev, live) = (&fake.device, Arc::new(Atomic::new(0), GFP_KERNEL)?);
        let list = ObjectLru::new(dev)?;
        let one = object(dev, &list, 1, &live)?;
        let two = object(dev, &list, 2, &live)?;
        one.touch();
        two.touch();
        // A snapshot has references; the list has none.
        let snapshot = list.snapshot(dev)?;
        drop(one);
        assert_eq!(live.load(Relaxed), 2);
        assert_eq!(&*order(&list, dev)?, &[1, 2]);
        drop(snapshot);
        assert_eq!(live.load(Relaxed), 1);
        assert_eq!(&*order(&list, dev)?, &[2]);
        drop(two);
        assert_eq!(live.load(Relaxed), 0);
        assert!(order(&list, dev)?.is_empty());
        Ok(())
    }

    #[test]
    fn a_list_is_of_one_device() -> Result {
        let (fake, other) = (FakeDevice::new()?, FakeDevice::new()?);
        let live = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let list = ObjectLru::new(&fake.device)?;
        let own = object(&fake.device, &list, 1, &live)?;
        let stranger = object(&other.device, &list, 2, &live)?;
        own.touch();
        stranger.touch();
        assert_eq!(&*order(&list, &fake.device)?, &[1]);
        assert!(order(&list, &other.device)?.is_empty());
        Ok(())
    }
}
