// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl demo`: dispatches packets through a user queue and tells what happens, with the real values.
//!
//! The story is checked as it is told: a value that did not land, an event that did not wake, or a system call made by
//! the dispatch is a failure.

mod hsa;
pub mod native;
pub mod tasks;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use nix::libc;
use rkfd::backoff::poll;
use rkfd::backoff::SPINNING;
use rkfd::device::Device;
use rkfd::event::Event;
use rkfd::event::Waited;
use rkfd::memory::Buffer;
use rkfd::memory::Kind;
use rkfd::packet::pm4::Packet;
use rkfd::packet::pm4::ReleaseData;
use rkfd::packet::pm4::ReleaseInterrupt;
use rkfd::packet::pm4::CACHE_FLUSH_AND_INV_TS;
use rkfd::queue::Queue;
use rkfd::queue::QueueKind;
use rkfd::queue::QueueOptions;

use crate::control::Control;
use crate::control::Record;
use crate::info::gfx_name;
use crate::latency::micros;
use crate::latency::Samples;
use crate::style;
use crate::syscalls;
use crate::syscalls::Counter;
use crate::trace;

/// Longest that any one packet may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Where the value lands, in its buffer.
const VALUE: usize = 0;
/// Where the fence lands.
const FENCE: usize = 64;

#[derive(clap::Args, Clone)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Options {
    #[command(subcommand)]
    other: Option<Other>,
    /// GPU, counted from 0
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// Round trips to measure
    #[arg(long, default_value_t = 200)]
    rounds: usize,
    /// Use the render node alone, twice: two address spaces in one program
    #[arg(long)]
    native: bool,
    /// Let the demo fail on purpose: expect another value than the packet writes
    #[arg(long, hide = true)]
    expect_wrong: bool,
}

/// Demos with options of their own.
#[derive(clap::Subcommand, Clone)]
enum Other {
    /// Show what HSA promises: shared memory, coherency, signals, queues in user mode
    Hsa(hsa::Options),
    /// Show work that kernels hand to the CPU and to queues: tasks, futures, calls of the host
    GpuTasks(tasks::Options),
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    match &options.other {
        Some(Other::Hsa(options)) => return hsa::run(options),
        Some(Other::GpuTasks(options)) => return tasks::run(options),
        None => {}
    }
    if options.native {
        return native::run(options);
    }
    demand_gpu()?;
    let options = options.clone();
    syscalls::watched(move |counter| match story(&options, counter) {
        Ok(()) => {
            anstream::println!("\n{}", style::good("Success."));
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("rkfdctl: {e:#}");
            ExitCode::FAILURE
        }
    })
}

/// Asks for the GPU's existence before a fork, so that "no GPU" keeps its own exit status.
fn demand_gpu() -> anyhow::Result<()> {
    if rkfd::device::Kfd::open()?.gpus()?.is_empty() {
        return Err(rkfd::error::Error::NoGpu.into());
    }
    Ok(())
}

/// One dispatch: packets, and what must be in memory afterwards.
struct Dispatch {
    packets: Vec<Packet>,
    dwords: Vec<u32>,
    value: u32,
    fence: u64,
}

impl Dispatch {
    fn new(target: &Buffer, value: u32, fence: u64, event: Option<&Event>) -> anyhow::Result<Self> {
        let mut packets = vec![
            Packet::WriteData {
                address: target.address() + VALUE as u64,
                data: vec![value],
                confirm: true,
            },
            Packet::ReleaseMem {
                event: CACHE_FLUSH_AND_INV_TS,
                address: target.address() + FENCE as u64,
                data: ReleaseData::Qword(fence),
                interrupt: ReleaseInterrupt::None,
            },
        ];
        if let Some(e) = event {
            packets.push(Packet::ReleaseMem {
                event: CACHE_FLUSH_AND_INV_TS,
                address: e.slot_address(),
                data: ReleaseData::Dword(e.id()),
                interrupt: ReleaseInterrupt::AfterWrite(e.id()),
            });
        }
        let dwords = Packet::encode_all(&packets)?;
        Ok(Self {
            packets,
            dwords,
            value,
            fence,
        })
    }

    /// Submits and polls the fence: the path that must not enter the kernel.
    fn go(&self, queue: &Queue, target: &Buffer) -> rkfd::error::Result<()> {
        queue.submit(&self.dwords)?;
        poll("the fence", LIMIT, || match target.read_u64(FENCE) {
            Ok(seen) => (seen == self.fence, seen),
            Err(_) => (false, 0),
        })
    }

    fn check(&self, target: &Buffer) -> anyhow::Result<u32> {
        let landed = target.read_u32(VALUE)?;
        if landed != self.value {
            bail!(
                "wrong value: {landed:#010x} landed, the packet wrote {:#010x}",
                self.value
            );
        }
        Ok(landed)
    }
}

