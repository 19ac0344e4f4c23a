// SPDX-License-Identifier: GPL-2.0

//! What only the back end without firmware does: slots, VMIDs and saved pointers are its own business.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    backend::load::next_unload,
    config::{
        Config,
        Policy, //
    },
    desired::queue::QueueHold,
    fake::{
        config,
        create,
        doorbell,
        finish,
        pm4,
        process,
        scheduler,
        sdma,
        setup_with,
        Event,
        Fake,
        Mode, //
    },
    fake_regs::STEP,
    lifecycle::Lifecycle,
    params::EvictCause,
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
use crate::hw::{
    asic::GFX90A,
    mqd::{
        layout::compute as at,
        Cwsr, //
    }, //
};

fn direct_config() -> Config {
    Config {
        policy: Policy::Direct,
        ..config()
    }
}

/// The scheduler without firmware.
fn direct() -> Result<(Arc<Fake>, Arc<Worker>)> {
    setup_with(direct_config())
}

#[kunit_tests(rkfd_sched_direct)]
mod without_firmware {
    use super::*;

    #[test]
    fn bring_up_says_nothing_to_the_firmware() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = scheduler(&fake, direct_config())?;
        assert!(fake.log().is_empty());
        assert_eq!(fake.doorbells(), 0);
        sched.ping()?;
        finish(&fake, sched)
    }

    #[test]
    fn process_has_a_vmid_while_it_has_queues() -> Result {
        let (fake, sched) = direct()?;
        let proc = sched.attach(process(7))?;
        let first = create(&sched, proc, 1)?;
        let second = create(&sched, proc, 2)?;
        sched.converge();
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
        destroy(&sched, proc, first)?;
        assert_eq!(fake.log().as_slice(), &[Event::Dequeue(1, 2)]);
        destroy(&sched, proc, second)?;
        assert_eq!(
            fake.log().as_slice(),
            &[Event::Dequeue(2, 2), Event::Unbind(3)]
        );
        finish(&fake, sched)
    }

    #[test]
    fn evicted_queue_is_drained_or_saved() -> Result {
        let (fake, sched) = direct()?;
        let proc = sched.attach(process(7))?;
        create(&sched, proc, 1)?;
        let mut saving = pm4(2);
        let sizes = GFX90A.cwsr;
        saving.cwsr = Some(Cwsr {
            base: 0x7c00_0000_0000,
            bytes: sizes.cwsr,
            ctl_stack: sizes.ctl_stack,
        });
        sched.create_queue(proc, saving, QueueHold::default())?;
        sched.create_queue(proc, sdma(100, 1, 3), QueueHold::default())?;
        sched.converge();
        let _ = fake.log();
        evict(&sched, proc, EvictCause::Memory)?;
        assert_eq!(
            fake.log().as_slice(),
            &[
                Event::Dequeue(1, 1),
                Event::Dequeue(2, 3),
                Event::Dequeue(100, 0),
                Event::Unbind(3)
            ]
        );
        finish(&fake, sched)
    }

    #[test]
    fn saved_pointers_are_loaded_again() -> Result {
        let (fake, sched) = direct()?;
        let proc = sched.attach(process(7))?;
        let queue = create(&sched, proc, 1)?;
        sched.converge();
        for round in 1..=3 {
            evict(&sched, proc, EvictCause::Memory)?;
            let word = mqd_word(&fake, mqd(&sched, proc, queue)?, at::CP_HQD_PQ_RPTR);
            assert_eq!(word, Some(round * STEP));
            restore(&sched, proc, EvictCause::Memory)?;
            assert_eq!(fake.mapped(), 1);
        }
        finish(&fake, sched)
    }

    #[test]
    fn slots_run_out_with_an_error() -> Result {
        let (fake, sched) = direct()?;
        let proc = sched.attach(process(7))?;
        let first = create(&sched, proc, 0)?;
        for n in 1..24 {
            create(&sched, proc, n)?;
        }
        assert_eq!(create(&sched, proc, 24).err(), Some(ENOSPC));
        // Room of evicted queues is theirs.
        sched.converge();
        evict(&sched, proc, EvictCause::Memory)?;
        let other = sched.attach(process(8))?;
        assert_eq!(create(&sched, other, 25).err(), Some(ENOSPC));
        restore(&sched, proc, EvictCause::Memory)?;
        assert_eq!(fake.mapped(), 24);
        // A queue that does not run takes no room until it is to run.
        let mut stopped = pm4(26);
        stopped.percent = 0;
        let waits = sched.create_queue(other, stopped, QueueHold::default())?;
        let started = sched.begin_update(other, waits, percent(100));
        assert_eq!(started.err(), Some(ENOSPC));
        update(&sched, proc, first, percent(0))?;
        update(&sched, other, waits, percent(100))?;
        assert_eq!((fake.mapped_of(7), fake.mapped_of(8)), (23, 1));
        let refused = sched.begin_update(proc, first, percent(100));
        assert_eq!(refused.err(), Some(ENOSPC));
        finish(&fake, sched)
    }

    #[test]
    fn vmids_run_out_with_an_error() -> Result {
        let (fake, sched) = direct()?;
        let mut procs = KVec::new();
        for pasid in 1..=13 {
            let proc = sched.attach(process(pasid))?;
            create(&sched, proc, pasid.into())?;
            procs.push(proc, GFP_KERNEL)?;
        }
        let late = sched.attach(process(14))?;
        assert_eq!(create(&sched, late, 14).err(), Some(ENOSPC));
        let slotless = sched.create_queue(late, sdma(100, 0, 0), QueueHold::default());
        assert_eq!(slotless.err(), Some(ENOSPC));
        sched.converge();
        assert_eq!(fake.tenants(), 13);
        let first = procs.first().copied().ok_or(EINVAL)?;
        let _ = sched.begin_detach(first, true);
        // The VMID is free as soon as the process is gone, even if the hardware lags behind.
        create(&sched, late, 14)?;
        sched.converge();
        assert_eq!((fake.tenants(), fake.mapped_of(14)), (13, 1));
        finish(&fake, sched)
    }

    #[test]
    fn slot_of_a_reset_queue_serves_again() -> Result {
        let (fake, sched) = direct()?;
        let proc = sched.attach(process(7))?;
        for n in 0..24 {
            create(&sched, proc, n)?;
        }
        sched.converge();
        fake.set_mode(Mode::Refuses(doorbell(5).dword()));
        evict(&sched, proc, EvictCause::Memory)?;
        restore(&sched, proc, EvictCause::Memory)?;
        assert_eq!(fake.mapped(), 23);
        create(&sched, proc, 24)?;
        sched.converge();
        assert_eq!(fake.mapped(), 24);
        finish(&fake, sched)
    }

    #[test]
    fn slot_is_in_use_until_its_queue_has_left() -> Result {
        const SLOW_US: u64 = 5000;
        let (fake, sched) = direct()?;
        let proc = sched.attach(process(7))?;
        let queue = create(&sched, proc, 1)?;
        sched.converge();
        let _ = fake.log();
        let start = fake.elapsed();
        fake.set_mode(Mode::Slow(SLOW_US));
        evict(&sched, proc, EvictCause::Memory)?;
        assert!(fake.elapsed() >= start + SLOW_US);
        // It was waited for and not reset, and its VMID was given back afterwards: a breach if not.
        assert_eq!(fake.mapped(), 0);
        assert_eq!(
            fake.log().as_slice(),
            &[Event::Dequeue(1, 1), Event::Unbind(3)]
        );
        let word = mqd_word(&fake, mqd(&sched, proc, queue)?, at::CP_HQD_PQ_RPTR);
        assert_eq!(word, Some(STEP));
        restore(&sched, proc, EvictCause::Memory)?;
        assert_eq!(fake.mapped(), 1);
        finish(&fake, sched)
    }

    #[test]
    fn sdma_engine_that_does_not_stop_wedges() -> Result {
        let (fake, sched) = direct()?;
        let proc = sched.attach(process(7))?;
        sched.create_queue(proc, sdma(100, 0, 0), QueueHold::default())?;
        sched.converge();
        fake.set_mode(Mode::Stubborn(doorbell(100).dword()));
        let _ = sched.begin_evict(proc, EvictCause::Memory)?;
        sched.converge();
        assert_eq!(sched.core.life(), Lifecycle::Wedged);
        fake.reset();
        finish(&fake, sched)
    }

    #[test]
    fn queue_whose_descriptor_cannot_be_read_is_not_loaded() -> Result {
        for spec in [pm4(1), sdma(101, 0, 0)] {
            let (fake, sched) = direct()?;
            let proc = sched.attach(process(7))?;
            let queue = sched.create_queue(proc, spec, QueueHold::default())?;
            let mqd = mqd(&sched, proc, queue)?;
            assert!(fake.cut(mqd + 8));
            sched.converge();
            assert_eq!(sched.core.life(), Lifecycle::Wedged);
            assert_eq!(fake.mapped(), 0);
            let loaded = |event: &Event| matches!(event, Event::Load { .. });
            assert!(!fake.log().iter().any(loaded));
            finish(&fake, sched)?;
        }
        Ok(())
    }

    #[test]
    fn queues_leave_in_the_order_in_which_that_was_asked_for() -> Result {
        let (fake, sched) = direct()?;
        let proc = sched.attach(process(1))?;
        let mut queues = KVec::new();
        for n in 0..4 {
            queues.push(create(&sched, proc, n)?, GFP_KERNEL)?;
        }
        sched.converge();
        // Those who come later must not make the others wait, wherever they are in the table.
        let order = [2, 0, 3, 1];
        for n in order {
            let queue = queues.get(n).ok_or(EINVAL)?;
            let _ = sched.begin_update(proc, *queue, percent(50))?;
        }
        for n in order {
            let request = next_unload(&mut sched.core.state.lock(), false).ok_or(ENOENT)?;
            assert_eq!(Some(&request.queue), queues.get(n));
        }
        fake.reset();
        sched.after_reset()?;
        finish(&fake, sched)
    }
}
