// SPDX-License-Identifier: GPL-2.0

//! Control groups of device memory: which part of it the processes of a group may have.
//!
//! A device registers its memory as a [`Region`], and charges what it hands out to the group of the current task. The
//! kernel has no way to charge another group: a worker of the kernel charges the root. In a kernel without
//! `CONFIG_CGROUP_DMEM` every charge succeeds and counts nothing.
//!
//! Lock order: the lock of a region is innermost, but memory is allocated under it. Charges are given back without it,
//! anywhere.
//!
//! C header: [`include/linux/cgroup_dmem.h`](srctree/include/linux/cgroup_dmem.h)

use core::ptr;

use kernel::{
    bindings,
    error::{
        from_err_ptr,
        to_result, //
    },
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

use crate::bindings::dmem_cgroup_pool_state as RawPool;

/// A region that groups know.
///
/// # Invariants
///
/// The pointer is that of a registered region, or null where the kernel has no such groups.
struct Registered(*mut bindings::dmem_cgroup_region);

// SAFETY: A region may be charged and unregistered by any task.
unsafe impl Send for Registered {}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: By the type invariant it is registered, and this is its owner; null is nothing to do.
        unsafe { crate::bindings::rkfd_dmem_unregister(self.0) };
    }
}

/// Memory of a device that is shared out between groups, from its registration to [`Self::unregister`].
#[pin_data]
pub(crate) struct Region {
    /// `None` once it is unregistered.
    #[pin]
    raw: Mutex<Option<Registered>>,
}

/// What a group has of a [`Region`]; dropping gives it back. It may outlive the region.
///
/// # Invariants
///
/// `pool` is the group's part of a region, to which `size` bytes are charged for this value, which keeps it; or null where
/// the kernel has no such groups.
pub(crate) struct Charge {
    pool: *mut RawPool,
    size: u64,
}

/// A group whose limit stands against a charge: that of the task, or one above it.
///
/// # Invariants
///
/// The pointer is the group's part of a region, of which this owns a reference.
pub(crate) struct Limit(*mut RawPool);

// SAFETY: What groups have is counted atomically, and any task may give it back.
unsafe impl Send for Charge {}
// SAFETY: Shared access compares pointers and reads counters.
unsafe impl Sync for Charge {}
// SAFETY: References are counted atomically.
unsafe impl Send for Limit {}
// SAFETY: Shared access compares pointers and reads counters.
unsafe impl Sync for Limit {}

/// Why nothing is charged.
pub(crate) enum Refused {
    /// The limit of this group: less has to be charged to it, or to those below it.
    Limit(Limit),
    /// `ENOMEM`: no memory for the bookkeeping. `ENODEV`: the region is unregistered.
    Error(Error),
}

impl From<Refused> for Error {
    /// `EAGAIN` stands for a limit, as in C.
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Limit(_) => EAGAIN,
            Refused::Error(error) => error,
        }
    }
}

/// Whether memory of a group may be taken for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// It may.
    None,
    /// If nothing else can be taken: the group has no more than its `dmem.low`.
    Low,
    /// It may not: the group has no more than its `dmem.min`, or taking it would not help.
    Full,
}

impl Region {
    /// Registers `size` bytes as `name`, for example `drm/0000:03:00.0/vram`. Nothing ties the name to one region.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EINVAL` for a size of 0.
    pub(crate) fn new(name: &CStr, size: u64) -> Result<Arc<Self>> {
        if size == 0 {
            return Err(EINVAL);
        }
        // SAFETY: The name is a string, of which the function keeps a copy.
        let raw = unsafe { crate::bindings::rkfd_dmem_register(name.as_char_ptr(), size) };
        // INVARIANT: Registered, or null without groups.
        let registered = Registered(from_err_ptr(raw)?);
        Arc::pin_init(
            pin_init!(Self { raw <- new_mutex!(Some(registered), "rkfd_dmem") }),
            GFP_KERNEL,
        )
    }

    /// Ends it: nothing is charged any more, and groups forget what they have of it. Again is nothing.
    pub(crate) fn unregister(&self) {
        let registered = self.raw.lock().take();
        // Without the lock: this waits for others.
        drop(registered);
    }

    /// Charges `size` bytes to the group of the current task and those above it. 0 bytes are a reference of the group.
    ///
    /// # Errors
    ///
    /// See [`Refused`].
    pub(crate) fn charge(&self, size: u64) -> Result<Charge, Refused> {
        let registered = self.raw.lock();
        let Some(Registered(raw)) = &*registered else {
            return Err(Refused::Error(ENODEV));
        };
        let (mut pool, mut limit) = (ptr::null_mut(), ptr::null_mut());
        if !raw.is_null() {
            // SAFETY: The region is registered while the lock is held, and the function writes both pointers.
            let result = to_result(unsafe {
                crate::bindings::rkfd_dmem_charge(*raw, size, &mut pool, &mut limit)
            });
            match result {
                Ok(()) => {}
                // INVARIANT: With this error the function gives a reference of the group.
                Err(error) if error == EAGAIN => return Err(Refused::Limit(Limit(limit))),
                Err(error) => return Err(Refused::Error(error)),
            }
        }
        // INVARIANT: Charged by the function, which gives a reference; or null without groups.
        Ok(Charge { pool, size })
    }
}

/// Whether what the current task takes is charged to the root group, which has no limit: so are all workers of the kernel.
pub(crate) fn is_of_root() -> bool {
    // SAFETY: Reads which group the task is in.
    unsafe { crate::bindings::rkfd_dmem_is_root() }
}

impl Charge {
    /// Bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Whether both are charged to the same group.
    pub(crate) fn is_of_group_of(&self, other: &Self) -> bool {
        self.pool == other.pool
    }

    /// Whether the memory that this is for may be taken: so that less is charged to the group at `limit`, or, without one,
    /// because there is none left. With `ignore_low` also what only `dmem.low` protects.
    pub(crate) fn protection(&self, limit: Option<&Limit>, ignore_low: bool) -> Protection {
        if self.pool.is_null() {
            return Protection::None;
        }
        let mut hit_low = false;
        let limit = limit.map_or(ptr::null_mut(), |limit| limit.0);
        // SAFETY: By the type invariants both are parts of a region that are kept. Null stands for the root, as far as
        // protection goes; a limit that is the root itself would protect nothing.
        let evictable = unsafe {
            crate::bindings::rkfd_dmem_evictable(limit, self.pool, ignore_low, &mut hit_low)
        };
        match (evictable, hit_low) {
            (true, _) => Protection::None,
            (false, true) => Protection::Low,
            (false, false) => Protection::Full,
        }
    }

    /// Whether the kernel has groups.
    #[cfg(rkfd_kunit)]
    pub(crate) fn is_counted(&self) -> bool {
        !self.pool.is_null()
    }
}

impl Limit {
    /// Whether both are the same group.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // SAFETY: By the type invariant so much is charged for this value, and the reference is ours; null is nothing.
        unsafe { crate::bindings::rkfd_dmem_uncharge(self.pool, self.size) };
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the reference is ours; null is nothing to put.
        unsafe { crate::bindings::rkfd_dmem_put(self.0) };
    }
}
