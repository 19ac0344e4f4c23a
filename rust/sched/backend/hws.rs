// SPDX-License-Identifier: GPL-2.0

//! The back end with scheduler firmware: the HIQ, fences, and the steps that move the hardware
//! towards the desired state.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    fence::{
        FencePool,
        POOL_BYTES, //
    },
    hiq::{
        Hiq,
        HIQ_BYTES, //
    },
    packets,
    runlist, //
};
use crate::{
    hw::{
        mqd::compute::HUNG_DOORBELL,
        pm4::UnmapAction,
        regs::{
            gc::CP_IQ_WAIT_TIME2,
            hqd::{
                DoorbellControl,
                HqdActive,
                Slot,
                CP_HQD_ACTIVE,
                CP_HQD_PQ_DOORBELL_CONTROL, //
            }, //
        }, //
    },
    sched::{
        config::Config,
        core::SchedCore,
        desired::{
            plan::{
                Scope,
                Step, //
            },
            state::QUEUE_MASK, //
        },
        diag::trace,
        failure::Failure,
        platform::{
            poll,
            Domain,
            Platform, //
        }, //
    }, //
};

/// Queues that one preemption may have to reset before the whole device counts as hung.
const MAX_RESETS: usize = 8;

/// Resets queues that do not leave, of processes with a record, long before the firmware gives up on them: until
/// then it confirms nobody's preemption.
///
/// The firmware asked all queues at once, so the others leave meanwhile. A queue that its own reset does not free is
/// left to the firmware, which has a reset of the pipe. SDMA has no reset of a queue.
struct EarlyReset {
    /// When, if it may be necessary and was not done.
    due: Option<u64>,
}

impl EarlyReset {
    /// For a preemption that begins now.
    fn new(core: &SchedCore) -> Self {
        let known = core.state.lock().preempts_known();
        Self {
            due: known.then(|| core.platform.now() + core.config.record_us()),
        }
    }

    /// Does it when it is time.
    ///
    /// # Errors
    ///
    /// `EIO`, `ENODEV`.
    fn when_due(&mut self, core: &SchedCore) -> Result {
        match self.due {
            Some(due) if core.platform.now() >= due => {
                self.due = None;
                compute_slots().try_for_each(|slot| reset_known(core, slot))
            }
            _ => Ok(()),
        }
    }
}

/// The slots that the firmware uses for compute queues.
fn compute_slots() -> impl Iterator<Item = Slot> {
    let bits = (0..u64::BITS).filter(|bit| QUEUE_MASK & 1 << bit != 0);
    bits.filter_map(Slot::from_bit)
}

/// Resets the queue in `slot`, if there is one that is being preempted, of a process with a record.
///
/// # Errors
///
/// `EIO`, `ENODEV`.
fn reset_known(core: &SchedCore, slot: Slot) -> Result {
    let platform = &*core.platform;
    let mut words = [0; 2];
    let regs = [CP_HQD_ACTIVE, CP_HQD_PQ_DOORBELL_CONTROL];
    platform.read_slot(slot, &regs, &mut words)?;
    let [active, control] = words;
    if !HqdActive::from_raw(active).is_set(HqdActive::ACTIVE) {
        return Ok(());
    }
    let doorbell = DoorbellControl::from_raw(control).get(DoorbellControl::OFFSET);
    let when = core.refusal();
    if !core.state.lock().mark_hung_again(doorbell, when) {
        return Ok(());
    }
    core.counters.refusals.inc();
    let start = platform.now();
    let reset = platform.reset_slot(slot, core.config.record_us());
    match reset {
        Ok(()) => {}
        Err(error) if error == ETIMEDOUT => return Ok(()),
        Err(error) => return Err(error),
    }
    trace::reset_off(core, doorbell);
    core.state.lock().queue_was_reset(doorbell);
    core.counters.queue_resets.inc();
    core.counters.early_resets.inc();
    trace::queue_reset(core, doorbell, start, &reset);
    platform.err(fmt!(
        "queue {doorbell:#x} refused preemption, as another one of its process did before, and was reset; it does not run again"
    ));
    Ok(())
}

/// The firmware's end of a scheduler.
pub(in crate::sched) struct Hws {
    hiq: Hiq,
    fences: FencePool,
}

impl Hws {
    /// Allocates ring and fences. Nothing is sent.
    ///
    /// # Errors
    ///
    /// Of [`Platform::alloc`].
    pub(in crate::sched) fn new(platform: &dyn Platform) -> Result<Self> {
        Ok(Self {
            hiq: Hiq::new(platform.alloc(HIQ_BYTES, Domain::Gart)?)?,
            fences: FencePool::new(platform.alloc(POOL_BYTES, Domain::Gart)?)?,
        })
    }

