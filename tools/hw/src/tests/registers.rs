// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Register addresses as byte offsets into BAR5, typed in from the hardware contract.
//!
//! The driver's tables count dwords from IP segment bases; the contract lists bytes. Both were
//! written independently of each other.

use crate::hw::asic::{AsicDesc, Ip, GFX906, GFX90A};
use crate::hw::regs::hub::HubLayout;
use crate::hw::regs::{self, athub, gc, hdp, hqd, mp, nbio, osssys, Reg, MMIO_SIZE};

fn check(table: &[(Reg, usize)]) {
    for (reg, byte) in table {
        assert_eq!(reg.byte(), *byte, "{reg:?}");
        assert!(reg.in_mmio(), "{reg:?}");
    }
}

#[test]
fn graphics_block() {
    check(&[
        (gc::GRBM_CNTL, 0x08000),
        (gc::GRBM_STATUS2, 0x08008),
        (gc::GRBM_STATUS, 0x08010),
        (gc::GRBM_STATUS_SE0, 0x08014),
        (gc::GRBM_SOFT_RESET, 0x08020),
        (gc::GRBM_GFX_CNTL, 0x08088),
        (gc::CP_CPC_STATUS, 0x08210),
        (gc::CP_CPC_BUSY_STAT, 0x08214),
        (gc::CP_CPF_STATUS, 0x0821c),
        (gc::CP_MEC_CNTL, 0x08234),
        (gc::CP_STAT, 0x08680),
        (gc::CP_ME_CNTL, 0x086d8),
        (gc::CC_GC_SHADER_ARRAY_CONFIG, 0x089bc),
        (gc::GC_USER_SHADER_ARRAY_CONFIG, 0x089c0),
        (gc::SH_MEM_BASES, 0x08c28),
        (gc::SH_MEM_CONFIG, 0x08c34),
        (gc::SQ_SHADER_TBA_LO, 0x08c70),
        (gc::SQ_SHADER_TBA_HI, 0x08c74),
        (gc::SQ_SHADER_TMA_LO, 0x08c78),
        (gc::SQ_SHADER_TMA_HI, 0x08c7c),
        (gc::SQ_IND_INDEX, 0x08de0),
        (gc::SQ_IND_DATA, 0x08de4),
        (gc::SQ_CMD, 0x08dec),
        (gc::SPI_CSQ_WF_ACTIVE_STATUS, 0x0936c),
        (gc::SPI_CSQ_WF_ACTIVE_COUNT_0, 0x09370),
        (gc::GB_ADDR_CONFIG, 0x098f8),
        (gc::CPC_INT_INFO, 0x0c0dc),
        (gc::CP_MEC_DOORBELL_RANGE_LOWER, 0x0c170),
        (gc::CP_MEC_DOORBELL_RANGE_UPPER, 0x0c174),
        (gc::CP_PQ_WPTR_POLL_CNTL, 0x0c20c),
        (gc::CP_PQ_WPTR_POLL_CNTL1, 0x0c210),
        (gc::CP_ME1_PIPE0_INT_CNTL, 0x0c214),
        (gc::CP_ME1_PIPE0_INT_CNTL.nth(3), 0x0c220),
        (gc::CP_ME2_PIPE0_INT_CNTL, 0x0c224),
        (gc::CP_IQ_WAIT_TIME1, 0x0c2bc),
        (gc::CP_IQ_WAIT_TIME2, 0x0c2c0),
        (gc::CPC_INT_CNTL, 0x0c2d0),
        (gc::CPC_INT_STATUS, 0x0c2d4),
        (gc::CPC_INT_CNTX_ID, 0x0c2dc),
        (gc::CP_PQ_STATUS, 0x0c2e0),
        (gc::CP_CPC_IC_BASE_CNTL, 0x0c2ec),
        (gc::SPI_GDBG_WAVE_CNTL, 0x0c744),
        (gc::SPI_GDBG_TRAP_CONFIG, 0x0c748),
        (gc::SPI_GDBG_PER_VMID_CNTL, 0x0c74c),
        (gc::SPI_COMPUTE_QUEUE_RESET, 0x0c76c),
        (gc::CP_HPD_ROQ_OFFSETS, 0x0c900),
        (gc::CP_HPD_STATUS0, 0x0c904),
        (gc::TCP_WATCH0_ADDR_H, 0x0ca80),
        (gc::TCP_WATCH0_CNTL, 0x0ca88),
        (gc::tcp_watch(3)[2], 0x0caac),
        (gc::GDS_VMID0_BASE, 0x0cc00),
        (gc::gds_base(1), 0x0cc08),
        (gc::gds_gws(0), 0x0cc80),
        (gc::gds_oa(0), 0x0ccc0),
        (gc::SCRATCH_REG0, 0x30100),
        (gc::SCRATCH_REG7, 0x3011c),
        (gc::GRBM_GFX_INDEX, 0x30800),
        (gc::RLC_CNTL, 0x3b000),
        (gc::RLC_STAT, 0x3b010),
        (gc::RLC_SAFE_MODE, 0x3b014),
        (gc::RLC_GPU_CLOCK_COUNT_LSB, 0x3b090),
        (gc::RLC_GPU_CLOCK_COUNT_MSB, 0x3b094),
        (gc::RLC_CAPTURE_GPU_CLOCK_COUNT, 0x3b098),
        (gc::RLC_GPM_STAT, 0x3b100),
        (gc::RLC_SPM_MC_CNTL, 0x3b1c4),
        (gc::RLC_CP_SCHEDULERS, 0x3b2a8),
    ]);
}

