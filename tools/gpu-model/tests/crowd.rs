// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Far more queues than slots: all of them get their turn, nothing is lost, and the turns are alike.

mod common;

use common::proc::Proc;
use common::queue::UserQueue;
use common::Bench;
use gpu_model::asic::{Asic, GFX906, GFX90A};

struct Member {
    q: UserQueue,
    /// A counter of its own.
    va: u64,
    bus: u64,
    sent: u32,
}

fn crowd(b: &mut Bench, processes: u64, queues: u64) -> Vec<Member> {
    let engines = b.sdma_bases.len() as u64;
    let (mut list, mut all) = (Vec::new(), Vec::new());
    for n in 0..processes {
        let mut p = Proc::new(b, 0x100 + n as u16, n);
        let (va, bus) = p.page(b, 4096);
        let mut mine = Vec::new();
        for i in 0..queues {
            // Twelve PM4 to three SDMA queues, as a runtime has them.
            let q = if i % 5 == 4 {
                p.sdma_queue(b, (i / 5 % engines) as u32, i / 5 / engines)
            } else {
                p.queue(b)
            };
            mine.push(Member {
                q,
                va: va + 8 * i,
                bus: bus + 8 * i,
                sent: 0,
            });
        }
        list.extend(p.map_process(b, queues as u32));
        for m in &mine {
            list.extend(m.q.map_queues());
        }
        all.extend(mine);
    }
    b.run_list(&list, true, 8);
    b.run();
    all
}

impl Member {
    /// Packets that add one to the counter.
    fn feed(&mut self, b: &mut Bench, n: u32) {
        let (lo, hi) = (self.va as u32, (self.va >> 32) as u32);
        for _ in 0..n {
            if self.q.sdma.is_some() {
                self.q.push(b, &[10 | (47 << 25), lo, hi, 1, 0, 0, 0, 0]);
            } else {
                self.q.push(b, &[0xc007_1e00, 0x4f, lo, hi, 1, 0, 0, 0, 0]);
            }
        }
        self.sent += n;
        self.q.ring_bell(b);
    }
}

fn ready(asic: &'static Asic) -> Bench {
    Bench::scheduled(asic)
}

#[test]
fn a_thousand_queues_all_get_there() {
    for asic in [&GFX90A, &GFX906] {
        let mut b = ready(asic);
        let mut all = crowd(&mut b, 64, 16);
        assert_eq!(all.len(), 1024);
        for round in 1..=2 {
            for m in &mut all {
                m.feed(&mut b, 3);
            }
            // Doorbells of waiting queues change nothing; their pointers are found in memory.
            assert!(b.gpu.soc.log.stats.doorbells_unmapped > 900);
            b.run_for(400_000_000);
            for (i, m) in all.iter().enumerate() {
                assert_eq!(b.ram32(m.bus), 3 * round, "{} queue {i}", asic.name);
            }
        }
        assert_eq!(b.gpu.soc.log.stats.doorbells_foreign, 0);
        b.no_errors();
    }
}

/// Queues that never rest: in any long stretch of time the busiest has had at most twice the turns of the laziest.
#[test]
fn nobody_starves_next_to_queues_that_never_rest() {
    let mut b = ready(&GFX90A);
    let mut all = crowd(&mut b, 20, 4);
    for m in &mut all {
        // A wait that never ends keeps the window busy for its whole quantum.
        m.feed(&mut b, 1);
        let at = m.va + 4;
        let (lo, hi) = (at as u32, (at >> 32) as u32);
        if m.q.sdma.is_none() {
            m.q.push(&mut b, &[0xc005_3c00, 3 | (1 << 4), lo, hi, 1, !0, 4]);
        }
        m.q.ring_bell(&mut b);
    }
    let turns = |b: &mut Bench| -> Vec<u64> {
        let mut n = std::collections::BTreeMap::new();
        for r in b.gpu.soc.log.records() {
            if let Some(gpu_model::trace::Event::Seat { connect: true, .. }) = r.event {
                *n.entry(r.origin.doorbell).or_insert(0u64) += 1;
            }
        }
        all.iter()
            .map(|m| n.get(&((m.q.doorbell / 4) as u32)).copied().unwrap_or(0))
            .collect()
    };
    // process_quantum is 10 units of 10 ms; about four windows make a pass.
    for _ in 0..40 {
        b.run_for(100_000_000);
    }
    let got = turns(&mut b);
    let (min, max) = (got.iter().min().unwrap(), got.iter().max().unwrap());
    assert!(*min >= 3 && *max <= 2 * *min, "{got:?}");
    for m in &all {
        assert_eq!(b.ram32(m.bus), 1);
    }
    b.no_errors();
}
