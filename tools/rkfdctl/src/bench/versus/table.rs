// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Two drivers side by side: times, counts, and the goals that were set.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use anyhow::Context;
use tabled::builder::Builder;
use tabled::settings::object::Columns;
use tabled::settings::Alignment;
use tabled::settings::Style;

use super::counts::Counts;
use super::report::Report;
use super::report::Row;
use super::report::Time;

/// Between these lines of a document the tables are.
const BEGIN: &str = "<!-- measured: begin -->";
const END: &str = "<!-- measured: end -->";
/// A ratio below this is marked as a loss; what is nearer to 1 is noise.
const LOSS: f64 = 0.95;

#[derive(clap::Args)]
pub struct Options {
    /// Reports of rkfd; of several the median counts
    #[arg(long, required = true)]
    rkfd: Vec<PathBuf>,
    /// Reports of amdgpu
    #[arg(long, required = true)]
    amdgpu: Vec<PathBuf>,
    /// A sentence about the run: when, of which commit, on which machine
    #[arg(long, default_value = "")]
    about: String,
    /// Also put the tables into this document, between the lines that mark their place
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let own = merged(&options.rkfd, "rkfd")?;
    let other = merged(&options.amdgpu, "amdgpu")?;
    if own.rounds != other.rounds || own.gpu != other.gpu {
        bail!("the reports are not of the same measurement");
    }
    let text = document(&own, &other, options.rkfd.len(), &options.about);
    anstream::println!("{text}");
    if let Some(path) = &options.write {
        let name = || path.display().to_string();
        let old = fs::read_to_string(path).with_context(name)?;
        fs::write(path, inserted(&old, &text).with_context(name)?).with_context(name)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The reports of one driver as one.
fn merged(paths: &[PathBuf], driver: &str) -> anyhow::Result<Report> {
    let mut reports = Vec::new();
    for path in paths {
        let report = read(path).with_context(|| path.display().to_string())?;
        if report.driver != driver {
            bail!(
                "{} is a report of {}, not of {driver}",
                path.display(),
                report.driver
            );
        }
        reports.push(report);
    }
    merge(reports)
}

fn read(path: &Path) -> anyhow::Result<Report> {
    Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
}

fn merge(reports: Vec<Report>) -> anyhow::Result<Report> {
    let mut rest = reports.into_iter();
    let mut first = rest.next().context("no report")?;
    let rest: Vec<Report> = rest.collect();
    for row in &mut first.rows {
        let same: Vec<Row> = rest.iter().filter_map(|r| find(r, row)).cloned().collect();
        if same.len() != rest.len() {
            bail!("a report has no row {:?}, {:?}", row.what, row.beside);
        }
        row.time = middle_time(row.time, same.iter().map(|row| row.time));
        if let Some(counts) = row.counts {
            let mut all = vec![counts];
            all.extend(same.iter().filter_map(|row| row.counts));
            row.counts = Some(middle_counts(&all));
        }
    }
    Ok(first)
}

fn find<'a>(report: &'a Report, like: &Row) -> Option<&'a Row> {
    let same = |row: &&Row| row.what == like.what && row.beside == like.beside;
    report.rows.iter().find(same)
}

/// The middle value, of two the smaller.
fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = values.len().saturating_sub(1) / 2;
    values.get(at).copied().unwrap_or(0.0)
}

/// What did not happen once has not happened.
fn middle_time(first: Time, rest: impl Iterator<Item = Time>) -> Time {
    let mut micros = Vec::new();
    for time in std::iter::once(first).chain(rest) {
        match time {
            Time::Micros(us) => micros.push(us),
            Time::Never | Time::Untimed => return time,
        }
    }
    Time::Micros(middle(micros))
}

fn middle_counts(all: &[Counts]) -> Counts {
    let mut figures = [0.0; Counts::NAMES.len()];
    for (n, figure) in figures.iter_mut().enumerate() {
        let each = all.iter().filter_map(|c| c.figures().get(n).copied());
        *figure = middle(each.collect());
    }
    Counts::of_figures(figures)
}

/// How many times as long the other one took; nothing where that cannot be said.
fn ratio(own: Time, other: Time) -> Option<f64> {
    match (own, other) {
        (Time::Micros(own), Time::Micros(other)) if own > 0.0 => Some(other / own),
        (Time::Micros(_), Time::Never) => Some(f64::INFINITY),
        (Time::Never, Time::Micros(_)) => Some(0.0),
        _ => None,
    }
}

/// A goal: how many times as long the other driver has to take, at least.
struct Goal {
    what: &'static str,
    wanted: f64,
    /// The worst of what belongs to it; nothing where it was not measured.
    found: Option<f64>,
}

