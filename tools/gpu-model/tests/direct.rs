// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Queues that the driver loads itself, by registers and with VMIDs of its own choice.

mod common;

use common::direct::{hqd, inject, one, ready, slot, Slot};
use common::fixture;
use common::proc::Proc;
use common::queue::{indirect, release_mem, wait_mem, write_data, UserQueue};
use common::Bench;
use gpu_model::asic::{GFX906, GFX90A};
use gpu_model::control::answer;
use gpu_model::inject::Kind;

const S: Slot = slot(3, 7);

#[test]
fn load_polls_the_write_pointer_and_dequeue_saves() {
    for asic in [&GFX90A, &GFX906] {
        let (mut b, _, mut q, va, bus) = one(asic);
        // Work is there before the queue is.
        q.push(&mut b, &write_data(va, 0x1111));
        b.hqd_load(S, &q, 9);
        b.run();
        assert_eq!(b.ram32(bus), 0x1111);
        q.send(&mut b, &release_mem(va + 8, 3, 9));
        assert_eq!(b.ram64(bus + 8), 3);
        let ivs = b.irqs();
        assert_eq!(
            (ivs[0].vmid, ivs[0].pasid, ivs[0].ring_id, ivs[0].data[0]),
            (9, 0x71, (7 << 4) | (1 << 2) | 3, 9)
        );
        // SPI_CSQ_WF_ACTIVE_STATUS shows the slot.
        assert_eq!(b.rd(0x936c), 1 << (3 * 8 + 7));
        assert!(b.hqd_destroy(S, 1, 0));
        assert_eq!(b.hqd_reg(S, 138), 13);
        assert_eq!(b.ram32(q.mqd.bus + 138 * 4), 13);
        assert_eq!(b.rd(0x936c), 0);
        // A doorbell of a queue that is not there is lost, the memory pointer is not.
        q.send(&mut b, &write_data(va, 0x2222));
        assert_eq!(b.ram32(bus), 0x1111);
        b.hqd_load(slot(0, 0), &q, 9);
        b.run();
        assert_eq!(b.ram32(bus), 0x2222);
        b.no_errors();
    }
}

/// Two queues of each of thirteen processes, all at once: nobody sees another's memory.
#[test]
fn every_slot_runs_its_own_process() {
    let mut b = ready(&GFX90A);
    let mut all = Vec::new();
    for v in 3..16u32 {
        let mut p = Proc::new(&mut b, 0x300 + v as u16, u64::from(v));
        let (va, bus) = p.page(&mut b, 4096);
        b.give_vmid(v, &p);
        for _ in 0..2 {
            all.push((p.queue(&mut b), v, va, bus));
        }
    }
    for (i, (q, v, ..)) in all.iter().enumerate() {
        b.hqd_load(slot(i as u32 % 4, i as u32 / 4), q, *v);
    }
    for (i, (q, v, va, bus)) in all.iter_mut().enumerate() {
        // The same address in every process.
        assert_eq!(*va, 0x7000_0000_0000);
        let at = 4 * (i as u64 % 2);
        q.send(&mut b, &write_data(*va + at, 0x100 * *v + i as u32));
        assert_eq!(b.ram32(*bus + at), 0x100 * *v + i as u32);
    }
    b.no_errors();
}

