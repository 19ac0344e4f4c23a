// SPDX-License-Identifier: GPL-2.0

//! Sleep and resets of real GPUs; skipped where there is none.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::gpu_live::on_each;
use crate::{
    driver::power,
    gpu::{
        salvage::Outcome,
        Gpu, //
    },
    hw::pte::PAGE,
    kfd::facade,
    sched::Scheduler, //
};

fn scheduler(gpu: &Arc<Gpu>) -> Result<Arc<Scheduler>> {
    facade()?.scheduler(gpu).ok_or(ENODEV)
}

/// Bytes that no neighbour has by accident.
fn pattern(len: usize) -> Result<KVec<u8>> {
    let mut bytes = KVec::with_capacity(len, GFP_KERNEL)?;
    for i in 0..len {
        // CAST: The low byte is what is wanted.
        bytes.push((i.wrapping_mul(167) >> 3) as u8, GFP_KERNEL)?;
    }
    Ok(bytes)
}

/// Everything that a working GPU does.
fn works(gpu: &Gpu, sched: &Scheduler) -> Result {
    let hw = gpu.enter()?;
    gpu.kiq().test(&hw)?;
    sched.ping()
}

#[kunit_tests(rkfd_power_live)]
mod suite {
    use super::*;

    #[test]
    fn a_suspended_gpu_stands_still_and_comes_back_with_its_memory() -> Result {
        on_each(|gpu| {
            let sched = scheduler(gpu)?;
            let block = gpu.vram().alloc(PAGE, 0)?;
            let bytes = pattern(usize::try_from(block.size())?)?;
            gpu.enter()?.vram_write(block.offset(), &bytes)?;
            for _ in 0..3 {
                works(gpu, &sched)?;
                power::suspend(gpu, &sched)?;
                assert!(!gpu.kiq().is_ready());
                assert_eq!(gpu.kiq().test(&*gpu.enter()?).err(), Some(EIO));
                assert_eq!(gpu.wait_up().err(), Some(ENODEV));
                assert_eq!(
                    gpu.reset_engines(1, None, &mut KVec::new(), || {}).err(),
                    Some(ENODEV)
                );
                // Again is no error.
                power::suspend(gpu, &sched)?;
                power::resume(gpu, &sched)?;
                power::resume(gpu, &sched)?;
                gpu.wait_up()?;
                works(gpu, &sched)?;
            }
            let mut found = pattern(bytes.len())?;
            found.fill(0);
            gpu.enter()?.vram_read(block.offset(), &mut found)?;
            assert!(found[..] == bytes[..]);
            Ok(())
        })
    }

    #[test]
    fn interrupts_come_after_a_sleep() -> Result {
        on_each(|gpu| {
            let sched = scheduler(gpu)?;
            power::suspend(gpu, &sched)?;
            power::resume(gpu, &sched)?;
            // The rings begin anew.
            assert_eq!(gpu.ih().positions(), [0; 3]);
            works(gpu, &sched)
        })
    }

    #[test]
    fn a_reset_of_the_engines_keeps_memory_and_finds_no_queue_on_an_idle_gpu() -> Result {
        on_each(|gpu| {
            let sched = scheduler(gpu)?;
            let block = gpu.vram().alloc(PAGE, 0)?;
            let bytes = pattern(usize::try_from(block.size())?)?;
            gpu.enter()?.vram_write(block.offset(), &bytes)?;
            // The scheduler must not be in the middle of something.
            sched.suspend()?;
            let (up, mut seen) = (gpu.wait_up()?, false);
            assert!(!gpu.was_reset_since(up));
            let mut saved = KVec::new();
            gpu.reset_engines(sched.unload_ms(), None, &mut saved, || {
                seen = gpu.was_reset_since(up)
            })?;
            // From its begin on.
            assert!(seen && gpu.was_reset_since(up));
            assert!(!gpu.was_reset_since(gpu.wait_up()?));
            sched.resume()?;
            assert!(saved.iter().all(|queue| queue.outcome == Outcome::Saved));
            works(gpu, &sched)?;
            let mut found = pattern(bytes.len())?;
            found.fill(0);
            gpu.enter()?.vram_read(block.offset(), &mut found)?;
            assert!(found[..] == bytes[..]);
            Ok(())
        })
    }
}