fn goals(own: &Report, other: &Report) -> Vec<Goal> {
    let worst = |what: &str, beside: &str| {
        let mine = |row: &&Row| row.what == what && (beside.is_empty() || row.beside == beside);
        let ratios = own.rows.iter().filter(mine).map(|row| {
            let other = find(other, row)?;
            ratio(row.time, other.time)
        });
        // Of rows that have no ratio nothing can be said of the whole.
        let ratios: Option<Vec<f64>> = ratios.collect();
        ratios?.into_iter().min_by(f64::total_cmp)
    };
    let goal = |what, wanted, found| Goal {
        what,
        wanted,
        found,
    };
    vec![
        goal(
            "create a queue beside 1024",
            5.0,
            worst("create a queue", "1024 queues"),
        ),
        goal(
            "destroy a queue beside 1024",
            5.0,
            worst("destroy a queue", "1024 queues"),
        ),
        goal("map, the worst of all sizes", 1.5, worst("map", "")),
        goal("unmap, the worst of all sizes", 1.5, worst("unmap", "")),
        goal(
            "what others wait while a queue refuses to leave",
            10.0,
            worst(
                "longest round trip, a queue is created",
                "another process's queue refuses",
            ),
        ),
        goal(
            "packet to memory, which no driver takes part in",
            LOSS,
            worst("packet to memory", ""),
        ),
    ]
}

/// A time with the unit that suits it.
fn time_text(time: Time) -> String {
    match time {
        Time::Never => "never".to_owned(),
        Time::Untimed => "-".to_owned(),
        Time::Micros(us) if us < 10.0 => format!("{us:.1} µs"),
        Time::Micros(us) if us < 1e4 => format!("{us:.0} µs"),
        Time::Micros(us) if us < 1e6 => format!("{:.1} ms", us / 1e3),
        Time::Micros(us) => format!("{:.2} s", us / 1e6),
    }
}

fn ratio_text(ratio: Option<f64>) -> String {
    match ratio {
        None => "-".to_owned(),
        Some(ratio) if ratio.is_infinite() => "∞".to_owned(),
        Some(ratio) if ratio < LOSS => format!("**{ratio:.2}**"),
        Some(ratio) if ratio < 10.0 => format!("{ratio:.2}"),
        Some(ratio) => format!("{ratio:.0}"),
    }
}

/// A count with as many digits as mean something.
fn count_text(count: f64) -> String {
    if count >= 100.0 || count == count.trunc() {
        format!("{count:.0}")
    } else if count >= 10.0 {
        format!("{count:.1}")
    } else {
        format!("{count:.2}")
    }
}

