// SPDX-License-Identifier: GPL-2.0

//! What the firmware is told, in order, when the desired state changes. The test is the worker: it
//! decides when the scheduler converges.

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
        setup,
        Fake,
        Token, //
    },
    machine::{
        Machine,
        Pending, //
    },
    params::{
        Config,
        EvictCause,
        QueueUpdate, //
    },
    record::{
        QueueHold,
        SpecKind, //
    }, //
};
use crate::hw::{
    asic::GFX90A,
    mqd::layout::compute as at, //
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

/// Dooms a queue, lets the scheduler converge and collects the record, as `destroy_queue` does
/// with a worker.
fn destroy(machine: &Arc<Machine>, proc: u64, queue: u64) -> Result {
    let pending = machine.doom_queue(proc, queue, false);
    machine.converge();
    match pending {
        Pending::Done => {}
        Pending::Change(change) => {
            machine.wait(change, crate::kapi::waitqueue::Sleep::Uninterruptible)?
        }
    }
    let node = machine.state.lock().collect_queue(queue);
    drop(node);
    Ok(())
}

/// Evicts and converges.
fn evict(machine: &Arc<Machine>, proc: u64, cause: EvictCause) -> Result {
    let _ = machine.begin_evict(proc, cause)?;
    machine.converge();
    Ok(())
}

/// GPU address of a queue's descriptor.
fn mqd(machine: &Arc<Machine>, proc: u64, queue: u64) -> Result<u64> {
    Ok(machine.state.lock().queue_mut(proc, queue)?.mqd.gpu_addr())
}

/// Dword of a queue's descriptor as the device sees it.
fn mqd_word(fake: &Fake, mqd: u64, dw: usize) -> Option<u32> {
    fake.load(mqd + dw as u64 * 4) // CAST: A small index.
}

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

    #[test]
    fn update_writes_the_descriptor_between_two_mappings() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let queue = create(&machine, proc, 1)?;
        machine.converge();
        let mqd = mqd(&machine, proc, queue)?;
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
        let change = machine.begin_update(proc, queue, update)?;
        assert!(matches!(change, Pending::Change(_)));
        assert_eq!(mqd_word(&fake, mqd, at::CP_HQD_PQ_BASE_LO), base);
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
        finish(&fake, machine)
    }

    #[test]
    fn percent_zero_stops_and_hundred_starts() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let queue = create(&machine, proc, 1)?;
        create(&machine, proc, 2)?;
        machine.converge();
        let _ = fake.log();
        let percent = |percent| QueueUpdate {
            percent: Some(percent),
            ..QueueUpdate::default()
        };
        let _ = machine.begin_update(proc, queue, percent(0))?;
        machine.converge();
        assert_eq!(fake.mapped(), 1);
        let _ = fake.log();
        let started = machine.begin_update(proc, queue, percent(100))?;
        assert!(matches!(started, Pending::Done));
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
                Queue(1),
                Queue(2),
            ]
        );
        finish(&fake, machine)
    }

    #[test]
    fn process_parameters_come_into_force_at_the_next_mapping() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        machine.update_process(proc, |params| params.tba = 0x10_0000)?;
        assert!(fake.log().is_empty());
        create(&machine, proc, 1)?;
        machine.converge();
        let _ = fake.log();
        machine.update_process(proc, |params| {
            params.tba = 0x20_0000;
            params.pasid = 5;
        })?;
        machine.converge();
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
            machine
                .update_process(proc, |params| params.tba = 0x80)
                .err(),
            Some(EINVAL)
        );
        let state = machine.state.lock();
        assert_eq!(
            state.procs.get(&proc).map(|p| p.params.tba),
            Some(0x20_0000)
        );
        drop(state);
        finish(&fake, machine)
    }

    #[test]
    fn sdma_queue_leaves_with_the_whole_list() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        create(&machine, proc, 1)?;
        let queue = machine.create_queue(proc, sdma(100, 0, 1), QueueHold::default())?;
        machine.converge();
        let _ = fake.log();
        destroy(&machine, proc, queue)?;
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
        finish(&fake, machine)
    }

    #[test]
    fn keep_alives_go_when_the_hardware_is_done() -> Result {
        let (fake, machine) = setup()?;
        let count = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let mut params = process(1);
        params.keep = Some(Token::keep(&count)?);
        let proc = machine.attach(params)?;
        let hold = QueueHold {
            keep: Some(Token::keep(&count)?),
            ..QueueHold::default()
        };
        machine.create_queue(proc, pm4(1), hold)?;
        machine.converge();
        let pending = machine.doom_process(proc, false);
        assert!(matches!(pending, Pending::Change(_)));
        assert_eq!(count.load(Relaxed), 2);
        machine.converge();
        assert_eq!(fake.mapped(), 0);
        // Off the hardware, and now for whoever destroyed it to free.
        assert_eq!(count.load(Relaxed), 2);
        let node = machine.state.lock().collect_proc(proc);
        drop(node);
        assert_eq!(count.load(Relaxed), 0);
        finish(&fake, machine)
    }

    #[test]
    fn replaced_keep_alive_goes_when_the_update_is_in_force() -> Result {
        let (fake, machine) = setup()?;
        let old = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let new = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let proc = machine.attach(process(1))?;
        let hold = QueueHold {
            keep: Some(Token::keep(&old)?),
            ..QueueHold::default()
        };
        let queue = machine.create_queue(proc, pm4(1), hold)?;
        machine.converge();
        let update = QueueUpdate {
            ring_base: Some(0x7f55_0000_0000),
            keep: Some(Token::keep(&new)?),
            ..QueueUpdate::default()
        };
        let _ = machine.begin_update(proc, queue, update)?;
        assert_eq!((old.load(Relaxed), new.load(Relaxed)), (1, 1));
        machine.converge();
        drop(machine.state.lock().take_garbage());
        assert_eq!((old.load(Relaxed), new.load(Relaxed)), (0, 1));
        finish(&fake, machine)?;
        assert_eq!(new.load(Relaxed), 0);
        Ok(())
    }

    #[test]
    fn every_queue_type_has_its_descriptor() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let mut aql = pm4(2);
        aql.kind = SpecKind::Aql;
        let aql = machine.create_queue(proc, aql, QueueHold::default())?;
        let plain = create(&machine, proc, 1)?;
        let (aql, plain) = (mqd(&machine, proc, aql)?, mqd(&machine, proc, plain)?);
        assert_eq!(aql % 4096, 0);
        assert_eq!(mqd_word(&fake, aql, at::CP_HQD_AQL_CONTROL), Some(1));
        assert_eq!(mqd_word(&fake, plain, at::CP_HQD_AQL_CONTROL), Some(0));
        assert_eq!(
            mqd_word(&fake, plain, at::CP_HQD_PQ_DOORBELL_CONTROL),
            Some(doorbell(1).field())
        );
        // SDMA descriptors lie 512 bytes apart, by engine and queue.
        let a = machine.create_queue(proc, sdma(100, 0, 0), QueueHold::default())?;
        let b = machine.create_queue(proc, sdma(101, 1, 2), QueueHold::default())?;
        let (a, b) = (mqd(&machine, proc, a)?, mqd(&machine, proc, b)?);
        assert_eq!(b - a, 10 * 512);
        machine.converge();
        finish(&fake, machine)
    }
}
