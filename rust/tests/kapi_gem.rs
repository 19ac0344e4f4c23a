// SPDX-License-Identifier: GPL-2.0

//! GEM objects on a device without hardware, and mappings of them.

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
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

use super::vm_live_bench::FakeDevice;
use crate::kapi::{
    chrdev::{
        CharDevice,
        FileOps,
        MmapRequest, //
    },
    gem::Object,
    kunit::{
        Sharing,
        UserMemory, //
    },
    mappable::{
        ExportOps,
        Mappable,
        Region,
        Transfer,
        UserCaching, //
    },
    pages::Pages,
};

/// What tests and objects share.
struct Seen {
    dropped: Atomic<i32>,
    /// How often a frame was asked for.
    asked: Atomic<u32>,
}

/// What an object holds.
struct Held {
    number: u32,
    /// None: it cannot be mapped.
    pages: Option<Arc<Pages>>,
    seen: Arc<Seen>,
}

impl Mappable for Held {
    fn may_mmap(&self) -> Result<UserCaching> {
        match self.pages {
            Some(_) => Ok(UserCaching::Cached),
            None => Err(EPERM),
        }
    }

    fn pfn(&self, index: usize) -> Result<usize> {
        self.seen.asked.add(1, Relaxed);
        self.pages.as_ref().ok_or(EIO)?.pfn(index)
    }

    fn transfer(&self, _offset: usize, _transfer: Transfer<'_>) -> Result {
        Err(EIO)
    }

    fn export_ops() -> &'static ExportOps<Self> {
        static OPS: ExportOps<Held> = ExportOps::new();
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

impl Drop for Held {
    fn drop(&mut self) {
        self.seen.dropped.fetch_add(1, Relaxed);
    }
}

/// A device, and what is seen of its objects.
struct Maker {
    fake: FakeDevice,
    seen: Arc<Seen>,
}

impl Maker {
    fn new() -> Result<Self> {
        let seen = Seen {
            dropped: Atomic::new(0),
            asked: Atomic::new(0),
        };
        Ok(Self {
            fake: FakeDevice::new()?,
            seen: Arc::new(seen, GFP_KERNEL)?,
        })
    }

    fn make(&self, number: u32, size: usize, pages: Option<Arc<Pages>>) -> Result<Object<Held>> {
        let held = Held {
            number,
            pages,
            seen: self.seen.clone(),
        };
        Object::new(&self.fake.device, size, held)
    }

    fn dropped(&self) -> i32 {
        self.seen.dropped.load(Relaxed)
    }

    fn asked(&self) -> u32 {
        self.seen.asked.load(Relaxed)
    }
}

#[kunit_tests(rkfd_kapi_gem)]
mod gem {
    use super::*;

    #[test]
    fn sizes_are_whole_pages() -> Result {
        let maker = Maker::new()?;
        for size in [0, 1, PAGE_SIZE - 1, PAGE_SIZE + 1, usize::MAX] {
            assert_eq!(maker.make(1, size, None).err(), Some(EINVAL));
        }
        // What was to be held is dropped with the refusal.
        assert_eq!(maker.dropped(), 5);
        for size in [PAGE_SIZE, 2 * PAGE_SIZE, PAGE_SIZE << 20] {
            maker.make(1, size, None)?;
        }
        assert_eq!(maker.dropped(), 8);
        Ok(())
    }

    #[test]
    fn last_reference_drops_what_is_held() -> Result {
        let maker = Maker::new()?;
        let first = maker.make(7, PAGE_SIZE, None)?;
        let second = first.clone();
        let third = second.clone();
        assert_eq!((first.number, third.number), (7, 7));
        assert_eq!(first.mmap_offset(), third.mmap_offset());
        drop(second);
        drop(first);
        assert_eq!((maker.dropped(), third.number), (0, 7));
        drop(third);
        assert_eq!(maker.dropped(), 1);
        Ok(())
    }

    #[test]
    fn object_keeps_its_device() -> Result {
        let maker = Maker::new()?;
        let object = maker.make(3, PAGE_SIZE, None)?;
        let Maker { fake, seen } = maker;
        drop(fake);
        assert_eq!((object.number, seen.dropped.load(Relaxed)), (3, 0));
        assert!(object.mmap_offset() > 0);
        drop(object);
        assert_eq!(seen.dropped.load(Relaxed), 1);
        Ok(())
    }

    #[test]
    fn offsets_are_page_aligned_and_do_not_overlap() -> Result {
        let maker = Maker::new()?;
        let mut spans = KVec::new();
        let mut objects = KVec::new();
        for pages in [1, 3, 16, 2] {
            let object = maker.make(0, pages * PAGE_SIZE, None)?;
            let start = usize::try_from(object.mmap_offset())?;
            let end = start + pages * PAGE_SIZE;
            assert!(start > 0 && start % PAGE_SIZE == 0);
            for (first, last) in &spans {
                assert!(end <= *first || *last <= start);
            }
            spans.push((start, end), GFP_KERNEL)?;
            objects.push(object, GFP_KERNEL)?;
        }
        Ok(())
    }
}

/// A file whose mappings are of one object.
struct Node(Arc<Object<Held>>);

impl FileOps for Node {
    type Context = Object<Held>;

