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

/// Hands out disjoint ranges of `start..start + size` in whatever unit the caller counts.
#[pin_data(PinnedDrop)]
pub(crate) struct RangeAllocator {
    #[pin]
    space: Mutex<Space>,
}

impl RangeAllocator {
    /// Makes an allocator of the given space.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the space is empty or wraps.
    /// - `ENOMEM`.
    pub(crate) fn new(start: u64, size: u64) -> Result<Arc<Self>> {
        start.checked_add(size).ok_or(EINVAL)?;
        if size == 0 {
            return Err(EINVAL);
        }
        Arc::pin_init(
            try_pin_init!(Self {
                space <- new_mutex!(Space::new(start, size), "rkfd_range"),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Takes `size` units, from the lowest hole that fits. What is noted of them is charged to the group of the caller.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `size` is 0.
    /// - `ENOSPC`: no hole fits.
    /// - `ENOMEM`.
    pub(crate) fn alloc(self: &Arc<Self>, size: u64) -> Result<Range> {
        if size == 0 {
            return Err(EINVAL);
        }
        let node = KBox::new(
            Opaque::<bindings::drm_mm_node>::zeroed(),
            GFP_KERNEL_ACCOUNT,
        )?;
        let space = self.space.lock();
        // SAFETY: The `drm_mm` is initialised and locked; the node is zeroed and stays where it is
        // until `Range` removes it.
        to_result(unsafe {
            bindings::drm_mm_insert_node_in_range(
                space.0.get(),
                node.get(),
                size,
                0,
                0,
                0,
                u64::MAX,
                bindings::drm_mm_insert_mode_DRM_MM_INSERT_LOW,
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
