// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Threads that run tasks.
//!
//! What a worker has in hand is written down where others find it: first in the slot, whose state names the worker, then in
//! the worker's station, with whether the function has begun. When a thread ends before its time, the one that takes its
//! place looks at both: a task that has not begun it puts at the end of the line for any worker to run; one that has begun
//! fails.

mod end;

use std::collections::VecDeque;
use std::panic::catch_unwind;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;

pub use self::end::Stop;

use super::area::Area;
use super::bell::Bell;
use super::bell::Ends;
use super::failure;
use super::function::Call;
use super::function::Functions;
use super::function::Outcome;
use super::layout::Priority;
use super::near;
use super::ring::Future;
use super::ring::Taken;
use super::ring::Task;
use super::rota::Rota;
use super::statistics::Of;
use super::statistics::Statistics;
use super::Options;
use crate::backoff::Backoff;
use crate::error::Error;
use crate::error::Result;

/// How long a worker sleeps at most before it looks by itself, in case that a wave died between its task and its interrupt.
const SLEEP: Duration = Duration::from_secs(5);
/// Functions that follow one after the other.
const MOST_HOPS: u32 = 64;

/// When a worker dies ([`super::Tasks::kill`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Death {
    /// It has taken a task from a ring and not written that down.
    Taken = 1,
    /// It has written down that it has a task.
    Noted = 2,
    /// It has begun to run the function.
    Begun = 3,
}

/// A task in hand.
#[derive(Clone, Debug)]
pub(super) struct Held {
    task: Task,
    /// Bytes of arguments that it says.
    bytes: u32,
    future: Option<Future>,
    area: usize,
    priority: Priority,
    input: u64,
    hops: u32,
    /// Ring and position, as long as it has come from one.
    origin: Option<(usize, u64)>,
}

/// What others may know of a worker.
#[derive(Debug, Default)]
pub(super) struct Station {
    /// The task in hand, and whether its function has begun.
    held: Mutex<Option<(Held, bool)>>,
    /// The [`Death`] that it is to die, or 0.
    pub(super) fate: AtomicU32,
}

impl Station {
    fn held(&self) -> MutexGuard<'_, Option<(Held, bool)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is to die here; once.
    fn dies(&self, death: Death) -> bool {
        self.fate
            .compare_exchange(death as u32, 0, Ordering::AcqRel, Ordering::Relaxed) // CAST: a number of its own.
            .is_ok()
    }
}

/// Areas, functions and workers.
#[derive(Debug)]
pub(super) struct Crew {
    // Workers hold this value, and end before it does.
    pub(super) areas: Vec<Area>,
    /// Area and lane of each source of a rota.
    lanes: Vec<(usize, u32)>,
    functions: Functions,
    pub(super) stations: Vec<Station>,
    line: [Mutex<VecDeque<Held>>; 2],
    in_line: [AtomicUsize; 2],
    pub(super) bell: Bell,
    pub(super) ends: Ends,
    stopping: AtomicBool,
    /// What is in rings and in line is left there.
    at_once: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    pub(super) statistics: Statistics,
    /// The system has no threads any more.
    #[cfg(test)]
    pub(super) no_threads: AtomicBool,
}

/// What a worker's turn came to.
enum Turn {
    Served,
    Nothing,
    Died,
}

