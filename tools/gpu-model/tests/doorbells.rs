// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Doorbells that queues ring, and those that nobody listens to.

mod common;

use common::fixture::Fixture;
use common::queue::{write_data, UserQueue};
use gpu_model::asic::GFX90A;
use gpu_model::control::answer;
use gpu_model::vm::own::BarAddresses;

fn fixture() -> Fixture {
    Fixture::new(&GFX90A, 0x61, 0x4000)
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
    let bars = BarAddresses {
        doorbells: 0xfe60_0000,
        ..f.b.gpu.soc.bars()
    };
    f.b.gpu.soc.set_bars(bars);
    f.q.send(&mut f.b, &w);
    f.b.expect_errors(&["selfring", "pte-to-nowhere"]);
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
    assert_eq!(f.b.gpu.soc.log.stats.doorbells_unmatched, 5);
    // None of it disturbs anybody.
    last.send(&mut f.b, &write_data(f.va, 6));
    f.b.run_for(300_000_000);
    assert_eq!(f.b.ram32(f.bus), 6);
    f.b.no_errors();
}

/// Source 200 of the CP, "unattached VM doorbell received", which bit 11 of CP_INT_CNTL_RING0 enables.
#[test]
fn a_doorbell_of_no_queue_interrupts_if_that_is_wanted() {
    let mut f = fixture();
    f.b.unmap(3, 0, 0);
    let queues: Vec<UserQueue> = (0..30).map(|_| f.p.queue(&mut f.b)).collect();
    let mut list = f.p.map_process(&f.b, 30);
    for q in &queues {
        list.extend(q.map_queues());
    }
    f.b.run_list(&list, true, 1);
    f.b.run();
    f.b.irqs();
    f.b.bell(0x1f_0008, 1);
    assert!(f.b.irqs().is_empty(), "it is off");
    let cntl = 0xc1a8;
    assert_eq!(f.b.rd(cntl), 0);
    f.b.wr(cntl, 1 << 11);
    f.b.bell(0x1f_0008, 1);
    let seen = f.b.irqs();
    assert_eq!(seen.len(), 1);
    assert_eq!(
        (seen[0].client, seen[0].source, seen[0].vmid, seen[0].pasid),
        (0x14, 200, 0, 0)
    );
    assert_eq!(seen[0].data[0], 0x1f_0008 / 4);
    // Neither a connected queue, nor one that waits for its turn, nor one of SDMA's doorbells, nor half a doorbell.
    f.b.bell(queues[0].doorbell, 0);
    f.b.bell(queues[29].doorbell, 0);
    f.b.bell(0x1f_0800, 0);
    f.b.gpu.doorbell_write(0x1f_0008, &[1, 2]);
    assert!(f.b.irqs().is_empty());
    let stats = &f.b.gpu.soc.log.stats;
    assert_eq!((stats.doorbells_foreign, stats.doorbells_unmapped), (3, 1));
    f.b.no_errors();
}
