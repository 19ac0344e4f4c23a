// SPDX-License-Identifier: GPL-2.0

//! Splitting and joining of machine words, the only place with bare integer casts.
//!
//! `From` is not usable in a `const fn`, so the lossless and the deliberate narrowing conversions
//! of this layer are gathered here under names that say what is kept.

/// Low 32 bits of a 64-bit word.
pub(crate) const fn lo32(value: u64) -> u32 {
    // CAST: The mask leaves exactly the bits that a `u32` holds.
    (value & 0xffff_ffff) as u32
}

/// High 32 bits of a 64-bit word.
pub(crate) const fn hi32(value: u64) -> u32 {
    // CAST: The shift leaves exactly 32 bits.
    (value >> 32) as u32
}

/// The 64-bit word with the given low and high halves.
pub(crate) const fn join(lo: u32, hi: u32) -> u64 {
    widen(lo) | (widen(hi) << 32)
}

/// A `u32` as `u64`.
pub(crate) const fn widen(value: u32) -> u64 {
    // CAST: Lossless.
    value as u64
}

/// A `u32` as index. The kernel and the host tools only run where `usize` has 32 bits or more.
pub(crate) const fn index(value: u32) -> usize {
    // CAST: Lossless by the statement above.
    value as usize
}

/// A small constant length as `u32`; larger lengths saturate.
pub(crate) const fn len32(value: usize) -> u32 {
    if value > index(u32::MAX) {
        u32::MAX
    } else {
        // CAST: Checked in the line above.
        value as u32
    }
}

/// Mask with the lowest `width` bits set.
pub(crate) const fn low_mask(width: u32) -> u64 {
    if width >= 64 {
        u64::MAX
    } else {
        (1 << width) - 1
    }
}

/// `value` rounded up to a multiple of `align`, a power of two. `None` on overflow.
pub(crate) const fn align_up(value: u64, align: u64) -> Option<u64> {
    match value.checked_add(align - 1) {
        Some(sum) => Some(sum & !(align - 1)),
        None => None,
    }
}

/// Whether `value` is a multiple of `align`, a power of two.
pub(crate) const fn is_aligned(value: u64, align: u64) -> bool {
    value & (align - 1) == 0
}
