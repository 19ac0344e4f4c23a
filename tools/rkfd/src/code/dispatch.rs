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
mod tests {
    use super::*;
    use crate::code::descriptor::Descriptor;
    use crate::code::descriptor::BYTES;
    use crate::code::metadata::ArgumentMetadata;
    use crate::code::metadata::KernelMetadata;

    const AROUND: Surroundings = Surroundings {
        queue: 0x7f00_0000_1000,
        private_base: 2 << 48,
        group_base: 1 << 48,
    };

    fn argument(offset: u32, size: u32, kind: ArgumentKind) -> ArgumentMetadata {
        ArgumentMetadata {
            name: String::new(),
            offset,
            size,
            kind,
            pointee_align: 64,
        }
    }

    /// With 100 bytes of group memory of its own.
    fn kernel(arguments: Vec<ArgumentMetadata>) -> KernelCode {
        let mut bytes = [0; BYTES];
        bytes[0] = 100;
        KernelCode {
            name: "k".into(),
            address: 0,
            descriptor: Descriptor::parse(&bytes),
            metadata: Some(KernelMetadata {
                kernarg_bytes: arguments
                    .iter()
                    .map(|a| a.offset + a.size)
                    .max()
                    .unwrap_or(0),
                arguments,
                max_group: 256,
                ..KernelMetadata::default()
            }),
        }
    }

    fn shape(grid: [u32; 3], group: [u16; 3], arguments: Vec<Value>) -> Shape {
        Shape {
            grid,
            group,
            arguments,
            ..Shape::default()
        }
    }

    #[test]
    fn arguments_go_where_they_belong() {
        let kernel = kernel(vec![
            argument(0, 8, ArgumentKind::GlobalBuffer),
            argument(8, 4, ArgumentKind::DynamicShared),
            argument(12, 4, ArgumentKind::DynamicShared),
            argument(16, 2, ArgumentKind::ByValue),
        ]);
        let values = vec![
            Value::Address(0x1122_3344_5566),
            Value::Local(10),
            Value::Local(1000),
            0x7788u16.into(),
        ];
        let planned = shape([64, 1, 1], [64, 1, 1], values)
            .plan(&kernel, &AROUND)
            .unwrap();
        // Behind the kernel's own, each on 64 bytes.
        let wanted = [
            &0x1122_3344_5566u64.to_le_bytes()[..],
            &128u32.to_le_bytes(),
            &192u32.to_le_bytes(),
            &0x7788u16.to_le_bytes(),
        ];
        assert_eq!(planned.kernargs, wanted.concat());
        assert_eq!((planned.group_bytes, planned.kernarg_align), (1192, 16));
    }

    #[test]
    fn hidden_arguments_tell_of_the_launch() {
        let kinds = [
            (ArgumentKind::BlockCountX, 4, 2u64),
            (ArgumentKind::BlockCountY, 4, 1),
            (ArgumentKind::BlockCountZ, 4, 5),
            (ArgumentKind::GroupSizeX, 2, 16),
            (ArgumentKind::GroupSizeY, 2, 8),
            (ArgumentKind::GroupSizeZ, 2, 1),
            (ArgumentKind::RemainderX, 2, 4),
            (ArgumentKind::RemainderY, 2, 1),
            (ArgumentKind::RemainderZ, 2, 0),
            (ArgumentKind::GridDims, 2, 3),
            (ArgumentKind::GlobalOffsetX, 8, 7),
            (ArgumentKind::GlobalOffsetY, 8, 1 << 40),
            (ArgumentKind::GlobalOffsetZ, 8, 0),
            (ArgumentKind::DynamicLdsSize, 4, 300),
            (ArgumentKind::PrivateBase, 4, 0x2_0000),
            (ArgumentKind::SharedBase, 4, 0x1_0000),
            (ArgumentKind::QueuePtr, 8, 0x7f00_0000_1000),
            (ArgumentKind::HostcallBuffer, 8, 0),
            (ArgumentKind::Other("hidden_of_tomorrow".into()), 8, 0),
        ];
        let (mut offset, mut arguments, mut wanted) = (0, Vec::new(), Vec::new());
        for (kind, size, value) in kinds {
            arguments.push(argument(offset, size, kind));
            wanted.extend(&value.to_le_bytes()[..size as usize]);
            offset += size;
        }
        let shape = Shape {
            offset: [7, 1 << 40, 0],
            group_bytes: 300,
            ..shape([36, 9, 5], [16, 8, 1], vec![])
        };
        let planned = shape.plan(&kernel(arguments), &AROUND).unwrap();
        assert_eq!(planned.kernargs, wanted);
        assert_eq!(planned.group_bytes, 400);
    }

