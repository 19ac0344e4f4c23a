// SPDX-License-Identifier: GPL-2.0

//! What only the back end without firmware does: slots, VMIDs and saved pointers are its own business.

use kernel::{
    prelude::*,
    sync::Arc, //
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
        Event,
        Fake,
        Mode, //
    },
    fake_regs::STEP,
    health::Health,
    machine::Machine,
    params::{
        Config,
        Cwsr,
        EvictCause,
        Policy, //
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
use crate::hw::{
    asic::GFX90A,
    mqd::layout::compute as at, //
};

fn direct_config() -> Config {
    Config {
        policy: Policy::Direct,
        ..config()
    }
}

/// The scheduler without firmware.
fn direct() -> Result<(Arc<Fake>, Arc<Machine>)> {
    setup_with(direct_config())
}

#[kunit_tests(rkfd_sched_direct)]
mod without_firmware {
    use super::*;

    #[test]
    fn bring_up_says_nothing_to_the_firmware() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let machine = machine(&fake, direct_config())?;
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
        evict(&machine, proc, EvictCause::Memory)?;
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
            evict(&machine, proc, EvictCause::Memory)?;
            let word = mqd_word(&fake, mqd(&machine, proc, queue)?, at::CP_HQD_PQ_RPTR);
            assert_eq!(word, Some(round * STEP));
            restore(&machine, proc, EvictCause::Memory)?;
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
        evict(&machine, proc, EvictCause::Memory)?;
        let other = machine.attach(process(8))?;
        assert_eq!(create(&machine, other, 25).err(), Some(ENOSPC));
        restore(&machine, proc, EvictCause::Memory)?;
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
        evict(&machine, proc, EvictCause::Memory)?;
        restore(&machine, proc, EvictCause::Memory)?;
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
            let mqd = mqd(&machine, proc, queue)?;
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
}
