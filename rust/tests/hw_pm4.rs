// SPDX-License-Identifier: GPL-2.0

//! KUnit: packets of the HIQ and the KIQ, dword by dword.
//!
//! Outside a module build (`MODULE` unset) the same cases run as ordinary tests on the host.

#[cfg_attr(MODULE, kernel::macros::kunit_tests(rkfd_hw_pm4))]
mod tests {
    use crate::hw::doorbell::DoorbellOffset;
    use crate::hw::pm4::decode;
    use crate::hw::pm4::op;
    use crate::hw::pm4::pad;
    use crate::hw::pm4::process::Debug;
    use crate::hw::pm4::DoorbellList;
    use crate::hw::pm4::EncodeError;
    use crate::hw::pm4::Engine;
    use crate::hw::pm4::Header;
    use crate::hw::pm4::IndirectBuffer;
    use crate::hw::pm4::InterfaceQueue;
    use crate::hw::pm4::InvalidateTlbs;
    use crate::hw::pm4::MapProcess;
    use crate::hw::pm4::MapQueues;
    use crate::hw::pm4::MapTarget;
    use crate::hw::pm4::Packet;
    use crate::hw::pm4::QueryStatus;
    use crate::hw::pm4::QueueClass;
    use crate::hw::pm4::ReleaseMem;
    use crate::hw::pm4::RunList;
    use crate::hw::pm4::SetResources;
    use crate::hw::pm4::SetUconfigReg;
    use crate::hw::pm4::Trap;
    use crate::hw::pm4::UnmapAction;
    use crate::hw::pm4::UnmapFilter;
    use crate::hw::pm4::UnmapQueues;
    use crate::hw::pm4::WriteMem;
    use crate::hw::pm4::WriteReg;
    use crate::hw::regs::gc;
    use crate::hw::regs::gc::ShMemBases;
    use crate::hw::regs::gc::ShMemConfig;
    use crate::hw::regs::hqd::Slot;
    use crate::hw::regs::hub::FlushType;

    fn process() -> MapProcess {
        MapProcess {
            pasid: 0x8001,
            page_table_base: 0x0000_0012_3456_7001,
            sh_mem_config: ShMemConfig::for_xnack(false),
            sh_mem_bases: ShMemBases::KFD,
            trap: Some(Trap {
                tba: 0x0000_FFFF_FFBF_0000,
                tma: 0x0000_FFFF_FFBF_1000,
            }),
            quantum: 10,
            num_queues: 2,
            num_gws: 0,
            cleaner_shader: false,
            diq: false,
            debug: Debug::default(),
        }
    }

    fn queue(engine: Engine, class: QueueClass) -> MapQueues {
        MapQueues {
            target: MapTarget::Scheduled {
                engine,
                class,
                gws: false,
            },
            doorbell: DoorbellOffset::kernel(0x805),
            mqd: 0x0000_0081_2345_6000,
            wptr: 0x0000_7F01_0000_0038,
        }
    }

    fn dw1(packet: MapQueues) -> Option<u32> {
        packet.encode().ok().map(|dw| dw[1])
    }

    #[test]
    fn headers_count_the_payload() {
        assert_eq!(Header::packet(op::MAP_PROCESS, 21).raw(), 0xC013_A100);
        assert_eq!(Header::packet(op::MAP_PROCESS, 16).raw(), 0xC00E_A100);
        assert_eq!(Header::packet(op::WRITE_DATA, 5).raw(), 0xC003_3700);
        assert_eq!(Header::from_raw(0xC013_A100).dwords(), Some(21));
        assert_eq!(Header::from_raw(0x8000_0000).dwords(), Some(1));
        assert_eq!(Header::from_raw(0x4000_0000).dwords(), None);
    }

    #[test]
    fn padding_is_a_one_dword_nop() {
        let mut space = [0; 3];
        pad(&mut space);
        assert_eq!(space, [0xFFFF_1000; 3]);
        assert_eq!(decode(&space).dwords, 1);
    }

    #[test]
    fn set_resources_for_gfx90a() {
        let packet = SetResources {
            vmid_mask: 0xFFF8,
            unmap_latency: 40,
            xnack_check: true,
            queue: InterfaceQueue::Hiq,
            queue_mask: 0xFCFC_FCFC,
            gws_mask: u64::MAX,
            oac_mask: 0,
        };
        assert_eq!(
            packet.encode(),
            [
                0xC006_A000,
                0x3028_FFF8,
                0xFCFC_FCFC,
                0,
                0xFFFF_FFFF,
                0xFFFF_FFFF,
                0,
                0
            ]
        );
    }

