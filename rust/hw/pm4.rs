// SPDX-License-Identifier: GPL-2.0

//! PM4 packets of the HIQ and the KIQ, and of the rings that the driver itself fills.
//!
//! A packet is a header and `count + 1` payload dwords. Each packet here is a struct with named
//! fields; `encode` gives the dwords, `decode` the struct back. Field types cannot overflow where
//! that is possible; where it is not, `encode` fails with [`EncodeError`] and nothing is written.
//!
//! Source: `soc15d.h`, `kfd_pm4_headers_ai.h`, `kfd_pm4_headers_aldebaran.h`,
//! `kfd_packet_manager_v9.c`, `gfx_v9_0.c`.

use core::fmt;

use super::bits::{
    fields,
    Overflow, //
};
use super::num;

pub(crate) mod decode;
pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod queues;
pub(crate) mod registers;
pub(crate) mod schedule;

pub(crate) use decode::{
    decode,
    Decoded,
    Packet,
    Packets, //
};
pub(crate) use memory::{
    pad,
    IndirectBuffer,
    InvalidateTlbs,
    ReleaseMem,
    WriteMem, //
};
pub(crate) use process::{
    MapProcess,
    MapProcessFlavour,
    Trap, //
};
pub(crate) use queues::{
    DoorbellList,
    Engine,
    MapQueues,
    MapTarget,
    QueueClass,
    UnmapAction,
    UnmapFilter,
    UnmapQueues, //
};
pub(crate) use registers::{
    RegisterHandshake,
    SetUconfigReg,
    WriteReg, //
};
pub(crate) use schedule::{
    InterfaceQueue,
    QueryCommand,
    QueryStatus,
    RunList,
    SetResources, //
};

/// Opcodes (`soc15d.h`, `kfd_pm4_opcodes.h`).
pub(crate) mod op {
    /// No operation.
    pub(crate) const NOP: u32 = 0x10;
    /// Write dwords to memory or a register.
    pub(crate) const WRITE_DATA: u32 = 0x37;
    /// Wait for a value.
    pub(crate) const WAIT_REG_MEM: u32 = 0x3C;
    /// Run a buffer.
    pub(crate) const INDIRECT_BUFFER: u32 = 0x3F;
    /// End-of-pipe event.
    pub(crate) const RELEASE_MEM: u32 = 0x49;
    /// Write user-config registers.
    pub(crate) const SET_UCONFIG_REG: u32 = 0x79;
    /// Drop translations.
    pub(crate) const INVALIDATE_TLBS: u32 = 0x98;
    /// Initialise the scheduler.
    pub(crate) const SET_RESOURCES: u32 = 0xA0;
    /// Install a process context.
    pub(crate) const MAP_PROCESS: u32 = 0xA1;
    /// Connect a queue.
    pub(crate) const MAP_QUEUES: u32 = 0xA2;
    /// Disconnect queues.
    pub(crate) const UNMAP_QUEUES: u32 = 0xA3;
    /// Report status by fence or interrupt.
    pub(crate) const QUERY_STATUS: u32 = 0xA4;
    /// Walk a run list.
    pub(crate) const RUN_LIST: u32 = 0xA5;

    /// Name of an opcode, also of packets that only user queues carry.
    pub(crate) const fn name(op: u32) -> Option<&'static str> {
        Some(match op {
            NOP => "NOP",
            0x11 => "SET_BASE",
            0x12 => "CLEAR_STATE",
            0x15 => "DISPATCH_DIRECT",
            0x16 => "DISPATCH_INDIRECT",
            0x1E => "ATOMIC_MEM",
            0x21 => "REG_RMW",
            0x22 => "COND_EXEC",
            0x23 => "PRED_EXEC",
            WRITE_DATA => "WRITE_DATA",
            0x39 => "MEM_SEMAPHORE",
            WAIT_REG_MEM => "WAIT_REG_MEM",
            INDIRECT_BUFFER => "INDIRECT_BUFFER",
            0x40 => "COPY_DATA",
            0x46 => "EVENT_WRITE",
            RELEASE_MEM => "RELEASE_MEM",
            0x50 => "DMA_DATA",
            0x58 => "ACQUIRE_MEM",
            0x59 => "REWIND",
            0x5F => "LOAD_SH_REG",
            0x68 => "SET_CONFIG_REG",
            0x69 => "SET_CONTEXT_REG",
            0x76 => "SET_SH_REG",
            0x78 => "SET_QUEUE_REG",
            SET_UCONFIG_REG => "SET_UCONFIG_REG",
            INVALIDATE_TLBS => "INVALIDATE_TLBS",
            SET_RESOURCES => "SET_RESOURCES",
            MAP_PROCESS => "MAP_PROCESS",
            MAP_QUEUES => "MAP_QUEUES",
            UNMAP_QUEUES => "UNMAP_QUEUES",
            QUERY_STATUS => "QUERY_STATUS",
            RUN_LIST => "RUN_LIST",
            0xD2 | 0xD7 => "RUN_CLEANER_SHADER",
            _ => return None,
        })
    }
}

