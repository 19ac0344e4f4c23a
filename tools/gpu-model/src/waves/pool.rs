// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Who executes waves: threads of their own, or the device in its steps.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::dispatcher::Dispatcher;
use super::errors::ProgramErrors;
use super::front::Flight;
use super::job::Resting;
use super::progress::Leaving;
use super::runner::Runner;
use super::units::Units;
use crate::clock::Clock;
use crate::cp::queue::Run;
use crate::mem::Bus;
use crate::vm::own::Post;
use crate::vm::space::Spaces;

/// The shader part of a device.
pub struct Pool {
    /// Its dispatches.
    pub dispatcher: Arc<Dispatcher>,
    /// Executes in the steps of the device, if there are no threads.
    pub(super) inline: Option<Box<Runner>>,
    /// The device is gone for a while, and its waves stand still.
    still: bool,
    /// When translations that waves wait for are looked for again, and the interval.
    pub(super) retry_at: u64,
    pub(super) retry_ns: u64,
    make: Box<dyn Fn() -> Runner + Send>,
    /// What kernels have done wrong.
    pub errors: ProgramErrors,
    /// Stores of waves to doorbells, to be delivered at the end of the step.
    pub(super) posted: Vec<Post>,
    /// Dispatches that do not go on, whose groups are to leave the compute units.
    killed: Vec<Leaving>,
    /// Groups that were saved, or do not go on, and whose memory is to be given back.
    saved: Vec<VecDeque<Resting>>,
}

/// Most groups that leave the compute units for good, and whose memory is given back, in a step.
const MOST_DROPS: usize = 256;

impl Pool {
    /// Without threads: the device executes in its steps, in an order that depends on nothing but its input.
    pub fn new(
        units: Units,
        bus: &Arc<Bus>,
        spaces: &Arc<Spaces>,
        clock: &Clock,
        mhz: u32,
    ) -> Self {
        let (bus, spaces, clock) = (Arc::clone(bus), Arc::clone(spaces), clock.clone());
        let make = move || Runner::new(&bus, &spaces, clock.clone(), mhz);
        Self {
            dispatcher: Arc::new(Dispatcher::new(units)),
            inline: Some(Box::new(make())),
            still: false,
            retry_at: 0,
            retry_ns: 0,
            make: Box::new(make),
            errors: ProgramErrors::default(),
            posted: Vec::new(),
            killed: Vec::new(),
            saved: Vec::new(),
        }
    }

    /// Takes the stores to doorbells that are to be delivered; there is room for as many when they are.
    pub fn take_posted(&mut self) -> Vec<Post> {
        std::mem::take(&mut self.posted)
    }

    /// So many stores to doorbells are delivered.
    pub fn delivered(&self, count: usize) {
        self.dispatcher.posts.delivered(count);
    }

    /// Drops the stores to doorbells that are not delivered.
    pub(crate) fn drop_posts(&mut self) {
        let count = self.take_posted().len();
        self.delivered(count);
    }

    /// Forgets a queue that has left its slot.  Those of its waves that are not saved do not go on.
    pub(crate) fn let_go(&mut self, run: Run) {
        let flights = run.flight.into_iter().chain(run.later);
        flights.for_each(|flight| self.forget(flight));
    }

    /// Forgets a dispatch.  Those of its waves that are still there leave the compute units, and the memory of all is given
    /// back, in the next steps.  Waits for those who execute it, which takes them a few instructions.
    pub(crate) fn forget(&mut self, flight: Flight) {
        if flight.is_on() {
            self.killed.extend(self.dispatcher.freeze(flight.serial));
        }
        self.killed.extend(flight.leaving.map(|leaving| *leaving));
        self.saved.extend(flight.frozen.map(|frozen| frozen.groups));
    }

    /// Takes groups off that do not go on, and gives memory back, until the step has to end.  Returns whether there is more.
    pub(crate) fn drop_some(&mut self, pressed: impl Fn() -> bool) -> bool {
        for _ in 0..MOST_DROPS {
            if !self.drop_one() || pressed() {
                break;
            }
        }
        !self.killed.is_empty() || !self.saved.is_empty()
    }

    /// One group, or what is left of a dispatch or of a queue without one.
    fn drop_one(&mut self) -> bool {
        if let Some(leaving) = self.killed.last_mut() {
            if !self.dispatcher.kill(leaving) {
                self.killed.pop();
            }
            return true;
        }
        if let Some(groups) = self.saved.last_mut() {
            if groups.pop_back().is_none() {
                self.saved.pop();
            }
            return true;
        }
        false
    }

    /// Lets all waves stand still, or go on.
    pub fn stand_still(&mut self, still: bool) {
        if self.still != still {
            self.still = still;
            self.dispatcher.stand_still(still);
        }
    }

    /// Whether threads execute.
    pub fn has_threads(&self) -> bool {
        self.inline.is_none()
    }

    /// Lets threads execute instead.
    ///
    /// # Errors
    /// A thread cannot be made; those before it are there.
    pub fn spawn(&mut self, threads: usize) -> io::Result<()> {
        for number in 0..threads {
            let mut runner = (self.make)();
            let dispatcher = Arc::clone(&self.dispatcher);
            std::thread::Builder::new()
                .name(format!("waves-{number}"))
                .spawn(move || {
                    while let Some(work) = dispatcher.wait() {
                        runner.run(&dispatcher, work, &|| false);
                    }
                })?;
            self.inline = None;
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.dispatcher.stop();
    }
}