    #[test]
    fn run_list_from_the_hiq_and_as_tail() {
        let mut packet = RunList {
            ib: 0x0000_0080_0001_2340,
            dwords: 0x2A,
            chain: false,
            process_count: 3,
        };
        assert_eq!(
            packet.encode(),
            Ok([0xC002_A500, 0x0001_2340, 0x80, 0x0380_002A])
        );
        packet.chain = true;
        assert_eq!(
            packet.encode(),
            Ok([0xC002_A500, 0x0001_2340, 0x80, 0x03D0_002A])
        );
    }

    #[test]
    fn run_list_refuses_what_does_not_fit() {
        let good = RunList {
            ib: 0x1000,
            dwords: 0xF_FFFF,
            chain: false,
            process_count: 15,
        };
        assert!(good.encode().is_ok());
        let odd = RunList { ib: 0x1002, ..good };
        assert_eq!(
            odd.encode(),
            Err(EncodeError::Misaligned {
                field: "ib",
                value: 0x1002
            })
        );
        let long = RunList {
            dwords: 0x10_0000,
            ..good
        };
        assert!(matches!(long.encode(), Err(EncodeError::Overflow(o)) if o.field == "IB_SIZE"));
        let many = RunList {
            process_count: 16,
            ..good
        };
        assert!(matches!(many.encode(), Err(EncodeError::Overflow(o)) if o.field == "PROCESS_CNT"));
    }

    #[test]
    fn map_process_in_the_aldebaran_layout() {
        let expected = [
            0xC013_A100,
            0x1400_8001,
            0x3456_7001,
            0x0000_0012,
            0x0001_0002,
            0x0000_1018,
            0xFFFF_BF00,
            0x0000_00FF,
            0xFFFF_BF10,
            0x0000_00FF,
            0,
            0,
            0,
            0x0080_0080,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ];
        assert_eq!(process().encode_aldebaran(), Ok(expected));
    }

    #[test]
    fn map_process_in_the_v9_layout_marks_the_trap_base() {
        let packet = process().encode_v9();
        assert_eq!(packet.map(|dw| dw[0]), Ok(0xC00E_A100));
        assert_eq!(packet.map(|dw| dw[7]), Ok(0x8000_00FF));
        assert_eq!(packet.map(|dw| dw[13]), Ok(0x0080_0080));
        assert_eq!(packet.map(|dw| [dw[14], dw[15]]), Ok([0, 0]));
        let without = MapProcess {
            trap: None,
            ..process()
        };
        assert_eq!(without.encode_v9().map(|dw| dw[7]), Ok(0));
    }

    #[test]
    fn debugger_words_are_in_the_long_layout_only() {
        let debugged = MapProcess {
            debug: Debug {
                single_memops: true,
                spi_gdbg_per_vmid_cntl: 0x8,
                tcp_watch_cntl: [0x11, 0x22, 0x33, 0x44],
            },
            ..process()
        };
        let long = debugged.encode_aldebaran();
        assert_eq!(long.map(|dw| dw[1]), Ok(0x1401_8001));
        assert_eq!(
            long.map(|dw| [dw[14], dw[15], dw[16], dw[17], dw[18], dw[19]]),
            Ok([8, 0x11, 0x22, 0x33, 0x44, 0])
        );
        assert_eq!(debugged.encode_v9().map(|dw| dw[1]), Ok(0x1400_8001));
    }

    #[test]
    fn a_debug_queue_is_told_in_both_layouts() {
        let beside = MapProcess {
            diq: true,
            ..process()
        };
        let (short, long) = (beside.encode_v9(), beside.encode_aldebaran());
        assert_eq!(short.map(|dw| dw[1]), Ok(0x1500_8001));
        assert_eq!(long.map(|dw| dw[1]), Ok(0x1500_8001));
        assert_eq!(short.map(|dw| MapProcess::decode(&dw)), Ok(Some(beside)));
        assert_eq!(long.map(|dw| MapProcess::decode(&dw)), Ok(Some(beside)));
    }

    #[test]
    fn map_queues_selects_every_engine() {
        for (engine, expected) in [
            (Engine::Compute, 0x2000_0010),
            (Engine::Sdma(0), 0x2800_0010),
            (Engine::Sdma(1), 0x2C00_0010),
            (Engine::Sdma(2), 0x2800_0014),
            (Engine::Sdma(4), 0x3000_0014),
            (Engine::Sdma(7), 0x3C00_0014),
            (Engine::Sdma(8), 0x2000_0018),
            (Engine::Sdma(15), 0x3C00_0018),
        ] {
            assert_eq!(dw1(queue(engine, QueueClass::Normal)), Some(expected));
        }
        assert_eq!(dw1(queue(Engine::Sdma(16), QueueClass::Normal)), None);
    }

