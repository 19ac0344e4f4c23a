// SPDX-License-Identifier: GPL-2.0

//! Memory that the GPU can perhaps still reach through cached translations.

use core::mem::ManuallyDrop;

use kernel::prelude::*;

use crate::gpu::Gpu;

/// A value that owns memory whose page-table entries are gone, before the TLB was invalidated.
///
/// It gives the value back only after a flush ([`Self::flush`]) or to keep it ([`Self::keep`]).
/// Dropping it leaks the value: lost memory is better than memory that two owners write.
#[must_use = "dropping leaks the memory"]
pub(crate) struct Stale<T>(ManuallyDrop<T>);

impl<T> Stale<T> {
    /// Wraps a value.
    pub(crate) fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }

    /// Invalidates the TLB of an address space and gives the value back.
    ///
    /// # Errors
    ///
    /// Those of [`Self::settle`].
    pub(super) fn flush(self, gpu: &Gpu, pasid: u16) -> Result<T, (Error, Self)> {
        let flushed = gpu.flush_tlb(pasid);
        // Asked after the flush: a device does not come back from either.
        self.settle(flushed, || gpu.is_gone() || gpu.is_lost())
    }

    /// Gives the value back if `flushed`, the result of a TLB flush, allows. A device that is gone,
    /// or has fallen off the bus, reaches no memory: that is as good as a flush. `unreachable` decides
    /// whether it is one; the error does not, since a GPU that merely fails has the same.
    ///
    /// # Errors
    ///
    /// That of `flushed`, with the value still wrapped, if the device may still reach the memory.
    pub(crate) fn settle(
        self,
        flushed: Result,
        unreachable: impl FnOnce() -> bool,
    ) -> Result<T, (Error, Self)> {
        match flushed {
            Err(e) if !unreachable() => Err((e, self)),
            _ => Ok(ManuallyDrop::into_inner(self.0)),
        }
    }

    /// Gives the value back to a caller that keeps it until a flush went well.
    pub(crate) fn keep(self) -> T {
        ManuallyDrop::into_inner(self.0)
    }
}

/// Keeps a value that the GPU may still reach until the device is unbound.
pub(super) fn keep_until_unbind<T: Send + 'static>(gpu: &Gpu, value: T) {
    if gpu.enter().is_ok() {
        dev_err!(
            gpu.dev(),
            "the GPU has not confirmed a TLB flush; memory that it may reach is kept\n"
        );
    }
    gpu.keep_until_unbind(value);
}
