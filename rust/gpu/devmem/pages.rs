// SPDX-License-Identifier: GPL-2.0

//! The pages that stand for a GPU's VRAM, from the first one that moves in to the end of the GPU.
//!
//! There are none before memory of a program is to move in. From then on the end of the GPU, its reset and its sleep come
//! after all pages have come back to the system: while the VRAM is there, for what is there is the only copy. Nobody has to
//! help: neither the program, which may be stopped, nor its parent, which may be gone.
//!
//! Who moves pages in is counted ([`Population`]), and there is no more of it, and nobody left, before pages come back for
//! good.
//!
//! Locks: [`DevicePages::state`] is held while the pages are made. It is taken with no other lock held, and by no CPU fault.

use core::fmt::{
    self,
    Write, //
};

use kernel::{
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
    time::{
        delay::fsleep,
        msecs_to_jiffies,
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use super::{
    CpuFaults,
    Trigger, //
};
use crate::{
    gpu::{
        access::Hw,
        account::{
            self,
            Charge, //
        },
        Gpu, //
    },
    kapi::{
        devmem::{
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
/// Pause after a round in which no page came back; twice as long after each one that follows.
const PAUSE: Delta = Delta::from_millis(1);
/// It does not grow any more after so many rounds.
const MAX_DOUBLINGS: u32 = 9;
/// So long pages are brought back before the system sleeps.
const BEFORE_SLEEP: Delta = Delta::from_secs(20);
/// Pause between two messages about pages that do not come back.
const PATIENCE: Delta = Delta::from_secs(10);
const PATIENCE_MS: u32 = 10_000;
/// So long the first page waits for those who look at memory and do not know pages of the GPU yet.
const BLIND_MS: u32 = 100;

/// The pages, and what brings them back.
struct Ready {
    pagemap: Pagemap,
    faults: Arc<CpuFaults>,
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
    /// Who moves pages in.
    inside: Atomic<i32>,
    /// Nobody may.
    closed: AtomicFlag,
    /// Who looks at memory and was told that there are no pages of the GPU.
    blind: Atomic<i32>,
    #[pin]
    left: WaitQueue,
    /// The VRAM has lost what it held.
    lost: AtomicFlag,
}

/// Somebody who moves pages in.
struct Inside<'a>(&'a DevicePages);

impl<'a> Inside<'a> {
    /// # Errors
    ///
    /// `ENODEV`: the GPU sleeps, or ends.
    fn enter(pages: &'a DevicePages) -> Result<Self> {
        pages.inside.fetch_add(1, Full);
        let inside = Self(pages);
        // Whoever closes looks at the number after that: one of the two sees the other.
        if pages.closed.load(Acquire) {
            return Err(ENODEV);
        }
        Ok(inside)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Full);
        self.0.left.wake_all();
    }
}

/// Somebody who takes pages of the GPU for pages of another, and brings them back where memory is faulted in.
pub(crate) struct Blind<'a>(&'a DevicePages);

impl Drop for Blind<'_> {
    fn drop(&mut self) {
        self.0.blind.fetch_sub(1, Full);
        self.0.left.wake_all();
    }
}

/// By which pages of a GPU are told from others.
pub(crate) enum Sight<'a> {
    /// These are the pages.
    Pages(Hold),
    /// There are none, and as long as this is held the first ones wait a while.
    Blind(#[expect(dead_code, reason = "held, not read")] Blind<'a>),
}

/// Pages may move in as long as this lives, for which the end of the GPU and its sleep wait: user space is not waited for
/// meanwhile.
pub(crate) struct Population<'a> {
    ready: Arc<Ready>,
    _inside: Inside<'a>,
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
    /// # Errors
    ///
    /// `ENOMEM`; `EOPNOTSUPP`: the kernel has no such pages, or the machine no room for them.
    fn new(gpu: &Arc<Gpu>, keeper: &KeeperHandle) -> Result<Self> {
        let frames = usize::try_from(gpu.vram().total())? / FRAME;
        // CAST: `usize` is at most 64 bits wide.
        let bytes = (frames * PAGES) as u64 * STRUCT_PAGE;
        let charge = account::system().all.charge_module(bytes)?;
        let faults = CpuFaults::new(gpu)?;
        let pagemap = match Pagemap::new(keeper, frames, faults.clone()) {
            Err(e) if e != ENOMEM => {
                if e != EOPNOTSUPP {
                    dev_warn!(gpu.dev(), "no addresses for pages in VRAM: {:?}\n", e);
                }
                return Err(EOPNOTSUPP);
            }
            pagemap => pagemap?,
        };
        let range = pagemap.range();
        dev_info!(
            gpu.dev(),
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
            inside: Atomic::new(0),
            closed: AtomicFlag::new(false),
            blind: Atomic::new(0),
            left <- new_waitqueue!("rkfd_device_pages"),
            lost: AtomicFlag::new(false),
        })
    }

    /// Whether memory of programs can move in, as far as is known before it is tried.
    pub(crate) fn may_populate(&self) -> bool {
        Pagemap::exists() && !matches!(*self.state.lock(), State::Refused | State::Over)
    }

    /// From now on pages may move in.
    ///
    /// # Errors
    ///
    /// - `ENODEV`: the GPU sleeps, or has ended.
    /// - `EOPNOTSUPP`: the kernel or the machine does not allow it.
    /// - `ENOMEM`.
    pub(crate) fn populate(&self, gpu: &Arc<Gpu>) -> Result<Population<'_>> {
        let inside = Inside::enter(self)?;
        if self.is_lost() {
            return Err(ENODEV);
        }
        let mut is_new = false;
        let mut state = self.state.lock();
        let ready = match &*state {
            State::Ready(ready) => Ok(ready.clone()),
            State::Refused => Err(EOPNOTSUPP),
            State::Over => Err(ENODEV),
            State::Unused => match Ready::new(gpu, &self.keeper) {
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
            // Who waits for user space is not waited for; then a page comes back that has just gone in.
            let all_see = || self.blind.load(Acquire) == 0;
            self.left
                .wait(Sleep::Uninterruptible, msecs_to_jiffies(BLIND_MS), all_see);
        }
        Ok(Population {
            ready: ready?,
            _inside: inside,
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

    /// By which whoever looks at memory tells pages of the GPU from others. To be held as long as memory is faulted in.
    pub(crate) fn sight(&self) -> Sight<'_> {
        self.blind.fetch_add(1, Full);
        // Counted before the look: who makes the first pages finds it, or is found.
        let blind = Blind(self);
        match self.hold() {
            Some(hold) => Sight::Pages(hold),
            None => Sight::Blind(blind),
        }
    }

    /// How many pages are live.
    #[cfg(rkfd_kunit)]
    pub(crate) fn live(&self) -> usize {
        self.known().map_or(0, |ready| ready.pagemap.live())
    }

    /// The VRAM does not hold any more what it held: what is there now is no page of anybody.
    pub(in crate::gpu) fn note_lost(&self) {
        self.lost.store(true, Release);
    }

    /// Whether that was noted.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Acquire)
    }

    /// No page moves in any more when this returns.
    fn close(&self, gpu: &Gpu) {
        self.closed.xchg(true, Full);
        let is_empty = || self.inside.load(Acquire) == 0;
        let timeout = msecs_to_jiffies(PATIENCE_MS);
        while self.left.wait(Sleep::Uninterruptible, timeout, is_empty) != Woken::Met {
            dev_warn!(gpu.dev(), "waiting for memory that moves to VRAM\n");
        }
    }

    /// The GPU is about to end: brings all pages back, as long as it answers, however long that takes. Whatever ends by this is
    /// told from a hang by its messages. Nothing moves in afterwards.
    pub(crate) fn bring_back_for_good(&self, gpu: &Gpu) {
        self.close(gpu);
        if !self.bring_back(gpu, None) {
            dev_err!(
                gpu.dev(),
                "memory of programs that was in VRAM is lost; they get SIGBUS where they touch it\n"
            );
        }
    }

    /// The system is about to sleep: brings all pages back. Nothing moves in before [`Self::wake`].
    ///
    /// # Errors
    ///
    /// `EBUSY`: pages do not come back in time. All goes on as before.
    pub(crate) fn prepare_sleep(&self, gpu: &Gpu) -> Result {
        self.close(gpu);
        if self.bring_back(gpu, Some(BEFORE_SLEEP)) {
            return Ok(());
        }
        self.wake();
        Err(EBUSY)
    }

    /// The system is awake, or stays so.
    pub(crate) fn wake(&self) {
        // Who ends the GPU does not look at this any more; `Over` is what counts then.
        self.closed.store(false, Release);
    }

    /// Brings pages back, round after round, for `limit` at most. Returns whether none is left.
    fn bring_back(&self, gpu: &Gpu, limit: Option<Delta>) -> bool {
        let Some(hold) = self.hold() else {
            return true;
        };
        let start: Instant<Monotonic> = Instant::now();
        let (mut idle, mut told) = (0_u32, PATIENCE);
        loop {
            // Where memory for the list is short, there may be some.
            if !hold.is_in_use().unwrap_or(true) {
                return true;
            }
            let Ok(hw) = gpu.enter() else {
                return false;
            };
            if self.is_lost() {
                return false;
            }
            let moved = round(gpu, &hw, &hold);
            drop(hw);
            let waited = start.elapsed();
            if limit.is_some_and(|limit| waited > limit) {
                return false;
            }
            if waited > told {
                dev_warn!(
                    gpu.dev(),
                    "memory of programs does not come back from VRAM yet\n"
                );
                told = waited + PATIENCE;
            }
            if moved > 0 {
                idle = 0;
            } else {
                fsleep(PAUSE * (1i64 << idle.min(MAX_DOUBLINGS)));
                idle += 1;
            }
        }
    }

    /// The GPU has ended: what is left in VRAM is out of reach.
    pub(in crate::gpu) fn end(&self) {
        let old = core::mem::replace(&mut *self.state.lock(), State::Over);
        let State::Ready(ready) = old else { return };
        // Others may have it for a moment.
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

/// Brings back what can be had at the moment. Returns how many pages have come.
fn round(gpu: &Gpu, hw: &Hw, hold: &Hold) -> usize {
    let (mut from, mut moved) = (0, 0);
    while let Some(frame) = hold.next_frame(from) {
        // What fails here is tried again.
        moved += gpu
            .bring_frame_back(hw, hold, frame, Trigger::End)
            .unwrap_or(0);
        from = frame + 1;
        if hw.is_lost() {
            break;
        }
    }
    moved
}