    #[test]
    fn only_compute_queues_become_static() {
        assert_eq!(
            dw1(queue(Engine::Compute, QueueClass::Static)),
            Some(0x2040_0010)
        );
        assert_eq!(
            dw1(queue(Engine::Sdma(0), QueueClass::Static)),
            Some(0x2800_0010)
        );
    }

    #[test]
    fn map_queues_carries_the_addresses() {
        let packet = queue(Engine::Compute, QueueClass::Normal).encode();
        assert_eq!(
            packet,
            Ok([
                0xC005_A200,
                0x2000_0010,
                0x4028,
                0x2345_6000,
                0x81,
                0x38,
                0x7F01
            ])
        );
    }

    #[test]
    fn the_kiq_maps_the_hiq_into_its_slot() {
        let packet = MapQueues {
            target: MapTarget::KiqHiq { slot: Slot::HIQ },
            ..queue(Engine::Compute, QueueClass::Normal)
        };
        assert_eq!(dw1(packet), Some(0x2404_0000));
    }

    #[test]
    fn unmap_queues_by_every_filter() {
        let doorbells = DoorbellList::one(DoorbellOffset::kernel(1));
        for (action, filter, expected) in [
            (UnmapAction::Preempt, UnmapFilter::NonStatic, [0x30, 0]),
            (UnmapAction::Reset, UnmapFilter::All, [0x21, 0]),
            (
                UnmapAction::DisableProcess,
                UnmapFilter::Pasid(0x8001),
                [0x12, 0x8001],
            ),
            (
                UnmapAction::Preempt,
                UnmapFilter::Doorbells(doorbells),
                [0x2000_0000, 0x8],
            ),
        ] {
            let dw = UnmapQueues { action, filter }.encode();
            assert_eq!(dw[0], 0xC004_A300);
            assert_eq!([dw[1], dw[2]], expected);
            assert_eq!([dw[3], dw[4], dw[5]], [0, 0, 0]);
        }
    }

    #[test]
    fn unmap_queues_with_every_action_and_filter() {
        let [a, b, c, d] = [1, 2, 0x7ff, 0x1000].map(DoorbellOffset::kernel);
        let words = |list: &[DoorbellOffset]| {
            let mut words = [0; 4];
            for (word, doorbell) in words.iter_mut().zip(list) {
                *word = doorbell.field();
            }
            words
        };
        let list = |list: &[DoorbellOffset]| {
            UnmapFilter::Doorbells(DoorbellList::new(list).unwrap_or(DoorbellList::one(list[0])))
        };
        // Selection in bits 5 and 4, number of doorbells in bits 31 to 29.
        let filters = [
            (list(&[a]), 0x2000_0000, words(&[a])),
            (list(&[a, b]), 0x4000_0000, words(&[a, b])),
            (list(&[a, b, c]), 0x6000_0000, words(&[a, b, c])),
            (list(&[a, b, c, d]), 0x8000_0000, words(&[a, b, c, d])),
            (UnmapFilter::Pasid(0xffff), 0x10, [0xffff, 0, 0, 0]),
            (UnmapFilter::All, 0x20, [0; 4]),
            (UnmapFilter::NonStatic, 0x30, [0; 4]),
        ];
        let actions = [
            (UnmapAction::Preempt, 0),
            (UnmapAction::Reset, 1),
            (UnmapAction::DisableProcess, 2),
        ];
        for (filter, selection, named) in filters {
            for (action, code) in actions {
                let packet = UnmapQueues { action, filter };
                let dw = packet.encode();
                assert_eq!(dw[0], 0xC004_A300);
                assert_eq!(dw[1], selection | code);
                assert_eq!([dw[2], dw[3], dw[4], dw[5]], named);
                assert_eq!(UnmapQueues::decode(&dw), Some(packet));
            }
        }
        // The one that keeps the slot has a pointer where the others have a second doorbell.
        let packet = UnmapQueues {
            action: UnmapAction::PreemptNoUnmap { rb_wptr: 0x123 },
            filter: list(&[a]),
        };
        let dw = packet.encode();
        assert_eq!([dw[1], dw[2], dw[3]], [0x2000_0003, a.field(), 0x123]);
        assert_eq!(UnmapQueues::decode(&dw), Some(packet));
    }

