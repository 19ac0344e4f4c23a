// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Queues, pipes, scheduler and device that hang, and the resets that mend them.

mod common;

use common::direct::hqd;
use common::fixture::{active, inject, unmap_doorbells, Fixture, FIRST};
use common::queue::write_data;
use common::{Bench, MIB, VRAM};
use gpu_model::asic::{GFX906, GFX90A};
use gpu_model::device::Step;
use gpu_model::inject::{Injection, Kind};
use std::time::Duration;

fn fixture() -> Fixture {
    Fixture::new(&GFX90A, 0x61, 0x4000)
}

#[test]
fn a_queue_that_refuses_is_logged_and_can_be_reset() {
    let mut f = fixture();
    let doorbell = (f.q.doorbell / 4) as u32;
    inject(&mut f.b, Kind::IgnorePreempt, Some(doorbell), None);
    let fence = f.b.unmap(3, 0, 0);
    f.b.run_for(3_900_000_000);
    assert_eq!(f.b.ram64(fence.bus), 10, "unmap_latency is 4 s");
    f.b.run_for(300_000_000);
    assert_eq!(f.b.ram64(fence.bus), 100);
    let hiq = f.b.hiq.as_ref().unwrap().mqd.bus;
    assert_eq!(f.b.ram32(hiq + 240 * 4), doorbell);
    // Scan, then reset the slot.
    f.b.wr(0x8088, FIRST);
    assert_eq!(f.b.rd(hqd(130)) & 1, 1);
    let base = (u64::from(f.b.rd(hqd(136))) << 8) | (u64::from(f.b.rd(hqd(137))) << 40);
    assert_eq!(base, f.q.va);
    f.b.wr(0xc76c, 1);
    f.b.run_for(1_000_000);
    assert_eq!(f.b.rd(hqd(130)) & 1, 0);
    f.b.wr(0x8088, 0);
    f.b.set32(hiq + 240 * 4, 0);
    // The scheduler goes on with another queue.
    let mut q2 = f.p.queue(&mut f.b);
    let mut list = f.p.map_process(&f.b, 1);
    list.extend(q2.map_queues());
    f.b.run_list(&list, false, 1);
    q2.send(&mut f.b, &write_data(f.va, 8));
    assert_eq!(f.b.ram32(f.bus), 8);
    f.b.no_errors();
}

/// Its doorbell rang before it was connected, and is not rung again: who looks at the registers must see that it has work.
#[test]
fn a_queue_that_hangs_knows_how_far_it_was_written() {
    let mut f = fixture();
    let mut q = f.p.queue(&mut f.b);
    inject(
        &mut f.b,
        Kind::HangQueue,
        Some((q.doorbell / 4) as u32),
        None,
    );
    q.push(&mut f.b, &write_data(f.va, 8));
    let mut list = f.p.map_process(&f.b, 2);
    list.extend(f.q.map_queues());
    list.extend(q.map_queues());
    f.b.unmap(3, 0, 0);
    f.b.run();
    f.b.run_list(&list, false, 1);
    f.b.run();
    let found = (0..32).find(|n| {
        f.b.wr(0x8088, (1 << 2) | (n & 3) | ((n >> 2) << 8));
        let base = (u64::from(f.b.rd(hqd(136))) << 8) | (u64::from(f.b.rd(hqd(137))) << 40);
        f.b.rd(hqd(130)) & 1 == 1 && base == q.va
    });
    assert!(found.is_some());
    assert_eq!(u64::from(f.b.rd(hqd(182))), q.wptr);
    assert_eq!(f.b.rd(hqd(138)), 0, "it executed nothing");
    f.b.wr(0x8088, 0);
    assert_eq!(f.b.ram32(f.bus), 0);
    f.b.no_errors();
}

#[test]
fn pipe_reset_takes_the_queues_of_its_pipe() {
    let mut f = fixture();
    f.b.wr(0x8234, 1 << 16);
    f.b.wr(0x8234, 0);
    f.b.run_for(1_000_000);
    f.b.wr(0x8088, FIRST);
    assert_eq!(f.b.rd(hqd(130)) & 1, 0);
    f.b.wr(0x8088, 2 << 2);
    assert_eq!(f.b.rd(hqd(130)) & 1, 1, "the HIQ is on another pipe");
    f.b.wr(0x8088, 0);
    f.b.no_errors();
}