#[test]
fn an_aql_queue_goes_on_at_its_packet() {
    let (mut b, mut p, _, va, bus) = one(&GFX90A);
    let q = p.queue(&mut b);
    let mut q = q.into_aql(&mut b);
    // A barrier that waits for a signal, then one that completes another.
    let mut first = [0u32; 16];
    first[0] = 3;
    first[2..4].copy_from_slice(&[va as u32, (va >> 32) as u32]);
    let mut second = [0u32; 16];
    second[0] = 3;
    let done = va + 64;
    second[14..16].copy_from_slice(&[done as u32, (done >> 32) as u32]);
    b.set64(bus + 8, 1);
    b.set64(bus + 64 + 8, 5);
    b.hqd_load(S, &q, 9);
    q.send_aql(&mut b, &first);
    q.send_aql(&mut b, &second);
    for request in [1, 2, 3] {
        assert!(b.hqd_destroy(S, request, 0));
        assert_eq!(b.ram64(q.ptrs), 0, "read_dispatch_id");
        b.hqd_load(S, &q, 9);
        b.run_for(3_000_000);
        assert_eq!(b.ram64(bus + 64 + 8), 5);
    }
    b.set64(bus + 8, 0);
    b.run_for(3_000_000);
    assert_eq!(b.ram64(bus + 64 + 8), 4);
    assert_eq!(b.ram64(q.ptrs), 2);
    b.no_errors();
}

#[test]
fn a_saved_queue_resumes_inside_its_buffer_and_a_reset_one_behind_it() {
    for (request, after) in [(1, 7), (3, 7), (2, 0)] {
        let (mut b, _, mut q, va, bus) = one(&GFX90A);
        let mut ib = wait_mem(va + 0x100, 1);
        ib.extend(write_data(va, 7));
        b.set_words(bus + 0x1000, &ib);
        q.push(&mut b, &indirect(va + 0x1000, ib.len() as u32, false));
        q.push(&mut b, &write_data(va + 4, 8));
        b.hqd_load(S, &q, 9);
        b.run_for(3_000_000);
        // CP_HQD_IQ_TIMER.ACTIVE while a packet waits.
        assert_eq!(b.hqd_reg(S, 150) >> 31, 1);
        assert!(b.hqd_destroy(S, request, 0));
        assert_eq!(b.hqd_reg(S, 150), 0);
        b.hqd_load(slot(1, 1), &q, 9);
        b.run_for(3_000_000);
        b.set32(bus + 0x100, 1);
        b.run_for(3_000_000);
        assert_eq!(b.words(bus, 2), [after, 8], "request {request}");
        b.no_errors();
    }
}

#[test]
fn slow_and_refused_dequeues() {
    let (mut b, _, mut q, va, bus) = one(&GFX90A);
    inject(&mut b, Kind::SlowPreempt, q.doorbell, Some(20));
    b.hqd_load(S, &q, 9);
    assert!(!b.hqd_destroy(S, 1, 10_000_000));
    // The queue still works until it has left.
    q.send(&mut b, &write_data(va, 1));
    assert_eq!(b.ram32(bus), 1);
    b.run_for(11_000_000);
    assert!(!b.hqd_active(S));
    b.gpu.soc.inject.clear();
    // One that does not answer stays, until it is reset; the request is then void.
    inject(&mut b, Kind::IgnorePreempt, q.doorbell, None);
    b.hqd_load(S, &q, 9);
    assert!(!b.hqd_destroy(S, 2, 1_000_000_000));
    b.wr(0x8088, S.select());
    b.wr(0xc76c, 1);
    b.wr(0x8088, 0);
    b.run_for(1_000_000);
    assert!(!b.hqd_active(S));
    q.push(&mut b, &write_data(va, 2));
    b.hqd_load(S, &q, 9);
    b.run();
    assert_eq!(b.ram32(bus), 2);
    // A request that was refused is answered once the queue can.
    inject(&mut b, Kind::IgnorePreempt, q.doorbell, None);
    assert!(!b.hqd_destroy(S, 1, 1_000_000));
    b.gpu.soc.inject.clear();
    b.gpu.soc.kick();
    b.run();
    assert!(!b.hqd_active(S));
    b.no_errors();
}

#[test]
fn a_halted_engine_answers_when_it_runs_again() {
    let (mut b, _, q, ..) = one(&GFX90A);
    b.hqd_load(S, &q, 9);
    b.wr(0x8234, 1 << 30);
    assert!(!b.hqd_destroy(S, 1, 1_000_000));
    b.wr(0x8234, 0);
    b.run();
    assert!(!b.hqd_active(S));
    b.no_errors();
}

