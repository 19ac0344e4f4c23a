// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The end of a window under time slicing: who leaves, who does not, and how long it takes.

mod common;

use common::fixture::{inject, unmap_doorbells, Fixture};
use common::queue::{indirect, write_data, UserQueue};
use common::Bench;
use gpu_model::asic::GFX90A;
use gpu_model::inject::Kind;

/// Thirty queues of one process on 24 slots; `filler` lies between them in the list.
fn thirty(filler: usize) -> (Fixture, Vec<UserQueue>) {
    let mut f = Fixture::new(&GFX90A, 0x61, 4096);
    f.preempt();
    let queues: Vec<UserQueue> = (0..30).map(|_| f.p.queue(&mut f.b)).collect();
    f.list = f.p.map_process(&f.b, 30);
    for q in &queues {
        f.list.extend(q.map_queues());
        f.list.extend(vec![0xffff_1000; filler]);
    }
    let list = f.list.clone();
    f.b.run_list(&list, true, 1);
    f.b.run();
    f.b.no_errors();
    (f, queues)
}

fn connected(b: &Bench, q: &UserQueue) -> bool {
    let bell = |m: &gpu_model::hws::Mapped| u64::from(m.doorbell) * 4;
    b.gpu.hws.mapped().iter().any(|m| bell(m) == q.doorbell)
}

#[test]
fn a_queue_that_refuses_keeps_its_slot_and_the_others_rotate() {
    let (mut f, mut queues) = thirty(0);
    let doorbell = (queues[5].doorbell / 4) as u32;
    inject(&mut f.b, Kind::IgnorePreempt, Some(doorbell), None);
    for round in 1..=3u32 {
        for (i, q) in queues.iter_mut().enumerate() {
            q.push(&mut f.b, &write_data(f.va + 4 * i as u64, round));
            q.ring_bell(&mut f.b);
        }
        f.b.run_for(100_000_000);
        assert!(connected(&f.b, &queues[5]));
        let want: Vec<u32> = (0..30).map(|i| if i == 5 { 0 } else { round }).collect();
        assert_eq!(f.b.words(f.bus, 30), want);
        f.b.no_errors();
    }
    // It is let go, and takes part again.
    f.b.gpu.soc.inject.clear();
    f.b.run_for(100_000_000);
    assert_eq!(f.b.ram32(f.bus + 20), 3);
    f.b.no_errors();
    // A driver that was told of a queue that refuses, and maps it again all the same, is reported.
    inject(&mut f.b, Kind::IgnorePreempt, Some(doorbell), None);
    while !connected(&f.b, &queues[5]) {
        f.b.run_for(1_000_000);
    }
    f.b.run_for(100_000_000);
    f.b.unmap(3, 0, 0);
    f.b.run_for(5_000_000_000);
    f.b.no_errors();
    let list = f.list.clone();
    f.b.run_list(&list, true, 1);
    f.b.run();
    f.b.expect_errors(&["doorbell-duplicate"]);
}

#[test]
fn a_slow_preemption_makes_the_window_longer() {
    let (mut f, queues) = thirty(0);
    let (first, last) = (&queues[0], &queues[29]);
    inject(&mut f.b, Kind::SlowPreempt, None, Some(50));
    // Without work a window ends after 1 ms.
    f.b.run_for(40_000_000);
    assert!(connected(&f.b, first) && !connected(&f.b, last));
    f.b.run_for(20_000_000);
    assert!(!connected(&f.b, first) && connected(&f.b, last));
    // In between UNMAP_QUEUES is obeyed; it waits likewise.
    f.b.run_for(52_000_000);
    let fence = f.b.unmap(3, 0, 0);
    f.b.run_for(45_000_000);
    assert_eq!(f.b.ram64(fence.bus), 10);
    f.b.run_for(10_000_000);
    assert_eq!(f.b.ram64(fence.bus), 100);
    assert!(!queues.iter().any(|q| connected(&f.b, q)));
    f.b.no_errors();
}

