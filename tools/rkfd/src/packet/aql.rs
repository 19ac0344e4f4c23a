// SPDX-License-Identifier: GPL-2.0 OR MIT
//! AQL packets: 64 bytes each, header in the first 16 bits and written last.

use super::address;
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
/// Header type of kernel dispatches.
pub const KERNEL_DISPATCH: u16 = 2;
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

/// How far a fence of a packet reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// There is none.
    None,
    /// The GPU.
    Agent,
    /// Everybody.
    #[default]
    System,
}

impl Scope {
    fn bits(self) -> u16 {
        match self {
            Scope::None => 0,
            Scope::Agent => 1,
            Scope::System => 2,
        }
    }
}

/// How many dimensions a launch has: those behind the last that is more than 1 do not count.
pub fn dimensions(grid: [u32; 3], group: [u16; 3]) -> u16 {
    let counts = |n: usize| grid[n] > 1 || group[n] > 1;
    match (counts(2), counts(1)) {
        (true, _) => 3,
        (false, true) => 2,
        (false, false) => 1,
    }
}

/// A packet that launches a kernel (`hsa_kernel_dispatch_packet_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelDispatch {
    /// Work-items.
    pub grid: [u32; 3],
    /// Work-items of a work-group.
    pub group: [u16; 3],
    /// Bytes of private memory of a work-item.
    pub private_bytes: u32,
    /// Bytes of group memory of a work-group.
    pub group_bytes: u32,
    /// Address of the kernel's descriptor.
    pub kernel_object: u64,
    /// Address of the arguments.
    pub kernargs: u64,
    /// Address of the signal that is decremented afterwards, or 0.
    pub completion: u64,
    /// Whether it waits for the packets before it.
    pub barrier: bool,
    /// How far memory is acquired before it.
    pub acquire: Scope,
    /// How far memory is released after it.
    pub release: Scope,
}

impl KernelDispatch {
    /// The packet's dwords, and its header, which must be stored last.
    ///
    /// # Errors
    /// [`super::PacketError`] where an address is not aligned, or none that the GPU has.
    pub fn encode(&self) -> Result<([u32; DWORDS], u16)> {
        let barrier = if self.barrier { BARRIER_BIT } else { 0 };
        let fences = (self.acquire.bits() << 9) | (self.release.bits() << 11);
        let [x, y, z] = self.group.map(u32::from);
        let mut dw = [0; DWORDS];
        // The slot stays invalid until the header is published.
        dw[0] = u32::from(INVALID) | (u32::from(dimensions(self.grid, self.group)) << 16);
        dw[1] = x | (y << 16);
        dw[2] = z;
        dw[3..6].copy_from_slice(&self.grid);
        dw[6] = self.private_bytes;
        dw[7] = self.group_bytes;
        dw[8..10].copy_from_slice(&address("kernel descriptor", self.kernel_object, 64)?);
        dw[10..12].copy_from_slice(&address("kernel arguments", self.kernargs, 16)?);
        dw[14..16].copy_from_slice(&halves(aligned("completion signal", self.completion, 64)?));
        Ok((dw, KERNEL_DISPATCH | barrier | fences))
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
    fn kernel_dispatch_bit_by_bit() {
        let packet = KernelDispatch {
            grid: [1000, 1, 1],
            group: [256, 1, 1],
            private_bytes: 0x30,
            group_bytes: 0x400,
            kernel_object: 0x7f00_0000_0040,
            kernargs: 0x7f00_0000_1010,
            completion: 0x2_0000_00c0,
            barrier: true,
            acquire: Scope::System,
            release: Scope::Agent,
        };
        let (dw, header) = packet.encode().unwrap();
        assert_eq!(header, 0xd02);
        assert_eq!(
            dw,
            [
                0x1_0001,
                256 | (1 << 16),
                1,
                1000,
                1,
                1,
                0x30,
                0x400,
                0x40,
                0x7f00,
                0x1010,
                0x7f00,
                0,
                0,
                0xc0,
                2
            ]
        );
        for (grid, group, count) in [
            ([5, 2, 1], [1; 3], 2),
            ([5, 1, 3], [1; 3], 3),
            ([5, 1, 1], [1, 4, 1], 2),
            ([5, 1, 1], [1, 1, 4], 3),
        ] {
            assert_eq!(dimensions(grid, group), count);
        }
        for wrong in [
            KernelDispatch {
                kernel_object: 0x20,
                ..packet
            },
            KernelDispatch {
                kernargs: 8,
                ..packet
            },
            KernelDispatch {
                kernargs: 1 << 48,
                ..packet
            },
            KernelDispatch {
                completion: 8,
                ..packet
            },
        ] {
            assert!(wrong.encode().is_err());
        }
        let relaxed = KernelDispatch {
            barrier: false,
            acquire: Scope::None,
            release: Scope::None,
            ..packet
        };
        assert_eq!(relaxed.encode().unwrap().1, 2);
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
