// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What differs between the modelled ASICs, as values of one type.
//!
//! All register numbers are absolute dword indices (BAR5 byte address / 4), that is IP segment base plus the
//! header's offset; sources: `vega20_ip_offset.h`, `aldebaran_ip_offset.h` and the `*_offset.h` headers of Linux.

use gfx9_isa::inst::Asic as Isa;

use crate::board::Board;
use crate::smu;

/// Where one VM hub keeps its registers; the two blocks have the same inner order on every gfx9 part.
#[derive(Debug, Clone, Copy)]
pub struct HubLayout {
    /// Dword index of VM_L2_CNTL; contexts, invalidation engines and page-table bases follow at fixed distances.
    pub vm_base: u32,
    /// Dword index of MC_VM_FB_OFFSET; FB location, AGP and system aperture follow at fixed distances.
    pub mc_base: u32,
}

/// One SDMA engine instance.
#[derive(Debug, Clone, Copy)]
pub struct SdmaInstance {
    /// First register of the engine (dword index).
    pub base: u32,
    /// The BIF doorbell range register that routes BAR2 writes to this engine (dword index).
    pub range_reg: u32,
    /// Interrupt client id.
    pub client: u8,
    /// Client id in the fault status of the MMHUB (`mmhub_client_ids_*` in `gmc_v9_0.c`).
    pub cid: u16,
}

/// Offsets inside an SDMA engine that moved between versions (dwords from the engine base).
#[derive(Debug, Clone, Copy)]
pub struct SdmaLayout {
    /// F32_CNTL.
    pub f32_cntl: u32,
    /// F32_CNTL has RESET (`sdma_4_4_0_sh_mask.h`; `sdma0_4_2_sh_mask.h` has not).
    pub f32_reset: bool,
    /// CNTL.
    pub cntl: u32,
    /// PAGE queue register block.
    pub page: u32,
    /// RLC0 queue register block.
    pub rlc0: u32,
    /// Distance of one queue block from the next.
    pub stride: u32,
    /// Width of the byte count of linear copies and constant fills, in bits.
    pub count_bits: u32,
    /// Width of UCODE_ADDR, in bits.
    pub ucode_addr_bits: u32,
}

/// A modelled ASIC.
#[derive(Debug, Clone, Copy)]
pub struct Asic {
    /// Command-line name.
    pub name: &'static str,
    /// PCI device id.
    pub device_id: u16,
    /// PCI revision id.
    pub revision: u8,
    /// GC segment 0 and 1 bases.
    pub gc: [u32; 2],
    /// GFXHUB registers.
    pub gfxhub: HubLayout,
    /// MMHUB registers.
    pub mmhub: HubLayout,
    /// ATHUB segment 0 base.
    pub athub: u32,
    /// OSSSYS (IH) segment 0 base.
    pub osssys: u32,
    /// NBIO segment 2 base.
    pub nbio2: u32,
    /// MP0/MP1 segment 0 base.
    pub mp: u32,
    /// SDMA engines.
    pub sdma: &'static [SdmaInstance],
    /// Client id of the IH (OSS) in the fault status of the MMHUB.
    pub ih_cid: u16,
    /// SDMA register layout.
    pub sdma_layout: SdmaLayout,
    /// IH_RETRY_INT_CAM_CNTL offset from the OSSSYS base.
    pub ih_cam_cntl: u32,
    /// IH_CHICKEN offset from the OSSSYS base.
    pub ih_chicken: u32,
    /// Rings at bus addresses need IH_CHICKEN.MC_SPACE_GPA_ENABLE.
    pub ih_needs_gpa: bool,
    /// Page tables use the translate-further flavour (hardware depth 2, 2 MiB leaves, F bit).
    pub translate_further: bool,
    /// Length of MAP_PROCESS in dwords (16 on v9, 21 from Aldebaran on).
    pub map_process_dw: usize,
    /// Width of a bus address in page tables and rings, in bits.
    pub bus_bits: u32,
    /// Byte offset in BAR5 of the HDP flush remap page.
    pub hdp_remap: u32,
    /// Shader engines, each with one shader array.
    pub engines: u32,
    /// Waves that a SIMD holds.
    pub waves_per_simd: u16,
    /// Compute units of an engine on the die, at most 16.
    pub units_per_engine: u32,
    /// Bytes of vector registers of a compute unit (`VGPR_SIZE_PER_CU` of `kfd_queue.c`).
    pub vgpr_bytes: u32,
    /// Register of the data fabric that tells how memory is interleaved (dword index), and its value: IntLvNumChan.
    pub df_interleave: (u32, u32),
    /// EccCtrl of the first memory controller's channels (dword indices), where the block is decoded.
    pub ecc_controls: &'static [u32],
    /// Messages of the power controller.
    pub smu: smu::Interface,
    /// The board unless told otherwise.
    pub board: Board,
    /// SPI_GDBG_PER_VMID_CNTL exists and is banked by VMID.
    pub gdbg_per_vmid: bool,
    /// Bit offset inside BIF doorbell range registers is fixed; this is the IH range register (dword index).
    pub ih_range_reg: u32,
    /// BAR5 byte ranges (first, last) that some block answers.
    pub mmio_ranges: &'static [(u32, u32)],
}

