// SPDX-License-Identifier: GPL-2.0 OR MIT
//! One device model process per GPU.

use crate::child::Bound;
use crate::log::Copier;
use anyhow::Context;
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use std::fs;
use std::fs::File;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use std::time::Instant;

/// How long a model may take to open its sockets.
const START_DEADLINE: Duration = Duration::from_secs(60);
/// How long a model may take to end after QEMU let go of it.
const END_DEADLINE: Duration = Duration::from_secs(60);
/// Pause between two looks.
const INTERVAL: Duration = Duration::from_millis(2);
/// A model's exit status when it counted protocol errors.
const STATUS_PROTOCOL_ERRORS: i32 = 3;
/// Start of the lines by which a model reports them.
const PROTOCOL_ERROR: &str = "PROTOCOL ERROR";

/// What to start.
#[derive(Clone, Debug)]
pub struct Spec<'a> {
    /// The program.
    pub program: &'a Path,
    /// `gfx90a` …
    pub asic: &'a str,
    /// More options of the program.
    pub options: &'a [String],
    /// Number of the GPU, from 0.
    pub index: usize,
    /// Directory of the sockets; its path is short, as socket paths are limited to 107 bytes.
    pub sockets: &'a Path,
    /// Directory of the logs.
    pub log_dir: &'a Path,
}

/// A running model.
#[derive(Debug)]
pub struct Model {
    process: Bound,
    index: usize,
    socket: PathBuf,
    control: PathBuf,
    stderr: PathBuf,
    stderr_log: Copier,
}

impl Model {
    /// Starts a model and waits until both its sockets listen.
    ///
    /// # Errors
    /// Where it cannot be started or ends early; with the last lines that it wrote.
    pub fn start(spec: &Spec<'_>) -> anyhow::Result<Self> {
        let index = spec.index;
        let socket = spec.sockets.join(format!("gpu{index}"));
        let control = spec.sockets.join(format!("control{index}"));
        let stderr = spec.log_dir.join(format!("model{index}.stderr"));
        let making = || format!("making {}", stderr.display());
        let (ours, theirs) = pipe2(OFlag::O_CLOEXEC).with_context(making)?;
        let stderr_log = Copier::start(File::from(ours), &stderr).with_context(making)?;
        let mut command = Command::new(spec.program);
        command
            .arg("--asic")
            .arg(spec.asic)
            .arg("--socket")
            .arg(&socket)
            .arg("--control")
            .arg(&control)
            .arg("--log")
            .arg(spec.log_dir.join(format!("model{index}.log")))
            .args(spec.options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(theirs);
        let process = Bound::spawn(&mut command, &[])
            .with_context(|| format!("starting the GPU model {}", spec.program.display()))?;
        // It holds our copy of the writing end, without which the log ends with the model.
        drop(command);
        let mut model = Self {
            process,
            index,
            socket,
            control,
            stderr,
            stderr_log,
        };
        model.wait_until_listening()?;
        // The directory is the runner's alone; who reaches the sockets in it, QEMU, is somebody else.
        for socket in [&model.socket, &model.control] {
            fs::set_permissions(socket, Permissions::from_mode(0o666))
                .with_context(|| format!("opening {} to QEMU", socket.display()))?;
        }
        Ok(model)
    }

    fn wait_until_listening(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + START_DEADLINE;
        loop {
            let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
            if listens(&table, &self.socket) && listens(&table, &self.control) {
                return Ok(());
            }
            if let Some(status) = self.process.try_wait()? {
                self.stderr_log.complete();
                anyhow::bail!(
                    "the model of GPU {} ended at its start ({status}):\n{}",
                    self.index,
                    tail(&self.stderr)
                );
            }
            if Instant::now() >= end {
                anyhow::bail!(
                    "the model of GPU {} did not open its sockets within {} s:\n{}",
                    self.index,
                    START_DEADLINE.as_secs(),
                    tail(&self.stderr)
                );
            }
            thread::sleep(INTERVAL);
        }
    }

    /// Path of the vfio-user socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Path of the control socket.
    pub fn control(&self) -> &Path {
        &self.control
    }

    /// Its processor time until now.
    pub fn cpu_time(&mut self) -> Duration {
        self.process.cpu_time()
    }

    /// Waits for the model's end after QEMU has gone. Returns what was wrong with it: protocol errors as
    /// it counted them, or that it did not end well.
    pub fn finish(&mut self) -> Vec<String> {
        let who = format!("model of GPU {}", self.index);
        match self.process.wait_for(END_DEADLINE) {
            Ok(Some(status)) => {
                self.stderr_log.complete();
                judge(&who, status.code(), &status.to_string(), &self.stderr)
            }
            Ok(None) => vec![format!(
                "{who}: runs on {} s after QEMU has gone",
                END_DEADLINE.as_secs()
            )],
            Err(error) => vec![format!("{who}: {error}")],
        }
    }
}

fn judge(who: &str, code: Option<i32>, status: &str, stderr: &Path) -> Vec<String> {
    match code {
        Some(0) => Vec::new(),
        Some(STATUS_PROTOCOL_ERRORS) => {
            let text = fs::read(stderr).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let mut errors: Vec<String> = text
                .lines()
                .filter(|line| line.starts_with(PROTOCOL_ERROR))
                .map(|line| format!("{who}: {line}"))
                .collect();
            if errors.is_empty() {
                errors.push(format!("{who}: counted protocol errors but printed none"));
            }
            errors
        }
        _ => vec![format!("{who}: ended badly ({status}):\n{}", tail(stderr))],
    }
}

/// Whether the table of /proc/net/unix has a listening socket of that path. Its fourth column is the
/// socket's flags, of which 0x10000 means that it accepts connections.
fn listens(table: &str, path: &Path) -> bool {
    const ACCEPTS: u32 = 0x1_0000;
    table.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace();
        let flags = fields
            .nth(3)
            .and_then(|flags| u32::from_str_radix(flags, 16).ok());
        let found = fields.nth(3).map(Path::new);
        flags.is_some_and(|flags| flags & ACCEPTS != 0) && found == Some(path)
    })
}

