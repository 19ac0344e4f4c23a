// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Shared virtual memory: a kernel walks a list that the program has made, by the program's own pointers.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use anyhow::bail;
use anyhow::Context;
use rkfd::code::dispatch::Dispatch;
use rkfd::code::dispatch::Kernargs;
use rkfd::event::Event;
use rkfd::memory::Buffer;
use rkfd::memory::Kind;
use rkfd::signal::Signals;

use super::super::heading;
use super::signals::asleep;
use super::space::Memory;
use super::space::Room;
use super::space::Way;
use super::stage::calls;
use super::stage::row;
use super::stage::same;
use super::stage::Stage;
use super::table::Copied;
use crate::style;

/// What values are multiplied by at each walk.
const FACTOR: u64 = 3;
/// Bytes of a node.
const NODE: usize = 16;

/// A node of the list, as the kernel has it.
#[repr(C)]
struct Node {
    next: AtomicU64,
    value: AtomicU64,
}

/// What a walk leaves.
#[repr(C)]
struct Walked {
    sum: AtomicU64,
    nodes: AtomicU64,
}

impl Node {
    const fn new(value: u64) -> Self {
        Self {
            next: AtomicU64::new(0),
            value: AtomicU64::new(value),
        }
    }
}

/// A node that is no memory of malloc.
static GLOBAL: Node = Node::new(0);

/// A list, in its order. The nodes live as long as what they were made in.
struct List<'m> {
    nodes: Vec<&'m Node>,
    /// What each value is to be.
    values: Vec<u64>,
}

impl<'m> List<'m> {
    /// Links nodes in an order that has nothing to do with where they are.
    fn new(mut nodes: Vec<&'m Node>) -> Self {
        fastrand::Rng::with_seed(7).shuffle(&mut nodes);
        let values: Vec<u64> = (1..).take(nodes.len()).map(|n| n * n).collect();
        for (n, node) in nodes.iter().enumerate() {
            let next = nodes.get(n + 1).map_or(0, |next| address(*next));
            node.next.store(next, Ordering::Relaxed);
            node.value.store(values[n], Ordering::Relaxed);
        }
        Self { nodes, values }
    }

    fn first(&self) -> u64 {
        self.nodes.first().map_or(0, |node| address(*node))
    }

    fn sum(&self) -> u64 {
        self.values.iter().fold(0, |sum, v| sum.wrapping_add(*v))
    }

    /// What a walk is to do to the values.
    fn walked(&mut self) {
        for value in &mut self.values {
            *value = value.wrapping_mul(FACTOR).wrapping_add(1);
        }
    }

    /// Compares each node with what it is to have.
    fn check(&self) -> anyhow::Result<()> {
        for (n, (node, wanted)) in self.nodes.iter().zip(&self.values).enumerate() {
            let what = format!("value in node {n}");
            same(&what, node.value.load(Ordering::Acquire), *wanted)?;
        }
        Ok(())
    }
}

/// Where something is, for packets and kernels.
fn address<T>(of: *const T) -> u64 {
    of.expose_provenance() as u64 // CAST: an address.
}

/// Nodes in memory that the GPU sees.
fn nodes<'m>(memory: &mut Memory, count: usize) -> anyhow::Result<Vec<&'m Node>> {
    (0..count)
        .map(|_| {
            let node = memory.put(Node::new(0))?;
            // SAFETY: it is freed with the room, behind the list, and everybody accesses it by atomics.
            Ok(unsafe { &*node })
        })
        .collect()
}

