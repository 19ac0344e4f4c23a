// SPDX-License-Identifier: GPL-2.0

//! Page tables that change, against the simulated VRAM of [`super::vm_pt_bench`].

use kernel::prelude::*;

use super::vm_pt_bench::{
    run,
    Bench,
    FLAVOURS,
    RW,
    RX,
    RX_FLAGS, //
};
use crate::{
    hw::pte::Flavour,
    vm::pt::{
        Reserve,
        TableCount,
        HUGE,
        PAGE,
        VA_END, //
    },
};

#[kunit_tests(rkfd_vm_page_table_changes)]
mod cases {
    use super::*;

    #[test]
    fn unmap_returns_every_table() -> Result {
        for flavour in FLAVOURS {
            let mut bench = Bench::new(flavour)?;
            for i in 0..5u64 {
                bench.map((i << 39) + 0x20_1000, &run(0x1000, HUGE + PAGE), RW)?;
            }
            assert_eq!(bench.tables(), [10, 5, 5, 1]);
            assert_eq!(bench.store.live(), 21);
            for i in 0..5u64 {
                bench.unmap((i << 39) + 0x20_1000, HUGE + PAGE)?;
                assert!(bench.stale);
            }
            assert_eq!(bench.tables(), [0, 0, 0, 1]);
            assert_eq!(bench.store.live(), 1);
        }
        Ok(())
    }

    #[test]
    fn retired_tables_live_until_the_caller_lets_go() -> Result {
        let mut bench = Bench::new(Flavour::TranslateFurther)?;
        bench.map(0x20_0000, &run(0x1000, PAGE), RW)?;
        let changed = bench
            .tree
            .unmap(&bench.store, &mut Reserve::new(), 0x20_0000, PAGE)?;
        assert!(changed.stale);
        assert_eq!(changed.retired.len(), 3);
        assert_eq!(bench.tables(), [0, 0, 0, 1]);
        // Still allocated: the GPU may walk them until the TLB is flushed.
        assert_eq!(bench.store.live(), 4);
        drop(changed);
        assert_eq!(bench.store.live(), 1);
        Ok(())
    }

    #[test]
    fn unmap_of_nothing_changes_nothing() -> Result {
        let mut bench = Bench::new(Flavour::Plain)?;
        bench.map(0x20_0000, &run(0x1000, PAGE), RW)?;
        let written = bench.store.written();
        bench.unmap(0x20_1000, 511 * PAGE)?;
        assert!(!bench.stale);
        bench.unmap(0x40_0000, VA_END - 0x40_0000)?;
        assert!(!bench.stale);
        assert_eq!(bench.pa(0x20_0000)?, Some(0x1000));
        assert_eq!(bench.tables(), [1, 1, 1, 1]);
        // The first call rewrites at most what it was asked to clear.
        assert!(bench.store.written() - written <= 511);
        Ok(())
    }

    #[test]
    fn unmap_of_everything_at_once() -> Result {
        let mut bench = Bench::new(Flavour::TranslateFurther)?;
        bench.map(0, &run(0, 3 * HUGE), RW)?;
        bench.map(1 << 40, &run(0x1000, 3 * PAGE), RW)?;
        bench.map(VA_END - HUGE, &run(0, HUGE), RW)?;
        bench.unmap(0, VA_END)?;
        assert!(bench.stale);
        assert_eq!(bench.tables(), [0, 0, 0, 1]);
        assert_eq!(bench.store.live(), 1);
        Ok(())
    }

    #[test]
    fn partial_unmap_splits_a_huge_page() -> Result {
        for flavour in FLAVOURS {
            let mut bench = Bench::new(flavour)?;
            bench.map(4 * HUGE, &run(6 * HUGE, HUGE), RX)?;
            assert_eq!(bench.tables(), [0, 1, 1, 1]);
            bench.unmap(4 * HUGE + 100 * PAGE, 50 * PAGE)?;
            assert!(bench.stale);
            assert_eq!(bench.tables(), [1, 1, 1, 1]);
            for page in 0..512 {
                let found = bench.at(4 * HUGE + page * PAGE)?;
                if (100..150).contains(&page) {
                    assert!(found.is_none());
                } else {
                    let found = found.ok_or(ENOENT)?;
                    assert_eq!(found.pa, 6 * HUGE + page * PAGE);
                    assert_eq!(found.flags, RX_FLAGS);
                }
            }
            bench.unmap(4 * HUGE, HUGE)?;
            assert_eq!(bench.tables(), [0, 0, 0, 1]);
        }
        Ok(())
    }