#[test]
fn kernel_wide_polling_finds_write_pointers() {
    let (mut b, _, mut q, va, bus) = one(&GFX90A);
    b.hqd_load(S, &q, 9);
    b.run();
    q.push(&mut b, &write_data(va, 1));
    b.run_for(5_000_000);
    assert_eq!(b.ram32(bus), 0);
    // CP_PQ_WPTR_POLL_CNTL.EN.
    b.wr(0xc20c, 1 << 31);
    b.run_for(5_000_000);
    assert_eq!(b.ram32(bus), 1);
    b.wr(0xc20c, 0);
    q.push(&mut b, &write_data(va, 2));
    b.run_for(5_000_000);
    assert_eq!(b.ram32(bus), 1);
    b.no_errors();
}

/// Each wrong order is told by its own rule.
#[test]
fn wrong_orders_are_errors() {
    type Wrong = fn(&mut Bench, &Proc, &mut UserQueue);
    let cases: &[(&str, &[&str], Wrong)] = &[
        ("no PASID", &["hqd-vmid"; 2], |b, _, q| {
            b.map_pasid(9, 0);
            b.hqd_load(S, q, 9);
        }),
        ("PASID for one hub only", &["hqd-vmid"], |b, _, q| {
            b.wr(0x3080 + 4 * (0x3d + 9), 0);
            b.wr(0x3080 + 4 * 0xb, 1 << 25);
            b.hqd_load(S, q, 9);
        }),
        ("update not acknowledged", &["hqd-vmid"], |b, p, q| {
            b.wr(0x3080 + 4 * (0xc + 9), u32::from(p.pasid) | (1 << 31));
            b.hqd_load(S, q, 9);
        }),
        ("another PASID in the IH", &["hqd-vmid"], |b, _, q| {
            b.wr(0x4280 + 4 * 9, 5);
            b.hqd_load(S, q, 9);
        }),
        ("no root", &["hqd-vmid"; 2], |b, _, q| {
            for (vm, _) in b.hubs() {
                b.wr(vm + 0x2ac + 8 * 9, 0);
            }
            b.hqd_load(S, q, 9);
        }),
        ("root of one hub differs", &["hqd-vmid"], |b, p, q| {
            let (vm, _) = b.hubs()[1];
            b.wr(vm + 0x2ac + 8 * 9, (p.root as u32 + 0x1000) | 1);
            b.hqd_load(S, q, 9);
        }),
        ("SH_MEM not set", &["hqd-vmid"; 2], |b, _, q| {
            b.sh_mem(9, 0, 0);
            b.hqd_load(S, q, 9);
        }),
        ("engine halted", &["hqd-load"], |b, _, q| {
            b.wr(0x8234, 1 << 30);
            b.hqd_load(S, q, 9);
        }),
        ("its pipe in reset", &["hqd-load"], |b, _, q| {
            b.wr(0x8234, 1 << 19);
            b.hqd_load(S, q, 9);
        }),
        ("all in soft reset", &["hqd-load"], |b, _, q| {
            b.wr(0x8020, 1 << 18);
            b.hqd_load(S, q, 9);
        }),
        ("user queue in VMID 0", &["hqd-privilege"], |b, _, q| {
            b.hqd_load(S, q, 0);
        }),
        ("slot in use", &["hqd-write"; 11], |b, _, q| {
            b.hqd_load(S, q, 9);
            b.wr(0x8088, S.select());
            for (dw, v) in [
                (128, 4),
                (129, 4),
                (131, 4),
                (132, 4),
                (136, 4),
                (137, 4),
                (138, 4),
                (145, 4),
                (146, 4),
                (162, 4),
                (181, 4),
            ] {
                b.wr(hqd(dw), v);
            }
            b.wr(0x8088, 0);
        }),
        ("ACTIVE cleared by hand", &["hqd-active"], |b, _, q| {
            b.hqd_load(S, q, 9);
            b.wr(0x8088, S.select());
            b.wr(hqd(130), 0);
            b.wr(0x8088, 0);
        }),
        ("meaningless request", &["hqd-dequeue"], |b, _, q| {
            b.hqd_load(S, q, 9);
            assert!(b.hqd_destroy(S, 5, 0));
        }),
        ("no compute engine selected", &["bank"], |b, _, _| {
            b.wr(0x8088, 0);
            b.wr(hqd(130), 1);
        }),
        (
            "doorbell of an SDMA engine",
            &["doorbell-routing"],
            |b, _, q| {
                q.doorbell = (q.doorbell & !0xfff) + 0x100 * 8;
                b.set32(q.mqd.bus + 143 * 4, q.doorbell as u32);
                b.hqd_load(S, q, 9);
            },
        ),
        ("doorbell used twice", &["doorbell-duplicate"], |b, _, q| {
            b.hqd_load(S, q, 9);
            b.hqd_load(slot(0, 0), q, 9);
        }),
    ];
    for (name, rules, wrong) in cases {
        let (mut b, p, mut q, ..) = one(&GFX90A);
        wrong(&mut b, &p, &mut q);
        let got: Vec<&str> = b.gpu.soc.log.errors().map(|e| e.rule).collect();
        assert_eq!(&got, rules, "{name}: {:?}", b.errors());
    }
}

