// SPDX-License-Identifier: GPL-2.0

//! What is reported, and the line that says so.
//!
//! A line is the number of the event and its fields, as the formats `KFD_EVENT_FMT_*` of `linux/kfd_ioctl.h` have
//! them. Names of processes are the processes' own choice: what is no printable ASCII character in them is shown as
//! `?`, so that a name with a line feed makes no line.

use crate::kapi::task::{
    TaskName,
    ThreadGroup, //
};
use core::fmt::{
    self,
    Write, //
};

/// Longest line, bytes (`KFD_SMI_EVENT_MSG_SIZE`).
pub(crate) const LINE_SIZE: usize = 96;

/// Why queues are taken off (`enum KFD_QUEUE_EVICTION_TRIGGERS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum EvictionTrigger {
    /// Memory changes that the GPU is shown by attributes.
    Svm = 0,
    /// Memory of the process changes.
    Userptr = 1,
    /// Memory of the process moves between VRAM and system memory.
    Ttm = 2,
    /// The GPU is being suspended.
    Suspend = 3,
}

/// Why memory is not shown any more (`enum KFD_SVM_UNMAP_TRIGGERS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum UnmapTrigger {
    /// It changes.
    Notifier = 0,
    /// It moves to or from VRAM.
    Migration = 1,
    /// The program unmaps it.
    Unmapped = 2,
}

/// Why memory moves (`enum KFD_MIGRATE_TRIGGERS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum MigrateTrigger {
    /// The program has asked for it.
    Prefetch = 0,
    /// The GPU accesses it.
    GpuFault = 1,
    /// The CPU touches it.
    CpuFault = 2,
}

/// A location of memory that is no GPU.
const SYSTEM: u32 = 0;

/// Memory that moves between the system and the VRAM of the GPU that reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Migration {
    /// Number of the first page.
    pub(crate) page: u64,
    /// How many.
    pub(crate) pages: u64,
    /// From VRAM to the system, else to VRAM.
    pub(crate) is_out: bool,
    /// Why.
    pub(crate) trigger: MigrateTrigger,
}

impl Migration {
    /// Locations that it moves from and to, on GPU `gpu_id`.
    fn ends(&self, gpu_id: u32) -> (u32, u32) {
        if self.is_out {
            (gpu_id, SYSTEM)
        } else {
            (SYSTEM, gpu_id)
        }
    }
}

/// Attributes of memory that moves: locations, each as a GPU id, 0 for the system, or undefined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Locations {
    /// Where it was to be brought last.
    pub(crate) prefetch: u32,
    /// Where it is to lie.
    pub(crate) preferred: u32,
}