const NBIO2: u32 = 0xD20;

const SDMA_90A: [SdmaInstance; 5] = [
    SdmaInstance {
        base: 0x1260,
        range_reg: NBIO2 + 0x1D0,
        client: 0x08,
        cid: 256,
    },
    SdmaInstance {
        base: 0x1860,
        range_reg: NBIO2 + 0x1D1,
        client: 0x09,
        cid: 257,
    },
    SdmaInstance {
        base: 0x1E000,
        range_reg: NBIO2 + 0x1D6,
        client: 0x01,
        cid: 258,
    },
    SdmaInstance {
        base: 0x1E400,
        range_reg: NBIO2 + 0x1D7,
        client: 0x04,
        cid: 259,
    },
    SdmaInstance {
        base: 0x1E800,
        range_reg: NBIO2 + 0x1D9,
        client: 0x05,
        cid: 260,
    },
];

const SDMA_906: [SdmaInstance; 2] = [
    SdmaInstance {
        cid: 15,
        ..SDMA_90A[0]
    },
    SdmaInstance {
        cid: 32 + 14,
        ..SDMA_90A[1]
    },
];

const RANGES_COMMON: [(u32, u32); 15] = [
    (0x00000, 0x003FF),
    (0x03080, 0x031FF),
    (0x03480, 0x03BFF),
    (0x03C80, 0x04003),
    (0x04280, 0x048FF),
    (0x04980, 0x05FFF),
    (0x06180, 0x07FFF),
    (0x08000, 0x0CFFF),
    // Data fabric: FabricConfigAccessControl, DramBaseAddress0 and their neighbours.
    (0x1C000, 0x1DFFF),
    (0x28000, 0x3FFFF),
    (0x58000, 0x58FFF),
    (0x59800, 0x59FFF),
    (0x5A000, 0x5AFFF),
    (0x68000, 0x6BFFF),
    (0x7F000, 0x7FFFF),
];

const RANGES_90A: [(u32, u32); 17] = {
    let mut r = [(0, 0); 17];
    let mut i = 0;
    while i < RANGES_COMMON.len() {
        r[i] = RANGES_COMMON[i];
        i += 1;
    }
    // The first memory controller: four channels.
    r[15] = (0x50000, 0x53FFF);
    // SDMA2, SDMA3 and SDMA4.
    r[16] = (0x78000, 0x7AFFF);
    r
};

/// Aldebaran, one die (Instinct MI210).
pub const GFX90A: Asic = Asic {
    name: "gfx90a",
    device_id: 0x740f,
    revision: 0x02,
    gc: [0x2000, 0xA000],
    gfxhub: HubLayout {
        vm_base: 0x2840,
        mc_base: 0x296B,
    },
    mmhub: HubLayout {
        vm_base: 0x1A000 + 0xB80,
        mc_base: 0x1A000 + 0xCAB,
    },
    athub: 0xC20,
    osssys: 0x10A0,
    nbio2: NBIO2,
    mp: 0x16000,
    sdma: &SDMA_90A,
    ih_cid: 384,
    sdma_layout: SdmaLayout {
        f32_cntl: 0x2A,
        f32_reset: true,
        cntl: 0x1C,
        page: 0xD8,
        rlc0: 0x130,
        stride: 0x58,
        count_bits: 30,
        ucode_addr_bits: 14,
    },
    ih_cam_cntl: 0xEA,
    ih_chicken: 0x18D,
    ih_needs_gpa: true,
    translate_further: true,
    map_process_dw: 21,
    bus_bits: 48,
    hdp_remap: 0x7F000,
    engines: 8,
    waves_per_simd: 8,
    vgpr_bytes: 0x8_0000,
    // DF_GCM_AON0_DramMegaBaseAddress0, 32 channels.
    df_interleave: (0x7064, 8 << 2),
    units_per_engine: 14,
    // UMCCH0_0_EccCtrl to UMCCH3_0_EccCtrl.
    ecc_controls: &[0x14053, 0x14453, 0x14853, 0x14C53],
    smu: smu::Interface {
        version: 0x0044_3C00,
        reset: Some(3),
        max_frequency: 0x1D,
        uclk: 4,
    },
    board: Board {
        compute_units: 104,
        mec_firmware: 70,
        sdma_firmware: 8,
        engine_clock: 1700,
        memory_clock: 1600,
    },
    gdbg_per_vmid: true,
    ih_range_reg: NBIO2 + 0x1D2,
    mmio_ranges: &RANGES_90A,
};

