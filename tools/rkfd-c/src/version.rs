// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Which library this is.

use std::ffi::c_char;

/// Major version that the header is of. A program that was compiled with version N.m, N being 1 or more, is linked to
/// librkfd.so.N and runs with N.m and any later N.x. While N is 0 any minor version may change anything: such a program is
/// linked to librkfd.so.0.m, and runs with 0.m alone.
pub const RKFD_VERSION_MAJOR: u32 = 0;
/// Minor version that the header is of: functions and fields were added since a lower one, and changed where the major
/// version is 0.
pub const RKFD_VERSION_MINOR: u32 = 9;

/// The version of the library that the program runs with: major in the upper 16 bits, minor in the lower.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_version() -> u32 {
    (RKFD_VERSION_MAJOR << 16) | RKFD_VERSION_MINOR
}

/// The version as text, such as "0.2.0".
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_version_text() -> *const c_char {
    // The terminating zero is part of the text.
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn numbers_and_text_are_those_of_the_package() {
        // SAFETY: a text of the program that ends in a zero.
        let text = unsafe { CStr::from_ptr(rkfd_version_text()) };
        let start = format!("{RKFD_VERSION_MAJOR}.{RKFD_VERSION_MINOR}.");
        assert!(text.to_str().unwrap().starts_with(&start), "{text:?}");
        assert_eq!(rkfd_version() >> 16, RKFD_VERSION_MAJOR);
        assert_eq!(rkfd_version() & 0xffff, RKFD_VERSION_MINOR);
    }
}
