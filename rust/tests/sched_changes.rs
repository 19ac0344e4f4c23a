// SPDX-License-Identifier: GPL-2.0

//! What comes of a queue's or a process' settings: what the firmware is told when they change, what
//! the descriptors say, and when memory is let go. The test is the worker, as in the scenes.

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
    desired::{
        plan::{
            plan,
            ActiveList,
            ProcessView,
            QueueView,
            Rules,
            Scope,
            Step, //
        },
        queue::QueueHold, //
    },
    fake::{
        create,
        doorbell,
        finish,
        pm4,
        process,
        sdma,
        setup,
        Token, //
    },
    params::{
        QueueKind,
        QueueUpdate, //
    },
    steps::{
        destroy,
        mqd,
        mqd_word,
        reap, //
    }, //
};
use crate::hw::mqd::layout::compute as at;

use super::fake::Event::{
    Fence,
    List,
    Process,
    Queue,
    UnmapAll,
    UnmapQueues, //
};

#[kunit_tests(rkfd_sched_changes)]
mod changes {
    use super::*;

    #[test]
    fn queue_leaves_a_list_that_goes_round_with_all_others() {
        let rules = Rules {
            coalesce: true,
            targeted: true,
            gathered: false,
        };
        let queue = |doorbell, wanted: bool| QueueView {
            doorbell,
            is_compute: true,
            on_hardware: true,
            wanted,
            must_leave: !wanted,
        };
        // The firmware would map it again from a list that it walks again and again.
        for (chained, scope) in [
            (false, Scope::Doorbells([2, 0, 0, 0], 1)),
            (true, Scope::Dynamic),
        ] {
            let list = ActiveList {
                chained,
                ..ActiveList::default()
            };
            let queues = [queue(2, false), queue(4, true)];
            let process = ProcessView {
                pasid: 1,
                ends_list: false,
            };
            let processes = core::iter::once((process, queues.into_iter()));
            let step = plan(Some(&list), rules, processes);
            assert_eq!(step, Step::Preempt(scope));
        }
    }

    #[test]
    fn update_writes_the_descriptor_between_two_mappings() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let queue = create(&sched, proc, 1)?;
        sched.converge();
        let mqd = mqd(&sched, proc, queue)?;
        let base = mqd_word(&fake, mqd, at::CP_HQD_PQ_BASE_LO);
        // The hardware saves its read pointer.
        // CAST: A small index.
        fake.store(mqd + at::CP_HQD_PQ_RPTR as u64 * 4, 0x123);
        let _ = fake.log();

