// SPDX-License-Identifier: GPL-2.0

//! Buffers of other drivers: what is believed of their exporters, and when they are given back.

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

use crate::kapi::{
    dma_buf::DmaBuf,
    dma_map::{
        DmaImport,
        DmaMapper,
        DmaRun, //
    },
    kunit::{
        Answers,
        Asked,
        DmaDevice,
        Exporter, //
    },
};

/// Bytes of a page, as exporters count them.
const PAGE: u32 = 4096;

/// A device that imports a buffer.
struct Bench {
    mapper: DmaMapper,
    exporter: Arc<Exporter>,
    dma_buf: DmaBuf,
    // Last: what maps for it goes before.
    device: DmaDevice,
}

impl Bench {
    /// With a buffer of `pages` pages, which is where `segments` say.
    fn new(pages: usize, segments: &[(u64, u32)]) -> Result<Self> {
        Self::with(
            pages,
            Answers {
                attach: Ok(()),
                map: Ok(()),
                segments,
            },
        )
    }

    fn with(pages: usize, answers: Answers<'_>) -> Result<Self> {
        let device = DmaDevice::new(c"rkfd_test_import")?;
        let mapper = DmaMapper::new(device.device())?;
        let (exporter, dma_buf) = Exporter::share(pages * PAGE_SIZE, &answers)?;
        Ok(Self {
            mapper,
            exporter,
            dma_buf,
            device,
        })
    }

    fn import(&self) -> Result<DmaImport> {
        self.mapper.import(self.device.device(), &self.dma_buf)
    }
}

/// Whether `exporter` is asked for just this, at once or soon: who gives an import up does not wait for that.
fn comes_to(exporter: &Exporter, wanted: &[Asked]) -> Result<bool> {
    for _ in 0..1000 {
        DmaBuf::settle();
        if exporter.asked()?.as_slice() == wanted {
            return Ok(true);
        }
        fsleep(Delta::from_millis(2));
    }
    Ok(false)
}

#[kunit_tests(rkfd_dma_import)]
mod suite {
    use super::*;
    use Asked::{
        Attach,
        Detach,
        Map,
        Release,
        Unmap, //
    };

    #[test]
    fn pieces_keep_their_order_and_neighbours_are_joined() -> Result {
        let bench = Bench::new(
            6,
            &[
                (0x5000, PAGE),
                (0x6000, 2 * PAGE),
                (0x1000, PAGE),
                (0x4000, PAGE),
                (0x5000, PAGE),
            ],
        )?;
        let import = bench.import()?;
        let run = |addr, pages: u64| DmaRun {
            addr,
            len: pages * u64::from(PAGE),
        };
        let wanted = [run(0x5000, 3), run(0x1000, 1), run(0x4000, 2)];
        assert_eq!(import.runs(), wanted.as_slice());
        assert_eq!(bench.exporter.asked()?.as_slice(), [Attach, Map].as_slice());
        Ok(())
    }

    #[test]
    fn what_are_no_whole_pages_of_the_buffer_is_refused_and_given_back() -> Result {
        let last = u64::MAX & !(u64::from(PAGE) - 1);
        let wrong: [(usize, &[(u64, u32)]); 9] = [
            // Too short, too long, by a page and by all.
            (2, &[(0x1000, PAGE)]),
            (2, &[(0x1000, 3 * PAGE)]),
            (2, &[(0x1000, PAGE), (0x4000, 2 * PAGE)]),
            // No whole pages, though as many bytes as the buffer has.
            (2, &[(0x1000, PAGE / 2), (0x8000, PAGE), (0xa000, PAGE / 2)]),
            (1, &[(0x1800, PAGE)]),
            (2, &[(0x1000, PAGE), (0x2008, PAGE)]),
            // Nothing at all.
            (1, &[(0x1000, 0)]),
            (1, &[(0x1000, PAGE), (0x4000, 0)]),
            // Over the last address.
            (2, &[(last, 2 * PAGE)]),
        ];
        for (pages, segments) in wrong {
            let bench = Bench::new(pages, segments)?;
            assert_eq!(bench.import().err(), Some(EINVAL));
            // At once.
            let wanted = [Attach, Map, Unmap, Detach];
            assert_eq!(bench.exporter.asked()?.as_slice(), wanted.as_slice());
        }
        Ok(())
    }

    #[test]
    fn what_the_exporter_refuses_is_the_error() -> Result {
        let segments: &[_] = &[(0x1000, PAGE)];
        let bench = Bench::with(
            1,
            Answers {
                attach: Err(EBUSY),
                map: Ok(()),
                segments,
            },
        )?;
        assert_eq!(bench.import().err(), Some(EBUSY));
        assert_eq!(bench.exporter.asked()?.as_slice(), [Attach].as_slice());
        // The next one is a device of the same name.
        drop(bench);
        let bench = Bench::with(
            1,
            Answers {
                attach: Ok(()),
                map: Err(ENODEV),
                segments,
            },
        )?;
        assert_eq!(bench.import().err(), Some(ENODEV));
        let wanted = [Attach, Map, Detach];
        assert_eq!(bench.exporter.asked()?.as_slice(), wanted.as_slice());
        Ok(())
    }

    #[test]
    fn the_buffer_lives_and_stays_mapped_as_long_as_its_import() -> Result {
        let bench = Bench::new(1, &[(0x1000, PAGE)])?;
        let import = bench.import()?;
        let Bench {
            mapper,
            exporter,
            dma_buf,
            device,
        } = bench;
        drop(dma_buf);
        DmaBuf::settle();
        assert_eq!(exporter.asked()?.as_slice(), [Attach, Map].as_slice());
        drop(import);
        let wanted = [Attach, Map, Unmap, Detach, Release];
        assert!(comes_to(&exporter, &wanted)?);
        drop(mapper);
        drop(device);
        assert_eq!(exporter.asked()?.as_slice(), wanted.as_slice());
        Ok(())
    }

    #[test]
    fn the_end_of_the_device_ends_imports_that_are_in_use() -> Result {
        let bench = Bench::new(1, &[(0x1000, PAGE)])?;
        let (one, two) = (bench.import()?, bench.import()?);
        let Bench {
            mapper,
            exporter,
            dma_buf,
            device,
        } = bench;
        // Perhaps by a worker, perhaps by the end of the device.
        drop(two);
        drop(mapper);
        let asked = exporter.asked()?;
        let wanted = [Attach, Map, Attach, Map, Unmap, Detach, Unmap, Detach];
        assert_eq!(asked.as_slice(), wanted.as_slice());
        // What is left of it does nothing more.
        drop(one);
        drop(dma_buf);
        assert!(comes_to(
            &exporter,
            &[Attach, Map, Attach, Map, Unmap, Detach, Unmap, Detach, Release]
        )?);
        drop(device);
        Ok(())
    }

    #[test]
    fn another_device_is_refused_before_anybody_is_asked() -> Result {
        let bench = Bench::new(1, &[(0x1000, PAGE)])?;
        let other = DmaDevice::new(c"rkfd_test_other")?;
        let import = bench.mapper.import(other.device(), &bench.dma_buf);
        assert_eq!(import.err(), Some(EINVAL));
        assert!(bench.exporter.asked()?.is_empty());
        Ok(())
    }
}
