// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the runner on the host and `rkfd-init` in the guest say to each other.
//!
//! Both sides speak over virtio-serial ports, one purpose each. `rkfd.status` carries one JSON object
//! per line, [`Request`] towards the guest and [`Reply`] towards the host. `rkfd.stdout` and
//! `rkfd.stderr` carry the command's bytes untouched; [`Reply::Exited`] says how many there were, so
//! that the host knows when it has them all. `rkfd.stdin` carries frames (see [`stdin_frame`]), because
//! closing a port would tear the connection down. `rkfd.kmsg` carries the records of `/dev/kmsg`.

use serde::Deserialize;
use serde::Serialize;
use std::io;
use std::io::Read;

/// Port with [`Request`] and [`Reply`] lines.
pub const PORT_STATUS: &str = "rkfd.status";
/// Port with the frames of standard input.
pub const PORT_STDIN: &str = "rkfd.stdin";
/// Port with the bytes of standard output.
pub const PORT_STDOUT: &str = "rkfd.stdout";
/// Port with the bytes of standard error.
pub const PORT_STDERR: &str = "rkfd.stderr";
/// Port with raw kernel log records, host bound.
pub const PORT_KMSG: &str = "rkfd.kmsg";
/// Start of the name of the port that reaches the control socket of GPU N.
pub const PORT_CONTROL_PREFIX: &str = "rkfd.control.";

/// Start of every line that `rkfd-init` itself writes to the kernel log.
pub const MARK: &str = "rkfd-init: ";
/// Mark after which the module is loaded; complaints before it belong to the bare kernel.
pub const MARK_MODULE: &str = "module";
/// Mark written when the log is complete.
pub const MARK_END: &str = "end of log";

/// Longest frame of standard input, in bytes.
pub const STDIN_FRAME_MAX: usize = 32 * 1024;

/// Size of a terminal in character cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TermSize {
    /// Height.
    pub rows: u16,
    /// Width.
    pub cols: u16,
}

/// A host directory that the guest mounts read-write at the same path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// 9p mount tag.
    pub tag: String,
    /// Absolute path, the same on both sides.
    pub path: String,
}

/// How the guest is to be prepared before the first command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Module to load, absolute path; none loads nothing.
    pub module: Option<String>,
    /// Parameters of the module, as on an `insmod` line.
    pub module_args: String,
    /// What that module needs, in order of loading.
    pub needs: Vec<String>,
    /// Make the firmware files of amdgpu before.
    pub firmware: bool,
    /// Further module to load afterwards (the stub called `amdgpu`).
    pub stub: Option<String>,
    /// Pairs of directories (from, onto) to bind, so that tests find the right build.
    pub binds: Vec<(String, String)>,
    /// Directories to share.
    pub shares: Vec<Share>,
}

/// A command to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Working directory.
    pub cwd: String,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// Standard input comes from `rkfd.stdin`; otherwise it is `/dev/null`.
    pub stdin: bool,
    /// Run on a terminal of this size (its output all arrives as standard output).
    pub tty: Option<TermSize>,
    /// Written to the kernel log before and after, so that complaints can be told apart.
    pub label: String,
}

/// Host to guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    /// Prepare the guest; answered by [`Reply::SetUp`].
    Setup(Setup),
    /// Run a command; answered by [`Reply::Exited`] or [`Reply::NotStarted`].
    Exec(Exec),
    /// The user's terminal has a new size.
    Resize(TermSize),
    /// Send a signal to the running command's process group.
    Signal {
        /// Signal number.
        signal: i32,
    },
    /// Have the kernel report its state (letters of `/proc/sysrq-trigger`).
    SysRq {
        /// One letter per report.
        keys: String,
    },
    /// Unload, look for leaks, answer [`Reply::Finished`] and power off.
    Finish {
        /// Leave the module loaded.
        keep: bool,
    },
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// It called exit with this status.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

impl Ending {
    /// The status as a shell would report it (128 + signal number).
    pub fn status(self) -> i32 {
        match self {
            Ending::Code(code) => code,
            Ending::Signal(signal) => 128 + signal,
        }
    }
}

/// Guest to host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Reply {
    /// `rkfd-init` runs and listens.
    Ready {
        /// When it began, in microseconds after the kernel did.
        started: u64,
        /// When it sent this, likewise.
        now: u64,
    },
    /// Preparation is over; `error` says what could not be done.
    SetUp {
        /// Why the guest is not as asked for.
        error: Option<String>,
    },
    /// The command could not be started.
    NotStarted {
        /// 127 where the program was not found, else 126.
        status: i32,
        /// Why.
        error: String,
    },
    /// The command ended and all that it started is gone.
    Exited {
        /// How.
        ending: Ending,
        /// Bytes written to `rkfd.stdout`.
        stdout: u64,
        /// Bytes written to `rkfd.stderr`.
        stderr: u64,
    },
    /// All is unloaded and checked.
    Finished {
        /// What was found wrong, one text each.
        problems: Vec<String>,
    },
}

/// A frame of standard input: its length as a little-endian u32, then that many bytes. An empty frame
/// is the end of the input.
pub fn stdin_frame(data: &[u8]) -> Vec<u8> {
    let data = data.get(..STDIN_FRAME_MAX).unwrap_or(data);
    // CAST: at most STDIN_FRAME_MAX, which fits.
    let mut frame = (data.len() as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(data);
    frame
}

/// Reads one frame; none at the end of the input.
///
/// # Errors
/// `InvalidData` where a length exceeds [`STDIN_FRAME_MAX`], else what reading gave.
pub fn read_stdin_frame(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > STDIN_FRAME_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("stdin frame of {length} bytes"),
        ));
    }
    let mut data = vec![0; length];
    from.read_exact(&mut data)?;
    Ok((length != 0).then_some(data))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn replies_are_single_lines() {
        let reply = Reply::Finished {
            problems: vec!["two\nlines".into()],
        };
        let text = serde_json::to_string(&reply).unwrap();
        assert!(!text.contains('\n'));
        assert_eq!(serde_json::from_str::<Reply>(&text).unwrap(), reply);
    }

    #[test]
    fn an_ending_is_the_shells_status() {
        assert_eq!(Ending::Code(3).status(), 3);
        assert_eq!(Ending::Signal(9).status(), 137);
    }

    #[test]
    fn an_oversize_frame_is_refused() {
        let bytes = (STDIN_FRAME_MAX as u32 + 1).to_le_bytes();
        let error = read_stdin_frame(&mut bytes.as_slice()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    proptest! {
        #[test]
        fn frames_survive_the_way(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..8)) {
            let mut wire = Vec::new();
            for part in &parts {
                wire.extend(stdin_frame(part));
            }
            wire.extend(stdin_frame(&[]));
            let mut from = wire.as_slice();
            for part in &parts {
                prop_assert_eq!(read_stdin_frame(&mut from).unwrap(), Some(part.clone()));
            }
            prop_assert_eq!(read_stdin_frame(&mut from).unwrap(), None);
            prop_assert!(from.is_empty());
        }
    }
}
