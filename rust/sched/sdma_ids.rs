// SPDX-License-Identifier: GPL-2.0

//! SDMA queue ids of a device.
//!
//! An SDMA queue belongs to one engine, and its doorbell encodes engine and queue id, so the id is
//! fixed at creation, for the whole device. Ids are given out round the engines, so that queues
//! spread over them.

use super::params::SdmaPlace;
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    },
};

/// User queues of an engine (contract: 8 on every gfx9 ASIC).
pub(crate) const QUEUES_PER_ENGINE: u32 = 8;
/// Upper bound on engines of all ASICs.
const MAX_ENGINES: usize = 16;

/// Free ids.
#[pin_data]
pub(crate) struct SdmaPool {
    engines: u32,
    /// One byte per engine, a bit per queue id in use.
    #[pin]
    used: SpinLock<[u8; MAX_ENGINES]>,
}

impl SdmaPool {
    /// Makes the pool of a device with `engines` engines.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(engines: u32) -> Result<Arc<Self>> {
        // CAST: Small constant.
        let engines = engines.min(MAX_ENGINES as u32);
        Arc::pin_init(
            pin_init!(Self {
                engines,
                used <- new_spinlock!([0; MAX_ENGINES], "SdmaPool::used"),
            }),
            GFP_KERNEL,
        )
    }

    /// Takes an id on `engine`, or on the engine with the fewest queues.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no such engine. `ENOSPC`: no id left.
    pub(crate) fn alloc(self: &Arc<Self>, engine: Option<u32>) -> Result<SdmaSlot> {
        let mut used = self.used.lock();
        let engine = match engine {
            Some(engine) if engine < self.engines => engine,
            Some(_) => return Err(EINVAL),
            None => (0..self.engines)
                .min_by_key(|&engine| {
                    used.get(crate::hw::num::index(engine))
                        .map_or(u32::MAX, |mask| mask.count_ones())
                })
                .ok_or(ENOSPC)?,
        };
        let mask = used.get_mut(crate::hw::num::index(engine)).ok_or(EINVAL)?;
        let queue = mask.trailing_ones();
        if queue >= QUEUES_PER_ENGINE {
            return Err(ENOSPC);
        }
        *mask |= 1 << queue;
        drop(used);
        Ok(SdmaSlot {
            pool: self.clone(),
            place: SdmaPlace { engine, queue },
        })
    }

    /// Takes an id on one of the first `engines` engines: the lowest that any of them has free, and
    /// of those that have it free the first.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: no id left.
    pub(crate) fn alloc_spread(self: &Arc<Self>, engines: u32) -> Result<SdmaSlot> {
        // One look and one choice under the lock: a caller that took ids to choose among would make others
        // believe that there are none.
        let mut used = self.used.lock();
        let (queue, engine) = (0..engines.min(self.engines))
            .zip(used.iter())
            .map(|(engine, mask)| (mask.trailing_ones(), engine))
            .min()
            .filter(|(queue, _)| *queue < QUEUES_PER_ENGINE)
            .ok_or(ENOSPC)?;
        *used.get_mut(crate::hw::num::index(engine)).ok_or(ENOSPC)? |= 1 << queue;
        drop(used);
        Ok(SdmaSlot {
            pool: self.clone(),
            place: SdmaPlace { engine, queue },
        })
    }

    /// Ids in use.
    pub(crate) fn in_use(&self) -> u32 {
        self.used.lock().iter().map(|mask| mask.count_ones()).sum()
    }
}

/// An SDMA queue id, given back on drop.
pub(crate) struct SdmaSlot {
    pool: Arc<SdmaPool>,
    place: SdmaPlace,
}

impl SdmaSlot {
    /// Where it is: the queue is below [`QUEUES_PER_ENGINE`].
    pub(crate) fn place(&self) -> SdmaPlace {
        self.place
    }
}

impl Drop for SdmaSlot {
    fn drop(&mut self) {
        if let Some(mask) = self
            .pool
            .used
            .lock()
            .get_mut(crate::hw::num::index(self.place.engine))
        {
            *mask &= !(1 << self.place.queue);
        }
    }
}
