// SPDX-License-Identifier: GPL-2.0

//! One interrupt ring: its memory and its registers.

use kernel::prelude::*;

use super::{
    super::access::Hw,
    cursor::{
        Cursor,
        Port, //
    }, //
};
use crate::{
    hw::{
        doorbell::DoorbellOffset,
        ih::{
            self,
            Pending,
            Vector,
            RING0_BYTES,
            RING12_BYTES,
            VECTOR_DWORDS, //
        },
        num::{
            hi32,
            index,
            lo32, //
        },
        regs::osssys::{
            self,
            IhDoorbell,
            RbCntl,
            RingRegs, //
        }, //
    },
    kapi::dma::{
        self,
        DmaBuffer, //
    }, //
};

/// One ring and the position up to which it is read.
pub(super) struct RingState {
    pub(super) cursor: Cursor,
    pub(super) buffer: RingBuffer,
}

/// Memory and registers of a ring.
pub(super) struct RingBuffer {
    number: usize,
    regs: RingRegs,
    doorbell: DoorbellOffset,
    memory: DmaBuffer,
}

impl RingState {
    /// Allocates ring `number`.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the ASIC has no such ring, `ENOMEM`.
    pub(super) fn new(hw: &Hw, number: u32) -> Result<Self> {
        let bytes = if number == 0 {
            RING0_BYTES
        } else {
            RING12_BYTES
        };
        Ok(Self {
            cursor: Cursor::new(ih::Ring::new(bytes).ok_or(EINVAL)?),
            buffer: RingBuffer {
                number: index(number),
                regs: hw.asic().ih.ring(number).ok_or(ENODEV)?,
                doorbell: hw.asic().doorbell.ih_ring(number),
                memory: DmaBuffer::new(hw.dev(), index(bytes), GFP_KERNEL)?,
            },
        })
    }
}

impl RingBuffer {
    /// Number of the ring.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// The write pointer with its flags, by the register.
    pub(super) fn wptr(&self, hw: &Hw) -> u32 {
        hw.read(self.regs.wptr)
    }

    /// Stops the ring and empties it.
    pub(super) fn disable(&self, hw: &Hw) {
        disable(hw, &self.regs);
    }

    /// Programs the ring's base and size; ring 0's write pointer goes to `writeback`.
    pub(super) fn program(&self, hw: &Hw, ring: ih::Ring, writeback: u64) {
        let bus = self.memory.bus_addr();
        hw.write(self.regs.base, lo32(bus >> 8));
        hw.write(self.regs.base_hi, hi32(bus >> 8) & 0xff);
        hw.modify(self.regs.cntl, |raw| {
            RbCntl::from_raw(raw)
                .with(RbCntl::MC_SPACE, RbCntl::SPACE_BUS)
                .with(RbCntl::WPTR_OVERFLOW_CLEAR, 1)
                .with(RbCntl::WPTR_OVERFLOW_ENABLE, 1)
                .with(RbCntl::RB_SIZE, ring.size_field())
                .with(RbCntl::WPTR_WRITEBACK_ENABLE, 1)
                .with(RbCntl::MC_SNOOP, 1)
                .with(RbCntl::MC_RO, 0)
                .with(RbCntl::MC_VMID, 0)
                .with_flag(RbCntl::RPTR_REARM, self.number == 0)
                .with_flag(RbCntl::RB_FULL_DRAIN_ENABLE, self.number == 1)
                .raw()
        });
        if self.number == 0 {
            hw.write(osssys::IH_RB_WPTR_ADDR_LO, lo32(writeback));
            hw.write(osssys::IH_RB_WPTR_ADDR_HI, hi32(writeback) & 0xffff);
        }
        hw.write(self.regs.wptr, 0);
        hw.write(self.regs.rptr, 0);
        hw.write(
            self.regs.doorbell_rptr,
            IhDoorbell::new()
                .with(IhDoorbell::OFFSET, self.doorbell.dword())
                .with(IhDoorbell::ENABLE, 1)
                .raw(),
        );
    }

    /// Lets the ring run.
    pub(super) fn enable(&self, hw: &Hw) {
        hw.modify(self.regs.cntl, |raw| {
            RbCntl::from_raw(raw)
                .with(RbCntl::RB_ENABLE, 1)
                .with(RbCntl::RB_GPU_TS_ENABLE, 1)
                .with(RbCntl::WPTR_OVERFLOW_CLEAR, 0)
                .with_flag(RbCntl::ENABLE_INTR, self.number == 0)
                .raw()
        });
        self.clear_overflow(hw);
    }

    /// Pulses the clear bit, so that the next overflow is seen again.
    fn clear_overflow(&self, hw: &Hw) {
        for bit in [1, 0] {
            hw.modify(self.regs.cntl, |raw| {
                RbCntl::from_raw(raw)
                    .with(RbCntl::WPTR_OVERFLOW_CLEAR, bit)
                    .raw()
            });
        }
    }
}

/// Stops the ring with registers `regs` and empties it.
pub(super) fn disable(hw: &Hw, regs: &RingRegs) {
    hw.modify(regs.cntl, |raw| {
        RbCntl::from_raw(raw)
            .with(RbCntl::RB_ENABLE, 0)
            .with(RbCntl::ENABLE_INTR, 0)
            .raw()
    });
    hw.write(regs.rptr, 0);
    hw.write(regs.wptr, 0);
}

/// A ring and the device behind it.
pub(super) struct HwPort<'a> {
    hw: &'a Hw,
    buffer: &'a RingBuffer,
    ring: ih::Ring,
    writeback: &'a DmaBuffer,
}

impl<'a> HwPort<'a> {
    /// The ring in `buffer`, with the page that ring 0's write pointer is written to.
    pub(super) fn new(
        hw: &'a Hw,
        buffer: &'a RingBuffer,
        ring: ih::Ring,
        writeback: &'a DmaBuffer,
    ) -> Self {
        Self {
            hw,
            buffer,
            ring,
            writeback,
        }
    }
}

impl Port for HwPort<'_> {
    /// Ring 0's from memory, unless it reports an overflow, which the register must confirm, for it
    /// may have been cleared since.
    fn wptr(&mut self) -> Result<u32> {
        let mut value = None;
        if self.buffer.number == 0 {
            let written = self.writeback.read32(0)?;
            if !matches!(self.ring.pending(written), Pending::Overflow { .. }) {
                value = Some(written);
            }
        }
        let value = value.unwrap_or_else(|| self.buffer.wptr(self.hw));
        if self.hw.is_lost() {
            return Err(EIO);
        }
        // The vectors were written before the pointer that was just read.
        dma::read_barrier();
        Ok(value)
    }

    fn vector(&mut self, position: u32) -> Result<Vector> {
        let mut dwords = [0; VECTOR_DWORDS];
        self.buffer
            .memory
            .read_dwords(self.ring.dword_index(position) * 4, &mut dwords)?;
        Ok(Vector::decode(&dwords))
    }

    fn set_rptr(&mut self, position: u32) {
        self.hw.doorbell32(self.buffer.doorbell.byte(), position);
    }

    fn clear_overflow(&mut self) {
        self.buffer.clear_overflow(self.hw);
    }
}
