// SPDX-License-Identifier: GPL-2.0

//! What GEM objects show to their mappings; [`gem`](super::gem) makes the objects, [`vma`](super::vma) the mappings.

use core::marker::PhantomData;

use kernel::{
    bindings,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

pub(crate) use super::pages::Transfer;

use super::{
    lru::ObjectLru,
    pages::Pages, //
};

/// How the CPU caches a user mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserCaching {
    /// As ordinary memory.
    Cached,
    /// Writes may be merged and delayed.
    WriteCombined,
    /// Each access reaches the device by itself, in order.
    Uncached,
}

impl UserCaching {
    pub(super) fn raw(self) -> c_int {
        // CAST: Small enumerators.
        (match self {
            Self::Cached => crate::bindings::RKFD_CACHED,
            Self::WriteCombined => crate::bindings::RKFD_WRITE_COMBINED,
            Self::Uncached => crate::bindings::RKFD_UNCACHED,
        }) as c_int
    }
}

/// Memory that objects lie in, as `fdinfo` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Region {
    /// The device's own.
    Vram,
    /// System memory that the device reaches.
    Gtt,
}

/// The operations of buffers that are objects with a `T`, see [`dma_buf`](super::dma_buf). To be stored in a `static`, whose
/// address stands for the type.
#[repr(transparent)]
pub(crate) struct ExportOps<T>(
    pub(super) bindings::dma_buf_ops,
    pub(super) PhantomData<fn() -> T>,
);

/// Names a moment, see [`Mappable::begin_fault`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FaultStamp(pub(crate) i64);

/// What an object shows to its mappings.
pub(crate) trait Mappable: Send + Sync + Sized + 'static {
    /// Whether user space may map the object at all, and how.
    ///
    /// # Errors
    ///
    /// Becomes the error of `mmap`.
    fn may_mmap(&self) -> Result<UserCaching>;

    /// CPU frame number of page `index`. The frame stays valid while the object lives and its
    /// device is registered. Called under the mmap lock.
    ///
    /// # Errors
    ///
    /// Any; the access ends in `SIGBUS`.
    fn pfn(&self, index: usize) -> Result<usize>;

    /// Called before frames are asked for; may wait until they may be used.
    ///
    /// # Errors
    ///
    /// Any; the access ends in `SIGBUS`.
    fn begin_fault(&self) -> Result<FaultStamp> {
        Ok(FaultStamp::default())
    }

    /// Whether the mappings of the object were taken away since `begin`. Then frames that were inserted meanwhile are
    /// taken away, too, and the access is repeated.
    fn is_revoked_since(&self, _begin: FaultStamp) -> bool {
        false
    }

    /// How the frames that [`Self::pfn`] has for an object that moves are cached at present; called with its reservation
    /// held. `None`: the object does not move, its reservation is not taken, and frames are cached as [`Self::may_mmap`]
    /// says.
    fn moving_caching(&self) -> Option<UserCaching> {
        None
    }

    /// Copies for a debugger. The reservation of an object that moves is held.
    ///
    /// # Errors
    ///
    /// Becomes the error of the access.
    fn transfer(&self, offset: usize, transfer: Transfer<'_>) -> Result;

    /// The operations by which objects of this type are shared.
    fn export_ops() -> &'static ExportOps<Self>;

    /// Whether the object may be shared by a descriptor.
    ///
    /// # Errors
    ///
    /// Becomes the error of the export.
    fn may_export(&self) -> Result;

    /// The pages that other devices may reach, for as long as the object lives.
    fn pages(&self) -> Option<&Arc<Pages>>;

    /// The memory that the object takes; `None` if it takes none. Must not sleep.
    fn region(&self) -> Option<Region>;
}

/// A GEM object and what it holds.
#[repr(C)]
pub(super) struct Inner<T: Mappable> {
    pub(super) obj: Opaque<bindings::drm_gem_object>,
    pub(super) data: T,
    /// The list that the object may be in. The object leaves it before this goes.
    pub(super) lru: Option<Arc<ObjectLru<T>>>,
}

impl<T: Mappable> Inner<T> {
    /// # Safety
    ///
    /// `obj` is embedded in an `Inner<T>` that lives for `'a`.
    pub(super) unsafe fn from_gem<'a>(obj: *mut bindings::drm_gem_object) -> &'a Self {
        // SAFETY: By the requirement of this function; `obj` is the first field of a `repr(C)`
        // struct, and `Opaque` is transparent.
        unsafe { &*obj.cast::<Self>() }
    }

    pub(super) fn data(&self) -> &T {
        &self.data
    }
}
