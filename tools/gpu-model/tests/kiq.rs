// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The KIQ and its kernel rings, beside a scheduler that is in trouble.

mod common;

use common::direct::hqd;
use common::fixture::{active, inject, Fixture};
use common::Bench;
use gpu_model::asic::GFX90A;
use gpu_model::inject::Kind;

fn fixture() -> Fixture {
    Fixture::new(&GFX90A, 0x61, 0x4000)
}

/// A second kernel ring, mapped by the KIQ: me 1, pipe 2, queue 0.
fn kernel_ring(b: &mut Bench) -> u64 {
    let ring = b.alloc_sys(4096);
    let mqd = b.alloc_sys(4096);
    let model = b.hiq.as_ref().map_or(0, |hiq| hiq.mqd.bus);
    let image = b.words(model, 512);
    b.set_words(mqd.bus, &image);
    let bell = 0x48 * 8;
    b.set64(mqd.bus + 128 * 4, mqd.gart);
    b.set64(mqd.bus + 136 * 4, ring.gart >> 8);
    b.set64(mqd.bus + 139 * 4, ring.gart + 2048);
    b.set64(mqd.bus + 141 * 4, ring.gart + 2056);
    for dw in [130, 138, 182, 183] {
        b.set32(mqd.bus + dw * 4, 0);
    }
    b.set32(mqd.bus + 143 * 4, bell);
    let (m, w) = (mqd.gart, ring.gart + 2056);
    b.submit_kiq(&[
        0xc005_a200,
        (1 << 29) | (2 << 16),
        bell,
        m as u32,
        (m >> 32) as u32,
        w as u32,
        (w >> 32) as u32,
    ]);
    b.run();
    b.no_errors();
    u64::from(bell)
}

const RING: u32 = (1 << 2) | 2;

fn kiq_unmap(b: &mut Bench, bell: u64) {
    b.submit_kiq(&[0xc004_a300, 1 << 29, bell as u32, 0, 0, 0]);
    b.run();
}

#[test]
fn a_hung_user_queue_keeps_the_hiq_waiting_but_not_the_kiq() {
    let mut f = fixture();
    let bell = kernel_ring(&mut f.b);
    assert!(active(&mut f.b, RING));
    inject(
        &mut f.b,
        Kind::IgnorePreempt,
        Some((f.q.doorbell / 4) as u32),
        None,
    );
    let fence = f.b.unmap(3, 0, 0);
    f.b.run_for(10_000_000);
    assert_eq!(f.b.ram64(fence.bus), 10);
    kiq_unmap(&mut f.b, bell);
    assert!(!active(&mut f.b, RING));
    // It also takes the HIQ itself away from under its packet, by packet or by register.
    kiq_unmap(&mut f.b, 0x40 * 8);
    assert!(!active(&mut f.b, 2 << 2));
    f.b.run_for(5_000_000_000);
    assert_eq!(f.b.ram64(fence.bus), 10);
    f.b.no_errors();
}

#[test]
fn a_dead_scheduler_does_not_answer_for_its_own_queue() {
    let mut f = fixture();
    let bell = kernel_ring(&mut f.b);
    inject(&mut f.b, Kind::HangHws, None, None);
    let scratch = f.b.rd(0x30100);
    kiq_unmap(&mut f.b, bell);
    assert!(!active(&mut f.b, RING), "the KIQ lives");
    kiq_unmap(&mut f.b, 0x40 * 8);
    f.b.wr(0x8088, 2 << 2);
    f.b.wr(hqd(152), 1);
    f.b.wr(0x8088, 0);
    f.b.run_for(1_000_000_000);
    assert!(active(&mut f.b, 2 << 2));
    f.b.submit_kiq(&[0xc001_7900, 0x40, scratch + 1]);
    f.b.run();
    assert_eq!(f.b.rd(0x30100), scratch + 1);
    f.b.no_errors();
}
