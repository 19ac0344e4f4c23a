// SPDX-License-Identifier: GPL-2.0

//! Which GPU addresses may be used for what.

use core::ops::Range;

use kernel::prelude::*;

use super::pt::PAGE;

/// First address that user space may map (`AMDGPU_VA_RESERVED_BOTTOM`).
pub(crate) const USER_START: u64 = 0x1_0000;
/// First address above: 47 bits, as many as a process has itself.
pub(crate) const USER_END: u64 = 1 << 47;

/// The range that a mapping of `size` bytes at `va` takes.
///
/// # Errors
///
/// `EINVAL` if either is not a multiple of the page size, `size` is 0, or the range is not inside
/// the user range.
pub(crate) fn check(va: u64, size: u64) -> Result<Range<u64>> {
    let end = va.checked_add(size).ok_or(EINVAL)?;
    if size == 0 || va % PAGE != 0 || size % PAGE != 0 || va < USER_START || end > USER_END {
        return Err(EINVAL);
    }
    Ok(va..end)
}

/// What a queue demands of a mapping that one of its buffers lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SizeRule {
    /// The mapping starts at the address and has exactly this many bytes.
    Exact(u64),
    /// The mapping has at least this many bytes from the address on.
    AtLeast(u64),
}

impl SizeRule {
    /// Whether the mapping `range`, which contains `va`, will do.
    pub(crate) fn admits(self, range: Range<u64>, va: u64) -> bool {
        match self {
            Self::Exact(size) => range.start == va && range.end - range.start == size,
            Self::AtLeast(size) => range.contains(&va) && size <= range.end - va,
        }
    }
}
