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
        Submitted,
        HIQ_BYTES, //
    },
    packets,
    runlist, //
};
use crate::{
    gpu::salvage::Copying,
    hw::{
        mqd::compute::HUNG_DOORBELL,
        pm4::{
            UnmapAction,
            NOP_ONE, //
        },
        regs::{
            gc::CP_IQ_WAIT_TIME2,
            hqd::{
                DoorbellControl,
                HqdActive,
                Slot,
                CP_HQD_ACTIVE,
                CP_HQD_PQ_DOORBELL_CONTROL, //
            },
            sdma::{
                DoorbellOffset,
                RLC_QUEUES, //
            }, //
        }, //
    },
    sched::{
        config::{
            Config,
            Hurry, //
        },
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

/// Pause between two looks for queues whose time to leave is over, in microseconds.
const LOOK_US: u64 = 100_000;

/// What the time between two calls of [`EarlyEnd::look`] counts at most, in microseconds: many times the pause of [`poll`].
const COUNTED_US: u64 = 20_000;

/// Ends queues for which another user waits and that do not leave in time ([`Config::hurry_us`]), long before the
/// firmware gives up on them: until then it confirms no preemption at all.
///
/// The firmware asked all queues at once, so the others leave meanwhile. A compute queue is reset alone. Where that does
/// not free its slot, and for SDMA, which has no reset of a queue, the reset of the engines is all that is left, and the
/// firmware is not waited for.
///
/// Only time in which this thread looks is a queue's: where it gets no processor for long, because the machine is busy or a
/// hypervisor has taken it, the GPU may have had none to leave in, either.
struct EarlyEnd<'a> {
    core: &'a SchedCore,
    /// The clock at the latest call.
    last: u64,
    /// Microseconds since the firmware was asked, those of each pause up to [`COUNTED_US`].
    waited: u64,
    /// What `waited` must be for the next look.
    next: u64,
    /// Doorbell of the last queue that it found, 0 for none.
    refused: u32,
    /// Doorbell of a queue that only a reset of the engines ends.
    stuck: Option<u32>,
}

impl<'a> EarlyEnd<'a> {
    /// For a preemption that begins now.
    fn new(core: &'a SchedCore) -> Self {
        Self {
            core,
            last: core.platform.now(),
            waited: 0,
            next: core.config.hurry_us(Hurry::Record),
            refused: 0,
            stuck: None,
        }
    }

    /// Looks for such queues when it is time, if the firmware has taken up the `packets` that ask for the preemption:
    /// one that does nothing has not asked any queue.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`: one is [stuck](Self::stuck). `EIO`, `ENODEV`.
    fn look(&mut self, packets: &Submitted) -> Result {
        let core = self.core;
        let now = core.platform.now();
        self.waited += now.saturating_sub(self.last).min(COUNTED_US);
        self.last = now;
        if self.waited < self.next {
            return Ok(());
        }
        self.next = self.waited + LOOK_US;
        let elapsed = self.waited;
        let overdue = core.state.lock().overdue(&core.config, elapsed);
        if !(overdue.compute || overdue.sdma) || !packets.is_taken_up(&*core.platform)? {
            return Ok(());
        }
        if overdue.compute {
            for slot in compute_slots() {
                self.end_overdue(slot, elapsed)?;
            }
        }
        if overdue.sdma {
            self.find_overdue_copy(elapsed)?;
        }
        Ok(())
    }

    /// Resets the queue in `slot`, if there is one whose time to leave is over.
    ///
    /// # Errors
    ///
    /// As [`EarlyEnd::look`].
    fn end_overdue(&mut self, slot: Slot, elapsed: u64) -> Result {
        let core = self.core;
        let platform = &*core.platform;
        let mut words = [0; 2];
        let regs = [CP_HQD_ACTIVE, CP_HQD_PQ_DOORBELL_CONTROL];
        platform.read_slot(slot, &regs, &mut words)?;
        let [active, control] = words;
        let doorbell = DoorbellControl::from_raw(control).get(DoorbellControl::OFFSET);
        if !HqdActive::from_raw(active).is_set(HqdActive::ACTIVE)
            || !self.is_overdue(doorbell, elapsed)
        {
            return Ok(());
        }
        let start = platform.now();
        let reset = platform.reset_slot(slot, core.config.hurry_us(Hurry::Record));
        if reset.is_ok() {
            trace::reset_off(core, doorbell);
            core.state.lock().queue_was_reset(doorbell);
            core.counters.queue_resets.inc();
            core.counters.early_resets.inc();
        }
        trace::queue_reset(core, doorbell, start, &reset);
        if reset == Err(ETIMEDOUT) {
            self.stuck = Some(doorbell);
        }
        reset?;
        platform.err(fmt!(
            "queue {doorbell:#x} refused preemption and was reset after {} ms; it does not run again",
            elapsed / 1000
        ));
        Ok(())
    }

    /// Looks for an SDMA queue that is at work although its time to leave is over.
    ///
    /// # Errors
    ///
    /// As [`EarlyEnd::look`].
    fn find_overdue_copy(&mut self, elapsed: u64) -> Result {
        let platform = &*self.core.platform;
        let asic = platform.asic();
        let engines = (0..asic.sdma_engines()).filter_map(|n| asic.sdma.engine(n));
        let blocks =
            engines.flat_map(|engine| (0..RLC_QUEUES).filter_map(move |queue| engine.rlc(queue)));
        for block in blocks {
            let cntl = platform.read(block.rb_cntl())?;
            let status = platform.read(block.context_status())?;
            if Copying::decode(cntl, status) == Copying::Idle {
                continue;
            }
            let offset = DoorbellOffset::from_raw(platform.read(block.doorbell_offset())?);
            let doorbell = offset.get(DoorbellOffset::OFFSET);
            if self.is_overdue(doorbell, elapsed) {
                self.stuck = Some(doorbell);
                return Err(ETIMEDOUT);
            }
        }
        Ok(())
    }

    /// Whether the time to leave of the queue with `doorbell` is over, which then counts as one that refused.
    fn is_overdue(&mut self, doorbell: u32, elapsed: u64) -> bool {
        let core = self.core;
        let when = core.refusal();
        let overdue = {
            let mut state = core.state.lock();
            state.mark_overdue(doorbell, &core.config, elapsed, when)
        };
        if overdue {
            core.counters.refusals.inc();
            self.refused = doorbell;
        }
        overdue
    }
}

/// The slots that the firmware uses for compute queues.
fn compute_slots() -> impl Iterator<Item = Slot> {
    let bits = (0..u64::BITS).filter(|bit| QUEUE_MASK & 1 << bit != 0);
    bits.filter_map(Slot::from_bit)
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
        self.fenced(platform, config, end, &[], &mut |_| Ok(()))
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
        let _ = held.submit()?;
        Ok(())
    }

    /// Sends packets and waits until the firmware has finished them, at most until `end`. Calls `meanwhile` now and
    /// then, with where they are. Before them comes a NOP, whose consumption shows that the firmware has come to them.
    fn fenced(
        &mut self,
        platform: &dyn Platform,
        config: &Config,
        end: u64,
        packets: &[u32],
        meanwhile: &mut dyn FnMut(&Submitted) -> Result,
    ) -> Result {
        let left = || config.timeout_us().min(end.saturating_sub(platform.now()));
        let fence = self.fences.arm()?;
        let sent = packets::query(fence.addr(), fence.value()).and_then(|query| {
            let len = u32::try_from(1 + packets.len() + query.len())?;
            let mut held = self.hiq.hold(platform, len, left())?;
            held.push(&[NOP_ONE])?;
            held.push(packets)?;
            held.push(&query)?;
            held.submit()
        });
        // Once the packets may have been published the firmware may write the slot, so an error of any
        // kind gives it up.
        let waited = sent.and_then(|submitted| {
            poll(platform, left(), || {
                let signalled = self.fences.signalled(&fence)?;
                if !signalled {
                    meanwhile(&submitted)?;
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
        let mut early = EarlyEnd::new(core);
        let result = self.fenced(platform, &core.config, end, &unmap, &mut |packets| {
            match action {
                UnmapAction::Preempt => early.look(packets),
                // That of one queue, which it kills.
                _ => Ok(()),
            }
        });
        let took = platform.now().saturating_sub(start);
        core.counters.preempt_us.add(took);
        core.counters.preempt_max_us.raise(took);
        self.count(core);
        let named = self.hiq.read_mqd(HUNG_DOORBELL);
        let refused = match named {
            Ok(0) | Err(_) => early.refused,
            Ok(named) => named,
        };
        trace::preempted(core, scope, took, refused, &result);
        if let Some(doorbell) = early.stuck {
            return Err(Failure::Refused { doorbell });
        }
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
