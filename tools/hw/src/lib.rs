// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Host build of `rust/hw`.