/// A reset bit acts until it is taken back.
#[test]
fn what_is_held_in_reset_runs_nothing() {
    let mut f = fixture();
    f.b.wr(0x8234, 1 << 16);
    f.b.run_for(1_000_000);
    f.resume();
    assert!(active(&mut f.b, FIRST));
    f.q.send(&mut f.b, &write_data(f.va, 9));
    f.b.run_for(5_000_000);
    assert_eq!(f.b.ram32(f.bus), 0);
    f.b.wr(0x8234, 0);
    f.b.run();
    assert_eq!(f.b.ram32(f.bus), 9);
    f.b.no_errors();
}

#[test]
fn slow_preemption_delays_the_fence_only() {
    let mut f = fixture();
    inject(&mut f.b, Kind::SlowPreempt, None, Some(500));
    let fence = f.b.unmap(3, 0, 0);
    f.b.run_for(400_000_000);
    assert_eq!(f.b.ram64(fence.bus), 10);
    f.b.run_for(200_000_000);
    assert_eq!(f.b.ram64(fence.bus), 100);
    let hiq = f.b.hiq.as_ref().unwrap().mqd.bus;
    assert_eq!(f.b.ram32(hiq + 240 * 4), 0);
    f.b.no_errors();
}

#[test]
fn unmap_with_reset_frees_a_queue_that_refuses() {
    let mut f = fixture();
    let doorbell = (f.q.doorbell / 4) as u32;
    inject(&mut f.b, Kind::IgnorePreempt, Some(doorbell), None);
    f.q.push(&mut f.b, &write_data(f.va, 3));
    unmap_doorbells(&mut f.b, 1, &[f.q.doorbell]);
    assert!(!active(&mut f.b, FIRST));
    // The read pointer is as it was, and the fault is spent.
    assert_eq!(f.b.ram32(f.q.mqd.bus + 138 * 4), 0);
    let list = f.list.clone();
    f.b.run_list(&list, false, 1);
    f.b.run();
    assert_eq!(f.b.ram32(f.bus), 3);
    f.b.no_errors();
}

/// Three rungs: UNMAP_QUEUES with reset, SPI_COMPUTE_QUEUE_RESET, pipe reset; above them only the device.
#[test]
fn resets_that_do_not_help_lead_to_stronger_ones() {
    for (kind, by_pipe) in [(Kind::IgnoreQueueReset, true), (Kind::IgnoreReset, false)] {
        let mut f = fixture();
        let doorbell = (f.q.doorbell / 4) as u32;
        inject(&mut f.b, kind, Some(doorbell), None);
        let hiq = f.b.hiq.as_ref().unwrap().mqd.bus;
        unmap_doorbells(&mut f.b, 1, &[f.q.doorbell]);
        assert_eq!(f.b.ram32(hiq + 240 * 4), 0);
        f.b.run_for(4_100_000_000);
        assert_eq!(f.b.ram32(hiq + 240 * 4), doorbell);
        assert!(active(&mut f.b, FIRST));
        f.b.wr(0x8088, FIRST);
        f.b.wr(0xc76c, 1);
        f.b.run_for(1_000_000);
        assert!(active(&mut f.b, FIRST));
        f.b.wr(0x8234, 1 << 16);
        f.b.wr(0x8234, 0);
        f.b.run_for(1_000_000);
        assert_eq!(active(&mut f.b, FIRST), !by_pipe);
        // GRBM_SOFT_RESET of CP and CPC.
        f.b.wr(0x8020, 1 | (1 << 18));
        f.b.wr(0x8020, 0);
        assert!(!active(&mut f.b, FIRST));
        assert_eq!(f.b.gpu.soc.inject.list().len(), 0);
        f.b.no_errors();
    }
}

#[test]
fn a_hung_scheduler_freezes_its_queue_and_mode1_revives_the_device() {
    let mut f = fixture();
    inject(&mut f.b, Kind::HangHws, None, None);
    let before = f.b.hiq.as_ref().unwrap().rptr(&f.b);
    let fence = f.b.unmap(3, 0, 0);
    f.b.run_for(10_000_000_000 / 100);
    assert_eq!(f.b.ram64(fence.bus), 10);
    assert_eq!(f.b.hiq.as_ref().unwrap().rptr(&f.b), before);
    // Mode 1 through the SMU: argument, then message 3.
    f.b.wr(0x58a48, 1);
    f.b.wr(0x58a08, 3);
    assert_eq!(f.b.rd(0x378c), 0xffff_ffff);
    f.b.run_for(50_000_000);
    assert_eq!(f.b.rd(0x378c), 64);
    assert_eq!(f.b.rd(0x5818c), 0x8000_0000);
    f.b.wr(0x8088, 2 << 2);
    assert_eq!(f.b.rd(hqd(130)) & 1, 0);
    f.b.wr(0x8088, 0);
    f.b.no_errors();
}

