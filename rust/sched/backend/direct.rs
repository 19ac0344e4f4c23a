// SPDX-License-Identifier: GPL-2.0

//! The back end without scheduler firmware: the driver gives VMIDs to address spaces and loads
//! queues into hardware slots by registers.
//!
//! Queues do not take turns here, so that only as many are admitted as there are slots and VMIDs (see
//! [`admit`](crate::sched::desired::admit)). A change concerns the queues that it names
//! and no others: everything else keeps running.
//!
//! An address space has a VMID while it has a queue on the hardware. What differs from upstream
//! (`kfd_device_queue_manager.c`, `*_nocpsch`): queues wait for their slot in the worker instead of
//! the ioctl, an inactive queue occupies nothing, and a queue that does not leave is reset alone.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::load::{
    next_load,
    next_unload,
    unloaded,
    LoadRequest, //
};
use crate::{
    hw::{
        asic::VMIDS,
        load::{
            self,
            COMPUTE_WRITES,
            SDMA_WRITES, //
        },
        mqd::layout::sdma as sdma_at,
        num::{
            index,
            widen, //
        },
        regs::{
            hqd::{
                DequeueRequest,
                HqdActive,
                Slot,
                CP_HQD_ACTIVE,
                CP_HQD_DEQUEUE_REQUEST,
                PIPES_PER_MEC,
                QUEUES_PER_PIPE, //
            },
            sdma::{
                Block,
                ContextStatus, //
            },
            Reg, //
        },
        timeouts::SDMA_IDLE_MS, //
    },
    sched::{
        config::SLOW_SHARE,
        core::SchedCore,
        desired::state::QUEUE_MASK,
        diag::trace,
        failure::Failure,
        params::{
            QueueKind,
            SdmaPlace, //
        },
        platform::{
            poll,
            Platform, //
        }, //
    }, //
};

/// Microseconds that an SDMA context gets to finish its packet.
const SDMA_IDLE_US: u64 = widen(SDMA_IDLE_MS) * 1000;
/// Bits of [`QUEUE_MASK`].
const SLOTS: usize = u64::BITS as usize;

/// A VMID that an address space has.
#[derive(Clone, Copy, Default)]
struct VmidUser {
    /// The process, 0 for none.
    process: u64,
    /// Queues of it on the hardware.
    queues: u32,
}

/// What the hardware holds.
pub(in crate::sched) struct Direct {
    vmids: [VmidUser; VMIDS as usize],
    /// The queue in each slot, 0 for none.
    slots: [u64; SLOTS],
    /// Pipe that gets the next queue, so that queues spread over the pipes.
    next_pipe: u32,
}

/// The time by which slow queues have delayed the changes of others.
#[derive(Default)]
struct Cycle {
    /// Changes that the cycle applies.
    newest: u64,
    /// Microseconds.
    spent: u64,
}

impl Cycle {
    /// Begins anew if all changes of this cycle are applied, which is when one leaves that was asked
    /// for later.
    fn begin(&mut self, request: &LoadRequest, newest: u64) {
        if request.pending_since > self.newest {
            *self = Self { newest, spent: 0 };
        }
    }

    /// Notes that a queue took `took` microseconds.
    ///
    /// # Errors
    ///
    /// Slow ones took too long together: the hardware counts as hung.
    fn spend(&mut self, core: &SchedCore, request: &LoadRequest, took: u64) -> Result<(), Failure> {
        if took > core.config.unload_us() / SLOW_SHARE {
            self.spent = self.spent.saturating_add(took);
        }
        match self.spent > core.config.cycle_us() {
            true => Err(Failure::Refused {
                doorbell: request.spec.doorbell.dword(),
            }),
            false => Ok(()),
        }
    }
}

/// Writes that were computed, for one selection of a slot.
struct Writes<const N: usize> {
    list: [(Reg, u32); N],
    len: usize,
}

impl<const N: usize> Writes<N> {
    const fn new() -> Self {
        Self {
            list: [(CP_HQD_ACTIVE, 0); N],
            len: 0,
        }
    }

