// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `mirrors` in debugfs: counters, histograms, and each mirror with the ranges that are shown.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::debugfs::number;
use crate::debugfs::value;

/// Bytes of a granule, which is shown and taken away as a whole.
pub const GRANULE: u64 = 2 << 20;
/// The last bucket that the driver has; it has no upper end.
pub const LAST_BUCKET: u32 = 39;

/// Addresses, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    pub first: u64,
    pub last: u64,
}

impl Range {
    pub fn new(first: u64, last: u64) -> Option<Self> {
        // A range of all 2^64 bytes would have a length that is no u64; no program has that.
        (first <= last && last - first < u64::MAX).then_some(Self { first, last })
    }

    fn parse(word: &str) -> Option<Self> {
        let (first, last) = word.split_once('-')?;
        Self::new(number(first)?, number(last)?)
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.last - self.first + 1
    }
}

/// GPU addresses that are shown, in leaves of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Part {
    #[serde(flatten)]
    pub range: Range,
    /// In leaves of 2 MiB, else of 4 KiB.
    pub huge: bool,
    /// In VRAM of the GPU, else in system memory.
    pub vram: bool,
}

/// A mirror.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mirror {
    /// Its number in the file.
    pub id: u32,
    /// Who opened the file.
    pub pid: Option<u32>,
    pub pasid: u32,
    /// Addresses of the program.
    pub cpu: Range,
    /// Where the GPU sees them.
    pub gpu: Range,
    pub flags: Vec<String>,
    /// How many parts of 2 MiB show something.
    pub granules_shown: u64,
    /// How many there are.
    pub granules: u64,
    /// Bytes that the GPU can reach.
    pub bytes: u64,
    /// … in leaves of 2 MiB.
    pub huge_bytes: u64,
    /// … that are in VRAM of the GPU.
    pub vram_bytes: u64,
    /// The largest leaf that is possible, bytes.
    pub leaf: u64,
    /// Changes of memory that it met.
    pub changes: u64,
    /// Accesses that memory was shown for.
    pub served: u64,
    /// What is shown, by address.
    pub shown: Vec<Part>,
    /// Bytes that are shown, but not listed, because they are too many ranges.
    pub more_bytes: u64,
}

impl Mirror {
    /// Reads `mirror ID pid N pasid N cpu A-B gpu A-B flags F granules N of N bytes N huge N vram N leaf N changes N served N`.
    /// Drivers that move no memory do not tell `vram`.
    fn parse(words: &[&str]) -> Option<Self> {
        let word = |key: &str| {
            let at = words.iter().position(|word| *word == key)?;
            words.get(at + 1).copied()
        };
        let id = |key: &str| value(words, key).and_then(|n| u32::try_from(n).ok());
        let (cpu, gpu) = (Range::parse(word("cpu")?)?, Range::parse(word("gpu")?)?);
        if cpu.len() != gpu.len() {
            return None;
        }
        Some(Self {
            id: id("mirror")?,
            pid: id("pid"),
            pasid: id("pasid")?,
            cpu,
            gpu,
            flags: match word("flags")? {
                "-" => Vec::new(),
                flags => flags.split(',').map(str::to_owned).collect(),
            },
            granules_shown: value(words, "granules")?,
            granules: value(words, "of")?,
            bytes: value(words, "bytes")?,
            huge_bytes: value(words, "huge")?,
            vram_bytes: value(words, "vram").unwrap_or(0),
            leaf: value(words, "leaf")?,
            changes: value(words, "changes")?,
            served: value(words, "served")?,
            shown: Vec::new(),
            more_bytes: 0,
        })
    }

    /// Bytes in leaves of 4 KiB.
    pub fn small_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.huge_bytes)
    }

    /// Adds a range that lies in the mirror, above those that are there.
    fn add(&mut self, part: Part) {
        let above = self
            .shown
            .last()
            .is_none_or(|last| last.range.last < part.range.first);
        if above && self.gpu.first <= part.range.first && part.range.last <= self.gpu.last {
            self.shown.push(part);
        }
    }
}

