// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The waves of a queue are saved and come back in pieces: how much a step moves, and what may happen between two of them.
#![allow(clippy::unwrap_used, reason = "a test may panic; that is how it fails")]

mod common;

use common::direct::{hqd, slot};
use common::fixture::{active, FIRST};
use common::full::{blank, others_run, pressed, state, wait, written, Full, BLANK};
use common::kernel::without_llvm;
use common::queue::{write_data, UserQueue};
use common::{Bench, Sys};
use gpu_model::inject::{Injection, Kind};

/// Bytes that a step moves while somebody waits for the device.
const PIECE: usize = 16 << 10;
/// Bytes of the record at the beginning of a state.
const RECORD: usize = 256;

/// A full queue of two units, in the middle of a save that this fence ends.
fn halfway(blank_area: bool) -> (Full, Sys) {
    let mut f = Full::new(2);
    f.map();
    if blank_area {
        blank(&f);
    }
    let fence = f.b.unmap(3, 0, 0);
    for _ in 0..30 {
        pressed(&mut f.b);
    }
    assert_eq!(Full::waves(&f.b), 0, "the waves are off their units");
    assert!(written(&f) > 10 * PIECE, "{:#x}", written(&f));
    assert_ne!(f.b.ram64(fence.bus), 100);
    (f, fence)
}

#[test]
fn a_step_saves_a_piece_while_somebody_waits() {
    if without_llvm("pieces of a save") {
        return;
    }
    let mut f = Full::new(8);
    f.map();
    blank(&f);
    let fence = f.b.unmap(3, 0, 0);
    let (mut steps, mut last) = (0, 0);
    while f.b.ram64(fence.bus) != 100 {
        assert!(steps < 10_000);
        pressed(&mut f.b);
        let now = if steps % 16 == 15 { written(&f) } else { last };
        assert!(now <= last + 16 * PIECE, "{last:#x} {now:#x}");
        if now > last && f.b.ram64(fence.bus) != 100 {
            // Nothing is valid before all is there.
            assert!(state(&f, RECORD).iter().all(|b| *b == BLANK));
            assert!(active(&mut f.b, FIRST), "the queue is still there");
        }
        (steps, last) = (steps + 1, now);
    }
    let (_, bytes) = f.saved();
    assert_eq!(written(&f), bytes as usize);
    assert!(
        bytes as usize > 4 << 20 && steps >= bytes as usize / PIECE,
        "{steps}"
    );
    assert!(!active(&mut f.b, FIRST));
    f.map();
    f.end();
}

/// By one step, not by sixteen.
#[test]
fn no_step_saves_more_than_a_piece() {
    if without_llvm("pieces of a save") {
        return;
    }
    let mut f = Full::new(1);
    f.map();
    blank(&f);
    let fence = f.b.unmap(3, 0, 0);
    let (mut pieces, mut last) = (0, RECORD);
    while f.b.ram64(fence.bus) != 100 {
        pressed(&mut f.b);
        let now = written(&f).max(RECORD);
        assert!(now <= last + PIECE, "{last:#x} {now:#x}");
        pieces += usize::from(now > last);
        last = now;
        assert!(pieces < 1000);
    }
    let (_, bytes) = f.saved();
    assert_eq!(last, bytes as usize);
    assert_eq!(pieces, (bytes as usize - RECORD).div_ceil(PIECE));
    f.map();
    f.end();
}

/// Reading is in pieces as well, and no wave goes on before all of them are there.
#[test]
fn a_step_restores_a_piece_while_somebody_waits() {
    if without_llvm("pieces of a restore") {
        return;
    }
    let mut f = Full::new(2);
    f.map();
    let mut before: Option<Vec<u8>> = None;
    for _ in 0..3 {
        f.unmap();
        let (_, bytes) = f.saved();
        let now = state(&f, bytes as usize);
        if let Some(before) = before {
            // Waves that wait for a page do nothing but try again: what chooses their turns differs, two words.
            let words = before.chunks(4).zip(now.chunks(4));
            let waves = words
                .skip(RECORD / 4)
                .take(f.count as usize * (128 * 64 + 1024 + 100));
            let differ = waves.filter(|(a, b)| a != b).count();
            assert!(differ <= f.count as usize * 2, "{differ}");
        }
        before = Some(now);
        let mut list = f.p.map_process(&f.b, 1);
        list.extend(f.q.map_queues());
        f.b.run_list(&list, false, 1);
        let mut steps = 0;
        while Full::waves(&f.b) == 0 {
            pressed(&mut f.b);
            steps += 1;
            assert!(steps < 10_000);
        }
        assert!(
            steps >= bytes as usize / PIECE,
            "{steps} steps for {bytes:#x}"
        );
        let count = f.count;
        f.until(|b| Full::waves(b) == count);
    }
    f.end();
}

