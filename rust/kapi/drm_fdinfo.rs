// SPDX-License-Identifier: GPL-2.0

//! What `/proc/PID/fdinfo` shows of an open file of a DRM node: the memory of the objects that it has handles of.
//!
//! The format is that of all DRM drivers (`Documentation/gpu/drm-usage-stats.rst`), so that generic tools read it.
//!
//! Handles are those of an open file, which a test of the kernel has none of: `e2e/conformance-memory` tests the figures.
//!
//! C header: [`include/drm/drm_file.h`](srctree/include/drm/drm_file.h)

use kernel::{
    bindings,
    prelude::*, //
};

use super::mappable::{
    Inner,
    Mappable,
    Region, //
};
use crate::bindings as rkfd;

/// What one file has of each region.
#[derive(Default)]
struct Usage {
    vram: bindings::drm_memory_stats,
    gtt: bindings::drm_memory_stats,
}

impl Usage {
    /// Counts an object of `size` bytes, all of which are where the device reaches them.
    fn add(&mut self, region: Region, size: u64, shared: bool) {
        let stats = match region {
            Region::Vram => &mut self.vram,
            Region::Gtt => &mut self.gtt,
        };
        let total = match shared {
            true => &mut stats.shared,
            false => &mut stats.private,
        };
        *total = total.saturating_add(size);
        stats.resident = stats.resident.saturating_add(size);
    }
}

/// `drm_driver::show_fdinfo` of a driver all of whose objects hold a `T`.
///
/// # Safety
///
/// Called by the DRM core with a printer and an open file of such a driver.
pub(super) unsafe extern "C" fn show<T: Mappable>(
    printer: *mut bindings::drm_printer,
    file: *mut bindings::drm_file,
) {
    let mut usage = Usage::default();
    // SAFETY: The file is open; `count` takes what it is given here.
    unsafe { rkfd::rkfd_drm_for_each_object(file, Some(count::<T>), (&raw mut usage).cast()) };
    for (stats, name) in [(&usage.vram, c"vram"), (&usage.gtt, c"gtt")] {
        // SAFETY: The caller lends printer and file for the call, the statistics are local, the name is static.
        unsafe {
            bindings::drm_print_memory_stats(
                printer,
                stats,
                bindings::drm_gem_object_status_DRM_GEM_OBJECT_RESIDENT,
                name.as_char_ptr(),
            );
        }
    }
}

/// Counts one object.
///
/// # Safety
///
/// `obj` is live and embedded in an `Inner<T>`; `usage` is an exclusive pointer to a [`Usage`].
unsafe extern "C" fn count<T: Mappable>(obj: *mut bindings::drm_gem_object, usage: *mut c_void) {
    // SAFETY: By the requirement of this function.
    let (inner, usage, size, shared) = unsafe {
        (
            Inner::<T>::from_gem(obj),
            &mut *usage.cast::<Usage>(),
            (*obj).size,
            rkfd::rkfd_drm_object_is_shared(obj),
        )
    };
    if let Some(region) = inner.data().region() {
        // CAST: `usize` is at most 64 bits wide.
        usage.add(region, size as u64, shared);
    }
}
