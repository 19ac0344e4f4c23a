// SPDX-License-Identifier: GPL-2.0

//! The content of the topology, from plain facts to text. No kernel state in here.
//!
//! Keys, their order and their meaning are those of upstream's `kfd_topology.c`; the thunk reads them
//! by name, but `sibling_map` must be the last key of a cache. Nodes are numbered without holes: CPUs
//! by NUMA node first, then GPUs.

use super::{
    caches,
    facts::{
        CpuFacts,
        GpuFacts,
        SystemFacts, //
    },
    text::{
        File,
        Lines, //
    },
};
use crate::hw::asic::AsicDesc;
use kernel::prelude::*;

/// Link types.
mod link {
    /// HyperTransport, between AMD CPUs.
    pub(super) const HYPERTRANSPORT: u32 = 1;
    /// PCI Express.
    pub(super) const PCIE: u32 = 2;
    /// QPI, between other CPUs.
    pub(super) const QPI: u32 = 5;

    /// The link works.
    pub(super) const ENABLED: u32 = 1 << 0;
    /// Caches of the two sides do not snoop each other.
    pub(super) const NON_COHERENT: u32 = 1 << 1;
    /// No 32-bit atomics across.
    pub(super) const NO_ATOMICS_32: u32 = 1 << 2;
    /// No 64-bit atomics across.
    pub(super) const NO_ATOMICS_64: u32 = 1 << 3;

    /// Distance over PCI Express.
    pub(super) const PCIE_WEIGHT: u32 = 20;
}

/// Bits of `capability`.
mod capability {
    /// Doorbells of 8 bytes (type 2 in bits 13:12).
    pub(super) const DOORBELL_TYPE_2: u32 = 2 << 12;
    /// Silicon revision in bits 25:22.
    pub(super) const REVISION_SHIFT: u32 = 22;
    /// Mask before the shift.
    pub(super) const REVISION_MASK: u32 = 0xf;
    /// ECC of on-chip memory; `sramecc+` in ISA names.
    pub(super) const SRAM_EDC: u32 = 1 << 26;
    /// The SVM call works.
    pub(super) const SVM: u32 = 1 << 27;
    /// The firmware has what second-generation trap handlers need.
    pub(super) const DEBUG_FIRMWARE: u32 = 1 << 29;
}

/// Heap types of memory banks.
mod heap {
    pub(super) const SYSTEM: u32 = 0;
    pub(super) const FRAMEBUFFER_PUBLIC: u32 = 1;
    pub(super) const FRAMEBUFFER_PRIVATE: u32 = 2;
}

/// Bits of a system memory bank's width.
const SYSTEM_MEMORY_WIDTH: u32 = 64;
/// First processor id of the first GPU; each GPU takes as many as it has compute units.
const FIRST_GPU_PROCESSOR: u32 = 0x8000_1000;
/// Queues of one SDMA engine (all gfx9).
const SDMA_QUEUES: u32 = 8;

/// The files of a node.
pub(crate) struct Node {
    /// `gpu_id`.
    pub(crate) gpu_id: File,
    /// `name`.
    pub(crate) name: File,
    /// `properties`.
    pub(crate) properties: File,
    /// `mem_banks/I/properties`.
    pub(crate) mem_banks: KVec<File>,
    /// `caches/I/properties`.
    pub(crate) caches: KVec<File>,
    /// `io_links/I/properties`.
    pub(crate) io_links: KVec<File>,
    /// `p2p_links/I/properties`.
    pub(crate) p2p_links: KVec<File>,
}

/// `system_properties`.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn system_properties() -> Result<File> {
    let mut file = Lines::new();
    file.property("platform_oem", 0u32)?;
    file.property("platform_id", 0u32)?;
    file.property("platform_rev", 1u32)?;
    Ok(file.finish())
}

/// All nodes.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn nodes(
    system: &SystemFacts,
    cpus: &[CpuFacts],
    gpus: &[GpuFacts],
) -> Result<KVec<Node>> {
    let mut nodes = KVec::with_capacity(cpus.len() + gpus.len(), GFP_KERNEL)?;
    for index in 0..cpus.len() {
        nodes.push(cpu_node(system, cpus, gpus, index)?, GFP_KERNEL)?;
    }
    let mut processor = FIRST_GPU_PROCESSOR;
    for (index, gpu) in gpus.iter().enumerate() {
        let node = cpus.len() + index;
        nodes.push(gpu_node(system, cpus, gpu, node, processor)?, GFP_KERNEL)?;
        processor = processor.wrapping_add(gpu.silicon.units.count());
    }
    Ok(nodes)
}

/// The CPU node that a GPU hangs on.
fn cpu_of(cpus: &[CpuFacts], gpu: &GpuFacts) -> usize {
    cpus.iter()
        .position(|cpu| cpu.numa_node == gpu.numa_node)
        .unwrap_or(0)
}

fn id(index: usize) -> Result<u32> {
    Ok(u32::try_from(index)?)
}

fn count<T>(items: &[T]) -> Result<u32> {
    id(items.len())
}

