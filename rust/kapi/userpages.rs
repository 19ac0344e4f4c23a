// SPDX-License-Identifier: GPL-2.0

//! Pages of a process that a device uses without pinning them.
//!
//! A [`UserPages`] mirrors a range of an address space. Its pages are found by faulting them in and
//! stay the process' own: they may be unmapped, moved, swapped or copied on write at any time.
//! Before that happens the [`Watcher`] is called with the addresses that change and has to keep the device off until
//! the pages were found again.
//!
//! Pages are found, and change, by *window*: what the range has of [`WINDOW`] bytes, from a multiple of that on, so that a
//! large page of the process lies in one. What changes elsewhere does not concern a window, and is not looked for again.
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

/// Bytes of a window.
pub(crate) const WINDOW: usize = 2 << 20;

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
    /// allocate, nor take a lock under which memory is allocated or the mmap lock taken.
    fn invalidated(&self, range: Range<u64>);

    /// The device has no access to pages that it is meant to have: they are to be found. When this returns, the
    /// device does without them. Not called inside the memory manager.
    fn missing(&self);
}

/// What the pages of a window are.
struct Window {
    /// Those that were found last. They are not given up inside the memory manager.
    pages: Option<Arc<Pages>>,
    /// They have not changed since.
    is_current: bool,
    /// They were marked as changed by the device since.
    is_marked: bool,
    /// That of the range when they changed, or were found, last.
    version: u64,
}

/// What the pages of a range are.
struct State {
    windows: KVVec<Window>,
    /// Counts both changes and finds.
    version: u64,
    /// How many pages were found, over all finds.
    found: u64,
    /// How many users the pages have; see [`UserPages::start_use`].
    users: usize,
}

impl State {
    /// Notes that pages of windows change.
    fn note_change(&mut self, windows: Range<usize>) {
        self.version += 1;
        for window in self.windows.get_mut(windows).into_iter().flatten() {
            window.is_current = false;
            window.version = self.version;
        }
    }

    /// Marks the pages that are known as changed by the device, unless they are.
    fn mark_dirty(&mut self) {
        for window in self.windows.iter_mut() {
            if !window.is_current || window.is_marked {
                continue;
            }
            if let Some(pages) = &window.pages {
                // SAFETY: These pages are current: `find` saw them mapped, and `invalidate`, which comes before any of
                // them is unmapped, waits for the lock that this state is under.
                unsafe { pages.mark_dirty() };
            }
            window.is_marked = true;
        }
    }
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
// SAFETY: The MMU notifier core and the functions below synchronise their use of `notifier`; `state`
// is behind a lock; all else does not change and is `Sync`.
unsafe impl Sync for Inner {}

/// Pages of a process.
///
/// # Invariants
///
/// The notifier of `inner` is registered.
pub(crate) struct UserPages {
    inner: Pin<KBox<Inner>>,
}

/// The pages of a window at one moment.
pub(crate) struct Snapshot {
    /// `None` if there is no memory, or it is changing.
    pub(crate) pages: Option<Arc<Pages>>,
    /// Names what they are: no other pages of the range have had, or will have, this number.
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
        // Until the sequence number is set, the pages count as unchanged where they are looked for.
        let in_use = this.state.lock().users != 0;
        // Reclaim and other processes are not held back: they may hold locks that all processes share.
        // SAFETY: Compares the address space with that of the current task.
        let is_own = unsafe { crate::bindings::rkfd_current_changes(this.mm.as_raw()) };
        if in_use && !is_end && is_own {
            this.watcher.before_change();
        }
        // SAFETY: The core lends a valid range.
        let (start, end) = unsafe {
            (
                crate::bindings::rkfd_interval_start(range),
                crate::bindings::rkfd_interval_end(range),
            )
        };
        // The core calls for ranges that share an address with this one.
        let own = this.start..this.end();
        let change = own.start.max(start)..own.end.min(end);
        let mut state = this.state.lock();
        // SAFETY: The arguments of this call, under the lock that a find takes before it notes what it found.
        unsafe { crate::bindings::rkfd_interval_set_seq(subscription, seq) };
        state.note_change(this.windows_of(&change));
        let in_use = state.users != 0;
        drop(state);
        // This is the watcher's address space, as `new` has checked.
        if in_use && !(is_end && this.watcher.learns_of_end()) {
            // CAST: `usize` and `unsigned long` are at most 64 bits wide.
            this.watcher
                .invalidated(change.start as u64..change.end as u64);
        }
        true
    }

