// SPDX-License-Identifier: GPL-2.0

//! Snapshots of a program's memory, and changes that make them worthless.

use kernel::{
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
    hmm::{
        AddressSpace,
        AddressSpaceUser,
        Change,
        Find,
        Interval,
        Memory,
        Watch, //
    },
    kunit::UserMemory, //
};

/// Counts what it is told.
struct Counts {
    settled: Atomic<i32>,
    /// Whether something is in use.
    in_use: bool,
}

/// First and last byte of the changes.
struct Seen {
    first: usize,
    last: usize,
    changes: u32,
}

impl Watch for Counts {
    type State = Seen;

    fn changes(&self, state: &mut Seen, change: &Change, may_wait: bool) -> bool {
        assert!(may_wait && !change.is_end);
        *state = Seen {
            first: change.first,
            last: change.last,
            changes: state.changes + 1,
        };
        self.in_use
    }

    fn settle(&self, state: &Mutex<Seen>, _change: &Change) {
        assert!(state.lock().changes > 0);
        self.settled.add(1, Relaxed);
    }
}

/// That of the test, which has one from its first [`UserMemory`] on.
fn user() -> Result<AddressSpaceUser> {
    AddressSpace::of_caller().ok_or(EINVAL)?.enter()
}

fn interval(
    user: &AddressSpaceUser,
    start: usize,
    pages: usize,
    in_use: bool,
) -> Result<Arc<Interval<Counts>>> {
    let counts = Counts {
        settled: Atomic::new(0),
        in_use,
    };
    let seen = Seen {
        first: 0,
        last: 0,
        changes: 0,
    };
    Interval::new(user, start..start + pages * PAGE_SIZE, counts, seen)
}

#[kunit_tests(rkfd_mirror_hmm)]
mod cases {
    use super::*;

    #[test]
    fn only_whole_pages_are_watched() -> Result {
        let memory = UserMemory::new(PAGE_SIZE)?;
        let user = user()?;
        let at = usize::try_from(memory.address())?;
        assert_eq!(interval(&user, at, 0, false).err(), Some(EINVAL));
        assert_eq!(interval(&user, at + 1, 1, false).err(), Some(EINVAL));
        assert!(interval(&user, at, 1, false).is_ok());
        Ok(())
    }

    #[test]
    fn snapshot_is_committed_until_something_changes() -> Result {
        let memory = UserMemory::new(4 * PAGE_SIZE)?;
        let user = user()?;
        let at = usize::try_from(memory.address())?;
        let interval = interval(&user, at, 4, true)?;
        let page = |number: usize| at + number * PAGE_SIZE;
        let mut snapshot = interval.snapshot(&user);
        snapshot.add(page(0)..page(1), Find::Writable)?;
        // In ascending order, inside the interval.
        assert_eq!(
            snapshot.add(page(0)..page(1), Find::Writable).err(),
            Some(EINVAL)
        );
        assert_eq!(
            snapshot.add(page(3)..page(5), Find::Writable).err(),
            Some(EINVAL)
        );
        assert_eq!(
            snapshot.add(page(2)..page(2), Find::Writable).err(),
            Some(EINVAL)
        );
        snapshot.add(page(2)..page(4), Find::Writable)?;
        let found = snapshot.segments();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].range(), page(0)..page(1));
        assert_eq!(found[1].range(), page(2)..page(4));
        assert!(found.iter().all(|segment| segment.writable));
        assert_eq!(snapshot.commit(true, |seen| Ok(seen.changes)), Ok(0));
        assert_eq!(
            snapshot.commit(true, |_| Err::<(), _>(ENOSPC)).err(),
            Some(ENOSPC)
        );
        // A page that the snapshot does not name changes: the interval is what counts.
        UserMemory::part(memory.address() + PAGE_SIZE as u64, PAGE_SIZE).unmap();
        assert_eq!(interval.watch().settled.load(Relaxed), 1);
        let mut ran = false;
        let result = snapshot.commit(true, |_| {
            ran = true;
            Ok(())
        });
        assert_eq!(result.err(), Some(EAGAIN));
        assert!(!ran);
        let state = interval.state().lock();
        assert_eq!((state.first, state.last), (page(1), page(2) - 1));
        Ok(())
    }

    #[test]
    fn what_is_not_used_is_not_settled_and_yet_invalid() -> Result {
        let memory = UserMemory::new(2 * PAGE_SIZE)?;
        let user = user()?;
        let at = usize::try_from(memory.address())?;
        let interval = interval(&user, at, 2, false)?;
        let mut snapshot = interval.snapshot(&user);
        snapshot.add(at..at + PAGE_SIZE, Find::Readable)?;
        // The change reaches beyond the interval, which learns of its part.
        memory.unmap();
        assert_eq!(interval.watch().settled.load(Relaxed), 0);
        assert_eq!(snapshot.commit(false, |_| Ok(())).err(), Some(EAGAIN));
        let mut snapshot = interval.snapshot(&user);
        let missing = snapshot.add(at..at + PAGE_SIZE, Find::Readable);
        assert_eq!(missing.err(), Some(EFAULT));
        let state = interval.state().lock();
        assert_eq!(state.changes, 1);
        assert_eq!((state.first, state.last), (at, at + 2 * PAGE_SIZE - 1));
        Ok(())
    }

    #[test]
    fn memory_is_told_by_its_rights_and_its_end() -> Result {
        let memory = UserMemory::new(4 * PAGE_SIZE)?;
        let user = user()?;
        let at = usize::try_from(memory.address())?;
        let page = |number: usize| at + number * PAGE_SIZE;
        UserMemory::part(memory.address() + PAGE_SIZE as u64, PAGE_SIZE).unmap();
        assert_eq!(
            user.memory_at(page(0)..page(4)),
            (Memory::Writable, page(1))
        );
        assert_eq!(user.memory_at(page(1)..page(4)), (Memory::None, page(2)));
        assert_eq!(
            user.memory_at(page(2)..page(3)),
            (Memory::Writable, page(3))
        );
        let readable = UserMemory::read_only(PAGE_SIZE)?;
        let at = usize::try_from(readable.address())?;
        let (memory, _) = user.memory_at(at..at + PAGE_SIZE);
        assert_eq!(memory, Memory::Readable);
        let interval = interval(&user, at, 1, false)?;
        let mut snapshot = interval.snapshot(&user);
        let refused = snapshot.add(at..at + PAGE_SIZE, Find::Writable);
        assert_eq!(refused.err(), Some(EPERM));
        snapshot.add(at..at + PAGE_SIZE, Find::Readable)?;
        assert!(snapshot.segments().iter().all(|segment| !segment.writable));
        Ok(())
    }
}
