// SPDX-License-Identifier: GPL-2.0 OR MIT
//! PM4 packets of user queues: what they do, what they must not do, and for how long at a time.

mod common;

use common::direct::hqd;
use common::fixture::{Fixture, FIRST};
use common::queue::{indirect, release_mem, wait_mem, write_data};
use gpu_model::asic::GFX90A;

fn fixture() -> Fixture {
    Fixture::new(&GFX90A, 0x61, 0x4000)
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
    let now = f.b.gpu.soc.clock.ticks();
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
    ib.extend(wait_mem(target, 0xdead_beef));
    ib.extend(write_data(a + 0x700, 6));
    f.b.set_words(f.bus + 0x2000, &ib);
    f.q.send(&mut f.b, &indirect(a + 0x2000, ib.len() as u32, false));
    assert_eq!(f.b.ram32(f.bus + 0x700), 6);
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
    assert_eq!(f.b.gpu.soc.log.stats.user_errors, 1);
    let fence = f.b.unmap(3, 0, 0);
    f.b.run();
    assert_eq!(f.b.ram64(fence.bus), 100);
}

#[test]
fn packets_without_their_last_dword_are_bad() {
    // RELEASE_MEM has 8 dwords, ATOMIC_MEM 9; the bad-opcode interrupt, exception 20.
    let cases: [(&[u32], usize); 2] =
        [(&[0xc005_4900, 0x514, 1 << 29], 7), (&[0xc006_1e00, 47], 8)];
    for (start, len) in cases {
        let mut f = fixture();
        let mut words = start.to_vec();
        if len == 8 {
            words.extend([f.va as u32, (f.va >> 32) as u32, 1, 0]);
        } else {
            words.extend([f.va as u32, (f.va >> 32) as u32, 1]);
        }
        words.resize(len, 0);
        f.q.send(&mut f.b, &words);
        let ivs = f.b.irqs();
        assert_eq!(
            ivs.iter()
                .map(|v| (v.source, v.data[0] >> 10))
                .collect::<Vec<_>>(),
            [(183, 20)],
            "{len} dwords"
        );
        assert_eq!(f.b.ram32(f.bus), 0, "{len} dwords");
        f.b.no_errors();
    }
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

/// CP_HQD_QUANTUM decides how many packets a queue runs before others get their turn.
#[test]
fn the_quantum_of_a_queue_is_the_length_of_its_turn() {
    for (quantum, want) in [(0x111, 64), (0x311, 192), (0x501, 40), (0x110, 64)] {
        let mut f = fixture();
        f.preempt();
        let mut other = f.p.queue(&mut f.b);
        let mut list = f.p.map_process(&f.b, 2);
        for q in [&f.q, &other] {
            list.extend(q.map_queues());
            f.b.set32(q.mqd.bus + 135 * 4, quantum);
        }
        f.b.run_list(&list, false, 1);
        f.b.run();
        for (q, at) in [(&mut f.q, f.va), (&mut other, f.va + 8)] {
            let (lo, hi) = (at as u32, (at >> 32) as u32);
            // ATOMIC_MEM: add one.
            for _ in 0..110 {
                q.push(&mut f.b, &[0xc007_1e00, 0x4f, lo, hi, 1, 0, 0, 0, 0]);
            }
            q.ring_bell(&mut f.b);
        }
        // Whoever is first runs its whole turn before the other begins, however many steps that takes.
        let counts = |b: &common::Bench| [b.ram32(f.bus), b.ram32(f.bus + 8)];
        while counts(&f.b).contains(&0) {
            let _ = f.b.gpu.step();
        }
        let first = counts(&f.b).into_iter().max();
        assert_eq!(first, Some(want.min(110)), "quantum {quantum:#x}");
        f.b.run();
        assert_eq!(counts(&f.b), [110, 110]);
        f.b.no_errors();
    }
}

const COPY: u32 = 0xc004_4000;
const WIDE: u32 = 1 << 16;

/// Each packet that can read or write a register: what a user must not reach is the user's mistake, not the driver's.
#[test]
fn registers_out_of_reach_are_mistakes_of_the_user() {
    // A place where no register is, and a register that has to be selected first; the last one that users reach.
    let (hole, banked, last) = (0x4000u32, 0x3245, 0xcfff);
    type Make = fn(u64, u32) -> Vec<u32>;
    let cases: [(&str, Make, u32); 8] = [
        ("copy from a hole", |va, r| copy(5 << 8, r, va), hole),
        ("copy from an HQD", |va, r| copy(5 << 8, r, va), banked),
        ("wide copy from", |va, r| copy((5 << 8) | WIDE, r, va), last),
        (
            "wide copy to",
            |_, r| vec![COPY, 5 | WIDE, 1, 2, r, 0],
            last,
        ),
        ("copy to", |_, r| vec![COPY, 5, 1, 2, r, 0], hole),
        ("wait", |_, r| vec![0xc005_3c00, 3, r, 0, 0, !0, 4], hole),
        (
            "wait for an acknowledgement",
            |_, r| vec![0xc005_3c00, 3 | (1 << 6), 0xc040, r, 7, !0, 4],
            banked,
        ),
        (
            "set a range",
            |_, r| vec![0xc002_7900, r - 0xc000, 5, 6],
            last,
        ),
    ];
    for (name, packet, register) in cases {
        let mut f = fixture();
        f.b.wr(0x8088, 1 << 2);
        f.b.wr(0xc2d0, 0x0580_0000);
        f.b.wr(0x8088, 0);
        let words = packet(f.va, register);
        f.q.send(&mut f.b, &words);
        f.b.no_errors();
        assert_eq!(f.b.gpu.soc.log.stats.user_errors, 1, "{name}");
        assert_eq!(f.b.irqs()[0].source, 184, "{name}");
        assert_eq!(f.b.rd(0x30100), 0, "{name}: SCRATCH_REG0 was requested");
        f.preempt();
    }
}

/// COPY_DATA from a register to memory.
fn copy(control: u32, register: u32, va: u64) -> Vec<u32> {
    vec![COPY, control, register, 0, va as u32, (va >> 32) as u32]
}

#[test]
fn users_read_and_write_the_user_config_space() {
    let mut f = fixture();
    f.q.send(&mut f.b, &[COPY, 5 | WIDE, 0x11, 0x22, 0xc040, 0]);
    let back = copy((5 << 8) | WIDE, 0xc040, f.va);
    f.q.send(&mut f.b, &back);
    assert_eq!(f.b.words(f.bus, 2), [0x11, 0x22]);
    f.b.no_errors();
}

/// CP_HQD_IB_CONTROL: the size, and in bit 31 that an indirect buffer runs; CP_HQD_IB_RPTR where it stands.
#[test]
fn the_registers_tell_where_an_indirect_buffer_stands() {
    let mut f = fixture();
    let shown = |f: &mut Fixture| {
        f.b.wr(0x8088, FIRST);
        let words = [146, 147, 149, 148].map(|dw| f.b.rd(hqd(dw)));
        f.b.wr(0x8088, 0);
        (words[0], words[1], words[2] & !0x7ff0_0000, words[3])
    };
    assert_eq!(shown(&mut f).2 >> 31, 0);
    let mut ib = write_data(f.va, 7);
    ib.extend(wait_mem(f.va + 8, 5));
    f.b.set_words(f.bus + 0x1000, &ib);
    let jump = indirect(f.va + 0x1000, ib.len() as u32, false);
    f.q.send(&mut f.b, &jump);
    assert_eq!(f.b.ram32(f.bus), 7);
    let at = f.va + 0x1000;
    let (lo, hi, control, pos) = shown(&mut f);
    assert_eq!((lo, hi), (at as u32, (at >> 32) as u32));
    // Behind the first packet, at the one that waits.
    assert_eq!((control, pos), ((1 << 31) | ib.len() as u32, 5));
    f.b.set32(f.bus + 8, 5);
    f.b.run_for(5_000_000);
    assert_eq!(shown(&mut f).2 >> 31, 0);
    f.b.no_errors();
}

/// The read pointer wraps, so a ring without a free dword looks empty.
/// CP_HQD_PQ_CONTROL.PQ_EMPTY is bit 15.
#[test]
fn the_registers_tell_whether_the_ring_is_empty() {
    let mut f = fixture();
    let empty = |f: &mut Fixture| {
        f.b.wr(0x8088, FIRST);
        let v = f.b.rd(hqd(145));
        f.b.wr(0x8088, 0);
        (v >> 15) & 1
    };
    assert_eq!(empty(&mut f), 1);
    f.q.send(&mut f.b, &wait_mem(f.va, 5));
    assert_eq!(empty(&mut f), 0);
    f.b.set32(f.bus, 5);
    f.b.run_for(5_000_000);
    assert_eq!(empty(&mut f), 1);
    // It is a state of the slot, not of the queue: what is saved knows nothing of it.
    f.preempt();
    assert_eq!((f.b.ram32(f.q.mqd.bus + 145 * 4) >> 15) & 1, 0);
    f.b.no_errors();
}

#[test]
fn a_ring_filled_to_the_last_dword_is_a_mistake() {
    const NOP: u32 = 0xffff_1000;
    let mut f = fixture();
    f.q.send(&mut f.b, &[NOP; 1023]);
    assert_eq!(
        (f.b.gpu.soc.log.stats.user_errors, f.b.ram32(f.q.ptrs)),
        (0, 1023)
    );
    f.q.send(&mut f.b, &[NOP; 1024]);
    assert_eq!(
        (f.b.gpu.soc.log.stats.user_errors, f.b.ram32(f.q.ptrs)),
        (1, 1023)
    );
    f.b.no_errors();
    // The KIQ is the driver's.
    let wptr = f.b.kiq.as_ref().map_or(0, |kiq| kiq.wptr);
    f.b.bell(0, wptr + 512);
    f.b.run();
    f.b.expect_errors(&["wptr-beyond-ring"]);
}

/// CP_HQD_PIPE_PRIORITY and CP_HQD_QUEUE_PRIORITY decide who is first where several queues are ready.
#[test]
fn queues_of_higher_priority_run_first() {
    // Of the first queue and of the other: pipe priority, queue priority.
    for (first, other_one) in [
        ((0, 0), (2, 0)),
        ((2, 0), (0, 15)),
        ((1, 0), (1, 4)),
        ((1, 7), (1, 3)),
    ] {
        let mut f = fixture();
        f.preempt();
        let mut other = f.p.queue(&mut f.b);
        let mut list = f.p.map_process(&f.b, 2);
        for (q, (pipe, queue)) in [(&f.q, first), (&other, other_one)] {
            list.extend(q.map_queues());
            f.b.set32(q.mqd.bus + 133 * 4, pipe);
            f.b.set32(q.mqd.bus + 134 * 4, queue);
        }
        f.b.run_list(&list, false, 1);
        f.b.run();
        let last = if first > other_one { 2 } else { 1 };
        // Wherever the round begins, the last to write is the one that may wait.
        for _ in 0..70 {
            f.q.push(&mut f.b, &write_data(f.va, 1));
            other.push(&mut f.b, &write_data(f.va, 2));
            f.q.ring_bell(&mut f.b);
            other.ring_bell(&mut f.b);
            f.b.run();
            assert_eq!(f.b.ram32(f.bus), last, "{first:?} {other_one:?}");
        }
        f.b.no_errors();
    }
}
