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

/// GPU addresses where the program has said where memory is to be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hint {
    #[serde(flatten)]
    pub range: Range,
    /// `vram`, `system` or `stay`.
    pub place: String,
    /// Of VRAM: what moves at once, `64K` to `2M`, or `auto`.
    pub reach: Option<String>,
}

/// What moves at once, by name.
const REACHES: [&str; 7] = ["64K", "128K", "256K", "512K", "1M", "2M", "auto"];

impl Hint {
    /// Reads `A-B PLACE [REACH]`.
    fn parse(words: &[&str]) -> Option<Self> {
        let (range, place, reach) = match words {
            [range, "vram", reach] if REACHES.contains(reach) => (range, "vram", Some(*reach)),
            [range, place @ ("system" | "stay")] => (range, *place, None),
            _ => return None,
        };
        Some(Self {
            range: Range::parse(range)?,
            place: place.to_owned(),
            reach: reach.map(str::to_owned),
        })
    }
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
    /// Ranges with a hint.
    pub hints: u64,
    /// Those of them that are listed, by address.
    pub hinted: Vec<Hint>,
    /// Those that are not, because they are too many.
    pub more_hints: u64,
    /// What is shown, by address.
    pub shown: Vec<Part>,
    /// Bytes that are shown, but not listed, because they are too many ranges.
    pub more_bytes: u64,
}

impl Mirror {
    /// Reads `mirror ID pid N pasid N cpu A-B gpu A-B flags F granules N of N bytes N huge N vram N leaf N changes N served N
    /// hints N`. Drivers that move no memory do not tell `vram`, those that take no hints do not tell `hints`.
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
            hints: value(words, "hints").unwrap_or(0),
            hinted: Vec::new(),
            more_hints: 0,
            shown: Vec::new(),
            more_bytes: 0,
        })
    }

    /// Bytes in leaves of 4 KiB.
    pub fn small_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.huge_bytes)
    }

    /// Whether a range lies in the mirror, above the last one of its list.
    fn follows(&self, last: Option<&Range>, range: &Range) -> bool {
        last.is_none_or(|last| last.last < range.first)
            && self.gpu.first <= range.first
            && range.last <= self.gpu.last
    }

    /// Adds a range with a hint.
    fn hint(&mut self, hint: Hint) {
        let last = self.hinted.last().map(|hint| &hint.range);
        if self.follows(last, &hint.range) {
            self.hinted.push(hint);
        }
    }

    /// Adds a range that is shown.
    fn add(&mut self, part: Part) {
        let last = self.shown.last().map(|part| &part.range);
        if self.follows(last, &part.range) {
            self.shown.push(part);
        }
    }
}

/// How often something was how large.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Histogram {
    /// `access` and `fill` for times of steps, `in` and `out` for those of moves to VRAM and back; `settle`, `lane` and
    /// `pages` for others.
    pub what: String,
    /// Of times: which step.
    pub step: Option<String>,
    /// Of times but those of moves: `none`, `4K` or `2M`.
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
            ["move", what, step, rest @ ..] => {
                let found = Histogram::parse(what, Some(step), None, rest);
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
            ["hint", rest @ ..] => {
                let mirror = report.mirrors.last_mut().filter(|_| within);
                if let Some((mirror, hint)) = mirror.zip(Hint::parse(rest)) {
                    mirror.hint(hint);
                }
            }
            ["more", "hints", n] => {
                let mirror = report.mirrors.last_mut().filter(|_| within);
                if let Some((mirror, n)) = mirror.zip(number(n)) {
                    mirror.more_hints = n;
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
move out copy sum 90000 buckets 15:2
mirror 1 pid 77 pasid 33 cpu 0x7f0000000000-0x7f00007fffff gpu 0x000100000000-0x0001007fffff flags populated,read-only granules 3 of 4 bytes 4206592 huge 4194304 vram 2101248 leaf 2097152 changes 5 served 0 hints 3
hint 0x000100000000-0x0001000fffff vram 64K
hint 0x000100200000-0x0001003fffff stay
more hints 1
shown 0x000100000000-0x000100001fff 4K
shown 0x000100002000-0x000100002fff 4K vram
shown 0x000100200000-0x0001003fffff 2M vram
shown 0x000100400000-0x0001005fffff 2M
mirror 2 pid 77 pasid 33 cpu 0x7f1000000000-0x7f1000000fff gpu 0x000200000000-0x000200000fff flags fault granules 0 of 1 bytes 0 huge 0 leaf 2097152 changes 0 served 0
";

#[cfg(test)]
mod tests;
