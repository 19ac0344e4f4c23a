// SPDX-License-Identifier: GPL-2.0

//! KUnit: queue descriptors, dword by dword.
//!
//! Outside a module build (`MODULE` unset) the same cases run as ordinary tests on the host.

#[cfg_attr(MODULE, kernel::macros::kunit_tests(rkfd_hw_mqd))]
mod tests {
    use crate::hw::asic::GFX906;
    use crate::hw::asic::GFX90A;
    use crate::hw::doorbell::DoorbellOffset;
    use crate::hw::mqd;
    use crate::hw::mqd::layout::compute as at;
    use crate::hw::mqd::layout::sdma as sdma_at;
    use crate::hw::mqd::ComputeMqd;
    use crate::hw::mqd::Cwsr;
    use crate::hw::mqd::Eop;
    use crate::hw::mqd::MqdError;
    use crate::hw::mqd::QueueConfig;
    use crate::hw::mqd::QueueFormat;
    use crate::hw::mqd::Readback;
    use crate::hw::mqd::SdmaMqd;
    use crate::hw::mqd::SdmaQueueConfig;
    use crate::hw::shader::ComputeUnits;

    fn config(format: QueueFormat) -> QueueConfig {
        QueueConfig {
            mqd: 0x0000_0081_2345_6000,
            ring: 0x0000_7F01_2345_6700,
            ring_bytes: 4096,
            rptr_report: 0x0000_7F02_0000_0080,
            wptr_poll: 0x0000_7F02_0000_0038,
            eop: Some(Eop {
                base: 0x0000_7F03_0000_0000,
                bytes: 4096,
            }),
            cwsr: Some(Cwsr {
                base: 0x0000_7F04_0000_0000,
                ctl_stack: 0x9000,
                bytes: 0x3c9_1000,
            }),
            trap_handler: true,
            priority: 7,
            ..QueueConfig::new(format, DoorbellOffset::kernel(0x805))
        }
    }

    /// Dword `dw` of the queue's image, or 0xBADBAD if the description is refused.
    fn word(config: QueueConfig, dw: usize) -> u32 {
        ComputeMqd::new(&GFX90A, config).map_or(0xBA_DBAD, |mqd| mqd.word(dw))
    }

    fn sdma() -> SdmaQueueConfig {
        SdmaQueueConfig {
            ring: 0x0000_7F01_2345_6700,
            ring_bytes: 0x1_0000,
            rptr_report: 0x0000_7F02_0000_0010,
            doorbell: DoorbellOffset::kernel(0x900),
            engine: 2,
            queue: 5,
        }
    }

    #[test]
    fn a_pm4_user_queue() {
        let pm4 = config(QueueFormat::Pm4);
        for (dw, value) in [
            (0, 0xC031_0800),
            (11, 1),
            (12, 0),
            (20, 0x40),
            (22, 0),
            (23, 0xFFFF_FFFF),
            (32, 0),
            (42, 0xFFFF_FFFF),
            (128, 0x2345_6000),
            (129, 0x81),
            (130, 0),
            (131, 0),
            (132, 0x4000_5301),
            (133, 1),
            (134, 0),
            (135, 0x111),
            (136, 0x0123_4567),
            (137, 0x7F),
            (139, 0x80),
            (140, 0x7F02),
            (141, 0x38),
            (142, 0x7F02),
            (143, 0x4028),
            (145, 0x1000_0509),
            (149, 0x00B0_0000),
            (160, 0x4000),
            (162, 0x100),
            (165, 0x0300_0000),
            (166, 0x7F),
            (167, 9),
            (171, 0),
            (172, 0x7F04),
            (173, 0),
            (174, 0x9000),
            (175, 0x9000),
            (176, 0x9000),
            (177, 0x3c9_1000),
            (181, 0),
            (182, 0),
            (240, 0),
        ] {
            assert_eq!(word(pm4, dw), value);
        }
    }

    #[test]
    fn an_aql_user_queue_counts_packets() {
        let aql = config(QueueFormat::Aql);
        assert_eq!(word(aql, at::CP_HQD_PQ_CONTROL), 0x1C01_4509);
        assert_eq!(word(aql, at::CP_HQD_PQ_DOORBELL_CONTROL), 0x402A);
        assert_eq!(word(aql, at::CP_HQD_AQL_CONTROL), 1);
    }

