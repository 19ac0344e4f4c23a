// SPDX-License-Identifier: GPL-2.0

//! The back end with scheduler firmware: the HIQ, fences, and the steps that move the hardware
//! towards the desired state.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::super::{
    fence::{
        FencePool,
        POOL_BYTES, //
    },
    health::Failure,
    hiq::{
        Hiq,
        HIQ_BYTES, //
    },
    machine::Machine,
    mqd,
    packets,
    params::Config,
    platform::{
        poll,
        Place,
        Platform, //
    },
    state::{
        Scope,
        Step, //
    },
    trace, //
};
use crate::hw::{
    mqd::compute::HUNG_DOORBELL,
    pm4::UnmapAction,
    regs::gc::CP_IQ_WAIT_TIME2, //
};

/// Queues that one preemption may have to reset before the whole device counts as hung.
const MAX_RESETS: usize = 8;

/// The firmware's end of a scheduler.
pub(in crate::sched) struct Firmware {
    hiq: Hiq,
    fences: FencePool,
}

impl Firmware {
    /// Allocates ring and fences. Nothing is sent.
    ///
    /// # Errors
    ///
    /// Of [`Platform::alloc`].
    pub(in crate::sched) fn new(platform: &dyn Platform) -> Result<Self> {
        Ok(Self {
            hiq: Hiq::new(platform.alloc(HIQ_BYTES, Place::Gart)?)?,
            fences: FencePool::new(platform.alloc(POOL_BYTES, Place::Gart)?)?,
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
        mqd::write_hiq(&self.hiq, asic, platform.hiq_doorbell())?;
        platform.map_hiq(addrs.mqd, addrs.wptr)?;
        let hello = packets::hello(asic, config, platform.read(CP_IQ_WAIT_TIME2)?)?;
        self.send(platform, config, hello.as_slice())?;
        self.handshake(platform, config)
    }

    /// Asks for a fence and waits for it.
    ///
    /// # Errors
    ///
    /// As [`Firmware::start`].
    pub(in crate::sched) fn handshake(
        &mut self,
        platform: &dyn Platform,
        config: &Config,
    ) -> Result {
        self.fenced(platform, config, platform.now() + config.cycle_us(), &[])
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

    /// Sends packets and waits until the firmware has finished them, at most until `end`.
    fn fenced(
        &mut self,
        platform: &dyn Platform,
        config: &Config,
        end: u64,
        packets: &[u32],
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
        // Once the packets may have been published the slot cannot be told from one in use, so an
        // error of any kind gives it up.
        let waited = sent.and_then(|()| poll(platform, left(), || self.fences.signalled(&fence)));
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
    /// Why the hardware could not follow. The caller marks the scheduler as wedged.
    pub(in crate::sched) fn converge(&mut self, machine: &Arc<Machine>) -> Result<(), Failure> {
        let mut gathered = false;
        loop {
            let (step, newest) = {
                let mut state = machine.state.lock();
                let applied = state.settle().map_err(Failure::Device)?;
                machine.publish(applied);
                if state.stopping {
                    return Ok(());
                }
                (state.plan(&machine.config, gathered), state.newest_change())
            };
            // Not at the end only: changes may come for ever.
            machine.hand_off();
            gathered = false;
            match step {
                Step::Idle => {
                    machine.publish_settled(newest);
                    return Ok(());
                }
                Step::Gather => {
                    machine.gather();
                    gathered = true;
                }
                Step::Preempt(scope) => self.preempt(machine, scope)?,
                Step::Map => self.map(machine)?,
            }
        }
    }

    /// Takes the queues in `scope` off the hardware. Queues that refuse are reset, one by one, and
    /// do not run again; all others are saved.
    ///
    /// # Errors
    ///
    /// As [`Firmware::converge`].
    pub(in crate::sched) fn preempt(
        &mut self,
        machine: &Machine,
        scope: Scope,
    ) -> Result<(), Failure> {
        machine.state.lock().begin_preempt(&scope);
        machine.counters.preemptions.inc();
        if !scope.ends_list() {
            machine.counters.narrow_preemptions.inc();
        }
        // Who waits for this must be able to tell how long: all attempts share the time.
        let end = machine.platform.now() + machine.config.cycle_us();
        let mut refused = 0;
        for resets in 0..=MAX_RESETS {
            refused = self.unmap(machine, UnmapAction::Preempt, &scope, end)?;
            if refused == 0 {
                trace::unmapped(machine);
                machine.state.lock().end_preempt(&scope);
                return Ok(());
            }
            machine.counters.refusals.inc();
            if resets == MAX_RESETS || machine.platform.now() >= end {
                break;
            }
            self.reset_queue(machine, refused, end)?;
        }
        Err(Failure::Refused { doorbell: refused })
    }

    /// Kills what a queue does that refused to be preempted.
    fn reset_queue(&mut self, machine: &Machine, doorbell: u32, end: u64) -> Result<(), Failure> {
        // Firmware that names nobody we know cannot be helped with one queue. Nor can SDMA: no packet
        // resets a queue there, which would go on while it counts as stopped.
        if !machine.state.lock().condemn_compute(doorbell) {
            return Err(Failure::Refused { doorbell });
        }
        let start = machine.platform.now();
        let scope = Scope::Doorbells([doorbell, 0, 0, 0], 1);
        if self.unmap(machine, UnmapAction::Reset, &scope, end)? != 0 {
            return Err(Failure::Refused { doorbell });
        }
        trace::reset_off(machine, doorbell);
        machine.state.lock().queue_was_reset(doorbell);
        machine.counters.queue_resets.inc();
        trace::queue_reset(machine, doorbell, start, &Ok(()));
        machine.platform.complain(fmt!(
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
        machine: &Machine,
        action: UnmapAction,
        scope: &Scope,
        end: u64,
    ) -> Result<u32, Failure> {
        let platform = &*machine.platform;
        let unmap = packets::unmap(action, scope).map_err(Failure::Build)?;
        machine.counters.packets.add(2);
        let start = platform.now();
        let result = self.fenced(platform, &machine.config, end, &unmap);
        let took = platform.now().saturating_sub(start);
        machine.counters.preempt_us.add(took);
        machine.counters.preempt_max_us.raise(took);
        self.count(machine);
        let blamed = self.hiq.read_mqd(HUNG_DOORBELL);
        trace::preempted(machine, scope, took, blamed.unwrap_or(0), &result);
        match result {
            Ok(()) => {}
            Err(error) if error == ETIMEDOUT => {
                machine.counters.timeouts.inc();
                // Even without the fence, the descriptor may say who is to blame.
                let refused = blamed.unwrap_or(0);
                return Err(Failure::Timeout { refused });
            }
            Err(error) => return Err(Failure::Device(error)),
        }
        let refused = blamed.map_err(Failure::Device)?;
        if refused != 0 {
            self.hiq
                .set_mqd(HUNG_DOORBELL, 0)
                .map_err(Failure::Device)?;
        }
        Ok(refused)
    }

    /// Submits a runlist of everything that should run. None may be active.
    fn map(&mut self, machine: &Machine) -> Result<(), Failure> {
        let platform = &*machine.platform;
        let built = machine
            .state
            .lock()
            .build(platform.asic(), &machine.config)
            .map_err(Failure::Build)?;
        let Some((packet, list)) = built else {
            return Ok(());
        };
        machine.counters.runlists.inc();
        machine.counters.oversubscribed.add(list.chained.into());
        machine.counters.runlist_dwords.add(list.dwords.into());
        machine.counters.runlist_written.add(list.written.into());
        // CAST: A count.
        machine.counters.queues_mapped.add(list.queues as u64);
        machine.counters.packets.inc();
        let sent = self.send(platform, &machine.config, &packet);
        self.count(machine);
        trace::mapped(machine, &list, &sent);
        sent.map_err(|error| match error == ETIMEDOUT {
            true => Failure::RingFull,
            false => Failure::Device(error),
        })
    }

    /// Ends the runlist and disconnects the HIQ, for shutdown.
    pub(in crate::sched) fn stop(&mut self, machine: &Machine) -> Result<(), Failure> {
        let active = machine.state.lock().active;
        if let Some(list) = active {
            self.preempt(machine, Scope::whole(&list))?;
        }
        machine.platform.unmap_hiq().map_err(Failure::Device)
    }

    /// Copies the ring's counters to where they can be read without a lock.
    fn count(&self, machine: &Machine) {
        let stats = self.hiq.stats();
        machine.counters.dwords.set(stats.dwords + stats.padding);
        machine.counters.doorbells.set(stats.doorbells);
        machine.counters.stalls.set(stats.stalls);
    }
}
