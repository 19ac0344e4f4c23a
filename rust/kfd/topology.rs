// SPDX-License-Identifier: GPL-2.0

//! The topology in sysfs: what machine this is, for user space that looks for GPUs.
//!
//! [`model`] turns facts into text, [`sysfs`] keeps directories in step with it. This module collects the
//! facts.
//!
//! Lock order: [`Topology::tree`] is innermost.

mod caches;
pub(crate) mod facts;
pub(crate) mod model;
mod sysfs;
pub(crate) mod text;

use crate::kapi::sysinfo;
use facts::{
    CpuFacts,
    GpuFacts,
    SystemFacts, //
};
use kernel::{
    device::Device,
    new_mutex,
    prelude::*,
    sync::Mutex, //
};
use sysfs::Tree;

/// The registered topology, until dropped.
#[pin_data]
pub(crate) struct Topology {
    cpus: KVec<CpuFacts>,
    #[pin]
    tree: Mutex<Tree>,
}

impl Topology {
    /// Registers the topology under the kfd device, with the nodes of the CPUs.
    ///
    /// # Errors
    ///
    /// What sysfs reports.
    pub(crate) fn new(parent: &Device) -> Result<Pin<KBox<Self>>> {
        let cpus = cpu_facts()?;
        let tree = Tree::new(parent, model::system_properties()?)?;
        let topology = KBox::pin_init(
            pin_init!(Self {
                cpus,
                tree <- new_mutex!(tree, "rkfd_topology"),
            }),
            GFP_KERNEL,
        )?;
        topology.update(&[])?;
        Ok(topology)
    }

    /// Makes `gpus` the GPUs of the topology.
    ///
    /// # Errors
    ///
    /// What sysfs reports.
    pub(crate) fn update(&self, gpus: &[GpuFacts]) -> Result {
        let nodes = model::nodes(&system_facts(), &self.cpus, gpus)?;
        self.tree.lock().update(nodes)
    }

    /// Number of nodes.
    pub(crate) fn node_count(&self) -> usize {
        self.tree.lock().len()
    }
}

fn system_facts() -> SystemFacts {
    SystemFacts {
        cpu_clock_mhz: sysinfo::cpu_clock_mhz(),
        amd_cpu: sysinfo::cpu_is_amd(),
    }
}

fn cpu_facts() -> Result<KVec<CpuFacts>> {
    let mut cpus = KVec::new();
    for node in sysinfo::numa_nodes() {
        let mut caches = KVec::new();
        for cache in node.caches() {
            caches.push(cache, GFP_KERNEL)?;
        }
        let cpu = CpuFacts {
            numa_node: node.number(),
            cores: node.cpus(),
            core_id_base: node.first_cpu_id(),
            memory: node.memory(),
            caches,
        };
        cpus.push(cpu, GFP_KERNEL)?;
    }
    Ok(cpus)
}
