// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfd-vm`: boots the test kernel with GPUs, runs a command in the guest, judges the run.
//!
//! Exit status: the command's; 70 where the kernel, a model or the leak check complained; 124 where the
//! time was up; 125 where the VM itself failed; 128 + N where signal N interrupted it.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

use anyhow::Context;
use clap::Parser;
use rkfd_vm::cli;
use rkfd_vm::cli::MachineOptions;
use rkfd_vm::cli::Places;
use rkfd_vm::protocol::Exec;
use rkfd_vm::session;
use rkfd_vm::session::Channel;
use rkfd_vm::session::Event;
use rkfd_vm::session::Interrupted;
use rkfd_vm::session::Outcome;
use rkfd_vm::session::Session;
use rkfd_vm::session::Stream;
use rkfd_vm::session::Verdict;
use rkfd_vm::term;
use rkfd_vm::term::Paint;
use rkfd_vm::timings::Stamp;
use rkfd_vm::timings::Timings;
use signal_hook::consts::SIGHUP;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGTERM;
use signal_hook::consts::SIGWINCH;
use signal_hook::iterator::Signals;
use std::io;
use std::io::IsTerminal;
use std::io::Write;
use std::process::exit;
use std::sync::mpsc::SyncSender;
use std::sync::mpsc::TrySendError;
use std::thread;
use std::time::Duration;

/// The kernel, a model or the leak check complained.
const STATUS_COMPLAINTS: i32 = 70;
/// The command's time was up (as timeout(1)).
const STATUS_TIMEOUT: i32 = 124;
/// The VM itself failed (as docker-run(1)).
const STATUS_VM: i32 = 125;
/// Complaints shown; the log has them all.
const SHOWN: usize = 60;

/// Boot the test kernel with GPUs, load rkfd.ko, run COMMAND in the guest
///
/// The command's output is streamed and its exit status returned; without a command you get a shell.
/// The guest sees this machine's toolbox read-only with a scratch layer on top; only --share directories
/// are written through.
///
/// Exit status: the command's own; 70 if the kernel, a GPU model or the leak check complained; 124 if
/// the time was up; 125 if the VM itself failed; 128 + N if signal N interrupted it.
#[derive(Parser, Debug)]
#[command(name = "scripts/vm", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    places: Places,
    #[command(flatten)]
    machine: MachineOptions,
    /// Time for the command in seconds, 0 for any; a shell has any
    #[arg(long, value_name = "S", default_value_t = 900)]
    timeout: u64,
    /// Give the command a terminal
    #[arg(long, short = 't')]
    tty: bool,
    /// Further environment of the command
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    env: Vec<(String, String)>,
    /// Have these Debian packages in the guest, too, with what they depend on; installed when first asked for
    // Seen by scripts/vm: the root that is exported has them then.
    #[arg(long, value_name = "PACKAGE", value_delimiter = ',')]
    with: Vec<String>,
    /// Print the kernel log from the loading of the module on, at the end
    #[arg(long)]
    dmesg: bool,
    /// Print where the time went, at the end
    #[arg(long)]
    timings: bool,
    /// What scripts/vm did before, and when it was done
    #[arg(long, value_name = "NAME=SECONDS", hide = true)]
    stamp: Vec<Stamp>,
    /// What to run in the guest
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    command: Vec<String>,
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("it is NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn main() {
    let status = match run(Cli::parse()) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("{} {error:#}", Paint::for_stderr().bad("error:"));
            let interrupted = error.downcast_ref::<Interrupted>();
            interrupted.map_or(STATUS_VM, |Interrupted(signal)| 128 + signal)
        }
    };
    exit(status);
}

/// The command's time. A shell has any, as long as somebody sits before it.
fn limit(seconds: u64, shell: bool, tty: bool) -> Option<Duration> {
    (seconds != 0 && !(shell && tty)).then(|| Duration::from_secs(seconds))
}

fn run(cli: Cli) -> anyhow::Result<i32> {
    let paint = Paint::for_stderr();
    let mut timings = Timings::after(&cli.stamp);
    timings.end("entering the toolbox");
    let config = cli.machine.config(&cli.places)?;
    let log_dir = config.log_dir.clone();
    let gpus = config.asics.len() + config.cards.len();
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP, SIGWINCH]).context("catching signals")?;
    let channel = Channel::new();
    let events = channel.sender();
    thread::spawn(move || pass_signals(&mut signals, &events));
    timings.end("options, accelerator");
    let mut session = Session::boot_on(&config, channel, timings)
        .with_context(|| format!("no VM (logs: {})", log_dir.display()))?;

    let shell = cli.command.is_empty();
    let on_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let tty = if cli.tty || (shell && on_terminal) {
        term::size()
    } else {
        None
    };
    let mut env = cli::environment(&cli.places, gpus);
    env.push(("RKFD_DRIVER".into(), cli.machine.driver.name().into()));
    env.extend(cli.env);
    let argv = if shell {
        vec!["/bin/bash".to_owned()]
    } else {
        cli.command
    };
    let exec = Exec {
        label: label(&argv),
        argv,
        cwd: cli.machine.working_directory(&cli.places),
        env,
        stdin: true,
        tty,
    };
    let limit = limit(cli.timeout, shell, tty.is_some());
    session::pump_stdin(io::stdin(), session.stdin()?);
    let raw = tty.and_then(|_| term::Raw::enter());
    let outcome = session.exec(exec, limit, &mut print);
    drop(raw);

    let lost = matches!(outcome, Outcome::VmLost(_));
    let mut verdict = if lost {
        session.abandon()
    } else {
        session.finish(cli.machine.keep)
    };
    if cli.dmesg {
        for record in &verdict.kernel_log {
            eprintln!("{record}");
        }
    }
    let status = say_outcome(paint, &outcome, cli.timeout, &mut verdict);
    let status = report(paint, status, &verdict);
    if cli.timings {
        eprint!("{}", verdict.timings);
    }
    Ok(verdict.interrupted.map_or(status, |signal| 128 + signal))
}

