// SPDX-License-Identifier: GPL-2.0

//! Saved waves, checkpoints, global wave sync and debugged processes. The test is the worker.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    changes::pending::Pending,
    config::{
        Config,
        Policy, //
    },
    desired::queue::QueueHold,
    diag::sample::is_occupied,
    failure::Failure,
    fake::{
        config,
        create,
        doorbell,
        finish,
        pm4,
        process,
        scheduler as driven,
        sdma,
        setup,
        setup_with,
        Event,
        Fake, //
    },
    mqd::saved::QueueImage,
    params::{
        EvictCause,
        QueueSpec,
        QueueUpdate, //
    },
    steps::{
        evict,
        mqd,
        update, //
    },
    worker::Worker, //
};
use crate::{
    gpu::salvage::{
        Outcome,
        SavedQueue, //
    },
    hw::{
        asic::{
            AsicDesc,
            GFX906,
            GFX90A, //
        },
        mqd::{
            layout::{
                compute as at,
                sdma as sdma_at, //
            },
            Cwsr, //
        },
        num::widen,
        pm4::process::Debug, //
    }, //
};

/// A compute queue with a save area.
fn saving(asic: &AsicDesc, n: u32) -> QueueSpec {
    QueueSpec {
        cwsr: Some(Cwsr {
            base: 0x7c00_0000_0000,
            bytes: asic.cwsr.cwsr,
            ctl_stack: asic.cwsr.ctl_stack,
        }),
        ..pm4(n)
    }
}

fn add(sched: &Arc<Worker>, proc: u64, spec: QueueSpec) -> Result<u64> {
    sched.create_queue(proc, spec, QueueHold::default())
}

/// Stores what the microcode leaves: `used` bytes of control stack and of wave state, with words
/// that tell their places.
fn save(fake: &Fake, mqd: u64, asic: &AsicDesc, used: u32, waves: u32) {
    let stack = asic.cwsr.ctl_stack;
    for (dw, word) in [
        (at::CP_HQD_CNTL_STACK_SIZE, stack),
        (at::CP_HQD_CNTL_STACK_OFFSET, stack - used),
        (at::CP_HQD_WG_STATE_OFFSET, stack + waves),
    ] {
        assert!(fake.store(mqd + dw as u64 * 4, word)); // CAST: A small index.
    }
    for offset in (stack - used..stack).step_by(4) {
        assert!(fake.store(mqd + 0x1000 + widen(offset), 0xc000_0000 | offset));
    }
}

fn gws(on: bool) -> QueueUpdate {
    QueueUpdate {
        gws: Some(on),
        ..QueueUpdate::default()
    }
}

#[kunit_tests(rkfd_sched_saved)]
mod saved {
    use super::*;

    #[test]
    fn waves_of_a_queue_at_rest_can_be_read() -> Result {
        for asic in [&GFX90A, &GFX906] {
            let fake = Fake::new(asic)?;
            let sched = driven(&fake, config())?;
            let proc = sched.attach(process(1))?;
            let queue = add(&sched, proc, saving(asic, 1))?;
            sched.converge();
            // It runs.
            assert_eq!(sched.core.wave_state(proc, queue).err(), Some(EINVAL));
            evict(&sched, proc, EvictCause::Debugger)?;
            let stack = asic.cwsr.ctl_stack;
            // It never ran a wave.
            let state = sched.core.wave_state(proc, queue)?;
            assert_eq!(state.header, [stack, 0, stack, 0]);
            assert_eq!((state.ctl_stack.len(), state.save_area_used), (0, 0));

            save(&fake, mqd(&sched, proc, queue)?, asic, 40, 0x3000);
            let state = sched.core.wave_state(proc, queue)?;
            assert_eq!(state.header, [stack - 40, 40, stack + 0x3000, 0x3000]);
            assert_eq!((state.ctl_stack_used, state.save_area_used), (40, 0x3000));
            assert_eq!(state.ctl_stack.len(), 10);
            for (word, offset) in state.ctl_stack.iter().zip((stack - 40..stack).step_by(4)) {
                assert_eq!(*word, 0xc000_0000 | offset);
            }
            finish(&fake, sched)?;
        }
        Ok(())
    }

