// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Tests of what happens outside of the toolbox, where this driver is not: `scripts/test` runs them before,
//! and this counts what they printed.

use super::e2e::judge;
use super::output::Output;
use super::report::Suite;
use super::Runner;
use crate::protocol::Ending;
use crate::session::Outcome;
use anyhow::Context;
use std::fs;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The one that there is; as `vm/runner`, not on the debug kernel.
pub const SHARE: &str = "vm/share";

/// A program that printed TAP, and how it ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    name: String,
    status: i32,
    time: Duration,
    output: PathBuf,
}

impl Program {
    /// Its name in the report.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for Program {
    type Err = anyhow::Error;

    /// Reads `NAME:STATUS:SECONDS:FILE`.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut parts = text.splitn(4, ':');
        let mut part = || parts.next().context("NAME:STATUS:SECONDS:FILE, please");
        Ok(Self {
            name: part()?.to_owned(),
            status: part()?.parse().context("the status is no number")?,
            time: Duration::from_secs(part()?.parse().context("the time is no number")?),
            output: part()?.into(),
        })
    }
}

impl Runner {
    /// Reports what one of them showed.
    ///
    /// # Errors
    /// Where its output cannot be read.
    pub(super) fn outside(&self, program: &Program) -> anyhow::Result<()> {
        if !self.wants(&program.name) {
            return Ok(());
        }
        let out = fs::read(&program.output)
            .with_context(|| format!("reading {}", program.output.display()))?;
        let output = Output::of(out);
        let ended = Outcome::Ended(Ending::Code(program.status));
        self.add(&Suite {
            name: program.name.clone(),
            tests: judge(&ended, &output, program.time),
            time: program.time,
            log: Some(program.output.clone()),
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_told_by_four_parts() {
        let program: Program = "vm/share:7:12:/a:b".parse().unwrap();
        let wanted = Program {
            name: "vm/share".into(),
            status: 7,
            time: Duration::from_secs(12),
            output: "/a:b".into(),
        };
        assert_eq!(program, wanted);
        for bad in [
            "vm/share",
            "vm/share:0:1",
            "vm/share:x:1:f",
            "vm/share:0:y:f",
        ] {
            assert!(bad.parse::<Program>().is_err(), "{bad}");
        }
    }
}
