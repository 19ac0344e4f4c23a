// SPDX-License-Identifier: GPL-2.0

//! Page tables against the simulated VRAM of [`super::vm_pt_bench`].

use kernel::prelude::*;

use super::vm_pt_bench::{
    run,
    Bench,
    SimStore,
    FLAVOURS,
    RW,
    RW_FLAGS,
    RX,
    RX_FLAGS, //
};
use crate::{
    hw::pte::{
        Flavour,
        Level,
        Meaning, //
    },
    vm::pt::{
        Reserve,
        Run,
        Store,
        TableCount,
        GIB,
        HUGE,
        PAGE,
        VA_END, //
    },
};

#[kunit_tests(rkfd_vm_page_table)]
mod cases {
    use super::*;

    #[test]
    fn empty_tree_is_one_table_that_maps_nothing() -> Result {
        for flavour in FLAVOURS {
            let bench = Bench::new(flavour)?;
            assert_eq!(bench.tables(), [0, 0, 0, 1]);
            assert_eq!(bench.store.live(), 1);
            for va in [0, 0x10000, HUGE, 1 << 39, VA_END - PAGE] {
                assert!(bench.at(va)?.is_none());
                assert!(bench.tree.lookup(va).is_none());
            }
            assert!(bench.tree.lookup(VA_END).is_none());
        }
        Ok(())
    }

    #[test]
    fn single_page_has_its_address_and_flags() -> Result {
        for flavour in FLAVOURS {
            let mut bench = Bench::new(flavour)?;
            bench.map(0x7000_1234_5000, &run(0x8_7654_3000, PAGE), RW)?;
            assert!(!bench.stale);
            let found = bench.at(0x7000_1234_5000)?.ok_or(ENOENT)?;
            assert_eq!(found.pa, 0x8_7654_3000);
            assert_eq!(found.flags, RW_FLAGS);
            assert_eq!(found.fragment, 0);
            assert!(!found.huge);
            assert!(bench.at(0x7000_1234_4000)?.is_none());
            assert!(bench.at(0x7000_1234_6000)?.is_none());
            assert_eq!(bench.tables(), [1, 1, 1, 1]);
            assert_eq!(bench.store.live(), 4);
        }
        Ok(())
    }

    #[test]
    fn a_walk_tells_each_entry_that_memory_holds() -> Result {
        for flavour in FLAVOURS {
            let mut bench = Bench::new(flavour)?;
            bench.map(7 * HUGE, &run(3 * HUGE, HUGE), RX)?;
            bench.map(0x7000_1234_5000, &run(0x8_7654_3000, PAGE), RW)?;
            // An address, how many entries lead there, and the page.
            let wanted = [
                (7 * HUGE + PAGE, 3, Some(3 * HUGE)),
                (0x7000_1234_5678, 4, Some(0x8_7654_3000)),
                (0x7000_1234_4000, 4, None),
                (8 * HUGE, 3, None),
                (1 << 39, 1, None),
            ];
            for (va, count, page) in wanted {
                let mut steps = KVec::new();
                bench
                    .tree
                    .walk::<SimStore, Error>(va, &mut |step| Ok(steps.push(step, GFP_KERNEL)?))?;
                assert_eq!(steps.len(), count);
                let mut table = SimStore::pa(bench.tree.root());
                for (step, level) in steps.iter().zip(Level::ALL) {
                    assert_eq!((step.level, step.table), (level, table));
                    assert_eq!(step.index, level.index(va));
                    // CAST: An index below 512.
                    let at = step.table + 8 * step.index as u64;
                    assert_eq!(bench.store.word(at), Some(step.entry.raw()));
                    if let Meaning::Table { pa, .. } = step.meaning {
                        table = pa;
                    }
                }
                let found = match steps.last().map(|step| step.meaning) {
                    Some(Meaning::Page { pa, .. }) => Some(pa),
                    _ => None,
                };
                assert_eq!(found, page);
            }
        }
        Ok(())
    }

