// SPDX-License-Identifier: GPL-2.0

//! One buffer in one address space.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

use super::{
    bo::{
        Bo,
        Placed, //
    },
    pt::Run, //
};
use crate::hw::pte::PageAttrs;

/// A buffer that is mapped, and what keeps its memory where the entries say it is.
pub(super) struct Mapping {
    #[cfg_attr(not(rkfd_kunit), allow(dead_code, reason = "seen by tests"))]
    va: u64,
    bo: Arc<Bo>,
    placed: Placed,
    /// Queues that use it. Taken under the lock of the `Vm`, returned without.
    holds: Atomic<i32>,
}

impl Mapping {
    pub(super) fn new(bo: &Arc<Bo>, va: u64, placed: Placed) -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                va,
                bo: bo.clone(),
                placed,
                holds: Atomic::new(0),
            },
            GFP_KERNEL,
        )?)
    }

    pub(super) fn runs(&self) -> &[Run] {
        &self.placed.runs
    }

    pub(super) fn attrs(&self) -> PageAttrs {
        self.placed.attrs
    }

    pub(super) fn bo(&self) -> &Bo {
        &self.bo
    }

    pub(super) fn is_held(&self) -> bool {
        self.holds.load(Relaxed) != 0
    }

    pub(super) fn hold(self: &Arc<Self>) -> MappingHold {
        self.holds.add(1, Relaxed);
        MappingHold {
            mapping: self.clone(),
        }
    }

    #[cfg_attr(not(rkfd_kunit), allow(dead_code, reason = "seen by tests"))]
    pub(super) fn info(&self) -> MappingInfo {
        MappingInfo {
            va: self.va,
            size: self.bo.size(),
            bo: self.bo.clone(),
        }
    }
}

/// What [`Vm::lookup`](super::Vm::lookup) finds.
#[cfg_attr(not(rkfd_kunit), allow(dead_code, reason = "seen by tests"))]
pub(crate) struct MappingInfo {
    /// First address.
    pub(crate) va: u64,
    /// Bytes.
    pub(crate) size: u64,
    /// The buffer.
    pub(crate) bo: Arc<Bo>,
}

/// Keeps a mapping from being unmapped. If the address space ends nevertheless, it still keeps
/// the memory.
pub(crate) struct MappingHold {
    mapping: Arc<Mapping>,
}

impl MappingHold {
    /// First address of the mapping.
    #[cfg_attr(not(rkfd_kunit), allow(dead_code, reason = "seen by tests"))]
    pub(crate) fn va(&self) -> u64 {
        self.mapping.va
    }
}

impl Drop for MappingHold {
    fn drop(&mut self) {
        self.mapping.holds.add(-1, Relaxed);
    }
}
