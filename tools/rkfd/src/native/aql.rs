// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The `amd_queue_t` of an AQL queue of an address space, which lies in the page of the queue's pointers.

use super::Bo;
use super::Queue;
use super::QueueKind;
use super::RING;
use crate::error::Result;
use crate::packet::aql;
use crate::queue::object::at;
use crate::signal;

/// Where the write index and the read index lie in the page.
pub(super) const POINTERS: (usize, usize) = (at::WRITE, at::READ);
/// Where the inactive signal lies in the page.
const INACTIVE: usize = at::END;

/// Fills in what the packet processor reads of a queue whose memory is bound at `address`, and empties its ring.
pub(super) fn describe(bo: &Bo, address: u64) -> Result<()> {
    let packets = RING / aql::BYTES;
    for packet in 0..packets {
        bo.write_u32(packet * aql::BYTES, aql::INVALID.into())?;
    }
    let inactive = address + (RING + INACTIVE) as u64; // CAST: a constant.
    for (offset, value) in [
        (at::FEATURES, 1),
        (at::SIZE, packets as u32),         // CAST: a constant.
        (at::READ_OFFSET, at::READ as u32), // CAST: a constant.
        (at::PROPERTIES, 1 << 1),
    ] {
        bo.write_u32(RING + offset, value)?;
    }
    for (offset, value) in [
        (at::BASE, address),
        (at::INACTIVE_SIGNAL, inactive),
        (INACTIVE + signal::KIND, signal::KIND_USER),
    ] {
        bo.write_u32(RING + offset, value as u32)?; // CAST: the low half.
        bo.write_u32(RING + offset + 4, (value >> 32) as u32)?; // CAST: the high half.
    }
    Ok(())
}

impl Queue {
    /// Why an AQL queue stopped at a packet, as the value of its inactive signal; 0 while it runs, and of other kinds.
    ///
    /// # Errors
    /// None that can happen: the word lies in the queue's memory.
    pub fn inactive(&self) -> Result<u32> {
        match self.kind {
            QueueKind::Aql => self.bo.read_u32(RING + INACTIVE + signal::VALUE),
            QueueKind::Pm4 | QueueKind::Sdma => Ok(0),
        }
    }
}
