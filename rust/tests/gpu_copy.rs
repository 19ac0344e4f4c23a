// SPDX-License-Identifier: GPL-2.0

//! The kernel's copy engine on every GPU that was probed; skipped where there is none. What it writes is read back
//! by the CPU.

use kernel::{
    prelude::*,
    sizes::{
        SZ_1M,
        SZ_4K, //
    },
    sync::Arc, //
};

use super::gpu_live::on_each;
use crate::{
    driver::power,
    gpu::{
        clear::{
            InFlight,
            Landed,
            ENGINE_MIN, //
        },
        copy::JOB_BYTES,
        Gpu,
        VramBlock, //
    },
    kfd::facade,
    sched::Scheduler, //
};

// CAST: Constants.
const PAGE: u64 = SZ_4K as u64;
const MIB: u64 = SZ_1M as u64;
/// What memory holds that was not cleared.
const DIRT: u8 = 0xa5;

fn scheduler(gpu: &Arc<Gpu>) -> Result<Arc<Scheduler>> {
    facade()?.scheduler(gpu).ok_or(ENODEV)
}

/// A block of `size` bytes that are all [`DIRT`].
fn dirty(gpu: &Gpu, size: u64) -> Result<VramBlock> {
    let block = gpu.vram().alloc(size, PAGE)?;
    let hw = gpu.enter()?;
    hw.vram_fill(block.offset(), block.size(), DIRT)?;
    hw.hdp_flush();
    Ok(block)
}

/// The byte that all `len` bytes at `offset` of the VRAM have; `None` if they differ.
fn only_byte(gpu: &Gpu, offset: u64, len: u64) -> Result<Option<u8>> {
    let hw = gpu.enter()?;
    let mut bytes = KVVec::from_elem(0_u8, SZ_4K, GFP_KERNEL)?;
    let mut first = None;
    for at in (0..len).step_by(SZ_4K) {
        hw.vram_read(offset + at, &mut bytes)?;
        let byte = *first.get_or_insert(bytes[0]);
        if bytes.iter().any(|b| *b != byte) {
            return Ok(None);
        }
    }
    Ok(first)
}

#[kunit_tests(rkfd_gpu_copy_live)]
mod suite {
    use super::*;

    #[test]
    fn a_job_clears_what_it_is_for_and_nothing_beside() -> Result {
        on_each(|gpu| {
            let hw = gpu.enter()?;
            // Several packets on engines whose packets end at 4 MiB.
            let len = 9 * MIB + PAGE;
            let block = dirty(gpu, len + 2 * PAGE)?;
            let fence = gpu.copy().clear(&hw, block.mc() + PAGE, len)?;
            gpu.copy().wait(&hw, &fence)?;
            let at = block.offset();
            assert_eq!(only_byte(gpu, at, PAGE)?, Some(DIRT));
            assert_eq!(only_byte(gpu, at + PAGE, len)?, Some(0));
            assert_eq!(only_byte(gpu, at + PAGE + len, PAGE)?, Some(DIRT));
            Ok(())
        })
    }

    #[test]
    fn jobs_that_no_packet_can_say_are_refused() -> Result {
        on_each(|gpu| {
            let hw = gpu.enter()?;
            let block = dirty(gpu, PAGE)?;
            for (to, len) in [
                (block.mc(), 0),
                (block.mc(), JOB_BYTES + 4),
                (block.mc(), 6),
                (block.mc() + 2, 4),
            ] {
                assert_eq!(gpu.copy().clear(&hw, to, len).err(), Some(EINVAL));
            }
            assert_eq!(only_byte(gpu, block.offset(), PAGE)?, Some(DIRT));
            Ok(())
        })
    }

    #[test]
    fn more_jobs_than_the_ring_holds_end_in_order() -> Result {
        on_each(|gpu| {
            let hw = gpu.enter()?;
            // Each takes eleven dwords or more of 4096: the ring wraps, at a different word each time.
            const JOBS: u64 = 600;
            let block = dirty(gpu, JOBS * PAGE)?;
            let before = gpu.copy().status();
            let mut fences = KVVec::new();
            for i in 0..JOBS {
                let to = block.mc() + i * PAGE;
                fences.push(gpu.copy().clear(&hw, to, PAGE - 4)?, GFP_KERNEL)?;
            }
            if let Some(last) = fences.last() {
                gpu.copy().wait(&hw, last)?;
            }
            for fence in &fences {
                assert_eq!(fence.result(), Some(Ok(())));
            }
            let after = gpu.copy().status();
            assert!(after.jobs - before.jobs >= JOBS);
            let mut page = KVVec::from_elem(0_u8, SZ_4K, GFP_KERNEL)?;
            for i in 0..JOBS {
                hw.vram_read(block.offset() + i * PAGE, &mut page)?;
                assert!(page[..SZ_4K - 4].iter().all(|byte| *byte == 0));
                assert_eq!(page[SZ_4K - 4..], [DIRT; 4]);
            }
            Ok(())
        })
    }

