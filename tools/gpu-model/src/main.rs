// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The gfx9 GPU model: command line and process set-up.

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use clap::Parser;

use gpu_model::asic::Asic;
use gpu_model::clock::Clock;
use gpu_model::device::{Gpu, NoMsi};
use gpu_model::pci::Subsystem;
use gpu_model::server::{make_vram, serve, Shared};
use gpu_model::trace::{Log, DEFAULT_RECORDS};

/// Exit status when the driver broke a rule of the hardware.
const EXIT_PROTOCOL_ERRORS: u8 = 3;

/// A functional gfx9 compute GPU for QEMU's vfio-user-pci.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// ASIC: gfx90a or gfx906.
    #[arg(long, default_value = "gfx90a", value_parser = asic)]
    asic: &'static Asic,
    /// Socket that the VMM connects to.
    #[arg(long)]
    socket: PathBuf,
    /// Control socket (statistics, trace, fault injection).
    #[arg(long)]
    control: PathBuf,
    /// Size of VRAM: a power of two from 64M to 64G, for example 1G.
    #[arg(long, default_value = "1G", value_parser = size)]
    vram: u64,
    /// File that gets protocol errors and notes.
    #[arg(long)]
    log: Option<PathBuf>,
    /// PCI subsystem vendor and device, hexadecimal; other ids than the default make a driver take it for a card.
    #[arg(long, value_name = "VVVV:DDDD", default_value_t = Subsystem::default())]
    subsystem: Subsystem,
    /// Packets and events kept for the trace command.
    #[arg(long, default_value_t = DEFAULT_RECORDS)]
    trace_records: usize,
}

fn asic(name: &str) -> Result<&'static Asic, String> {
    Asic::by_name(name).ok_or_else(|| format!("unknown ASIC {name}; known: gfx90a, gfx906"))
}

fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.to_ascii_uppercase() {
        t if t.ends_with('G') => (t.trim_end_matches('G').to_string(), 30),
        t if t.ends_with('M') => (t.trim_end_matches('M').to_string(), 20),
        t => (t, 0),
    };
    let n: u64 = digits.parse().map_err(|e| format!("{text}: {e}"))?;
    let bytes = n
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{text}: too large"))?;
    if bytes.is_power_of_two() && (64 << 20..=64 << 30).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("{text}: not a power of two from 64M to 64G"))
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(EXIT_PROTOCOL_ERRORS),
        Err(e) => {
            eprintln!("gpu-model: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<u64> {
    let vram = make_vram(args.vram).context("VRAM")?;
    let file = args
        .log
        .as_ref()
        .map(File::create)
        .transpose()
        .context("log file")?;
    let log = Log::new(args.trace_records, file, true);
    let clock = Clock::Real(Instant::now());
    let gpu = Gpu::new(
        args.asic,
        vram.try_clone()?,
        args.vram,
        clock,
        log,
        Box::new(NoMsi),
    )?;
    let shared = Shared::new(gpu);
    gpu_model::control::listen(&args.control, Arc::clone(&shared)).context("control socket")?;
    let worker = {
        let shared = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("queues".into())
            .spawn(move || shared.run_worker())?
    };
    let served = serve(&args.socket, &shared, &vram, args.subsystem);
    shared.stop();
    if worker.join().is_err() {
        anyhow::bail!("the queue worker died");
    }
    served?;
    let errors = shared.lock().log.total_errors();
    // The sockets are ours; a leftover would only confuse the next start.
    let _ = std::fs::remove_file(&args.socket);
    let _ = std::fs::remove_file(&args.control);
    Ok(errors)
}