#[test]
fn without_the_rule_a_queue_is_loaded_to_a_halted_engine_and_runs_with_it() {
    let (mut b, _, q, ..) = one(&GFX90A);
    b.gpu.soc.rules.switch_off("load-running").unwrap();
    b.wr(0x8234, 1 << 30);
    b.hqd_load(S, &q, 9);
    b.no_errors();
    b.wr(0x8234, 0);
    assert!(b.hqd_destroy(S, 1, 0));
    b.no_errors();
}

#[test]
fn loads_that_are_out_of_order_register_by_register() {
    let (mut b, _, q, ..) = one(&GFX90A);
    b.hqd_load(S, &q, 9);
    assert!(b.hqd_destroy(S, 1, 0));
    b.no_errors();
    b.wr(0x8088, S.select());
    // The poll before the doorbell is on.
    let bell = b.rd(hqd(143));
    b.wr(hqd(143), bell & !(1 << 30));
    b.wr(0xc210, 1 << 31);
    b.expect_errors(&["wptr-poll"]);
    // Active without doorbell and EOP fetcher, with a request pending.
    b.wr(hqd(152), 1);
    b.wr(hqd(130), 1);
    b.expect_errors(&["hqd-load"; 3]);
    b.wr(0x8088, 0);
}

#[test]
fn the_scheduler_and_the_driver_do_not_share_slots() {
    let mut b = Bench::scheduled(&GFX90A);
    let mut p = Proc::new(&mut b, 0x71, 0);
    let (a, s) = (p.queue(&mut b), p.sdma_queue(&mut b, 0, 0));
    let mut list = p.map_process(&b, 2);
    list.extend(a.map_queues());
    list.extend(s.map_queues());
    b.run_list(&list, false, 1);
    b.run();
    b.no_errors();
    // Queue 2 of pipe 0 has the first queue; queue 3 is the scheduler's too.
    assert!(b.hqd_destroy(slot(0, 2), 1, 0));
    b.expect_errors(&["hqd-owner"]);
    let c = p.queue(&mut b);
    b.give_vmid(9, &p);
    b.hqd_load(slot(0, 3), &c, 9);
    b.expect_errors(&["hqd-owner"]);
    // Queue 0 is the driver's own.
    assert!(b.hqd_destroy(slot(0, 3), 1, 0));
    b.hqd_load(slot(0, 0), &c, 9);
    b.no_errors();
    let rb = b.rlc_reg((0, 0), 0);
    b.rlc_write((0, 0), 0, rb & !1);
    b.expect_errors(&["hqd-owner"]);
}

