// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Futures: who takes one waits for its task's end, or leaves it to the worker.
//!
//! A cell goes from FREE to WAITING under a generation that is one more than the last, by an exchange of who takes it; to
//! DONE or FAILED by an exchange of the worker, with the value stored before; and to FREE by who has taken it. Where that one
//! has no more use for it, it exchanges WAITING for DROPPED, and the worker frees it.

use std::sync::atomic::Ordering;

use super::high;
use super::low;
use super::pair;
use super::Memory;
use super::View;
use super::Word;
use crate::tasks::layout::cell;
use crate::tasks::layout::future;
use crate::tasks::layout::Shape;

/// Cells that are looked at for a free one.
const PROBES: u32 = 256;

/// A future: generation and cell. It is who waits that gives it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Future(u64);

impl Future {
    /// As kernels and slots have it.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// From what a slot has; `None` for 0.
    pub fn from_bits(bits: u64) -> Option<Self> {
        (bits != 0).then_some(Self(bits))
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32 // CAST: the upper half.
    }

    /// Its cell; `None` where a kernel made it up.
    fn index(self, shape: &Shape) -> Option<u32> {
        // CAST: the lower half.
        (self.0 as u32)
            .checked_sub(1)
            .filter(|index| *index < shape.futures)
    }

    pub(super) fn state(self, phase: u32) -> u64 {
        pair(phase, self.generation())
    }
}

/// How a future stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Its task has not ended.
    Pending,
    /// It has, with this value. The future is given back.
    Done(u64),
    /// It failed, for this reason. The future is given back.
    Failed(u64),
    /// It is none of who asked.
    Stale,
}

impl<M: Memory> View<M> {
    /// Takes a future, of those from cell `start` on.
    pub fn take_future(&self, start: u64) -> Option<Future> {
        let futures = self.shape.futures;
        for probe in 0..futures.min(PROBES) {
            // CAST: the lower bits are meant.
            let index = (start as u32).wrapping_add(probe) & (futures - 1);
            let word = self.cell(index, cell::STATE);
            let found = word.load(Ordering::Relaxed);
            let generation = high(found).wrapping_add(1);
            if low(found) == future::FREE
                && word
                    .change(found, pair(future::WAITING, generation))
                    .is_ok()
            {
                return Some(Future(pair(index + 1, generation)));
            }
        }
        None
    }

    /// Gives a future back whose task was not handed over, or whose end was seen.
    pub fn return_future(&self, of: Future) {
        if let Some(index) = of.index(&self.shape) {
            self.cell(index, cell::STATE)
                .store(of.state(future::FREE), Ordering::Release);
        }
    }

    /// Looks at a future once; where its task has ended, it is given back.
    pub fn look(&self, of: Future) -> Look {
        let Some(index) = of.index(&self.shape) else {
            return Look::Stale;
        };
        let found = self.cell(index, cell::STATE).load(Ordering::Acquire);
        let value = || {
            let value = self.cell(index, cell::VALUE).load(Ordering::Relaxed);
            self.return_future(of);
            value
        };
        if high(found) != of.generation() {
            return Look::Stale;
        }
        match low(found) {
            future::WAITING => Look::Pending,
            future::DONE => Look::Done(value()),
            future::FAILED => Look::Failed(value()),
            _ => Look::Stale,
        }
    }

    /// Leaves a future to the worker that ends its task; where that has ended, it is given back. Returns false for one that
    /// is none of who asked.
    pub fn drop_future(&self, of: Future) -> bool {
        let Some(index) = of.index(&self.shape) else {
            return false;
        };
        let word = self.cell(index, cell::STATE);
        word.change(of.state(future::WAITING), of.state(future::DROPPED))
            .is_ok()
            || matches!(self.look(of), Look::Done(_) | Look::Failed(_))
    }

    /// Whether a future waits for its task, or nobody does: who ends the task may say so.
    pub fn is_open(&self, of: Future) -> bool {
        of.index(&self.shape).is_some_and(|index| {
            let found = self.cell(index, cell::STATE).load(Ordering::Acquire);
            found == of.state(future::WAITING) || found == of.state(future::DROPPED)
        })
    }

    /// Ends a task: with a value, or for a reason. Returns false where the future was none, or had ended.
    pub fn complete(&self, of: Future, end: Result<u64, u64>) -> bool {
        let Some(index) = of.index(&self.shape) else {
            return false;
        };
        let word = self.cell(index, cell::STATE);
        if word.load(Ordering::Acquire) == of.state(future::WAITING) {
            let (phase, value) = match end {
                Ok(value) => (future::DONE, value),
                Err(reason) => (future::FAILED, reason),
            };
            self.cell(index, cell::VALUE)
                .store(value, Ordering::Relaxed);
            if word
                .change(of.state(future::WAITING), of.state(phase))
                .is_ok()
            {
                return true;
            }
        }
        word.change(of.state(future::DROPPED), of.state(future::FREE))
            .is_ok()
    }

    /// Cells that are in use.
    pub fn futures_in_use(&self) -> u32 {
        let used = |index: &u32| {
            let found = self.cell(*index, cell::STATE).load(Ordering::Relaxed);
            low(found) != future::FREE
        };
        (0..self.shape.futures).filter(used).count() as u32 // CAST: a count of these.
    }
}
