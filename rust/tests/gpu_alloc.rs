// SPDX-License-Identifier: GPL-2.0

//! Allocators of one GPU: VRAM, doorbells, address space ids, and the place of the GART window.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    gpu::{
        gart::{
            window_start,
            WINDOW, //
        },
        reserved::Span,
        DoorbellManager,
        DoorbellSlice,
        PasidPool,
        Registry,
        VramBlock,
        VramBlocks,
        VramManager, //
    },
    hw::doorbell::DoorbellLayout,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Where a card's VRAM usually is.
const MC: u64 = 512 * GIB;

static LAYOUT: DoorbellLayout = DoorbellLayout::VEGA20;

fn vram() -> Result<Arc<VramManager>> {
    VramManager::new(64 * MIB, MC, 0x10_0000_0000)
}

fn overlaps(a: &VramBlock, b: &VramBlock) -> bool {
    a.offset() < b.offset() + b.size() && b.offset() < a.offset() + a.size()
}

#[kunit_tests(rkfd_gpu_alloc)]
mod cases {
    use super::*;

    #[test]
    fn vram_addresses_follow_from_the_offset() -> Result {
        let block = vram()?.alloc(3 * KIB, 0)?;
        assert_eq!(block.size(), 4 * KIB);
        assert_eq!(block.mc(), MC + block.offset());
        assert_eq!(block.pa(), 0x10_0000_0000 + block.offset());
        Ok(())
    }

    #[test]
    fn large_vram_blocks_can_be_mapped_by_huge_pages() -> Result {
        let vram = vram()?;
        let small = vram.alloc(4 * KIB, 0)?;
        let under = vram.alloc(2 * MIB - 4 * KIB, 0)?;
        let huge = vram.alloc(2 * MIB, 0)?;
        let odd = vram.alloc(2 * MIB + 1, 0)?;
        assert_eq!(huge.offset() % (2 * MIB), 0);
        assert_eq!(odd.offset() % (2 * MIB), 0);
        assert_eq!(odd.size(), 2 * MIB + 4 * KIB);
        assert_eq!(under.offset() % (4 * KIB), 0);
        for (i, a) in [&small, &under, &huge, &odd].iter().enumerate() {
            for b in [&small, &under, &huge, &odd].iter().skip(i + 1) {
                assert!(!overlaps(a, b));
            }
        }
        Ok(())
    }

    #[test]
    fn vram_alignment_is_kept_at_every_power_of_two() -> Result {
        let vram = vram()?;
        for shift in 0..25 {
            let block = vram.alloc(4 * KIB, 1 << shift)?;
            assert_eq!(block.offset() % (1 << shift), 0);
        }
        Ok(())
    }

    #[test]
    fn bad_vram_requests_are_refused() -> Result {
        let vram = vram()?;
        assert_eq!(vram.alloc(0, 0).err(), Some(EINVAL));
        assert_eq!(vram.alloc(4 * KIB, 3).err(), Some(EINVAL));
        assert_eq!(vram.alloc(u64::MAX, 0).err(), Some(EINVAL));
        assert_eq!(vram.alloc(u64::MAX - 8 * KIB, 0).err(), Some(ENOSPC));
        assert_eq!(vram.alloc(64 * MIB, 0).err(), Some(ENOSPC));
        assert_eq!(vram.used(), 0);
        assert_eq!(VramManager::new(64 * KIB, 0, 0).err(), Some(EINVAL));
        assert_eq!(VramManager::new(1, 0, 0).err(), Some(EINVAL));
        assert_eq!(VramManager::new(GIB, u64::MAX, 0).err(), Some(EINVAL));
        Ok(())
    }

    #[test]
    fn vram_is_counted_exhausted_and_comes_back_whole() -> Result {
        let vram = vram()?;
        let total = vram.total();
        assert_eq!(total, 64 * MIB - 64 * KIB);
        for _ in 0..3 {
            let mut blocks = KVec::new();
            loop {
                match vram.alloc(MIB, 0) {
                    Ok(block) => blocks.push(block, GFP_KERNEL)?,
                    Err(e) => {
                        assert_eq!(e, ENOSPC);
                        break;
                    }
                }
            }
            assert_eq!(blocks.len(), 63);
            assert_eq!(vram.used(), 63 * MIB);
            assert_eq!(vram.available(), total - 63 * MIB);
            // Every other block, then the rest: the holes must merge again.
            let mut keep = KVec::new();
            for (i, block) in blocks.drain_all().enumerate() {
                if i % 2 == 0 {
                    keep.push(block, GFP_KERNEL)?;
                }
            }
            drop(keep);
            assert_eq!(vram.used(), 0);
            let whole = vram.alloc(total & !(2 * MIB - 1), 0)?;
            assert_eq!(whole.offset(), 0);
        }
        Ok(())
    }

