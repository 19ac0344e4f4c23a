// SPDX-License-Identifier: GPL-2.0

//! Memory queue descriptors: the image of a queue that the scheduler loads and saves.
//!
//! An MQD lies in memory that hardware reads and writes behind the driver's back. Nothing here
//! holds a reference to it: a description of the queue gives the value of each dword, and the
//! caller stores it as its memory demands. Writing an existing queue's changes is a walk too, and
//! keeps the bits that hardware owns.
//!
//! - [`compute`]: queues of the MEC (user PM4 and AQL, HIQ, KIQ), 512 dwords.
//! - [`sdma`]: queues of an SDMA engine, 128 dwords.
//! - [`cu_mask`]: spreading a flat mask of compute units over the shader engines.
//!
//! Source: `v9_structs.h`, `kfd_mqd_manager_v9.c`, `gfx_v9_0.c`.

use core::fmt;

use super::num;

pub(crate) mod compute;
pub(crate) mod cu_mask;
pub(crate) mod layout;
pub(crate) mod sdma;

pub(crate) use compute::{
    ComputeMqd,
    Cwsr,
    Eop,
    QueueConfig,
    QueueFormat,
    Readback, //
};
pub(crate) use cu_mask::{
    spread,
    CuMask, //
};
pub(crate) use layout::{
    Named,
    COMPUTE_BYTES,
    SDMA_BYTES, //
};
pub(crate) use sdma::{
    SdmaMqd,
    SdmaQueueConfig, //
};

/// Offset of the control stack behind a compute MQD: hardware finds it one page on.
pub(crate) const CONTROL_STACK_OFFSET: u64 = 0x1000;
/// Smallest ring of a queue in bytes (`KFD_MIN_QUEUE_RING_SIZE`).
pub(crate) const MIN_RING_BYTES: u32 = 1024;

/// Bytes of the buffer that holds a compute MQD and the control stack behind it.
pub(crate) const fn buffer_bytes(ctl_stack: u32) -> u64 {
    match num::align_up(num::widen(ctl_stack), 0x1000) {
        Some(stack) => CONTROL_STACK_OFFSET + stack,
        None => u64::MAX,
    }
}

/// A queue cannot be described to hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MqdError {
    /// The ring is not a power of two, or below [`MIN_RING_BYTES`].
    RingSize(u32),
    /// An address lacks the alignment that hardware needs.
    Misaligned {
        /// Name of the address.
        field: &'static str,
        /// The address.
        address: u64,
    },
    /// An address has more than 48 bits.
    TooWide {
        /// Name of the address.
        field: &'static str,
        /// The address.
        address: u64,
    },
    /// A size does not fit its register.
    Size {
        /// Name of the size.
        field: &'static str,
        /// The size.
        bytes: u32,
    },
    /// The priority is above 15.
    Priority(u32),
}

impl fmt::Display for MqdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RingSize(bytes) => write!(f, "ring of {bytes:#x} bytes is impossible"),
            Self::Misaligned { field, address } => write!(f, "{field} {address:#x} is misaligned"),
            Self::TooWide { field, address } => write!(f, "{field} {address:#x} exceeds 48 bits"),
            Self::Size { field, bytes } => write!(f, "{field} of {bytes:#x} bytes is impossible"),
            Self::Priority(priority) => write!(f, "priority {priority} is above 15"),
        }
    }
}

/// Checks an address against its alignment, a power of two, and the 48 bits of the GPU.
const fn check(field: &'static str, address: u64, align: u64) -> Result<(), MqdError> {
    if !num::is_aligned(address, align) {
        Err(MqdError::Misaligned { field, address })
    } else if address >> 48 != 0 {
        Err(MqdError::TooWide { field, address })
    } else {
        Ok(())
    }
}

/// Checks a ring's size.
const fn check_ring(bytes: u32) -> Result<(), MqdError> {
    if bytes.is_power_of_two() && bytes >= MIN_RING_BYTES {
        Ok(())
    } else {
        Err(MqdError::RingSize(bytes))
    }
}

/// The named dwords of an MQD with their values; `read` is asked once for each.
pub(crate) fn dump<'a>(
    fields: &'a [Named],
    mut read: impl FnMut(usize) -> u32 + 'a,
) -> impl Iterator<Item = (&'static str, u32)> + 'a {
    fields.iter().map(move |field| (field.name, read(field.dw)))
}
