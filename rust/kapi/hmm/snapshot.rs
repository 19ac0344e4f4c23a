// SPDX-License-Identifier: GPL-2.0

//! Pages of a program at one moment. Tested by `rkfd_mirror_hmm` and, where pages are in VRAM, by
//! `rkfd_mirror_migrate_live`.

use core::ops::Range;

use kernel::{
    error::to_result,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sizes::SZ_64K,
    sync::Arc, //
};

use super::{
    AddressSpaceUser,
    Find,
    Interval,
    Watch, //
};
use crate::kapi::{
    devmem::Hold,
    migrate::Run,
    pages::Pages, //
};

/// How many pages the program has of a range, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// In the system, but for pages that were read and never written.
    pub(crate) system: usize,
    /// Of the device.
    pub(crate) device: usize,
}

/// Where the pages of a [`Segment`] are. They are the program's: see [`Snapshot::commit`].
pub(crate) enum Found {
    /// In the system.
    System(Arc<Pages>),
    /// Of the device: runs of pages that lie side by side there, in the order of the segment.
    Device(KVVec<Run>),
}

/// Pages that follow each other and may be used alike.
pub(crate) struct Segment {
    /// First byte.
    pub(crate) start: usize,
    /// The pages.
    pub(crate) found: Found,
    /// A device may write them.
    pub(crate) writable: bool,
}

#[cfg(rkfd_kunit)]
impl Segment {
    /// Addresses.
    pub(crate) fn range(&self) -> Range<usize> {
        let pages = match &self.found {
            Found::System(pages) => pages.len(),
            Found::Device(runs) => runs.iter().map(|run| run.count).sum(),
        };
        self.start..self.start + (pages << PAGE_SHIFT)
    }
}

/// What a page is that a program has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    /// The program may write it as it is.
    writable: bool,
    /// Its number among the pages of the device, if it is one of those.
    number: Option<usize>,
}

impl Kind {
    /// Whether both can be of one [`Segment`].
    fn is_like(self, other: Self) -> bool {
        self.writable == other.writable && self.number.is_some() == other.number.is_some()
    }
}

/// What pages of an [`Interval`] were at one moment.
pub(crate) struct Snapshot<'i, W: Watch> {
    interval: &'i Arc<Interval<W>>,
    /// Whose pages are left where they are.
    device: Option<Hold>,
    _user: &'i AddressSpaceUser,
    /// The moment; `None` before the first pages.
    seq: Option<c_ulong>,
    segments: KVVec<Segment>,
    /// First address above what was looked for.
    end: usize,
}

/// How often pages are looked for one after the other, of which some are to be faulted in and others are not.
const MAX_LOOKS: usize = 4;
/// Bytes, from a multiple of it on, that are faulted in at a time where a device has pages: what moves to the device meanwhile
/// comes back with them.
const AT_ONCE: usize = SZ_64K;

impl<W: Watch> Interval<W> {
    /// Looks for the pages of `range` as [`Snapshot::add`] does with [`Find::Present`], only to know how many there are.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: not whole pages of the interval, or none.
    /// - `EAGAIN`: the pages do not stop changing.
    /// - `ENOMEM`, `EINTR`.
    pub(crate) fn look(
        self: &Arc<Self>,
        user: &AddressSpaceUser,
        range: Range<usize>,
        device: Option<Hold>,
    ) -> Result<Seen> {
        self.snapshot(user).with_device(device).count(range)
    }

    /// Begins a snapshot of parts of the range.
    pub(crate) fn snapshot<'i>(self: &'i Arc<Self>, user: &'i AddressSpaceUser) -> Snapshot<'i, W> {
        Snapshot::new(self, user)
    }
}

impl<'i, W: Watch> Snapshot<'i, W> {
    /// Without pages.
    pub(super) fn new(interval: &'i Arc<Interval<W>>, user: &'i AddressSpaceUser) -> Self {
        Self {
            interval,
            device: None,
            _user: user,
            seq: None,
            segments: KVVec::new(),
            end: 0,
        }
    }

    /// Pages of `device` are found as they are. Before the first pages are added.
    pub(crate) fn with_device(mut self, device: Option<Hold>) -> Self {
        self.device = device;
        self
    }

    /// Adds pages of `range`, as `find` says: those that are not there are faulted in, which waits for whatever serves
    /// the faults, or left out.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: not whole pages of the interval, or below what was added before.
    /// - `EFAULT`: somewhere there is no memory, or none that a device can use.
    /// - `EPERM`: somewhere it may not be written.
    /// - `EAGAIN`: the pages change; the snapshot is of no use any more.
    /// - `ENOMEM`, `EINTR`.
    pub(crate) fn add(&mut self, range: Range<usize>, find: Find) -> Result {
        let frames = self.find(&range, find)?;
        self.add_found(range, &frames)
    }