#[test]
fn bus_interface() {
    check(&[
        (nbio::MM_INDEX, 0x00),
        (nbio::MM_DATA, 0x04),
        (nbio::MM_INDEX_HI, 0x18),
        (nbio::PCIE_INDEX2, 0x38),
        (nbio::PCIE_DATA2, 0x3c),
        (nbio::RCC_CONFIG_MEMSIZE, 0x378c),
        (nbio::RCC_DOORBELL_APER_EN, 0x3780),
        (nbio::BIF_FB_EN, 0x387c),
        (nbio::INTERRUPT_CNTL, 0x3844),
        (nbio::INTERRUPT_CNTL2, 0x3848),
        (nbio::DOORBELL_SELFRING_GPA_APER_BASE_HIGH, 0x384c),
        (nbio::HDP_MEM_COHERENCY_FLUSH_CNTL, 0x385c),
        (nbio::GPU_HDP_FLUSH_REQ, 0x3898),
        (nbio::GPU_HDP_FLUSH_DONE, 0x389c),
        (nbio::REMAP_HDP_MEM_FLUSH_CNTL, 0x3934),
        (nbio::REMAP_HDP_REG_FLUSH_CNTL, 0x3938),
        (nbio::SDMA_DOORBELL_RANGE[0], 0x3bc0),
        (nbio::SDMA_DOORBELL_RANGE[1], 0x3bc4),
        (nbio::SDMA_DOORBELL_RANGE[2], 0x3bd8),
        (nbio::SDMA_DOORBELL_RANGE[3], 0x3bdc),
        (nbio::SDMA_DOORBELL_RANGE[4], 0x3be4),
        (nbio::BIF_IH_DOORBELL_RANGE, 0x3bc8),
        (GFX906.revision, 0x34c4),
        (GFX90A.revision, 0x34d4),
    ]);
}

#[test]
fn small_blocks() {
    check(&[
        (hdp::HDP_READ_CACHE_INVALIDATE, 0x3fc4),
        (hdp::HDP_MISC_CNTL, 0x3fcc),
        (hdp::HDP_NONSURFACE_BASE, 0x3d80),
        (hdp::HDP_NONSURFACE_BASE_HI, 0x3d88),
        (hdp::mem_flush(GFX90A.hdp_remap), 0x7f000),
        (mp::MP0_SMN_C2PMSG_33, 0x58184),
        (mp::MP0_SMN_C2PMSG_35, 0x5818c),
        (mp::MP0_SMN_C2PMSG_64, 0x58200),
        (mp::MP0_SMN_C2PMSG_81, 0x58244),
        (mp::MP1_SMN_C2PMSG_66, 0x58a08),
        (mp::MP1_SMN_C2PMSG_82, 0x58a48),
        (mp::MP1_SMN_C2PMSG_90, 0x58a68),
        (athub::ATC_VMID_PASID_MAPPING_UPDATE_STATUS, 0x30ac),
        (athub::pasid_mapping(0), 0x30b0),
        (athub::pasid_mapping(15), 0x30ec),
        (athub::pasid_mapping_mm(0), 0x3174),
    ]);
}

