// SPDX-License-Identifier: GPL-2.0

//! Address spaces and buffers on every GPU that was probed; skipped where there is none.
//!
//! Page tables are read back from VRAM and decoded entry by entry, so what is checked is what the
//! GPU will find.

use core::fmt;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    gpu_live::on_each,
    vm_live_bench::Bench, //
};
use crate::{
    hw::pte::{
        Access,
        Aperture,
        Mtype, //
    },
    kapi::{
        kunit::UserMemory,
        mappable::{
            Mappable,
            Transfer, //
        },
    },
    vm::{
        BoFlags,
        BoKind,
        SizeRule,
        Vm, //
    }, //
};

const PAGE: u64 = 0x1000;
const HUGE: u64 = 0x20_0000;
/// An address of no special meaning, a multiple of 2 MiB.
const VA: u64 = 0x7000_0020_0000;

const RWX: BoFlags = BoFlags {
    writable: true,
    executable: true,
    coherent: false,
    uncached: false,
    public: false,
    contiguous: false,
};
/// VRAM whose parts follow each other.
const ONE_BLOCK: BoFlags = BoFlags {
    contiguous: true,
    ..RWX
};

fn pattern(len: usize, seed: u8) -> Result<KVec<u8>> {
    let mut bytes = KVec::with_capacity(len, GFP_KERNEL)?;
    for i in 0..len {
        bytes.push((i as u8).wrapping_mul(31).wrapping_add(seed), GFP_KERNEL)?;
    }
    Ok(bytes)
}

/// Collects text and counts what it contains.
struct Text(KVec<u8>);

impl fmt::Write for Text {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.0
            .extend_from_slice(s.as_bytes(), GFP_KERNEL)
            .map_err(|_| fmt::Error)
    }
}

impl Text {
    fn contains(&self, needle: &str) -> bool {
        self.0
            .windows(needle.len())
            .any(|window| window == needle.as_bytes())
    }
}

#[kunit_tests(rkfd_vm_live)]
mod cases {
    use super::*;

    #[test]
    fn empty_address_space_takes_one_page_and_gives_it_back() -> Result {
        on_each(|gpu| {
            let (before, tables) = (gpu.vram().used(), gpu.table_budget().used());
            let bench = Bench::new(gpu)?;
            assert!(bench.vm.pasid() != 0);
            assert_eq!(gpu.vram().used(), before + PAGE);
            assert_eq!(gpu.table_budget().used(), tables + PAGE);
            assert_eq!(bench.vm.usage(), (0, 1));
            assert!(bench.walk(VA)?.is_none());
            assert!(bench.vm.lookup(VA).is_none());
            let pasid = bench.vm.pasid();
            let other = Vm::new(gpu, &bench.device)?;
            assert!(other.pasid() != pasid);
            assert!(other.page_table_base() != bench.vm.page_table_base());
            drop((bench, other));
            assert_eq!(gpu.vram().used(), before);
            assert_eq!(gpu.table_budget().used(), tables);
            Ok(())
        })
    }

    #[test]
    fn vram_is_mapped_where_it_lies() -> Result {
        on_each(|gpu| {
            let (used, tables) = (gpu.vram().used(), gpu.table_budget().used());
            let bench = Bench::new(gpu)?;
            let bo = bench.make(BoKind::Vram, 2 * HUGE + 3 * PAGE, ONE_BLOCK)?;
            assert_eq!(bo.size(), 2 * HUGE + 3 * PAGE);
            bench.vm.map(&bo, VA)?;
            let (first, attrs) = bench.walk(VA)?.ok_or(ENOENT)?;
            assert_eq!(first % HUGE, 0);
            assert_eq!(attrs.aperture, Aperture::Vram);
            assert_eq!(attrs.access, Access::RWX);
            assert_eq!(attrs.fragment, 9);
            for offset in [PAGE, HUGE, HUGE + PAGE, 2 * HUGE, 2 * HUGE + 2 * PAGE] {
                let (pa, _) = bench.walk(VA + offset)?.ok_or(ENOENT)?;
                assert_eq!(pa, first + offset);
            }
            assert!(bench.walk(VA - PAGE)?.is_none());
            assert!(bench.walk(VA + bo.size())?.is_none());
            // Root, PDB1, PDB0, and a PTB for the tail.
            assert_eq!(bench.vm.usage(), (1, 4));
            assert_eq!(gpu.table_budget().used(), tables + 4 * PAGE);
            bench.vm.unmap(&bo)?;
            assert!(bench.walk(VA)?.is_none());
            assert_eq!(bench.vm.usage(), (0, 1));
            // Tables that left the tree are free at once, not only when the address space ends.
            assert_eq!(gpu.table_budget().used(), tables + PAGE);
            drop(bo);
            assert_eq!(gpu.vram().used(), used + PAGE);
            drop(bench);
            assert_eq!(gpu.vram().used(), used);
            Ok(())
        })
    }