        // The update waits for the worker, which this thread is.
        let update = QueueUpdate {
            ring_base: Some(0x7f55_0000_0000),
            ring_size: Some(0x10000),
            ..QueueUpdate::default()
        };
        let change = sched.begin_update(proc, queue, update)?;
        assert!(matches!(change, Pending::Change(_)));
        assert_eq!(mqd_word(&fake, mqd, at::CP_HQD_PQ_BASE_LO), base);
        sched.converge();
        assert_eq!(
            fake.log().as_slice(),
            &[
                UnmapAll,
                Fence,
                List { processes: 1 },
                Process {
                    pasid: 1,
                    queues: 1
                },
                Queue(1),
            ]
        );
        assert_eq!(
            mqd_word(&fake, mqd, at::CP_HQD_PQ_BASE_LO),
            Some(0x5500_0000)
        );
        assert_eq!(mqd_word(&fake, mqd, at::CP_HQD_PQ_RPTR), Some(0x123));
        // log2(0x10000 / 4) - 1
        let control = mqd_word(&fake, mqd, at::CP_HQD_PQ_CONTROL).unwrap_or(0);
        assert_eq!(control & 0x3f, 13);
        finish(&fake, sched)
    }

    #[test]
    fn update_beside_a_queue_that_runs_takes_one_preemption() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let queue = create(&sched, proc, 1)?;
        create(&sched, proc, 2)?;
        sched.converge();
        let _ = fake.log();
        let update = QueueUpdate {
            ring_size: Some(0x10000),
            ..QueueUpdate::default()
        };
        let _ = sched.begin_update(proc, queue, update)?;
        sched.converge();
        // It comes back with the list that follows, for which everything has to be off.
        assert_eq!(
            fake.log().as_slice(),
            &[
                UnmapAll,
                Fence,
                List { processes: 1 },
                Process {
                    pasid: 1,
                    queues: 2
                },
                Queue(1),
                Queue(2),
            ]
        );
        finish(&fake, sched)
    }

    #[test]
    fn percent_zero_stops_and_hundred_starts() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let queue = create(&sched, proc, 1)?;
        create(&sched, proc, 2)?;
        sched.converge();
        let _ = fake.log();
        let percent = |percent| QueueUpdate {
            percent: Some(percent),
            ..QueueUpdate::default()
        };
        let _ = sched.begin_update(proc, queue, percent(0))?;
        sched.converge();
        assert_eq!(fake.mapped(), 1);
        let _ = fake.log();
        let started = sched.begin_update(proc, queue, percent(100))?;
        assert!(matches!(started, Pending::Done));
        sched.converge();
        assert_eq!(
            fake.log().as_slice(),
            &[
                UnmapAll,
                Fence,
                List { processes: 1 },
                Process {
                    pasid: 1,
                    queues: 2
                },
                Queue(1),
                Queue(2),
            ]
        );
        finish(&fake, sched)
    }

    #[test]
    fn process_parameters_come_into_force_at_the_next_mapping() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        sched.update_process(proc, |params| params.tba = 0x10_0000)?;
        assert!(fake.log().is_empty());
        create(&sched, proc, 1)?;
        sched.converge();
        let _ = fake.log();
        sched.update_process(proc, |params| {
            params.tba = 0x20_0000;
            params.pasid = 5;
        })?;
        sched.converge();
        // The PASID stays.
        assert_eq!(
            fake.log().as_slice(),
            &[
                UnmapAll,
                Fence,
                List { processes: 1 },
                Process {
                    pasid: 1,
                    queues: 1
                },
                Queue(1),
            ]
        );
        assert_eq!(
            sched.update_process(proc, |params| params.tba = 0x80).err(),
            Some(EINVAL)
        );
        let state = sched.core.state.lock();
        assert_eq!(
            state.procs.get(&proc).map(|p| p.params.tba),
            Some(0x20_0000)
        );
        drop(state);
        finish(&fake, sched)
    }

    #[test]
    fn sdma_queue_leaves_with_the_whole_list() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        let queue = sched.create_queue(proc, sdma(100, 0, 1), QueueHold::default())?;
        sched.converge();
        let _ = fake.log();
        destroy(&sched, proc, queue)?;
        assert_eq!(
            fake.log().as_slice(),
            &[
                UnmapAll,
                Fence,
                List { processes: 1 },
                Process {
                    pasid: 1,
                    queues: 1
                },
                Queue(1),
            ]
        );
        finish(&fake, sched)
    }

    #[test]
    fn keep_alives_go_when_the_hardware_is_done() -> Result {
        let (fake, sched) = setup()?;
        let count = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let mut params = process(1);
        params.keep = Some(Token::keep(&count)?);
        let proc = sched.attach(params)?;
        let hold = QueueHold {
            keep: Some(Token::keep(&count)?),
            ..QueueHold::default()
        };
        sched.create_queue(proc, pm4(1), hold)?;
        sched.converge();
        let pending = sched.begin_detach(proc, false);
        assert!(matches!(pending, Pending::Change(_)));
        assert_eq!(count.load(Relaxed), 2);
        sched.converge();
        assert_eq!(fake.mapped(), 0);
        // Off the hardware, and now for whoever destroyed it to free.
        assert_eq!(count.load(Relaxed), 2);
        let node = sched.core.state.lock().collect_proc(proc);
        drop(node);
        assert_eq!(count.load(Relaxed), 0);
        finish(&fake, sched)
    }

    #[test]
    fn replaced_keep_alive_goes_when_the_update_is_in_force() -> Result {
        let (fake, sched) = setup()?;
        let old = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let new = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let proc = sched.attach(process(1))?;
        let hold = QueueHold {
            keep: Some(Token::keep(&old)?),
            ..QueueHold::default()
        };
        let queue = sched.create_queue(proc, pm4(1), hold)?;
        sched.converge();
        let update = QueueUpdate {
            ring_base: Some(0x7f55_0000_0000),
            keep: Some(Token::keep(&new)?),
            ..QueueUpdate::default()
        };
        let _ = sched.begin_update(proc, queue, update)?;
        assert_eq!((old.load(Relaxed), new.load(Relaxed)), (1, 1));
        sched.converge();
        drop(sched.core.state.lock().take_garbage());
        assert_eq!((old.load(Relaxed), new.load(Relaxed)), (0, 1));
        finish(&fake, sched)?;
        assert_eq!(new.load(Relaxed), 0);
        Ok(())
    }

    #[test]
    fn every_queue_type_has_its_descriptor() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let mut aql = pm4(2);
        aql.kind = QueueKind::Aql;
        let aql = sched.create_queue(proc, aql, QueueHold::default())?;
        let plain = create(&sched, proc, 1)?;
        let (aql, plain) = (mqd(&sched, proc, aql)?, mqd(&sched, proc, plain)?);
        assert_eq!(aql % 4096, 0);
        assert_eq!(mqd_word(&fake, aql, at::CP_HQD_AQL_CONTROL), Some(1));
        assert_eq!(mqd_word(&fake, plain, at::CP_HQD_AQL_CONTROL), Some(0));
        assert_eq!(
            mqd_word(&fake, plain, at::CP_HQD_PQ_DOORBELL_CONTROL),
            Some(doorbell(1).field())
        );
        // SDMA descriptors lie 512 bytes apart, by engine and queue.
        let a = sched.create_queue(proc, sdma(100, 0, 0), QueueHold::default())?;
        let b = sched.create_queue(proc, sdma(101, 1, 2), QueueHold::default())?;
        let (a, b) = (mqd(&sched, proc, a)?, mqd(&sched, proc, b)?);
        assert_eq!(b - a, 10 * 512);
        sched.converge();
        finish(&fake, sched)
    }

    #[test]
    fn descriptor_stays_as_long_as_the_list_that_names_it() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let first = create(&sched, proc, 1)?;
        create(&sched, proc, 2)?;
        sched.converge();
        let named = mqd(&sched, proc, first)?;
        let _ = fake.log();
        // Alone, so that the list with both stays.
        destroy(&sched, proc, first)?;
        assert_eq!(fake.log().as_slice(), &[UnmapQueues(1, 1), Fence]);
        assert!(fake.load(named).is_some());
        create(&sched, proc, 3)?;
        sched.converge();
        reap(&sched);
        assert!(fake.load(named).is_none());
        finish(&fake, sched)
    }

    #[test]
    fn address_space_stays_as_long_as_the_list_that_names_it() -> Result {
        let (fake, sched) = setup()?;
        let count = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let mut params = process(1);
        params.keep = Some(Token::keep(&count)?);
        let going = sched.attach(params)?;
        let queue = create(&sched, going, 1)?;
        let staying = sched.attach(process(2))?;
        create(&sched, staying, 2)?;
        sched.converge();
        destroy(&sched, going, queue)?;
        let _ = fake.log();
        // The list of both is still there, although nothing of the process is on the hardware.
        assert!(matches!(
            sched.begin_detach(going, true),
            Pending::Change(_)
        ));
        assert_eq!(count.load(Relaxed), 1);
        sched.converge();
        let list = [
            UnmapAll,
            Fence,
            List { processes: 1 },
            Process {
                pasid: 2,
                queues: 1,
            },
            Queue(2),
        ];
        assert_eq!(fake.log().as_slice(), &list);
        reap(&sched);
        assert_eq!(count.load(Relaxed), 0);
        finish(&fake, sched)
    }
}
