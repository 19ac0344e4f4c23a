// SPDX-License-Identifier: GPL-2.0

//! All differences between supported ASICs, as values of one type.
//!
//! The driver looks an [`AsicDesc`] up once at probe, by PCI device id, and never asks for an ASIC
//! by name afterwards. A new ASIC is a new value here. Source per field: `amdgpu_drv.c` (ids),
//! `*_ip_offset.h` (bases), `kfd_device.c`, `gmc_v9_0.c`, `kfd_crat.c`.

use super::cwsr;
use super::doorbell::DoorbellLayout;
use super::pm4::MapProcessFlavour;
use super::pte::{
    Flavour,
    MtypePolicy, //
};
use super::regs::hub::clients;
use super::regs::hub::HubLayout;
use super::regs::nbio;
use super::regs::osssys::IhLayout;
use super::regs::sdma::SdmaLayout;
use super::regs::Reg;
use super::shader::{
    ShaderArray,
    MAX_ENGINES, //
};

/// PCI vendor of all ASICs.
pub(crate) const PCI_VENDOR: u16 = 0x1002;

/// IP blocks whose segment bases are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ip {
    /// Graphics and compute.
    Gc,
    /// Memory hub.
    Mmhub,
    /// Address translation hub.
    Athub,
    /// Interrupt handler.
    Osssys,
    /// Bus interface.
    Nbio,
    /// Host data path.
    Hdp,
    /// SDMA engine with its number.
    Sdma(u8),
    /// Security processor and power controller.
    Mp,
}

/// A version as `major.minor.revision`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct IpVersion(pub(crate) u8, pub(crate) u8, pub(crate) u8);

/// Versions of the blocks that decide about behaviour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IpVersions {
    /// Graphics and compute.
    pub(crate) gc: IpVersion,
    /// SDMA.
    pub(crate) sdma: IpVersion,
    /// Interrupt handler.
    pub(crate) osssys: IpVersion,
    /// Bus interface.
    pub(crate) nbio: IpVersion,
    /// Host data path.
    pub(crate) hdp: IpVersion,
    /// Security processor.
    pub(crate) mp0: IpVersion,
}

/// A cache as the topology reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cache {
    /// 1 or 2.
    pub(crate) level: u32,
    /// Size in KiB.
    pub(crate) size_kib: u32,
    /// Line in bytes.
    pub(crate) line: u32,
    /// Instruction instead of data.
    pub(crate) instruction: bool,
    /// Compute units that share one.
    pub(crate) cu_shared: u32,
}

/// Figures that only the topology shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TopologyFigures {
    /// Name in lower case.
    pub(crate) name: &'static str,
    /// Memory bus in bits.
    pub(crate) memory_width: u32,
    /// Caches.
    pub(crate) caches: &'static [Cache],
    /// Watch points of the debugger.
    pub(crate) watch_points: u32,
    /// `debug_prop` of the topology.
    pub(crate) debug_prop: u32,
    /// ECC of on-chip memory, `sramecc+` in ISA names.
    pub(crate) sram_ecc: bool,
}

