// SPDX-License-Identifier: GPL-2.0

//! User mappings of a render node, to be taken away together.

use kernel::{
    prelude::*,
    sync::{
        Arc,
        SetOnce, //
    },
};

use super::Registration;
use crate::kapi::drm_file::DrmDevice;

/// The user mappings of a render node, which may not exist yet.
pub(crate) struct Windows(SetOnce<DrmDevice>);

impl Windows {
    /// Of no render node yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self(SetOnce::new()), GFP_KERNEL)?)
    }

    /// Of this one, from now on.
    pub(crate) fn set(&self, render: &Registration<'_>) {
        // There is one render node.
        let _ = self.0.populate(render.device());
    }

    /// Takes all of them away. The next access faults: doorbells wait until no reset is under way, see
    /// [`Gpu::wait_up`](crate::gpu::Gpu::wait_up).
    pub(crate) fn revoke(&self) {
        if let Some(device) = self.0.as_ref() {
            device.unmap_all();
        }
    }
}
