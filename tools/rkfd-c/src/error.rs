// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Errors as C sees them: a negative errno, and a text per thread.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::CString;
use std::panic::catch_unwind;
use std::panic::AssertUnwindSafe;

use library::code::error::CodeError;
use library::error::Error;
use nix::errno::Errno;

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: Errno,
    text: String,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(errno: Errno, text: impl Into<String>) -> Self {
        Self {
            errno,
            text: text.into(),
        }
    }

    #[cfg(test)]
    pub(crate) fn errno(&self) -> Errno {
        self.errno
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(Errno::EINVAL, text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let mut text = error.to_string();
        let errno = match &error {
            Error::Call { errno, .. } => *errno,
            Error::File { source, .. } => {
                text = format!("{text}: {source}");
                source.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
            }
            Error::NoDriver | Error::NoGpu => Errno::ENODEV,
            Error::NoRenderNode(_) => Errno::ENXIO,
            Error::Version(..) | Error::Topology { .. } => Errno::EPROTO,
            Error::TopologyUnstable | Error::RingFull { .. } => Errno::EAGAIN,
            Error::OutOfRange { .. } => Errno::ERANGE,
            Error::Argument(_) | Error::Packet(_) => Errno::EINVAL,
            Error::TimedOut { .. } => Errno::ETIMEDOUT,
            Error::QueueFailed(_) => Errno::EIO,
            Error::Code(why) => errno_of(why),
            Error::Thread(why) => why.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw),
        };
        Self { errno, text }
    }
}

/// The errno of what is wrong with a code object or a launch.
fn errno_of(why: &CodeError) -> Errno {
    match why {
        CodeError::WrongIsa { .. } | CodeError::NotInBundle { .. } => Errno::EOPNOTSUPP,
        CodeError::NoKernel { .. } | CodeError::NoSymbol(_) => Errno::ENOENT,
        CodeError::Argument { .. } | CodeError::Launch { .. } => Errno::EINVAL,
        // What is no code object, or is broken.
        _ => Errno::ENOEXEC,
    }
}

/// What C passed, or the error that names the argument.
pub(crate) fn given<T>(argument: Option<T>, name: &'static str) -> Result<T> {
    argument.ok_or_else(|| Failure::invalid(format!("{name} is NULL")))
}

/// Elements of an array from C, above which no ring is large enough.
const MOST: u32 = 1 << 28;

/// An array that C lends.
///
/// # Safety
/// Where it is not NULL, `start` points to `count` readable elements that nobody changes while the slice lives.
pub(crate) unsafe fn array<'a, T>(
    start: *const T,
    count: u32,
    name: &'static str,
) -> Result<&'a [T]> {
    if count == 0 || count > MOST {
        return Err(Failure::invalid(format!(
            "{count} elements where 1 to {MOST} can be"
        )));
    }
    if start.is_null() || !start.is_aligned() {
        return Err(Failure::invalid(format!("{name} is NULL or not aligned")));
    }
    // SAFETY: not null and aligned (checked), readable and unchanged (the caller's promise), shorter than `isize::MAX`
    // bytes (`MOST`).
    Ok(unsafe { std::slice::from_raw_parts(start, count as usize) }) // CAST: 32 bits into 64.
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

fn remember(text: String) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // Neither can fail but while the thread ends, when nobody reads the text any more.
    let _ = LAST.try_with(|last| last.try_borrow_mut().map(|mut last| *last = text));
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}

/// Runs the body of a C function: 0, or a negative errno whose text is kept for [`rkfd_last_error`].
///
/// A panic is a defect of the library. It ends here as `ENOTRECOVERABLE`; the locks behind the handles are taken again
/// regardless of poison, since each protects a state that is whole between any two of its stores.
pub(crate) fn guard(body: impl FnOnce() -> Result<()>) -> c_int {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return 0,
        Ok(Err(failure)) => failure,
        Err(payload) => {
            let text = format!("A defect of librkfd: {}", panic_text(&*payload));
            // Dropping a payload may panic in turn; this one is leaked.
            std::mem::forget(payload);
            Failure::new(Errno::ENOTRECOVERABLE, text)
        }
    };
    remember(failure.text);
    // CAST: errno values are small and positive. One that nix does not know would read as 0, hence success.
    match failure.errno as c_int {
        0 => -(Errno::EIO as c_int),
        errno => -errno,
    }
}

/// Gives a handle back.
pub(crate) fn release<T>(handle: Option<Box<T>>) {
    guard(|| {
        drop(handle);
        Ok(())
    });
}

/// The text of the last error of the calling thread, "" where there was none. Valid until the thread's next call that
/// fails; calls that succeed leave it as it is.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_last_error() -> *const c_char {
    LAST.try_with(|last| last.try_borrow().map_or(c"".as_ptr(), |text| text.as_ptr()))
        .unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;
    use std::io;

    fn last() -> String {
        // SAFETY: the pointer is valid until this thread's next failure, and copied before.
        unsafe { CStr::from_ptr(rkfd_last_error()) }
            .to_str()
            .unwrap()
            .to_owned()
    }

    #[test]
    fn every_error_has_its_errno_and_text() {
        let file = Error::File {
            path: "/dev/kfd".into(),
            source: io::Error::from_raw_os_error(Errno::EACCES as i32),
        };
        let call = Error::Call {
            call: "CREATE_QUEUE",
            errno: Errno::ENOSPC,
        };
        let full = Error::RingFull { wanted: 9, free: 2 };
        for (error, errno, text) in [
            (file, Errno::EACCES, "/dev/kfd: Permission denied"),
            (call, Errno::ENOSPC, "CREATE_QUEUE: ENOSPC"),
            (full, Errno::EAGAIN, "The ring is full: 9 units wanted"),
            (Error::NoDriver, Errno::ENODEV, "No compute driver"),
            (Error::Argument("Odd"), Errno::EINVAL, "Odd"),
        ] {
            assert_eq!(guard(|| Err(error.into())), -(errno as c_int));
            assert!(last().starts_with(text), "{}", last());
        }
    }

    #[test]
    fn a_panic_ends_at_the_boundary() {
        let rc = guard(|| panic!("with a\0zero"));
        assert_eq!(rc, -(Errno::ENOTRECOVERABLE as c_int));
        assert_eq!(last(), "A defect of librkfd: with a zero");
        assert_eq!(guard(|| Ok(())), 0);
        assert!(last().ends_with("zero"), "success leaves the text");
    }

    #[test]
    fn texts_are_of_their_threads() {
        guard(|| Err(Failure::invalid("mine")));
        std::thread::spawn(|| assert_eq!(last(), ""))
            .join()
            .unwrap();
        assert_eq!(last(), "mine");
    }

    #[test]
    fn arrays_are_checked() {
        let values = [1u32, 2];
        // SAFETY: the pointers that are not refused point to two dwords.
        unsafe {
            assert_eq!(array(values.as_ptr(), 2, "values").unwrap(), values);
            assert!(array(values.as_ptr(), 0, "values").is_err());
            assert!(array(values.as_ptr(), MOST + 1, "values").is_err());
            assert!(array::<u32>(std::ptr::null(), 2, "values").is_err());
            let odd = values.as_ptr().cast::<u8>().wrapping_add(1).cast::<u32>();
            assert!(array(odd, 1, "values").is_err());
        }
    }
}
