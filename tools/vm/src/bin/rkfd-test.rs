// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfd-test`: the test driver behind `make test`.

use clap::Parser;
use rkfd_vm::child::kill_groups;
use rkfd_vm::cli::Places;
use rkfd_vm::suite::filter::Filter;
use rkfd_vm::suite::outside::Program;
use rkfd_vm::suite::Runner;
use rkfd_vm::term::Paint;
use signal_hook::consts::SIGHUP;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;
use std::process::exit;
use std::thread;

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
    /// Run nothing; the exit status tells whether this would run
    #[arg(long, value_name = "NAME", hide = true)]
    wants: Option<String>,
    /// A program of tests that ran outside of the toolbox, as NAME:STATUS:SECONDS:FILE
    #[arg(long, hide = true)]
    outside: Vec<Program>,
}

fn main() {
    let cli = Cli::parse();
    let filter = Filter::new(cli.filter);
    if let Some(name) = cli.wants {
        exit(i32::from(cli.debug_kernel || !filter.wants(&name)));
    }
    match Signals::new([SIGINT, SIGTERM, SIGHUP]) {
        // Children are in groups of their own, which neither Ctrl-C nor our death reaches.
        Ok(mut signals) => drop(thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                kill_groups();
                exit(128 + signal);
            }
        })),
        Err(error) => eprintln!("{} {error}", Paint::for_stderr().bad("error:")),
    }
    let result = Runner::new(cli.places, cli.debug_kernel, filter);
    match result.map(|runner| runner.run(&cli.outside)) {
        Ok(true) => {}
        Ok(false) => exit(1),
        Err(error) => {
            eprintln!("{} {error:#}", Paint::for_stderr().bad("error:"));
            exit(2);
        }
    }
}
