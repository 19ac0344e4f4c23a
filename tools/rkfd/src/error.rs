// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What can go wrong between a program and the GPU.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

use crate::code::error::CodeError;
use crate::packet::PacketError;
use crate::queue::error::QueueError;

/// Errors of this library.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused a call.
    #[error("{call}: {errno}")]
    Call {
        /// The call, as in the C header.
        call: &'static str,
        /// Its errno.
        errno: Errno,
    },
    /// A file could not be opened or read.
    #[error("{path}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no `/dev/kfd`: no driver is loaded, or the kernel is another one.
    #[error("No compute driver: /dev/kfd does not exist")]
    NoDriver,
    /// The driver serves no GPU (any more).
    #[error("No GPU")]
    NoGpu,
    /// No render node belongs to the GPU.
    #[error("No render node answers for GPU {0:#06x}")]
    NoRenderNode(u32),
    /// The driver speaks another interface.
    #[error("/dev/kfd speaks interface {0}.{1}; this library needs 1.x")]
    Version(u32, u32),
    /// Text in the topology that is not a topology.
    #[error("{path}: not understood: {line:?}", path = path.display())]
    Topology {
        /// The file.
        path: PathBuf,
        /// The offending line.
        line: String,
    },
    /// The topology kept changing while it was read.
    #[error("The topology changed at every attempt to read it")]
    TopologyUnstable,
    /// An access outside a buffer, or one that is not aligned.
    #[error("Access of {len} bytes at {offset:#x} does not fit a buffer of {size:#x} bytes")]
    OutOfRange {
        /// Where it began.
        offset: usize,
        /// How long it was.
        len: usize,
        /// How long the buffer is.
        size: usize,
    },
    /// A size or address that this library cannot use.
    #[error("{0}")]
    Argument(&'static str),
    /// The ring has no room now; the GPU has to read on first.
    #[error("The ring is full: {wanted} units wanted, {free} free")]
    RingFull {
        /// Ring units (dwords, bytes or AQL packets) wanted.
        wanted: u64,
        /// Ring units free.
        free: u64,
    },
    /// A bounded wait ended.
    #[error("Waited {ms} ms for {what}; last seen: {seen:#x}")]
    TimedOut {
        /// What was awaited.
        what: &'static str,
        /// The value seen last.
        seen: u64,
        /// How long, in milliseconds.
        ms: u128,
    },
    /// A queue stopped at a packet.
    #[error("The queue stopped at {0}")]
    QueueFailed(QueueError),
    /// No thread could be started.
    #[error("No thread: {0}")]
    Thread(io::Error),
    /// A packet that cannot be encoded.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// A code object that cannot be loaded, or a launch that cannot be.
    #[error(transparent)]
    Code(#[from] CodeError),
}

/// Result of this library.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The errno of a refused call.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Error::Call { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { path, source }
    }
}
