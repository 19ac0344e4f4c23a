// SPDX-License-Identifier: GPL-2.0

//! The pages that stand for a GPU's VRAM, from the first one that moves in to the end of the GPU.
//!
//! There are none before memory of a program is to move in. From then on the end of the GPU, its reset and its sleep come
//! after all pages have come back to the system: while the VRAM is there, for what is there is the only copy. That needs
//! neither the program, which may be stopped, nor its parent, which may have ended. [`super::back`] moves them; here is which
//! pages there are, and whether more may come.
//!
//! Moves to VRAM are counted ([`Population`]): before pages come back for good, none is under way and none begins.
//!
//! Locks: [`DevicePages::state`] is held while the pages are made. It is taken with no other lock held, and by no CPU fault.

use core::fmt::{
    self,
    Write, //
};

use kernel::{
    device::Device,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            AtomicFlag,
            Full,
            Release, //
        },
        Arc,
        Mutex, //
    },
    time::msecs_to_jiffies, //
};

use super::witness::Witnesses;
use crate::{
    gpu::account::{
        self,
        Charge, //
    },
    kapi::{
        devmem::{
            CpuFault,
            Hold,
            KeeperHandle,
            Pagemap,
            Room,
            Vacancy,
            FRAME,
            PAGES, //
        },
        waitqueue::{
            new_waitqueue,
            Sleep,
            WaitQueue,
            Woken, //
        },
    },
};

/// Bytes of the kernel's description of a page.
const STRUCT_PAGE: u64 = 64;
/// Pause between two messages about memory that moves in.
const PATIENCE_MS: u32 = 10_000;
/// So long the first page waits for walks of page tables that do not know pages of the GPU yet.
const BLIND_MS: u32 = 100;

/// What brings pages back that the CPU touches, until its end.
pub(crate) trait BringBack: CpuFault {
    /// The VRAM is out of reach: what is left there is lost.
    fn end(&self);
}

/// The pages, and what brings them back.
pub(super) struct Ready {
    pagemap: Pagemap,
    faults: Arc<dyn BringBack>,
    /// For the kernel's descriptions of the pages.
    _charge: Charge,
}

impl Drop for Ready {
    fn drop(&mut self) {
        // What is left is out of reach; the pagemap is closed after this.
        self.faults.end();
    }
}

/// Whether there are pages.
enum State {
    /// None was needed yet.
    Unused,
    Ready(Arc<Ready>),
    /// There can be none.
    Refused,
    /// The GPU has ended.
    Over,
}

/// The pages of a GPU.
#[pin_data]
pub(crate) struct DevicePages {
    keeper: KeeperHandle,
    #[pin]
    state: Mutex<State>,
    /// Moves to VRAM that are under way.
    moves: Atomic<i32>,
    /// None may begin.
    closed: AtomicFlag,
    /// Walks of page tables that know no owner of pages of the GPU.
    ownerless: Atomic<i32>,
    #[pin]
    left: WaitQueue,
    /// The VRAM has lost what it held.
    lost: AtomicFlag,
    /// Who is told when pages of a program move because the CPU touches them.
    #[pin]
    witnesses: Witnesses,
}

/// A move to VRAM that is under way.
struct Move<'a>(&'a DevicePages);

impl<'a> Move<'a> {
    /// # Errors
    ///
    /// `ENODEV`: the GPU sleeps, or ends.
    fn begin(pages: &'a DevicePages) -> Result<Self> {
        pages.moves.fetch_add(1, Full);
        let this = Self(pages);
        // Closing looks at the number after it has set the flag: one of the two sees the other.
        if pages.closed.load(Acquire) {
            return Err(ENODEV);
        }
        Ok(this)
    }
}

impl Drop for Move<'_> {
    fn drop(&mut self) {
        self.0.moves.fetch_sub(1, Full);
        self.0.left.wake_all();
    }
}

/// A walk of page tables that takes pages of the GPU for those of another device, and brings them back where it faults memory
/// in.
pub(crate) struct Ownerless<'a>(&'a DevicePages);