/// Whoever hears nothing of the scheduler any more takes its queues off by registers before the engines are reset.
#[test]
fn a_silent_schedulers_queues_may_be_taken_off() {
    for kind in [Kind::DropFences, Kind::HangHws] {
        let mut b = Bench::scheduled(&GFX90A);
        let mut p = Proc::new(&mut b, 0x71, 0);
        let (q, s) = (p.queue(&mut b), p.sdma_queue(&mut b, 0, 0));
        let mut list = p.map_process(&b, 2);
        list.extend(q.map_queues());
        list.extend(s.map_queues());
        b.run_list(&list, false, 1);
        b.run();
        b.no_errors();
        fixture::inject(&mut b, kind, None, None);
        let fence = b.alloc_sys(4096);
        let (lo, hi) = (fence.gart as u32, (fence.gart >> 32) as u32);
        b.submit_hiq(&[0xc005_a400, 2 << 30, 0, lo, hi, 100, 0]);
        b.run();
        assert!(b.hqd_destroy(slot(0, 2), 1, 0));
        let rb = b.rlc_reg((0, 0), 0);
        b.rlc_write((0, 0), 0, rb & !1);
        b.no_errors();
    }
}

/// A driver that used the scheduler leaves; one that does not comes, on the same device.
#[test]
fn a_halted_engine_forgets_the_scheduler() {
    // Both engines, or a reset of the HIQ's pipe.
    for (halt, forgets) in [(0x5000_0000, true), (1 << 20, true), (1 << 16, false)] {
        let mut b = Bench::scheduled(&GFX90A);
        let mut p = Proc::new(&mut b, 0x71, 0);
        let q = p.queue(&mut b);
        let mut list = p.map_process(&b, 1);
        list.extend(q.map_queues());
        b.run_list(&list, false, 1);
        b.unmap(3, 0, 0);
        b.run();
        // The HIQ leaves.
        b.submit_kiq(&[0xc004_a300, 1 << 29, 0x40 * 8, 0, 0, 0]);
        b.run();
        b.no_errors();
        b.wr(0x8234, halt);
        b.wr(0x8234, 0);
        b.give_vmid(9, &p);
        b.hqd_load(slot(0, 2), &q, 9);
        let rules: &[&str] = if forgets { &[] } else { &["hqd-owner"] };
        b.expect_errors(rules);
    }
    // The scheduler's own driver has to give it its resources again.
    let mut b = Bench::scheduled(&GFX90A);
    b.wr(0x8234, 0x5000_0000);
    b.wr(0x8234, 0);
    b.run_list(&[0xffff_1000], false, 1);
    b.run();
    b.expect_errors(&["run-list"]);
    b.set_resources();
    b.run_list(&[0xffff_1000], false, 1);
    b.run();
    b.no_errors();
}

#[test]
fn trap_handlers_of_address_spaces_are_shown() {
    let mut b = Bench::new(&GFX90A);
    // SQ_SHADER_TBA_LO to TMA_HI of VMID 3, in units of 256 bytes; with TRAP_EN, which is no address.
    b.wr(0x8088, 3 << 4);
    for (register, value) in [
        (0x8c70, 0x0012_3456),
        (0x8c74, 0x8000_0056),
        (0x8c78, 0x00ab_cdef),
        (0x8c7c, 0x0000_0007),
    ] {
        b.wr(register, value);
    }
    b.wr(0x8088, 0);
    let mut shown = |vmid| answer(&mut b.gpu, &format!(r#"{{"cmd":"vm","vmid":{vmid}}}"#));
    let three = shown(3);
    assert_eq!(three["tba"], "0x560012345600");
    assert_eq!(three["tma"], "0x700abcdef00");
    assert_eq!(shown(4)["tba"], "0x0");
}
