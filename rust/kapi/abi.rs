// SPDX-License-Identifier: GPL-2.0

//! Structures that cross the boundary to user space.
//!
//! [`abi_struct!`] declares one: `repr(C)`, plain integers only, its size stated, no padding. That is
//! what makes copying it to and from bytes sound, and the compiler checks all of it. `e2e/abi` compares the structures with
//! those of C.

/// A type of which every bit pattern is a value and which has no padding.
///
/// # Safety
///
/// Implementers have no padding bytes, no invalid bit pattern, no pointer and no interior
/// mutability.
pub(crate) unsafe trait Plain: Copy + Send + Sync + 'static {}

// SAFETY: An integer has no padding and no invalid bit pattern.
unsafe impl Plain for u32 {}
// SAFETY: An integer has no padding and no invalid bit pattern.
unsafe impl Plain for u64 {}
// SAFETY: An integer has no padding and no invalid bit pattern.
unsafe impl Plain for i32 {}
// SAFETY: An array adds no padding between its elements.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Accepts only plain types; evaluated while compiling.
#[expect(dead_code, reason = "used while compiling only")]
pub(crate) const fn require_plain<T: Plain>() {}

/// Declares a structure of the user interface: `struct Name: SIZE { field: type, ... }`.
macro_rules! abi_struct {
    (
        $(#[$meta:meta])*
        struct $name:ident: $size:literal {
            $( $(#[$fmeta:meta])* $field:ident: $type:ty ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct $name {
            $( $(#[$fmeta])* pub(crate) $field: $type ),*
        }

        const _: () = {
            $( $crate::kapi::abi::require_plain::<$type>(); )*
            assert!(core::mem::size_of::<$name>() == $size, "size differs from the ABI");
            assert!(
                core::mem::size_of::<$name>() == 0 $( + core::mem::size_of::<$type>() )*,
                "the structure has padding"
            );
        };

        // SAFETY: Every field is `Plain` and the sum of the field sizes is the size of the
        // structure (both checked above), so there is no padding and no invalid bit pattern.
        unsafe impl $crate::kapi::abi::Plain for $name {}
        // SAFETY: Every field is `Plain`, so any bytes are a value.
        unsafe impl ::kernel::transmute::FromBytes for $name {}
        // SAFETY: Every field is `Plain` and there is no padding, so no byte is uninitialised.
        unsafe impl ::kernel::transmute::AsBytes for $name {}
    };
}
pub(crate) use abi_struct;
