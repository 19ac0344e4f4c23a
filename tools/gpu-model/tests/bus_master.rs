// SPDX-License-Identifier: GPL-2.0 OR MIT
//! With bus mastering off nothing leaves the device: queues wait, messages and vectors are lost, nobody is blamed.

mod common;

use std::sync::atomic::Ordering;

use common::fixture::Fixture;
use common::queue::{release_mem, write_data};
use gpu_model::asic::{GFX906, GFX90A};

#[test]
fn queues_wait_and_go_on() {
    for asic in [&GFX90A, &GFX906] {
        let mut f = Fixture::new(asic, 0x42, 4096);
        let va = f.va;
        f.q.send(&mut f.b, &write_data(va, 1));
        f.b.gpu.soc.mem.set_bus_master(false);
        f.q.send(&mut f.b, &write_data(va, 2));
        f.b.run_for(10_000_000);
        assert_eq!(f.b.ram32(f.bus), 1);
        assert!(f.b.gpu.soc.log.stats.dma_blocked > 0);
        let stats = &f.b.gpu.soc.log.stats;
        assert_eq!(
            (stats.faults_retry, stats.faults_no_retry, stats.user_errors),
            (0, 0, 0)
        );
        f.b.gpu.soc.mem.set_bus_master(true);
        f.b.run_for(10_000_000);
        assert_eq!(f.b.ram32(f.bus), 2, "{}", asic.name);
        f.b.no_errors();
    }
}

#[test]
fn vectors_and_messages_are_lost_and_counted() {
    let mut f = Fixture::new(&GFX90A, 0x42, 4096);
    let va = f.va;
    f.b.irqs();
    let msis = f.b.msis.load(Ordering::Relaxed);
    f.b.gpu.soc.mem.set_bus_master(false);
    // A doorbell of no queue raises a vector without any access of a queue.
    f.b.wr(0xc1a8, 1 << 11);
    f.b.bell(0x1f_0008, 1);
    f.b.run();
    let stats = &f.b.gpu.soc.log.stats;
    assert_eq!(
        (stats.msi_blocked, f.b.msis.load(Ordering::Relaxed)),
        (1, msis)
    );
    assert!(stats.dma_blocked >= 2, "the vector and the write pointer");
    f.b.gpu.soc.mem.set_bus_master(true);
    f.q.send(&mut f.b, &release_mem(va, 3, 9));
    assert_eq!(f.b.ram64(f.bus), 3);
    f.b.no_errors();
}
