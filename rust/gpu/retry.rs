// SPDX-License-Identifier: GPL-2.0

//! Accesses that the GPU repeats, and the memory of its interrupt handler (CAM) that keeps it from reporting them all the time.
//!
//! Each entry of the CAM stands for a page of an address space in one hub, which is reported once. Until the entry is
//! released the page is not reported again, whatever accesses it; afterwards the access is repeated, and reported
//! again if it still cannot be carried out. The vector has 10 bits for the number of the entry.
//!
//! A reset of the interrupt handler empties the CAM. What was reported before is not released any more: the entry may
//! stand for another page by then, whose access is served elsewhere.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

use super::access::Access;
use crate::hw::num::index;

/// Entries that a vector can name.
const ENTRIES: usize = 1 << 10;
/// Bits of a word of [`FaultTokens`].
const BITS: usize = 64;

/// The CAM of a GPU.
pub(crate) struct Cam {
    access: Arc<Access>,
    /// How often entries became void.
    era: Atomic<u64>,
}

impl Cam {
    /// Of the GPU behind `access`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(access: &Arc<Access>) -> Result<Arc<Self>> {
        let cam = Self {
            access: access.clone(),
            era: Atomic::new(1),
        };
        Ok(Arc::new(cam, GFP_KERNEL)?)
    }

    /// The interrupt handler is reset, or stops: no entry of up to now is released any more.
    pub(super) fn forget(&self) {
        self.era.add(1, Relaxed);
    }

    fn era(&self) -> u64 {
        self.era.load(Relaxed)
    }

    /// Releases entry `number` of `era`, if that lasts and the GPU is there.
    fn release(&self, era: u64, number: u32) {
        let Some(hw) = self.access.enter() else {
            return;
        };
        // As late as can be: a sleep of the device does not wait for the access.
        if era == self.era() {
            hw.doorbell32(hw.asic().doorbell.retry_cam().byte(), number);
        }
    }
}

/// An entry of the CAM that was reported. It is released when this is dropped, so once.
pub(crate) struct FaultToken {
    cam: Arc<Cam>,
    era: u64,
    number: u16,
    /// It is part of a [`FaultTokens`] by now.
    moved: bool,
}

impl FaultToken {
    /// Of a vector that the GPU wrote just now.
    pub(super) fn new(cam: &Arc<Cam>, number: u16) -> Self {
        Self {
            cam: cam.clone(),
            era: cam.era(),
            number,
            moved: false,
        }
    }

    /// Of a vector from before the last reset.
    #[cfg(rkfd_kunit)]
    pub(super) fn forgotten(cam: &Arc<Cam>, number: u16) -> Self {
        let mut token = Self::new(cam, number);
        token.era -= 1;
        token
    }
}

impl Drop for FaultToken {
    fn drop(&mut self) {
        if !self.moved {
            self.cam.release(self.era, u32::from(self.number));
        }
    }
}

/// Entries of the CAM of one GPU, any number of them. They are released when this is dropped.
pub(crate) struct FaultTokens {
    /// Of the GPU, and its era, once there was an entry.
    cam: Option<(Arc<Cam>, u64)>,
    words: [u64; ENTRIES / BITS],
}

impl FaultTokens {
    /// None.
    pub(crate) const fn new() -> Self {
        Self {
            cam: None,
            words: [0; ENTRIES / BITS],
        }
    }

    /// Adds one. Allocates nothing. One of another GPU or era than the first is released at once.
    pub(crate) fn add(&mut self, mut token: FaultToken) {
        let known = self
            .cam
            .get_or_insert_with(|| (token.cam.clone(), token.era));
        if !Arc::ptr_eq(&known.0, &token.cam) || known.1 != token.era {
            return;
        }
        let number = index(u32::from(token.number));
        if let Some(word) = self.words.get_mut(number / BITS) {
            *word |= 1 << (number % BITS);
            token.moved = true;
        }
    }

    /// Takes all out.
    pub(crate) fn take(&mut self) -> Self {
        core::mem::replace(self, Self::new())
    }

    /// Whether there are none.
    #[cfg(rkfd_kunit)]
    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }
}

impl Drop for FaultTokens {
    fn drop(&mut self) {
        let Some((cam, era)) = &self.cam else { return };
        for (position, word) in self.words.iter().enumerate() {
            let mut left = *word;
            while left != 0 {
                let bit = left.trailing_zeros();
                left &= left - 1;
                // CAST: Below `ENTRIES`.
                cam.release(*era, (position * BITS) as u32 + bit);
            }
        }
    }
}
