// SPDX-License-Identifier: GPL-2.0

//! What a queue that is off the hardware has left in its descriptor: its waves, for a debugger, and
//! all of it, for a checkpoint.
//!
//! Layout of the save area and of the words that say how much of it is used: `hw::cwsr`. Source:
//! `kfd_mqd_manager_v9.c` (`get_wave_state`, `checkpoint_mqd`, `restore_mqd`).

use kernel::prelude::*;

use super::MqdMem;
use crate::{
    hw::{
        cwsr::SavedState,
        mqd::{
            layout::{
                COMPUTE_DWORDS,
                SDMA_DWORDS, //
            },
            Readback,
            CONTROL_STACK_OFFSET, //
        },
        num::index, //
    },
    sched::params::{
        QueueKind,
        QueueSpec, //
    }, //
};

/// Waves of a queue, as they were saved when it was taken off the hardware.
pub(crate) struct WaveState {
    /// The first four words of the save area's header.
    pub(crate) header: [u32; 4],
    /// Used part of the control stack, which belongs at `header[0]` bytes into the area.
    pub(crate) ctl_stack: KVVec<u32>,
    /// Bytes of the control stack in use.
    pub(crate) ctl_stack_used: u32,
    /// Bytes of wave state in use, behind the control stack.
    pub(crate) save_area_used: u32,
}

/// A queue's descriptor and control stack, at the time of a checkpoint.
pub(crate) struct QueueImage {
    words: KVVec<u32>,
    ctl_stack: KVVec<u32>,
}

#[cfg_attr(
    not(rkfd_kunit),
    expect(dead_code, reason = "waits for the checkpoint ioctls")
)]
impl QueueImage {
    /// An image from what [`QueueImage::words`] and [`QueueImage::ctl_stack`] gave. It is checked
    /// when a queue is made of it.
    pub(crate) fn new(words: KVVec<u32>, ctl_stack: KVVec<u32>) -> Self {
        Self { words, ctl_stack }
    }

    /// The descriptor.
    pub(crate) fn words(&self) -> &[u32] {
        &self.words
    }

    /// The control stack; empty without wave save.
    pub(crate) fn ctl_stack(&self) -> &[u32] {
        &self.ctl_stack
    }
}

/// Dwords of the descriptor of a queue.
const fn descriptor_dwords(kind: QueueKind) -> usize {
    match kind {
        QueueKind::Pm4 | QueueKind::Aql => COMPUTE_DWORDS,
        QueueKind::Sdma(_) => SDMA_DWORDS,
    }
}

/// Dword of the block at which the control stack begins.
const STACK_DW: usize = CONTROL_STACK_OFFSET as usize / 4;

/// The saved state that a descriptor names, `None` without a save area or if it makes no sense.
fn saved_state(spec: &QueueSpec, read: impl FnMut(usize) -> u32) -> Option<SavedState> {
    Readback::read(read).saved_state(&spec.cwsr?)
}

impl MqdMem {
    fn read_words(&self, first: usize, count: usize) -> Result<KVVec<u32>> {
        let mut words = KVVec::with_capacity(count, GFP_KERNEL)?;
        for dw in first..first + count {
            words.push(self.read(dw)?, GFP_KERNEL)?;
        }
        Ok(words)
    }

    /// The saved waves of a compute queue with a save area that is off the hardware.
    ///
    /// # Errors
    ///
    /// `EIO`: the hardware left nonsense. `ENOMEM`, `ENODEV`.
    pub(in crate::sched) fn wave_state(&self, spec: &QueueSpec) -> Result<WaveState> {
        let mut result = Ok(());
        let read = |dw| {
            self.read(dw).unwrap_or_else(|error| {
                result = Err(error);
                0
            })
        };
        let saved = saved_state(spec, read);
        result?;
        let saved = saved.ok_or(EIO)?;
        if saved.ctl_stack_offset % 4 != 0 {
            return Err(EIO);
        }
        let first = STACK_DW + index(saved.ctl_stack_offset) / 4;
        Ok(WaveState {
            header: saved.header(),
            ctl_stack: self.read_words(first, index(saved.ctl_stack_used) / 4)?,
            ctl_stack_used: saved.ctl_stack_used,
            save_area_used: saved.wave_state_used,
        })
    }

    /// Copies everything that a queue needs to go on elsewhere.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENODEV`.
    pub(in crate::sched) fn checkpoint(&self, spec: &QueueSpec) -> Result<QueueImage> {
        let stack = spec.cwsr.map_or(0, |cwsr| index(cwsr.ctl_stack) / 4);
        Ok(QueueImage {
            words: self.read_words(0, descriptor_dwords(spec.kind))?,
            ctl_stack: self.read_words(STACK_DW, stack)?,
        })
    }

    /// Makes the descriptor that of a queue that was checkpointed. What `spec` says holds: ring,
    /// doorbell and the like may have changed since.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the image is not that of such a queue.
    pub(in crate::sched) fn restore(&self, spec: &QueueSpec, image: &QueueImage) -> Result {
        let stack = spec.cwsr.map_or(0, |cwsr| index(cwsr.ctl_stack) / 4);
        if image.words.len() != descriptor_dwords(spec.kind) || image.ctl_stack.len() != stack {
            return Err(EINVAL);
        }
        let read = |dw: usize| image.words.get(dw).copied().unwrap_or(0);
        if let Some(cwsr) = spec.cwsr.filter(|_| spec.kind.is_compute()) {
            // The next save goes where these words say: a stack of another size would be too small for it.
            let stack = Readback::read(read).cntl_stack_size;
            if saved_state(spec, read).is_none() || stack != cwsr.ctl_stack {
                return Err(EINVAL);
            }
        }
        // The addresses and flags of the new queue's own first image go over those of the old one.
        for (dw, word) in image.words.iter().enumerate() {
            if !self.is_own(spec.kind, dw) {
                self.write(dw, *word)?;
            }
        }
        for (dw, word) in image.ctl_stack.iter().enumerate() {
            self.write(STACK_DW + dw, *word)?;
        }
        self.update(spec)
    }

    /// Whether dword `dw` belongs to the place of the queue and not to its state.
    fn is_own(&self, kind: QueueKind, dw: usize) -> bool {
        use crate::hw::mqd::layout::compute as at;
        match kind {
            QueueKind::Pm4 | QueueKind::Aql => matches!(
                dw,
                at::HEADER
                    | at::CP_MQD_BASE_ADDR_LO
                    | at::CP_MQD_BASE_ADDR_HI
                    | at::CP_HQD_ACTIVE
                    | at::CP_HQD_VMID
                    | at::CP_HQD_DEQUEUE_REQUEST
                    | at::CP_HQD_CTX_SAVE_BASE_ADDR_LO
                    | at::CP_HQD_CTX_SAVE_BASE_ADDR_HI
                    | at::CP_HQD_CTX_SAVE_SIZE
            ),
            QueueKind::Sdma(_) => false,
        }
    }
}
