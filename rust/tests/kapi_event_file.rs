// SPDX-License-Identifier: GPL-2.0

//! Files that a process reads events from, called as the VFS does, and descriptors that are no counters.

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
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

use crate::kapi::{
    event_file::{
        self,
        EventFile, //
    },
    eventfd::EventFd,
    kunit::{
        TestFile,
        UserMemory, //
    },
    waitqueue::{
        new_waitqueue,
        WaitQueue, //
    },
};

/// Events of poll(2): EPOLLIN and EPOLLRDNORM.
const READABLE: u32 = 0x41;
/// Where no program has memory.
const KERNEL: u64 = 0xffff_8000_0000_0000;

/// What the tests put in and find again.
#[pin_data]
struct Shared {
    #[pin]
    text: Mutex<KVec<u8>>,
    readable: Atomic<bool>,
    open: Atomic<i32>,
    #[pin]
    waiters: WaitQueue,
}

impl Shared {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                text <- new_mutex!(KVec::new(), "rkfd_test_text"),
                readable: Atomic::new(false),
                open: Atomic::new(0),
                waiters <- new_waitqueue!("rkfd_test_waiters"),
            }),
            GFP_KERNEL,
        )
    }

    /// Opens a file of it.
    fn open(self: &Arc<Self>) -> Result<TestFile> {
        let file = KBox::new(Text(self.clone()), GFP_KERNEL)?;
        self.open.add(1, Relaxed);
        event_file::test_file(file)
    }

    fn put(&self, bytes: &[u8]) -> Result {
        self.text.lock().extend_from_slice(bytes, GFP_KERNEL)?;
        self.readable.store(true, Relaxed);
        Ok(())
    }
}

/// Reads take from the front of a text, writes replace it.
struct Text(Arc<Shared>);

impl Drop for Text {
    fn drop(&mut self) {
        self.0.open.add(-1, Relaxed);
    }
}

impl EventFile for Text {
    fn read(&self, to: UserSlice) -> Result<usize> {
        let mut to = to.writer();
        let mut text = self.0.text.lock();
        let len = to.len().min(text.len());
        if len == 0 {
            return Err(EAGAIN);
        }
        to.write_slice(text.get(..len).ok_or(EINVAL)?)?;
        for _ in 0..len {
            let _ = text.remove(0);
        }
        self.0.readable.store(!text.is_empty(), Relaxed);
        Ok(len)
    }

    fn write(&self, from: UserSlice) -> Result<usize> {
        let mut bytes = KVec::new();
        from.read_all(&mut bytes, GFP_KERNEL)?;
        let len = bytes.len();
        *self.0.text.lock() = bytes;
        self.0.readable.store(len > 0, Relaxed);
        Ok(len)
    }

    fn is_readable(&self) -> bool {
        self.0.readable.load(Relaxed)
    }

    fn waiters(&self) -> &WaitQueue {
        &self.0.waiters
    }
}

fn user(address: u64, len: usize) -> Result<UserSlice> {
    Ok(UserSlice::new(
        UserPtr::from_addr(usize::try_from(address)?),
        len,
    ))
}

#[kunit_tests(rkfd_kapi_event_file)]
mod suite {
    use super::*;

    #[test]
    fn a_read_moves_what_there_is() -> Result {
        let (shared, memory) = (Shared::new()?, UserMemory::new(PAGE_SIZE)?);
        let file = shared.open()?;
        let at = memory.address() + 100;
        assert_eq!(file.read(at, 8).err(), Some(EAGAIN));
        shared.put(b"abc")?;
        assert_eq!(file.read(at, 2)?, 2);
        let mut found = [0xff; 3];
        user(at, 3)?.reader().read_slice(&mut found)?;
        assert_eq!(&found, b"ab\0");
        // Nothing is taken that does not arrive.
        assert_eq!(file.read(KERNEL, 8).err(), Some(EFAULT));
        assert_eq!(file.read(at, 8)?, 1);
        user(at, 3)?.reader().read_slice(&mut found)?;
        assert_eq!(&found, b"cb\0");
        assert_eq!(file.read(at, 8).err(), Some(EAGAIN));
        Ok(())
    }

    #[test]
    fn a_write_hands_over_all_bytes_or_its_error() -> Result {
        let (shared, memory) = (Shared::new()?, UserMemory::new(PAGE_SIZE)?);
        let file = shared.open()?;
        let at = memory.address() + 50;
        user(at, 4)?.writer().write_slice(b"mask")?;
        assert_eq!(file.write(at, 4)?, 4);
        assert_eq!(&**shared.text.lock(), b"mask");
        assert_eq!(file.write(KERNEL, 4).err(), Some(EFAULT));
        assert_eq!(&**shared.text.lock(), b"mask");
        Ok(())
    }

    #[test]
    fn who_polls_waits_for_what_can_be_read() -> Result {
        let shared = Shared::new()?;
        let file = shared.open()?;
        assert_eq!(file.poll(&shared.waiters)?, (0, true));
        shared.put(b"x")?;
        assert_eq!(file.poll(&shared.waiters)?, (READABLE, true));
        let stranger = Shared::new()?;
        assert_eq!(file.poll(&stranger.waiters)?, (READABLE, false));
        Ok(())
    }

    #[test]
    fn a_file_that_is_closed_drops_its_value() -> Result {
        let shared = Shared::new()?;
        let (one, other) = (shared.open()?, shared.open()?);
        assert_eq!(shared.open.load(Relaxed), 2);
        drop(one);
        TestFile::settle();
        assert_eq!(shared.open.load(Relaxed), 1);
        drop(other);
        TestFile::settle();
        assert_eq!(shared.open.load(Relaxed), 0);
        Ok(())
    }
}

#[kunit_tests(rkfd_kapi_eventfd)]
mod eventfd {
    use super::*;

    #[test]
    fn a_number_that_is_no_descriptor_is_refused() {
        for fd in [-1, i32::MIN, i32::MAX, 1 << 20] {
            assert_eq!(EventFd::from_fd(fd).err(), Some(EBADF));
        }
    }
}
