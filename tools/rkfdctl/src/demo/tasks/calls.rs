// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Calls of the host: text, files, memory.

use std::fs;
use std::fs::File;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use anyhow::bail;
use anyhow::Context;
use rkfd::code::arguments::Value;
use rkfd::memory::Buffer;
use rkfd::memory::Kind;
use rkfd::tasks::host::Host;
use rkfd::tasks::Tasks;

use super::super::heading;
use super::super::hsa::stage::same;
use super::row;
use super::stage::mix;
use super::stage::settle;
use super::stage::Stage;
use super::stage::FAILED;
use super::stage::OK;
use super::stage::TRIES;
use crate::style;

/// Work-items of each call.
const ITEMS: usize = 64;
/// Bytes of a file that each reads; the last one finds fewer.
const PIECE: usize = 100;
/// Bytes that it finds fewer.
const SHORT: usize = 33;

/// Lines that were printed.
type Lines = Arc<Mutex<Vec<String>>>;

pub fn tell(stage: &mut Stage) -> anyhow::Result<()> {
    heading("Calls of the host: text, files, memory");
    for n in 0..stage.gpus.len() {
        let lines = Lines::default();
        let its = lines.clone();
        let host = Host::new(move |text| {
            let mut lines = its.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push(text.to_owned());
        });
        host.offer_program(stage.gpus[n].program.clone());
        let tasks = stage.tasks(stage.shape, Some(&host))?;
        print(stage, n, &tasks, &lines)?;
        for kind in [Kind::Gtt, Kind::Vram] {
            read(stage, n, &tasks, &host, kind)?;
        }
        memory(stage, n, &tasks, &host)?;
    }
    Ok(())
}

fn print(stage: &mut Stage, n: usize, tasks: &Tasks, lines: &Lines) -> anyhow::Result<()> {
    let gpu = &mut stage.gpus[n];
    let arguments = [Value::Address(tasks.address(n)), TRIES.into(), gpu.out()];
    gpu.run("print", ITEMS, &arguments)?;
    for (item, answer) in gpu.words(ITEMS)?.into_iter().enumerate() {
        same(
            &format!("answer to the text of work-item {item}"),
            answer,
            OK,
        )?;
    }
    let count = || lines.lock().unwrap_or_else(PoisonError::into_inner).len() as u64; // CAST: a length.
    rkfd::backoff::wait_until("lines", super::stage::LIMIT, || {
        Ok((count() >= ITEMS as u64, count())) // CAST: a small number.
    })?;
    settle(tasks)?;
    let mut found = lines.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut wanted: Vec<String> = (0..ITEMS)
        .map(|item| {
            let kind = if item % 2 == 1 { "odd " } else { "even" };
            // CAST: a small number.
            let quarter = item as f64 / 4.0;
            format!("group 0, work-item {item:2}: {kind} {quarter:.2}\n")
        })
        .collect();
    let shown = found.iter().find(|line| line.contains("work-item 13:"));
    let shown = shown.map_or("", |line| line.trim_end()).to_owned();
    found.sort();
    wanted.sort();
    if found != wanted {
        bail!("wrong lines were printed: {found:?}");
    }
    row(
        &format!("GPU {n} prints"),
        format!("{} lines {}: {shown:?}", ITEMS, style::good("correct")),
    );
    Ok(())
}