    #[test]
    fn the_hiq_is_privileged() {
        let hiq = QueueConfig {
            ring_bytes: 2048,
            cwsr: None,
            trap_handler: false,
            ..config(QueueFormat::Hiq)
        };
        assert_eq!(word(hiq, at::CP_HQD_PQ_CONTROL), 0xD000_0508);
        assert_eq!(word(hiq, at::CP_HQD_PERSISTENT_STATE), 0x5301);
        assert_eq!(word(hiq, at::CP_HQD_IB_CONTROL), 0x00B0_0000);
        assert_eq!(word(hiq, at::CP_HQD_ACTIVE), 0);
        assert_eq!(word(hiq, at::COMPUTE_PGM_RSRC2), 0);
        assert_eq!(word(hiq, at::CP_HQD_CTX_SAVE_SIZE), 0);
    }

    #[test]
    fn the_kiq_is_active_in_memory() {
        let kiq = QueueConfig {
            cwsr: None,
            ..config(QueueFormat::Kiq)
        };
        assert_eq!(word(kiq, at::CP_HQD_ACTIVE), 1);
        assert_eq!(word(kiq, at::CP_HQD_PQ_CONTROL), 0xC000_0909);
        assert_eq!(word(kiq, at::CP_HQD_PQ_DOORBELL_CONTROL), 0x4000_4028);
        assert_eq!(word(kiq, at::CP_HQD_IB_CONTROL), 0x0030_0000);
        assert_eq!(word(kiq, at::COMPUTE_MISC_RESERVED), 3);
        assert_eq!(word(kiq, at::DYNAMIC_CU_MASK_ADDR_LO), 0x2345_6808);
        assert_eq!(word(kiq, at::DYNAMIC_CU_MASK_ADDR_HI), 0x81);
        assert_eq!(word(kiq, 514), 0xFFFF_FFFF);
        assert_eq!(word(config(QueueFormat::Pm4), 514), 0);
    }

    #[test]
    fn priorities_fold_into_three_classes() {
        for (priority, class) in [(0, 0), (6, 0), (7, 1), (10, 1), (11, 2), (15, 2)] {
            assert_eq!(mqd::compute::pipe_priority(priority), class);
        }
        let high = QueueConfig {
            priority: 16,
            ..config(QueueFormat::Pm4)
        };
        assert_eq!(
            ComputeMqd::new(&GFX90A, high).err(),
            Some(MqdError::Priority(16))
        );
    }

    #[test]
    fn the_eop_size_is_capped() {
        for (bytes, field) in [
            (0, 0),
            (8, 0),
            (16, 1),
            (4096, 9),
            // Rounded up: the second page is mapped then.
            (4096 + 8, 0xA),
            (8192, 0xA),
            (0x3000, 0xA),
            (16384, 0xA),
            (1 << 20, 0xA),
        ] {
            assert_eq!(mqd::compute::eop_control(bytes).raw(), field);
        }
    }

    #[test]
    fn an_eop_buffer_need_not_be_a_power_of_two() {
        for (bytes, control) in [(7, 0xBA_DBAD), (4096, 9), (0x3000, 0xA), (0x5008, 0xA)] {
            let queue = QueueConfig {
                eop: Some(Eop {
                    base: 0x0000_7F03_0000_0000,
                    bytes,
                }),
                ..config(QueueFormat::Pm4)
            };
            assert_eq!(word(queue, at::CP_HQD_EOP_CONTROL), control);
        }
    }

    #[test]
    fn rings_are_powers_of_two_from_a_kibibyte() {
        for (bytes, good) in [
            (0, false),
            (512, false),
            (1023, false),
            (1024, true),
            (1025, false),
            (1 << 31, true),
        ] {
            let queue = QueueConfig {
                ring_bytes: bytes,
                ..config(QueueFormat::Pm4)
            };
            assert_eq!(ComputeMqd::new(&GFX90A, queue).is_ok(), good);
        }
    }

    #[test]
    fn misaligned_and_wide_addresses_are_refused() {
        let good = config(QueueFormat::Pm4);
        assert!(ComputeMqd::new(&GFX90A, good).is_ok());
        for bad in [
            QueueConfig {
                ring: good.ring + 128,
                ..good
            },
            QueueConfig {
                ring: 1 << 48,
                ..good
            },
            QueueConfig { mqd: 2, ..good },
            QueueConfig {
                rptr_report: 2,
                ..good
            },
            QueueConfig {
                wptr_poll: 4,
                ..good
            },
        ] {
            assert!(ComputeMqd::new(&GFX90A, bad).is_err());
        }
    }