fn no_atomics(atomics: bool) -> u32 {
    if atomics {
        0
    } else {
        link::NO_ATOMICS_32 | link::NO_ATOMICS_64
    }
}

struct Link {
    kind: u32,
    from: usize,
    to: usize,
    weight: u32,
    bandwidth: u32,
    flags: u32,
}

impl Link {
    fn file(&self) -> Result<File> {
        let mut file = Lines::new();
        file.property("type", self.kind)?;
        file.property("version_major", 0u32)?;
        file.property("version_minor", 0u32)?;
        file.property("node_from", id(self.from)?)?;
        file.property("node_to", id(self.to)?)?;
        file.property("weight", self.weight)?;
        file.property("min_latency", 0u32)?;
        file.property("max_latency", 0u32)?;
        file.property("min_bandwidth", self.bandwidth)?;
        file.property("max_bandwidth", self.bandwidth)?;
        file.property("recommended_transfer_size", 0u32)?;
        file.property("recommended_sdma_engine_id_mask", 0u32)?;
        file.property("flags", self.flags)?;
        Ok(file.finish())
    }
}

fn mem_bank(kind: u32, size: u64, width: u32, clock: u32) -> Result<File> {
    let mut file = Lines::new();
    file.property("heap_type", kind)?;
    file.property("size_in_bytes", size)?;
    file.property("flags", 0u32)?;
    file.property("width", width)?;
    file.property("mem_clk_max", clock)?;
    Ok(file.finish())
}

fn one(file: File) -> Result<KVec<File>> {
    let mut list = KVec::with_capacity(1, GFP_KERNEL)?;
    list.push(file, GFP_KERNEL)?;
    Ok(list)
}

fn cpu_node(
    system: &SystemFacts,
    cpus: &[CpuFacts],
    gpus: &[GpuFacts],
    index: usize,
) -> Result<Node> {
    let cpu = cpus.get(index).ok_or(EINVAL)?;

    let mut io_links = KVec::new();
    for other in (0..cpus.len()).filter(|other| *other != index) {
        let kind = if system.amd_cpu {
            link::HYPERTRANSPORT
        } else {
            link::QPI
        };
        let link = Link {
            kind,
            from: index,
            to: other,
            weight: 0,
            bandwidth: 0,
            flags: link::ENABLED,
        };
        io_links.push(link.file()?, GFP_KERNEL)?;
    }
    // The CPU reaches a GPU's memory through a large BAR only.
    for (position, gpu) in gpus.iter().enumerate() {
        if !gpu.large_bar || cpu_of(cpus, gpu) != index {
            continue;
        }
        let link = Link {
            kind: link::PCIE,
            from: index,
            to: cpus.len() + position,
            weight: link::PCIE_WEIGHT,
            bandwidth: gpu.bandwidth,
            flags: link::ENABLED | link::NON_COHERENT | no_atomics(gpu.completes_atomics),
        };
        io_links.push(link.file()?, GFP_KERNEL)?;
    }

    let mem_banks = one(mem_bank(heap::SYSTEM, cpu.memory, SYSTEM_MEMORY_WIDTH, 0)?)?;
    let mut caches = KVec::new();
    // Clients take the level for an index that begins at 1.
    for cache in cpu.caches.iter().filter(|cache| cache.level > 0) {
        caches.push(caches::of_cpu(cache)?, GFP_KERNEL)?;
    }
    let mut file = Lines::new();
    let common = Common {
        cpu_cores: cpu.cores,
        cpu_core_id_base: cpu.core_id_base,
        mem_banks: count(&mem_banks)?,
        caches: count(&caches)?,
        io_links: count(&io_links)?,
        ..Common::default()
    };
    common.write(&mut file)?;
    file.property("max_engine_clk_ccompute", system.cpu_clock_mhz)?;

    Ok(Node {
        gpu_id: number(0)?,
        name: line("")?,
        properties: file.finish(),
        mem_banks,
        caches,
        io_links,
        p2p_links: KVec::new(),
    })
}

/// A file with one number.
///
/// # Errors
///
/// `ENOMEM`.
pub(super) fn number(value: u32) -> Result<File> {
    let mut file = Lines::new();
    file.number(value)?;
    Ok(file.finish())
}

fn line(text: &str) -> Result<File> {
    let mut file = Lines::new();
    file.line(text)?;
    Ok(file.finish())
}