    #[test]
    fn local_memory_flags() -> Result {
        let mut bench = Bench::new(Flavour::TranslateFurther)?;
        bench.map(0x20_0000, &run(0x40_0000, HUGE), RX)?;
        let found = bench.at(0x20_0000)?.ok_or(ENOENT)?;
        assert_eq!(found.flags, RX_FLAGS);
        Ok(())
    }

    #[test]
    fn two_mebibytes_take_one_directory_entry() -> Result {
        for flavour in FLAVOURS {
            let mut bench = Bench::new(flavour)?;
            bench.map(7 * HUGE, &run(3 * HUGE, HUGE), RX)?;
            assert_eq!(bench.tables(), [0, 1, 1, 1]);
            let found = bench.at(7 * HUGE + 0x12_3000)?.ok_or(ENOENT)?;
            assert_eq!(found.pa, 3 * HUGE + 0x12_3000);
            assert!(found.huge);
            assert!(bench.at(8 * HUGE)?.is_none());
            assert!(bench.at(7 * HUGE - PAGE)?.is_none());
        }
        Ok(())
    }

    #[test]
    fn a_gibibyte_takes_one_directory_entry() -> Result {
        for flavour in FLAVOURS {
            let mut bench = Bench::new(flavour)?;
            bench.map(5 * GIB, &run(3 * GIB, 2 * GIB), RX)?;
            assert_eq!(bench.tables(), [0, 0, 1, 1]);
            for offset in [0, 0x12_3000, GIB - PAGE, GIB, 2 * GIB - PAGE] {
                let found = bench.at(5 * GIB + offset)?.ok_or(ENOENT)?;
                assert_eq!(found.pa, 3 * GIB + offset);
                assert_eq!((found.flags, found.fragment), (RX_FLAGS, 18));
                assert!(found.giant);
            }
            assert!(bench.at(7 * GIB)?.is_none());
            assert!(bench.at(5 * GIB - PAGE)?.is_none());
            bench.unmap(5 * GIB, 2 * GIB)?;
            assert!(bench.stale);
            assert_eq!(bench.tables(), [0, 0, 0, 1]);
        }
        Ok(())
    }

    #[test]
    fn a_gibibyte_that_is_aligned_to_less_takes_smaller_pages() -> Result {
        for flavour in FLAVOURS {
            let mut bench = Bench::new(flavour)?;
            // Begins 2 MiB and a page before a multiple of 1 GiB, in both spaces: head, one entry, tail.
            let (va, pa) = (5 * GIB - HUGE - PAGE, 7 * GIB - HUGE - PAGE);
            bench.map(va, &run(pa, GIB + 2 * HUGE + 2 * PAGE), RW)?;
            assert_eq!(bench.tables(), [2, 2, 1, 1]);
            for (offset, size) in [
                (0, PAGE),
                (PAGE, HUGE),
                (HUGE + PAGE, GIB),
                (GIB + HUGE, GIB),
                (GIB + HUGE + PAGE, HUGE),
                (GIB + 2 * HUGE + PAGE, PAGE),
            ] {
                let found = bench.at(va + offset)?.ok_or(ENOENT)?;
                assert_eq!(found.pa, pa + offset);
                assert_eq!((found.huge, found.giant), (size == HUGE, size == GIB));
            }
            bench.unmap(va, GIB + 2 * HUGE + 2 * PAGE)?;
            // Only one of the addresses is a multiple.
            bench.map(5 * GIB, &run(GIB + HUGE, GIB), RW)?;
            assert_eq!(bench.tables(), [0, 1, 1, 1]);
            assert!(bench.at(5 * GIB)?.is_some_and(|found| found.huge));
            bench.map(9 * GIB + HUGE, &run(GIB, GIB), RW)?;
            assert_eq!(bench.tables(), [0, 3, 1, 1]);
        }
        Ok(())
    }

