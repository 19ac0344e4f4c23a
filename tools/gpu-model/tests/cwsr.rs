// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Preempted queues are saved where GET_QUEUE_WAVE_STATE looks, and go on at the exact packet.

mod common;

use common::direct::slot;
use common::fixture::Fixture;
use common::queue::{indirect, wait_mem, write_data};
use common::Bench;
use gpu_model::asic::{Asic, SaveSizes, GFX906, GFX90A};
use gpu_model::board::Board;
use proptest::prelude::*;

fn fixture(aql: bool) -> Fixture {
    fixture_of(&GFX90A, aql)
}

/// On a board with one compute unit, whose areas are small.
fn fixture_of(asic: &'static Asic, aql: bool) -> Fixture {
    let board = Board {
        compute_units: 1,
        ..asic.board
    };
    let b = Bench::on_board(asic, board).schedule();
    Fixture::on(b, 0x51, 0x4000, |b, p, _| {
        let q = p.queue(b);
        let q = if aql { q.into_aql(b) } else { q };
        q.with_cwsr(b, p)
    })
}

/// Bytes of the area, from the MQD.
fn area_bytes(f: &Fixture) -> u32 {
    f.b.ram32(f.q.mqd.bus + 177 * 4)
}

/// All of the area.
fn area(f: &Fixture) -> Vec<u8> {
    let mut bytes = vec![0; area_bytes(f) as usize];
    f.b.ram_read(f.q.save.0, &mut bytes);
    bytes
}

/// Stores dwords in the MQD from `dw` on.
fn set_mqd(f: &Fixture, dw: u64, words: &[u32]) {
    f.b.set_words(f.q.mqd.bus + dw * 4, words);
}

fn again(f: &mut Fixture) {
    f.resume();
    f.b.run_for(3_000_000);
}

/// Used control stack and wave state, as get_wave_state() computes them.
fn sizes(f: &Fixture) -> (u32, u32) {
    let dw = |i: u64| f.b.ram32(f.q.mqd.bus + i * 4);
    assert_eq!(dw(175), f.q.save.1);
    (dw(175) - dw(174), dw(176) - dw(175))
}

fn wait(va: u64) -> Vec<u32> {
    wait_mem(va, 1)
}

#[test]
fn an_idle_queue_saves_nothing() {
    let mut f = fixture(false);
    f.q.send(&mut f.b, &write_data(f.va, 1));
    f.preempt();
    assert_eq!(sizes(&f), (0, 0));
    assert!(area(&f).iter().all(|b| *b == 0));
    f.b.no_errors();
}

#[test]
fn a_queue_in_a_chained_buffer_is_saved_and_resumed() {
    let mut f = fixture(false);
    // The ring calls one, which chains to two, which calls three, which waits.
    let (one, two, three) = (0x1000u64, 0x1800u64, 0x2000u64);
    let mut w1 = write_data(f.va, 1);
    w1.extend(indirect(f.va + two, 14, true));
    w1.extend(write_data(f.va + 0x40, 99));
    let mut w2 = write_data(f.va + 4, 2);
    w2.extend(indirect(f.va + three, 17, false));
    w2.extend(write_data(f.va + 16, 5));
    let mut w3 = write_data(f.va + 8, 3);
    w3.extend(wait(f.va + 0x800));
    w3.extend(write_data(f.va + 12, 4));
    for (at, w) in [(one, &w1), (two, &w2), (three, &w3)] {
        f.b.set_words(f.bus + at, w);
    }
    f.q.push(&mut f.b, &indirect(f.va + one, w1.len() as u32, false));
    f.q.send(&mut f.b, &write_data(f.va + 20, 6));
    for _ in 0..3 {
        assert_eq!(f.b.words(f.bus, 6), [1, 2, 3, 0, 0, 0]);
        f.preempt();
        let (stack, state) = sizes(&f);
        assert!(stack > 0 && state > 0 && state % 4 == 0);
        // The control stack entry lies in the kernel's copy, at the offset that KFD copies from.
        let entry = f.q.mqd.bus + 4096 + u64::from(f.q.save.1 - stack);
        assert_ne!(f.b.ram32(entry), 0);
        // The state lies behind the user's control stack, the header before it is left to KFD.
        let bytes = area(&f);
        let (head, rest) = bytes.split_at(f.q.save.1 as usize);
        let (state, rest) = rest.split_at(state as usize);
        assert!(head.iter().chain(rest).all(|b| *b == 0));
        assert!(state.iter().any(|b| *b != 0));
        again(&mut f);
    }
    f.b.set32(f.bus + 0x800, 1);
    f.b.run_for(3_000_000);
    assert_eq!(f.b.words(f.bus, 6), [1, 2, 3, 4, 5, 6]);
    assert_eq!(f.b.ram32(f.bus + 0x40), 0);
    f.preempt();
    assert_eq!(sizes(&f), (0, 0));
    f.b.no_errors();
}

