// SPDX-License-Identifier: GPL-2.0

//! An open `/dev/kfd`.

use super::{
    device::IoWindow,
    ioctl,
    process::Process,
    uapi::{
        MMAP_GPU_SHIFT,
        MMAP_TYPE_DOORBELL,
        MMAP_TYPE_MMIO,
        MMAP_TYPE_SHIFT, //
    },
    Facade, //
};
use crate::{
    gpu::DoorbellSlice,
    hw::num::index,
    kapi::chrdev::{
        FileOps,
        MmapRequest, //
    },
};
use kernel::{
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::Arc, //
};

/// An open file.
pub(crate) struct KfdFile {
    facade: Arc<Facade>,
    process: Arc<Process>,
}

impl FileOps for KfdFile {
    type Context = Facade;

    fn open(facade: &Arc<Facade>) -> Result<KBox<Self>> {
        let process = facade.processes.open(|| facade.devices())?;
        Ok(KBox::new(
            Self {
                facade: facade.clone(),
                process,
            },
            GFP_KERNEL,
        )?)
    }

    fn ioctl(&self, command: u32, argument: usize) -> Result<isize> {
        let call = ioctl::Call {
            facade: &self.facade,
            process: &self.process,
        };
        ioctl::dispatch(&call, command, argument)
    }

    fn mmap(&self, request: MmapRequest<'_>) -> Result {
        self.process.check_caller()?;
        let target = MmapTarget::decode(request.offset());
        let device = self.process.device(target.gpu_id).map(|(_, device)| device);
        let first_page = request.offset() >> PAGE_SHIFT;
        match target.kind {
            MMAP_TYPE_DOORBELL => {
                let device = device.map_err(|_| ENODEV)?;
                if request.len() != index(DoorbellSlice::SIZE) {
                    return Err(EINVAL);
                }
                let slice = device.doorbells()?;
                request.map_io(IoWindow::doorbells(device.device(), slice, first_page)?);
                Ok(())
            }
            MMAP_TYPE_MMIO => {
                let device = device.map_err(|_| ENODEV)?;
                if request.len() != PAGE_SIZE {
                    return Err(EINVAL);
                }
                device.device().check()?;
                request.map_io(IoWindow::mmio_remap(device.device(), first_page)?);
                Ok(())
            }
            // The signal page is the caller's own memory, and the trap handler is not user space's.
            _ => Err(EINVAL),
        }
    }
}

/// What an mmap offset names. The low 46 bits are not looked at.
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
}
