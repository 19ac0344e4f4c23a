// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Hardware queue slots: loading by registers, preemption, hangs, resets.

mod common;

use common::proc::Proc;
use common::queue::{indirect, release_mem, write_data, UserQueue};
use common::Bench;
use gpu_model::asic::{GFX906, GFX90A};
use gpu_model::control::answer;
use gpu_model::inject::{Injection, Kind};

struct Fixture {
    b: Bench,
    p: Proc,
    q: UserQueue,
    va: u64,
    bus: u64,
    list: Vec<u32>,
}

fn fixture() -> Fixture {
    let mut b = Bench::new(&GFX90A);
    b.bring_up();
    b.start_kiq();
    b.start_hiq();
    b.set_resources();
    let mut p = Proc::new(&mut b, 0x61, 0);
    let (va, bus) = p.page(&mut b, 0x4000);
    let q = p.queue(&mut b);
    let mut list = p.map_process(&b, 1);
    list.extend(q.map_queues());
    b.run_list(&list, false, 1);
    b.run();
    b.no_errors();
    Fixture {
        b,
        p,
        q,
        va,
        bus,
        list,
    }
}

const HQD: u64 = 0xc914;
fn hqd(mqd_dw: u64) -> u64 {
    HQD + (mqd_dw - 128) * 4
}

/// GRBM_GFX_CNTL of MEC1, pipe 0, queue 2: the first slot of the pool.
const FIRST: u32 = (1 << 2) | (2 << 8);

fn inject(b: &mut Bench, kind: Kind, doorbell: Option<u32>, ms: Option<u64>) {
    assert!(b.gpu.inject.add(Injection {
        kind,
        doorbell,
        count: None,
        ms
    }));
}

