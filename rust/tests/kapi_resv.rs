// SPDX-License-Identifier: GPL-2.0

//! Reservations of objects, and locking several, on a device without hardware.

use kernel::{
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        Arc,
        Completion,
        Mutex, //
    },
    time::msecs_to_jiffies, //
};

use super::vm_live_bench::FakeDevice;
use crate::kapi::{
    exec::{
        with_locked,
        LockError,
        Wait, //
    },
    fence::{
        FenceContext,
        FenceMemory, //
    },
    gem::Object,
    mappable::{
        ExportOps,
        Mappable,
        Region,
        Transfer,
        UserCaching, //
    },
    pages::Pages,
    resv::Usage,
    workqueue::OwnedQueue, //
};

/// Content of no use.
struct Nothing;

impl Mappable for Nothing {
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
        static OPS: ExportOps<Nothing> = ExportOps::new();
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

fn object(fake: &FakeDevice) -> Result<Object<Nothing>> {
    Object::new(&fake.device, PAGE_SIZE, Nothing)
}

/// What two threads tell each other.
#[pin_data]
struct Meeting {
    /// The second thread may begin.
    #[pin]
    begin: Completion,
    /// It has its first lock.
    #[pin]
    half: Completion,
    /// How often it began to lock, and whether it had everything in the end.
    #[pin]
    seen: Mutex<(u32, bool)>,
}

#[kunit_tests(rkfd_kapi_resv)]
mod suite {
    use super::*;

    #[test]
    fn a_reservation_excludes_others_until_it_is_dropped() -> Result {
        let fake = FakeDevice::new()?;
        let (one, other) = (object(&fake)?, object(&fake)?);
        let held = one.reserve()?;
        assert!(one.try_reserve().is_none());
        // What was refused has left it locked.
        assert!(one.try_reserve().is_none());
        // Each object has its own.
        assert!(other.try_reserve().is_some());
        assert!(core::ptr::eq(held.resv().object(), &one));
        drop(held);
        assert!(one.try_reserve().is_some());
        drop(one.reserve_uninterrupted());
        assert!(one.try_reserve().is_some());
        Ok(())
    }

    #[test]
    fn fences_are_waited_for_by_what_they_stand_for() -> Result {
        let fake = FakeDevice::new()?;
        let object = object(&fake)?;
        let context = FenceContext::new();
        let pending = FenceMemory::new()?.init(&context, 1);
        let fence = pending.fence().ok_or(EINVAL)?;
        let held = object.reserve()?;
        let resv = held.resv();
        assert!(resv.is_idle(Usage::Bookkeep));
        let mut slots = resv.reserve_fences(1)?;
        slots.add(&fence, Usage::Read)?;
        assert_eq!(slots.add(&fence, Usage::Read), Err(ENOSPC));
        // Who only reads does not wait for reads.
        assert!(resv.is_idle(Usage::Write));
        assert!(!resv.is_idle(Usage::Read));
        assert!(!resv.is_idle(Usage::Bookkeep));
        assert_eq!(resv.wait(Usage::Bookkeep, 1), Err(ETIMEDOUT));
        assert_eq!(resv.wait(Usage::Kernel, 1), Ok(()));
        pending.signal(Ok(()));
        assert!(resv.is_idle(Usage::Bookkeep));
        assert_eq!(resv.wait(Usage::Bookkeep, msecs_to_jiffies(1000)), Ok(()));
        Ok(())
    }

    #[test]
    fn all_objects_are_locked_while_the_second_closure_runs() -> Result {
        let fake = FakeDevice::new()?;
        let (one, two, three) = (object(&fake)?, object(&fake)?, object(&fake)?);
        let done = with_locked(
            Wait::Interruptible,
            2,
            |locking| {
                locking.lock(&one)?;
                locking.lock(&two)?;
                // Once more is nothing.
                locking.lock(&one)
            },
            |locked| {
                assert!(locked.resv(&one).is_some());
                assert!(locked.resv(&two).is_some());
                assert!(locked.resv(&three).is_none());
                assert!(one.try_reserve().is_none());
                assert!(two.try_reserve().is_none());
                // Somebody else's lock is no proof.
                let other = three.try_reserve();
                assert!(other.is_some());
                assert!(locked.resv(&three).is_none());
                7
            },
        );
        assert_eq!(done, Ok(7));
        assert!(one.try_reserve().is_some());
        assert!(two.try_reserve().is_some());
        Ok(())
    }

    #[test]
    fn what_fails_leaves_nothing_locked() -> Result {
        let fake = FakeDevice::new()?;
        let one = object(&fake)?;
        for (error, expected) in [
            (LockError::Failed(EIO), EIO),
            // Nobody contends.
            (LockError::Contended, EDEADLK),
        ] {
            let done = with_locked(
                Wait::Uninterruptible,
                1,
                |locking| {
                    locking.lock(&one)?;
                    Err(error)
                },
                |_| (),
            );
            assert_eq!(done, Err(expected));
            assert!(one.try_reserve().is_some());
        }
        Ok(())
    }

    #[test]
    fn who_came_later_backs_off_and_begins_anew() -> Result {
        let fake = FakeDevice::new()?;
        let (one, two) = (object(&fake)?, object(&fake)?);
        let meeting = Arc::pin_init(
            pin_init!(Meeting {
                begin <- Completion::new(),
                half <- Completion::new(),
                seen <- new_mutex!((0, false), "rkfd_test_meeting"),
            }),
            GFP_KERNEL,
        )?;
        let queue = OwnedQueue::new(c"rkfd_test", 1)?;
        let (its, its_one, its_two) = (meeting.clone(), one.clone(), two.clone());
        queue.try_spawn(GFP_KERNEL, move || {
            // Its ticket is the younger one.
            its.begin.wait_for_completion();
            let done = with_locked(
                Wait::Uninterruptible,
                2,
                |locking| {
                    its.seen.lock().0 += 1;
                    locking.lock(&its_two)?;
                    its.half.complete_all();
                    locking.lock(&its_one)
                },
                |locked| locked.resv(&its_one).is_some() && locked.resv(&its_two).is_some(),
            );
            its.seen.lock().1 = done == Ok(true);
        })?;
        let mut runs = 0;
        let done = with_locked(
            Wait::Uninterruptible,
            2,
            |locking| {
                runs += 1;
                locking.lock(&one)?;
                meeting.begin.complete_all();
                meeting.half.wait_for_completion();
                locking.lock(&two)
            },
            |locked| locked.resv(&one).is_some() && locked.resv(&two).is_some(),
        );
        assert_eq!(done, Ok(true));
        // The older one never backs off.
        assert_eq!(runs, 1);
        drop(queue);
        assert_eq!(*meeting.seen.lock(), (2, true));
        Ok(())
    }
}
