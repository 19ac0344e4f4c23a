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
    device::RkfdDrm,
    native::Context, //
};
use crate::{
    kapi::{
        dma_buf::DmaBuf,
        drm_file::{
            DrmDevice,
            DrmFile, //
        }, //
    },
    vm::{
        file::VmFile,
        Bo,
        BoArgs,
        Vm, //
    },
};

/// What an open file has beside its handles: an address space, and what the native interface adds.
pub(crate) struct Client {
    vm: Arc<Vm>,
    context: Arc<Context>,
    /// Where the address space is listed while the file is open.
    list: Arc<VmList>,
}

impl Client {
    /// What it has beside memory.
    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl drm::file::DriverFile for Client {
    type Driver = RkfdDrm;

    fn open(device: &drm::Device<RkfdDrm>) -> Result<Pin<KBox<Self>>> {
        let vm = Vm::new(device.gpu(), &DrmDevice::of(device))?;
        let context = Context::new(&vm, device.sched(), &device.tenants)?;
        let client = Self {
            vm,
            context,
            list: device.vms.clone(),
        };
        // From here on dropping `client` undoes everything.
        client.list.add(&client.vm, client.context.pid())?;
        Ok(KBox::new(client, GFP_KERNEL_ACCOUNT)?.into())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Others may hold it longer than the file is open.
        self.list.remove(&self.vm);
        self.context.close();
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
    Ok(Arc::new(RenderFile { file }, GFP_KERNEL_ACCOUNT)?)
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

    fn device(&self) -> DrmDevice {
        self.file.device()
    }

    fn make(&self, args: BoArgs) -> Result<(Arc<Bo>, u32)> {
        let bo = Bo::new(self.vm().gpu(), &self.file.device(), args)?;
        let handle = bo.create_handle(&self.file)?;
        Ok((bo, handle))
    }

    fn export(&self, bo: &Bo, handle: u32) -> Result<DmaBuf> {
        bo.export(&self.file, handle)
    }

    fn delete_handle(&self, bo: &Bo, handle: u32) {
        bo.delete_handle(&self.file, handle);
    }
}
