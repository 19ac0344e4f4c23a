// SPDX-License-Identifier: GPL-2.0

//! The calling task's memory: reading and writing it, and watching it change.

use core::ops::Range;

use kernel::{
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};

use crate::kapi::{
    kunit::UserMemory,
    mappable::Transfer,
    task::{
        access_ok,
        bring_in,
        current_mm,
        read_present,
        write_present,
        MmKey, //
    },
    userpages::{
        UserPages,
        Watcher,
        WINDOW, //
    },
};

/// Above what any program can have.
const KERNEL: u64 = 0xffff_8000_0000_0000;

/// Counts its notifications.
#[pin_data]
struct Counts {
    key: MmKey,
    before: Atomic<i32>,
    changed: Atomic<i32>,
    /// What changed last.
    #[pin]
    last: Mutex<Range<u64>>,
}

impl Counts {
    /// For the address space of the caller.
    fn new() -> Result<Arc<Self>> {
        let (_, key) = current_mm().ok_or(EINVAL)?;
        Arc::pin_init(
            pin_init!(Self {
                key,
                before: Atomic::new(0),
                changed: Atomic::new(0),
                last <- new_mutex!(0..0, "rkfd_kunit_last_change"),
            }),
            GFP_KERNEL,
        )
    }

    fn last(&self) -> Range<u64> {
        self.last.lock().clone()
    }

    fn get(&self) -> (i32, i32) {
        (self.before.load(Relaxed), self.changed.load(Relaxed))
    }
}

impl Watcher for Counts {
    fn address_space(&self) -> MmKey {
        self.key
    }

    fn learns_of_end(&self) -> bool {
        true
    }

    fn before_change(&self) {
        self.before.add(1, Relaxed);
    }

    fn invalidated(&self, range: Range<u64>) {
        self.changed.add(1, Relaxed);
        *self.last.lock() = range;
    }

    fn missing(&self) {}
}

#[kunit_tests(rkfd_user_memory)]
mod access {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_not_waited_for() -> Result {
        let memory = UserMemory::new(2 * PAGE_SIZE)?;
        let at = memory.address();
        let mut bytes = [0xff; 8];
        assert_eq!(read_present(at, &mut bytes).err(), Some(EFAULT));
        assert_eq!(write_present(at, &bytes).err(), Some(EFAULT));
        bring_in(at, 8, true)?;
        read_present(at, &mut bytes)?;
        assert_eq!(bytes, [0; 8]);
        write_present(at + 4, b"word")?;
        read_present(at, &mut bytes)?;
        assert_eq!(&bytes, b"\0\0\0\0word");
        // Half of it is in the page that nobody has touched.
        let edge = at + PAGE_SIZE as u64 - 4;
        assert_eq!(read_present(edge, &mut bytes).err(), Some(EFAULT));
        bring_in(edge, 8, false)?;
        read_present(edge, &mut bytes)?;
        assert_eq!(bytes, [0; 8]);
        Ok(())
    }

    #[test]
    fn nobody_reaches_the_kernel_this_way() -> Result {
        let memory = UserMemory::new(PAGE_SIZE)?;
        let mut bytes = [0xff; 8];
        for address in [KERNEL, u64::MAX - 7, u64::MAX] {
            assert_eq!(read_present(address, &mut bytes).err(), Some(EFAULT));
            assert_eq!(write_present(address, &bytes).err(), Some(EFAULT));
            assert_eq!(bring_in(address, 1, true).err(), Some(EFAULT));
            assert!(!access_ok(address, 8));
        }
        assert!(access_ok(memory.address(), PAGE_SIZE as u64));
        assert!(!access_ok(memory.address(), u64::MAX));
        // Nothing is mapped there any more.
        let at = memory.address();
        memory.unmap();
        assert_eq!(bring_in(at, 1, false).err(), Some(EFAULT));
        assert_eq!(bytes, [0xff; 8]);
        Ok(())
    }
}

#[kunit_tests(rkfd_userpages)]
mod pages {
    use super::*;

    #[test]
    fn ranges_that_cannot_be_are_refused() -> Result {
        let memory = UserMemory::new(2 * PAGE_SIZE)?;
        let at = usize::try_from(memory.address())?;
        let counts = Counts::new()?;
        let new = |start, count| UserPages::new(start, count, true, counts.clone()).err();
        assert_eq!(new(at, 0), Some(EINVAL));
        assert_eq!(new(at + 1, 1), Some(EINVAL));
        assert_eq!(new(at, usize::MAX), Some(EFAULT));
        assert_eq!(new(usize::MAX - PAGE_SIZE + 1, 1), Some(EFAULT));
        assert_eq!(new(at, 2), None);
        Ok(())
    }

