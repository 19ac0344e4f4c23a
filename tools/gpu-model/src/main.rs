// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The gfx9 GPU model: command line and process set-up.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser};

use gpu_model::asic::Asic;
use gpu_model::board::Board;
use gpu_model::clock::Clock;
use gpu_model::device::Gpu;
use gpu_model::inject::{Injection, Kind, Rules};
use gpu_model::pci::Subsystem;
use gpu_model::server::{make_vram, serve, Shared};
use gpu_model::soc::NoMsi;
use gpu_model::trace::{Log, DEFAULT_RECORDS};
use gpu_model::vm::range::Reading;
use gpu_model::waves::watch::Filter;

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
    // A doc comment could not name them all by itself.
    #[arg(long, value_name = "KIND", value_parser = Kind::from_the_start, help = help_of_faults())]
    fault: Vec<Kind>,
    #[arg(long, value_name = "NAME", value_parser = rule, help = help_of_rules())]
    no_rule: Vec<String>,
    /// How the range of an invalidation is read that is not all ones: refuse (an error, and all is dropped) or size-bit (as
    /// PCI Express ATS reads it, which no source confirms).
    #[arg(long, value_name = "READING", default_value = "refuse", value_parser = Reading::by_name)]
    invalidation_ranges: Reading,
    /// Threads that execute waves [default: one less than there are processors, at least 1]; with 0 the thread of the
    /// queues does.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=MAX_THREADS))]
    wave_threads: Option<u16>,
    /// File that gets a line for each instruction that waves execute.
    #[arg(long, value_name = "FILE")]
    trace_isa: Option<PathBuf>,
    /// Only instructions of kernels whose name has this in it.
    #[arg(long, value_name = "PART", requires = "trace_isa")]
    trace_kernel: Option<String>,
    /// Only those of one group, of the waves with one number in their groups, or of one wave: X,Y,Z, N or X,Y,Z:N.
    #[arg(long, value_name = "WAVE", requires = "trace_isa", value_parser = waves)]
    trace_wave: Option<Filter>,
    /// Check the accesses of kernels to LDS from the start: races between waves, reads of what nobody has written,
    /// accesses beyond the allocation.
    #[arg(long)]
    check_lds: bool,
    /// Make all of VRAM noise that nobody has written, at the start and after a reset that loses it; the host needs as much
    /// memory then. Else the ends of VRAM and the beginning of each MiB are noise, and the rest is zeros.
    #[arg(long)]
    noise_everywhere: bool,
    #[command(flatten)]
    board: BoardArgs,
}

/// Most threads that execute waves.
const MAX_THREADS: i64 = 256;

/// How the board differs from the usual one.
#[derive(Debug, clap::Args)]
struct BoardArgs {
    /// Compute units that are not fused off [default: gfx90a 104 (of 112), gfx906 60 (of 64)].
    #[arg(long, value_name = "N")]
    compute_units: Option<u32>,
    /// Version of the MEC firmware, 0 for unknown [default: gfx90a 70, gfx906 472].
    #[arg(long, value_name = "N")]
    mec_firmware: Option<u32>,
    /// Version of the SDMA firmware, 0 for unknown [default: gfx90a 8, gfx906 145].
    #[arg(long, value_name = "N")]
    sdma_firmware: Option<u32>,
    /// Highest engine clock; with 0 the power controller does not tell it [default: gfx90a 1700, gfx906 1725].
    #[arg(long, value_name = "MHZ", value_parser = clap::value_parser!(u32).range(0..=MAX_CLOCK))]
    engine_clock: Option<u32>,
    /// Highest memory clock; with 0 the power controller does not tell it [default: gfx90a 1600, gfx906 1000].
    #[arg(long, value_name = "MHZ", value_parser = clap::value_parser!(u32).range(0..=MAX_CLOCK))]
    memory_clock: Option<u32>,
}

/// Highest clock in MHz: the controller's tables hold 16 bits.
const MAX_CLOCK: i64 = 0xFFFF;

impl BoardArgs {
    fn board(&self, asic: &Asic) -> Result<Board, clap::Error> {
        let usual = asic.board;
        let board = Board {
            compute_units: self.compute_units.unwrap_or(usual.compute_units),
            mec_firmware: self.mec_firmware.unwrap_or(usual.mec_firmware),
            sdma_firmware: self.sdma_firmware.unwrap_or(usual.sdma_firmware),
            engine_clock: self.engine_clock.unwrap_or(usual.engine_clock),
            memory_clock: self.memory_clock.unwrap_or(usual.memory_clock),
        };
        match board.check(asic) {
            Ok(()) => Ok(board),
            Err(why) => Err(Args::command().error(ErrorKind::ValueValidation, why)),
        }
    }
}

