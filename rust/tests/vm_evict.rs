// SPDX-License-Identifier: GPL-2.0

//! Buffers that are evicted and come back, on every GPU that was probed: contents, page tables, budgets, and whose queues
//! are stopped.

use core::ops::Deref;

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};

use super::{
    gpu_live::on_each,
    vm_live_bench::Bench, //
};
use crate::{
    driver::power,
    event::tenants::Tenants,
    gpu::{
        account,
        Gpu, //
    },
    hw::pte::Aperture,
    kapi::{
        mappable::{
            Mappable,
            Region,
            Transfer, //
        },
        task::ThreadGroup, //
    },
    kfd::facade,
    queue::{
        address_space,
        eviction, //
    },
    vm::{
        evict::evicted_in_test,
        Bo,
        BoFlags,
        BoKind,
        Interface,
        MoveMonitor,
        Moved,
        VmQueues, //
    },
};

const PAGE: u64 = 0x1000;
const HUGE: u64 = 0x20_0000;
const VA: u64 = 0x7000_0000_0000;
/// More than an operation has attempts.
const TWINS: u64 = 40;
/// How often a test looks for what a worker does, once a millisecond.
const POLLS: usize = 20_000;
const SYSTEM: Aperture = Aperture::System { snooped: true };

const RW: BoFlags = BoFlags {
    writable: true,
    executable: false,
    coherent: false,
    uncached: false,
    public: false,
    contiguous: false,
};

/// An address space whose memory may be evicted.
struct Claimed(Bench);

impl Claimed {
    fn new(gpu: &Arc<Gpu>) -> Result<Self> {
        let bench = Bench::new(gpu)?;
        bench.vm.claim(Interface::Native)?;
        Ok(Self(bench))
    }
}

impl Deref for Claimed {
    type Target = Bench;

    fn deref(&self) -> &Bench {
        &self.0
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.0.vm.close();
    }
}

/// Queues that are only counted.
struct Counted {
    stops: Atomic<i32>,
    resumes: Atomic<i32>,
    /// What stopping them results in.
    result: Result,
}

impl Counted {
    fn new(result: Result) -> Result<Arc<Self>> {
        let counted = Self {
            result,
            stops: Atomic::new(0),
            resumes: Atomic::new(0),
        };
        Ok(Arc::new(counted, GFP_KERNEL)?)
    }

    fn seen(&self) -> (i32, i32) {
        (self.stops.load(Relaxed), self.resumes.load(Relaxed))
    }
}

impl VmQueues for Counted {
    fn stop(&self) -> Result {
        self.stops.fetch_add(1, Relaxed);
        self.result
    }

    fn resume(&self) {
        self.resumes.fetch_add(1, Relaxed);
    }
}

/// A monitor that counts what it learns.
struct Watching {
    /// Of whom it is to learn.
    pid: i32,
    offs: Atomic<i32>,
    ons: Atomic<i32>,
}

impl Watching {
    fn new() -> Result<Arc<Self>> {
        let watching = Self {
            pid: ThreadGroup::current().own_pid(),
            offs: Atomic::new(0),
            ons: Atomic::new(0),
        };
        Ok(Arc::new(watching, GFP_KERNEL)?)
    }

    fn seen(&self) -> (i32, i32) {
        (self.offs.load(Relaxed), self.ons.load(Relaxed))
    }
}

impl MoveMonitor for Watching {
    fn moved(&self, who: &ThreadGroup, what: Moved) {
        let count = match what {
            Moved::Off => &self.offs,
            Moved::On => &self.ons,
        };
        // Whoever calls: a worker restores.
        let expected = who.own_pid() == self.pid;
        count.fetch_add(i32::from(expected), Relaxed);
    }
}

/// Fills each page with bytes of its own.
fn fill(bo: &Bo, seed: u8) -> Result {
    for (at, byte) in (0..bo.size()).step_by(0x1000).zip((0..=250).cycle()) {
        let page = KVVec::from_elem(seed ^ byte, 0x1000, GFP_KERNEL)?;
        let place = usize::try_from(at)?;
        bo.memory().transfer(place, Transfer::Write(&page))?;
    }
    Ok(())
}

