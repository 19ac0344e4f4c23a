// SPDX-License-Identifier: GPL-2.0

//! SDMA packets that the driver may put on an engine.
//!
//! Rings, pointers and doorbells count bytes. Counts inside packets are less by one. Source:
//! `vega10_sdma_pkt_open.h`, `sdma_v4_0.c`, `amdgpu_amdkfd_arcturus.c`.

use super::bits::{
    fields,
    Overflow, //
};
use super::num;

/// Opcodes.
pub(crate) mod op {
    /// No operation.
    pub(crate) const NOP: u32 = 0;
    /// Copy.
    pub(crate) const COPY: u32 = 1;
    /// Write.
    pub(crate) const WRITE: u32 = 2;
    /// Run a buffer.
    pub(crate) const INDIRECT: u32 = 4;
    /// 32-bit write.
    pub(crate) const FENCE: u32 = 5;
    /// Interrupt.
    pub(crate) const TRAP: u32 = 6;
    /// Wait for a value.
    pub(crate) const POLL_REGMEM: u32 = 8;
    /// Atomic.
    pub(crate) const ATOMIC: u32 = 10;
    /// Fill.
    pub(crate) const CONST_FILL: u32 = 11;
    /// Generate page-table entries.
    pub(crate) const PTEPDE: u32 = 12;
    /// Time stamp.
    pub(crate) const TIMESTAMP: u32 = 13;
    /// Register write; privileged.
    pub(crate) const SRBM_WRITE: u32 = 14;
}

fields! {
    /// First dword of a packet.
    pub(crate) struct Header {
        /// Opcode.
        OP [7:0];
        /// Variant.
        SUB_OP [15:8];
    }
}

const fn header(op: u32) -> u32 {
    Header::new().with(Header::OP, op).raw()
}

/// Count field of COPY and CONST_FILL: bytes less one, in 22 or 30 bits.
fn byte_count(bytes: u64, long: bool) -> Result<u32, Overflow> {
    let bits = if long { 30 } else { 22 };
    let limit = num::low_mask(bits);
    match bytes.checked_sub(1) {
        Some(count) if count <= limit => Ok(num::lo32(count)),
        _ => Err(Overflow {
            field: "count",
            value: bytes,
        }),
    }
}

/// Most bytes that one COPY or CONST_FILL covers.
pub(crate) const fn max_bytes(long_count: bool) -> u64 {
    if long_count {
        1 << 30
    } else {
        1 << 22
    }
}

/// COPY of `bytes` bytes, 7 dwords. `long_count` is the engine's `SdmaLayout::long_count`.
///
/// # Errors
///
/// `Overflow` if `bytes` is 0 or above [`max_bytes`].
pub(crate) fn copy(
    source: u64,
    destination: u64,
    bytes: u64,
    long_count: bool,
) -> Result<[u32; 7], Overflow> {
    Ok([
        header(op::COPY),
        byte_count(bytes, long_count)?,
        0,
        num::lo32(source),
        num::hi32(source),
        num::lo32(destination),
        num::hi32(destination),
    ])
}

/// CONST_FILL of `bytes` bytes with a dword, 5 dwords.
///
/// # Errors
///
/// `Overflow` if `bytes` is 0, above [`max_bytes`] or not a multiple of 4.
pub(crate) fn fill(
    destination: u64,
    value: u32,
    bytes: u64,
    long_count: bool,
) -> Result<[u32; 5], Overflow> {
    if bytes % 4 != 0 {
        return Err(Overflow {
            field: "count",
            value: bytes,
        });
    }
    // FILLSIZE 2: dwords.
    Ok([
        header(op::CONST_FILL) | (2 << 30),
        num::lo32(destination),
        num::hi32(destination),
        value,
        byte_count(bytes, long_count)?,
    ])
}

/// FENCE: a 32-bit write after all earlier packets, 4 dwords. `None` unless 4-byte aligned.
pub(crate) const fn fence(address: u64, value: u32) -> Option<[u32; 4]> {
    if !num::is_aligned(address, 4) {
        return None;
    }
    Some([
        header(op::FENCE),
        num::lo32(address),
        num::hi32(address),
        value,
    ])
}

/// TRAP with a context id of 28 bits, 2 dwords; `None` for a longer id.
pub(crate) const fn trap(context: u32) -> Option<[u32; 2]> {
    if context >> 28 != 0 {
        return None;
    }
    Some([header(op::TRAP), context])
}

/// PTEPDE generation: `count` entries of `flags | value + i * increment` at `address`, 10 dwords.
///
/// # Errors
///
/// `Overflow` if `count` is 0 or above 2^19.
pub(crate) fn generate_entries(
    address: u64,
    flags: u64,
    value: u64,
    increment: u32,
    count: u32,
) -> Result<[u32; 10], Overflow> {
    let last = match count.checked_sub(1) {
        Some(last) if last < 1 << 19 => last,
        _ => {
            return Err(Overflow {
                field: "entries",
                value: u64::from(count),
            })
        }
    };
    Ok([
        header(op::PTEPDE),
        num::lo32(address),
        num::hi32(address),
        num::lo32(flags),
        num::hi32(flags),
        num::lo32(value),
        num::hi32(value),
        increment,
        0,
        last,
    ])
}

/// One dword NOP.
pub(crate) const NOP: u32 = 0;
