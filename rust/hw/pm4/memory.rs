// SPDX-License-Identifier: GPL-2.0

//! Packets that write memory, run buffers, drop translations or fill space, and the words of those that
//! do with memory what [`registers`](super::registers) has them do.

use core::fmt;

use super::super::bits::fields;
use super::super::num;
use super::super::regs::hub::FlushType;
use super::{
    aligned,
    op,
    EncodeError,
    Header,
    NOP_ONE, //
};

/// Fills `space` with one-dword NOPs, the way a ring is padded up to its end.
pub(crate) fn pad(space: &mut [u32]) {
    space.fill(NOP_ONE);
}

fields! {
    /// WRITE_DATA dword 1.
    pub(crate) struct WriteDataDw1 {
        /// 0 register, 1 memory (sync), 2 L2, 5 memory.
        DST_SEL [11:8];
        /// 1 = all dwords to one address.
        ADDR_INCR [16:16];
        /// Wait for the acknowledgement.
        WR_CONFIRM [20:20];
        /// Cache policy.
        CACHE_POLICY [26:25];
        /// Engine.
        ENGINE_SEL [31:30];
    }
}

pub(super) const DST_REGISTER: u32 = 0;
pub(super) const DST_MEMORY: u32 = 5;

/// WRITE_DATA of one or two dwords to memory, 5 or 6 dwords.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteMem {
    /// Address, a multiple of 4.
    pub(crate) address: u64,
    /// Low dword.
    pub(crate) value: u32,
    /// High dword, if two are to be written.
    pub(crate) high: Option<u32>,
    /// Wait for the acknowledgement.
    pub(crate) confirm: bool,
}

impl WriteMem {
    /// Largest length in dwords.
    pub(crate) const MAX_DWORDS: usize = 6;

    /// Length in dwords.
    pub(crate) const fn dwords(&self) -> usize {
        if self.high.is_some() {
            6
        } else {
            5
        }
    }

    /// The packet; only the first [`WriteMem::dwords`] count.
    ///
    /// # Errors
    ///
    /// `Misaligned` for `address`.
    pub(crate) fn encode(&self) -> Result<[u32; Self::MAX_DWORDS], EncodeError> {
        let address = aligned("address", self.address, 4)?;
        let dw1 = WriteDataDw1::new()
            .with(WriteDataDw1::DST_SEL, DST_MEMORY)
            .with_flag(WriteDataDw1::WR_CONFIRM, self.confirm);
        Ok([
            Header::packet(op::WRITE_DATA, self.dwords()).raw(),
            dw1.raw(),
            num::lo32(address),
            num::hi32(address),
            self.value,
            self.high.unwrap_or(0),
        ])
    }
}

impl fmt::Display for WriteMem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "WRITE_DATA mem {:#x} = {:#x}{}",
            self.address,
            num::join(self.value, self.high.unwrap_or(0)),
            if self.confirm { " confirm" } else { "" }
        )
    }
}

fields! {
    /// INVALIDATE_TLBS dword 1.
    pub(crate) struct InvalidateTlbsDw1 {
        /// 1 in the kernel.
        DST_SEL [3:0];
        /// Both hubs.
        ALL_HUB [4:4];
        /// Process.
        PASID [20:5];
        /// See [`FlushType`].
        FLUSH_TYPE [31:29];
    }
}

/// INVALIDATE_TLBS, 2 dwords (KIQ): drops the translations of a PASID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidateTlbs {
    /// Process.
    pub(crate) pasid: u16,
    /// How thoroughly.
    pub(crate) flush: FlushType,
    /// In both hubs; otherwise in GFXHUB only.
    pub(crate) all_hubs: bool,
}

impl InvalidateTlbs {
    /// Length in dwords.
    pub(crate) const DWORDS: usize = 2;

    /// The packet.
    pub(crate) const fn encode(&self) -> [u32; Self::DWORDS] {
        // CAST: The casts widen, and the discriminants fit.
        let dw1 = InvalidateTlbsDw1::new()
            .with(InvalidateTlbsDw1::DST_SEL, 1)
            .with_flag(InvalidateTlbsDw1::ALL_HUB, self.all_hubs)
            .with(InvalidateTlbsDw1::PASID, self.pasid as u32)
            .with(InvalidateTlbsDw1::FLUSH_TYPE, self.flush as u32);
        [
            Header::packet(op::INVALIDATE_TLBS, Self::DWORDS).raw(),
            dw1.raw(),
        ]
    }

