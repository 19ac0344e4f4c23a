// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the device model counts while a driver works.

use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use serde::Deserialize;
use serde::Serialize;
use serde_json::json;
use serde_json::Value;

use super::report::Row;
use super::report::Time;
use crate::control::Control;
use crate::latency::Samples;

/// How long the packets of the kernel's rings must stay as they are before a series counts as over: a driver may collect
/// changes.
const SETTLED: Duration = Duration::from_millis(250);
/// Longest wait for that.
const LIMIT: Duration = Duration::from_secs(60);

/// Milliseconds by which a trace reaches back further than it has to: the model counts from when it answers, not from when
/// it is asked, and on a busy machine much lies between the two.
const ASKED_LATE: u64 = 10_000;

/// What a driver had the device do, per call.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Counts {
    /// Packets of KIQ and HIQ.
    pub packets: f64,
    /// Dwords of these and of run lists.
    pub dwords: f64,
    /// UNMAP_QUEUES of the HIQ.
    pub preemptions: f64,
    /// Accesses to registers by the processors.
    pub registers: f64,
    /// Invalidations of translations, per hub and VMID.
    pub flushes: f64,
    /// Messages to the host.
    pub interrupts: f64,
}

impl Counts {
    /// The names of the figures.
    pub const NAMES: [&str; 6] = [
        "packets",
        "dwords",
        "preemptions",
        "registers",
        "flushes",
        "interrupts",
    ];

    /// The figures in the order of their names.
    pub fn figures(self) -> [f64; 6] {
        [
            self.packets,
            self.dwords,
            self.preemptions,
            self.registers,
            self.flushes,
            self.interrupts,
        ]
    }

    /// The other way round.
    pub fn of_figures(figures: [f64; 6]) -> Self {
        let [packets, dwords, preemptions, registers, flushes, interrupts] = figures;
        Self {
            packets,
            dwords,
            preemptions,
            registers,
            flushes,
            interrupts,
        }
    }

    /// Those of an answer to `stats`.
    fn of_stats(answer: &Value) -> anyhow::Result<Self> {
        let stats = answer.get("stats").context("statistics without counters")?;
        let sum = |names: &[&str]| -> anyhow::Result<f64> {
            let mut total = 0;
            for name in names {
                let count = stats.get(*name).and_then(Value::as_u64);
                total += count.with_context(|| format!("the model does not count {name}"))?;
            }
            // CAST: figures for a reader.
            Ok(total as f64)
        };
        Ok(Self {
            packets: sum(&["packets_kiq", "packets_hiq"])?,
            dwords: sum(&["dwords_kiq", "dwords_hiq", "dwords_runlist"])?,
            preemptions: sum(&["preemptions"])?,
            registers: sum(&["mmio_reads", "mmio_writes"])?,
            flushes: sum(&["tlb_invalidations"])?,
            interrupts: sum(&["msi_raised"])?,
        })
    }

    /// What was added since `before`, for each of `calls` calls.
    pub fn since(self, before: Self, calls: usize) -> Self {
        // CAST: figures for a reader.
        let calls = calls.max(1) as f64;
        let (mut figures, before) = (self.figures(), before.figures());
        for (now, then) in figures.iter_mut().zip(before) {
            *now = (*now - then) / calls;
        }
        Self::of_figures(figures)
    }
}

/// The device model, which needs no driver to be asked.
pub struct Model(Control);

impl Model {
    /// The first model.
    ///
    /// # Errors
    /// There is none; a card has no counters.
    pub fn open() -> anyhow::Result<Self> {
        let control =
            Control::of_index(0).context("only the device model counts what is needed")?;
        Ok(Self(control))
    }

    /// Makes a request.
    ///
    /// # Errors
    /// Those of [`Control::request`].
    pub fn request(&mut self, request: &Value) -> anyhow::Result<Value> {
        self.0.request(request)
    }

    /// The counters now.
    ///
    /// # Errors
    /// As [`Model::request`].
    pub fn counts(&mut self) -> anyhow::Result<Counts> {
        Counts::of_stats(&self.request(&json!({ "cmd": "stats" }))?)
    }

