// SPDX-License-Identifier: GPL-2.0

//! Open files of the render node.

use core::pin::Pin;

use kernel::{
    drm,
    fs::LocalFile,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
};

use super::{
    debug::VmList,
    RkfdDrm, //
};
use crate::{
    gpu::Gpu,
    kapi::drm_file::DrmFile,
    vm::{
        Bo,
        BoArgs,
        Grants,
        Vm, //
    },
};

/// What an open file has: an address space, and permission to map some buffers.
pub(crate) struct Client {
    vm: Arc<Vm>,
    grants: Arc<Grants>,
    /// Where the address space is listed while the file is open.
    list: Arc<VmList>,
}

impl drm::file::DriverFile for Client {
    type Driver = RkfdDrm;

    fn open(device: &drm::Device<RkfdDrm>) -> Result<Pin<KBox<Self>>> {
        let client = Self {
            vm: Vm::new(device.gpu())?,
            grants: Grants::new()?,
            list: device.vms.clone(),
        };
        // From here on dropping `client` undoes everything.
        client.list.add(&client.vm)?;
        Ok(KBox::new(client, GFP_KERNEL_ACCOUNT)?.into())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Others may hold both longer than the file is open.
        self.list.remove(&self.vm);
        self.grants.close();
        self.vm.close();
    }
}

/// An open file of the render node that somebody else holds and keeps open.
pub(crate) struct RenderFile {
    file: DrmFile<RkfdDrm>,
}

impl RenderFile {
    /// Takes hold of a file, of whatever kind it may be.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not one of this driver's DRM nodes.
    pub(crate) fn from_file(file: ARef<LocalFile>) -> Result<Self> {
        let file = DrmFile::from_file(file)?;
        let this = Self { file };
        this.client().grants.set_file(this.file.tag());
        Ok(this)
    }

    fn client(&self) -> Pin<&Client> {
        self.file.inner()
    }

    /// Its address space.
    pub(crate) fn vm(&self) -> &Arc<Vm> {
        &self.client().get_ref().vm
    }

    /// The GPU that it was opened on.
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        self.vm().gpu()
    }

    /// Whether `file` is this open file, be it by way of another descriptor.
    pub(crate) fn is(&self, file: &LocalFile) -> bool {
        self.file.is(file)
    }
}

impl Bo {
    /// Makes a buffer on the GPU of `file`, which may map it from then on.
    ///
    /// # Errors
    ///
    /// Those of [`Bo::with_grants`].
    pub(crate) fn new(file: &RenderFile, args: BoArgs) -> Result<Arc<Self>> {
        let device = file.file.device();
        Self::with_grants(file.gpu(), &device, &file.client().grants, args)
    }
}
