// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfd-test`: the test driver behind `make test`.

use anyhow::Context;
use clap::Parser;
use rkfd_vm::cli::Places;
use rkfd_vm::suite::areas;
use rkfd_vm::suite::end_on_signals;
use rkfd_vm::suite::filter::Filter;
use rkfd_vm::suite::outside::Program;
use rkfd_vm::suite::Options;
use rkfd_vm::suite::Runner;
use rkfd_vm::term::Paint;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::exit;

/// Run all tests: format and lints, cargo test, KUnit in the VM, end-to-end tests in the VM
#[derive(Parser, Debug)]
#[command(name = "scripts/test", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    places: Places,
    /// Use the kernel with KASAN, lockdep, UBSAN, kmemleak and fault injection
    #[arg(long)]
    debug_kernel: bool,
    /// Run only what has this in its name: host, host/clippy, kunit/gfx906, e2e/…; any name that the report
    /// prints (may be repeated)
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Run the tests of tests/upstream, on the kernel that has amdgpu, and nothing else
    #[arg(long, conflicts_with_all = ["debug_kernel", "changed"])]
    upstream: bool,
    /// Have GPU models whose VRAM is noise everywhere and whose TLBs drop no more than they are told to, in every VM
    #[arg(long)]
    harsh: bool,
    /// Print where the time went: per VM, and the slowest suites
    #[arg(long)]
    timings: bool,
    /// Run what changes of the files can affect that this file lists, one path per line
    #[arg(long, value_name = "FILE", conflicts_with = "filter", hide = true)]
    changed: Option<PathBuf>,
    /// Run nothing; the exit status tells whether this would run
    #[arg(long, value_name = "NAME", hide = true)]
    wants: Option<String>,
    /// A program of tests that ran outside of the toolbox, as NAME:STATUS:SECONDS:FILE
    #[arg(long, hide = true)]
    outside: Vec<Program>,
}

fn main() {
    let cli = Cli::parse();
    let wanted = match &cli.changed {
        None => Ok(cli.filter),
        Some(list) => affected(&cli.places.top, list),
    };
    let wanted = wanted.unwrap_or_else(|error| fail(&error));
    let unaffected = cli.changed.is_some() && wanted.is_empty();
    let filter = Filter::new(wanted);
    if let Some(name) = cli.wants {
        exit(i32::from(
            cli.debug_kernel || cli.upstream || unaffected || !filter.wants(&name),
        ));
    }
    if unaffected {
        println!("no suite is affected\n\n0 passed, 0 failed, 0 skipped");
        return;
    }
    end_on_signals();
    let options = Options {
        debug: cli.debug_kernel,
        harsh: cli.harsh,
        upstream: cli.upstream,
        timings: cli.timings,
        changed: cli.changed.is_some(),
    };
    let result = Runner::new(cli.places, options, filter);
    match result.map(|runner| runner.run(&cli.outside)) {
        Ok(true) => {}
        Ok(false) => exit(1),
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> ! {
    eprintln!("{} {error:#}", Paint::for_stderr().bad("error:"));
    exit(2);
}

/// The suites that changes of the listed files can affect.
fn affected(top: &Path, list: &Path) -> anyhow::Result<Vec<String>> {
    let files = fs::read_to_string(list).with_context(|| format!("reading {}", list.display()))?;
    let suites = areas::affected(&areas::load(top)?, files.lines())?;
    Ok(suites.into_iter().collect())
}