#[test]
fn preemption_in_nested_buffers_resumes_where_it_was() {
    let mut f = fixture();
    // ib1: write, ib2, write; ib2: write, wait, write.
    let (ib1, ib2) = (f.va + 0x1000, f.va + 0x2000);
    let mut one = write_data(f.va, 1);
    one.extend(indirect(ib2, 17, false));
    one.extend(write_data(f.va + 12, 4));
    let mut two = write_data(f.va + 4, 2);
    let flag = f.va + 0x800;
    two.extend([
        0xc005_3c00,
        3 | (1 << 4),
        flag as u32,
        (flag >> 32) as u32,
        1,
        !0,
        4,
    ]);
    two.extend(write_data(f.va + 8, 3));
    f.b.set_words(f.bus + 0x1000, &one);
    f.b.set_words(f.bus + 0x2000, &two);
    f.q.push(&mut f.b, &indirect(ib1, one.len() as u32, false));
    f.q.send(&mut f.b, &write_data(f.va + 16, 5));
    assert_eq!(f.b.words(f.bus, 5), [1, 2, 0, 0, 0]);
    for _ in 0..3 {
        let fence = f.b.unmap(3, 0, 0);
        f.b.run();
        assert_eq!(f.b.ram64(fence.bus), 100);
        // Slots are reused by others in between: nothing may live in the slot only.
        let list = f.list.clone();
        f.b.run_list(&list, false, 1);
        f.b.run_for(1_000_000);
        assert_eq!(f.b.words(f.bus, 5), [1, 2, 0, 0, 0]);
    }
    f.b.set32(f.bus + 0x800, 1);
    f.b.run_for(5_000_000);
    assert_eq!(f.b.words(f.bus, 5), [1, 2, 3, 4, 5]);
    f.b.no_errors();
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

#[test]
fn pipe_reset_takes_the_queues_of_its_pipe() {
    let mut f = fixture();
    f.b.wr(0x8234, 1 << 16);
    f.b.wr(0x8234, 0);
    f.b.wr(0x8088, FIRST);
    assert_eq!(f.b.rd(hqd(130)) & 1, 0);
    f.b.wr(0x8088, 2 << 2);
    assert_eq!(f.b.rd(hqd(130)) & 1, 1, "the HIQ is on another pipe");
    f.b.wr(0x8088, 0);
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
    f.b.advance(50_000_000);
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
    b.advance(50_000_000);
    assert_eq!(b.rd(0x378c), 64);
    // Everything is to be set up again.
    assert_eq!(b.rd(0x3780), 0);
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

#[test]
fn static_queues_survive_the_usual_unmap() {
    let mut f = fixture();
    f.b.unmap(3, 0, 0);
    let mut s = f.p.queue(&mut f.b);
    let mut list = f.p.map_process(&f.b, 2);
    let mut m = s.map_queues();
    m[1] |= 2 << 21;
    list.extend(&m);
    list.extend(f.q.map_queues());
    f.b.run_list(&list, false, 1);
    f.b.run();
    f.b.unmap(3, 0, 0);
    f.b.run();
    s.send(&mut f.b, &write_data(f.va, 1));
    f.q.send(&mut f.b, &write_data(f.va + 4, 1));
    assert_eq!(f.b.words(f.bus, 2), [1, 0]);
    // All.
    f.b.unmap(2, 0, 0);
    f.b.run();
    s.send(&mut f.b, &write_data(f.va, 2));
    assert_eq!(f.b.words(f.bus, 2), [1, 0]);
    f.b.no_errors();
}

#[test]
fn queues_ring_doorbells_through_the_self_ring_aperture() {
    let mut f = fixture();
    f.b.unmap(3, 0, 0);
    let mut q2 = f.p.queue(&mut f.b);
    let mut list = f.p.map_process(&f.b, 2);
    list.extend(f.q.map_queues());
    list.extend(q2.map_queues());
    f.b.run_list(&list, false, 1);
    f.b.run();
    // BAR2 at bus address 0xfe600000, seen by the process at some page.
    f.b.wr(0x3480 + 0xf4 * 4, 0xfe60_0000);
    f.b.wr(0x3480 + 0xf3 * 4, 0);
    f.b.wr(0x3480 + 0xf5 * 4, 3);
    let page = 0x7500_0000_0000u64;
    let bell = 0xfe60_0000 + q2.doorbell;
    f.p.set_pte(&mut f.b, page, (bell & !0xfff) | 0x77);
    let words = write_data(f.va, 0x51);
    q2.push(&mut f.b, &words);
    let at = page + (bell & 0xfff);
    let mut w = vec![
        0xc004_3700,
        (5 << 8) | (1 << 20),
        at as u32,
        (at >> 32) as u32,
    ];
    w.extend([q2.wptr as u32, 0]);
    f.q.send(&mut f.b, &w);
    assert_eq!(f.b.ram32(f.bus), 0x51);
    f.b.no_errors();
    // Without the aperture it is an error of the driver.
    f.b.wr(0x3480 + 0xf5 * 4, 0);
    f.b.gpu.bars.doorbells = 0xfe60_0000;
    f.q.send(&mut f.b, &w);
    f.b.expect_errors(&["selfring", "pte-to-nowhere"]);
}

#[test]
fn unmap_by_pasid_takes_one_process() {
    let mut f = fixture();
    f.b.unmap(3, 0, 0);
    let mut other = Proc::new(&mut f.b, 0x62, 1);
    let (va2, bus2) = other.page(&mut f.b, 4096);
    let mut q2 = other.queue(&mut f.b);
    let mut list = f.list.clone();
    list.extend(other.map_process(&f.b, 1));
    list.extend(q2.map_queues());
    f.b.run_list(&list, false, 2);
    f.b.unmap(1, 0, 0x61);
    f.b.run();
    f.q.send(&mut f.b, &write_data(f.va, 1));
    q2.send(&mut f.b, &write_data(va2, 2));
    assert_eq!((f.b.ram32(f.bus), f.b.ram32(bus2)), (0, 2));
    f.b.no_errors();
}

#[test]
fn bad_user_packets_interrupt_and_stop_only_their_queue() {
    let mut f = fixture();
    // A scheduler packet on a user queue.
    f.q.send(&mut f.b, &[0xc002_a500, 0, 0, 0]);
    let ivs = f.b.irqs();
    assert_eq!(
        ivs.iter().map(|v| (v.client, v.source)).collect::<Vec<_>>(),
        [(0x14, 183)]
    );
    f.q.send(&mut f.b, &write_data(f.va, 1));
    assert_eq!(f.b.ram32(f.bus), 0);
    f.b.no_errors();
    assert_eq!(f.b.gpu.log.stats.user_errors, 1);
    let fence = f.b.unmap(3, 0, 0);
    f.b.run();
    assert_eq!(f.b.ram64(fence.bus), 100);
}

#[test]
fn privileged_registers_are_out_of_reach_for_users() {
    let mut f = fixture();
    // CPC_INT_CNTL of the pipe is needed for the interrupt: enable PRIV_REG.
    f.b.wr(0x8088, 1 << 2);
    f.b.wr(0xc2d0, 0x0580_0000);
    f.b.wr(0x8088, 0);
    f.q.send(&mut f.b, &[0xc003_3700, 0, 0x30b0, 0, 1]);
    assert_eq!(f.b.rd(0xc2c0), 0x4040_4040);
    assert_eq!(f.b.irqs()[0].source, 184);
    f.b.no_errors();
}

#[test]
fn pm4_packets_do_what_they_say() {
    let mut f = fixture();
    let a = f.va;
    let (lo, hi) = (a as u32, (a >> 32) as u32);
    // ATOMIC_MEM: 32-bit add without return (0x4f), 64-bit compare-and-swap (0x28).
    f.b.set32(f.bus, 40);
    f.q.send(&mut f.b, &[0xc007_1e00, 0x4f, lo, hi, 2, 0, 0, 0, 0]);
    assert_eq!(f.b.ram32(f.bus), 42);
    f.b.set64(f.bus + 8, 7);
    f.q.send(&mut f.b, &[0xc007_1e00, 0x28, lo + 8, hi, 9, 1, 7, 0, 0]);
    assert_eq!(f.b.ram64(f.bus + 8), 0x1_0000_0009);
    // DMA_DATA: 100 bytes memory to memory, then a fill.
    for i in 0..25u32 {
        f.b.set32(f.bus + 0x100 + u64::from(i) * 4, i + 1);
    }
    f.q.send(
        &mut f.b,
        &[0xc005_5000, 0, lo + 0x100, hi, lo + 0x200, hi, 100],
    );
    assert_eq!(f.b.words(f.bus + 0x200, 26)[24..], [25, 0]);
    f.q.send(
        &mut f.b,
        &[0xc005_5000, 2 << 29, 0xabab_cdcd, 0, lo + 0x300, hi, 8],
    );
    assert_eq!(f.b.words(f.bus + 0x300, 3), [0xabab_cdcd, 0xabab_cdcd, 0]);
    // COPY_DATA: GPU clock, 64 bits; immediate.
    let now = f.b.gpu.clock.ticks();
    f.q.send(
        &mut f.b,
        &[0xc004_4000, 9 | (5 << 8) | (1 << 16), 0, 0, lo + 0x400, hi],
    );
    assert_eq!(f.b.ram64(f.bus + 0x400), now);
    f.q.send(
        &mut f.b,
        &[0xc004_4000, 5 | (5 << 8), 0x99, 0, lo + 0x408, hi],
    );
    assert_eq!(f.b.ram32(f.bus + 0x408), 0x99);
    // SET_SH_REG USER_DATA_0 and back by COPY_DATA from the register.
    f.q.send(&mut f.b, &[0xc001_7600, 0x240, 0x5a5a]);
    f.q.send(&mut f.b, &[0xc004_4000, 5 << 8, 0x2e40, 0, lo + 0x410, hi]);
    assert_eq!(f.b.ram32(f.bus + 0x410), 0x5a5a);
    // COND_EXEC on zero skips five dwords, PRED_EXEC for another XCC likewise.
    f.b.set32(f.bus + 0x500, 0);
    let mut w = vec![0xc003_2200, lo + 0x500, hi, 0, 5];
    w.extend(write_data(a + 0x504, 1));
    w.extend([0xc000_2300, 5 | (2 << 24)]);
    w.extend(write_data(a + 0x508, 1));
    w.extend([0xc000_2300, 5 | (1 << 24)]);
    w.extend(write_data(a + 0x50c, 1));
    f.q.send(&mut f.b, &w);
    assert_eq!(f.b.words(f.bus + 0x500, 4), [0, 0, 0, 1]);
    // Chained buffers: the first jumps to the second and is not returned to.
    let mut one = write_data(a + 0x600, 1);
    one.extend(indirect(a + 0x1200, 5, true));
    one.extend(write_data(a + 0x604, 1));
    f.b.set_words(f.bus + 0x1000, &one);
    let two = write_data(a + 0x608, 1);
    f.b.set_words(f.bus + 0x1200, &two);
    f.q.send(&mut f.b, &indirect(a + 0x1000, one.len() as u32, false));
    assert_eq!(f.b.words(f.bus + 0x600, 3), [1, 0, 1]);
    // The kfdtest idiom: a NOP payload as the target of RELEASE_MEM, then a wait on it.
    let mut ib = vec![0xc000_1000, 0];
    let target = a + 0x2004;
    let mut rel = release_mem(target, 0xdead_beef, 0);
    rel[2] = 1 << 29;
    ib.extend(rel);
    ib.extend([
        0xc005_3c00,
        3 | (1 << 4),
        target as u32,
        (target >> 32) as u32,
        0xdead_beef,
        !0,
        4,
    ]);
    ib.extend(write_data(a + 0x700, 6));
    f.b.set_words(f.bus + 0x2000, &ib);
    f.q.send(&mut f.b, &indirect(a + 0x2000, ib.len() as u32, false));
    assert_eq!(f.b.ram32(f.bus + 0x700), 6);
    f.b.no_errors();
}

/// UNMAP_QUEUES by doorbell list.
fn unmap_doorbells(b: &mut Bench, action: u32, bells: &[u64]) {
    let mut w = vec![
        0xc004_a300,
        action | ((bells.len() as u32) << 29),
        0,
        0,
        0,
        0,
    ];
    for (i, bell) in bells.iter().enumerate() {
        w[2 + i] = *bell as u32;
    }
    b.submit_hiq(&w);
    b.run();
}

fn active(b: &mut Bench, select: u32) -> bool {
    b.wr(0x8088, select);
    let v = b.rd(hqd(130));
    b.wr(0x8088, 0);
    v & 1 != 0
}

#[test]
fn a_static_queue_stays_over_run_lists_until_it_is_named() {
    for by_pasid in [false, true] {
        let mut f = fixture();
        f.b.unmap(3, 0, 0);
        let mut s = f.p.queue(&mut f.b);
        let mut list = f.p.map_process(&f.b, 2);
        let mut m = s.map_queues();
        m[1] |= 2 << 21;
        list.extend(&m);
        list.extend(f.q.map_queues());
        for i in 0..4u32 {
            // The driver lists the static queue again each time, as upstream does for its debug queue.
            f.b.run_list(&list, false, 1);
            s.send(&mut f.b, &write_data(f.va, i));
            f.q.send(&mut f.b, &write_data(f.va + 4, i));
            assert_eq!(f.b.words(f.bus, 2), [i, i]);
            f.b.unmap(3, 0, 0);
            f.b.run();
        }
        let maps = f.b.gpu.log.stats.queue_maps;
        // An empty list leaves it alone, too.
        let alone = f.p.map_process(&f.b, 0);
        f.b.run_list(&alone, false, 1);
        f.b.unmap(3, 0, 0);
        s.send(&mut f.b, &write_data(f.va, 9));
        assert_eq!(f.b.ram32(f.bus), 9);
        assert_eq!(f.b.gpu.log.stats.queue_maps, maps);
        if by_pasid {
            f.b.unmap(1, 0, 0x61);
            f.b.run();
        } else {
            unmap_doorbells(&mut f.b, 0, &[s.doorbell]);
        }
        s.send(&mut f.b, &write_data(f.va, 10));
        assert_eq!(f.b.ram32(f.bus), 9);
        f.b.no_errors();
    }
}

#[test]
fn unmap_by_doorbell_takes_up_to_four() {
    let mut f = fixture();
    f.b.unmap(3, 0, 0);
    let mut queues: Vec<UserQueue> = (0..6).map(|_| f.p.queue(&mut f.b)).collect();
    queues.push(f.p.sdma_queue(&mut f.b, 1, 0));
    let mut list = f.p.map_process(&f.b, 7);
    for q in &queues {
        list.extend(q.map_queues());
    }
    f.b.run_list(&list, false, 1);
    f.b.run();
    let bells: Vec<u64> = [0, 2, 4, 6].iter().map(|i| queues[*i].doorbell).collect();
    unmap_doorbells(&mut f.b, 0, &bells);
    let left: Vec<u64> =
        f.b.gpu
            .hws
            .mapped
            .iter()
            .filter(|m| !m.by_kiq)
            .map(|m| u64::from(m.doorbell) * 4)
            .collect();
    assert_eq!(
        left,
        [queues[1].doorbell, queues[3].doorbell, queues[5].doorbell]
    );
    // The others have gone, and a list may follow once the rest has, whatever took it away.
    unmap_doorbells(&mut f.b, 0, &left);
    f.b.run_list(&list, false, 1);
    queues[0].send(&mut f.b, &write_data(f.va, 5));
    assert_eq!(f.b.ram32(f.bus), 5);
    f.b.no_errors();
}

#[test]
fn a_queue_taken_by_name_does_not_come_back_with_the_next_window() {
    let mut f = fixture();
    f.b.unmap(3, 0, 0);
    // 30 queues on 24 slots.
    let mut queues: Vec<UserQueue> = (0..30).map(|_| f.p.queue(&mut f.b)).collect();
    let mut list = f.p.map_process(&f.b, 30);
    for q in &queues {
        list.extend(q.map_queues());
    }
    f.b.run_list(&list, true, 1);
    f.b.run();
    // One that is connected and one that waits.
    unmap_doorbells(&mut f.b, 0, &[queues[3].doorbell, queues[28].doorbell]);
    for (i, q) in queues.iter_mut().enumerate() {
        q.push(&mut f.b, &write_data(f.va + 4 * i as u64, 1));
    }
    f.b.run_for(400_000_000);
    let want: Vec<u32> = (0..30).map(|i| u32::from(i != 3 && i != 28)).collect();
    assert_eq!(f.b.words(f.bus, 30), want);
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
        assert!(active(&mut f.b, FIRST));
        f.b.wr(0x8234, 1 << 16);
        f.b.wr(0x8234, 0);
        assert_eq!(active(&mut f.b, FIRST), !by_pipe);
        // GRBM_SOFT_RESET of CP and CPC.
        f.b.wr(0x8020, 1 | (1 << 18));
        f.b.wr(0x8020, 0);
        assert!(!active(&mut f.b, FIRST));
        assert_eq!(f.b.gpu.inject.list().len(), 0);
        f.b.no_errors();
    }
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

/// On Vega 20 message 3 asks for the interface version; only the PSP resets the device.
#[test]
fn the_smu_of_vega20_has_another_message_3() {
    let mut b = Bench::new(&GFX906);
    b.bring_up();
    b.wr(0x58a48, 1);
    b.wr(0x58a08, 3);
    assert_eq!(b.rd(0x58a68), 1);
    assert_eq!(b.rd(0x378c), 64);
    b.wr(0x58200, 0x0007_0000);
    assert_eq!(b.rd(0x378c), 0xffff_ffff);
    b.no_errors();
}

#[test]
fn stray_doorbells_are_harmless_and_told_apart() {
    let mut f = fixture();
    f.b.unmap(3, 0, 0);
    let mut queues: Vec<UserQueue> = (0..30).map(|_| f.p.queue(&mut f.b)).collect();
    let mut list = f.p.map_process(&f.b, 30);
    for q in &queues {
        list.extend(q.map_queues());
    }
    f.b.run_list(&list, true, 1);
    f.b.run();
    let last = queues.last_mut().unwrap();
    let bell = last.doorbell;
    f.b.bell(bell, 0);
    f.b.bell(bell, 0);
    f.b.bell(0x1f_0008, 77);
    f.b.gpu.doorbell_write(0x1f_0004, &[1, 2]);
    // The first queue, which an earlier list had, is nobody's now.
    f.b.bell(f.q.doorbell, 0);
    let reply = answer(&mut f.b.gpu, r#"{"cmd":"doorbells"}"#);
    assert_eq!(
        (
            &reply["ok"],
            &reply["unmapped"],
            &reply["foreign"],
            &reply["malformed"]
        ),
        (&true.into(), &2.into(), &2.into(), &1.into())
    );
    let strays: Vec<(u64, String, u64, u64, u64)> = reply["strays"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| {
            let n = |k: &str| s[k].as_u64().unwrap();
            (
                n("byte"),
                s["kind"].as_str().unwrap().into(),
                n("count"),
                n("value"),
                n("pasid"),
            )
        })
        .collect();
    assert_eq!(
        strays,
        [
            (f.q.doorbell, "foreign".into(), 1, 0, 0),
            (bell, "unmapped".into(), 2, 0, 0x61),
            (0x1f_0004, "malformed".into(), 1, 0x201, 0),
            (0x1f_0008, "foreign".into(), 1, 77, 0),
        ]
    );
    assert_eq!(f.b.gpu.log.stats.doorbells_unmatched, 5);
    // None of it disturbs anybody.
    last.send(&mut f.b, &write_data(f.va, 6));
    f.b.run_for(300_000_000);
    assert_eq!(f.b.ram32(f.bus), 6);
    f.b.no_errors();
}

/// CP_HQD_QUANTUM decides how many packets a queue runs before others get their turn.
#[test]
fn the_quantum_of_a_queue_is_the_length_of_its_turn() {
    for (quantum, want) in [(0x111, 64), (0x311, 192), (0x501, 40), (0x110, 64)] {
        let mut f = fixture();
        f.b.unmap(3, 0, 0);
        f.b.run();
        f.b.set32(f.q.mqd.bus + 135 * 4, quantum);
        let list = f.list.clone();
        f.b.run_list(&list, false, 1);
        f.b.run();
        // ATOMIC_MEM: add one.
        let (lo, hi) = (f.va as u32, (f.va >> 32) as u32);
        for _ in 0..110 {
            f.q.push(&mut f.b, &[0xc007_1e00, 0x4f, lo, hi, 1, 0, 0, 0, 0]);
        }
        f.q.ring_bell(&mut f.b);
        let _ = f.b.gpu.step();
        assert_eq!(f.b.ram32(f.bus), want.min(110), "quantum {quantum:#x}");
        f.b.run();
        assert_eq!(f.b.ram32(f.bus), 110);
        f.b.no_errors();
    }
}
