// SPDX-License-Identifier: GPL-2.0

//! Which way memory goes between VRAM and pages of the system.

/// Where a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From VRAM to the pages.
    Out,
    /// From the pages to VRAM.
    In,
}
