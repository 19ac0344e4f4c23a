// SPDX-License-Identifier: GPL-2.0

//! KUnit: composing run lists.
//!
//! Outside a module build (`MODULE` unset) the same cases run as ordinary tests on the host.

#[cfg_attr(MODULE, kernel::macros::kunit_tests(rkfd_hw_runlist))]
mod tests {
    use crate::hw::doorbell::DoorbellOffset;
    use crate::hw::pm4::process::Debug;
    use crate::hw::pm4::EncodeError;
    use crate::hw::pm4::Engine;
    use crate::hw::pm4::MapProcessFlavour;
    use crate::hw::pm4::Packet;
    use crate::hw::pm4::Packets;
    use crate::hw::regs::gc::ShMemBases;
    use crate::hw::regs::gc::ShMemConfig;
    use crate::hw::runlist::Context;
    use crate::hw::runlist::Limits;
    use crate::hw::runlist::Plan;
    use crate::hw::runlist::Process;
    use crate::hw::runlist::Queue;
    use crate::hw::runlist::RunListError;
    use crate::hw::runlist::SliceProcess;

    const LIMITS: Limits = Limits {
        flavour: MapProcessFlavour::Aldebaran,
        max_processes: 2,
        compute_slots: 3,
        xnack_check: false,
        isolate: false,
    };

    fn context(pasid: u16, xnack: bool) -> Context {
        Context {
            pasid,
            page_table_base: (0x1000 * u64::from(pasid)) | 1,
            sh_mem_config: ShMemConfig::for_xnack(xnack),
            sh_mem_bases: ShMemBases::KFD,
            trap: None,
            quantum: 10,
            num_gws: 0,
            diq: false,
            debug: Debug::default(),
        }
    }

    fn queue(engine: Engine, id: u32) -> Queue {
        Queue {
            engine,
            doorbell: DoorbellOffset::kernel(id),
            mqd: 0x1000 * u64::from(id),
            wptr: 0x7F00_0000_0000 + u64::from(id) * 8,
            gws: false,
        }
    }

    /// PASIDs of the list in order, 0 for anything but MAP_PROCESS.
    fn pasids(list: &[u32], out: &mut [u16; 8]) -> usize {
        let mut n = 0;
        for decoded in Packets::new(list) {
            if let Packet::MapProcess(process) = decoded.packet {
                out[n % 8] = process.pasid;
                n += 1;
            }
        }
        n
    }

    #[test]
    fn two_processes_three_queues() {
        let queues = [
            queue(Engine::Compute, 0x800),
            queue(Engine::Sdma(1), 0x900),
            queue(Engine::Compute, 0xC00),
        ];
        let processes = [
            SliceProcess {
                context: context(0x8001, false),
                queues: &queues[..2],
            },
            SliceProcess {
                context: context(0x8002, false),
                queues: &queues[2..],
            },
        ];
        let plan = Plan::new(LIMITS, processes.iter());
        assert_eq!(plan.map(|plan| plan.dwords()), Ok(2 * 21 + 3 * 7));
        assert_eq!(plan.map(|plan| plan.oversubscription().any()), Ok(false));
        let mut out = [0; 64];
        let built = plan.and_then(|plan| plan.build(processes.iter(), 0x10_0000, &mut out));
        assert_eq!(built, Ok(63));
        assert_eq!(out[0], 0xC013_A100);
        // Two queues, SDMA enabled.
        assert_eq!(out[13], 0x0080_0080);
        assert_eq!(
            [out[21], out[22], out[23]],
            [0xC005_A200, 0x2000_0010, 0x4000]
        );
        assert_eq!(out[29], 0x2C00_0010);
        assert_eq!(out[35], 0xC013_A100);
        assert_eq!(out[56], 0xC005_A200);
        assert_eq!(out[63], 0);
    }

