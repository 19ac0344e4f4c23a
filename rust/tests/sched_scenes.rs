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
    },
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
        Event,
        Fake,
        Mode,
        Token,
        WAIT_TIME2, //
    },
    machine::{
        Health,
        Machine,
        Pending, //
    },
    params::{
        Config,
        Cwsr,
        EvictCause,
        Policy,
        QueueUpdate, //
    },
    record::{
        QueueHold,
        SpecKind, //
    }, //
};
use crate::hw::{
    asic::{
        GFX906,
        GFX90A, //
    },
    mqd::layout::compute as at, //
};

use Event::{
    Chain,
    Fence,
    HiqOff,
    List,
    Process,
    Queue,
    Resources,
    Sdma,
    UnmapAll,
    UnmapProcess,
    UnmapQueues,
    WaitTime2, //
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
    fn bring_up_of_gfx90a() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let machine = machine(&fake, config())?;
        let wait = WAIT_TIME2 & !0xff | 1;
        assert_eq!(
            fake.log().as_slice(),
            &[
                Resources { vmids: 0xfff8, latency: 40, xnack: false },
                WaitTime2(wait),
                Fence,
            ]
        );
        finish(&fake, machine)
    }

    #[test]
    fn bring_up_of_gfx906() -> Result {
        let fake = Fake::new(&GFX906)?;
        let machine = machine(&fake, config())?;
        assert_eq!(
            fake.log().as_slice(),
            &[Resources { vmids: 0xff00, latency: 40, xnack: false }, Fence]
        );
        finish(&fake, machine)
    }

    #[test]
    fn xnack_check_follows_the_firmware() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let machine = machine(&fake, Config { mec_firmware: 98, ..config() })?;
        assert_eq!(
            fake.log().first().copied(),
            Some(Resources { vmids: 0xfff8, latency: 40, xnack: true })
        );
        finish(&fake, machine)
    }

    #[test]
    fn dead_firmware_fails_the_bring_up() -> Result {
        let fake = Fake::new(&GFX90A)?;
        fake.set_mode(Mode::Dead);
        assert_eq!(machine(&fake, config()).err(), Some(ETIMEDOUT));
        assert_eq!(fake.blocks(), 0);
        fake.set_mode(Mode::Lost);
        assert_eq!(machine(&fake, config()).err(), Some(EIO));
        Ok(())
    }

    #[test]
    fn shutdown_without_work_only_disconnects() -> Result {
        let (fake, machine) = setup()?;
        machine.shutdown();
        assert_eq!(fake.log().as_slice(), &[HiqOff]);
        machine.shutdown();
        assert!(fake.log().is_empty());
        finish(&fake, machine)
    }

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
            &[List { processes: 1 }, Process { pasid: 9, queues: 1 }, Queue(1)]
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
                Process { pasid: 1, queues: 2 },
                Queue(10),
                Queue(11),
                Process { pasid: 2, queues: 1 },
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
                Process { pasid: 1, queues: 3 },
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
                Process { pasid: 1, queues: 2 },
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
                Process { pasid: 1, queues: 1 },
                Queue(10),
            ]
        );
        finish(&fake, machine)
    }

    #[test]
    fn targeting_can_be_switched_off() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let machine = machine(&fake, Config { targeted: false, ..config() })?;
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
                Process { pasid: 1, queues: 1 },
                Queue(2),
            ]
        );
        finish(&fake, machine)
    }

    #[test]
    fn last_queue_gone_leaves_no_list() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let machine = machine(&fake, Config { targeted: false, ..config() })?;
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
                Process { pasid: 1, queues: 2 },
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
        assert_eq!(machine.restore(proc, EvictCause::Userptr).err(), Some(EINVAL));
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
                Process { pasid: 1, queues: 1 },
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
            &[List { processes: 1 }, Process { pasid: 1, queues: 1 }, Queue(1)]
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
                Process { pasid: 1, queues: 1 },
                Queue(1),
            ]
        );
        assert_eq!(mqd_word(&fake, mqd, at::CP_HQD_PQ_BASE_LO), Some(0x5500_0000));
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
                Process { pasid: 1, queues: 2 },
                Queue(1),
                Queue(2),
            ]
        );
        finish(&fake, machine)
    }

    #[test]
    fn bad_updates_change_nothing() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let queue = create(&machine, proc, 1)?;
        machine.converge();
        let _ = fake.log();
        for update in [
            QueueUpdate { ring_size: Some(0x1001), ..QueueUpdate::default() },
            QueueUpdate { ring_base: Some(0x7f00_0000_0080), ..QueueUpdate::default() },
            QueueUpdate { priority: Some(16), ..QueueUpdate::default() },
            QueueUpdate { percent: Some(101), ..QueueUpdate::default() },
        ] {
            assert_eq!(machine.begin_update(proc, queue, update).err(), Some(EINVAL));
        }
        assert_eq!(
            machine.begin_update(proc, queue + 1, QueueUpdate::default()).err(),
            Some(ENOENT)
        );
        machine.converge();
        assert!(fake.log().is_empty());
        finish(&fake, machine)
    }

    #[test]
    fn bad_queues_are_refused() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
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
                _ => spec.cwsr = Some(Cwsr { base: 0x1000, size: 0x1000, ctl_stack: 12 }),
            }
            specs.push(spec, GFP_KERNEL)?;
        }
        for spec in &specs {
            let refused = machine.create_queue(proc, *spec, QueueHold::default());
            assert_eq!(refused.err(), Some(EINVAL));
        }
        let nobody = machine.create_queue(proc + 77, pm4(1), QueueHold::default());
        assert_eq!(nobody.err(), Some(ESRCH));
        assert_eq!(fake.blocks(), blocks);
        assert_eq!(machine.load().queues, 0);
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
                Process { pasid: 1, queues: 1 },
                Queue(1),
            ]
        );
        assert_eq!(
            machine.update_process(proc, |params| params.tba = 0x80).err(),
            Some(EINVAL)
        );
        let state = machine.state.lock();
        assert_eq!(state.procs.get(&proc).map(|p| p.params.tba), Some(0x20_0000));
        drop(state);
        finish(&fake, machine)
    }

    #[test]
    fn pasids_are_unique_and_not_zero() -> Result {
        let (fake, machine) = setup()?;
        assert_eq!(machine.attach(process(0)).err(), Some(EINVAL));
        let proc = machine.attach(process(7))?;
        assert_eq!(machine.attach(process(7)).err(), Some(EBUSY));
        let _ = machine.doom_process(proc, true);
        let again = machine.attach(process(7))?;
        assert!(again != proc);
        finish(&fake, machine)
    }

    #[test]
    fn twenty_four_queues_fit_and_one_more_makes_a_tail() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        for n in 0..24 {
            create(&machine, proc, n)?;
        }
        machine.converge();
        assert!(!fake.log().contains(&Chain));
        create(&machine, proc, 24)?;
        machine.converge();
        let log = fake.log();
        assert_eq!(log.get(2).copied(), Some(List { processes: 1 }));
        assert_eq!(log.last().copied(), Some(Chain));
        assert_eq!(machine.counters.snapshot().oversubscribed, 1);
        assert!(machine.load().oversubscribed(&GFX90A, &machine.config));
        finish(&fake, machine)
    }

    #[test]
    fn sdma_queues_take_no_compute_slot() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        for n in 0..24 {
            create(&machine, proc, n)?;
        }
        let spec = sdma(100, 3, 0);
        machine.create_queue(proc, spec, QueueHold::default())?;
        machine.converge();
        let log = fake.log();
        assert_eq!(log.last().copied(), Some(Sdma(3, 100)));
        assert_eq!(machine.load().active_sdma, 1);
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
                Process { pasid: 1, queues: 1 },
                Queue(1),
            ]
        );
        finish(&fake, machine)
    }

    #[test]
    fn more_processes_than_vmids_make_a_tail() -> Result {
        for (asic, vmids) in [(&GFX90A, 13_u16), (&GFX906, 8)] {
            let fake = Fake::new(asic)?;
            let machine = machine(&fake, config())?;
            for pasid in 1..=vmids {
                let proc = machine.attach(process(pasid))?;
                create(&machine, proc, pasid.into())?;
            }
            machine.converge();
            assert!(!fake.log().contains(&Chain));
            let proc = machine.attach(process(99))?;
            create(&machine, proc, 99)?;
            machine.converge();
            let log = fake.log();
            assert!(log.contains(&List { processes: vmids.into() }));
            assert_eq!(log.last().copied(), Some(Chain));
            // A process without queues needs no VMID.
            machine.attach(process(100))?;
            assert_eq!(machine.load().active_processes, usize::from(vmids) + 1);
            finish(&fake, machine)?;
        }
        Ok(())
    }

    #[test]
    fn fewer_processes_per_turn_on_request() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let machine = machine(&fake, Config { max_processes: 2, ..config() })?;
        for pasid in 1..=3 {
            let proc = machine.attach(process(pasid))?;
            create(&machine, proc, pasid.into())?;
        }
        machine.converge();
        let log = fake.log();
        assert!(log.contains(&List { processes: 2 }));
        assert_eq!(log.last().copied(), Some(Chain));
        finish(&fake, machine)
    }

    #[test]
    fn over_subscribed_list_is_unmapped_as_a_whole() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let first = create(&machine, proc, 0)?;
        for n in 1..25 {
            create(&machine, proc, n)?;
        }
        machine.converge();
        let _ = fake.log();
        destroy(&machine, proc, first)?;
        let log = fake.log();
        assert_eq!(log.get(..3), Some(&[UnmapAll, Fence, List { processes: 1 }][..]));
        assert!(!log.contains(&Chain));
        finish(&fake, machine)
    }

    #[test]
    fn strict_policy_refuses_what_does_not_fit() -> Result {
        let fake = Fake::new(&GFX906)?;
        let machine = machine(&fake, Config { policy: Policy::Strict, ..config() })?;
        let proc = machine.attach(process(1))?;
        for n in 0..24 {
            create(&machine, proc, n)?;
        }
        assert_eq!(create(&machine, proc, 24).err(), Some(ENOSPC));
        let other = machine.attach(process(2))?;
        assert_eq!(create(&machine, other, 25).err(), Some(ENOSPC));
        // SDMA queues take no slot; stopped queues neither.
        machine.create_queue(other, sdma(100, 0, 0), QueueHold::default())?;
        let mut stopped = pm4(26);
        stopped.percent = 0;
        machine.create_queue(other, stopped, QueueHold::default())?;
        machine.converge();
        finish(&fake, machine)
    }

    #[test]
    fn limit_of_queues_is_kept() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let machine = machine(&fake, Config { max_queues: 2, ..config() })?;
        let proc = machine.attach(process(1))?;
        let first = create(&machine, proc, 1)?;
        create(&machine, proc, 2)?;
        assert_eq!(create(&machine, proc, 3).err(), Some(ENOSPC));
        destroy(&machine, proc, first)?;
        create(&machine, proc, 3)?;
        machine.converge();
        finish(&fake, machine)
    }

    #[test]
    fn processes_of_one_retry_mode_come_together() -> Result {
        let (fake, machine) = setup()?;
        for (pasid, config) in [(1, 0x1018), (2, 0x18), (3, 0x1018)] {
            let mut params = process(pasid);
            params.sh_mem_config = config;
            let proc = machine.attach(params)?;
            create(&machine, proc, pasid.into())?;
        }
        machine.converge();
        assert_eq!(
            fake.log().as_slice(),
            &[
                List { processes: 3 },
                Process { pasid: 1, queues: 1 },
                Queue(1),
                Process { pasid: 3, queues: 1 },
                Queue(3),
                Process { pasid: 2, queues: 1 },
                Queue(2),
            ]
        );
        finish(&fake, machine)
    }

    #[test]
    fn list_memory_grows_with_the_queues() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let before = machine.state.lock().list_capacity();
        for n in 0..300 {
            create(&machine, proc, n)?;
        }
        assert!(machine.state.lock().list_capacity() > before);
        machine.converge();
        assert_eq!(fake.mapped(), 300);
        let stats = machine.counters.snapshot();
        assert_eq!(stats.queues_mapped, 300);
        assert_eq!(stats.ib_dwords, 21 + 300 * 7 + 4);
        finish(&fake, machine)
    }

    #[test]
    fn keep_alives_go_when_the_hardware_is_done() -> Result {
        let (fake, machine) = setup()?;
        let count = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let mut params = process(1);
        params.keep = Some(Token::new(&count)?);
        let proc = machine.attach(params)?;
        let hold = QueueHold {
            keep: Some(Token::new(&count)?),
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
            keep: Some(Token::new(&old)?),
            ..QueueHold::default()
        };
        let queue = machine.create_queue(proc, pm4(1), hold)?;
        machine.converge();
        let update = QueueUpdate {
            ring_base: Some(0x7f55_0000_0000),
            keep: Some(Token::new(&new)?),
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
    fn every_preemption_has_a_fence_of_its_own() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        create(&machine, proc, 0)?;
        let _ = fake.fences();
        for n in 1..40 {
            let queue = create(&machine, proc, n)?;
            machine.converge();
            destroy(&machine, proc, queue)?;
        }
        let fences = fake.fences();
        assert!(fences.len() > 70);
        for (i, (addr, value)) in fences.iter().enumerate() {
            for (earlier_addr, earlier) in fences.iter().take(i) {
                assert!(earlier < value);
                // Not even the place of the one before.
                assert!(i < 1 || earlier_addr != addr || i > 1);
            }
        }
        finish(&fake, machine)
    }

    #[test]
    fn missing_fence_wedges_and_later_calls_fail_at_once() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let queue = create(&machine, proc, 1)?;
        machine.converge();
        let blocks = fake.blocks();
        fake.set_mode(Mode::KeepsFences);
        let Pending::Change(change) = machine.doom_queue(proc, queue, true) else {
            return Err(EINVAL);
        };
        machine.converge();
        assert_eq!(machine.health(), Health::Wedged);
        let waited = fake.elapsed();
        assert!(waited >= 9_000_000 && waited < 9_100_000);
        assert_eq!(machine.counters.snapshot().timeouts, 1);
        let sleep = crate::kapi::waitqueue::Sleep::Uninterruptible;
        assert_eq!(machine.wait(change, sleep).err(), Some(EIO));
        assert_eq!(create(&machine, proc, 2).err(), Some(EIO));
        assert_eq!(machine.attach(process(2)).err(), Some(EIO));
        assert_eq!(machine.evict(proc, EvictCause::Svm).err(), Some(EIO));
        assert_eq!(machine.ping().err(), Some(EIO));
        // What the hardware may still use stays.
        assert_eq!(fake.blocks(), blocks);
        assert_eq!(fake.elapsed(), waited);
        finish_wedged(&fake, machine)
    }

    #[test]
    fn reset_brings_everything_back() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let queue = create(&machine, proc, 1)?;
        create(&machine, proc, 2)?;
        machine.converge();
        fake.set_mode(Mode::KeepsFences);
        let _ = machine.doom_queue(proc, queue, true);
        machine.converge();
        assert_eq!(machine.health(), Health::Wedged);

        fake.reset();
        let _ = fake.log();
        machine.after_reset()?;
        assert_eq!(machine.health(), Health::Running);
        // The late fence of the lost preemption disturbs nothing.
        fake.release_fences();
        machine.converge();
        let log = fake.log();
        assert_eq!(log.get(2).copied(), Some(Fence));
        assert_eq!(
            log.get(3..),
            Some(&[List { processes: 1 }, Process { pasid: 1, queues: 1 }, Queue(2)][..])
        );
        assert_eq!(machine.load().queues, 1);
        create(&machine, proc, 3)?;
        machine.converge();
        assert_eq!(fake.mapped(), 2);
        finish(&fake, machine)
    }

    #[test]
    fn refusal_in_the_descriptor_wedges_although_the_fence_came() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let queue = create(&machine, proc, 1)?;
        machine.converge();
        fake.set_mode(Mode::Refuses(doorbell(1).dword()));
        let _ = machine.doom_queue(proc, queue, true);
        machine.converge();
        assert_eq!(machine.health(), Health::Wedged);
        assert_eq!(machine.counters.snapshot().refusals, 1);
        assert_eq!(machine.counters.snapshot().timeouts, 0);
        assert_eq!(fake.elapsed(), 0);
        finish_wedged(&fake, machine)
    }

    #[test]
    fn lost_device_wedges_without_the_full_wait() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let queue = create(&machine, proc, 1)?;
        machine.converge();
        fake.set_mode(Mode::Lost);
        let _ = machine.doom_queue(proc, queue, true);
        machine.converge();
        assert_eq!(machine.health(), Health::Wedged);
        assert!(fake.elapsed() < 200_000);
        finish_wedged(&fake, machine)
    }

    #[test]
    fn removed_device_answers_enodev_and_frees_everything() -> Result {
        let (fake, machine) = setup()?;
        let count = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let mut params = process(1);
        params.keep = Some(Token::new(&count)?);
        let proc = machine.attach(params)?;
        let queue = create(&machine, proc, 1)?;
        machine.converge();
        fake.set_mode(Mode::Gone);
        assert!(matches!(machine.doom_queue(proc, queue, false), Pending::Change(_)));
        machine.converge();
        assert_eq!(machine.health(), Health::Gone);
        assert_eq!(create(&machine, proc, 2).err(), Some(ENODEV));
        assert_eq!(machine.restore(proc, EvictCause::Svm).err(), Some(EINVAL));
        assert_eq!(machine.evict(proc, EvictCause::Svm).err(), None);
        // The goal of a removal is reached without the device.
        machine.destroy_queue(proc, queue)?;
        machine.detach(proc)?;
        assert_eq!(count.load(Relaxed), 0);
        assert_eq!(machine.after_reset().err(), Some(ENODEV));
        fake.reset();
        finish(&fake, machine)
    }

    #[test]
    fn handles_may_outlive_the_shutdown() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        let queue = create(&machine, proc, 1)?;
        machine.converge();
        let _ = fake.log();
        machine.shutdown();
        assert_eq!(fake.log().as_slice(), &[UnmapAll, Fence, HiqOff]);
        assert_eq!(machine.attach(process(2)).err(), Some(ENODEV));
        assert_eq!(create(&machine, proc, 2).err(), Some(ENODEV));
        machine.destroy_queue(proc, queue)?;
        machine.detach(proc)?;
        machine.detach(proc)?;
        assert_eq!(machine.load().processes, 0);
        finish(&fake, machine)
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

    #[test]
    fn ping_takes_one_fence() -> Result {
        let (fake, machine) = setup()?;
        machine.ping()?;
        machine.ping()?;
        assert_eq!(fake.log().as_slice(), &[Fence, Fence]);
        finish(&fake, machine)
    }
}

/// As [`finish`] for a scheduler that lost its firmware.
fn finish_wedged(fake: &Arc<Fake>, machine: Arc<Machine>) -> Result {
    fake.reset();
    finish(fake, machine)
}
