// SPDX-License-Identifier: GPL-2.0

//! Tracepoints, one function each. A tracepoint that is off costs a jump.
//!
//! [`kernel::declare_trace!`] names the kernel crate's bindings, which do not know the tracepoints
//! of a module out of the tree; the macro here is the same with ours.
//!
//! What is recorded when is tested by `e2e/tracepoints` and `e2e/tracepoints-trouble`.
//!
//! C header: `include/rkfd_trace.h`

use kernel::prelude::*;

/// Declares `name(args)`, and `name_enabled()` for callers to which the arguments are work.
macro_rules! tracepoints {
    ($(
        $(#[$doc:meta])*
        fn $name:ident / $enabled:ident / $key:ident / $call:ident (
            $($arg:ident: $type:ty),* $(,)?
        );
    )*) => {$(
        /// Whether the tracepoint is enabled.
        #[inline(always)]
        pub(crate) fn $enabled() -> bool {
            #[cfg(CONFIG_TRACEPOINTS)]
            // SAFETY: The key is that of a tracepoint, which C defines.
            unsafe {
                kernel::jump_label::static_branch_unlikely!(
                    $crate::bindings::$key,
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
                unsafe { $crate::bindings::$call($($arg),*) };
            }
        }
    )*};
}
pub(crate) use tracepoints;

tracepoints! {
    /// A PCI function lost bus mastering.
    fn bus_master_off / bus_master_off_enabled / __tracepoint_bus_master_off / rust_do_trace_bus_master_off (
        domain: u32,
        bus: u32,
        devfn: u32,
    );
}

/// 0 or a negative errno.
pub(crate) fn errno<T>(result: &Result<T>) -> i32 {
    result.as_ref().map_or_else(|error| error.to_errno(), |_| 0)
}