fn asic(name: &str) -> Result<&'static Asic, String> {
    Asic::by_name(name).ok_or_else(|| format!("unknown ASIC {name}; known: gfx90a, gfx906"))
}

/// What `--help` says of `--fault`.
fn help_of_faults() -> String {
    let names: Vec<_> = Kind::names_from_the_start().collect();
    format!(
        "A fault that is on from the start, for all queues: {}; may be given more than once",
        names.join(", ")
    )
}

/// What `--help` says of `--no-rule`.
fn help_of_rules() -> String {
    format!(
        "A rule to do without: {}; may be given more than once",
        Rules::NAMES.join(", ")
    )
}

fn rule(name: &str) -> Result<String, String> {
    Rules::default().switch_off(name).map(|()| name.to_string())
}

fn waves(text: &str) -> Result<Filter, String> {
    Filter::default().waves(text)
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

/// A panic of any thread ends the process at once: what is left of the device would only mislead the driver.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |why| {
        report(why);
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("?");
        eprintln!(
            "gpu-model: thread {name} panicked, the model ends; this is a defect of the model"
        );
        std::process::abort();
    }));
}

fn main() -> ExitCode {
    abort_on_panic();
    let args = Args::parse();
    let board = args.board.board(args.asic).unwrap_or_else(|e| e.exit());
    match run(&args, board) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(EXIT_PROTOCOL_ERRORS),
        Err(e) => {
            eprintln!("gpu-model: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// Processors beside the one of the queues, at least one.
fn spare_processors() -> usize {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    all.saturating_sub(1).max(1)
}

fn run(args: &Args, board: Board) -> anyhow::Result<u64> {
    let vram = make_vram(args.vram).context("VRAM")?;
    let file = args
        .log
        .as_ref()
        .map(File::create)
        .transpose()
        .context("log file")?;
    let log = Log::new(args.trace_records, file, true);
    let clock = Clock::Real(Instant::now());
    let mut gpu = Gpu::new(
        args.asic,
        board,
        vram.try_clone()?,
        args.vram,
        clock,
        log,
        Box::new(NoMsi),
    )?;
    if args.noise_everywhere {
        gpu.make_noise_everywhere();
    }
    for name in &args.no_rule {
        gpu.soc.rules.switch_off(name).map_err(anyhow::Error::msg)?;
    }
    gpu.soc.set_ranges(args.invalidation_ranges);
    for &kind in &args.fault {
        let added = gpu.soc.inject.add(Injection {
            kind,
            doorbell: None,
            count: None,
            ms: None,
        });
        anyhow::ensure!(added, "too many faults are on");
    }
    let threads = args.wave_threads.map_or_else(spare_processors, usize::from);
    if let Some(path) = &args.trace_isa {
        let file = File::create(path).context("trace of instructions")?;
        let filter = Filter {
            kernel: args.trace_kernel.clone(),
            ..args.trace_wave.clone().unwrap_or_default()
        };
        let to = Box::new(BufWriter::new(file));
        gpu.waves.dispatcher.watch.trace(filter, to);
    }
    if args.check_lds {
        gpu.waves.dispatcher.watch.check(true);
    }
    gpu.waves.spawn(threads).context("threads for waves")?;
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
    let errors = {
        let gpu = shared.lock();
        gpu.waves.dispatcher.watch.flush();
        gpu.soc.log.total_errors()
    };
    // The sockets are ours; a leftover would only confuse the next start.
    let _ = std::fs::remove_file(&args.socket);
    let _ = std::fs::remove_file(&args.control);
    Ok(errors)
}

#[cfg(test)]
mod tests {
    // A test may panic; that is how it fails.
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::abort_on_panic;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// Set in the process that the test starts.
    const PANICS: &str = "GPU_MODEL_TEST_PANICS";

    #[test]
    fn a_panic_of_any_thread_ends_the_process() {
        if std::env::var_os(PANICS).is_some() {
            abort_on_panic();
            let thread = std::thread::Builder::new().name("worker".into());
            let panics = thread.spawn(|| panic!("on purpose")).unwrap();
            // It would be an error here, and the process go on.
            let _ = panics.join();
            return;
        }
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "tests::a_panic_of_any_thread_ends_the_process",
                "--nocapture",
            ])
            .env(PANICS, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(nix::libc::SIGABRT), "{said}");
        assert!(said.contains("on purpose"), "{said}");
        let report = "gpu-model: thread worker panicked, the model ends";
        assert!(said.contains(report), "{said}");
    }
}
