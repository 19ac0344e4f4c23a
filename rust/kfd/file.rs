// SPDX-License-Identifier: GPL-2.0

//! An open `/dev/kfd`.

use super::{
    ioctl,
    process::Process,
    Facade, //
};
use crate::kapi::chrdev::{
    FileOps,
    MmapRequest, //
};
use kernel::{
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

    fn mmap(&self, _request: MmapRequest<'_>) -> Result {
        self.process.check_caller()?;
        Err(ENODEV)
    }
}