    #[test]
    fn scattered_vram_fills_holes_that_one_block_does_not_fit_in() -> Result {
        let vram = vram()?;
        let total = vram.total();
        // Holes of 1 MiB between blocks of 1 MiB.
        let mut keep = KVec::new();
        let mut holes = KVec::new();
        while let Ok(block) = vram.alloc(MIB, 0) {
            if block.offset() / MIB % 2 == 0 {
                keep.push(block, GFP_KERNEL)?;
            } else {
                holes.push(block, GFP_KERNEL)?;
            }
        }
        assert_eq!((keep.len(), holes.len()), (32, 31));
        drop(holes);
        assert_eq!(vram.alloc(MIB + 4 * KIB, 0).err(), Some(ENOSPC));
        assert_eq!(vram.alloc_blocks(2 * MIB, true).err(), Some(ENOSPC));
        let left = vram.available();
        assert_eq!(left, total - 32 * MIB);
        let all = vram.alloc_blocks(left, false)?;
        assert_eq!(vram.available(), 0);
        let mut sum = 0;
        for span in all.spans() {
            sum += span.size;
            for block in &keep {
                let end = block.offset() + block.size();
                assert!(end <= span.start || span.start + span.size <= block.offset());
            }
        }
        assert_eq!(sum, left);
        assert_eq!(vram.alloc_blocks(1, false).err(), Some(ENOSPC));
        drop(all);
        assert_eq!(vram.available(), left);
        Ok(())
    }

    #[test]
    fn offsets_in_scattered_vram_find_each_byte_once() -> Result {
        let vram = vram()?;
        // No power of two, and more than the largest block.
        let all = vram.alloc_blocks(37 * MIB + 20 * KIB, false)?;
        let mut offset = 0;
        for span in all.spans() {
            assert_eq!(all.locate(offset), Some((span.start, span.size)));
            let last = offset + span.size - 1;
            assert_eq!(all.locate(last), Some((span.start + span.size - 1, 1)));
            // Large parts first, each where a page of its size can begin.
            assert_eq!(offset % span.size.min(2 * MIB), 0);
            assert_eq!(span.start % span.size.min(2 * MIB), 0);
            offset += span.size;
        }
        assert_eq!(offset, 37 * MIB + 20 * KIB);
        assert_eq!(all.locate(offset), None);
        assert_eq!(all.locate(u64::MAX), None);
        assert_eq!(all.pa(4 * KIB), 0x10_0000_1000);
        drop(all);

        let one = vram.alloc_blocks(5 * MIB + 1, true)?;
        assert_eq!(one.spans().count(), 1);
        assert_eq!(one.locate(5 * MIB).map(|(_, follow)| follow), Some(4 * KIB));
        assert_eq!(
            one.spans().next().map(|span| span.start % (2 * MIB)),
            Some(0)
        );
        Ok(())
    }

    #[test]
    fn reserved_vram_is_nobody_elses() -> Result {
        let vram = vram()?;
        let span = Span {
            start: 5 * MIB + 123,
            size: MIB,
        };
        let reserved = vram.reserve(span)?.ok_or(EINVAL)?;
        // Whole pages around it.
        assert_eq!(reserved.offset(), 5 * MIB);
        assert_eq!(reserved.size(), MIB + 4 * KIB);
        assert_eq!(vram.used(), MIB + 4 * KIB);
        assert_eq!(vram.reserve(span).err(), Some(ENOSPC));
        let rest = vram.alloc_blocks(vram.available(), false)?;
        for part in rest.spans() {
            let end = reserved.offset() + reserved.size();
            assert!(part.start >= end || part.start + part.size <= reserved.offset());
        }
        // What is not managed is no error; what reaches beyond the end is cut.
        let beyond = Span {
            start: vram.total(),
            size: MIB,
        };
        assert!(vram.reserve(beyond)?.is_none());
        drop(rest);
        let across = Span {
            start: vram.total() - 4 * KIB,
            size: u64::MAX / 2,
        };
        assert_eq!(
            vram.reserve(across)?.map(|block| block.size()),
            Some(4 * KIB)
        );
        Ok(())
    }

    /// What a random walk through the allocator holds.
    enum Held {
        One(VramBlock),
        Many(VramBlocks),
    }

    /// Marks the pages of a part taken or free, which they must not have been before.
    fn mark(map: &mut [bool], start: u64, size: u64, taken: bool) {
        for page in start / (4 * KIB)..(start + size) / (4 * KIB) {
            let page = &mut map[page as usize];
            assert!(*page != taken);
            *page = taken;
        }
    }