/// Vega 20 (Radeon VII, Instinct MI50/MI60).
pub const GFX906: Asic = Asic {
    name: "gfx906",
    device_id: 0x66a1,
    revision: 0x00,
    gc: [0x2000, 0xA000],
    gfxhub: HubLayout {
        vm_base: 0x2840,
        mc_base: 0x296B,
    },
    mmhub: HubLayout {
        vm_base: 0x1A000 + 0x680,
        mc_base: 0x1A000 + 0x817,
    },
    athub: 0xC20,
    osssys: 0x10A0,
    nbio2: NBIO2,
    mp: 0x16000,
    sdma: &SDMA_906,
    ih_cid: 13,
    sdma_layout: SdmaLayout {
        f32_cntl: 0x2A,
        f32_reset: false,
        cntl: 0x1C,
        page: 0xE0,
        rlc0: 0x140,
        stride: 0x60,
        count_bits: 22,
        ucode_addr_bits: 13,
    },
    ih_cam_cntl: 0xE9,
    ih_chicken: 0x18C,
    ih_needs_gpa: false,
    translate_further: false,
    map_process_dw: 16,
    bus_bits: 44,
    hdp_remap: 0x7F000,
    engines: 4,
    waves_per_simd: 10,
    vgpr_bytes: 0x4_0000,
    // DF_CS_UMC_AON0_DramBaseAddress0, 32 channels.
    df_interleave: (0x7044, 8 << 2),
    units_per_engine: 16,
    ecc_controls: &[],
    smu: smu::Interface {
        version: 0x0028_2F00,
        reset: None,
        max_frequency: 0x2B,
        uclk: 5,
    },
    board: Board {
        compute_units: 60,
        mec_firmware: 472,
        sdma_firmware: 145,
        engine_clock: 1725,
        memory_clock: 1000,
    },
    gdbg_per_vmid: false,
    ih_range_reg: NBIO2 + 0x1D2,
    mmio_ranges: &RANGES_COMMON,
};

/// Sizes of a context save area, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaveSizes {
    /// Control stack, with the header of the area.
    pub stack: u32,
    /// Control stack and state of waves.
    pub area: u32,
}

impl Asic {
    /// What all waves that `units` compute units hold need when a queue that has them all is preempted:
    /// `kfd_queue_ctx_save_restore_size` of `kfd_queue.c`.
    pub fn save_sizes(&self, units: u32) -> SaveSizes {
        const HEADER: u32 = 40;
        /// Scalar registers, local data share and hardware registers of a unit.
        const REST: u32 = 0x4000 + 0x1_0000 + 0x1000;
        let waves = (units * 40).min(self.engines * 512);
        let stack = (HEADER + waves * 8 + 8).next_multiple_of(4096);
        let state = (units * (self.vgpr_bytes + REST)).next_multiple_of(4096);
        SaveSizes {
            stack,
            area: stack + state,
        }
    }

    /// Bytes that one wave with the fewest registers leaves in the area: a block of vector registers for 64 lanes
    /// (4 registers, on gfx90a 8), 16 scalar and 32 hardware registers (`cwsr_trap_handler_gfx9.asm`).
    pub fn least_wave(&self) -> u32 {
        self.vgpr_bytes / 256 + (16 + 32) * 4
    }

    /// The instruction set.
    pub fn isa(&self) -> Isa {
        if self.gdbg_per_vmid {
            Isa::Gfx90a
        } else {
            Isa::Gfx906
        }
    }

    /// The descriptor of a command-line name.
    pub fn by_name(name: &str) -> Option<&'static Asic> {
        static ALL: [&Asic; 2] = [&GFX90A, &GFX906];
        ALL.into_iter().find(|a| a.name == name)
    }

    /// Whether some block decodes this BAR5 byte offset.
    pub fn decodes(&self, byte: u32) -> bool {
        self.mmio_ranges
            .iter()
            .any(|&(lo, hi)| (lo..=hi).contains(&byte))
    }
}
