// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What happens on a GPU, as the driver reports it to monitors and profilers (SMI_EVENTS).

use std::fs::File;
use std::io;
use std::io::Read as _;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;

use crate::abi;
use crate::device::Kfd;
use crate::error::Error;
use crate::error::Result;
use crate::sys;

/// All events that exist, those of other processes included (which takes CAP_SYS_ADMIN).
pub const ALL: u64 = !0;

/// What the descriptor is called in errors.
const NAME: &str = "SMI_EVENTS";

/// A stream of events of one GPU.
#[derive(Debug)]
pub struct Monitor {
    file: File,
    /// Bytes of a line that has no end yet.
    begun: Vec<u8>,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Number, `enum kfd_smi_event`.
    pub number: u32,
    /// What it says.
    pub what: What,
}

/// What an event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// An access of a process was refused.
    VmFault {
        /// Process id.
        pid: u32,
        /// Name of the process.
        name: String,
    },
    /// A reset begins or is over.
    Reset {
        /// Number of the reset.
        number: u32,
        /// Why.
        cause: String,
        /// It is over.
        over: bool,
    },
    /// The queues of a process were taken off the hardware.
    Eviction {
        /// Nanoseconds since boot.
        time: u64,
        /// Process id.
        pid: u32,
        /// GPU id.
        gpu: u32,
        /// Why, `enum KFD_QUEUE_EVICTION_TRIGGERS`.
        trigger: u32,
    },
    /// They run again, or the attempt is repeated.
    Restore {
        /// Nanoseconds since boot.
        time: u64,
        /// Process id.
        pid: u32,
        /// GPU id.
        gpu: u32,
        /// The attempt failed and is repeated.
        delayed: bool,
    },
    /// Memory of a process begins to move, or has moved.
    Move {
        /// Nanoseconds since boot.
        time: u64,
        /// Process id.
        pid: u32,
        /// Number of the first page.
        page: u64,
        /// Pages of 4 KiB.
        pages: u64,
        /// GPU id, or 0 for system memory.
        from: u32,
        /// As above.
        to: u32,
        /// Why, `enum KFD_MIGRATE_TRIGGERS`.
        trigger: u32,
        /// It has moved: 0, or an errno below 0.
        error: Option<i32>,
    },
    /// A process has an address space on the GPU, or has it no more.
    Process {
        /// Process id.
        pid: u32,
        /// Name of the process.
        name: String,
        /// It has gone.
        over: bool,
    },
    /// Any other event: its fields as they are.
    Other(String),
}

impl Event {
    /// Reads a line, without its line feed; `None` where it is not one of an event.
    pub fn parse(line: &str) -> Option<Self> {
        let (number, fields) = line.split_once(' ')?;
        let number = u32::from_str_radix(number, 16).ok()?;
        let what = match number {
            1 => parse_named(fields, ':').map(|(pid, name)| What::VmFault { pid, name }),
            3 | 4 => parse_named(fields, ' ').map(|(reset, cause)| What::Reset {
                number: reset,
                cause,
                over: number == 4,
            }),
            5 | 6 => parse_move(fields, number == 6),
            9 => parse_queues(fields).and_then(|(time, pid, gpu, last)| {
                let trigger = last.parse().ok()?;
                Some(What::Eviction {
                    time,
                    pid,
                    gpu,
                    trigger,
                })
            }),
            10 => parse_queues(fields).map(|(time, pid, gpu, last)| What::Restore {
                time,
                pid,
                gpu,
                delayed: last == "R",
            }),
            12 | 13 => parse_named(fields, ' ').map(|(pid, name)| What::Process {
                pid,
                name,
                over: number == 13,
            }),
            _ => Some(What::Other(fields.to_owned())),
        }?;
        Some(Self { number, what })
    }
}

/// A hexadecimal number and a text.
fn parse_named(fields: &str, between: char) -> Option<(u32, String)> {
    let (number, text) = fields.split_once(between)?;
    Some((u32::from_str_radix(number, 16).ok()?, text.to_owned()))
}

/// Time, process, GPU, and what is left.
fn parse_queues(fields: &str) -> Option<(u64, u32, u32, &str)> {
    let mut fields = fields.split(' ');
    let time = fields.next()?.parse().ok()?;
    let pid = fields.next()?.strip_prefix('-')?.parse().ok()?;
    let gpu = u32::from_str_radix(fields.next()?, 16).ok()?;
    let last = fields.next()?;
    fields.next().is_none().then_some((time, pid, gpu, last))
}

/// Time, process, pages, places; where the program wants the memory, or an error; and why.
fn parse_move(fields: &str, over: bool) -> Option<What> {
    let hex = |text: &str| u32::from_str_radix(text, 16).ok();
    let mut fields = fields.split(' ');
    let time = fields.next()?.parse().ok()?;
    let pid = fields.next()?.strip_prefix('-')?.parse().ok()?;
    let range = fields.next()?.strip_prefix('@')?.strip_suffix(')')?;
    let (page, pages) = range.split_once('(')?;
    let (from, to) = fields.next()?.split_once("->")?;
    if !over {
        let (prefetch, preferred) = fields.next()?.split_once(':')?;
        hex(prefetch).and(hex(preferred))?;
    }
    let trigger = fields.next()?.parse().ok()?;
    let error = if over {
        Some(fields.next()?.parse().ok()?)
    } else {
        None
    };
    if fields.next().is_some() {
        return None;
    }
    Some(What::Move {
        time,
        pid,
        page: u64::from_str_radix(page, 16).ok()?,
        pages: u64::from_str_radix(pages, 16).ok()?,
        from: hex(from)?,
        to: hex(to)?,
        trigger,
        error,
    })
}