fn story(options: &Options, mut counter: Counter) -> anyhow::Result<()> {
    let device = crate::open_gpu(options.gpu)?;
    let mut control = introduce(&device)?;
    let before = control.as_mut().map(Control::newest).transpose()?;

    let target = Buffer::new(&device, Kind::Gtt, 4096).context("target buffer")?;
    let event = Event::new(&device, true).context("event")?;
    let mut queue = Queue::new(&device, QueueOptions::new(QueueKind::Pm4)).context("queue")?;
    place(&queue, &target, &event);

    let first = Dispatch::new(&target, pattern(1), 1, Some(&event))?;
    heading("Packets submitted");
    for p in &first.packets {
        anstream::println!("  {p}");
    }
    // Learning the rate of the CPU's counter asks the system's clock; not part of a dispatch.
    rkfd::clock::calibrate();
    check_counter(&mut counter)?;
    let began = Instant::now();
    let (done, count) = counter.count(|| first.go(&queue, &target))?;
    // Across a reset, for one. Then the loop has slept, and the number says nothing.
    let took = began.elapsed();
    let slept = took >= SPINNING;
    if let Err(e) = done {
        diagnose(control.as_mut(), before);
        return Err(e.into());
    }
    let landed = first.check(&target)?;
    if options.expect_wrong {
        bail!(
            "wrong value: {landed:#010x} landed, {:#010x} was expected",
            !landed
        );
    }
    match event.wait(LIMIT).context("waiting for the event")? {
        Waited::Complete => {}
        Waited::TimedOut => bail!(
            "the packet's interrupt did not wake the sleeper on event {}",
            event.id()
        ),
    }

    heading("Result");
    anstream::println!(
        "  value at {:#x}: {} {}",
        target.address(),
        style::value(format!("{landed:#010x}")),
        style::good("correct")
    );
    anstream::println!(
        "  event {}: {}",
        event.id(),
        style::good("woke its sleeper")
    );
    let text = format!("{} system calls", count.calls);
    anstream::println!(
        "  the dispatch (packets, write pointer, doorbell, wait for the fence) made {}",
        if count.calls == 0 {
            style::good(text)
        } else if slept {
            format!("{text}: it took {:.1} s, and slept", took.as_secs_f64())
        } else {
            style::bad(text)
        }
    );
    if count.calls != 0 && !slept {
        bail!(
            "the dispatch entered the kernel: system calls {:?}",
            count.numbers
        );
    }
    seen_by_gpu(control.as_mut(), before, &first)?;
    measure(options.rounds, &queue, &target, &event)?;
    // A GPU that is reset meanwhile has lost what the demo put there.
    queue.destroy().context("destroying the queue")
}

/// A value that is neither zero nor repeated soon.
fn pattern(n: u32) -> u32 {
    0x5eed_0000 ^ n.wrapping_mul(0x9e37_79b9)
}

/// What the counter reports must itself be checked, or "0" says nothing.
fn check_counter(counter: &mut Counter) -> anyhow::Result<()> {
    let ((), known) = counter.count(three_calls)?;
    if known.calls != 3 {
        bail!(
            "the system-call counter is wrong: it saw {} of 3 known calls",
            known.calls
        );
    }
    Ok(())
}

