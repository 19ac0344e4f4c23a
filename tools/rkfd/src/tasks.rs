// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Work from the GPU: kernels hand tasks to threads of the CPU, which run functions and complete futures.
//!
//! Each GPU has an area of memory that CPU and GPU see, with rings of two priorities; so has the CPU itself, for the
//! program's own tasks. Kernels use `include/rkfd_tasks.h`; [`ring`] has the protocol, [`layout`] the numbers. Workers
//! ([`Tasks::start`]) visit all rings in turn, and sleep when there is nothing: a wave that hands a task over while they
//! do raises an interrupt. [`host`] is a service for kernels: text output, files, memory.
//!
//! A task runs once. Where its worker dies before the function has begun, another worker runs it; where it dies later,
//! the future fails ([`failure::WORKER`]), since nobody knows how far it came.
//!
//! ```no_run
//! use rkfd::tasks::function::{Functions, Outcome};
//! use rkfd::tasks::ring::Task;
//! use rkfd::tasks::{Options, Tasks};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let gpu = rkfd::device::Device::first()?;
//! let mut functions = Functions::new();
//! functions.add(1, "add", 16..=16, |call| match (call.word(0), call.word(1)) {
//!     (Some(a), Some(b)) => Outcome::Done(a + b),
//!     _ => Outcome::Failed(0),
//! })?;
//! let tasks = Tasks::start(Options { gpus: vec![gpu], ..Options::default() }, functions)?;
//! // An argument of kernels:
//! let area = tasks.address(0);
//! // The CPU's own:
//! let sum = tasks.submit(&Task::new(1, &[2, 3]))?;
//! assert_eq!(tasks.wait(sum, std::time::Duration::from_secs(5))?, 5);
//! # Ok(())
//! # }
//! ```

mod area;
mod bell;
pub mod function;
pub mod host;
pub mod layout;
mod near;
pub mod ring;
pub mod rota;
pub mod statistics;
mod worker;

use std::hash::Hash;
use std::hash::Hasher;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use self::area::Area;
use self::function::Functions;
use self::layout::Priority;
use self::layout::Shape;
use self::ring::Future;
use self::ring::Look;
use self::ring::Refused;
use self::ring::Task;
use self::statistics::Statistics;
use self::worker::Crew;
pub use self::worker::Death;
pub use self::worker::Stop;
use crate::clock::Deadline;
use crate::device::Device;
use crate::error::Error;
use crate::error::Result;

/// Why tasks fail, as the value of their future.
pub mod failure {
    /// No function has this number.
    pub const FUNCTION: u64 = 1;
    /// The function does not take so many bytes of arguments, or a slot has fewer.
    pub const BYTES: u64 = 2;
    /// The function panicked.
    pub const PANIC: u64 = 3;
    /// The worker died while it ran the function.
    pub const WORKER: u64 = 4;
    /// There is no such continuation, or too many followed each other.
    pub const THEN: u64 = 5;
    /// Reasons of functions begin here.
    pub const OWN: u64 = 256;
}

/// What to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// GPUs whose kernels hand tasks over: none, one or several.
    pub gpus: Vec<Arc<Device>>,
    /// The area of each GPU.
    pub shape: Shape,
    /// The area of the program's own tasks.
    pub own: Shape,
    /// Threads that run tasks; 1 to 256.
    pub workers: usize,
    /// Have the area of each GPU on the GPU's memory node, and keep workers on the CPUs near a GPU, in turn: worker *w* near
    /// GPU *w* modulo their number.
    pub near: bool,
    /// Where statistics are for other programs to read: a file that is made, and removed at the end.
    pub statistics: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            gpus: Vec::new(),
            shape: Shape::default(),
            own: Shape::default(),
            workers: 2,
            near: true,
            statistics: None,
        }
    }
}

/// What keeps a task of the program from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// It was not handed over.
    #[error("The task was not handed over: {0:?}")]
    Refused(Refused),
    /// It failed, for a reason of [`failure`].
    #[error("The task failed: reason {0}")]
    Failed(u64),
    /// It has not ended in time. The future is still the caller's.
    #[error("The task has not ended within {0:?}")]
    Pending(Duration),
    /// Not a future of the caller's.
    #[error("Not a future that waits for a task")]
    Stale,
    /// The workers have ended without it ([`Tasks::stop`]): it never runs.
    #[error("The workers have ended, and the task was left")]
    Left,
}

