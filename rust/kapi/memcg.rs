// SPDX-License-Identifier: GPL-2.0

//! Memory control groups: what allocations are charged to.
//!
//! A thread of the kernel has no group but the root: what pages are charged to is tested by `e2e/memcg`.
//!
//! C headers: [`include/linux/memcontrol.h`](srctree/include/linux/memcontrol.h),
//! [`include/linux/sched/mm.h`](srctree/include/linux/sched/mm.h)

use core::ptr;

use kernel::{
    bindings,
    types::NotThreadSafe, //
};

/// A memory control group.
///
/// # Invariants
///
/// The pointer is that of a group of which this owns a reference, or null where the kernel has no groups.
pub(crate) struct MemoryGroup(*mut bindings::mem_cgroup);

// SAFETY: References of a group are counted atomically, and any task may charge to it.
unsafe impl Send for MemoryGroup {}
// SAFETY: Shared access only compares the pointer, or makes the group active for the current task.
unsafe impl Sync for MemoryGroup {}

/// While it lives, the current task charges to a group.
///
/// # Invariants
///
/// The pointer is what was active before: null, or a group of which an outer scope has a reference.
struct Scope(*mut bindings::mem_cgroup, NotThreadSafe);

impl MemoryGroup {
    /// The group of the caller: the active one in [`Self::charged`], that of the process, or, of a kernel thread, the
    /// root, to which nothing is charged.
    pub(crate) fn of_current() -> Self {
        // SAFETY: May be called by any task; null stands for the current one.
        let group = unsafe { bindings::get_mem_cgroup_from_mm(ptr::null_mut()) };
        // INVARIANT: The function returns a reference, or null without groups.
        Self(group)
    }

    /// Runs `f`, whose `GFP_KERNEL_ACCOUNT` allocations are charged to this group instead of the caller's. Where that is
    /// at its limit, they fail; one that does not refuse the effort of the kernel's killer may end a process of this group.
    pub(crate) fn charged<R>(&self, f: impl FnOnce() -> R) -> R {
        // SAFETY: By the type invariant `self` keeps the group, longer than the scope lives.
        let before = unsafe { crate::bindings::rkfd_memcg_set_active(self.0) };
        // INVARIANT: Returned by the function. Scopes end in the reverse order of their begin, since each is a local
        // variable of a call, so the outer one, which has the reference, is there.
        let scope = Scope(before, NotThreadSafe);
        let result = f();
        drop(scope);
        result
    }

    /// Whether the current task charges to this group because of [`Self::charged`].
    #[cfg(rkfd_kunit)]
    pub(crate) fn is_active(&self) -> bool {
        // SAFETY: By the type invariant `self` keeps the group until the next line, which makes active what was.
        let active = unsafe { crate::bindings::rkfd_memcg_set_active(self.0) };
        // SAFETY: `active` was active before: null, or a group that an outer scope keeps.
        unsafe { crate::bindings::rkfd_memcg_set_active(active) };
        active == self.0
    }

    /// Whether the kernel has groups.
    #[cfg(rkfd_kunit)]
    pub(crate) fn is_some(&self) -> bool {
        !self.0.is_null()
    }

    /// Whether both are the same.
    #[cfg(rkfd_kunit)]
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        // SAFETY: By the type invariant it is null, or a group that an outer scope keeps.
        unsafe { crate::bindings::rkfd_memcg_set_active(self.0) };
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the reference is ours; null is nothing to put.
        unsafe { crate::bindings::rkfd_memcg_put(self.0) };
    }
}
