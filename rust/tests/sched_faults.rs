// SPDX-License-Identifier: GPL-2.0

//! What an address space finds in the hardware, and what its accesses to nowhere leave behind there: queues made
//! for the test, on every GPU that is there.

use kernel::prelude::*;

use super::bench::{
    eventually,
    layout,
    on_each,
    Space,
    BASE,
    BLOCK, //
};
use crate::hw::{
    num::{
        hi32,
        lo32, //
    },
    regs::gc::{
        self,
        GrbmGfxCntl,
        ShMemConfig, //
    }, //
};

/// Where the memory of the second queue would be.
const MISSING: u64 = BASE + BLOCK;
/// TRAP_EN of MAP_PROCESS, which shares the register with the high half of the handler's address.
const TRAP_EN: u32 = 1 << 31;

#[kunit_tests(rkfd_sched_faults_live)]
mod cases {
    use super::*;

    #[test]
    fn missing_page_is_reported_again_until_it_is_there() -> Result {
        on_each(|bench| {
            if !bench.gpu.asic().xnack_per_process {
                return Ok(());
            }
            let mut space = Space::with(bench, |params| {
                params.sh_mem_config = ShMemConfig::for_xnack(true).raw();
            })?;
            let queue = space.pm4()?;
            space.submit(queue, 1)?;
            space.expect(queue, 1)?;
            let counters = bench.gpu.ih().counters();
            let (faults, before) = (counters.faults.get(), counters.retry_faults.get());
            space.store(queue, MISSING + layout::DATA, 0x5eed)?;
            space.submit(queue, 2)?;
            // The filter keeps a fault that it has reported to itself until the driver releases the entry.
            eventually(|| Ok(counters.retry_faults.get() >= before + 3))?;
            let first = space.queues.first().ok_or(EINVAL)?;
            assert_eq!(first.value()?, 1);
            let (memory, va) = space.memory()?;
            assert_eq!(va, MISSING);
            // The access is repeated by itself, and the queue goes on.
            space.expect(queue, 2)?;
            assert_eq!(memory.read32(usize::try_from(layout::DATA)?)?, 0x5eed);
            assert_eq!(counters.faults.get(), faults);
            bench.sched.detach(&space.process)
        })
    }

    #[test]
    fn status_of_a_fault_makes_room_for_the_next() -> Result {
        on_each(|bench| {
            let mut space = Space::new(bench)?;
            let queue = space.pm4()?;
            let counters = bench.gpu.ih().counters();
            let status = bench.gpu.asic().gfxhub.fault_status();
            for round in 1..=3 {
                let before = counters.faults.get();
                space.store(queue, MISSING + u64::from(round) * 0x1000, 0x5eed)?;
                space.submit(queue, round)?;
                space.expect(queue, round)?;
                eventually(|| Ok(counters.faults.get() > before))?;
                // Waits for the end of the delivery that has counted it.
                bench.gpu.catch_up();
                assert_eq!(bench.gpu.enter()?.read(status), 0);
            }
            bench.sched.detach(&space.process)
        })
    }

    #[test]
    fn vmid_of_another_space_shows_none_of_its_memory() -> Result {
        on_each(|bench| {
            let mut spaces = KVec::new();
            for value in 1..=3 {
                let mut space = Space::new(bench)?;
                // Both hubs, at the same addresses each time.
                let (compute, copies) = (space.pm4()?, space.sdma(0)?);
                for queue in [compute, copies] {
                    space.submit(queue, value)?;
                    space.expect(queue, value)?;
                }
                bench.sched.detach(&space.process)?;
                // Its memory stays, so that the next one cannot get it.
                spaces.push(space, GFP_KERNEL)?;
            }
            for (space, value) in spaces.iter().zip(1..) {
                space.expect(0, value)?;
                space.expect(1, value)?;
            }
            Ok(())
        })
    }

    #[test]
    fn trap_handler_is_where_its_process_has_it() -> Result {
        on_each(|bench| {
            const TBA: u64 = 0x7e12_3456_7800;
            const TMA: u64 = 0x7eab_cdef_0100;
            let mut space = Space::with(bench, |params| {
                (params.tba, params.tma) = (TBA, TMA);
            })?;
            let queue = space.pm4()?;
            space.submit(queue, 1)?;
            space.expect(queue, 1)?;
            let doorbell = space.queues.first().ok_or(EINVAL)?.doorbell;
            let vmids = bench.vmids_of(doorbell)?;
            let [vmid] = vmids.as_slice() else {
                return Err(EINVAL);
            };
            let hw = bench.gpu.enter()?;
            let bank = hw.select(GrbmGfxCntl::new().with(GrbmGfxCntl::VMID, *vmid));
            let (tba, tma) = (
                [
                    hw.read(gc::SQ_SHADER_TBA_LO),
                    hw.read(gc::SQ_SHADER_TBA_HI) & !TRAP_EN,
                ],
                [hw.read(gc::SQ_SHADER_TMA_LO), hw.read(gc::SQ_SHADER_TMA_HI)],
            );
            drop(bank);
            drop(hw);
            assert_eq!(tba, [lo32(TBA >> 8), hi32(TBA >> 8)]);
            assert_eq!(tma, [lo32(TMA >> 8), hi32(TMA >> 8)]);
            bench.sched.detach(&space.process)
        })
    }
}
