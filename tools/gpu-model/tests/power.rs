// SPDX-License-Identifier: GPL-2.0 OR MIT
//! D3hot and back, through configuration space; and what an absent device owes to those who wait for it.

mod common;

use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};

use common::fixture::{inject, Fixture};
use common::kernel::{data, fixture, is_done, submit, without_llvm, Launch, DATA};
use common::queue::write_data;
use common::Bench;
use gpu_model::asic::GFX90A;
use gpu_model::inject::Kind;
use gpu_model::pci::{ConfigSpace, Subsystem};
use gpu_model::server::Shared;

/// PMCSR: the power state in bits 1:0, No_Soft_Reset in bit 3.
const PMCSR: u64 = 0x4c;

fn state(c: &ConfigSpace) -> u8 {
    let mut b = [0];
    c.read(PMCSR, &mut b);
    b[0]
}

#[test]
fn d0_and_d3hot_are_the_states_there_are() {
    let mut c = ConfigSpace::new(&GFX90A, 64 << 20, Subsystem::default());
    assert_eq!((state(&c), c.asleep()), (0, false));
    for unsupported in [1, 2] {
        c.write(PMCSR, &[unsupported, 0]);
        assert_eq!((state(&c), c.asleep()), (0, false));
    }
    c.write(PMCSR, &[3]);
    assert_eq!((state(&c), c.asleep()), (3, true));
    c.write(PMCSR, &[2, 0]);
    assert_eq!((state(&c), c.asleep()), (3, true));
    // Other registers in one write with it, and others alone.
    c.write(PMCSR - 4, &[0; 8]);
    assert_eq!((state(&c), c.asleep()), (0, false));
    c.write(4, &[6, 0]);
    assert!(!c.asleep() && c.bus_master());
}

#[test]
fn asleep_it_does_nothing_and_wakes_reset() {
    let mut f = Fixture::new(&GFX90A, 0x91, 0x4000);
    f.b.vram_write(0x3f0_0000, &[0xa5; 8]);
    f.b.wr(0x30100, 77);
    f.q.push(&mut f.b, &write_data(f.va, 1));
    f.b.gpu.set_asleep(true);
    let before = f.b.gpu.soc.log.stats.clone();
    assert_eq!(f.b.rd(0x378c), 0xffff_ffff);
    f.b.wr(0x30104, 78);
    f.q.ring_bell(&mut f.b);
    f.b.run_for(10_000_000);
    assert_eq!(f.b.ram32(f.bus), 0);
    let now = &f.b.gpu.soc.log.stats;
    assert_eq!(
        (now.msi_raised, now.packets_compute, now.rotations),
        (before.msi_raised, before.packets_compute, before.rotations)
    );
    f.b.gpu.set_asleep(false);
    // MEMSIZE is there at once; scratch registers, the queue and the aperture of the doorbells are not.
    assert_eq!(f.b.rd(0x378c), 64);
    assert_eq!([f.b.rd(0x30100), f.b.rd(0x30104), f.b.rd(0x3780)], [0; 3]);
    assert!(!common::fixture::active(&mut f.b, common::fixture::FIRST));
    f.b.run_for(10_000_000);
    assert_eq!(f.b.ram32(f.bus), 0);
    let mut kept = [0; 8];
    f.b.vram_read(0x3f0_0000, &mut kept);
    assert_eq!(kept, [0xa5; 8]);
    f.b.no_errors();
}

/// Waits until the first dword of the data is not zero.
const WAITS: &str = "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n\
    again: s_load_dword s6, s[4:5], 0x0 glc\ns_waitcnt lgkmcnt(0)\n\
    s_cmp_eq_u32 s6, 0\ns_cbranch_scc1 again\ns_endpgm";

/// A kernel that ends while the device is asleep or off the bus leaves a report that nobody takes.
#[test]
fn absent_with_a_report_of_waves_it_answers() {
    if without_llvm("reports of an absent device") {
        return;
    }
    for dies in [false, true] {
        let mut f = fixture(&GFX90A, 1, false, false);
        f.b.gpu.waves.spawn(1).unwrap();
        submit(&mut f, &GFX90A, &Launch::new(WAITS, 64, 64));
        let dispatcher = Arc::clone(&f.b.gpu.waves.dispatcher);
        let patience = Instant::now() + Duration::from_secs(60);
        let eventually = |what: &str, holds: &mut dyn FnMut() -> bool| {
            while !holds() {
                assert!(Instant::now() < patience, "{what} in a minute");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        eventually("the kernel begins", &mut || {
            f.b.run_steps(1);
            dispatcher.figures().0 == 1 && !dispatcher.is_waiting()
        });
        // Its translations are there, so that it needs nobody any more.
        f.b.run_steps(50);
        f.b.set32(f.bus + DATA, 1);
        eventually("the kernel ends", &mut || {
            let reported = !dispatcher.may_sleep();
            dispatcher.awake();
            reported
        });
        if dies {
            inject(&mut f.b, Kind::Die, None, None);
        } else {
            f.b.gpu.set_asleep(true);
        }
        assert_eq!((data(&f, 1), is_done(&f)), (vec![1], false));

        let Bench { gpu, .. } = f.b;
        let shared = Shared::new(gpu);
        let worker = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.run_worker()
        });
        let (done, answered) = mpsc::channel();
        std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for _ in 0..3 {
                    // The worker has a turn between two accesses.
                    std::thread::sleep(Duration::from_millis(20));
                    let mut value = [0; 4];
                    shared.trapped(|gpu| gpu.mmio_read(0x378c, &mut value));
                    done.send(u32::from_le_bytes(value)).unwrap();
                }
            }
        });
        for _ in 0..3 {
            let value = answered.recv_timeout(Duration::from_secs(60));
            assert_eq!(value, Ok(0xffff_ffff), "dies: {dies}");
        }
        // With what it was asked for, it is there again, as after a reset, and the report is of no use any more.
        let mut gpu = shared.lock();
        if dies {
            gpu.soc.inject.revive();
        } else {
            gpu.set_asleep(false);
        }
        drop(gpu);
        shared.wake();
        eventually("the device takes the report", &mut || {
            let taken = dispatcher.may_sleep();
            dispatcher.awake();
            let mut value = [0; 4];
            shared.trapped(|gpu| gpu.mmio_read(0x378c, &mut value));
            taken && u32::from_le_bytes(value) == 64
        });
        shared.stop();
        worker.join().unwrap();
    }
}
