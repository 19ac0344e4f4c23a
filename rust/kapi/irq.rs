// SPDX-License-Identifier: GPL-2.0

//! One message-signalled interrupt with a threaded handler and a watchdog.
//!
//! A message that gets lost is never sent again by a device that waits for its acknowledgement. A
//! timer therefore looks once in a while whether the device has something to say, and if so runs
//! the handler as if the message had come.
//!
//! [`kernel::irq::ThreadedRegistration`] borrows the vector's registration, which borrows the bound
//! device; [`Msi`] owns both and holds its handler by reference count.
//!
//! C header: [`include/linux/interrupt.h`](srctree/include/linux/interrupt.h)

use kernel::{
    bindings,
    device::Bound,
    error::to_result,
    impl_has_hr_timer, pci,
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        ArcBorrow, //
    },
    time::{
        hrtimer::{
            ArcHrTimerHandle,
            HrTimer,
            HrTimerCallback,
            HrTimerCallbackContext,
            HrTimerPointer,
            HrTimerRestart,
            RelativeMode, //
        },
        Delta,
        Monotonic, //
    },
};

/// How often the watchdog looks.
const WATCHDOG: Delta = Delta::from_millis(500);

/// What runs when the interrupt fires.
pub(crate) trait Handler: Send + Sync + 'static {
    /// The message has come. Called in interrupt context, before [`Handler::handle`].
    fn interrupt(&self);
    /// Whether the device has something to say that was not handled. Called in interrupt context;
    /// must be quick, and may be wrong about what is being handled at the moment.
    fn is_overdue(&self) -> bool;
    /// Handles the interrupt in a thread of its own; may sleep. Never runs twice at a time.
    fn handle(&self);
}

/// Wakes the handler's thread when it should run.
///
/// # Invariants
///
/// While the timer may run, `irq` is requested with `handler` as cookie.
#[pin_data]
struct Watchdog<T: Handler> {
    #[pin]
    timer: HrTimer<Self>,
    irq: c_uint,
    handler: Arc<T>,
    period: Delta,
}

impl_has_hr_timer! {
    impl{T: Handler} HasHrTimer<Self> for Watchdog<T> {
        mode: RelativeMode<Monotonic>, field: self.timer
    }
}

impl<T: Handler> HrTimerCallback for Watchdog<T> {
    type Pointer<'a> = Arc<Self>;

    fn run(
        this: ArcBorrow<'_, Self>,
        mut context: HrTimerCallbackContext<'_, Self>,
    ) -> HrTimerRestart {
        if this.handler.is_overdue() {
            let cookie = Arc::as_ptr(&this.handler).cast_mut().cast();
            // SAFETY: By the type invariant the interrupt is requested with this cookie; the
            // function may be called in interrupt context.
            unsafe { bindings::irq_wake_thread(this.irq, cookie) };
        }
        context.forward_now(this.period);
        HrTimerRestart::Restart
    }
}

/// An interrupt line with its handler and watchdog.
///
/// # Invariants
///
/// `irq` is requested with `handler` as cookie.
struct Line<T: Handler> {
    irq: c_uint,
    handler: Arc<T>,
    /// Stopped before the interrupt is given back.
    watchdog: Option<ArcHrTimerHandle<Watchdog<T>>>,
}

impl<T: Handler> Line<T> {
    /// Attaches `handler`, which may be called before this returns. It is asked every `period`
    /// whether it is overdue.
    ///
    /// # Safety
    ///
    /// `irq` is the caller's, and is not freed before the line is dropped.
    ///
    /// # Errors
    ///
    /// What the interrupt core reports; `EBUSY` if the interrupt has a handler, `ENOMEM`.
    unsafe fn request(
        irq: c_uint,
        name: &'static CStr,
        handler: Arc<T>,
        period: Delta,
    ) -> Result<Self> {
        // SAFETY:
        // - By the requirements of this function; both handlers have the right type, `name` is static.
        // - The cookie points to `handler`, which outlives the request: `drop` frees it first.
        to_result(unsafe {
            bindings::request_threaded_irq(
                irq,
                Some(wake_thread::<T>),
                Some(run_thread::<T>),
                0,
                name.as_char_ptr(),
                Arc::as_ptr(&handler).cast_mut().cast(),
            )
        })?;
        // INVARIANT: Requested above.
        let mut line = Self {
            irq,
            handler: handler.clone(),
            watchdog: None,
        };
        let watchdog = Arc::pin_init(
            pin_init!(Watchdog {
                timer <- HrTimer::new(),
                irq,
                handler,
                period,
            }),
            GFP_KERNEL,
        )?;
        // INVARIANT: `drop` stops the timer before it frees the interrupt.
        line.watchdog = Some(watchdog.start(period));
        Ok(line)
    }
}

