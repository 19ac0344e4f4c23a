// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The test driver behind `make test`.

fn main() {}
