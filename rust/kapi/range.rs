// SPDX-License-Identifier: GPL-2.0

//! Allocator of ranges of a linear space: `drm_mm` with its lock.
//!
//! C header: [`include/drm/drm_mm.h`](srctree/include/drm/drm_mm.h)

use kernel::{
    bindings,
    error::to_result,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    types::Opaque, //
};

/// From which end of the space a range is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// The lowest hole that fits.
    Lowest,
    /// The highest hole that fits.
    Highest,
}

/// The `drm_mm` in its lock.
///
/// # Invariants
///
/// The `drm_mm` is initialised, and every node in it belongs to a live [`Range`].
#[repr(transparent)]
struct Space(Opaque<bindings::drm_mm>);

// SAFETY: A `drm_mm` is plain linked memory; it may be used by any thread that holds its lock.
unsafe impl Send for Space {}

impl Space {
    fn new(start: u64, size: u64) -> impl PinInit<Self> {
        let init = Opaque::ffi_init(move |mm| {
            // SAFETY: `mm` is memory for a `drm_mm`; the range is not empty and does not wrap, as
            // `RangeAllocator::new` checked.
            unsafe { bindings::drm_mm_init(mm, start, size) }
        });
        // SAFETY: `Space` is `repr(transparent)` over the type that `init` initialises.
        unsafe { pin_init::cast_pin_init(init) }
    }
}

/// Hands out disjoint, aligned ranges of `start..start + size` in whatever unit the caller counts.
#[pin_data(PinnedDrop)]
pub(crate) struct RangeAllocator {
    #[pin]
    space: Mutex<Space>,
    end: u64,
}

impl RangeAllocator {
    /// Makes an allocator of the given space.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the space is empty or wraps.
    /// - `ENOMEM`.
    pub(crate) fn new(start: u64, size: u64) -> Result<Arc<Self>> {
        let end = start.checked_add(size).ok_or(EINVAL)?;
        if size == 0 {
            return Err(EINVAL);
        }
        Arc::pin_init(
            try_pin_init!(Self {
                space <- new_mutex!(Space::new(start, size), "rkfd_range"),
                end,
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Takes `size` units that begin at a multiple of `align` (0 and 1 mean any).
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `size` is 0.
    /// - `ENOSPC`: no hole fits.
    /// - `ENOMEM`.
    pub(crate) fn alloc(self: &Arc<Self>, size: u64, align: u64, fit: Fit) -> Result<Range> {
        self.alloc_within(0..self.end, size, align, fit)
    }

    /// Takes the `size` units from `start` on.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `size` is 0, or the range wraps.
    /// - `ENOSPC`: some of it is taken, or outside the space.
    /// - `ENOMEM`.
    pub(crate) fn alloc_at(self: &Arc<Self>, start: u64, size: u64) -> Result<Range> {
        let end = start.checked_add(size).ok_or(EINVAL)?;
        self.alloc_within(start..end, size, 0, Fit::Lowest)
    }

    fn alloc_within(
        self: &Arc<Self>,
        within: core::ops::Range<u64>,
        size: u64,
        align: u64,
        fit: Fit,
    ) -> Result<Range> {
        if size == 0 {
            return Err(EINVAL);
        }
        let node = KBox::new(Opaque::<bindings::drm_mm_node>::zeroed(), GFP_KERNEL)?;
        let mode = match fit {
            Fit::Lowest => bindings::drm_mm_insert_mode_DRM_MM_INSERT_LOW,
            Fit::Highest => bindings::drm_mm_insert_mode_DRM_MM_INSERT_HIGH,
        };
        let space = self.space.lock();
        // SAFETY: The `drm_mm` is initialised and locked; the node is zeroed and stays where it is
        // until `Range` removes it.
        to_result(unsafe {
            bindings::drm_mm_insert_node_in_range(
                space.0.get(),
                node.get(),
                size,
                align,
                0,
                within.start,
                within.end,
                mode,
            )
        })?;
        drop(space);
        // SAFETY: The node was initialised by the successful insertion; `start` does not change.
        let start = unsafe { (*node.get()).start };
        // INVARIANT: Inserted above.
        Ok(Range {
            owner: self.clone(),
            node,
            start,
            size,
        })
    }
}

#[pinned_drop]
impl PinnedDrop for RangeAllocator {
    fn drop(self: Pin<&mut Self>) {
        let space = self.space.lock();
        // SAFETY: Every `Range` holds a reference to the allocator, so by the type invariant of
        // `Space` no node is left.
        unsafe { bindings::drm_mm_takedown(space.0.get()) };
    }
}

/// A range taken from a [`RangeAllocator`]; dropping gives it back.
///
/// # Invariants
///
/// `node` is inserted in the `drm_mm` of `owner`.
pub(crate) struct Range {
    owner: Arc<RangeAllocator>,
    node: KBox<Opaque<bindings::drm_mm_node>>,
    start: u64,
    size: u64,
}

// SAFETY: The node is only touched under the lock of its owner.
unsafe impl Send for Range {}
// SAFETY: Shared access reads `start` and `size` only.
unsafe impl Sync for Range {}

impl Range {
    /// First unit.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Length in units.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        let _space = self.owner.space.lock();
        // SAFETY: By the type invariant the node is in the `drm_mm` whose lock is held.
        unsafe { bindings::drm_mm_remove_node(self.node.get()) };
    }
}
