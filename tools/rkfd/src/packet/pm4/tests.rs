// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Bits by hand for each packet, and round trips for all.

use super::*;
use proptest::prelude::*;

fn one(p: Packet) -> Vec<u32> {
    Packet::encode_all(&[p]).unwrap()
}

#[test]
fn write_data_bit_by_bit() {
    let p = Packet::WriteData {
        address: 0x7f12_3456_7000,
        data: vec![0xdead_beef],
        confirm: true,
    };
    assert_eq!(
        one(p),
        [0xc003_3702, 0x0010_0500, 0x3456_7000, 0x7f12, 0xdead_beef]
    );
}

#[test]
fn release_mem_bit_by_bit() {
    let p = Packet::ReleaseMem {
        event: CACHE_FLUSH_AND_INV_TS,
        address: 0x10_0000_0008,
        data: ReleaseData::Qword(0x1_0000_0002),
        interrupt: ReleaseInterrupt::AfterWrite(7),
    };
    assert_eq!(
        one(p),
        [0xc006_4902, 0x0002_8514, 0x4200_0000, 0x8, 0x10, 2, 1, 7]
    );
}

#[test]
fn other_packets_bit_by_bit() {
    let ib = Packet::IndirectBuffer {
        address: 0x2_0000_0000,
        dwords: 64,
        chain: false,
    };
    assert_eq!(one(ib), [0xc002_3f02, 0, 2, 0x0080_0040]);
    let wait = Packet::WaitMem {
        compare: Compare::Equal,
        address: 0x1000,
        reference: 5,
        mask: u32::MAX,
        interval: 4,
    };
    assert_eq!(one(wait), [0xc005_3c02, 0x13, 0x1000, 0, 5, u32::MAX, 4]);
    let copy = Packet::CopyData {
        source: CopySource::Memory(0x2000),
        address: 0x3000,
        wide: true,
    };
    assert_eq!(one(copy), [0xc004_4002, 0x0011_0501, 0x2000, 0, 0x3000, 0]);
    let atomic = Packet::AtomicMem {
        operation: ATOMIC_ADD64,
        address: 0x4000,
        source: u64::MAX,
        compare: 0,
    };
    assert_eq!(
        one(atomic),
        [0xc007_1e02, 47, 0x4000, 0, u32::MAX, u32::MAX, 0, 0, 0]
    );
    let dma = Packet::DmaData {
        source: 1,
        destination: 2,
        bytes: 3,
    };
    assert_eq!(one(dma), [0xc005_5002, 1 << 31, 1, 0, 2, 0, 3]);
    assert_eq!(
        one(Packet::EventWrite {
            event: CS_PARTIAL_FLUSH,
            index: 4
        }),
        [0xc000_4602, 0x407]
    );
    assert_eq!(
        one(Packet::AcquireMem { coher: 1 << 29 })[..3],
        [0xc005_5802, 1 << 29, u32::MAX]
    );
    assert_eq!(
        one(Packet::SetShReg {
            offset: 0x240,
            values: vec![1, 2]
        }),
        [0xc002_7602, 0x240, 1, 2]
    );
}

#[test]
fn one_dword_nop_is_read() {
    assert_eq!(
        Packet::decode(&[0xffff_1000]),
        Ok((Packet::Nop(Vec::new()), 1))
    );
}

#[test]
fn refusals() {
    let write = |address, data| {
        Packet::WriteData {
            address,
            data,
            confirm: false,
        }
        .encode(&mut Vec::new())
    };
    assert!(matches!(
        write(2, vec![0]),
        Err(PacketError::Unaligned { align: 4, .. })
    ));
    assert!(matches!(
        write(1 << 48, vec![0]),
        Err(PacketError::TooLarge { bits: 48, .. })
    ));
    assert_eq!(write(0, vec![]), Err(PacketError::Empty("WRITE_DATA")));
    // The largest that fits, and one more.
    assert_eq!(write(0, vec![0; MAX_PAYLOAD - 2]), Ok(()));
    assert!(matches!(
        write(0, vec![0; MAX_PAYLOAD - 1]),
        Err(PacketError::TooLarge { .. })
    ));
    let nop = |n| Packet::Nop(vec![0; n]).encode(&mut Vec::new());
    assert_eq!(nop(MAX_PAYLOAD), Ok(()));
    assert!(nop(MAX_PAYLOAD + 1).is_err());
    let release = Packet::ReleaseMem {
        event: 0,
        address: 4,
        data: ReleaseData::Qword(0),
        interrupt: ReleaseInterrupt::None,
    };
    assert!(matches!(
        release.encode(&mut Vec::new()),
        Err(PacketError::Unaligned { align: 8, .. })
    ));
}

