// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Signals: CPU and GPU order their work by words in memory, in every direction.

use std::thread;
use std::time::Duration;

use anyhow::bail;
use anyhow::Context;
use rkfd::code::dispatch::Dispatch;
use rkfd::code::dispatch::Kernargs;
use rkfd::code::program::Kernel;
use rkfd::event::Event;
use rkfd::event::Waited;
use rkfd::memory::Buffer;
use rkfd::memory::Kind;
use rkfd::packet::aql::Barrier;
use rkfd::packet::aql::BarrierKind;
use rkfd::queue::Queue;
use rkfd::signal::Signals;

use super::super::heading;
use super::stage::calls;
use super::stage::encoded;
use super::stage::reached;
use super::stage::row;
use super::stage::same;
use super::stage::Packet;
use super::stage::Stage;
use super::stage::LIMIT;
use super::table::Copied;
use crate::style;

/// Kernels of a chain.
const HOPS: usize = 8;
/// How long the sleeper is left asleep.
const ASLEEP: Duration = Duration::from_millis(20);

/// A packet that waits until a signal is 0.
fn behind(signal: u64) -> anyhow::Result<Packet> {
    let barrier = Barrier {
        kind: BarrierKind::And,
        dependencies: [signal, 0, 0, 0, 0],
        completion: 0,
    };
    Ok(barrier.encode()?)
}

/// A chain of kernels over two queues, each behind the one before.
struct Chain<'s> {
    queues: [Queue; 2],
    /// The signal that the first waits for, and the end of each.
    signals: &'s Signals,
    value: Buffer,
    packets: Vec<(usize, Packet)>,
}

impl<'s> Chain<'s> {
    fn new(
        stage: &Stage,
        kernel: &Kernel,
        signals: &'s Signals,
        kernargs: &Kernargs,
    ) -> anyhow::Result<Self> {
        let queues = [stage.queue(2 * HOPS)?, stage.queue(2 * HOPS)?];
        let value = Buffer::new(&stage.device, Kind::Gtt, rkfd::sys::PAGE)?;
        let mut packets = Vec::new();
        for hop in 0..HOPS {
            let number = hop as u64 + 1; // CAST: a small number.
            let dispatch = Dispatch::new(kernel)
                .argument(&value)
                .argument(number)
                .completion(signals.address(hop + 1)?);
            let at = hop % 2;
            packets.push((at, behind(signals.address(hop)?)?));
            packets.push((at, encoded(&queues[at], &dispatch, kernargs)?));
        }
        Ok(Self {
            queues,
            signals,
            value,
            packets,
        })
    }

    /// What the chain leaves.
    fn wanted() -> u64 {
        (1..=HOPS as u64).fold(0, |value, number| value * 3 + number) // CAST: a small number.
    }

    fn reset(&self) -> anyhow::Result<()> {
        for n in 0..=HOPS {
            self.signals.store(n, 1)?;
        }
        Ok(self.value.write_u64(0, 0)?)
    }

    /// Submits all packets. Those of the second queue come first, so that nothing but signals orders them.
    fn submit(&self) -> anyhow::Result<()> {
        for at in [1, 0] {
            for (_, (packet, header)) in self.packets.iter().filter(|(of, _)| *of == at) {
                self.queues[at].stage_aql(packet, *header)?;
            }
            self.queues[at].flush();
        }
        Ok(())
    }

    fn run(&self) -> anyhow::Result<()> {
        self.submit()?;
        self.signals.store(0, 0)?;
        reached(self.signals, HOPS)
    }

    /// The same with the CPU between all hops: it sleeps until one has ended and only then starts the next one.
    fn run_by_cpu(&self, event: &Event) -> anyhow::Result<()> {
        for (hop, (at, (packet, header))) in self.packets.iter().skip(1).step_by(2).enumerate() {
            self.queues[*at].submit_aql(packet, *header)?;
            asleep(self.signals, hop + 1, event)?;
        }
        Ok(())
    }

    fn check(&self) -> anyhow::Result<()> {
        same(
            "value at the end of the chain",
            self.value.read_u64(0)?,
            Self::wanted(),
        )
    }
}

/// Sleeps on a signal's event, once at least, until the signal is 0.
///
/// # Errors
/// No interrupt wakes the sleeper in time.
pub fn asleep(signals: &Signals, index: usize, event: &Event) -> anyhow::Result<()> {
    loop {
        if event.wait(LIMIT)? == Waited::TimedOut {
            bail!(
                "the interrupt did not wake the sleeper on event {}",
                event.id()
            );
        }
        // An event that came for a packet before is no end of this one.
        if signals.load(index)? == 0 {
            return Ok(());
        }
    }
}

