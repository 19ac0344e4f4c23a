// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Work that kernels put into queues: of their own GPU, and of another one.

use std::sync::Arc;

use rkfd::code::arguments::Value;
use rkfd::code::dispatch::Dispatch;
use rkfd::code::dispatch::Kernargs;
use rkfd::memory::Buffer;
use rkfd::memory::Kind;
use rkfd::queue::Queue;
use rkfd::queue::QueueKind;
use rkfd::queue::QueueOptions;
use rkfd::signal::Signals;
use rkfd::sys::PAGE;

use super::super::heading;
use super::super::hsa::stage::same;
use super::row;
use super::stage::settle;
use super::stage::Stage;
use super::stage::LIMIT;
use super::stage::OK;
use super::stage::TRIES;
use crate::style;

/// Packets: more than the ring has, so that who puts them there waits for room.
const PACKETS: usize = 100;

pub fn tell(stage: &mut Stage) -> anyhow::Result<()> {
    heading("Queues: a shader writes AQL packets and rings the doorbell");
    for from in 0..stage.gpus.len() {
        for to in 0..stage.gpus.len() {
            push(stage, from, to)?;
        }
    }
    Ok(())
}

/// Kernels of one GPU put packets into a queue of another, or their own.
fn push(stage: &mut Stage, from: usize, to: usize) -> anyhow::Result<()> {
    let tasks = stage.tasks(stage.shape, None)?;
    let device = stage.gpus[to].device.clone();
    let theirs = stage.gpus[from].device.clone();
    let queue = Arc::new(Queue::new(&device, QueueOptions::new(QueueKind::Aql))?);
    queue.share_with(&theirs)?;
    // Where the driver lets no other GPU ring, the CPU does.
    let doorbells = if from == to {
        Some(queue.doorbells_for_kernels()?)
    } else {
        queue.doorbells_for_kernels_of(&theirs).ok()
    };
    let number = stage.world.offer_queue(&queue);
    let target = Buffer::new(&theirs, Kind::Gtt, PAGE)?;
    let packets = (queue.ring_bytes() / 64) as u64; // CAST: a size in memory.
    for (n, value) in [
        queue.write_pointer_address(),
        queue.read_pointer_address(),
        queue.ring_address(),
        packets,
        doorbells.as_ref().map_or(0, |_| queue.doorbell_address()),
    ]
    .into_iter()
    .enumerate()
    {
        target.write_u64(8 * n, value)?;
    }
    let visits = Buffer::new(&device, Kind::Gtt, 4 * PACKETS)?;
    let done = Signals::new(&device, 1)?;
    done.store(0, PACKETS as i64)?; // CAST: a small number.
    let kernargs = Kernargs::new(&device, PACKETS * PAGE)?;
    let list = Buffer::new(&theirs, Kind::Gtt, 64 * PACKETS)?;
    let visit = stage.gpus[to].program.kernel("visit")?;
    for n in 0..PACKETS {
        let dispatch = Dispatch::new(&visit)
            .argument(&visits)
            .argument(u32::try_from(n)?)
            .barrier(n % 2 == 0)
            .completion(done.address(0)?);
        let planned = dispatch.plan(&queue.surroundings())?;
        let (mut packet, header) = dispatch.encode(&planned, kernargs.place(&planned)?)?;
        packet[0] = packet[0] & 0xffff_0000 | u32::from(header);
        list.write_dwords(64 * n, &packet)?;
    }
    let gpu = &mut stage.gpus[from];
    let arguments = [
        Value::Address(tasks.address(from)),
        (&target).into(),
        (&list).into(),
        number.into(),
        TRIES.into(),
        gpu.out(),
    ];
    gpu.run("push", PACKETS, &arguments)?;
    for (item, answer) in gpu.words(PACKETS)?.into_iter().enumerate() {
        same(&format!("answer to work-item {item}"), answer, OK)?;
    }
    done.wait_below(0, 1, LIMIT)?;
    settle(&tasks)?;
    let rung = stage.world.take_rung();
    for n in 0..PACKETS {
        same(&format!("visits of packet {n}"), visits.read_u32(4 * n)?, 1)?;
    }
    let bells = if doorbells.is_some() {
        same("tasks that rang", rung, 0)?;
        "0 tasks of the CPU".to_owned()
    } else {
        same("tasks that rang", rung, PACKETS as u64)?; // CAST: a small number.
        format!("rung by {rung} tasks of the CPU, since GPU {from} does not reach that doorbell")
    };
    row(
        &if from == to {
            format!("GPU {from} to its own queue")
        } else {
            format!("GPU {from} to a queue of GPU {to}")
        },
        format!(
            "{PACKETS} packets through a ring of {packets}: {}, {bells}",
            style::good("each ran once")
        ),
    );
    Ok(())
}
