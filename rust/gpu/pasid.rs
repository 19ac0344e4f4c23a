// SPDX-License-Identifier: GPL-2.0

//! Process address space ids: what the hardware calls an address space while it has no VMID.
//!
//! Ids are given out in turn and a freed one is the last to come back, so that an interrupt or a
//! flush that still names an old address space does not hit a new one.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

/// Ids 1 to 32767: 0 means "none" to the hardware, and the upper half is left to other users of
/// the bus, as amdgpu does for its graphics contexts (`amdgpu_ids.c`).
const FIRST: usize = 1;
const END: usize = 1 << 15;
/// Ids in all.
pub(super) const COUNT: usize = END - FIRST;
const WORD: usize = 64;

struct Ids {
    used: KVec<u64>,
    next: usize,
    count: usize,
}

impl Ids {
    fn is_used(&self, id: usize) -> bool {
        self.used
            .get(id / WORD)
            .is_none_or(|word| word & 1 << (id % WORD) != 0)
    }

    fn take(&mut self) -> Option<usize> {
        let id = Iterator::chain(self.next..END, FIRST..self.next).find(|id| !self.is_used(*id))?;
        *self.used.get_mut(id / WORD)? |= 1 << (id % WORD);
        self.next = if id + 1 < END { id + 1 } else { FIRST };
        self.count += 1;
        Some(id)
    }

    fn give_back(&mut self, id: usize) {
        if let Some(word) = self.used.get_mut(id / WORD) {
            *word &= !(1 << (id % WORD));
            self.count -= 1;
        }
    }
}

/// The ids of one GPU.
#[pin_data]
pub(crate) struct PasidPool {
    #[pin]
    ids: Mutex<Ids>,
}

impl PasidPool {
    /// Makes a pool with all ids free.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let used = KVec::from_elem(0, END / WORD, GFP_KERNEL)?;
        Arc::pin_init(
            try_pin_init!(Self {
                ids <- new_mutex!(
                    Ids { used, next: FIRST, count: 0 },
                    "rkfd_pasids"
                ),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Takes an id.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if all are in use.
    pub(crate) fn alloc(self: &Arc<Self>) -> Result<Pasid> {
        let id = self.ids.lock().take().ok_or(ENOSPC)?;
        Ok(Pasid {
            id: u16::try_from(id)?,
            pool: self.clone(),
        })
    }

    /// Ids in use.
    pub(crate) fn in_use(&self) -> usize {
        self.ids.lock().count
    }
}

/// An id in use; dropping gives it back.
pub(crate) struct Pasid {
    id: u16,
    pool: Arc<PasidPool>,
}

impl Pasid {
    /// The id, never 0.
    pub(crate) fn get(&self) -> u16 {
        self.id
    }
}

impl Drop for Pasid {
    fn drop(&mut self) {
        self.pool.ids.lock().give_back(usize::from(self.id));
    }
}
