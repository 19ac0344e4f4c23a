// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Queue descriptors: walks cover what they should, masks lose nothing.

use proptest::prelude::*;

use crate::hw::asic::{GFX906, GFX90A};
use crate::hw::doorbell::DoorbellOffset;
use crate::hw::mqd::layout::{compute as at, sdma as sdma_at};
use crate::hw::mqd::{
    self, spread, ComputeMqd, CuMask, QueueConfig, QueueFormat, SdmaMqd, SdmaQueueConfig,
};
use crate::hw::shader::ComputeUnits;

fn config(format: QueueFormat) -> QueueConfig {
    QueueConfig {
        mqd: 0x81_2345_6000,
        ring: 0x7F01_2345_6700,
        ring_bytes: 4096,
        ..QueueConfig::new(format, DoorbellOffset::kernel(0x805))
    }
}

fn image(mqd: &ComputeMqd) -> Vec<u32> {
    let mut image = Vec::new();
    mqd.write(|dw, value| {
        assert_eq!(dw, image.len(), "ascending without holes");
        image.push(value);
    });
    image
}

#[test]
fn a_write_covers_the_whole_image() {
    let user = ComputeMqd::new(&GFX90A, config(QueueFormat::Pm4)).expect("valid");
    assert_eq!(image(&user).len(), 512);
    let kiq = ComputeMqd::new(&GFX90A, config(QueueFormat::Kiq)).expect("valid");
    assert_eq!(image(&kiq).len(), 516);
    assert_eq!(image(&kiq)[512..], [0, 0, u32::MAX, u32::MAX]);
    assert_eq!((mqd::COMPUTE_BYTES, mqd::SDMA_BYTES), (2048, 512));
}

#[test]
fn an_update_of_a_fresh_image_changes_nothing() {
    for format in [QueueFormat::Pm4, QueueFormat::Aql, QueueFormat::Hiq] {
        let queue = ComputeMqd::new(&GFX90A, config(format)).expect("valid");
        let before = image(&queue);
        let mut after = before.clone();
        queue.update(|dw| before[dw], |dw, value| after[dw] = value);
        assert_eq!(before, after, "{format:?}");
    }
}

#[test]
fn an_update_carries_every_change_of_properties() {
    let old = ComputeMqd::new(&GFX90A, config(QueueFormat::Aql)).expect("valid");
    let new = ComputeMqd::new(
        &GFX90A,
        QueueConfig {
            ring: 0x7F09_0000_0000,
            ring_bytes: 0x1_0000,
            priority: 15,
            cu_mask: CuMask([1, 2, 3, 4, 5, 6, 7, 8]),
            perfcount: true,
            gws: true,
            ..config(QueueFormat::Aql)
        },
    )
    .expect("valid");
    let before = image(&old);
    let mut after = before.clone();
    new.update(|dw| before[dw], |dw, value| after[dw] = value);
    assert_eq!(after, image(&new));
}

#[test]
fn cu_mask_words_go_around_the_gap() {
    let queue = ComputeMqd::new(
        &GFX90A,
        QueueConfig {
            cu_mask: CuMask([1, 2, 3, 4, 5, 6, 7, 8]),
            ..config(QueueFormat::Pm4)
        },
    )
    .expect("valid");
    let image = image(&queue);
    assert_eq!(image[23..28], [1, 2, 0, 3, 4]);
    assert_eq!(image[39..43], [5, 6, 7, 8]);
}

#[test]
fn an_sdma_update_keeps_the_saved_pointers() {
    let queue = SdmaMqd::new(SdmaQueueConfig {
        ring: 0x7F01_0000_0000,
        ring_bytes: 0x2000,
        rptr_report: 0x7F02_0000_0000,
        doorbell: DoorbellOffset::kernel(0x900),
        engine: 0,
        queue: 0,
    })
    .expect("valid");
    let mut image = vec![0xAAAA_AAAA; 128];
    let saved = image.clone();
    queue.update(|dw| saved[dw], |dw, value| image[dw] = value);
    for dw in [
        sdma_at::RB_RPTR,
        sdma_at::RB_WPTR,
        sdma_at::RB_WPTR_HI,
        sdma_at::DOORBELL,
        sdma_at::IB_RPTR,
        sdma_at::MIDCMD_CNTL,
    ] {
        assert_eq!(image[dw], 0xAAAA_AAAA, "dword {dw}");
    }
    assert_eq!(image[sdma_at::RB_CNTL], 0x0006_1016);
    assert_eq!(image[sdma_at::IB_CNTL], 0xAAAA_ABAA);
}

