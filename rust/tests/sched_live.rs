// SPDX-License-Identifier: GPL-2.0

//! The scheduler on every GPU that is there: queues of address spaces made for the test execute
//! packets, through the scheduler firmware's slots and VMIDs, and memory shows what they did.

use kernel::{
    prelude::*,
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    },
};

use super::{
    bench::{
        layout,
        on_each,
        Bench,
        Queue,
        Space,
        PATIENCE, //
    },
    config::Policy,
    desired::queue::QueueHold,
    params::{
        EvictCause,
        QueueKind,
        QueueUpdate, //
    }, //
};
use crate::hw::pm4::process::Debug;

/// Bursts of creations, one of which is faster than the worker.
const BURSTS: usize = 30;

#[kunit_tests(rkfd_sched_live)]
mod cases {
    use super::*;

    #[test]
    fn firmware_answers() -> Result {
        on_each(|bench| {
            for _ in 0..3 {
                bench.sched.ping()?;
            }
            assert_eq!(bench.sched.stats().timeouts, 0);
            Ok(())
        })
    }

    #[test]
    fn packets_submitted_before_the_mapping_are_executed() -> Result {
        on_each(|bench| {
            let mut space = Space::new(bench)?;
            let queue = space.pm4()?;
            // The queue is most likely not mapped yet; the doorbell is lost, the pointer is not.
            space.submit(queue, 0x1111)?;
            space.expect(queue, 0x1111)?;
            for value in 0x2000..0x2100 {
                space.submit(queue, value)?;
                space.expect(queue, value)?;
            }
            assert_eq!(space.slots(queue)?, 1);
            Ok(())
        })
    }

    #[test]
    fn destroyed_queue_has_no_slot() -> Result {
        on_each(|bench| {
            let mut space = Space::new(bench)?;
            let stays = space.pm4()?;
            let goes = space.pm4()?;
            space.submit(stays, 1)?;
            space.submit(goes, 1)?;
            space.expect(stays, 1)?;
            space.expect(goes, 1)?;
            let queue = space.queues.pop().ok_or(EINVAL)?;
            bench.sched.destroy_queue(&queue.queue)?;
            assert_eq!(bench.slots_of(queue.doorbell)?, 0);
            assert_eq!(space.slots(stays)?, 1);
            space.submit(stays, 2)?;
            space.expect(stays, 2)?;
            bench.sched.detach(&space.process)?;
            assert_eq!(space.slots(stays)?, 0);
            Ok(())
        })
    }

    #[test]
    fn evicted_queue_goes_on_where_it_was() -> Result {
        on_each(|bench| {
            let mut space = Space::new(bench)?;
            let queue = space.pm4()?;
            for round in 1..=10 {
                space.submit(queue, round)?;
                space.expect(queue, round)?;
                bench.sched.evict(&space.process, EvictCause::Memory)?;
                assert_eq!(space.slots(queue)?, 0);
                // Rung while off the hardware.
                space.submit(queue, round + 0x100)?;
                bench.sched.ping()?;
                assert_eq!(space.queues.first().ok_or(EINVAL)?.value()?, round);
                bench.sched.restore(&space.process, EvictCause::Memory)?;
                space.expect(queue, round + 0x100)?;
            }
            Ok(())
        })
    }

    #[test]
    fn updated_queue_reads_its_new_ring() -> Result {
        on_each(|bench| {
            let mut space = Space::new(bench)?;
            let n = space.pm4()?;
            space.submit(n, 1)?;
            space.expect(n, 1)?;
            let queue = space.queues.first_mut().ok_or(EINVAL)?;
            queue.ring = layout::OTHER;
            bench.sched.update_queue(
                &queue.queue,
                QueueUpdate {
                    ring_base: Some(queue.va + layout::OTHER),
                    ..QueueUpdate::default()
                },
            )?;
            space.submit(n, 2)?;
            space.expect(n, 2)?;
            // Stopped, and started again.
            let queue = space.queues.first().ok_or(EINVAL)?;
            let percent = |percent| QueueUpdate {
                percent: Some(percent),
                ..QueueUpdate::default()
            };
            bench.sched.update_queue(&queue.queue, percent(0))?;
            assert_eq!(space.slots(n)?, 0);
            space.submit(n, 3)?;
            let queue = space.queues.first().ok_or(EINVAL)?;
            bench.sched.update_queue(&queue.queue, percent(100))?;
            space.expect(n, 3)?;
            Ok(())
        })
    }

