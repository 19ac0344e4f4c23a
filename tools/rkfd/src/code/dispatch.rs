// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Launches: dimensions, arguments, and the packet.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use super::arguments::Filling;
use super::arguments::Value;
use super::error::CodeError;
use super::error::Result;
use super::metadata::ArgumentKind;
use super::object::KernelCode;
use super::program::Kernel;
use crate::device::Device;
use crate::error::Error;
use crate::memory::Buffer;
use crate::memory::Kind;
use crate::packet::aql;
use crate::packet::aql::Scope;

/// Work-items of the largest work-group.
pub const MOST_ITEMS: u64 = 1024;
/// Bytes of group memory that a work-group can have.
pub const MOST_GROUP_BYTES: u64 = 65536;
/// Bytes of private memory of a work-item where calls need what the compiler cannot count.
const STACK: u32 = 16384;

/// What the arguments that the source does not name are made from, apart from the dimensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Address of the queue's `amd_queue_t`.
    pub queue: u64,
    /// Base of private memory as a shader sees it.
    pub private_base: u64,
    /// Base of group memory as a shader sees it.
    pub group_base: u64,
}

/// A launch of a kernel.
#[derive(Clone, Debug)]
pub struct Dispatch<'k> {
    kernel: &'k Kernel,
    shape: Shape,
    completion: u64,
    packet: Flags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flags {
    barrier: bool,
    acquire: Scope,
    release: Scope,
}

/// What of a launch decides its arguments and memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    grid: [u32; 3],
    group: [u16; 3],
    offset: [u64; 3],
    group_bytes: u32,
    private_bytes: u32,
    arguments: Vec<Value>,
    raw: Option<Vec<u8>>,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            grid: [1; 3],
            group: [1; 3],
            offset: [0; 3],
            group_bytes: 0,
            private_bytes: 0,
            arguments: Vec::new(),
            raw: None,
        }
    }
}

/// What a launch needs, computed and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The bytes of the kernel's arguments.
    pub kernargs: Vec<u8>,
    /// Their alignment.
    pub kernarg_align: u32,
    /// Bytes of group memory of a work-group.
    pub group_bytes: u32,
    /// Bytes of private memory of a work-item.
    pub private_bytes: u32,
}

impl<'k> Dispatch<'k> {
    /// One work-item, without arguments; behind everything that the queue has, visible to the whole system.
    pub fn new(kernel: &'k Kernel) -> Self {
        Self {
            kernel,
            shape: Shape::default(),
            completion: 0,
            packet: Flags {
                barrier: true,
                acquire: Scope::System,
                release: Scope::System,
            },
        }
    }

    /// The kernel.
    pub fn kernel(&self) -> &'k Kernel {
        self.kernel
    }

    /// Work-items in x, y and z. They need not be a multiple of the work-group's.
    pub fn grid(mut self, items: [u32; 3]) -> Self {
        self.shape.grid = items;
        self
    }

    /// Work-items of a work-group in x, y and z.
    pub fn group(mut self, items: [u16; 3]) -> Self {
        self.shape.group = items;
        self
    }

    /// Number of the first work-item in x, y and z, as OpenCL's kernels see it.
    pub fn offset(mut self, items: [u64; 3]) -> Self {
        self.shape.offset = items;
        self
    }

    /// Adds bytes of group memory to the kernel's own (`extern __shared__` of HIP).
    pub fn dynamic_group_bytes(mut self, bytes: u32) -> Self {
        self.shape.group_bytes = bytes;
        self
    }

    /// At least as many bytes of private memory per work-item, for calls whose stack the compiler cannot count.
    pub fn private_bytes(mut self, bytes: u32) -> Self {
        self.shape.private_bytes = bytes;
        self
    }

    /// The next argument.
    pub fn argument(mut self, value: impl Into<Value>) -> Self {
        self.shape.arguments.push(value.into());
        self
    }

    /// All bytes of the arguments as they are, for a kernel that has no metadata.
    pub fn raw_arguments(mut self, bytes: &[u8]) -> Self {
        self.shape.raw = Some(bytes.to_vec());
        self
    }

    /// Address of the signal that is decremented when the kernel has ended.
    pub fn completion(mut self, signal: u64) -> Self {
        self.completion = signal;
        self
    }

    /// Whether it waits for everything that is in the queue before it.
    pub fn barrier(mut self, barrier: bool) -> Self {
        self.packet.barrier = barrier;
        self
    }

    /// How far memory is acquired before it and released after it.
    pub fn scopes(mut self, acquire: Scope, release: Scope) -> Self {
        self.packet.acquire = acquire;
        self.packet.release = release;
        self
    }

    /// Computes what it needs.
    ///
    /// # Errors
    /// As [`Shape::plan`].
    pub fn plan(&self, surroundings: &Surroundings) -> Result<Planned> {
        self.shape.plan(self.kernel.code(), surroundings)
    }

    /// The packet's dwords, and its header, which must be stored last; `kernargs` is where the arguments are.
    ///
    /// # Errors
    /// [`Error::Packet`] where an address is not aligned.
    pub fn encode(
        &self,
        planned: &Planned,
        kernargs: u64,
    ) -> crate::error::Result<([u32; aql::DWORDS], u16)> {
        let packet = aql::KernelDispatch {
            grid: self.shape.grid,
            group: self.shape.group,
            private_bytes: planned.private_bytes,
            group_bytes: planned.group_bytes,
            kernel_object: self.kernel.address(),
            kernargs,
            completion: self.completion,
            barrier: self.packet.barrier,
            acquire: self.packet.acquire,
            release: self.packet.release,
        };
        Ok(packet.encode()?)
    }
}