#[test]
fn psp_mode1_reset_too() {
    let mut b = Bench::new(&GFX90A);
    b.bring_up();
    assert_eq!(b.rd(0x58200) >> 31, 1);
    b.wr(0x58200, 0x0007_0000);
    assert_eq!(b.rd(0x378c), 0xffff_ffff);
    b.run_for(50_000_000);
    assert_eq!(b.rd(0x378c), 64);
    // Everything is to be set up again.
    assert_eq!(b.rd(0x3780), 0);
    b.no_errors();
}

/// What was in VRAM is gone, and not everywhere zeros come in its place.
#[test]
fn mode1_loses_what_is_in_vram() {
    let mut b = Bench::new(&GFX90A);
    b.bring_up();
    let ends = [0x1000, 8 * MIB + MIB / 2, VRAM - 8];
    for at in ends {
        b.vram_write(at, &[0xa5; 8]);
    }
    b.wr(0x58200, 0x0007_0000);
    b.run_for(50_000_000);
    let found = ends.map(|at| {
        let mut word = [0; 8];
        b.vram_read(at, &mut word);
        u64::from_le_bytes(word)
    });
    assert!(
        found.iter().all(|v| *v != 0xa5a5_a5a5_a5a5_a5a5),
        "{found:x?}"
    );
    assert_eq!(found.map(|v| v == 0), [false, true, false]);
    b.no_errors();
}

/// A reset of the command processor leaves VRAM alone, unless a fault has it lost, as often as the fault says.
#[test]
fn a_soft_reset_may_lose_what_is_in_vram() {
    let mut b = Bench::new(&GFX90A);
    b.bring_up();
    let at = 8 * MIB + MIB / 2;
    let reset = |b: &mut Bench| {
        b.vram_write(at, &[0xa5; 8]);
        b.wr(0x8020, 1 | (1 << 18));
        let mut word = [0; 8];
        b.vram_read(at, &mut word);
        b.wr(0x8020, 0);
        word == [0xa5; 8]
    };
    assert!(reset(&mut b));
    let twice = Injection {
        kind: Kind::LoseVram,
        doorbell: None,
        count: Some(2),
        ms: None,
    };
    assert!(b.gpu.soc.inject.add(twice));
    assert_eq!(
        [reset(&mut b), reset(&mut b), reset(&mut b)],
        [false, false, true]
    );
    assert_eq!(b.rd(0x378c), 64);
}

/// With `--noise-everywhere` nothing is zeros, neither at the start nor after a loss.
#[test]
fn noise_may_be_everywhere() {
    let mut b = Bench::new(&GFX90A);
    b.gpu.make_noise_everywhere();
    let noisy = |b: &Bench| {
        let mut all = vec![0; VRAM as usize];
        b.vram_read(0, &mut all);
        all.chunks(8).all(|word| word != [0; 8])
    };
    assert!(noisy(&b));
    b.bring_up();
    b.vram_write(8 * MIB, &vec![0; MIB as usize]);
    b.wr(0x58200, 0x0007_0000);
    b.run_for(50_000_000);
    assert_eq!(b.rd(0x378c), 64);
    assert!(noisy(&b));
    b.no_errors();
}

/// A driver that takes VRAM for zeros: all entries of a page table that it has not cleared are valid, and lead anywhere.
#[test]
fn a_page_table_that_was_never_cleared() {
    for (asic, further) in [(&GFX90A, 1 << 56), (&GFX906, 0)] {
        for cleared in [true, false] {
            let mut f = Fixture::new(asic, 0x61, 0x4000);
            // VRAM that nobody has used, where allocators begin.
            let table = VRAM - MIB;
            if cleared {
                f.b.vram_write(table, &[0; 4096]);
            }
            let va = 0x7100_0000_0000u64;
            let at = f.p.pde_at(&mut f.b, va);
            f.b.vram_write(at, &(table | 1 | further).to_le_bytes());
            f.b.hdp_flush();
            for page in 0..16 {
                f.q.push(&mut f.b, &write_data(va + 0x1000 * page, 1));
            }
            f.q.ring_bell(&mut f.b);
            f.b.run();
            let found = f.b.errors();
            assert_eq!(found.is_empty(), cleared, "{}: {found:?}", asic.name);
            let faults = &f.b.gpu.soc.log.stats;
            assert!(faults.faults_no_retry > 0, "{}", asic.name);
        }
    }
}

