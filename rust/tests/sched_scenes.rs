// SPDX-License-Identifier: GPL-2.0

//! What the firmware is told, in order, when queues come and go. The test is the worker: it decides when
//! the scheduler converges.

use kernel::prelude::*;

use super::{
    fake::{
        config,
        create,
        finish,
        machine,
        process,
        setup,
        Fake, //
    },
    machine::Pending,
    params::{
        Config,
        EvictCause, //
    },
    state::{
        Scope,
        Step, //
    },
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
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(9))?;
        machine.converge();
        assert!(fake.log().is_empty());
        create(&machine, proc, 1)?;
        machine.converge();
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
        machine.converge();
        assert!(fake.log().is_empty());
        finish(&fake, machine)
    }

    #[test]
    fn burst_of_creates_makes_one_list() -> Result {
        let (fake, machine) = setup()?;
        let a = machine.attach(process(1))?;
        let b = machine.attach(process(2))?;
        create(&machine, b, 20)?;
        create(&machine, a, 10)?;
        create(&machine, a, 11)?;
        machine.converge();
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
        finish(&fake, machine)
    }

    #[test]
    fn further_queue_preempts_once() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        create(&machine, proc, 1)?;
        machine.converge();
        let _ = fake.log();
        create(&machine, proc, 2)?;
        create(&machine, proc, 3)?;
        machine.converge();
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
        finish(&fake, machine)
    }

    #[test]
    fn destroy_unmaps_only_its_queue() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let first = create(&machine, proc, 1)?;
        create(&machine, proc, 2)?;
        machine.converge();
        let _ = fake.log();
        destroy(&machine, proc, first)?;
        assert_eq!(fake.log().as_slice(), &[UnmapQueues(1, 1), Fence]);
        assert_eq!(fake.mapped(), 1);
        assert_eq!(machine.load().queues, 1);
        // A new list needs the old one gone as a whole.
        create(&machine, proc, 3)?;
        machine.converge();
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
        finish(&fake, machine)
    }

    #[test]
    fn destroy_of_all_queues_of_a_process_names_the_process() -> Result {
        let (fake, machine) = setup()?;
        let a = machine.attach(process(1))?;
        let b = machine.attach(process(2))?;
        create(&machine, a, 1)?;
        create(&machine, a, 2)?;
        create(&machine, b, 3)?;
        machine.converge();
        let _ = fake.log();
        let _ = machine.doom_process(a, true);
        machine.converge();
        assert_eq!(fake.log().as_slice(), &[UnmapProcess(1), Fence]);
        assert_eq!(fake.mapped(), 1);
        assert_eq!(machine.load().processes, 1);
        finish(&fake, machine)
    }

    #[test]
    fn up_to_four_queues_are_named_five_are_not() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let mut queues = KVec::new();
        for n in 1..=10 {
            queues.push(create(&machine, proc, n)?, GFP_KERNEL)?;
        }
        machine.converge();
        let _ = fake.log();
        for queue in queues.iter().take(4) {
            let _ = machine.doom_queue(proc, *queue, true);
        }
        machine.converge();
        assert_eq!(fake.log().as_slice(), &[UnmapQueues(4, 1), Fence]);
        for queue in queues.iter().skip(4).take(5) {
            let _ = machine.doom_queue(proc, *queue, true);
        }
        machine.converge();
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
        finish(&fake, machine)
    }

    #[test]
    fn targeting_can_be_switched_off() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let machine = machine(
            &fake,
            Config {
                targeted: false,
                ..config()
            },
        )?;
        let proc = machine.attach(process(1))?;
        let first = create(&machine, proc, 1)?;
        create(&machine, proc, 2)?;
        machine.converge();
        let _ = fake.log();
        destroy(&machine, proc, first)?;
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
        finish(&fake, machine)
    }

    #[test]
    fn last_queue_gone_leaves_no_list() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let machine = machine(
            &fake,
            Config {
                targeted: false,
                ..config()
            },
        )?;
        let proc = machine.attach(process(1))?;
        let queue = create(&machine, proc, 1)?;
        machine.converge();
        let _ = fake.log();
        destroy(&machine, proc, queue)?;
        assert_eq!(fake.log().as_slice(), &[UnmapAll, Fence]);
        finish(&fake, machine)
    }

    #[test]
    fn only_what_runs_is_treated_gently() -> Result {
        let (fake, machine) = setup()?;
        let (proc, other) = (machine.attach(process(1))?, machine.attach(process(2))?);
        create(&machine, proc, 1)?;
        let queue = create(&machine, other, 2)?;
        machine.converge();
        let plan = || machine.state.lock().plan(&machine.config, false);
        // Another process is on the hardware meanwhile.
        evict(&machine, proc, EvictCause::Userptr)?;
        machine.restore(proc, EvictCause::Userptr)?;
        assert_eq!(plan(), Step::Gather);
        machine.converge();
        // Nobody is, though the list has not ended.
        destroy(&machine, other, queue)?;
        evict(&machine, proc, EvictCause::Userptr)?;
        machine.restore(proc, EvictCause::Userptr)?;
        assert_eq!(plan(), Step::Preempt(Scope::Dynamic));
        machine.converge();
        assert_eq!(fake.mapped(), 1);
        finish(&fake, machine)
    }

    #[test]
    fn trap_handler_that_comes_later_reaches_the_descriptors() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let queue = create(&machine, proc, 1)?;
        let idle = create(&machine, proc, 2)?;
        update(&machine, proc, idle, percent(0))?;
        machine.converge();
        let trap = |queue| Ok::<_, Error>(machine.state.lock().queue_mut(proc, queue)?.spec.trap);
        assert!(!trap(queue)?);
        machine.update_process(proc, |params| params.tba = 0x1000)?;
        // The hardware has the descriptor until then.
        assert!(!trap(queue)?);
        machine.converge();
        assert_eq!((trap(queue)?, trap(idle)?), (true, true));
        machine.update_process(proc, |params| params.tba = 0)?;
        machine.converge();
        assert_eq!((trap(queue)?, trap(idle)?), (false, false));
        finish(&fake, machine)
    }

    #[test]
    fn process_that_is_ending_is_evicted_all_the_same() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        create(&machine, proc, 1)?;
        machine.converge();
        let ends = machine.doom_process(proc, false);
        assert!(matches!(ends, Pending::Change(_)));
        // Its pages change before the hardware has let go.
        let Pending::Change(change) = machine.begin_evict(proc, EvictCause::Userptr)? else {
            pr_err!("nothing to wait for\n");
            return Err(EINVAL);
        };
        assert_eq!(fake.mapped(), 1);
        machine.converge();
        assert_eq!(fake.mapped(), 0);
        machine.wait(change, Sleep::Uninterruptible)?;
        // Nothing of it is left.
        assert_eq!(
            machine.begin_evict(proc, EvictCause::Userptr).err(),
            Some(ESRCH)
        );
        machine.detach(proc)?;
        finish(&fake, machine)
    }

    #[test]
    fn destroy_before_the_first_mapping_sends_nothing() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let queue = create(&machine, proc, 1)?;
        destroy(&machine, proc, queue)?;
        machine.converge();
        assert!(fake.log().is_empty());
        assert_eq!(machine.load().queues, 0);
        finish(&fake, machine)
    }

    #[test]
    fn create_and_destroy_in_one_burst_share_the_preemption() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let first = create(&machine, proc, 1)?;
        machine.converge();
        let _ = fake.log();
        create(&machine, proc, 2)?;
        let _ = machine.doom_queue(proc, first, true);
        create(&machine, proc, 3)?;
        machine.converge();
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
        finish(&fake, machine)
    }

    #[test]
    fn eviction_counts_per_cause() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        create(&machine, proc, 1)?;
        machine.converge();
        let _ = fake.log();
        evict(&machine, proc, EvictCause::Userptr)?;
        assert_eq!(fake.log().as_slice(), &[UnmapProcess(1), Fence]);
        evict(&machine, proc, EvictCause::Userptr)?;
        evict(&machine, proc, EvictCause::Memory)?;
        assert!(fake.log().is_empty());

        machine.restore(proc, EvictCause::Userptr)?;
        machine.restore(proc, EvictCause::Userptr)?;
        assert_eq!(
            machine.restore(proc, EvictCause::Userptr).err(),
            Some(EINVAL)
        );
        assert_eq!(machine.restore(proc, EvictCause::Svm).err(), Some(EINVAL));
        machine.converge();
        assert_eq!(fake.mapped(), 0);

        machine.restore(proc, EvictCause::Memory)?;
        machine.converge();
        // The empty list is still active as far as the firmware is concerned.
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
        assert_eq!(machine.counters.snapshot().evictions, 1);
        assert_eq!(machine.counters.snapshot().restores, 1);
        finish(&fake, machine)
    }

    #[test]
    fn queue_created_while_evicted_waits_for_the_restore() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        evict(&machine, proc, EvictCause::Svm)?;
        create(&machine, proc, 1)?;
        machine.converge();
        assert!(fake.log().is_empty());
        assert_eq!(machine.load().active_compute, 0);
        machine.restore(proc, EvictCause::Svm)?;
        machine.converge();
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
        finish(&fake, machine)
    }

    #[test]
    fn eviction_of_one_process_leaves_others_alone() -> Result {
        let (fake, machine) = setup()?;
        let a = machine.attach(process(1))?;
        let b = machine.attach(process(2))?;
        create(&machine, a, 1)?;
        create(&machine, b, 2)?;
        machine.converge();
        let _ = fake.log();
        evict(&machine, b, EvictCause::Memory)?;
        assert_eq!(fake.log().as_slice(), &[UnmapProcess(2), Fence]);
        assert_eq!(fake.mapped(), 1);
        finish(&fake, machine)
    }
}
