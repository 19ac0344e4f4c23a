// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Values of descriptions and small formulas that the contract states.

use crate::hw::asic::{Ip, IpVersion, GFX906, GFX90A};
use crate::hw::cwsr;
use crate::hw::regs::hub::{
    self, ContextCntl, FaultCntl, L1TlbCntl, L2Cntl, L2Cntl2, L2Cntl3, L2Cntl4,
};
use crate::hw::regs::{gc, nbio};
use crate::hw::shader::ComputeUnits;
use crate::hw::timeouts;

#[test]
fn the_save_area_table_of_the_user_interface() {
    // CUs, engines, VGPR bytes, then waves, control stack, area, debugger, total.
    for (cu, engines, vgpr, waves, ctl, area, debug, total) in [
        (
            38, 4, 0x8_0000, 1520, 0x3000, 0x162_1000, 0xbe00, 0x162_d000,
        ),
        (
            104, 8, 0x8_0000, 4096, 0x9000, 0x3c9_1000, 0x2_0000, 0x3cb_1000,
        ),
        (
            110, 8, 0x8_0000, 4096, 0x9000, 0x400_f000, 0x2_0000, 0x402_f000,
        ),
        (
            104, 4, 0x8_0000, 2048, 0x5000, 0x3c8_d000, 0x1_0000, 0x3c9_d000,
        ),
        (
            60, 4, 0x4_0000, 2048, 0x5000, 0x13f_1000, 0x1_0000, 0x140_1000,
        ),
        (4, 4, 0x8_0000, 160, 0x1000, 0x25_5000, 0x1400, 0x25_7000),
    ] {
        let sizes = cwsr::sizes(cu, engines, vgpr, 1);
        assert_eq!(sizes.waves, waves, "{cu} CUs");
        assert_eq!(sizes.ctl_stack, ctl, "{cu} CUs");
        assert_eq!(sizes.cwsr, area, "{cu} CUs");
        assert_eq!(sizes.debug, debug, "{cu} CUs");
        assert_eq!(sizes.total, total, "{cu} CUs");
    }
}

#[test]
fn descriptions_state_the_contract() {
    assert_eq!(GFX90A.gfx_target_version, 90010);
    assert_eq!(GFX906.gfx_target_version, 90006);
    assert_eq!(GFX90A.ip.gc, IpVersion(9, 4, 2));
    assert_eq!(GFX906.ip.gc, IpVersion(9, 4, 0));
    assert_eq!(GFX90A.sdma_engines(), 5);
    assert_eq!(GFX906.sdma_engines(), 2);
    assert_eq!((GFX90A.dma_bits, GFX906.dma_bits), (48, 44));
    assert!(GFX90A.xnack_per_process && !GFX906.xnack_per_process);
    assert!(GFX90A.mqd_in_vram && !GFX906.mqd_in_vram);
    assert_eq!(GFX90A.hdp_remap, 0x7_F000);
}

#[test]
fn topology_counts_follow_from_the_shader_array() {
    assert_eq!(GFX90A.shader.array_count(), 8);
    assert_eq!(GFX906.shader.array_count(), 4);
    for asic in [&GFX90A, &GFX906] {
        let shader = &asic.shader;
        for count in 0..=shader.physical_units() {
            let units = ComputeUnits::even(shader, count);
            assert_eq!(units.count(), count);
            let of = |se| units.of(se);
            assert!((1..shader.engines).all(|se| of(se) <= of(se - 1) && of(0) - of(se) <= 1));
        }
        assert!(asic
            .topology
            .caches
            .iter()
            .any(|cache| !cache.instruction && cache.size_kib > 0));
    }
}

#[test]
fn the_xnack_check_needs_firmware() {
    assert!(!GFX90A.xnack_check(97));
    assert!(GFX90A.xnack_check(98));
    assert!(!GFX906.xnack_check(u32::MAX));
}

