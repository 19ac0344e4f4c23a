// SPDX-License-Identifier: GPL-2.0

//! The real thing: runs against every GPU that was probed, and is skipped where there is none.
//!
//! What a packet writes is read back through the path of the CPU, so that each test
//! covers translation, ring, doorbell and write-back at once.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

use crate::{
    gpu::{
        registry,
        retry::FaultToken,
        GartBuffer,
        Gpu,
        Hw,
        IrqSink,
        VmFault, //
    },
    hw::{
        ih::{
            source,
            Client,
            SqInterrupt,
            Vector, //
        },
        pm4::{
            WriteMem,
            WriteReg, //
        },
        pte::{
            Entry,
            Flavour,
            Level,
            Meaning,
            Mtype,
            PAGE, //
        },
        regs::{
            gc,
            hqd::Slot, //
        }, //
    },
    kapi::kunit, //
};

/// Runs `f` on every GPU, or skips the test.
pub(super) fn on_each(mut f: impl FnMut(&Arc<Gpu>) -> Result) -> Result {
    let mut count = 0;
    let mut result = Ok(());
    registry()?.for_each(|gpu| {
        count += 1;
        if result.is_ok() {
            result = f(gpu);
        }
    })?;
    if count == 0 {
        kunit::skip(c"no GPU was probed");
    }
    result
}

/// Lets the KIQ store `value` at `address` of VMID 0.
fn store(gpu: &Gpu, address: u64, value: u64) -> Result {
    let packet = WriteMem {
        address,
        value: crate::hw::num::lo32(value),
        high: Some(crate::hw::num::hi32(value)),
        confirm: true,
    };
    let hw = gpu.enter()?;
    gpu.kiq().submit(&hw, &packet.encode().map_err(|_| EINVAL)?)
}

/// Lets the KIQ raise its own interrupt: source 178, gated by its pipe.
fn raise(gpu: &Gpu, hw: &Hw) -> Result {
    let enable = |on: u32| {
        let _bank = hw.select(Slot::KIQ.select());
        hw.modify(gc::CPC_INT_CNTL, |raw| {
            gc::CpcInt::from_raw(raw)
                .with(gc::CpcInt::GENERIC2, on)
                .raw()
        });
    };
    let packet = WriteReg {
        reg: gc::CPC_INT_STATUS,
        value: gc::CpcInt::KIQ_FENCE.raw(),
        no_increment: false,
        confirm: true,
    };
    let words = packet.encode().map_err(|_| EINVAL)?;
    enable(1);
    let done = gpu.kiq().submit(hw, &words);
    enable(0);
    done
}

/// Counts the calls.
struct CountingSink(Atomic<i32>);

impl CountingSink {
    fn count(&self) {
        self.0.add(1, Relaxed);
    }
}

impl IrqSink for CountingSink {
    fn eop(&self, _pasid: u16, _ctx: u32) {
        self.count();
    }

    fn sdma_trap(&self, _pasid: u16, _ctx: u32) {
        self.count();
    }

    fn sq(&self, _pasid: u16, _data: SqInterrupt) {
        self.count();
    }

    fn bad_opcode(&self, _pasid: u16, _ctx0: u32) {
        self.count();
    }

    fn vm_fault(&self, _fault: &VmFault) -> bool {
        self.count();
        true
    }

    fn vm_retry(&self, _fault: &VmFault, token: FaultToken) {
        self.count();
        drop(token);
    }

    fn overflow(&self) {
        self.count();
    }
}

