// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What each path costs, side by side.

use std::time::Duration;

use super::super::heading;
use crate::latency::micros;
use crate::latency::Samples;
use crate::style;

/// What a path copies.
#[derive(Clone, Copy, Debug, Default)]
pub struct Copied {
    /// Copies of what it works on.
    pub copies: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A path.
#[derive(Clone, Debug)]
struct Row {
    path: String,
    median: Duration,
    calls: String,
    copied: Copied,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct Table(Vec<Row>);

impl Table {
    /// Adds a path: how long each of its runs took, the system calls of one, and what one copies.
    pub fn add(&mut self, path: &str, runs: Vec<Duration>, calls: String, copied: Copied) {
        self.0.push(Row {
            path: path.to_owned(),
            median: Samples::new(runs).percentile(50),
            calls,
            copied,
        });
    }

    /// Prints the table.
    pub fn show(&self) {
        heading("What it costs");
        for line in self.lines() {
            anstream::println!("  {line}");
        }
    }

    fn lines(&self) -> Vec<String> {
        let head = [
            "one run of",
            "median",
            "system calls",
            "copies",
            "bytes copied",
        ];
        let mut cells = vec![head.map(str::to_owned)];
        cells.extend(self.0.iter().map(|row| {
            [
                row.path.clone(),
                micros(row.median),
                row.calls.clone(),
                row.copied.copies.to_string(),
                row.copied.bytes.to_string(),
            ]
        }));
        let wide = |n: usize| cells.iter().map(|row| row[n].chars().count()).max();
        let widths: Vec<usize> = (0..head.len()).map(|n| wide(n).unwrap_or(0)).collect();
        let line = |row: &[String; 5]| {
            let mut out = format!("{:<1$}", row[0], widths[0]);
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                out += &format!("  {cell:>width$}");
            }
            out
        };
        let mut out: Vec<String> = cells.iter().map(line).collect();
        if let Some(first) = out.first_mut() {
            *first = style::dim(&*first);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::default();
        let run = |micros| vec![Duration::from_micros(micros); 3];
        table.add("short", run(5), "0".into(), Copied::default());
        let copied = Copied {
            copies: 2,
            bytes: 123_456,
        };
        table.add("a longer path", run(123_456), "17".into(), copied);
        let lines: Vec<String> = table
            .lines()
            .iter()
            .map(|line| anstream::adapter::strip_str(line).to_string())
            .collect();
        assert_eq!(lines.len(), 3);
        let width = lines[0].chars().count();
        assert!(
            lines.iter().all(|line| line.chars().count() == width),
            "{lines:?}"
        );
        assert!(lines[1].starts_with("short  "));
        assert!(lines[1].ends_with(" 0"));
        assert!(lines[2].contains("123456.0 µs"));
    }
}