#[test]
fn hub_words_of_the_bring_up() {
    assert_eq!(L2Cntl3::driver(true).raw(), 0x8014_800C);
    assert_eq!(L2Cntl3::driver(false).raw(), 0x8013_0009);
    assert_eq!(L2Cntl4::DRIVER.raw(), 0x01);
    assert_eq!(L2Cntl2::INVALIDATE.raw(), 3);
    assert_eq!(L2Cntl::new().enabled().raw(), 0x0008_0003);
    assert_eq!(L1TlbCntl::DRIVER.raw(), 0x0000_3859);
    assert_eq!(FaultCntl::new().with_defaults().raw(), 0x1FFC);
    assert_eq!(ContextCntl::KERNEL.raw(), 1);
}

#[test]
fn user_contexts_of_both_flavours() {
    let further = &GFX90A.pte;
    let word = ContextCntl::user(further.page_table_depth(), further.block_size(), true);
    // Enabled, depth 2, block 9, retry, seven defaults.
    assert_eq!(word.raw(), 0x0055_5400 | 1 | (2 << 1) | (9 << 3) | (1 << 7));
    let plain = &GFX906.pte;
    let word = ContextCntl::user(plain.page_table_depth(), plain.block_size(), false);
    assert_eq!(word.raw(), 0x0055_5400 | 1 | (3 << 1));
    assert_eq!(ContextCntl::new().with_interrupts().raw(), 0x002A_AA00);
}

#[test]
fn page_numbers_split_over_two_registers() {
    assert_eq!(hub::page_words(0x0000_FFFF_FFFF_F000), [0xFFFF_FFFF, 0xF]);
    assert_eq!(hub::page_address(0xFFFF_FFFF, 0xF), 0x0000_FFFF_FFFF_F000);
    assert_eq!(hub::page_address(1, 0xFFFF_FFF0), 0x1000);
    assert_eq!(hub::fb_address(0x8000), 0x80_0000_0000);
    assert_eq!(hub::fb_top(0x803F), 0x80_3FFF_FFFF);
}

#[test]
fn fault_status_names_the_client() {
    let status = hub::FaultStatus::from_raw(0x0034_1051);
    assert_eq!(status.get(hub::FaultStatus::VMID), 3);
    assert!(status.is_set(hub::FaultStatus::RW));
    assert_eq!(status.get(hub::FaultStatus::PERMISSION_FAULTS), 5);
    assert_eq!(GFX906.gfxhub.client(status), Some("TCP"));
    assert_eq!(GFX90A.gfxhub.client(status), Some("TCP"));
    let of = |hub: &hub::HubLayout, cid, write| {
        let status = hub::FaultStatus::new().with(hub::FaultStatus::CID, cid);
        hub.client(status.with(hub::FaultStatus::RW, write))
    };
    assert_eq!(of(&GFX906.gfxhub, 13, 0), None);
    // Copy engines, by ASIC; the number is the same in both directions.
    for write in [0, 1] {
        assert_eq!(of(&GFX906.mmhub, 15, write), Some("SDMA0"));
        assert_eq!(of(&GFX906.mmhub, 46, write), Some("SDMA1"));
        let names = ["SDMA0", "SDMA1", "SDMA2", "SDMA3", "SDMA4"];
        for (cid, name) in (256..).zip(names) {
            assert_eq!(of(&GFX90A.mmhub, cid, write), Some(name));
        }
        assert_eq!(of(&GFX90A.mmhub, 15, write), None);
        assert_eq!(of(&GFX906.mmhub, 256, write), None);
    }
    // One number, two blocks; and numbers that only one direction has.
    assert_eq!(of(&GFX906.mmhub, 2, 0), Some("VCE0"));
    assert_eq!(of(&GFX906.mmhub, 2, 1), Some("DCEDWB"));
    assert_eq!(of(&GFX906.mmhub, 44, 0), Some("UTCL2"));
    assert_eq!(of(&GFX906.mmhub, 44, 1), None);
    assert_eq!(of(&GFX906.mmhub, 7, 0), None);
    assert_eq!(of(&GFX906.mmhub, 7, 1), Some("DBGU0"));
}

#[test]
fn apertures_of_kfd_processes() {
    let bases = gc::ShMemBases::KFD;
    assert_eq!(bases.raw(), 0x0001_0002);
    assert_eq!(bases.shared_aperture(), 1 << 48);
    assert_eq!(bases.private_aperture(), 2 << 48);
    assert_eq!(gc::ShMemBases::INITIAL.raw(), 0x6000_6000);
    assert_eq!(gc::ShMemConfig::for_xnack(true).raw(), 0x18);
    assert_eq!(gc::ShMemConfig::for_xnack(false).raw(), 0x1018);
}