    fn put(&mut self, reg: Reg, value: u32) {
        // More than `N` are never made; a lost write would show as a queue that does not run.
        if let Some(place) = self.list.get_mut(self.len) {
            *place = (reg, value);
            self.len += 1;
        }
    }

    fn as_slice(&self) -> &[(Reg, u32)] {
        self.list.get(..self.len).unwrap_or(&[])
    }
}

impl Direct {
    /// Nothing is loaded.
    pub(super) fn new() -> Self {
        Self {
            vmids: [VmidUser::default(); VMIDS as usize],
            slots: [0; SLOTS],
            next_pipe: 0,
        }
    }

    /// Takes the VMIDs of compute back from their last user: a driver before this one, or this one
    /// before a reset.
    ///
    /// # Errors
    ///
    /// As [`Platform::unbind_vmid`].
    pub(super) fn start(&mut self, platform: &dyn Platform) -> Result {
        let asic = platform.asic();
        (0..VMIDS)
            .filter(|vmid| asic.owns_vmid(*vmid))
            .try_for_each(|vmid| platform.unbind_vmid(vmid))
    }

    /// Forgets what was loaded, after the device was reset.
    pub(super) fn forget(&mut self) {
        *self = Self::new();
    }

    /// Unloads and loads queues until hardware and desired state agree.
    ///
    /// # Errors
    ///
    /// Why the hardware could not follow.
    pub(super) fn converge(&mut self, core: &Arc<SchedCore>) -> Result<(), Failure> {
        let mut cycle = Cycle::default();
        loop {
            let (leaving, coming, newest) = {
                let mut state = core.state.lock();
                let applied = state.settle().map_err(Failure::Device)?;
                core.publish(applied);
                if core.life().is_shut_down() {
                    return Ok(());
                }
                // What leaves makes room for what comes.
                let leaving = next_unload(&mut state, false);
                let coming = match leaving {
                    Some(_) => None,
                    None => next_load(&mut state).map_err(Failure::Build)?,
                };
                (leaving, coming, state.newest_change())
            };
            // Not at the end only: changes may come for ever.
            core.hand_off();
            match (leaving, coming) {
                (Some(request), _) => {
                    cycle.begin(&request, newest);
                    let took = self.unload(core, &request)?;
                    cycle.spend(core, &request, took)?;
                }
                (None, Some(request)) => self.load(core, &request)?,
                (None, None) => {
                    core.publish_settled(newest);
                    return Ok(());
                }
            }
        }
    }

    /// Unloads all queues.
    ///
    /// # Errors
    ///
    /// As [`Direct::converge`].
    pub(super) fn stop(&mut self, core: &SchedCore) -> Result<(), Failure> {
        let mut cycle = Cycle::default();
        loop {
            // Taken apart from the loop's condition, which would hold the lock.
            let leaving = next_unload(&mut core.state.lock(), true);
            match leaving {
                Some(request) => {
                    let took = self.unload(core, &request)?;
                    cycle.spend(core, &request, took)?;
                }
                None => return Ok(()),
            }
        }
    }

    /// Loads a queue, which the state counts as mapped already.
    fn load(&mut self, core: &SchedCore, request: &LoadRequest) -> Result<(), Failure> {
        let platform = &*core.platform;
        let vmid = self
            .enter_vmid(platform, request)
            .map_err(Failure::Device)?;
        core.counters.queues_mapped.inc();
        // Before a register is written: a word that cannot be read must not become one of the queue's.
        let read = |dw| request.mqd.read(dw);
        match request.spec.kind {
            QueueKind::Sdma(place) => {
                let block = sdma_block(platform, place).map_err(Failure::Build)?;
                let mut writes = Writes::<SDMA_WRITES>::new();
                load::sdma(block, vmid, request.spec.wptr, read, |reg, value| {
                    writes.put(reg, value)
                })
                .map_err(Failure::Device)?;
                let stopped = read(sdma_at::RB_CNTL).map_err(Failure::Device)?;
                let stopped = load::sdma_stopped(stopped);
                platform
                    .write(block.rb_cntl(), stopped)
                    .and_then(|()| wait_idle(platform, block, SDMA_IDLE_US))
                    .and_then(|()| {
                        writes
                            .as_slice()
                            .iter()
                            .try_for_each(|(reg, value)| platform.write(*reg, *value))
                    })
            }
            QueueKind::Pm4 | QueueKind::Aql => {
                let slot = self
                    .take_slot(request.queue)
                    .ok_or(Failure::Build(ENOSPC))?;
                let mut writes = Writes::<COMPUTE_WRITES>::new();
                load::compute(slot, vmid, request.spec.wptr, read, |reg, value| {
                    writes.put(reg, value)
                })
                .map_err(Failure::Device)?;
                platform.write_slot(slot, writes.as_slice())
            }
        }
        .map_err(|error| match error == ETIMEDOUT {
            true => Failure::Refused {
                doorbell: request.spec.doorbell.dword(),
            },
            false => Failure::Device(error),
        })?;
        trace::loaded(core, request);
        Ok(())
    }

