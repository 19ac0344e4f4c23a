// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The test driver behind `make test`: checks on the host, KUnit suites and end-to-end tests in the VM.

pub mod e2e;
pub mod header;
pub mod host;
pub mod kunit;
pub mod libtest;
pub mod report;
pub mod vm;

use crate::cli::Places;
use crate::term::Paint;
use anyhow::Context;
use report::Report;
use std::fs;
use std::io;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Runs suites and reports them.
pub struct Runner {
    places: Places,
    debug: bool,
    filters: Vec<String>,
    logs: PathBuf,
    report: Report,
}

impl Runner {
    /// A driver for the tests whose name contains one of `filters`; none means all.
    ///
    /// # Errors
    /// Where the folder for logs cannot be made.
    pub fn new(places: Places, debug: bool, filters: Vec<String>) -> anyhow::Result<Self> {
        let logs = places.out.join("logs/test");
        fs::create_dir_all(&logs).with_context(|| format!("making {}", logs.display()))?;
        Ok(Self {
            places,
            debug,
            filters,
            logs,
            report: Report::new(Paint::for_stdout()),
        })
    }

    /// Runs everything; whether nothing failed.
    ///
    /// # Errors
    /// What keeps the driver itself from working.
    pub fn run(&mut self) -> anyhow::Result<bool> {
        self.host()?;
        self.vm()?;
        self.kunit()?;
        self.e2e()?;
        self.progress("");
        Ok(self.report.finish())
    }

    fn wants(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| name.contains(filter))
    }

    /// Shows on a terminal what is being done; overwritten by the next line.
    fn progress(&self, what: &str) {
        if io::stdout().is_terminal() {
            print!("\r\x1b[K");
            if !what.is_empty() {
                print!("  … {what}\r");
            }
            // Only decoration.
            let _ = io::Write::flush(&mut io::stdout());
        }
    }
}
