// SPDX-License-Identifier: GPL-2.0

//! Coherent memory and DMA mappings, on a device without hardware.

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

use crate::kapi::{
    dma::DmaBuffer,
    dma_map::{
        DmaMap,
        DmaMapper,
        DmaRun, //
    },
    kunit::DmaDevice,
    pages::Pages, //
};

/// Where no machine that runs the tests has memory.
const REGISTERS: u64 = 1 << 40;

fn bytes(map: &DmaMap) -> u64 {
    map.runs().iter().map(|run| run.len).sum()
}

#[kunit_tests(rkfd_dma)]
mod suite {
    use super::*;

    #[test]
    fn coherent_memory_is_zeroed_whole_pages() -> Result {
        let device = DmaDevice::new(c"rkfd_test_dma")?;
        assert_eq!(
            DmaBuffer::new(device.device(), 0, GFP_KERNEL).err(),
            Some(EINVAL)
        );
        assert_eq!(
            DmaBuffer::new(device.device(), usize::MAX, GFP_KERNEL).err(),
            Some(EINVAL)
        );
        for (size, pages) in [(1, 1), (PAGE_SIZE, 1), (PAGE_SIZE + 1, 2)] {
            let buffer = DmaBuffer::new(device.device(), size, GFP_KERNEL)?;
            assert_eq!(buffer.size(), pages * PAGE_SIZE);
            assert_eq!(buffer.bus_addr() % PAGE_SIZE as u64, 0);
            for off in (0..buffer.size()).step_by(8) {
                assert_eq!(buffer.read64(off)?, 0);
            }
        }
        Ok(())
    }

    #[test]
    fn coherent_accesses_are_bounded_and_aligned() -> Result {
        let device = DmaDevice::new(c"rkfd_test_dma")?;
        let buffer = DmaBuffer::new(device.device(), PAGE_SIZE, GFP_KERNEL)?;
        buffer.write32(PAGE_SIZE - 4, 0x1234_5678)?;
        buffer.write64(PAGE_SIZE - 16, 0x0123_4567_89ab_cdef)?;
        assert_eq!(buffer.read32(PAGE_SIZE - 4)?, 0x1234_5678);
        assert_eq!(buffer.read32(PAGE_SIZE - 16)?, 0x89ab_cdef);
        assert_eq!(buffer.read64(PAGE_SIZE - 16)?, 0x0123_4567_89ab_cdef);
        for off in [PAGE_SIZE, PAGE_SIZE - 2, 1, 2, usize::MAX - 3, usize::MAX] {
            assert_eq!(buffer.read32(off).err(), Some(EINVAL));
            assert_eq!(buffer.write32(off, 1).err(), Some(EINVAL));
        }
        for off in [PAGE_SIZE, PAGE_SIZE - 4, 4, usize::MAX - 7] {
            assert_eq!(buffer.read64(off).err(), Some(EINVAL));
            assert_eq!(buffer.write64(off, 1).err(), Some(EINVAL));
        }
        // Nothing of what was refused was written.
        assert_eq!(buffer.read64(0)?, 0);
        assert_eq!(buffer.read32(PAGE_SIZE - 4)?, 0x1234_5678);
        Ok(())
    }

    #[test]
    fn dwords_are_copied_in_order_or_not_at_all() -> Result {
        let device = DmaDevice::new(c"rkfd_test_dma")?;
        let buffer = DmaBuffer::new(device.device(), PAGE_SIZE, GFP_KERNEL)?;
        let words = [0xaaaa_0001, 0xbbbb_0002, 0xcccc_0003];
        buffer.write_dwords(PAGE_SIZE - 12, &words)?;
        let mut found = [0; 3];
        buffer.read_dwords(PAGE_SIZE - 12, &mut found)?;
        assert_eq!(found, words);
        for off in [PAGE_SIZE - 8, PAGE_SIZE, 2, usize::MAX - 3] {
            assert_eq!(buffer.write_dwords(off, &words).err(), Some(EINVAL));
            assert_eq!(buffer.read_dwords(off, &mut found).err(), Some(EINVAL));
        }
        assert_eq!(found, words);
        // None at the very end are no access.
        buffer.write_dwords(PAGE_SIZE, &[])?;
        buffer.fill_dwords(PAGE_SIZE, 0, 7)?;
        assert_eq!(buffer.fill_dwords(PAGE_SIZE - 4, 2, 7).err(), Some(EINVAL));
        assert_eq!(buffer.fill_dwords(0, usize::MAX, 7).err(), Some(EINVAL));
        buffer.fill_dwords(4, 2, 7)?;
        let mut head = [0; 4];
        buffer.read_dwords(0, &mut head)?;
        assert_eq!(head, [0, 7, 7, 0]);
        Ok(())
    }

