// SPDX-License-Identifier: GPL-2.0

//! Ranges of a mirror with hints, compared with a table of pages; and how long memory stays in the system that has bounced.

use core::ops::Range;

use kernel::prelude::*;

use crate::mirror::{
    Answer,
    Bounces,
    Hint,
    Hinted,
    Hints,
    FIRST_WAIT,
    LONGEST_WAIT,
    MAX_RANGES,
    SOON, //
};

const PAGE: u64 = 0x1000;
const HUGE: u64 = 0x20_0000;
/// Where the ranges begin.
const BASE: u64 = 0x7000_0000_0000;

const VRAM: Hint = Hint::Vram { reach: None };

fn pages(first: u64, end: u64) -> Range<u64> {
    BASE + first * PAGE..BASE + end * PAGE
}

/// All ranges, in pages.
fn listed(hints: &Hints) -> Result<KVVec<(u64, u64, Hint)>> {
    let mut all = KVVec::new();
    let mut from = 0;
    while let Some(Hinted { range, hint }) = hints.next_from(from) {
        let page = |va: u64| (va - BASE) / PAGE;
        all.push((page(range.start), page(range.end), *hint), GFP_KERNEL)?;
        from = range.end;
    }
    Ok(all)
}

/// Each second page, from the first one on.
fn full() -> Result<Hints> {
    let mut hints = Hints::new();
    for n in 0..MAX_RANGES as u64 {
        hints.note(&pages(2 * n, 2 * n + 1), Some(VRAM))?;
    }
    Ok(hints)
}

#[kunit_tests(rkfd_mirror_hints)]
mod suite {
    use super::*;

    #[test]
    fn a_new_range_cuts_older_ones_and_joins_those_that_are_alike() -> Result {
        let mut hints = Hints::new();
        hints.note(&pages(0, 100), Some(VRAM))?;
        hints.note(&pages(40, 60), Some(Hint::Stay))?;
        let three = [(0, 40, VRAM), (40, 60, Hint::Stay), (60, 100, VRAM)];
        assert_eq!(listed(&hints)?[..], three);
        assert_eq!(hints.len(), 3);
        // What says the same, but moves other amounts, is another range.
        let small = Hint::Vram {
            reach: Some(16 * PAGE),
        };
        hints.note(&pages(100, 110), Some(small))?;
        assert_eq!(hints.len(), 4);
        hints.note(&pages(40, 60), Some(VRAM))?;
        assert_eq!(listed(&hints)?[..], [(0, 100, VRAM), (100, 110, small)]);
        hints.note(&pages(10, 105), None)?;
        assert_eq!(listed(&hints)?[..], [(0, 10, VRAM), (105, 110, small)]);
        hints.note(&pages(0, 200), None)?;
        assert_eq!(hints.len(), 0);
        assert!(hints.at(BASE).is_none());
        Ok(())
    }