    #[test]
    fn no_page_of_vram_is_taken_twice() -> Result {
        let vram = vram()?;
        let pages = (vram.total() / (4 * KIB)) as usize;
        let mut map = KVVec::from_elem(false, pages, GFP_KERNEL)?;
        let mut held: KVec<Held> = KVec::new();
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut refused = 0;
        for step in 0..3000 {
            let exponent = random(12);
            let size = (1 + random(1 << exponent)) * 4 * KIB;
            match random(5) {
                0 | 1 if !held.is_empty() => {
                    let at = random(held.len() as u64) as usize;
                    match held.remove(at).map_err(|_| EINVAL)? {
                        Held::One(block) => mark(&mut map, block.offset(), block.size(), false),
                        Held::Many(blocks) => {
                            for span in blocks.spans() {
                                mark(&mut map, span.start, span.size, false);
                            }
                        }
                    }
                }
                2 => match vram.alloc(size, 4 * KIB << random(4)) {
                    Ok(block) => {
                        assert_eq!(block.size(), size);
                        mark(&mut map, block.offset(), block.size(), true);
                        held.push(Held::One(block), GFP_KERNEL)?;
                    }
                    Err(e) => {
                        assert_eq!(e, ENOSPC);
                        refused += 1;
                    }
                },
                _ => match vram.alloc_blocks(size, false) {
                    Ok(blocks) => {
                        for span in blocks.spans() {
                            mark(&mut map, span.start, span.size, true);
                        }
                        assert_eq!(blocks.spans().map(|span| span.size).sum::<u64>(), size);
                        held.push(Held::Many(blocks), GFP_KERNEL)?;
                    }
                    Err(e) => {
                        // Nothing but a lack of pages is a reason.
                        assert_eq!(e, ENOSPC);
                        assert!(vram.available() < size);
                        refused += 1;
                    }
                },
            }
            if step % 16 == 0 {
                let taken = map.iter().filter(|taken| **taken).count() as u64;
                assert_eq!(vram.used(), taken * 4 * KIB);
            }
        }
        // The walk has been at the limit.
        assert!(refused != 0);
        drop(held);
        assert_eq!(vram.used(), 0);
        assert!(vram.alloc_blocks(vram.total(), false).is_ok());
        Ok(())
    }

    #[test]
    fn the_gart_window_avoids_vram() -> Result {
        // The usual place: low memory below VRAM.
        assert_eq!(window_start(MC, MC + GIB - 1), Some(0));
        // VRAM at 0: the window goes to the end of the addresses below the hole, 4 GiB aligned.
        let start = window_start(0, GIB - 1).ok_or(EINVAL)?;
        assert_eq!(start, (1 << 47) - 4 * GIB);
        // VRAM too low for a window below it.
        assert_eq!(window_start(WINDOW / 2, GIB), Some(start));
        // A smaller gap below VRAM is preferred, a larger one is not.
        assert_eq!(window_start(WINDOW, WINDOW + GIB), Some(0));
        assert_eq!(window_start(1 << 46, (1 << 46) + GIB), Some(start));
        // No room behind VRAM: the window goes below although that gap is the larger one.
        assert_eq!(window_start((1 << 47) - GIB, (1 << 47) - 1), Some(0));
        // Nowhere.
        assert_eq!(window_start(0, (1 << 47) - 1), None);
        assert_eq!(window_start(0, 1 << 48), None);
        assert_eq!(window_start(0, u64::MAX), None);
        Ok(())
    }

    #[test]
    fn doorbell_slices_follow_the_kernel_pages_and_do_not_overlap() -> Result {
        let manager = DoorbellManager::new(&LAYOUT, 2 * MIB)?;
        let mut slices = KVec::new();
        while let Ok(slice) = manager.alloc_slice() {
            slices.push(slice, GFP_KERNEL)?;
        }
        assert_eq!(slices.len(), 255);
        assert_eq!(manager.alloc_slice().err(), Some(ENOSPC));
        assert_eq!(manager.usage(), (255, 255));
        for (i, slice) in slices.iter().enumerate() {
            assert_eq!(slice.bar_offset(), 0x2000 * (i as u64 + 1));
        }
        assert_eq!(u64::from(DoorbellSlice::SIZE), 0x2000);
        drop(slices);
        assert_eq!(manager.usage(), (0, 255));
        Ok(())
    }

    #[test]
    fn a_freed_slice_rests_and_comes_back_empty() -> Result {
        let manager = DoorbellManager::new(&LAYOUT, 0x2000 * 4)?;
        let first = manager.alloc_slice()?;
        let at = first.bar_offset();
        let doorbell = first.alloc_cp()?;
        drop(first);
        // A queue holds the slice although the process has dropped it.
        assert_eq!(manager.usage().0, 1);
        drop(doorbell);
        assert_eq!(manager.usage().0, 0);
        let (second, third) = (manager.alloc_slice()?, manager.alloc_slice()?);
        assert!(second.bar_offset() != at && third.bar_offset() != at);
        let again = manager.alloc_slice()?;
        assert_eq!(again.bar_offset(), at);
        assert_eq!(again.in_use(), 0);
        assert_eq!(again.alloc_cp()?.byte_in_slice(), 0);
        Ok(())
    }

