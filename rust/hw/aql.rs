// SPDX-License-Identifier: GPL-2.0

//! AQL: layouts of packets, signals and the queue object that user space and the CP share.
//!
//! The driver only needs offsets and codes, for checks and for dumps of a stopped queue. Source:
//! `hsa.h`, `amd_hsa_queue.h`, `amd_hsa_signal.h` of the runtime; `kfd_queue.c`.

use super::num;

/// Bytes of a packet.
pub(crate) const PACKET_BYTES: u32 = 64;

/// Type of a packet, bits 7 to 0 of its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketType {
    /// Vendor specific, such as a PM4 indirect buffer.
    Vendor,
    /// Slot not ready.
    Invalid,
    /// Kernel dispatch.
    KernelDispatch,
    /// Waits for all of its signals.
    BarrierAnd,
    /// Work for an agent; not executed by the CP.
    AgentDispatch,
    /// Waits for any of its signals.
    BarrierOr,
    /// Not defined.
    Unknown(u8),
}

/// Header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header(u16);

impl Header {
    /// Header as read from the ring.
    pub(crate) const fn from_raw(raw: u16) -> Self {
        Self(raw)
    }

    /// Type.
    pub(crate) const fn kind(self) -> PacketType {
        // CAST: The mask leaves 8 bits.
        match (self.0 & 0xff) as u8 {
            0 => PacketType::Vendor,
            1 => PacketType::Invalid,
            2 => PacketType::KernelDispatch,
            3 => PacketType::BarrierAnd,
            4 => PacketType::AgentDispatch,
            5 => PacketType::BarrierOr,
            other => PacketType::Unknown(other),
        }
    }

    /// Waits for all preceding packets of the queue.
    pub(crate) const fn barrier(self) -> bool {
        self.0 & (1 << 8) != 0
    }

    /// Acquire fence: 0 none, 1 agent, 2 system.
    pub(crate) const fn acquire(self) -> u32 {
        // CAST: Lossless.
        ((self.0 >> 9) & 3) as u32
    }

    /// Release fence: 0 none, 1 agent, 2 system.
    pub(crate) const fn release(self) -> u32 {
        // CAST: Lossless.
        ((self.0 >> 11) & 3) as u32
    }
}

/// Packets that a ring of `bytes` bytes holds; `None` unless that is a power of two.
pub(crate) const fn ring_packets(bytes: u32) -> Option<u32> {
    if bytes >= PACKET_BYTES && bytes.is_power_of_two() {
        Some(bytes / PACKET_BYTES)
    } else {
        None
    }
}

/// Byte offset in the ring of packet `index`; `packets` is a power of two.
pub(crate) const fn packet_offset(index: u64, packets: u32) -> u64 {
    (index & num::widen(packets).saturating_sub(1)) * num::widen(PACKET_BYTES)
}

/// Offsets in bytes inside `amd_queue_t`.
pub(crate) mod queue {
    /// Length of the object.
    pub(crate) const BYTES: u64 = 256;
    /// Write index; MQD write pointer address.
    pub(crate) const WRITE_DISPATCH_ID: u64 = 56;
    /// Read index; MQD read pointer report address.
    pub(crate) const READ_DISPATCH_ID: u64 = 128;
    /// Distance from the read index back to the object.
    pub(crate) const READ_DISPATCH_ID_FIELD_BASE_BYTE_OFFSET: u64 = 136;
    /// Scratch configuration.
    pub(crate) const COMPUTE_TMPRING_SIZE: u64 = 140;
    /// Properties.
    pub(crate) const QUEUE_PROPERTIES: u64 = 180;
    /// Signal for errors and scratch requests.
    pub(crate) const QUEUE_INACTIVE_SIGNAL: u64 = 192;
}

/// Offsets in bytes inside `amd_signal_t`.
pub(crate) mod signal {
    /// Length and alignment of the object.
    pub(crate) const BYTES: u64 = 64;
    /// Value.
    pub(crate) const VALUE: u64 = 8;
    /// Address of the event slot.
    pub(crate) const EVENT_MAILBOX_PTR: u64 = 16;
    /// Event id.
    pub(crate) const EVENT_ID: u64 = 24;
    /// GPU clock at the start.
    pub(crate) const START_TS: u64 = 32;
    /// GPU clock at the end.
    pub(crate) const END_TS: u64 = 40;
}
