// SPDX-License-Identifier: GPL-2.0

//! GPU address spaces: page tables, buffers, and which buffer is mapped where.

#![allow(dead_code, reason = "the users of the parts land next")]

pub(crate) mod interval;
pub(crate) mod pt;
