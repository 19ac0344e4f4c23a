// SPDX-License-Identifier: GPL-2.0

//! Checks of CREATE_QUEUE and UPDATE_QUEUE that depend on nothing but the arguments.
//!
//! Their order is upstream's (`set_queue_properties_from_user`, `kfd_queue_acquire_buffers`), so that a call with
//! several defects gets the same errno.

use crate::{
    hw::num::lo32,
    kfd::uapi::{
        CreateQueue,
        UpdateQueue, //
    },
    queue::request::{
        check_share,
        effective_percent,
        Change,
        Kind,
        Properties,
        SdmaEngine,
        MIN_RING, //
    },
};
use kernel::prelude::*;

/// Bits of a percentage that count; bits 15:8 name an XCC.
const PERCENT_MASK: u32 = 0xff;

/// Type of a queue from its number, `engine` for type 4.
fn kind(queue_type: u32, engine: u32) -> Result<Kind> {
    match queue_type {
        0 => Ok(Kind::Pm4),
        1 => Ok(Kind::Sdma(SdmaEngine::General)),
        2 => Ok(Kind::Aql),
        3 => Ok(Kind::Sdma(SdmaEngine::Xgmi)),
        4 => Ok(Kind::Sdma(SdmaEngine::Number(engine))),
        _ => Err(ENOTSUPP),
    }
}

/// Bytes of a ring for those that were given: a smaller ring is taken for one of [`MIN_RING`].
fn ring_size(size: u32) -> Result<u32> {
    if size != 0 && !size.is_power_of_two() {
        return Err(EINVAL);
    }
    Ok(size.max(MIN_RING))
}

impl CreateQueue {
    /// The queue that is asked for. `access_ok(address, bytes)` tells whether user space may have that range.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: percentage, priority, or a ring size that is not a power of two.
    /// - `EFAULT`: a pointer outside the user's range.
    /// - `ENOTSUPP`: unknown type.
    pub(crate) fn check(&self, access_ok: impl Fn(u64, u64) -> bool) -> Result<Properties> {
        check_share(self.queue_percentage, self.queue_priority)?;
        if self.ring_base != 0 && !access_ok(self.ring_base, 8) {
            return Err(EFAULT);
        }
        let ring_size = ring_size(self.ring_size)?;
        if self.metadata_ring_size != 0 && !self.metadata_ring_size.is_power_of_two() {
            return Err(EINVAL);
        }
        if !access_ok(self.read_pointer, 4) || !access_ok(self.write_pointer, 4) {
            return Err(EFAULT);
        }
        for optional in [self.eop_address, self.ctx_save_address] {
            if optional != 0 && !access_ok(optional, 4) {
                return Err(EFAULT);
            }
        }
        let kind = kind(self.queue_type, self.sdma_engine_id)?;
        Ok(Properties {
            kind,
            ring_base: self.ring_base,
            ring_size,
            metadata_size: match kind {
                Kind::Aql => self.metadata_ring_size,
                _ => 0,
            },
            wptr: self.write_pointer,
            rptr: self.read_pointer,
            eop: self.eop_address,
            // The interface's 64 bits end in a 32-bit field of the kernel.
            eop_size: lo32(self.eop_size),
            ctx: self.ctx_save_address,
            ctx_size: self.ctx_save_size,
            ctl_stack_size: self.ctl_stack_size,
            percent: self.queue_percentage & PERCENT_MASK,
            priority: self.queue_priority,
        })
    }
}

impl UpdateQueue {
    /// What is to change. `access_ok(address, bytes)` tells whether user space may have that range.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: percentage, priority, or a ring size that is not a power of two.
    /// - `EFAULT`: the ring lies outside the user's range.
    pub(crate) fn check(&self, access_ok: impl Fn(u64, u64) -> bool) -> Result<Change<'static>> {
        check_share(self.queue_percentage, self.queue_priority)?;
        if self.ring_base != 0 && !access_ok(self.ring_base, 8) {
            return Err(EFAULT);
        }
        let size = ring_size(self.ring_size)?;
        let percent = self.queue_percentage & PERCENT_MASK;
        Ok(Change {
            ring: (self.ring_base != 0).then_some((self.ring_base, size)),
            percent: Some(effective_percent(self.ring_base, percent)),
            priority: Some(self.queue_priority),
            cu_mask: None,
        })
    }
}