#[test]
fn a_waiting_ring_packet_and_a_barrier_go_on() {
    let mut f = fixture(false);
    f.q.push(&mut f.b, &wait(f.va + 0x800));
    f.q.send(&mut f.b, &write_data(f.va, 7));
    f.preempt();
    assert_ne!(sizes(&f), (0, 0));
    again(&mut f);
    f.b.set32(f.bus + 0x800, 1);
    f.b.run_for(3_000_000);
    assert_eq!(f.b.ram32(f.bus), 7);
    f.b.no_errors();

    let mut f = fixture(true);
    let mut packet = [0u32; 16];
    packet[0] = 3;
    let gate = f.va + 0x800;
    packet[2..4].copy_from_slice(&[gate as u32, (gate >> 32) as u32]);
    let done = f.va + 64;
    packet[14..16].copy_from_slice(&[done as u32, (done >> 32) as u32]);
    f.b.set64(f.bus + 0x808, 1);
    f.b.set64(f.bus + 72, 5);
    f.q.send_aql(&mut f.b, &packet);
    f.preempt();
    assert_ne!(sizes(&f), (0, 0));
    again(&mut f);
    assert_eq!(f.b.ram64(f.bus + 72), 5);
    f.b.set64(f.bus + 0x808, 0);
    f.b.run_for(3_000_000);
    assert_eq!((f.b.ram64(f.bus + 72), f.b.ram64(f.q.ptrs)), (4, 1));
    f.b.no_errors();
}

/// The driver may move the saved queue: another slot, another way of loading.
#[test]
fn a_saved_queue_can_be_loaded_by_registers() {
    let mut f = fixture(false);
    let mut ib = wait(f.va + 0x800);
    ib.extend(write_data(f.va, 3));
    f.b.set_words(f.bus + 0x1000, &ib);
    f.q.send(&mut f.b, &indirect(f.va + 0x1000, ib.len() as u32, false));
    f.preempt();
    f.b.give_vmid(12, &f.p);
    f.b.hqd_load(slot(1, 0), &f.q, 12);
    f.b.run_for(3_000_000);
    assert!(f.b.hqd_destroy(slot(1, 0), 3, 0));
    assert_ne!(sizes(&f), (0, 0));
    f.b.set32(f.bus + 0x800, 1);
    f.b.hqd_load(slot(2, 1), &f.q, 12);
    f.b.run_for(3_000_000);
    assert_eq!(f.b.ram32(f.bus), 3);
    // A reset leaves nothing behind.
    f.b.set32(f.bus + 0x800, 0);
    f.q.send(&mut f.b, &indirect(f.va + 0x1000, ib.len() as u32, false));
    assert!(f.b.hqd_destroy(slot(2, 1), 2, 0));
    assert_eq!(sizes(&f), (0, 0));
    f.b.no_errors();
}

#[test]
fn a_save_area_that_was_changed_is_noticed_and_the_queue_goes_on() {
    let mut f = fixture(false);
    let mut ib = wait(f.va + 0x800);
    ib.extend(write_data(f.va, 3));
    f.b.set_words(f.bus + 0x1000, &ib);
    f.q.push(&mut f.b, &indirect(f.va + 0x1000, ib.len() as u32, false));
    f.q.send(&mut f.b, &write_data(f.va + 4, 4));
    f.preempt();
    let at = f.q.save.0 + u64::from(f.q.save.1) + 48;
    let word = f.b.ram32(at);
    f.b.set32(at, word ^ 0x100);
    again(&mut f);
    assert_eq!(f.b.gpu.soc.log.stats.saves_changed, 1);
    f.b.set32(f.bus + 0x800, 1);
    f.b.run_for(3_000_000);
    assert_eq!(f.b.words(f.bus, 2), [3, 4]);
    f.b.no_errors();
}

/// Queues that run no waves may share an area, as a user library does to save memory.
#[test]
fn queues_that_share_an_area_keep_their_place() {
    let mut f = fixture(false);
    f.preempt();
    let mut other = f.p.queue(&mut f.b).with_cwsr(&mut f.b, &mut f.p);
    let area = f.b.words(f.q.mqd.bus + 171 * 4, 2);
    f.b.set_words(other.mqd.bus + 171 * 4, &area);
    f.list = f.p.map_process(&f.b, 2);
    f.list.extend(f.q.map_queues());
    f.list.extend(other.map_queues());
    again(&mut f);
    for (i, q) in [&mut f.q, &mut other].into_iter().enumerate() {
        let (at, out) = (0x1000 + 0x100 * i as u64, 4 * i as u64);
        let mut ib = wait(f.va + 0x800);
        ib.extend(write_data(f.va + out, 3 + i as u32));
        f.b.set_words(f.bus + at, &ib);
        q.send(&mut f.b, &indirect(f.va + at, ib.len() as u32, false));
    }
    f.preempt();
    again(&mut f);
    assert_eq!(f.b.gpu.soc.log.stats.saves_changed, 1);
    f.b.set32(f.bus + 0x800, 1);
    f.b.run_for(3_000_000);
    assert_eq!(f.b.words(f.bus, 2), [3, 4]);
    f.b.no_errors();
}

