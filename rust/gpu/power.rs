// SPDX-License-Identifier: GPL-2.0

//! The life of a bound GPU: up, being reset, suspended, down.
//!
//! One lock serialises the transitions, so that a reset never meets a removal half way. Work on the
//! hardware does not take it; see [`Gpu::enter`].
//!
//! Lock order: [`Power::stage`](super::stage::Power) is outermost of this layer. Doorbell faults take it to wait for the
//! end of a reset, so nothing that it is held across may wait for the mmap lock.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Full,
            Relaxed,
            Release, //
        },
        barrier, //
    }, //
};

use super::{
    access::Hw,
    gfx,
    hub,
    nbio,
    reset,
    salvage::{
        self,
        SavedQueue, //
    },
    sdma,
    stage::{
        Moment,
        Stage, //
    },
    Gpu, //
};
use crate::hw::{
    asic::VMIDS,
    regs::hub::FlushType, //
};

/// Written to VRAM before a reset or a suspend, and compared afterwards (bytes that no cleared memory has).
const PATTERN: [u8; 16] = *b"rkfd was here...";

impl Gpu {
    /// Waits until no transition is under way. One may begin at once; see [`Gpu::was_reset_since`].
    ///
    /// # Errors
    ///
    /// `ENODEV` if the GPU is down or suspended.
    pub(crate) fn wait_up(&self) -> Result<Moment> {
        let stage = self.power.stage.lock();
        match *stage {
            Stage::Up => Ok(Moment(self.power.resets.load(Relaxed))),
            Stage::Suspended | Stage::Down => Err(ENODEV),
        }
    }

    /// Whether a reset of the engines has begun since `then`. If not, whatever the caller did before this call is
    /// seen by what the next reset calls when it begins.
    pub(crate) fn was_reset_since(&self, then: Moment) -> bool {
        // Pairs with the count in `reset_engines`: either that is seen here, or there what was done before.
        barrier::smp_mb(Full);
        self.power.resets.load(Relaxed) != then.0
    }

    /// Takes all blocks down for good; later calls do nothing.
    pub(super) fn take_down(&self) {
        let mut stage = self.power.stage.lock();
        let was = core::mem::replace(&mut *stage, Stage::Down);
        if was == Stage::Down {
            return;
        }
        if let Some(hw) = self.access.enter() {
            self.halt(&hw);
        }
    }

    /// Resets the engines in place: memory, translation and interrupts stay, all queues are gone,
    /// the kernel interface queue works again. `saved` is what the user queues were doing, even where the reset fails after
    /// they were asked to stop. Sleeps for a second or so; bounded.
    ///
    /// Queues have `timeout_ms` milliseconds to save themselves, but for the one with doorbell `refused`, which had its
    /// time. `begin` is called when no thread gets past
    /// [`Gpu::wait_up`] any more until the end of the reset; it must not wait for threads that are past it, which ask
    /// [`Gpu::was_reset_since`].
    ///
    /// VRAM is looked at before and after: it must survive this kind of reset.
    ///
    /// # Errors
    ///
    /// - `ENODEV`: the GPU is down or suspended.
    /// - `EIO`: it does not answer, its memory did not survive, or a copy engine stays in
    ///   the middle of a packet, which only a reset of the chip ends.
    /// - `ETIMEDOUT`: an engine does not come back.
    /// - `ENOMEM`: nothing was done.
    pub(crate) fn reset_engines(
        &self,
        timeout_ms: u32,
        refused: Option<u32>,
        saved: &mut KVec<SavedQueue>,
        begin: impl FnOnce(),
    ) -> Result {
        let buffers = salvage::SaveBuffers::new()?;
        let stage = self.power.stage.lock();
        if *stage != Stage::Up {
            return Err(ENODEV);
        }
        self.power.resets.fetch_add(1, Full);
        begin();
        let hw = self.enter()?;
        self.write_pattern(&hw)?;
        *saved = salvage::save(&hw, buffers, timeout_ms, refused);
        self.kiq.abandon(&hw);
        self.copy.stop(&hw);
        reset::engines(&hw)?;
        salvage::end_copies(&hw);
        if salvage::is_copying(&hw) {
            dev_err!(
                self.dev(),
                "an SDMA queue stays in the middle of a packet\n"
            );
            return Err(EIO);
        }
        if !self.take_pattern(&hw)? {
            self.device_pages.note_lost();
            dev_err!(
                self.dev(),
                "VRAM did not survive the reset of the engines\n"
            );
            return Err(EIO);
        }
        // No user of old translations is left, and nothing of the hubs was reset; the caches of
        // the engines were.
        self.flush_all(&hw)?;
        self.start_engines(&hw)
    }

