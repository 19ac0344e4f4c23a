// SPDX-License-Identifier: GPL-2.0

//! What the KUnit macros do not offer.
//!
//! C header: [`include/kunit/test.h`](srctree/include/kunit/test.h)

use kernel::prelude::*;

/// Marks the running test as skipped. The test goes on and should return.
pub(crate) fn skip(reason: &'static CStr) {
    // SAFETY: `reason` is a string; the function does nothing outside a test.
    unsafe { crate::bindings::rkfd_kunit_skip(reason.as_char_ptr()) };
}