/// Tells of the promise and of what it saves.
///
/// # Errors
/// It is not kept.
pub fn tell(stage: &mut Stage) -> anyhow::Result<()> {
    heading("Shared virtual memory: a kernel follows the program's pointers");
    // Nodes, the signal, the arguments, the result, and what alignment costs.
    let bytes = stage.nodes * NODE + 4 * rkfd::sys::PAGE;
    let mut room = Room::new(&stage.device, &stage.code, bytes)?;
    let out: *mut Walked = room.memory.put(Walked {
        sum: AtomicU64::new(0),
        nodes: AtomicU64::new(0),
    })?;
    // SAFETY: as for the nodes.
    let out: &Walked = unsafe { &*out };
    let on_stack = Node::new(0);
    let way = room.way();
    let all = match way {
        Way::Whole => {
            row(
                "the GPU sees",
                "one mirror of the whole address space, filled by its accesses (XNACK)",
            );
            row(
                "a list of",
                format!(
                    "{} nodes: {} of malloc, 1 on the stack, 1 global variable",
                    stage.nodes,
                    stage.nodes - 2
                ),
            );
            let mut all = nodes(&mut room.memory, stage.nodes - 2)?;
            all.extend([&on_stack, &GLOBAL]);
            all
        }
        Way::Range(len) => {
            row(
                "the GPU sees",
                format!(
                    "{} of malloc in a mirror that is filled at once",
                    style::bytes(len as u64) // CAST: a size in memory.
                ),
            );
            row(
                "",
                "(it has no repeated accesses per process, which all memory would take)",
            );
            row("a list of", format!("{} nodes in it", stage.nodes));
            nodes(&mut room.memory, stage.nodes)?
        }
    };
    let mut list = List::new(all);
    let launch = room.prepare("walk", &[0, list.first(), FACTOR, address(out)])?;
    let run = |list: &List<'_>| {
        room.run(&launch)?;
        same(
            "number of nodes",
            out.nodes.load(Ordering::Acquire),
            list.nodes.len() as u64,
        )?; // CAST: a count.
        same(
            "sum of the list",
            out.sum.load(Ordering::Acquire),
            list.sum(),
        )
    };

    let wanted = list.sum();
    // The first walk finds nothing shown yet.
    room.run(&launch).context("the first walk")?;
    let found = out.sum.load(Ordering::Acquire);
    same(
        "sum of the list",
        found,
        if stage.expect_wrong { !wanted } else { wanted },
    )?;
    list.walked();
    list.check()?;
    row(
        "the kernel's sum",
        format!("{} {}", style::value(found), style::good("correct")),
    );
    row(
        "values that it changed",
        format!(
            "{} of {} {}",
            list.values.len(),
            stage.nodes,
            style::good("correct, in place")
        ),
    );
    if way == Way::Whole {
        let faults = room.faults()?;
        if faults == 0 {
            bail!("no access was served, though nothing was shown before");
        }
        row(
            "memory was shown for",
            format!("{faults} accesses; no node was registered or copied"),
        );
    }
    let walks = std::cell::Cell::new(0);
    let count = stage.without_calls(
        "the walk",
        || Ok(()),
        || {
            walks.set(walks.get() + 1);
            room.run(&launch)
        },
    )?;
    (0..walks.get()).for_each(|_| list.walked());
    list.check()?;
    row("a launch, its walk and its end", calls(&count));
    let cell = std::cell::RefCell::new(&mut list);
    let runs = stage.measure(
        "walks of the list",
        || Ok(()),
        || {
            let mut list = cell.borrow_mut();
            run(&list)?;
            list.walked();
            Ok(())
        },
    )?;
    list.check()?;
    stage.table.add(
        "list: a pointer is the argument",
        runs,
        count,
        Copied::default(),
    );
    classic(stage, &mut list)
}

/// The same walk without shared memory: a buffer, a copy into it, a launch, a wait in the kernel, a copy back.
fn classic(stage: &mut Stage, list: &mut List<'_>) -> anyhow::Result<()> {
    let kernel = stage.kernel("walk")?;
    let queue = stage.queue(1)?;
    let device = stage.device.clone();
    let done = Signals::new(&device, 1)?;
    let event = Event::new(&device, true)?;
    done.attach(0, &event)?;
    let mut kernargs = Kernargs::new(&device, rkfd::sys::PAGE)?;
    let bytes = list.nodes.len() * NODE;
    let mut walk = |list: &mut List<'_>| -> anyhow::Result<()> {
        let buffer = Buffer::new(&device, Kind::Vram, bytes + NODE)?;
        let mut copy = Vec::with_capacity(bytes);
        for (n, node) in list.nodes.iter().enumerate() {
            let last = n + 1 == list.nodes.len();
            let next = if last { 0 } else { (n + 1) * NODE };
            copy.extend(next.to_le_bytes());
            copy.extend(node.value.load(Ordering::Relaxed).to_le_bytes());
        }
        buffer.write_bytes(0, &copy)?;
        device.flush_host_data_path();
        done.store(0, 1)?;
        kernargs.clear();
        let dispatch = Dispatch::new(&kernel)
            .argument(buffer.address())
            .argument(buffer.address())
            .argument(FACTOR)
            .argument(buffer.address() + bytes as u64) // CAST: a size in memory.
            .completion(done.address(0)?);
        queue.dispatch(&dispatch, &kernargs)?;
        asleep(&done, 0, &event)?;
        buffer.read_bytes(0, &mut copy)?;
        same(
            "sum of the copied list",
            buffer.read_u64(bytes)?,
            list.sum(),
        )?;
        for (node, copied) in list.nodes.iter().zip(copy.chunks_exact(NODE)) {
            let mut value = [0; 8];
            value.copy_from_slice(&copied[8..]);
            node.value
                .store(u64::from_le_bytes(value), Ordering::Relaxed);
        }
        list.walked();
        Ok(())
    };
    walk(list)?;
    let count = stage.with_calls("the classic walk", || walk(list))?;
    let runs = stage.measure("walks of a copy", || Ok(()), || walk(list))?;
    list.check()?;
    row(
        "the same by a buffer",
        format!(
            "{}, 2 copies, {} bytes copied",
            calls(&count.to_string()),
            2 * bytes
        ),
    );
    let copied = Copied {
        copies: 2,
        bytes: 2 * bytes as u64, // CAST: a size in memory.
    };
    stage.table.add(
        "list: buffer, copies, event wait",
        runs,
        count.to_string(),
        copied,
    );
    Ok(())
}
