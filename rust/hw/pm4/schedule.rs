// SPDX-License-Identifier: GPL-2.0

//! SET_RESOURCES, RUN_LIST and QUERY_STATUS: what the driver says to the scheduler as a whole.

use core::fmt;

use super::super::bits::fields;
use super::super::num;
use super::{
    aligned,
    op,
    EncodeError,
    Header, //
};

/// Which interface queue a SET_RESOURCES configures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterfaceQueue {
    /// Kernel interface queue.
    Kiq = 0,
    /// HSA interface queue.
    Hiq = 1,
    /// HIQ of the debugger.
    DebugHiq = 4,
}

impl InterfaceQueue {
    const fn from_bits(bits: u32) -> Option<Self> {
        match bits {
            0 => Some(Self::Kiq),
            1 => Some(Self::Hiq),
            4 => Some(Self::DebugHiq),
            _ => None,
        }
    }
}

fields! {
    /// SET_RESOURCES dword 1.
    pub(crate) struct SetResourcesDw1 {
        /// VMIDs that the scheduler may assign.
        VMID_MASK [15:0];
        /// Time-out of the preemption of a queue, in 100 ms.
        UNMAP_LATENCY [23:16];
        /// Keep processes of different XNACK modes apart.
        ENB_XNACK_RETRY_DISABLE_CHECK [28:28];
        /// See [`InterfaceQueue`].
        QUEUE_TYPE [31:29];
    }
}

/// SET_RESOURCES, 8 dwords: gives the scheduler its VMIDs and queue slots.
///
/// The GDS heap of the packet is always empty; compute does not use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetResources {
    /// VMIDs that the scheduler may assign, one bit each.
    pub(crate) vmid_mask: u16,
    /// Time-out of the preemption of a queue, in 100 ms.
    pub(crate) unmap_latency: u8,
    /// Keep processes of different XNACK modes apart.
    pub(crate) xnack_check: bool,
    /// Which interface queue is meant.
    pub(crate) queue: InterfaceQueue,
    /// Queue slots that the scheduler may use, bit as in `Slot::bit`.
    pub(crate) queue_mask: u64,
    /// Global wave sync slots.
    pub(crate) gws_mask: u64,
    /// Ordered append counters.
    pub(crate) oac_mask: u16,
}

impl SetResources {
    /// Length in dwords.
    pub(crate) const DWORDS: usize = 8;

    /// The packet.
    pub(crate) const fn encode(&self) -> [u32; Self::DWORDS] {
        // CAST: The casts widen, and the discriminants fit three bits.
        let dw1 = SetResourcesDw1::new()
            .with(SetResourcesDw1::VMID_MASK, self.vmid_mask as u32)
            .with(SetResourcesDw1::UNMAP_LATENCY, self.unmap_latency as u32)
            .with_flag(
                SetResourcesDw1::ENB_XNACK_RETRY_DISABLE_CHECK,
                self.xnack_check,
            )
            .with(SetResourcesDw1::QUEUE_TYPE, self.queue as u32);
        [
            Header::packet(op::SET_RESOURCES, Self::DWORDS).raw(),
            dw1.raw(),
            num::lo32(self.queue_mask),
            num::hi32(self.queue_mask),
            num::lo32(self.gws_mask),
            num::hi32(self.gws_mask),
            self.oac_mask as u32,
            0,
        ]
    }

