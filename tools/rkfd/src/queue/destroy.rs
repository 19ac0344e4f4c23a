// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The end of a queue.
//!
//! The GPU may write to ring, pointers and save area for as long as the queue is on the hardware, so they stay until the
//! kernel has said that it is not. DESTROY_QUEUE that fails does not say so, and the kernel may not know the queue's id
//! afterwards, whether the GPU still has it or not. What it does know is what the GPU uses: memory of a queue cannot be
//! unmapped (`EBUSY`). So a later attempt asks by the ring.

use std::sync::PoisonError;

use nix::errno::Errno;

use super::Queue;
use crate::abi;
use crate::device::Device;
use crate::error::Error;
use crate::error::Result;

impl Queue {
    /// Destroys the queue, whatever it still has to do. Nothing happens where it is destroyed.
    ///
    /// # Errors
    /// [`Error::Call`]: `EIO` where the queue does not leave the hardware, or left it only by a reset of the chip, with
    /// which the process lost its memory on the GPU. The queue then counts as what it was: its memory stays, and the call
    /// can be repeated, which succeeds where the queue is gone. Where it still fails when the queue is dropped, the memory
    /// stays until the process ends.
    pub fn destroy(&mut self) -> Result<()> {
        if self.gone {
            return Ok(());
        }
        match (destroy(&self.live.device, self.id), self.refused) {
            (Ok(_), None) | (Ok(Known::Yes), Some(_)) => {}
            (Ok(Known::No), Some(errno)) => {
                if self.live.ring.is_held() {
                    return Err(Error::Call {
                        call: "DESTROY_QUEUE",
                        errno,
                    });
                }
            }
            (Err(error), _) => {
                self.refused = error.errno();
                return Err(error);
            }
        }
        self.gone = true;
        *self
            .watcher
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }
}

/// Whether the kernel knew the queue that it was asked to destroy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It did, and the queue is gone now.
    Yes,
    /// None has this id.
    No,
}

/// Returns when the kernel has said that the queue is gone, or that there is none.
///
/// # Errors
/// [`Error::Call`]; the GPU may have the queue then.
pub(super) fn destroy(device: &Device, queue_id: u32) -> Result<Known> {
    let mut arg = abi::DestroyQueue { queue_id, pad: 0 };
    match device
        .kfd()
        .plain("DESTROY_QUEUE", abi::DESTROY_QUEUE, &mut arg)
    {
        Ok(()) => Ok(Known::Yes),
        Err(e) if e.errno() == Some(Errno::EINVAL) => Ok(Known::No),
        Err(e) => Err(e),
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // One that left by a reset is gone at the second attempt.
        if self.destroy().is_err() && self.destroy().is_err() {
            // One owner more than will ever let go.
            std::mem::forget(self.live.clone());
        }
    }
}