impl<T: Handler> Drop for Line<T> {
    fn drop(&mut self) {
        // Waits for the callback.
        drop(self.watchdog.take());
        // SAFETY: By the type invariant; the call waits for both handlers to end.
        unsafe { bindings::free_irq(self.irq, Arc::as_ptr(&self.handler).cast_mut().cast()) };
    }
}

/// The only MSI vector of a PCI function.
///
/// # Invariants
///
/// `irq` is vector 0 of `pdev`, allocated by this object.
struct Vector {
    pdev: ARef<pci::Device>,
    irq: c_uint,
}

impl Vector {
    /// Allocates exactly one vector.
    ///
    /// # Errors
    ///
    /// As for [`Msi::new`].
    fn new(pdev: &pci::Device<Bound>) -> Result<Self> {
        let raw = super::pci::as_raw(pdev);
        // SAFETY: `raw` is a bound device.
        let count = unsafe { bindings::pci_alloc_irq_vectors(raw, 1, 1, bindings::PCI_IRQ_MSI) };
        if count < 0 {
            return Err(Error::from_errno(count));
        }
        // SAFETY: Vector 0 was allocated above.
        let irq = unsafe { bindings::pci_irq_vector(raw, 0) };
        let Ok(irq) = c_uint::try_from(irq) else {
            // SAFETY: Allocated above and not requested.
            unsafe { bindings::pci_free_irq_vectors(raw) };
            return Err(Error::from_errno(irq));
        };
        // INVARIANT: Allocated above.
        Ok(Self {
            pdev: pdev.into(),
            irq,
        })
    }
}

impl Drop for Vector {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; no handler is requested for it any more.
        unsafe { bindings::pci_free_irq_vectors(super::pci::as_raw(&self.pdev)) };
    }
}

/// The only MSI vector of a PCI function, with its handler.
pub(crate) struct Msi<T: Handler> {
    // Dropped in this order.
    _line: Line<T>,
    _vector: Vector,
}

impl<T: Handler> Msi<T> {
    /// Allocates exactly one MSI vector and attaches `handler`, which may be called before this
    /// returns.
    ///
    /// # Errors
    ///
    /// What the PCI or interrupt core reports; `ENOSPC` if the function has no MSI.
    pub(crate) fn new(
        pdev: &pci::Device<Bound>,
        name: &'static CStr,
        handler: Arc<T>,
    ) -> Result<Self> {
        let vector = Vector::new(pdev)?;
        // SAFETY: The vector is this object's and is freed after the line.
        let line = unsafe { Line::request(vector.irq, name, handler, WATCHDOG) }?;
        Ok(Self {
            _line: line,
            _vector: vector,
        })
    }
}

/// As [`Msi`], of an interrupt that no device sends.
#[cfg(rkfd_kunit)]
pub(crate) struct Simulated<'irq, T: Handler> {
    _line: Line<T>,
    _irq: &'irq super::kunit::SimulatedIrq,
}

#[cfg(rkfd_kunit)]
impl<'irq, T: Handler> Simulated<'irq, T> {
    /// Attaches `handler` to `irq`; the watchdog asks every `period`.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the interrupt has a handler, `ENOMEM`.
    pub(crate) fn new(
        irq: &'irq super::kunit::SimulatedIrq,
        handler: Arc<T>,
        period: Delta,
    ) -> Result<Self> {
        // SAFETY: The borrow keeps the interrupt longer than the line.
        let line = unsafe { Line::request(irq.number(), c"rkfd-kunit", handler, period) }?;
        Ok(Self {
            _line: line,
            _irq: irq,
        })
    }
}

/// Hard interrupt: a message is an edge, there is nothing to acknowledge.
///
/// # Safety
///
/// `cookie` is the handler of a live [`Line<T>`].
unsafe extern "C" fn wake_thread<T: Handler>(
    _irq: c_int,
    cookie: *mut c_void,
) -> bindings::irqreturn_t {
    // SAFETY: By the function's contract.
    let handler = unsafe { &*cookie.cast_const().cast::<T>() };
    handler.interrupt();
    bindings::irqreturn::IRQ_WAKE_THREAD
}

/// # Safety
///
/// `cookie` is the handler of a live [`Line<T>`].
unsafe extern "C" fn run_thread<T: Handler>(
    _irq: c_int,
    cookie: *mut c_void,
) -> bindings::irqreturn_t {
    // SAFETY: By the function's contract.
    let handler = unsafe { &*cookie.cast_const().cast::<T>() };
    handler.handle();
    bindings::irqreturn::IRQ_HANDLED
}
