// SPDX-License-Identifier: GPL-2.0

//! Character devices that nobody finds, and mappings of what their files show.

use kernel::{
    new_mutex,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

use crate::kapi::{
    chrdev::{
        CharDevice,
        FileOps,
        IoMemory,
        MmapRequest, //
    },
    kunit::{
        Sharing,
        UserMemory, //
    },
    mappable::Transfer,
    pages::Pages, //
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

/// Two pages of memory that can be taken away.
#[pin_data]
struct Memory {
    pages: Pages,
    /// How many of the next looks fail, and how.
    #[pin]
    failing: Mutex<(u32, Error)>,
    /// How often a page was looked for.
    looks: Atomic<u32>,
}

/// First page of the file that has memory.
const FIRST: u64 = 3;
/// Bytes of a page.
// CAST: `usize` is at most 64 bits wide.
const PAGE: u64 = PAGE_SIZE as u64;

impl IoMemory for Memory {
    fn with_page(&self, page: u64, insert: &mut dyn FnMut(u64)) -> Result {
        self.looks.add(1, Relaxed);
        let index = usize::try_from(page.checked_sub(FIRST).ok_or(ENXIO)?)?;
        // CAST: `usize` is at most 64 bits wide.
        insert((self.pages.pfn(index)? as u64) << PAGE_SHIFT);
        let mut failing = self.failing.lock();
        match *failing {
            (0, _) => Ok(()),
            (left, error) => {
                failing.0 = left - 1;
                Err(error)
            }
        }
    }
}

/// Byte `at` of the memory.
fn pattern(at: usize) -> u8 {
    // CAST: Folds the number to a byte.
    (at ^ at >> 8 ^ 0x5a) as u8
}

impl Memory {
    fn new() -> Result<Arc<Self>> {
        let pages = Pages::alloc(2)?;
        for at in 0..pages.size() {
            pages.copy(at, Transfer::Write(&[pattern(at)]))?;
        }
        Arc::pin_init(
            pin_init!(Self {
                pages,
                failing <- new_mutex!((0, EIO)),
                looks: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    fn looks(&self) -> u32 {
        self.looks.load(Relaxed)
    }
}

struct IoFile(Arc<Memory>);

impl FileOps for IoFile {
    type Context = Memory;

    fn open(context: &Arc<Memory>) -> Result<KBox<Self>> {
        Ok(KBox::new(Self(context.clone()), GFP_KERNEL)?)
    }

    fn ioctl(&self, _command: u32, _argument: usize) -> Result<isize> {
        Err(ENOTTY)
    }

    fn mmap(&self, request: MmapRequest<'_>) -> Result {
        match request.offset() == FIRST * PAGE && request.len() <= 2 * PAGE_SIZE {
            true => request.map_io(self.0.clone()),
            false => Err(ENXIO),
        }
    }
}

/// Byte `at` of user memory.
fn read(memory: &UserMemory, at: usize) -> Result<u8> {
    let address = usize::try_from(memory.address())? + at;
    UserSlice::new(UserPtr::from_addr(address), 1)
        .reader()
        .read()
}

#[kunit_tests(rkfd_kapi_chrdev_mmap)]
mod mmap {
    use super::*;

    type Mapped = (Arc<Memory>, Pin<KBox<CharDevice<IoFile>>>, UserMemory);

    /// Memory, a device whose files show it, and a mapping of both pages.
    fn mapped() -> Result<Mapped> {
        let memory = Memory::new()?;
        let device = CharDevice::<IoFile>::new(c"rkfd-kunit", memory.clone())?;
        let file = device.test_file()?;
        let user = UserMemory::of_file(&file, 2 * PAGE_SIZE, Sharing::Shared, FIRST * PAGE)?;
        Ok((memory, device, user))
    }

    #[test]
    fn program_sees_the_page_that_the_device_names() -> Result {
        let (memory, device, user) = mapped()?;
        assert_eq!(memory.looks(), 0);
        for at in [PAGE_SIZE + 7, 1, 2 * PAGE_SIZE - 1, PAGE_SIZE - 1] {
            assert_eq!(read(&user, at)?, pattern(at));
        }
        // Once for each page.
        assert_eq!(memory.looks(), 2);
        // What a program writes is there.
        let address = usize::try_from(user.address())? + PAGE_SIZE;
        let mut writer = UserSlice::new(UserPtr::from_addr(address), 1).writer();
        writer.write(&0xc3_u8)?;
        let mut byte = [0];
        memory.pages.copy(PAGE_SIZE, Transfer::Read(&mut byte))?;
        assert_eq!(byte, [0xc3]);
        user.unmap();
        drop(device);
        Ok(())
    }

    #[test]
    fn page_that_was_taken_away_is_looked_for_again() -> Result {
        let (memory, device, user) = mapped()?;
        let both = || Ok::<_, Error>((read(&user, 0)?, read(&user, PAGE_SIZE)?));
        both()?;
        // Pages beside them.
        device.unmap((FIRST + 2) * PAGE, PAGE);
        device.unmap(0, FIRST * PAGE);
        both()?;
        assert_eq!(memory.looks(), 2);
        device.unmap((FIRST + 1) * PAGE, PAGE);
        both()?;
        assert_eq!(memory.looks(), 3);
        device.unmap(0, 0);
        both()?;
        assert_eq!(memory.looks(), 5);
        user.unmap();
        Ok(())
    }

    #[test]
    fn memory_that_is_gone_is_a_bus_error() -> Result {
        let (memory, _device, user) = mapped()?;
        *memory.failing.lock() = (2, ENODEV);
        // The page that was inserted before the failure is taken away again.
        assert_eq!(read(&user, 0), Err(EFAULT));
        assert_eq!(read(&user, 0), Err(EFAULT));
        assert_eq!((read(&user, 0)?, memory.looks()), (pattern(0), 3));
        user.unmap();
        Ok(())
    }

    #[test]
    fn access_is_repeated_when_the_memory_says_so() -> Result {
        let (memory, _device, user) = mapped()?;
        *memory.failing.lock() = (3, EAGAIN);
        assert_eq!(read(&user, 5)?, pattern(5));
        assert_eq!(memory.looks(), 4);
        user.unmap();
        Ok(())
    }

    #[test]
    fn private_mapping_must_not_be_written() -> Result {
        let memory = Memory::new()?;
        let device = CharDevice::<IoFile>::new(c"rkfd-kunit", memory.clone())?;
        let file = device.test_file()?;
        let map = |sharing, offset| UserMemory::of_file(&file, PAGE_SIZE, sharing, offset);
        let writable = map(Sharing::Private { writable: true }, FIRST * PAGE);
        assert_eq!(writable.err(), Some(EINVAL));
        let user = map(Sharing::Private { writable: false }, FIRST * PAGE)?;
        assert_eq!(read(&user, 9)?, pattern(9));
        user.unmap();
        // What the file refuses is the error of the call.
        assert_eq!(map(Sharing::Shared, 0).err(), Some(ENXIO));
        Ok(())
    }

    #[test]
    fn mapping_keeps_the_memory() -> Result {
        struct Watched(Arc<Atomic<i32>>);
        impl Drop for Watched {
            fn drop(&mut self) {
                self.0.fetch_add(1, Relaxed);
            }
        }
        impl IoMemory for Watched {
            fn with_page(&self, _page: u64, _insert: &mut dyn FnMut(u64)) -> Result {
                Err(EIO)
            }
        }
        /// Hands its memory to the mapping.
        struct Once(Arc<Atomic<i32>>);
        impl FileOps for Once {
            type Context = Atomic<i32>;
            fn open(context: &Arc<Atomic<i32>>) -> Result<KBox<Self>> {
                Ok(KBox::new(Self(context.clone()), GFP_KERNEL)?)
            }
            fn ioctl(&self, _command: u32, _argument: usize) -> Result<isize> {
                Err(ENOTTY)
            }
            fn mmap(&self, request: MmapRequest<'_>) -> Result {
                request.map_io(Arc::new(Watched(self.0.clone()), GFP_KERNEL)?)
            }
        }
        let dropped = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let device = CharDevice::<Once>::new(c"rkfd-kunit", dropped.clone())?;
        let user = {
            let file = device.test_file()?;
            UserMemory::of_file(&file, 3 * PAGE_SIZE, Sharing::Shared, 0)?
        };
        // Cut in two, each part has it.
        let (address, whole) = (user.address(), 3 * PAGE_SIZE);
        UserMemory::part(address + PAGE, PAGE_SIZE).unmap();
        assert_eq!(dropped.load(Relaxed), 0);
        UserMemory::part(address, PAGE_SIZE).unmap();
        assert_eq!(dropped.load(Relaxed), 0);
        UserMemory::part(address, whole).unmap();
        assert_eq!(dropped.load(Relaxed), 1);
        Ok(())
    }
}