impl Drop for Ownerless<'_> {
    fn drop(&mut self) {
        self.0.ownerless.fetch_sub(1, Full);
        self.0.left.wake_all();
    }
}

/// The owner by which a walk of page tables knows the pages of a GPU.
pub(crate) enum PageOwner<'a> {
    /// It is that of these pages.
    Known(Hold),
    /// There are none, and as long as this is held the first ones wait a while.
    None(#[expect(dead_code, reason = "held, not read")] Ownerless<'a>),
}

/// Pages may move in as long as this lives, for which the end of the GPU and its sleep wait: user space is not waited for
/// meanwhile.
pub(crate) struct Population<'a> {
    ready: Arc<Ready>,
    _move: Move<'a>,
}

impl Population<'_> {
    /// As [`Pagemap::vacancy`].
    ///
    /// # Errors
    ///
    /// As there.
    pub(crate) fn vacancy(&self, frame: usize, room: KBox<dyn Room>) -> Result<Vacancy> {
        self.ready.pagemap.vacancy(frame, room)
    }

    /// As [`Pagemap::reopen`].
    pub(crate) fn reopen(&self, frame: usize, serial: u64) -> Option<Vacancy> {
        self.ready.pagemap.reopen(frame, serial)
    }
}

impl Ready {
    /// Pages for all of a VRAM of `size` bytes, in whole frames.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EOPNOTSUPP`: the kernel has no such pages, or the machine no room for them.
    pub(super) fn new<R: BringBack + 'static>(
        dev: &Device,
        size: u64,
        keeper: &KeeperHandle,
        faults: Arc<R>,
    ) -> Result<Self> {
        let frames = usize::try_from(size)? / FRAME;
        // CAST: `usize` is at most 64 bits wide.
        let bytes = (frames * PAGES) as u64 * STRUCT_PAGE;
        let charge = account::system().all.charge_module(bytes)?;
        let pagemap = match Pagemap::new(keeper, frames, faults.clone()) {
            Err(e) if e != ENOMEM => {
                if e != EOPNOTSUPP {
                    dev_warn!(dev, "no addresses for pages in VRAM: {:?}\n", e);
                }
                return Err(EOPNOTSUPP);
            }
            pagemap => pagemap?,
        };
        let range = pagemap.range();
        dev_info!(
            dev,
            "memory of programs can move to VRAM: pages at {:#x}-{:#x}, {} KiB for their descriptions\n",
            range.start,
            range.end - 1,
            bytes >> 10
        );
        Ok(Self {
            pagemap,
            faults,
            _charge: charge,
        })
    }
}

impl DevicePages {
    /// None yet, of a GPU whose pages end where `keeper` waits for them.
    pub(in crate::gpu) fn new(keeper: KeeperHandle) -> impl PinInit<Self> {
        pin_init!(Self {
            keeper,
            state <- new_mutex!(State::Unused, "rkfd_device_pages"),
            moves: Atomic::new(0),
            closed: AtomicFlag::new(false),
            ownerless: Atomic::new(0),
            left <- new_waitqueue!("rkfd_device_pages"),
            lost: AtomicFlag::new(false),
            witnesses <- Witnesses::new(),
        })
    }

    /// Who is told when pages of a program move because the CPU touches them.
    pub(crate) fn witnesses(&self) -> &Witnesses {
        &self.witnesses
    }

    /// Whether memory of programs can move in, as far as is known before it is tried.
    pub(crate) fn may_populate(&self) -> bool {
        Pagemap::exists() && !matches!(*self.state.lock(), State::Refused | State::Over)
    }