/// Whether each page has what [`fill`] wrote.
fn holds(bo: &Bo, seed: u8) -> Result<bool> {
    let mut page = KVVec::from_elem(0_u8, 0x1000, GFP_KERNEL)?;
    for (at, byte) in (0..bo.size()).step_by(0x1000).zip((0..=250).cycle()) {
        let place = usize::try_from(at)?;
        bo.memory().transfer(place, Transfer::Read(&mut page))?;
        if page.iter().any(|seen| *seen != seed ^ byte) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The apertures that the first and the last page of `bo` are mapped from.
fn apertures(bench: &Bench, bo: &Bo) -> Result<[Option<Aperture>; 2]> {
    let of = |va| -> Result<_> { Ok(bench.walk(va)?.map(|(_, attrs)| attrs.aperture)) };
    Ok([of(VA)?, of(VA + bo.size() - PAGE)?])
}

#[kunit_tests(rkfd_vm_evict_live)]
mod cases {
    use super::*;

    #[test]
    fn contents_go_out_and_come_back() -> Result {
        on_each(|gpu| {
            let bench = Claimed::new(gpu)?;
            let bo = bench.make(BoKind::Vram, HUGE + 3 * PAGE, RW)?;
            bench.vm.map(&bo, VA)?;
            fill(&bo, 0x5a)?;
            let (vram, charged) = (gpu.vram().used(), gpu.vram_budget().used());
            evicted_in_test(&bo, || {
                // No wave finds the old place, which may be somebody else's.
                assert_eq!(apertures(&bench, &bo)?, [None, None]);
                assert_eq!(gpu.vram_budget().used(), charged - bo.size());
                assert!(gpu.vram().used() <= vram - bo.size());
                assert_eq!(bo.memory().region(), Some(Region::Gtt));
                assert!(holds(&bo, 0x5a)?);
                fill(&bo, 0xa5)
            })?;
            bench.vm.restore_in_test()?;
            let home = Some(Aperture::Vram);
            assert_eq!(apertures(&bench, &bo)?, [home, home]);
            assert_eq!(bo.memory().region(), Some(Region::Vram));
            assert_eq!(gpu.vram_budget().used(), charged);
            assert!(holds(&bo, 0xa5)?);
            Ok(())
        })
    }

    #[test]
    fn without_room_system_memory_serves() -> Result {
        on_each(|gpu| {
            let bench = Claimed::new(gpu)?;
            let bo = bench.make(BoKind::Vram, HUGE + 3 * PAGE, RW)?;
            bench.vm.map(&bo, VA)?;
            fill(&bo, 0x33)?;
            let budget = gpu.vram_budget();
            // Nobody restores before all room is taken.
            let taken = evicted_in_test(&bo, || budget.charge(budget.limit() - budget.used()))?;
            bench.vm.restore_in_test()?;
            assert_eq!(apertures(&bench, &bo)?, [Some(SYSTEM), Some(SYSTEM)]);
            assert!(holds(&bo, 0x33)?);
            // Mapped once more, it is right already.
            bench.vm.map(&bo, VA)?;
            assert_eq!(apertures(&bench, &bo)?, [Some(SYSTEM), Some(SYSTEM)]);
            drop(taken);
            bench.vm.restore_in_test()?;
            let home = Some(Aperture::Vram);
            assert_eq!(apertures(&bench, &bo)?, [home, home]);
            assert!(holds(&bo, 0x33)?);
            Ok(())
        })
    }

    #[test]
    fn queues_run_on_where_there_is_no_system_memory() -> Result {
        on_each(|gpu| {
            let bench = Claimed::new(gpu)?;
            let bo = bench.make(BoKind::Vram, HUGE, RW)?;
            bench.vm.map(&bo, VA)?;
            let before = bench.walk(VA)?;
            let queues = Counted::new(Ok(()))?;
            bench.vm.set_queues(queues.clone());
            let budget = &account::system().allocated;
            let taken = budget.charge_module(budget.limit() - budget.used())?;
            assert_eq!(evicted_in_test(&bo, || Ok(())).err(), Some(ENOMEM));
            drop(taken);
            assert_eq!(queues.seen(), (0, 0));
            assert_eq!(bench.walk(VA)?, before);
            assert_eq!(bo.memory().region(), Some(Region::Vram));
            Ok(())
        })
    }

    #[test]
    fn queues_run_on_while_free_memory_is_in_pieces() -> Result {
        on_each(|gpu| {
            let bench = Claimed::new(gpu)?;
            let one_block = BoFlags {
                contiguous: true,
                ..RW
            };
            let bo = bench.make(BoKind::Vram, HUGE, one_block)?;
            bench.vm.map(&bo, VA)?;
            fill(&bo, 0x3c)?;
            let queues = Counted::new(Ok(()))?;
            bench.vm.set_queues(queues.clone());
            // Nothing is left that it fits into, although what buffers may take is not taken.
            let mut taken = KVVec::new();
            evicted_in_test(&bo, || {
                while let Ok(block) = gpu.vram().alloc_blocks(HUGE, true) {
                    taken.push(block, GFP_KERNEL)?;
                }
                Ok(())
            })?;
            for _ in 0..3 {
                bench.vm.restore_in_test()?;
                assert_eq!(queues.seen(), (1, 1));
                assert_eq!(apertures(&bench, &bo)?, [Some(SYSTEM), Some(SYSTEM)]);
            }
            drop(taken);
            bench.vm.restore_in_test()?;
            assert_eq!(queues.seen(), (2, 2));
            let home = Some(Aperture::Vram);
            assert_eq!(apertures(&bench, &bo)?, [home, home]);
            assert!(holds(&bo, 0x3c)?);
            Ok(())
        })
    }

    #[test]
    fn queues_stop_once_and_resume_once() -> Result {
        on_each(|gpu| {
            let bench = Claimed::new(gpu)?;
            let queues = Counted::new(Ok(()))?;
            bench.vm.set_queues(queues.clone());
            let first = bench.make(BoKind::Vram, HUGE, RW)?;
            let second = bench.make(BoKind::Vram, PAGE, RW)?;
            bench.vm.map(&first, VA)?;
            bench.vm.map(&second, VA + HUGE)?;
            let late = Counted::new(Ok(()))?;
            evicted_in_test(&first, || {
                assert_eq!(queues.seen(), (1, 0));
                // Queues that are made meanwhile do not run either.
                bench.vm.set_queues(late.clone());
                assert_eq!(late.seen(), (1, 0));
                Ok(())
            })?;
            bench.vm.restore_in_test()?;
            assert_eq!((queues.seen(), late.seen()), ((1, 0), (1, 1)));
            // Nothing is left to do.
            bench.vm.restore_in_test()?;
            assert_eq!(late.seen(), (1, 1));
            Ok(())
        })
    }

    #[test]
    fn a_monitor_learns_that_queues_are_off_and_on_again() -> Result {
        on_each(|gpu| {
            let sched = facade()?.scheduler(gpu).ok_or(ENODEV)?;
            let bench = Claimed::new(gpu)?;
            let bo = bench.make(BoKind::Vram, HUGE, RW)?;
            bench.vm.map(&bo, VA)?;
            let (tenants, watching) = (Tenants::new()?, Watching::new()?);
            tenants.set_monitor(watching.clone());
            let process = sched.attach(address_space::params(&bench.vm, false, 0, 0)?)?;
            let group = ThreadGroup::current();
            let followed = eviction::follow(&bench.vm, &sched, &process, tenants, &group);
            let moved = followed.and_then(|()| {
                evicted_in_test(&bo, || {
                    assert_eq!(watching.seen(), (1, 0));
                    Ok(())
                })?;
                bench.vm.restore_in_test()
            });
            sched.detach(&process)?;
            moved?;
            assert_eq!(watching.seen(), (1, 1));
            // Nothing of it runs any more.
            evicted_in_test(&bo, || Ok(()))?;
            bench.vm.restore_in_test()?;
            assert_eq!(watching.seen(), (1, 1));
            Ok(())
        })
    }

    #[test]
    fn queues_that_do_not_stop_keep_all_their_memory() -> Result {
        on_each(|gpu| {
            let bench = Claimed::new(gpu)?;
            let first = bench.make(BoKind::Vram, HUGE, RW)?;
            let second = bench.make(BoKind::Vram, PAGE, RW)?;
            bench.vm.map(&first, VA)?;
            bench.vm.map(&second, VA + HUGE)?;
            let places = (bench.walk(VA)?, bench.walk(VA + HUGE)?);
            let queues = Counted::new(Err(EIO))?;
            bench.vm.set_queues(queues.clone());
            for bo in [&first, &second] {
                assert!(evicted_in_test(bo, || Ok(())).is_err());
                assert_eq!(bo.memory().region(), Some(Region::Vram));
            }
            bench.vm.restore_in_test()?;
            assert_eq!((bench.walk(VA)?, bench.walk(VA + HUGE)?), places);
            let (stops, resumes) = queues.seen();
            assert_eq!(stops, resumes);
            Ok(())
        })
    }

    #[test]
    fn who_was_not_claimed_keeps_its_memory() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            let bo = bench.make(BoKind::Vram, HUGE, RW)?;
            bench.vm.map(&bo, VA)?;
            let before = bench.walk(VA)?.map(|(pa, _)| pa);
            assert_eq!(evicted_in_test(&bo, || Ok(())).err(), Some(EBUSY));
            assert_eq!(bench.walk(VA)?.map(|(pa, _)| pa), before);
            assert_eq!(bo.memory().region(), Some(Region::Vram));
            Ok(())
        })
    }

    #[test]
    fn nothing_is_restored_while_the_gpu_sleeps() -> Result {
        on_each(|gpu| {
            let sched = facade()?.scheduler(gpu).ok_or(ENODEV)?;
            let bench = Claimed::new(gpu)?;
            let bo = bench.make(BoKind::Vram, HUGE + 3 * PAGE, RW)?;
            bench.vm.map(&bo, VA)?;
            fill(&bo, 0x1e)?;
            let queues = Counted::new(Ok(()))?;
            bench.vm.set_queues(queues.clone());
            evicted_in_test(&bo, || {
                sched.suspend()?;
                gpu.suspend()
            })?;
            let restored = bench.vm.restore_in_test();
            // The worker that the eviction has started looks 2 ms later. It is to find the GPU asleep.
            fsleep(Delta::from_millis(20));
            let asleep = (queues.seen(), bo.memory().region());
            power::resume(gpu, &sched)?;
            restored?;
            assert_eq!(asleep, ((1, 0), Some(Region::Gtt)));
            for _ in 0..POLLS {
                if queues.seen() == (1, 1) {
                    break;
                }
                fsleep(Delta::from_millis(1));
            }
            assert_eq!(queues.seen(), (1, 1));
            let home = Some(Aperture::Vram);
            assert_eq!(apertures(&bench, &bo)?, [home, home]);
            assert!(holds(&bo, 0x1e)?);
            Ok(())
        })
    }

    #[test]
    fn many_buffers_of_the_same_memory_are_restored() -> Result {
        on_each(|gpu| {
            let bench = Claimed::new(gpu)?;
            let bo = bench.make(BoKind::Vram, PAGE, RW)?;
            let places = || (0..TWINS).map(|number| VA + number * PAGE);
            for (at, writable) in places().zip([true, false].into_iter().cycle()) {
                bench.vm.map(&bo.twin(writable)?, at)?;
            }
            evicted_in_test(&bo, || {
                for at in places() {
                    assert!(bench.walk(at)?.is_none());
                }
                Ok(())
            })?;
            bench.vm.restore_in_test()?;
            for (at, writable) in places().zip([true, false].into_iter().cycle()) {
                let (_, attrs) = bench.walk(at)?.ok_or(ENOENT)?;
                assert_eq!(attrs.aperture, Aperture::Vram);
                assert_eq!(attrs.access.write, writable);
            }
            Ok(())
        })
    }

    #[test]
    fn what_nobody_maps_is_evicted_and_mapped_where_it_is() -> Result {
        on_each(|gpu| {
            let bench = Claimed::new(gpu)?;
            let bo = bench.make(BoKind::Vram, HUGE, RW)?;
            fill(&bo, 0x77)?;
            // Nobody restores meanwhile.
            evicted_in_test(&bo, || {
                bench.vm.map(&bo, VA)?;
                assert_eq!(apertures(&bench, &bo)?, [Some(SYSTEM), Some(SYSTEM)]);
                assert!(holds(&bo, 0x77)?);
                Ok(())
            })?;
            bench.vm.restore_in_test()?;
            let home = Some(Aperture::Vram);
            assert_eq!(apertures(&bench, &bo)?, [home, home]);
            assert!(holds(&bo, 0x77)?);
            Ok(())
        })
    }

    #[test]
    fn what_is_there_cannot_be_evicted_once_more() -> Result {
        on_each(|gpu| {
            let bench = Claimed::new(gpu)?;
            let bo = bench.make(BoKind::Vram, HUGE, RW)?;
            evicted_in_test(&bo, || Ok(()))?;
            assert_eq!(evicted_in_test(&bo, || Ok(())).err(), Some(EALREADY));
            Ok(())
        })
    }

    #[test]
    fn what_is_mapped_while_a_restore_ends_is_not_forgotten() -> Result {
        on_each(|gpu| {
            let bench = Claimed::new(gpu)?;
            let (first, second) = (
                bench.make(BoKind::Vram, HUGE, RW)?,
                bench.make(BoKind::Vram, PAGE, RW)?,
            );
            bench.vm.map(&first, VA)?;
            evicted_in_test(&second, || Ok(()))?;
            evicted_in_test(&first, || Ok(()))?;
            // The restore finds the first one alone, and brings it back.
            let noted = bench
                .vm
                .restored_in_test(|| bench.vm.map(&second, VA + HUGE))?;
            assert!(noted);
            let noted = bench.vm.restored_in_test(|| Ok(()))?;
            assert!(!noted);
            assert_eq!(second.memory().region(), Some(Region::Vram));
            Ok(())
        })
    }

    #[test]
    fn what_is_mapped_displaced_comes_back_by_itself() -> Result {
        on_each(|gpu| {
            let bench = Claimed::new(gpu)?;
            let bo = bench.make(BoKind::Vram, HUGE, RW)?;
            evicted_in_test(&bo, || Ok(()))?;
            assert_eq!(bo.memory().region(), Some(Region::Gtt));
            bench.vm.map(&bo, VA)?;
            for _ in 0..POLLS {
                if bo.memory().region() == Some(Region::Vram) {
                    return Ok(());
                }
                fsleep(Delta::from_millis(1));
            }
            Err(ETIMEDOUT)
        })
    }
}
