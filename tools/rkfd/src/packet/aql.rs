// SPDX-License-Identifier: GPL-2.0 OR MIT
//! AQL packets: 64 bytes each, header in the first 16 bits and written last.

use super::aligned;
use super::halves;
use super::pm4;
use super::Result;

/// Dwords of a packet.
pub const DWORDS: usize = 16;
/// Bytes of a packet.
pub const BYTES: usize = 64;

/// Header type of a slot that holds nothing yet.
pub const INVALID: u16 = 1;
/// Header type of vendor packets.
pub const VENDOR: u16 = 0;
/// Header type of barrier-AND.
pub const BARRIER_AND: u16 = 3;
/// Header type of barrier-OR.
pub const BARRIER_OR: u16 = 5;
/// Header of a packet that does nothing: a barrier-AND without dependencies, fences or completion.
pub const EMPTY: u16 = BARRIER_AND;

/// System scope for acquire and release.
const FENCES_SYSTEM: u16 = (2 << 9) | (2 << 11);
const BARRIER_BIT: u16 = 1 << 8;

/// Which dependencies a barrier packet waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierKind {
    /// All of them at zero.
    And,
    /// Any of them at zero.
    Or,
}

/// A barrier packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// All or any.
    pub kind: BarrierKind,
    /// Addresses of signals; 0 where there is none.
    pub dependencies: [u64; 5],
    /// Address of the signal that is decremented, or 0.
    pub completion: u64,
}

impl Barrier {
    /// The packet's dwords, and its header, which must be stored last.
    ///
    /// # Errors
    /// [`super::PacketError::Unaligned`] where a signal is not on 64 bytes.
    pub fn encode(&self) -> Result<([u32; DWORDS], u16)> {
        let kind = match self.kind {
            BarrierKind::And => BARRIER_AND,
            BarrierKind::Or => BARRIER_OR,
        };
        let header = kind | BARRIER_BIT | FENCES_SYSTEM;
        let mut dw = [0; DWORDS];
        // The slot stays invalid until the header is published.
        dw[0] = u32::from(INVALID);
        for (pair, signal) in dw[2..12].chunks_exact_mut(2).zip(self.dependencies) {
            pair.copy_from_slice(&halves(aligned("dependency signal", signal, 64)?));
        }
        dw[14..16].copy_from_slice(&halves(aligned("completion signal", self.completion, 64)?));
        Ok((dw, header))
    }
}

/// A vendor packet that runs a PM4 buffer (`amd_aql_pm4_ib`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pm4Buffer {
    /// Address of the PM4 packets, 4-byte aligned.
    pub address: u64,
    /// How many dwords they are (20 bits).
    pub dwords: u32,
    /// Address of the signal that is decremented afterwards, or 0.
    pub completion: u64,
}

impl Pm4Buffer {
    /// The packet's dwords, and its header, which must be stored last.
    ///
    /// # Errors
    /// [`super::PacketError`] where an address is not aligned, the buffer empty or too long.
    pub fn encode(&self) -> Result<([u32; DWORDS], u16)> {
        let jump = pm4::Packet::encode_all(&[pm4::Packet::IndirectBuffer {
            address: self.address,
            dwords: self.dwords,
            chain: false,
        }])?;
        let mut dw = [0; DWORDS];
        // Format 1 above the header: a PM4 buffer. The slot stays invalid until the header is published.
        dw[0] = (1 << 16) | u32::from(INVALID);
        for (to, from) in dw[1..5].iter_mut().zip(jump) {
            *to = from;
        }
        // Dwords that remain of the packet behind the jump.
        dw[5] = 10;
        dw[14..16].copy_from_slice(&halves(aligned("completion signal", self.completion, 64)?));
        Ok((dw, VENDOR | BARRIER_BIT | FENCES_SYSTEM))
    }
}

/// A packet as it goes into its slot while that has to stay invalid, whatever the caller left in the header's place.
pub(crate) fn still_invalid(packet: &[u32; DWORDS]) -> [u32; DWORDS] {
    let mut body = *packet;
    body[0] = body[0] & 0xffff_0000 | u32::from(INVALID);
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn barrier_bit_by_bit() {
        let b = Barrier {
            kind: BarrierKind::And,
            dependencies: [0x1_0000_0040, 0, 0, 0, 0x80],
            completion: 0x2_0000_00c0,
        };
        let (dw, header) = b.encode().unwrap();
        assert_eq!(header, 0x1503);
        assert_eq!(
            dw,
            [1, 0, 0x40, 1, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0xc0, 2]
        );
        assert_eq!(
            Barrier {
                kind: BarrierKind::Or,
                ..b
            }
            .encode()
            .unwrap()
            .1,
            0x1505
        );
        assert!(Barrier { completion: 8, ..b }.encode().is_err());
    }

    #[test]
    fn pm4_buffer_bit_by_bit() {
        let p = Pm4Buffer {
            address: 0x1_0000_0004,
            dwords: 7,
            completion: 0x2_0000_00c0,
        };
        let (dw, header) = p.encode().unwrap();
        assert_eq!(header, 0x1500);
        assert_eq!(
            dw,
            [
                0x1_0001,
                0xc002_3f02,
                4,
                1,
                7 | (1 << 23),
                10,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0xc0,
                2
            ]
        );
        assert!(Pm4Buffer { dwords: 0, ..p }.encode().is_err());
        assert!(Pm4Buffer {
            dwords: 1 << 20,
            ..p
        }
        .encode()
        .is_err());
        assert!(Pm4Buffer { address: 2, ..p }.encode().is_err());
    }

    #[test]
    fn a_slot_is_invalid_until_its_header_comes() {
        // Type 0, which the caller's zeroes would be, is a vendor's packet.
        for left in [0, u32::from(VENDOR), u32::from(BARRIER_AND)] {
            let mut packet = [7; DWORDS];
            packet[0] = (0x1234 << 16) | left;
            let body = still_invalid(&packet);
            assert_eq!(body[0], (0x1234 << 16) | u32::from(INVALID));
            assert_eq!(body[1..], packet[1..]);
        }
    }
}
