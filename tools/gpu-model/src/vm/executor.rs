// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What a thread that executes waves holds: a pin of the bus and its place among those that invalidations wait for.
//!
//! An [`Executor`] lends both for a batch of instructions as a [`Window`], together with the [`PageCache`] of the wave
//! that runs.  Between batches it is quiescent ([`Executor::quiesce`]): the borrow checker sees to it that no window, and
//! so no translation in flight, outlives the batch.

use std::sync::Arc;

use super::space::Registration;
use super::space::Spaces;
use super::window::{PageCache, Window};
use super::Client;
use crate::mem::{Bus, Pin};

/// A thread's share in memory and translations.
#[derive(Debug)]
pub struct Executor {
    bus: Arc<Bus>,
    registration: Registration,
    pin: Option<Pin>,
}

impl Executor {
    /// Registers the calling thread; it is paused at first.
    pub fn new(bus: &Arc<Bus>, spaces: &Arc<Spaces>) -> Self {
        Self {
            bus: Arc::clone(bus),
            registration: spaces.register(),
            pin: None,
        }
    }

    /// A quiescent point, to be passed about every thousand instructions: invalidations and DMA unmaps before it need
    /// not wait for this thread any more.  It also ends a pause.
    pub fn quiesce(&mut self) {
        self.registration.pass();
        self.pin = Some(self.bus.pin());
    }

    /// Nobody waits for this thread until it has passed the next quiescent point.
    pub fn pause(&mut self) {
        self.pin = None;
        self.registration.pause();
    }

    /// Memory as the waves of a client see it, with the cache of the wave that runs.  `retries`: SH_MEM_CONFIG does not
    /// forbid faults to retry.  A pause ends.
    pub fn window<'a>(
        &'a mut self,
        client: Client,
        retries: bool,
        cache: &'a mut PageCache,
    ) -> Window<'a> {
        if self.pin.is_none() {
            self.registration.pass();
        }
        let map = self.pin.get_or_insert_with(|| self.bus.pin());
        let spaces = self.registration.spaces();
        Window::new(map, spaces, client, retries, cache)
    }
}
