// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Doorbells: no id serves two blocks.

use std::collections::HashSet;

use proptest::prelude::*;

use crate::hw::asic::GFX90A;
use crate::hw::doorbell::{self, DoorbellOffset};

#[test]
fn every_sdma_queue_has_an_id_of_its_own_in_its_engines_hole() {
    let layout = &GFX90A.doorbell;
    let mut seen = HashSet::new();
    for engine in 0..5 {
        let first = layout.sdma_base(engine);
        let last = first + layout.sdma_range_dwords / 2;
        for queue in 0..8 {
            let id = layout.sdma_id(engine, queue).expect("eight queues fit");
            assert!(seen.insert(id), "id {id:#x} twice");
            assert!((first..last).contains(&(id % 512)), "id {id:#x}");
            assert!(!layout.cp_may_use(id));
        }
    }
}

#[test]
fn cp_ids_are_allocated_in_ascending_order() {
    let ids: Vec<u32> = GFX90A.doorbell.cp_ids().collect();
    assert_eq!(ids.first(), Some(&0));
    assert_eq!(ids.get(0x100), Some(&0x190));
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn the_kernel_page_covers_all_fixed_ids() {
    let layout = &GFX90A.doorbell;
    assert_eq!(layout.kernel_bytes(), 4096);
    assert!(layout.retry_cam().byte() + 8 <= 4096);
}

proptest! {
    #[test]
    fn offsets_name_the_byte_that_the_cpu_writes(slice in 0u32..254, id in 0u32..1024) {
        let base = doorbell::slice_offset(0x4000, slice, 2 << 20);
        let offset = base.and_then(|base| DoorbellOffset::new(base, id));
        prop_assert!(offset.is_some());
        if let (Some(base), Some(offset)) = (base, offset) {
            prop_assert_eq!(offset.byte() as u64, base + u64::from(id) * 8);
            prop_assert_eq!(offset.slice_id(), id);
            prop_assert_eq!(offset.field() as usize, offset.byte());
            prop_assert_eq!(DoorbellOffset::from_dword(offset.dword()), Some(offset));
        }
    }

    #[test]
    fn any_base_and_id_is_checked(base: u64, id: u32) {
        if let Some(offset) = DoorbellOffset::new(base, id) {
            prop_assert!(offset.dword() < 1 << 26);
            prop_assert_eq!(offset.dword() % 2, 0);
        }
    }

    #[test]
    fn slices_never_overlap(first in 0u64..16, a in 0u32..300, b in 0u32..300) {
        let slice = |n| doorbell::slice_offset(first * 8192, n, 2 << 20);
        if let (Some(x), Some(y)) = (slice(a), slice(b)) {
            prop_assert!(a == b || x.abs_diff(y) >= 8192);
            prop_assert!(x + 8192 <= 2 << 20);
        }
    }
}