impl Crew {
    pub(super) fn start(
        options: &Options,
        areas: Vec<Area>,
        functions: Functions,
        statistics: Statistics,
    ) -> Result<Arc<Self>> {
        let bell = Bell::new(&options.gpus)?;
        if let Some((mailbox, id)) = bell.event() {
            for (number, area) in areas.iter().enumerate() {
                area.view.set_event(number as u32, mailbox, id); // CAST: a count of areas.
            }
        }
        let lanes = areas
            .iter()
            .enumerate()
            .flat_map(|(n, area)| (0..area.view.shape().lanes).map(move |lane| (n, lane)))
            .collect();
        let crew = Arc::new(Self {
            areas,
            lanes,
            functions,
            stations: (0..options.workers).map(|_| Station::default()).collect(),
            line: Default::default(),
            in_line: Default::default(),
            bell,
            ends: Ends::default(),
            stopping: AtomicBool::new(false),
            at_once: AtomicBool::new(false),
            threads: Mutex::default(),
            statistics,
            #[cfg(test)]
            no_threads: AtomicBool::new(false),
        });
        for worker in 0..options.workers {
            let near = options.near;
            if let Err(error) = crew.hire(worker, near) {
                crew.end();
                return Err(error);
            }
        }
        Ok(crew)
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread of a worker.
    fn hire(self: &Arc<Self>, worker: usize, near: bool) -> Result<()> {
        #[cfg(test)]
        if self.no_threads.load(Ordering::Relaxed) {
            return Err(Error::Thread(std::io::ErrorKind::WouldBlock.into()));
        }
        let crew = self.clone();
        // Held until the thread is in the list, so that whoever ends the crew finds it there.
        let mut threads = self.threads();
        let thread = thread::Builder::new()
            .name(format!("rkfd-task-{worker}"))
            .spawn(move || crew.work(worker, near))
            .map_err(Error::Thread)?;
        threads.push(thread);
        Ok(())
    }

    /// Takes no new tasks, waits until those that are there have run, and ends the workers.
    pub(super) fn end(&self) {
        self.begin_end(Stop::Drained);
        self.finish_end();
    }

    fn work(self: Arc<Self>, worker: usize, near: bool) {
        let station = Life {
            crew: &self,
            worker,
            near,
            in_time: false,
        };
        if near {
            let near = |area: &&Area| area.cpus.is_some();
            let areas: Vec<&Area> = self.areas.iter().filter(near).collect();
            let area = worker.checked_rem(areas.len()).and_then(|n| areas.get(n));
            if let Some(cpus) = area.and_then(|area| area.cpus.as_ref()) {
                near::stay_on(cpus);
            }
        }
        self.recover(worker);
        let mut rota = Rota::new(self.lanes.len(), worker);
        let mut age = self.bell.first_age();
        let mut backoff = Backoff::new();
        loop {
            if self.at_once.load(Ordering::Acquire) {
                break;
            }
            match self.turn(worker, &mut rota) {
                Turn::Died => return,
                Turn::Served => {
                    backoff = Backoff::new();
                    continue;
                }
                Turn::Nothing => {}
            }
            // Looked for tasks after it was said that no more come: there is none left.
            if self.stopping.load(Ordering::Acquire) {
                match self.turn(worker, &mut rota) {
                    Turn::Died => return,
                    Turn::Served => continue,
                    Turn::Nothing => break,
                }
            }
            if backoff.is_spinning() {
                backoff.pause(SLEEP);
                continue;
            }
            for area in &self.areas {
                area.view.announce_sleep();
            }
            match self.turn(worker, &mut rota) {
                Turn::Died => return,
                Turn::Served => continue,
                Turn::Nothing => {}
            }
            if !self.stopping.load(Ordering::Acquire) {
                self.statistics.add(worker, Of::Sleeps, 1);
                let woken = self.bell.wait(&mut age, SLEEP);
                let what = if woken { Of::Wakes } else { Of::Looks };
                self.statistics.add(worker, what, 1);
            }
            backoff = Backoff::new();
        }
        station.end_in_time();
    }

    /// Takes a task and runs it.
    fn turn(&self, worker: usize, rota: &mut Rota) -> Turn {
        self.statistics.add(worker, Of::Turns, 1);
        let station = &self.stations[worker];
        let mut died = false;
        let from_ring = |priority: Priority, source: usize| {
            let (area, lane) = *self.lanes.get(source)?;
            let view = &self.areas[area].view;
            let ring = view.ring(lane, priority);
            let visit = view.take(ring, worker);
            self.statistics.add_corrupt(area, visit.corrupt);
            let held = Held::new(visit.taken?, area, priority, ring);
            let waiting = view.tail(ring).wrapping_sub(held.origin?.1).wrapping_sub(1);
            self.statistics.add_taken(area, priority, waiting);
            died = station.dies(Death::Taken);
            Some(held)
        };
        // What follows comes first, so that there is never more of it than workers put there.
        let in_line = || {
            Priority::ALL
                .into_iter()
                .find_map(|of| self.next_in_line(of))
        };
        let Some(held) = in_line().or_else(|| rota.next(from_ring)) else {
            return Turn::Nothing;
        };
        if died {
            return Turn::Died;
        }
        self.note(station, &held);
        if station.dies(Death::Noted) {
            return Turn::Died;
        }
        if self.serve(worker, held) {
            Turn::Served
        } else {
            Turn::Died
        }
    }

    /// Writes down which task a worker has, whereupon its slot is free.
    fn note(&self, station: &Station, held: &Held) {
        *station.held() = Some((held.clone(), false));
        if let Some((ring, position)) = held.origin {
            self.areas[held.area].view.free(ring, position);
        }
    }

    /// Runs the function of a task. Returns false where the worker dies.
    fn serve(&self, worker: usize, held: Held) -> bool {
        let station = &self.stations[worker];
        let function = self.functions.get(held.task.function);
        let length = held.task.arguments.len();
        let first = if held.hops == 0 {
            failure::FUNCTION
        } else {
            failure::THEN
        };
        let checked = match function {
            None => Err(first),
            // CAST: 32 bits into 64.
            Some(function) if held.bytes as usize == length && function.takes(length) => {
                Ok(function)
            }
            Some(_) => Err(failure::BYTES),
        };
        let function = match checked {
            Ok(function) => function,
            Err(reason) => {
                self.statistics.add_rejected(held.area);
                self.finish(&held, Err(reason));
                *station.held() = None;
                return true;
            }
        };
        if let Some((_, begun)) = &mut *station.held() {
            *begun = true;
        }
        if station.dies(Death::Begun) {
            return false;
        }
        let call = Call {
            arguments: &held.task.arguments,
            input: held.input,
            source: held.task.source,
            area: held.area,
            worker,
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| (function.run)(&call)));
        self.statistics.add(worker, Of::Runs, 1);
        match outcome {
            Ok(Outcome::Done(value)) if held.task.then == 0 => self.finish(&held, Ok(value)),
            Ok(Outcome::Done(value)) => {
                let task = Task {
                    function: held.task.then,
                    then: 0,
                    ..held.task.clone()
                };
                self.follow(&held, task, value);
            }
            Ok(Outcome::Then(task)) => {
                let then = if task.then == 0 {
                    held.task.then
                } else {
                    task.then
                };
                self.follow(&held, Task { then, ..task }, 0);
            }
            Ok(Outcome::Failed(reason)) => {
                self.finish(&held, Err(failure::OWN.saturating_add(reason)));
            }
            Err(_) => self.finish(&held, Err(failure::PANIC)),
        }
        *station.held() = None;
        true
    }

