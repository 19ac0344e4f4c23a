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

/// An open file with an address space, kept open while this lives.
pub(crate) trait VmFile: Send + Sync {
    /// Its address space.
    fn vm(&self) -> &Arc<Vm>;

    /// Whether `file` is this open file, be it by way of another descriptor.
    fn is(&self, file: &LocalFile) -> bool;

    /// Makes a buffer on the GPU of the file, with a handle in the file, see [`BoHandle`].
    ///
    /// # Errors
    ///
    /// Those of [`Bo::new`]; `ENOSPC` if the file has no free handle.
    fn make(&self, args: BoArgs) -> Result<(Arc<Bo>, u32)>;

    /// Takes a handle that [`Self::make`] gave back, if it still is one of `bo`.
    fn delete_handle(&self, bo: &Bo, handle: u32);
}

/// A buffer with its handle in an open file, which may map it while this lives, unless user space closes
/// the handle before.
pub(crate) struct BoHandle {
    file: Arc<dyn VmFile>,
    bo: Arc<Bo>,
    handle: u32,
}

impl BoHandle {
    /// Makes a buffer on the GPU of `file`.
    ///
    /// # Errors
    ///
    /// Those of [`VmFile::make`].
    pub(crate) fn new(file: Arc<dyn VmFile>, args: BoArgs) -> Result<Self> {
        let (bo, handle) = file.make(args)?;
        Ok(Self { file, bo, handle })
    }

    /// The buffer.
    pub(crate) fn bo(&self) -> &Arc<Bo> {
        &self.bo
    }
}

impl Drop for BoHandle {
    fn drop(&mut self) {
        self.file.delete_handle(&self.bo, self.handle);
    }
}

/// Takes hold of a file, of whatever kind it may be; `EINVAL` if no address space belongs to it.
pub(crate) type TakeFile = fn(ARef<LocalFile>) -> Result<Arc<dyn VmFile>>;
