// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Coherency: CPU and GPU work on the same words at the same time.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::thread;

use anyhow::Context;
use rkfd::backoff::poll;
use rkfd::backoff::wait_until;
use rkfd::code::dispatch::Dispatch;
use rkfd::code::dispatch::Kernargs;
use rkfd::event::Event;
use rkfd::memory::Buffer;
use rkfd::memory::Kind;
use rkfd::queue::Queue;
use rkfd::signal::Signals;

use super::super::heading;
use super::signals::asleep;
use super::stage::calls;
use super::stage::encoded;
use super::stage::reached;
use super::stage::row;
use super::stage::same;
use super::stage::Stage;
use super::stage::LIMIT;
use super::table::Copied;
use crate::style;

/// Threads that add.
const THREADS: usize = 2;
/// Additions of a thread at least, however late it comes.
const LEAST: u64 = 1000;
/// Work-items that add, and how often each does.
const LANES: u32 = 256;
const ROUNDS: u32 = 200;
/// Where the counter lies, and how many work-items have begun.
const COUNTER: usize = 0;
const RUNNING: usize = 256;

/// Places of the ring, and what goes through it.
const PLACES: u64 = 16;
const ITEMS: u64 = 512;
/// Where the ring's indices and places lie: `struct ring` of the kernels.
const WRITTEN: usize = 0;
const READ: usize = 128;
const FIRST: usize = 256;
/// Where the digest lies, behind the ring.
const DIGEST: usize = 2048;

/// Bytes of the places.
const PLACES_BYTES: usize = 8 * PLACES as usize; // CAST: a small number.
/// What the producer mixes into its items.
const SEED: u64 = 0x5eed;

/// What a launch needs.
struct Lane {
    queue: Queue,
    kernargs: Kernargs,
    done: Signals,
}

impl Lane {
    fn new(stage: &Stage) -> anyhow::Result<Self> {
        Ok(Self {
            queue: stage.queue(1)?,
            kernargs: Kernargs::new(&stage.device, rkfd::sys::PAGE)?,
            done: Signals::new(&stage.device, 1)?,
        })
    }

    fn launch(&self, dispatch: Dispatch<'_>) -> anyhow::Result<()> {
        self.done.store(0, 1)?;
        let dispatch = dispatch.completion(self.done.address(0)?);
        self.queue.dispatch(&dispatch, &self.kernargs)?;
        Ok(())
    }

    fn ended(&self) -> anyhow::Result<()> {
        reached(&self.done, 0)
    }
}

/// A word that threads and kernels share.
fn word(buffer: &Buffer, offset: usize) -> &AtomicU64 {
    let at = buffer.address() as usize + offset; // CAST: a 64-bit process.
                                                 // SAFETY: every offset here is a multiple of 8 and lies in the buffer's page, which is mapped as long as it lives; all
                                                 // access is atomic, the GPU's included, or ordered by atomics.
    unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(at)) }
}

/// Tells of the promise.
///
/// # Errors
/// It is not kept.
pub fn tell(stage: &mut Stage) -> anyhow::Result<()> {
    heading("Coherency: CPU and GPU use the same words at the same time");
    let mut lane = Lane::new(stage)?;
    counter(stage, &lane)?;
    lane.kernargs.clear();
    gpu_to_cpu(stage, &lane)?;
    lane.kernargs.clear();
    by_copies(stage)?;
    cpu_to_gpu(stage, &lane)
}

