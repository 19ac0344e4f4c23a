// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Code objects in the memory of a GPU.

use std::sync::Arc;

use super::bundle;
use super::dispatch::Dispatch;
use super::dispatch::Kernargs;
use super::dispatch::Surroundings;
use super::error::CodeError;
use super::object::CodeObject;
use super::object::KernelCode;
use super::object::Symbol;
use super::target::Target;
use crate::device::Device;
use crate::error::Error;
use crate::error::Result;
use crate::memory::Buffer;
use crate::memory::Kind;
use crate::queue::Queue;

/// A code object on a GPU. It stays there while the program or one of its kernels lives; the kernels' ends on the GPU
/// are the caller's concern.
#[derive(Debug)]
pub struct Program {
    object: CodeObject,
    image: Buffer,
}

impl Program {
    /// Loads a code object, or of a bundle the one for this GPU, into VRAM that the GPU may execute.
    ///
    /// # Errors
    /// [`Error::Code`] for what is none, or none for this GPU; those of [`Buffer::new`].
    pub fn load(device: &Arc<Device>, bytes: &[u8]) -> Result<Arc<Self>> {
        let gpu = Target::of_device(device).ok_or(Error::Argument(
            "It is not known which instruction set the GPU has",
        ))?;
        let object = CodeObject::parse(bundle::code_for(bytes, &gpu)?)?;
        if !object.target().runs_on(&gpu) {
            return Err(Error::Code(CodeError::WrongIsa {
                code: object.target(),
                gpu,
            }));
        }
        let size = usize::try_from(object.bytes())
            .map_err(|_| Error::Argument("A code object beyond the address space"))?;
        // Memory of the kernel comes cleared, and so are the parts that the file has not.
        let image = Buffer::new(device, Kind::Vram, size)?;
        for (offset, bytes) in object.stores(image.address()) {
            // CAST: inside the image.
            image.write_bytes(offset as usize, &bytes)?;
        }
        device.flush_host_data_path();
        Ok(Arc::new(Self { object, image }))
    }

    /// The code object.
    pub fn object(&self) -> &CodeObject {
        &self.object
    }

    /// Where the image begins.
    pub fn address(&self) -> u64 {
        self.image.address()
    }

    /// Its memory on the GPU.
    pub fn image(&self) -> &Buffer {
        &self.image
    }

    /// Address and size of a symbol, such as a variable's.
    ///
    /// # Errors
    /// [`Error::Code`].
    pub fn symbol(&self, name: &str) -> Result<Symbol> {
        let symbol = self.object.symbol(name)?;
        Ok(Symbol {
            address: self.image.address() + symbol.address,
            ..symbol
        })
    }

    /// A kernel.
    ///
    /// # Errors
    /// [`Error::Code`].
    pub fn kernel(self: &Arc<Self>, name: &str) -> Result<Kernel> {
        let code = self.object.kernel(name)?.clone();
        Ok(Kernel {
            program: self.clone(),
            code,
        })
    }
}

/// A kernel of a program.
#[derive(Clone, Debug)]
pub struct Kernel {
    program: Arc<Program>,
    code: KernelCode,
}

impl Kernel {
    /// What the code object has of it.
    pub fn code(&self) -> &KernelCode {
        &self.code
    }

    /// Address of its descriptor, which packets point to.
    pub fn address(&self) -> u64 {
        self.program.address() + self.code.address
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }
}

impl Queue {
    /// What arguments of launches in this queue are made from.
    pub fn surroundings(&self) -> Surroundings {
        let apertures = &self.device().gpu().apertures;
        Surroundings {
            queue: self.object_address(),
            private_base: apertures.scratch_base,
            group_base: apertures.lds_base,
        }
    }

    /// Launches a kernel on an AQL queue: gives the queue private memory where it lacks some, stores the arguments, writes
    /// the packet and rings the doorbell. Returns the packet's index.
    ///
    /// # Errors
    /// [`Error::Code`] for a launch that cannot be; [`Error::OutOfRange`] where there is no room for the arguments; those
    /// of [`Queue::provide_scratch`] and [`Queue::submit_aql`].
    pub fn dispatch(&self, dispatch: &Dispatch<'_>, kernargs: &Kernargs) -> Result<u64> {
        let index = self.stage_dispatch(dispatch, kernargs)?;
        self.flush();
        Ok(index)
    }

    /// As [`Queue::dispatch`]; the GPU learns of it with the next [`Queue::flush`] at the latest.
    ///
    /// # Errors
    /// As [`Queue::dispatch`].
    pub fn stage_dispatch(&self, dispatch: &Dispatch<'_>, kernargs: &Kernargs) -> Result<u64> {
        let planned = dispatch.plan(&self.surroundings())?;
        let _scratch = self.provide_scratch(planned.private_bytes)?;
        let (packet, header) = dispatch.encode(&planned, kernargs.place(&planned)?)?;
        self.stage_aql(&packet, header)
    }
}
