// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Host build of the driver's hardware layer (`rust/hw`) and of the pure parts of its scheduler.
//!
//! The layer is part of a kernel module but needs nothing of the kernel. This crate compiles the
//! very same files, so that unit tests, property tests and Miri reach them in seconds. The module's
//! KUnit suites of the layer run here too: outside a module build their `kunit_tests` attribute is
//! absent and they are ordinary tests.

/// The module's source tree; `hw` resolves its files there as it does inside the module.
#[path = "../../../rust"]
mod driver {
    #[allow(
        dead_code,
        unused_imports,
        reason = "tests use it here, and not all of it"
    )]
    pub(crate) mod hw;
}

#[cfg(test)]
#[path = "../../../rust/tests"]
mod kunit {
    mod hw_asic;
    mod hw_ih;
    mod hw_mqd;
    mod hw_pm4;
    mod hw_pte;
    mod hw_runlist;
    mod hw_sdma;
}

/// The scheduler's decisions, which use nothing of the kernel.
#[cfg(test)]
#[path = "../../../rust/sched"]
#[allow(dead_code, reason = "what only the module prints and counts")]
mod sched {
    pub(crate) mod lifecycle;
    #[path = "desired/plan.rs"]
    pub(crate) mod plan;
}

use driver::hw;

#[cfg(test)]
mod tests;
