// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Structures that can grow: their first field is the size that the caller was compiled with.
//!
//! A program that was compiled with an older header passes a smaller structure: what it does not have is as if it were
//! 0, or is not told. One that was compiled with a newer header passes a larger one: what this library does not know has
//! to be 0 where it is a request (`E2BIG`), and is set to 0 where it is an answer.

use nix::errno::Errno;

use crate::error::Failure;
use crate::error::Result;

/// A structure that can grow.
///
/// # Safety
/// `repr(C)`, made of integers and pointers without padding, so that any bytes are a valid value and zeros are one; its
/// first field is a `u32` for its size. [`Grows::FIRST`] is at least 4.
pub(crate) unsafe trait Grows: Copy {
    /// Its size in the first version of the library.
    const FIRST: usize;
    /// Its name in C.
    const NAME: &'static str;
}

/// Declares structures that can grow, with the size of their first version.
macro_rules! grows {
    ($($ty:ty, $name:literal, $first:literal;)*) => { $(
        // SAFETY: integers and pointers without padding behind a `u32` called `size`; checked below as far as a compiler can.
        unsafe impl $crate::sized::Grows for $ty {
            const FIRST: usize = $first;
            const NAME: &'static str = $name;
        }
        const _: () = {
            assert!(std::mem::offset_of!($ty, size) == 0);
            assert!(size_of::<$ty>() >= $first && $first % 4 == 0 && $first >= 8);
        };
    )* };
}
pub(crate) use grows;

fn size_of_caller<T: Grows>(pointer: *const T) -> Result<usize> {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(Failure::invalid(format!(
            "{} is NULL or not aligned",
            T::NAME
        )));
    }
    // SAFETY: not null, aligned, and the callers' promise: the first field can be read.
    let size = unsafe { pointer.cast::<u32>().read() };
    let size = size as usize; // CAST: 32 bits into 64.
    if size < T::FIRST || size % 4 != 0 || size > 1 << 16 {
        return Err(Failure::invalid(format!(
            "size of {} is {size}: set it to sizeof(struct {})",
            T::NAME,
            T::NAME
        )));
    }
    Ok(size)
}

/// Reads a request.
///
/// # Safety
/// `from` is NULL or points to as many readable bytes as its first field says, which nobody changes meanwhile.
pub(crate) unsafe fn read<T: Grows>(from: *const T) -> Result<T> {
    let size = size_of_caller(from)?;
    let known = size.min(size_of::<T>());
    // SAFETY: `size` bytes are readable; zeros are a value of `T` and so are any bytes over them (contract of `Grows`).
    unsafe {
        let bytes = from.cast::<u8>();
        for at in known..size {
            if bytes.add(at).read() != 0 {
                return Err(Failure::new(
                    Errno::E2BIG,
                    format!("{} has fields that this library does not know", T::NAME),
                ));
            }
        }
        let mut value: T = std::mem::zeroed();
        std::ptr::copy_nonoverlapping(bytes, (&raw mut value).cast::<u8>(), known);
        Ok(value)
    }
}

/// An answer's place, checked before anything is done for it.
pub(crate) struct Answer<T> {
    to: *mut T,
    size: usize,
}

/// Looks at where an answer goes.
///
/// # Safety
/// `to` is NULL or points to as many writable bytes as its first field says, which are the caller's until the answer is
/// given.
pub(crate) unsafe fn answer<T: Grows>(to: *mut T) -> Result<Answer<T>> {
    let size = size_of_caller(to.cast_const())?;
    Ok(Answer { to, size })
}

impl<T: Grows> Answer<T> {
    /// Gives the answer: as much of it as the caller knows, its `size` field as it was.
    pub(crate) fn give(self, value: T) {
        let known = self.size.min(size_of::<T>());
        // SAFETY: `size` bytes are writable (contract of `answer`); `known` of them are those of `value`. The first field,
        // 4 bytes, stays.
        unsafe {
            let to = self.to.cast::<u8>();
            let from = (&raw const value).cast::<u8>();
            std::ptr::copy_nonoverlapping(from.add(4), to.add(4), known - 4);
            std::ptr::write_bytes(to.add(known), 0, self.size - known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Now {
        size: u32,
        a: u32,
        b: u64,
    }

    grows! { Now, "rkfd_now", 8; }

    const SIZE: u32 = size_of::<Now>() as u32;

    /// What a program of another time passes.
    #[repr(C, align(8))]
    #[derive(Clone, Copy)]
    struct Other([u32; 6]);

    fn request(words: [u32; 6]) -> Result<Now> {
        let other = Other(words);
        // SAFETY: 24 bytes, and no size in these tests is larger, but for those that are refused.
        unsafe { read((&raw const other).cast::<Now>()) }
    }

    #[test]
    fn requests_of_other_times_are_read() {
        let (a, b) = (7, (9 << 32) | 8);
        assert_eq!(
            request([SIZE, 7, 8, 9, 1, 1]).unwrap(),
            Now { size: SIZE, a, b }
        );
        // Older: what it does not have is 0.
        assert_eq!(
            request([8, 7, 8, 9, 1, 1]).unwrap(),
            Now { size: 8, a, b: 0 }
        );
        // Newer, with nothing in what is not known here, and with something.
        assert_eq!(
            request([24, 7, 8, 9, 0, 0]).unwrap(),
            Now { size: 24, a, b }
        );
        assert_eq!(
            request([24, 7, 8, 9, 0, 1]).unwrap_err().errno(),
            Errno::E2BIG
        );
        for size in [0, 4, 7, 10, (1 << 16) + 4, u32::MAX] {
            assert_eq!(
                request([size, 0, 0, 0, 0, 0]).unwrap_err().errno(),
                Errno::EINVAL
            );
        }
        // SAFETY: NULL is allowed.
        assert!(unsafe { read::<Now>(std::ptr::null()) }.is_err());
    }

    #[test]
    fn answers_to_other_times_are_cut_or_filled_up() {
        for (size, expected) in [
            (8, [8, 7, 1, 1, 1, 1]),
            (SIZE, [SIZE, 7, 8, 9, 1, 1]),
            (24, [24, 7, 8, 9, 0, 0]),
        ] {
            let mut other = Other([size, 1, 1, 1, 1, 1]);
            // SAFETY: as above.
            let answer = unsafe { answer((&raw mut other).cast::<Now>()) }.unwrap();
            answer.give(Now {
                size: SIZE,
                a: 7,
                b: (9 << 32) | 8,
            });
            assert_eq!(other.0, expected);
        }
    }
}
