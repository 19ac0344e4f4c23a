// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The rings and futures of an area: who may store what when.
//!
//! A slot's state names its position, a number that grows by one with each task of its ring, and a phase. Slot `p % depth`
//! goes through FREE(p), READY(p), TAKEN(p, worker), FREE(p + depth).
//!
//! * A *producer* reads the tail `p`. Where the slot is FREE(p), an exchange of the tail from `p` to `p + 1` makes the place
//!   its own; where it is not, the ring is full, and the producer is told so. Then it writes the task and stores READY(p) with
//!   release order. It never waits for another producer: an exchange that fails has failed because another one succeeded.
//!   Several places in a row are taken by one exchange after a look at each of them: as long as the tail is `p`, nobody has
//!   taken one of them.
//! * A *worker* takes a task by an exchange of the state from READY(p) to TAKEN(p, worker), copies it, and stores
//!   FREE(p + depth) with release order. It looks at some positions from the head on, so that a producer that has taken a place
//!   and is kept from writing stops nobody else.
//! * The *head* is a hint for workers. Whoever finds that its position was taken moves it on.
//!
//! Positions have 48 bits in a state and wrap. Tail, states and tasks may be written by kernels, so nothing of them
//! is believed: the tail decides only when a look ends; a state that can be none of its slot is put right and counted.
//! Shapes are the program's own copy.
//!
//! The algorithm knows nothing of the memory, so that tests run it without a GPU, and under loom.

mod future;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

pub use self::future::Future;
pub use self::future::Look;

use super::layout::cell;
use super::layout::closed;
use super::layout::header;
use super::layout::phase;
use super::layout::ring;
use super::layout::slot;
use super::layout::Priority;
use super::layout::Shape;
use super::layout::MAGIC;
use super::layout::POSITION_SHIFT;
use super::layout::SLOT_HEAD;
use super::layout::VERSION;
use super::layout::WORKER_SHIFT;

/// Positions that a worker looks at in one visit.
const LOOK: u64 = 64;

/// A 64-bit word that threads and the GPU share.
pub trait Word {
    /// As [`AtomicU64::load`].
    fn load(&self, order: Ordering) -> u64;
    /// As [`AtomicU64::store`].
    fn store(&self, value: u64, order: Ordering);
    /// As [`AtomicU64::compare_exchange`], with acquire and release order.
    ///
    /// # Errors
    /// The value that was there.
    fn change(&self, old: u64, new: u64) -> Result<u64, u64>;
    /// As [`AtomicU64::swap`], with acquire and release order.
    fn swap(&self, value: u64) -> u64;
    /// A fence that orders everything before it and after it.
    fn fence();
}

impl Word for AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }

    fn store(&self, value: u64, order: Ordering) {
        AtomicU64::store(self, value, order);
    }

    fn change(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
    }

    fn swap(&self, value: u64) -> u64 {
        AtomicU64::swap(self, value, Ordering::AcqRel)
    }

    fn fence() {
        crate::sys::publish();
    }
}

/// The memory of an area.
pub trait Memory {
    /// Its words.
    type Word: Word;

    /// The word at an offset, a multiple of 8 inside the area.
    fn word(&self, offset: usize) -> &Self::Word;
}

/// A task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Number of the function.
    pub function: u32,
    /// Number of the function that follows it with its value as input; 0: none.
    pub then: u32,
    /// What the producer calls itself.
    pub source: u32,
    /// Bytes of the arguments.
    pub arguments: Vec<u8>,
}

impl Task {
    /// A task with words as arguments.
    pub fn new(function: u32, words: &[u64]) -> Self {
        Self {
            function,
            arguments: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
            ..Self::default()
        }
    }

    /// The same, followed by another function.
    pub fn then(mut self, function: u32) -> Self {
        self.then = function;
        self
    }
}

/// Why a task was not handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The ring has no room.
    Full,
    /// All futures are in use.
    NoFuture,
    /// More bytes of arguments than a slot has.
    TooLong,
    /// No new tasks are taken.
    Closed,
}

/// A task that a worker has taken, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The task. Arguments are as many bytes as it says and a slot has.
    pub task: Task,
    /// Bytes of arguments that it says.
    pub bytes: u32,
    /// Its future, as it says.
    pub future: Option<Future>,
    /// Where it was.
    pub position: u64,
}

