// SPDX-License-Identifier: GPL-2.0

//! Pages of a process in address spaces of every GPU that was probed: what a change of few of many costs, and whom it concerns.
//! Skipped where there is no GPU.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    gpu_live::on_each,
    vm_live_bench::Bench, //
};
use crate::{
    kapi::{
        kunit::UserMemory,
        task::bring_in, //
    },
    vm::{
        bind::Bind,
        Bo, //
    },
};

const PAGE: u64 = 0x1000;
const HUGE: u64 = 0x20_0000;
/// An address of no special meaning, a multiple of 2 MiB.
const VA: u64 = 0x7000_0020_0000;

/// Memory whose pages are there, each in a place of its own.
fn memory_of(size: u64) -> Result<UserMemory> {
    let memory = UserMemory::new(size as usize)?;
    bring_in(memory.address(), size as usize, true)?;
    Ok(memory)
}

/// Where the memory lies that is shown at `va`.
fn found(bench: &Bench, va: u64) -> Result<Option<u64>> {
    Ok(bench.walk(va)?.map(|(pa, _)| pa))
}

#[kunit_tests(rkfd_vm_user_live)]
mod cases {
    use super::*;

    #[test]
    fn entries_of_the_pages_that_changed_are_written_and_no_others() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            let size = 4 * HUGE;
            let memory = memory_of(size)?;
            let address = memory.address();
            // Windows of the buffer and tables of the GPU begin at different pages.
            let va = VA + address % HUGE + 3 * PAGE;
            let bo = bench.make_user(address, size)?;
            bench.vm.map(&bo, va)?;
            let first = HUGE - address % HUGE;
            let (second, third) = (first + HUGE, first + 2 * HUGE);
            let hole = first + 5 * PAGE;
            let walk = |at: u64| bench.walk(va + at);
            let elsewhere = |window: u64| -> Result<[_; 4]> {
                let after = window + HUGE;
                Ok([
                    walk(0)?,
                    walk(window - PAGE)?,
                    walk(after)?,
                    walk(size - PAGE)?,
                ])
            };
            let others = elsewhere(first)?;
            assert!(others.iter().all(|entry| entry.is_some()));
            let before = found(&bench, va + hole)?;
            let beside = [
                found(&bench, va + first)?,
                found(&bench, va + second - PAGE)?,
            ];

            // One page goes. What the device is not to have are the pages that are found together with it.
            UserMemory::part(address + hole, PAGE as usize).unmap();
            assert_eq!(bo.find_pages(), Err(EFAULT));
            let (flushes, written) = (gpu.kiq().status().submissions, gpu.rewritten());
            bench.vm.refresh(&bo)?;
            assert!(gpu.kiq().status().submissions > flushes);
            assert_eq!(gpu.rewritten() - written, HUGE / PAGE);
            for at in [first, hole, second - PAGE] {
                assert!(walk(at)?.is_none());
            }
            assert_eq!(elsewhere(first)?, others);

            // Another one in its place.
            UserMemory::at(address + hole, PAGE as usize)?;
            bo.find_pages()?;
            let written = gpu.rewritten();
            bench.vm.refresh(&bo)?;
            assert_eq!(gpu.rewritten() - written, HUGE / PAGE);
            assert!(walk(hole)?.is_some());
            assert_ne!(found(&bench, va + hole)?, before);
            for (at, place) in [first, second - PAGE].into_iter().zip(beside) {
                assert_eq!(found(&bench, va + at)?, place);
            }
            assert_eq!(elsewhere(first)?, others);

            // Nothing to write, nothing to flush.
            let (flushes, written) = (gpu.kiq().status().submissions, gpu.rewritten());
            bench.vm.refresh(&bo)?;
            assert_eq!(gpu.kiq().status().submissions, flushes);
            assert_eq!(gpu.rewritten(), written);

