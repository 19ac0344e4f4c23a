// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Locks and atomics whose every use is a point at which another thread may go on.

pub use loom::sync::atomic::{fence, AtomicU64, Ordering};

use loom::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// As `parking_lot` has it: without poison.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}

/// As `parking_lot` has it: without poison.
#[derive(Debug, Default)]
pub struct RwLock<T>(loom::sync::RwLock<T>);

impl<T> RwLock<T> {
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap()
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap()
    }
}
