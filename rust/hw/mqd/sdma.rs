// SPDX-License-Identifier: GPL-2.0

//! MQD of an SDMA user queue: the image of an RLC block.

use super::super::doorbell::DoorbellOffset;
use super::super::num;
use super::super::regs::sdma::{
    DoorbellOffset as OffsetReg,
    IbCntl,
    RbCntl, //
};
use super::layout::{
    sdma as at,
    SDMA_DWORDS, //
};
use super::{
    check,
    check_ring,
    MqdError, //
};

/// RPTR_WRITEBACK_TIMER of user queues.
const WRITEBACK_TIMER: u32 = 6;
/// DUMMY_REG of user queues (`SDMA_RLC_DUMMY_DEFAULT`).
const DUMMY: u32 = 0xf;

/// Description of an SDMA queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SdmaQueueConfig {
    /// Address of the ring, a multiple of 256.
    pub(crate) ring: u64,
    /// Length of the ring in bytes, a power of two.
    pub(crate) ring_bytes: u32,
    /// Where the 64-bit read pointer is reported, a multiple of 8.
    pub(crate) rptr_report: u64,
    /// Doorbell.
    pub(crate) doorbell: DoorbellOffset,
    /// Engine, kept in the MQD for the driver only.
    pub(crate) engine: u32,
    /// Queue of the engine, kept in the MQD for the driver only.
    pub(crate) queue: u32,
}

/// A checked description, from which the dwords of the MQD follow.
///
/// # Invariants
///
/// The addresses of `config` are aligned and have 48 bits, the ring's size fits its register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SdmaMqd {
    config: SdmaQueueConfig,
}

impl SdmaMqd {
    /// Checks a description.
    ///
    /// # Errors
    ///
    /// See [`MqdError`]; the fields are checked in the order of [`SdmaQueueConfig`].
    pub(crate) fn new(config: SdmaQueueConfig) -> Result<Self, MqdError> {
        check("ring", config.ring, 256)?;
        check_ring(config.ring_bytes)?;
        check("rptr report", config.rptr_report, 8)?;
        // INVARIANT: All of `config` was checked above.
        Ok(Self { config })
    }

    /// The description.
    pub(crate) const fn config(&self) -> &SdmaQueueConfig {
        &self.config
    }

    /// Stores the whole image of a queue that never ran, dword by dword in ascending order.
    pub(crate) fn write(&self, mut put: impl FnMut(usize, u32)) {
        for dw in 0..SDMA_DWORDS {
            put(dw, self.word(dw));
        }
    }

    /// Stores what a change of the description touches, keeping what hardware saved.
    pub(crate) fn update(
        &self,
        mut read: impl FnMut(usize) -> u32,
        mut put: impl FnMut(usize, u32),
    ) {
        let ib = IbCntl::from_raw(read(at::IB_CNTL)).with(IbCntl::SWITCH_INSIDE_IB, 1);
        put(at::IB_CNTL, ib.raw());
        for dw in [
            at::RB_CNTL,
            at::RB_BASE,
            at::RB_BASE_HI,
            at::RB_RPTR_ADDR_HI,
            at::RB_RPTR_ADDR_LO,
            at::DOORBELL_OFFSET,
            at::DUMMY_REG,
            at::SDMA_ENGINE_ID,
            at::SDMA_QUEUE_ID,
        ] {
            put(dw, self.word(dw));
        }
    }

    /// Value of dword `dw` of a queue that never ran.
    pub(crate) fn word(&self, dw: usize) -> u32 {
        let config = &self.config;
        let ring = config.ring >> 8;
        match dw {
            at::RB_CNTL => rb_cntl(config.ring_bytes).raw(),
            at::RB_BASE => num::lo32(ring),
            at::RB_BASE_HI => num::hi32(ring),
            at::RB_RPTR_ADDR_HI => num::hi32(config.rptr_report),
            at::RB_RPTR_ADDR_LO => num::lo32(config.rptr_report),
            at::IB_CNTL => IbCntl::new().with(IbCntl::SWITCH_INSIDE_IB, 1).raw(),
            at::DOORBELL_OFFSET => OffsetReg::new()
                .with(OffsetReg::OFFSET, config.doorbell.dword())
                .raw(),
            at::DUMMY_REG => DUMMY,
            at::SDMA_ENGINE_ID => config.engine,
            at::SDMA_QUEUE_ID => config.queue,
            _ => 0,
        }
    }
}

/// RB_CNTL of a user queue with a ring of `bytes` bytes: RB_ENABLE stays off in memory.
const fn rb_cntl(bytes: u32) -> RbCntl {
    RbCntl::new()
        .with(RbCntl::RB_SIZE, (bytes / 4).trailing_zeros())
        .with(RbCntl::RPTR_WRITEBACK_ENABLE, 1)
        .with(RbCntl::RPTR_WRITEBACK_TIMER, WRITEBACK_TIMER)
}

/// Saved read and write pointer in bytes.
pub(crate) fn pointers(mut read: impl FnMut(usize) -> u32) -> [u64; 2] {
    [
        num::join(read(at::RB_RPTR), read(at::RB_RPTR_HI)),
        num::join(read(at::RB_WPTR), read(at::RB_WPTR_HI)),
    ]
}
