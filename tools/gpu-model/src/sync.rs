// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Locks and atomics of address spaces.
//!
//! `tests/epochs` compiles [`crate::vm::space`] with others in their place, which try all orders in which threads may run.

pub use std::sync::atomic::{fence, AtomicU64, Ordering};

pub use parking_lot::{Mutex, RwLock};