/// What happened to a GPU or on it.
pub(crate) enum SmiEvent<'a> {
    /// An access of a process was refused.
    VmFault(&'a ThreadGroup),
    /// A reset begins. Number of the reset and its cause.
    PreReset(u32, &'static str),
    /// It is over.
    PostReset(u32, &'static str),
    /// Memory is about to move.
    MigrateStart(&'a ThreadGroup, Migration, Locations),
    /// It has moved, but for what stays; 0, or the errno, negative, for which the rest does.
    MigrateEnd(&'a ThreadGroup, Migration, i32),
    /// An access waits for memory that is looked for now. Number of the page, and whether it is to be written.
    PageFaultStart(&'a ThreadGroup, u64, bool),
    /// The page with a number is shown, and whether memory has moved to VRAM for that.
    PageFaultEnd(&'a ThreadGroup, u64, bool),
    /// So many pages from one on are not shown any more.
    UnmapFromGpu(&'a ThreadGroup, u64, u64, UnmapTrigger),
    /// The queues of a process are off.
    QueueEviction(&'a ThreadGroup, EvictionTrigger),
    /// They run again.
    QueueRestore(&'a ThreadGroup),
    /// They could not be restored yet, which is tried again.
    QueueRestoreDelayed(&'a ThreadGroup),
    /// A process has an address space on the GPU.
    ProcessStart(&'a ThreadGroup),
    /// Not any more.
    ProcessEnd(&'a ThreadGroup),
}

impl SmiEvent<'_> {
    /// Number (`enum kfd_smi_event`).
    fn number(&self) -> u32 {
        match self {
            Self::VmFault(_) => 1,
            Self::PreReset(..) => 3,
            Self::PostReset(..) => 4,
            Self::MigrateStart(..) => 5,
            Self::MigrateEnd(..) => 6,
            Self::PageFaultStart(..) => 7,
            Self::PageFaultEnd(..) => 8,
            Self::QueueEviction(..) => 9,
            Self::QueueRestore(_) | Self::QueueRestoreDelayed(_) => 10,
            Self::UnmapFromGpu(..) => 11,
            Self::ProcessStart(_) => 12,
            Self::ProcessEnd(_) => 13,
        }
    }

    /// The event's bit in a mask (`KFD_SMI_EVENT_MASK_FROM_INDEX`).
    pub(crate) fn bit(&self) -> u64 {
        1 << (self.number() - 1)
    }

    /// The process that it is about, if it is about one.
    pub(crate) fn process(&self) -> Option<&ThreadGroup> {
        match self {
            Self::PreReset(..) | Self::PostReset(..) => None,
            Self::VmFault(group)
            | Self::MigrateStart(group, ..)
            | Self::MigrateEnd(group, ..)
            | Self::PageFaultStart(group, ..)
            | Self::PageFaultEnd(group, ..)
            | Self::UnmapFromGpu(group, ..)
            | Self::QueueEviction(group, _)
            | Self::QueueRestore(group)
            | Self::QueueRestoreDelayed(group)
            | Self::ProcessStart(group)
            | Self::ProcessEnd(group) => Some(group),
        }
    }

    /// The line of an event of GPU `gpu_id` at `time`, nanoseconds since the machine was started.
    pub(crate) fn line(&self, gpu_id: u32, time: u64) -> Line {
        let mut line = Line::new();
        // What does not fit is cut off.
        let _ = self.write(&mut line, gpu_id, time);
        line.end();
        line
    }

    fn write(&self, line: &mut Line, gpu_id: u32, time: u64) -> fmt::Result {
        write!(line, "{:x} ", self.number())?;
        match self {
            Self::VmFault(group) => {
                write!(line, "{:x}:{}", group.own_pid(), Printable(group.name()))
            }
            Self::PreReset(number, cause) | Self::PostReset(number, cause) => {
                write!(line, "{number:x} {cause}")
            }
            Self::MigrateStart(group, migration, locations) => {
                write_migration(line, time, group, migration, gpu_id)?;
                let Locations {
                    prefetch,
                    preferred,
                } = locations;
                // CAST: The discriminants are small and not negative.
                let trigger = migration.trigger as u32;
                write!(line, " {prefetch:x}:{preferred:x} {trigger}")
            }
            Self::MigrateEnd(group, migration, error) => {
                write_migration(line, time, group, migration, gpu_id)?;
                // CAST: The discriminants are small and not negative.
                let trigger = migration.trigger as u32;
                write!(line, " {trigger} {error}")
            }
            Self::PageFaultStart(group, page, write) => {
                let access = if *write { 'W' } else { 'R' };
                write!(
                    line,
                    "{time} -{} @{page:x}({gpu_id:x}) {access}",
                    group.own_pid()
                )
            }
            Self::PageFaultEnd(group, page, moved) => {
                let how = if *moved { 'M' } else { 'U' };
                write!(
                    line,
                    "{time} -{} @{page:x}({gpu_id:x}) {how}",
                    group.own_pid()
                )
            }
            Self::UnmapFromGpu(group, page, pages, trigger) => {
                // CAST: The discriminants are small and not negative.
                let trigger = *trigger as u32;
                write!(
                    line,
                    "{time} -{} @{page:x}({pages:x}) {gpu_id:x} {trigger}",
                    group.own_pid()
                )
            }
            Self::QueueEviction(group, trigger) => {
                // CAST: The discriminants are small and not negative.
                let trigger = *trigger as u32;
                write!(line, "{time} -{} {gpu_id:x} {trigger}", group.own_pid())
            }
            Self::QueueRestore(group) => write!(line, "{time} -{} {gpu_id:x} 0", group.own_pid()),
            Self::QueueRestoreDelayed(group) => {
                write!(line, "{time} -{} {gpu_id:x} R", group.own_pid())
            }
            Self::ProcessStart(group) | Self::ProcessEnd(group) => {
                write!(line, "{:x} {}", group.own_pid(), Printable(group.name()))
            }
        }
    }
}

/// What both lines of a migration have in common.
fn write_migration(
    line: &mut Line,
    time: u64,
    group: &ThreadGroup,
    migration: &Migration,
    gpu_id: u32,
) -> fmt::Result {
    let Migration { page, pages, .. } = migration;
    let (from, to) = migration.ends(gpu_id);
    write!(
        line,
        "{time} -{} @{page:x}({pages:x}) {from:x}->{to:x}",
        group.own_pid()
    )
}

/// A name without control characters.
struct Printable(TaskName);

impl fmt::Display for Printable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            let printable = byte.is_ascii_graphic() || *byte == b' ';
            f.write_char(if printable { char::from(*byte) } else { '?' })?;
        }
        Ok(())
    }
}

/// A line with its line feed.
pub(crate) struct Line {
    bytes: [u8; LINE_SIZE],
    len: usize,
}

impl Line {
    fn new() -> Self {
        Self {
            bytes: [0; LINE_SIZE],
            len: 0,
        }
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Adds the line feed, for which there is always room.
    fn end(&mut self) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = b'\n';
            self.len += 1;
        }
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // One byte stays free for the line feed.
        let room = LINE_SIZE - 1 - self.len;
        let len = text.len().min(room);
        let place = self.bytes.get_mut(self.len..self.len + len);
        if let (Some(place), Some(text)) = (place, text.as_bytes().get(..len)) {
            place.copy_from_slice(text);
            self.len += len;
        }
        if len == text.len() {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}