    /// The packet's meaning; `None` if a reserved value is used.
    pub(crate) const fn decode(dw: &[u32; Self::DWORDS]) -> Option<Self> {
        let dw1 = SetResourcesDw1::from_raw(dw[1]);
        let Some(queue) = InterfaceQueue::from_bits(dw1.get(SetResourcesDw1::QUEUE_TYPE)) else {
            return None;
        };
        if dw1.undeclared() != 0 || dw[6] > 0xffff || dw[7] != 0 {
            return None;
        }
        Some(Self {
            // CAST: The fields have 16 and 8 bits; dword 6 was checked.
            vmid_mask: dw1.get(SetResourcesDw1::VMID_MASK) as u16,
            unmap_latency: dw1.get(SetResourcesDw1::UNMAP_LATENCY) as u8,
            xnack_check: dw1.is_set(SetResourcesDw1::ENB_XNACK_RETRY_DISABLE_CHECK),
            queue,
            queue_mask: num::join(dw[2], dw[3]),
            gws_mask: num::join(dw[4], dw[5]),
            oac_mask: dw[6] as u16,
        })
    }
}

impl fmt::Display for SetResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SET_RESOURCES {:?} vmids {:#06x} slots {:#x} gws {:#x} oac {:#x} latency {} ms{}",
            self.queue,
            self.vmid_mask,
            self.queue_mask,
            self.gws_mask,
            self.oac_mask,
            u32::from(self.unmap_latency) * 100,
            if self.xnack_check { " xnack-check" } else { "" },
        )
    }
}

fields! {
    /// RUN_LIST dword 3.
    pub(crate) struct RunListDw3 {
        /// Length of the list in dwords.
        IB_SIZE [19:0];
        /// The packet closes a list and starts it over.
        CHAIN [20:20];
        /// Leave polling to the scheduler.
        OFFLOAD_POLLING [21:21];
        /// Go on although a pass found all queues idle.
        CHAINED_RUNLIST_IDLE_DISABLE [22:22];
        /// The packet counts.
        VALID [23:23];
        /// Processes mapped at a time.
        PROCESS_CNT [27:24];
    }
}

/// RUN_LIST, 4 dwords: walk the list at `ib`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunList {
    /// Address of the list in VMID 0, a multiple of 4.
    pub(crate) ib: u64,
    /// Length of the list in dwords, 20 bits.
    pub(crate) dwords: u32,
    /// This packet is the tail of an over-subscribed list and starts it over.
    pub(crate) chain: bool,
    /// Processes mapped at a time, 4 bits.
    pub(crate) process_count: u32,
}

impl RunList {
    /// Length in dwords.
    pub(crate) const DWORDS: usize = 4;
    /// Largest list in dwords.
    pub(crate) const MAX_IB_DWORDS: u32 = RunListDw3::IB_SIZE.max();

    /// The packet.
    ///
    /// # Errors
    ///
    /// `Misaligned` for `ib`; `Overflow` for `dwords` or `process_count`.
    pub(crate) fn encode(&self) -> Result<[u32; Self::DWORDS], EncodeError> {
        let ib = aligned("ib", self.ib, 4)?;
        let dw3 = RunListDw3::new()
            .try_with(RunListDw3::IB_SIZE, self.dwords)?
            .with_flag(RunListDw3::CHAIN, self.chain)
            .with_flag(RunListDw3::CHAINED_RUNLIST_IDLE_DISABLE, self.chain)
            .with(RunListDw3::VALID, 1)
            .try_with(RunListDw3::PROCESS_CNT, self.process_count)?;
        Ok([
            Header::packet(op::RUN_LIST, Self::DWORDS).raw(),
            num::lo32(ib),
            num::hi32(ib),
            dw3.raw(),
        ])
    }

    /// The packet's meaning; `None` if it is not valid or uses what this driver never does.
    pub(crate) const fn decode(dw: &[u32; Self::DWORDS]) -> Option<Self> {
        let dw3 = RunListDw3::from_raw(dw[3]);
        let chain = dw3.is_set(RunListDw3::CHAIN);
        if dw[1] & 3 != 0
            || dw3.undeclared() != 0
            || !dw3.is_set(RunListDw3::VALID)
            || dw3.is_set(RunListDw3::OFFLOAD_POLLING)
            || dw3.is_set(RunListDw3::CHAINED_RUNLIST_IDLE_DISABLE) != chain
        {
            return None;
        }
        Some(Self {
            ib: num::join(dw[1], dw[2]),
            dwords: dw3.get(RunListDw3::IB_SIZE),
            chain,
            process_count: dw3.get(RunListDw3::PROCESS_CNT),
        })
    }
}

