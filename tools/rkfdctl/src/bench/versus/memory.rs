// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What mapping costs, and changes of memory that is the process's own.
//!
//! The process has a queue on the hardware meanwhile, so that its address space is one that has to be flushed.

use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use nix::libc;
use rkfd::abi;
use rkfd::device::Device;
use rkfd::memory::Buffer;
use rkfd::memory::Kind;
use rkfd::sys;

use super::counts::median;
use super::counts::Model;
use super::measure::Worker;
use super::report::Row;
use crate::fuzz::raw;

/// Sizes and their names.
const SIZES: [(usize, &str); 3] = [(4 << 10, "4 KiB"), (2 << 20, "2 MiB"), (64 << 20, "64 MiB")];

/// Measures every kind of memory in every size.
///
/// # Errors
/// A call failed.
pub fn measure(
    device: &Arc<Device>,
    model: &mut Model,
    rounds: usize,
    rows: &mut Vec<Row>,
) -> anyhow::Result<()> {
    let worker = Worker::new(device)?;
    worker.effect(u32::MAX)?;
    for (kind, of) in [
        (Kind::VramPrivate, "VRAM"),
        (Kind::Gtt, "system memory"),
        (Kind::Userptr, "of the process"),
    ] {
        for (size, name) in SIZES {
            let name = format!("{name} {of}");
            rows.push(
                model.series("allocate, map, unmap, free", &name, rounds, |_| {
                    let began = Instant::now();
                    drop(Buffer::new(device, kind, size)?);
                    Ok(began.elapsed())
                })?,
            );
            let buffer = Buffer::new(device, kind, size)?;
            bind(device, model, &buffer, &name, rounds, rows)?;
            if kind == Kind::Userptr {
                change(model, &worker, &buffer, &name, rounds, rows)?;
            }
        }
    }
    Ok(())
}

/// Unmaps and maps a buffer in turn: the times of each, the counts of both together.
fn bind(
    device: &Device,
    model: &mut Model,
    buffer: &Buffer,
    name: &str,
    rounds: usize,
    rows: &mut Vec<Row>,
) -> anyhow::Result<()> {
    let (mut unmaps, mut maps) = (Vec::new(), Vec::new());
    let both = model.series("unmap and map", name, rounds, |_| {
        let began = Instant::now();
        unmap(device, buffer.handle())?;
        let between = Instant::now();
        map(device, buffer.handle())?;
        let end = Instant::now();
        unmaps.push(between - began);
        maps.push(end - between);
        Ok(end - began)
    })?;
    rows.push(Row::timed("map", name, median(maps)));
    rows.push(Row::timed("unmap", name, median(unmaps)));
    rows.push(both);
    Ok(())
}

fn map(device: &Device, handle: u64) -> rkfd::error::Result<()> {
    let ids = [device.id()];
    let mut arg = abi::MapMemory {
        handle,
        device_ids_array_ptr: ids.as_ptr() as u64, // CAST: an address.
        n_devices: 1,
        n_success: 0,
    };
    // SAFETY: the pointer names one id that lives across the call.
    unsafe {
        sys::call_again(
            &**device.kfd(),
            "MAP_MEMORY_TO_GPU",
            abi::MAP_MEMORY_TO_GPU,
            &mut arg,
        )
    }
}

fn unmap(device: &Device, handle: u64) -> rkfd::error::Result<()> {
    let ids = [device.id()];
    let mut arg = abi::UnmapMemory {
        handle,
        device_ids_array_ptr: ids.as_ptr() as u64, // CAST: an address.
        n_devices: 1,
        n_success: 0,
    };
    // SAFETY: as in `map`.
    unsafe {
        sys::call_again(
            &**device.kfd(),
            "UNMAP_MEMORY_FROM_GPU",
            abi::UNMAP_MEMORY_FROM_GPU,
            &mut arg,
        )
    }
}

/// Takes the pages of a mapped buffer away: how long that call takes, and how long until the process's queue works again.
fn change(
    model: &mut Model,
    worker: &Worker,
    buffer: &Buffer,
    name: &str,
    rounds: usize,
    rows: &mut Vec<Row>,
) -> anyhow::Result<()> {
    let mut calls = Vec::new();
    let whole = model.series("change pages, next packet", name, rounds, |round| {
        let value = u32::try_from(round).context("a number of rounds")?;
        let began = Instant::now();
        let call = drop_pages(buffer)?;
        worker.effect(value)?;
        calls.push(call);
        Ok(began.elapsed())
    })?;
    // The next buffer begins with another number.
    worker.effect(u32::MAX)?;
    rows.push(Row::timed("change pages", name, median(calls)));
    rows.push(whole);
    Ok(())
}

/// Has the kernel forget what is in the buffer; returns how long the call took.
fn drop_pages(buffer: &Buffer) -> anyhow::Result<Duration> {
    // CAST: a 64-bit process.
    let (start, size) = (buffer.address() as usize, buffer.size());
    let began = Instant::now();
    // SAFETY: the range is the buffer's own anonymous memory, which stays mapped; nobody has a reference to it, and what
    // it holds is not needed.
    let errno = unsafe { raw::advise(start, size, libc::MADV_DONTNEED) };
    let took = began.elapsed();
    if errno != 0 {
        bail!("madvise: errno {errno}");
    }
    Ok(took)
}
