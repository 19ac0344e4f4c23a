// SPDX-License-Identifier: GPL-2.0

//! Bring-up, limits of the hardware, and what is refused. The test is the worker.

use kernel::prelude::*;

use super::{
    config::{
        Config,
        Policy, //
    },
    desired::{
        queue::QueueHold,
        state::COMPUTE_SLOTS, //
    },
    fake::{
        config,
        create,
        finish,
        pm4,
        process,
        scheduler,
        sdma,
        setup,
        Fake,
        WAIT_TIME2, //
    },
    params::{
        EvictCause,
        QueueUpdate, //
    },
    steps::destroy, //
};
use crate::hw::{
    asic::{
        GFX906,
        GFX90A, //
    },
    mqd::Cwsr, //
};

use super::fake::Event::{
    Chain,
    Fence,
    List,
    Process,
    Queue,
    Resources,
    Sdma,
    UnmapAll,
    WaitTime2, //
};

#[kunit_tests(rkfd_sched_limits)]
mod limits {
    use super::*;

    #[test]
    fn bring_up_of_gfx90a() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = scheduler(&fake, config())?;
        let wait = WAIT_TIME2 & !0xff | 1;
        assert_eq!(
            fake.log().as_slice(),
            &[
                Resources {
                    vmids: 0xfff8,
                    latency: 40,
                    xnack: false
                },
                WaitTime2(wait),
                Fence,
            ]
        );
        finish(&fake, sched)
    }

    #[test]
    fn bring_up_of_gfx906() -> Result {
        let fake = Fake::new(&GFX906)?;
        let sched = scheduler(&fake, config())?;
        assert_eq!(
            fake.log().as_slice(),
            &[
                Resources {
                    vmids: 0xff00,
                    latency: 40,
                    xnack: false
                },
                Fence
            ]
        );
        finish(&fake, sched)
    }

    #[test]
    fn xnack_check_follows_the_firmware() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = scheduler(
            &fake,
            Config {
                mec_firmware: 98,
                ..config()
            },
        )?;
        assert_eq!(
            fake.log().first().copied(),
            Some(Resources {
                vmids: 0xfff8,
                latency: 40,
                xnack: true
            })
        );
        finish(&fake, sched)
    }

    #[test]
    fn bad_updates_change_nothing() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let queue = create(&sched, proc, 1)?;
        sched.converge();
        let _ = fake.log();
        for update in [
            QueueUpdate {
                ring_size: Some(0x1001),
                ..QueueUpdate::default()
            },
            QueueUpdate {
                ring_base: Some(0x7f00_0000_0080),
                ..QueueUpdate::default()
            },
            QueueUpdate {
                priority: Some(16),
                ..QueueUpdate::default()
            },
            QueueUpdate {
                percent: Some(101),
                ..QueueUpdate::default()
            },
        ] {
            assert_eq!(sched.begin_update(proc, queue, update).err(), Some(EINVAL));
        }
        assert_eq!(
            sched
                .begin_update(proc, queue + 1, QueueUpdate::default())
                .err(),
            Some(ENOENT)
        );
        sched.converge();
        assert!(fake.log().is_empty());
        finish(&fake, sched)
    }

    #[test]
    fn bad_queues_are_refused() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let blocks = fake.blocks();
        let mut specs = KVec::new();
        for change in 0..6 {
            let mut spec = pm4(1);
            match change {
                0 => spec.ring_size = 0x1800,
                1 => spec.ring_size = 512,
                2 => spec.ring_base += 0x80,
                3 => spec.wptr += 2,
                4 => spec.priority = 16,
                _ => {
                    spec.cwsr = Some(Cwsr {
                        base: 0x1000,
                        bytes: 0x1000,
                        ctl_stack: 12,
                    })
                }
            }
            specs.push(spec, GFP_KERNEL)?;
        }
        for spec in &specs {
            let refused = sched.create_queue(proc, *spec, QueueHold::default());
            assert_eq!(refused.err(), Some(EINVAL));
        }
        let nobody = sched.create_queue(proc + 77, pm4(1), QueueHold::default());
        assert_eq!(nobody.err(), Some(ESRCH));
        assert_eq!(fake.blocks(), blocks);
        assert_eq!(sched.core.load().queues, 0);
        finish(&fake, sched)
    }

    #[test]
    fn pasids_are_unique_and_not_zero() -> Result {
        let (fake, sched) = setup()?;
        assert_eq!(sched.attach(process(0)).err(), Some(EINVAL));
        let proc = sched.attach(process(7))?;
        assert_eq!(sched.attach(process(7)).err(), Some(EBUSY));
        let _ = sched.begin_detach(proc, true);
        let again = sched.attach(process(7))?;
        assert!(again != proc);
        finish(&fake, sched)
    }

    #[test]
    fn twenty_four_queues_fit_and_one_more_makes_a_tail() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        for n in 0..24 {
            create(&sched, proc, n)?;
        }
        sched.converge();
        assert!(!fake.log().contains(&Chain));
        create(&sched, proc, 24)?;
        sched.converge();
        let log = fake.log();
        assert_eq!(log.get(2).copied(), Some(List { processes: 1 }));
        assert_eq!(log.last().copied(), Some(Chain));
        assert_eq!(sched.core.counters.snapshot().oversubscribed, 1);
        assert!(sched.core.load().active_compute > COMPUTE_SLOTS);
        finish(&fake, sched)
    }

    #[test]
    fn sdma_queues_take_no_compute_slot() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        for n in 0..24 {
            create(&sched, proc, n)?;
        }
        let spec = sdma(100, 3, 0);
        sched.create_queue(proc, spec, QueueHold::default())?;
        sched.converge();
        let log = fake.log();
        assert_eq!(log.last().copied(), Some(Sdma(3, 100)));
        assert_eq!(sched.core.load().active_sdma, 1);
        finish(&fake, sched)
    }

    #[test]
    fn more_processes_than_vmids_make_a_tail() -> Result {
        for (asic, vmids) in [(&GFX90A, 13_u16), (&GFX906, 8)] {
            let fake = Fake::new(asic)?;
            let sched = scheduler(&fake, config())?;
            for pasid in 1..=vmids {
                let proc = sched.attach(process(pasid))?;
                create(&sched, proc, pasid.into())?;
            }
            sched.converge();
            assert!(!fake.log().contains(&Chain));
            let proc = sched.attach(process(99))?;
            create(&sched, proc, 99)?;
            sched.converge();
            let log = fake.log();
            assert!(log.contains(&List {
                processes: vmids.into()
            }));
            assert_eq!(log.last().copied(), Some(Chain));
            // A process without queues needs no VMID.
            sched.attach(process(100))?;
            assert_eq!(sched.core.load().active_processes, usize::from(vmids) + 1);
            finish(&fake, sched)?;
        }
        Ok(())
    }

    #[test]
    fn fewer_processes_per_turn_on_request() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = scheduler(
            &fake,
            Config {
                turn_processes: Some(2),
                ..config()
            },
        )?;
        for pasid in 1..=3 {
            let proc = sched.attach(process(pasid))?;
            create(&sched, proc, pasid.into())?;
        }
        sched.converge();
        let log = fake.log();
        assert!(log.contains(&List { processes: 2 }));
        assert_eq!(log.last().copied(), Some(Chain));
        finish(&fake, sched)
    }

    #[test]
    fn over_subscribed_list_is_unmapped_as_a_whole() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let first = create(&sched, proc, 0)?;
        for n in 1..25 {
            create(&sched, proc, n)?;
        }
        sched.converge();
        let _ = fake.log();
        destroy(&sched, proc, first)?;
        let log = fake.log();
        assert_eq!(
            log.get(..3),
            Some(&[UnmapAll, Fence, List { processes: 1 }][..])
        );
        assert!(!log.contains(&Chain));
        finish(&fake, sched)
    }

    #[test]
    fn strict_policy_refuses_what_does_not_fit() -> Result {
        let fake = Fake::new(&GFX906)?;
        let sched = scheduler(
            &fake,
            Config {
                policy: Policy::Strict,
                ..config()
            },
        )?;
        let proc = sched.attach(process(1))?;
        for n in 0..24 {
            create(&sched, proc, n)?;
        }
        assert_eq!(create(&sched, proc, 24).err(), Some(ENOSPC));
        let other = sched.attach(process(2))?;
        assert_eq!(create(&sched, other, 25).err(), Some(ENOSPC));
        // SDMA queues take no slot; stopped queues neither.
        sched.create_queue(other, sdma(100, 0, 0), QueueHold::default())?;
        let mut stopped = pm4(26);
        stopped.percent = 0;
        sched.create_queue(other, stopped, QueueHold::default())?;
        sched.converge();
        finish(&fake, sched)
    }

    #[test]
    fn limit_of_queues_is_kept() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = scheduler(
            &fake,
            Config {
                max_queues: 2,
                ..config()
            },
        )?;
        let proc = sched.attach(process(1))?;
        let first = create(&sched, proc, 1)?;
        create(&sched, proc, 2)?;
        assert_eq!(create(&sched, proc, 3).err(), Some(ENOSPC));
        destroy(&sched, proc, first)?;
        create(&sched, proc, 3)?;
        sched.converge();
        finish(&fake, sched)
    }

    #[test]
    fn processes_of_one_retry_mode_come_together() -> Result {
        let (fake, sched) = setup()?;
        for (pasid, config) in [(1, 0x1018), (2, 0x18), (3, 0x1018)] {
            let mut params = process(pasid);
            params.sh_mem_config = config;
            let proc = sched.attach(params)?;
            create(&sched, proc, pasid.into())?;
        }
        sched.converge();
        assert_eq!(
            fake.log().as_slice(),
            &[
                List { processes: 3 },
                Process {
                    pasid: 1,
                    queues: 1
                },
                Queue(1),
                Process {
                    pasid: 3,
                    queues: 1
                },
                Queue(3),
                Process {
                    pasid: 2,
                    queues: 1
                },
                Queue(2),
            ]
        );
        finish(&fake, sched)
    }

    #[test]
    fn list_is_edited_in_place() -> Result {
        let (fake, sched) = setup()?;
        let written = || sched.core.counters.snapshot().runlist_written;
        let mut procs = KVec::new();
        for pasid in 1..=10 {
            let proc = sched.attach(process(pasid))?;
            create(&sched, proc, pasid.into())?;
            procs.push(proc, GFP_KERNEL)?;
        }
        sched.converge();
        // 21 dwords of MAP_PROCESS and 7 of MAP_QUEUES each.
        assert_eq!(written(), 280);
        let last = procs.last().copied().ok_or(EINVAL)?;
        // What was added comes last, in a dozen words: the line it begins in and the next ones.
        let added = create(&sched, last, 20)?;
        sched.converge();
        let before = written();
        assert!(before - 280 <= 48);
        // The same list again takes no write at all.
        let _ = sched.begin_evict(last, EvictCause::Memory)?;
        sched.converge();
        let evicted = written();
        sched.restore(last, EvictCause::Memory)?;
        sched.converge();
        assert_eq!(written() - evicted, 0);
        // What lies in front stays when something goes behind it.
        let first = procs.first().copied().ok_or(EINVAL)?;
        let _ = sched.begin_destroy(last, added, true);
        create(&sched, last, 21)?;
        sched.converge();
        assert!(written() - evicted <= 48);
        // And what is told apart moves when something goes from the front.
        let _ = sched.begin_detach(first, true);
        create(&sched, last, 22)?;
        sched.converge();
        assert!(written() - evicted >= 128);
        assert_eq!(fake.mapped(), 11);
        finish(&fake, sched)
    }

    #[test]
    fn list_memory_grows_with_the_queues() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let before = sched.core.state.lock().buffers.capacity();
        for n in 0..160 {
            create(&sched, proc, n)?;
        }
        assert!(sched.core.state.lock().buffers.capacity() > before);
        sched.converge();
        assert_eq!(fake.mapped(), 160);
        let stats = sched.core.counters.snapshot();
        assert_eq!(stats.queues_mapped, 160);
        assert_eq!(stats.runlist_dwords, 21 + 160 * 7 + 4);
        finish(&fake, sched)
    }
}
