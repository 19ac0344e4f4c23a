// SPDX-License-Identifier: GPL-2.0

//! What user space asks for when it creates or updates a queue.
//!
//! The order of the checks is upstream's (`set_queue_properties_from_user`, `kfd_queue_acquire_buffers`),
//! so that a request with several defects gets the same errno.

use crate::hw::{
    asic::EOP_BYTES,
    cwsr,
    pte::PAGE, //
};
use kernel::prelude::*;

/// Largest percentage.
const MAX_PERCENTAGE: u32 = 100;
/// Largest priority.
const MAX_PRIORITY: u32 = 15;
/// Smaller rings are taken for this size, bytes.
pub(crate) const MIN_RING: u32 = 1024;

/// CREATE_QUEUE, as it came.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request {
    /// GPU address of the ring.
    pub(crate) ring_base: u64,
    /// Bytes.
    pub(crate) ring_size: u32,
    /// Bytes of the metadata ring behind it (AQL).
    pub(crate) metadata_size: u32,
    /// GPU address of the write pointer.
    pub(crate) wptr: u64,
    /// GPU address of the read pointer.
    pub(crate) rptr: u64,
    /// GPU address of the end-of-pipe buffer, 0 for none.
    pub(crate) eop: u64,
    /// Bytes.
    pub(crate) eop_size: u64,
    /// GPU address of the wave save area.
    pub(crate) ctx: u64,
    /// Bytes.
    pub(crate) ctx_size: u32,
    /// Bytes of the control stack in it.
    pub(crate) ctl_stack_size: u32,
    /// Type, as the interface numbers them.
    pub(crate) queue_type: u32,
    /// Engine, for type 4.
    pub(crate) sdma_engine: u32,
    /// Bits 7:0 percentage, 15:8 target XCC.
    pub(crate) percentage: u32,
    /// 0 to 15.
    pub(crate) priority: u32,
}

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

/// Type of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Compute, PM4 packets.
    Pm4,
    /// Compute, AQL packets.
    Aql,
    /// SDMA.
    Sdma(SdmaEngine),
}

impl Kind {
    /// From the number of the interface.
    ///
    /// # Errors
    ///
    /// `ENOTSUPP`: unknown.
    fn from_user(queue_type: u32, engine: u32) -> Result<Self> {
        match queue_type {
            0 => Ok(Self::Pm4),
            1 => Ok(Self::Sdma(SdmaEngine::General)),
            2 => Ok(Self::Aql),
            3 => Ok(Self::Sdma(SdmaEngine::Xgmi)),
            4 => Ok(Self::Sdma(SdmaEngine::Number(engine))),
            _ => Err(ENOTSUPP),
        }
    }

    /// Whether waves run for it.
    pub(crate) fn is_compute(self) -> bool {
        matches!(self, Self::Pm4 | Self::Aql)
    }
}

/// A request that passed the checks of its own values.
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

impl Request {
    /// Checks everything that does not depend on the GPU. `access_ok(address, bytes)` tells whether user
    /// space may have that range.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: percentage, priority, or a ring size that is not a power of two.
    /// - `EFAULT`: a pointer outside the user's range.
    /// - `ENOTSUPP`: unknown type.
    pub(crate) fn check(&self, access_ok: impl Fn(u64, u64) -> bool) -> Result<Properties> {
        check_share(self.percentage, self.priority)?;
        if self.ring_base != 0 && !access_ok(self.ring_base, 8) {
            return Err(EFAULT);
        }
        let ring_size = check_ring_size(self.ring_size)?;
        if self.metadata_size != 0 && !self.metadata_size.is_power_of_two() {
            return Err(EINVAL);
        }
        if !access_ok(self.rptr, 4) || !access_ok(self.wptr, 4) {
            return Err(EFAULT);
        }
        for optional in [self.eop, self.ctx] {
            if optional != 0 && !access_ok(optional, 4) {
                return Err(EFAULT);
            }
        }
        let kind = Kind::from_user(self.queue_type, self.sdma_engine)?;
        Ok(Properties {
            kind,
            ring_base: self.ring_base,
            ring_size,
            metadata_size: if kind == Kind::Aql {
                self.metadata_size
            } else {
                0
            },
            wptr: self.wptr,
            rptr: self.rptr,
            eop: self.eop,
            // The interface's 64 bits end in a 32-bit field of the kernel.
            eop_size: crate::hw::num::lo32(self.eop_size),
            ctx: self.ctx,
            ctx_size: self.ctx_size,
            ctl_stack_size: self.ctl_stack_size,
            percent: self.percentage & 0xff,
            priority: self.priority,
        })
    }
}

/// UPDATE_QUEUE, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Update {
    /// GPU address of the ring, 0: stop.
    pub(crate) ring_base: u64,
    /// Bytes, a power of two.
    pub(crate) ring_size: u32,
    /// 0 to 100; 0: stop.
    pub(crate) percent: u32,
    /// 0 to 15.
    pub(crate) priority: u32,
}

impl Update {
    /// Checks an update.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: percentage, priority, or a ring size that is not a power of two.
    /// - `EFAULT`: the ring lies outside the user's range.
    pub(crate) fn check(
        ring_base: u64,
        ring_size: u32,
        percentage: u32,
        priority: u32,
        access_ok: impl Fn(u64, u64) -> bool,
    ) -> Result<Self> {
        check_share(percentage, priority)?;
        if ring_base != 0 && !access_ok(ring_base, 8) {
            return Err(EFAULT);
        }
        Ok(Self {
            ring_base,
            ring_size: check_ring_size(ring_size)?,
            percent: percentage & 0xff,
            priority,
        })
    }
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

impl From<&Update> for Change<'_> {
    fn from(update: &Update) -> Self {
        Self {
            ring: (update.ring_base != 0).then_some((update.ring_base, update.ring_size)),
            percent: Some(effective_percent(update.ring_base, update.percent)),
            priority: Some(update.priority),
            cu_mask: None,
        }
    }
}

/// # Errors
///
/// `EINVAL`: more than 100 per cent, or more than the highest priority.
pub(crate) fn check_share(percentage: u32, priority: u32) -> Result {
    if percentage & 0xff > MAX_PERCENTAGE || priority > MAX_PRIORITY {
        return Err(EINVAL);
    }
    Ok(())
}

fn check_ring_size(size: u32) -> Result<u32> {
    if size != 0 && !size.is_power_of_two() {
        return Err(EINVAL);
    }
    Ok(size.max(MIN_RING))
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