impl Monitor {
    /// Events of the GPU `gpu_id` from now on; bit `n - 1` of `events` asks for event `n`.
    ///
    /// # Errors
    /// [`Error::Call`]: `EINVAL` for an unknown GPU, `EOPNOTSUPP` where the driver has no events.
    pub fn open(kfd: &Kfd, gpu_id: u32, events: u64) -> Result<Self> {
        let mut arg = abi::SmiEvents {
            gpuid: gpu_id,
            anon_fd: 0,
        };
        kfd.plain(NAME, abi::SMI_EVENTS, &mut arg)?;
        // SAFETY: the call handed out a new descriptor, which nobody else has.
        let file = unsafe { sys::own_descriptor(arg.anon_fd) };
        let mut monitor = Self {
            file: file.into(),
            begun: Vec::new(),
        };
        monitor.select(events)?;
        Ok(monitor)
    }

    /// Asks for other events from now on.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn select(&mut self, events: u64) -> Result<()> {
        self.file.write_all(&events.to_ne_bytes()).map_err(failed)
    }

    /// The lines that have come, without waiting; empty if there are none. Poll the descriptor to wait.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn lines(&mut self) -> Result<Vec<String>> {
        let mut bytes = [0; 4096];
        loop {
            match self.file.read(&mut bytes) {
                Ok(0) => break,
                Ok(len) => self.begun.extend(bytes.iter().take(len)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(failed(e)),
            }
        }
        let mut lines = Vec::new();
        while let Some(end) = self.begun.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.begun.drain(..=end).collect();
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            lines.push(String::from_utf8_lossy(text).into_owned());
        }
        Ok(lines)
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn failed(e: io::Error) -> Error {
    Error::file(std::path::Path::new(NAME))(e)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_of_the_interface_are_understood() {
        let what = |line| Event::parse(line).map(|event| event.what);
        assert_eq!(
            what("1 4d2:my program: x"),
            Some(What::VmFault {
                pid: 1234,
                name: "my program: x".into()
            })
        );
        assert_eq!(
            what("4 1f engines"),
            Some(What::Reset {
                number: 31,
                cause: "engines".into(),
                over: true
            })
        );
        assert_eq!(
            what("9 17000 -1234 a5d5 1"),
            Some(What::Eviction {
                time: 17000,
                pid: 1234,
                gpu: 0xa5d5,
                trigger: 1
            })
        );
        let restore = |delayed| {
            Some(What::Restore {
                time: 17001,
                pid: 1234,
                gpu: 0xa5d5,
                delayed,
            })
        };
        assert_eq!(what("a 17001 -1234 a5d5 0"), restore(false));
        assert_eq!(what("a 17001 -1234 a5d5 R"), restore(true));
        let moved = |from, to, trigger, error| {
            Some(What::Move {
                time: 17002,
                pid: 1234,
                page: 0x7f00,
                pages: 0x200,
                from,
                to,
                trigger,
                error,
            })
        };
        assert_eq!(
            what("5 17002 -1234 @7f00(200) 0->a5d5 a5d5:ffffffff 0"),
            moved(0, 0xa5d5, 0, None)
        );
        assert_eq!(
            what("6 17002 -1234 @7f00(200) a5d5->0 2 -12"),
            moved(0xa5d5, 0, 2, Some(-12))
        );
        assert_eq!(
            what("d 4d2 a b"),
            Some(What::Process {
                pid: 1234,
                name: "a b".into(),
                over: true
            })
        );
        assert_eq!(
            what("7 1 -2 @3(4) W"),
            Some(What::Other("1 -2 @3(4) W".into()))
        );
    }

    #[test]
    fn what_is_no_line_is_refused() {
        for line in [
            "",
            "1",
            "x 1:a",
            "1 1 a",
            "9 1 2 3 4",
            "9 1 -2 3",
            "9 1 -2 3 4 5",
            "5 1 -2 @3(4) 0->5 0 1",
            "5 1 -2 @3(4) 0->5 0:x 1",
            "5 1 -2 @3(4) 0->5 0:0 1 2",
            "5 1 -2 @3 0->5 0:0 1",
            "6 1 -2 @3(4) 0->5 0:0 1",
            "6 1 -2 @3(4) 0-5 0 0",
            "6 1 -2 @3(4) 0->5 0",
            "c z a",
        ] {
            assert_eq!(Event::parse(line), None, "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_bearable(line in "[0-9a-f]{0,2} .{0,60}") {
            let _ = Event::parse(&line);
        }
    }
}