#[test]
fn interrupt_handler() {
    for asic in [&GFX906, &GFX90A] {
        let rings: Vec<_> = (0..3).map_while(|n| asic.ih.ring(n)).collect();
        assert_eq!(rings.len(), 3);
        for (ring, cntl, rptr, doorbell) in [
            (0, 0x4480, 0x448c, 0x449c),
            (1, 0x44b0, 0x44bc, 0x44cc),
            (2, 0x44e0, 0x44ec, 0x44fc),
        ] {
            assert_eq!(rings[ring].cntl.byte(), cntl);
            assert_eq!(rings[ring].base.byte(), cntl + 4);
            assert_eq!(rings[ring].base_hi.byte(), cntl + 8);
            assert_eq!(rings[ring].rptr.byte(), rptr);
            assert_eq!(rings[ring].wptr.byte(), rptr + 4);
            assert_eq!(rings[ring].doorbell_rptr.byte(), doorbell);
        }
        assert!(asic.ih.ring(3).is_none());
    }
    check(&[
        (osssys::IH_RB_WPTR_ADDR_HI, 0x4494),
        (osssys::IH_RB_WPTR_ADDR_LO, 0x4498),
        (osssys::IH_DOORBELL_RETRY_CAM, 0x44a0),
        (osssys::vmid_lut(3), 0x428c),
        (osssys::vmid_lut_mm(3), 0x42cc),
        (GFX906.ih.retry_int_cam_cntl(), 0x4624),
        (GFX90A.ih.retry_int_cam_cntl(), 0x4628),
        (GFX906.ih.chicken(), 0x48b0),
        (GFX90A.ih.chicken(), 0x48b4),
    ]);
}

/// The rows of the hub table, as bytes of one column.
fn hub(hub: &HubLayout, bytes: [usize; 31]) {
    let regs = [
        hub.l2_cntl(),
        hub.l2_cntl2(),
        hub.l2_cntl3(),
        hub.l2_cntl4(),
        hub.fault_cntl(),
        hub.fault_cntl2(),
        hub.fault_status(),
        hub.fault_addr(),
        hub.fault_default_addr(),
        hub.identity_low(),
        hub.identity_high(),
        hub.identity_offset(),
        hub.context_cntl(0),
        hub.context_cntl(1),
        hub.contexts_disable(),
        hub.invalidate_sem(0),
        hub.invalidate_req(0),
        hub.invalidate_req(17),
        hub.invalidate_ack(0),
        hub.invalidate_ack(17),
        hub.invalidate_range(0),
        hub.page_table_base(0),
        hub.page_table_start(0),
        hub.page_table_end(0),
        hub.fb_offset(),
        hub.aperture_default_addr(),
        hub.fb_location_base(),
        hub.fb_location_top(),
        hub.aperture_low(),
        hub.aperture_high(),
        hub.l1_tlb_cntl(),
    ];
    for (row, (reg, byte)) in regs.iter().zip(bytes).enumerate() {
        assert_eq!(reg.byte(), byte, "{} row {row}", hub.name);
    }
}