fn three_calls() {
    for _ in 0..3 {
        // SAFETY: takes nothing and cannot fail.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
}

fn heading(text: &str) {
    anstream::println!("\n{}", style::head(text));
}

fn introduce(device: &Arc<Device>) -> anyhow::Result<Option<Control>> {
    let gpu = device.gpu();
    let name = gpu
        .node
        .as_ref()
        .map(|n| n.name.clone())
        .filter(|n| !n.is_empty());
    let gfx = gfx_name(device.gfx());
    let pci = device.pci();
    let what = match pci {
        Some(p) if p.is_model() => "device model",
        _ => "card",
    };
    let address = pci.map_or("unknown PCI address", |p| &p.address);
    anstream::println!(
        "{}",
        style::head(format!(
            "GPU {} ({gfx}), {what} at {address}, gpu_id {:#06x}, render node {}",
            name.as_deref().unwrap_or(&gfx),
            device.id(),
            device.render_path().display()
        ))
    );
    match pci {
        Some(p) => Control::of_pci(&p.address),
        None => Ok(None),
    }
}

fn place(queue: &Queue, target: &Buffer, event: &Event) {
    heading("Queue");
    let row = |label: &str, text: String| {
        anstream::println!(
            "  {} {}",
            style::dim(format!("{label:<14}")),
            style::value(text)
        )
    };
    row("id", format!("{} (PM4 compute)", queue.id()));
    row(
        "ring",
        format!("{:#x}, {} bytes", queue.ring_address(), queue.ring_bytes()),
    );
    row(
        "write pointer",
        format!("{:#x}", queue.write_pointer_address()),
    );
    row(
        "read pointer",
        format!("{:#x}", queue.read_pointer_address()),
    );
    row(
        "doorbell",
        format!(
            "{:#x} (mmap offset {:#x})",
            queue.doorbell_address(),
            queue.doorbell_offset()
        ),
    );
    row(
        "target",
        format!(
            "{:#x}, {} of {} bytes",
            target.address(),
            target.kind().name(),
            target.size()
        ),
    );
    row(
        "event",
        format!("{}, slot at {:#x}", event.id(), event.slot_address()),
    );
}

fn newer(control: &mut Control, before: Option<u64>) -> anyhow::Result<Vec<Record>> {
    let mut records = control.trace(None, Some(400))?;
    records.retain(|r| r.seq > before.unwrap_or(0));
    Ok(records)
}

/// What the GPU saw: who the process is to it, the runlist, and the user packets.
fn seen_by_gpu(
    control: Option<&mut Control>,
    before: Option<u64>,
    dispatch: &Dispatch,
) -> anyhow::Result<()> {
    heading("As the GPU saw it");
    let Some(control) = control else {
        anstream::println!(
            "  not available on this GPU: only the device model shows what it executed"
        );
        return Ok(());
    };
    let records = newer(control, before)?;
    let mut wanted = Vec::new();
    dispatch.packets[0].encode(&mut wanted)?;
    let Some(ours) = records.iter().find(|r| r.raw == wanted) else {
        bail!("the GPU's trace does not hold the packet that was submitted");
    };
    if let (Some(vmid), Some(pasid)) = (ours.vmid, ours.pasid) {
        anstream::println!(
            "  this process: PASID {}, in VMID {}",
            style::value(format!("{pasid:#x}")),
            style::value(vmid)
        );
    }
    let (scheduler, others): (Vec<&Record>, Vec<&Record>) =
        records.iter().partition(|r| of_scheduler(r));
    let ours_has = |what: &str| {
        scheduler
            .iter()
            .any(|r| r.packet == what && r.pasid == ours.pasid)
    };
    let who = match (ours_has("MAP_QUEUES"), ours_has("CONNECT")) {
        (true, true) => "the scheduler, since the queue was created:",
        (false, true) => "the driver, which loads queues by registers (sched_policy=2):",
        (_, false) => bail!("the GPU's trace does not show that the queue was connected"),
    };
    anstream::println!("  {}", style::dim(who));
    for r in scheduler {
        anstream::println!("  {}", trace::line(r));
    }
    anstream::println!("  {}", style::dim("this process's queue:"));
    for r in others.iter().filter(|r| r.pasid == ours.pasid) {
        anstream::println!("  {}", trace::line(r));
    }
    Ok(())
}

/// Packets of the HIQ, the run list that they point to, and what the firmware made of it.
fn of_scheduler(r: &Record) -> bool {
    ["HIQ", "runlist", "sched", "HQD"]
        .iter()
        .any(|ring| r.ring.eq_ignore_ascii_case(ring))
}

/// After a dispatch that hung: everything the GPU did, to find out why.
fn diagnose(control: Option<&mut Control>, before: Option<u64>) {
    let Some(control) = control else { return };
    if let Ok(records) = newer(control, before) {
        eprintln!("rkfdctl: the GPU executed since the queue was created:");
        for r in &records {
            eprintln!("  {}", trace::line(r));
        }
    }
    if let Ok(queues) = control.request(&serde_json::json!({ "cmd": "queues" })) {
        eprintln!("rkfdctl: queues of the GPU: {queues}");
    }
}

fn measure(rounds: usize, queue: &Queue, target: &Buffer, event: &Event) -> anyhow::Result<()> {
    if rounds == 0 {
        return Ok(());
    }
    heading("Latency");
    let mut polled = Vec::with_capacity(rounds);
    for n in 0..rounds {
        let n = u32::try_from(n)?;
        let d = Dispatch::new(target, pattern(n + 2), u64::from(n) + 2, None)?;
        let start = Instant::now();
        d.go(queue, target)?;
        polled.push(start.elapsed());
        d.check(target)?;
    }
    report("doorbell to fence, polled", Samples::new(polled));
    let mut slept = Vec::new();
    for n in 0..rounds.min(50) {
        let n = u32::try_from(n)?;
        let d = Dispatch::new(
            target,
            pattern(n ^ 0xffff),
            (1 << 32) + u64::from(n),
            Some(event),
        )?;
        let start = Instant::now();
        queue.submit(&d.dwords)?;
        if event.wait(LIMIT)? != Waited::Complete {
            bail!("round {n}: the event did not wake its sleeper");
        }
        slept.push(start.elapsed());
        d.check(target)?;
    }
    report("doorbell to wake-up, asleep", Samples::new(slept));
    Ok(())
}

fn report(what: &str, samples: Samples) {
    anstream::println!(
        "  {what:<28} median {}, p99 {} ({} round trips)",
        style::value(micros(samples.percentile(50))),
        style::value(micros(samples.percentile(99))),
        samples.count()
    );
}