/// One counter, which threads and work-items add to.
fn counter(stage: &Stage, lane: &Lane) -> anyhow::Result<()> {
    let shared = Buffer::new(&stage.device, Kind::Gtt, rkfd::sys::PAGE)?;
    let kernel = stage.kernel("count")?;
    let (counter, running) = (word(&shared, COUNTER), word(&shared, RUNNING));
    let (adding, over) = (AtomicU64::new(0), AtomicBool::new(false));
    // From before the kernel's launch up to its end.
    let add = || -> rkfd::error::Result<(u64, u64)> {
        let (mut added, mut beside) = (0, 0);
        while !over.load(Ordering::Acquire) || added < LEAST {
            counter.fetch_add(1, Ordering::Relaxed);
            added += 1;
            if added == 1 {
                adding.fetch_add(1, Ordering::Release);
            }
            let runs = running.load(Ordering::Acquire) != 0 && lane.done.load(0)? != 0;
            beside += u64::from(runs);
        }
        Ok((added, beside))
    };
    let launch = || -> anyhow::Result<()> {
        wait_until("threads to add", LIMIT, || {
            let begun = adding.load(Ordering::Acquire);
            Ok((begun == THREADS as u64, begun)) // CAST: a small number.
        })?;
        lane.launch(
            Dispatch::new(&kernel)
                .grid([LANES, 1, 1])
                .group([64, 1, 1])
                .argument(shared.address() + COUNTER as u64) // CAST: a constant.
                .argument(shared.address() + RUNNING as u64) // CAST: a constant.
                .argument(ROUNDS),
        )?;
        lane.ended()
    };
    let (added, beside) = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(add)).collect();
        let ended = launch();
        over.store(true, Ordering::Release);
        let mut sums = (0, 0);
        for thread in threads {
            let (added, beside) = thread
                .join()
                .map_err(|_| anyhow::anyhow!("a thread that adds panicked"))??;
            sums = (sums.0 + added, sums.1 + beside);
        }
        ended.map(|()| sums)
    })
    .context("the counter")?;
    let by_gpu = u64::from(LANES) * u64::from(ROUNDS);
    let found = counter.load(Ordering::Acquire);
    same("sum of the counter", found, by_gpu + added)?;
    row(
        "one counter",
        format!(
            "{} = {by_gpu} of {LANES} lanes + {added} of {THREADS} threads {}",
            style::value(found),
            style::good("exact")
        ),
    );
    row("", format!("({beside} by threads while the kernel ran)"));
    Ok(())
}

/// What goes through the ring.
fn item(number: u64, seed: u64) -> u64 {
    number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed
}

fn digested(sum: u64, value: u64) -> u64 {
    sum.wrapping_mul(31).wrapping_add(value)
}

/// Where an item goes.
fn place(number: u64) -> usize {
    FIRST + 8 * (number % PLACES) as usize // CAST: a small number.
}

/// Polls until the other side has come far enough.
fn turn(what: &'static str, index: &AtomicU64, least: u64) -> rkfd::error::Result<()> {
    poll(what, LIMIT, || {
        let seen = index.load(Ordering::Acquire);
        (seen >= least, seen)
    })
}

/// Compares what the GPU has produced. Text is made only where it is wrong, for memory for it may be a system call.
fn check_item(number: u64, found: u64) -> anyhow::Result<()> {
    let wanted = item(number, SEED);
    if found == wanted {
        return Ok(());
    }
    same(&format!("item {number} of the GPU's"), found, wanted)
}

fn ring(stage: &Stage) -> anyhow::Result<Buffer> {
    Buffer::new(&stage.device, Kind::Gtt, rkfd::sys::PAGE).context("the ring")
}

fn gpu_to_cpu(stage: &mut Stage, lane: &Lane) -> anyhow::Result<()> {
    let ring = ring(stage)?;
    let kernel = stage.kernel("produce")?;
    let dispatch = Dispatch::new(&kernel)
        .argument(&ring)
        .argument(PLACES)
        .argument(ITEMS)
        .argument(SEED)
        .completion(lane.done.address(0)?);
    let (packet, header) = encoded(&lane.queue, &dispatch, &lane.kernargs)?;
    let reset = || -> anyhow::Result<()> {
        word(&ring, WRITTEN).store(0, Ordering::Relaxed);
        word(&ring, READ).store(0, Ordering::Relaxed);
        for number in 0..PLACES {
            word(&ring, place(number)).store(0, Ordering::Relaxed);
        }
        Ok(lane.done.store(0, 1)?)
    };
    let pass = || -> anyhow::Result<()> {
        lane.queue.submit_aql(&packet, header)?;
        for number in 0..ITEMS {
            turn("an item of the GPU's", word(&ring, WRITTEN), number + 1)?;
            check_item(number, word(&ring, place(number)).load(Ordering::Relaxed))?;
            word(&ring, READ).store(number + 1, Ordering::Release);
        }
        lane.ended()
    };
    let count = stage.without_calls("the ring, GPU to CPU", reset, pass)?;
    told("ring, GPU to CPU", &calls(&count));
    let runs = stage.measure("passes through the ring", reset, pass)?;
    let path = format!("{ITEMS} items: a ring in shared memory");
    stage.table.add(&path, runs, count, Copied::default());
    Ok(())
}