/// The last lines of a file, indented.
pub fn tail(path: &Path) -> String {
    const LINES: usize = 15;
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(LINES);
    let last: Vec<String> = lines
        .iter()
        .skip(from)
        .map(|line| format!("    | {line}"))
        .collect();
    last.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_listening_socket_is_found_and_a_plain_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let table = fs::read_to_string("/proc/net/unix").unwrap();
        assert!(listens(&table, &path));
        assert!(!listens(&table, &dir.path().join("sock")));
        drop(listener);
        // A child that another thread is just starting has a copy of it for a moment.
        let end = Instant::now() + Duration::from_secs(60);
        while listens(&fs::read_to_string("/proc/net/unix").unwrap(), &path) {
            assert!(Instant::now() < end, "it is still listed");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn an_unconnected_socket_does_not_listen() {
        let table = "Num RefCount Protocol Flags Type St Inode Path\n\
                     0000: 00000002 00000000 00000000 0001 01 1234 /run/x\n\
                     0000: 00000002 00000000 00010000 0001 01 1235 /run/y\n";
        assert!(!listens(table, Path::new("/run/x")));
        assert!(listens(table, Path::new("/run/y")));
    }

    #[test]
    fn exit_status_three_yields_the_protocol_errors() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("stderr");
        fs::write(
            &log,
            "started\nPROTOCOL ERROR HIQ: reserved bit\nPROTOCOL ERROR x\n",
        )
        .unwrap();
        let errors = judge("model", Some(3), "exit status: 3", &log);
        assert_eq!(
            errors,
            [
                "model: PROTOCOL ERROR HIQ: reserved bit",
                "model: PROTOCOL ERROR x"
            ]
        );
        assert!(judge("model", Some(0), "exit status: 0", &log).is_empty());
        assert!(judge("model", None, "signal: 6", &log)[0].contains("signal: 6"));
        fs::write(&log, "").unwrap();
        assert_eq!(judge("model", Some(3), "exit status: 3", &log).len(), 1);
    }
}
