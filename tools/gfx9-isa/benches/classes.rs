// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Speed per class of instructions; `rkfdctl bench isa` prints the same as one table.
#![allow(missing_docs, reason = "criterion's macros write functions")]
#![allow(clippy::expect_used, reason = "a benchmark may panic")]

use criterion::criterion_group;
use criterion::criterion_main;
use criterion::Criterion;
use criterion::Throughput;
use gfx9_isa::workload::workloads;
use gfx9_isa::workload::Bench;

/// Turns of the loop per sample.
const TURNS: u64 = 100;

fn classes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("isa");
    for workload in workloads() {
        let count = TURNS * u64::from(workload.instructions);
        let mut bench = Bench::new(workload);
        group.throughput(Throughput::Elements(count));
        group.bench_function(workload.name, |bencher| {
            bencher.iter(|| bench.run(count).expect("the loop is endless"));
        });
    }
    group.finish();
}

criterion_group!(benches, classes);
criterion_main!(benches);