    #[test]
    fn cutting_a_gibibyte_leaves_the_rest() -> Result {
        // Where, how much, which tables that takes.
        let cuts = [
            (HUGE, HUGE, [0, 1, 0]),
            (0, HUGE, [0, 1, 0]),
            (GIB - HUGE, HUGE, [0, 1, 0]),
            (3 * HUGE + PAGE, PAGE, [1, 1, 0]),
            (3 * HUGE + PAGE, HUGE, [2, 1, 0]),
            (3 * HUGE + PAGE, 2 * HUGE - PAGE, [1, 1, 0]),
            (PAGE, GIB - PAGE, [1, 1, 0]),
            (GIB - PAGE, 2 * PAGE, [2, 2, 0]),
            (HUGE, GIB, [0, 2, 0]),
            (0, GIB, [0, 0, 0]),
        ];
        for flavour in FLAVOURS {
            for (start, len, tables) in cuts {
                let mut bench = Bench::new(flavour)?;
                bench.map(4 * GIB, &run(GIB, 2 * GIB), RX)?;
                let need = bench.tree.missing_for_unmap(4 * GIB + start, len);
                assert_eq!(need, TableCount(tables));
                if tables != [0, 0, 0] {
                    let result =
                        bench
                            .tree
                            .unmap(&bench.store, &mut Reserve::new(), 4 * GIB + start, len);
                    assert_eq!(result.err(), Some(EAGAIN));
                }
                bench.unmap(4 * GIB + start, len)?;
                assert!(bench.stale);
                assert_eq!(bench.store.early_links(), 0);
                let end = start + len;
                let ends = [0, start, end, GIB, 2 * GIB];
                for at in ends
                    .iter()
                    .flat_map(|at| [*at, at + HUGE - PAGE, at + HUGE])
                {
                    for offset in [at.wrapping_sub(PAGE), at] {
                        let found = bench.pa(4 * GIB + offset % (2 * GIB))?;
                        let offset = offset % (2 * GIB);
                        let there = !(start..end).contains(&offset);
                        assert_eq!(found, there.then_some(GIB + offset));
                    }
                }
                // A page of 1 GiB takes the place of the tables again.
                bench.map(4 * GIB, &run(GIB, 2 * GIB), RX)?;
                assert_eq!(bench.tables(), [0, 0, 1, 1]);
                assert_eq!(bench.store.live(), 2);
            }
        }
        Ok(())
    }

    #[test]
    fn a_page_inside_a_gibibyte_is_replaced_alone() -> Result {
        for flavour in FLAVOURS {
            let mut bench = Bench::new(flavour)?;
            bench.map(4 * GIB, &run(2 * GIB, GIB), RX)?;
            let at = 4 * GIB + 7 * HUGE + 5 * PAGE;
            bench.map(at, &run(0x1234_5000, PAGE), RW)?;
            assert!(bench.stale);
            assert_eq!(bench.tables(), [1, 1, 1, 1]);
            assert_eq!(bench.pa(at)?, Some(0x1234_5000));
            for other in [4 * GIB, at - PAGE, at + PAGE, at + HUGE, 5 * GIB - PAGE] {
                let found = bench.at(other)?.ok_or(ENOENT)?;
                assert_eq!(found.pa, 2 * GIB + (other - 4 * GIB));
                assert_eq!(found.flags, RX_FLAGS);
            }
        }
        Ok(())
    }

    #[test]
    fn misaligned_physical_address_needs_small_pages() -> Result {
        for flavour in FLAVOURS {
            let mut bench = Bench::new(flavour)?;
            bench.map(7 * HUGE, &run(3 * HUGE + PAGE, HUGE), RX)?;
            assert_eq!(bench.tables(), [1, 1, 1, 1]);
            for page in 0..512 {
                let found = bench.at(7 * HUGE + page * PAGE)?.ok_or(ENOENT)?;
                assert_eq!(found.pa, 3 * HUGE + (page + 1) * PAGE);
                assert!(!found.huge);
            }
        }
        Ok(())
    }

    #[test]
    fn misaligned_gibibyte_needs_every_table_of_small_pages() -> Result {
        for flavour in FLAVOURS {
            let bench = Bench::new(flavour)?;
            let need = |addr| bench.need(5 * GIB, &run(addr, GIB));
            assert_eq!(need(3 * GIB), TableCount([0, 0, 1]));
            assert_eq!(need(3 * GIB + HUGE), TableCount([0, 1, 1]));
            assert_eq!(need(3 * GIB + PAGE), TableCount([512, 1, 1]));
        }
        Ok(())
    }

