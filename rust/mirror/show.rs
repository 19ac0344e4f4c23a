// SPDX-License-Identifier: GPL-2.0

//! What people see of mirrors: each of them, with what it shows.

use core::{
    fmt::{
        self,
        Write, //
    },
    ops::Range,
};

use kernel::prelude::*;

use super::{
    hints::{
        Hint,
        Hinted, //
    },
    range::Mirror,
    space::Mirrors,
    window::Look, //
};
use crate::{
    gpu::mirrors::MirrorList,
    vm::mirrored::GRANULE, //
};

/// Ranges of one mirror that are listed at most, shown ones and such with hints together.
const RANGES: usize = 2048;
const MIB: u64 = 1 << 20;

/// Writes ranges, of which those that continue each other are one.
struct Ranges<'f> {
    f: &'f mut dyn Write,
    /// Lines that may still be written.
    room: usize,
    last: Option<(Range<u64>, Look)>,
    /// Bytes that found no room.
    left_out: u64,
    result: fmt::Result,
}

impl Ranges<'_> {
    fn add(&mut self, range: Range<u64>, look: Look) {
        match &mut self.last {
            Some((last, same)) if last.end == range.start && *same == look => last.end = range.end,
            _ => {
                self.write_last();
                self.last = Some((range, look));
            }
        }
    }

    fn write_last(&mut self) {
        let Some((range, look)) = self.last.take() else {
            return;
        };
        if self.room == 0 {
            self.left_out += range.end - range.start;
            return;
        }
        self.room -= 1;
        let leaf = if look.huge { "2M" } else { "4K" };
        let place = if look.vram { " vram" } else { "" };
        let (first, last) = (range.start, range.end - 1);
        if self.result.is_ok() {
            self.result = writeln!(self.f, "shown {first:#014x}-{last:#014x} {leaf}{place}");
        }
    }

    /// Writes what is left, and how much found no room; returns the room that is left.
    fn finish(mut self) -> Result<usize, fmt::Error> {
        self.write_last();
        self.result?;
        if self.left_out > 0 {
            writeln!(self.f, "more bytes {}", self.left_out)?;
        }
        Ok(self.room)
    }
}

/// Names of what is set, or `-`.
struct Flags([(bool, &'static str); 5]);

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(flags) = self;
        let mut before = "";
        for (_, name) in flags.iter().filter(|(set, _)| *set) {
            write!(f, "{before}{name}")?;
            before = ",";
        }
        if before.is_empty() {
            f.write_str("-")?;
        }
        Ok(())
    }
}

/// Writes a hint.
struct HintName(Hint);

impl fmt::Display for HintName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Hint::Vram { reach: None } => f.write_str("vram auto"),
            Hint::Vram { reach: Some(reach) } if reach < MIB => write!(f, "vram {}K", reach >> 10),
            Hint::Vram { reach: Some(reach) } => write!(f, "vram {}M", reach >> 20),
            Hint::System => f.write_str("system"),
            Hint::Stay => f.write_str("stay"),
        }
    }
}

impl Mirror {
    /// Writes what it is, and the ranges that are shown.
    fn show(&self, f: &mut dyn Write, room: &mut usize, pid: i32, pasid: u16) -> fmt::Result {
        let request = self.request();
        let usage = self.usage();
        let gpu = self.gpu();
        let mut shown = (0u64, None);
        self.for_each_shown(&mut |range, _| {
            let granule = range.start / GRANULE;
            if shown.1.replace(granule) != Some(granule) {
                shown.0 += 1;
            }
        });
        let granules = (gpu.end - 1) / GRANULE - gpu.start / GRANULE + 1;
        let flags = Flags([
            (!request.rights.write, "read-only"),
            (request.rights.execute, "executable"),
            (request.filling.at_once, "populated"),
            (request.filling.on_access, "fault"),
            (self.is_whole(), "whole"),
        ]);
        writeln!(
            f,
            "mirror {} pid {} pasid {} cpu {:#014x}-{:#014x} gpu {:#014x}-{:#014x} flags {} granules {} of {} bytes {} huge {} vram {} leaf {} changes {} served {} hints {}",
            self.id(),
            pid,
            pasid,
            request.cpu,
            request.cpu + (request.len - 1),
            gpu.start,
            gpu.end - 1,
            flags,
            shown.0,
            granules,
            usage.bytes,
            usage.huge,
            usage.vram,
            self.leaf(),
            usage.changes,
            usage.served,
            self.hinted_ranges(),
        )?;
        let own = RANGES.min(*room);
        let left = self.show_hints(f, own)?;
        *room -= own - left;
        let own = left;
        let mut ranges = Ranges {
            f,
            room: own,
            last: None,
            left_out: 0,
            result: Ok(()),
        };
        // Under update locks: nothing is allocated by the writes, whose memory seq_file has made before.
        self.for_each_shown(&mut |range, look| ranges.add(range, look));
        *room -= own - ranges.finish()?;
        Ok(())
    }

    /// Writes a line for each range that has a hint, and how many found no room of `room` lines; returns the room that is left.
    fn show_hints(&self, f: &mut dyn Write, mut room: usize) -> Result<usize, fmt::Error> {
        let (mut from, mut written) = (0, 0);
        while let Some(Hinted { range, hint }) = self.hints().next_from(from) {
            if room == 0 {
                let left = self.hinted_ranges().saturating_sub(written);
                writeln!(f, "more hints {left}")?;
                break;
            }
            let (first, last) = (range.start, range.end - 1);
            writeln!(f, "hint {first:#014x}-{last:#014x} {}", HintName(hint))?;
            room -= 1;
            written += 1;
            from = range.end;
        }
        Ok(room)
    }
}

impl MirrorList for Mirrors {
    fn hide(&self) {
        self.hide_all();
    }

    fn show(&self, f: &mut dyn Write, room: &mut usize) -> fmt::Result {
        let pasid = self.vm().pasid();
        let mut last = 0;
        while let Some(mirror) = self.after(last) {
            let Some(left) = room.checked_sub(1) else {
                return writeln!(f, "more mirrors of pasid {pasid}");
            };
            *room = left;
            mirror.show(f, room, self.pid(), pasid)?;
            last = mirror.id();
        }
        Ok(())
    }
}
