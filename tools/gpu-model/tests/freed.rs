// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Memory that the scheduler may still look at: the buffer of an active run list, and the MQDs of mapped queues.

mod common;

use common::fixture::Fixture;
use gpu_model::asic::{GFX906, GFX90A};

/// Longer than the scheduler waits before it looks again.
const WHILE: u64 = 100_000_000;

#[test]
fn an_mqd_is_freed_while_its_queue_is_mapped() {
    for asic in [&GFX90A, &GFX906] {
        for sdma in [false, true] {
            let mut f = Fixture::with(asic, 0x49, 4096, |b, p, _| {
                if sdma {
                    p.sdma_queue(b, 0, 0)
                } else {
                    p.queue(b)
                }
            });
            f.b.run_for(WHILE);
            f.b.no_errors();
            let image = f.b.words(f.q.mqd.bus, 512);
            f.b.set_words(f.q.mqd.bus, &[0x6b6b_6b6b; 512]);
            f.b.run_for(WHILE);
            f.b.expect_errors(&["mqd"]);
            // It is said once.
            f.b.run_for(WHILE);
            f.b.set_words(f.q.mqd.bus, &image);
            f.preempt();
            f.b.no_errors();
        }
    }
}

#[test]
fn the_unmap_looks_as_well() {
    let mut f = Fixture::new(&GFX90A, 0x49, 4096);
    f.b.set32(f.q.mqd.bus, 0);
    f.b.unmap(3, 0, 0);
    f.b.run();
    f.b.expect_errors(&["mqd"]);
}

#[test]
fn the_buffer_of_a_run_list_is_freed_while_it_is_active() {
    for asic in [&GFX90A, &GFX906] {
        let mut f = Fixture::new(asic, 0x49, 4096);
        f.preempt();
        let list = f.list.clone();
        let ib = f.b.run_list(&list, false, 1);
        f.b.run_for(WHILE);
        f.b.no_errors();
        f.b.set32(ib.bus + 8, 0xdead_beef);
        f.b.run_for(WHILE);
        f.b.expect_errors(&["run-list"]);
    }
}

#[test]
fn the_buffer_may_go_when_a_query_status_has_followed() {
    let mut f = Fixture::new(&GFX90A, 0x49, 4096);
    f.preempt();
    let list = f.list.clone();
    let ib = f.b.run_list(&list, false, 1);
    let fence = f.b.alloc_sys(4096);
    f.b.submit_hiq(&[
        0xc005_a400,
        2 << 30,
        0,
        fence.gart as u32,
        (fence.gart >> 32) as u32,
        100,
        0,
    ]);
    f.b.run();
    assert_eq!(f.b.ram64(fence.bus), 100);
    f.b.set_words(ib.bus, &[0; 64]);
    f.b.run_for(WHILE);
    f.preempt();
    f.b.no_errors();
}

/// Each pass of an over-subscribed list reads it again.
#[test]
fn the_buffer_of_an_over_subscribed_list_stays_as_long_as_it_is_active() {
    for asic in [&GFX90A, &GFX906] {
        let mut f = Fixture::new(asic, 0x49, 4096);
        f.preempt();
        let list = f.list.clone();
        let ib = f.b.run_list(&list, true, 1);
        // A QUERY_STATUS is no end of it.
        let fence = f.b.alloc_sys(4096);
        f.b.submit_hiq(&[
            0xc005_a400,
            2 << 30,
            0,
            fence.gart as u32,
            (fence.gart >> 32) as u32,
            100,
            0,
        ]);
        f.b.run_for(WHILE);
        assert_eq!(f.b.ram64(fence.bus), 100);
        assert!(f.b.gpu.soc.log.stats.rotations > 0, "{}", asic.name);
        f.b.no_errors();
        // The address of the trap handler, which no other rule looks at.
        f.b.set32(ib.bus + 4 * 6, 1);
        f.b.run_for(WHILE);
        f.b.expect_errors(&["run-list"]);
        // It is said once; when the list is off, its buffer may go.
        f.b.run_for(WHILE);
        f.preempt();
        f.b.set_words(ib.bus, &[0; 64]);
        f.b.run_for(WHILE);
        f.b.no_errors();
    }
}
