// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What can be wrong with a code object, or with a launch of its kernels.

use super::target::Target;

/// Errors of code objects and launches.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {
    /// The bytes are no ELF file that is whole.
    #[error("Not a code object: {0}")]
    Elf(String),
    /// An ELF file for something else.
    #[error("Not a code object of an AMD GPU: {what} is {found}, not {wanted}")]
    Foreign {
        /// The field of the ELF header.
        what: &'static str,
        /// Its value.
        found: u32,
        /// What it would have to be.
        wanted: u32,
    },
    /// A code object before linking, or another kind of file that is not loaded.
    #[error("Not a linked code object (ELF type {0}): ld.lld -shared makes one")]
    NotLinked(u16),
    /// A code object of a version that this library does not know.
    #[error("ELF ABI version {0} is not that of code object version 4, 5 or 6")]
    Version(u8),
    /// Code for another GPU.
    #[error("Compiled for {code}, which {gpu} does not run")]
    WrongIsa {
        /// What the code is for.
        code: Target,
        /// What the GPU is.
        gpu: Target,
    },
    /// A bundle without code for the GPU.
    #[error("No code for {gpu} in the bundle, which has: {found}")]
    NotInBundle {
        /// What the GPU is.
        gpu: Target,
        /// The bundle's entries.
        found: String,
    },
    /// A segment that cannot be.
    #[error("Segment at {address:#x} of {size:#x} bytes: {what}")]
    Segment {
        /// Its address in the file.
        address: u64,
        /// Its size in memory.
        size: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A relocation that cannot be made.
    #[error("Relocation of type {kind} at {address:#x}: {what}")]
    Relocation {
        /// Its type (`R_AMDGPU_*`).
        kind: u32,
        /// Where it would go.
        address: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A symbol that something refers to, and that the code object does not define.
    #[error("Symbol {0:?} is not defined")]
    Undefined(String),
    /// No symbol of that name.
    #[error("No symbol {0:?}")]
    NoSymbol(String),
    /// No kernel of that name.
    #[error("No kernel {name:?}; there are: {found}")]
    NoKernel {
        /// What was asked for.
        name: String,
        /// The kernels that there are.
        found: String,
    },
    /// Metadata that cannot be understood.
    #[error("Metadata: {0}")]
    Metadata(String),
    /// A kernel whose descriptor cannot be.
    #[error("Kernel {name:?}: {what}")]
    Kernel {
        /// Its name.
        name: String,
        /// What is wrong.
        what: &'static str,
    },
    /// An argument that does not fit the kernel's.
    #[error("Argument {index}: {what}")]
    Argument {
        /// Its number, from 0.
        index: usize,
        /// What is wrong.
        what: String,
    },
    /// Dimensions or memory that a launch cannot have.
    #[error("{what}: {value} where {limit} can be")]
    Launch {
        /// What is wrong.
        what: &'static str,
        /// What was asked for.
        value: u64,
        /// What there can be.
        limit: u64,
    },
}

/// Result of code objects and launches.
pub type Result<T> = std::result::Result<T, CodeError>;

impl From<object::Error> for CodeError {
    fn from(error: object::Error) -> Self {
        Self::Elf(error.to_string())
    }
}