/// Everything that a driver must know about an ASIC beyond what all gfx9 share.
#[derive(Debug)]
pub(crate) struct AsicDesc {
    /// Target name as compilers know it.
    pub(crate) name: &'static str,
    /// PCI device ids.
    pub(crate) pci_ids: &'static [u16],
    /// major * 10000 + minor * 100 + stepping.
    pub(crate) gfx_target_version: u32,
    /// Block versions.
    pub(crate) ip: IpVersions,
    /// Segment bases in dwords.
    pub(crate) bases: &'static [(Ip, &'static [u32])],
    /// First VMID that compute owns; 15 is the last.
    pub(crate) first_vmid: u32,
    /// Bus address bits.
    pub(crate) dma_bits: u32,
    /// Page-table flavour.
    pub(crate) pte: Flavour,
    /// How memory types are chosen.
    pub(crate) mtype: MtypePolicy,
    /// Layout of MAP_PROCESS.
    pub(crate) map_process: MapProcessFlavour,
    /// Retry faults can be chosen per VM; otherwise for the whole device.
    pub(crate) xnack_per_process: bool,
    /// MEC firmware from which SET_RESOURCES.enb_xnack_retry_disable_check works.
    pub(crate) xnack_check_firmware: Option<u32>,
    /// MEC firmware from which queues can have global wave sync (`kfd_gws_init`).
    pub(crate) gws_firmware: u32,
    /// MEC firmware from which trap handlers can distinguish exceptions (`kfd_topology_set_dbg_firmware_support`).
    pub(crate) debug_firmware: u32,
    /// Message of the power controller for the highest frequency of a clock.
    pub(crate) smu_max_frequency: u32,
    /// The memory clock in messages to the power controller (`PPCLK_UCLK`).
    pub(crate) smu_memory_clock: u32,
    /// CP_IQ_WAIT_TIME2.QUE_SLEEP is set at start (GC 9.4.1 and later).
    pub(crate) sets_que_sleep: bool,
    /// MQDs of compute queues live in VRAM and need an HDP flush after CPU writes.
    pub(crate) mqd_in_vram: bool,
    /// SPI_GDBG_PER_VMID_CNTL exists.
    pub(crate) per_vmid_debug: bool,
    /// COMPUTE_RESOURCE_LIMITS.FORCE_SIMD_DIST is set for GWS queues (GC 9.4.2 and later).
    pub(crate) force_simd_dist: bool,
    /// SDMA registers.
    pub(crate) sdma: &'static SdmaLayout,
    /// SDMA engines that the topology lists as general; the others are for XGMI.
    pub(crate) sdma_general_engines: u32,
    /// Graphics hub.
    pub(crate) gfxhub: HubLayout,
    /// Memory hub.
    pub(crate) mmhub: HubLayout,
    /// Doorbell indices.
    pub(crate) doorbell: DoorbellLayout,
    /// Interrupt handler.
    pub(crate) ih: IhLayout,
    /// Byte in BAR5 at which the HDP flush registers are made to re-appear.
    pub(crate) hdp_remap: u32,
    /// HDP_MISC_CNTL.READ_BUFFER_WATERMARK, where it is set.
    pub(crate) hdp_watermark: Option<u32>,
    /// Register with the silicon revision in bits 27 to 24.
    pub(crate) revision: Reg,
    /// Shader array.
    pub(crate) shader: ShaderArray,
    /// XCCs.
    pub(crate) num_xcc: u32,
    /// Wave save area of a device without a unit that is fused off, the largest that may be needed.
    pub(crate) cwsr: cwsr::Sizes,
    /// Largest save area that CP_HQD_CTX_SAVE_SIZE names: field [24:12], or [26:12] from gfx90a on.
    pub(crate) cwsr_max: u32,
    /// Figures of the topology.
    pub(crate) topology: TopologyFigures,
    /// Reset by a message to the power controller; otherwise by the security processor.
    pub(crate) reset_by_smu: bool,
}

/// Number of VMIDs.
pub(crate) const VMIDS: u32 = 16;
/// Units of global wave sync (`gfx_v9_0_sw_init`, `gws_size`).
const GWS: u32 = 64;
/// EOP buffer of a compute queue in bytes: what one of a program has at least, and what those of the kernel have.
pub(crate) const EOP_BYTES: u32 = 4096;

impl AsicDesc {
    /// VMIDs that compute owns, one bit each: 0xFFF8 for first VMID 3.
    pub(crate) const fn vmid_mask(&self) -> u16 {
        u16::MAX << self.first_vmid
    }

    /// Number of VMIDs that compute owns.
    pub(crate) const fn vmid_count(&self) -> u32 {
        VMIDS - self.first_vmid
    }

    /// Whether `vmid` belongs to compute.
    pub(crate) const fn owns_vmid(&self, vmid: u32) -> bool {
        vmid >= self.first_vmid && vmid < VMIDS
    }

    /// SDMA engines.
    pub(crate) const fn sdma_engines(&self) -> u32 {
        super::num::len32(self.sdma.engines.len())
    }

