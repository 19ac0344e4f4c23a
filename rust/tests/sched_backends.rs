// SPDX-License-Identifier: GPL-2.0

//! What every back end owes its callers, on every ASIC: the same scenes with scheduler firmware, with
//! firmware and no over-subscription, and without firmware.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

use super::{
    fake::{
        config,
        create,
        doorbell,
        finish,
        machine,
        pm4,
        process,
        sdma,
        working_machine,
        Event,
        Fake,
        Mode,
        Token, //
    },
    health::Health,
    machine::{
        Machine,
        Pending, //
    },
    params::{
        Config,
        EvictCause,
        Policy,
        QueueUpdate, //
    },
    record::QueueHold,
    steps::{
        destroy,
        evict,
        mqd,
        mqd_word,
        percent,
        restore,
        update, //
    }, //
};
use crate::{
    hw::{
        asic::{
            GFX906,
            GFX90A, //
        },
        mqd::layout::compute as at, //
    },
    kapi::waitqueue::Sleep, //
};

const POLICIES: [Policy; 3] = [Policy::Oversubscribe, Policy::Strict, Policy::Direct];

fn with(policy: Policy) -> Config {
    Config { policy, ..config() }
}

/// Plays a scene with every back end on every ASIC.
fn each(scene: impl Fn(&Arc<Fake>, &Arc<Machine>) -> Result) -> Result {
    for asic in [&GFX90A, &GFX906] {
        for policy in POLICIES {
            let fake = Fake::new(asic)?;
            let machine = machine(&fake, with(policy))?;
            scene(&fake, &machine).inspect_err(|error| {
                pr_err!("{} with {policy:?}: {error:?}\n", asic.name);
            })?;
            finish(&fake, machine)?;
        }
    }
    Ok(())
}

/// Fails with a message; [`each`] says for which back end.
fn same<T: PartialEq + core::fmt::Debug>(what: &str, found: T, wanted: T) -> Result {
    if found == wanted {
        return Ok(());
    }
    pr_err!("{what}: {found:?}, not {wanted:?}\n");
    Err(EINVAL)
}

#[kunit_tests(rkfd_sched_backends)]
mod every {
    use super::*;

    #[test]
    fn queues_come_and_go() -> Result {
        each(|fake, machine| {
            let proc = machine.attach(process(7))?;
            let first = create(machine, proc, 0)?;
            create(machine, proc, 1)?;
            machine.create_queue(proc, sdma(100, 1, 0), QueueHold::default())?;
            machine.converge();
            same("created", fake.mapped_of(7), 3)?;
            destroy(machine, proc, first)?;
            same("one destroyed", fake.mapped_of(7), 2)?;
            evict(machine, proc, EvictCause::Memory)?;
            same("evicted", fake.mapped(), 0)?;
            create(machine, proc, 2)?;
            machine.converge();
            same("created while evicted", fake.mapped(), 0)?;
            restore(machine, proc, EvictCause::Memory)?;
            same("restored", fake.mapped_of(7), 3)?;
            let _ = machine.doom_process(proc, true);
            machine.converge();
            same("detached", fake.mapped(), 0)?;
            same("VMIDs", fake.tenants(), 0)
        })
    }

    #[test]
    fn causes_of_eviction_add_up() -> Result {
        each(|fake, machine| {
            let proc = machine.attach(process(7))?;
            create(machine, proc, 0)?;
            machine.converge();
            evict(machine, proc, EvictCause::Memory)?;
            let _ = machine.begin_evict(proc, EvictCause::Suspend)?;
            restore(machine, proc, EvictCause::Memory)?;
            same("one cause left", fake.mapped(), 0)?;
            machine.restore(proc, EvictCause::Suspend)?;
            machine.converge();
            same("no cause left", fake.mapped(), 1)
        })
    }

    #[test]
    fn stopped_queue_runs_when_it_is_started() -> Result {
        each(|fake, machine| {
            let proc = machine.attach(process(7))?;
            let mut stopped = pm4(0);
            stopped.percent = 0;
            let queue = machine.create_queue(proc, stopped, QueueHold::default())?;
            machine.converge();
            same("stopped", fake.mapped(), 0)?;
            update(machine, proc, queue, percent(100))?;
            same("started", fake.mapped(), 1)?;
            update(machine, proc, queue, percent(0))?;
            same("stopped again", fake.mapped(), 0)
        })
    }