/// What a visit to a ring has found.
#[derive(Debug, Default)]
pub struct Visit {
    /// A task.
    pub taken: Option<Taken>,
    /// Slots that were put right.
    pub corrupt: u64,
}

/// An area.
#[derive(Debug)]
pub struct View<M> {
    memory: M,
    shape: Shape,
}

fn state(position: u64, phase: u64) -> u64 {
    (position << POSITION_SHIFT) | phase
}

fn taken(position: u64, worker: usize) -> u64 {
    // CAST: below `MOST_WORKERS`.
    state(position, phase::TAKEN) | ((worker as u64) << WORKER_SHIFT)
}

fn low(word: u64) -> u32 {
    word as u32 // CAST: the lower half is meant.
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32 // CAST: the upper half.
}

fn pair(low: u32, high: u32) -> u64 {
    (u64::from(high) << 32) | u64::from(low)
}

impl<M: Memory> View<M> {
    /// An area in memory that holds [`Shape::bytes`]; it is written, and nobody else uses it yet.
    pub fn new(memory: M, shape: Shape, number: u32) -> Self {
        let view = Self { memory, shape };
        let clear = |word: &M::Word| word.store(0, Ordering::Relaxed);
        for offset in [
            header::MAILBOX,
            header::SLEEPING,
            header::CLOSED,
            header::REFUSED,
        ] {
            clear(view.memory.word(offset));
        }
        for index in 0..shape.futures {
            clear(view.cell(index, cell::STATE));
        }
        for ring in 0..shape.rings() {
            clear(view.index(ring, ring::TAIL));
            clear(view.index(ring, ring::HEAD));
            for position in 0..u64::from(shape.depth) {
                view.slot(ring, position, slot::STATE)
                    .store(state(position, phase::FREE), Ordering::Relaxed);
            }
        }
        for (offset, value) in [
            (header::LANES, pair(shape.lanes, shape.depth)),
            (header::SEGMENT, pair(shape.segment, shape.futures)),
            (header::EVENT, pair(0, number)),
            (header::RINGS, shape.ring_at(0) as u64), // CAST: sizes in memory, four times.
            (header::SLOTS, shape.slots_at() as u64),
            (header::CELLS, shape.cells_at() as u64),
            (header::BYTES, shape.bytes() as u64),
            (header::MAGIC, pair(MAGIC, VERSION)),
        ] {
            view.memory.word(offset).store(value, Ordering::Release);
        }
        view
    }

