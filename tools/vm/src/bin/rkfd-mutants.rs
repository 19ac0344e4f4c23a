// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfd-mutants`: the program behind `make mutants`.

use clap::Parser;
use rkfd_vm::cli::Places;
use rkfd_vm::suite::end_on_signals;
use rkfd_vm::suite::mutants;
use rkfd_vm::term::Paint;
use std::process::exit;

/// Apply small wrong changes to the driver, one by one, and see whether a suite notices
#[derive(Parser, Debug)]
#[command(name = "scripts/mutants", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    places: Places,
    /// Only mutants that have this in their name, their file or their suites (may be repeated)
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Only say which there are
    #[arg(long)]
    list: bool,
    /// Try again what earlier runs have tried
    #[arg(long)]
    fresh: bool,
}

fn main() {
    let cli = Cli::parse();
    end_on_signals();
    match run(&cli) {
        Ok(true) => {}
        Ok(false) => exit(1),
        Err(error) => {
            eprintln!("{} {error:#}", Paint::for_stderr().bad("error:"));
            exit(2);
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<bool> {
    if cli.list {
        for mutant in mutants::list(&cli.places.top, &cli.filter)? {
            println!(
                "{:<9} {:<36} {}",
                mutant.folder(),
                mutant.name,
                mutant.wrong
            );
        }
        return Ok(true);
    }
    let options = mutants::Options {
        filter: cli.filter.clone(),
        fresh: cli.fresh,
    };
    mutants::run(&cli.places, &options)
}