    #[test]
    fn random_ranges_agree_with_a_table_of_pages() -> Result {
        const PAGES: u64 = 96;
        const KINDS: [Option<Hint>; 5] = [
            None,
            Some(VRAM),
            Some(Hint::Vram { reach: Some(HUGE) }),
            Some(Hint::System),
            Some(Hint::Stay),
        ];
        let mut hints = Hints::new();
        let mut table = [None; PAGES as usize];
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 20) % below
        };
        for _ in 0..2000 {
            let start = random(PAGES);
            let end = start + 1 + random(PAGES - start);
            let hint = *KINDS.get(random(5) as usize).ok_or(EINVAL)?;
            hints.note(&pages(start, end), hint)?;
            let part = table.get_mut(start as usize..end as usize);
            part.unwrap_or_default().fill(hint);
            let runs = table.chunk_by(|a, b| a == b);
            let runs = runs.filter(|run| run.first().is_some_and(Option::is_some));
            assert_eq!(hints.len(), runs.count());
            for (page, want) in (0..).zip(&table) {
                let at = BASE + page * PAGE;
                let found = hints.at(at);
                assert_eq!(found.map(|known| known.hint), *want);
                let (vram, end) = hints.wants_vram(&(at..BASE + PAGES * PAGE));
                assert_eq!(vram, matches!(want, Some(Hint::Vram { .. })));
                assert!(end > at && (end - BASE) % PAGE == 0);
                // As far as it goes it is one answer.
                for other in page..(end - BASE) / PAGE {
                    let other = table.get(other as usize).copied().flatten();
                    assert_eq!(vram, matches!(other, Some(Hint::Vram { .. })));
                }
            }
        }
        Ok(())
    }

    #[test]
    fn at_the_bound_what_leaves_no_more_ranges_still_works() -> Result {
        let mut hints = full()?;
        assert_eq!(hints.len(), MAX_RANGES);
        let above = 2 * MAX_RANGES as u64;
        assert_eq!(
            hints.note(&pages(above, above + 1), Some(VRAM)),
            Err(ENOSPC)
        );
        assert_eq!(hints.note(&pages(1, 2), Some(Hint::Stay)), Err(ENOSPC));
        assert!(hints.at(BASE + PAGE).is_none() && hints.at(BASE + above * PAGE).is_none());
        assert_eq!(hints.len(), MAX_RANGES);
        // Another place; one that joins two; nothing any more.
        hints.note(&pages(4, 5), Some(Hint::System))?;
        assert_eq!(hints.len(), MAX_RANGES);
        hints.note(&pages(11, 12), Some(VRAM))?;
        assert_eq!(hints.len(), MAX_RANGES - 1);
        hints.note(&pages(0, above), Some(Hint::Stay))?;
        assert_eq!(listed(&hints)?[..], [(0, above, Hint::Stay)]);
        let mut hints = full()?;
        hints.note(&pages(0, above), None)?;
        assert_eq!(hints.len(), 0);
        Ok(())
    }

    #[test]
    fn what_moves_at_once_is_aligned_and_stays_in_the_range() {
        let choice = BASE + 16 * PAGE..BASE + 32 * PAGE;
        let block = |reach, first, end, page| {
            let known = Hinted {
                range: pages(first, end),
                hint: Hint::Vram { reach },
            };
            known.block(BASE + page * PAGE, &choice)
        };
        assert_eq!(block(Some(16 * PAGE), 0, 512, 37), Some(pages(32, 48)));
        assert_eq!(block(Some(16 * PAGE), 35, 39, 37), Some(pages(35, 39)));
        assert_eq!(block(Some(HUGE), 0, 2048, 600), Some(pages(512, 1024)));
        assert_eq!(block(None, 0, 512, 20), Some(pages(16, 32)));
        assert_eq!(block(None, 18, 512, 20), Some(pages(18, 32)));
        for hint in [Hint::System, Hint::Stay] {
            let range = pages(0, 512);
            assert_eq!(Hinted { range, hint }.block(BASE, &choice), None);
        }
    }

    #[test]
    fn granules_that_are_to_be_in_vram_count_once() -> Result {
        let mut hints = Hints::new();
        assert_eq!(hints.granules_for_vram(), 0);
        hints.note(&pages(10, 11), Some(VRAM))?;
        hints.note(&pages(20, 21), Some(VRAM))?;
        assert_eq!(hints.granules_for_vram(), 1);
        hints.note(&pages(500, 513), Some(VRAM))?;
        assert_eq!(hints.granules_for_vram(), 2);
        hints.note(&pages(1024, 4096), Some(Hint::Stay))?;
        assert_eq!(hints.granules_for_vram(), 2);
        hints.note(&pages(1024, 4096), Some(VRAM))?;
        assert_eq!(hints.granules_for_vram(), 8);
        Ok(())
    }

    #[test]
    fn memory_that_bounces_waits_twice_as_long_each_time() {
        let mut bounces = Bounces::NEW;
        let mut now = 1000;
        assert_eq!(bounces.ask(now), Answer::Move);
        let mut wait = FIRST_WAIT;
        for _ in 0..14 {
            bounces.begin();
            bounces.note_in(now);
            bounces.note_change(now + SOON - 1);
            bounces.note_change(now + 2 * SOON);
            now += SOON;
            assert_eq!(bounces.ask(now), Answer::Bounced);
            assert_eq!(bounces.ask(now), Answer::Wait);
            assert_eq!(bounces.ask(now + wait - 1), Answer::Wait);
            assert!(bounces.waits(now + wait - 1) && !bounces.waits(now + wait));
            now += wait;
            assert_eq!(bounces.ask(now), Answer::Move);
            wait = (2 * wait).min(LONGEST_WAIT);
        }
        assert_eq!(wait, LONGEST_WAIT);
        // What stays for a while begins anew.
        bounces.begin();
        bounces.note_in(now);
        bounces.note_change(now + SOON);
        assert_eq!(bounces.ask(now + SOON), Answer::Move);
        bounces.begin();
        bounces.note_in(now + SOON);
        bounces.note_change(now + SOON);
        now += SOON;
        assert_eq!(bounces.ask(now), Answer::Bounced);
        assert!(bounces.waits(now + FIRST_WAIT - 1) && !bounces.waits(now + FIRST_WAIT));
    }

    #[test]
    fn memory_that_is_touched_before_its_move_is_noted_has_bounced() {
        let mut bounces = Bounces::NEW;
        bounces.note_change(5);
        bounces.begin();
        bounces.note_in(10);
        // That was before.
        assert_eq!(bounces.ask(20), Answer::Move);
        bounces.begin();
        bounces.note_change(29);
        bounces.note_in(30);
        assert_eq!(bounces.ask(40), Answer::Bounced);
        // Without a move there is none.
        bounces.note_change(50);
        assert_eq!(bounces.ask(40 + FIRST_WAIT), Answer::Move);
    }
}
