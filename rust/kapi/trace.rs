// SPDX-License-Identifier: GPL-2.0

//! Tracepoints, one function each. A tracepoint that is off costs a jump.
//!
//! [`kernel::declare_trace!`] names the kernel crate's bindings, which do not know the tracepoints
//! of a module out of the tree; the macro here is the same with ours.
//!
//! C header: `include/rkfd_trace.h`

use crate::bindings as rkfd;
use kernel::prelude::*;

/// Declares `name(args)`, and `name_enabled()` for those who would have to work for the arguments.
macro_rules! tracepoints {
    ($(
        $(#[$doc:meta])*
        fn $name:ident / $enabled:ident / $key:ident / $call:ident (
            $($arg:ident: $type:ty),* $(,)?
        );
    )*) => {$(
        /// Whether anybody listens.
        #[inline(always)]
        pub(crate) fn $enabled() -> bool {
            #[cfg(CONFIG_TRACEPOINTS)]
            // SAFETY: The key is that of a tracepoint, which C defines.
            unsafe {
                kernel::jump_label::static_branch_unlikely!(
                    rkfd::$key,
                    kernel::bindings::tracepoint,
                    key
                )
            }
            #[cfg(not(CONFIG_TRACEPOINTS))]
            false
        }

        $(#[$doc])*
        #[inline(always)]
        #[allow(clippy::too_many_arguments, reason = "a record has many fields")]
        #[cfg_attr(not(CONFIG_TRACEPOINTS), allow(unused_variables))]
        pub(crate) fn $name($($arg: $type),*) {
            #[cfg(CONFIG_TRACEPOINTS)]
            if $enabled() {
                // SAFETY: The arguments are plain numbers.
                unsafe { rkfd::$call($($arg),*) };
            }
        }
    )*};
}

tracepoints! {
    /// A queue was made.
    fn queue_create / queue_create_enabled / __tracepoint_queue_create / rust_do_trace_queue_create (
        gpu_id: u32,
        pid: i32,
        pasid: u16,
        queue: u64,
        kind: u32,
        doorbell: u32,
        ring: u64,
        ring_size: u32,
    );
    /// A queue was destroyed.
    fn queue_destroy / queue_destroy_enabled / __tracepoint_queue_destroy / rust_do_trace_queue_destroy (
        gpu_id: u32,
        pid: i32,
        pasid: u16,
        queue: u64,
        doorbell: u32,
        us: u64,
        result: i32,
    );
    /// A queue became part of what the hardware works on.
    fn queue_map / queue_map_enabled / __tracepoint_queue_map / rust_do_trace_queue_map (
        gpu_id: u32,
        pid: i32,
        pasid: u16,
        queue: u64,
        kind: u32,
        doorbell: u32,
    );
    /// The hardware confirmed that a queue is off.
    fn queue_unmap / queue_unmap_enabled / __tracepoint_queue_unmap / rust_do_trace_queue_unmap (
        gpu_id: u32,
        pid: i32,
        pasid: u16,
        queue: u64,
        kind: u32,
        doorbell: u32,
    );
    /// Queues were preempted.
    fn preempt / preempt_enabled / __tracepoint_preempt / rust_do_trace_preempt (
        gpu_id: u32,
        scope: u32,
        pasid: u16,
        queues: u32,
        us: u64,
        refused: u32,
        result: i32,
    );
    /// The queues of an address space may not run.
    fn evict / evict_enabled / __tracepoint_evict / rust_do_trace_evict (
        gpu_id: u32,
        pid: i32,
        pasid: u16,
        cause: u32,
        us: u64,
        result: i32,
    );
    /// One cause not to run is over.
    fn restore / restore_enabled / __tracepoint_restore / rust_do_trace_restore (
        gpu_id: u32,
        pid: i32,
        pasid: u16,
        cause: u32,
        result: i32,
    );
    /// Something was reset.
    fn reset / reset_enabled / __tracepoint_reset / rust_do_trace_reset (
        gpu_id: u32,
        kind: u32,
        doorbell: u32,
        queues: u32,
        us: u64,
        result: i32,
    );
    /// A PCI function lost bus mastering.
    fn bus_master_off / bus_master_off_enabled / __tracepoint_bus_master_off / rust_do_trace_bus_master_off (
        domain: u32,
        bus: u32,
        devfn: u32,
    );
    /// The hardware got a new list of what to work on.
    fn runlist / runlist_enabled / __tracepoint_runlist / rust_do_trace_runlist (
        gpu_id: u32,
        processes: u32,
        queues: u32,
        dwords: u32,
        chained: bool,
        result: i32,
    );
}

/// What a [`reset`] was of.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum ResetKind {
    /// One queue.
    Queue,
    /// The engines, in place.
    Engines,
    /// The chip.
    Chip,
}

/// 0 or a negative errno.
pub(crate) fn errno<T>(result: &Result<T>) -> i32 {
    result.as_ref().map_or_else(|error| error.to_errno(), |_| 0)
}