fn gpu_node(
    system: &SystemFacts,
    cpus: &[CpuFacts],
    gpu: &GpuFacts,
    index: usize,
    processor: u32,
) -> Result<Node> {
    let asic = gpu.asic;
    let (figures, silicon) = (&asic.topology, &gpu.silicon);

    let kind = if gpu.large_bar {
        heap::FRAMEBUFFER_PUBLIC
    } else {
        heap::FRAMEBUFFER_PRIVATE
    };
    let mem_banks = one(mem_bank(
        kind,
        gpu.vram,
        figures.memory_width,
        silicon.memory_clock_mhz,
    )?)?;
    let mut caches = KVec::new();
    for cache in figures.caches {
        caches::of_gpu(&mut caches, gpu, cache, processor)?;
    }
    let io_links = one(Link {
        kind: link::PCIE,
        from: index,
        to: cpu_of(cpus, gpu),
        weight: link::PCIE_WEIGHT,
        bandwidth: gpu.bandwidth,
        flags: link::ENABLED | no_atomics(gpu.sends_atomics),
    }
    .file()?)?;

    let mut file = Lines::new();
    let common = Common {
        simd: silicon.units.count() * asic.shader.simd_per_cu,
        mem_banks: count(&mem_banks)?,
        caches: count(&caches)?,
        io_links: count(&io_links)?,
        simd_id_base: processor,
        gpu: Some((gpu, asic)),
        ..Common::default()
    };
    common.write(&mut file)?;

    file.property("max_engine_clk_fcompute", silicon.engine_clock_mhz)?;
    file.property("local_mem_size", 0u32)?;
    file.property("fw_version", silicon.mec_firmware)?;
    let mut bits = capability::DOORBELL_TYPE_2
        | capability::SVM
        | (gpu.revision & capability::REVISION_MASK) << capability::REVISION_SHIFT;
    if asic.has_debug_firmware(silicon.mec_firmware) {
        bits |= capability::DEBUG_FIRMWARE;
    }
    if figures.sram_ecc {
        bits |= capability::SRAM_EDC;
    }
    file.property("capability", bits)?;
    file.property("capability2", 0u32)?;
    // There is no debugger face, hence no watch points to describe.
    file.property("debug_prop", 0u32)?;
    file.property("sdma_fw_version", silicon.sdma_firmware)?;
    // The fuses that hold it are not read.
    file.property("unique_id", 0u32)?;
    file.property("num_xcc", asic.num_xcc)?;
    file.property("max_engine_clk_ccompute", system.cpu_clock_mhz)?;

    Ok(Node {
        gpu_id: number(gpu.gpu_id)?,
        name: line(figures.name)?,
        properties: file.finish(),
        mem_banks,
        caches,
        io_links,
        // Peers are not mapped into each other.
        p2p_links: KVec::new(),
    })
}

/// The properties that every node has.
#[derive(Default)]
struct Common<'a> {
    cpu_cores: u32,
    simd: u32,
    mem_banks: u32,
    caches: u32,
    io_links: u32,
    cpu_core_id_base: u32,
    simd_id_base: u32,
    gpu: Option<(&'a GpuFacts, &'static AsicDesc)>,
}

impl Common<'_> {
    fn write(&self, file: &mut Lines) -> Result {
        let asic = |get: fn(&AsicDesc) -> u32| self.gpu.map_or(0, |(_, asic)| get(asic));
        let gpu = |get: fn(&GpuFacts) -> u32| self.gpu.map_or(0, |(gpu, _)| get(gpu));

        file.property("cpu_cores_count", self.cpu_cores)?;
        file.property("simd_count", self.simd)?;
        file.property("mem_banks_count", self.mem_banks)?;
        file.property("caches_count", self.caches)?;
        file.property("io_links_count", self.io_links)?;
        file.property("p2p_links_count", 0u32)?;
        file.property("cpu_core_id_base", self.cpu_core_id_base)?;
        file.property("simd_id_base", self.simd_id_base)?;
        file.property("max_waves_per_simd", asic(|a| a.shader.waves_per_simd))?;
        file.property("lds_size_in_kb", asic(|a| a.shader.lds_kib))?;
        file.property("gds_size_in_kb", 0u32)?;
        file.property("num_gws", gpu(|g| g.num_gws))?;
        file.property("wave_front_size", asic(|a| a.shader.wave_front))?;
        file.property("array_count", asic(|a| a.shader.array_count()))?;
        file.property(
            "simd_arrays_per_engine",
            asic(|a| a.shader.arrays_per_engine),
        )?;
        file.property("cu_per_simd_array", asic(|a| a.shader.max_cu_per_array))?;
        file.property("simd_per_cu", asic(|a| a.shader.simd_per_cu))?;
        file.property(
            "max_slots_scratch_cu",
            asic(|a| a.shader.scratch_slots_per_cu),
        )?;
        file.property("gfx_target_version", asic(|a| a.gfx_target_version))?;
        file.property("vendor_id", gpu(|g| g.vendor_id))?;
        file.property("device_id", gpu(|g| g.device_id))?;
        file.property("location_id", gpu(|g| g.location_id))?;
        file.property("domain", gpu(|g| g.domain))?;
        file.property("drm_render_minor", gpu(|g| g.render_minor))?;
        file.property("hive_id", 0u32)?;
        file.property("num_sdma_engines", asic(|a| a.sdma_general_engines))?;
        // The engines for XGMI need an XGMI link to be of use.
        file.property("num_sdma_xgmi_engines", 0u32)?;
        file.property(
            "num_sdma_queues_per_engine",
            if self.gpu.is_some() { SDMA_QUEUES } else { 0 },
        )?;
        file.property("num_cp_queues", gpu(|g| g.cp_queues))?;
        file.property("cwsr_size", gpu(|g| g.save_area().cwsr))?;
        file.property("ctl_stack_size", gpu(|g| g.save_area().ctl_stack))
    }
}