    #[test]
    fn unmap_may_cut_two_huge_pages() -> Result {
        for flavour in FLAVOURS {
            let mut bench = Bench::new(flavour)?;
            bench.map(4 * HUGE, &run(0, 3 * HUGE), RX)?;
            let need = bench
                .tree
                .missing_for_unmap(5 * HUGE - PAGE, HUGE + 2 * PAGE);
            assert_eq!(need, TableCount([2, 0, 0]));
            bench.unmap(5 * HUGE - PAGE, HUGE + 2 * PAGE)?;
            assert_eq!(bench.tables(), [2, 1, 1, 1]);
            assert_eq!(bench.pa(5 * HUGE - 2 * PAGE)?, Some(HUGE - 2 * PAGE));
            assert!(bench.at(5 * HUGE - PAGE)?.is_none());
            assert!(bench.at(5 * HUGE)?.is_none());
            assert!(bench.at(6 * HUGE)?.is_none());
            assert_eq!(bench.pa(6 * HUGE + PAGE)?, Some(2 * HUGE + PAGE));
        }
        Ok(())
    }

    #[test]
    fn cutting_needs_a_reserve() -> Result {
        let mut bench = Bench::new(Flavour::Plain)?;
        bench.map(0, &run(0, HUGE), RW)?;
        let result = bench
            .tree
            .unmap(&bench.store, &mut Reserve::new(), PAGE, PAGE);
        assert_eq!(result.err(), Some(EAGAIN));
        assert_eq!(bench.pa(PAGE)?, Some(PAGE));
        assert_eq!(bench.tables(), [0, 1, 1, 1]);
        Ok(())
    }

    #[test]
    fn remap_replaces_and_asks_for_a_flush() -> Result {
        for flavour in FLAVOURS {
            let mut bench = Bench::new(flavour)?;
            bench.map(0x10_0000, &run(0x1000, 4 * PAGE), RW)?;
            assert!(!bench.stale);
            bench.map(0x10_1000, &run(0x8000, PAGE), RX)?;
            assert!(bench.stale);
            assert_eq!(bench.pa(0x10_0000)?, Some(0x1000));
            let found = bench.at(0x10_1000)?.ok_or(ENOENT)?;
            assert_eq!((found.pa, found.flags), (0x8000, RX_FLAGS));
            assert_eq!(bench.pa(0x10_2000)?, Some(0x3000));
            assert_eq!(bench.tables(), [1, 1, 1, 1]);
        }
        Ok(())
    }

    #[test]
    fn adjacent_map_needs_no_flush() -> Result {
        let mut bench = Bench::new(Flavour::TranslateFurther)?;
        bench.map(0x10_0000, &run(0x1000, 4 * PAGE), RW)?;
        bench.map(0x10_4000, &run(0x5000, 4 * PAGE), RW)?;
        assert!(!bench.stale);
        bench.map(0x40_0000, &run(0x40_0000, HUGE), RW)?;
        assert!(!bench.stale);
        Ok(())
    }

    #[test]
    fn huge_page_replaces_a_table() -> Result {
        for flavour in FLAVOURS {
            let mut bench = Bench::new(flavour)?;
            bench.map(2 * HUGE + PAGE, &run(0x1000, PAGE), RW)?;
            assert_eq!(bench.store.live(), 4);
            bench.map(2 * HUGE, &run(8 * HUGE, HUGE), RX)?;
            assert!(bench.stale);
            assert_eq!(bench.tables(), [0, 1, 1, 1]);
            assert_eq!(bench.store.live(), 3);
            assert_eq!(bench.pa(2 * HUGE + PAGE)?, Some(8 * HUGE + PAGE));
        }
        Ok(())
    }

    #[test]
    fn small_page_inside_a_huge_one() -> Result {
        for flavour in FLAVOURS {
            let mut bench = Bench::new(flavour)?;
            bench.map(2 * HUGE, &run(8 * HUGE, HUGE), RX)?;
            assert_eq!(
                bench.need(2 * HUGE + 7 * PAGE, &run(0x9000, PAGE)),
                TableCount([1, 0, 0])
            );
            bench.map(2 * HUGE + 7 * PAGE, &run(0x9000, PAGE), RW)?;
            assert!(bench.stale);
            assert_eq!(bench.pa(2 * HUGE + 6 * PAGE)?, Some(8 * HUGE + 6 * PAGE));
            assert_eq!(bench.pa(2 * HUGE + 7 * PAGE)?, Some(0x9000));
            assert_eq!(bench.pa(2 * HUGE + 8 * PAGE)?, Some(8 * HUGE + 8 * PAGE));
            assert_eq!(bench.store.early_links(), 0);
        }
        Ok(())
    }
}
