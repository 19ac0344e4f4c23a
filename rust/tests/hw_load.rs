// SPDX-License-Identifier: GPL-2.0

//! Register writes that load a queue without the scheduler firmware.

use kernel::prelude::*;

use crate::hw::{
    asic::{
        GFX906,
        GFX90A, //
    },
    load::{
        self,
        COMPUTE_WRITES,
        SDMA_WRITES, //
    },
    mqd::layout::{
        compute as at,
        sdma as sdma_at, //
    },
    regs::{
        gc::CP_PQ_WPTR_POLL_CNTL1,
        hqd::{
            self,
            Slot,
            WINDOW, //
        },
        Reg, //
    }, //
};

const WPTR: u64 = 0x7f12_3456_7890;

/// A slot of the firmware's.
fn slot() -> Result<Slot> {
    Slot::new(1, 2, 5).ok_or(EINVAL)
}

/// Writes of a compute queue whose descriptor has `words` and its own index elsewhere.
fn compute(words: &[(usize, u32)]) -> Result<KVec<(Reg, u32)>> {
    let mut writes = KVec::with_capacity(COMPUTE_WRITES, GFP_KERNEL)?;
    let read = |dw: usize| {
        let found = words.iter().find(|(at, _)| *at == dw);
        // CAST: An index below 512.
        Ok::<_, Error>(found.map_or(0x1000 + dw as u32, |(_, value)| *value))
    };
    load::compute(slot()?, 9, WPTR, read, |reg, value| {
        let _ = writes.push_within_capacity((reg, value));
    })?;
    Ok(writes)
}

fn last(writes: &[(Reg, u32)], reg: Reg) -> Option<u32> {
    let mut hits = writes.iter().rev().filter(|(at, _)| *at == reg);
    hits.next().map(|(_, value)| *value)
}

/// The write pointer that a queue with a ring of 1024 dwords starts with.
fn start(rptr: u32, wptr: u64) -> Result<u64> {
    let writes = compute(&[
        (at::CP_HQD_PQ_CONTROL, 9),
        (at::CP_HQD_PQ_RPTR, rptr),
        (at::CP_HQD_PQ_WPTR_LO, wptr as u32), // CAST: The low half is meant.
        (at::CP_HQD_PQ_WPTR_HI, (wptr >> 32) as u32), // CAST: The rest fits.
        (at::CP_HQD_AQL_CONTROL, 0),
    ])?;
    let low = last(&writes, hqd::CP_HQD_PQ_WPTR_LO).ok_or(EINVAL)?;
    let high = last(&writes, hqd::CP_HQD_PQ_WPTR_HI).ok_or(EINVAL)?;
    Ok(u64::from(high) << 32 | u64::from(low))
}

#[kunit_tests(rkfd_hw_load)]
mod cases {
    use super::*;

    #[test]
    fn window_comes_first_and_activation_last() -> Result {
        let writes = compute(&[])?;
        assert_eq!(writes.len(), COMPUTE_WRITES);
        for (entry, (reg, value)) in WINDOW.iter().zip(&writes) {
            assert!(entry.reg == *reg);
            let plain = ![
                hqd::CP_HQD_ACTIVE,
                hqd::CP_HQD_VMID,
                hqd::CP_HQD_DEQUEUE_REQUEST,
            ]
            .contains(reg);
            if plain {
                assert_eq!(*value, 0x1000 + entry.mqd_dw as u32); // CAST: As above.
            }
        }
        assert_eq!(writes.last().copied(), Some((hqd::CP_HQD_ACTIVE, 1)));
        let active = |(reg, value): &&(Reg, u32)| *reg == hqd::CP_HQD_ACTIVE && *value != 0;
        assert_eq!(writes.iter().filter(active).count(), 1);
        Ok(())
    }

    #[test]
    fn queue_gets_its_vmid_and_no_old_request() -> Result {
        let writes = compute(&[(at::CP_HQD_VMID, 0x0e03), (at::CP_HQD_DEQUEUE_REQUEST, 3)])?;
        assert_eq!(last(&writes, hqd::CP_HQD_VMID), Some(0x0e09));
        assert_eq!(last(&writes, hqd::CP_HQD_DEQUEUE_REQUEST), Some(0));
        Ok(())
    }

    #[test]
    fn no_ring_size_that_a_device_writes_is_too_large() -> Result {
        for size in 0..64 {
            let writes = compute(&[
                (at::CP_HQD_PQ_CONTROL, size),
                (at::CP_HQD_PQ_RPTR, u32::MAX),
                (at::CP_HQD_PQ_WPTR_LO, 0),
                (at::CP_HQD_PQ_WPTR_HI, 0),
                (at::CP_HQD_AQL_CONTROL, 0),
            ])?;
            assert_eq!(writes.len(), COMPUTE_WRITES);
        }
        Ok(())
    }

