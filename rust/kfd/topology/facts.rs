// SPDX-License-Identifier: GPL-2.0

//! What the topology is made from.

use crate::{
    gpu::silicon::Silicon,
    hw::{
        asic::AsicDesc,
        cwsr, //
    },
    kapi::sysinfo::CpuCache,
};
use kernel::prelude::*;

/// A NUMA node.
pub(crate) struct CpuFacts {
    /// The kernel's number of it.
    pub(crate) numa_node: i32,
    /// CPUs.
    pub(crate) cores: u32,
    /// Hardware id of the first CPU.
    pub(crate) core_id_base: u32,
    /// Memory in bytes.
    pub(crate) memory: u64,
    /// Caches of the CPUs, each once.
    pub(crate) caches: KVec<CpuCache>,
}

/// What all nodes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SystemFacts {
    /// CPU clock in MHz, 0 if unknown.
    pub(crate) cpu_clock_mhz: u32,
    /// The CPUs are AMD's.
    pub(crate) amd_cpu: bool,
}

/// A GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuFacts {
    /// Id, not 0.
    pub(crate) gpu_id: u32,
    /// The ASIC.
    pub(crate) asic: &'static AsicDesc,
    /// Usable video memory in bytes.
    pub(crate) vram: u64,
    /// The CPU reaches all of it.
    pub(crate) large_bar: bool,
    /// PCI vendor id.
    pub(crate) vendor_id: u32,
    /// PCI device id.
    pub(crate) device_id: u32,
    /// Bus << 8 | device and function.
    pub(crate) location_id: u32,
    /// PCI domain.
    pub(crate) domain: u32,
    /// Silicon revision.
    pub(crate) revision: u32,
    /// Number of the render node, 0 if there is none.
    pub(crate) render_minor: u32,
    /// Compute queues that the hardware holds at once.
    pub(crate) cp_queues: u32,
    /// Units of global wave sync that a queue can have.
    pub(crate) num_gws: u32,
    /// NUMA node that it hangs on, negative if unknown.
    pub(crate) numa_node: i32,
    /// Bandwidth of its PCIe link in MB/s, 0 if unknown.
    pub(crate) bandwidth: u32,
    /// It may send atomics to the root complex.
    pub(crate) sends_atomics: bool,
    /// It completes atomics that the CPU side sends.
    pub(crate) completes_atomics: bool,
    /// What differs between devices of the ASIC.
    pub(crate) silicon: Silicon,
}

impl GpuFacts {
    /// Sizes of the wave save area of a queue.
    pub(super) fn save_area(&self) -> cwsr::Sizes {
        let units = self.silicon.units.count();
        self.asic.shader.save_area(units, self.asic.num_xcc)
    }
}