    /// First address behind the range.
    fn end(&self) -> usize {
        self.start + (self.count << PAGE_SHIFT)
    }

    /// From where the windows count.
    fn base(&self) -> usize {
        self.start & !(WINDOW - 1)
    }

    /// The windows that share an address with `change`, a part of the range.
    fn windows_of(&self, change: &Range<usize>) -> Range<usize> {
        let index = |at: usize| at.saturating_sub(self.base()) / WINDOW;
        // The last address, also where the core names no whole pages.
        index(change.start)..index(change.end.saturating_sub(1).max(change.start)) + 1
    }

    /// The addresses of window `index`.
    fn window(&self, index: usize) -> Range<usize> {
        let start = self.base().saturating_add(index.saturating_mul(WINDOW));
        self.start.max(start)..self.end().min(start.saturating_add(WINDOW))
    }

    /// The first window from `index` on whose pages are not known.
    fn next_unknown(&self, index: usize) -> Option<usize> {
        let state = self.state.lock();
        let mut rest = state.windows.get(index..)?.iter();
        rest.position(|window| !window.is_current)
            .map(|more| index + more)
    }

    /// Faults the pages of `range` in, which is a window.
    ///
    /// # Errors
    ///
    /// Those of [`UserPages::find`].
    fn fault(&self, _mm: &MmWithUser, range: &Range<usize>) -> Result<KVVec<c_ulong>> {
        let count = (range.end - range.start) >> PAGE_SHIFT;
        let mut frames = KVVec::from_elem(0, count, GFP_KERNEL_ACCOUNT)?;
        let mut seq = 0;
        // SAFETY: The notifier is registered, `frames` has room for each page of the range, and
        // `_mm` keeps the address space.
        to_result(unsafe {
            crate::bindings::rkfd_user_fault(
                self.notifier.get(),
                range.start,
                range.end,
                if self.writable {
                    crate::bindings::RKFD_FIND_WRITABLE
                } else {
                    crate::bindings::RKFD_FIND_READABLE
                },
                core::ptr::null_mut(),
                frames.as_mut_ptr(),
                &mut seq,
            )
        })
        // It found the pages changed each time until its time-out.
        .map_err(|e| if e == EBUSY { EAGAIN } else { e })?;
        Ok(frames)
    }