#[test]
fn translation_hubs() {
    let graphics = [
        0x0a100, 0x0a104, 0x0a108, 0x0a15c, 0x0a11c, 0x0a120, 0x0a12c, 0x0a130, 0x0a138, 0x0a144,
        0x0a14c, 0x0a154, 0x0a200, 0x0a204, 0x0a240, 0x0a244, 0x0a28c, 0x0a2d0, 0x0a2d4, 0x0a318,
        0x0a31c, 0x0a3ac, 0x0a42c, 0x0a4ac, 0x0a5ac, 0x0a5b0, 0x0a600, 0x0a604, 0x0a614, 0x0a618,
        0x0a61c,
    ];
    hub(&GFX906.gfxhub, graphics);
    hub(&GFX90A.gfxhub, graphics);
    hub(
        &GFX906.mmhub,
        [
            0x69a00, 0x69a04, 0x69a08, 0x69a5c, 0x69a1c, 0x69a20, 0x69a2c, 0x69a30, 0x69a38,
            0x69a44, 0x69a4c, 0x69a54, 0x69b00, 0x69b04, 0x69b40, 0x69b44, 0x69b8c, 0x69bd0,
            0x69bd4, 0x69c18, 0x69c1c, 0x69cac, 0x69d2c, 0x69dac, 0x6a05c, 0x6a060, 0x6a0b0,
            0x6a0b4, 0x6a0c4, 0x6a0c8, 0x6a0cc,
        ],
    );
    hub(
        &GFX90A.mmhub,
        [
            0x6ae00, 0x6ae04, 0x6ae08, 0x6ae5c, 0x6ae1c, 0x6ae20, 0x6ae2c, 0x6ae30, 0x6ae38,
            0x6ae44, 0x6ae4c, 0x6ae54, 0x6af00, 0x6af04, 0x6af40, 0x6af44, 0x6af8c, 0x6afd0,
            0x6afd4, 0x6b018, 0x6b01c, 0x6b0ac, 0x6b12c, 0x6b1ac, 0x6b2ac, 0x6b2b0, 0x6b300,
            0x6b304, 0x6b314, 0x6b318, 0x6b31c,
        ],
    );
}

#[test]
fn xgmi_registers_exist_where_the_hub_has_them() {
    assert_eq!(GFX906.gfxhub.xgmi_lfb_cntl(), None);
    assert_eq!(GFX906.mmhub.xgmi_lfb_cntl().map(Reg::byte), Some(0x6a08c));
    assert_eq!(GFX90A.gfxhub.xgmi_lfb_cntl().map(Reg::byte), Some(0x0a5e0));
    assert_eq!(GFX90A.mmhub.xgmi_lfb_cntl().map(Reg::byte), Some(0x6b2e0));
}

#[test]
fn hub_arrays_step_by_their_strides() {
    for hub in GFX90A.hubs() {
        assert_eq!(
            hub.page_table_base(9).byte() - hub.page_table_base(8).byte(),
            8
        );
        assert_eq!(hub.context_cntl(9).byte() - hub.context_cntl(8).byte(), 4);
        assert_eq!(
            hub.invalidate_range(5).byte() - hub.invalidate_range(4).byte(),
            8
        );
        // Beyond the last engine nothing exists, and no other register may be hit.
        assert_eq!(hub.invalidate_req(18), hub.invalidate_req(17));
        assert!(hub.invalidate_req(u32::MAX) < hub.invalidate_ack(0));
    }
}

#[test]
fn the_queue_window_is_contiguous() {
    assert_eq!(hqd::WINDOW.len(), 55);
    assert_eq!(
        hqd::WINDOW.first().map(|entry| entry.reg.dword()),
        Some(0x3245)
    );
    assert_eq!(hqd::WINDOW.last().map(|entry| entry.mqd_dw), Some(183));
    for entry in hqd::WINDOW {
        let distance = usize::try_from(entry.reg.dword() - 0x3245).unwrap_or(usize::MAX);
        assert_eq!(entry.mqd_dw, 128 + distance, "{}", entry.name);
    }
}

#[test]
fn register_names_are_unique_and_found() {
    assert_eq!(regs::name(gc::SCRATCH_REG0), Some("SCRATCH_REG0"));
    assert_eq!(
        regs::name(hqd::CP_HQD_PQ_CONTROL),
        Some("CP_HQD_PQ_CONTROL")
    );
    assert_eq!(regs::name(nbio::MM_DATA), None);
    assert_eq!(gc::SCRATCH_REG0.to_string(), "SCRATCH_REG0");
    assert_eq!(nbio::MM_DATA.to_string(), "reg:0x4");
}