fn too_much(what: &'static str, value: u64, limit: u64) -> CodeError {
    CodeError::Launch { what, value, limit }
}

impl Shape {
    /// Checks a launch of `kernel` and computes what it needs.
    ///
    /// # Errors
    /// [`CodeError::Launch`] for dimensions or memory that cannot be, [`CodeError::Argument`] where arguments are too
    /// few, too many or of other sizes.
    pub fn plan(&self, kernel: &KernelCode, surroundings: &Surroundings) -> Result<Planned> {
        self.check_dimensions(kernel)?;
        let descriptor = &kernel.descriptor;
        // Of a kernel that says nothing of its arguments, the caller knows.
        let unsaid = self.raw.as_ref().map_or(0, Vec::len);
        let size = match kernel.kernarg_bytes() {
            0 => unsaid,
            said => said as usize, // CAST: 32 bits into 64.
        };
        let mut filling = Filling::new(size, descriptor.group_bytes);
        let mut align = 16;
        match (&kernel.metadata, &self.raw) {
            (_, Some(raw)) => {
                if !self.arguments.is_empty() || raw.len() > filling.bytes.len() {
                    return Err(CodeError::Argument {
                        index: 0,
                        what: format!(
                            "{} bytes for all arguments, which have {}",
                            raw.len(),
                            filling.bytes.len()
                        ),
                    });
                }
                filling.bytes[..raw.len()].copy_from_slice(raw);
            }
            (None, None) => self.demand_arguments(0)?,
            (Some(metadata), None) => {
                align = metadata.kernarg_align.max(align);
                let explicit = || metadata.arguments.iter().filter(|a| !a.kind.is_hidden());
                self.demand_arguments(explicit().count())?;
                for (n, (argument, value)) in explicit().zip(&self.arguments).enumerate() {
                    filling.put_explicit(n, argument, value)?;
                }
            }
        }
        let group_bytes = filling.group_end() + u64::from(self.group_bytes);
        if group_bytes > MOST_GROUP_BYTES {
            let what = "Bytes of group memory";
            return Err(too_much(what, group_bytes, MOST_GROUP_BYTES));
        }
        // CAST: below the limit, twice.
        let dynamic = (group_bytes - u64::from(descriptor.group_bytes)) as u32;
        let group_bytes = group_bytes as u32;
        if let (Some(metadata), None) = (&kernel.metadata, &self.raw) {
            for argument in metadata.arguments.iter().filter(|a| a.kind.is_hidden()) {
                let value = self.hidden(&argument.kind, dynamic, surroundings);
                filling.put(argument, &value.to_le_bytes());
            }
        }
        let stack = if descriptor.uses_dynamic_stack() {
            STACK
        } else {
            0
        };
        Ok(Planned {
            kernargs: filling.bytes,
            kernarg_align: align,
            group_bytes,
            private_bytes: descriptor.private_bytes.max(stack).max(self.private_bytes),
        })
    }

    fn demand_arguments(&self, wanted: usize) -> Result<()> {
        let given = self.arguments.len();
        if given == wanted {
            return Ok(());
        }
        Err(CodeError::Argument {
            index: given.min(wanted),
            what: format!("{given} arguments where the kernel has {wanted}"),
        })
    }