    /// Finds the pages of window `index`, if they are not known.
    ///
    /// # Errors
    ///
    /// Those of [`UserPages::find`].
    fn find_window(&self, mm: &MmWithUser, index: usize) -> Result {
        let range = self.window(index);
        for _ in 0..MAX_ATTEMPTS {
            let before = {
                let state = self.state.lock();
                let window = state.windows.get(index).ok_or(EINVAL)?;
                if window.is_current {
                    return Ok(());
                }
                window.version
            };
            // A change that has begun before `before` was read is waited for in here, whatever it concerns. One that begins
            // later counts the version of its windows up first. So the sequence number, which counts changes of the whole
            // range, need not be the same as before.
            let frames = self.fault(mm, &range)?;
            let pages = Arc::new(Pages::of_user(&frames)?, GFP_KERNEL_ACCOUNT)?;
            let mut state = self.state.lock();
            let State {
                windows,
                version,
                found,
                ..
            } = &mut *state;
            let window = windows.get_mut(index).ok_or(EINVAL)?;
            if window.version != before {
                continue;
            }
            *version += 1;
            // CAST: `usize` is at most 64 bits wide.
            *found += pages.len() as u64;
            let new = Window {
                pages: Some(pages),
                is_current: true,
                is_marked: false,
                version: *version,
            };
            let old = core::mem::replace(window, new);
            drop(state);
            drop(old);
            return Ok(());
        }
        Err(EAGAIN)
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
        // From the window of the first byte to that of the last.
        let window_count = (start % WINDOW).saturating_add(len).div_ceil(WINDOW);
        let mut windows = KVVec::with_capacity(window_count, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..window_count {
            let window = Window {
                pages: None,
                is_current: false,
                is_marked: false,
                version: 0,
            };
            windows.push(window, GFP_KERNEL_ACCOUNT)?;
        }
        let inner = KBox::pin_init(
            pin_init!(Inner {
                notifier: Opaque::zeroed(),
                mm,
                start,
                count,
                writable,
                watcher,
                state <- new_mutex!(
                    State { windows, version: 0, found: 0, users: 0 },
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

    /// Finds the pages of the windows in which they are not known. A window in which some cannot be found has none; the
    /// others are looked for nevertheless.
    ///
    /// # Errors
    ///
    /// - `EFAULT`: there is no memory, or none that a device can use, in some window.
    /// - `EPERM`: it may not be accessed as asked for, in some window.
    /// - `ESRCH`: the address space has ended.
    /// - `EAGAIN`: the pages do not stop changing. libhsakmt repeats the call then.
    /// - `ENOMEM`, `EINTR`.
    pub(crate) fn find(&self) -> Result {
        let inner = &*self.inner;
        let Some(mut next) = inner.next_unknown(0) else {
            return Ok(());
        };
        let mm = inner.mm.mmget_not_zero().ok_or(ESRCH)?;
        // This may become the last user, in a place where the address space cannot end.
        let mm = MmWithUser::into_mmput_async(mm);
        let mut result = Ok(());
        loop {
            match inner.find_window(&mm, next) {
                Err(error) if error == EFAULT || error == EPERM => result = result.and(Err(error)),
                found => found?,
            }
            match inner.next_unknown(next + 1) {
                Some(index) => next = index,
                None => return result,
            }
        }
    }

    /// How many pages were looked for with success until now, those that were found again included.
    #[cfg_attr(not(rkfd_kunit), expect(dead_code, reason = "seen by tests"))]
    pub(crate) fn found(&self) -> u64 {
        self.inner.state.lock().found
    }

    /// The bytes of the range that window `index` has; `None` if there is no such window.
    pub(crate) fn window(&self, index: usize) -> Option<Range<usize>> {
        let inner = &*self.inner;
        let window = inner.window(index);
        (window.start < window.end).then(|| window.start - inner.start..window.end - inner.start)
    }

    /// The pages of window `index` as they are now; none if there is no such window.
    pub(crate) fn snapshot(&self, index: usize) -> Snapshot {
        let state = self.inner.state.lock();
        let window = state.windows.get(index);
        Snapshot {
            pages: window
                .filter(|window| window.is_current)
                .and_then(|window| window.pages.clone()),
            version: window.map_or(0, |window| window.version),
        }
    }

    /// Runs `f`, which lets a device access the pages, if none have changed since [`Self::version`] was `version`; they do
    /// not change meanwhile. Pages that the device may write are marked dirty: its writes set no dirty bit in the
    /// page tables of the process, and a page that is clean there (after MADV_FREE, shared memory or swapped-in
    /// memory that was only read) would be discarded by reclaim with what the device wrote. Cleaning a page
    /// invalidates it first, so one mark is enough until pages are found again.
    ///
    /// `f` must not allocate.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if they have, and those of `f`.
    pub(crate) fn commit<R>(&self, version: u64, f: impl FnOnce() -> Result<R>) -> Result<R> {
        let inner = &*self.inner;
        let mut state = inner.state.lock();
        if state.version != version {
            return Err(EAGAIN);
        }
        if inner.writable {
            state.mark_dirty();
        }
        let result = f();
        drop(state);
        result
    }

    /// Names the moment: another number after each change of pages of the range, and after each find.
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