    #[test]
    fn launches_that_cannot_be_are_refused() {
        let plain = || kernel(vec![argument(0, 4, ArgumentKind::ByValue)]);
        let plan = |kernel: KernelCode, grid, group, values| {
            let planned = shape(grid, group, values).plan(&kernel, &AROUND);
            planned.unwrap_err().to_string()
        };
        let one = || vec![Value::from(1u32)];
        let (grid, group) = ([64, 1, 1], [64, 1, 1]);
        let mut required = plain();
        let mut uniform = plain();
        if let (Some(r), Some(u)) = (&mut required.metadata, &mut uniform.metadata) {
            r.required_group = Some([32, 1, 1]);
            u.uniform_group = true;
        }
        let mut bare = plain();
        bare.metadata = None;
        for (error, text) in [
            (plan(plain(), [0, 1, 1], group, one()), "in a dimension: 0"),
            (plan(plain(), grid, [64, 0, 1], one()), "in a dimension: 0"),
            (
                plan(plain(), grid, [64, 5, 1], one()),
                "of a work-group: 320 where 256",
            ),
            (
                plan(plain(), grid, [u16::MAX; 3], one()),
                "where 256 can be",
            ),
            (
                plan(required, grid, group, one()),
                "in a dimension: 64 where 32",
            ),
            (
                plan(uniform, [65, 1, 1], group, one()),
                "last work-group: 1 where 64",
            ),
            (
                plan(plain(), grid, group, vec![]),
                "0 arguments where the kernel has 1",
            ),
            (
                plan(bare, grid, group, one()),
                "1 arguments where the kernel has 0",
            ),
            (
                plan(plain(), grid, group, vec![1u64.into()]),
                "8 bytes where it has 4",
            ),
            (
                plan(plain(), grid, group, vec![Value::Address(1)]),
                "an address for 4 bytes",
            ),
            (
                plan(plain(), grid, group, vec![Value::Local(1)]),
                "takes no size",
            ),
            (
                plan(
                    kernel(vec![argument(0, 4, ArgumentKind::DynamicShared)]),
                    grid,
                    group,
                    vec![Value::Local(65409)],
                ),
                "group memory: 65537 where 65536",
            ),
        ] {
            assert!(error.contains(text), "{error}: {text}");
        }
    }

    #[test]
    fn bytes_of_all_arguments_are_taken_as_they_are() {
        let mut bare = kernel(vec![]);
        bare.metadata = None;
        let raw = |bytes: &[u8]| Shape {
            raw: Some(bytes.to_vec()),
            ..shape([1; 3], [1; 3], vec![])
        };
        // The kernel does not say how many it has.
        assert_eq!(
            raw(&[1, 2, 3]).plan(&bare, &AROUND).unwrap().kernargs,
            [1, 2, 3]
        );
        bare.descriptor.kernarg_bytes = 4;
        assert_eq!(
            raw(&[1, 2, 3]).plan(&bare, &AROUND).unwrap().kernargs,
            [1, 2, 3, 0]
        );
        assert!(raw(&[0; 5]).plan(&bare, &AROUND).is_err());
        // A stack that nobody counted, and what the caller asks for.
        bare.descriptor.properties = 1 << 11;
        assert_eq!(raw(&[]).plan(&bare, &AROUND).unwrap().private_bytes, STACK);
        let more = Shape {
            private_bytes: 20000,
            ..raw(&[])
        };
        assert_eq!(more.plan(&bare, &AROUND).unwrap().private_bytes, 20000);
    }
}
