// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The memory of areas.

use std::sync::atomic::AtomicU64;
use std::sync::Arc;

use super::layout::Shape;
use super::near;
use super::ring::Memory;
use super::ring::View;
use crate::device::Device;
use crate::error::Result;
use crate::memory::Buffer;
use crate::memory::Kind;
use crate::sys::Mapping;
use crate::sys::PAGE;

/// Memory of an area: mapped, whole words, at one address as long as the value lives.
#[derive(Debug)]
pub(super) enum Words {
    /// System memory that a GPU sees; the driver keeps it where it is.
    Gpu(Buffer),
    /// The process's own.
    Own(Mapping),
}

impl Words {
    /// Where it begins.
    pub(super) fn address(&self) -> u64 {
        match self {
            Self::Gpu(buffer) => buffer.address(),
            Self::Own(mapping) => mapping.address() as u64, // CAST: a 64-bit process.
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Gpu(buffer) => buffer.size(),
            Self::Own(mapping) => mapping.size(),
        }
    }
}

impl Memory for Words {
    type Word = AtomicU64;

    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset % 8 == 0 && offset + 8 <= self.bytes());
        let base = self.address() as usize as *mut u8; // CAST: a 64-bit process.
                                                       // SAFETY: callers compute offsets from a checked shape whose bytes the memory has, so the word is inside and
                                                       // aligned; the memory lives as long as `self`, and all access to it is atomic, the GPU's included.
        unsafe { AtomicU64::from_ptr(base.add(offset).cast()) }
    }
}

/// An area, and where its memory is.
#[derive(Debug)]
pub(super) struct Area {
    pub(super) view: View<Words>,
    /// The node that its memory was asked from, if any.
    pub(super) node: Option<u32>,
    /// CPUs near it.
    pub(super) cpus: Option<Vec<usize>>,
}

impl Area {
    /// That of a GPU: memory that the driver pins, on the GPU's node if it is to be `near`.
    pub(super) fn of_gpu(
        device: &Arc<Device>,
        shape: Shape,
        number: usize,
        near: bool,
    ) -> Result<Self> {
        let pci = device.pci().map(|pci| pci.address.as_str());
        let node = pci.filter(|_| near).and_then(near::node_of);
        // The driver takes all pages during the call, by the policy of the thread that makes it.
        let buffer = near::on_node(node, || Buffer::new(device, Kind::Gtt, shape.bytes()))?;
        Ok(Self {
            view: View::new(Words::Gpu(buffer), shape, number as u32), // CAST: a count of GPUs.
            node,
            cpus: pci.and_then(near::cpus_of),
        })
    }

    /// Tasks in its rings that nobody has taken.
    pub(super) fn ready(&self) -> u64 {
        let rings = 0..self.view.shape().rings();
        rings.map(|ring| self.view.ready(ring)).sum()
    }

    /// That of the program's own tasks.
    pub(super) fn of_program(shape: Shape, number: usize) -> Result<Self> {
        let mapping = Mapping::anonymous(shape.bytes().next_multiple_of(PAGE))?;
        Ok(Self {
            view: View::new(Words::Own(mapping), shape, number as u32), // CAST: a count of areas.
            node: None,
            cpus: None,
        })
    }
}