    /// Its shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Its memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    fn slot(&self, ring: usize, position: u64, offset: usize) -> &M::Word {
        self.memory
            .word(self.shape.slot_at(ring, position) + offset)
    }

    fn index(&self, ring: usize, offset: usize) -> &M::Word {
        self.memory.word(self.shape.ring_at(ring) + offset)
    }

    fn cell(&self, index: u32, offset: usize) -> &M::Word {
        self.memory.word(self.shape.cell_at(index) + offset)
    }

    /// Has kernels raise an event when workers sleep: its slot's address, and its id.
    pub fn set_event(&self, number: u32, mailbox: u64, event: u32) {
        self.memory
            .word(header::EVENT)
            .store(pair(event, number), Ordering::Relaxed);
        self.memory
            .word(header::MAILBOX)
            .store(mailbox, Ordering::Release);
    }

    /// Says whether tasks are taken: [`closed`].
    pub fn set_closed(&self, value: u64) {
        self.memory
            .word(header::CLOSED)
            .store(value, Ordering::Release);
    }

    /// Whether nobody runs tasks any more.
    pub fn has_ended(&self) -> bool {
        self.memory.word(header::CLOSED).load(Ordering::Acquire) == closed::ENDED
    }

    /// Calls of kernels that found no room.
    pub fn refused(&self) -> u64 {
        self.memory.word(header::REFUSED).load(Ordering::Relaxed)
    }

    /// Positions taken by producers, of a ring. A kernel may have stored anything.
    pub fn tail(&self, ring: usize) -> u64 {
        self.index(ring, ring::TAIL).load(Ordering::Relaxed)
    }

    /// Says that a worker goes to sleep; what it looks at afterwards is what it would be woken for.
    pub fn announce_sleep(&self) {
        self.memory
            .word(header::SLEEPING)
            .store(1, Ordering::Relaxed);
        M::Word::fence();
    }

    /// Whether workers are to be woken for a task that was just handed over. Of those who ask, one is told so.
    pub fn must_wake(&self) -> bool {
        M::Word::fence();
        let sleeping = self.memory.word(header::SLEEPING);
        sleeping.load(Ordering::Relaxed) != 0 && sleeping.swap(0) != 0
    }

    /// Hands a task over, as kernels do. The caller asks [`View::must_wake`] then.
    ///
    /// # Errors
    /// [`Refused`], but for [`Refused::NoFuture`]; nothing is taken then.
    pub fn put(&self, ring: usize, task: &Task, future: Option<Future>) -> Result<u64, Refused> {
        if task.arguments.len() > self.shape.arguments() {
            return Err(Refused::TooLong);
        }
        let position = self.claim(ring)?;
        self.publish(ring, position, task, future);
        Ok(position)
    }

    /// Takes a place of a ring.
    ///
    /// # Errors
    /// As [`View::put`].
    pub(super) fn claim(&self, ring: usize) -> Result<u64, Refused> {
        if self.memory.word(header::CLOSED).load(Ordering::Relaxed) != closed::OPEN {
            return Err(Refused::Closed);
        }
        let tail = self.index(ring, ring::TAIL);
        let mut position = tail.load(Ordering::Relaxed);
        loop {
            let found = self
                .slot(ring, position, slot::STATE)
                .load(Ordering::Acquire);
            if found != state(position, phase::FREE) {
                // It may have been free for this position, and was taken since.
                let now = tail.load(Ordering::Relaxed);
                if now == position {
                    return Err(Refused::Full);
                }
                position = now;
                continue;
            }
            match tail.change(position, position.wrapping_add(1)) {
                Ok(_) => return Ok(position),
                Err(now) => position = now,
            }
        }
    }

    /// Writes the task of a place that was taken.
    pub(super) fn publish(&self, ring: usize, position: u64, task: &Task, future: Option<Future>) {
        let store = |offset: usize, value: u64| {
            self.slot(ring, position, offset)
                .store(value, Ordering::Relaxed);
        };
        let bytes = task.arguments.len() as u32; // CAST: less than a segment.
        store(slot::FUNCTION, pair(task.function, bytes));
        store(slot::FUTURE, future.map_or(0, Future::bits));
        store(slot::THEN, pair(task.then, task.source));
        for (n, bytes) in task.arguments.chunks(8).enumerate() {
            let mut word = [0; 8];
            word.iter_mut()
                .zip(bytes)
                .for_each(|(to, from)| *to = *from);
            store(SLOT_HEAD + 8 * n, u64::from_le_bytes(word));
        }
        self.slot(ring, position, slot::STATE)
            .store(state(position, phase::READY), Ordering::Release);
    }

    /// Takes the first task that a ring has, for a worker. Its place is the worker's until [`View::free`]; whoever finds it
    /// after the worker's death ([`View::recover`]) knows that nothing was done.
    pub fn take(&self, ring: usize, worker: usize) -> Visit {
        let mut visit = Visit::default();
        let head = self.advance(ring, &mut visit.corrupt);
        let tail = self.tail(ring);
        for n in 0..LOOK.min(self.shape.depth.into()) {
            let position = head.wrapping_add(n);
            // Nobody has taken that place yet.
            if position == tail {
                break;
            }
            let word = self.slot(ring, position, slot::STATE);
            let ready = state(position, phase::READY);
            if word.load(Ordering::Relaxed) != ready
                || word.change(ready, taken(position, worker)).is_err()
            {
                continue;
            }
            visit.taken = Some(self.copy(ring, position));
            break;
        }
        visit
    }

    /// Copies the task of a place that the caller has taken.
    fn copy(&self, ring: usize, position: u64) -> Taken {
        let load = |offset: usize| self.slot(ring, position, offset).load(Ordering::Relaxed);
        let (function, then) = (load(slot::FUNCTION), load(slot::THEN));
        let bytes = high(function);
        let length = (bytes as usize).min(self.shape.arguments()); // CAST: 32 bits into 64.
        let mut arguments = Vec::with_capacity(length.next_multiple_of(8));
        for n in 0..length.div_ceil(8) {
            arguments.extend(load(SLOT_HEAD + 8 * n).to_le_bytes());
        }
        arguments.truncate(length);
        Taken {
            task: Task {
                function: low(function),
                then: low(then),
                source: high(then),
                arguments,
            },
            bytes,
            future: Future::from_bits(load(slot::FUTURE)),
            position,
        }
    }

    /// Tasks of a ring that nobody has taken.
    pub fn ready(&self, ring: usize) -> u64 {
        let is_ready = |index: &u64| {
            let found = self.slot(ring, *index, slot::STATE).load(Ordering::Acquire);
            let position = found >> POSITION_SHIFT;
            let own = position & u64::from(self.shape.depth - 1) == *index;
            own && found == state(position, phase::READY)
        };
        (0..u64::from(self.shape.depth)).filter(is_ready).count() as u64 // CAST: a count of slots.
    }

    /// Gives the place of a task back that was taken.
    pub fn free(&self, ring: usize, position: u64) {
        let next = position.wrapping_add(self.shape.depth.into());
        self.slot(ring, position, slot::STATE)
            .store(state(next, phase::FREE), Ordering::Release);
    }

    /// Takes what a worker that is dead had taken and not copied: nothing was done with it.
    pub fn recover(&self, ring: usize, worker: usize) -> Vec<Taken> {
        let head = self.index(ring, ring::HEAD).load(Ordering::Relaxed);
        let depth = u64::from(self.shape.depth);
        let mut found = Vec::new();
        // The head may have gone past it.
        for n in 0..2 * depth {
            let position = head.wrapping_sub(depth).wrapping_add(n);
            let word = self.slot(ring, position, slot::STATE);
            if word.load(Ordering::Acquire) == taken(position, worker) {
                found.push(self.copy(ring, position));
                self.free(ring, position);
            }
        }
        found
    }

    /// Gives back the places that producers have taken and left without a task. All producers of the ring are known to be
    /// at rest, as those of a queue that is gone. Returns how many there were.
    pub fn forget_unwritten(&self, ring: usize) -> u64 {
        let mut corrupt = 0;
        let head = self.advance(ring, &mut corrupt);
        let behind = self.tail(ring).wrapping_sub(head);
        let mut found = 0;
        for n in 0..behind.min(self.shape.depth.into()) {
            let position = head.wrapping_add(n);
            let word = self.slot(ring, position, slot::STATE);
            let next = state(position.wrapping_add(self.shape.depth.into()), phase::FREE);
            found += u64::from(word.change(state(position, phase::FREE), next).is_ok());
        }
        found
    }

    /// Moves the head to the first position that no worker has taken, and returns it.
    fn advance(&self, ring: usize, corrupt: &mut u64) -> u64 {
        let index = self.index(ring, ring::HEAD);
        let depth = u64::from(self.shape.depth);
        let mut head = index.load(Ordering::Acquire);
        for _ in 0..depth {
            let word = self.slot(ring, head, slot::STATE);
            let found = word.load(Ordering::Acquire);
            let plain = found & !(0xff << WORKER_SHIFT);
            let next = head.wrapping_add(depth);
            // Nobody has taken it, or a worker copies the task of the lap before.
            if found == state(head, phase::FREE)
                || found == state(head, phase::READY)
                || plain == state(head.wrapping_sub(depth), phase::TAKEN)
            {
                break;
            }
            // Behind the state, which tells of everything that came before it.
            let untaken = self.tail(ring) == head;
            let past = plain == state(head, phase::TAKEN)
                || found == state(next, phase::FREE)
                || found == state(next, phase::READY)
                || plain == state(next, phase::TAKEN);
            if untaken || !past {
                // Who has moved the head meanwhile has seen another state.
                let now = index.load(Ordering::Acquire);
                if now != head {
                    head = now;
                    continue;
                }
                // Free again: for this position, or where a producer has taken that for the next one.
                let right = state(if untaken { head } else { next }, phase::FREE);
                *corrupt += u64::from(word.change(found, right).is_ok());
                continue;
            }
            match index.change(head, head.wrapping_add(1)) {
                Ok(_) => head = head.wrapping_add(1),
                Err(now) => head = now,
            }
        }
        head
    }

    /// The ring of a lane and priority.
    pub fn ring(&self, lane: u32, priority: Priority) -> usize {
        self.shape.ring(lane, priority)
    }
}

#[cfg(test)]
mod tests;
