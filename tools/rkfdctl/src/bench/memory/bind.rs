// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Binding and unbinding by the native interface.

use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use nix::libc;
use nix::sys::memfd::memfd_create;
use nix::sys::memfd::MFdFlags;
use rkfd::native::Bo;
use rkfd::native::Heap;
use rkfd::native::Rights;
use rkfd::native::Space;
use serde::Serialize;

use super::gb_per_second;
use super::timed;
use super::times;
use super::Pair;
use super::PAGE;
use crate::demo::native::open;
use crate::fuzz::raw;
use crate::style;

/// Where the ranges begin.
const AT: u64 = 1 << 32;
/// Pages that are bound one by one in one call.
const PAGES: usize = 4096;

/// One kind of list.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Ranges of the list.
    ranges: usize,
    bytes: u64,
    /// Page-table entries that are written, where each range is a page.
    entries: Option<usize>,
    pub bind: Pair,
    pub unbind: Pair,
    bind_gb_per_second: f64,
    unbind_gb_per_second: f64,
    bind_entries_per_second: Option<f64>,
    unbind_entries_per_second: Option<f64>,
}

impl Figures {
    fn new(ranges: usize, bytes: usize, single: bool, bind: Pair, unbind: Pair) -> Self {
        let bytes = bytes as u64; // CAST: a size in memory.
        let entries = single.then_some(ranges);
        let rate = |pair: &Pair| entries.map(|n| n as f64 / pair.micros * 1e6); // CAST: for a reader.
        Self {
            ranges,
            bytes,
            entries,
            bind,
            unbind,
            bind_gb_per_second: gb_per_second(bytes, bind.micros),
            unbind_gb_per_second: gb_per_second(bytes, unbind.micros),
            bind_entries_per_second: rate(&bind),
            unbind_entries_per_second: rate(&unbind),
        }
    }

    /// What the two lines of a table are about.
    pub fn lines(&self) -> (String, String) {
        let what = match self.entries {
            Some(n) => format!("{n} pages"),
            None => style::bytes(self.bytes),
        };
        (format!("bind {what}"), format!("unbind {what}"))
    }

    /// How fast, for a reader.
    pub fn rate(&self, pair: &Pair) -> String {
        match self.entries {
            Some(n) => format!("  {:.2} million PTEs/s", n as f64 / pair.micros), // CAST: for a reader.
            None => format!("  {:.1} GB/s", gb_per_second(self.bytes, pair.micros)),
        }
    }
}

/// Measures one range of `size` bytes, and single pages.
///
/// # Errors
/// A call failed.
pub fn measure(gpu: usize, size: usize, rounds: u32) -> anyhow::Result<Vec<Figures>> {
    let (_, space) = open(gpu)?;
    let bo = space.bo(Heap::Vram, size).context("a buffer in VRAM")?;
    let pages = PAGES
        .min(size / PAGE)
        .min(usize::try_from(space.info().max_binds).unwrap_or(PAGES));
    let whole = lists(&space, &bo, 1, size)?;
    let single = lists(&space, &bo, pages, PAGE)?;
    let memory = memfd_create(c"rkfd-peer", MFdFlags::MFD_CLOEXEC).context("memfd_create")?;
    nix::unistd::ftruncate(&memory, i64::try_from(size)?).context("ftruncate")?;
    let mut found = Vec::new();
    for (list, ranges, bytes) in [(whole, 1, size), (single, pages, pages * PAGE)] {
        let (mut binds, mut unbinds) = (Vec::new(), Vec::new());
        times(rounds, |_| {
            let bind = timed(|| Ok(space.bind(&list.0)?))?;
            let unbind = timed(|| Ok(space.bind(&list.1)?))?;
            binds.push(bind);
            unbinds.push(unbind);
            Ok(bind)
        })?;
        let (mut maps, mut unmaps) = (Vec::new(), Vec::new());
        times(rounds, |_| {
            let (map, unmap) = peer(memory.as_fd(), bytes)?;
            maps.push(map);
            unmaps.push(unmap);
            Ok(map)
        })?;
        let (bind, unbind) = (Pair::new(binds, maps), Pair::new(unbinds, unmaps));
        found.push(Figures::new(
            ranges,
            bytes,
            bytes / ranges == PAGE,
            bind,
            unbind,
        ));
    }
    Ok(found)
}

/// Lists that bind and unbind `count` ranges of `each` bytes. No two of them continue each other in the buffer.
fn lists(
    space: &Space,
    bo: &Bo,
    count: usize,
    each: usize,
) -> anyhow::Result<(rkfd::native::BindList, rkfd::native::BindList)> {
    let (mut bind, mut unbind) = (space.list(), space.list());
    for at in 0..count {
        let address = AT + (at * each) as u64; // CAST: a size in memory.
        bind.map(address, bo, (count - 1 - at) * each, each, Rights::Write)?;
        unbind.unmap(address, each);
    }
    Ok((bind, unbind))
}

/// Maps `len` bytes of a file in memory with their pages, and unmaps them.
fn peer(memory: BorrowedFd<'_>, len: usize) -> anyhow::Result<(Duration, Duration)> {
    let (prot, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_SHARED | libc::MAP_POPULATE,
    );
    let began = Instant::now();
    let start = match raw::map(memory, len, prot, flags, 0) {
        Ok(start) => start,
        Err(errno) => bail!("mmap: errno {errno}"),
    };
    let between = Instant::now();
    // SAFETY: the mapping that was made above, which nobody else knows.
    let errno = unsafe { raw::unmap(start, len) };
    let end = Instant::now();
    if errno != 0 {
        bail!("munmap: errno {errno}");
    }
    Ok((between - began, end - between))
}
