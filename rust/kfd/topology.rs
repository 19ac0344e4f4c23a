// SPDX-License-Identifier: GPL-2.0

//! The topology in sysfs.

use kernel::{
    device::Device,
    prelude::*, //
};

/// The registered topology.
pub(crate) struct Topology {}

impl Topology {
    /// Registers the topology under the kfd device.
    ///
    /// # Errors
    ///
    /// What sysfs reports.
    pub(crate) fn new(_parent: &Device) -> Result<Self> {
        Ok(Self {})
    }
}

/// Number of nodes with CPUs.
pub(crate) fn cpu_node_count() -> usize {
    1
}