    /// Connects the HIQ, gives the firmware its resources and waits for its first answer.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the firmware does not answer, `EIO` and `ENODEV` as [`Platform`].
    pub(in crate::sched) fn start(&mut self, platform: &dyn Platform, config: &Config) -> Result {
        let asic = platform.asic();
        let addrs = self.hiq.addrs();
        self.hiq.describe(asic, platform.hiq_doorbell())?;
        platform.map_hiq(addrs.mqd, addrs.wptr)?;
        let init = packets::init_packets(asic, config, platform.read(CP_IQ_WAIT_TIME2)?)?;
        self.send(platform, config, init.as_slice())?;
        self.handshake(platform, config)
    }

    /// Asks for a fence and waits for it.
    ///
    /// # Errors
    ///
    /// As [`Hws::start`].
    pub(in crate::sched) fn handshake(
        &mut self,
        platform: &dyn Platform,
        config: &Config,
    ) -> Result {
        let end = platform.now() + config.cycle_us();
        self.fenced(platform, config, end, &[], &mut || Ok(()))
    }

    /// Forgets what was in flight, after the device was reset.
    ///
    /// # Errors
    ///
    /// `ENODEV`.
    pub(in crate::sched) fn forget(&mut self) -> Result {
        self.fences.after_reset();
        self.hiq.rewind()
    }

    /// Sends packets.
    fn send(&mut self, platform: &dyn Platform, config: &Config, packets: &[u32]) -> Result {
        let mut held =
            self.hiq
                .hold(platform, u32::try_from(packets.len())?, config.timeout_us())?;
        held.push(packets)?;
        held.submit()
    }

    /// Sends packets and waits until the firmware has finished them, at most until `end`. Calls `meanwhile` now and
    /// then.
    fn fenced(
        &mut self,
        platform: &dyn Platform,
        config: &Config,
        end: u64,
        packets: &[u32],
        meanwhile: &mut dyn FnMut() -> Result,
    ) -> Result {
        let left = || config.timeout_us().min(end.saturating_sub(platform.now()));
        let fence = self.fences.arm()?;
        let sent = packets::query(fence.addr(), fence.value()).and_then(|query| {
            let len = u32::try_from(packets.len() + query.len())?;
            let mut held = self.hiq.hold(platform, len, left())?;
            held.push(packets)?;
            held.push(&query)?;
            held.submit()
        });
        // Once the packets may have been published the firmware may write the slot, so an error of any
        // kind gives it up.
        let waited = sent.and_then(|()| {
            poll(platform, left(), || {
                let signalled = self.fences.signalled(&fence)?;
                if !signalled {
                    meanwhile()?;
                }
                Ok(signalled)
            })
        });
        match waited {
            Ok(()) => self.fences.release(fence),
            Err(_) => self.fences.abandon(fence),
        }
        waited
    }

    /// Takes one step after the other until hardware and desired state agree.
    ///
    /// # Errors
    ///
    /// Why the hardware could not follow. The caller marks the scheduler as out of service.
    pub(in crate::sched) fn converge(&mut self, core: &Arc<SchedCore>) -> Result<(), Failure> {
        let mut gathered = false;
        loop {
            let (step, newest) = {
                let mut state = core.state.lock();
                let applied = state.settle().map_err(Failure::Device)?;
                core.publish(applied);
                if core.life().is_shut_down() {
                    return Ok(());
                }
                (state.plan(&core.config, gathered), state.newest_change())
            };
            // Not at the end only: changes may come for ever.
            core.hand_off();
            gathered = false;
            match step {
                Step::Idle => {
                    core.publish_settled(newest);
                    return Ok(());
                }
                Step::Gather => {
                    core.gather();
                    gathered = true;
                }
                Step::Preempt(scope) => self.preempt(core, scope)?,
                Step::Map => self.map(core)?,
            }
        }
    }

    /// Takes the queues in `scope` off the hardware. Queues that refuse are reset, one by one, and
    /// do not run again; all others are saved.
    ///
    /// # Errors
    ///
    /// As [`Hws::converge`].
    pub(in crate::sched) fn preempt(
        &mut self,
        core: &SchedCore,
        scope: Scope,
    ) -> Result<(), Failure> {
        core.state.lock().begin_preempt(&scope);
        core.counters.preemptions.inc();
        if !scope.ends_list() {
            core.counters.narrow_preemptions.inc();
        }
        // Waits for this are bounded: all attempts share the time.
        let end = core.platform.now() + core.config.cycle_us();
        let mut refused = 0;
        for resets in 0..=MAX_RESETS {
            refused = self.unmap(core, UnmapAction::Preempt, &scope, end)?;
            if refused == 0 {
                trace::unmapped(core);
                core.state.lock().end_preempt(&scope);
                return Ok(());
            }
            // Reset while the firmware waited for it, which names it all the same.
            let off = core.state.lock().is_reset(refused);
            if off && resets < MAX_RESETS {
                continue;
            }
            core.counters.refusals.inc();
            if resets == MAX_RESETS || core.platform.now() >= end {
                break;
            }
            self.reset_queue(core, refused, end)?;
        }
        Err(Failure::Refused { doorbell: refused })
    }