    /// Dword base of `segment` of `ip`, where the ASIC has it.
    pub(crate) fn base(&self, ip: Ip, segment: usize) -> Option<u32> {
        let entry = self.bases.iter().find(|entry| entry.0 == ip)?;
        entry.1.get(segment).copied()
    }

    /// Both hubs, graphics first.
    pub(crate) const fn hubs(&self) -> [&HubLayout; 2] {
        [&self.gfxhub, &self.mmhub]
    }

    /// Whether the scheduler may be asked to keep XNACK modes apart, given its firmware version.
    pub(crate) const fn xnack_check(&self, mec_firmware: u32) -> bool {
        match self.xnack_check_firmware {
            Some(first) => mec_firmware >= first,
            None => false,
        }
    }

    /// Whether the firmware has what second-generation trap handlers need.
    pub(crate) const fn has_debug_firmware(&self, mec_firmware: u32) -> bool {
        mec_firmware >= self.debug_firmware
    }

    /// Units of global wave sync that the scheduler may hand out, given its firmware version.
    pub(crate) const fn num_gws(&self, mec_firmware: u32) -> u32 {
        if mec_firmware >= self.gws_firmware {
            GWS
        } else {
            0
        }
    }
}

/// Waves need twice the vector registers from gfx908 on.
const VGPR_BYTES_SMALL: u32 = 0x4_0000;
const VGPR_BYTES_LARGE: u32 = 0x8_0000;

const GFX906_SHADER: ShaderArray = ShaderArray {
    engines: 4,
    arrays_per_engine: 1,
    max_cu_per_array: 16,
    simd_per_cu: 4,
    waves_per_simd: 10,
    vgpr_bytes_per_cu: VGPR_BYTES_SMALL,
    lds_kib: 64,
    wave_front: 64,
    scratch_slots_per_cu: 32,
};

const GFX90A_SHADER: ShaderArray = ShaderArray {
    engines: 8,
    arrays_per_engine: 1,
    max_cu_per_array: 14,
    simd_per_cu: 4,
    waves_per_simd: 8,
    vgpr_bytes_per_cu: VGPR_BYTES_LARGE,
    lds_kib: 64,
    wave_front: 64,
    scratch_slots_per_cu: 32,
};

/// L1 and L2 caches of a device whose scalar caches are shared by `sqc` compute units.
const fn caches(sqc: u32, l2_line: u32, l2_shared: u32) -> [Cache; 4] {
    [
        Cache {
            level: 1,
            size_kib: 16,
            line: 64,
            instruction: false,
            cu_shared: 1,
        },
        Cache {
            level: 1,
            size_kib: 32,
            line: 64,
            instruction: true,
            cu_shared: sqc,
        },
        Cache {
            level: 1,
            size_kib: 16,
            line: 64,
            instruction: false,
            cu_shared: sqc,
        },
        Cache {
            level: 2,
            size_kib: 8192,
            line: l2_line,
            instruction: false,
            cu_shared: l2_shared,
        },
    ]
}

static GFX906_CACHES: [Cache; 4] = caches(3, 64, 16);
static GFX90A_CACHES: [Cache; 4] = caches(2, 128, 14);

static GFX906_SDMA: SdmaLayout = SdmaLayout {
    engines: &[0x1260, 0x1860],
    page_block: 0xE0,
    rlc_block: 0x140,
    block_stride: 0x60,
    midcmd_cntl: 0x49,
    cntl: 0x1C,
    f32_cntl: 0x2A,
    f32_reset: false,
    long_count: false,
    ctxempty_int: false,
};

// Engines 2 and up use segment 1 of their IP (`sdma_v4_0.c` `sdma_v4_0_get_reg_offset`).
static GFX90A_SDMA: SdmaLayout = SdmaLayout {
    engines: &[0x1260, 0x1860, 0x1_E000, 0x1_E400, 0x1_E800],
    page_block: 0xD8,
    rlc_block: 0x130,
    block_stride: 0x58,
    midcmd_cntl: 0x4B,
    cntl: 0x1C,
    f32_cntl: 0x2A,
    f32_reset: true,
    long_count: true,
    ctxempty_int: true,
};