/// An area that is not there at preemption does not lose the queue.
#[test]
fn an_area_without_pages_is_told_and_survived() {
    let mut f = fixture(false);
    let base = f.b.words(f.q.mqd.bus + 171 * 4, 2);
    let at = (u64::from(base[0]) | (u64::from(base[1]) << 32)) + u64::from(f.q.save.1);
    let pte = f.p.pte_at(&mut f.b, at);
    f.b.vram_write(pte, &[0; 8]);
    f.b.flush_vmid(3);
    let mut ib = wait(f.va + 0x800);
    ib.extend(write_data(f.va, 3));
    f.b.set_words(f.bus + 0x1000, &ib);
    f.q.send(&mut f.b, &indirect(f.va + 0x1000, ib.len() as u32, false));
    let before = f.b.gpu.soc.log.stats.user_errors;
    f.preempt();
    assert_eq!(f.b.gpu.soc.log.stats.user_errors - before, 1);
    assert_eq!(sizes(&f), (0, 0));
    again(&mut f);
    f.b.set32(f.bus + 0x800, 1);
    f.b.run_for(3_000_000);
    assert_eq!(f.b.ram32(f.bus), 3);
    f.b.no_errors();
}

#[test]
fn an_area_that_is_too_small_is_the_drivers_mistake() {
    let mut f = fixture(false);
    f.preempt();
    set_mqd(&f, 177, &[f.q.save.1]);
    again(&mut f);
    f.b.expect_errors(&["cwsr"]);
    f.q.send(&mut f.b, &wait(f.va + 0x800));
    f.preempt();
    f.b.expect_errors(&["cwsr"]);
    // Contradicting offsets in the MQD.
    set_mqd(&f, 176, &[f.q.save.1 + 4]);
    again(&mut f);
    f.b.expect_errors(&["mqd", "cwsr"]);
}

#[test]
fn a_wave_leaves_as_much_as_its_registers_need() {
    for (asic, vgprs) in [(&GFX90A, 8 * 256), (&GFX906, 4 * 256)] {
        let mut f = fixture_of(asic, false);
        f.q.send(&mut f.b, &wait(f.va + 0x800));
        f.preempt();
        // One entry; vector registers of 64 lanes, 16 scalar and 128 bytes of hardware registers.
        assert_eq!(sizes(&f), (8, vgprs + 64 + 128), "{}", asic.name);
        f.b.no_errors();
    }
}

/// `kfd_queue_ctx_save_restore_size`, worked out by hand.
#[test]
fn sizes_of_real_boards() {
    let sizes = |stack, area| SaveSizes { stack, area };
    for (asic, units, want) in [
        (&GFX90A, 104, sizes(0x9000, 0x3c9_1000)),
        (&GFX90A, 110, sizes(0x9000, 0x400_f000)),
        (&GFX90A, 1, sizes(0x1000, 0x9_6000)),
        (&GFX906, 60, sizes(0x5000, 0x13f_1000)),
        (&GFX906, 1, sizes(0x1000, 0x5_6000)),
    ] {
        assert_eq!(asic.save_sizes(units), want, "{} {units}", asic.name);
    }
}

/// Each driver here sizes or places the area in a way that another ASIC, board or unit of length would permit.
#[test]
fn areas_that_do_not_hold_the_waves_of_this_board() {
    for (dw, what) in [(177, "area"), (175, "stack"), (171, "base")] {
        let mut f = fixture(false);
        f.preempt();
        let (stack, size) = (f.q.save.1, area_bytes(&f));
        let base = f.b.ram32(f.q.mqd.bus + 171 * 4);
        match dw {
            // The vector registers of gfx906.
            177 => set_mqd(&f, 177, &[size - 0x4_0000]),
            // Without the page that header and entries round up to.
            175 => set_mqd(&f, 174, &[stack - 0x800, stack - 0x800, stack - 0x800]),
            _ => set_mqd(&f, 171, &[base + 0x100]),
        }
        again(&mut f);
        f.b.expect_errors(&["cwsr"]);
        f.preempt();
        // As it has to be.
        set_mqd(&f, 171, &[base]);
        set_mqd(&f, 174, &[stack, stack, stack, size]);
        again(&mut f);
        assert_eq!(f.b.errors(), Vec::<String>::new(), "{what}");
    }
}