    /// Kills what a queue does that refused to be preempted.
    fn reset_queue(&mut self, core: &SchedCore, doorbell: u32, end: u64) -> Result<(), Failure> {
        // Where the firmware names no known queue, the reset of one does not help. Nor does it for SDMA: no
        // packet resets a queue there, which would go on while it counts as stopped.
        let when = core.refusal();
        if !core.state.lock().mark_hung_compute(doorbell, when) {
            return Err(Failure::Refused { doorbell });
        }
        let start = core.platform.now();
        let scope = Scope::Doorbells([doorbell, 0, 0, 0], 1);
        if self.unmap(core, UnmapAction::Reset, &scope, end)? != 0 {
            return Err(Failure::Refused { doorbell });
        }
        trace::reset_off(core, doorbell);
        core.state.lock().queue_was_reset(doorbell);
        core.counters.queue_resets.inc();
        trace::queue_reset(core, doorbell, start, &Ok(()));
        core.platform.err(fmt!(
            "queue {doorbell:#x} refused preemption and was reset; it does not run again"
        ));
        Ok(())
    }

    /// Sends UNMAP_QUEUES and waits, at most until `end`. Returns the doorbell of a queue that refused, or 0.
    ///
    /// The firmware gives up on a queue that does not answer and still writes the fence: the HIQ's
    /// descriptor is the only sign.
    fn unmap(
        &mut self,
        core: &SchedCore,
        action: UnmapAction,
        scope: &Scope,
        end: u64,
    ) -> Result<u32, Failure> {
        let platform = &*core.platform;
        let unmap = packets::unmap(action, scope).map_err(Failure::Build)?;
        core.counters.packets.add(2);
        let start = platform.now();
        let mut early = match action {
            UnmapAction::Preempt => EarlyReset::new(core),
            _ => EarlyReset { due: None },
        };
        let result = self.fenced(platform, &core.config, end, &unmap, &mut || {
            early.when_due(core)
        });
        let took = platform.now().saturating_sub(start);
        core.counters.preempt_us.add(took);
        core.counters.preempt_max_us.raise(took);
        self.count(core);
        let named = self.hiq.read_mqd(HUNG_DOORBELL);
        trace::preempted(core, scope, took, named.unwrap_or(0), &result);
        match result {
            Ok(()) => {}
            Err(error) if error == ETIMEDOUT => {
                core.counters.timeouts.inc();
                // Even without the fence, the descriptor may name the queue.
                let refused = named.unwrap_or(0);
                return Err(Failure::Timeout { refused });
            }
            Err(error) => return Err(Failure::Device(error)),
        }
        let refused = named.map_err(Failure::Device)?;
        if refused != 0 {
            self.hiq
                .set_mqd(HUNG_DOORBELL, 0)
                .map_err(Failure::Device)?;
        }
        Ok(refused)
    }

    /// Submits a runlist of everything that should run. None may be active.
    fn map(&mut self, core: &SchedCore) -> Result<(), Failure> {
        let platform = &*core.platform;
        let built = runlist::build(&mut core.state.lock(), platform.asic(), &core.config)
            .map_err(Failure::Build)?;
        let Some((packet, list)) = built else {
            return Ok(());
        };
        core.counters.runlists.inc();
        core.counters.oversubscribed.add(list.chained.into());
        core.counters.runlist_dwords.add(list.dwords.into());
        core.counters.runlist_written.add(list.written.into());
        // CAST: A count.
        core.counters.queues_mapped.add(list.queues as u64);
        core.counters.packets.inc();
        let sent = self.send(platform, &core.config, &packet);
        self.count(core);
        trace::mapped(core, &list, &sent);
        sent.map_err(|error| match error == ETIMEDOUT {
            true => Failure::RingFull,
            false => Failure::Device(error),
        })
    }

    /// Ends the runlist and disconnects the HIQ, for shutdown.
    pub(in crate::sched) fn stop(&mut self, core: &SchedCore) -> Result<(), Failure> {
        let active = core.state.lock().active;
        if let Some(list) = active {
            self.preempt(core, Scope::whole(&list))?;
        }
        core.platform.unmap_hiq().map_err(Failure::Device)
    }

    /// Copies the ring's counters to where they can be read without a lock.
    fn count(&self, core: &SchedCore) {
        let stats = self.hiq.stats();
        core.counters.dwords.set(stats.dwords + stats.padding);
        core.counters.doorbells.set(stats.doorbells);
        core.counters.stalls.set(stats.stalls);
    }
}