    #[test]
    fn pages_are_found_once_and_again_after_they_changed() -> Result {
        let memory = UserMemory::new(3 * PAGE_SIZE)?;
        let counts = Counts::new()?;
        let address = memory.address();
        // Two pages of one window.
        let first = usize::try_from(address)?;
        let at = match (first + PAGE_SIZE) % WINDOW {
            0 => first + PAGE_SIZE,
            _ => first,
        };
        let user = UserPages::new(at, 2, true, counts.clone())?;
        assert!(user.window(1).is_none());
        assert!(user.snapshot(0).pages.is_none());
        user.find()?;
        let first = user.snapshot(0);
        let pages = first.pages.as_ref().ok_or(EINVAL)?;
        assert_eq!(pages.len(), 2);
        // They are the process's, and nobody's to copy or to hand on.
        assert_eq!(pages.copy(0, Transfer::Read(&mut [0])).err(), Some(EPERM));
        assert_eq!(pages.pfn(0).err(), Some(EPERM));
        // They are known: nothing is looked for.
        let version = user.version();
        user.find()?;
        assert_eq!(user.version(), version);
        assert_eq!((user.snapshot(0).version, user.found()), (first.version, 2));
        assert_eq!(user.commit(version, || Ok(5)), Ok(5));
        assert_eq!(
            user.commit(version, || Err::<(), _>(ENOSPC)).err(),
            Some(ENOSPC)
        );
        assert_eq!(counts.get(), (0, 0));

        user.start_use();
        memory.unmap();
        // This is a kernel thread that borrows the memory, so the change is not held back.
        assert_eq!(counts.get(), (0, 1));
        assert!(user.snapshot(0).pages.is_none());
        assert!(user.version() != version);
        assert!(user.snapshot(0).version != first.version);
        assert_eq!(user.commit(version, || Ok(())).err(), Some(EAGAIN));
        assert_eq!(user.find().err(), Some(EFAULT));

        // Other memory in the same place is found as what it is.
        let memory = UserMemory::at(address, 3 * PAGE_SIZE)?;
        user.find()?;
        assert!(user.snapshot(0).pages.is_some());
        user.end_use();
        let told = counts.get();
        memory.unmap();
        // Nobody is notified of what nobody uses, and the pages are dropped all the same.
        assert_eq!(counts.get(), told);
        assert!(user.snapshot(0).pages.is_none());
        Ok(())
    }

    #[test]
    fn a_change_of_one_page_concerns_its_window_alone() -> Result {
        let size = 3 * WINDOW;
        let memory = UserMemory::new(size)?;
        let at = usize::try_from(memory.address())?;
        let counts = Counts::new()?;
        let user = UserPages::new(at, size / PAGE_SIZE, true, counts.clone())?;
        // Windows begin where large pages of the process may.
        let (mut count, mut end) = (0, 0);
        while let Some(window) = user.window(count) {
            assert_eq!(window.start, end);
            assert!(count == 0 || (at + end) % WINDOW == 0);
            (count, end) = (count + 1, window.end);
        }
        assert_eq!(end, size);
        user.find()?;
        assert_eq!(user.found(), (size / PAGE_SIZE) as u64);
        let mut versions = KVec::new();
        for index in 0..count {
            versions.push(user.snapshot(index).version, GFP_KERNEL)?;
        }
        user.start_use();

        // The last page of the second window goes.
        let second = user.window(1).ok_or(EINVAL)?;
        let hole = (at + second.end - PAGE_SIZE) as u64;
        let told = hole..hole + PAGE_SIZE as u64;
        UserMemory::part(hole, PAGE_SIZE).unmap();
        assert_eq!(counts.last(), told);
        let found = user.found();
        for _ in 0..2 {
            for (index, version) in versions.iter().enumerate() {
                let now = user.snapshot(index);
                assert_eq!(now.pages.is_some(), index != 1);
                let is_same = now.version == *version;
                assert_eq!(is_same, index != 1);
            }
            // Where memory is lacking, the others are not looked for again.
            assert_eq!(user.find().err(), Some(EFAULT));
            assert_eq!(user.found(), found);
        }
        UserMemory::at(hole, PAGE_SIZE)?;
        let version = user.version();
        user.find()?;
        assert_eq!(user.found(), found + (second.len() / PAGE_SIZE) as u64);
        // What was known of the range before is out of date, and what is known now can be committed.
        assert_eq!(user.commit(version, || Ok(())).err(), Some(EAGAIN));
        assert_eq!(user.commit(user.version(), || Ok(())), Ok(()));

        // Two pages of two windows.
        UserMemory::part(hole, 2 * PAGE_SIZE).unmap();
        for index in 0..count {
            let is_known = user.snapshot(index).pages.is_some();
            assert_eq!(is_known, index != 1 && index != 2);
        }
        user.end_use();
        memory.unmap();
        Ok(())
    }

    #[test]
    fn a_change_is_told_by_the_addresses_that_are_watched() -> Result {
        let memory = UserMemory::new(4 * PAGE_SIZE)?;
        let address = memory.address();
        let at = usize::try_from(address)?;
        let page = PAGE_SIZE as u64;
        let (low, high) = (Counts::new()?, Counts::new()?);
        // Two pages in the middle, and the first alone.
        let middle = UserPages::new(at + PAGE_SIZE, 2, true, high.clone())?;
        let first = UserPages::new(at, 1, true, low.clone())?;
        for pages in [&middle, &first] {
            pages.find()?;
            pages.start_use();
        }
        memory.unmap();
        assert_eq!(low.last(), address..address + page);
        assert_eq!(high.last(), address + page..address + 3 * page);
        assert_eq!((low.get(), high.get()), ((0, 1), (0, 1)));
        middle.end_use();
        first.end_use();
        Ok(())
    }

    #[test]
    fn memory_that_may_not_be_written_is_refused_to_writers() -> Result {
        let memory = UserMemory::read_only(PAGE_SIZE)?;
        let at = usize::try_from(memory.address())?;
        let counts = Counts::new()?;
        let writer = UserPages::new(at, 1, true, counts.clone())?;
        assert_eq!(writer.find().err(), Some(EPERM));
        let reader = UserPages::new(at, 1, false, counts.clone())?;
        reader.find()?;
        assert!(reader.snapshot(0).pages.is_some());
        assert!(writer.snapshot(0).pages.is_none());
        Ok(())
    }
}
