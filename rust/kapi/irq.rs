// SPDX-License-Identifier: GPL-2.0

//! One message-signalled interrupt with a threaded handler.
//!
//! [`kernel::irq::ThreadedRegistration`] borrows the vector's registration, which borrows the bound
//! device; [`Msi`] owns both and holds its handler by reference count.
//!
//! C header: [`include/linux/interrupt.h`](srctree/include/linux/interrupt.h)

use kernel::{
    bindings,
    device::Bound,
    error::to_result,
    pci,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
};

/// What runs when the interrupt fires.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Handles the interrupt in a thread of its own; may sleep. Never runs twice at a time.
    fn handle(&self);
}

/// The only MSI vector of a PCI function, with its handler.
///
/// # Invariants
///
/// `irq` is vector 0 of `pdev`, allocated by this object and requested with `handler` as cookie.
pub(crate) struct Msi<T: Handler> {
    pdev: ARef<pci::Device>,
    irq: c_uint,
    handler: Arc<T>,
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
        let raw = super::pci::as_raw(pdev);
        // SAFETY: `raw` is a bound device.
        let count = unsafe { bindings::pci_alloc_irq_vectors(raw, 1, 1, bindings::PCI_IRQ_MSI) };
        if count < 0 {
            return Err(Error::from_errno(count));
        }
        let free_vectors = kernel::types::ScopeGuard::new(|| {
            // SAFETY: Allocated above and not requested.
            unsafe { bindings::pci_free_irq_vectors(raw) }
        });
        // SAFETY: Vector 0 was allocated above.
        let irq = unsafe { bindings::pci_irq_vector(raw, 0) };
        let irq = c_uint::try_from(irq).map_err(|_| Error::from_errno(irq))?;
        // SAFETY:
        // - `irq` is an allocated vector, both handlers have the right type, `name` is static.
        // - The cookie points to `handler`, which outlives the request: `drop` frees it first.
        to_result(unsafe {
            bindings::request_threaded_irq(
                irq,
                Some(wake_thread),
                Some(run_thread::<T>),
                0,
                name.as_char_ptr(),
                Arc::as_ptr(&handler).cast_mut().cast(),
            )
        })?;
        free_vectors.dismiss();
        // INVARIANT: Allocated and requested above.
        Ok(Self {
            pdev: pdev.into(),
            irq,
            handler,
        })
    }
}

impl<T: Handler> Drop for Msi<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; `free_irq` waits for both handlers to end.
        unsafe {
            bindings::free_irq(self.irq, Arc::as_ptr(&self.handler).cast_mut().cast());
            bindings::pci_free_irq_vectors(super::pci::as_raw(&self.pdev));
        }
    }
}

/// Hard interrupt: a message is an edge, there is nothing to acknowledge.
extern "C" fn wake_thread(_irq: c_int, _cookie: *mut c_void) -> bindings::irqreturn_t {
    bindings::irqreturn::IRQ_WAKE_THREAD
}

/// # Safety
///
/// `cookie` is the handler of a live [`Msi<T>`].
unsafe extern "C" fn run_thread<T: Handler>(
    _irq: c_int,
    cookie: *mut c_void,
) -> bindings::irqreturn_t {
    // SAFETY: By the function's contract.
    let handler = unsafe { &*cookie.cast_const().cast::<T>() };
    handler.handle();
    bindings::irqreturn::IRQ_HANDLED
}
