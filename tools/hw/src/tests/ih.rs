// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Interrupt vectors: any bytes are accepted, positions never leave the ring.

use proptest::prelude::*;

use crate::hw::ih::{self, Client, Event, Pending, Ring, Vector};

#[test]
fn client_ids_round_trip() {
    for id in 0..=u8::MAX {
        assert_eq!(Client::from_id(id).id(), id);
    }
}

#[test]
fn sources_of_the_command_processor() {
    let event = |source: u32| Vector::decode(&[0x14 | (source << 8), 0, 0, 0, 7, 0, 0, 0]).event();
    assert_eq!(event(178), Event::KiqFence);
    assert_eq!(event(199), Event::QueryStatus(7));
    assert_eq!(event(200), Event::UnattachedDoorbell);
    assert!(matches!(event(184), Event::PrivilegedRegister(_)));
    assert!(matches!(event(185), Event::PrivilegedInstruction(_)));
    assert_eq!(event(150), Event::Unknown);
}

#[test]
fn exception_numbers_round_trip() {
    for code in 0..40u32 {
        let word = code << 10;
        match Vector::decode(&[0xB714, 0, 0, 0, word, 0, 0, 0]).event() {
            Event::BadPacket { code: seen, .. } => assert_eq!(seen.code(), code),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn vectors_print_what_they_mean() {
    let text = Vector::decode(&[0x0065_B514, 5, 0, 9, 77, 0, 0, 0]).to_string();
    assert!(text.contains("GrbmCp src 181"), "{text}");
    assert!(text.contains("pasid 9"), "{text}");
    assert!(text.contains("context: 77"), "{text}");
}

proptest! {
    #[test]
    fn any_vector_decodes_and_prints(dw: [u32; 8]) {
        let vector = Vector::decode(&dw);
        prop_assert!(vector.vmid < 16);
        prop_assert!(vector.timestamp < 1 << 48);
        if let Event::Fault(fault) = vector.event() {
            prop_assert_eq!(fault.address % 4096, 0);
            prop_assert!(fault.address < 1 << 48);
            prop_assert!(fault.cam_index < 1024);
        }
        prop_assert!(!vector.to_string().is_empty());
    }

    #[test]
    fn any_write_pointer_is_inside_or_bad(log in 5u32..=18, wptr: u32) {
        let ring = Ring::new(1 << log);
        prop_assert!(ring.is_some());
        if let Some(ring) = ring {
            match ring.pending(wptr) {
                Pending::UpTo(end) | Pending::Overflow { restart: end, .. } => {
                    prop_assert!(end < ring.bytes());
                    prop_assert_eq!(end % 32, 0);
                }
                Pending::Bad(raw) => prop_assert_eq!(raw, wptr),
            }
        }
    }

    #[test]
    fn counting_agrees_with_walking(log in 5u32..=10, from in 0u32..32, to in 0u32..32) {
        let ring = Ring::new(1 << log).ok_or_else(|| TestCaseError::fail("size"))?;
        let (from, to) = (from * 32 % ring.bytes(), to * 32 % ring.bytes());
        let mut position = from;
        let mut steps = 0;
        while position != to {
            prop_assert!(ring.dword_index(position) + 8 <= ring.bytes() as usize / 4);
            position = ring.next(position);
            steps += 1;
            prop_assert!(steps <= ring.bytes() / 32);
        }
        prop_assert_eq!(ring.count(from, to), steps);
    }

    #[test]
    fn of_two_stamps_one_is_later(a in 0u64..1 << 48, distance in 1u64..1 << 46) {
        let b = (a + distance) & ((1 << 48) - 1);
        prop_assert!(ih::timestamp_after(b, a));
        prop_assert!(!ih::timestamp_after(a, b));
    }
}