/// Areas and the workers that serve them; ended when dropped.
///
/// Kernels that use an area have ended by then: its memory goes with this value.
#[derive(Debug)]
pub struct Tasks {
    crew: Arc<Crew>,
}

impl Tasks {
    /// Makes the areas and starts the workers.
    ///
    /// # Errors
    /// [`Error::Argument`] for a shape or number of workers that cannot be; those of [`crate::memory::Buffer::new`] and
    /// [`crate::event::Event::new`]; [`Error::File`] where the statistics cannot be made; [`Error::Thread`].
    pub fn start(options: Options, functions: Functions) -> Result<Self> {
        if !(1..=layout::MOST_WORKERS).contains(&options.workers) {
            return Err(Error::Argument("Workers are 1 to 256"));
        }
        options.shape.check()?;
        options.own.check()?;
        let mut areas = Vec::new();
        for (number, device) in options.gpus.iter().enumerate() {
            let area = Area::of_gpu(device, options.shape, number, options.near)?;
            areas.push(area);
        }
        areas.push(Area::of_program(options.own, areas.len())?);
        let statistics = Statistics::new(
            options.statistics.clone(),
            options.gpus.iter().map(|gpu| gpu.id()).collect(),
            options.workers,
        )?;
        let crew = Crew::start(&options, areas, functions, statistics)?;
        Ok(Self { crew })
    }

    /// GPUs that it was started with.
    pub fn gpus(&self) -> usize {
        self.crew.areas.len() - 1
    }

    /// The address of a GPU's area, for its kernels; 0 where there is no such GPU.
    pub fn address(&self, gpu: usize) -> u64 {
        let area = self.crew.areas.get(gpu).filter(|_| gpu < self.gpus());
        area.map_or(0, |area| area.view.memory().address())
    }

    /// The shape of a GPU's area, and behind those of GPUs that of the program's own.
    pub fn shape(&self, area: usize) -> Option<&Shape> {
        self.crew.areas.get(area).map(|area| area.view.shape())
    }

    /// The node that the memory of a GPU's area was asked from: `None` where the system names none, or
    /// [`Options::near`] is not set.
    pub fn node(&self, gpu: usize) -> Option<u32> {
        self.crew.areas.get(gpu).and_then(|area| area.node)
    }

    fn own(&self) -> &Area {
        // The last area is always there.
        &self.crew.areas[self.crew.areas.len() - 1]
    }

    /// Hands a task over, of low priority.
    ///
    /// # Errors
    /// [`TaskError::Refused`]; nothing is taken then.
    pub fn submit(&self, task: &Task) -> std::result::Result<Future, TaskError> {
        self.submit_as(task, Priority::Low)
    }

    /// Hands a task over.
    ///
    /// # Errors
    /// [`TaskError::Refused`]; nothing is taken then.
    pub fn submit_as(
        &self,
        task: &Task,
        priority: Priority,
    ) -> std::result::Result<Future, TaskError> {
        let view = &self.own().view;
        let ring = view.ring(lane_of_thread(), priority);
        let future = view
            .take_future(view.tail(ring))
            .ok_or(TaskError::Refused(Refused::NoFuture))?;
        if let Err(refused) = view.put(ring, task, Some(future)) {
            view.return_future(future);
            return Err(TaskError::Refused(refused));
        }
        self.wake();
        Ok(future)
    }

    /// Hands a task over whose end nobody waits for.
    ///
    /// # Errors
    /// [`TaskError::Refused`].
    pub fn post(&self, task: &Task, priority: Priority) -> std::result::Result<(), TaskError> {
        let view = &self.own().view;
        let ring = view.ring(lane_of_thread(), priority);
        view.put(ring, task, None).map_err(TaskError::Refused)?;
        self.wake();
        Ok(())
    }

    fn wake(&self) {
        if self.own().view.must_wake() {
            self.crew.bell.ring();
        }
    }