    fn open(context: &Arc<Object<Held>>) -> Result<KBox<Self>> {
        Ok(KBox::new(Self(context.clone()), GFP_KERNEL)?)
    }

    fn ioctl(&self, _command: u32, _argument: usize) -> Result<isize> {
        Err(ENOTTY)
    }

    fn mmap(&self, request: MmapRequest<'_>) -> Result {
        self.0.map_in_test(request)
    }
}

/// First byte of page `index` of [`patterned`] memory.
fn pattern(index: usize) -> u8 {
    // CAST: Folds the number to a byte.
    (index ^ 0x5a) as u8
}

/// Memory each page of which begins with another byte.
fn patterned(count: usize) -> Result<Arc<Pages>> {
    let pages = Arc::new(Pages::alloc(count)?, GFP_KERNEL)?;
    for index in 0..count {
        pages.copy(index * PAGE_SIZE, Transfer::Write(&[pattern(index)]))?;
    }
    Ok(pages)
}

/// A mapping, and the device whose file it is of.
struct Mapping {
    user: UserMemory,
    _device: Pin<KBox<CharDevice<Node>>>,
}

impl Mapping {
    /// First byte of page `index`.
    fn read(&self, index: usize) -> Result<u8> {
        let address = usize::try_from(self.user.address())? + index * PAGE_SIZE;
        UserSlice::new(UserPtr::from_addr(address), 1)
            .reader()
            .read()
    }

    fn unmap(self) {
        self.user.unmap();
    }
}

/// Maps `len` bytes of `object` from `skipped` bytes on.
fn map(object: &Object<Held>, skipped: usize, len: usize, sharing: Sharing) -> Result<Mapping> {
    let context = Arc::new(object.clone(), GFP_KERNEL)?;
    let device = CharDevice::<Node>::new(c"rkfd-kunit", context)?;
    let file = device.test_file()?;
    // CAST: `usize` is at most 64 bits wide.
    let offset = object.mmap_offset() + skipped as u64;
    Ok(Mapping {
        user: UserMemory::of_file(&file, len, sharing, offset)?,
        _device: device,
    })
}

#[kunit_tests(rkfd_kapi_vma)]
mod vma {
    use super::*;

    #[test]
    fn mapping_shows_the_pages_of_its_object() -> Result {
        let maker = Maker::new()?;
        let object = maker.make(1, 4 * PAGE_SIZE, Some(patterned(4)?))?;
        let whole = map(&object, 0, 4 * PAGE_SIZE, Sharing::Shared)?;
        for index in [3, 0, 2, 1] {
            assert_eq!(whole.read(index)?, pattern(index));
        }
        whole.unmap();
        // From the middle on.
        let part = map(&object, 2 * PAGE_SIZE, PAGE_SIZE, Sharing::Shared)?;
        assert_eq!(part.read(0)?, pattern(2));
        part.unmap();
        let long = map(&object, 0, 5 * PAGE_SIZE, Sharing::Shared);
        assert_eq!(long.err(), Some(EINVAL));
        Ok(())
    }

    #[test]
    fn fault_maps_pages_ahead_and_no_further_than_the_mapping() -> Result {
        let maker = Maker::new()?;
        let object = maker.make(1, 100 * PAGE_SIZE, Some(patterned(100)?))?;
        let user = map(&object, 0, 100 * PAGE_SIZE, Sharing::Shared)?;
        assert_eq!(maker.asked(), 0);
        user.read(10)?;
        assert_eq!(maker.asked(), 32);
        for index in 10..42 {
            assert_eq!(user.read(index)?, pattern(index));
        }
        assert_eq!(maker.asked(), 32);
        user.read(95)?;
        assert_eq!(maker.asked(), 32 + 5);
        user.unmap();
        Ok(())
    }

    #[test]
    fn what_would_be_copied_on_write_is_refused() -> Result {
        let maker = Maker::new()?;
        let object = maker.make(1, PAGE_SIZE, Some(patterned(1)?))?;
        // The file may be written, and so might the mapping become writable later.
        for writable in [true, false] {
            let private = map(&object, 0, PAGE_SIZE, Sharing::Private { writable });
            assert_eq!(private.err(), Some(EINVAL));
        }
        assert_eq!(maker.asked(), 0);
        Ok(())
    }

    #[test]
    fn object_decides_whether_it_is_mapped() -> Result {
        let maker = Maker::new()?;
        let object = maker.make(1, PAGE_SIZE, None)?;
        let user = map(&object, 0, PAGE_SIZE, Sharing::Shared);
        assert_eq!(user.err(), Some(EPERM));
        Ok(())
    }

    #[test]
    fn page_that_the_object_lacks_is_a_bus_error() -> Result {
        let maker = Maker::new()?;
        let object = maker.make(1, 3 * PAGE_SIZE, Some(patterned(2)?))?;
        let user = map(&object, 0, 3 * PAGE_SIZE, Sharing::Shared)?;
        assert_eq!(user.read(2), Err(EFAULT));
        // The pages before it are there.
        assert_eq!((user.read(0)?, user.read(1)?), (pattern(0), pattern(1)));
        user.unmap();
        Ok(())
    }
}
