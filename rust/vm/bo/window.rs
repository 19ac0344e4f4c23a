// SPDX-License-Identifier: GPL-2.0

//! Doorbells that a program maps through its file of the render node.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::memory::Memory;
use crate::{
    gpu::{
        DoorbellSlice,
        Gpu, //
    },
    kapi::{
        drm_file::{
            DrmDevice,
            OpenFile, //
        },
        gem::Object, //
    },
};

/// A slice of doorbells that one open file, and no other, may map.
///
/// The mapping is uncached. A reset of the engines takes it away; a thread that rings waits then until the reset is
/// over.
pub(crate) struct DoorbellWindow {
    slice: Arc<DoorbellSlice>,
    object: Object<Memory>,
}

impl DoorbellWindow {
    /// The doorbells in `slice`, mapped through `file`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENOSPC`: no memory, or no handle left.
    pub(crate) fn new<'a>(
        gpu: &Arc<Gpu>,
        dev: &DrmDevice,
        slice: Arc<DoorbellSlice>,
        file: impl Into<OpenFile<'a>>,
    ) -> Result<Self> {
        let memory = Memory::window(gpu, slice.clone())?;
        let size = crate::hw::num::index(DoorbellSlice::SIZE);
        let object = Object::new(dev, size, memory)?;
        // What the file may map is what it has a handle of. User space is not told the number; should it close the
        // handle all the same, it only loses the right to map once more.
        let _: u32 = object.create_handle(file)?;
        Ok(Self { slice, object })
    }

    /// The doorbells.
    pub(crate) fn slice(&self) -> &Arc<DoorbellSlice> {
        &self.slice
    }

    /// Where the file maps them.
    pub(crate) fn mmap_offset(&self) -> u64 {
        self.object.mmap_offset()
    }
}
