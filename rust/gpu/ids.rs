// SPDX-License-Identifier: GPL-2.0

//! KFD's numbers of GPUs.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

/// Ids that are taken. The lock is innermost.
#[pin_data]
pub(crate) struct IdPool {
    #[pin]
    ids: Mutex<KVec<u32>>,
}

impl IdPool {
    /// All are free.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                ids <- new_mutex!(KVec::new(), "rkfd_gpu_ids"),
            }),
            GFP_KERNEL,
        )
    }

    /// Reserves the id that `seed` stands for, or the next free one.
    ///
    /// The same device in the same slot gets the same id after a reload; two devices never share
    /// one. Ids are 1 to 65535.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if all are taken, `ENOMEM`.
    pub(crate) fn reserve(self: &Arc<Self>, seed: u32) -> Result<GpuId> {
        let mut ids = self.ids.lock();
        let fold = |n: u32| 1 + n % 0xffff;
        let id = (0..0xffff)
            .map(|n| fold(seed.wrapping_add(n)))
            .find(|id| !ids.contains(id))
            .ok_or(ENOSPC)?;
        ids.push(id, GFP_KERNEL)?;
        Ok(GpuId {
            id,
            pool: self.clone(),
        })
    }
}

/// A reserved id; dropping frees it.
pub(crate) struct GpuId {
    id: u32,
    pool: Arc<IdPool>,
}

impl GpuId {
    /// The id.
    pub(crate) fn get(&self) -> u32 {
        self.id
    }
}

impl Drop for GpuId {
    fn drop(&mut self) {
        self.pool.ids.lock().retain(|id| *id != self.id);
    }
}