    #[test]
    fn stopped_queue_is_at_rest_too() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let mut spec = saving(&GFX90A, 1);
        spec.percent = 0;
        let queue = add(&sched, proc, spec)?;
        assert!(sched.core.wave_state(proc, queue).is_ok());
        let percent = QueueUpdate {
            percent: Some(100),
            ..QueueUpdate::default()
        };
        update(&sched, proc, queue, percent)?;
        assert_eq!(sched.core.wave_state(proc, queue).err(), Some(EINVAL));
        finish(&fake, sched)
    }

    #[test]
    fn queue_that_was_reset_does_not_begin_with_old_waves() -> Result {
        for asic in [&GFX90A, &GFX906] {
            let fake = Fake::new(asic)?;
            let sched = driven(&fake, config())?;
            let proc = sched.attach(process(1))?;
            let queue = add(&sched, proc, saving(asic, 1))?;
            sched.converge();
            // An earlier save, which the queue went on from.
            let mqd = mqd(&sched, proc, queue)?;
            save(&fake, mqd, asic, 0x40, 0x200);
            fake.reset();
            let found = SavedQueue {
                doorbell: doorbell(1).dword(),
                rptr: 0x30,
                wptr: 0x1_0000_0040,
                outcome: Outcome::Refused,
            };
            sched.recover(&[found], &Failure::RingFull)?;
            let word = |dw: usize| fake.load(mqd + dw as u64 * 4); // CAST: A small index.
            let empty = Some(asic.cwsr.ctl_stack);
            assert_eq!(word(at::CP_HQD_CNTL_STACK_OFFSET), empty);
            assert_eq!(word(at::CP_HQD_WG_STATE_OFFSET), empty);
            assert_eq!(word(at::CP_HQD_PQ_RPTR), Some(0x30));
            assert_eq!(word(at::CP_HQD_PQ_WPTR_HI), Some(1));
            // It goes on.
            sched.converge();
            assert_eq!(fake.mapped(), 1);
            finish(&fake, sched)?;
        }
        Ok(())
    }

    #[test]
    fn what_was_under_way_before_a_reset_is_forgotten() -> Result {
        for asic in [&GFX90A, &GFX906] {
            let fake = Fake::new(asic)?;
            let sched = driven(&fake, config())?;
            let proc = sched.attach(process(1))?;
            let runner = add(&sched, proc, saving(asic, 1))?;
            let copier = add(&sched, proc, sdma(100, 0, 0))?;
            sched.converge();
            let runner = mqd(&sched, proc, runner)?;
            let copier = mqd(&sched, proc, copier)?;
            let place = |base: u64, dw: usize| base + dw as u64 * 4; // CAST: A small index.
                                                                     // An earlier preemption came in the middle of a dispatch, and of a copy in an indirect buffer.
            let dispatch = [
                28, 29, 30, 33, 35, 36, 38, 92, 114, 119, 146, 147, 148, 152, 256, 511,
            ];
            let copy = [11, 12, 13, 14, 15, 16, 25, 32, 40, 41, 48, 49, 125];
            for (base, dws) in [(runner, &dispatch[..]), (copier, &copy[..])] {
                for dw in dws {
                    assert!(fake.store(place(base, *dw), 0xdead_0001));
                }
            }
            let (restore, ib) = (fake.load(place(runner, 132)), fake.load(place(runner, 149)));
            assert!(
                fake.store(place(runner, 132), u32::MAX)
                    && fake.store(place(runner, 149), u32::MAX)
            );
            // Packets have set this register; nobody would set it again.
            assert!(fake.store(place(runner, at::COMPUTE_PGM_LO), 0x1234_5678));
            fake.reset();
            let found = |doorbell: u32, outcome| SavedQueue {
                doorbell,
                rptr: 0x30,
                wptr: 0x1_0000_0040,
                outcome,
            };
            let saved = [
                found(doorbell(1).dword(), Outcome::Refused),
                found(doorbell(100).dword(), Outcome::Stopped),
            ];
            sched.recover(&saved, &Failure::RingFull)?;
            for (base, dws) in [(runner, &dispatch[..]), (copier, &copy[..])] {
                for dw in dws {
                    assert_eq!((*dw, fake.load(place(base, *dw))), (*dw, Some(0)));
                }
            }
            assert_eq!(fake.load(place(runner, 132)), restore);
            assert_eq!(fake.load(place(runner, 149)), ib);
            assert_eq!(
                fake.load(place(runner, at::COMPUTE_PGM_LO)),
                Some(0x1234_5678)
            );
            assert_eq!(fake.load(place(copier, sdma_at::RB_RPTR)), Some(0x30));
            assert_eq!(fake.load(place(copier, sdma_at::RB_WPTR_HI)), Some(1));
            sched.converge();
            assert_eq!(fake.mapped(), 2);
            finish(&fake, sched)?;
        }
        Ok(())
    }

    #[test]
    fn nonsense_of_the_hardware_is_not_passed_on() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let queue = add(&sched, proc, saving(&GFX90A, 1))?;
        sched.converge();
        evict(&sched, proc, EvictCause::Debugger)?;
        let base = mqd(&sched, proc, queue)?;
        let stack = GFX90A.cwsr.ctl_stack;
        for (dw, word) in [
            (at::CP_HQD_CNTL_STACK_SIZE, stack + 4),
            (at::CP_HQD_CNTL_STACK_OFFSET, stack + 4),
            (at::CP_HQD_CNTL_STACK_OFFSET, stack - 3),
            (at::CP_HQD_WG_STATE_OFFSET, stack - 4),
            (at::CP_HQD_WG_STATE_OFFSET, GFX90A.cwsr.cwsr + 4),
        ] {
            save(&fake, base, &GFX90A, 16, 16);
            assert!(sched.core.wave_state(proc, queue).is_ok());
            assert!(fake.store(base + dw as u64 * 4, word)); // CAST: A small index.
            assert_eq!(sched.core.wave_state(proc, queue).err(), Some(EIO));
        }
        finish(&fake, sched)
    }

    #[test]
    fn queues_without_waves_have_no_state() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let plain = create(&sched, proc, 1)?;
        let copier = add(&sched, proc, sdma(100, 0, 0))?;
        evict(&sched, proc, EvictCause::Debugger)?;
        for queue in [plain, copier] {
            assert_eq!(sched.core.wave_state(proc, queue).err(), Some(EINVAL));
        }
        assert_eq!(sched.core.wave_state(proc, 999).err(), Some(ENOENT));
        assert_eq!(sched.core.wave_state(999, plain).err(), Some(ENOENT));
        finish(&fake, sched)
    }

    #[test]
    fn compute_queue_goes_on_from_its_image() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let queue = add(&sched, proc, saving(&GFX90A, 1))?;
        sched.converge();
        assert_eq!(sched.core.checkpoint(proc, queue).err(), Some(EBUSY));
        evict(&sched, proc, EvictCause::Debugger)?;
        let base = mqd(&sched, proc, queue)?;
        save(&fake, base, &GFX90A, 40, 0x3000);
        let word = |base: u64, dw: usize| fake.load(base + dw as u64 * 4); // CAST: A small index.
        for (dw, value) in [
            (at::CP_HQD_PQ_RPTR, 0x123),
            (at::CP_HQD_PQ_WPTR_LO, 0x456),
            (at::CP_HQD_VMID, 9),
            (at::CP_HQD_ACTIVE, 1),
        ] {
            assert!(fake.store(base + dw as u64 * 4, value)); // CAST: As above.
        }
        let image = sched.core.checkpoint(proc, queue)?;
        assert_eq!(image.words().len(), 512);

        let other = sched.attach(process(2))?;
        let copy = saving(&GFX90A, 7);
        let restored = sched.add_queue(other, copy, QueueHold::default(), Some(&image))?;
        let new = mqd(&sched, other, restored)?;
        assert!(new != base);
        // State comes from the image.
        assert_eq!(word(new, at::CP_HQD_PQ_RPTR), Some(0x123));
        assert_eq!(word(new, at::CP_HQD_PQ_WPTR_LO), Some(0x456));
        let offset = GFX90A.cwsr.ctl_stack - 40;
        assert_eq!(
            fake.load(new + 0x1000 + widen(offset)),
            Some(0xc000_0000 | offset)
        );
        // Its place is its own.
        assert_eq!(
            word(new, at::CP_MQD_BASE_ADDR_LO),
            Some(new as u32) // CAST: The low half is meant.
        );
        assert_eq!(word(new, at::CP_HQD_VMID), Some(0));
        assert_eq!(word(new, at::CP_HQD_ACTIVE), Some(0));
        assert_eq!(
            word(new, at::CP_HQD_PQ_BASE_LO),
            Some((copy.ring_base >> 8) as u32) // CAST: As above.
        );
        assert_eq!(
            word(new, at::CP_HQD_PQ_DOORBELL_CONTROL),
            Some(copy.doorbell.field())
        );
        sched.converge();
        assert_eq!(fake.mapped_of(2), 1);
        finish(&fake, sched)
    }

    #[test]
    fn sdma_queue_goes_on_from_its_image() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let queue = add(&sched, proc, sdma(100, 0, 0))?;
        sched.converge();
        evict(&sched, proc, EvictCause::Debugger)?;
        let base = mqd(&sched, proc, queue)?;
        assert!(fake.store(base + sdma_at::RB_RPTR as u64 * 4, 0x440)); // CAST: A small index.
        let image = sched.core.checkpoint(proc, queue)?;
        assert_eq!((image.words().len(), image.ctl_stack().len()), (128, 0));
        let other = sched.attach(process(2))?;
        let spec = sdma(101, 1, 3);
        let restored = sched.add_queue(other, spec, QueueHold::default(), Some(&image))?;
        let new = mqd(&sched, other, restored)?;
        let word = |dw: usize| fake.load(new + dw as u64 * 4); // CAST: As above.
        assert_eq!(word(sdma_at::RB_RPTR), Some(0x440));
        assert_eq!(word(sdma_at::SDMA_ENGINE_ID), Some(1));
        assert_eq!(word(sdma_at::SDMA_QUEUE_ID), Some(3));
        assert_eq!(
            word(sdma_at::DOORBELL_OFFSET),
            Some(spec.doorbell.dword() << 2)
        );
        sched.converge();
        assert_eq!(fake.mapped_of(2), 1);
        finish(&fake, sched)
    }

    #[test]
    fn foreign_images_are_refused() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let queue = add(&sched, proc, saving(&GFX90A, 1))?;
        evict(&sched, proc, EvictCause::Debugger)?;
        let image = sched.core.checkpoint(proc, queue)?;
        let blocks = fake.blocks();
        let refused = |spec, image: &QueueImage| {
            let made = sched.add_queue(proc, spec, QueueHold::default(), Some(image));
            assert_eq!(made.err(), Some(EINVAL));
        };
        // Of another type, or without its control stack.
        refused(sdma(100, 0, 0), &image);
        refused(pm4(2), &image);
        // Cut short.
        let short = |words: &[u32]| -> Result<KVVec<u32>> {
            let mut copy = KVVec::new();
            copy.extend_from_slice(words, GFP_KERNEL)?;
            Ok(copy)
        };
        let words = image.words();
        let cut = QueueImage::new(
            short(words.get(..511).unwrap_or(&[]))?,
            short(image.ctl_stack())?,
        );
        refused(saving(&GFX90A, 3), &cut);
        // With saved state outside the area, without a stack, and with one of another size.
        let stack = GFX90A.cwsr.ctl_stack;
        for (n, size, offset, end) in [
            (4, u32::MAX, stack, stack),
            (5, 0, 0, 0),
            (6, stack - 4096, stack - 4096, stack - 4096),
        ] {
            let mut bad = short(words)?;
            for (dw, value) in [
                (at::CP_HQD_CNTL_STACK_SIZE, size),
                (at::CP_HQD_CNTL_STACK_OFFSET, offset),
                (at::CP_HQD_WG_STATE_OFFSET, end),
            ] {
                *bad.get_mut(dw).ok_or(EINVAL)? = value;
            }
            let bad = QueueImage::new(bad, short(image.ctl_stack())?);
            refused(saving(&GFX90A, n), &bad);
        }
        assert_eq!(fake.blocks(), blocks);
        finish(&fake, sched)
    }
}