    /// Adds the pages of `range` that are there, of those in the system only what lies in `system`.
    ///
    /// # Errors
    ///
    /// As [`Self::add`].
    pub(crate) fn add_of_device(&mut self, range: Range<usize>, system: &Range<usize>) -> Result {
        let mut frames = self.find(&range, Find::Present)?;
        let mut at = range.start;
        for frame in &mut frames {
            let is_of_device = self.kind(*frame).is_some_and(|kind| kind.number.is_some());
            if !is_of_device && !system.contains(&at) {
                // As where there is no page.
                *frame = 0;
            }
            at += PAGE_SIZE;
        }
        self.add_found(range, &frames)
    }

    fn add_found(&mut self, range: Range<usize>, frames: &[c_ulong]) -> Result {
        let mut start = range.start;
        let device = self.device.as_ref();
        let kind = |frame: &c_ulong| kind_of(device, *frame);
        let is_like = |a: &c_ulong, b: &c_ulong| match (kind(a), kind(b)) {
            (Some(a), Some(b)) => a.is_like(b),
            (None, None) => true,
            _ => false,
        };
        for same in frames.chunk_by(is_like) {
            let end = start + (same.len() << PAGE_SHIFT);
            if let Some(kind) = same.first().and_then(kind) {
                let found = match kind.number {
                    Some(_) => Found::Device(runs_of(device, same)?),
                    None => Found::System(Arc::new(Pages::of_user(same)?, GFP_KERNEL_ACCOUNT)?),
                };
                let segment = Segment {
                    start,
                    found,
                    writable: kind.writable,
                };
                self.segments.push(segment, GFP_KERNEL_ACCOUNT)?;
            }
            start = end;
        }
        // What is left out must not be added later.
        self.end = range.end;
        Ok(())
    }

    /// Counts the pages of `range` that are there. The snapshot is of no use afterwards.
    pub(super) fn count(mut self, range: Range<usize>) -> Result<Seen> {
        let mut seen = Seen::default();
        for frame in self.find(&range, Find::Present)? {
            match self.kind(frame) {
                None => {}
                Some(kind) if kind.number.is_some() => seen.device += 1,
                // SAFETY: Arithmetic on the number of a frame.
                Some(_) if unsafe { crate::bindings::rkfd_frame_is_zero(frame) } => {}
                Some(_) => seen.system += 1,
            }
        }
        Ok(seen)
    }

    /// Faults pages of `range` in, as [`Self::add`] does, and adds none: a later [`Self::add`] finds them.
    ///
    /// # Errors
    ///
    /// As [`Self::add`].
    pub(crate) fn touch(&mut self, range: Range<usize>, find: Find) -> Result {
        self.find(&range, find).map(drop)
    }

    /// What a frame stands for; `None` if the program has no page there.
    fn kind(&self, frame: c_ulong) -> Option<Kind> {
        kind_of(self.device.as_ref(), frame)
    }

    /// The frames of `range`, of the same moment as all before.
    fn find(&mut self, range: &Range<usize>, find: Find) -> Result<KVVec<c_ulong>> {
        let inner = &*self.interval.inner;
        if range.is_empty()
            || range.start % PAGE_SIZE != 0
            || range.end % PAGE_SIZE != 0
            || range.start < inner.range.start.max(self.end)
            || range.end > inner.range.end
        {
            return Err(EINVAL);
        }
        for _ in 0..MAX_LOOKS {
            let (frames, seq) = self.look(range, find)?;
            let Some(frames) = frames else { continue };
            if *self.seq.get_or_insert(seq) != seq {
                return Err(EAGAIN);
            }
            return Ok(frames);
        }
        Err(EAGAIN)
    }

