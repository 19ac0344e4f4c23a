// SPDX-License-Identifier: GPL-2.0

//! Objects that are shared by descriptors: whose they are, how long they live, and who may map them.

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
    dma_buf::{
        Attachment,
        DmaBuf, //
    },
    gem::Object,
    kunit::DmaDevice,
    mappable::{
        ExportOps,
        Mappable,
        Region,
        Transfer,
        UserCaching, //
    },
    pages::Pages, //
};

/// Bytes of the objects.
const SIZE: usize = 5 * PAGE_SIZE;

/// Content that counts how many live, with pages or without.
struct Content<const KIND: usize> {
    live: Arc<Atomic<i32>>,
    pages: Option<Arc<Pages>>,
}

impl<const KIND: usize> Drop for Content<KIND> {
    fn drop(&mut self) {
        self.live.add(-1, Relaxed);
    }
}

static OPS: ExportOps<Content<0>> = ExportOps::new();
static OTHER_OPS: ExportOps<Content<1>> = ExportOps::new();

macro_rules! mappable {
    ($kind:literal, $ops:ident) => {
        impl Mappable for Content<$kind> {
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
                &$ops
            }

            fn may_export(&self) -> Result {
                Ok(())
            }

            fn pages(&self) -> Option<&Arc<Pages>> {
                self.pages.as_ref()
            }

            fn region(&self) -> Option<Region> {
                None
            }
        }
    };
}

mappable!(0, OPS);
mappable!(1, OTHER_OPS);

/// A device, and the count of what lives.
struct Bench {
    live: Arc<Atomic<i32>>,
    fake: FakeDevice,
}

impl Bench {
    fn new() -> Result<Self> {
        Ok(Self {
            live: Arc::new(Atomic::new(0), GFP_KERNEL)?,
            fake: FakeDevice::new()?,
        })
    }

    fn object<const KIND: usize>(&self, pages: Option<Arc<Pages>>) -> Result<Object<Content<KIND>>>
    where
        Content<KIND>: Mappable,
    {
        self.live.add(1, Relaxed);
        let live = self.live.clone();
        Object::new(&self.fake.device, SIZE, Content { live, pages })
    }

    /// Contents that live, once buffers that were given up are gone.
    fn live(&self) -> i32 {
        DmaBuf::settle();
        self.live.load(Relaxed)
    }
}

#[kunit_tests(rkfd_dma_buf)]
mod suite {
    use super::*;

    #[test]
    fn a_shared_object_is_found_again_by_its_type() -> Result {
        let bench = Bench::new()?;
        let object = bench.object::<0>(None)?;
        let shared = object.share()?;
        let found = Object::<Content<0>>::of_dma_buf(&shared).ok_or(EINVAL)?;
        assert!(core::ptr::eq(&*found, &*object));
        assert_eq!(found.size(), SIZE);
        // Content of another type, though the objects are of the same device and look alike.
        assert!(Object::<Content<1>>::of_dma_buf(&shared).is_none());
        let other = bench.object::<1>(None)?.share()?;
        assert!(Object::<Content<0>>::of_dma_buf(&other).is_none());
        assert!(Object::<Content<1>>::of_dma_buf(&other).is_some());
        Ok(())
    }

    #[test]
    fn the_object_lives_as_long_as_it_is_shared() -> Result {
        let bench = Bench::new()?;
        let object = bench.object::<0>(None)?;
        let shared = object.share()?;
        drop(object);
        assert_eq!(bench.live(), 1);
        let again = shared.clone();
        drop(shared);
        assert_eq!(bench.live(), 1);
        let found = Object::<Content<0>>::of_dma_buf(&again);
        drop(again);
        assert_eq!(bench.live(), 1);
        drop(found);
        assert_eq!(bench.live(), 0);
        Ok(())
    }

    #[test]
    fn what_has_pages_can_be_mapped_for_other_devices() -> Result {
        let bench = Bench::new()?;
        let device = DmaDevice::new(c"rkfd_test_importer")?;
        let pages = Arc::new(Pages::alloc(SIZE / PAGE_SIZE)?, GFP_KERNEL)?;
        let shared = bench.object::<0>(Some(pages))?.share()?;
        let attachment = Attachment::new(&shared, device.device())?;
        drop(shared);
        // CAST: `usize` is at most 64 bits wide.
        assert_eq!(attachment.map(|len| len)?, SIZE as u64);
        // Again, after the first one was unmapped.
        assert_eq!(attachment.map(|len| len)?, SIZE as u64);
        assert_eq!(bench.live(), 1);
        drop(attachment);
        assert_eq!(bench.live(), 0);
        Ok(())
    }

    #[test]
    fn what_has_no_pages_cannot_be_attached() -> Result {
        let bench = Bench::new()?;
        let device = DmaDevice::new(c"rkfd_test_importer")?;
        let shared = bench.object::<0>(None)?.share()?;
        let attachment = Attachment::new(&shared, device.device());
        assert_eq!(attachment.err(), Some(EOPNOTSUPP));
        drop(shared);
        assert_eq!(bench.live(), 0);
        Ok(())
    }

    #[test]
    fn no_descriptor_is_no_buffer() {
        assert_eq!(DmaBuf::from_fd(u32::MAX).err(), Some(EBADF));
        assert_eq!(DmaBuf::from_fd(0x7fff_ffff).err(), Some(EBADF));
    }
}
