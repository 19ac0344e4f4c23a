// SPDX-License-Identifier: GPL-2.0 OR MIT
//! How many dispatches a queue gets through: kernels of one wave that end at once, from packet to completion signal, in
//! processor time of the thread that does all of it.
#![allow(missing_docs, reason = "criterion's macros make public items")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Duration;

use common::kernel::{fixture, Launch, CODE, DONE, KERNARG};
use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use gpu_model::asic::GFX90A;
use nix::time::{clock_gettime, ClockId};

fn ran() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map(Duration::from)
        .unwrap_or_default()
}

fn dispatches(c: &mut Criterion) {
    let mut f = fixture(&GFX90A, 104, false, false);
    let empty = Launch::new("", 64, 64);
    empty.put(&f.b, &GFX90A, f.bus + CODE);
    // s_endpgm, so that no assembler is needed.
    f.b.set32(f.bus + CODE + 256, 0xbf81_0000);
    let packet = empty.packet(f.va + CODE, f.va + KERNARG, f.va + DONE);
    let ring = f.q.dwords / 16;
    let batch = ring / 2;
    let mut group = c.benchmark_group("dispatch");
    group.throughput(Throughput::Elements(batch));
    group.bench_function("empty", |b| {
        b.iter_custom(|rounds| {
            let mut spent = Duration::ZERO;
            for _ in 0..rounds {
                for _ in 0..batch {
                    f.b.set_words(f.q.ring + f.q.wptr % ring * 64, &packet);
                    f.q.wptr += 1;
                }
                let done = f.b.ram64(f.bus + DONE + 8);
                let begun = ran();
                f.b.bell(f.q.doorbell, f.q.wptr - 1);
                f.b.run();
                spent += ran().saturating_sub(begun);
                assert_eq!(done.wrapping_sub(f.b.ram64(f.bus + DONE + 8)), batch);
                f.b.irqs();
            }
            spent
        });
    });
    group.finish();
}

criterion_group!(benches, dispatches);
criterion_main!(benches);
