// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the parts of the demo share: GPUs with their kernels, the functions of tasks, and what these have noted.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use anyhow::bail;
use anyhow::Context;
use rkfd::backoff::wait_until;
use rkfd::code::arguments::Value;
use rkfd::code::dispatch::Dispatch;
use rkfd::code::dispatch::Kernargs;
use rkfd::code::program::Program;
use rkfd::device::Device;
use rkfd::memory::Buffer;
use rkfd::memory::Kind;
use rkfd::queue::Queue;
use rkfd::queue::QueueKind;
use rkfd::queue::QueueOptions;
use rkfd::signal::Signals;
use rkfd::sys::PAGE;
use rkfd::tasks::function::Functions;
use rkfd::tasks::function::Outcome;
use rkfd::tasks::host::Host;
use rkfd::tasks::layout::Shape;
use rkfd::tasks::Options as TaskOptions;
use rkfd::tasks::Tasks;

use crate::demo::hsa::stage::kernels;

/// Longest that anything may take, on a slow machine under load.
pub const LIMIT: Duration = Duration::from_secs(120);
/// How often kernels look before they give up: for longer than [`LIMIT`].
pub const TRIES: u32 = 1 << 30;
/// Functions of tasks, as the kernels have them.
pub const NOTE: u32 = 1;
/// It mixes two numbers.
pub const MIX: u32 = 2;
/// It doubles the value of what it follows.
pub const TWICE: u32 = 3;
/// It rings a queue's doorbell.
pub const BELL: u32 = 4;
/// Answers of `rkfd_tasks.h`.
pub const OK: u64 = 0;
/// The task failed; the value says why.
pub const FAILED: u64 = 5;
/// The files of the kernels.
const HIP: &str = "tasks.co";
const OPENCL: &str = "tasks_cl.co";

/// What [`MIX`] computes, and kernels check notes by.
pub fn mix(a: u64, b: u64) -> u64 {
    let sum = a.wrapping_mul(31).wrapping_add(b).wrapping_add(1);
    sum.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A GPU with a queue that runs one kernel at a time.
pub struct Gpu {
    /// The GPU.
    pub device: Arc<Device>,
    /// The kernels.
    pub program: Arc<Program>,
    opencl: Arc<Program>,
    queue: Queue,
    kernargs: Kernargs,
    done: Signals,
    /// Words that kernels leave.
    out: Buffer,
}

/// Work-items of the largest launch here.
pub const MOST_ITEMS: usize = 4096;

impl Gpu {
    pub fn new(device: Arc<Device>) -> anyhow::Result<Self> {
        let load = |name: &str| -> anyhow::Result<Arc<Program>> {
            let code = kernels(&device, name)?;
            Program::load(&device, &code).with_context(|| name.to_owned())
        };
        Ok(Self {
            program: load(HIP)?,
            opencl: load(OPENCL)?,
            queue: Queue::new(&device, QueueOptions::new(QueueKind::Aql)).context("queue")?,
            kernargs: Kernargs::new(&device, PAGE)?,
            done: Signals::new(&device, 1)?,
            out: Buffer::new(&device, Kind::Gtt, 8 * 4 * MOST_ITEMS)?,
            device,
        })
    }

    /// Where kernels leave words.
    pub fn out(&self) -> Value {
        Value::Address(self.out.address())
    }

    /// The words that a kernel has left.
    pub fn words(&self, count: usize) -> anyhow::Result<Vec<u64>> {
        Ok((0..count)
            .map(|n| self.out.read_u64(8 * n))
            .collect::<Result<_, _>>()?)
    }

    /// The dwords that a kernel has left.
    pub fn dwords(&self, count: usize) -> anyhow::Result<Vec<u32>> {
        Ok((0..count)
            .map(|n| self.out.read_u32(4 * n))
            .collect::<Result<_, _>>()?)
    }

    /// Starts a kernel on `items` work-items.
    pub fn start(&mut self, name: &str, items: usize, arguments: &[Value]) -> anyhow::Result<()> {
        let program = if name.ends_with("_cl") {
            &self.opencl
        } else {
            &self.program
        };
        let kernel = program.kernel(name)?;
        for n in 0..4 * items.min(MOST_ITEMS) {
            self.out.write_u64(8 * n, u64::MAX)?;
        }
        self.kernargs.clear();
        self.done.store(0, 1)?;
        let mut dispatch = Dispatch::new(&kernel)
            .grid([items as u32, 1, 1]) // CAST: a small number.
            .group([64, 1, 1])
            .completion(self.done.address(0)?);
        for argument in arguments {
            dispatch = dispatch.argument(argument.clone());
        }
        self.queue.dispatch(&dispatch, &self.kernargs)?;
        Ok(())
    }

    /// Waits for its end.
    pub fn finish(&self) -> anyhow::Result<()> {
        wait_until("a kernel", LIMIT, || {
            if let Some(error) = self.queue.error() {
                return Err(rkfd::error::Error::QueueFailed(error));
            }
            let value = self.done.load(0)?;
            Ok((value < 1, value as u64)) // CAST: the bits, for a message.
        })?;
        Ok(())
    }

    /// Runs a kernel to its end.
    pub fn run(&mut self, name: &str, items: usize, arguments: &[Value]) -> anyhow::Result<()> {
        self.start(name, items, arguments)?;
        self.finish().with_context(|| format!("kernel {name}"))
    }
}

/// Whether notes may be taken.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
}