    /// Nanoseconds of the model's clock.
    ///
    /// # Errors
    /// As [`Model::request`].
    pub fn now(&mut self) -> anyhow::Result<u64> {
        let answer = self.request(&json!({ "cmd": "stats" }))?;
        let now = answer.get("t_ns").and_then(Value::as_u64);
        now.context("statistics without a time")
    }

    /// The doorbells of the connected queues with these rings.
    ///
    /// # Errors
    /// As [`Model::request`].
    pub fn doorbells(&mut self, rings: &[u64]) -> anyhow::Result<Vec<u64>> {
        let answer = self.request(&json!({ "cmd": "queues" }))?;
        let queues = answer.get("compute").and_then(Value::as_array);
        Ok(queues
            .into_iter()
            .flatten()
            .filter(|q| {
                let ring = q.get("ring").and_then(Value::as_u64);
                ring.is_some_and(|ring| rings.contains(&ring))
            })
            .filter_map(|q| q.get("doorbell")?.as_u64())
            .collect())
    }

    /// When the queues with these doorbells left their slots for the last time since `since`.
    ///
    /// # Errors
    /// As [`Model::request`]; the trace does not reach back so far, or has no such record.
    pub fn left(&mut self, doorbells: &[u64], since: u64) -> anyhow::Result<u64> {
        let ms = self.now()?.saturating_sub(since) / 1_000_000 + ASKED_LATE;
        let window = self.0.window(ms, 1 << 16)?;
        if window.start > since {
            bail!("the trace does not reach back to the time before the queues left");
        }
        let wanted = |doorbell: Option<u64>| doorbell.is_some_and(|d| doorbells.contains(&d));
        let left = window
            .records
            .iter()
            .filter(|r| r.ring == "HQD" && r.packet == "DISCONNECT" && r.t_ns >= since)
            .filter(|r| wanted(r.doorbell))
            .map(|r| r.t_ns)
            .max();
        left.context("the trace does not say when the queues left their slots")
    }

    /// The counters, once the kernel's rings rest.
    ///
    /// # Errors
    /// As [`Model::request`]; they do not come to rest.
    pub fn settled(&mut self) -> anyhow::Result<Counts> {
        let end = Instant::now() + LIMIT;
        let mut last = self.counts()?;
        while Instant::now() < end {
            std::thread::sleep(SETTLED);
            let now = self.counts()?;
            if (now.packets, now.dwords) == (last.packets, last.dwords) {
                return Ok(now);
            }
            last = now;
        }
        bail!("the rings of the kernel do not come to rest")
    }

    /// Makes a call `rounds` times, which returns how long what counts of it took.
    ///
    /// # Errors
    /// Those of the call, with its number, and of [`Model::settled`].
    pub fn series(
        &mut self,
        what: &str,
        beside: &str,
        rounds: usize,
        mut call: impl FnMut(usize) -> anyhow::Result<Duration>,
    ) -> anyhow::Result<Row> {
        let before = self.settled()?;
        let mut times = Vec::new();
        for round in 0..rounds {
            times.push(call(round).with_context(|| format!("{what}, {beside}, call {round}"))?);
        }
        let counts = self.settled()?.since(before, rounds);
        Ok(Row {
            what: what.to_owned(),
            beside: beside.to_owned(),
            time: median(times),
            counts: Some(counts),
        })
    }
}

/// The middle one.
pub fn median(times: Vec<Duration>) -> Time {
    let middle = Samples::new(times).percentile(50);
    Time::Micros(middle.as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_and_divided_by_the_calls() {
        let stats = |n: u64| {
            let stats = json!({
                "packets_kiq": n, "packets_hiq": 2 * n, "dwords_kiq": n, "dwords_hiq": n,
                "dwords_runlist": 4 * n, "preemptions": n, "mmio_reads": n, "mmio_writes": n,
                "tlb_invalidations": 3 * n, "msi_raised": 5 * n,
            });
            Counts::of_stats(&json!({ "stats": stats })).unwrap()
        };
        let counts = stats(30).since(stats(10), 10);
        assert_eq!(counts.figures(), [6.0, 12.0, 2.0, 4.0, 6.0, 10.0]);
        assert_eq!(Counts::of_figures(counts.figures()), counts);
        let missing = Counts::of_stats(&json!({ "stats": {} })).unwrap_err();
        assert!(missing.to_string().contains("packets_kiq"), "{missing}");
    }
}
