// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The gfx9 GPU model.
fn main() {}