/// An access that waits is served between two pieces of the loss; the reset is over when all of them are done, however
/// late that is.
#[test]
fn mode1_loses_vram_piece_by_piece() {
    let mut b = Bench::new(&GFX90A);
    b.bring_up();
    let marks = [0x1000, VRAM / 2 + 64, VRAM - 8];
    for at in marks {
        b.vram_write(at, &[0xa5; 8]);
    }
    let left = |b: &Bench| {
        let mut word = [0; 8];
        marks
            .iter()
            .filter(|at| {
                b.vram_read(**at, &mut word);
                word == [0xa5; 8]
            })
            .count()
    };
    b.wr(0x58200, 0x0007_0000);
    assert_eq!(left(&b), 3, "the write itself takes no time for VRAM");
    b.advance(50_000_000);
    let callers = b.gpu.soc.callers().clone();
    let mut seen = Vec::new();
    callers.wait(|| {
        while b.gpu.step_within(Duration::from_secs(3600)) == Step::Busy {
            seen.push(left(&b));
            assert_eq!(b.rd(0x378c), 0xffff_ffff);
            assert!(seen.len() < 100_000);
        }
    });
    assert_eq!((seen.first(), seen.last()), (Some(&2), Some(&1)));
    assert!(
        seen.contains(&1) && seen.len() as u64 >= VRAM / MIB,
        "{}",
        seen.len()
    );
    assert_eq!(left(&b), 0);
    assert_eq!(b.rd(0x378c), 64);
    b.no_errors();
}

/// The VMM's reset in the middle of that: the device is away until all of VRAM is lost, by steps and not by the reset.
#[test]
fn a_reset_by_the_vmm_leaves_the_loss_of_vram_to_steps() {
    let mut b = Bench::new(&GFX90A);
    b.bring_up();
    let marks: Vec<u64> = (0..VRAM / MIB).map(|n| n * MIB + MIB / 2).collect();
    for at in &marks {
        b.vram_write(*at, &[0xa5; 8]);
    }
    let left = |b: &Bench| {
        let mut word = [0; 8];
        let kept = marks.iter().filter(|at| {
            b.vram_read(**at, &mut word);
            word == [0xa5; 8]
        });
        kept.count()
    };
    let callers = b.gpu.soc.callers().clone();
    let step = |b: &mut Bench| callers.wait(|| b.gpu.step_within(Duration::from_secs(3600)));
    b.wr(0x58200, 0x0007_0000);
    for _ in 0..40 {
        assert_eq!(step(&mut b), Step::Busy);
    }
    let before = left(&b);
    assert!(before > marks.len() / 2 && before < marks.len(), "{before}");
    b.gpu.device_reset();
    assert_eq!(left(&b), before, "the reset itself takes no time for VRAM");
    let mut last = before;
    while step(&mut b) == Step::Busy {
        assert_eq!(b.rd(0x378c), 0xffff_ffff, "it is away");
        let now = left(&b);
        assert!(now <= last && last - now <= 1, "{last} {now}");
        last = now;
    }
    // It does not wait for the end of the other reset.
    assert_eq!(left(&b), 0);
    assert_eq!(b.rd(0x378c), 64);
    // Without such a loss it is there at once.
    b.vram_write(marks[3], &[0xa5; 8]);
    b.gpu.device_reset();
    assert_eq!(b.rd(0x378c), 64);
    assert_eq!(left(&b), 1);
    b.no_errors();
}

/// On Vega 20 message 3 asks for the interface version; only the PSP resets the device.
#[test]
fn the_smu_of_vega20_has_another_message_3() {
    let mut b = Bench::new(&GFX906);
    b.bring_up();
    b.wr(0x58a48, 1);
    b.wr(0x58a08, 3);
    assert_eq!(b.rd(0x58a68), 0xfe);
    assert_eq!(b.rd(0x378c), 64);
    b.wr(0x58200, 0x0007_0000);
    assert_eq!(b.rd(0x378c), 0xffff_ffff);
    b.no_errors();
}

#[test]
fn a_dead_device_reads_ones() {
    let mut f = fixture();
    inject(&mut f.b, Kind::Die, None, None);
    assert_eq!(f.b.rd(0x378c), 0xffff_ffff);
    f.q.send(&mut f.b, &write_data(f.va, 1));
    assert_eq!(f.b.ram32(f.bus), 0);
    f.b.no_errors();
}
