// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl demo --native`: two address spaces in one program, by the render node alone.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use nix::errno::Errno;
use rkfd::backoff::poll;
use rkfd::error::Error;
use rkfd::native::Bo;
use rkfd::native::Heap;
use rkfd::native::Queue;
use rkfd::native::QueueKind;
use rkfd::native::Rights;
use rkfd::native::Space;
use rkfd::packet::pm4::Packet;

use super::heading;
use super::pattern;
use super::report;
use super::Options;
use super::LIMIT;
use crate::info::gfx_name;
use crate::latency::Samples;
use crate::style;

/// Where both spaces bind their buffer.
const AT: u64 = 1 << 32;
/// Where both have their queue.
const QUEUE_AT: u64 = 2 << 32;
/// What is bound: the second page of two.
const PAGE: usize = 4096;
/// Bytes of a buffer.
const SIZE: usize = 2 * PAGE;

/// A client of the GPU, as a server has many.
struct Client {
    name: &'static str,
    space: Space,
    bo: Bo,
    queue: Queue,
    kind: QueueKind,
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    story(options)?;
    anstream::println!("\n{}", style::good("Success."));
    Ok(ExitCode::SUCCESS)
}

/// Render nodes in the order of their numbers.
pub(crate) fn nodes() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir("/dev/dri")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("renderD"))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// The node of GPU number `index` among those with the native interface, and an address space of it.
pub fn open(index: usize) -> anyhow::Result<(PathBuf, Space)> {
    let mut found = 0;
    for path in nodes() {
        match Space::open(&path) {
            Ok(space) if found == index => return Ok((path, space)),
            Ok(_) => found += 1,
            // Another driver's.
            Err(e)
                if matches!(
                    e.errno(),
                    Some(Errno::ENOTTY | Errno::EINVAL | Errno::EOPNOTSUPP | Errno::EACCES)
                ) => {}
            Err(e) => return Err(e).with_context(|| path.display().to_string()),
        }
    }
    if found == 0 {
        return Err(Error::NoGpu.into());
    }
    bail!("there is no GPU {index}: {found} have the native interface, counted from 0");
}

fn client(name: &'static str, space: Space, heap: Heap, kind: QueueKind) -> anyhow::Result<Client> {
    let bo = space.bo(heap, SIZE).context("buffer")?;
    let mut list = space.list();
    list.map(AT, &bo, PAGE, PAGE, Rights::Write)?;
    space.bind(&list).context("binding the buffer")?;
    let queue = space.queue(kind, QUEUE_AT).context("queue")?;
    Ok(Client {
        name,
        space,
        bo,
        queue,
        kind,
    })
}

impl Client {
    /// Packets that store `value` at the address that both spaces have.
    fn packets(&self, value: u32) -> anyhow::Result<Vec<u32>> {
        Ok(match self.kind {
            QueueKind::Pm4 => Packet::encode_all(&[Packet::WriteData {
                address: AT,
                data: vec![value],
                confirm: true,
            }])?,
            // WRITE_LINEAR of one dword.
            QueueKind::Sdma => vec![2, 0, 1, 0, value],
            QueueKind::Aql => bail!("AQL has no packet that stores a value"),
        })
    }

    fn landed(&self) -> anyhow::Result<u32> {
        Ok(self.bo.read_u32(PAGE)?)
    }
}

fn story(options: &Options) -> anyhow::Result<()> {
    let (path, space) = open(options.gpu)?;
    let info = *space.info();
    anstream::println!(
        "{}",
        style::head(format!(
            "GPU {}, render node {}, native interface {}",
            gfx_name(info.gfx_target.into()),
            path.display(),
            info.version
        ))
    );
    let again = Space::open(&path).context("the render node, once more")?;
    let clients = [
        client("first", space, Heap::Vram, QueueKind::Pm4)?,
        client("second", again, Heap::System, QueueKind::Sdma)?,
    ];

    heading("Two address spaces, the same addresses");
    let values = [pattern(1), pattern(2)];
    for (client, value) in clients.iter().zip(values) {
        client.queue.submit(&client.packets(value)?)?;
    }
    for (client, value) in clients.iter().zip(values) {
        client
            .space
            .wait_u32(&client.bo, PAGE, value, LIMIT)
            .with_context(|| format!("the {} space's packet", client.name))?;
    }
    for (client, value) in clients.iter().zip(values) {
        let landed = client.landed()?;
        let wanted = if options.expect_wrong { !value } else { value };
        if landed != wanted {
            bail!("wrong value: {landed:#010x} landed, {wanted:#010x} was expected");
        }
        if client.bo.read_u32(0)? != 0 {
            bail!("a page that is bound nowhere was written");
        }
        let kind = match client.kind {
            QueueKind::Pm4 => "PM4",
            QueueKind::Aql => "AQL",
            QueueKind::Sdma => "SDMA",
        };
        anstream::println!(
            "  {:<6} space, {kind} queue {}: {AT:#x} shows {} {}",
            client.name,
            client.queue.id(),
            style::value(format!("{landed:#010x}")),
            style::good("its own")
        );
    }
    for client in &clients {
        let (faults, _) = client.space.faults()?;
        if let Some(fault) = faults.first() {
            bail!(
                "a fault at {:#x} of the {} space",
                fault.address,
                client.name
            );
        }
    }
    measure(options.rounds, &clients[0])
}

fn measure(rounds: usize, client: &Client) -> anyhow::Result<()> {
    if rounds == 0 {
        return Ok(());
    }
    heading("Latency");
    let mut polled = Vec::with_capacity(rounds);
    for n in 0..rounds {
        let value = pattern(u32::try_from(n)? + 3);
        let packets = client.packets(value)?;
        let start = Instant::now();
        client.queue.submit(&packets)?;
        poll("the value", LIMIT, || match client.bo.read_u32(PAGE) {
            Ok(seen) => (seen == value, seen.into()),
            Err(_) => (false, 0),
        })?;
        polled.push(start.elapsed());
    }
    report("doorbell to value, polled", Samples::new(polled));
    Ok(())
}
