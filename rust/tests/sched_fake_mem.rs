// SPDX-License-Identifier: GPL-2.0

//! Memory of the fake device.

use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    },
};

use super::{
    fake::{
        Inner,
        Mode, //
    },
    platform::{
        DeviceMem,
        Domain, //
    }, //
};
use crate::hw::num::join;

/// Memory with an address.
#[pin_data]
pub(super) struct Block {
    pub(super) addr: u64,
    pub(super) size: usize,
    place: Domain,
    #[pin]
    pub(super) words: SpinLock<KVec<u32>>,
    /// Written and not flushed; what matters for VRAM alone.
    pub(super) dirty: Atomic<bool>,
}

impl Block {
    /// A zeroed block.
    pub(super) fn new(addr: u64, size: usize, place: Domain) -> Result<Arc<Self>> {
        let words = KVec::from_elem(0, size / 4, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                addr,
                size,
                place,
                words <- new_spinlock!(words),
                dirty: Atomic::new(false),
            }),
            GFP_KERNEL,
        )
    }

    pub(super) fn load(&self, offset: usize) -> Result<u32> {
        if offset % 4 != 0 {
            return Err(EINVAL);
        }
        self.words.lock().get(offset / 4).copied().ok_or(EINVAL)
    }

    pub(super) fn store(&self, offset: usize, value: u32) -> Result {
        if offset % 4 != 0 {
            return Err(EINVAL);
        }
        *self.words.lock().get_mut(offset / 4).ok_or(EINVAL)? = value;
        Ok(())
    }

    /// Takes the memory from byte `offset` on away: it can neither be read nor written any more.
    pub(super) fn cut(&self, offset: usize) {
        self.words.lock().truncate(offset / 4);
    }
}

fn widen_size(size: usize) -> u64 {
    size as u64 // CAST: Lossless.
}

/// What the driver holds; the firmware notices when it is gone.
pub(super) struct Mem {
    block: Arc<Block>,
    fake: Arc<Inner>,
}

impl Drop for Mem {
    fn drop(&mut self) {
        let block = &self.block;
        {
            let mut state = self.fake.state.lock();
            let named = |mqd: &u64| (block.addr..block.addr + widen_size(block.size)).contains(mqd);
            // A device that is gone or was cleared reads nothing.
            if state.mode != Mode::Gone && state.active && state.listed.iter().any(named) {
                self.fake
                    .breach(&mut state, "freed a descriptor that the active list names");
            }
        }
        let mut blocks = self.fake.blocks.lock();
        blocks.retain(|block| block.addr != self.block.addr);
    }
}

impl Mem {
    pub(super) fn new(block: &Arc<Block>, fake: &Arc<Inner>) -> Self {
        Self {
            block: block.clone(),
            fake: fake.clone(),
        }
    }

    fn alive(&self) -> Result {
        match self.fake.mode() {
            Mode::Gone => Err(ENODEV),
            _ => Ok(()),
        }
    }
}

impl DeviceMem for Mem {
    fn gpu_addr(&self) -> u64 {
        self.block.addr
    }

    fn size(&self) -> usize {
        self.block.size
    }

    fn read32(&self, offset: usize) -> Result<u32> {
        self.alive()?;
        self.block.load(offset)
    }

    fn read64(&self, offset: usize) -> Result<u64> {
        self.alive()?;
        Ok(join(self.block.load(offset)?, self.block.load(offset + 4)?))
    }

    fn write32(&self, offset: usize, value: u32) -> Result {
        self.alive()?;
        if self.block.place == Domain::Vram {
            self.block.dirty.store(true, Relaxed);
        }
        self.block.store(offset, value)
    }

    fn write64(&self, offset: usize, value: u64) -> Result {
        self.write32(offset, crate::hw::num::lo32(value))?;
        self.write32(offset + 4, crate::hw::num::hi32(value))
    }

    fn write_dwords(&self, offset: usize, words: &[u32]) -> Result {
        for (i, word) in words.iter().enumerate() {
            self.write32(offset + i * 4, *word)?;
        }
        Ok(())
    }

    fn clear(&self, offset: usize, len: usize) -> Result {
        for place in (offset..offset + len).step_by(4) {
            self.write32(place, 0)?;
        }
        Ok(())
    }

    fn flush(&self) -> Result {
        self.alive()?;
        self.block.dirty.store(false, Relaxed);
        Ok(())
    }
}