/// How often something was how large.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Histogram {
    /// `access` and `fill` for times of steps; `settle`, `lane` and `pages` for others.
    pub what: String,
    /// Of times: which step.
    pub step: Option<String>,
    /// Of times: `none`, `4K` or `2M`.
    pub leaf: Option<String>,
    pub sum: u64,
    /// By the power of two that the values reach; the first has 0, too.
    pub buckets: BTreeMap<u32, u64>,
}

impl Histogram {
    /// Reads `sum N buckets B:N …` behind its name.
    fn parse(what: &str, step: Option<&str>, leaf: Option<&str>, words: &[&str]) -> Option<Self> {
        let ["sum", sum, "buckets", rest @ ..] = words else {
            return None;
        };
        let mut buckets = BTreeMap::new();
        for word in rest {
            let (at, count) = word.split_once(':')?;
            let at: u32 = at.parse().ok().filter(|at| *at <= LAST_BUCKET)?;
            let count: u64 = number(count).filter(|count| *count > 0)?;
            if buckets.insert(at, count).is_some() {
                return None;
            }
        }
        Some(Self {
            what: what.to_owned(),
            step: step.map(str::to_owned),
            leaf: leaf.map(str::to_owned),
            sum: number(sum)?,
            buckets,
        })
        .filter(|histogram| !histogram.buckets.is_empty())
    }

    /// Whether it is of nanoseconds.
    pub fn is_time(&self) -> bool {
        self.step.is_some() || self.what == "settle"
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.buckets
            .values()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count()).unwrap_or(0)
    }

    /// What `percent` of the values are below: the end of the bucket that the value is in. `None`: it is in the last one, which
    /// has no end, or there is none.
    pub fn below(&self, percent: u64) -> Option<u64> {
        let count = u128::from(self.count());
        // At least one.
        let rank = (count * u128::from(percent)).div_ceil(100).max(1);
        let mut seen = 0;
        for (at, count) in &self.buckets {
            seen += u128::from(*count);
            if seen >= rank {
                return (*at < LAST_BUCKET).then(|| 1 << (at + 1));
            }
        }
        None
    }
}

/// All of the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    pub counts: BTreeMap<String, u64>,
    /// Changes of memory by their cause.
    pub changes: BTreeMap<String, u64>,
    pub histograms: Vec<Histogram>,
    pub mirrors: Vec<Mirror>,
    /// There are more mirrors than the driver lists.
    pub cut: bool,
}

/// Reads `mirrors`. Lines that say nothing known, or contradict themselves, are left out.
pub fn parse(text: &str) -> Report {
    let mut report = Report::default();
    // A range belongs to the mirror in the line above it, if that line was one.
    let mut within = false;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["count", name, n] => {
                if let Some(n) = number(n) {
                    report.counts.insert((*name).to_owned(), n);
                }
            }
            ["change", name, n] => {
                if let Some(n) = number(n) {
                    report.changes.insert((*name).to_owned(), n);
                }
            }
            ["time", what, step, leaf, rest @ ..] => {
                let found = Histogram::parse(what, Some(step), Some(leaf), rest);
                report.histograms.extend(found);
            }
            ["size", what, rest @ ..] => {
                report
                    .histograms
                    .extend(Histogram::parse(what, None, None, rest));
            }
            ["mirror", ..] => {
                let mirror = Mirror::parse(&words);
                within = mirror.is_some();
                report.mirrors.extend(mirror);
            }
            ["shown", range, leaf @ ("4K" | "2M"), place @ ..]
                if matches!(place, [] | ["vram"]) =>
            {
                let mirror = report.mirrors.last_mut().filter(|_| within);
                if let Some((mirror, range)) = mirror.zip(Range::parse(range)) {
                    let (huge, vram) = (*leaf == "2M", !place.is_empty());
                    mirror.add(Part { range, huge, vram });
                }
            }
            ["more", "bytes", n] => {
                let mirror = report.mirrors.last_mut().filter(|_| within);
                if let Some((mirror, n)) = mirror.zip(number(n)) {
                    mirror.more_bytes = n;
                }
            }
            ["more", "mirrors", ..] => report.cut = true,
            _ => {}
        }
    }
    report
}

