// SPDX-License-Identifier: GPL-2.0

//! Memory of another driver, which came by a descriptor.
//!
//! Each GPU that is to map it is attached to it once, and from then on as long as the memory is an object here: the
//! exporter keeps it where it is. What shows it in page tables keeps the attachment until the TLB has
//! forgotten them.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

use crate::{
    gpu::Gpu,
    kapi::{
        dma_buf::DmaBuf,
        dma_map::DmaImport, //
    },
};

/// A GPU, and where it finds the memory.
struct Attached {
    gpu: Arc<Gpu>,
    import: Arc<DmaImport>,
}

/// Memory of another driver, and the GPUs that are attached to it.
#[pin_data]
pub(super) struct Foreign {
    dma_buf: DmaBuf,
    /// At most one entry for a GPU. No reservation is taken under it.
    #[pin]
    attached: Mutex<KVVec<Attached>>,
}

impl Foreign {
    /// No GPU is attached yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(dma_buf: &DmaBuf) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                dma_buf: dma_buf.clone(),
                attached <- new_mutex!(KVVec::new(), "rkfd_foreign"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Where `gpu` finds it, if it is attached.
    pub(super) fn seen_by(&self, gpu: &Arc<Gpu>) -> Option<Arc<DmaImport>> {
        let attached = self.attached.lock();
        let mut all = attached.iter();
        let found = all.find(|one| Arc::ptr_eq(&one.gpu, gpu))?;
        Some(found.import.clone())
    }

    /// Attaches `gpu`, if it is not. The caller holds no reservation.
    ///
    /// # Errors
    ///
    /// - `ENODEV`: the GPU is gone.
    /// - Those of [`DmaMapper::import`](crate::kapi::dma_map::DmaMapper::import).
    pub(super) fn attach(&self, gpu: &Arc<Gpu>) -> Result {
        if self.seen_by(gpu).is_some() {
            return Ok(());
        }
        let import = {
            // Removal of the GPU waits for the exporter, too: the device must not go while it is being attached.
            let hw = gpu.enter()?;
            hw.dma().import(hw.dev(), &self.dma_buf)?
        };
        let new = Attached {
            gpu: gpu.clone(),
            import: Arc::new(import, GFP_KERNEL_ACCOUNT)?,
        };
        let mut attached = self.attached.lock();
        if attached.iter().any(|one| Arc::ptr_eq(&one.gpu, gpu)) {
            // Another thread was faster.
            drop(attached);
            drop(new);
            return Ok(());
        }
        Ok(attached.push(new, GFP_KERNEL_ACCOUNT)?)
    }
}