/// The walk through a long list is done in pieces, so that the guest gets its accesses in between.
#[test]
fn a_long_list_is_walked_in_many_steps() {
    let (mut f, queues) = thirty(400);
    assert!(!connected(&f.b, &queues[29]));
    f.b.advance(2_000_000);
    let mut steps = 0;
    while !connected(&f.b, &queues[29]) {
        let _ = f.b.gpu.step();
        steps += 1;
    }
    // Six queues of the first pass were left.
    assert!(steps > 5 * 400 / 64, "{steps}");
    f.b.no_errors();
}

/// A process that the walk has entered keeps its VMID until its queues are connected, whatever happens in between.
#[test]
fn an_unmap_in_the_middle_of_a_walk_takes_nothing_from_the_next_process() {
    let mut f = Fixture::new(&GFX90A, 0x61, 4096);
    f.preempt();
    let mut list = f.p.map_process(&f.b, 1);
    list.extend(vec![0xffff_1000; 1000]);
    list.extend(f.q.map_queues());
    f.b.run_list(&list, true, 1);
    f.b.run();
    // The window is over; the next one has the process, but not yet its queue.
    f.b.advance(2_000_000);
    while connected(&f.b, &f.q) {
        let _ = f.b.gpu.step();
    }
    let _ = f.b.gpu.step();
    assert!(f.b.gpu.vmid_of_pasid(0x61).is_some() && !connected(&f.b, &f.q));
    // By the doorbell of nobody.
    f.b.submit_hiq(&[0xc004_a300, 1 << 29, 0x1f_0000, 0, 0, 0]);
    while !connected(&f.b, &f.q) {
        let _ = f.b.gpu.step();
    }
    let vmid = f.b.first_vmid();
    assert_eq!(f.b.rd(0x4280 + 4 * u64::from(vmid)), 0x61);
    f.q.send(&mut f.b, &write_data(f.va, 1));
    assert_eq!(f.b.ram32(f.bus), 1);
    f.b.no_errors();
}

/// Whoever feeds the HIQ the same packet for ever does not make the device grow.
#[test]
fn queues_taken_away_by_name_are_remembered_once() {
    let mut f = Fixture::new(&GFX90A, 0x52, 4096);
    f.preempt();
    let list = f.list.clone();
    f.b.run_list(&list, true, 1);
    f.b.run_for(1_000_000);
    for _ in 0..20 {
        let bell = f.q.doorbell;
        unmap_doorbells(&mut f.b, 0, &[bell, bell + 8]);
    }
    let remembered = f.b.gpu.hws.runlist().map(|l| l.retired());
    assert_eq!(remembered, Some(2));
}

/// A buffer of the HIQ that calls itself and takes away more queues by name than a run list remembers.
#[test]
fn a_buffer_that_calls_itself_does_not_make_the_device_grow() {
    const PACKETS: u32 = 1100;
    const REMEMBERED: usize = 4096;
    let mut f = Fixture::new(&GFX90A, 0x52, 4096);
    f.preempt();
    let mut words = Vec::new();
    for n in 0..PACKETS {
        words.extend([0xc004_a300, 4 << 29]);
        words.extend((0..4).map(|i| 0x1e_0000 + (4 * n + i) * 8));
    }
    let size = words.len() as u32 + 4;
    let buffer = f.b.alloc_sys(u64::from(size) * 4);
    words.extend(indirect(buffer.gart, size, true));
    f.b.set_words(buffer.bus, &words);
    let list = f.list.clone();
    f.b.run_list(&list, true, 1);
    f.b.run_for(1_000_000);
    f.b.submit_hiq(&indirect(buffer.gart, size, false));
    let (begun, before) = (std::time::Instant::now(), f.b.gpu.soc.log.stats.preemptions);
    for round in 1..=3 {
        let wanted = before + round * u64::from(PACKETS);
        for _ in 0..100_000 {
            if f.b.gpu.soc.log.stats.preemptions >= wanted {
                break;
            }
            f.b.advance(1000);
            f.b.run_steps(1);
        }
        assert!(f.b.gpu.soc.log.stats.preemptions >= wanted, "{round}");
        let remembered = f.b.gpu.hws.runlist().map(|l| l.retired());
        assert_eq!(remembered, Some(REMEMBERED), "{round}");
    }
    let rate = 3.0 * f64::from(PACKETS) / begun.elapsed().as_secs_f64();
    println!("{rate:.0} packets a second");
    f.b.no_errors();
}
