// SPDX-License-Identifier: GPL-2.0

//! Facts about the machine: NUMA nodes, CPUs, and how a PCI function is connected.
//!
//! C headers: [`include/linux/nodemask.h`](srctree/include/linux/nodemask.h),
//! [`include/linux/topology.h`](srctree/include/linux/topology.h),
//! [`include/linux/cpufreq.h`](srctree/include/linux/cpufreq.h)

use crate::bindings as rkfd;
use kernel::pci;

/// An online NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NumaNode(i32);

impl NumaNode {
    /// The kernel's number of it.
    pub(crate) fn number(self) -> i32 {
        self.0
    }

    /// CPUs in it.
    pub(crate) fn cpus(self) -> u32 {
        // SAFETY: The node was online; the masks of all possible nodes stay.
        unsafe { rkfd::rkfd_node_cpus(self.0) }
    }

    /// Hardware id of its first CPU, 0 if it has none.
    pub(crate) fn first_cpu_id(self) -> u32 {
        // SAFETY: The node was online; the masks of all possible nodes stay.
        unsafe { rkfd::rkfd_node_first_cpu_id(self.0) }
    }

    /// The caches of its CPUs, each once.
    pub(crate) fn caches(self) -> impl Iterator<Item = CpuCache> {
        let next = move |after: i32| {
            // SAFETY: The node was online, and its mask stays; `after` may be any number.
            let cpu = unsafe { rkfd::rkfd_next_cpu_of_node(self.0, after) };
            u32::try_from(cpu).ok()
        };
        core::iter::successors(next(-1), move |cpu| next(i32::try_from(*cpu).ok()?))
            .flat_map(caches_of)
    }

    /// Bytes of memory that the kernel manages in it.
    pub(crate) fn memory(self) -> u64 {
        // SAFETY: The node was online, and the data of such a node stays.
        unsafe { rkfd::rkfd_node_memory(self.0) }
    }
}

/// A cache of one or more CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuCache {
    /// Hardware id of the first CPU that has it.
    pub(crate) processor: u32,
    /// 1 is next to the CPU.
    pub(crate) level: u32,
    /// Size in bytes.
    pub(crate) size: u32,
    /// Line in bytes.
    pub(crate) line: u32,
    /// Lines of one tag.
    pub(crate) lines_per_tag: u32,
    /// Ways that an address may be found in.
    pub(crate) ways: u32,
    /// Holds data.
    pub(crate) data: bool,
    /// Holds instructions.
    pub(crate) instructions: bool,
    /// Bit n of byte m: the CPU whose hardware id is greater by 8m + n has it, too.
    pub(crate) sharers: [u8; 32],
}

/// The caches of a CPU that is the first to have them.
fn caches_of(cpu: u32) -> impl Iterator<Item = CpuCache> {
    (0..).map_while(move |index| cache(cpu, index)).flatten()
}

/// Cache `index` of a CPU: `None` if there is none, `Some(None)` if another CPU is the first to have it.
fn cache(cpu: u32, index: u32) -> Option<Option<CpuCache>> {
    let mut raw = rkfd::rkfd_cpu_cache_info::default();
    // SAFETY: Takes any CPU number below `nr_cpu_ids`, as the masks of nodes have; `raw` can be written.
    let found = unsafe { rkfd::rkfd_cpu_cache(cpu, index, &mut raw) };
    match found {
        0 => Some(None),
        1 => Some(Some(CpuCache {
            processor: raw.processor,
            level: raw.level,
            size: raw.size,
            line: raw.line,
            lines_per_tag: raw.lines_per_tag,
            ways: raw.ways,
            data: raw.data,
            instructions: raw.instructions,
            sharers: raw.sharers,
        })),
        _ => None,
    }
}

/// The online NUMA nodes, by number.
pub(crate) fn numa_nodes() -> impl Iterator<Item = NumaNode> {
    let next = |after: i32| {
        // SAFETY: Takes any number.
        let node = unsafe { rkfd::rkfd_next_online_node(after) };
        (node >= 0).then_some(NumaNode(node))
    };
    core::iter::successors(next(-1), move |node| next(node.0))
}

/// The highest clock of CPU 0 in MHz: from cpufreq, else what the time-stamp counter runs at, else 0.
pub(crate) fn cpu_clock_mhz() -> u32 {
    // SAFETY: No requirement.
    unsafe { rkfd::rkfd_cpu_clock_mhz() }
}

/// Whether the CPUs are AMD's.
pub(crate) fn cpu_is_amd() -> bool {
    // SAFETY: No requirement.
    unsafe { rkfd::rkfd_cpu_is_amd() }
}

/// How a PCI function is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PciConnection {
    /// NUMA node, negative if unknown.
    pub(crate) numa_node: i32,
    /// Bandwidth to the root complex in MB/s, 0 if unknown.
    pub(crate) bandwidth: u32,
    /// The function may send atomics to the root complex.
    pub(crate) sends_atomics: bool,
    /// The function completes atomics.
    pub(crate) completes_atomics: bool,
}

/// How `pdev`, which must be bound, is connected. Enables atomics towards the root complex where the path
/// allows them.
pub(crate) fn pci_connection(pdev: &pci::Device) -> PciConnection {
    let raw = super::pci::as_raw(pdev);
    // SAFETY: `raw` is a valid device; these read its configuration space.
    unsafe {
        PciConnection {
            numa_node: rkfd::rkfd_pci_numa_node(raw),
            bandwidth: rkfd::rkfd_pci_bandwidth(raw),
            sends_atomics: rkfd::rkfd_pci_enable_atomics(raw),
            completes_atomics: rkfd::rkfd_pci_completes_atomics(raw),
        }
    }
}
