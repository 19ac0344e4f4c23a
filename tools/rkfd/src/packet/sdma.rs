// SPDX-License-Identifier: GPL-2.0 OR MIT
//! SDMA packets of user queues, version 4.
//!
//! First dword: opcode `[7:0]`, sub-opcode `[15:8]`, then bits of the packet. Layouts are those of kernel 7.3's
//! `vega10_sdma_pkt_open.h`. Counts of bytes are stored minus one.

use std::fmt;

use super::address;
use super::aligned;
use super::fits;
use super::halves;
use super::join;
use super::pm4::Compare;
use super::PacketError;
use super::Result;

/// `atomic_op` of a 64-bit add.
pub const ATOMIC_ADD64: u32 = 47;

/// Largest copy or fill that every version 4 engine takes (22-bit count), in bytes.
pub const MAX_BYTES: u32 = 1 << 22;

/// A packet of an SDMA queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Skips this many further dwords.
    Nop(Vec<u32>),
    /// Copies bytes.
    CopyLinear {
        /// From.
        source: u64,
        /// To.
        destination: u64,
        /// How many, at most [`MAX_BYTES`].
        bytes: u32,
    },
    /// Stores dwords.
    WriteLinear {
        /// To, 4-byte aligned.
        destination: u64,
        /// The dwords.
        data: Vec<u32>,
    },
    /// Stores one dword after all earlier packets.
    Fence {
        /// To, 4-byte aligned.
        address: u64,
        /// The dword.
        data: u32,
    },
    /// Raises an interrupt.
    Trap {
        /// Its context id (28 bits): the event's id.
        context: u32,
    },
    /// Waits until memory compares.
    PollMem {
        /// The comparison.
        compare: Compare,
        /// 4-byte aligned.
        address: u64,
        /// Compared with.
        value: u32,
        /// Applied to memory's value first.
        mask: u32,
    },
    /// An atomic operation.
    Atomic {
        /// Its code, 7 bits.
        operation: u32,
        /// On this address.
        address: u64,
        /// Operand.
        source: u64,
    },
    /// Fills memory with a dword.
    ConstFill {
        /// To, 4-byte aligned.
        destination: u64,
        /// The dword.
        data: u32,
        /// How many bytes, a multiple of 4, at most [`MAX_BYTES`].
        bytes: u32,
    },
    /// Stores the GPU's clock.
    Timestamp {
        /// To, 8-byte aligned.
        address: u64,
    },
}

fn byte_count(what: &'static str, bytes: u32) -> Result<u32> {
    let minus_one = bytes.checked_sub(1).ok_or(PacketError::Empty(what))?;
    fits(what, u64::from(minus_one), 22)
}