    #[test]
    fn updated_queue_comes_back_with_its_new_ring() -> Result {
        each(|fake, machine| {
            let proc = machine.attach(process(7))?;
            let queue = create(machine, proc, 0)?;
            create(machine, proc, 1)?;
            machine.converge();
            let ring = 0x7abc_de00_0000;
            let change = QueueUpdate {
                ring_base: Some(ring),
                ..QueueUpdate::default()
            };
            update(machine, proc, queue, change)?;
            same("queues", fake.mapped_of(7), 2)?;
            let word = mqd_word(fake, mqd(machine, proc, queue)?, at::CP_HQD_PQ_BASE_LO);
            same("ring", word, Some((ring >> 8) as u32)) // CAST: The low half is meant.
        })
    }

    #[test]
    fn changed_address_space_is_installed_anew() -> Result {
        each(|fake, machine| {
            let proc = machine.attach(process(7))?;
            create(machine, proc, 0)?;
            machine.converge();
            let _ = fake.log();
            machine.update_process(proc, |params| params.tba = 0x1000)?;
            machine.converge();
            let installed = fake
                .log()
                .iter()
                .any(|event| matches!(event, Event::Process { pasid: 7, .. } | Event::Bind(_, 7)));
            same("installed", installed, true)?;
            same("queues", fake.mapped_of(7), 1)
        })
    }

    #[test]
    fn memory_is_kept_until_the_hardware_is_done() -> Result {
        each(|fake, machine| {
            let count = Arc::new(Atomic::new(0), GFP_KERNEL)?;
            let mut params = process(7);
            params.keep = Some(Token::keep(&count)?);
            let proc = machine.attach(params)?;
            for spec in [pm4(0), sdma(100, 0, 0)] {
                let hold = QueueHold {
                    keep: Some(Token::keep(&count)?),
                    ..QueueHold::default()
                };
                machine.create_queue(proc, spec, hold)?;
            }
            machine.converge();
            let _ = machine.doom_process(proc, true);
            let garbage = machine.state.lock().take_garbage();
            drop(garbage);
            same("kept while mapped", count.load(Relaxed), 3)?;
            machine.converge();
            same("mapped", fake.mapped(), 0)?;
            let garbage = machine.state.lock().take_garbage();
            drop(garbage);
            same("kept afterwards", count.load(Relaxed), 0)
        })
    }

    #[test]
    fn queue_that_refuses_is_reset_alone() -> Result {
        each(|fake, machine| {
            let proc = machine.attach(process(7))?;
            let other = machine.attach(process(8))?;
            let hung = create(machine, proc, 1)?;
            create(machine, proc, 2)?;
            create(machine, other, 3)?;
            machine.converge();
            fake.set_mode(Mode::Refuses(doorbell(1).dword()));
            evict(machine, proc, EvictCause::Memory)?;
            same("health", machine.health(), Health::Running)?;
            restore(machine, proc, EvictCause::Memory)?;
            // It does not run again, all others do.
            same("of the process", fake.mapped_of(7), 1)?;
            same("of the other", fake.mapped_of(8), 1)?;
            let stats = machine.counters.snapshot();
            same("resets", (stats.refusals, stats.queue_resets), (1, 1))?;
            destroy(machine, proc, hung)
        })
    }

    #[test]
    fn hardware_that_does_not_let_go_wedges_until_a_reset() -> Result {
        each(|fake, machine| {
            let proc = machine.attach(process(7))?;
            create(machine, proc, 1)?;
            create(machine, proc, 2)?;
            machine.converge();
            fake.set_mode(Mode::Stubborn(doorbell(1).dword()));
            let _ = machine.begin_evict(proc, EvictCause::Memory)?;
            machine.converge();
            same("health", machine.health(), Health::Wedged)?;
            same("create", create(machine, proc, 3).err(), Some(EIO))?;
            fake.reset();
            machine.after_reset()?;
            machine.converge();
            restore(machine, proc, EvictCause::Memory)?;
            // The one to blame stays off.
            same("queues", fake.mapped_of(7), 1)?;
            same("VMIDs", fake.tenants() <= 1, true)
        })
    }

