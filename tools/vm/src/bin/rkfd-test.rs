// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfd-test`: the test driver behind `make test`.

use clap::Parser;
use rkfd_vm::cli::Places;
use rkfd_vm::suite::Runner;
use rkfd_vm::term::Paint;
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
    /// Run only what has this in its name: host, host/clippy, kunit/gfx906, e2e/… (may be repeated)
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
}

fn main() {
    let cli = Cli::parse();
    let result =
        Runner::new(cli.places, cli.debug_kernel, cli.filter).and_then(|runner| runner.run());
    match result {
        Ok(true) => {}
        Ok(false) => exit(1),
        Err(error) => {
            eprintln!("{} {error:#}", Paint::for_stderr().bad("error:"));
            exit(2);
        }
    }
}