impl Packet {
    /// Appends the packet's dwords to `out`.
    ///
    /// # Errors
    /// [`PacketError`] where an address is not aligned or a value does not fit; `out` is unchanged then.
    pub fn encode(&self, out: &mut Vec<u32>) -> Result<()> {
        match self {
            Packet::Nop(skipped) => {
                let count = fits("NOP count", skipped.len() as u64, 14)?;
                out.push(count << 16);
                out.extend_from_slice(skipped);
            }
            Packet::CopyLinear {
                source,
                destination,
                bytes,
            } => {
                let count = byte_count("COPY_LINEAR count", *bytes)?;
                let [slo, shi] = address("COPY_LINEAR source", *source, 1)?;
                let [dlo, dhi] = address("COPY_LINEAR destination", *destination, 1)?;
                out.extend([1, count, 0, slo, shi, dlo, dhi]);
            }
            Packet::WriteLinear { destination, data } => {
                if data.is_empty() {
                    return Err(PacketError::Empty("WRITE_LINEAR"));
                }
                let count = fits("WRITE_LINEAR count", data.len() as u64 - 1, 20)?;
                let [lo, hi] = address("WRITE_LINEAR destination", *destination, 4)?;
                out.extend([2, lo, hi, count]);
                out.extend_from_slice(data);
            }
            Packet::Fence { address: a, data } => {
                let [lo, hi] = address("FENCE address", *a, 4)?;
                out.extend([5, lo, hi, *data]);
            }
            Packet::Trap { context } => {
                out.extend([6, fits("TRAP context", u64::from(*context), 28)?])
            }
            Packet::PollMem {
                compare,
                address: a,
                value,
                mask,
            } => {
                let [lo, hi] = address("POLL_REGMEM address", *a, 4)?;
                // Retry for ever (0xfff), 10 clocks apart.
                out.extend([
                    8 | (compare.code() << 28) | (1 << 31),
                    lo,
                    hi,
                    *value,
                    *mask,
                    10 | (0xfff << 16),
                ]);
            }
            Packet::Atomic {
                operation,
                address: a,
                source,
            } => {
                let operation = fits("ATOMIC operation", u64::from(*operation), 7)?;
                let [lo, hi] = address("ATOMIC address", *a, 4)?;
                let [slo, shi] = halves(*source);
                out.extend([10 | (operation << 25), lo, hi, slo, shi, 0, 0, 0]);
            }
            Packet::ConstFill {
                destination,
                data,
                bytes,
            } => {
                aligned("CONST_FILL bytes", u64::from(*bytes), 4)?;
                let count = byte_count("CONST_FILL count", *bytes)?;
                let [lo, hi] = address("CONST_FILL destination", *destination, 4)?;
                // Fill size 2: dwords; the count's low two bits are ignored then.
                out.extend([11 | (2 << 30), lo, hi, *data, count & !3]);
            }
            Packet::Timestamp { address: a } => {
                let [lo, hi] = address("TIMESTAMP address", *a, 8)?;
                out.extend([13 | (2 << 8), lo, hi]);
            }
        }
        Ok(())
    }

    /// Reads one packet and says how many dwords it has.
    ///
    /// # Errors
    /// [`PacketError::Short`] where it is cut off, [`PacketError::Unknown`] where it is not one that [`Packet::encode`] makes.
    pub fn decode(dwords: &[u32]) -> Result<(Self, usize)> {
        let &dw0 = dwords
            .first()
            .ok_or(PacketError::Short { needed: 1, have: 0 })?;
        let take = |needed: usize| {
            dwords.get(1..needed).ok_or(PacketError::Short {
                needed,
                have: dwords.len(),
            })
        };
        let unknown = Err(PacketError::Unknown(dw0));
        // CAST: field widths of 14 and 20 bits.
        let (packet, len) = match (dw0 & 0xff, (dw0 >> 8) & 0xff) {
            (0, 0) => {
                let len = 1 + ((dw0 >> 16) & 0x3fff) as usize;
                (Packet::Nop(take(len)?.to_vec()), len)
            }
            (1, 0) if (dw0 >> 27) & 1 == 0 => match *take(7)? {
                [count, _, slo, shi, dlo, dhi] => (
                    Packet::CopyLinear {
                        source: join(slo, shi),
                        destination: join(dlo, dhi),
                        bytes: (count & 0x3f_ffff) + 1,
                    },
                    7,
                ),
                _ => return unknown,
            },
            (2, 0) => match *take(4)? {
                [lo, hi, count] => {
                    let len = 5 + (count & 0xf_ffff) as usize;
                    let data = take(len)?.get(3..).unwrap_or_default().to_vec();
                    (
                        Packet::WriteLinear {
                            destination: join(lo, hi),
                            data,
                        },
                        len,
                    )
                }
                _ => return unknown,
            },
            (5, 0) => match *take(4)? {
                [lo, hi, data] => (
                    Packet::Fence {
                        address: join(lo, hi),
                        data,
                    },
                    4,
                ),
                _ => return unknown,
            },
            (6, 0) => match *take(2)? {
                [context] => (
                    Packet::Trap {
                        context: context & 0xfff_ffff,
                    },
                    2,
                ),
                _ => return unknown,
            },
            (8, 0) if dw0 >> 31 == 1 && (dw0 >> 26) & 1 == 0 => {
                match (take(6)?, Compare::from_code((dw0 >> 28) & 7)) {
                    (&[lo, hi, value, mask, _], Some(compare)) => (
                        Packet::PollMem {
                            compare,
                            address: join(lo, hi),
                            value,
                            mask,
                        },
                        6,
                    ),
                    _ => return unknown,
                }
            }
            (10, 0) => match *take(8)? {
                [lo, hi, slo, shi, ..] => (
                    Packet::Atomic {
                        operation: dw0 >> 25,
                        address: join(lo, hi),
                        source: join(slo, shi),
                    },
                    8,
                ),
                _ => return unknown,
            },
            (11, 0) if dw0 >> 30 == 2 => match *take(5)? {
                [lo, hi, data, count] => (
                    Packet::ConstFill {
                        destination: join(lo, hi),
                        data,
                        bytes: (count & 0x3f_fffc) + 4,
                    },
                    5,
                ),
                _ => return unknown,
            },
            (13, 2) => match *take(3)? {
                [lo, hi] => (
                    Packet::Timestamp {
                        address: join(lo, hi),
                    },
                    3,
                ),
                _ => return unknown,
            },
            _ => return unknown,
        };
        Ok((packet, len))
    }