    #[test]
    fn cp_doorbells_stay_out_of_the_holes() -> Result {
        let manager = DoorbellManager::new(&LAYOUT, 0x4000)?;
        let slice = manager.alloc_slice()?;
        let mut all = KVec::new();
        while let Ok(doorbell) = slice.alloc_cp() {
            all.push(doorbell, GFP_KERNEL)?;
        }
        // 1024 ids less twice the hole of 0x90.
        assert_eq!(all.len(), 1024 - 2 * 0x90);
        for doorbell in &all {
            let id = doorbell.byte_in_slice() / 8;
            assert!(!(0x100..=0x18f).contains(&(id % 512)));
            // The offset that hardware gets is where the process writes.
            let byte = slice.bar_offset() + u64::from(doorbell.byte_in_slice());
            assert_eq!(u64::from(doorbell.dword_offset()) * 4, byte);
        }
        assert_eq!(slice.alloc_cp().err(), Some(ENOSPC));
        all.pop();
        assert!(slice.alloc_cp().is_ok());
        assert_eq!(slice.alloc_cp_at(0x100).err(), Some(EINVAL));
        assert_eq!(slice.alloc_cp_at(1024).err(), Some(EINVAL));
        assert_eq!(slice.alloc_cp_at(0).err(), Some(EBUSY));
        Ok(())
    }

    #[test]
    fn sdma_doorbells_lie_in_the_hole_of_their_engine() -> Result {
        let manager = DoorbellManager::new(&LAYOUT, 0x4000)?;
        let slice = manager.alloc_slice()?;
        for engine in 0..5 {
            for queue in 0..8 {
                let doorbell = slice.alloc_sdma(engine, queue)?;
                let id = doorbell.byte_in_slice() / 8 % 512;
                let hole = 0x100 + 0xa * engine;
                assert!((hole..hole + 0xa).contains(&id));
                assert_eq!(slice.alloc_sdma(engine, queue).err(), Some(EBUSY));
            }
        }
        assert_eq!(slice.in_use(), 0);
        assert_eq!(slice.alloc_sdma(0, 64).err(), Some(EINVAL));
        Ok(())
    }

    #[test]
    fn kernel_doorbells_lie_in_the_second_page() -> Result {
        let manager = DoorbellManager::new(&LAYOUT, 0x4000)?;
        let (a, b) = (manager.alloc_kernel()?, manager.alloc_kernel()?);
        assert_eq!((a.offset().byte(), b.offset().byte()), (0x1000, 0x1008));
        drop(a);
        assert_eq!(manager.alloc_kernel()?.offset().byte(), 0x1000);
        assert_eq!(DoorbellManager::new(&LAYOUT, 0x2000).err(), Some(EINVAL));
        Ok(())
    }

    #[test]
    fn pasids_are_distinct_and_rest_after_use() -> Result {
        let pool = PasidPool::new()?;
        let first = pool.alloc()?;
        let second = pool.alloc()?;
        assert_eq!((first.get(), second.get()), (1, 2));
        drop(first);
        let third = pool.alloc()?;
        assert_eq!(third.get(), 3);
        assert_eq!(pool.in_use(), 2);
        Ok(())
    }

    #[test]
    fn pasids_run_out_and_wrap() -> Result {
        let pool = PasidPool::new()?;
        let mut all = KVec::with_capacity(0x8000, GFP_KERNEL)?;
        while let Ok(pasid) = pool.alloc() {
            assert!(pasid.get() != 0);
            all.push(pasid, GFP_KERNEL)?;
        }
        assert_eq!(all.len(), 0x7fff);
        assert_eq!(pool.alloc().err(), Some(ENOSPC));
        let freed = all.pop().map(|pasid| pasid.get());
        assert_eq!(freed, Some(0x7fff));
        let back = pool.alloc()?;
        assert_eq!(Some(back.get()), freed);
        drop(all);
        assert_eq!(pool.in_use(), 1);
        Ok(())
    }

    #[test]
    fn gpu_ids_are_stable_and_distinct() -> Result {
        let registry = Registry::new()?;
        let first = registry.ids().reserve(0x1234_5678)?;
        let second = registry.ids().reserve(0x1234_5678)?;
        assert!(first.get() != second.get());
        assert!((1..=0xffff).contains(&first.get()));
        let value = first.get();
        drop(first);
        assert_eq!(registry.ids().reserve(0x1234_5678)?.get(), value);
        assert_eq!(registry.ids().reserve(0xfffe)?.get(), 0xffff);
        assert!(registry.find(value).is_none());
        Ok(())
    }
}