/// What the functions of tasks share with the demo.
#[derive(Default)]
pub struct World {
    /// How often each note came: producer, number.
    notes: Mutex<BTreeMap<(u64, u64), u32>>,
    /// Notes whose check was wrong.
    wrong: AtomicU64,
    gate: Gate,
    /// Queues whose doorbells kernels have rung.
    queues: Mutex<Vec<Arc<Queue>>>,
    rung: AtomicU64,
}

impl World {
    /// Functions for tasks, those of `host` included.
    pub fn functions(self: &Arc<Self>, host: Option<&Arc<Host>>) -> anyhow::Result<Functions> {
        let mut functions = Functions::new();
        let world = self.clone();
        functions.add(NOTE, "note", 24..=24, move |call| {
            let [producer, number, check] = [0, 1, 2].map(|n| call.word(n).unwrap_or(0));
            world.pass();
            if check != mix(producer, number) {
                world.wrong.fetch_add(1, Ordering::Relaxed);
            }
            *lock(&world.notes).entry((producer, number)).or_default() += 1;
            Outcome::Done(number)
        })?;
        functions.add(MIX, "mix", 16..=16, |call| {
            match (call.word(0), call.word(1)) {
                (Some(a), Some(b)) => Outcome::Done(mix(a, b)),
                _ => Outcome::Failed(0),
            }
        })?;
        functions.add(TWICE, "twice", 0..=64, |call| {
            Outcome::Done(call.input.wrapping_mul(2))
        })?;
        let world = self.clone();
        functions.add(BELL, "bell", 16..=16, move |call| {
            let queue = call.word(0).and_then(|n| usize::try_from(n).ok());
            let queue = queue.and_then(|n| lock(&world.queues).get(n).cloned());
            match (queue, call.word(1)) {
                (Some(queue), Some(index)) => {
                    queue.ring_doorbell(index);
                    world.rung.fetch_add(1, Ordering::Relaxed);
                    Outcome::Done(index)
                }
                _ => Outcome::Failed(0),
            }
        })?;
        if let Some(host) = host {
            host.register(&mut functions)?;
        }
        Ok(functions)
    }