    #[test]
    fn misaligned_start_mixes_page_sizes() -> Result {
        for flavour in FLAVOURS {
            let mut bench = Bench::new(flavour)?;
            // Head of one page, two huge pages, tail of two pages.
            let va = 5 * HUGE - PAGE;
            let pa = 9 * HUGE - PAGE;
            bench.map(va, &run(pa, 2 * HUGE + 3 * PAGE), RW)?;
            assert_eq!(bench.tables(), [2, 1, 1, 1]);
            for page in 0..2 * 512 + 3 {
                let found = bench.at(va + page * PAGE)?.ok_or(ENOENT)?;
                assert_eq!(found.pa, pa + page * PAGE);
                assert_eq!(found.huge, (1..1025).contains(&page));
            }
            assert!(bench.at(va - PAGE)?.is_none());
            assert!(bench.at(7 * HUGE + 2 * PAGE)?.is_none());
        }
        Ok(())
    }

    #[test]
    fn scattered_runs_follow_each_other() -> Result {
        let mut bench = Bench::new(Flavour::TranslateFurther)?;
        let runs = [
            Run {
                addr: 0x9000,
                len: PAGE,
            },
            Run {
                addr: 0x3000,
                len: 2 * PAGE,
            },
            Run {
                addr: 0x7_0000,
                len: PAGE,
            },
        ];
        bench.map(0x10_0000, &runs, RW)?;
        for (page, pa) in [0x9000, 0x3000, 0x4000, 0x7_0000].into_iter().enumerate() {
            assert_eq!(bench.pa(0x10_0000 + page as u64 * PAGE)?, Some(pa));
        }
        assert!(bench.at(0x10_4000)?.is_none());
        assert_eq!(bench.tables(), [1, 1, 1, 1]);
        Ok(())
    }

    #[test]
    fn ranges_may_cross_every_directory_boundary() -> Result {
        for flavour in FLAVOURS {
            for boundary in [HUGE, 1 << 30, 1 << 39] {
                let mut bench = Bench::new(flavour)?;
                let va = boundary - PAGE;
                bench.map(va, &run(0x5000, 2 * PAGE), RW)?;
                assert_eq!(bench.pa(va)?, Some(0x5000));
                assert_eq!(bench.pa(boundary)?, Some(0x6000));
                let want = match boundary {
                    HUGE => [2, 1, 1, 1],
                    0x4000_0000 => [2, 2, 1, 1],
                    _ => [2, 2, 2, 1],
                };
                assert_eq!(bench.tables(), want);
                bench.unmap(va, 2 * PAGE)?;
                assert_eq!(bench.tables(), [0, 0, 0, 1]);
            }
        }
        Ok(())
    }

    #[test]
    fn last_page_of_the_address_space_can_be_mapped() -> Result {
        let mut bench = Bench::new(Flavour::Plain)?;
        bench.map(VA_END - PAGE, &run(0x1000, PAGE), RW)?;
        assert_eq!(bench.pa(VA_END - PAGE)?, Some(0x1000));
        bench.unmap(VA_END - PAGE, PAGE)?;
        assert_eq!(bench.tables(), [0, 0, 0, 1]);
        Ok(())
    }

    #[test]
    fn fragments_follow_the_smallest_alignment() -> Result {
        // (first page of the VA, first page of the PA, pages, fragment of each page)
        let cases: [(u64, u64, u64, &[u32]); 6] = [
            (0, 0, 8, &[3, 3, 3, 3, 3, 3, 3, 3]),
            (1, 1, 3, &[0, 1, 1]),
            (0, 1, 4, &[0, 0, 0, 0]),
            (4, 8, 6, &[2, 2, 2, 2, 1, 1]),
            (0, 2, 4, &[1, 1, 1, 1]),
            (6, 6, 2, &[1, 1]),
        ];
        for flavour in FLAVOURS {
            for (va, pa, pages, want) in cases {
                let mut bench = Bench::new(flavour)?;
                let va = 0x40_0000 + va * PAGE;
                bench.map(va, &run(pa * PAGE, pages * PAGE), RW)?;
                for (page, fragment) in want.iter().enumerate() {
                    let found = bench.at(va + page as u64 * PAGE)?.ok_or(ENOENT)?;
                    assert_eq!(found.fragment, *fragment);
                }
            }
        }
        Ok(())
    }