    /// Waits for the end of a task of the program's: spins for a moment, then sleeps. The future is given back, unless the
    /// limit ends first.
    ///
    /// # Errors
    /// [`TaskError`], but for `Refused`.
    pub fn wait(&self, future: Future, limit: Duration) -> std::result::Result<u64, TaskError> {
        let deadline = Deadline::after(limit);
        let view = &self.own().view;
        loop {
            // Before the look: what has run by the end is seen.
            let ended = view.has_ended();
            match view.look(future) {
                Look::Done(value) => return Ok(value),
                Look::Failed(reason) => return Err(TaskError::Failed(reason)),
                Look::Stale => return Err(TaskError::Stale),
                Look::Pending if ended => {
                    view.return_future(future);
                    return Err(TaskError::Left);
                }
                Look::Pending if deadline.passed() => return Err(TaskError::Pending(limit)),
                Look::Pending => {
                    let left = limit.saturating_sub(deadline.elapsed());
                    let is_open = || view.is_open(future) && !view.has_ended();
                    self.crew.ends.wait(left, is_open);
                }
            }
        }
    }

    /// Has no more interest in the end of a task of the program's, which runs all the same. Returns false for a future that
    /// is none of the caller's.
    pub fn drop_future(&self, future: Future) -> bool {
        self.own().view.drop_future(future)
    }

    /// Takes no new tasks and ends the workers, for `limit` at most. Returns how many tasks were left. Who waits for one of
    /// these learns of it ([`TaskError::Left`], `RKFD_TASK_CLOSED` in kernels); and so it is for what was handed over at the same
    /// time, if no worker has come to it. Dropping the value afterwards waits for nothing.
    ///
    /// # Errors
    /// [`Error::TimedOut`]: a function still runs, or tasks are still there. No new ones are taken, and the workers end when
    /// they can; the call can be repeated, with the other [`Stop`], too. (After [`Stop::AtOnce`] there is no way back.)
    pub fn stop(&self, stop: Stop, limit: Duration) -> Result<u64> {
        self.crew.begin_end(stop);
        self.crew.finish_end_within(limit)?;
        Ok(self.crew.left())
    }

    /// Tasks that were handed over and have not ended, kernels' and the program's; while they come and end, roughly.
    pub fn left(&self) -> u64 {
        self.crew.left()
    }

    /// Tasks in the rings of an area that no worker has taken yet; areas are numbered as for [`Tasks::shape`].
    pub fn ready(&self, area: usize) -> u64 {
        self.crew.areas.get(area).map_or(0, Area::ready)
    }

    /// Whether the workers have ended.
    pub fn has_ended(&self) -> bool {
        self.own().view.has_ended()
    }

    /// Counters, as of now.
    pub fn statistics(&self) -> statistics::Snapshot {
        let mut snapshot = self.crew.statistics.snapshot();
        for (area, found) in snapshot.areas.iter_mut().zip(&self.crew.areas) {
            area.refused = found.view.refused();
            area.futures = found.view.futures_in_use();
        }
        snapshot
    }

    /// Has a worker die with the next task that it gets, as a thread does that a function ends: to try what becomes of that
    /// task. Another thread takes its place.
    pub fn kill(&self, worker: usize, death: Death) {
        if let Some(station) = self.crew.stations.get(worker) {
            station.fate.store(death as u32, Ordering::Release); // CAST: a number of its own.
        }
    }

    /// Gives back the places of a GPU's rings that waves have taken and not filled, after the queue that they were in is
    /// gone, and all others that hand tasks over there are at rest. Returns how many there were.
    pub fn forget_unwritten(&self, gpu: usize) -> u64 {
        let Some(area) = self.crew.areas.get(gpu) else {
            return 0;
        };
        let rings = 0..area.view.shape().rings();
        rings.map(|ring| area.view.forget_unwritten(ring)).sum()
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.crew.end();
    }
}

/// Spreads threads over lanes.
fn lane_of_thread() -> u32 {
    thread_local! {
        static LANE: u32 = {
            let mut hasher = std::hash::DefaultHasher::new();
            std::thread::current().id().hash(&mut hasher);
            hasher.finish() as u32 // CAST: any bits will do.
        };
    }
    LANE.with(|lane| *lane)
}

#[cfg(test)]
mod tests;
