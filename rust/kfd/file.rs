// SPDX-License-Identifier: GPL-2.0

//! An open `/dev/kfd`.

use super::{
    device::IoWindow,
    ioctl,
    process::{
        Context,
        Process, //
    },
    system::System,
    uapi::{
        MMAP_GPU_SHIFT,
        MMAP_TYPE_DOORBELL,
        MMAP_TYPE_MMIO,
        MMAP_TYPE_SHIFT, //
    }, //
};
use crate::{
    gpu::DoorbellSlice,
    hw::num::index,
    kapi::{
        chrdev::{
            FileOps,
            MmapRequest, //
        },
        task::ThreadGroup, //
    },
};
use kernel::{
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        Arc,
        SetOnce, //
    },
};

/// An open file.
pub(crate) struct KfdFile {
    system: Arc<System>,
    /// That of the address space.
    process: Arc<Process>,
    /// A process object of the file alone, in place of `process`, from CREATE_PROCESS on.
    context: SetOnce<Context>,
    /// The process that opened it. Not necessarily the one that opened the first file in this address space, which may
    /// have been a child on its way to exec.
    opener: ThreadGroup,
}

impl KfdFile {
    /// What calls and mappings are about.
    fn current(&self) -> &Arc<Process> {
        match self.context.as_ref() {
            Some(context) => context.process(),
            None => &self.process,
        }
    }
}

impl FileOps for KfdFile {
    type Context = System;

    fn open(system: &Arc<System>) -> Result<KBox<Self>> {
        let process = system.processes.open(|| system.devices())?;
        Ok(KBox::new(
            Self {
                system: system.clone(),
                process,
                context: SetOnce::new(),
                opener: ThreadGroup::current(),
            },
            GFP_KERNEL_ACCOUNT,
        )?)
    }

    fn ioctl(&self, command: u32, argument: usize) -> Result<isize> {
        let call = ioctl::call::Call {
            system: &self.system,
            process: self.current(),
            context: &self.context,
            opener: &self.opener,
        };
        ioctl::dispatch(&call, command, argument)
    }

    fn mmap(&self, request: MmapRequest<'_>) -> Result {
        let process = self.current();
        process.check_caller(&self.opener)?;
        let target = MmapTarget::decode(request.offset());
        // What reaches into the next window would stay when mappings of this GPU are taken away.
        let fits = MmapTarget::has_room(request.offset(), request.len());
        let device = process.device(target.gpu_id).map(|(_, device)| device);
        let first_page = request.offset() >> PAGE_SHIFT;
        match target.kind {
            MMAP_TYPE_DOORBELL => {
                let device = device.map_err(|_| ENODEV)?;
                if request.len() != index(DoorbellSlice::SIZE) || !fits {
                    return Err(EINVAL);
                }
                let slice = device.doorbells()?;
                request.map_io(IoWindow::doorbells(device.device(), slice, first_page)?)
            }
            MMAP_TYPE_MMIO => {
                let device = device.map_err(|_| ENODEV)?;
                if request.len() != PAGE_SIZE || !fits {
                    return Err(EINVAL);
                }
                device.device().check()?;
                request.map_io(IoWindow::mmio_remap(device.device(), first_page)?)
            }
            // The signal page is the caller's own memory, and the trap handler is not user space's.
            _ => Err(EINVAL),
        }
    }
}

/// What an mmap offset names. The low 46 bits say nothing, but are counted on from page to page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MmapTarget {
    /// One of the `MMAP_TYPE_` constants.
    pub(crate) kind: u64,
    /// The GPU.
    pub(crate) gpu_id: u32,
}

impl MmapTarget {
    /// From an offset in bytes.
    pub(crate) fn decode(offset: u64) -> Self {
        Self {
            kind: offset >> MMAP_TYPE_SHIFT << MMAP_TYPE_SHIFT,
            // CAST: The mask leaves 16 bits.
            gpu_id: ((offset >> MMAP_GPU_SHIFT) & 0xffff) as u32,
        }
    }

    /// Whether `len` bytes from `offset` on all name the same.
    pub(crate) fn has_room(offset: u64, len: usize) -> bool {
        const WINDOW: u64 = 1 << MMAP_GPU_SHIFT;
        // CAST: `usize` is at most 64 bits wide.
        len as u64 <= WINDOW - offset % WINDOW
    }
}
