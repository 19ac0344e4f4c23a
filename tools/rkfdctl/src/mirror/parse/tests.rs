// SPDX-License-Identifier: GPL-2.0 OR MIT
use super::*;

#[test]
fn all_of_a_file_is_read() {
    let report = parse(EXAMPLE);
    assert_eq!(report.counts["accesses"], 12);
    assert_eq!(report.changes["unmap"], 3);
    let [fetch, total, bind, lane, copy] = &report.histograms[..] else {
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
    assert_eq!(
        (
            copy.what.as_str(),
            copy.step.as_deref(),
            copy.leaf.as_deref()
        ),
        ("out", Some("copy"), None)
    );
    assert_eq!((copy.is_time(), copy.mean()), (true, 45_000));
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
    let hinted: Vec<(u64, &str, Option<&str>)> = one
        .hinted
        .iter()
        .map(|h| (h.range.len(), h.place.as_str(), h.reach.as_deref()))
        .collect();
    let wanted = [(1 << 20, "vram", Some("64K")), (2 << 20, "stay", None)];
    assert_eq!(
        (hinted.as_slice(), one.hints, one.more_hints),
        (&wanted[..], 3, 1)
    );
    // Of a driver that takes none.
    assert_eq!((two.hints, two.hinted.len(), two.more_hints), (0, 0, 0));
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
    for bad in [
        "0x10000-0x11fff stay",
        "0x12000-0x15000 stay",
        "0x12000-0x12fff",
        "0x12000-0x12fff policy",
        "0x12000-0x12fff vram",
        "0x12000-0x12fff vram 4K",
        "0x12000-0x12fff system 64K",
        "0x12000-0x12fff vram 64K 64K",
        "0x12000 stay",
    ] {
        assert_eq!(parse(&format!("{mirror}\nhint {bad}\n")), good, "{bad}");
    }
    let late = format!("{mirror}\nhint 0x12000-0x12fff stay\nhint 0x12000-0x13fff stay\n");
    assert_eq!(parse(&late).mirrors[0].hinted.len(), 1);
    assert_eq!(parse("hint 0x12000-0x12fff stay\n"), Report::default());
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
        "move in sum 1 buckets 1:1",
        "count accesses",
        "count accesses -1",
        "change unmap 1 2",
        "more bytes 7",
        "more hints 7",
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
            (Some(step), None) => format!("move {} {step} {}", h.what, buckets(h)),
            (Some(step), Some(leaf)) => {
                format!("time {} {step} {leaf} {}", h.what, buckets(h))
            }
            _ => format!("size {} {}", h.what, buckets(h)),
        });
    }
    for m in &report.mirrors {
        let flags = m.flags.join(",");
        lines.push(format!(
            "mirror {} pid {} pasid {} cpu {:#x}-{:#x} gpu {:#014x}-{:#014x} flags {} granules {} of {} bytes {} huge {}{} leaf {} changes {} served {}{}",
            m.id, m.pid.unwrap(), m.pasid, m.cpu.first, m.cpu.last, m.gpu.first, m.gpu.last,
            if flags.is_empty() { "-" } else { &flags },
            m.granules_shown, m.granules, m.bytes, m.huge_bytes,
            // As one that tells nothing of VRAM, where nothing is there.
            if m.vram_bytes > 0 { format!(" vram {}", m.vram_bytes) } else { String::new() },
            m.leaf, m.changes, m.served,
            // As one that takes none, where there are none.
            if m.hints > 0 { format!(" hints {}", m.hints) } else { String::new() },
        ));
        for hint in &m.hinted {
            let Range { first, last } = hint.range;
            let reach = hint.reach.as_ref().map(|reach| format!(" {reach}"));
            let (place, reach) = (&hint.place, reach.unwrap_or_default());
            lines.push(format!("hint {first:#014x}-{last:#014x} {place}{reach}"));
        }
        if m.more_hints > 0 {
            lines.push(format!("more hints {}", m.more_hints));
        }
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

fn any_hint(rng: &mut fastrand::Rng, range: Range) -> Hint {
    let place = ["vram", "system", "stay"][rng.usize(..3)];
    let reach = (place == "vram").then(|| REACHES[rng.usize(..REACHES.len())].to_owned());
    Hint {
        range,
        place: place.to_owned(),
        reach,
    }
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
            leaf: (of_step && rng.bool()).then(|| "4K".to_owned()),
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
        let hinted = shown.iter().map(|part| any_hint(rng, part.range)).collect();
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
            hints: if rng.bool() { 0 } else { rng.u64(..) },
            hinted,
            more_hints: if rng.bool() { 0 } else { rng.u64(..) },
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
            let hints = mirror
                .hinted
                .iter()
                .flat_map(|h| [h.range.first, h.range.last]);
            assert!(hints.is_sorted(), "seed {seed}");
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
