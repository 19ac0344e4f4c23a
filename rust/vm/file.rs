// SPDX-License-Identifier: GPL-2.0

//! Open files that an address space belongs to, for holders other than the file descriptor.

use kernel::{
    fs::LocalFile,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
};

use super::{
    bo::{
        Bo,
        BoArgs, //
    },
    Vm, //
};
use crate::kapi::{
    dma_buf::DmaBuf,
    drm_file::DrmDevice, //
};

/// An open file with an address space, kept open while this lives.
pub(crate) trait VmFile: Send + Sync {
    /// Its address space.
    fn vm(&self) -> &Arc<Vm>;

    /// Whether `file` is this open file, be it by way of another descriptor.
    fn is(&self, file: &LocalFile) -> bool;

    /// The device that the file was opened on.
    fn device(&self) -> DrmDevice;

    /// Makes a buffer on the GPU of the file, with a handle in the file, see [`BoHandle`].
    ///
    /// # Errors
    ///
    /// Those of [`Bo::new`]; `ENOSPC` if the file has no free handle.
    fn make(&self, args: BoArgs) -> Result<(Arc<Bo>, u32)>;

    /// Shares `bo` by a handle that [`Self::make`] gave.
    ///
    /// # Errors
    ///
    /// Those of [`Bo::export`].
    fn export(&self, bo: &Bo, handle: u32) -> Result<DmaBuf>;

    /// Takes a handle that [`Self::make`] gave back, if it still is one of `bo`.
    fn delete_handle(&self, bo: &Bo, handle: u32);
}

/// A buffer, and by what it can be shared.
pub(crate) struct BoHandle {
    bo: Arc<Bo>,
    name: Name,
}

/// By what a buffer can be shared.
enum Name {
    /// A handle in an open file, which may map the buffer while this lives, unless user space closes the handle
    /// before.
    Handle(Arc<dyn VmFile>, u32),
    /// What it was imported from.
    Shared(DmaBuf),
}

impl BoHandle {
    /// Makes a buffer on the GPU of `file`.
    ///
    /// # Errors
    ///
    /// Those of [`VmFile::make`].
    pub(crate) fn new(file: Arc<dyn VmFile>, args: BoArgs) -> Result<Self> {
        let (bo, handle) = file.make(args)?;
        let name = Name::Handle(file, handle);
        Ok(Self { bo, name })
    }

    /// A buffer for the GPU of `file` of the memory that is shared as `dma_buf`.
    ///
    /// # Errors
    ///
    /// Those of [`Bo::import`].
    pub(crate) fn import(file: &dyn VmFile, dma_buf: DmaBuf) -> Result<Self> {
        let bo = Bo::import(file.vm().gpu(), &file.device(), &dma_buf)?;
        let name = Name::Shared(dma_buf);
        Ok(Self { bo, name })
    }

    /// Shares the buffer; one that was imported as what it was imported from.
    ///
    /// # Errors
    ///
    /// Those of [`Bo::export`].
    pub(crate) fn export(&self) -> Result<DmaBuf> {
        match &self.name {
            Name::Handle(file, handle) => file.export(&self.bo, *handle),
            Name::Shared(dma_buf) => Ok(dma_buf.clone()),
        }
    }

    /// The buffer.
    pub(crate) fn bo(&self) -> &Arc<Bo> {
        &self.bo
    }
}

impl Drop for BoHandle {
    fn drop(&mut self) {
        if let Name::Handle(file, handle) = &self.name {
            file.delete_handle(&self.bo, *handle);
        }
    }
}

/// Takes hold of a file, of whatever kind it may be; `EINVAL` if no address space belongs to it.
pub(crate) type TakeFile = fn(ARef<LocalFile>) -> Result<Arc<dyn VmFile>>;