#[kunit_tests(rkfd_sched_special)]
mod special {
    use super::*;

    #[test]
    fn one_queue_of_a_process_has_global_wave_sync() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let first = create(&sched, proc, 1)?;
        let second = create(&sched, proc, 2)?;
        sched.converge();
        let nobody = sched.begin_update(proc, first, gws(false));
        assert_eq!(nobody.err(), Some(EINVAL));
        let _ = fake.log();
        update(&sched, proc, first, gws(true))?;
        let given = Event::Gws {
            pasid: 1,
            slots: 64,
        };
        let log = fake.log();
        assert_eq!(log.iter().filter(|event| **event == given).count(), 1);
        assert!(!log.contains(&Event::Chain));
        for queue in [first, second] {
            let again = sched.begin_update(proc, queue, gws(true));
            assert_eq!(again.err(), Some(EBUSY));
        }
        // A later change does not take it away.
        let change = QueueUpdate {
            priority: Some(1),
            ..QueueUpdate::default()
        };
        update(&sched, proc, first, change)?;
        assert!(fake.log().contains(&given));
        update(&sched, proc, first, gws(false))?;
        assert!(!fake.log().contains(&given));
        update(&sched, proc, second, gws(true))?;
        assert!(fake.log().contains(&given));
        finish(&fake, sched)
    }

    #[test]
    fn queues_with_global_wave_sync_take_turns() -> Result {
        let (fake, sched) = setup()?;
        for pasid in 1..=2 {
            let proc = sched.attach(process(pasid))?;
            let queue = create(&sched, proc, pasid.into())?;
            update(&sched, proc, queue, gws(true))?;
        }
        let log = fake.log();
        assert_eq!(log.last().copied(), Some(Event::Chain));
        finish(&fake, sched)
    }

    #[test]
    fn who_cannot_have_global_wave_sync_is_told() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let copier = add(&sched, proc, sdma(100, 0, 0))?;
        let refused = sched.begin_update(proc, copier, gws(true));
        assert_eq!(refused.err(), Some(EINVAL));
        let absent = sched.begin_update(proc, 999, gws(true));
        assert_eq!(absent.err(), Some(ENOENT));
        finish(&fake, sched)?;
        let (fake, sched) = setup_with(Config {
            policy: Policy::Direct,
            ..config()
        })?;
        let proc = sched.attach(process(1))?;
        let queue = create(&sched, proc, 1)?;
        let refused = sched.begin_update(proc, queue, gws(true));
        assert_eq!(refused.err(), Some(ENODEV));
        let debugged = sched.begin_debug(proc, Debug::default(), true);
        assert_eq!(debugged.err(), Some(ENODEV));
        finish(&fake, sched)
    }

    #[test]
    fn a_debugger_alone_changes_words_only() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        sched.converge();
        let _ = fake.log();
        let words = Debug {
            single_memops: true,
            ..Debug::default()
        };
        let pending = sched.begin_debug(proc, words, false)?;
        assert!(matches!(pending, Pending::Change(_)));
        sched.converge();
        // It is mapped anew, and counted as always.
        assert!(fake.log().contains(&Event::Process {
            pasid: 1,
            queues: 1
        }));
        assert_eq!((fake.fixed(), fake.mapped()), (0, 1));
        finish(&fake, sched)
    }

    #[test]
    fn queues_beside_a_debug_queue_are_static() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        let other = sched.attach(process(2))?;
        let queue = create(&sched, proc, 1)?;
        create(&sched, proc, 2)?;
        let plain = create(&sched, other, 3)?;
        sched.converge();
        let _ = sched.begin_debug(proc, Debug::default(), true)?;
        sched.converge();
        assert_eq!((fake.fixed(), fake.mapped()), (2, 3));
        let _ = fake.log();
        // Whatever goes, all goes: nothing less takes static queues off.
        let pending = sched.begin_destroy(other, plain, true);
        assert!(matches!(pending, Pending::Change(_)));
        sched.converge();
        let first = fake.log().first().copied();
        assert_eq!(first, Some(Event::UnmapStatic));
        assert_eq!((fake.fixed(), fake.mapped()), (2, 2));
        let _ = sched.begin_destroy(proc, queue, true);
        sched.converge();
        assert_eq!((fake.fixed(), fake.mapped()), (1, 1));
        let _ = sched.begin_debug(proc, Debug::default(), false)?;
        sched.converge();
        assert_eq!((fake.fixed(), fake.mapped()), (0, 1));
        // And nothing is left of it.
        let _ = fake.log();
        evict(&sched, proc, EvictCause::Debugger)?;
        let first = fake.log().first().copied();
        assert_eq!(first, Some(Event::UnmapAll));
        finish(&fake, sched)
    }

    #[test]
    fn shutdown_takes_static_queues_off() -> Result {
        let (fake, sched) = setup()?;
        let proc = sched.attach(process(1))?;
        create(&sched, proc, 1)?;
        let _ = sched.begin_debug(proc, Debug::default(), true)?;
        sched.converge();
        assert_eq!(fake.fixed(), 1);
        finish(&fake, sched)
    }

    #[test]
    fn registers_tell_whether_a_queue_is_there() -> Result {
        for policy in [Policy::Oversubscribe, Policy::Direct] {
            let (fake, sched) = setup_with(Config { policy, ..config() })?;
            let proc = sched.attach(process(1))?;
            let queue = create(&sched, proc, 1)?;
            assert!(!is_occupied(&sched.core, proc, queue)?);
            sched.converge();
            assert!(is_occupied(&sched.core, proc, queue)?);
            evict(&sched, proc, EvictCause::Debugger)?;
            assert!(!is_occupied(&sched.core, proc, queue)?);
            assert_eq!(is_occupied(&sched.core, proc, 999).err(), Some(ENOENT));
            finish(&fake, sched)?;
        }
        Ok(())
    }
}