    /// The packet's meaning; `None` if it uses what this driver never does.
    pub(crate) const fn decode(dw: &[u32; Self::DWORDS]) -> Option<Self> {
        let dw1 = InvalidateTlbsDw1::from_raw(dw[1]);
        let flush = match dw1.get(InvalidateTlbsDw1::FLUSH_TYPE) {
            0 => FlushType::Legacy,
            1 => FlushType::Light,
            2 => FlushType::Heavy,
            _ => return None,
        };
        if dw1.undeclared() != 0 || dw1.get(InvalidateTlbsDw1::DST_SEL) != 1 {
            return None;
        }
        Some(Self {
            // CAST: The field has 16 bits.
            pasid: dw1.get(InvalidateTlbsDw1::PASID) as u16,
            flush,
            all_hubs: dw1.is_set(InvalidateTlbsDw1::ALL_HUB),
        })
    }
}

impl fmt::Display for InvalidateTlbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "INVALIDATE_TLBS pasid {} {:?}{}",
            self.pasid,
            self.flush,
            if self.all_hubs { " all hubs" } else { "" }
        )
    }
}

fields! {
    /// INDIRECT_BUFFER dword 3.
    pub(crate) struct IndirectBufferDw3 {
        /// Length in dwords.
        SIZE [19:0];
        /// Jump instead of call.
        CHAIN [20:20];
        /// Leave polling to the scheduler.
        OFFLOAD_POLLING [21:21];
        /// The packet counts.
        VALID [23:23];
        /// VMID; ignored on user queues.
        VMID [27:24];
        /// Cache policy.
        CACHE_POLICY [29:28];
        /// Privileged.
        PRIV [31:31];
    }
}

/// INDIRECT_BUFFER, 4 dwords: runs a buffer of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndirectBuffer {
    /// Address, a multiple of 4, 48 bits.
    pub(crate) address: u64,
    /// Length in dwords, 20 bits.
    pub(crate) dwords: u32,
    /// VMID, 4 bits.
    pub(crate) vmid: u32,
    /// Jump instead of call.
    pub(crate) chain: bool,
}

impl IndirectBuffer {
    /// Length in dwords.
    pub(crate) const DWORDS: usize = 4;

    /// The packet.
    ///
    /// # Errors
    ///
    /// `Misaligned` for `address`; `Overflow` for any field.
    pub(crate) fn encode(&self) -> Result<[u32; Self::DWORDS], EncodeError> {
        let address = aligned("address", super::narrow("address", self.address, 48)?, 4)?;
        let dw3 = IndirectBufferDw3::new()
            .try_with(IndirectBufferDw3::SIZE, self.dwords)?
            .with_flag(IndirectBufferDw3::CHAIN, self.chain)
            .with(IndirectBufferDw3::VALID, 1)
            .try_with(IndirectBufferDw3::VMID, self.vmid)?;
        Ok([
            Header::packet(op::INDIRECT_BUFFER, Self::DWORDS).raw(),
            num::lo32(address),
            num::hi32(address),
            dw3.raw(),
        ])
    }

    /// The packet's meaning; `None` if it uses what this driver never does.
    pub(crate) const fn decode(dw: &[u32; Self::DWORDS]) -> Option<Self> {
        let dw3 = IndirectBufferDw3::from_raw(dw[3]);
        if dw[1] & 3 != 0
            || dw[2] > 0xffff
            || dw3.undeclared() != 0
            || dw3.is_set(IndirectBufferDw3::OFFLOAD_POLLING)
            || dw3.is_set(IndirectBufferDw3::CACHE_POLICY)
            || dw3.is_set(IndirectBufferDw3::PRIV)
            || !dw3.is_set(IndirectBufferDw3::VALID)
        {
            return None;
        }
        Some(Self {
            address: num::join(dw[1], dw[2]),
            dwords: dw3.get(IndirectBufferDw3::SIZE),
            vmid: dw3.get(IndirectBufferDw3::VMID),
            chain: dw3.is_set(IndirectBufferDw3::CHAIN),
        })
    }
}

impl fmt::Display for IndirectBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "INDIRECT_BUFFER {:#x} dwords {} vmid {}{}",
            self.address,
            self.dwords,
            self.vmid,
            if self.chain { " chain" } else { "" }
        )
    }
}

fields! {
    /// WAIT_REG_MEM dword 1.
    pub(crate) struct WaitRegMemDw1 {
        /// 0 always, 1 <, 2 <=, 3 ==, 4 !=, 5 >=, 6 >.
        FUNCTION [2:0];
        /// 0 register, 1 memory.
        MEM_SPACE [5:4];
        /// 0 wait, 1 write then wait, 3 preemptable wait.
        OPERATION [7:6];
        /// Engine.
        ENGINE [8:8];
    }
}

