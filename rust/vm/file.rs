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

    /// Makes a buffer on the GPU of the file, which may map it from then on.
    ///
    /// # Errors
    ///
    /// Those of [`Bo::with_grants`].
    fn make(&self, args: BoArgs) -> Result<Arc<Bo>>;
}

/// Takes hold of a file, of whatever kind it may be; `EINVAL` if no address space belongs to it.
pub(crate) type TakeFile = fn(ARef<LocalFile>) -> Result<Arc<dyn VmFile>>;