    #[test]
    fn unmap_shrinks_the_fragment_it_cuts() -> Result {
        for flavour in FLAVOURS {
            let mut bench = Bench::new(flavour)?;
            bench.map(0x40_0000, &run(0x10_0000, 16 * PAGE), RW)?;
            assert_eq!(bench.at(0x40_0000)?.ok_or(ENOENT)?.fragment, 4);
            bench.unmap(0x40_0000 + 5 * PAGE, PAGE)?;
            let want: [Option<u32>; 16] = [
                Some(2),
                Some(2),
                Some(2),
                Some(2),
                Some(0),
                None,
                Some(1),
                Some(1),
                Some(3),
                Some(3),
                Some(3),
                Some(3),
                Some(3),
                Some(3),
                Some(3),
                Some(3),
            ];
            for (page, fragment) in want.into_iter().enumerate() {
                let found = bench.at(0x40_0000 + page as u64 * PAGE)?;
                assert_eq!(found.map(|found| found.fragment), fragment);
            }
        }
        Ok(())
    }

    #[test]
    fn fragments_reach_over_pages_of_2_mib() -> Result {
        let fragments = |bench: &Bench, want: &[Option<u32>]| -> Result {
            for (page, fragment) in want.iter().enumerate() {
                let va = GIB + page as u64 * HUGE + 3 * PAGE;
                let found = bench.at(va)?;
                assert_eq!(found.map(|found| found.fragment), *fragment);
                if let Some(found) = found {
                    assert_eq!(found.pa, 6 * GIB + va % GIB);
                }
            }
            Ok(())
        };
        for flavour in FLAVOURS {
            let mut bench = Bench::new(flavour)?;
            let runs = run(6 * GIB, 8 * HUGE);
            bench.map(GIB, &runs, RW)?;
            assert_eq!(bench.tables(), [0, 1, 1, 1]);
            fragments(&bench, &[Some(12); 8])?;
            // Of two pieces of memory that follow each other, as a buffer has them.
            bench.map(GIB + 8 * HUGE, &run(6 * GIB + 8 * HUGE, 3 * HUGE), RW)?;
            let (a, b, c) = (Some(12), Some(10), Some(9));
            fragments(&bench, &[a, a, a, a, a, a, a, a, b, b, c, None])?;
            // One page of the sixth: this has a table now, and nothing reaches over it.
            bench.unmap(GIB + 5 * HUGE + 4 * PAGE, PAGE)?;
            let (d, e) = (Some(11), Some(2));
            fragments(&bench, &[d, d, d, d, c, e, b, b, b, b, c, None])?;
            // A whole one.
            bench.unmap(GIB + 2 * HUGE, HUGE)?;
            fragments(&bench, &[b, b, None, c, c, e, b, b, b, b, c, None])?;
            // Others in their places, of which one does not continue its neighbours.
            bench.map(GIB + 6 * HUGE, &run(9 * GIB, HUGE), RW)?;
            assert_eq!(bench.at(GIB + 6 * HUGE)?.ok_or(ENOENT)?.fragment, 9);
            assert_eq!(bench.at(GIB + 7 * HUGE)?.ok_or(ENOENT)?.fragment, 9);
            bench.map(GIB, &runs, RW)?;
            fragments(&bench, &[a, a, a, a, a, a, a, a, b, b, c, None])?;
            assert_eq!(bench.tables(), [0, 1, 1, 1]);
            // One page of the fourth is replaced.
            bench.map(GIB + 3 * HUGE + 5 * PAGE, &run(0x9000, PAGE), RW)?;
            fragments(&bench, &[b, b, c, e, d, d, d, d, b, b, c, None])?;
            assert_eq!(bench.store.early_links(), 0);
        }
        Ok(())
    }

