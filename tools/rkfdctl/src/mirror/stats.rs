// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Counters and histograms as tables.

use serde::Serialize;
use tabled::Tabled;

use super::parse::Histogram;
use super::parse::Report;
use crate::style;
use crate::table;

/// Heights of a bar.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What is measured of one kind.
#[derive(Debug, PartialEq, Tabled)]
#[tabled(rename_all = "UPPERCASE")]
struct Row {
    gpu: usize,
    what: String,
    step: String,
    leaf: String,
    count: u64,
    mean: String,
    p50: String,
    p99: String,
    distribution: String,
}

/// What is counted.
#[derive(Debug, PartialEq, Tabled)]
#[tabled(rename_all = "UPPERCASE")]
struct Count {
    gpu: usize,
    what: &'static str,
    name: String,
    count: u64,
}

/// A histogram with what is read off it.
#[derive(Serialize)]
pub struct Figures<'h> {
    #[serde(flatten)]
    histogram: &'h Histogram,
    /// `ns`, or nothing for a number.
    unit: Option<&'static str>,
    count: u64,
    mean: u64,
    /// Half of the values are below.
    p50: Option<u64>,
    /// 99 of a hundred are.
    p99: Option<u64>,
}

impl<'h> Figures<'h> {
    pub fn of(histogram: &'h Histogram) -> Self {
        Self {
            histogram,
            unit: histogram.is_time().then_some("ns"),
            count: histogram.count(),
            mean: histogram.mean(),
            p50: histogram.below(50),
            p99: histogram.below(99),
        }
    }
}

/// A time in a unit that reads well.
pub fn duration(ns: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "µs")];
    for (unit, name) in UNITS {
        if ns >= unit {
            // CAST: for a reader.
            let scaled = ns as f64 / unit as f64;
            let digits = if scaled < 10.0 { 1 } else { 0 };
            return format!("{scaled:.digits$} {name}");
        }
    }
    format!("{ns} ns")
}

/// A value of a histogram.
fn show(histogram: &Histogram, value: u64) -> String {
    match histogram.is_time() {
        true => duration(value),
        false => value.to_string(),
    }
}

/// What values are below.
fn limit(histogram: &Histogram, percent: u64) -> String {
    let below = histogram.below(percent);
    below.map_or("-".into(), |n| format!("<{}", show(histogram, n)))
}

/// A bar for each bucket from the lowest one on, and where they begin and end.
fn bars(histogram: &Histogram) -> String {
    let buckets = &histogram.buckets;
    let (Some((low, _)), Some((high, _))) = (buckets.first_key_value(), buckets.last_key_value())
    else {
        return String::new();
    };
    let most = buckets.values().copied().max().unwrap_or(1).max(1);
    let bar = |at: u32| match buckets.get(&at) {
        None => ' ',
        Some(count) => {
            let height = u128::from(*count) * (BARS.len() as u128 - 1) / u128::from(most);
            let height = usize::try_from(height).unwrap_or(0);
            BARS.get(height).copied().unwrap_or('█')
        }
    };
    let bars: String = (*low..=*high).map(bar).collect();
    let first = if *low == 0 { 0 } else { 1 << low };
    let end = histogram.below(100);
    let end = end.map_or("…".into(), |end| show(histogram, end));
    format!("{} {bars} {end}", show(histogram, first))
}

/// The tables of all GPUs.
pub fn text(reports: &[(usize, Report)]) -> String {
    let (mut counts, mut rows) = (Vec::new(), Vec::new());
    for (gpu, report) in reports {
        for (what, all) in [("count", &report.counts), ("change", &report.changes)] {
            counts.extend(all.iter().map(|(name, count)| Count {
                gpu: *gpu,
                what,
                name: name.clone(),
                count: *count,
            }));
        }
        rows.extend(report.histograms.iter().map(|h| Row {
            gpu: *gpu,
            what: h.what.clone(),
            step: h.step.clone().unwrap_or_else(|| "-".into()),
            leaf: h.leaf.clone().unwrap_or_else(|| "-".into()),
            count: h.count(),
            mean: show(h, h.mean()),
            p50: limit(h, 50),
            p99: limit(h, 99),
            distribution: bars(h),
        }));
    }
    let mut out = style::head("Counters since the driver has the GPU") + "\n";
    out += &table::plain(&counts, [0, 3]);
    out += "\n\n";
    out += &style::head("Times and sizes");
    out.push('\n');
    if rows.is_empty() {
        out += "nothing was measured";
    } else {
        out += &table::plain(&rows, [0, 4, 5, 6, 7]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::super::parse::EXAMPLE;
    use super::*;

    #[test]
    fn times_read_well() {
        for (ns, wanted) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1000, "1.0 µs"),
            (16_384, "16 µs"),
            (2_500_000, "2.5 ms"),
            (61_000_000_000, "61 s"),
        ] {
            assert_eq!(duration(ns), wanted);
        }
    }

    #[test]
    fn bars_are_as_high_as_their_buckets() {
        let report = parse("size lane sum 9 buckets 0:4 1:8 3:1\ntime a b 4K sum 1 buckets 39:1\n");
        assert_eq!(bars(&report.histograms[0]), "0 ▄█ ▁ 16");
        assert_eq!(bars(&report.histograms[1]), "550 s █ …");
    }

    #[test]
    fn the_tables_have_a_row_for_each() {
        let text = text(&[(0, parse(EXAMPLE))]);
        let text = anstream::adapter::strip_str(&text).to_string();
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        for wanted in [
            "0 count accesses 12",
            "0 change unmap 3",
            "GPU WHAT STEP LEAF COUNT MEAN P50 P99 DISTRIBUTION",
            "0 access fetch 4K 4 10 µs <4.1 µs <16 µs 2.0 µs █ ▃ 16 µs",
            "0 lane - - 3 4 <2 <16 0 █ ▄ 16",
        ] {
            let wanted: Vec<&str> = wanted.split_whitespace().collect();
            assert!(rows.contains(&wanted), "{wanted:?} in\n{text}");
        }
        let json = serde_json::to_value(Figures::of(&parse(EXAMPLE).histograms[0])).unwrap();
        assert_eq!((&json["unit"], &json["p50"]), (&"ns".into(), &4096.into()));
        assert_eq!(
            (&json["step"], &json["buckets"]["13"]),
            (&"fetch".into(), &1.into())
        );
    }
}