    #[test]
    fn what_clear_vram_returns_is_clear() -> Result {
        on_each(|gpu| {
            let hw = gpu.enter()?;
            // Below and above the size that the engine is used for, and longer than a job.
            for size in [PAGE, ENGINE_MIN - PAGE, ENGINE_MIN, JOB_BYTES + MIB + PAGE] {
                // The next owner of the same memory.
                let used = dirty(gpu, size)?;
                let place = used.offset();
                let jobs = gpu.copy().status().jobs;
                drop(used);
                let blocks = gpu.vram().alloc_blocks(size, true)?;
                let blocks = gpu.clear_vram(&hw, blocks)?;
                for span in blocks.spans() {
                    assert_eq!(only_byte(gpu, span.start, span.size)?, Some(0));
                }
                if size >= ENGINE_MIN {
                    assert!(gpu.copy().status().jobs > jobs);
                }
                // Otherwise this shows nothing.
                assert_eq!(blocks.spans().next().map(|span| span.start), Some(place));
            }
            Ok(())
        })
    }

    #[test]
    fn storage_in_flight_that_is_dropped_waits_for_the_engine() -> Result {
        on_each(|gpu| {
            let hw = gpu.enter()?;
            let block = dirty(gpu, JOB_BYTES)?;
            let at = block.offset();
            let mut fence = None;
            let mut flight = InFlight::new(gpu, &hw, block);
            flight.each(|block| {
                if fence.is_some() {
                    return Ok(None);
                }
                fence = Some(gpu.copy().clear(&hw, block.mc(), JOB_BYTES)?);
                Ok(fence.clone())
            })?;
            drop(flight);
            assert_eq!(fence.and_then(|fence| fence.result()), Some(Ok(())));
            // Nobody else has had it meanwhile.
            assert_eq!(only_byte(gpu, at, JOB_BYTES)?, Some(0));
            Ok(())
        })
    }

    #[test]
    fn without_the_engine_the_cpu_clears() -> Result {
        on_each(|gpu| {
            let sched = scheduler(gpu)?;
            power::suspend(gpu, &sched)?;
            let cleared: Result = (|| {
                let hw = gpu.enter()?;
                let block = dirty(gpu, MIB)?;
                let refused = gpu.copy().clear(&hw, block.mc(), MIB).err();
                assert_eq!(refused, Some(EBUSY));
                drop(block);
                let blocks = gpu.clear_vram(&hw, gpu.vram().alloc_blocks(MIB, true)?)?;
                for span in blocks.spans() {
                    assert_eq!(only_byte(gpu, span.start, span.size)?, Some(0));
                }
                Ok(())
            })();
            power::resume(gpu, &sched)?;
            cleared?;
            assert!(gpu.copy().status().ready);
            let hw = gpu.enter()?;
            let block = dirty(gpu, MIB)?;
            let fence = gpu.copy().clear(&hw, block.mc(), MIB)?;
            gpu.copy().wait(&hw, &fence)?;
            assert_eq!(only_byte(gpu, block.offset(), MIB)?, Some(0));
            Ok(())
        })
    }

    #[test]
    fn a_reset_ends_jobs_and_the_ring_begins_anew() -> Result {
        on_each(|gpu| {
            let sched = scheduler(gpu)?;
            let block = dirty(gpu, 2 * JOB_BYTES)?;
            sched.suspend()?;
            let result: Result = (|| {
                let hw = gpu.enter()?;
                let mut flight = InFlight::new(gpu, &hw, block);
                let mut part = 0;
                flight.each(|block| {
                    if part == 2 {
                        return Ok(None);
                    }
                    let to = block.mc() + part * JOB_BYTES;
                    part += 1;
                    gpu.copy().clear(&hw, to, JOB_BYTES).map(Some)
                })?;
                gpu.reset_engines(sched.unload_ms(), None, &mut KVec::new(), || {})?;
                match flight.land() {
                    // The reset waits for jobs that go on.
                    Landed::Done(block) => {
                        assert_eq!(only_byte(gpu, block.offset(), 2 * JOB_BYTES)?, Some(0));
                    }
                    Landed::Cancelled(..) => {}
                    Landed::Failed(e) => return Err(e),
                }
                Ok(())
            })();
            sched.resume()?;
            result?;
            assert!(gpu.copy().status().ready);
            let hw = gpu.enter()?;
            let block = dirty(gpu, MIB)?;
            let fence = gpu.copy().clear(&hw, block.mc(), MIB)?;
            gpu.copy().wait(&hw, &fence)?;
            assert_eq!(only_byte(gpu, block.offset(), MIB)?, Some(0));
            Ok(())
        })
    }
}
