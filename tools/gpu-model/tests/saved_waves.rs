// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Dispatches in save areas, which their users may change.
#![allow(clippy::unwrap_used, reason = "a test may panic; that is how it fails")]

use gfx9_isa::group::Group;
use gfx9_isa::inst::Asic as Isa;
use gpu_model::waves::front::{Flight, Stand};
use gpu_model::waves::job::{Frozen, Resting, Waves};
use gpu_model::waves::kernel::{Kernel, Scratch};
use gpu_model::waves::saved::{decode_all, encode_all, Saved};
use gpu_model::waves::sync::Share;
use proptest::prelude::*;

/// 40 groups of 2 waves with private memory, as the queue of VMID 9 has them.
fn kernel() -> Kernel {
    Kernel {
        isa: Isa::Gfx90a,
        vmid: 9,
        doorbell: 5,
        queue: (2, 1, 1),
        entry: 0x7000_0000_4100,
        rsrc: [2 | (2 << 6), 1 | (4 << 1) | (7 << 7), 5],
        user: vec![1, 2, 3, 4],
        start: [0; 3],
        groups: [10, 2, 2],
        size: [100, 1, 1],
        last: [7, 1, 1],
        lds: 700,
        scratch: Some(Scratch {
            wave: 4096,
            slots: 64,
        }),
        traps: true,
        trap_base: [1, 2, 3, 4],
        apertures: 0x0001_0002,
        retries: true,
        packet: 77,
        units: [0xff; 8],
        priority: (1, 2),
        sync: Share {
            pasid: 3,
            count: 64,
        },
    }
}

fn flight() -> Flight {
    let kernel = kernel();
    let group = |number: u64| {
        let id = kernel.id(number);
        let slots = [2 * number as u32, 2 * number as u32 + 1];
        let waves = kernel.group(id, &[], &slots);
        let mut group = Group::new(waves, kernel.demand().lds as usize, number);
        group.lds_mut().fill(number as u8 + 1);
        Resting {
            id,
            group: Waves(group),
            slots: slots.to_vec(),
        }
    };
    let mut frozen = Frozen::new(kernel.clone(), 3, false);
    (0..3).for_each(|number| frozen.push(group(number)));
    Flight {
        serial: 4,
        started: 1234,
        stand: Stand::Running,
        private: true,
        leaving: None,
        frozen: Some(frozen),
    }
}

/// The words of a dispatch, without their number.
fn encode(flight: &Flight) -> Vec<u32> {
    let mut words = Vec::new();
    encode_all(std::iter::once(flight), &mut words);
    assert_eq!(words[0] as usize, words.len() - 1);
    words.split_off(1)
}

/// Reads what [`encode`] returns.
fn decode(words: &[u32], base: Kernel) -> Option<Saved> {
    let words = [&[words.len() as u32], words].concat();
    decode_all(&words, &base, 1)?.pop()
}

/// What another queue would go on with.
fn base() -> Kernel {
    Kernel {
        vmid: 3,
        units: [1; 8],
        traps: false,
        trap_base: [0; 4],
        apertures: 0x0007_0008,
        retries: false,
        ..kernel()
    }
}

#[test]
fn what_is_saved_comes_back_in_the_space_of_the_queue() {
    let flight = flight();
    let saved = decode(&encode(&flight), base()).unwrap();
    assert_eq!((saved.started, saved.stand), (1234, Stand::Running));
    let (old, new) = (flight.frozen.unwrap(), saved.frozen.unwrap());
    // The packet's part is the saved one, the rest that of the queue.
    let want = Kernel {
        vmid: 3,
        units: [1; 8],
        traps: false,
        trap_base: [0; 4],
        apertures: 0x0007_0008,
        retries: false,
        ..old.kernel
    };
    assert_eq!(new.kernel, want);
    assert_eq!((new.next, new.failed, new.groups.len()), (3, false, 3));
    for (old, new) in old.groups.iter().zip(&new.groups) {
        assert_eq!((old.id, &old.slots), (new.id, &new.slots));
        assert_eq!(old.group.0.lds(), new.group.0.lds());
        let (a, b) = (old.group.0.wave(1).unwrap(), new.group.0.wave(1).unwrap());
        assert_eq!((a.pc, a.sgpr, a.exec()), (b.pc, b.sgpr, b.exec()));
        assert_eq!(a.vgpr(0, false), b.vgpr(0, false));
        assert_eq!((b.trap_base, b.sh_mem_bases), ([0; 4], 0x0007_0008));
    }
}