    #[test]
    fn reserve_is_checked_before_anything_changes() -> Result {
        for flavour in FLAVOURS {
            let mut bench = Bench::new(flavour)?;
            let runs = run(0x1000, 2 * PAGE);
            let va = (1 << 39) - PAGE;
            assert_eq!(bench.need(va, &runs), TableCount([2, 2, 2]));
            let mut reserve = Reserve::new();
            reserve.fill(&bench.store, flavour, TableCount([2, 2, 1]))?;
            let written = bench.store.written();
            let result = bench.tree.map(&bench.store, &mut reserve, va, &runs, RW);
            assert_eq!(result.err(), Some(EAGAIN));
            assert_eq!(bench.store.written(), written);
            assert_eq!(bench.tables(), [0, 0, 0, 1]);
            assert_eq!(reserve.len(Level::Ptb), 2);
            drop(reserve);
            assert_eq!(bench.store.live(), 1);
        }
        Ok(())
    }

    #[test]
    fn failing_allocation_leaves_no_trace() -> Result {
        let bench = Bench::new(Flavour::Plain)?;
        bench.store.set_budget(2);
        let mut reserve = Reserve::new();
        let result = reserve.fill(&bench.store, Flavour::Plain, TableCount([1, 1, 1]));
        assert_eq!(result, Err(ENOMEM));
        assert_eq!(bench.store.live(), 3);
        drop(reserve);
        assert_eq!(bench.store.live(), 1);
        Ok(())
    }

    #[test]
    fn bad_ranges_are_refused() -> Result {
        let mut bench = Bench::new(Flavour::TranslateFurther)?;
        let bad: [(u64, u64, u64); 9] = [
            (0x1001, 0, PAGE),
            (0x1000, 1, PAGE),
            (0x1000, 0, PAGE + 1),
            (0x1000, 0, 0),
            (VA_END, 0, PAGE),
            (VA_END - PAGE, 0, 2 * PAGE),
            (u64::MAX - PAGE + 1, 0, PAGE),
            (0x1000, 1 << 48, PAGE),
            (0x1000, u64::MAX - PAGE + 1, PAGE),
        ];
        for (va, addr, len) in bad {
            let runs = run(addr, len);
            let result = bench
                .tree
                .map(&bench.store, &mut Reserve::new(), va, &runs, RW);
            assert_eq!(result.err(), Some(EINVAL));
        }
        for (va, len) in [(1, PAGE), (0, 1), (0, 0), (VA_END, PAGE), (PAGE, VA_END)] {
            let result = bench.tree.unmap(&bench.store, &mut Reserve::new(), va, len);
            assert_eq!(result.err(), Some(EINVAL));
        }
        assert_eq!(bench.tables(), [0, 0, 0, 1]);
        Ok(())
    }

    #[test]
    fn tables_are_complete_before_they_are_linked() -> Result {
        for flavour in FLAVOURS {
            let mut bench = Bench::new(flavour)?;
            bench.map(0, &run(0, 4 * HUGE), RX)?;
            bench.unmap(HUGE + PAGE, PAGE)?;
            bench.map((1 << 39) - PAGE, &run(0x1000, 2 * PAGE), RW)?;
            assert_eq!(bench.store.early_links(), 0);
        }
        Ok(())
    }

    #[test]
    fn visit_reports_pages_in_order() -> Result {
        let mut bench = Bench::new(Flavour::TranslateFurther)?;
        bench.map(1 << 40, &run(0x5000, PAGE), RX)?;
        bench.map(HUGE - PAGE, &run(HUGE - PAGE, HUGE + PAGE), RW)?;
        let mut seen = KVec::new();
        bench.tree.visit::<Error>(&mut |leaf| {
            seen.push((leaf.va, leaf.pa, leaf.level), GFP_KERNEL)?;
            Ok(())
        })?;
        assert_eq!(
            &seen[..],
            &[
                (HUGE - PAGE, HUGE - PAGE, Level::Ptb),
                (HUGE, HUGE, Level::Pdb0),
                (1 << 40, 0x5000, Level::Ptb),
            ]
        );
        let mut calls = 0;
        let result = bench.tree.visit(&mut |_| {
            calls += 1;
            Err(EINTR)
        });
        assert_eq!((result, calls), (Err(EINTR), 1));
        Ok(())
    }
}