/// The same items without shared memory: the kernel leaves as many as the ring has places in VRAM, the CPU sleeps until it
/// has ended, copies them, and launches it again.
fn by_copies(stage: &mut Stage) -> anyhow::Result<()> {
    let lane = Lane::new(stage)?;
    let device = stage.device.clone();
    let buffer = Buffer::new(&device, Kind::Vram, rkfd::sys::PAGE)?;
    let kernel = stage.kernel("produce")?;
    let event = Event::new(&device, true).context("event")?;
    lane.done.attach(0, &event)?;
    let dispatch = Dispatch::new(&kernel)
        .argument(&buffer)
        .argument(PLACES)
        .argument(PLACES)
        .argument(SEED)
        .completion(lane.done.address(0)?);
    let (packet, header) = encoded(&lane.queue, &dispatch, &lane.kernargs)?;
    let batches = ITEMS / PLACES;
    let pass = || -> anyhow::Result<()> {
        for _ in 0..batches {
            buffer.write_bytes(0, &[0; FIRST + PLACES_BYTES])?;
            device.flush_host_data_path();
            lane.done.store(0, 1)?;
            lane.queue.submit_aql(&packet, header)?;
            asleep(&lane.done, 0, &event)?;
            let mut copy = [0; PLACES_BYTES];
            buffer.read_bytes(FIRST, &mut copy)?;
            for (number, bytes) in (0..).zip(copy.chunks_exact(8)) {
                let mut value = [0; 8];
                value.copy_from_slice(bytes);
                check_item(number, u64::from_le_bytes(value))?;
            }
        }
        Ok(())
    };
    let count = stage.with_calls("the items by copies", pass)?;
    let copied = Copied {
        copies: batches,
        bytes: 8 * ITEMS,
    };
    row(
        "the same by a buffer",
        format!(
            "{batches} launches of {PLACES} items: {}, {} copies, {} bytes copied",
            calls(&count.to_string()),
            copied.copies,
            copied.bytes
        ),
    );
    let runs = stage.measure("items by copies", || Ok(()), pass)?;
    let path = format!("{ITEMS} items: buffer, copies, event waits");
    stage.table.add(&path, runs, count.to_string(), copied);
    Ok(())
}

fn cpu_to_gpu(stage: &Stage, lane: &Lane) -> anyhow::Result<()> {
    let ring = ring(stage)?;
    let kernel = stage.kernel("consume")?;
    let seed = 0xdeed;
    lane.launch(
        Dispatch::new(&kernel)
            .argument(&ring)
            .argument(PLACES)
            .argument(ITEMS)
            .argument(ring.address() + DIGEST as u64), // CAST: a constant.
    )?;
    let mut digest = 0;
    for number in 0..ITEMS {
        let least = (number + 1).saturating_sub(PLACES);
        turn("room in the ring", word(&ring, READ), least)?;
        let value = item(number, seed);
        digest = digested(digest, value);
        word(&ring, place(number)).store(value, Ordering::Relaxed);
        word(&ring, WRITTEN).store(number + 1, Ordering::Release);
    }
    lane.ended()?;
    same(
        "digest of what the GPU has read",
        ring.read_u64(DIGEST)?,
        digest,
    )?;
    told("ring, CPU to GPU", "");
    Ok(())
}

fn told(label: &str, calls: &str) {
    let colon = if calls.is_empty() { "" } else { ": " };
    row(
        label,
        format!(
            "{ITEMS} items through {PLACES} places of fine-grained memory: {}{colon}{calls}",
            style::good("contents and order correct")
        ),
    );
}