impl fmt::Display for RunList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "RUN_LIST ib {:#x} dwords {} processes {}{}",
            self.ib,
            self.dwords,
            self.process_count,
            if self.chain { " chain" } else { "" },
        )
    }
}

/// How QUERY_STATUS answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueryCommand {
    /// By interrupt.
    Interrupt = 0,
    /// By fence, at once.
    FenceImmediate = 1,
    /// By fence, after the writes of all earlier packets are acknowledged; what KFD uses.
    FenceAfterAck = 2,
    /// As the former, and by interrupt.
    FenceAndInterrupt = 3,
}

fields! {
    /// QUERY_STATUS dword 1.
    pub(crate) struct QueryStatusDw1 {
        /// Returned in the interrupt.
        CONTEXT_ID [27:0];
        /// What is asked; 0 completion.
        INTERRUPT_SEL [29:28];
        /// See [`QueryCommand`].
        COMMAND [31:30];
    }
}

/// QUERY_STATUS, 7 dwords: reports that all earlier packets are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueryStatus {
    /// Returned in the interrupt, 28 bits.
    pub(crate) context_id: u32,
    /// How to answer.
    pub(crate) command: QueryCommand,
    /// Address of the 64-bit fence in VMID 0, a multiple of 8.
    pub(crate) fence: u64,
    /// Value of the fence.
    pub(crate) value: u64,
}

impl QueryStatus {
    /// Length in dwords.
    pub(crate) const DWORDS: usize = 7;

    /// The form that KFD sends: write `value` to `fence` when everything before is acknowledged.
    pub(crate) const fn fence(fence: u64, value: u64) -> Self {
        Self {
            context_id: 0,
            command: QueryCommand::FenceAfterAck,
            fence,
            value,
        }
    }

    /// The packet.
    ///
    /// # Errors
    ///
    /// `Misaligned` for `fence`; `Overflow` for `context_id`.
    pub(crate) fn encode(&self) -> Result<[u32; Self::DWORDS], EncodeError> {
        let fence = aligned("fence", self.fence, 8)?;
        let dw1 = QueryStatusDw1::new()
            .try_with(QueryStatusDw1::CONTEXT_ID, self.context_id)?
            // CAST: The discriminants are 0 to 3.
            .with(QueryStatusDw1::COMMAND, self.command as u32);
        Ok([
            Header::packet(op::QUERY_STATUS, Self::DWORDS).raw(),
            dw1.raw(),
            0,
            num::lo32(fence),
            num::hi32(fence),
            num::lo32(self.value),
            num::hi32(self.value),
        ])
    }

    /// The packet's meaning; `None` if it uses what this driver never does.
    pub(crate) const fn decode(dw: &[u32; Self::DWORDS]) -> Option<Self> {
        let dw1 = QueryStatusDw1::from_raw(dw[1]);
        if dw1.is_set(QueryStatusDw1::INTERRUPT_SEL) || dw[2] != 0 || dw[3] & 7 != 0 {
            return None;
        }
        Some(Self {
            context_id: dw1.get(QueryStatusDw1::CONTEXT_ID),
            command: match dw1.get(QueryStatusDw1::COMMAND) {
                0 => QueryCommand::Interrupt,
                1 => QueryCommand::FenceImmediate,
                2 => QueryCommand::FenceAfterAck,
                _ => QueryCommand::FenceAndInterrupt,
            },
            fence: num::join(dw[3], dw[4]),
            value: num::join(dw[5], dw[6]),
        })
    }
}

impl fmt::Display for QueryStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "QUERY_STATUS {:?} context {:#x} fence {:#x} = {}",
            self.command, self.context_id, self.fence, self.value,
        )
    }
}