fields! {
    /// Header of a packet.
    pub(crate) struct Header {
        /// Predicated.
        PREDICATE [0:0];
        /// 1 = compute; 0 in HIQ packets.
        SHADER_TYPE [1:1];
        /// See [`op`].
        OPCODE [15:8];
        /// Payload dwords less one.
        COUNT [29:16];
        /// 3, or 2 for a one-dword filler.
        TYPE [31:30];
    }
}

/// Value of COUNT that makes a NOP one dword long.
pub(crate) const COUNT_ONE_DWORD_NOP: u32 = 0x3FFF;
/// NOP of one dword, with which rings are padded: 0xFFFF1000.
pub(crate) const NOP_ONE: u32 = Header::new()
    .with(Header::TYPE, 3)
    .with(Header::COUNT, COUNT_ONE_DWORD_NOP)
    .with(Header::OPCODE, op::NOP)
    .raw();

impl Header {
    /// Type-3 header of a packet of `dwords` dwords in all, from 2 to 0x4000.
    ///
    /// A length outside that range has no encoding; it is clamped, which only a constant that is
    /// wrong can cause, since all lengths are array lengths of this module.
    pub(crate) const fn packet(opcode: u32, dwords: usize) -> Self {
        let count = if dwords < 2 {
            0
        } else {
            num::len32(dwords) - 2
        };
        Self::new()
            .with(Self::TYPE, 3)
            .with(Self::OPCODE, opcode)
            .with(Self::COUNT, if count > 0x3FFE { 0x3FFE } else { count })
    }

    /// Length in dwords of the packet that this header begins; `None` if it begins none.
    pub(crate) const fn dwords(self) -> Option<usize> {
        match self.get(Self::TYPE) {
            2 => Some(1),
            3 if self.get(Self::OPCODE) == op::NOP
                && self.get(Self::COUNT) == COUNT_ONE_DWORD_NOP =>
            {
                Some(1)
            }
            3 => Some(num::index(self.get(Self::COUNT)) + 2),
            _ => None,
        }
    }
}

/// A packet cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EncodeError {
    /// A value is wider than its field.
    Overflow(Overflow),
    /// An address or register is not at a place that the packet can name.
    Misaligned {
        /// Name of the field.
        field: &'static str,
        /// The offending value.
        value: u64,
    },
    /// The caller's buffer is shorter than the packet.
    NoSpace {
        /// Dwords needed.
        need: usize,
        /// Dwords given.
        have: usize,
    },
}

impl From<Overflow> for EncodeError {
    fn from(overflow: Overflow) -> Self {
        Self::Overflow(overflow)
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overflow(overflow) => overflow.fmt(f),
            Self::Misaligned { field, value } => write!(f, "{field} {value:#x} is misaligned"),
            Self::NoSpace { need, have } => write!(f, "{need} dwords do not fit {have}"),
        }
    }
}

/// `address` if it is a multiple of `align`.
const fn aligned(field: &'static str, address: u64, align: u64) -> Result<u64, EncodeError> {
    if num::is_aligned(address, align) {
        Ok(address)
    } else {
        Err(EncodeError::Misaligned {
            field,
            value: address,
        })
    }
}

/// `value` if it has no more than `bits` bits.
const fn narrow(field: &'static str, value: u64, bits: u32) -> Result<u64, EncodeError> {
    if value <= num::low_mask(bits) {
        Ok(value)
    } else {
        Err(EncodeError::Overflow(Overflow { field, value }))
    }
}

/// Copies `packet` to the start of `out` and returns its length.
///
/// # Errors
///
/// `NoSpace` if `out` is shorter.
pub(crate) fn put(packet: &[u32], out: &mut [u32]) -> Result<usize, EncodeError> {
    let have = out.len();
    let room = out.get_mut(..packet.len()).ok_or(EncodeError::NoSpace {
        need: packet.len(),
        have,
    })?;
    room.copy_from_slice(packet);
    Ok(packet.len())
}