    /// Puts the task that follows another one in line.
    fn follow(&self, held: &Held, task: Task, input: u64) {
        if held.hops >= MOST_HOPS {
            self.finish(held, Err(failure::THEN));
            return;
        }
        self.put_in_line(Held {
            bytes: task.arguments.len() as u32, // CAST: bounded by memory for arguments.
            task,
            future: held.future,
            area: held.area,
            priority: held.priority,
            input,
            hops: held.hops + 1,
            origin: None,
        });
    }

    fn put_in_line(&self, held: Held) {
        let at = held.priority.index();
        let mut line = self.line[at].lock().unwrap_or_else(PoisonError::into_inner);
        line.push_back(held);
        self.in_line[at].store(line.len(), Ordering::Release);
        drop(line);
        // The worker that put it there comes to it; others may be asleep, and need not wake for it.
    }

    fn next_in_line(&self, priority: Priority) -> Option<Held> {
        let at = priority.index();
        if self.in_line[at].load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut line = self.line[at].lock().unwrap_or_else(PoisonError::into_inner);
        let held = line.pop_front();
        self.in_line[at].store(line.len(), Ordering::Release);
        held
    }

    /// Ends a task.
    fn finish(&self, held: &Held, end: std::result::Result<u64, u64>) {
        self.statistics.add_end(held.area, end.is_ok());
        let Some(future) = held.future else {
            return;
        };
        if !self.areas[held.area].view.complete(future, end) {
            self.statistics.add_late(held.area);
        }
        self.ends.tell();
    }

    /// Settles what a worker's thread had in hand when it died.
    fn recover(&self, worker: usize) {
        let noted = self.stations[worker].held().take();
        let origin = noted
            .as_ref()
            .and_then(|(held, _)| Some((held.area, held.origin?)));
        for (area, found) in self.areas.iter().enumerate() {
            for priority in Priority::ALL {
                for lane in 0..found.view.shape().lanes {
                    let ring = found.view.ring(lane, priority);
                    for taken in found.view.recover(ring, worker) {
                        // What was noted already is not had twice.
                        if origin == Some((area, (ring, taken.position))) {
                            continue;
                        }
                        self.statistics.add(worker, Of::Recovered, 1);
                        let mut held = Held::new(taken, area, priority, ring);
                        held.origin = None;
                        self.put_in_line(held);
                    }
                }
            }
        }
        match noted {
            Some((held, true)) => {
                self.statistics.add(worker, Of::Lost, 1);
                self.finish(&held, Err(failure::WORKER));
            }
            Some((mut held, false)) => {
                self.statistics.add(worker, Of::Recovered, 1);
                held.origin = None;
                self.put_in_line(held);
            }
            None => {}
        }
    }
}

impl Held {
    fn new(taken: Taken, area: usize, priority: Priority, ring: usize) -> Self {
        Self {
            task: taken.task,
            bytes: taken.bytes,
            future: taken.future,
            area,
            priority,
            input: 0,
            hops: 0,
            origin: Some((ring, taken.position)),
        }
    }
}

/// A worker's thread; where it ends before its time, another one takes its place.
struct Life<'a> {
    crew: &'a Arc<Crew>,
    worker: usize,
    near: bool,
    in_time: bool,
}

impl Life<'_> {
    fn end_in_time(mut self) {
        self.in_time = true;
    }
}

impl Drop for Life<'_> {
    fn drop(&mut self) {
        if !self.in_time {
            self.crew.statistics.add(self.worker, Of::Deaths, 1);
            if self.crew.hire(self.worker, self.near).is_err() {
                // No thread can be had: the others go on without this one, and run what it had in hand.
                self.crew.recover(self.worker);
                self.crew.bell.ring();
            }
        }
    }
}
