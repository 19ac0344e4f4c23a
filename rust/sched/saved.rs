// SPDX-License-Identifier: GPL-2.0

//! What a queue that is off the hardware has left in its descriptor: its waves, for a debugger, and
//! all of it, for a checkpoint.
//!
//! Layout of the save area and of the words that say how much of it is used: `hw::cwsr`. Source:
//! `kfd_mqd_manager_v9.c` (`get_wave_state`, `checkpoint_mqd`, `restore_mqd`).

use kernel::prelude::*;

use super::{
    machine::Machine,
    mqd::MqdMem,
    record::{
        QueueSpec,
        SpecKind, //
    }, //
};
use crate::hw::{
    cwsr::SavedState,
    mqd::{
        layout::{
            COMPUTE_DWORDS,
            SDMA_DWORDS, //
        },
        Cwsr,
        Readback,
        CONTROL_STACK_OFFSET, //
    },
    num::index, //
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

#[cfg_attr(not(rkfd_kunit), allow(dead_code, reason = "for checkpoints"))]
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
const fn descriptor_dwords(kind: SpecKind) -> usize {
    match kind {
        SpecKind::Pm4 | SpecKind::Aql => COMPUTE_DWORDS,
        SpecKind::Sdma { .. } => SDMA_DWORDS,
    }
}

/// Dword of the block at which the control stack begins.
const STACK_DW: usize = CONTROL_STACK_OFFSET as usize / 4;

/// The save area in the terms of the hardware's facts.
fn area(spec: &QueueSpec) -> Option<Cwsr> {
    spec.cwsr.map(|cwsr| Cwsr {
        base: cwsr.base,
        ctl_stack: cwsr.ctl_stack,
        bytes: cwsr.size,
    })
}

/// The saved state that a descriptor names, `None` without a save area or if it makes no sense.
fn saved_state(spec: &QueueSpec, read: impl FnMut(usize) -> u32) -> Option<SavedState> {
    Readback::read(read).saved_state(&area(spec)?)
}

impl MqdMem {
    fn read_words(&self, first: usize, count: usize) -> Result<KVVec<u32>> {
        let mut words = KVVec::with_capacity(count, GFP_KERNEL)?;
        for dw in first..first + count {
            words.push(self.read(dw)?, GFP_KERNEL)?;
        }
        Ok(words)
    }

    /// Copies everything that a queue needs to go on elsewhere.
    fn checkpoint(&self, spec: &QueueSpec) -> Result<QueueImage> {
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
    pub(super) fn restore(&self, spec: &QueueSpec, image: &QueueImage) -> Result {
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
    fn is_own(&self, kind: SpecKind, dw: usize) -> bool {
        use crate::hw::mqd::layout::compute as at;
        match kind {
            SpecKind::Pm4 | SpecKind::Aql => matches!(
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
            SpecKind::Sdma { .. } => false,
        }
    }
}

#[cfg_attr(not(rkfd_kunit), allow(dead_code, reason = "for the facade"))]
impl Machine {
    /// Descriptor and values of a queue that is off the hardware.
    fn at_rest(&self, proc: u64, queue: u64) -> Result<(MqdMem, QueueSpec)> {
        let mut state = self.state.lock();
        let rec = state.queue_mut(proc, queue)?;
        if rec.phase.on_hardware() {
            return Err(EBUSY);
        }
        Ok((rec.mqd.clone(), rec.spec))
    }

    /// The saved waves of a queue that does not run. Nothing must start it meanwhile.
    ///
    /// # Errors
    ///
    /// `EINVAL`: not a compute queue with a save area, or it runs. `ENOENT`. `EIO`: the hardware
    /// left nonsense, or the scheduler is wedged. `ENOMEM`, `ENODEV`.
    pub(super) fn wave_state(&self, proc: u64, queue: u64) -> Result<WaveState> {
        // A queue that was stopped in vain would read as one that runs.
        self.health().check()?;
        {
            let mut state = self.state.lock();
            let evicted = state.proc_mut(proc).map_err(|_| ENOENT)?.is_evicted();
            let rec = state.queue_mut(proc, queue)?;
            if rec.spec.cwsr.is_none() || rec.newest_spec().is_active() && !evicted {
                return Err(EINVAL);
            }
        }
        let (mqd, spec) = self
            .at_rest(proc, queue)
            .map_err(|error| match error == EBUSY {
                true => EINVAL,
                false => error,
            })?;
        let mut result = Ok(());
        let read = |dw| {
            mqd.read(dw).unwrap_or_else(|error| {
                result = Err(error);
                0
            })
        };
        let saved = saved_state(&spec, read);
        result?;
        let saved = saved.ok_or(EIO)?;
        if saved.ctl_stack_offset % 4 != 0 {
            return Err(EIO);
        }
        let first = STACK_DW + index(saved.ctl_stack_offset) / 4;
        Ok(WaveState {
            header: saved.header(),
            ctl_stack: mqd.read_words(first, index(saved.ctl_stack_used) / 4)?,
            ctl_stack_used: saved.ctl_stack_used,
            save_area_used: saved.wave_state_used,
        })
    }

    /// Copies a queue that is off the hardware, so that one like it can be made elsewhere.
    ///
    /// # Errors
    ///
    /// `EBUSY`: it is on the hardware; evict it first. `ENOENT`, `ENOMEM`, `ENODEV`.
    pub(super) fn checkpoint(&self, proc: u64, queue: u64) -> Result<QueueImage> {
        let (mqd, spec) = self.at_rest(proc, queue)?;
        mqd.checkpoint(&spec)
    }
}
