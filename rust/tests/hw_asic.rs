// SPDX-License-Identifier: GPL-2.0

//! KUnit: ASIC descriptions, doorbells, registers, save area sizes, time-outs.
//!
//! Outside a module build (`MODULE` unset) the same cases run as ordinary tests on the host.

#[cfg_attr(MODULE, kernel::macros::kunit_tests(rkfd_hw_asic))]
mod tests {
    use crate::hw::asic;
    use crate::hw::asic::GFX906;
    use crate::hw::asic::GFX90A;
    use crate::hw::doorbell;
    use crate::hw::doorbell::DoorbellOffset;
    use crate::hw::regs::gc;
    use crate::hw::regs::hqd;
    use crate::hw::regs::hub;
    use crate::hw::regs::hub::FaultStatus;
    use crate::hw::regs::hub::HubLayout;
    use crate::hw::regs::nbio;
    use crate::hw::timeouts;

    #[test]
    fn every_listed_pci_id_finds_its_asic() {
        for id in [0x7408, 0x740C, 0x740F, 0x7410] {
            assert_eq!(
                asic::from_pci_device(id).map(|asic| asic.name),
                Some("gfx90a")
            );
        }
        for id in [0x66A0, 0x66A1, 0x66A2, 0x66A3, 0x66A4, 0x66A7, 0x66AF] {
            assert_eq!(
                asic::from_pci_device(id).map(|asic| asic.name),
                Some("gfx906")
            );
        }
    }

    #[test]
    fn neighbouring_pci_ids_find_nothing() {
        for id in [
            0x7407, 0x7409, 0x740E, 0x7411, 0x669F, 0x66A5, 0x66B0, 0, 0xFFFF,
        ] {
            assert!(asic::from_pci_device(id).is_none());
        }
    }

    #[test]
    fn compute_owns_the_upper_vmids() {
        assert_eq!(GFX90A.vmid_mask(), 0xFFF8);
        assert_eq!(GFX906.vmid_mask(), 0xFF00);
        assert_eq!(GFX90A.vmid_count(), 13);
        assert_eq!(GFX906.vmid_count(), 8);
        assert!(!GFX90A.owns_vmid(2));
        assert!(GFX90A.owns_vmid(3));
        assert!(GFX90A.owns_vmid(15));
        assert!(!GFX90A.owns_vmid(16));
    }

    #[test]
    fn global_wave_sync_needs_firmware_that_has_it() {
        assert_eq!((GFX90A.num_gws(0x27), GFX90A.num_gws(0x28)), (0, 64));
        assert_eq!((GFX906.num_gws(0x1b2), GFX906.num_gws(0x1b3)), (0, 64));
        assert_eq!(GFX90A.num_gws(0), 0);
    }

    #[test]
    fn save_area_sizes_agree_with_the_thunk() {
        let mi210 = GFX90A.shader.save_area(104, 1);
        assert_eq!(mi210.waves, 4096);
        assert_eq!(mi210.ctl_stack, 0x9000);
        assert_eq!(mi210.cwsr, 0x3c9_1000);
        assert_eq!(mi210.debug, 0x2_0000);
        assert_eq!(mi210.total, 0x3cb_1000);
        let vega20 = GFX906.shader.save_area(60, 1);
        assert_eq!(vega20.waves, 2048);
        assert_eq!(vega20.ctl_stack, 0x5000);
        assert_eq!(vega20.cwsr, 0x13f_1000);
        assert_eq!(vega20.debug, 0x1_0000);
        assert_eq!(vega20.total, 0x140_1000);
    }

    #[test]
    fn fixed_doorbells_are_where_the_kernel_puts_them() {
        let layout = &GFX90A.doorbell;
        assert_eq!(layout.ih_ring(0).byte(), 0xBC0);
        assert_eq!(layout.retry_cam().dword(), 0x2F6);
        assert_eq!(layout.sdma_base(2), 0x114);
        assert_eq!(DoorbellOffset::kernel(layout.sdma_base(2)).byte(), 0x8A0);
        assert_eq!(layout.mec_range(), [0, 0x450]);
    }

    #[test]
    fn doorbell_ranges_encode_first_and_size() {
        let layout = &GFX90A.doorbell;
        // Dword 0x200 in [11:2] and 20 in [20:16].
        assert_eq!(layout.sdma_range(0).raw(), 0x0014_0800);
        // Dword 0x2F0 in [11:2] and 8 in [20:16].
        assert_eq!(layout.ih_range().raw(), 0x0008_0BC0);
    }

    #[test]
    fn cp_queues_stay_out_of_the_holes_of_both_pages() {
        let layout = &GFX90A.doorbell;
        for (id, free) in [
            (0, true),
            (0xFF, true),
            (0x100, false),
            (0x18F, false),
            (0x190, true),
            (0x1FF, true),
            (0x2FF, true),
            (0x300, false),
            (0x38F, false),
            (0x390, true),
            (0x3FF, true),
            (0x400, false),
        ] {
            assert_eq!(layout.cp_may_use(id), free);
        }
        assert_eq!(layout.cp_ids().count(), 1024 - 2 * 0x90);
    }