    #[test]
    fn suspended_scheduler_takes_changes_and_goes_on() -> Result {
        each(|fake, machine| {
            let proc = machine.attach(process(7))?;
            let first = create(machine, proc, 1)?;
            create(machine, proc, 2)?;
            machine.converge();
            for round in 0..2 {
                machine.suspend()?;
                machine.suspend()?;
                same("suspended", (fake.mapped(), fake.tenants()), (0, 0))?;
                let _ = fake.log();
                if round == 0 {
                    create(machine, proc, 3)?;
                    destroy(machine, proc, first)?;
                    evict(machine, proc, EvictCause::Memory)?;
                    restore(machine, proc, EvictCause::Memory)?;
                }
                machine.converge();
                machine.watch();
                same("said meanwhile", fake.log().len(), 0)?;
                machine.resume()?;
                machine.resume()?;
                machine.converge();
                same("resumed", fake.mapped_of(7), 2)?;
            }
            machine.suspend()?;
            Ok(())
        })
    }

    #[test]
    fn who_waits_hears_of_a_suspend() -> Result {
        each(|fake, machine| {
            let proc = machine.attach(process(7))?;
            let queue = create(machine, proc, 0)?;
            create(machine, proc, 1)?;
            machine.converge();
            // Asked for before the suspend, which comes before the worker.
            let destroyed = machine.doom_queue(proc, queue, false);
            let evicted = machine.begin_evict(proc, EvictCause::Memory)?;
            machine.suspend()?;
            same("mapped queues", fake.mapped(), 0)?;
            machine.converge();
            for pending in [destroyed, evicted] {
                let Pending::Change(change) = pending else {
                    return Err(EINVAL);
                };
                machine.wait(change, Sleep::Uninterruptible)?;
            }
            let record = machine.state.lock().collect_queue(queue);
            same("record of the queue", record.is_some(), true)?;
            machine.resume()
        })
    }

    #[test]
    fn device_that_vanishes_takes_no_more_changes() -> Result {
        each(|fake, machine| {
            let proc = machine.attach(process(7))?;
            let queue = create(machine, proc, 1)?;
            machine.converge();
            fake.set_mode(Mode::Gone);
            let _ = machine.doom_queue(proc, queue, true);
            machine.converge();
            same("health", machine.health(), Health::Gone)?;
            same("create", create(machine, proc, 3).err(), Some(ENODEV))?;
            // As a removal does, so that the end of the test finds nothing.
            fake.reset();
            Ok(())
        })
    }

    #[test]
    fn callers_wait_for_a_worker_of_any_kind() -> Result {
        for policy in POLICIES {
            let fake = Fake::new(&GFX90A)?;
            let machine = working_machine(&fake, with(policy))?;
            let count = Arc::new(Atomic::new(0), GFP_KERNEL)?;
            for round in 0..2_u16 {
                let proc = machine.attach(process(round + 1))?;
                let mut queues = KVec::new();
                for n in 0..20 {
                    let hold = QueueHold {
                        keep: Some(Token::keep(&count)?),
                        ..QueueHold::default()
                    };
                    queues.push(machine.create_queue(proc, pm4(n), hold)?, GFP_KERNEL)?;
                }
                for queue in queues.iter().step_by(2) {
                    machine.update_queue(proc, *queue, percent(50))?;
                    machine.destroy_queue(proc, *queue)?;
                }
                machine.evict(proc, EvictCause::Userptr)?;
                assert_eq!(fake.mapped(), 0);
                machine.restore(proc, EvictCause::Userptr)?;
                let change = machine.state.lock().newest_change();
                machine.wait_settled(change)?;
                assert_eq!(fake.mapped(), 10);
                machine.detach(proc)?;
                assert_eq!(fake.mapped(), 0);
                assert_eq!(count.load(Relaxed), 0);
            }
            finish(&fake, machine)?;
        }
        Ok(())
    }
}
