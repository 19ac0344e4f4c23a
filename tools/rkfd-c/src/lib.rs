// SPDX-License-Identifier: GPL-2.0 OR MIT
//! C face of the user library: `include/rkfd.h`, `librkfd.a`, `librkfd.so`.
//!
//! The header is generated from these sources by `tests/header.rs`, comments included; what stands in a `///` comment
//! of a public item is read by C programmers.
//!
//! Rules of this face:
//! * A handle is a `Box`: [`Option<Box<T>>`] where C gives it back, [`Option<&T>`] where C lends it. `NULL` is `None`, and
//!   an error wherever it is not said to be allowed. State behind a handle is behind a lock, so no function needs an
//!   exclusive reference and C may call from any thread.
//! * What C passes as numbers is checked; no Rust enum crosses the boundary inwards, because C may store any value in it.
//! * Structures that cross it begin with their size, as the caller knows it ([`sized`]), so that they can grow.
//! * No panic crosses it either: each body that can fail runs in [`error::guard`].

#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod buffer;
pub mod counters;
pub mod error;
pub mod event;
pub mod failure;
pub mod functions;
pub mod gpu;
pub mod host;
pub mod migrate;
pub mod mirror;
pub mod native;
pub mod packets;
pub mod program;
pub mod queue;
pub mod signal;
mod sized;
pub mod version;
pub mod workers;
