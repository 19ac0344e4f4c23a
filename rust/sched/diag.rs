// SPDX-License-Identifier: GPL-2.0

//! Observers of the scheduler: they read the state and the hardware, and change neither.

pub(super) mod debugfs;
pub(super) mod dump;
pub(super) mod sample;
pub(super) mod slot;
pub(super) mod text;
pub(super) mod trace;
pub(super) mod watchdog;