#[test]
fn constants_use_the_bases_of_every_asic() {
    for asic in [&GFX906, &GFX90A] {
        for (ip, segment, base) in [
            (Ip::Gc, 0, gc::SEG0),
            (Ip::Gc, 1, gc::SEG1),
            (Ip::Nbio, 0, nbio::SEG0),
            (Ip::Nbio, 1, nbio::SEG1),
            (Ip::Nbio, 2, nbio::SEG2),
            (Ip::Hdp, 0, hdp::SEG0),
            (Ip::Athub, 0, athub::SEG0),
            (Ip::Osssys, 0, osssys::SEG0),
            (Ip::Mp, 0, mp::SEG0),
            (Ip::Gc, 0, asic.gfxhub.base),
            (Ip::Mmhub, 0, asic.mmhub.base),
        ] {
            assert_eq!(asic.base(ip, segment), Some(base), "{} {ip:?}", asic.name);
        }
        sdma_bases(asic);
    }
}

fn sdma_bases(asic: &AsicDesc) {
    for (engine, base) in (0u8..).zip(asic.sdma.engines) {
        // Engines 2 and up live in segment 1 of their IP.
        let segment = usize::from(engine >= 2);
        assert_eq!(asic.base(Ip::Sdma(engine), segment), Some(*base));
    }
}

#[test]
fn sdma_engines_start_at_their_bytes() {
    let bases = |asic: &'static AsicDesc| -> Vec<usize> {
        (0..asic.sdma_engines())
            .filter_map(|n| asic.sdma.engine(n))
            .map(|engine| engine.cntl().byte() - 4 * 0x1c)
            .collect()
    };
    assert_eq!(bases(&GFX906), [0x4980, 0x6180]);
    assert_eq!(bases(&GFX90A), [0x4980, 0x6180, 0x78000, 0x79000, 0x7A000]);
}

#[test]
fn sdma_blocks_follow_the_generation() {
    for (asic, rows) in [
        (
            &GFX906,
            [
                0x0e0, 0x140, 0x143, 0x145, 0x148, 0x151, 0x152, 0x16b, 0x172, 0x175, 0x1a0, 0x3e0,
            ],
        ),
        (
            &GFX90A,
            [
                0x0d8, 0x130, 0x133, 0x135, 0x138, 0x141, 0x142, 0x15b, 0x162, 0x165, 0x188, 0x398,
            ],
        ),
    ] {
        let engine = asic.sdma.engine(0).expect("engine 0 exists");
        let rlc = |n| engine.rlc(n).expect("queue exists");
        let regs = [
            engine.page().rb_cntl(),
            rlc(0).rb_cntl(),
            rlc(0).rb_rptr(),
            rlc(0).rb_wptr(),
            rlc(0).rb_rptr_addr_hi(),
            rlc(0).context_status(),
            rlc(0).doorbell(),
            rlc(0).doorbell_offset(),
            rlc(0).rb_wptr_poll_addr_hi(),
            rlc(0).minor_ptr_update(),
            rlc(1).rb_cntl(),
            rlc(7).rb_cntl(),
        ];
        for (reg, row) in regs.iter().zip(rows) {
            assert_eq!(reg.byte(), 0x4980 + 4 * row, "{}", asic.name);
        }
        assert_eq!(engine.gfx().rb_cntl().byte(), 0x4980 + 4 * 0x80);
        assert!(engine.rlc(8).is_none());
    }
}

#[test]
fn every_engine_lies_inside_the_bar() {
    for asic in [&GFX906, &GFX90A] {
        for n in 0..asic.sdma_engines() {
            let engine = asic.sdma.engine(n).expect("listed engine");
            let last = engine.rlc(7).expect("last queue").midcmd_cntl();
            assert!(last.byte() < usize::try_from(MMIO_SIZE).unwrap_or(0));
        }
    }
}

