// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The trace tells which queue sat on which hardware slot, since when and why.

#![allow(clippy::unwrap_used)]

mod common;

use common::fixture::Fixture;
use common::proc::Proc;
use common::queue::{wait_mem, write_data};
use common::Bench;
use gpu_model::asic::GFX90A;
use gpu_model::control::answer;
use serde_json::Value;

/// One HQD record: packet name, doorbell, vmid, pasid, engine, me, pipe, queue, reason.
type Seat = (String, u64, u64, u64, String, u64, u64, u64, String);

fn seats(b: &mut Bench) -> Vec<Seat> {
    let reply = answer(&mut b.gpu, r#"{"cmd":"trace","max":100000}"#);
    let n = |v: &Value| v.as_u64().unwrap();
    let s = |v: &Value| v.as_str().unwrap().to_string();
    let all = reply["records"].as_array().unwrap();
    assert!(all.windows(2).all(|w| n(&w[0]["t_ns"]) <= n(&w[1]["t_ns"])));
    all.iter()
        .filter(|r| r["ring"] == "HQD")
        .map(|r| {
            let f = &r["fields"];
            (
                s(&r["packet"]),
                n(&r["doorbell"]),
                n(&r["vmid"]),
                n(&r["pasid"]),
                s(&f["engine"]),
                n(&f["me"]),
                n(&f["pipe"]),
                n(&f["queue"]),
                s(&f["reason"]),
            )
        })
        .collect()
}

/// Without the places: packet name, doorbell, reason.
fn short(b: &mut Bench) -> Vec<(String, u64, String)> {
    seats(b).into_iter().map(|s| (s.0, s.1, s.8)).collect()
}

fn ready() -> Bench {
    Bench::scheduled(&GFX90A)
}

fn row(name: &str, doorbell: u64, reason: &str) -> (String, u64, String) {
    (name.into(), doorbell, reason.into())
}

#[test]
fn kernel_queues_map_unmap_and_reset() {
    let mut b = ready();
    let mut p = Proc::new(&mut b, 0x81, 0);
    let (va, bus) = p.page(&mut b, 4096);
    let (mut q, s, still) = (p.queue(&mut b), p.sdma_queue(&mut b, 3, 0), p.queue(&mut b));
    let mut list = p.map_process(&b, 3);
    list.extend(q.map_queues());
    list.extend(s.map_queues());
    let mut fixed = still.map_queues();
    fixed[1] |= 2 << 21;
    list.extend(fixed);
    let before = b.gpu.soc.log.stats.clone();
    b.run_list(&list, false, 1);
    q.send(&mut b, &write_data(va, 1));
    assert_eq!(b.ram32(bus), 1);
    b.unmap(3, 0, 0);
    b.run();
    b.unmap(2, 1, 0);
    b.run();
    let (d, e, f) = (q.doorbell / 4, s.doorbell / 4, still.doorbell / 4);
    let at = |name: &str, bell, engine: &str, pipe, queue, reason: &str| {
        let me = u64::from(engine == "compute");
        (
            name.into(),
            bell,
            3,
            0x81,
            engine.into(),
            me,
            pipe,
            queue,
            reason.into(),
        )
    };
    assert_eq!(
        seats(&mut b),
        [
            (
                "CONNECT".into(),
                0,
                0,
                0,
                "compute".into(),
                2,
                1,
                0,
                "register".into()
            ),
            (
                "CONNECT".into(),
                0x80,
                0,
                0,
                "compute".into(),
                2,
                0,
                0,
                "map".into()
            ),
            at("CONNECT", d, "compute", 0, 2, "map"),
            at("CONNECT", e, "sdma3", 0, 0, "map"),
            at("CONNECT", f, "compute", 1, 2, "static"),
            at("DISCONNECT", d, "compute", 0, 2, "unmap"),
            at("DISCONNECT", e, "sdma3", 0, 0, "unmap"),
            at("DISCONNECT", f, "compute", 1, 2, "reset"),
        ]
    );
    let stats = &b.gpu.soc.log.stats;
    assert_eq!((stats.queue_maps, stats.queue_unmaps), (5, 3));
    // RUN_LIST, and twice UNMAP_QUEUES with QUERY_STATUS.
    assert_eq!((stats.preemptions, stats.queues_preempted), (2, 3));
    assert_eq!(stats.packets_hiq - before.packets_hiq, 5);
    assert_eq!(stats.dwords_hiq - before.dwords_hiq, 4 + 2 * (6 + 7));
    let listed = stats.dwords_runlist - before.dwords_runlist;
    assert_eq!(listed, list.len() as u64);
    b.no_errors();
}

#[test]
fn time_slices_are_told_apart_from_first_connections() {
    let mut b = ready();
    // Fourteen processes on thirteen VMIDs, each with a queue that never ends.
    let mut list = Vec::new();
    let mut queues = Vec::new();
    for i in 0..14u16 {
        let mut p = Proc::new(&mut b, 0x200 + i, u64::from(i));
        let (va, _) = p.page(&mut b, 4096);
        let mut q = p.queue(&mut b);
        q.push(&mut b, &wait_mem(va, 1));
        list.extend(p.map_process(&b, 1));
        list.extend(q.map_queues());
        queues.push(q);
    }
    let from = short(&mut b).len();
    b.run_list(&list, true, 13);
    b.run();
    assert_eq!(short(&mut b).len() - from, 13);
    b.run_for(101_000_000);
    let got = short(&mut b);
    let last = queues[13].doorbell / 4;
    assert_eq!(
        got[from + 12],
        row("CONNECT", queues[12].doorbell / 4, "map")
    );
    assert_eq!(
        got[from + 13],
        row("DISCONNECT", queues[0].doorbell / 4, "quantum")
    );
    assert_eq!(got[from + 26], row("CONNECT", last, "quantum"));
    b.no_errors();
}

/// A window whose queues have work lasts its quantum, 10 units of 10 ms, and says that this ended it.
#[test]
fn busy_queues_sit_for_their_quantum() {
    let mut b = ready();
    let mut list = Vec::new();
    for i in 0..14u16 {
        let mut p = Proc::new(&mut b, 0x200 + i, u64::from(i));
        let (va, _) = p.page(&mut b, 4096);
        let mut q = p.queue(&mut b);
        q.push(&mut b, &wait_mem(va, 1));
        list.extend(p.map_process(&b, 1));
        list.extend(q.map_queues());
    }
    b.run_list(&list, true, 13);
    b.run_for(450_000_000);
    let reply = answer(&mut b.gpu, r#"{"cmd":"trace","max":100000}"#);
    let mut seated = std::collections::BTreeMap::new();
    let mut stays = Vec::new();
    for r in reply["records"].as_array().unwrap() {
        let (bell, at) = (r["doorbell"].as_u64().unwrap(), r["t_ns"].as_u64().unwrap());
        if r["ring"] == "HQD" && r["pasid"] != 0 {
            if r["packet"] == "CONNECT" {
                seated.insert(bell, at);
            } else {
                assert_eq!(r["fields"]["reason"], "quantum");
                stays.push((at - seated.remove(&bell).unwrap()) / 1_000_000);
            }
        }
    }
    // Thirteen queues, then one, and so on.
    assert_eq!(stays.len(), 28);
    // The chained RUN_LIST at its end belongs to it; that it is walked again does not count.
    let stats = &b.gpu.soc.log.stats;
    assert_eq!(stats.dwords_runlist, list.len() as u64 + 4);
    assert_eq!(stats.queues_preempted, 0);
    assert!(stays.iter().all(|ms| (100..=101).contains(ms)), "{stays:?}");
    b.no_errors();
}

#[test]
fn resets_take_everybody_off() {
    let mut b = ready();
    let mut p = Proc::new(&mut b, 0x83, 0);
    let q = p.queue(&mut b);
    let s = p.sdma_queue(&mut b, 0, 0);
    let mut list = p.map_process(&b, 2);
    list.extend(q.map_queues());
    list.extend(s.map_queues());
    b.run_list(&list, false, 1);
    b.run();
    let from = short(&mut b).len();
    b.wr(0x58200, 0x0007_0000);
    assert_eq!(
        short(&mut b)[from..],
        [
            row("DISCONNECT", q.doorbell / 4, "reset"),
            row("DISCONNECT", 0x80, "reset"),
            row("DISCONNECT", 0, "reset"),
            row("DISCONNECT", s.doorbell / 4, "reset"),
        ]
    );
    let maps = b.gpu.soc.log.stats.queue_maps;
    assert_eq!(b.gpu.soc.log.stats.queue_unmaps, maps);
    b.no_errors();
}

/// A queue that stays has no record: who asks for the trace can ask for the connected queues of the same moment.
#[test]
fn a_trace_says_what_it_covers_and_who_is_connected() {
    let mut f = Fixture::new(&GFX90A, 0x84, 4096);
    f.b.advance(60_000_000);
    let now = f.b.gpu.soc.clock.now_ns();
    let mut ask = |request: &str| answer(&mut f.b.gpu, request);
    let reply = ask(r#"{"cmd":"trace","last_ms":50,"queues":true}"#);
    assert_eq!(reply["records"], serde_json::json!([]));
    assert_eq!(
        (&reply["t_ns"], &reply["since_ns"]),
        (&now.into(), &(now - 50_000_000).into())
    );
    let compute = reply["queues"]["compute"].as_array().unwrap();
    let roles: Vec<&str> = compute.iter().filter_map(|q| q["role"].as_str()).collect();
    assert_eq!(roles, ["User", "Hiq", "Kiq"]);
    assert_eq!(compute[0]["doorbell"], f.q.doorbell / 4);
    assert_eq!(compute[0]["pasid"], 0x84);
    // All there is: since the beginning. Some of it: since the oldest that is told.
    assert!(ask(r#"{"cmd":"trace"}"#)["queues"].is_null());
    assert_eq!(ask(r#"{"cmd":"trace"}"#)["since_ns"], 0);
    let few = ask(r#"{"cmd":"trace","max":2}"#);
    assert_eq!(few["records"].as_array().unwrap().len(), 2);
    assert_eq!(few["since_ns"], few["records"][0]["t_ns"]);
    assert_eq!(ask(r#"{"cmd":"trace","max":0}"#)["since_ns"], now);
}

#[test]
fn a_trace_that_has_forgotten_its_beginning_says_so() {
    let log = gpu_model::trace::Log::new(2, None, true);
    let mut b = Bench::new(&GFX90A);
    b.gpu.soc.log = log;
    b.bring_up();
    let reply = answer(&mut b.gpu, r#"{"cmd":"trace","last_ms":1000}"#);
    let records = reply["records"].as_array().unwrap();
    assert_eq!(records.len(), 2);
    assert_eq!(reply["since_ns"], records[0]["t_ns"]);
    b.advance(5_000_000);
    let now = b.gpu.soc.clock.now_ns();
    let reply = answer(&mut b.gpu, r#"{"cmd":"trace","last_ms":1}"#);
    assert_eq!(reply["since_ns"], now - 1_000_000, "nothing of it is lost");
}