    /// Takes a queue off the hardware, saving what it does unless its owner gave it up. Returns how
    /// many microseconds it took.
    fn unload(&mut self, core: &SchedCore, request: &LoadRequest) -> Result<u64, Failure> {
        let platform = &*core.platform;
        core.counters.preemptions.inc();
        core.counters.narrow_preemptions.inc();
        let start = platform.now();
        let result = match request.spec.kind {
            QueueKind::Sdma(place) => {
                let block = sdma_block(platform, place).map_err(Failure::Build)?;
                unload_sdma(core, block, request)
            }
            QueueKind::Pm4 | QueueKind::Aql => {
                let slot = self.slot_of(request.queue).ok_or(Failure::Build(EINVAL))?;
                unload_compute(core, slot, request)
            }
        };
        let took = platform.now().saturating_sub(start);
        core.counters.preempt_us.add(took);
        core.counters.preempt_max_us.raise(took);
        trace::unloaded(core, request, took, &result);
        match result {
            Ok(()) => {}
            Err(error) if error == ETIMEDOUT => {
                core.counters.timeouts.inc();
                return Err(Failure::Refused {
                    doorbell: request.spec.doorbell.dword(),
                });
            }
            Err(error) => return Err(Failure::Device(error)),
        }
        for slot in &mut self.slots {
            if *slot == request.queue {
                *slot = 0;
            }
        }
        self.leave_vmid(platform, request)
            .map_err(Failure::Device)?;
        unloaded(&mut core.state.lock(), request.process, request.queue);
        Ok(took)
    }

    /// The VMID of the queue's process, which gets one with its first queue.
    fn enter_vmid(&mut self, platform: &dyn Platform, request: &LoadRequest) -> Result<u32> {
        let asic = platform.asic();
        let of = |process| {
            (0..VMIDS)
                .zip(&self.vmids)
                .find(|(vmid, user)| asic.owns_vmid(*vmid) && user.process == process)
                .map(|(vmid, _)| vmid)
        };
        let vmid = match of(request.process) {
            Some(vmid) => vmid,
            None => {
                let vmid = of(0).ok_or(ENOSPC)?;
                platform.bind_vmid(vmid, &request.context)?;
                vmid
            }
        };
        if let Some(user) = self.vmids.get_mut(index(vmid)) {
            user.process = request.process;
            user.queues += 1;
        }
        Ok(vmid)
    }

    /// Gives the VMID back with the last queue of the process.
    fn leave_vmid(&mut self, platform: &dyn Platform, request: &LoadRequest) -> Result {
        for (vmid, user) in (0..VMIDS).zip(&mut self.vmids) {
            if user.process != request.process {
                continue;
            }
            user.queues = user.queues.saturating_sub(1);
            if user.queues == 0 {
                platform.unbind_vmid(vmid)?;
                user.process = 0;
            }
        }
        Ok(())
    }