    /// From now on pages may move in, the first time those that `make` makes.
    ///
    /// # Errors
    ///
    /// - `ENODEV`: the GPU sleeps, or has ended.
    /// - `EOPNOTSUPP`: the kernel or the machine does not allow it.
    /// - `ENOMEM`.
    pub(super) fn populate(
        &self,
        make: impl FnOnce(&KeeperHandle) -> Result<Ready>,
    ) -> Result<Population<'_>> {
        let this_move = Move::begin(self)?;
        if self.is_lost() {
            return Err(ENODEV);
        }
        let mut is_new = false;
        let mut state = self.state.lock();
        let ready = match &*state {
            State::Ready(ready) => Ok(ready.clone()),
            State::Refused => Err(EOPNOTSUPP),
            State::Over => Err(ENODEV),
            State::Unused => match make(&self.keeper) {
                Ok(ready) => {
                    let ready = Arc::new(ready, GFP_KERNEL)?;
                    *state = State::Ready(ready.clone());
                    is_new = true;
                    Ok(ready)
                }
                Err(e) => {
                    if e == EOPNOTSUPP {
                        *state = State::Refused;
                    }
                    Err(e)
                }
            },
        };
        drop(state);
        if is_new {
            // A walk that waits for user space is not waited for without bound; it may bring a page back that has just gone in.
            let all_know = || self.ownerless.load(Acquire) == 0;
            self.left
                .wait(Sleep::Uninterruptible, msecs_to_jiffies(BLIND_MS), all_know);
        }
        Ok(Population {
            ready: ready?,
            _move: this_move,
        })
    }

    fn known(&self) -> Option<Arc<Ready>> {
        match &*self.state.lock() {
            State::Ready(ready) => Some(ready.clone()),
            _ => None,
        }
    }

    /// By which pages of the GPU are told from others; `None` if there are none.
    pub(crate) fn hold(&self) -> Option<Hold> {
        self.known()?.pagemap.hold()
    }

    /// The owner for a walk of page tables. To be held as long as memory is faulted in.
    pub(crate) fn owner(&self) -> PageOwner<'_> {
        self.ownerless.fetch_add(1, Full);
        // Counted before the look: of this and the making of the first pages, one sees the other.
        let walk = Ownerless(self);
        match self.hold() {
            Some(hold) => PageOwner::Known(hold),
            None => PageOwner::None(walk),
        }
    }

    /// Waits until the memory is given back of frames whose last page has gone. No lock is held that dropping a [`Room`] takes.
    pub(crate) fn settle(&self) {
        self.keeper.settle();
    }

    /// How many pages are live.
    #[cfg(rkfd_kunit)]
    pub(crate) fn live(&self) -> usize {
        self.known().map_or(0, |ready| ready.pagemap.live())
    }

    /// The VRAM does not hold any more what it held: what is there now belongs to no program.
    pub(in crate::gpu) fn note_lost(&self) {
        self.lost.store(true, Release);
    }

    /// Whether that was noted.
    pub(in crate::gpu) fn is_lost(&self) -> bool {
        self.lost.load(Acquire)
    }

    /// No page moves in any more when this returns.
    pub(super) fn close(&self, dev: &Device) {
        self.closed.xchg(true, Full);
        let is_empty = || self.moves.load(Acquire) == 0;
        let timeout = msecs_to_jiffies(PATIENCE_MS);
        while self.left.wait(Sleep::Uninterruptible, timeout, is_empty) != Woken::Met {
            dev_warn!(dev, "waiting for memory that moves to VRAM\n");
        }
    }

    /// The system is awake, or stays so.
    pub(crate) fn wake(&self) {
        // For the end of the GPU this does not count any more, but `Over` does.
        self.closed.store(false, Release);
    }

    /// The GPU has ended: what is left in VRAM is out of reach.
    pub(in crate::gpu) fn end(&self) {
        let old = core::mem::replace(&mut *self.state.lock(), State::Over);
        let State::Ready(ready) = old else { return };
        // A `Population` may have it for a moment.
        ready.faults.end();
        ready.pagemap.close();
    }

    /// Writes what there is.
    ///
    /// # Errors
    ///
    /// Those of `f`.
    pub(in crate::gpu) fn show(&self, f: &mut dyn Write) -> fmt::Result {
        match self.hold() {
            Some(hold) => hold.show(f),
            None => writeln!(f, "no pages"),
        }
    }
}