    /// Encodes a sequence.
    ///
    /// # Errors
    /// As [`Packet::encode`].
    pub fn encode_all(packets: &[Packet]) -> Result<Vec<u32>> {
        let mut out = Vec::new();
        for p in packets {
            p.encode(&mut out)?;
        }
        Ok(out)
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Packet::Nop(s) => write!(f, "NOP, {} dwords skipped", s.len()),
            Packet::CopyLinear {
                source,
                destination,
                bytes,
            } => {
                write!(
                    f,
                    "COPY_LINEAR [{destination:#x}] <- [{source:#x}], {bytes} bytes"
                )
            }
            Packet::WriteLinear { destination, data } => {
                write!(
                    f,
                    "WRITE_LINEAR [{destination:#x}] <- {} dwords",
                    data.len()
                )
            }
            Packet::Fence { address, data } => write!(f, "FENCE [{address:#x}] <- {data:#010x}"),
            Packet::Trap { context } => write!(f, "TRAP context {context:#x}"),
            Packet::PollMem {
                compare,
                address,
                value,
                mask,
            } => {
                write!(
                    f,
                    "POLL_REGMEM until [{address:#x}] & {mask:#x} {} {value:#x}",
                    compare.sign()
                )
            }
            Packet::Atomic {
                operation,
                address,
                source,
            } => {
                write!(
                    f,
                    "ATOMIC operation {operation} on [{address:#x}] with {source:#x}"
                )
            }
            Packet::ConstFill {
                destination,
                data,
                bytes,
            } => {
                write!(
                    f,
                    "CONST_FILL [{destination:#x}] <- {data:#010x}, {bytes} bytes"
                )
            }
            Packet::Timestamp { address } => write!(f, "TIMESTAMP [{address:#x}] <- GPU clock"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(p: Packet) -> Vec<u32> {
        Packet::encode_all(&[p]).unwrap()
    }

    #[test]
    fn bit_by_bit() {
        let copy = Packet::CopyLinear {
            source: 0x1_0000_0001,
            destination: 0x2_0000_0002,
            bytes: 0x1000,
        };
        assert_eq!(one(copy), [1, 0xfff, 0, 1, 1, 2, 2]);
        assert_eq!(
            one(Packet::WriteLinear {
                destination: 0x10,
                data: vec![7, 8]
            }),
            [2, 0x10, 0, 1, 7, 8]
        );
        assert_eq!(
            one(Packet::Fence {
                address: 0x20,
                data: 9
            }),
            [5, 0x20, 0, 9]
        );
        assert_eq!(one(Packet::Trap { context: 3 }), [6, 3]);
        let fill = Packet::ConstFill {
            destination: 0x30,
            data: 0xa5a5_a5a5,
            bytes: 16,
        };
        assert_eq!(one(fill), [0x8000_000b, 0x30, 0, 0xa5a5_a5a5, 12]);
        let atomic = Packet::Atomic {
            operation: ATOMIC_ADD64,
            address: 0x40,
            source: u64::MAX,
        };
        assert_eq!(
            one(atomic),
            [0x5e00_000a, 0x40, 0, u32::MAX, u32::MAX, 0, 0, 0]
        );
        let poll = Packet::PollMem {
            compare: Compare::Equal,
            address: 0x50,
            value: 1,
            mask: 3,
        };
        assert_eq!(one(poll), [0xb000_0008, 0x50, 0, 1, 3, 0x0fff_000a]);
        assert_eq!(one(Packet::Timestamp { address: 0x60 }), [0x20d, 0x60, 0]);
        assert_eq!(one(Packet::Nop(vec![1, 2])), [0x2_0000, 1, 2]);
    }

    #[test]
    fn refusals() {
        let copy = |bytes| {
            Packet::CopyLinear {
                source: 0,
                destination: 0,
                bytes,
            }
            .encode(&mut Vec::new())
        };
        assert_eq!(copy(MAX_BYTES), Ok(()));
        assert!(matches!(
            copy(MAX_BYTES + 1),
            Err(PacketError::TooLarge { bits: 22, .. })
        ));
        assert!(matches!(copy(0), Err(PacketError::Empty(_))));
        let fill = |bytes| {
            Packet::ConstFill {
                destination: 0,
                data: 0,
                bytes,
            }
            .encode(&mut Vec::new())
        };
        assert!(matches!(fill(6), Err(PacketError::Unaligned { .. })));
        assert!(matches!(
            Packet::Trap { context: 1 << 28 }.encode(&mut Vec::new()),
            Err(PacketError::TooLarge { .. })
        ));
    }

    fn addr(align: u64) -> impl Strategy<Value = u64> {
        (0..(1u64 << 48) / align).prop_map(move |a| a * align)
    }

    fn packet() -> impl Strategy<Value = Packet> {
        let compare = (0u32..7).prop_map(|c| Compare::from_code(c).unwrap());
        prop_oneof![
            prop::collection::vec(any::<u32>(), 0..20).prop_map(Packet::Nop),
            (addr(1), addr(1), 1..=MAX_BYTES).prop_map(|(source, destination, bytes)| {
                Packet::CopyLinear {
                    source,
                    destination,
                    bytes,
                }
            }),
            (addr(4), prop::collection::vec(any::<u32>(), 1..20))
                .prop_map(|(destination, data)| Packet::WriteLinear { destination, data }),
            (addr(4), any::<u32>()).prop_map(|(address, data)| Packet::Fence { address, data }),
            (0u32..1 << 28).prop_map(|context| Packet::Trap { context }),
            (compare, addr(4), any::<u32>(), any::<u32>()).prop_map(
                |(compare, address, value, mask)| Packet::PollMem {
                    compare,
                    address,
                    value,
                    mask
                }
            ),
            (0u32..128, addr(4), any::<u64>()).prop_map(|(operation, address, source)| {
                Packet::Atomic {
                    operation,
                    address,
                    source,
                }
            }),
            (addr(4), any::<u32>(), 1..=MAX_BYTES / 4).prop_map(|(destination, data, n)| {
                Packet::ConstFill {
                    destination,
                    data,
                    bytes: n * 4,
                }
            }),
            addr(8).prop_map(|address| Packet::Timestamp { address }),
        ]
    }

    proptest! {
        #[test]
        fn round_trip(packets in prop::collection::vec(packet(), 1..8)) {
            let dwords = Packet::encode_all(&packets).unwrap();
            let mut rest = &dwords[..];
            for p in &packets {
                let (q, len) = Packet::decode(rest).unwrap();
                prop_assert_eq!(&q, p);
                rest = &rest[len..];
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn any_dwords_are_survived(dwords in prop::collection::vec(any::<u32>(), 0..64)) {
            if let Ok((p, len)) = Packet::decode(&dwords) {
                prop_assert!(len >= 1 && len <= dwords.len());
                prop_assert!(!p.to_string().is_empty());
            }
        }
    }
}