    #[test]
    fn the_save_area_is_one_that_hardware_can_name() {
        let good = config(QueueFormat::Pm4);
        for (ctl_stack, bytes, fits) in [
            (0x9000, 0x3c9_1000, true),
            (0x9000, 0x3c9_2000, true),
            // Enough for fewer units; what the device needs is checked where a queue is asked for.
            (0x9000, 0x3c9_0000, true),
            (0x9000, 0x9000, false),
            // What does not fill a page is not used: none is left for waves.
            (0x9000, 0x9FFF, false),
            (0x9000, 0x3c9_1200, true),
            (0x9000, 0x7FF_FFFF, true),
            (0xA000, 0x3c9_1000, false),
            (0x8800, 0x3c9_1000, false),
            (0x9000, 0x800_0000, false),
        ] {
            let queue = QueueConfig {
                cwsr: Some(Cwsr {
                    base: 0x1000,
                    ctl_stack,
                    bytes,
                }),
                ..good
            };
            assert_eq!(ComputeMqd::new(&GFX90A, queue).is_ok(), fits);
            if fits {
                let named = word(queue, at::CP_HQD_CTX_SAVE_SIZE);
                assert_eq!((bytes, named), (bytes, bytes / 4096 * 4096));
            }
        }
    }

    #[test]
    fn forced_distribution_needs_gws_and_the_asic() {
        let gws = QueueConfig {
            gws: true,
            cwsr: None,
            ..config(QueueFormat::Pm4)
        };
        assert_eq!(word(gws, at::COMPUTE_RESOURCE_LIMITS), 1 << 23);
        let old = ComputeMqd::new(&GFX906, gws).map(|mqd| mqd.word(at::COMPUTE_RESOURCE_LIMITS));
        assert_eq!(old, Ok(0));
    }

    #[test]
    fn an_update_keeps_what_hardware_saved() {
        let queue = QueueConfig {
            ring_bytes: 8192,
            ..config(QueueFormat::Aql)
        };
        let mut control = 0;
        let mut touched_pointers = false;
        if let Ok(mqd) = ComputeMqd::new(&GFX90A, queue) {
            // The saved word has WPTR_CARRY and PQ_EMPTY set and the former size.
            mqd.update(
                |_| 0x1C01_C549,
                |dw, value| match dw {
                    at::CP_HQD_PQ_CONTROL => control = value,
                    at::CP_HQD_PQ_RPTR
                    | at::CP_HQD_PQ_WPTR_LO
                    | at::CP_HQD_PQ_WPTR_HI
                    | at::CP_HQD_CNTL_STACK_OFFSET
                    | at::CP_HQD_WG_STATE_OFFSET
                    | at::CP_HQD_PERSISTENT_STATE => touched_pointers = true,
                    _ => {}
                },
            );
        }
        assert_eq!(control, 0x1C01_C54A);
        assert!(!touched_pointers);
    }

    #[test]
    fn an_update_leaves_a_queue_in_its_indirect_buffer() {
        for format in [QueueFormat::Pm4, QueueFormat::Aql] {
            let mut stored = 0;
            if let Ok(mqd) = ComputeMqd::new(&GFX90A, config(format)) {
                mqd.update(
                    |_| 0x80B0_0040,
                    |dw, _| {
                        stored += 1;
                        assert!(!matches!(
                            dw,
                            at::CP_MQD_CONNECT_END_IB_RPTR
                                | at::CP_HQD_IB_BASE_ADDR_LO
                                | at::CP_HQD_IB_BASE_ADDR_HI
                                | at::CP_HQD_IB_RPTR
                                | at::CP_HQD_IB_CONTROL
                        ));
                    },
                );
            }
            assert_ne!(stored, 0);
        }
    }