/// The command as one short line for the kernel log, which is not the place for control characters.
fn label(argv: &[String]) -> String {
    let words = argv.iter().flat_map(|word| word.split_whitespace());
    let line: Vec<&str> = words.collect();
    let plain = line.join(" ");
    plain
        .chars()
        .filter(|c| matches!(c, ' '..='~'))
        .take(80)
        .collect()
}

/// Tells what the command's end means; returns the status that the run has for it.
fn say_outcome(paint: Paint, outcome: &Outcome, seconds: u64, verdict: &mut Verdict) -> i32 {
    match outcome {
        Outcome::Ended(ending) => ending.status(),
        Outcome::NotStarted { status, error } => {
            eprintln!("{} {error}", paint.bad("error:"));
            *status
        }
        Outcome::TimedOut => {
            eprintln!(
                "{} the command took longer than {seconds} s and was killed",
                paint.bad("error:")
            );
            STATUS_TIMEOUT
        }
        Outcome::Interrupted(signal) => 128 + signal,
        Outcome::VmLost(how) => {
            verdict.problems.insert(0, how.clone());
            STATUS_VM
        }
    }
}

/// Prints what failed the run; returns its status.
fn report(paint: Paint, status: i32, verdict: &Verdict) -> i32 {
    let count = verdict.complaints.len() + verdict.problems.len();
    if count == 0 {
        return status;
    }
    for record in verdict.complaints.iter().take(SHOWN) {
        eprintln!("{} {record}", paint.bad("kernel:"));
    }
    if verdict.complaints.len() > SHOWN {
        eprintln!("kernel: … and {} more", verdict.complaints.len() - SHOWN);
    }
    for problem in &verdict.problems {
        eprintln!("{} {problem}", paint.bad("failed:"));
    }
    eprintln!(
        "{} {} kernel message{}, {} other problem{} (the command itself: {status}); logs: {}",
        paint.bad("RUN FAILED:"),
        verdict.complaints.len(),
        plural(verdict.complaints.len()),
        verdict.problems.len(),
        plural(verdict.problems.len()),
        verdict.log_dir.display()
    );
    if matches!(status, STATUS_VM | STATUS_TIMEOUT) {
        status
    } else {
        STATUS_COMPLAINTS
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 {
        ""
    } else {
        "s"
    }
}

fn print(stream: Stream, data: &[u8]) {
    // Where the reader is gone nobody is left to tell.
    let _ = match stream {
        Stream::Out => {
            let mut out = io::stdout().lock();
            out.write_all(data).and_then(|()| out.flush())
        }
        Stream::Err => io::stderr().lock().write_all(data),
    };
}

/// Turns signals into events. A third request to stop ends this process at once; the kernel then kills
/// QEMU and the models.
fn pass_signals(signals: &mut Signals, events: &SyncSender<Event>) {
    let mut stops = 0;
    for signal in signals.forever() {
        if signal == SIGWINCH {
            if let Some(size) = term::size() {
                let _ = events.try_send(Event::Resize(size));
            }
            continue;
        }
        stops += 1;
        if stops > 2 || !interrupt(events, signal) {
            exit(128 + signal);
        }
    }
}

/// Hands an interrupt over; whether anybody will take it. A session that is busy with the command's output takes it
/// in its turn, and the thread of the signals stays free for the next.
fn interrupt(events: &SyncSender<Event>, signal: i32) -> bool {
    match events.try_send(Event::Interrupt(signal)) {
        Ok(()) => true,
        Err(TrySendError::Full(event)) => {
            let events = events.clone();
            thread::spawn(move || drop(events.send(event)));
            true
        }
        Err(TrySendError::Disconnected(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn gpus_that_the_command_names_are_its_own() {
        let models = |words: &str| {
            let places = "vm --top /t --out /o --kernel /k ";
            let line = format!("{places}{words}");
            let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
            cli.machine.models()
        };
        assert_eq!(models("-- true"), 1);
        assert_eq!(models("--gpus 2 -- true"), 2);
        assert_eq!(models("--gpus=0"), 0);
        assert_eq!(models("--passthrough 0000:03:00.0 -- prog --gpus 2"), 0);
        assert_eq!(models("--passthrough 0000:03:00.0 --gpus 1 -- prog"), 1);
        assert_eq!(models("prog --gpus=2"), 1);
    }

    #[test]
    fn only_a_shell_at_a_terminal_has_any_time() {
        let ten = Some(Duration::from_secs(10));
        assert_eq!(limit(10, false, true), ten);
        assert_eq!(limit(10, false, false), ten);
        assert_eq!(limit(10, true, false), ten);
        assert_eq!(limit(10, true, true), None);
        assert_eq!(limit(0, false, false), None);
    }

    #[test]
    fn an_interrupt_reaches_a_session_that_is_busy_with_output() {
        let (events, session) = sync_channel(1);
        events
            .send(Event::Data(Stream::Out, b"much".to_vec()))
            .unwrap();
        assert!(interrupt(&events, SIGINT));
        assert!(matches!(session.recv().unwrap(), Event::Data(..)));
        assert!(matches!(session.recv().unwrap(), Event::Interrupt(SIGINT)));
        drop(session);
        assert!(!interrupt(&events, SIGINT), "the session is over");
    }
}