    #[test]
    fn query_status_asks_for_a_fence_after_acknowledgement() {
        assert_eq!(
            QueryStatus::fence(0x80_0000_1008, 100).encode(),
            Ok([0xC005_A400, 0x8000_0000, 0, 0x1008, 0x80, 100, 0])
        );
        assert!(QueryStatus::fence(0x80_0000_1004, 100).encode().is_err());
    }

    #[test]
    fn the_hiq_sets_wait_times_without_increment() {
        assert_eq!(
            WriteReg::on_hiq(gc::CP_IQ_WAIT_TIME2, 0x1234).encode(),
            Ok([0xC003_3700, 0x0001_0000, 0x30B0, 0, 0x1234])
        );
    }

    #[test]
    fn the_kiq_fence_writes_memory_and_raises_an_interrupt() {
        let memory = WriteMem {
            address: 0x80_0000_2000,
            value: 7,
            high: None,
            confirm: true,
        };
        assert_eq!(memory.dwords(), 5);
        assert_eq!(
            memory.encode(),
            Ok([0xC003_3700, 0x0010_0500, 0x2000, 0x80, 7, 0])
        );
        let register = WriteReg {
            reg: gc::CPC_INT_STATUS,
            value: gc::CpcInt::KIQ_FENCE.raw(),
            no_increment: false,
            confirm: true,
        };
        assert_eq!(
            register.encode(),
            Ok([0xC003_3700, 0x0010_0000, 0x30B5, 0, 0x2000_0000])
        );
    }

    #[test]
    fn the_ring_test_writes_a_scratch_register() {
        let packet = SetUconfigReg {
            reg: gc::SCRATCH_REG0,
            value: 0xDEAD_BEEF,
        };
        assert_eq!(packet.encode(), Ok([0xC001_7900, 0x40, 0xDEAD_BEEF]));
        let outside = SetUconfigReg {
            reg: gc::GRBM_CNTL,
            value: 0,
        };
        assert!(outside.encode().is_err());
    }

    #[test]
    fn invalidate_tlbs_names_the_pasid() {
        let packet = InvalidateTlbs {
            pasid: 0x8001,
            flush: FlushType::Heavy,
            all_hubs: true,
        };
        assert_eq!(packet.encode(), [0xC000_9800, 0x4010_0031]);
    }

    #[test]
    fn release_mem_stores_then_interrupts() {
        let packet = ReleaseMem {
            address: 0x7F00_0000_1008,
            value: 0x55,
            wide: true,
            interrupt: Some(9),
        };
        assert_eq!(
            packet.encode(),
            Ok([
                0xC006_4900,
                0x0022_8514,
                0x4200_0000,
                0x1008,
                0x7F00,
                0x55,
                0,
                9
            ])
        );
    }

    #[test]
    fn indirect_buffers_have_twenty_bits_of_length() {
        let packet = IndirectBuffer {
            address: 0x1_0000_0040,
            dwords: 16,
            vmid: 0,
            chain: false,
        };
        assert_eq!(packet.encode(), Ok([0xC002_3F00, 0x40, 1, 0x0080_0010]));
        let long = IndirectBuffer {
            dwords: 1 << 20,
            ..packet
        };
        assert!(long.encode().is_err());
    }

    #[test]
    fn decoding_gives_the_packet_back() {
        let packet = queue(Engine::Sdma(3), QueueClass::Normal);
        let decoded = packet.encode().ok().map(|dw| {
            let decoded = decode(&dw);
            decoded.dwords == 7 && matches!(decoded.packet, Packet::MapQueues(p) if p == packet)
        });
        assert_eq!(decoded, Some(true));
    }

    #[test]
    fn a_reserved_bit_makes_a_packet_foreign() {
        let mut dw = UnmapQueues {
            action: UnmapAction::Preempt,
            filter: UnmapFilter::All,
        }
        .encode();
        assert!(matches!(decode(&dw).packet, Packet::UnmapQueues(_)));
        dw[1] |= 1 << 20;
        assert!(matches!(decode(&dw).packet, Packet::Other(..)));
    }

    #[test]
    fn a_packet_cut_short_is_truncated() {
        let dw = UnmapQueues {
            action: UnmapAction::Preempt,
            filter: UnmapFilter::All,
        }
        .encode();
        let decoded = decode(&dw[..5]);
        assert!(matches!(decoded.packet, Packet::Truncated(..)));
        assert_eq!(decoded.dwords, 5);
        assert!(matches!(decode(&[]).packet, Packet::End));
        assert!(matches!(decode(&[0]).packet, Packet::Garbage(0)));
    }
}