fn read(
    stage: &mut Stage,
    n: usize,
    tasks: &Tasks,
    host: &Arc<Host>,
    kind: Kind,
) -> anyhow::Result<()> {
    let bytes = ITEMS * PIECE - SHORT;
    // CAST: the lowest byte of a number is meant.
    let contents: Vec<u8> = (0..bytes as u64)
        .map(|at| (mix(at, 9) >> 56) as u8)
        .collect();
    let path = std::env::temp_dir().join(format!("rkfdctl-tasks-{}", std::process::id()));
    fs::write(&path, &contents).with_context(|| path.display().to_string())?;
    let file = File::open(&path);
    fs::remove_file(&path)?;
    let file = host.offer_file(file?);
    let gpu = &mut stage.gpus[n];
    let buffer = Arc::new(Buffer::new(&gpu.device, kind, ITEMS * PIECE)?);
    let other = Buffer::new(&gpu.device, Kind::Gtt, ITEMS * PIECE)?;
    host.offer(&gpu.device, buffer.clone())?;
    let run = |gpu: &mut super::stage::Gpu, to: &Buffer, file: u64| -> anyhow::Result<Vec<u64>> {
        let arguments = [
            Value::Address(tasks.address(n)),
            file.into(),
            to.into(),
            (PIECE as u64).into(), // CAST: a constant.
            TRIES.into(),
            gpu.out(),
        ];
        gpu.run("read", ITEMS, &arguments)?;
        gpu.words(3 * ITEMS)
    };
    let words = run(gpu, &buffer, file)?;
    for (item, (found, piece)) in words.chunks(3).zip(contents.chunks(PIECE)).enumerate() {
        let sum = piece.iter().fold(0u64, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add((*byte).into())
        });
        same(&format!("answer to the reader {item}"), found[0], OK)?;
        let length = piece.len() as u64; // CAST: a length.
        same(&format!("bytes of reader {item}"), found[1], length)?;
        same(&format!("sum of reader {item}"), found[2], sum)?;
    }
    // Neither memory that was not offered nor a file that there is not.
    other.write_u64(0, 0x5a5a)?;
    for (to, file) in [(&other, file), (&*buffer, 1000)] {
        for (item, found) in run(gpu, to, file)?.chunks(3).enumerate() {
            same(
                &format!("answer to reader {item}, which asks for too much"),
                found[0],
                FAILED,
            )?;
        }
    }
    same("memory that was not offered", other.read_u64(0)?, 0x5a5a)?;
    row(
        &format!("GPU {n} reads"),
        format!(
            "{bytes} bytes of a file into {}, by {ITEMS} work-items: {}",
            kind.name(),
            style::good("correct")
        ),
    );
    Ok(())
}

fn memory(stage: &mut Stage, n: usize, tasks: &Tasks, host: &Arc<Host>) -> anyhow::Result<()> {
    let gpu = &mut stage.gpus[n];
    let heap = Arc::new(Buffer::new(&gpu.device, Kind::Gtt, 1 << 17)?);
    host.set_heap(&gpu.device, heap.clone())?;
    let arguments = [Value::Address(tasks.address(n)), TRIES.into(), gpu.out()];
    gpu.run("allocate", ITEMS, &arguments)?;
    let words = gpu.words(2 * ITEMS)?;
    let (mut kept, mut used) = (Vec::new(), 0);
    for (item, found) in words.chunks(2).enumerate() {
        same(&format!("answer to allocation {item}"), found[0], OK)?;
        if item % 2 == 0 {
            let bytes = 64 + 8 * item;
            used += bytes.next_multiple_of(128) as u64; // CAST: a small number.
            let at = usize::try_from(found[1].wrapping_sub(heap.address()))?;
            // What the kernel has stored is at the same address for the CPU.
            for word in 0..8 + item {
                let stored = heap.read_u64(at + 8 * word)?;
                let wanted = mix(item as u64, word as u64); // CAST: small numbers.
                same(&format!("word {word} of allocation {item}"), stored, wanted)?;
            }
            kept.push(found[1]);
        }
    }
    same("bytes in use", host.allocated(), used)?;
    // Twice: the second time there is nothing at these addresses.
    let list = Buffer::new(&gpu.device, Kind::Gtt, 8 * kept.len())?;
    for (n, address) in kept.iter().enumerate() {
        list.write_u64(8 * n, *address)?;
    }
    for answer in [OK, FAILED] {
        let arguments = [
            Value::Address(tasks.address(n)),
            (&list).into(),
            TRIES.into(),
            gpu.out(),
        ];
        gpu.run("release", kept.len(), &arguments)?;
        for (item, found) in gpu.words(2 * kept.len())?.chunks(2).enumerate() {
            same(&format!("answer to release {item}"), found[0], answer)?;
        }
        same("bytes in use", host.allocated(), 0)?;
    }
    row(
        &format!("GPU {n} allocates"),
        format!(
            "{ITEMS} times from the program's heap: contents {}, all given back",
            style::good("correct")
        ),
    );
    Ok(())
}
