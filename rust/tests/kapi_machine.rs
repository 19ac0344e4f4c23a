// SPDX-License-Identifier: GPL-2.0

//! What the machine says of itself, and BARs and the place of a GPU that was probed.

use kernel::prelude::*;

use super::gpu_live::on_each;
use crate::{
    hw::{
        num::widen,
        regs::MMIO_SIZE, //
    },
    kapi::{
        pci,
        sysinfo::{
            self,
            CpuCache, //
        },
    },
};

#[kunit_tests(rkfd_kapi_sysinfo)]
mod sysinfo_suite {
    use super::*;

    #[test]
    fn nodes_ascend_and_have_all_cpus_and_some_memory() {
        let mut last = -1;
        let (mut cpus, mut memory) = (0, 0);
        for node in sysinfo::numa_nodes() {
            assert!(node.number() > last);
            last = node.number();
            cpus += node.cpus();
            memory += node.memory();
        }
        assert!(last >= 0);
        assert!(cpus >= 1 && cpus <= kernel::cpu::nr_cpu_ids());
        assert!(memory > 16 << 20);
    }

    #[test]
    fn caches_are_listed_once_with_their_shape() {
        let plain =
            |cache: &CpuCache| (cache.processor, cache.level, cache.data, cache.instructions);
        for node in sysinfo::numa_nodes() {
            for (n, cache) in node.caches().enumerate() {
                assert!((1..=4).contains(&cache.level));
                assert!(cache.data || cache.instructions);
                assert!(cache.line.is_power_of_two());
                assert!(cache.size >= cache.line && cache.size % cache.line == 0);
                // The first CPU that has it is one of those.
                assert_eq!(cache.sharers[0] & 1, 1);
                assert!(!node
                    .caches()
                    .take(n)
                    .any(|other| plain(&other) == plain(&cache)));
            }
        }
    }

    #[test]
    fn node_without_cpus_has_no_caches() {
        for node in sysinfo::numa_nodes().filter(|node| node.cpus() == 0) {
            assert_eq!(node.first_cpu_id(), 0);
            assert!(node.caches().next().is_none());
        }
    }

    #[test]
    fn clock_is_one_that_a_cpu_can_have() {
        assert!(sysinfo::cpu_clock_mhz() < 20_000);
    }
}

#[kunit_tests(rkfd_kapi_pci_live)]
mod pci_live {
    use super::*;

    #[test]
    fn domain_is_that_of_the_name() -> Result {
        on_each(|gpu| {
            // DDDD:BB:DD.F, hexadecimal.
            let name = gpu.dev().name().to_bytes();
            let domain = name.split(|byte| *byte == b':').next().ok_or(EINVAL)?;
            let mut found = 0;
            for digit in domain {
                found = found * 16 + char::from(*digit).to_digit(16).ok_or(EINVAL)?;
            }
            assert_eq!(pci::domain(gpu.pdev()), found);
            Ok(())
        })
    }
}

#[kunit_tests(rkfd_kapi_mmio_live)]
mod mmio_live {
    use super::*;

    /// A pattern that no neighbour has by accident.
    fn pattern(n: usize) -> u8 {
        // CAST: The low byte is what is wanted.
        (n * 37 + 11) as u8
    }

    #[test]
    fn copies_change_what_they_name_and_nothing_beside_it() -> Result {
        on_each(|gpu| {
            let block = gpu.vram().alloc(0x2000, 0)?;
            let hw = gpu.enter()?;
            hw.vram_fill(block.offset(), block.size(), 0xee)?;
            let mut data = [0; 61];
            for (n, byte) in data.iter_mut().enumerate() {
                *byte = pattern(n);
            }
            // Neither end is aligned, and a page boundary lies within.
            let at = block.offset() + 0x1000 - 30;
            hw.vram_write(at, &data)?;
            hw.vram_write_u64s(block.offset() + 8, &[0x1122_3344_5566_7788, u64::MAX])?;
            hw.vram_fill(block.offset() + 0x1800, 5, 0x77)?;
            hw.vram_fill(block.offset() + 0x1900, 0, 0x66)?;
            let mut all = KVec::from_elem(0_u8, 0x2000, GFP_KERNEL)?;
            hw.vram_read(block.offset(), &mut all)?;
            for (n, byte) in all.iter().enumerate() {
                let expected = match n {
                    8..16 => 0x1122_3344_5566_7788_u64.to_le_bytes()[n - 8],
                    16..24 => 0xff,
                    0xfe2..0x101f => pattern(n - 0xfe2),
                    0x1800..0x1805 => 0x77,
                    _ => 0xee,
                };
                assert_eq!(*byte, expected);
            }
            Ok(())
        })
    }

    #[test]
    fn ranges_that_leave_the_bar_are_refused_whole() -> Result {
        on_each(|gpu| {
            let hw = gpu.enter()?;
            let end = gpu.info().vram_visible;
            let mut bytes = [0x5a; 16];
            for off in [end - 15, end, end + 1, u64::MAX - 7, u64::MAX] {
                assert_eq!(hw.vram_write(off, &bytes), Err(EINVAL));
                assert_eq!(hw.vram_read(off, &mut bytes), Err(EINVAL));
                assert_eq!(hw.vram_fill(off, 16, 0), Err(EINVAL));
            }
            // What was not read is as it was.
            assert_eq!(bytes, [0x5a; 16]);
            assert_eq!(hw.vram_write_u64s(end - 8, &[0, 0]), Err(EINVAL));
            assert_eq!(hw.vram_fill(0, u64::MAX, 0), Err(EINVAL));
            // Nothing at the end is within.
            hw.vram_read(end, &mut [])?;
            Ok(())
        })
    }

    #[test]
    fn words_are_stored_at_their_alignment_only() -> Result {
        on_each(|gpu| {
            let block = gpu.vram().alloc(0x1000, 0)?;
            let hw = gpu.enter()?;
            hw.vram_fill(block.offset(), block.size(), 0)?;
            for shift in 1..8 {
                let stored = hw.vram_write_u64s(block.offset() + shift, &[u64::MAX]);
                assert_eq!(stored, Err(EINVAL));
            }
            let mut found = [0xff; 16];
            hw.vram_read(block.offset(), &mut found)?;
            assert_eq!(found, [0; 16]);
            Ok(())
        })
    }

    #[test]
    fn register_outside_the_bar_reads_as_all_ones_of_a_live_device() -> Result {
        on_each(|gpu| {
            let hw = gpu.enter()?;
            let end = usize::try_from(widen(MMIO_SIZE))?;
            for byte in [end, end + 4, 1, 2, 3, usize::MAX - 3] {
                assert_eq!(hw.read(byte), u32::MAX);
            }
            assert!(!hw.is_lost());
            hw.check_alive()
        })
    }
}