    /// Starts compute and copy engines and the queues of the driver.
    pub(super) fn start_engines(&self, hw: &Hw) -> Result {
        gfx::start(hw, self.config.xnack);
        sdma::start(hw);
        hw.check_alive()?;
        // Without it the CPU does its work; it has said what is wrong.
        let _ = self.copy.start(hw);
        hw.check_alive()?;
        self.kiq.start(hw)
    }

    /// Stops all blocks; memory stays as it is and so does the gate. The scheduler must have
    /// stopped before.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the GPU is down. A GPU that does not answer is suspended without its help.
    pub(crate) fn suspend(&self) -> Result {
        // Of queues that are off the hardware now. Not under the lock of the stage, which the sink may take.
        self.catch_up();
        let mut stage = self.power.stage.lock();
        match *stage {
            Stage::Up => {}
            Stage::Suspended => return Ok(()),
            Stage::Down => return Err(ENODEV),
        }
        let hw = self.access.enter().ok_or(ENODEV)?;
        if !hw.is_lost() {
            self.write_pattern(&hw)?;
        }
        // Before the hubs stop: TLB flushes are not needed from now on.
        self.power.asleep.store(true, Release);
        self.stop_blocks(&hw);
        *stage = Stage::Suspended;
        Ok(())
    }

    /// Brings a suspended GPU up again. The scheduler comes after this.
    ///
    /// # Errors
    ///
    /// `EIO` if the device does not answer, its memory was lost or a copy engine stays in the middle of a
    /// packet, otherwise as [`Gpu::new`].
    pub(crate) fn resume(&self) -> Result {
        let mut stage = self.power.stage.lock();
        match *stage {
            Stage::Up => return Ok(()),
            Stage::Suspended => {}
            Stage::Down => return Err(ENODEV),
        }
        let hw = self.enter()?;
        hw.check_alive()?;
        nbio::init(&hw)?;
        nbio::hdp_init(&hw, self.info.fb.base);
        if !self.take_pattern(&hw)? {
            self.device_pages.note_lost();
            dev_err!(self.dev(), "VRAM was lost while the GPU was suspended\n");
            return Err(EIO);
        }
        // Before anything that it might touch is set up.
        if !salvage::quiesce_stale_queues(&hw)? {
            dev_err!(
                self.dev(),
                "an SDMA queue slept in the middle of a packet\n"
            );
            return Err(EIO);
        }
        self.start(&hw).inspect_err(|e| {
            dev_err!(self.dev(), "the GPU does not resume: {:?}\n", e);
            self.stop_blocks(&hw);
        })?;
        // From here on callers that change translations flush them; what was changed before goes now.
        self.power.asleep.store(false, Release);
        self.flush_all(&hw)?;
        *stage = Stage::Up;
        Ok(())
    }

    /// Whether the GPU is suspended, or about to be: nothing uses translations, and the device may
    /// be without power. It begins with none.
    pub(crate) fn is_asleep(&self) -> bool {
        self.power.asleep.load(Acquire)
    }

    /// Drops what the hubs cache for all address spaces.
    fn flush_all(&self, hw: &Hw) -> Result {
        (0..VMIDS).try_for_each(|vmid| hub::flush_vmid(hw, vmid, FlushType::Heavy))
    }

    fn write_pattern(&self, hw: &Hw) -> Result {
        hw.vram_write(self.scratch.offset(), &PATTERN)?;
        hw.hdp_flush();
        Ok(())
    }

    /// Whether VRAM is as it was; clears the pattern, for the page reads as zero otherwise.
    fn take_pattern(&self, hw: &Hw) -> Result<bool> {
        let mut found = [0; PATTERN.len()];
        hw.vram_read(self.scratch.offset(), &mut found)?;
        // CAST: `usize` is at most 64 bits wide.
        hw.vram_fill(self.scratch.offset(), PATTERN.len() as u64, 0)?;
        hw.hdp_flush();
        Ok(found == PATTERN)
    }
}