#[test]
fn a_board_with_more_units_needs_more() {
    let board = Board {
        compute_units: 2,
        ..GFX90A.board
    };
    let mut b = Bench::on_board(&GFX90A, board).schedule();
    let mut p = common::proc::Proc::new(&mut b, 0x51, 0);
    let q = p.queue(&mut b).with_cwsr(&mut b, &mut p);
    let mut list = p.map_process(&b, 1);
    list.extend(q.map_queues());
    b.run_list(&list, false, 1);
    b.run();
    b.expect_errors(&["cwsr"]);
    b.unmap(3, 0, 0);
    b.run();
    // A driver that gives one of them up needs the area of the other only.
    // GRBM_GFX_INDEX: engine 1, all its arrays; GC_USER_SHADER_ARRAY_CONFIG: every unit given up.
    b.wr(0x3_0800, (1 << 16) | (1 << 29) | (1 << 30));
    b.wr(0x89c0, 0xffff << 16);
    b.wr(0x3_0800, 0xe000_0000);
    b.run_list(&list, false, 1);
    b.run();
    b.no_errors();
}

/// The control stack lies in the pages behind the MQD, all of it.
#[test]
fn an_mqd_without_room_for_the_control_stack() {
    let mut f = fixture(false);
    f.q.send(&mut f.b, &wait(f.va + 0x800));
    f.b.unmap_gart(f.q.mqd.gart + 4096);
    f.preempt();
    f.b.expect_errors(&["cwsr"]);
    assert_eq!(sizes(&f), (0, 0));
}

/// A user area of which only the used part is there would not hold a queue that is full of waves.
#[test]
fn an_area_without_its_last_page() {
    let mut f = fixture(false);
    let base = f.b.ram64(f.q.mqd.bus + 171 * 4);
    let last = base + u64::from(area_bytes(&f)) - 4096;
    let pte = f.p.pte_at(&mut f.b, last);
    f.b.vram_write(pte, &[0; 8]);
    f.b.flush_vmid(3);
    f.q.send(&mut f.b, &wait(f.va + 0x800));
    let before = f.b.gpu.soc.log.stats.user_errors;
    f.preempt();
    assert_eq!(f.b.gpu.soc.log.stats.user_errors - before, 1);
    assert_eq!(sizes(&f), (0, 0));
    f.b.no_errors();
}

/// A packet of a random program; its effect shows in a log that only grows.
fn program() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(0u8..5, 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// However often a queue is preempted, it does what it does without: every packet once, in order.
    #[test]
    fn preemption_changes_nothing(ops in program(), cuts in proptest::collection::vec(any::<bool>(), 40)) {
        let mut f = fixture(false);
        let (mut ring, mut ib) = (Vec::new(), Vec::new());
        let counter = f.va;
        let mut log = 0u32;
        // Each step adds one to a counter and notes the counter: repeated or lost packets show.
        let step = |log: &mut u32| {
            let mut w = vec![0xc007_1e00, 0x4f, counter as u32, (counter >> 32) as u32, 1, 0, 0, 0, 0];
            let at = f.va + 0x100 + 4 * u64::from(*log);
            w.extend([0xc004_4000, 1 | (5 << 8), counter as u32, (counter >> 32) as u32, at as u32, (at >> 32) as u32]);
            *log += 1;
            w
        };
        let mut gates = 0u64;
        for op in ops {
            match op {
                0 | 1 => ring.extend(step(&mut log)),
                // A gate that the test opens later.
                2 => {
                    ring.extend(wait(f.va + 0x800 + 4 * gates));
                    gates += 1;
                }
                // A buffer with a step, a gate, a step.
                _ => {
                    let at = 0x1000 + 4 * ib.len() as u64;
                    let mut w = step(&mut log);
                    w.extend(wait(f.va + 0x800 + 4 * gates));
                    gates += 1;
                    w.extend(step(&mut log));
                    ring.extend(indirect(f.va + at, w.len() as u32, false));
                    ib.extend(w);
                }
            }
        }
        f.b.set_words(f.bus + 0x1000, &ib);
        f.q.push(&mut f.b, &ring);
        f.q.ring_bell(&mut f.b);
        let mut cuts = cuts.into_iter();
        for gate in 0..=gates {
            f.b.run_for(3_000_000);
            if cuts.next().unwrap_or(false) {
                f.preempt();
                again(&mut f);
            }
            f.b.set32(f.bus + 0x800 + 4 * gate, 1);
        }
        f.b.run_for(5_000_000);
        prop_assert_eq!(f.b.ram32(f.bus), log);
        let want: Vec<u32> = (1..=log).collect();
        prop_assert_eq!(f.b.words(f.bus + 0x100, log as usize), want);
        f.b.no_errors();
    }
}