/// Vega20: MI50, MI60, Radeon VII.
pub(crate) static GFX906: AsicDesc = AsicDesc {
    name: "gfx906",
    pci_ids: &[0x66A0, 0x66A1, 0x66A2, 0x66A3, 0x66A4, 0x66A7, 0x66AF],
    gfx_target_version: 90006,
    ip: IpVersions {
        gc: IpVersion(9, 4, 0),
        sdma: IpVersion(4, 2, 0),
        osssys: IpVersion(4, 2, 0),
        nbio: IpVersion(7, 4, 0),
        hdp: IpVersion(4, 2, 0),
        mp0: IpVersion(11, 0, 2),
    },
    bases: &[
        (Ip::Gc, &[0x2000, 0xA000]),
        (Ip::Mmhub, &[0x1_A000]),
        (Ip::Athub, &[0xC20]),
        (Ip::Osssys, &[0x10A0]),
        (Ip::Nbio, &[0x0, 0x14, 0xD20, 0x1_0400]),
        (Ip::Hdp, &[0xF20]),
        (Ip::Sdma(0), &[0x1260]),
        (Ip::Sdma(1), &[0x1860]),
        (Ip::Mp, &[0x1_6000]),
    ],
    first_vmid: 8,
    dma_bits: 44,
    pte: Flavour::Plain,
    mtype: MtypePolicy::Vega,
    map_process: MapProcessFlavour::V9,
    xnack_per_process: false,
    xnack_check_firmware: None,
    gws_firmware: 0x1b3,
    debug_firmware: 459,
    smu_max_frequency: 0x2b,
    smu_memory_clock: 5,
    sets_que_sleep: false,
    mqd_in_vram: false,
    per_vmid_debug: false,
    force_simd_dist: false,
    sdma: &GFX906_SDMA,
    sdma_general_engines: 2,
    gfxhub: HubLayout {
        name: "gfxhub",
        base: 0x2000,
        l2: 0x840,
        mc: 0x96B,
        xgmi: None,
        flush_needs_semaphore: false,
        flush_needs_readback: true,
        clients: &clients::GFXHUB,
    },
    mmhub: HubLayout {
        name: "mmhub",
        base: 0x1_A000,
        l2: 0x680,
        mc: 0x817,
        xgmi: Some(0x823),
        flush_needs_semaphore: true,
        flush_needs_readback: false,
        clients: &clients::MMHUB_GFX906,
    },
    doorbell: DoorbellLayout::VEGA20,
    ih: IhLayout {
        rings: 3,
        retry_cam: 0xE9,
        chicken: 0x18C,
        set_chicken: false,
    },
    hdp_remap: 0x7_F000,
    hdp_watermark: None,
    revision: nbio::RCC_DEV0_EPF0_STRAP0_GFX906,
    shader: GFX906_SHADER,
    num_xcc: 1,
    cwsr: GFX906_SHADER.save_area(GFX906_SHADER.physical_units(), 1),
    cwsr_max: 0x01FF_F000,
    topology: TopologyFigures {
        name: "vega20",
        memory_width: 4096,
        caches: &GFX906_CACHES,
        watch_points: 4,
        debug_prop: 0x5D6,
        sram_ecc: true,
    },
    reset_by_smu: false,
};