#[test]
fn other_states_come_back_too() {
    let over = Flight {
        stand: Stand::Done(99),
        frozen: None,
        ..flight()
    };
    let saved = decode(&encode(&over), base()).unwrap();
    assert_eq!(saved.stand, Stand::Done(99));
    assert!(saved.frozen.is_none());
    // Nothing would complete such a one.
    let lost = Flight {
        frozen: None,
        ..flight()
    };
    assert!(decode(&encode(&lost), base()).is_none());
}

/// Any two of the numbers at the head may be as large as they like, also those that are multiplied.
#[test]
fn large_numbers_are_refused_or_sane() {
    let words = encode(&flight());
    for first in 0..64 {
        for second in 0..first {
            let mut words = words.clone();
            words[first] = u32::MAX;
            words[second] = u32::MAX;
            if let Some(frozen) = decode(&words, base()).and_then(|saved| saved.frozen) {
                assert!(frozen.kernel.waves() <= 16 && frozen.kernel.count().is_some());
            }
        }
    }
}

/// Waves of one that is over would be nobody's.
#[test]
fn a_dispatch_that_is_over_has_no_waves() {
    for stand in [Stand::Done(99), Stand::Told] {
        let flight = Flight { stand, ..flight() };
        assert!(flight.frozen.is_some());
        assert!(decode(&encode(&flight), base()).is_none(), "{stand:?}");
    }
}

#[test]
fn several_dispatches_come_back_in_their_order() {
    let all = [
        flight(),
        Flight {
            stand: Stand::Told,
            frozen: None,
            ..flight()
        },
        Flight {
            started: 77,
            ..flight()
        },
    ];
    let mut words = Vec::new();
    encode_all(all.iter(), &mut words);
    let saved = decode_all(&words, &base(), 3).unwrap();
    let seen: Vec<_> = saved
        .iter()
        .map(|s| (s.started, s.stand, s.frozen.is_some()))
        .collect();
    let want = [
        (1234, Stand::Running, true),
        (1234, Stand::Told, false),
        (77, Stand::Running, true),
    ];
    assert_eq!(seen, want);
    assert!(decode_all(&words, &base(), 2).is_none(), "too many");
    assert!(decode_all(&words[..words.len() - 1], &base(), 3).is_none());
    assert!(decode_all(&[], &base(), 3).unwrap().is_empty());
}

proptest! {
    /// Whatever is stored in the area, reading it does not panic, and what is read fits its own numbers.
    #[test]
    fn changed_areas_are_refused_or_sane(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u32>()), 1..6),
        near in any::<bool>(),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let mut words = encode(&flight());
        // The head is where numbers mean most.
        let reach = if near { 64 } else { words.len() };
        for (at, value) in changes {
            let at = at.index(reach);
            words[at] = if value % 2 == 0 { value } else { words[at] ^ (1 << (value % 32)) };
        }
        if cuts {
            words.truncate(cut.index(words.len()));
        }
        if let Some(frozen) = decode(&words, base()).and_then(|saved| saved.frozen) {
            let kernel = &frozen.kernel;
            prop_assert_eq!((kernel.vmid, kernel.units, kernel.retries), (3, [1; 8], false));
            prop_assert!(frozen.next <= kernel.count().unwrap());
            prop_assert!(kernel.waves() <= 16 && kernel.demand().lds <= 1 << 16);
            for group in &frozen.groups {
                prop_assert!(group.group.0.len() <= kernel.waves() as usize);
                prop_assert!(group.slots.iter().all(|s| *s < kernel.scratch.unwrap().slots));
            }
            // A group of it can begin.
            prop_assert!(kernel.group(kernel.id(0), &[], &[]).len() <= 16);
        }
    }
}
