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
    kapi::drm_file::DrmFile,
    vm::{
        file::VmFile,
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

/// An open file of the render node that is kept open by another holder.
struct RenderFile {
    file: DrmFile<RkfdDrm>,
}

/// Takes hold of a file, of whatever kind it may be.
///
/// # Errors
///
/// `EINVAL` if it is not one of this driver's DRM nodes.
pub(crate) fn take_file(file: ARef<LocalFile>) -> Result<Arc<dyn VmFile>> {
    let file = DrmFile::from_file(file)?;
    let this = RenderFile { file };
    this.client().grants.set_file(this.file.tag());
    Ok(Arc::new(this, GFP_KERNEL_ACCOUNT)?)
}

impl RenderFile {
    fn client(&self) -> Pin<&Client> {
        self.file.inner()
    }
}

impl VmFile for RenderFile {
    fn vm(&self) -> &Arc<Vm> {
        &self.client().get_ref().vm
    }

    fn is(&self, file: &LocalFile) -> bool {
        self.file.is(file)
    }

    fn make(&self, args: BoArgs) -> Result<Arc<Bo>> {
        let device = self.file.device();
        Bo::with_grants(self.vm().gpu(), &device, &self.client().grants, args)
    }
}