/// It has not looked at all of its state, which is where it was.
#[test]
fn a_queue_that_leaves_before_it_is_restored_comes_back() {
    if without_llvm("a broken off restore") {
        return;
    }
    let mut f = Full::new(2);
    f.map();
    for _ in 0..2 {
        f.unmap();
        let saved = f.saved();
        let mut list = f.p.map_process(&f.b, 1);
        list.extend(f.q.map_queues());
        f.b.run_list(&list, false, 1);
        for _ in 0..30 {
            pressed(&mut f.b);
        }
        assert!(active(&mut f.b, FIRST));
        assert_eq!(Full::waves(&f.b), 0, "in the middle");
        f.unmap();
        assert_eq!(f.saved(), saved);
        f.map();
    }
    f.end();
}

/// Resets something.
type Reset = fn(&mut Bench);

/// Whatever resets the queue: not a byte is written after that, and the device is there for others.
#[test]
fn a_reset_ends_a_save() {
    if without_llvm("resets") {
        return;
    }
    let resets: [(&str, Reset); 4] = [
        ("queue", |b| {
            b.wr(0x8088, FIRST);
            b.wr(0xc76c, 1);
            b.wr(0x8088, 0);
        }),
        ("pipe", |b| {
            b.wr(0x8234, 1 << 16);
            b.wr(0x8234, 0);
        }),
        ("soft", |b| {
            b.wr(0x8020, 1 | (1 << 18));
            b.wr(0x8020, 0);
        }),
        ("device", |b| b.gpu.device_reset()),
    ];
    for (name, reset) in resets {
        let (mut f, fence) = halfway(true);
        reset(&mut f.b);
        // A reset of a queue or a pipe takes a while; what is saved until then is.
        f.b.advance(200_000);
        pressed(&mut f.b);
        assert!(!active(&mut f.b, FIRST), "{name}");
        // The driver frees the area.
        blank(&f);
        f.b.advance(1_000_000);
        f.b.run_steps(1000);
        assert_eq!(written(&f), 0, "{name}");
        if matches!(name, "queue" | "pipe") {
            wait(&mut f.b, fence);
            others_run(&mut f.b);
            f.b.no_errors();
        }
    }
}

/// The area is translated anew for each piece; what is missing later is as if it had been missing before.
#[test]
fn a_page_that_goes_away_meanwhile_loses_the_save() {
    if without_llvm("a page that goes away") {
        return;
    }
    for when in ["before", "behind", "record"] {
        let (mut f, fence) = halfway(true);
        let errors = f.b.gpu.soc.log.stats.user_errors;
        let base = f.b.ram64(f.q.mqd.bus + 171 * 4);
        let at = base + u64::from(f.q.save.1);
        let before = written(&f);
        let at = match when {
            "before" => at + 0x8000,
            "behind" => at + 0x8_0000,
            _ => at,
        };
        f.p.set_pte(&mut f.b, at, 0);
        let vmid = f.b.first_vmid();
        f.b.flush_vmid(vmid);
        wait(&mut f.b, fence);
        let lost = when != "before";
        assert_eq!(
            f.b.gpu.soc.log.stats.user_errors - errors,
            u64::from(lost),
            "{when}"
        );
        assert_eq!(f.saved() == (0, 0), lost, "{when}");
        assert!(!active(&mut f.b, FIRST));
        if when == "behind" {
            assert!(written(&f) < 0x8_1000 && written(&f) >= before);
        }
        others_run(&mut f.b);
        f.b.no_errors();
    }
}

