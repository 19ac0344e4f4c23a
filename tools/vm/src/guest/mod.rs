// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Process 1 of the guest: mounts, module, commands, leak check, power-off.
//!
//! The kernel mounts the toolbox' root read-only over 9p and starts this program from the checkout. It
//! puts a tmpfs overlay on top, then does what [`crate::protocol::Request`]s say until it is told to
//! finish or the host is gone. It must not end: that would be a kernel panic.

mod exec;
mod finish;
mod firmware;
mod kmsg;
pub(crate) mod module;
mod mounts;
mod ports;

use crate::protocol::Reply;
use crate::protocol::Request;
use crate::protocol::MARK_MODULE;
use crate::protocol::PORT_KMSG;
use crate::protocol::PORT_STATUS;
use anyhow::Context;
use nix::sys::reboot::reboot;
use nix::sys::reboot::RebootMode;
use nix::time::clock_gettime;
use nix::time::ClockId;
use ports::Port;
use std::fs::File;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// What process 1 waits for.
pub(crate) enum Event {
    /// The host wants something.
    Request(Request),
    /// The command's process ended.
    Exited(crate::protocol::Ending),
    /// The host closed the status port.
    HostGone,
}

/// The guest's end of the status port.
struct Status {
    port: File,
}

impl Status {
    fn send(&mut self, reply: &Reply) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(reply)?;
        line.push('\n');
        self.port.write_all(line.as_bytes())?;
        Ok(())
    }
}

/// Runs the guest, then powers it off.
pub fn main() {
    if std::process::id() != 1 {
        eprintln!("rkfd-init is process 1 of the guest; use scripts/vm");
        std::process::exit(2);
    }
    if let Err(error) = run() {
        // Nobody but the console is sure to listen.
        eprintln!("rkfd-init: {error:#}");
        let _ = kmsg::say(&format!("failed: {error:#}"));
    }
    nix::unistd::sync();
    let _ = reboot(RebootMode::RB_POWER_OFF);
    loop {
        // Without a power switch the reset line does it: the host runs QEMU with -no-reboot.
        let _ = reboot(RebootMode::RB_AUTOBOOT);
        thread::park();
    }
}

/// Microseconds since the kernel began.
fn uptime() -> u64 {
    // Where the clock fails only a figure is wrong.
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from);
    let micros = now.unwrap_or_default().as_micros();
    u64::try_from(micros).unwrap_or(u64::MAX)
}

fn run() -> anyhow::Result<()> {
    let started = uptime();
    mounts::root()?;
    let port = Port::open(PORT_STATUS)?.into_file();
    let mut status = Status {
        port: port.try_clone()?,
    };
    let log = kmsg::forward(Port::open(PORT_KMSG)?.into_file())?;
    let (sender, events) = mpsc::channel();
    let requests = sender.clone();
    thread::spawn(move || {
        for line in BufReader::new(port).lines() {
            let Ok(line) = line else { break };
            match serde_json::from_str(&line) {
                Ok(request) => drop(requests.send(Event::Request(request))),
                Err(error) => drop(kmsg::say(&format!("request not understood: {error}"))),
            }
        }
        let _ = requests.send(Event::HostGone);
    });
    let now = uptime();
    status.send(&Reply::Ready { started, now })?;

    let mut runner = exec::Runner::new(sender)?;
    let mut loaded = module::Loaded::default();
    while let Ok(event) = events.recv() {
        match event {
            Event::Request(Request::Setup(setup)) => {
                finish::prepare();
                let result = mounts::shares(&setup)
                    .and_then(|()| {
                        if setup.firmware {
                            firmware::write()
                        } else {
                            Ok(())
                        }
                    })
                    .and_then(|()| kmsg::mark(MARK_MODULE))
                    .and_then(|()| loaded.load(&setup));
                status.send(&Reply::SetUp {
                    error: result.err().map(|error| format!("{error:#}")),
                })?;
            }
            Event::Request(Request::Exec(exec)) => {
                kmsg::mark(&format!("begin {}", exec.label))?;
                let reply = runner.run(&exec, &events).context("running the command")?;
                kmsg::mark(&format!("done {}", exec.label))?;
                status.send(&reply)?;
            }
            Event::Request(Request::SysRq { keys }) => kmsg::sysrq(&keys),
            Event::Request(Request::Finish { keep }) => {
                let problems = finish::finish(&loaded, keep);
                log.complete()?;
                status.send(&Reply::Finished { problems })?;
                return Ok(());
            }
            // Nothing runs that could take these.
            Event::Request(Request::Resize(_) | Request::Signal { .. }) | Event::Exited(_) => {}
            Event::HostGone => return Ok(()),
        }
    }
    Ok(())
}
