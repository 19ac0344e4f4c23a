// SPDX-License-Identifier: GPL-2.0

//! Pages of a process that a device uses without pinning them.
//!
//! A [`UserPages`] mirrors a range of an address space. Its pages are found by faulting them in and
//! stay the process' own: they may be unmapped, moved, swapped or copied on write at any time.
//! Before that happens the [`Watcher`] is called with the addresses that change and has to keep the device off until
//! the pages were found again.
//!
//! C headers: [`include/linux/hmm.h`](srctree/include/linux/hmm.h),
//! [`include/linux/mmu_notifier.h`](srctree/include/linux/mmu_notifier.h)

use core::{
    ops::Range,
    pin::Pin, //
};

use kernel::{
    bindings,
    error::to_result,
    mm::{
        Mm,
        MmWithUser, //
    },
    new_mutex,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        Mutex, //
    },
    types::Opaque, //
};

use super::{
    pages::Pages,
    task::{
        current_mm,
        MmKey, //
    },
};

/// How often pages are looked for that change at the same time.
const MAX_ATTEMPTS: usize = 16;

/// Called before pages that are in use change.
pub(crate) trait Watcher: Send + Sync {
    /// The address space whose pages it watches.
    fn address_space(&self) -> MmKey;

    /// Whether it learns of the end of the address space by other means, before pages are freed, as by
    /// [`MmWatch`](super::task::MmWatch). If not, the end is a change of all pages as any other.
    fn learns_of_end(&self) -> bool;

    /// A thread of the process itself is about to change pages that are in use, and they still are what
    /// they were; returning late holds the change back. Runs where [`Self::invalidated`] runs, once for
    /// each range of one change, so all delays together must be bounded.
    fn before_change(&self);

    /// When this returns, the device does not access the pages at the addresses of `range` any more.
    ///
    /// Runs inside the memory manager, perhaps because memory is short: may sleep, but must not
    /// allocate, nor take a lock under which anybody allocates or takes the mmap lock.
    fn invalidated(&self, range: Range<u64>);

    /// The device has no access to pages that it is meant to have: they are to be found. When this returns, the
    /// device does without them. Not called inside the memory manager.
    fn missing(&self);
}

/// What the pages of a range are.
struct State {
    /// `None` from the moment they change until they are found again.
    pages: Option<Arc<Pages>>,
    /// Counts both changes and finds.
    version: u64,
    /// Who uses the pages; see [`UserPages::start_use`].
    users: usize,
}

/// The part that the notifier points to.
#[pin_data]
struct Inner {
    #[pin]
    notifier: Opaque<bindings::mmu_interval_notifier>,
    mm: ARef<Mm>,
    start: usize,
    count: usize,
    writable: bool,
    watcher: Arc<dyn Watcher>,
    /// Taken inside the memory manager: nothing is allocated under it.
    #[pin]
    state: Mutex<State>,
}

// SAFETY: `notifier` is only touched by the MMU notifier core, which has its own locks, and by the
// functions below, as that core asks for. All else is `Send`.
unsafe impl Send for Inner {}
// SAFETY: As above; what changes is behind a lock.
unsafe impl Sync for Inner {}

/// Pages of a process.
///
/// # Invariants
///
/// The notifier of `inner` is registered.
pub(crate) struct UserPages {
    inner: Pin<KBox<Inner>>,
}

/// The pages at one moment.
pub(crate) struct Snapshot {
    /// `None` if there is no memory, or it is changing.
    pub(crate) pages: Option<Arc<Pages>>,
    /// Names the moment.
    pub(crate) version: u64,
}

