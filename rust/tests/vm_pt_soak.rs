// SPDX-License-Identifier: GPL-2.0

//! Page tables under many random changes, each checked against a plain array.

use kernel::prelude::*;

use super::vm_pt_bench::{
    run,
    Bench,
    FLAVOURS,
    RW,
    RW_FLAGS,
    RX,
    RX_FLAGS, //
};
use crate::vm::pt::{
    GIB,
    HUGE,
    PAGE, //
};

/// Repeatable pseudo-random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Compares each page from `base` on.
fn check(bench: &Bench, base: u64, want: &[Option<(u64, u64)>]) -> Result {
    for (page, want_page) in want.iter().enumerate() {
        let va = base + page as u64 * PAGE;
        let found = bench.at(va)?;
        assert_eq!(found.map(|found| (found.pa, found.flags)), *want_page);
        let Some(found) = found else { continue };
        // Every page of the fragment must continue this one, aligned in both spaces.
        let size = PAGE << found.fragment;
        let back = va % size;
        assert_eq!(found.pa % size, back);
        if !found.huge && !found.giant {
            assert!(found.fragment <= 9);
            for at in [va - back, va - back + size - PAGE] {
                let index = ((at - base) / PAGE) as usize;
                let other = want.get(index).copied().flatten().ok_or(ENOENT)?;
                assert_eq!(
                    other,
                    (found.pa.wrapping_add(at).wrapping_sub(va), found.flags)
                );
            }
        }
    }
    assert!(bench.at(base - PAGE)?.is_none());
    assert!(bench.at(base + want.len() as u64 * PAGE)?.is_none());
    assert_eq!(bench.store.live(), bench.tree.total_tables());
    Ok(())
}

#[kunit_tests(rkfd_vm_page_table_soak)]
mod cases {
    use super::*;

    /// Random maps and unmaps over a window across a 512 GiB boundary, checked page by page
    /// against a plain array after each step.
    #[test]
    fn soak() -> Result {
        const PAGES: usize = 3 * 512;
        for flavour in FLAVOURS {
            let base = (1u64 << 39) - HUGE - HUGE / 2;
            let mut bench = Bench::new(flavour)?;
            let mut random = Random(0x5eed_0000_0000_0001);
            let mut want: KVVec<Option<(u64, u64)>> = KVVec::from_elem(None, PAGES, GFP_KERNEL)?;
            for _ in 0..100 {
                let first = random.below(PAGES as u64) as usize;
                let most = if random.below(2) == 0 {
                    40
                } else {
                    PAGES as u64
                };
                let count = (1 + random.below(most)).min((PAGES - first) as u64) as usize;
                let (va, len) = (base + first as u64 * PAGE, count as u64 * PAGE);
                let mut lost = false;
                if random.below(3) != 0 {
                    // Often congruent to the VA modulo 2 MiB, so that huge pages occur.
                    let pa = match random.below(2) {
                        0 => 4 * HUGE + va % HUGE,
                        _ => random.below(1 << 16) * PAGE,
                    };
                    let (attrs, flags) = match random.below(2) {
                        0 => (RW, RW_FLAGS),
                        _ => (RX, RX_FLAGS),
                    };
                    for page in 0..count {
                        let slot = want.get_mut(first + page).ok_or(EIO)?;
                        let new = Some((pa + page as u64 * PAGE, flags));
                        lost |= slot.is_some() && *slot != new;
                        *slot = new;
                    }
                    bench.map(va, &run(pa, len), attrs)?;
                } else {
                    for slot in want.iter_mut().skip(first).take(count) {
                        lost |= slot.take().is_some();
                    }
                    bench.unmap(va, len)?;
                }
                // A changed or removed translation must never go without a flush.
                assert!(bench.stale || !lost);
                check(&bench, base, &want)?;
            }
            assert_eq!(bench.store.early_links(), 0);
            bench.unmap(base, PAGES as u64 * PAGE)?;
            assert_eq!(bench.tables(), [0, 0, 0, 1]);
            assert_eq!(bench.store.live(), 1);
        }
        Ok(())
    }

    /// The same over 3 GiB in steps of 1 MiB, so that pages of 1 GiB come, are cut, and go. The
    /// array has one slot for each half of 2 MiB, of which the first and the last page are looked at in turn.
    #[test]
    fn soak_of_gibibytes() -> Result {
        const STEP: u64 = HUGE / 2;
        const SLOTS: usize = (3 * GIB / STEP) as usize;
        for flavour in FLAVOURS {
            let base = (1u64 << 39) - GIB;
            let mut bench = Bench::new(flavour)?;
            let mut random = Random(0x5eed_0000_0000_0002);
            let mut want: KVVec<Option<u64>> = KVVec::from_elem(None, SLOTS, GFP_KERNEL)?;
            let (mut giants, mut larger) = (0, 0);
            for step in 0..25 {
                // Mostly whole gibibytes, else anything.
                let (first, count) = match random.below(4) {
                    0 => {
                        let first = random.below(SLOTS as u64) as usize;
                        let count = 1 + random.below((SLOTS - first) as u64) as usize;
                        (first, count)
                    }
                    1 => (random.below(SLOTS as u64) as usize, 1),
                    _ => (random.below(3) as usize * SLOTS / 3, SLOTS / 3),
                };
                let (va, len) = (base + first as u64 * STEP, count as u64 * STEP);
                if random.below(4) != 0 {
                    let pa = match random.below(3) {
                        0 => random.below(1 << 12) * STEP,
                        _ => 8 * GIB + va % GIB,
                    };
                    for (slot, index) in want.iter_mut().skip(first).take(count).zip(0u64..) {
                        *slot = Some(pa + index * STEP);
                    }
                    bench.map(va, &run(pa, len), RX)?;
                } else {
                    for slot in want.iter_mut().skip(first).take(count) {
                        *slot = None;
                    }
                    bench.unmap(va, len)?;
                }
                for (slot, index) in want.iter().zip(0u64..) {
                    let inside = if step % 2 == 0 { 0 } else { STEP - PAGE };
                    let found = bench.at(base + index * STEP + inside)?;
                    assert_eq!(found.map(|found| found.pa), slot.map(|pa| pa + inside));
                    let Some(found) = found else { continue };
                    giants += usize::from(found.giant);
                    // Every page of the fragment must continue this one, aligned in both spaces.
                    let size = PAGE << found.fragment;
                    let at = index * STEP + inside;
                    let back = (base + at) % size;
                    assert_eq!(found.pa % size, back);
                    assert!(found.giant || size <= GIB);
                    if found.huge && found.fragment > 9 {
                        larger += 1;
                        for end in [at - back, at - back + size - STEP] {
                            let other = want.get((end / STEP) as usize).copied().flatten();
                            let first = other.ok_or(ENOENT)?;
                            assert_eq!(first.wrapping_sub(end), found.pa.wrapping_sub(at));
                        }
                    }
                }
                assert_eq!(bench.store.live(), bench.tree.total_tables());
            }
            assert!(giants != 0 && larger != 0);
            assert_eq!(bench.store.early_links(), 0);
            bench.unmap(base, 3 * GIB)?;
            assert_eq!(bench.tables(), [0, 0, 0, 1]);
        }
        Ok(())
    }
}
