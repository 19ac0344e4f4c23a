// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The kernel log, on its way to the host.

use crate::protocol::MARK;
use crate::protocol::MARK_END;
use anyhow::Context;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::io::Read;
use std::io::Write;
use std::thread;
use std::thread::JoinHandle;

/// Largest record that `/dev/kmsg` hands out (PRINTK_MESSAGE_MAX of kernel/printk/internal.h, doubled).
const RECORD_MAX: usize = 4096;

/// Writes a line of our own to the kernel log, at level info.
///
/// # Errors
/// What writing gave.
pub(super) fn say(text: &str) -> io::Result<()> {
    let mut log = OpenOptions::new().write(true).open("/dev/kmsg")?;
    // Without its newline a record stays open for more, and no reader sees it before the next one.
    log.write_all(format!("<6>{MARK}{text}\n").as_bytes())
}

/// Like [`say`], for the marks that the host waits for.
///
/// # Errors
/// What writing gave.
pub(super) fn mark(text: &str) -> anyhow::Result<()> {
    say(text).context("writing a mark to the kernel log")
}

/// Asks the kernel for reports, one per letter.
pub(super) fn sysrq(keys: &str) {
    for key in keys.bytes() {
        // Nothing to be done where the kernel lacks it.
        let _ = std::fs::write("/proc/sysrq-trigger", [key]);
    }
}

/// The thread that forwards the log.
pub(super) struct Forwarder(JoinHandle<()>);

impl Forwarder {
    /// Writes the last mark and waits until all up to it is on its way.
    ///
    /// # Errors
    /// Where the mark cannot be written.
    pub(super) fn complete(self) -> anyhow::Result<()> {
        mark(MARK_END)?;
        let _ = self.0.join();
        Ok(())
    }
}

/// Starts to copy the log from its first record on to `port`.
///
/// # Errors
/// Where the log cannot be opened.
pub(super) fn forward(mut port: File) -> anyhow::Result<Forwarder> {
    let mut log = File::open("/dev/kmsg").context("opening /dev/kmsg")?;
    let last = format!(";{MARK}{MARK_END}\n");
    let copy = move || {
        let mut record = [0; RECORD_MAX];
        loop {
            match log.read(&mut record) {
                Ok(length) => {
                    let record = record.get(..length).unwrap_or(&[]);
                    if port.write_all(record).is_err() {
                        return;
                    }
                    if record.windows(last.len()).any(|at| at == last.as_bytes()) {
                        return;
                    }
                }
                // The ring overtook us; the reader on the host sees the gap in the sequence numbers.
                Err(error) if error.raw_os_error() == Some(nix::libc::EPIPE) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    };
    Ok(Forwarder(thread::spawn(copy)))
}