    #[test]
    fn coherent_memory_ends_with_the_device() -> Result {
        let device = DmaDevice::new(c"rkfd_test_dma")?;
        let buffer = DmaBuffer::new(device.device(), PAGE_SIZE, GFP_KERNEL)?;
        buffer.write32(0, 1)?;
        drop(device);
        assert_eq!(buffer.read32(0).err(), Some(ENODEV));
        assert_eq!(buffer.write64(0, 1).err(), Some(ENODEV));
        assert_eq!(buffer.fill_dwords(0, 1, 1).err(), Some(ENODEV));
        // A mistake of the caller is still one.
        assert_eq!(buffer.read32(1).err(), Some(EINVAL));
        Ok(())
    }

    #[test]
    fn a_page_has_any_number_of_mappings() -> Result {
        let device = DmaDevice::new(c"rkfd_test_dma")?;
        let mapper = DmaMapper::new(device.device())?;
        let pages = Arc::new(Pages::alloc(3)?, GFP_KERNEL)?;
        // The debug kernel's checker counts up to 7 where a cache might have to be looked after.
        let mut maps = KVec::new();
        for _ in 0..20 {
            maps.push(mapper.pages(device.device(), &pages, true)?, GFP_KERNEL)?;
        }
        for map in &maps {
            assert_eq!(bytes(map), 3 * PAGE_SIZE as u64);
            assert_eq!(map.runs(), maps[0].runs());
        }
        // Whoever only reads them does not count either.
        let reader = mapper.pages(device.device(), &pages, false)?;
        assert_eq!(reader.runs(), maps[0].runs());
        drop(maps);
        assert_eq!(bytes(&reader), 3 * PAGE_SIZE as u64);
        Ok(())
    }

    #[test]
    fn mappings_are_of_one_device_and_end_with_it() -> Result {
        let (device, other) = (
            DmaDevice::new(c"rkfd_test_dma")?,
            DmaDevice::new(c"rkfd_test_dma_2")?,
        );
        let mapper = DmaMapper::new(device.device())?;
        let pages = Arc::new(Pages::alloc(1)?, GFP_KERNEL)?;
        assert_eq!(
            mapper.pages(other.device(), &pages, true).err(),
            Some(EINVAL)
        );
        assert_eq!(
            mapper.resource(other.device(), REGISTERS, PAGE_SIZE).err(),
            Some(EINVAL)
        );
        let (map, registers) = (
            mapper.pages(device.device(), &pages, true)?,
            mapper.resource(device.device(), REGISTERS, PAGE_SIZE)?,
        );
        let before_mapper = mapper.pages(device.device(), &pages, true)?;
        drop(device);
        // What the device took with it is not unmapped again.
        drop((map, registers));
        drop(mapper);
        drop(before_mapper);
        Ok(())
    }

    #[test]
    fn a_mapper_takes_its_mappings_along() -> Result {
        let device = DmaDevice::new(c"rkfd_test_dma")?;
        let mapper = DmaMapper::new(device.device())?;
        let pages = Arc::new(Pages::alloc(1)?, GFP_KERNEL)?;
        let map = mapper.pages(device.device(), &pages, true)?;
        let runs = map.runs()[0];
        drop(mapper);
        assert_eq!(map.runs(), [runs]);
        drop(map);
        Ok(())
    }

    #[test]
    fn parts_lie_within_the_mapping() -> Result {
        let device = DmaDevice::new(c"rkfd_test_dma")?;
        let mapper = DmaMapper::new(device.device())?;
        let size = 4 * PAGE_SIZE as u64;
        let map = mapper.resource(device.device(), REGISTERS, 4 * PAGE_SIZE)?;
        let start = map.part(0, size)?.addr;
        assert_eq!(
            map.runs(),
            [DmaRun {
                addr: start,
                len: size
            }]
        );
        assert_eq!(
            map.part(size - 1, 1)?,
            DmaRun {
                addr: start + size - 1,
                len: 1
            }
        );
        for (offset, len) in [
            (0, 0),
            (0, size + 1),
            (1, size),
            (size, 1),
            (size, 0),
            (u64::MAX, 1),
            (1, u64::MAX),
        ] {
            assert_eq!(map.part(offset, len).err(), Some(EINVAL));
        }
        Ok(())
    }
}
