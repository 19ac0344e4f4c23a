// SPDX-License-Identifier: GPL-2.0

//! What user space asks for when it creates or updates a queue, in one form for both interfaces, and the memory that
//! such a queue needs.
//!
//! Each interface checks its own structure, in its own order, and makes [`Properties`] or a [`Change`] of it.

use crate::{
    hw::{
        asic::EOP_BYTES,
        cwsr,
        pte::PAGE, //
    },
    sched::QueueKind, //
};
use kernel::prelude::*;

/// Largest percentage.
const MAX_PERCENTAGE: u32 = 100;
/// Largest priority.
const MAX_PRIORITY: u32 = 15;
/// Smallest ring, bytes.
pub(crate) const MIN_RING: u32 = 1024;

/// Which SDMA engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SdmaEngine {
    /// Any of the general ones.
    General,
    /// Any of those for XGMI.
    Xgmi,
    /// This one.
    Number(u32),
}

/// Type of a queue that has no place yet.
pub(crate) type Kind = QueueKind<SdmaEngine>;

/// A queue that was asked for, its values checked by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Properties {
    /// Type.
    pub(crate) kind: Kind,
    /// GPU address of the ring, 0: the queue does not run.
    pub(crate) ring_base: u64,
    /// Bytes, a power of two.
    pub(crate) ring_size: u32,
    /// Bytes behind the ring.
    pub(crate) metadata_size: u32,
    /// GPU address of the write pointer.
    pub(crate) wptr: u64,
    /// GPU address of the read pointer.
    pub(crate) rptr: u64,
    /// GPU address of the end-of-pipe buffer, 0 for none.
    pub(crate) eop: u64,
    /// Bytes.
    pub(crate) eop_size: u32,
    /// GPU address of the wave save area.
    pub(crate) ctx: u64,
    /// Bytes.
    pub(crate) ctx_size: u32,
    /// Bytes of the control stack in it.
    pub(crate) ctl_stack_size: u32,
    /// 0 to 100; 0: the queue does not run.
    pub(crate) percent: u32,
    /// 0 to 15.
    pub(crate) priority: u32,
}

/// What of a queue changes; `None` leaves it as it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change<'a> {
    /// GPU address and bytes of the ring.
    pub(crate) ring: Option<(u64, u32)>,
    /// 0 to 100; 0: stop.
    pub(crate) percent: Option<u32>,
    /// 0 to 15.
    pub(crate) priority: Option<u32>,
    /// Mask of compute units, and how many bits of it count.
    pub(crate) cu_mask: Option<(&'a [u32], u32)>,
}

/// Checks percentage (bits 7:0) and priority.
///
/// # Errors
///
/// `EINVAL`: more than 100 per cent, or more than the highest priority.
pub(crate) fn check_share(percentage: u32, priority: u32) -> Result {
    if percentage & 0xff > MAX_PERCENTAGE || priority > MAX_PRIORITY {
        return Err(EINVAL);
    }
    Ok(())
}

/// A GPU mapping that a queue needs: it begins at `va` and has `size` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MappingReq {
    /// Page-aligned GPU address.
    pub(crate) va: u64,
    /// Bytes, a multiple of the page; 0: any.
    pub(crate) size: u64,
}

impl MappingReq {
    /// The mapping that begins on the page of `address` and has `bytes` bytes, rounded up to pages.
    ///
    /// # Errors
    ///
    /// `EINVAL` if that overflows.
    pub(crate) fn pages(address: u64, bytes: u64) -> Result<Self> {
        Ok(Self {
            va: address & !(PAGE - 1),
            size: bytes.checked_next_multiple_of(PAGE).ok_or(EINVAL)?,
        })
    }
}

/// All mappings that a queue reqs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MappingReqs {
    /// Write pointer.
    pub(crate) wptr: MappingReq,
    /// Read pointer.
    pub(crate) rptr: MappingReq,
    /// Ring and metadata.
    pub(crate) ring: MappingReq,
    /// End-of-pipe buffer.
    pub(crate) eop: Option<MappingReq>,
    /// Wave save area.
    pub(crate) ctx: Option<MappingReq>,
}

impl Properties {
    /// The mappings that this queue needs on a GPU whose waves save as `sizes` says.
    ///
    /// # Errors
    ///
    /// `EINVAL`: end-of-pipe buffer, control stack or save area of a wrong size.
    pub(crate) fn mapping_reqs(&self, sizes: &cwsr::Sizes, num_xcc: u32) -> Result<MappingReqs> {
        let mut reqs = MappingReqs {
            wptr: MappingReq::pages(self.wptr, PAGE)?,
            rptr: MappingReq::pages(self.rptr, PAGE)?,
            ring: MappingReq::pages(
                self.ring_base,
                u64::from(self.ring_size) + u64::from(self.metadata_size),
            )?,
            eop: None,
            ctx: None,
        };
        if !self.kind.is_compute() {
            return Ok(reqs);
        }
        if self.eop != 0 {
            if self.eop_size < EOP_BYTES {
                return Err(EINVAL);
            }
            reqs.eop = Some(MappingReq::pages(self.eop, u64::from(self.eop_size))?);
        }
        if self.ctl_stack_size != sizes.ctl_stack || self.ctx_size < sizes.cwsr {
            return Err(EINVAL);
        }
        let total = (u64::from(self.ctx_size) + u64::from(sizes.debug)) * u64::from(num_xcc);
        reqs.ctx = Some(MappingReq::pages(self.ctx, total)?);
        Ok(reqs)
    }

    /// Percentage that counts: 0 if anything stops the queue.
    pub(crate) fn effective_percent(&self) -> u32 {
        effective_percent(self.ring_base, self.percent)
    }
}

/// Percentage that counts: a queue without a ring does not run.
pub(crate) fn effective_percent(ring_base: u64, percent: u32) -> u32 {
    if ring_base == 0 {
        0
    } else {
        percent
    }
}