fields! {
    /// RELEASE_MEM dword 1.
    pub(crate) struct ReleaseMemDw1 {
        /// 0x14 flush caches and time stamp, 0x28 bottom of pipe, 0x2F shader done.
        EVENT_TYPE [5:0];
        /// 5 end of pipe, 6 shader done.
        EVENT_INDEX [11:8];
        /// Volatile lines of the L1.
        TCL1_VOL_ACTION [12:12];
        /// Volatile lines of the L2.
        TC_VOL_ACTION [13:13];
        /// Write the L2 back.
        TC_WB_ACTION [15:15];
        /// Invalidate the L1.
        TCL1_ACTION [16:16];
        /// Invalidate the L2.
        TC_ACTION [17:17];
        /// Non-coherent lines.
        TC_NC_ACTION [19:19];
        /// Write-combined lines.
        TC_WC_ACTION [20:20];
        /// Metadata.
        TC_MD_ACTION [21:21];
        /// Cache policy.
        CACHE_POLICY [26:25];
        /// Continue before the event is done.
        EXECUTE [28:28];
    }
}

fields! {
    /// RELEASE_MEM dword 2.
    pub(crate) struct ReleaseMemDw2 {
        /// 0 memory, 1 L2.
        DST_SEL [17:16];
        /// 0 none, 1 interrupt, 2 interrupt after write confirmation, 3 data after it.
        INT_SEL [26:24];
        /// 0 none, 1 low 32 bits, 2 64 bits, 3 GPU clock.
        DATA_SEL [31:29];
    }
}

/// RELEASE_MEM, 8 dwords: when all earlier work is done and caches are written back, store a
/// fence and raise source 181 with `context`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseMem {
    /// Address of the fence: a multiple of 8 for 64 bits, of 4 otherwise.
    pub(crate) address: u64,
    /// Value of the fence.
    pub(crate) value: u64,
    /// The fence has 64 bits.
    pub(crate) wide: bool,
    /// Raise an interrupt after the write is confirmed, with this context id.
    pub(crate) interrupt: Option<u32>,
}

impl ReleaseMem {
    /// Length in dwords.
    pub(crate) const DWORDS: usize = 8;

    const DW1: ReleaseMemDw1 = ReleaseMemDw1::new()
        .with(ReleaseMemDw1::EVENT_TYPE, 0x14)
        .with(ReleaseMemDw1::EVENT_INDEX, 5)
        .with(ReleaseMemDw1::TC_WB_ACTION, 1)
        .with(ReleaseMemDw1::TC_ACTION, 1)
        .with(ReleaseMemDw1::TC_MD_ACTION, 1);

    /// The packet.
    ///
    /// # Errors
    ///
    /// `Misaligned` for `address`; `Overflow` if `value` exceeds a narrow fence.
    pub(crate) fn encode(&self) -> Result<[u32; Self::DWORDS], EncodeError> {
        let align = if self.wide { 8 } else { 4 };
        let address = aligned("address", self.address, align)?;
        super::narrow("value", self.value, if self.wide { 64 } else { 32 })?;
        let dw2 = ReleaseMemDw2::new()
            .with(ReleaseMemDw2::DATA_SEL, if self.wide { 2 } else { 1 })
            .with(
                ReleaseMemDw2::INT_SEL,
                if self.interrupt.is_some() { 2 } else { 0 },
            );
        Ok([
            Header::packet(op::RELEASE_MEM, Self::DWORDS).raw(),
            Self::DW1.raw(),
            dw2.raw(),
            num::lo32(address),
            num::hi32(address),
            num::lo32(self.value),
            num::hi32(self.value),
            self.interrupt.unwrap_or(0),
        ])
    }

    /// The packet's meaning; `None` for forms that this driver never sends.
    pub(crate) fn decode(dw: &[u32; Self::DWORDS]) -> Option<Self> {
        let dw2 = ReleaseMemDw2::from_raw(dw[2]);
        let wide = match dw2.get(ReleaseMemDw2::DATA_SEL) {
            1 => false,
            2 => true,
            _ => return None,
        };
        let interrupt = match dw2.get(ReleaseMemDw2::INT_SEL) {
            0 if dw[7] == 0 => None,
            2 => Some(dw[7]),
            _ => return None,
        };
        let misaligned = dw[3] & if wide { 7 } else { 3 } != 0;
        let plain = dw[1] == Self::DW1.raw() && dw2.undeclared() == 0;
        if misaligned || !plain || dw2.is_set(ReleaseMemDw2::DST_SEL) || (!wide && dw[6] != 0) {
            return None;
        }
        Some(Self {
            address: num::join(dw[3], dw[4]),
            value: num::join(dw[5], dw[6]),
            wide,
            interrupt,
        })
    }
}

impl fmt::Display for ReleaseMem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "RELEASE_MEM {:#x} = {:#x}{}",
            self.address,
            self.value,
            if self.wide { " (64)" } else { "" }
        )?;
        match self.interrupt {
            Some(context) => write!(f, " interrupt {context:#x}"),
            None => Ok(()),
        }
    }
}