/// A table whose columns from `right` on are numbers.
fn aligned(records: Vec<Vec<String>>, right: usize) -> String {
    let mut builder = Builder::default();
    for record in records {
        builder.push_record(record);
    }
    let mut table = builder.build();
    table
        .with(Style::markdown())
        .modify(Columns::new(right..), Alignment::right());
    table.to_string()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn times_table(own: &Report, other: &Report) -> String {
    let mut records = vec![words(&[
        "what",
        "beside",
        "rkfd",
        "amdgpu",
        "amdgpu / rkfd",
    ])];
    for row in own.rows.iter().filter(|row| row.time != Time::Untimed) {
        let other = find(other, row).map_or(Time::Untimed, |row| row.time);
        records.push(vec![
            row.what.clone(),
            row.beside.clone(),
            time_text(row.time),
            time_text(other),
            ratio_text(ratio(row.time, other)),
        ]);
    }
    aligned(records, 2)
}

fn counts_table(own: &Report, other: &Report) -> String {
    let mut head = words(&["what", "beside"]);
    head.extend(words(&Counts::NAMES));
    let mut records = vec![head];
    for row in &own.rows {
        let other = find(other, row).and_then(|row| row.counts);
        let (Some(mine), Some(other)) = (row.counts, other) else {
            continue;
        };
        let mut record = vec![row.what.clone(), row.beside.clone()];
        let pairs = mine.figures().into_iter().zip(other.figures());
        record.extend(pairs.map(|(a, b)| format!("{} : {}", count_text(a), count_text(b))));
        records.push(record);
    }
    aligned(records, 2)
}

fn goals_table(own: &Report, other: &Report) -> String {
    let mut records = vec![words(&[
        "goal",
        "amdgpu / rkfd, at least",
        "found",
        "reached",
    ])];
    for goal in goals(own, other) {
        let reached = match goal.found {
            None => "not measured",
            Some(found) if found >= goal.wanted => "yes",
            Some(_) => "no",
        };
        records.push(vec![
            goal.what.to_owned(),
            count_text(goal.wanted),
            ratio_text(goal.found),
            reached.to_owned(),
        ]);
    }
    aligned(records, 1)
}

/// Everything, as Markdown.
fn document(own: &Report, other: &Report, runs: usize, about: &str) -> String {
    let about = if about.is_empty() {
        String::new()
    } else {
        format!("{about} ")
    };
    let kernels = if own.kernel == other.kernel {
        own.kernel.clone()
    } else {
        format!("{} (rkfd) and {} (amdgpu)", own.kernel, other.kernel)
    };
    let times = times_table(own, other);
    let counts = counts_table(own, other);
    let goals = goals_table(own, other);
    format!(
        "## The latest run\n\n\
         {about}{gpu} as a model, kernel {kernels}, processor of the guest: {processor}. Medians of {rounds} calls; runs per\n\
         driver: {runs}.\n\n\
         ### Goals\n\n{goals}\n\n\
         ### Times\n\nBold: rkfd takes longer.\n\n{times}\n\n\
         ### Counts\n\nPer call, rkfd : amdgpu.\n\n{counts}",
        gpu = own.gpu,
        processor = own.processor,
        rounds = own.rounds,
    )
}

/// The document with this text between the lines that mark its place.
fn inserted(document: &str, text: &str) -> anyhow::Result<String> {
    let (before, rest) = document
        .split_once(BEGIN)
        .with_context(|| format!("there is no line {BEGIN}"))?;
    let (_, after) = rest
        .split_once(END)
        .with_context(|| format!("there is no line {END} behind it"))?;
    Ok(format!("{before}{BEGIN}\n\n{text}\n\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(what: &str, beside: &str, micros: f64, packets: f64) -> Row {
        Row {
            what: what.to_owned(),
            beside: beside.to_owned(),
            time: Time::Micros(micros),
            counts: Some(Counts {
                packets,
                ..Counts::default()
            }),
        }
    }

    fn report(driver: &str, rows: Vec<Row>) -> Report {
        Report {
            driver: driver.to_owned(),
            kernel: "7.3".to_owned(),
            processor: "TCG".to_owned(),
            gpu: "gfx90a".to_owned(),
            rounds: 16,
            rows,
        }
    }

    #[test]
    fn several_runs_are_their_median_and_a_failure_stays_one() {
        let run = |micros, packets| report("rkfd", vec![row("map", "4 KiB", micros, packets)]);
        let all = merge(vec![run(9.0, 1.0), run(2.0, 3.0), run(4.0, 2.0)]).unwrap();
        assert_eq!(all.rows, [row("map", "4 KiB", 4.0, 2.0)]);
        let mut failed = run(1.0, 1.0);
        failed.rows[0].time = Time::Never;
        let all = merge(vec![run(9.0, 1.0), failed]).unwrap();
        assert_eq!(all.rows[0].time, Time::Never);
        let other = report("rkfd", vec![row("unmap", "4 KiB", 1.0, 1.0)]);
        assert!(merge(vec![run(9.0, 1.0), other]).is_err());
    }

    #[test]
    fn losses_are_bold_and_what_never_ends_is_no_number() {
        let micros = Time::Micros;
        let text = |own, other| ratio_text(ratio(own, other));
        assert_eq!(text(micros(10.0), micros(126.0)), "13");
        assert_eq!(text(micros(10.0), micros(15.0)), "1.50");
        assert_eq!(text(micros(10.0), micros(5.0)), "**0.50**");
        assert_eq!(text(micros(10.0), Time::Never), "∞");
        assert_eq!(text(Time::Never, micros(10.0)), "**0.00**");
        assert_eq!(text(Time::Untimed, Time::Untimed), "-");
        let times = [3.21, 321.0, 32_100.0, 3_210_000.0].map(|us| time_text(micros(us)));
        assert_eq!(times, ["3.2 µs", "321 µs", "32.1 ms", "3.21 s"]);
    }

    #[test]
    fn a_goal_takes_the_worst_of_its_rows() {
        let own = report(
            "rkfd",
            vec![row("map", "4 KiB", 1.0, 0.0), row("map", "2 MiB", 1.0, 0.0)],
        );
        let other = report(
            "amdgpu",
            vec![row("map", "4 KiB", 4.0, 0.0), row("map", "2 MiB", 1.2, 0.0)],
        );
        let goals = goals(&own, &other);
        let map = goals.iter().find(|g| g.what.starts_with("map")).unwrap();
        assert_eq!((map.wanted, map.found), (1.5, Some(1.2)));
        let unmap = goals.iter().find(|g| g.what.starts_with("unmap")).unwrap();
        assert_eq!(unmap.found, None);
    }

    #[test]
    fn the_document_has_both_drivers_and_goes_where_the_lines_say() {
        let own = report("rkfd", vec![row("map", "4 KiB", 10.0, 0.25)]);
        let other = report("amdgpu", vec![row("map", "4 KiB", 20.0, 2.0)]);
        let text = document(&own, &other, 1, "Today.");
        let line = |start: &str| -> Vec<&str> {
            let line = text.lines().find(|l| l.starts_with(start));
            line.unwrap().split('|').map(str::trim).collect()
        };
        assert_eq!(
            line("| map  "),
            ["", "map", "4 KiB", "10 µs", "20 µs", "2.00", ""]
        );
        assert!(text.contains("| 0.25 : 2 |"), "{text}");
        assert!(text.contains("Today. gfx90a as a model, kernel 7.3, "));
        let old = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = inserted(&old, &text).unwrap();
        assert_eq!(new, format!("a\n{BEGIN}\n\n{text}\n\n{END}\nb\n"));
        assert_eq!(inserted(&new, &text).unwrap(), new);
        assert!(inserted("a", &text).is_err());
    }
}
