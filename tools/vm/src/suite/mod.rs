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
use report::Suite;
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::io::IsTerminal;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::thread;

/// VMs at a time; each takes up to 8 GiB where a test asks for much.
const MOST_VMS: usize = 3;

/// Runs suites and reports them.
pub struct Runner {
    places: Places,
    debug: bool,
    filters: Vec<String>,
    logs: PathBuf,
    report: Mutex<Report>,
}

/// What one worker does without a break: it boots VMs, which end with its thread.
enum Work {
    Kunit(kunit::Vm),
    Group(Vec<e2e::Job>),
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
            report: Mutex::new(Report::new(Paint::for_stdout())),
        })
    }

    /// Runs everything; whether nothing failed.
    ///
    /// # Errors
    /// What keeps the driver itself from working.
    pub fn run(&self) -> anyhow::Result<bool> {
        self.host()?;
        self.vm()?;
        let kunit = self.kunit_vms().into_iter().map(Work::Kunit);
        let groups = self.e2e_groups()?.into_iter().map(Work::Group);
        self.side_by_side(kunit.chain(groups).collect())?;
        self.progress("");
        Ok(self.report().finish())
    }

    /// A VM under test waits more than it works, so as many as there are processors keep them busy.
    fn side_by_side(&self, work: Vec<Work>) -> anyhow::Result<()> {
        let workers = thread::available_parallelism().map_or(1, NonZero::get);
        let queue = Mutex::new(VecDeque::from(work));
        let next = || {
            let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.pop_front()
        };
        let worker = || -> anyhow::Result<()> {
            while let Some(work) = next() {
                match work {
                    Work::Kunit(vm) => self.kunit(vm)?,
                    Work::Group(jobs) => self.group(jobs)?,
                }
            }
            Ok(())
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..workers.min(MOST_VMS))
                .map(|_| scope.spawn(worker))
                .collect();
            for worker in workers {
                worker
                    .join()
                    .map_err(|_| anyhow::anyhow!("a worker panicked"))??;
            }
            Ok(())
        })
    }

    fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints a suite's line and counts it.
    fn add(&self, suite: &Suite) {
        self.report().add(suite);
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