/// Tells of the promise and of what it saves.
///
/// # Errors
/// It is not kept.
pub fn tell(stage: &mut Stage) -> anyhow::Result<()> {
    heading("Signals: words in memory order the work");
    let kernel = stage.kernel("hop")?;
    let device = stage.device.clone();
    let kernargs = Kernargs::new(&device, 16 * rkfd::sys::PAGE)?;
    let queue = stage.queue(4)?;
    let signals = Signals::new(&device, 2)?;
    let value = Buffer::new(&device, Kind::Gtt, rkfd::sys::PAGE)?;
    let dispatch = Dispatch::new(&kernel)
        .argument(&value)
        .argument(5u64)
        .completion(signals.address(1)?);
    let hop = encoded(&queue, &dispatch, &kernargs)?;
    let gate = behind(signals.address(0)?)?;
    let submit = |packet: &Packet| queue.submit_aql(&packet.0, packet.1);
    let close = |waiting: bool| -> anyhow::Result<()> {
        value.write_u64(0, 2)?;
        signals.store(0, waiting.into())?;
        Ok(signals.store(1, 1)?)
    };
    let check = || same("value of the kernel", value.read_u64(0)?, 11);

    // CPU to GPU: the kernel is in the queue already, and the CPU lets it go.
    let gated = || -> anyhow::Result<()> {
        close(true)?;
        submit(&gate)?;
        submit(&hop)?;
        thread::sleep(ASLEEP);
        if signals.load(1)? != 1 || value.read_u64(0)? != 2 {
            bail!("the kernel ran before its signal came");
        }
        Ok(())
    };
    let release = || -> anyhow::Result<()> {
        signals.store(0, 0)?;
        reached(&signals, 1)
    };
    let count = stage.without_calls("CPU to GPU by a signal", gated, release)?;
    check()?;
    row(
        "CPU to GPU",
        format!("a store lets the waiting kernel go: {}", calls(&count)),
    );
    let runs = stage.measure("kernels that are let go", gated, release)?;
    stage.table.add(
        "signal: CPU lets a kernel go, polls",
        runs,
        count,
        Copied::default(),
    );

    // GPU to CPU, polled.
    let polled = || -> anyhow::Result<()> {
        submit(&hop)?;
        reached(&signals, 1)
    };
    let count = stage.without_calls("GPU to CPU, polled", || close(false), polled)?;
    check()?;
    row(
        "GPU to CPU, polled",
        format!("launch and end: {}", calls(&count)),
    );
    let runs = stage.measure("launches, polled", || close(false), polled)?;
    stage
        .table
        .add("launch: end is polled", runs, count, Copied::default());

    // GPU to CPU, asleep.
    let event = Event::new(&device, true).context("event")?;
    signals.attach(1, &event)?;
    let sleeping = || -> anyhow::Result<()> {
        submit(&hop)?;
        asleep(&signals, 1, &event)
    };
    close(true)?;
    submit(&gate)?;
    let opener = thread::scope(|scope| {
        let opener = scope.spawn(|| {
            thread::sleep(ASLEEP);
            signals.store(0, 0)
        });
        sleeping()?;
        opener
            .join()
            .map_err(|_| anyhow::anyhow!("the thread that opens the gate panicked"))??;
        anyhow::Ok(())
    });
    opener?;
    check()?;
    close(false)?;
    let count = stage.with_calls("GPU to CPU, asleep", sleeping)?;
    check()?;
    row(
        "GPU to CPU, asleep",
        format!(
            "an interrupt, event {} {}; launch and end: {}",
            event.id(),
            style::good("woke its sleeper"),
            calls(&count.to_string())
        ),
    );
    let runs = stage.measure("launches, slept for", || close(false), sleeping)?;
    stage.table.add(
        "launch: end is slept for",
        runs,
        count.to_string(),
        Copied::default(),
    );
    chain(stage, &kernel, &kernargs)
}

/// GPU to GPU: kernels of two queues in turn.
fn chain(stage: &mut Stage, kernel: &Kernel, kernargs: &Kernargs) -> anyhow::Result<()> {
    let signals = Signals::new(&stage.device, HOPS + 1)?;
    let chain = Chain::new(stage, kernel, &signals, kernargs)?;
    let count = stage.without_calls("the chain", || chain.reset(), || chain.run())?;
    chain.check()?;
    row(
        "GPU to GPU",
        format!(
            "{HOPS} kernels of two queues in turn, by barriers: {}",
            calls(&count)
        ),
    );
    let runs = stage.measure("chains", || chain.reset(), || chain.run())?;
    chain.check()?;
    let path = format!("chain of {HOPS} kernels: by signals alone");
    stage.table.add(&path, runs, count, Copied::default());

    let event = Event::new(&stage.device, true).context("event")?;
    for n in 1..=HOPS {
        signals.attach(n, &event)?;
    }
    let by_cpu = || chain.run_by_cpu(&event);
    chain.reset()?;
    let count = stage.with_calls("the chain with the CPU between", by_cpu)?;
    chain.check()?;
    let runs = stage.measure("chains by the CPU", || chain.reset(), by_cpu)?;
    chain.check()?;
    let path = format!("chain of {HOPS} kernels: the CPU sleeps between");
    stage
        .table
        .add(&path, runs, count.to_string(), Copied::default());
    Ok(())
}
