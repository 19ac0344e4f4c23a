// SPDX-License-Identifier: GPL-2.0

//! Module parameters that are text.
//!
//! They are fixed when the module is loaded: `e2e/force-probe` and `e2e/bad-parameters` load it with others.
//!
//! C header: [`include/linux/moduleparam.h`](srctree/include/linux/moduleparam.h)

use crate::bindings as rkfd;
use kernel::prelude::*;

/// What `force_probe=` says.
pub(crate) fn force_probe() -> &'static [u8] {
    // SAFETY: The parameter is a string, is set before the module's code runs and does not change.
    unsafe { CStr::from_char_ptr(rkfd::rkfd_force_probe()) }.to_bytes()
}

/// What `reserved_vram=` says.
pub(crate) fn reserved_vram() -> &'static [u8] {
    // SAFETY: The parameter is a string, is set before the module's code runs and does not change.
    unsafe { CStr::from_char_ptr(rkfd::rkfd_reserved_vram()) }.to_bytes()
}