    /// Takes a free slot for a queue, on the next pipe that has one.
    fn take_slot(&mut self, queue: u64) -> Option<Slot> {
        let pipes = (0..PIPES_PER_MEC).map(|step| (self.next_pipe + step) % PIPES_PER_MEC);
        let mut bits = pipes
            .flat_map(|pipe| (0..QUEUES_PER_PIPE).map(move |n| pipe * QUEUES_PER_PIPE + n))
            .filter(|bit| QUEUE_MASK & 1 << bit != 0);
        let bit = bits.find(|bit| self.slots.get(index(*bit)) == Some(&0))?;
        *self.slots.get_mut(index(bit))? = queue;
        self.next_pipe = (bit / QUEUES_PER_PIPE + 1) % PIPES_PER_MEC;
        Slot::from_bit(bit)
    }

    fn slot_of(&self, queue: u64) -> Option<Slot> {
        let (bit, _) = (0..)
            .zip(&self.slots)
            .find(|(_, in_slot)| **in_slot == queue)?;
        Slot::from_bit(bit)
    }
}

/// Asks a compute queue to leave its slot; resets it if it does not.
fn unload_compute(core: &SchedCore, slot: Slot, request: &LoadRequest) -> Result {
    let platform = &*core.platform;
    let dequeue = match (request.destroyed, request.spec.cwsr) {
        (true, _) => DequeueRequest::RESET_WAVES,
        (false, Some(_)) => DequeueRequest::SAVE_WAVES,
        (false, None) => DequeueRequest::DRAIN,
    };
    platform.write_slot(slot, &[(CP_HQD_DEQUEUE_REQUEST, dequeue.raw())])?;
    let timeout = match request.hurry {
        Some(hurry) => core.config.hurry_us(hurry),
        None => core.config.unload_us(),
    };
    let gone = poll(platform, timeout, || {
        let mut words = [0];
        platform.read_slot(slot, &[CP_HQD_ACTIVE], &mut words)?;
        Ok(!HqdActive::from_raw(words[0]).is_set(HqdActive::ACTIVE))
    });
    match gone {
        Err(error) if error == ETIMEDOUT => {}
        other => return other,
    }
    let doorbell = request.spec.doorbell.dword();
    core.counters.refusals.inc();
    let when = core.refusal();
    core.state.lock().mark_hung(doorbell, when);
    let start = platform.now();
    let reset = platform.reset_slot(slot, timeout);
    trace::queue_reset(core, doorbell, start, &reset);
    reset?;
    core.counters.queue_resets.inc();
    if request.hurry.is_some() {
        core.counters.early_resets.inc();
    }
    platform.err(fmt!(
        "queue {doorbell:#x} refused preemption and was reset; it does not run again"
    ));
    Ok(())
}

/// Stops an SDMA queue and saves its pointer.
fn unload_sdma(core: &SchedCore, block: Block, request: &LoadRequest) -> Result {
    let platform = &*core.platform;
    let timeout = match request.hurry {
        Some(hurry) => SDMA_IDLE_US.min(core.config.hurry_us(hurry)),
        None => SDMA_IDLE_US,
    };
    let stopped = load::sdma_stopped(platform.read(block.rb_cntl())?);
    platform.write(block.rb_cntl(), stopped)?;
    wait_idle(platform, block, timeout)?;
    platform.write(block.doorbell(), 0)?;
    for (dw, reg) in [
        (sdma_at::RB_RPTR, block.rb_rptr()),
        (sdma_at::RB_RPTR_HI, block.rb_rptr_hi()),
        (sdma_at::RB_WPTR, block.rb_wptr()),
        (sdma_at::RB_WPTR_HI, block.rb_wptr_hi()),
    ] {
        request.mqd.write(dw, platform.read(reg)?)?;
    }
    request.mqd.flush()
}

/// Waits up to `timeout` microseconds until an SDMA context that was stopped has finished its packet.
fn wait_idle(platform: &dyn Platform, block: Block, timeout: u64) -> Result {
    poll(platform, timeout, || {
        let status = ContextStatus::from_raw(platform.read(block.context_status())?);
        Ok(status.is_set(ContextStatus::IDLE))
    })
}

fn sdma_block(platform: &dyn Platform, place: SdmaPlace) -> Result<Block> {
    let engine = platform.asic().sdma.engine(place.engine).ok_or(EINVAL)?;
    engine.rlc(place.queue).ok_or(EINVAL)
}
