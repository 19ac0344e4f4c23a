// SPDX-License-Identifier: GPL-2.0

//! What the firmware is told, in order, when queues come and go. The test is the worker: it decides when
//! the scheduler converges.

use kernel::prelude::*;

use super::{
    changes::pending::Pending,
    config::Config,
    desired::plan::Step,
    fake::{
        config,
        create,
        finish,
        process,
        scheduler,
        setup,
        Fake, //
    },
    params::EvictCause,
    steps::{
        destroy,
        evict,
        percent,
        update, //
    }, //
};
use crate::{
    hw::asic::GFX90A,
    kapi::waitqueue::Sleep, //
};

use super::fake::Event::{
    Fence,
    List,
    Process,
    Queue,
    UnmapAll,
    UnmapProcess,
    UnmapQueues, //
};

#[kunit_tests(rkfd_sched_scenes)]
mod scenes {
    use super::*;

    #[test]
    fn first_queue_takes_one_list_and_no_preemption() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(9))?;
        sched.converge();
        assert!(fake.log().is_empty());
        create(&sched, proc, 1)?;
        sched.converge();
        assert_eq!(
            fake.log().as_slice(),
            &[
                List { processes: 1 },
                Process {
                    pasid: 9,
                    queues: 1
                },
                Queue(1)
            ]
        );
        sched.converge();
        assert!(fake.log().is_empty());
        finish(&fake, sched)
    }

    #[test]
    fn burst_of_creates_makes_one_list() -> Result {
        let (fake, sched) = setup()?;
        let a = sched.attach(process(1))?;
        let b = sched.attach(process(2))?;
        create(&sched, b, 20)?;
        create(&sched, a, 10)?;
        create(&sched, a, 11)?;
        sched.converge();
        assert_eq!(
            fake.log().as_slice(),
            &[
                List { processes: 2 },
                Process {
                    pasid: 1,
                    queues: 2
                },
                Queue(10),
                Queue(11),
                Process {
                    pasid: 2,
                    queues: 1
                },
                Queue(20),
            ]
        );
        finish(&fake, sched)
    }

    #[test]
    fn further_queue_preempts_once() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        sched.converge();
        let _ = fake.log();
        create(&sched, proc, 2)?;
        create(&sched, proc, 3)?;
        sched.converge();
        assert_eq!(
            fake.log().as_slice(),
            &[
                UnmapAll,
                Fence,
                List { processes: 1 },
                Process {
                    pasid: 1,
                    queues: 3
                },
                Queue(1),
                Queue(2),
                Queue(3),
            ]
        );
        finish(&fake, sched)
    }

    #[test]
    fn destroy_unmaps_only_its_queue() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let first = create(&sched, proc, 1)?;
        create(&sched, proc, 2)?;
        sched.converge();
        let _ = fake.log();
        destroy(&sched, proc, first)?;
        assert_eq!(fake.log().as_slice(), &[UnmapQueues(1, 1), Fence]);
        assert_eq!(fake.mapped(), 1);
        assert_eq!(sched.core.load().queues, 1);
        // A new list needs the old one gone as a whole.
        create(&sched, proc, 3)?;
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
                Queue(2),
                Queue(3),
            ]
        );
        finish(&fake, sched)
    }

    #[test]
    fn destroy_of_all_queues_of_a_process_names_the_process() -> Result {
        let (fake, sched) = setup()?;
        let a = sched.attach(process(1))?;
        let b = sched.attach(process(2))?;
        let queues = [create(&sched, a, 1)?, create(&sched, a, 2)?];
        create(&sched, b, 3)?;
        sched.converge();
        let _ = fake.log();
        for queue in queues {
            let _ = sched.begin_destroy(a, queue, true);
        }
        sched.converge();
        assert_eq!(fake.log().as_slice(), &[UnmapProcess(1), Fence]);
        assert_eq!(fake.mapped(), 1);
        finish(&fake, sched)
    }

    #[test]
    fn detach_takes_the_process_out_of_the_list() -> Result {
        let (fake, sched) = setup()?;
        let a = sched.attach(process(1))?;
        let b = sched.attach(process(2))?;
        create(&sched, a, 1)?;
        create(&sched, a, 2)?;
        create(&sched, b, 3)?;
        sched.converge();
        let _ = fake.log();
        let _ = sched.begin_detach(a, true);
        sched.converge();
        assert_eq!(
            fake.log().as_slice(),
            &[
                UnmapAll,
                Fence,
                List { processes: 1 },
                Process {
                    pasid: 2,
                    queues: 1
                },
                Queue(3),
            ]
        );
        assert_eq!(fake.mapped(), 1);
        assert_eq!(sched.core.load().processes, 1);
        finish(&fake, sched)
    }

    #[test]
    fn up_to_four_queues_are_named_five_are_not() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let mut queues = KVec::new();
        for n in 1..=10 {
            queues.push(create(&sched, proc, n)?, GFP_KERNEL)?;
        }
        sched.converge();
        let _ = fake.log();
        for queue in queues.iter().take(4) {
            let _ = sched.begin_destroy(proc, *queue, true);
        }
        sched.converge();
        assert_eq!(fake.log().as_slice(), &[UnmapQueues(4, 1), Fence]);
        for queue in queues.iter().skip(4).take(5) {
            let _ = sched.begin_destroy(proc, *queue, true);
        }
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
                Queue(10),
            ]
        );
        finish(&fake, sched)
    }

    #[test]
    fn targeting_can_be_switched_off() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = scheduler(
            &fake,
            Config {
                targeted: false,
                ..config()
            },
        )?;
        let proc = sched.attach(process(1))?;
        let first = create(&sched, proc, 1)?;
        create(&sched, proc, 2)?;
        sched.converge();
        let _ = fake.log();
        destroy(&sched, proc, first)?;
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
                Queue(2),
            ]
        );
        finish(&fake, sched)
    }

    #[test]
    fn last_queue_gone_leaves_no_list() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = scheduler(
            &fake,
            Config {
                targeted: false,
                ..config()
            },
        )?;
        let proc = sched.attach(process(1))?;
        let queue = create(&sched, proc, 1)?;
        sched.converge();
        let _ = fake.log();
        destroy(&sched, proc, queue)?;
        assert_eq!(fake.log().as_slice(), &[UnmapAll, Fence]);
        finish(&fake, sched)
    }

    #[test]
    fn only_what_runs_is_treated_gently() -> Result {
        let (fake, sched) = setup()?;
        let (proc, other) = (sched.attach(process(1))?, sched.attach(process(2))?);
        create(&sched, proc, 1)?;
        let queue = create(&sched, other, 2)?;
        sched.converge();
        let plan = || sched.core.state.lock().plan(&sched.core.config, false);
        // Another process is on the hardware meanwhile.
        evict(&sched, proc, EvictCause::Userptr)?;
        sched.restore(proc, EvictCause::Userptr)?;
        assert_eq!(plan(), Step::Gather);
        sched.converge();
        // Nothing is, so that the list has ended.
        destroy(&sched, other, queue)?;
        evict(&sched, proc, EvictCause::Userptr)?;
        sched.restore(proc, EvictCause::Userptr)?;
        assert_eq!(plan(), Step::Map);
        sched.converge();
        assert_eq!(fake.mapped(), 1);
        finish(&fake, sched)
    }

    #[test]
    fn trap_handler_that_comes_later_reaches_the_descriptors() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let queue = create(&sched, proc, 1)?;
        let idle = create(&sched, proc, 2)?;
        update(&sched, proc, idle, percent(0))?;
        sched.converge();
        let trap =
            |queue| Ok::<_, Error>(sched.core.state.lock().queue_mut(proc, queue)?.spec.trap);
        assert!(!trap(queue)?);
        sched.update_process(proc, |params| params.tba = 0x1000)?;
        // The hardware has the descriptor until then.
        assert!(!trap(queue)?);
        sched.converge();
        assert_eq!((trap(queue)?, trap(idle)?), (true, true));
        sched.update_process(proc, |params| params.tba = 0)?;
        sched.converge();
        assert_eq!((trap(queue)?, trap(idle)?), (false, false));
        finish(&fake, sched)
    }

    #[test]
    fn process_that_is_ending_is_evicted_all_the_same() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        sched.converge();
        let ends = sched.begin_detach(proc, false);
        assert!(matches!(ends, Pending::Change(_)));
        // Its pages change before the hardware has let go.
        let Pending::Change(change) = sched.begin_evict(proc, EvictCause::Userptr)? else {
            pr_err!("nothing to wait for\n");
            return Err(EINVAL);
        };
        assert_eq!(fake.mapped(), 1);
        sched.converge();
        assert_eq!(fake.mapped(), 0);
        sched.core.wait(change, Sleep::Uninterruptible)?;
        // Nothing of it is left.
        assert_eq!(
            sched.begin_evict(proc, EvictCause::Userptr).err(),
            Some(ESRCH)
        );
        sched.detach(proc)?;
        finish(&fake, sched)
    }

    #[test]
    fn destroy_before_the_first_mapping_sends_nothing() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let queue = create(&sched, proc, 1)?;
        destroy(&sched, proc, queue)?;
        sched.converge();
        assert!(fake.log().is_empty());
        assert_eq!(sched.core.load().queues, 0);
        finish(&fake, sched)
    }

    #[test]
    fn create_and_destroy_in_one_burst_share_the_preemption() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let first = create(&sched, proc, 1)?;
        sched.converge();
        let _ = fake.log();
        create(&sched, proc, 2)?;
        let _ = sched.begin_destroy(proc, first, true);
        create(&sched, proc, 3)?;
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
                Queue(2),
                Queue(3),
            ]
        );
        finish(&fake, sched)
    }

    #[test]
    fn eviction_counts_per_cause() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        sched.converge();
        let _ = fake.log();
        evict(&sched, proc, EvictCause::Userptr)?;
        assert_eq!(fake.log().as_slice(), &[UnmapAll, Fence]);
        evict(&sched, proc, EvictCause::Userptr)?;
        evict(&sched, proc, EvictCause::Memory)?;
        assert!(fake.log().is_empty());

        sched.restore(proc, EvictCause::Userptr)?;
        sched.restore(proc, EvictCause::Userptr)?;
        assert_eq!(sched.restore(proc, EvictCause::Userptr).err(), Some(EINVAL));
        assert_eq!(sched.restore(proc, EvictCause::Svm).err(), Some(EINVAL));
        sched.converge();
        assert_eq!(fake.mapped(), 0);

        sched.restore(proc, EvictCause::Memory)?;
        sched.converge();
        // The list ended with its last queue.
        assert_eq!(
            fake.log().as_slice(),
            &[
                List { processes: 1 },
                Process {
                    pasid: 1,
                    queues: 1
                },
                Queue(1),
            ]
        );
        assert_eq!(sched.core.counters.snapshot().evictions, 1);
        assert_eq!(sched.core.counters.snapshot().restores, 1);
        finish(&fake, sched)
    }

    #[test]
    fn queue_created_while_evicted_waits_for_the_restore() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        evict(&sched, proc, EvictCause::Svm)?;
        create(&sched, proc, 1)?;
        sched.converge();
        assert!(fake.log().is_empty());
        assert_eq!(sched.core.load().active_compute, 0);
        sched.restore(proc, EvictCause::Svm)?;
        sched.converge();
        assert_eq!(
            fake.log().as_slice(),
            &[
                List { processes: 1 },
                Process {
                    pasid: 1,
                    queues: 1
                },
                Queue(1)
            ]
        );
        finish(&fake, sched)
    }

    #[test]
    fn eviction_of_one_process_leaves_others_alone() -> Result {
        let (fake, sched) = setup()?;
        let a = sched.attach(process(1))?;
        let b = sched.attach(process(2))?;
        create(&sched, a, 1)?;
        create(&sched, b, 2)?;
        sched.converge();
        let _ = fake.log();
        evict(&sched, b, EvictCause::Memory)?;
        assert_eq!(fake.log().as_slice(), &[UnmapProcess(2), Fence]);
        assert_eq!(fake.mapped(), 1);
        finish(&fake, sched)
    }
}