#[test]
fn a_dead_device_has_no_memory() {
    assert_eq!(nbio::vram_bytes(nbio::MEMSIZE_DEAD), None);
    assert_eq!(nbio::vram_bytes(0), None);
    assert_eq!(nbio::vram_bytes(1024), Some(1 << 30));
}

#[test]
fn waves_of_a_vmid_are_killed_by_broadcast() {
    assert_eq!(gc::SqCmd::kill_vmid(5).raw(), 0x5000_0013);
    assert_eq!(gc::GrbmGfxIndex::BROADCAST.raw(), 0xE000_0000);
    assert_eq!(gc::CpcInt::DRIVER.raw(), 0x0500_0000);
}

#[test]
fn unmap_latency_halves_what_remains_of_the_timeout() {
    assert_eq!(timeouts::unmap_latency_units(9000), 40);
    assert_eq!(timeouts::unmap_latency_units(0), 0);
    assert_eq!(timeouts::unmap_latency_units(100), 0);
    assert_eq!(timeouts::unmap_latency_ms(1000), 450);
}

#[test]
fn caches_of_an_mi210() {
    let caches: Vec<_> = GFX90A
        .topology
        .caches
        .iter()
        .map(|cache| {
            (
                cache.level,
                cache.size_kib,
                cache.line,
                cache.instruction,
                cache.cu_shared,
            )
        })
        .collect();
    assert_eq!(
        caches,
        [
            (1, 16, 64, false, 1),
            (1, 32, 64, true, 2),
            (1, 16, 64, false, 2),
            (2, 8192, 128, false, 14),
        ]
    );
}

#[test]
fn segment_bases_of_gfx90a() {
    for (ip, bases) in [
        (Ip::Gc, &[0x2000, 0xA000, 0x0240_2C00][..]),
        (Ip::Mmhub, &[0x1_A000, 0x0240_8800]),
        (Ip::Athub, &[0xC20, 0x0240_8C00]),
        (Ip::Osssys, &[0x10A0, 0x0240_A000]),
        (
            Ip::Nbio,
            &[0, 0x14, 0xD20, 0x1_0400, 0x0241_B000, 0x0404_0000],
        ),
        (Ip::Hdp, &[0xF20, 0x0240_A400]),
        (Ip::Sdma(0), &[0x1260, 0x1_2540, 0x0040_A800]),
        (Ip::Sdma(1), &[0x1860, 0x1_2560, 0x0040_AC00]),
        (Ip::Sdma(2), &[0x1_3760, 0x1_E000, 0x0042_EC00]),
        (Ip::Sdma(3), &[0x1_3780, 0x1_E400, 0x0042_F000]),
        (Ip::Sdma(4), &[0x1_37A0, 0x1_E800, 0x0042_F400]),
    ] {
        for (segment, base) in bases.iter().enumerate() {
            assert_eq!(GFX90A.base(ip, segment), Some(*base), "{ip:?} {segment}");
        }
        assert_eq!(GFX90A.base(ip, bases.len()), None, "{ip:?}");
    }
    assert_eq!(GFX90A.base(Ip::Sdma(5), 0), None);
}

#[test]
fn block_versions() {
    assert_eq!(GFX90A.ip.sdma, IpVersion(4, 4, 0));
    assert_eq!(GFX90A.ip.osssys, IpVersion(4, 4, 0));
    assert_eq!(GFX90A.ip.nbio, IpVersion(7, 4, 4));
    assert_eq!(GFX90A.ip.hdp, IpVersion(4, 4, 0));
    assert_eq!(GFX90A.ip.mp0, IpVersion(13, 0, 2));
    assert_eq!(GFX906.ip.sdma, IpVersion(4, 2, 0));
    assert_eq!(GFX906.ip.osssys, IpVersion(4, 2, 0));
    assert_eq!(GFX906.ip.nbio, IpVersion(7, 4, 0));
    assert_eq!(GFX906.ip.hdp, IpVersion(4, 2, 0));
    assert_eq!(GFX906.ip.mp0, IpVersion(11, 0, 2));
}