    #[test]
    fn sdma_ids_alternate_between_the_pages() {
        let layout = &GFX90A.doorbell;
        assert_eq!(layout.sdma_id(0, 0), Some(0x100));
        assert_eq!(layout.sdma_id(0, 1), Some(0x300));
        assert_eq!(layout.sdma_id(0, 2), Some(0x101));
        assert_eq!(layout.sdma_id(4, 7), Some(0x128 + 512 + 3));
        assert_eq!(layout.sdma_id(4, 19), Some(0x128 + 512 + 9));
        assert_eq!(layout.sdma_id(4, 20), None);
    }

    #[test]
    fn doorbell_offsets_are_dwords_on_the_bar() {
        let offset = DoorbellOffset::new(0x4000, 5);
        assert_eq!(offset.map(DoorbellOffset::dword), Some(0x100A));
        assert_eq!(offset.map(DoorbellOffset::field), Some(0x4028));
        assert_eq!(offset.map(DoorbellOffset::byte), Some(0x4028));
        assert_eq!(offset.map(DoorbellOffset::slice_id), Some(5));
        assert_eq!(DoorbellOffset::new(4, 0), None);
        assert!(DoorbellOffset::new(0x0FFF_FFF8, 0).is_some());
        assert_eq!(DoorbellOffset::new(0x1000_0000, 0), None);
    }

    #[test]
    fn slices_end_at_the_bar() {
        assert_eq!(doorbell::slice_offset(0x4000, 0, 0x20_0000), Some(0x4000));
        assert_eq!(
            doorbell::slice_offset(0x4000, 253, 0x20_0000),
            Some(0x1F_E000)
        );
        assert_eq!(doorbell::slice_offset(0x4000, 254, 0x20_0000), None);
        assert_eq!(doorbell::slice_count(0x4000, 0x20_0000), 254);
        assert_eq!(doorbell::slice_offset(0x1000, 0, 0x20_0000), None);
    }

    #[test]
    fn registers_are_at_their_bytes() {
        assert_eq!(nbio::RCC_CONFIG_MEMSIZE.byte(), 0x378C);
        assert_eq!(gc::GRBM_GFX_CNTL.byte(), 0x8088);
        assert_eq!(gc::SCRATCH_REG0.byte(), 0x3_0100);
        assert_eq!(hqd::CP_HQD_ACTIVE.byte(), 0xC91C);
        assert_eq!(GFX90A.mmhub.invalidate_req(17).byte(), 0x6_AFD0);
        assert_eq!(GFX906.mmhub.invalidate_req(17).byte(), 0x6_9BD0);
    }

    #[test]
    fn queue_slots_number_as_the_scheduler_does() {
        assert_eq!(hqd::Slot::KIQ.scheduler_code(), 0xC8);
        assert_eq!(hqd::Slot::HIQ.scheduler_code(), 0xC0);
        assert_eq!(hqd::Slot::new(1, 3, 7).map(hqd::Slot::bit), Some(31));
        assert_eq!(hqd::Slot::HIQ.bit(), 32);
        assert_eq!(hqd::Slot::new(0, 0, 0), None);
        assert_eq!(hqd::Slot::new(3, 0, 0), None);
        assert_eq!(hqd::Slot::new(1, 4, 0), None);
        assert_eq!(hqd::Slot::new(1, 0, 8), None);
    }

    #[test]
    fn halting_the_mec_takes_every_pipe() {
        assert_eq!(gc::CpMecCntl::HALT.raw(), 0x503F_0010);
        assert_eq!(gc::CpMecCntl::RUN.raw(), 0);
        let reset = |me, pipe| {
            hqd::Slot::new(me, pipe, 0).map(|slot| gc::CpMecCntl::reset_pipe(slot).raw())
        };
        assert_eq!(reset(1, 2), Some(1 << 18));
        assert_eq!(reset(2, 0), Some(1 << 20));
        assert_eq!(reset(2, 1), Some(1 << 21));
    }

    #[test]
    fn a_flush_names_one_vmid_and_all_caches() {
        let req = hub::InvalidateReq::vmid(3, hub::FlushType::Heavy);
        assert_eq!(req.raw(), 0x007E_0008);
        assert!(hub::InvalidateAck::from_raw(0x8).done(3));
        assert!(!hub::InvalidateAck::from_raw(0x7).done(3));
    }

    #[test]
    fn firmware_waits_forty_units_of_time() {
        assert_eq!(
            timeouts::unmap_latency_ms(timeouts::HWS_PREEMPTION_MS),
            4050
        );
        assert_eq!(
            timeouts::unmap_latency_units(timeouts::HWS_PREEMPTION_MS),
            40
        );
    }

    #[test]
    fn the_client_of_a_fault_is_named_by_its_number() {
        let of = |hub: &HubLayout, cid, write| {
            let status = FaultStatus::new().with(FaultStatus::CID, cid);
            hub.client(status.with(FaultStatus::RW, write))
        };
        assert_eq!(of(&GFX90A.gfxhub, 8, 0), Some("TCP"));
        assert_eq!(of(&GFX90A.mmhub, 256, 0), Some("SDMA0"));
        assert_eq!(of(&GFX90A.mmhub, 260, 1), Some("SDMA4"));
        assert_eq!(of(&GFX90A.mmhub, 255, 0), None);
        assert_eq!(of(&GFX906.mmhub, 15, 1), Some("SDMA0"));
        assert_eq!(of(&GFX906.mmhub, 46, 0), Some("SDMA1"));
        assert_eq!(of(&GFX906.mmhub, 45, 0), None);
    }
}