    #[test]
    fn doorbell_counts_before_the_pointer_is_fetched() -> Result {
        let writes = compute(&[(at::CP_HQD_PQ_DOORBELL_CONTROL, 0x40)])?;
        let place = |wanted: (Reg, u32)| writes.iter().position(|write| *write == wanted);
        // EN is bit 30; pipe 2, queue 5 is bit 21.
        let doorbell = place((hqd::CP_HQD_PQ_DOORBELL_CONTROL, 0x4000_0040)).ok_or(EINVAL)?;
        let fetch = place((CP_PQ_WPTR_POLL_CNTL1, 1 << 21)).ok_or(EINVAL)?;
        assert!(doorbell < fetch);
        assert_eq!(
            last(&writes, hqd::CP_HQD_PQ_WPTR_POLL_ADDR),
            Some(0x3456_7890)
        );
        assert_eq!(
            last(&writes, hqd::CP_HQD_PQ_WPTR_POLL_ADDR_HI),
            Some(0x7f12)
        );
        Ok(())
    }

    #[test]
    fn eop_fetcher_starts() -> Result {
        let writes = compute(&[(at::CP_HQD_EOP_RPTR, 0x123)])?;
        assert_eq!(last(&writes, hqd::CP_HQD_EOP_RPTR), Some(0x8000_0123));
        Ok(())
    }

    #[test]
    fn pm4_queue_starts_empty() -> Result {
        assert_eq!(start(0, 0)?, 0);
        // In the same lap.
        assert_eq!(start(0x10, 0x20)?, 0x10);
        assert_eq!(start(0x10, 0x10)?, 0x10);
        assert_eq!(start(0x10, 0x7_0000_0c20)?, 0x7_0000_0c10);
        // The write pointer has passed the ring's end.
        assert_eq!(start(0x3f0, 0x410)?, 0x3f0);
        assert_eq!(start(0x3f0, 0x1_0000_0010)?, 0xffff_fff0);
        // Bits beyond the ring are not the pointer's.
        assert_eq!(start(0xffff_f810, 0x20)?, 0x10);
        Ok(())
    }

    #[test]
    fn aql_queue_starts_where_it_was_rung() -> Result {
        let writes = compute(&[
            (at::CP_HQD_PQ_CONTROL, 9),
            (at::CP_HQD_PQ_RPTR, 0x200),
            (at::CP_HQD_PQ_WPTR_LO, 0x21),
            (at::CP_HQD_PQ_WPTR_HI, 0x1),
            (at::CP_HQD_AQL_CONTROL, 1),
        ])?;
        assert_eq!(last(&writes, hqd::CP_HQD_PQ_WPTR_LO), Some(0x21));
        assert_eq!(last(&writes, hqd::CP_HQD_PQ_WPTR_HI), Some(1));
        Ok(())
    }

    #[test]
    fn sdma_queue_is_enabled_last_and_looks_for_its_pointer() -> Result {
        for asic in [&GFX90A, &GFX906] {
            let block = asic.sdma.engine(1).and_then(|engine| engine.rlc(2));
            let block = block.ok_or(EINVAL)?;
            let mut writes = KVec::with_capacity(SDMA_WRITES, GFP_KERNEL)?;
            let read = |dw: usize| {
                Ok::<_, Error>(match dw {
                    sdma_at::RB_CNTL => 0x0006_1014,
                    sdma_at::RB_RPTR => 0x440,
                    sdma_at::RB_RPTR_HI => 2,
                    _ => 0,
                })
            };
            load::sdma(block, 9, WPTR, read, |reg, value| {
                let _ = writes.push_within_capacity((reg, value));
            })?;
            assert_eq!(writes.len(), SDMA_WRITES);
            let end = writes.last().copied();
            assert_eq!(end, Some((block.rb_cntl(), 0x0906_1015)));
            assert_eq!(last(&writes, block.rb_rptr()), Some(0x440));
            assert_eq!(last(&writes, block.rb_rptr_hi()), Some(2));
            // Empty until the engine has looked.
            assert_eq!(last(&writes, block.rb_wptr()), Some(0x440));
            assert_eq!(last(&writes, block.rb_wptr_hi()), Some(2));
            let hi = last(&writes, block.rb_wptr_poll_addr_hi());
            assert_eq!(hi, Some(0x7f12));
            let poll = last(&writes, block.rb_wptr_poll_cntl());
            assert_eq!(poll, Some(0x0040_3004));
            assert_eq!(load::sdma_stopped(0x0906_1015), 0x0906_1014);
        }
        Ok(())
    }
}