/// Aldebaran, one die: MI210, MI250, MI250X. Figures are those of an MI210.
pub(crate) static GFX90A: AsicDesc = AsicDesc {
    name: "gfx90a",
    pci_ids: &[0x7408, 0x740C, 0x740F, 0x7410],
    gfx_target_version: 90010,
    ip: IpVersions {
        gc: IpVersion(9, 4, 2),
        sdma: IpVersion(4, 4, 0),
        osssys: IpVersion(4, 4, 0),
        nbio: IpVersion(7, 4, 4),
        hdp: IpVersion(4, 4, 0),
        mp0: IpVersion(13, 0, 2),
    },
    bases: &[
        (Ip::Gc, &[0x2000, 0xA000, 0x0240_2C00]),
        (Ip::Mmhub, &[0x1_A000, 0x0240_8800]),
        (Ip::Athub, &[0xC20, 0x0240_8C00]),
        (Ip::Osssys, &[0x10A0, 0x0240_A000]),
        (
            Ip::Nbio,
            &[0x0, 0x14, 0xD20, 0x1_0400, 0x0241_B000, 0x0404_0000],
        ),
        (Ip::Hdp, &[0xF20, 0x0240_A400]),
        (Ip::Sdma(0), &[0x1260, 0x1_2540, 0x0040_A800]),
        (Ip::Sdma(1), &[0x1860, 0x1_2560, 0x0040_AC00]),
        (Ip::Sdma(2), &[0x1_3760, 0x1_E000, 0x0042_EC00]),
        (Ip::Sdma(3), &[0x1_3780, 0x1_E400, 0x0042_F000]),
        (Ip::Sdma(4), &[0x1_37A0, 0x1_E800, 0x0042_F400]),
        (
            Ip::Mp,
            &[0x1_6000, 0x00DC_0000, 0x00E0_0000, 0x00E4_0000, 0x0243_FC00],
        ),
    ],
    first_vmid: 3,
    dma_bits: 48,
    pte: Flavour::TranslateFurther,
    mtype: MtypePolicy::Aldebaran,
    map_process: MapProcessFlavour::Aldebaran,
    xnack_per_process: true,
    xnack_check_firmware: Some(98),
    gws_firmware: 0x28,
    debug_firmware: 51,
    smu_max_frequency: 0x1d,
    smu_memory_clock: 4,
    sets_que_sleep: true,
    mqd_in_vram: true,
    per_vmid_debug: true,
    force_simd_dist: true,
    sdma: &GFX90A_SDMA,
    sdma_general_engines: 2,
    gfxhub: HubLayout {
        name: "gfxhub",
        base: 0x2000,
        l2: 0x840,
        mc: 0x96B,
        xgmi: Some(0x978),
        flush_needs_semaphore: false,
        flush_needs_readback: false,
        clients: &clients::GFXHUB,
    },
    mmhub: HubLayout {
        name: "mmhub",
        base: 0x1_A000,
        l2: 0xB80,
        mc: 0xCAB,
        xgmi: Some(0xCB8),
        flush_needs_semaphore: false,
        flush_needs_readback: false,
        clients: &clients::MMHUB_GFX90A,
    },
    doorbell: DoorbellLayout::VEGA20,
    ih: IhLayout {
        rings: 3,
        retry_cam: 0xEA,
        chicken: 0x18D,
        set_chicken: true,
    },
    hdp_remap: 0x7_F000,
    hdp_watermark: Some(2),
    revision: nbio::RCC_DEV0_EPF0_STRAP0_GFX90A,
    shader: GFX90A_SHADER,
    num_xcc: 1,
    cwsr: GFX90A_SHADER.save_area(GFX90A_SHADER.physical_units(), 1),
    cwsr_max: 0x07FF_F000,
    topology: TopologyFigures {
        name: "aldebaran",
        memory_width: 4096,
        caches: &GFX90A_CACHES,
        watch_points: 4,
        debug_prop: 0x1D6,
        sram_ecc: true,
    },
    reset_by_smu: true,
};

/// All supported ASICs.
pub(crate) static ASICS: [&AsicDesc; 2] = [&GFX90A, &GFX906];

// A mask of compute units has a bit for each unit of an engine, and masks for so many engines.
const _: () = {
    let mut i = 0;
    while i < ASICS.len() {
        let shader = &ASICS[i].shader;
        assert!(shader.arrays_per_engine == 1 && shader.max_cu_per_array <= 16);
        assert!(super::num::index(shader.engines) <= MAX_ENGINES);
        i += 1;
    }
};

/// The ASIC with the given PCI device id.
pub(crate) fn from_pci_device(device: u16) -> Option<&'static AsicDesc> {
    ASICS
        .iter()
        .copied()
        .find(|asic| asic.pci_ids.contains(&device))
}