    #[test]
    fn an_update_tells_of_a_trap_handler() {
        for (trap_handler, saved, stored) in [
            (true, 0x1000_0090, 0x1000_00D0),
            (true, 0xC0, 0xC0),
            (false, 0x1000_00D0, 0x1000_0090),
        ] {
            let queue = QueueConfig {
                trap_handler,
                ..config(QueueFormat::Aql)
            };
            let (mut rsrc2, mut save_control) = (None, None);
            if let Ok(mqd) = ComputeMqd::new(&GFX90A, queue) {
                mqd.update(
                    |_| saved,
                    |dw, value| match dw {
                        at::COMPUTE_PGM_RSRC2 => rsrc2 = Some(value),
                        at::CP_HQD_CTX_SAVE_CONTROL => save_control = Some(value),
                        _ => {}
                    },
                );
            }
            // Only TRAP_PRESENT changes; the rest is a shader's.
            assert_eq!(rsrc2, Some(stored));
            assert_eq!(save_control, Some(0));
        }
    }

    #[test]
    fn saved_wave_state_must_lie_in_the_area() {
        let cwsr = Cwsr {
            base: 0x1000,
            ctl_stack: 0x9000,
            bytes: 0x3c9_1000,
        };
        let saved = |offset: u32, end: u32| {
            Readback::read(|dw| match dw {
                174 => offset,
                175 => 0x9000,
                176 => end,
                _ => 0,
            })
            .saved_state(&cwsr)
            .map(|state| state.header())
        };
        assert_eq!(saved(0x8FC0, 0xA000), Some([0x8FC0, 0x40, 0xA000, 0x1000]));
        assert_eq!(saved(0x9000, 0x9000), Some([0x9000, 0, 0x9000, 0]));
        assert_eq!(saved(0x9004, 0x9000), None);
        assert_eq!(saved(0x9000, 0x8FFC), None);
        assert_eq!(saved(0x9000, 0x3c9_1004), None);
    }

    #[test]
    fn an_sdma_queue() {
        let mqd = SdmaMqd::new(sdma());
        let word = |dw| mqd.map_or(0xBA_DBAD, |mqd| mqd.word(dw));
        for (dw, value) in [
            (0, 0x0006_101C),
            (1, 0x0123_4567),
            (2, 0x7F),
            (5, 0),
            (8, 0x7F02),
            (9, 0x10),
            (10, 0x100),
            (18, 0),
            (22, 0x4800),
            (27, 0xF),
            (28, 0),
            (126, 2),
            (127, 5),
        ] {
            assert_eq!(word(dw), value);
        }
    }

    #[test]
    fn sdma_pointers_are_64_bit_bytes() {
        let [rptr, wptr] = mqd::sdma::pointers(|dw| match dw {
            sdma_at::RB_RPTR => 0x40,
            sdma_at::RB_RPTR_HI => 1,
            sdma_at::RB_WPTR => 0x80,
            sdma_at::RB_WPTR_HI => 2,
            _ => 0,
        });
        assert_eq!(rptr, 0x1_0000_0040);
        assert_eq!(wptr, 0x2_0000_0080);
    }

    #[test]
    fn cu_mask_bits_go_round_the_engines() {
        let units = ComputeUnits::even(&GFX90A.shader, 104);
        let spread = |mask: &[u32], bits| mqd::spread(&units, mask, bits).0;
        assert_eq!(spread(&[0x1FF], 32), [3, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(spread(&[0x1FF], 8), [1; 8]);
        assert_eq!(spread(&[0x8000_0000], 32), [0, 0, 0, 0, 0, 0, 0, 8]);
        assert_eq!(spread(&[u32::MAX; 4], 128), [0x1FFF; 8]);
        assert_eq!(spread(&[u32::MAX; 4], 0), [0; 8]);
        assert_eq!(spread(&[], 32), [0; 8]);
    }

    #[test]
    fn cu_mask_counts_the_units_that_work() {
        // Engine 1 has lost its first two units, engine 2 one in the middle, engine 3 all but one.
        let inactive = [0, 0b11, 0x80, 0xbfff];
        let units = ComputeUnits::without(&GFX906.shader, |engine| {
            inactive.get(engine as usize).copied().unwrap_or(0)
        });
        assert_eq!(units.count(), 16 + 14 + 15 + 1);
        let spread = |mask: &[u32], bits| mqd::spread(&units, mask, bits).0;
        assert_eq!(spread(&[0xff], 32), [0b111, 0b11, 0b11, 1, 0, 0, 0, 0]);
        assert_eq!(spread(&[0b1_1000], 32), [0b10, 0, 0, 1, 0, 0, 0, 0]);
        let all = spread(&[u32::MAX; 2], 64);
        assert_eq!(all, [0xffff, 0x3fff, 0x7fff, 1, 0, 0, 0, 0]);
    }
}
