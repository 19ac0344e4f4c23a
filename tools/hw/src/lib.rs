// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Host build of the driver's hardware layer (`rust/hw`).
//!
//! The layer is part of a kernel module but needs nothing of the kernel. This crate compiles the
//! very same files, so that unit tests, property tests and Miri reach them in seconds. The module's
//! KUnit suites of the layer run here too: outside a module build their `kunit_tests` attribute is
//! absent and they are ordinary tests.

/// The module's source tree; `hw` resolves its files there as it does inside the module.
#[path = "../../../rust"]
mod driver {
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

use driver::hw;

#[cfg(test)]
mod tests;