            // Entries that were taken away are written again as a whole.
            bench.vm.zap_userptr()?;
            assert!(walk(0)?.is_none());
            bench.vm.refresh(&bo)?;
            assert_eq!(gpu.rewritten() - written, size / PAGE);
            assert_eq!(elsewhere(first)?, others);
            assert!(walk(hole)?.is_some() && walk(third)?.is_some());
            bench.vm.unmap(&bo)?;
            assert!(walk(0)?.is_none() && walk(size - PAGE)?.is_none());
            drop(bo);
            memory.unmap();
            Ok(())
        })
    }

    #[test]
    fn a_part_shows_its_pages_wherever_it_begins() -> Result {
        const WHOLE: u64 = 0x6000_0000_0000;
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            let size = 3 * HUGE;
            let memory = memory_of(size)?;
            let address = memory.address();
            let whole = bench.make_user(address, size)?;
            bench.vm.map(&whole, WHOLE)?;
            // Where the second window begins.
            let edge = HUGE - address % HUGE;
            let parts = [
                (edge - PAGE, 2 * PAGE),
                (edge, HUGE),
                (0, edge + PAGE),
                (edge + HUGE - PAGE, 2 * PAGE),
                (edge - PAGE, HUGE + 2 * PAGE),
                (size - PAGE, PAGE),
            ];
            for (number, (offset, len)) in (0..).zip(parts) {
                let va = VA + number * (2 * size + PAGE);
                let bo = bench.make_user(address, size)?;
                let bind = Bind::map(0, va, len, 0, &bo, offset)?;
                let bound = bench.vm.bind(core::slice::from_ref(&bo), &mut [bind]);
                bound.map_err(|refused| refused.error)?;
                // The iterator's; the kernel's initializers have a method of this name, too.
                let some = Iterator::chain((0..len).step_by(61 * PAGE as usize), [len - PAGE]);
                let edges = [edge, edge + HUGE].map(|at| at.wrapping_sub(offset));
                for at in Iterator::chain(some, edges).filter(|at| *at < len) {
                    let place = found(&bench, va + at)?;
                    assert!(place.is_some());
                    assert_eq!(place, found(&bench, WHOLE + offset + at)?);
                }
                assert_eq!(found(&bench, va - PAGE)?, None);
                assert_eq!(found(&bench, va + len)?, None);
            }
            bench.vm.close();
            drop((whole, bench));
            memory.unmap();
            Ok(())
        })
    }

    #[test]
    fn entries_come_and_go_in_one_table_at_once() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            let size = 4 * HUGE;
            let memory = memory_of(size)?;
            let address = memory.address();
            let va = VA + address % HUGE + 3 * PAGE;
            let first = HUGE - address % HUGE;
            let second = first + HUGE;
            let bo = bench.make_user(address, size)?;
            bench.vm.map(&bo, va)?;
            let tables = bench.vm.usage();
            // The second window has none. The table at the boundary has those of the first alone.
            UserMemory::part(address + second, PAGE as usize).unmap();
            assert_eq!(bo.find_pages(), Err(EFAULT));
            bench.vm.refresh(&bo)?;
            assert!(bench.walk(va + second - PAGE)?.is_some());
            assert!(bench.walk(va + second)?.is_none());
            // Now it is the other way round.
            UserMemory::at(address + second, PAGE as usize)?;
            UserMemory::part(address + first, PAGE as usize).unmap();
            assert_eq!(bo.find_pages(), Err(EFAULT));
            bench.vm.refresh(&bo)?;
            assert!(bench.walk(va + second - PAGE)?.is_none());
            assert!(bench.walk(va + second)?.is_some());
            UserMemory::at(address + first, PAGE as usize)?;
            bo.find_pages()?;
            bench.vm.refresh(&bo)?;
            assert!(bench.walk(va + second - PAGE)?.is_some());
            assert_eq!(bench.vm.usage(), tables);
            bench.vm.unmap(&bo)?;
            drop(bo);
            memory.unmap();
            Ok(())
        })
    }

    #[test]
    fn a_change_concerns_who_shows_the_pages() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            let memory = UserMemory::new(8 * PAGE as usize)?;
            let address = memory.address();
            let bo = bench.make_user(address, 8 * PAGE)?;
            let bind = |sources: &[Arc<Bo>], bind: Bind| -> Result {
                let bound = bench.vm.bind(sources, &mut [bind]);
                bound.map_err(|refused| refused.error)
            };
            let shows = |first: u64, end: u64| {
                let range = address + first * PAGE..address + end * PAGE;
                bench.vm.maps_user(&range)
            };
            // Three pages from the third on.
            let part = Bind::map(0, VA, 3 * PAGE, 0, &bo, 2 * PAGE)?;
            bind(core::slice::from_ref(&bo), part)?;
            assert!(shows(0, 8) && shows(0, 3) && shows(2, 3) && shows(4, 5));
            assert!(!shows(0, 2) && !shows(5, 8));
            bind(&[], Bind::unmap(0, VA + PAGE, PAGE)?)?;
            assert!(shows(2, 3) && !shows(3, 4) && shows(4, 5));
            bind(&[], Bind::unmap(0, VA, 3 * PAGE)?)?;
            assert!(!shows(0, 8));
            drop(bo);
            memory.unmap();
            Ok(())
        })
    }
}