/// A pattern that no neighbour has by accident.
fn pattern(seed: u64) -> u64 {
    seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[kunit_tests(rkfd_gpu_live)]
mod cases {
    use super::*;

    #[test]
    fn units_lie_within_the_die_and_all_are_addressed_again() -> Result {
        on_each(|gpu| {
            let (shader, units) = (&gpu.asic().shader, &gpu.info().silicon.units);
            assert!(units.count() > 0 && units.count() <= shader.physical_units());
            for engine in 0..shader.engines {
                assert_eq!(units.mask(engine) >> shader.max_cu_per_array, 0);
            }
            assert_eq!(units.mask(shader.engines), 0);
            let index = gpu.enter()?.read(gc::GRBM_GFX_INDEX);
            assert_eq!(index, gc::GrbmGfxIndex::BROADCAST.raw());
            Ok(())
        })
    }

    #[test]
    fn kiq_executes_packets() -> Result {
        on_each(|gpu| {
            let before = gpu.kiq().status();
            gpu.kiq().test(&*gpu.enter()?)?;
            let after = gpu.kiq().status();
            assert_eq!(after.submissions, before.submissions + 1);
            assert!(!after.stuck);
            // The firmware has read all that was written; the ring has 1024 dwords.
            assert_eq!(u64::from(after.rptr), after.wptr % 1024);
            Ok(())
        })
    }

    #[test]
    fn kiq_ring_wraps() -> Result {
        on_each(|gpu| {
            let hw = gpu.enter()?;
            let buffer = gpu.gart().alloc(&hw, 4096)?;
            let start = gpu.kiq().status().wptr;
            // Packets of different lengths, so that the end of the ring is met at odd places.
            for i in 0..400_u64 {
                store(gpu, buffer.gpu_addr() + i % 512 * 8, pattern(i))?;
                if i % 7 == 0 {
                    gpu.kiq().test(&hw)?;
                }
                assert_eq!(buffer.read64((i % 512 * 8) as usize)?, pattern(i));
            }
            assert!(gpu.kiq().status().wptr - start > 2 * 1024);
            Ok(())
        })
    }

    #[test]
    fn gart_maps_what_was_allocated() -> Result {
        on_each(|gpu| {
            let hw = gpu.enter()?;
            // Three buffers, the middle one is replaced: its successor must not hit stale entries.
            let first = gpu.gart().alloc(&hw, 1)?;
            let middle = gpu.gart().alloc(&hw, 3 * 4096)?;
            let last = gpu.gart().alloc(&hw, 4096)?;
            assert_eq!((first.size(), middle.size()), (4096, 3 * 4096));
            let at = middle.gpu_addr();
            store(gpu, at + 2 * 4096 + 8, pattern(1))?;
            assert_eq!(middle.read64(2 * 4096 + 8)?, pattern(1));
            drop(middle);
            let again = gpu.gart().alloc(&hw, 3 * 4096)?;
            assert_eq!(again.gpu_addr(), at);
            store(gpu, at + 8, pattern(2))?;
            store(gpu, first.gpu_addr(), pattern(3))?;
            store(gpu, last.gpu_addr() + 4088, pattern(4))?;
            assert_eq!(again.read64(8)?, pattern(2));
            assert_eq!(again.read64(2 * 4096 + 8)?, 0);
            assert_eq!(first.read64(0)?, pattern(3));
            assert_eq!(last.read64(4088)?, pattern(4));
            assert_eq!(first.read64(8)?, 0);
            Ok(())
        })
    }

    #[test]
    fn only_control_stacks_may_be_cached() -> Result {
        on_each(|gpu| {
            let hw = gpu.enter()?;
            let types = |buffer: &GartBuffer| -> Result<[Mtype; 3]> {
                let mut found = [Mtype::Cc; 3];
                for (place, found) in (buffer.entries()..).step_by(8).zip(&mut found) {
                    let mut bytes = [0; 8];
                    hw.vram_read(place, &mut bytes)?;
                    let entry = Entry::from_raw(u64::from_le_bytes(bytes));
                    let Meaning::Page { attrs, .. } = Flavour::Plain.decode(Level::Ptb, entry)
                    else {
                        return Err(EINVAL);
                    };
                    *found = attrs.mtype;
                }
                Ok(found)
            };
            let (plain, mqd) = (
                gpu.gart().alloc(&hw, 3 * 4096)?,
                gpu.gart().alloc_mqd(&hw, 3 * 4096)?,
            );
            assert_eq!(types(&plain)?, [Mtype::Uc, Mtype::Uc, Mtype::Uc]);
            assert_eq!(types(&mqd)?, [Mtype::Uc, Mtype::Nc, Mtype::Nc]);
            // Both can be reached all the same.
            store(gpu, mqd.gpu_addr() + 2 * 4096 + 8, pattern(5))?;
            assert_eq!(mqd.read64(2 * 4096 + 8)?, pattern(5));
            Ok(())
        })
    }

    #[test]
    fn vram_is_the_same_for_cpu_and_gpu() -> Result {
        on_each(|gpu| {
            let block = gpu.vram().alloc(4 * PAGE, 0)?;
            let hw = gpu.enter()?;
            hw.vram_fill(block.offset(), block.size(), 0xa5)?;
            let mut words = KVec::new();
            for i in 0..512 {
                words.push(pattern(i), GFP_KERNEL)?;
            }
            hw.vram_write_u64s(block.offset() + PAGE, &words)?;
            hw.vram_write(block.offset() + 3 * PAGE + 1, b"odd")?;
            hw.hdp_flush();
            store(gpu, block.mc() + 2 * PAGE, pattern(9000))?;

            let mut bytes = [0; 8];
            for i in [0, 1, 255, 511_u64] {
                hw.vram_read(block.offset() + PAGE + 8 * i, &mut bytes)?;
                assert_eq!(u64::from_le_bytes(bytes), pattern(i));
            }
            hw.vram_read(block.offset() + PAGE - 8, &mut bytes)?;
            assert_eq!(bytes, [0xa5; 8]);
            hw.vram_read(block.offset() + 2 * PAGE, &mut bytes)?;
            assert_eq!(u64::from_le_bytes(bytes), pattern(9000));
            hw.vram_read(block.offset() + 3 * PAGE, &mut bytes)?;
            assert_eq!(bytes, *b"\xa5odd\xa5\xa5\xa5\xa5");
            // The end of VRAM is a limit, not a place.
            let end = hw.vram_visible();
            assert_eq!(hw.vram_read(end - 4, &mut bytes).err(), Some(EINVAL));
            assert_eq!(hw.vram_write(u64::MAX, &bytes).err(), Some(EINVAL));
            Ok(())
        })
    }

    #[test]
    fn tlb_flushes_are_answered() -> Result {
        on_each(|gpu| {
            let pasid = gpu.pasids().alloc()?;
            gpu.flush_tlb(pasid.get())?;
            gpu.flush_tlb(pasid.get())?;
            assert!(!gpu.is_lost());
            Ok(())
        })
    }

    #[test]
    fn the_clock_advances() -> Result {
        on_each(|gpu| {
            let mut last = gpu.clock_counter()?;
            for _ in 0..8 {
                let now = gpu.clock_counter()?;
                assert!(now > last);
                last = now;
            }
            Ok(())
        })
    }

    #[test]
    fn copy_engines_switch_contexts_by_a_quantum() -> Result {
        on_each(|gpu| {
            let hw = gpu.enter()?;
            for n in 0..gpu.asic().sdma_engines() {
                let engine = gpu.asic().sdma.engine(n).ok_or(ENODEV)?;
                // AUTO_CTXSW_ENABLE, and 32 times 1024 cycles in each phase.
                assert_eq!(hw.read(engine.cntl()) >> 18 & 1, 1);
                for reg in [
                    engine.phase0_quantum(),
                    engine.phase1_quantum(),
                    engine.phase2_quantum(),
                ] {
                    assert_eq!(hw.read(reg), 0x2000);
                }
            }
            Ok(())
        })
    }

    #[test]
    fn a_doorbell_of_no_queue_raises_no_interrupt() -> Result {
        on_each(|gpu| {
            let slice = gpu.doorbells().alloc_slice()?;
            let hw = gpu.enter()?;
            // Of what was before.
            gpu.catch_up();
            let before = gpu.ih().counters().vectors[0].get();
            for id in 0..64 {
                hw.doorbell64((slice.bar_offset() + 8 * id).try_into()?, 1);
            }
            gpu.catch_up();
            assert_eq!(gpu.ih().counters().vectors[0].get(), before);
            Ok(())
        })
    }

    #[test]
    fn banked_registers_keep_apart() -> Result {
        on_each(|gpu| {
            let hw = gpu.enter()?;
            let bank = |vmid| gc::GrbmGfxCntl::new().with(gc::GrbmGfxCntl::VMID, vmid);
            let config = |vmid| {
                let _bank = hw.select(bank(vmid));
                (hw.read(gc::SH_MEM_BASES), hw.read(gc::SH_MEM_CONFIG))
            };
            // Bring-up gave VMID 0 no apertures and all others the initial ones; the scheduler
            // firmware may have installed those of a process since.
            let (kernel, last) = (config(0).0, config(15).0);
            drop(hw);
            assert_eq!(kernel, 0);
            let apertures = [gc::ShMemBases::INITIAL.raw(), gc::ShMemBases::KFD.raw()];
            assert!(apertures.contains(&last));
            Ok(())
        })
    }

    #[test]
    fn interrupts_arrive() -> Result {
        on_each(|gpu| {
            let hw = gpu.enter()?;
            let before = gpu.ih().counters().vectors[0].get();
            raise(gpu, &hw)?;
            hw.wait(60_000_000, || {
                Ok((gpu.ih().counters().vectors[0].get() > before).then_some(()))
            })?;
            assert_eq!(gpu.ih().counters().bad_pointers.get(), 0);
            Ok(())
        })
    }

    #[test]
    fn who_has_caught_up_has_heard_of_everything() -> Result {
        on_each(|gpu| {
            let hw = gpu.enter()?;
            // Often, for the interrupt thread may come first.
            for _ in 0..32 {
                let before = gpu.ih().counters().vectors[0].get();
                raise(gpu, &hw)?;
                gpu.catch_up();
                assert!(gpu.ih().counters().vectors[0].get() > before);
            }
            assert_eq!(gpu.ih().counters().bad_pointers.get(), 0);
            Ok(())
        })
    }

    #[test]
    fn vectors_of_the_vmids_of_graphics_reach_nobody() -> Result {
        on_each(|gpu| {
            let hw = gpu.enter()?;
            let first = u8::try_from(gpu.asic().first_vmid)?;
            for (vmid, pasid, ours) in [
                (0, 0x8001, false),
                (first - 1, 0x8001, false),
                (first, 0, false),
                (first, 0x8001, true),
                (15, 0x8001, true),
            ] {
                for source in [source::CP_EOP, source::SQ] {
                    let vector = Vector {
                        client: Client::GrbmCp,
                        source,
                        ring_id: 0,
                        vmid,
                        mmhub: false,
                        timestamp: 1,
                        pasid,
                        node_id: 0,
                        data: [0x123, 0, 0, 0],
                    };
                    let sink = CountingSink(Atomic::new(0));
                    let before = gpu.ih().counters().foreign.get();
                    gpu.ih().deliver(&hw, 0, &vector, Some(&sink));
                    let foreign = gpu.ih().counters().foreign.get() - before;
                    assert_eq!(
                        (vmid, source, sink.0.load(Relaxed), foreign),
                        (vmid, source, i32::from(ours), i64::from(!ours))
                    );
                }
            }
            Ok(())
        })
    }
}
