// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Where the time of a run goes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use std::time::Instant;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

/// The end of a part of the run that came before this program, as `NAME=SECONDS` since 1970.
#[derive(Clone, Debug, PartialEq)]
pub struct Stamp {
    name: String,
    end: Duration,
}

impl FromStr for Stamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, seconds) = text.split_once('=').ok_or("it is NAME=SECONDS")?;
        let seconds = seconds.parse().map_err(|error| format!("{error}"))?;
        let end = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
        Ok(Self {
            name: name.to_owned(),
            end,
        })
    }
}

/// The parts of a run, in order, each with the time at which it ended.
#[derive(Clone, Debug)]
pub struct Timings {
    start: Instant,
    parts: Vec<(String, Duration)>,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            parts: Vec::new(),
        }
    }
}

impl Timings {
    /// One that begins with what the stamps say: the end of the first is the start of all.
    pub fn after(stamps: &[Stamp]) -> Self {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let Some((first, rest)) = stamps.split_first() else {
            return Self::default();
        };
        // A clock that was set meanwhile gives a wrong line, nothing worse.
        let passed = now.saturating_sub(first.end);
        let since = |stamp: &Stamp| stamp.end.saturating_sub(first.end);
        Self {
            start: Instant::now()
                .checked_sub(passed)
                .unwrap_or_else(Instant::now),
            parts: rest
                .iter()
                .map(|stamp| (stamp.name.clone(), since(stamp)))
                .collect(),
        }
    }

    /// The part of that name ends now.
    pub fn end(&mut self, name: &str) {
        self.end_before(name, Duration::ZERO);
    }

    /// The part of that name ended so long ago. No part ends before the one in front of it.
    pub fn end_before(&mut self, name: &str, ago: Duration) {
        let end = self.start.elapsed().saturating_sub(ago);
        let end = end.max(self.parts.last().map_or(Duration::ZERO, |(_, end)| *end));
        self.parts.push((name.to_owned(), end));
    }
}

impl fmt::Display for Timings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.parts.iter().map(|(name, _)| name.chars().count());
        let width = names.max().unwrap_or(0).max("part".len());
        writeln!(f, "{:<width$}  {:>8}  {:>8}", "part", "seconds", "until")?;
        let mut before = Duration::ZERO;
        for (name, end) in &self.parts {
            let took = end.saturating_sub(before).as_secs_f64();
            writeln!(f, "{name:<width$}  {took:>8.3}  {:>8.3}", end.as_secs_f64())?;
            before = *end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_aligned_and_adds_up() {
        let timings = Timings {
            start: Instant::now(),
            parts: vec![
                ("scripts".into(), Duration::from_millis(250)),
                (
                    "the kernel, to process 1".into(),
                    Duration::from_millis(11_500),
                ),
            ],
        };
        let wanted = "part                       seconds     until\n\
                      scripts                      0.250     0.250\n\
                      the kernel, to process 1    11.250    11.500\n";
        assert_eq!(timings.to_string(), wanted);
    }

    #[test]
    fn stamps_come_first() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let at = |ago: u64| (now - Duration::from_secs(ago)).as_secs_f64();
        let stamps: Vec<Stamp> = [("start", 300), ("scripts", 200)]
            .map(|(name, ago)| format!("{name}={:.6}", at(ago)).parse().unwrap())
            .into();
        let mut timings = Timings::after(&stamps);
        timings.end_before("before the stamp", Duration::from_secs(290));
        timings.end("toolbox");
        let ends: Vec<u64> = timings
            .parts
            .iter()
            .map(|(_, end)| end.as_millis() as u64 / 100)
            .collect();
        assert_eq!(ends.get(..2), Some(&[1000, 1000][..]));
        assert!((3000..6000).contains(&ends[2]), "{ends:?}");
        for bad in ["x", "x=", "x=y", "x=-1", "x=NaN"] {
            assert!(bad.parse::<Stamp>().is_err(), "{bad}");
        }
    }
}
