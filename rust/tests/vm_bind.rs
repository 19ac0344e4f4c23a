// SPDX-License-Identifier: GPL-2.0

//! Lists of ranges on every GPU that was probed, against a table of pages.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    gpu_live::on_each,
    vm_live_bench::Bench, //
};
use crate::vm::{
    bind::{
        Bind,
        BindError, //
    },
    Bo,
    BoFlags,
    BoKind,
    SizeRule, //
};

const PAGE: u64 = 0x1000;
const HUGE: u64 = 0x20_0000;
/// A multiple of 2 MiB, two pages before one of 1 GiB.
const VA: u64 = 0x7000_3fe0_0000;

const RW: BoFlags = BoFlags {
    writable: true,
    executable: false,
    coherent: false,
    uncached: false,
    public: false,
    contiguous: false,
};

fn refused(error: Error, index: u32) -> Option<BindError> {
    Some(BindError {
        error,
        index: Some(index),
    })
}

/// What the page table says of the page at `va`: where it lies.
fn found(bench: &Bench, va: u64) -> Result<Option<u64>> {
    Ok(bench.walk(va)?.map(|(pa, _)| pa))
}

#[kunit_tests(rkfd_vm_bind)]
mod cases {
    use super::*;

    #[test]
    fn random_lists_agree_with_a_table_of_pages() -> Result {
        on_each(|gpu| {
            let used = gpu.vram().used();
            let bench = Bench::new(gpu)?;
            // Large pages, small ones, and such as lie scattered.
            let one_block = BoFlags {
                contiguous: true,
                ..RW
            };
            let mut sources: KVec<Arc<Bo>> = KVec::new();
            sources.push(bench.make(BoKind::Vram, 3 * HUGE, one_block)?, GFP_KERNEL)?;
            sources.push(bench.make(BoKind::System, HUGE, RW)?, GFP_KERNEL)?;
            // Where each page of each buffer lies, as the whole buffer shows it, which keeps it there.
            let mut places: KVec<KVVec<u64>> = KVec::new();
            for (bo, at) in sources.iter().zip([0x10_0000_0000, 0x20_0000_0000]) {
                bench.vm.map(bo, at)?;
                let mut pages = KVVec::new();
                for page in 0..bo.size() / PAGE {
                    let place = found(&bench, at + page * PAGE)?;
                    pages.push(place.ok_or(ENOENT)?, GFP_KERNEL)?;
                }
                places.push(pages, GFP_KERNEL)?;
            }
            // Buffer and page of each page of the addresses.
            const PAGES: u64 = 4 * HUGE / PAGE;
            let mut table: KVVec<Option<(usize, u64)>> =
                KVVec::from_elem(None, PAGES as usize, GFP_KERNEL)?;
            let mut state = 0x2545_f491_4f6c_dd1du64;
            let mut random = |below: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 20) % below
            };
            for _ in 0..30 {
                let mut list = KVec::new();
                // Disjoint ranges in a random order: pieces of the addresses, each with a part of it.
                let pieces = 1 + random(6);
                let turn = random(pieces);
                for number in 0..pieces {
                    let piece = (number + turn) % pieces;
                    let (low, high) = (PAGES * piece / pieces, PAGES * (piece + 1) / pieces);
                    let large = random(3) == 0;
                    let len = (1 + random(if large { high - low } else { 9 })).min(high - low);
                    let first = low + random(high - low - len + 1);
                    let va = VA + first * PAGE;
                    let source = random(2) as usize;
                    let pages = sources[source].size() / PAGE;
                    let index = number as u32;
                    if random(3) == 0 || len > pages {
                        list.push(Bind::unmap(index, va, len * PAGE)?, GFP_KERNEL)?;
                        for page in first..first + len {
                            table[page as usize] = None;
                        }
                    } else {
                        let offset = random(pages - len + 1);
                        let bo = &sources[source];
                        let bind = Bind::map(index, va, len * PAGE, source, bo, offset * PAGE)?;
                        list.push(bind, GFP_KERNEL)?;
                        for page in first..first + len {
                            table[page as usize] = Some((source, offset + page - first));
                        }
                    }
                }
                bench
                    .vm
                    .bind(&sources, &mut list)
                    .map_err(|refused| refused.error)?;
                for (page, wanted) in (0..).zip(&table) {
                    let wanted = wanted.map(|(source, at)| places[source][at as usize]);
                    assert_eq!(found(&bench, VA + page * PAGE)?, wanted);
                }
            }
            let mut all = KVec::new();
            all.push(Bind::unmap(0, VA, PAGES * PAGE)?, GFP_KERNEL)?;
            bench
                .vm
                .bind(&[], &mut all)
                .map_err(|refused| refused.error)?;
            for bo in &sources {
                bench.vm.unmap(bo)?;
            }
            // Nothing but the root is left.
            assert_eq!(bench.vm.usage(), (0, 1));
            drop((sources, bench));
            assert_eq!(gpu.vram().used(), used);
            Ok(())
        })
    }

    #[test]
    fn list_that_only_unmaps_cuts_a_large_page() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            let one_block = BoFlags {
                contiguous: true,
                ..RW
            };
            let bo = bench.make(BoKind::Vram, HUGE, one_block)?;
            let sources = [bo.clone()];
            let mut list = [Bind::map(0, VA, HUGE, 0, &bo, 0)?];
            bench
                .vm
                .bind(&sources, &mut list)
                .map_err(|refused| refused.error)?;
            let first = found(&bench, VA)?.ok_or(ENOENT)?;
            // The root and two directories: one entry maps all.
            assert_eq!(bench.vm.usage(), (1, 3));
            let mut list = [Bind::unmap(0, VA + 5 * PAGE, PAGE)?];
            assert_eq!(bench.vm.bind(&[], &mut list).err(), None);
            assert_eq!(bench.vm.usage(), (2, 4));
            for page in 0..HUGE / PAGE {
                let wanted = (page != 5).then_some(first + page * PAGE);
                assert_eq!(found(&bench, VA + page * PAGE)?, wanted);
            }
            Ok(())
        })
    }

    #[test]
    fn refused_list_changes_nothing_and_names_its_range() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            let bo = bench.make(BoKind::Vram, 4 * PAGE, RW)?;
            let sources = [bo.clone()];
            let map = |index, at: u64, pages: u64| {
                Bind::map(index, VA + at * PAGE, pages * PAGE, 0, &bo, 0)
            };
            // Given in descending order, so that sorting has something to do.
            let mut list = [map(0, 8, 4)?, map(1, 4, 4)?, map(2, 0, 4)?];
            bench
                .vm
                .bind(&sources, &mut list)
                .map_err(|refused| refused.error)?;
            assert_eq!(bench.vm.usage(), (3, 4));
            let before = found(&bench, VA + 5 * PAGE)?;
            let mut list = [Bind::unmap(0, VA + 5 * PAGE, PAGE)?, map(1, 2, 4)?];
            assert_eq!(bench.vm.bind(&sources, &mut list).err(), refused(EINVAL, 1));
            let held = bench.vm.hold(VA + 8 * PAGE, SizeRule::AtLeast(PAGE))?;
            let mut list = [
                Bind::unmap(0, VA + 5 * PAGE, PAGE)?,
                Bind::unmap(1, VA + 11 * PAGE, PAGE)?,
            ];
            assert_eq!(bench.vm.bind(&sources, &mut list).err(), refused(EBUSY, 1));
            assert_eq!(found(&bench, VA + 5 * PAGE)?, before);
            drop(held);
            assert_eq!(bench.vm.bind(&sources, &mut list).err(), None);
            assert_eq!(found(&bench, VA + 5 * PAGE)?, None);
            assert_eq!(bench.vm.usage().0, 4);
            for (va, len) in [(VA + 1, PAGE), (VA, 0), (VA, PAGE + 1), (0, PAGE)] {
                assert_eq!(Bind::unmap(0, va, len).err(), Some(EINVAL));
            }
            for (len, offset) in [(5 * PAGE, 0), (PAGE, 4 * PAGE), (PAGE, 1)] {
                let bind = Bind::map(0, VA, len, 0, &bo, offset);
                assert_eq!(bind.err(), Some(EINVAL));
            }
            bench.vm.close();
            let mut list = [map(0, 0, 1)?];
            let closed = bench.vm.bind(&sources, &mut list).err();
            assert_eq!(closed, Some(BindError::from(ENODEV)));
            Ok(())
        })
    }
}