    #[test]
    fn a_debug_queue_makes_queues_static_and_a_debugger_does_not() {
        let queues = [queue(Engine::Compute, 0x800), queue(Engine::Sdma(0), 0x900)];
        let words = Debug {
            single_memops: true,
            spi_gdbg_per_vmid_cntl: 8,
            tcp_watch_cntl: [1, 2, 3, 4],
        };
        // DIQ_ENABLE is bit 24 of dword 1, SINGLE_MEMOPS bit 16; queues are counted in bits 31:22 of dword 13.
        for (diq, debug, dw1, dw13, compute) in [
            (false, Debug::default(), 0x1400_0009, 0x80_0080, 0x2000_0010),
            (true, Debug::default(), 0x1500_0009, 0x80, 0x2040_0010),
            (false, words, 0x1401_0009, 0x80_0080, 0x2000_0010),
            (true, words, 0x1501_0009, 0x80, 0x2040_0010),
        ] {
            let process = SliceProcess {
                context: Context {
                    diq,
                    debug,
                    ..context(9, false)
                },
                queues: &queues,
            };
            let plan = Plan::new(LIMITS, core::iter::once(&process));
            let mut out = [0; 35];
            let built = plan.and_then(|plan| plan.build(core::iter::once(&process), 0, &mut out));
            assert_eq!(built, Ok(35));
            assert_eq!([out[1], out[13], out[22]], [dw1, dw13, compute]);
            // SDMA queues are never static.
            assert_eq!(out[29], 0x2800_0010);
            let watch = if debug == words { [1, 2, 3, 4] } else { [0; 4] };
            assert_eq!(out[15..19], watch);
        }
    }

    #[test]
    fn global_wave_sync_is_for_processes_with_a_cooperative_queue() {
        let cooperative = Queue {
            gws: true,
            ..queue(Engine::Compute, 0x800)
        };
        let (with, without) = ([cooperative], [queue(Engine::Compute, 0xC00)]);
        let process = |pasid, queues| SliceProcess {
            context: Context {
                num_gws: 64,
                ..context(pasid, false)
            },
            queues,
        };
        let processes = [process(1, &with[..]), process(2, &without[..])];
        let plan = Plan::new(LIMITS, processes.iter());
        let mut out = [0; 56];
        let built = plan.and_then(|plan| plan.build(processes.iter(), 0, &mut out));
        assert_eq!(built, Ok(56));
        let mut found = [(0, 0); 2];
        let mut n = 0;
        for decoded in Packets::new(&out) {
            if let Packet::MapProcess(process) = decoded.packet {
                found[n % 2] = (process.pasid, process.num_gws);
                n += 1;
            }
        }
        assert_eq!((n, found), (2, [(1, 64), (2, 0)]));
    }

    #[test]
    fn a_list_longer_than_its_packet_can_name_is_refused() {
        /// One process with that many SDMA queues.
        struct Many(u32);

        impl Process for Many {
            fn context(&self) -> Context {
                context(1, false)
            }

            fn queues(&self) -> impl Iterator<Item = Queue> {
                (0..self.0).map(|_| queue(Engine::Sdma(0), 0x900))
            }
        }

        // The size has 20 bits.
        let most = (0xF_FFFF - 21) / 7;
        let length = |queues| Plan::new(LIMITS, [Many(queues)].iter()).map(|plan| plan.dwords());
        assert_eq!(length(most), Ok(0xF_FFFC));
        assert_eq!(length(most + 1), Err(RunListError::TooLong(0xF_FFFC + 7)));
    }

