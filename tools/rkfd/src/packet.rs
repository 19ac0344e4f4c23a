// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Packets of user queues: PM4, SDMA and AQL, encoded and decoded.

pub mod aql;
pub mod pm4;
pub mod sdma;

/// Why a packet cannot be encoded, or dwords cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// An address or count without the alignment that the packet demands.
    #[error("{what} {value:#x} is not a multiple of {align}")]
    Unaligned {
        /// What it is.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The alignment in bytes.
        align: u64,
    },
    /// A value that its field cannot hold.
    #[error("{what} {value:#x} does not fit its {bits} bits")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// Its value.
        value: u64,
        /// Width of the field.
        bits: u32,
    },
    /// A packet that would have no content.
    #[error("{0} is empty")]
    Empty(&'static str),
    /// The dwords end before the packet does.
    #[error("A packet of {needed} dwords is cut off after {have}")]
    Short {
        /// Dwords the packet has.
        needed: usize,
        /// Dwords there are.
        have: usize,
    },
    /// Dwords that are no packet known here.
    #[error("Not a packet known here: {0:#010x}")]
    Unknown(u32),
}

type Result<T> = std::result::Result<T, PacketError>;

fn aligned(what: &'static str, value: u64, align: u64) -> Result<u64> {
    if value % align == 0 {
        Ok(value)
    } else {
        Err(PacketError::Unaligned { what, value, align })
    }
}

fn fits(what: &'static str, value: u64, bits: u32) -> Result<u32> {
    match u32::try_from(value) {
        Ok(v) if bits >= 32 || v >> bits == 0 => Ok(v),
        _ => Err(PacketError::TooLarge { what, value, bits }),
    }
}

/// A GPU virtual address has 48 bits.
fn address(what: &'static str, value: u64, align: u64) -> Result<[u32; 2]> {
    aligned(what, value, align)?;
    if value >> 48 != 0 {
        return Err(PacketError::TooLarge {
            what,
            value,
            bits: 48,
        });
    }
    Ok(halves(value))
}

/// Low and high half.
fn halves(value: u64) -> [u32; 2] {
    // CAST: the split into halves is the purpose.
    [value as u32, (value >> 32) as u32]
}

fn join(lo: u32, hi: u32) -> u64 {
    (u64::from(hi) << 32) | u64::from(lo)
}
