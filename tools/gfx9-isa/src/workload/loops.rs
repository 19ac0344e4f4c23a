// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The loops: one per class of instructions.

mod alu;
mod matrix;
mod memory;

use super::Workload;

/// All of them.
pub fn workloads() -> impl Iterator<Item = &'static Workload> {
    [alu::LOOPS, memory::LOOPS, matrix::LOOPS]
        .into_iter()
        .flatten()
}