    /// Looks once: the frames of `range` and their moment; none if some had to be faulted in that another look will find.
    fn look(&self, range: &Range<usize>, find: Find) -> Result<(Option<KVVec<c_ulong>>, c_ulong)> {
        let Some(device) = self.device.as_ref().filter(|_| find != Find::Present) else {
            let (frames, seq) = self.request(range, find, self.device.as_ref())?;
            return Ok((Some(frames), seq));
        };
        let (frames, seq) = self.request(range, Find::Present, Some(device))?;
        if !frames.iter().any(|frame| lacks(self.kind(*frame), find)) {
            return Ok((Some(frames), seq));
        }
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min((at / AT_ONCE + 1) * AT_ONCE);
            self.bring_in(&(at..end), find, device)?;
            at = end;
        }
        Ok((None, seq))
    }

    /// Has pages of `range` faulted in that are missing, or may not be written and have to be. Those of `device` stay: a
    /// request has all pages faulted in from the first that is missing on, so each run of missing pages is one.
    fn bring_in(&self, range: &Range<usize>, find: Find, device: &Hold) -> Result {
        // Some may have come, or have moved, since all were looked at.
        let (frames, _) = self.request(range, Find::Present, Some(device))?;
        let what = |frame: &c_ulong| {
            let kind = self.kind(*frame);
            let is_of_device = kind.is_some_and(|kind| kind.number.is_some());
            (lacks(kind, find), is_of_device)
        };
        let mut start = range.start;
        for run in frames.chunk_by(|a, b| what(a) == what(b)) {
            let end = start + (run.len() << PAGE_SHIFT);
            match run.first().map(what) {
                // Shared with another program, as long as none of them writes it.
                Some((true, true)) => drop(self.request(&(start..end), find, None)?),
                Some((true, false)) => drop(self.request(&(start..end), find, Some(device))?),
                _ => {}
            }
            start = end;
        }
        Ok(())
    }

    /// Has the memory manager find the frames of `range`, with those of `device` as they are; and their moment.
    fn request(
        &self,
        range: &Range<usize>,
        find: Find,
        device: Option<&Hold>,
    ) -> Result<(KVVec<c_ulong>, c_ulong)> {
        let inner = &*self.interval.inner;
        let owner = device.map_or(core::ptr::null_mut(), Hold::owner);
        let count = (range.end - range.start) >> PAGE_SHIFT;
        // Zeroes: some bits of what is found are those that were there.
        let mut frames = KVVec::from_elem(0, count, GFP_KERNEL_ACCOUNT)?;
        let mut seq = 0;
        let request = match find {
            Find::Present => crate::bindings::RKFD_FIND_PRESENT,
            Find::Readable => crate::bindings::RKFD_FIND_READABLE,
            Find::Writable => crate::bindings::RKFD_FIND_WRITABLE,
        };
        // SAFETY: The notifier is registered and covers the range, `frames` has room for each page of it, and `_user`
        // keeps the address space.
        let found = to_result(unsafe {
            crate::bindings::rkfd_user_fault(
                inner.notifier.get(),
                range.start,
                range.end,
                request,
                owner,
                frames.as_mut_ptr(),
                &raw mut seq,
            )
        });
        // It found the pages changed each time until its time-out.
        found.map_err(|e| if e == EBUSY { EAGAIN } else { e })?;
        Ok((frames, seq))
    }

    /// What was found, in ascending order.
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Runs `f` under the update lock, if nothing has changed since the snapshot; nothing changes meanwhile. `f` lets
    /// the device use the pages: if `written`, it may write those that are writable, and they are marked dirty. (Its writes set
    /// no dirty bit in the page tables of the program. Cleaning a page announces a change first, so one mark
    /// per commit is enough.)
    ///
    /// `f` must not allocate.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if something has changed, and those of `f`.
    pub(crate) fn commit<R>(
        &self,
        written: bool,
        f: impl FnOnce(&mut W::State) -> Result<R>,
    ) -> Result<R> {
        let mut state = self.interval.inner.state.lock();
        if let Some(seq) = self.seq {
            if !self.interval.is_current(&state, seq) {
                return Err(EAGAIN);
            }
        }
        for segment in self.segments.iter().filter(|part| written && part.writable) {
            // A page of a device is marked when it comes back to the system.
            if let Found::System(pages) = &segment.found {
                // SAFETY: The pages were mapped at the moment of the snapshot, and `invalidate`, which comes before any
                // of them is unmapped, waits for the lock that is held.
                unsafe { pages.mark_dirty() };
            }
        }
        f(&mut state)
    }
}

/// Whether the program may write a page as it is; `None` if it has none there.
fn rights(frame: c_ulong) -> Option<bool> {
    // SAFETY: Arithmetic.
    let (present, writable) = unsafe {
        (
            crate::bindings::rkfd_frame_is_present(frame),
            crate::bindings::rkfd_frame_is_writable(frame),
        )
    };
    present.then_some(writable)
}

/// What a frame stands for, where `device` tells its own pages; `None` if the program has no page there.
fn kind_of(device: Option<&Hold>, frame: c_ulong) -> Option<Kind> {
    let writable = rights(frame)?;
    // SAFETY: Arithmetic.
    let at = unsafe { crate::bindings::rkfd_frame_number(frame) };
    let number = device.and_then(|device| device.number(at));
    Some(Kind { writable, number })
}

/// The pages of the device that `frames`, which are all of it, stand for.
fn runs_of(device: Option<&Hold>, frames: &[c_ulong]) -> Result<KVVec<Run>> {
    let mut runs: KVVec<Run> = KVVec::new();
    for (page, frame) in frames.iter().enumerate() {
        let number = kind_of(device, *frame).and_then(|kind| kind.number);
        let number = number.ok_or(EIO)?;
        match runs.last_mut() {
            Some(last) if last.number + last.count == number => last.count += 1,
            _ => runs.push(
                Run {
                    number,
                    page,
                    count: 1,
                },
                GFP_KERNEL_ACCOUNT,
            )?,
        }
    }
    Ok(runs)
}

/// Whether a page is missing, as far as `find` goes.
fn lacks(kind: Option<Kind>, find: Find) -> bool {
    match kind {
        None => true,
        Some(kind) => find == Find::Writable && !kind.writable,
    }
}