    fn pass(&self) {
        let closed = lock(&self.gate.closed);
        drop(
            self.gate
                .opened
                .wait_while(closed, |closed| *closed)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// Keeps notes from being taken, or lets them.
    pub fn close(&self, closed: bool) {
        *lock(&self.gate.closed) = closed;
        self.gate.opened.notify_all();
    }

    /// Lets kernels have a queue's doorbell rung, and returns its number.
    pub fn offer_queue(&self, queue: &Arc<Queue>) -> u64 {
        let mut queues = lock(&self.queues);
        queues.push(queue.clone());
        queues.len() as u64 - 1 // CAST: a count.
    }

    /// How often doorbells were rung, since the last time.
    pub fn take_rung(&self) -> u64 {
        lock(&self.queues).clear();
        self.rung.swap(0, Ordering::Relaxed)
    }

    /// Waits until as many notes have come as each producer has handed over, and compares them. Forgets them.
    pub fn check_notes(&self, tasks: &Tasks, wanted: &[(u64, u64)]) -> anyhow::Result<u64> {
        let each = wanted
            .iter()
            .flat_map(|(producer, count)| (0..*count).map(|number| (*producer, number)))
            .collect::<Vec<_>>();
        self.check_each(tasks, &each)
    }

    /// Waits until these notes have come, by producer and number, and compares them. Forgets them.
    pub fn check_each(&self, tasks: &Tasks, wanted: &[(u64, u64)]) -> anyhow::Result<u64> {
        let count = wanted.len() as u64; // CAST: a length.
        let came = || {
            lock(&self.notes)
                .values()
                .map(|n| u64::from(*n))
                .sum::<u64>()
        };
        wait_until("tasks", LIMIT, || Ok((came() >= count, came())))?;
        settle(tasks)?;
        let notes = std::mem::take(&mut *lock(&self.notes));
        let wrong = self.wrong.swap(0, Ordering::Relaxed);
        if wrong != 0 {
            bail!("{wrong} tasks had other arguments than they were handed over with");
        }
        let found: u64 = notes.values().map(|n| u64::from(*n)).sum();
        if found != count {
            bail!("{count} tasks were handed over, and {found} ran");
        }
        for (producer, number) in wanted {
            match notes.get(&(*producer, *number)) {
                Some(1) => {}
                Some(times) => bail!("task {number} of producer {producer} ran {times} times"),
                None => bail!("task {number} of producer {producer} was lost"),
            }
        }
        Ok(count)
    }
}

/// Waits until all tasks that workers took have ended.
pub fn settle(tasks: &Tasks) -> anyhow::Result<()> {
    wait_until("the workers", LIMIT, || {
        let now = tasks.statistics();
        let left: u64 = now
            .areas
            .iter()
            .map(|area| (area.taken[0] + area.taken[1]).saturating_sub(area.done + area.failed))
            .sum();
        Ok((left == 0, left))
    })?;
    Ok(())
}

/// GPUs and what tasks need.
pub struct Stage {
    /// The GPUs.
    pub gpus: Vec<Gpu>,
    /// What functions note.
    pub world: Arc<World>,
    /// Areas of GPUs.
    pub shape: Shape,
    /// Threads that run tasks.
    pub workers: usize,
}

impl Stage {
    /// So many GPUs from number `first` on; all that there are for `None`.
    pub fn new(
        first: usize,
        count: Option<usize>,
        shape: Shape,
        workers: usize,
    ) -> anyhow::Result<Self> {
        let kfd = rkfd::device::Kfd::open()?;
        let found = kfd.gpus()?;
        let count = count.unwrap_or(found.len().saturating_sub(first));
        let end = first.checked_add(count);
        let Some(chosen) = end.and_then(|end| found.get(first..end)) else {
            bail!("there are {} GPUs, counted from 0", found.len());
        };
        let gpus = chosen
            .iter()
            .map(|gpu| Gpu::new(Device::open(&kfd, gpu)?))
            .collect::<anyhow::Result<_>>()?;
        Ok(Self {
            gpus,
            world: Arc::default(),
            shape,
            workers,
        })
    }

    /// What areas of a shape and their workers take.
    pub fn options(&self, shape: Shape) -> TaskOptions {
        TaskOptions {
            gpus: self.gpus.iter().map(|gpu| gpu.device.clone()).collect(),
            shape,
            workers: self.workers,
            statistics: Some(crate::tasks::file_of(std::process::id())),
            ..TaskOptions::default()
        }
    }

    /// Starts workers for areas of a shape.
    pub fn tasks(&self, shape: Shape, host: Option<&Arc<Host>>) -> anyhow::Result<Tasks> {
        let functions = self.world.functions(host)?;
        Ok(Tasks::start(self.options(shape), functions)?)
    }
}