/// What the driver writes.
#[cfg(test)]
pub const EXAMPLE: &str = "\
count accesses 12
count shown 10
change unmap 3
change protect 0
time access fetch 4K sum 40960 buckets 11:3 13:1
time access total 4K sum 900000 buckets 17:4
time fill bind 2M sum 5000 buckets 12:1
size lane sum 12 buckets 0:2 3:1
mirror 1 pid 77 pasid 33 cpu 0x7f0000000000-0x7f00007fffff gpu 0x000100000000-0x0001007fffff flags populated,read-only granules 3 of 4 bytes 4206592 huge 4194304 vram 2101248 leaf 2097152 changes 5 served 0
shown 0x000100000000-0x000100001fff 4K
shown 0x000100002000-0x000100002fff 4K vram
shown 0x000100200000-0x0001003fffff 2M vram
shown 0x000100400000-0x0001005fffff 2M
mirror 2 pid 77 pasid 33 cpu 0x7f1000000000-0x7f1000000fff gpu 0x000200000000-0x000200000fff flags fault granules 0 of 1 bytes 0 huge 0 leaf 2097152 changes 0 served 0
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_file_is_read() {
        let report = parse(EXAMPLE);
        assert_eq!(report.counts["accesses"], 12);
        assert_eq!(report.changes["unmap"], 3);
        let [fetch, total, bind, lane] = &report.histograms[..] else {
            panic!("{report:?}")
        };
        assert_eq!(
            (fetch.step.as_deref(), fetch.leaf.as_deref()),
            (Some("fetch"), Some("4K"))
        );
        assert_eq!(
            (fetch.count(), fetch.sum, fetch.mean()),
            (4, 40_960, 10_240)
        );
        assert_eq!(
            (total.below(50), bind.what.as_str()),
            (Some(1 << 18), "fill")
        );
        assert_eq!(
            (lane.what.as_str(), lane.is_time(), lane.count()),
            ("lane", false, 3)
        );
        let [one, two] = &report.mirrors[..] else {
            panic!("{report:?}")
        };
        assert_eq!((one.id, one.pid, one.pasid), (1, Some(77), 33));
        assert_eq!(one.flags, ["populated", "read-only"]);
        assert_eq!((one.granules_shown, one.granules), (3, 4));
        assert_eq!((one.small_bytes(), one.huge_bytes), (3 << 12, 2 << 21));
        assert_eq!((one.changes, one.served, one.leaf), (5, 0, 2 << 20));
        let shown: Vec<(u64, bool, bool)> = one
            .shown
            .iter()
            .map(|p| (p.range.len(), p.huge, p.vram))
            .collect();
        assert_eq!(
            shown,
            [
                (2 << 12, false, false),
                (1 << 12, false, true),
                (1 << 21, true, true),
                (1 << 21, true, false)
            ]
        );
        assert_eq!((one.vram_bytes, two.vram_bytes), ((1 << 21) + (1 << 12), 0));
        assert_eq!((two.gpu.len(), two.shown.len()), (4096, 0));
        assert!(!report.cut);
    }

    #[test]
    fn percentiles_are_ends_of_buckets() {
        let of = |buckets: &[(u32, u64)]| Histogram {
            buckets: buckets.iter().copied().collect(),
            ..Histogram::default()
        };
        let many = of(&[(0, 98), (5, 1), (9, 1)]);
        assert_eq!(
            (
                many.below(50),
                many.below(98),
                many.below(99),
                many.below(100)
            ),
            (Some(2), Some(2), Some(64), Some(1024))
        );
        assert_eq!(of(&[(7, 1)]).below(1), Some(256));
        assert_eq!(of(&[(3, 1), (39, 1)]).below(99), None);
        assert_eq!((of(&[]).below(50), of(&[]).mean()), (None, 0));
        assert_eq!(of(&[(1, u64::MAX), (2, u64::MAX)]).below(99), Some(4));
    }

    #[test]
    fn nonsense_is_left_out() {
        let mirror = "mirror 1 pid 7 pasid 3 cpu 0x1000-0x4fff gpu 0x11000-0x14fff flags - granules 1 of 1 bytes 4096 huge 0 leaf 4096 changes 0 served 0";
        let good = parse(mirror);
        assert_eq!((good.mirrors.len(), good.mirrors[0].flags.len()), (1, 0));
        for (bad, with) in [
            ("mirror 1", "mirror x"),
            ("pasid 3", "pasid 5000000000"),
            ("0x1000-0x4fff", "0x1000"),
            ("0x1000-0x4fff", "0x4fff-0x1000"),
            // Of another length.
            ("0x1000-0x4fff", "0x1000-0x3fff"),
            ("0x11000-0x14fff", "0x0-0xffffffffffffffff"),
            ("bytes 4096", "bytes"),
            ("flags -", ""),
        ] {
            let text = format!("{}\nshown 0x11000-0x11fff 4K\n", mirror.replace(bad, with));
            assert_eq!(parse(&text), Report::default(), "{with}");
        }
        // Ranges without a mirror, outside of it, not in order, of no leaf.
        let lines = "shown 0x12000-0x12fff 4K\n";
        assert_eq!(parse(lines), Report::default());
        for bad in [
            "0x10000-0x11fff 4K",
            "0x12000-0x15000 4K",
            "0x12000-0x11fff 4K",
            "0x12000-0x12fff 1G",
            "0x12000 4K",
            "0x12000-0x12fff 4K disk",
            "0x12000-0x12fff vram",
            "0x12000-0x12fff 4K vram vram",
        ] {
            assert_eq!(parse(&format!("{mirror}\nshown {bad}\n")), good, "{bad}");
        }
        let twice = format!("{mirror}\nshown 0x12000-0x12fff 4K\nshown 0x12000-0x12fff 4K\n");
        assert_eq!(parse(&twice).mirrors[0].shown.len(), 1);
        for bad in [
            "size lane",
            "size lane sum 1 buckets",
            "size lane sum 1 buckets 40:1",
            "size lane sum 1 buckets 1:0",
            "size lane sum 1 buckets 1:1 1:2",
            "size lane sum x buckets 1:1",
            "time access fetch sum 1 buckets 1:1",
            "count accesses",
            "count accesses -1",
            "change unmap 1 2",
            "more bytes 7",
        ] {
            assert_eq!(parse(bad), Report::default(), "{bad}");
        }
        assert!(parse("more mirrors of pasid 3").cut);
    }

    /// What the driver writes of a report.
    fn write(report: &Report) -> String {
        let mut lines = Vec::new();
        let buckets = |h: &Histogram| {
            let buckets = h.buckets.iter().map(|(at, n)| format!(" {at}:{n}"));
            format!("sum {} buckets{}", h.sum, buckets.collect::<String>())
        };
        for (name, n) in &report.counts {
            lines.push(format!("count {name} {n}"));
        }
        for (name, n) in &report.changes {
            lines.push(format!("change {name} {n}"));
        }
        for h in &report.histograms {
            lines.push(match (&h.step, &h.leaf) {
                (Some(step), Some(leaf)) => {
                    format!("time {} {step} {leaf} {}", h.what, buckets(h))
                }
                _ => format!("size {} {}", h.what, buckets(h)),
            });
        }
        for m in &report.mirrors {
            let flags = m.flags.join(",");
            lines.push(format!(
                "mirror {} pid {} pasid {} cpu {:#x}-{:#x} gpu {:#014x}-{:#014x} flags {} granules {} of {} bytes {} huge {}{} leaf {} changes {} served {}",
                m.id, m.pid.unwrap(), m.pasid, m.cpu.first, m.cpu.last, m.gpu.first, m.gpu.last,
                if flags.is_empty() { "-" } else { &flags },
                m.granules_shown, m.granules, m.bytes, m.huge_bytes,
                // As one that tells nothing of VRAM, where nothing is there.
                if m.vram_bytes > 0 { format!(" vram {}", m.vram_bytes) } else { String::new() },
                m.leaf, m.changes, m.served
            ));
            for part in &m.shown {
                let leaf = if part.huge { "2M" } else { "4K" };
                let place = if part.vram { " vram" } else { "" };
                let Range { first, last } = part.range;
                lines.push(format!("shown {first:#x}-{last:#x} {leaf}{place}"));
            }
            if m.more_bytes > 0 {
                lines.push(format!("more bytes {}", m.more_bytes));
            }
        }
        if report.cut {
            lines.push("more mirrors of pasid 1".to_owned());
        }
        lines.join("\n") + "\n"
    }

    fn any_report(rng: &mut fastrand::Rng) -> Report {
        let mut report = Report {
            cut: rng.bool(),
            ..Report::default()
        };
        for name in ["accesses", "shown", "refused"].iter().take(rng.usize(..4)) {
            report.counts.insert((*name).to_owned(), rng.u64(..));
            report.changes.insert((*name).to_owned(), rng.u64(..));
        }
        for _ in 0..rng.usize(..5) {
            let of_step = rng.bool();
            let mut buckets = BTreeMap::new();
            for _ in 0..rng.usize(1..9) {
                buckets.insert(rng.u32(..=LAST_BUCKET), rng.u64(1..));
            }
            report.histograms.push(Histogram {
                what: "access".to_owned(),
                step: of_step.then(|| "pages".to_owned()),
                leaf: of_step.then(|| "4K".to_owned()),
                sum: rng.u64(..),
                buckets,
            });
        }
        for id in 0..rng.u32(..4) {
            let pages = rng.u64(1..1 << 20);
            let (cpu, gpu) = (rng.u64(1..1 << 35) << 12, rng.u64(1..1 << 35) << 12);
            let range = |first: u64| Range::new(first, first + (pages << 12) - 1).unwrap();
            let mut shown = Vec::new();
            let mut at = 0;
            loop {
                let (first, len) = (at + rng.u64(..9), rng.u64(1..600));
                if first + len > pages {
                    break;
                }
                at = first + len;
                let range = Range::new(gpu + (first << 12), gpu + (at << 12) - 1).unwrap();
                let (huge, vram) = (rng.bool(), rng.bool());
                shown.push(Part { range, huge, vram });
                if rng.u8(..) < 20 {
                    break;
                }
            }
            let all = ["read-only", "fault", "whole"];
            report.mirrors.push(Mirror {
                id: id + 1,
                pid: Some(rng.u32(..)),
                pasid: rng.u32(..),
                cpu: range(cpu),
                gpu: range(gpu),
                flags: all
                    .iter()
                    .take(rng.usize(..4))
                    .map(|f| (*f).to_owned())
                    .collect(),
                granules_shown: rng.u64(..),
                granules: rng.u64(..),
                bytes: rng.u64(..),
                huge_bytes: rng.u64(..),
                vram_bytes: if rng.bool() { 0 } else { rng.u64(..) },
                leaf: rng.u64(..),
                changes: rng.u64(..),
                served: rng.u64(..),
                shown,
                more_bytes: if rng.bool() { 0 } else { rng.u64(..) },
            });
        }
        report
    }

    #[test]
    fn what_was_written_is_read() {
        for seed in 0..300 {
            let report = any_report(&mut fastrand::Rng::with_seed(seed));
            assert_eq!(parse(&write(&report)), report, "seed {seed}");
        }
    }

    /// Whatever the text is: what comes out holds together.
    #[test]
    fn spoilt_text_gives_nothing_impossible() {
        for seed in 0..600 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut text = write(&any_report(&mut rng)).into_bytes();
            for _ in 0..rng.usize(1..12) {
                let at = rng.usize(..text.len());
                match rng.u8(..4) {
                    0 => text[at] = rng.u8(..),
                    1 => drop(text.remove(at)),
                    2 => text.insert(at, *rng.choice(b" \n0-x:f9").unwrap()),
                    _ => text.truncate(at),
                }
                if text.is_empty() {
                    break;
                }
            }
            let report = parse(&String::from_utf8_lossy(&text));
            for mirror in &report.mirrors {
                assert_eq!(mirror.cpu.len(), mirror.gpu.len(), "seed {seed}");
                let ends = mirror
                    .shown
                    .iter()
                    .flat_map(|p| [p.range.first, p.range.last]);
                assert!(ends.clone().is_sorted(), "seed {seed}");
                assert!(
                    ends.clone()
                        .all(|a| (mirror.gpu.first..=mirror.gpu.last).contains(&a)),
                    "seed {seed}"
                );
            }
            for histogram in &report.histograms {
                assert!(
                    histogram.count() > 0 && histogram.buckets.len() <= 40,
                    "seed {seed}"
                );
                assert!(histogram.below(50) <= histogram.below(99).or(Some(u64::MAX)));
            }
        }
    }
}
