// SPDX-License-Identifier: GPL-2.0

//! The desired state: what callers want to run, where the hardware stands, and what follows from the two.
//!
//! Nothing in here touches the device but for descriptors of queues that are off the hardware.

pub(super) mod admit;
pub(super) mod ib;
pub(super) mod plan;
pub(super) mod process;
pub(super) mod progress;
pub(super) mod queue;
pub(super) mod reap;
pub(super) mod state;
