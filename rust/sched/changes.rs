// SPDX-License-Identifier: GPL-2.0

//! The changes that callers make to the desired state.
//!
//! Each takes the state lock for bookkeeping only. What it needs is allocated before, what it
//! leaves is freed after, and waiting comes last.

pub(super) mod checkpoint;
pub(super) mod evict;
pub(super) mod noted;
pub(super) mod pending;
pub(super) mod process;
pub(super) mod queue;