    #[test]
    fn scattered_vram_is_mapped_in_the_order_of_the_buffer() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            // No power of two: several blocks, the large ones first.
            let size = 2 * HUGE + 7 * PAGE;
            let bo = bench.make(BoKind::Vram, size, RWX)?;
            bench.vm.map(&bo, VA)?;
            let (first, attrs) = bench.walk(VA)?.ok_or(ENOENT)?;
            assert_eq!((first % HUGE, attrs.fragment), (0, 9));
            let hw = gpu.enter()?;
            for offset in (0..size).step_by(PAGE as usize) {
                let marker = (offset | 0x5a5).to_le_bytes();
                bo.memory()
                    .transfer(offset as usize, Transfer::Write(&marker))?;
                let (pa, _) = bench.walk(VA + offset)?.ok_or(ENOENT)?;
                let mut seen = [0; 8];
                hw.vram_read(pa - gpu.info().fb.offset, &mut seen)?;
                assert_eq!(seen, marker);
            }
            Ok(())
        })
    }

    #[test]
    fn memory_types_follow_the_policy() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            let plain = BoFlags {
                executable: false,
                ..RWX
            };
            let coherent = BoFlags {
                coherent: true,
                ..plain
            };
            let uncached = BoFlags {
                uncached: true,
                ..coherent
            };
            let gfx906 = gpu.asic().gfx_target_version == 90006;
            let pick = |a, b| if gfx906 { a } else { b };
            for (kind, flags, mtype) in [
                (BoKind::Vram, plain, pick(Mtype::Nc, Mtype::Rw)),
                (BoKind::Vram, coherent, pick(Mtype::Uc, Mtype::Cc)),
                (BoKind::Vram, uncached, Mtype::Uc),
                (BoKind::System, plain, Mtype::Nc),
                (BoKind::System, coherent, Mtype::Uc),
                (BoKind::System, uncached, Mtype::Uc),
            ] {
                let bo = bench.make(kind, PAGE, flags)?;
                bench.vm.map(&bo, VA)?;
                let (_, attrs) = bench.walk(VA)?.ok_or(ENOENT)?;
                assert_eq!(attrs.mtype, mtype);
                assert_eq!(attrs.access, Access::RW);
                let system = Aperture::System { snooped: true };
                assert!((attrs.aperture == system) == (kind == BoKind::System));
                bench.vm.unmap(&bo)?;
            }
            Ok(())
        })
    }

    #[test]
    fn read_only_memory_is_mapped_so() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            let bo = bench.make(BoKind::System, 5 * PAGE, BoFlags::default())?;
            bench.vm.map(&bo, VA)?;
            for page in 0..5 {
                let (_, attrs) = bench.walk(VA + page * PAGE)?.ok_or(ENOENT)?;
                assert_eq!(attrs.access, Access::RO);
            }
            Ok(())
        })
    }

    #[test]
    fn doorbells_and_registers_are_mapped_by_bus_address() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            let doorbell_bar = gpu.enter()?.doorbell_bus_addr();
            let bell = bench.make(BoKind::Doorbell, 0x2000, RWX)?;
            bench.vm.map(&bell, VA)?;
            let (pa, attrs) = bench.walk(VA + PAGE)?.ok_or(ENOENT)?;
            assert_eq!((pa - doorbell_bar) % 0x2000, PAGE);
            assert!(pa >= doorbell_bar + 0x2000);
            assert_eq!(attrs.mtype, Mtype::Uc);
            assert_eq!(attrs.aperture, Aperture::System { snooped: true });

            let remap = gpu.enter()?.mmio_remap_bus_addr().ok_or(ENODEV)?;
            let page = bench.make(BoKind::MmioRemap, PAGE, RWX)?;
            bench.vm.map(&page, VA + HUGE)?;
            let (pa, _) = bench.walk(VA + HUGE)?.ok_or(ENOENT)?;
            assert_eq!(pa, remap);
            // User space does not map them here.
            assert!(bell.vmap().is_err());
            Ok(())
        })
    }

    #[test]
    fn second_place_and_overlap_are_refused() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            let bo = bench.make(BoKind::Vram, 4 * PAGE, RWX)?;
            let other = bench.make(BoKind::System, 2 * PAGE, RWX)?;
            bench.vm.map(&bo, VA)?;
            assert_eq!(bench.vm.map(&bo, VA), Ok(()));
            assert_eq!(bench.vm.map(&bo, VA + HUGE), Err(EINVAL));
            for va in [VA, VA - PAGE, VA + 3 * PAGE, VA + PAGE] {
                assert_eq!(bench.vm.map(&other, va), Err(EINVAL));
            }
            for va in [VA + 1, 0xf000, (1 << 47) - PAGE, u64::MAX - PAGE + 1] {
                assert_eq!(bench.vm.map(&other, va), Err(EINVAL));
            }
            assert_eq!(bench.vm.unmap(&other), Err(EINVAL));
            assert_eq!(bench.vm.usage().0, 1);
            bench.vm.map(&other, VA + 4 * PAGE)?;
            bench
                .vm
                .map(&bench.make(BoKind::System, PAGE, RWX)?, VA - PAGE)?;
            assert_eq!(bench.vm.usage().0, 3);
            bench.vm.unmap(&bo)?;
            assert_eq!(bench.vm.unmap(&bo), Err(EINVAL));
            assert!(bench.walk(VA + 4 * PAGE)?.is_some());
            assert!(bench.walk(VA - PAGE)?.is_some());
            assert!(bench.walk(VA)?.is_none());
            Ok(())
        })
    }

    #[test]
    fn zapped_entries_come_back_with_the_next_mapping() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            let bo = bench.make(BoKind::System, 4 * PAGE, RWX)?;
            bench.vm.map(&bo, VA)?;
            let before = bench.walk(VA + PAGE)?;
            assert!(before.is_some());
            // This is no memory of a process.
            bench.vm.zap_userptr()?;
            assert_eq!(bench.walk(VA + PAGE)?, before);
            bench.vm.zap(&bo)?;
            assert!(bench.walk(VA + PAGE)?.is_none());
            assert!(bench.vm.is_mapped(&bo));
            bench.vm.map(&bo, VA)?;
            assert!(bench.walk(VA + PAGE)?.is_some());
            bench.vm.zap(&bo)?;
            bench.vm.refresh(&bo)?;
            assert!(bench.walk(VA + 3 * PAGE)?.is_some());
            bench.vm.zap(&bo)?;
            bench.vm.unmap(&bo)?;
            assert!(!bench.vm.is_mapped(&bo));
            assert!(bench.walk(VA)?.is_none());
            Ok(())
        })
    }

    #[test]
    fn entries_that_replace_others_are_flushed() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            let size = 2 * PAGE;
            let memory = UserMemory::new(size as usize)?;
            let address = memory.address();
            let bo = bench.make_user(address, size)?;
            bo.find_pages()?;
            bench.vm.map(&bo, VA)?;
            assert!(bench.walk(VA)?.is_some());
            // Other memory takes the place of this. Its entries are right when the next call returns, and what
            // the hubs know of the old ones is not used any more.
            memory.unmap();
            let memory = UserMemory::at(address, size as usize)?;
            bo.find_pages()?;
            let flushes = gpu.kiq().status().submissions;
            bench.vm.refresh(&bo)?;
            assert!(gpu.kiq().status().submissions > flushes);
            // Nothing to write, nothing to flush.
            let flushes = gpu.kiq().status().submissions;
            bench.vm.refresh(&bo)?;
            assert_eq!(gpu.kiq().status().submissions, flushes);
            bench.vm.unmap(&bo)?;
            drop(bo);
            memory.unmap();
            Ok(())
        })
    }

    #[test]
    fn held_mapping_cannot_be_unmapped() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            let bo = bench.make(BoKind::System, 2 * PAGE, RWX)?;
            bench.vm.map(&bo, VA)?;
            assert!(bench.vm.hold(VA + PAGE, SizeRule::Exact(PAGE)).is_err());
            assert!(bench.vm.hold(VA + 2 * PAGE, SizeRule::AtLeast(8)).is_err());
            let hold = bench.vm.hold(VA, SizeRule::Exact(2 * PAGE))?;
            let again = bench.vm.hold(VA + PAGE, SizeRule::AtLeast(8))?;
            assert_eq!(hold.va(), VA);
            assert_eq!(bench.vm.unmap(&bo), Err(EBUSY));
            drop(hold);
            assert_eq!(bench.vm.unmap(&bo), Err(EBUSY));
            assert!(bench.walk(VA)?.is_some());
            drop(again);
            assert_eq!(bench.vm.unmap(&bo), Ok(()));
            Ok(())
        })
    }

    #[test]
    fn lookup_finds_the_buffer_behind_an_address() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            let bo = bench.make(BoKind::System, 3 * PAGE, RWX)?;
            bench.vm.map(&bo, VA)?;
            let info = bench.vm.lookup(VA + 2 * PAGE + 5).ok_or(ENOENT)?;
            assert_eq!((info.va, info.size), (VA, 3 * PAGE));
            assert!(Arc::ptr_eq(&info.bo, &bo));
            assert!(bench.vm.is_mapped(&bo));
            assert!(bench.vm.lookup(VA + 3 * PAGE).is_none());
            assert!(bench.vm.lookup(VA - 1).is_none());
            Ok(())
        })
    }

    #[test]
    fn closed_address_space_keeps_what_queues_hold() -> Result {
        on_each(|gpu| {
            let used = gpu.vram().used();
            let bench = Bench::new(gpu)?;
            let bo = bench.make(BoKind::Vram, HUGE, RWX)?;
            bench.vm.map(&bo, VA)?;
            let hold = bench.vm.hold(VA, SizeRule::Exact(HUGE))?;
            drop(bo);
            bench.vm.close();
            assert!(bench.walk(VA)?.is_none());
            assert!(bench.vm.lookup(VA).is_none());
            assert!(gpu.vram().used() >= used + HUGE);
            let late = bench.make(BoKind::System, PAGE, RWX)?;
            assert_eq!(bench.vm.map(&late, VA), Err(ENODEV));
            bench.vm.close();
            drop((hold, late, bench));
            assert_eq!(gpu.vram().used(), used);
            Ok(())
        })
    }

    #[test]
    fn vram_comes_zeroed() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            let size = 3 * PAGE as usize;
            let ones = pattern(size, 7)?;
            let mut seen = KVec::from_elem(0xaa_u8, size, GFP_KERNEL)?;
            for _ in 0..3 {
                let bo = bench.make(BoKind::Vram, size as u64, RWX)?;
                bo.memory().transfer(0, Transfer::Read(&mut seen))?;
                assert!(seen.iter().all(|byte| *byte == 0));
                bo.memory().transfer(0, Transfer::Write(&ones))?;
                bo.memory().transfer(0, Transfer::Read(&mut seen))?;
                assert!(seen == ones);
            }
            Ok(())
        })
    }

    #[test]
    fn debugger_access_stays_inside() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            for kind in [BoKind::Vram, BoKind::System] {
                let bo = bench.make(kind, 2 * PAGE, RWX)?;
                let bytes = pattern(64, 3)?;
                let at = PAGE as usize - 20;
                // Across a page boundary.
                bo.memory().transfer(at, Transfer::Write(&bytes))?;
                let mut seen = [0u8; 66];
                bo.memory().transfer(at - 1, Transfer::Read(&mut seen))?;
                assert_eq!((seen.first(), seen.last()), (Some(&0), Some(&0)));
                assert!(seen.get(1..65) == Some(&bytes[..]));
                let mut two = [0u8; 2];
                let end = 2 * PAGE as usize;
                assert!(bo
                    .memory()
                    .transfer(end - 1, Transfer::Read(&mut two))
                    .is_err());
                assert!(bo
                    .memory()
                    .transfer(usize::MAX, Transfer::Read(&mut two))
                    .is_err());
            }
            Ok(())
        })
    }

    #[test]
    fn kernel_mapping_shows_the_same_words() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            let bo = bench.make(BoKind::System, 8 * PAGE, RWX)?;
            let map = bo.vmap()?;
            assert_eq!(map.size(), 8 * PAGE as usize);
            map.write64(0x7ff8, 0x0123_4567_89ab_cdef)?;
            assert_eq!(map.read64(0x7ff8)?, 0x0123_4567_89ab_cdef);
            assert_eq!(map.read64(0x7ff0)?, 0);
            let mut word = [0; 8];
            bo.memory().transfer(0x7ff8, Transfer::Read(&mut word))?;
            assert_eq!(u64::from_le_bytes(word), 0x0123_4567_89ab_cdef);
            assert_eq!(map.read64(0x8000), Err(EINVAL));
            assert_eq!(map.write64(0x7ffc, 0), Err(EINVAL));
            assert_eq!(map.read64(usize::MAX), Err(EINVAL));
            // The mapping keeps the pages.
            drop(bo);
            assert_eq!(map.read64(0x7ff8)?, 0x0123_4567_89ab_cdef);
            Ok(())
        })
    }

    #[test]
    fn impossible_sizes_are_refused() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            let total = gpu.vram().total();
            let before = (gpu.vram().used(), gpu.vram_budget().used());
            for (kind, size, want) in [
                (BoKind::Vram, 0, EINVAL),
                (BoKind::System, 0, EINVAL),
                (BoKind::Vram, total + PAGE, ENOMEM),
                (BoKind::Vram, u64::MAX, ENOMEM),
                (BoKind::Vram, u64::MAX - 2 * HUGE, ENOMEM),
                (BoKind::System, 1 << 46, ENOMEM),
                (BoKind::System, u64::MAX, ENOMEM),
                (BoKind::Doorbell, PAGE, EINVAL),
                (BoKind::Doorbell, 4 * PAGE, EINVAL),
                (BoKind::MmioRemap, 2 * PAGE, EINVAL),
                (BoKind::Userptr, PAGE, EINVAL),
            ] {
                assert_eq!(
                    (kind, size, bench.make(kind, size, RWX).err()),
                    (kind, size, Some(want))
                );
            }
            assert_eq!((gpu.vram().used(), gpu.vram_budget().used()), before);
            Ok(())
        })
    }

    #[test]
    fn budget_follows_buffers() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            let before = gpu.vram_budget().available();
            let small = bench.make(BoKind::Vram, PAGE, RWX)?;
            assert_eq!(gpu.vram_budget().available(), before - HUGE);
            let large = bench.make(BoKind::Vram, 2 * HUGE + PAGE, RWX)?;
            assert_eq!(gpu.vram_budget().available(), before - 4 * HUGE);
            drop(small);
            assert_eq!(gpu.vram_budget().available(), before - 3 * HUGE);
            drop(large);
            assert_eq!(gpu.vram_budget().available(), before);
            Ok(())
        })
    }

    #[test]
    fn offsets_of_buffers_do_not_overlap() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            let sizes = [PAGE, 3 * PAGE, HUGE, PAGE];
            let mut taken = KVec::<(u64, u64)>::new();
            let mut buffers = KVec::new();
            for size in sizes {
                let bo = bench.make(BoKind::System, size, RWX)?;
                let start = bo.mmap_offset();
                assert_eq!(start % PAGE, 0);
                for (other, len) in &taken {
                    assert!(start + size <= *other || *other + *len <= start);
                }
                taken.push((start, size), GFP_KERNEL)?;
                buffers.push(bo, GFP_KERNEL)?;
            }
            Ok(())
        })
    }

    #[test]
    fn dump_tells_ranges_and_pages() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            let bo = bench.make(BoKind::Vram, HUGE + PAGE, ONE_BLOCK)?;
            bench.vm.map(&bo, VA)?;
            let hold = bench.vm.hold(VA, SizeRule::AtLeast(1))?;
            // A dump is made under a lock that reclaim takes.
            let mut text = Text(KVec::with_capacity(1 << 16, GFP_KERNEL)?);
            bench.vm.dump(&mut text, 77).map_err(|_| ENOMEM)?;
            assert!(text.contains(" pid 77 page table base "));
            assert!(text.contains("1 mappings, tables PTB 1 PDB0 1 PDB1 1 PDB2 1"));
            assert!(text.contains(
                "0x700000200000-0x700000400fff Vram contiguous in use by a queue in 1 pieces"
            ));
            assert!(text.contains(" vram rwx "));
            assert!(text.contains(", 1 x 4K, 1 x 2M, 0 x 1G"));
            let mut text = Text(KVec::with_capacity(1 << 16, GFP_KERNEL)?);
            let last = VA + HUGE + 8;
            bench.vm.dump_walk(&mut text, last).map_err(|_| ENOMEM)?;
            assert!(text.contains(" address 0x700000400008 page table base "));
            for level in ["PDB2 table ", "PDB1 table ", "PDB0 table ", "PTB  table "] {
                assert!(text.contains(level));
            }
            assert!(text.contains(" of 0x1000 bytes vram rwx "));
            assert!(text.contains(" Vram from byte 0x200008 in 1 pieces"));
            let mut text = Text(KVec::with_capacity(1 << 16, GFP_KERNEL)?);
            bench.vm.dump_walk(&mut text, 0).map_err(|_| ENOMEM)?;
            assert!(text.contains(" invalid"));
            assert!(text.contains("no buffer"));
            drop(hold);
            Ok(())
        })
    }
}