/// Memory that moves meanwhile is written where it is then.
#[test]
fn a_page_that_moves_meanwhile_is_found() {
    if without_llvm("a page that moves") {
        return;
    }
    let (mut f, fence) = halfway(true);
    let base = f.b.ram64(f.q.mqd.bus + 171 * 4);
    let offset = u64::from(f.q.save.1) + 0x8_0000;
    let new = f.b.alloc_ram(4096);
    f.p.set_pte(&mut f.b, base + offset, new | 0x77);
    let vmid = f.b.first_vmid();
    f.b.flush_vmid(vmid);
    wait(&mut f.b, fence);
    let mut old = [0; 4096];
    f.b.ram_read(f.q.save.0 + offset, &mut old);
    assert!(old.iter().all(|b| *b == BLANK), "the old page is another's");
    f.map();
    f.end();
}

/// The scheduler takes nothing off while bus mastering is off, and a save that it has begun waits.
#[test]
fn a_save_waits_for_bus_mastering() {
    if without_llvm("bus mastering") {
        return;
    }
    let (mut f, fence) = halfway(true);
    let before = written(&f);
    f.b.gpu.soc.mem.set_bus_master(false);
    for _ in 0..100 {
        pressed(&mut f.b);
    }
    assert_eq!(written(&f), before);
    f.b.gpu.soc.mem.set_bus_master(true);
    wait(&mut f.b, fence);
    f.map();
    f.end();
}

/// What a register takes off leaves all the same.
#[test]
fn a_save_that_cannot_leave_the_device_is_lost() {
    if without_llvm("bus mastering") {
        return;
    }
    let mut f = Full::new(2);
    f.b.give_vmid(12, &f.p);
    let s = slot(1, 0);
    f.b.hqd_load(s, &f.q, 12);
    let count = f.count;
    f.until(|b| Full::waves(b) == count);
    blank(&f);
    f.b.wr(0x8088, s.select());
    f.b.wr(hqd(152), 1);
    f.b.wr(0x8088, 0);
    f.b.advance(200_000);
    for _ in 0..30 {
        pressed(&mut f.b);
    }
    let before = written(&f);
    assert!(before > PIECE);
    assert!(f.b.hqd_active(s), "it has not left");
    let blocked = f.b.gpu.soc.log.stats.dma_blocked;
    f.b.gpu.soc.mem.set_bus_master(false);
    for _ in 0..10 {
        pressed(&mut f.b);
    }
    assert!(!f.b.hqd_active(s));
    assert!(f.b.gpu.soc.log.stats.dma_blocked > blocked);
    assert_eq!(written(&f), before);
    f.b.gpu.soc.mem.set_bus_master(true);
    others_run(&mut f.b);
    f.b.no_errors();
}

/// A dequeue request that is withdrawn, and an engine that is halted: the waves go on where they were.
#[test]
fn a_save_that_nobody_wants_any_more_ends() {
    if without_llvm("a withdrawn request") {
        return;
    }
    for halt in [false, true] {
        let mut f = Full::new(2);
        f.b.give_vmid(12, &f.p);
        let s = slot(1, 0);
        f.b.hqd_load(s, &f.q, 12);
        let count = f.count;
        f.until(|b| Full::waves(b) == count);
        for _ in 0..2 {
            f.b.wr(0x8088, s.select());
            f.b.wr(hqd(152), 1);
            f.b.wr(0x8088, 0);
            f.b.advance(200_000);
            for _ in 0..30 {
                pressed(&mut f.b);
            }
            assert_eq!(Full::waves(&f.b), 0);
            assert!(f.b.hqd_active(s));
            f.b.wr(0x8088, s.select());
            if halt {
                f.b.wr(0x8234, 1 << 30);
            } else {
                f.b.wr(hqd(152), 0);
            }
            f.b.wr(0x8088, 0);
            f.until(|b| Full::waves(b) == count);
            assert!(f.b.hqd_active(s));
            f.b.wr(0x8088, s.select());
            f.b.wr(hqd(152), 0);
            f.b.wr(0x8088, 0);
            f.b.wr(0x8234, 0);
        }
        f.end();
    }
}