#[test]
fn dumps_name_the_dwords() {
    let queue = ComputeMqd::new(&GFX90A, config(QueueFormat::Pm4)).expect("valid");
    let image = image(&queue);
    let dump: Vec<_> = mqd::dump(at::FIELDS, |dw| image[dw]).collect();
    assert!(dump.contains(&("HEADER", 0xC031_0800)));
    assert!(dump.contains(&("CP_HQD_PQ_CONTROL", 0x1000_0509)));
    assert!(dump.contains(&("QUEUE_DOORBELL_ID0", 0)));
}

#[test]
fn mqd_buffers_hold_the_control_stack_behind_a_page() {
    assert_eq!(mqd::buffer_bytes(0x9000), 0xA000);
    assert_eq!(mqd::buffer_bytes(1), 0x2000);
    assert_eq!(mqd::buffer_bytes(0), 0x1000);
}

#[test]
fn engines_with_fewer_units_drop_out() {
    // Engines 0 and 1 have two units, 2 and 3 have one.
    let units = ComputeUnits::even(&GFX906.shader, 6);
    assert_eq!(spread(&units, &[0x3F], 32).0[..4], [3, 3, 1, 1]);
    assert_eq!(spread(&units, &[0x20], 32).0[..4], [0, 2, 0, 0]);
}

proptest! {
    #[test]
    fn spreading_keeps_the_number_of_units(mask: [u32; 4], bits in 0u32..=128, fuses: [u16; 8]) {
        for asic in [&GFX90A, &GFX906] {
            let units = ComputeUnits::without(&asic.shader, |se| u32::from(fuses[se as usize]));
            let limit = bits.min(units.count());
            let wanted = (0..limit).filter(|n| (mask[*n as usize / 32] >> (n % 32)) & 1 != 0).count();
            let spread = spread(&units, &mask, bits).0;
            let got: u32 = spread.iter().map(|word| word.count_ones()).sum();
            prop_assert_eq!(got as usize, wanted);
            for (se, word) in (0u32..).zip(spread) {
                prop_assert_eq!(u64::from(word) >> units.of(se), 0, "engine {}", se);
            }
        }
    }

    #[test]
    fn units_are_those_of_the_die_that_no_fuse_names(fuses: [u32; 8]) {
        for asic in [&GFX90A, &GFX906] {
            let shader = &asic.shader;
            let units = ComputeUnits::without(shader, |se| fuses[se as usize]);
            let mut count = 0;
            for (se, fused) in (0u32..).zip(fuses) {
                for cu in 0..32 {
                    let there = se < shader.engines && cu < shader.max_cu_per_array && (fused >> cu) & 1 == 0;
                    prop_assert_eq!((units.mask(se) >> cu) & 1 != 0, there, "unit {} of engine {}", cu, se);
                    count += u32::from(there);
                }
            }
            prop_assert_eq!(units.count(), count);
            prop_assert_eq!(units.mask(8), 0);
        }
    }

    #[test]
    fn a_single_unit_lands_at_its_round(bit in 0u32..104) {
        let mut mask = [0u32; 4];
        mask[bit as usize / 32] = 1 << (bit % 32);
        let spread = spread(&ComputeUnits::even(&GFX90A.shader, 104), &mask, 128).0;
        let mut expected = [0u32; 8];
        expected[bit as usize % 8] = 1 << (bit / 8);
        prop_assert_eq!(spread, expected);
    }

    #[test]
    fn any_description_is_refused_or_fits(ring: u64, ring_bytes: u32, rptr: u64, wptr: u64, priority in 0u32..32) {
        let queue = QueueConfig {
            ring,
            ring_bytes,
            rptr_report: rptr,
            wptr_poll: wptr,
            priority,
            ..config(QueueFormat::Pm4)
        };
        if let Ok(mqd) = ComputeMqd::new(&GFX90A, queue) {
            let word = |dw| u64::from(mqd.word(dw));
            prop_assert_eq!(((word(137) << 32) | word(136)) << 8, ring);
            prop_assert_eq!((word(140) << 32) | word(139), rptr);
            prop_assert_eq!((word(142) << 32) | word(141), wptr);
            prop_assert_eq!(8u64 << (word(145) & 0x3f), u64::from(ring_bytes));
        }
    }
}