#[test]
fn every_register_of_an_sdma_queue() {
    // Offsets of RLC queue 2 of a 4.4.0 engine.
    let engine = GFX90A.sdma.engine(0).expect("engine 0 exists");
    let rlc = engine.rlc(2).expect("queue 2 exists");
    for (reg, offset) in [
        (rlc.rb_cntl(), 0x1e0),
        (rlc.rb_base(), 0x1e1),
        (rlc.rb_base_hi(), 0x1e2),
        (rlc.rb_rptr(), 0x1e3),
        (rlc.rb_rptr_hi(), 0x1e4),
        (rlc.rb_wptr(), 0x1e5),
        (rlc.rb_wptr_hi(), 0x1e6),
        (rlc.rb_wptr_poll_cntl(), 0x1e7),
        (rlc.rb_rptr_addr_hi(), 0x1e8),
        (rlc.rb_rptr_addr_lo(), 0x1e9),
        (rlc.ib_cntl(), 0x1ea),
        (rlc.context_status(), 0x1f1),
        (rlc.doorbell(), 0x1f2),
        (rlc.status(), 0x208),
        (rlc.doorbell_log(), 0x209),
        (rlc.watermark(), 0x20a),
        (rlc.doorbell_offset(), 0x20b),
        (rlc.csa_addr_lo(), 0x20c),
        (rlc.csa_addr_hi(), 0x20d),
        (rlc.ib_sub_remain(), 0x20f),
        (rlc.preempt(), 0x210),
        (rlc.dummy_reg(), 0x211),
        (rlc.rb_wptr_poll_addr_hi(), 0x212),
        (rlc.rb_wptr_poll_addr_lo(), 0x213),
        (rlc.rb_aql_cntl(), 0x214),
        (rlc.minor_ptr_update(), 0x215),
        (rlc.midcmd_data0(), 0x220),
        (rlc.midcmd_cntl(), 0x22b),
    ] {
        assert_eq!(reg.byte(), 0x4980 + 4 * offset, "{offset:#x}");
    }
}

#[test]
fn every_register_of_an_sdma_engine() {
    let engine = GFX90A.sdma.engine(0).expect("engine 0 exists");
    for (reg, offset) in [
        (engine.cntl(), 0x01c),
        (engine.chicken_bits(), 0x01d),
        (engine.gb_addr_config(), 0x01e),
        (engine.sem_wait_fail_timer_cntl(), 0x021),
        (engine.status(), 0x025),
        (engine.f32_cntl(), 0x02a),
        (engine.freeze(), 0x02b),
        (engine.phase0_quantum(), 0x02c),
        (engine.phase1_quantum(), 0x02d),
        (engine.phase2_quantum(), 0x04f),
        (engine.utcl1_cntl(), 0x03c),
        (engine.utcl1_timeout(), 0x047),
        (engine.utcl1_page(), 0x048),
    ] {
        assert_eq!(reg.byte(), 0x4980 + 4 * offset, "{offset:#x}");
    }
}

#[test]
fn the_last_context_of_a_hub() {
    let hub = &GFX90A.gfxhub;
    assert_eq!(hub.context_cntl(15).byte(), 0x0a23c);
    assert_eq!(hub.page_table_base(15).byte(), 0x0a424);
    assert_eq!(hub.page_table_start(15).byte(), 0x0a4a4);
    assert_eq!(hub.page_table_end(15).byte(), 0x0a524);
    assert_eq!(hub.agp_top().byte(), 0x0a608);
    assert_eq!(hub.agp_bot().byte(), 0x0a60c);
    assert_eq!(hub.agp_base().byte(), 0x0a610);
}

#[test]
fn per_vmid_registers_step_by_their_strides() {
    assert_eq!(gc::gds_base(15).byte(), 0x0cc78);
    assert_eq!(gc::gds_gws(15).byte(), 0x0ccbc);
    assert_eq!(gc::gds_oa(15).byte(), 0x0ccfc);
    assert_eq!(athub::pasid_mapping_mm(15).byte(), 0x31b0);
    assert_eq!(osssys::vmid_lut_mm(15).byte(), 0x42fc);
}
