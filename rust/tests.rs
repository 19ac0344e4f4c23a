// SPDX-License-Identifier: GPL-2.0

//! KUnit suites that need more than one module.

mod vm_interval;
mod vm_pt;