    fn check_dimensions(&self, kernel: &KernelCode) -> Result<()> {
        for (grid, group) in self.grid.iter().zip(self.group) {
            if *grid == 0 || group == 0 {
                return Err(too_much("Work-items in a dimension", 0, u32::MAX.into()));
            }
        }
        let items: u64 = self.group.iter().map(|n| u64::from(*n)).product();
        let metadata = kernel.metadata.as_ref();
        let most = match metadata.map_or(0, |m| m.max_group) {
            0 => MOST_ITEMS,
            most => MOST_ITEMS.min(most.into()),
        };
        if items > most {
            return Err(too_much("Work-items of a work-group", items, most));
        }
        let dimensions = self.grid.iter().zip(self.group);
        for (n, (grid, group)) in dimensions.enumerate() {
            let group = u32::from(group);
            if let Some(required) = metadata.and_then(|m| m.required_group) {
                let required = required[n];
                if required != group {
                    let what = "Work-items of a work-group in a dimension";
                    return Err(too_much(what, group.into(), required.into()));
                }
            }
            if metadata.is_some_and(|m| m.uniform_group) && grid % group != 0 {
                let what = "Work-items of the last work-group";
                return Err(too_much(what, (grid % group).into(), group.into()));
            }
        }
        Ok(())
    }

    fn hidden(&self, kind: &ArgumentKind, dynamic: u32, around: &Surroundings) -> u64 {
        let blocks = |n: usize| u64::from(self.grid[n] / u32::from(self.group[n]));
        let rest = |n: usize| u64::from(self.grid[n] % u32::from(self.group[n]));
        match kind {
            ArgumentKind::GlobalOffsetX => self.offset[0],
            ArgumentKind::GlobalOffsetY => self.offset[1],
            ArgumentKind::GlobalOffsetZ => self.offset[2],
            ArgumentKind::BlockCountX => blocks(0),
            ArgumentKind::BlockCountY => blocks(1),
            ArgumentKind::BlockCountZ => blocks(2),
            ArgumentKind::GroupSizeX => self.group[0].into(),
            ArgumentKind::GroupSizeY => self.group[1].into(),
            ArgumentKind::GroupSizeZ => self.group[2].into(),
            ArgumentKind::RemainderX => rest(0),
            ArgumentKind::RemainderY => rest(1),
            ArgumentKind::RemainderZ => rest(2),
            ArgumentKind::GridDims => aql::dimensions(self.grid, self.group).into(),
            ArgumentKind::DynamicLdsSize => dynamic.into(),
            ArgumentKind::PrivateBase => around.private_base >> 32,
            ArgumentKind::SharedBase => around.group_base >> 32,
            ArgumentKind::QueuePtr => around.queue,
            // Without a runtime there is no heap, no printf, no call of the host and no launch from kernels: null, which is
            // what their code looks for.
            _ => 0,
        }
    }
}

/// Memory for the arguments of launches: system memory, taken from its start to its end.
///
/// Arguments are to stay until their kernel has ended, which only the program knows: see [`Kernargs::clear`].
#[derive(Debug)]
pub struct Kernargs {
    buffer: Buffer,
    used: AtomicUsize,
}

impl Kernargs {
    /// Allocates at least `bytes`.
    ///
    /// # Errors
    /// Those of [`Buffer::new`].
    pub fn new(device: &Arc<Device>, bytes: usize) -> crate::error::Result<Self> {
        Ok(Self {
            buffer: Buffer::new(device, Kind::Gtt, bytes)?,
            used: AtomicUsize::new(0),
        })
    }

    /// Stores the arguments of a launch, and returns where.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] where there is no room.
    pub fn place(&self, planned: &Planned) -> crate::error::Result<u64> {
        // CAST: 32 bits into 64.
        let (align, size) = (planned.kernarg_align as usize, planned.kernargs.len());
        let full = |offset| Error::OutOfRange {
            offset,
            len: size,
            size: self.buffer.size(),
        };
        let mut offset = 0;
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                offset = used.checked_next_multiple_of(align)?;
                let end = offset.checked_add(size)?;
                (end <= self.buffer.size()).then_some(end)
            })
            .map_err(full)?;
        self.buffer.write_bytes(offset, &planned.kernargs)?;
        Ok(self.buffer.address() + offset as u64) // CAST: inside the buffer.
    }

    /// Gives all of it back. The caller has seen all kernels end whose arguments are here.
    pub fn clear(&mut self) {
        *self.used.get_mut() = 0;
    }
}

#[cfg(test)]
mod tests;
