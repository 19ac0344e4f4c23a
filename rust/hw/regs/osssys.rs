// SPDX-License-Identifier: GPL-2.0

//! Interrupt handler (IH) registers.
//!
//! Source: `osssys_4_2_0_offset.h`, `osssys_4_4_2_offset.h`, `vega20_ih.c`.

use super::super::bits::fields;
use super::{
    regs,
    Reg, //
};

/// Dword base of segment 0.
pub(crate) const SEG0: u32 = 0x10A0;

regs! { SEG0;
    /// Where ring 0's write pointer is written back, high half.
    IH_RB_WPTR_ADDR_HI = 0x85;
    /// Where ring 0's write pointer is written back, low half.
    IH_RB_WPTR_ADDR_LO = 0x86;
    /// Doorbell of the retry CAM, see [`IhDoorbell`].
    IH_DOORBELL_RETRY_CAM = 0x88;
    /// Releases a CAM entry by register.
    IH_RETRY_CAM_ACK = 0xA4;
    /// Version.
    IH_VERSION = 0xA5;
    /// Control.
    IH_CNTL = 0xC0;
    /// Status.
    IH_STATUS = 0xC2;
    /// Flood control.
    IH_INT_FLOOD_CNTL = 0xD5;
    /// Clients subject to storm control.
    IH_STORM_CLIENT_LIST_CNTL = 0xDA;
    /// Interrupt flags.
    IH_INT_FLAGS = 0xDC;
}

/// PASID [15:0] that the IH puts into vectors of `vmid` from GC clients.
pub(crate) const fn vmid_lut(vmid: u32) -> Reg {
    Reg::new(SEG0, vmid & 0xf)
}

/// PASID [15:0] that the IH puts into vectors of `vmid` from MMHUB clients.
pub(crate) const fn vmid_lut_mm(vmid: u32) -> Reg {
    Reg::new(SEG0, 0x10 + (vmid & 0xf))
}

/// What differs between the IH generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IhLayout {
    /// Rings in hardware.
    pub(crate) rings: u32,
    /// Offset of IH_RETRY_INT_CAM_CNTL.
    pub(crate) retry_cam: u32,
    /// Offset of IH_CHICKEN.
    pub(crate) chicken: u32,
    /// The driver itself must set MC_SPACE_GPA_ENABLE in IH_CHICKEN (`vega20_ih.c`).
    pub(crate) set_chicken: bool,
}

impl IhLayout {
    /// IH_RETRY_INT_CAM_CNTL, see [`RetryIntCamCntl`].
    pub(crate) const fn retry_int_cam_cntl(&self) -> Reg {
        Reg::new(SEG0, self.retry_cam)
    }

    /// IH_CHICKEN, see [`Chicken`].
    pub(crate) const fn chicken(&self) -> Reg {
        Reg::new(SEG0, self.chicken)
    }

    /// Registers of ring `n`; `None` if the hardware has no such ring.
    pub(crate) const fn ring(&self, n: u32) -> Option<RingRegs> {
        if n >= self.rings || n > 2 {
            return None;
        }
        let first = Reg::new(SEG0, 0x80 + 0xC * n);
        Some(RingRegs {
            cntl: first,
            base: first.nth(1),
            base_hi: first.nth(2),
            rptr: first.nth(3),
            wptr: first.nth(4),
            doorbell_rptr: Reg::new(SEG0, [0x87, 0x93, 0x9F][super::super::num::index(n)]),
        })
    }
}

/// Registers of one IH ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingRegs {
    /// IH_RB_CNTL, see [`RbCntl`].
    pub(crate) cntl: Reg,
    /// IH_RB_BASE: address >> 8.
    pub(crate) base: Reg,
    /// IH_RB_BASE_HI: address >> 40.
    pub(crate) base_hi: Reg,
    /// IH_RB_RPTR: byte offset.
    pub(crate) rptr: Reg,
    /// IH_RB_WPTR, see [`RbWptr`].
    pub(crate) wptr: Reg,
    /// IH_DOORBELL_RPTR, see [`IhDoorbell`].
    pub(crate) doorbell_rptr: Reg,
}

fields! {
    /// IH_RB_CNTL.
    pub(crate) struct RbCntl {
        /// Ring in use.
        RB_ENABLE [0:0];
        /// log2 of the size in dwords.
        RB_SIZE [5:1];
        /// Time stamps from the GPU clock.
        RB_GPU_TS_ENABLE [7:7];
        /// Write the write pointer back to memory (ring 0).
        WPTR_WRITEBACK_ENABLE [8:8];
        /// Drain fully.
        RB_FULL_DRAIN_ENABLE [9:9];
        /// Clear the drain state.
        FULL_DRAIN_CLEAR [10:10];
        /// Detect overflow.
        WPTR_OVERFLOW_ENABLE [16:16];
        /// Raise the MSI (ring 0).
        ENABLE_INTR [17:17];
        /// Endianness.
        MC_SWAP [19:18];
        /// Snooped writes.
        MC_SNOOP [20:20];
        /// A read pointer update re-arms the MSI.
        RPTR_REARM [21:21];
        /// Relaxed ordering.
        MC_RO [22:22];
        /// VMID of the ring's address.
        MC_VMID [27:24];
        /// See the `SPACE_` constants.
        MC_SPACE [30:28];
        /// Clear the overflow flag by a 0-1-0 pulse.
        WPTR_OVERFLOW_CLEAR [31:31];
    }
}

impl RbCntl {
    /// MC_SPACE: the ring is at a bus address.
    pub(crate) const SPACE_BUS: u32 = 1;
    /// MC_SPACE: the ring is at a GPU virtual address of VMID 0.
    pub(crate) const SPACE_GPU: u32 = 4;
}

fields! {
    /// IH_RB_WPTR and its write-back in memory.
    pub(crate) struct RbWptr {
        /// Entries were overwritten.
        OVERFLOW [0:0];
        /// Position in dwords; see [`RbWptr::bytes`].
        OFFSET [17:2];
        /// No entry left.
        LEFT_NONE [18:18];
        /// Close to overflow.
        MAY_OVERFLOW [19:19];
    }
}

impl RbWptr {
    /// Position in bytes, flags removed.
    pub(crate) const fn bytes(self) -> u32 {
        self.get(Self::OFFSET) * 4
    }
}

fields! {
    /// IH_DOORBELL_RPTR and IH_DOORBELL_RETRY_CAM.
    pub(crate) struct IhDoorbell {
        /// Dword index in BAR2.
        OFFSET [25:0];
        /// Doorbell in use.
        ENABLE [28:28];
    }
}

fields! {
    /// IH_RETRY_INT_CAM_CNTL.
    pub(crate) struct RetryIntCamCntl {
        /// Entries.
        CAM_SIZE [4:0];
        /// Filter repeated retry faults.
        ENABLE [16:16];
        /// Hold faults back while the CAM is full.
        BACK_PRESSURE_ENABLE [17:17];
    }
}

fields! {
    /// IH_CHICKEN.
    pub(crate) struct Chicken {
        /// Frame buffer addresses are physical.
        MC_SPACE_FBPA_ENABLE [3:3];
        /// Ring addresses may be bus addresses.
        MC_SPACE_GPA_ENABLE [4:4];
    }
}