    #[test]
    fn an_empty_list_has_no_dwords() {
        let none: [SliceProcess<'_>; 0] = [];
        let plan = Plan::new(LIMITS, none.iter());
        assert_eq!(plan.map(|plan| plan.dwords()), Ok(0));
        assert_eq!(
            plan.and_then(|plan| plan.build(none.iter(), 0, &mut [])),
            Ok(0)
        );
    }

    #[test]
    fn one_queue_too_many_chains_the_list() {
        let queues = [queue(Engine::Compute, 0x800); 4];
        for (n, over) in [(3, false), (4, true)] {
            let process = [SliceProcess {
                context: context(0x8001, false),
                queues: &queues[..n],
            }];
            let plan = Plan::new(LIMITS, process.iter());
            let mut out = [0; 64];
            let length = plan.and_then(|plan| plan.build(process.iter(), 0x4_1000, &mut out));
            let dwords = 21 + 7 * n;
            if over {
                assert_eq!(length, Ok(dwords + 4));
                assert_eq!(
                    [out[dwords], out[dwords + 1], out[dwords + 2]],
                    [0xC002_A500, 0x4_1000, 0]
                );
                // Valid, chained, not stopping when idle, one process, whole length.
                assert_eq!(out[dwords + 3], 0x01D0_0000 | 53);
            } else {
                assert_eq!(length, Ok(dwords));
                assert_eq!(out[dwords], 0);
            }
        }
    }

    #[test]
    fn sdma_queues_take_no_compute_slot() {
        let queues = [queue(Engine::Sdma(0), 0x900); 8];
        let process = [SliceProcess {
            context: context(1, false),
            queues: &queues,
        }];
        let plan = Plan::new(LIMITS, process.iter());
        assert_eq!(plan.map(|plan| plan.oversubscription().any()), Ok(false));
    }

    #[test]
    fn one_process_too_many_is_over_subscribed() {
        let processes = [1, 2, 3].map(|pasid| SliceProcess {
            context: context(pasid, false),
            queues: &[],
        });
        let two = Plan::new(LIMITS, processes[..2].iter());
        assert_eq!(two.map(|plan| plan.oversubscription().processes), Ok(false));
        let three = Plan::new(LIMITS, processes.iter());
        assert_eq!(
            three.map(|plan| plan.oversubscription().processes),
            Ok(true)
        );
        assert_eq!(three.map(|plan| plan.run_list(0x1000).process_count), Ok(2));
        let isolated = Limits {
            isolate: true,
            ..LIMITS
        };
        let alone = Plan::new(isolated, processes.iter());
        assert_eq!(alone.map(|plan| plan.run_list(0x1000).process_count), Ok(1));
    }

    #[test]
    fn retry_modes_are_grouped() {
        let processes =
            [(1, true), (2, false), (3, true), (4, false)].map(|(pasid, xnack)| SliceProcess {
                context: context(pasid, xnack),
                queues: &[],
            });
        let limits = Limits {
            max_processes: 13,
            xnack_check: true,
            ..LIMITS
        };
        let plan = Plan::new(limits, processes.iter());
        assert_eq!(
            plan.map(|plan| plan.oversubscription().xnack_modes),
            Ok(true)
        );
        let mut out = [0; 96];
        let built = plan.and_then(|plan| plan.build(processes.iter(), 0, &mut out));
        assert_eq!(built, Ok(4 * 21 + 4));
        let mut order = [0; 8];
        assert_eq!(pasids(&out[..88], &mut order), 4);
        assert_eq!(order[..4], [1, 3, 2, 4]);
    }

    #[test]
    fn a_short_buffer_is_left_alone() {
        let process = [SliceProcess {
            context: context(1, false),
            queues: &[],
        }];
        let mut out = [0x5555_5555; 20];
        let built = Plan::new(LIMITS, process.iter())
            .and_then(|plan| plan.build(process.iter(), 0, &mut out));
        assert_eq!(
            built,
            Err(RunListError::Encode(EncodeError::NoSpace {
                need: 21,
                have: 20
            }))
        );
        assert_eq!(out, [0x5555_5555; 20]);
    }

    #[test]
    fn processes_need_distinct_pasids() {
        let twice = [7, 7].map(|pasid| SliceProcess {
            context: context(pasid, false),
            queues: &[],
        });
        assert_eq!(
            Plan::new(LIMITS, twice.iter()),
            Err(RunListError::DuplicatePasid(7))
        );
        let zero = [SliceProcess {
            context: context(0, false),
            queues: &[],
        }];
        assert_eq!(Plan::new(LIMITS, zero.iter()), Err(RunListError::NoPasid));
    }

    #[test]
    fn a_changed_process_is_noticed() {
        let queues = [queue(Engine::Compute, 0x800); 2];
        let of = |n: usize| {
            [SliceProcess {
                context: context(1, false),
                queues: &queues[..n],
            }]
        };
        let plan = Plan::new(LIMITS, of(1).iter());
        let mut out = [0; 64];
        let grown = of(2);
        assert_eq!(
            plan.and_then(|plan| plan.build(grown.iter(), 0, &mut out)),
            Err(RunListError::Changed)
        );
        let shrunk = of(0);
        assert_eq!(
            plan.and_then(|plan| plan.build(shrunk.iter(), 0, &mut out)),
            Err(RunListError::Changed)
        );
    }
}
