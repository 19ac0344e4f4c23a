// SPDX-License-Identifier: GPL-2.0

//! Something that is done again and again until its owner goes.
//!
//! The kernel crate can queue delayed work and cannot cancel it, so that its owner must live
//! until the timer fires. A [`Ticker`] waits for a running tick and cancels the next one when it is
//! dropped.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use core::marker::PhantomPinned;

use kernel::{
    bindings,
    ffi::{
        c_int,
        c_ulong, //
    },
    prelude::*,
    str::CStr,
    sync::{
        Arc,
        LockClassKey, //
    },
    time::Jiffies,
    types::Opaque, //
};

/// Makes a [`Ticker`] initialiser with lock classes of its own.
macro_rules! new_ticker {
    ($name:literal, $period:expr, $target:expr $(,)?) => {
        $crate::kapi::ticker::Ticker::new(
            ::kernel::c_str!($name),
            ::kernel::static_lock_class!(),
            ::kernel::static_lock_class!(),
            $period,
            $target,
        )
    };
}
pub(crate) use new_ticker;

/// What a [`Ticker`] does.
pub(crate) trait Tick: Send + Sync {
    /// Does it once. May sleep; must not drop the ticker, which would wait for itself.
    fn tick(&self);
}

/// Calls a [`Tick`] periodically, on an unbound workqueue, from creation to drop. The period is
/// counted from the end of one call to the beginning of the next.
///
/// # Invariants
///
/// `work` is initialised, and pending or running from [`Ticker::start`] on.
#[pin_data(PinnedDrop)]
pub(crate) struct Ticker {
    target: Arc<dyn Tick>,
    period: Jiffies,
    #[pin]
    work: Opaque<bindings::delayed_work>,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: Delayed work may be queued and cancelled by any thread; the target is `Send` and `Sync`.
unsafe impl Send for Ticker {}
// SAFETY: Shared access only queues the work, which the workqueue synchronises; the target is `Sync`,
// the period does not change.
unsafe impl Sync for Ticker {}

impl Ticker {
    /// Makes a ticker that stands still; see [`new_ticker!`].
    pub(crate) fn new(
        name: &'static CStr,
        work_key: Pin<&'static LockClassKey>,
        timer_key: Pin<&'static LockClassKey>,
        period: Jiffies,
        target: Arc<dyn Tick>,
    ) -> impl PinInit<Self> {
        // INVARIANT: The C initialisers run on the pinned place, and nothing is queued yet.
        pin_init!(Self {
            target,
            period: period.max(1),
            work <- Opaque::ffi_init(|slot: *mut bindings::delayed_work| {
                // SAFETY: `slot` is valid for the call, name and keys live forever, and
                // `Ticker::run` is only called with this work, whose place does not move.
                unsafe {
                    bindings::init_work_with_key(
                        &raw mut (*slot).work,
                        Some(Self::run),
                        false,
                        name.as_char_ptr(),
                        work_key.as_ptr(),
                    );
                    bindings::timer_init_key(
                        &raw mut (*slot).timer,
                        Some(bindings::delayed_work_timer_fn),
                        bindings::TIMER_IRQSAFE,
                        name.as_char_ptr(),
                        timer_key.as_ptr(),
                    );
                }
            }),
            _pin: PhantomPinned,
        })
    }

    /// Lets it tick, for the first time after one period.
    pub(crate) fn start(&self) {
        // SAFETY: The work is initialised by the type invariant, and the drop cancels it before its
        // place goes away. Queueing work that is queued does nothing.
        unsafe {
            bindings::queue_delayed_work_on(
                // CAST: A small constant.
                bindings::wq_misc_consts_WORK_CPU_UNBOUND as c_int,
                bindings::system_dfl_wq,
                self.work.get(),
                self.period as c_ulong, // CAST: The same type in C.
            )
        };
    }

    /// Called by the workqueue.
    ///
    /// # Safety
    ///
    /// `work` lies in a [`Ticker`] that is not dropped before this returns.
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        // SAFETY: By the contract, `work` is inside the `delayed_work` of a ticker.
        let delayed = unsafe { kernel::container_of!(work, bindings::delayed_work, work) };
        let place = Opaque::cast_from(delayed);
        // SAFETY: By the contract it is the `work` of a ticker, which is alive: the drop waits for this function.
        let ticker = unsafe { &*kernel::container_of!(place, Self, work) };
        ticker.target.tick();
        ticker.start();
    }
}

#[pinned_drop]
impl PinnedDrop for Ticker {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: The work is initialised by the type invariant. The call waits for a running tick
        // and takes back what that tick has queued.
        unsafe { bindings::cancel_delayed_work_sync(self.work.get()) };
    }
}