/// Somebody else's request that ends, and there may be many, does not end the save of a queue that a register takes off.
#[test]
fn a_save_goes_on_while_others_withdraw_requests() {
    if without_llvm("others' requests") {
        return;
    }
    let mut f = Full::new(2);
    f.b.give_vmid(12, &f.p);
    let (s, other) = (slot(1, 0), slot(2, 1));
    f.b.hqd_load(s, &f.q, 12);
    let count = f.count;
    f.until(|b| Full::waves(b) == count);
    let request = |b: &mut Bench, select: u32, v: u32| {
        b.wr(0x8088, select);
        b.wr(hqd(152), v);
        b.wr(0x8088, 0);
    };
    request(&mut f.b, s.select(), 1);
    f.b.advance(200_000);
    let mut steps = 0;
    while f.b.hqd_active(s) {
        request(&mut f.b, other.select(), 0);
        pressed(&mut f.b);
        steps += 1;
        assert!(steps < 1000, "it never ends");
    }
    assert!(steps > 40);
    assert_ne!(f.saved(), (0, 0));
    f.b.hqd_load(other, &f.q, 12);
    f.until(|b| Full::waves(b) == count);
    f.end();
}

/// A packet that comes while the queue is being saved is there when it is back, and begins no dispatch before.
#[test]
fn packets_that_come_meanwhile_wait() {
    if without_llvm("packets meanwhile") {
        return;
    }
    let (mut f, fence) = halfway(false);
    // The same dispatch once more, with a signal behind that of the first.
    let mut packet = f.b.words(f.q.ring, 16);
    let second = f.done + 0x100;
    packet[14] += 0x100;
    // It need not wait for the first one.
    packet[0] &= !0x100;
    f.b.set64(second, 1);
    f.dispatches = 2;
    f.b.set_words(f.q.ring + 64, &packet);
    f.b.set64(f.q.ptrs + 64, 2);
    f.b.bell(f.q.doorbell, 1);
    for _ in 0..5 {
        pressed(&mut f.b);
        assert_eq!(Full::waves(&f.b), 0);
    }
    wait(&mut f.b, fence);
    let (stack, _) = f.saved();
    assert_eq!(stack, 8 * (1 + f.count), "the waves of the first one");
    f.map();
    f.end();
    f.until(|b| b.ram64(second) == 0);
    f.b.no_errors();
}

/// A queue that takes its time to leave does so before the first piece.
#[test]
fn a_slow_preemption_comes_first() {
    if without_llvm("a slow preemption") {
        return;
    }
    let mut f = Full::new(1);
    f.map();
    blank(&f);
    assert!(f.b.gpu.soc.inject.add(Injection {
        kind: Kind::SlowPreempt,
        doorbell: None,
        count: None,
        ms: Some(5),
    }));
    let fence = f.b.unmap(3, 0, 0);
    for _ in 0..50 {
        pressed(&mut f.b);
    }
    assert_eq!(written(&f), 0);
    f.b.advance(6_000_000);
    wait(&mut f.b, fence);
    assert_ne!(f.saved(), (0, 0));
    f.map();
    f.end();
}

/// Another queue runs packets between the pieces.
#[test]
fn others_go_on_while_a_queue_is_saved() {
    if without_llvm("others") {
        return;
    }
    let mut f = Full::new(4);
    let mut other: UserQueue = f.p.queue(&mut f.b);
    let (va, bus) = f.p.page(&mut f.b, 0x1000);
    let mut list = f.p.map_process(&f.b, 2);
    list.extend(f.q.map_queues());
    list.extend(other.map_queues());
    f.b.run_list(&list, false, 1);
    let count = f.count;
    f.until(|b| Full::waves(b) == count);
    for n in 1..=200 {
        other.push(&mut f.b, &write_data(va, n));
    }
    f.b.submit_hiq(&[0xc004_a300, 1 << 29, f.q.doorbell as u32, 0, 0, 0]);
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
    for _ in 0..3 {
        pressed(&mut f.b);
    }
    assert_eq!(f.b.ram32(bus), 0);
    other.ring_bell(&mut f.b);
    for n in 1..=40 {
        for _ in 0..3 {
            pressed(&mut f.b);
        }
        let done = f.b.ram32(bus);
        assert!(
            done >= n && done < 200,
            "{done} packets after {n} times three steps"
        );
        assert_ne!(f.b.ram64(fence.bus), 100);
    }
    wait(&mut f.b, fence);
    assert_ne!(f.saved(), (0, 0));
    assert!(
        active(&mut f.b, FIRST | 1),
        "the other queue is not to leave"
    );
    f.b.no_errors();
}