    #[test]
    fn every_sdma_engine_executes() -> Result {
        on_each(|bench| {
            let mut space = Space::new(bench)?;
            for engine in 0..bench.gpu.asic().sdma_engines() {
                let queue = space.sdma(engine)?;
                space.submit(queue, 0x5d0 + engine)?;
            }
            for engine in 0..bench.gpu.asic().sdma_engines() {
                space.expect(usize::try_from(engine)?, 0x5d0 + engine)?;
            }
            bench.sched.detach(&space.process)?;
            Ok(())
        })
    }

    #[test]
    fn more_queues_than_slots_all_make_progress() -> Result {
        on_each(|bench| {
            let mut space = Space::new(bench)?;
            if !bench.takes_turns() {
                for n in 0..24 {
                    let queue = space.pm4()?;
                    space.submit(queue, 0x100 + n)?;
                }
                // One more is refused, and the others do not suffer.
                assert_eq!(space.pm4().err(), Some(ENOSPC));
                for n in 0..24 {
                    space.expect(usize::try_from(n)?, 0x100 + n)?;
                }
                return bench.sched.detach(&space.process);
            }
            for n in 0..30 {
                let queue = space.pm4()?;
                space.submit(queue, 0x100 + n)?;
            }
            for n in 0..30 {
                space.expect(usize::try_from(n)?, 0x100 + n)?;
            }
            bench.sched.detach(&space.process)?;
            assert_eq!(bench.sched.load().on_hardware, 0);
            Ok(())
        })
    }

    #[test]
    fn more_processes_than_vmids_all_make_progress() -> Result {
        on_each(|bench| {
            let extra = if bench.takes_turns() { 2 } else { 0 };
            let count = bench.gpu.asic().vmid_count() + extra;
            let mut spaces = KVec::new();
            for n in 0..count {
                let mut space = Space::new(bench)?;
                let queue = space.pm4()?;
                space.submit(queue, 0x700 + n)?;
                spaces.push(space, GFP_KERNEL)?;
            }
            for (space, n) in spaces.iter().zip(0..) {
                // The same address in each space, and a value of its own.
                space.expect(0, 0x700 + n)?;
            }
            if !bench.takes_turns() {
                assert_eq!(Space::new(bench)?.pm4().err(), Some(ENOSPC));
            }
            for space in &spaces {
                bench.sched.detach(&space.process)?;
            }
            assert_eq!(bench.sched.load().on_hardware, 0);
            Ok(())
        })
    }

    #[test]
    fn everybody_gets_a_turn_however_many_there_are() -> Result {
        on_each(|bench| {
            if !bench.takes_turns() {
                return Ok(());
            }
            // More processes than VMIDs and twice as many queues as slots, all always at work.
            const EACH: usize = 3;
            const ROUNDS: u32 = 4;
            let mut spaces = KVec::new();
            let mut done = KVec::new();
            for _ in 0..16 {
                let mut space = Space::new(bench)?;
                for n in 0..EACH {
                    space.pm4()?;
                    space.submit(n, 1)?;
                    done.push(0_u32, GFP_KERNEL)?;
                }
                spaces.push(space, GFP_KERNEL)?;
            }
            let mut last: Instant<Monotonic> = Instant::now();
            while done.iter().any(|rounds| *rounds < ROUNDS) {
                for (at, rounds) in done.iter_mut().enumerate() {
                    let space = spaces.get_mut(at / EACH).ok_or(EINVAL)?;
                    let queue = space.queues.get(at % EACH).ok_or(EINVAL)?;
                    if queue.value()? == *rounds + 1 {
                        // The time is that of the queues that are behind.
                        if *rounds < ROUNDS {
                            last = Instant::now();
                        }
                        *rounds += 1;
                        space.submit(at % EACH, *rounds + 1)?;
                    }
                }
                if last.elapsed() > PATIENCE {
                    pr_err!("rounds of each queue: {:?}\n", done.as_slice());
                    return Err(ETIMEDOUT);
                }
                fsleep(Delta::from_micros(200));
            }
            let most = done.iter().max().copied().unwrap_or(0);
            pr_info!("rounds: {ROUNDS} by the slowest queue, {most} by the fastest\n");
            for space in &spaces {
                bench.sched.detach(&space.process)?;
            }
            assert_eq!(bench.sched.load().on_hardware, 0);
            Ok(())
        })
    }

