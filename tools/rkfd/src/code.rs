// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Code objects: what a compiler makes for the GPU, loaded into its memory, and kernels launched from them.
//!
//! A code object is an ELF shared object (`AMDGPUUsage` of LLVM, versions 4 to 6). [`object::CodeObject`] reads one without
//! a GPU: segments, relocations, symbols, the kernels' descriptors (`NAME.kd`) and the metadata of its note. A
//! [`program::Program`] is one in the memory of a GPU. [`dispatch::Dispatch`] fills the kernel arguments, those that the
//! source does not name included, and makes the AQL packet.
//!
//! ```no_run
//! use rkfd::code::dispatch::Dispatch;
//! use rkfd::code::dispatch::Kernargs;
//! use rkfd::code::program::Program;
//! use rkfd::memory::{Buffer, Kind};
//! use rkfd::queue::{Queue, QueueKind, QueueOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let gpu = rkfd::device::Device::first()?;
//! let program = Program::load(&gpu, &std::fs::read("vadd.co")?)?;
//! let kernel = program.kernel("vadd")?;
//! let queue = Queue::new(&gpu, QueueOptions::new(QueueKind::Aql))?;
//! let (done, kernargs) = (rkfd::signal::Signals::new(&gpu, 1)?, Kernargs::new(&gpu, 4096)?);
//! let data = Buffer::new(&gpu, Kind::Gtt, 4096)?;
//! done.store(0, 1)?;
//! let dispatch = Dispatch::new(&kernel)
//!     .grid([1024, 1, 1])
//!     .group([64, 1, 1])
//!     .argument(&data)
//!     .argument(3.5f32)
//!     .completion(done.address(0)?);
//! queue.dispatch(&dispatch, &kernargs)?;
//! done.wait_below(0, 1, std::time::Duration::from_secs(5))?;
//! # Ok(())
//! # }
//! ```

pub mod arguments;
pub mod bundle;
pub mod descriptor;
pub mod dispatch;
pub mod error;
pub mod metadata;
pub mod object;
pub mod program;
pub mod target;