impl Inner {
    const OPS: bindings::mmu_interval_notifier_ops = bindings::mmu_interval_notifier_ops {
        invalidate: Some(Self::invalidate),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// Called by the MMU notifier core with a notifier that lies in an [`Inner`].
    unsafe extern "C" fn invalidate(
        subscription: *mut bindings::mmu_interval_notifier,
        range: *const bindings::mmu_notifier_range,
        seq: c_ulong,
    ) -> bool {
        // SAFETY: `subscription` is the field of an `Inner`, which unregisters it before it goes
        // and thereby waits for this call.
        let this =
            unsafe { &*kernel::container_of!(Opaque::cast_from(subscription), Self, notifier) };
        // SAFETY: The core lends a valid range.
        let (may_block, is_end) = unsafe {
            (
                crate::bindings::rkfd_interval_may_block(range),
                crate::bindings::rkfd_interval_is_end(range),
            )
        };
        if !may_block {
            return false;
        }
        // Until the sequence number is set, the pages count as unchanged to those who look for them.
        let in_use = this.state.lock().users != 0;
        // Reclaim and other processes are not held back: they may hold locks of everybody's.
        // SAFETY: Compares the address space with that of the current task.
        let is_own = unsafe { crate::bindings::rkfd_current_changes(this.mm.as_raw()) };
        if in_use && !is_end && is_own {
            this.watcher.before_change();
        }
        let mut state = this.state.lock();
        // SAFETY: The arguments of this call, under the lock of `is_changed`.
        unsafe { crate::bindings::rkfd_interval_set_seq(subscription, seq) };
        state.version += 1;
        let pages = state.pages.take();
        let in_use = state.users != 0;
        drop(state);
        // Outside the lock.
        drop(pages);
        // This is the watcher's address space, as `new` has checked.
        if in_use && !(is_end && this.watcher.learns_of_end()) {
            // SAFETY: The core lends a valid range.
            let (start, end) = unsafe {
                (
                    crate::bindings::rkfd_interval_start(range),
                    crate::bindings::rkfd_interval_end(range),
                )
            };
            // The core calls for ranges that share an address with this one.
            let own = this.start..this.start + (this.count << PAGE_SHIFT);
            // CAST: `usize` and `unsigned long` are at most 64 bits wide.
            this.watcher
                .invalidated(own.start.max(start) as u64..own.end.min(end) as u64);
        }
        true
    }

    /// Whether pages changed since `seq`.
    fn is_changed(&self, _locked: &State, seq: c_ulong) -> bool {
        // SAFETY: The notifier is initialised, and the lock is held that `invalidate` takes.
        unsafe { crate::bindings::rkfd_interval_changed(self.notifier.get(), seq) }
    }

    /// Faults the pages in.
    ///
    /// # Errors
    ///
    /// Those of [`UserPages::find`].
    fn fault(&self, _mm: &MmWithUser) -> Result<(KVVec<c_ulong>, c_ulong)> {
        let mut frames = KVVec::from_elem(0, self.count, GFP_KERNEL_ACCOUNT)?;
        let mut seq = 0;
        // SAFETY: The notifier is registered, `frames` has room for each page of the range, and
        // `_mm` keeps the address space.
        to_result(unsafe {
            crate::bindings::rkfd_user_fault(
                self.notifier.get(),
                self.start,
                self.start + (self.count << PAGE_SHIFT),
                if self.writable {
                    crate::bindings::RKFD_FIND_WRITABLE
                } else {
                    crate::bindings::RKFD_FIND_READABLE
                },
                frames.as_mut_ptr(),
                &mut seq,
            )
        })
        // It found the pages changed each time until its time-out.
        .map_err(|e| if e == EBUSY { EAGAIN } else { e })?;
        Ok((frames, seq))
    }
}

impl UserPages {
    /// Mirrors `count` pages of the current process from `start` on. They are not looked for yet.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: none, not page-aligned, or the caller's address space is not that of `watcher`.
    /// - `EFAULT`: the range leaves the address space.
    /// - `ENOMEM`, `EINTR`.
    pub(crate) fn new(
        start: usize,
        count: usize,
        writable: bool,
        watcher: Arc<dyn Watcher>,
    ) -> Result<Self> {
        if count == 0 || start % PAGE_SIZE != 0 {
            return Err(EINVAL);
        }
        let len = count.checked_mul(PAGE_SIZE).ok_or(EFAULT)?;
        start.checked_add(len).ok_or(EFAULT)?;
        let (user, key) = current_mm().ok_or(EINVAL)?;
        if key != watcher.address_space() {
            return Err(EINVAL);
        }
        let mm = ARef::<Mm>::from(&**user);
        let inner = KBox::pin_init(
            pin_init!(Inner {
                notifier: Opaque::zeroed(),
                mm,
                start,
                count,
                writable,
                watcher,
                state <- new_mutex!(
                    State { pages: None, version: 0, users: 0 },
                    "rkfd_user_pages"
                ),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        // SAFETY: The notifier is pinned, lives until it is unregistered in `drop`, and `user`
        // keeps the address space; the operations are static.
        let ret = unsafe {
            bindings::mmu_interval_notifier_insert(
                inner.notifier.get(),
                user.as_raw(),
                start,
                len,
                &Inner::OPS,
            )
        };
        // The only failures besides memory are ranges that wrap around.
        to_result(ret).map_err(|e| if e == EOVERFLOW { EFAULT } else { e })?;
        // INVARIANT: Registered just now.
        Ok(Self { inner })
    }

    /// Finds the pages, if they are not known.
    ///
    /// # Errors
    ///
    /// - `EFAULT`: there is no memory, or none that a device can use.
    /// - `EPERM`: it may not be accessed as asked for.
    /// - `ESRCH`: the address space has ended.
    /// - `EAGAIN`: the pages do not stop changing. libhsakmt repeats the call then.
    /// - `ENOMEM`, `EINTR`.
    pub(crate) fn find(&self) -> Result {
        let inner = &*self.inner;
        if inner.state.lock().pages.is_some() {
            return Ok(());
        }
        let mm = inner.mm.mmget_not_zero().ok_or(ESRCH)?;
        // This may become the last user, in a place where the address space cannot end.
        let mm = MmWithUser::into_mmput_async(mm);
        for _ in 0..MAX_ATTEMPTS {
            let (frames, seq) = inner.fault(&mm)?;
            let pages = Arc::new(Pages::of_user(&frames)?, GFP_KERNEL_ACCOUNT)?;
            let mut state = inner.state.lock();
            if inner.is_changed(&state, seq) {
                drop(state);
                continue;
            }
            state.version += 1;
            let old = state.pages.replace(pages);
            drop(state);
            drop(old);
            return Ok(());
        }
        Err(EAGAIN)
    }

    /// The pages as they are now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let state = self.inner.state.lock();
        Snapshot {
            pages: state.pages.clone(),
            version: state.version,
        }
    }

    /// Runs `f`, which lets a device access the pages, if they have not changed since `version`; they do not
    /// change meanwhile. Pages that the device may write are marked dirty: its writes set no dirty bit in the
    /// page tables of the process, and a page that is clean there (after MADV_FREE, shared memory or swapped-in
    /// memory that was only read) would be discarded by reclaim with what the device wrote. Whoever cleans a page
    /// invalidates it first, so one mark per commit is enough.
    ///
    /// `f` must not allocate.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if they have, and those of `f`.
    pub(crate) fn commit<R>(&self, version: u64, f: impl FnOnce() -> Result<R>) -> Result<R> {
        let inner = &*self.inner;
        let state = inner.state.lock();
        if state.version != version {
            return Err(EAGAIN);
        }
        if let (true, Some(pages)) = (inner.writable, &state.pages) {
            // SAFETY: These are the pages of `version`: `find` saw them mapped, and `invalidate`, which comes
            // before any of them is unmapped, waits for the lock.
            unsafe { pages.mark_dirty() };
        }
        let result = f();
        drop(state);
        result
    }

    /// Names the moment, as [`Snapshot::version`] does.
    pub(crate) fn version(&self) -> u64 {
        self.inner.state.lock().version
    }

    /// Has the watcher find the pages.
    pub(crate) fn tell_missing(&self) {
        self.inner.watcher.missing();
    }

    /// From now on changes are reported to the watcher.
    pub(crate) fn start_use(&self) {
        self.inner.state.lock().users += 1;
    }

    /// Takes one [`Self::start_use`] back.
    pub(crate) fn end_use(&self) {
        self.inner.state.lock().users -= 1;
    }
}

impl Drop for UserPages {
    fn drop(&mut self) {
        // SAFETY: By the type invariant it is registered. No lock is held that `invalidate` takes:
        // `state` is only held inside this module and in `commit`, which borrows `self`.
        unsafe { bindings::mmu_interval_notifier_remove(self.inner.notifier.get()) };
    }
}