    #[test]
    fn checkpointed_queue_goes_on_as_another() -> Result {
        on_each(|bench| {
            let mut space = Space::new(bench)?;
            let first = space.pm4()?;
            space.submit(first, 0x11)?;
            space.expect(first, 0x11)?;
            bench.sched.evict(&space.process, EvictCause::Debugger)?;
            let old = space.queues.pop().ok_or(EINVAL)?;
            assert!(!bench.sched.is_occupied(&old.queue)?);
            let image = bench.sched.checkpoint_queue(&old.queue)?;
            bench.sched.destroy_queue(&old.queue)?;
            // The same memory, another doorbell.
            let doorbell = space.slice.alloc_cp()?;
            let byte = doorbell.offset().byte();
            let spec = space.spec(QueueKind::Pm4, &doorbell, old.va);
            let hold = QueueHold {
                doorbell: Some(doorbell),
                ..QueueHold::default()
            };
            let queue = bench
                .sched
                .restore_queue(&space.process, spec, hold, &image)?;
            space.queues.push(
                Queue {
                    queue,
                    doorbell: byte,
                    ..old
                },
                GFP_KERNEL,
            )?;
            bench.sched.restore(&space.process, EvictCause::Debugger)?;
            // It reads on where the other one stopped, not from the ring's start.
            space.submit(first, 0x22)?;
            space.expect(first, 0x22)?;
            let queue = space.queues.first().ok_or(EINVAL)?;
            assert!(bench.sched.is_occupied(&queue.queue)?);
            bench.sched.detach(&space.process)
        })
    }

    #[test]
    fn special_queues_execute() -> Result {
        on_each(|bench| {
            let mut space = Space::new(bench)?;
            let n = space.pm4()?;
            let refused = bench.sched.worker.core.config.policy == Policy::Direct;
            let queue = space.queues.first().ok_or(EINVAL)?;
            let given = bench.sched.set_gws(&queue.queue, true);
            if refused {
                assert_eq!(given.err(), Some(ENODEV));
                return bench.sched.detach(&space.process);
            }
            given?;
            space.submit(n, 1)?;
            space.expect(n, 1)?;
            let queue = space.queues.first().ok_or(EINVAL)?;
            bench.sched.set_gws(&queue.queue, false)?;
            // A static queue is served and leaves when all leave.
            bench
                .sched
                .set_debug(&space.process, Debug::default(), true)?;
            space.submit(n, 2)?;
            space.expect(n, 2)?;
            bench.sched.evict(&space.process, EvictCause::Debugger)?;
            assert_eq!(space.slots(n)?, 0);
            bench
                .sched
                .set_debug(&space.process, Debug::default(), false)?;
            bench.sched.restore(&space.process, EvictCause::Debugger)?;
            space.submit(n, 3)?;
            space.expect(n, 3)?;
            bench.sched.detach(&space.process)
        })
    }

    /// What 12 queues took.
    struct Burst {
        /// Lists for their creation.
        lists: u64,
        /// Preemptions for their end.
        preemptions: u64,
        timeouts: u64,
    }

    /// Creates 12 queues, which execute, and destroys them together.
    fn burst(bench: &Bench<'_>) -> Result<Burst> {
        let before = bench.sched.stats();
        let mut space = Space::new(bench)?;
        for n in 0..12 {
            let queue = space.pm4()?;
            space.submit(queue, 0x900 + n)?;
        }
        for n in 0..12 {
            space.expect(usize::try_from(n)?, 0x900 + n)?;
        }
        let after = bench.sched.stats();
        bench.sched.detach(&space.process)?;
        let end = bench.sched.stats();
        Ok(Burst {
            lists: after.runlists - before.runlists,
            preemptions: end.preemptions - after.preemptions,
            timeouts: end.timeouts,
        })
    }

    #[test]
    fn burst_of_creates_takes_few_lists() -> Result {
        on_each(|bench| {
            // The detach takes one preemption, however many queues there are; where there is no
            // firmware each queue is told.
            let preemptions = match bench.sched.worker.core.config.policy {
                Policy::Direct => 12,
                _ => 1,
            };
            let mut fewest = u64::MAX;
            for _ in 0..BURSTS {
                let burst = burst(bench)?;
                assert_eq!(burst.preemptions, preemptions);
                assert_eq!(burst.timeouts, 0);
                fewest = fewest.min(burst.lists);
                // On a busy machine the worker may be done with each queue before the next one is there.
                if fewest < 12 {
                    break;
                }
            }
            assert!(fewest < 12);
            Ok(())
        })
    }
}