fn compare() -> impl Strategy<Value = Compare> {
    prop::sample::select(Compare::ALL.to_vec())
}

fn addr(align: u64) -> impl Strategy<Value = u64> {
    (0..(1u64 << 48) / align).prop_map(move |a| a * align)
}

fn packet() -> impl Strategy<Value = Packet> {
    let dwords = || prop::collection::vec(any::<u32>(), 1..40);
    prop_oneof![
        dwords().prop_map(Packet::Nop),
        (addr(4), dwords(), any::<bool>()).prop_map(|(address, data, confirm)| Packet::WriteData {
            address,
            data,
            confirm
        }),
        (addr(4), 1u32..1 << 20, any::<bool>()).prop_map(|(address, dwords, chain)| {
            Packet::IndirectBuffer {
                address,
                dwords,
                chain,
            }
        }),
        (
            0u32..64,
            addr(8),
            prop_oneof![
                Just(ReleaseData::None),
                any::<u32>().prop_map(ReleaseData::Dword),
                any::<u64>().prop_map(ReleaseData::Qword),
                Just(ReleaseData::Clock)
            ],
            prop_oneof![
                Just(ReleaseInterrupt::None),
                any::<u32>().prop_map(ReleaseInterrupt::AfterWrite)
            ]
        )
            .prop_map(|(event, address, data, interrupt)| Packet::ReleaseMem {
                event,
                address,
                data,
                interrupt
            }),
        (0u32..1 << 31).prop_map(|coher| Packet::AcquireMem { coher }),
        (0u32..64, 0u32..16).prop_map(|(event, index)| Packet::EventWrite { event, index }),
        (
            compare(),
            addr(4),
            any::<u32>(),
            any::<u32>(),
            0u32..1 << 16
        )
            .prop_map(
                |(compare, address, reference, mask, interval)| Packet::WaitMem {
                    compare,
                    address,
                    reference,
                    mask,
                    interval
                }
            ),
        (
            prop_oneof![
                addr(8).prop_map(CopySource::Memory),
                any::<u64>().prop_map(CopySource::Immediate),
                Just(CopySource::Clock)
            ],
            addr(8),
            any::<bool>()
        )
            .prop_map(|(source, address, wide)| Packet::CopyData {
                source,
                address,
                wide
            }),
        (0u32..128, addr(4), any::<u64>(), any::<u64>()).prop_map(
            |(operation, address, source, compare)| {
                Packet::AtomicMem {
                    operation,
                    address,
                    source,
                    compare,
                }
            }
        ),
        (addr(1), addr(1), 1u32..1 << 21).prop_map(|(source, destination, bytes)| {
            Packet::DmaData {
                source,
                destination,
                bytes,
            }
        }),
        (0u32..1 << 16, dwords()).prop_map(|(offset, values)| Packet::SetShReg { offset, values }),
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
    fn cut_off_is_noticed(p in packet(), cut in any::<prop::sample::Index>()) {
        let dwords = Packet::encode_all(&[p]).unwrap();
        let cut = cut.index(dwords.len());
        let short = matches!(Packet::decode(&dwords[..cut]), Err(PacketError::Short { .. }));
        prop_assert!(short);
    }

    #[test]
    fn any_dwords_are_survived(dwords in prop::collection::vec(any::<u32>(), 0..64)) {
        if let Ok((p, len)) = Packet::decode(&dwords) {
            prop_assert!(len >= 1 && len <= dwords.len());
            prop_assert!(!p.to_string().is_empty());
        }
    }
}
