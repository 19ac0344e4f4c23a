// SPDX-License-Identifier: GPL-2.0

//! What every back end owes its callers, on every ASIC: the same scenes with scheduler firmware, with
//! firmware and no over-subscription, and without firmware. What only the last one does comes after.

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
        setup_with,
        working_machine,
        Event,
        Fake,
        Mode,
        Token, //
    },
    fake_regs::STEP,
    machine::{
        Health,
        Machine, //
    },
    params::{
        Config,
        Cwsr,
        EvictCause,
        Policy,
        QueueUpdate, //
    },
    record::QueueHold, //
};
use crate::hw::{
    asic::{
        GFX906,
        GFX90A, //
    },
    mqd::layout::compute as at, //
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

/// The scheduler without firmware.
fn direct() -> Result<(Arc<Fake>, Arc<Machine>)> {
    setup_with(with(Policy::Direct))
}

/// Fails with a message; [`each`] says for which back end.
fn same<T: PartialEq + core::fmt::Debug>(what: &str, found: T, wanted: T) -> Result {
    if found == wanted {
        return Ok(());
    }
    pr_err!("{what}: {found:?}, not {wanted:?}\n");
    Err(EINVAL)
}

/// Destroys a queue; the test is the worker.
fn destroy(machine: &Arc<Machine>, proc: u64, queue: u64) -> Result {
    let _ = machine.doom_queue(proc, queue, false);
    machine.converge();
    let node = machine.state.lock().collect_queue(queue);
    same("record of a destroyed queue", node.is_some(), true)
}

fn evict(machine: &Arc<Machine>, proc: u64) -> Result {
    let _ = machine.begin_evict(proc, EvictCause::Memory)?;
    machine.converge();
    Ok(())
}

fn restore(machine: &Arc<Machine>, proc: u64) -> Result {
    machine.restore(proc, EvictCause::Memory)?;
    machine.converge();
    Ok(())
}

fn update(machine: &Arc<Machine>, proc: u64, queue: u64, update: QueueUpdate) -> Result {
    let _ = machine.begin_update(proc, queue, update)?;
    machine.converge();
    Ok(())
}

fn percent(percent: u32) -> QueueUpdate {
    QueueUpdate {
        percent: Some(percent),
        ..QueueUpdate::default()
    }
}

/// Dword of a queue's descriptor as the device sees it.
fn mqd_word(fake: &Fake, machine: &Machine, proc: u64, queue: u64, dw: usize) -> Option<u32> {
    let mut state = machine.state.lock();
    let mqd = state.queue_mut(proc, queue).ok()?.mqd.gpu_addr();
    fake.load(mqd + dw as u64 * 4) // CAST: A small index.
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
            evict(machine, proc)?;
            same("evicted", fake.mapped(), 0)?;
            create(machine, proc, 2)?;
            machine.converge();
            same("created while evicted", fake.mapped(), 0)?;
            restore(machine, proc)?;
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
            evict(machine, proc)?;
            let _ = machine.begin_evict(proc, EvictCause::Suspend)?;
            restore(machine, proc)?;
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
            let word = mqd_word(fake, machine, proc, queue, at::CP_HQD_PQ_BASE_LO);
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
            evict(machine, proc)?;
            same("health", machine.health(), Health::Running)?;
            restore(machine, proc)?;
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
            restore(machine, proc)?;
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
                    evict(machine, proc)?;
                    restore(machine, proc)?;
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
    fn queues_leave_in_the_order_in_which_that_was_asked_for() -> Result {
        let (fake, machine) = direct()?;
        let proc = machine.attach(process(1))?;
        let mut queues = KVec::new();
        for n in 0..4 {
            queues.push(create(&machine, proc, n)?, GFP_KERNEL)?;
        }
        machine.converge();
        // Those who come later must not make the others wait, wherever they are in the table.
        let order = [2, 0, 3, 1];
        for n in order {
            let queue = queues.get(n).ok_or(EINVAL)?;
            let _ = machine.begin_update(proc, *queue, percent(50))?;
        }
        for n in order {
            let ticket = machine.state.lock().next_leaving(false).ok_or(ENOENT)?;
            assert_eq!(Some(&ticket.queue), queues.get(n));
        }
        fake.reset();
        machine.after_reset()?;
        finish(&fake, machine)
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

#[kunit_tests(rkfd_sched_direct)]
mod without_firmware {
    use super::*;

    #[test]
    fn bring_up_says_nothing_to_the_firmware() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let machine = machine(&fake, with(Policy::Direct))?;
        assert!(fake.log().is_empty());
        assert_eq!(fake.doorbells(), 0);
        machine.ping()?;
        finish(&fake, machine)
    }

    #[test]
    fn process_has_a_vmid_while_it_has_queues() -> Result {
        let (fake, machine) = direct()?;
        let proc = machine.attach(process(7))?;
        let first = create(&machine, proc, 1)?;
        let second = create(&machine, proc, 2)?;
        machine.converge();
        assert_eq!(
            fake.log().as_slice(),
            &[
                Event::Bind(3, 7),
                Event::Load {
                    vmid: 3,
                    doorbell: 1
                },
                Event::Load {
                    vmid: 3,
                    doorbell: 2
                },
            ]
        );
        // Nobody else is touched, and the waves of a destroyed queue are not worth saving.
        destroy(&machine, proc, first)?;
        assert_eq!(fake.log().as_slice(), &[Event::Dequeue(1, 2)]);
        destroy(&machine, proc, second)?;
        assert_eq!(
            fake.log().as_slice(),
            &[Event::Dequeue(2, 2), Event::Unbind(3)]
        );
        finish(&fake, machine)
    }

    #[test]
    fn evicted_queue_is_drained_or_saved() -> Result {
        let (fake, machine) = direct()?;
        let proc = machine.attach(process(7))?;
        create(&machine, proc, 1)?;
        let mut saving = pm4(2);
        let sizes = GFX90A.cwsr;
        saving.cwsr = Some(Cwsr {
            base: 0x7c00_0000_0000,
            size: sizes.cwsr,
            ctl_stack: sizes.ctl_stack,
        });
        machine.create_queue(proc, saving, QueueHold::default())?;
        machine.create_queue(proc, sdma(100, 1, 3), QueueHold::default())?;
        machine.converge();
        let _ = fake.log();
        evict(&machine, proc)?;
        assert_eq!(
            fake.log().as_slice(),
            &[
                Event::Dequeue(1, 1),
                Event::Dequeue(2, 3),
                Event::Dequeue(100, 0),
                Event::Unbind(3)
            ]
        );
        finish(&fake, machine)
    }

    #[test]
    fn saved_pointers_are_loaded_again() -> Result {
        let (fake, machine) = direct()?;
        let proc = machine.attach(process(7))?;
        let queue = create(&machine, proc, 1)?;
        machine.converge();
        for round in 1..=3 {
            evict(&machine, proc)?;
            let word = mqd_word(&fake, &machine, proc, queue, at::CP_HQD_PQ_RPTR);
            assert_eq!(word, Some(round * STEP));
            restore(&machine, proc)?;
            assert_eq!(fake.mapped(), 1);
        }
        finish(&fake, machine)
    }

    #[test]
    fn slots_run_out_with_an_error() -> Result {
        let (fake, machine) = direct()?;
        let proc = machine.attach(process(7))?;
        let first = create(&machine, proc, 0)?;
        for n in 1..24 {
            create(&machine, proc, n)?;
        }
        assert_eq!(create(&machine, proc, 24).err(), Some(ENOSPC));
        // Room of evicted queues is theirs.
        machine.converge();
        evict(&machine, proc)?;
        let other = machine.attach(process(8))?;
        assert_eq!(create(&machine, other, 25).err(), Some(ENOSPC));
        restore(&machine, proc)?;
        assert_eq!(fake.mapped(), 24);
        // A queue that does not run takes no room until it is to run.
        let mut stopped = pm4(26);
        stopped.percent = 0;
        let waits = machine.create_queue(other, stopped, QueueHold::default())?;
        let started = machine.begin_update(other, waits, percent(100));
        assert_eq!(started.err(), Some(ENOSPC));
        update(&machine, proc, first, percent(0))?;
        update(&machine, other, waits, percent(100))?;
        assert_eq!((fake.mapped_of(7), fake.mapped_of(8)), (23, 1));
        let refused = machine.begin_update(proc, first, percent(100));
        assert_eq!(refused.err(), Some(ENOSPC));
        finish(&fake, machine)
    }

    #[test]
    fn vmids_run_out_with_an_error() -> Result {
        let (fake, machine) = direct()?;
        let mut procs = KVec::new();
        for pasid in 1..=13 {
            let proc = machine.attach(process(pasid))?;
            create(&machine, proc, pasid.into())?;
            procs.push(proc, GFP_KERNEL)?;
        }
        let late = machine.attach(process(14))?;
        assert_eq!(create(&machine, late, 14).err(), Some(ENOSPC));
        let slotless = machine.create_queue(late, sdma(100, 0, 0), QueueHold::default());
        assert_eq!(slotless.err(), Some(ENOSPC));
        machine.converge();
        assert_eq!(fake.tenants(), 13);
        let first = procs.first().copied().ok_or(EINVAL)?;
        let _ = machine.doom_process(first, true);
        // The VMID is free as soon as the process is gone, even if the hardware lags behind.
        create(&machine, late, 14)?;
        machine.converge();
        assert_eq!((fake.tenants(), fake.mapped_of(14)), (13, 1));
        finish(&fake, machine)
    }

    #[test]
    fn slot_of_a_reset_queue_serves_again() -> Result {
        let (fake, machine) = direct()?;
        let proc = machine.attach(process(7))?;
        for n in 0..24 {
            create(&machine, proc, n)?;
        }
        machine.converge();
        fake.set_mode(Mode::Refuses(doorbell(5).dword()));
        evict(&machine, proc)?;
        restore(&machine, proc)?;
        assert_eq!(fake.mapped(), 23);
        create(&machine, proc, 24)?;
        machine.converge();
        assert_eq!(fake.mapped(), 24);
        finish(&fake, machine)
    }

    #[test]
    fn sdma_engine_that_does_not_stop_wedges() -> Result {
        let (fake, machine) = direct()?;
        let proc = machine.attach(process(7))?;
        machine.create_queue(proc, sdma(100, 0, 0), QueueHold::default())?;
        machine.converge();
        fake.set_mode(Mode::Stubborn(doorbell(100).dword()));
        let _ = machine.begin_evict(proc, EvictCause::Memory)?;
        machine.converge();
        assert_eq!(machine.health(), Health::Wedged);
        fake.reset();
        finish(&fake, machine)
    }

    #[test]
    fn queue_whose_descriptor_cannot_be_read_is_not_loaded() -> Result {
        for spec in [pm4(1), sdma(101, 0, 0)] {
            let (fake, machine) = direct()?;
            let proc = machine.attach(process(7))?;
            let queue = machine.create_queue(proc, spec, QueueHold::default())?;
            let mqd = machine.state.lock().queue_mut(proc, queue)?.mqd.gpu_addr();
            assert!(fake.cut(mqd + 8));
            machine.converge();
            assert_eq!(machine.health(), Health::Wedged);
            assert_eq!(fake.mapped(), 0);
            let loaded = |event: &Event| matches!(event, Event::Load { .. });
            assert!(!fake.log().iter().any(loaded));
            finish(&fake, machine)?;
        }
        Ok(())
    }
}
