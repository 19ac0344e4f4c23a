// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The service without a GPU.

use std::ffi::CStr;
use std::io::Seek;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

use super::*;

unsafe extern "C" fn keep(data: *mut c_void, text: *const c_char, bytes: u64) {
    // SAFETY: the test's promise, and that of the library.
    let (kept, text) = unsafe { (&mut *data.cast::<Vec<String>>(), CStr::from_ptr(text)) };
    assert_eq!(text.count_bytes() as u64, bytes);
    kept.push(text.to_str().unwrap().to_owned());
}

#[test]
fn text_ends_in_a_zero_byte() {
    let mut kept: Vec<String> = Vec::new();
    let printer = Printer {
        callback: keep,
        data: Data::new((&raw mut kept).cast()),
    };
    printer.print("one\n");
    printer.print("");
    printer.print("zwölf");
    assert_eq!(kept, ["one\n", "", "zwölf"]);
}

#[test]
fn null_is_refused_and_freed() {
    let invalid = -(Errno::EINVAL as c_int);
    let mut host = MaybeUninit::uninit();
    // SAFETY: nothing is called.
    unsafe {
        assert_eq!(rkfd_host_new(None, null_mut(), Some(&mut host)), invalid);
        assert_eq!(rkfd_host_new(Some(keep), null_mut(), None), invalid);
    }
    // SAFETY: the first call has written it.
    assert!(unsafe { host.assume_init() }.is_none());
    assert_eq!(rkfd_host_offer(None, None, None), invalid);
    assert_eq!(rkfd_host_offer_program(None, None), invalid);
    assert_eq!(rkfd_host_offer_file(None, 0, None), invalid);
    assert_eq!(rkfd_host_set_heap(None, None, None), invalid);
    assert_eq!(rkfd_host_allocated(None), 0);
    rkfd_host_free(None);
}

#[test]
fn files_are_counted_and_kept() {
    let host = Host(service::Host::new(|_| {}));
    let mut number = MaybeUninit::new(7);
    let bad = -(Errno::EBADF as c_int);
    assert_eq!(
        rkfd_host_offer_file(Some(&host), -1, Some(&mut number)),
        bad
    );
    assert_eq!(
        rkfd_host_offer_file(Some(&host), c_int::MAX, Some(&mut number)),
        bad
    );
    // SAFETY: written above.
    assert_eq!(unsafe { number.assume_init() }, 7);
    for wanted in 0..3 {
        let mut file = File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
        file.seek(std::io::SeekFrom::Start(1)).unwrap();
        assert_eq!(
            rkfd_host_offer_file(Some(&host), file.as_raw_fd(), Some(&mut number)),
            0
        );
        // SAFETY: as above.
        assert_eq!(unsafe { number.assume_init() }, wanted);
        assert_eq!(file.stream_position().unwrap(), 1);
    }
}
