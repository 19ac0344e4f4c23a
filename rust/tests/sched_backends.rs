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
    changes::pending::Pending,
    config::{
        Config,
        Policy, //
    },
    desired::queue::QueueHold,
    diag::watchdog::Watchdog,
    fake::{
        config,
        create,
        doorbell,
        finish,
        pm4,
        process,
        scheduler,
        sdma,
        working_scheduler,
        Event,
        Fake,
        Mode,
        Token, //
    },
    lifecycle::Lifecycle,
    params::{
        EvictCause,
        QueueUpdate, //
    },
    steps::{
        destroy,
        evict,
        mqd,
        mqd_word,
        percent,
        restore,
        update, //
    },
    worker::Worker, //
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
fn each(scene: impl Fn(&Arc<Fake>, &Arc<Worker>) -> Result) -> Result {
    for asic in [&GFX90A, &GFX906] {
        for policy in POLICIES {
            let fake = Fake::new(asic)?;
            let sched = scheduler(&fake, with(policy))?;
            scene(&fake, &sched).inspect_err(|error| {
                pr_err!("{} with {policy:?}: {error:?}\n", asic.name);
            })?;
            finish(&fake, sched)?;
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
        each(|fake, sched| {
            let proc = sched.attach(process(7))?;
            let first = create(sched, proc, 0)?;
            create(sched, proc, 1)?;
            sched.create_queue(proc, sdma(100, 1, 0), QueueHold::default())?;
            sched.converge();
            same("created", fake.mapped_of(7), 3)?;
            destroy(sched, proc, first)?;
            same("one destroyed", fake.mapped_of(7), 2)?;
            evict(sched, proc, EvictCause::Memory)?;
            same("evicted", fake.mapped(), 0)?;
            create(sched, proc, 2)?;
            sched.converge();
            same("created while evicted", fake.mapped(), 0)?;
            restore(sched, proc, EvictCause::Memory)?;
            same("restored", fake.mapped_of(7), 3)?;
            let _ = sched.begin_detach(proc, true);
            sched.converge();
            same("detached", fake.mapped(), 0)?;
            same("VMIDs", fake.tenants(), 0)
        })
    }

    #[test]
    fn causes_of_eviction_add_up() -> Result {
        each(|fake, sched| {
            let proc = sched.attach(process(7))?;
            create(sched, proc, 0)?;
            sched.converge();
            evict(sched, proc, EvictCause::Memory)?;
            let _ = sched.begin_evict(proc, EvictCause::Suspend)?;
            restore(sched, proc, EvictCause::Memory)?;
            same("one cause left", fake.mapped(), 0)?;
            sched.restore(proc, EvictCause::Suspend)?;
            sched.converge();
            same("no cause left", fake.mapped(), 1)
        })
    }

    #[test]
    fn stopped_queue_runs_when_it_is_started() -> Result {
        each(|fake, sched| {
            let proc = sched.attach(process(7))?;
            let mut stopped = pm4(0);
            stopped.percent = 0;
            let queue = sched.create_queue(proc, stopped, QueueHold::default())?;
            sched.converge();
            same("stopped", fake.mapped(), 0)?;
            update(sched, proc, queue, percent(100))?;
            same("started", fake.mapped(), 1)?;
            update(sched, proc, queue, percent(0))?;
            same("stopped again", fake.mapped(), 0)
        })
    }

    #[test]
    fn updated_queue_comes_back_with_its_new_ring() -> Result {
        each(|fake, sched| {
            let proc = sched.attach(process(7))?;
            let queue = create(sched, proc, 0)?;
            create(sched, proc, 1)?;
            sched.converge();
            let ring = 0x7abc_de00_0000;
            let change = QueueUpdate {
                ring_base: Some(ring),
                ..QueueUpdate::default()
            };
            update(sched, proc, queue, change)?;
            same("queues", fake.mapped_of(7), 2)?;
            let word = mqd_word(fake, mqd(sched, proc, queue)?, at::CP_HQD_PQ_BASE_LO);
            same("ring", word, Some((ring >> 8) as u32)) // CAST: The low half is meant.
        })
    }

    #[test]
    fn changed_address_space_is_installed_anew() -> Result {
        each(|fake, sched| {
            let proc = sched.attach(process(7))?;
            create(sched, proc, 0)?;
            sched.converge();
            let _ = fake.log();
            sched.update_process(proc, |params| params.tba = 0x1000)?;
            sched.converge();
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
        each(|fake, sched| {
            let count = Arc::new(Atomic::new(0), GFP_KERNEL)?;
            let mut params = process(7);
            params.keep = Some(Token::keep(&count)?);
            let proc = sched.attach(params)?;
            for spec in [pm4(0), sdma(100, 0, 0)] {
                let hold = QueueHold {
                    keep: Some(Token::keep(&count)?),
                    ..QueueHold::default()
                };
                sched.create_queue(proc, spec, hold)?;
            }
            sched.converge();
            let _ = sched.begin_detach(proc, true);
            let garbage = sched.core.state.lock().take_garbage();
            drop(garbage);
            same("kept while mapped", count.load(Relaxed), 3)?;
            sched.converge();
            same("mapped", fake.mapped(), 0)?;
            let garbage = sched.core.state.lock().take_garbage();
            drop(garbage);
            same("kept afterwards", count.load(Relaxed), 0)
        })
    }

    #[test]
    fn queue_that_refuses_is_reset_alone() -> Result {
        each(|fake, sched| {
            let proc = sched.attach(process(7))?;
            let other = sched.attach(process(8))?;
            let hung = create(sched, proc, 1)?;
            create(sched, proc, 2)?;
            create(sched, other, 3)?;
            sched.converge();
            fake.set_mode(Mode::Refuses(doorbell(1).dword()));
            evict(sched, proc, EvictCause::Memory)?;
            same("life", sched.core.life(), Lifecycle::Running)?;
            restore(sched, proc, EvictCause::Memory)?;
            // It does not run again, all others do.
            same("of the process", fake.mapped_of(7), 1)?;
            same("of the other", fake.mapped_of(8), 1)?;
            let stats = sched.core.counters.snapshot();
            same("resets", (stats.refusals, stats.queue_resets), (1, 1))?;
            destroy(sched, proc, hung)
        })
    }

    #[test]
    fn hardware_that_does_not_let_go_wedges_until_a_reset() -> Result {
        each(|fake, sched| {
            let proc = sched.attach(process(7))?;
            create(sched, proc, 1)?;
            create(sched, proc, 2)?;
            sched.converge();
            fake.set_mode(Mode::Stubborn(doorbell(1).dword()));
            let _ = sched.begin_evict(proc, EvictCause::Memory)?;
            sched.converge();
            same("life", sched.core.life(), Lifecycle::Wedged)?;
            same("create", create(sched, proc, 3).err(), Some(EIO))?;
            fake.reset();
            sched.after_reset()?;
            sched.converge();
            restore(sched, proc, EvictCause::Memory)?;
            // The one at fault stays off.
            same("queues", fake.mapped_of(7), 1)?;
            same("VMIDs", fake.tenants() <= 1, true)
        })
    }

    #[test]
    fn suspended_scheduler_takes_changes_and_goes_on() -> Result {
        each(|fake, sched| {
            let proc = sched.attach(process(7))?;
            let first = create(sched, proc, 1)?;
            create(sched, proc, 2)?;
            sched.converge();
            for round in 0..2 {
                sched.suspend()?;
                sched.suspend()?;
                same("suspended", (fake.mapped(), fake.tenants()), (0, 0))?;
                let _ = fake.log();
                if round == 0 {
                    create(sched, proc, 3)?;
                    destroy(sched, proc, first)?;
                    evict(sched, proc, EvictCause::Memory)?;
                    restore(sched, proc, EvictCause::Memory)?;
                }
                sched.converge();
                Watchdog::new(sched)?.sample();
                same("said meanwhile", fake.log().len(), 0)?;
                sched.resume()?;
                sched.resume()?;
                sched.converge();
                same("resumed", fake.mapped_of(7), 2)?;
            }
            sched.suspend()?;
            Ok(())
        })
    }

    #[test]
    fn who_waits_hears_of_a_suspend() -> Result {
        each(|fake, sched| {
            let proc = sched.attach(process(7))?;
            let queue = create(sched, proc, 0)?;
            create(sched, proc, 1)?;
            sched.converge();
            // Asked for before the suspend, which comes before the worker.
            let destroyed = sched.begin_destroy(proc, queue, false);
            let evicted = sched.begin_evict(proc, EvictCause::Memory)?;
            sched.suspend()?;
            same("mapped queues", fake.mapped(), 0)?;
            sched.converge();
            for pending in [destroyed, evicted] {
                let Pending::Change(change) = pending else {
                    return Err(EINVAL);
                };
                sched.core.wait(change, Sleep::Uninterruptible)?;
            }
            let record = sched.core.state.lock().collect_queue(queue);
            same("record of the queue", record.is_some(), true)?;
            sched.resume()
        })
    }

    #[test]
    fn device_that_vanishes_takes_no_more_changes() -> Result {
        each(|fake, sched| {
            let proc = sched.attach(process(7))?;
            let queue = create(sched, proc, 1)?;
            sched.converge();
            fake.set_mode(Mode::Gone);
            let _ = sched.begin_destroy(proc, queue, true);
            sched.converge();
            same("life", sched.core.life(), Lifecycle::Gone)?;
            same("create", create(sched, proc, 3).err(), Some(ENODEV))?;
            // As a removal does, so that the end of the test finds nothing.
            fake.reset();
            Ok(())
        })
    }

    #[test]
    fn callers_wait_for_a_worker_of_any_kind() -> Result {
        for policy in POLICIES {
            let fake = Fake::new(&GFX90A)?;
            let sched = working_scheduler(&fake, with(policy))?;
            let count = Arc::new(Atomic::new(0), GFP_KERNEL)?;
            for round in 0..2_u16 {
                let proc = sched.attach(process(round + 1))?;
                let mut queues = KVec::new();
                for n in 0..20 {
                    let hold = QueueHold {
                        keep: Some(Token::keep(&count)?),
                        ..QueueHold::default()
                    };
                    queues.push(sched.create_queue(proc, pm4(n), hold)?, GFP_KERNEL)?;
                }
                for queue in queues.iter().step_by(2) {
                    sched.update_queue(proc, *queue, percent(50))?;
                    sched.destroy_queue(proc, *queue)?;
                }
                sched.evict(proc, EvictCause::Userptr)?;
                assert_eq!(fake.mapped(), 0);
                sched.restore(proc, EvictCause::Userptr)?;
                let change = sched.core.state.lock().newest_change();
                sched.core.wait_settled(change)?;
                assert_eq!(fake.mapped(), 10);
                sched.detach(proc)?;
                assert_eq!(fake.mapped(), 0);
                assert_eq!(count.load(Relaxed), 0);
            }
            finish(&fake, sched)?;
        }
        Ok(())
    }
}
