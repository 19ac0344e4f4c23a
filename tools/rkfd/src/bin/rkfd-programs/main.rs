// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Compiled kernels on a GPU, every result compared with the same on the CPU, as TAP.
//!
//! The kernels are those of `tools/selftests/kernels`, compiled for the GPU into the directory that `RKFD_KERNELS` names,
//! below which each GPU has its own. Arguments choose cases by parts of their names. `KFD_REQUIRE_GPU` makes it a failure
//! that there is no GPU; `TAP_PATIENCE` multiplies the time that waits may take.

// A case fails by a panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bench;
mod kernels;
mod queues;
mod refused;
#[path = "../tap/mod.rs"]
mod tap;

use tap::Case;

const CASES: &[Case] = &[
    ("a vector is added: HIP", kernels::vector_add),
    ("a vector is added: assembly", kernels::vector_add_by_hand),
    (
        "OpenCL C with group memory of the launch's size",
        kernels::opencl,
    ),
    (
        "lanes through LDS, read and waited for by hand",
        kernels::lanes,
    ),
    (
        "what a launch says of itself, and variables",
        kernels::geometry,
    ),
    ("reduction", kernels::reduction),
    ("histogram", kernels::histogram),
    ("transpose", kernels::transpose),
    ("prefix scan in three launches", kernels::scan),
    ("matrices by tiles in LDS", kernels::gemm),
    ("matrices by MFMA", kernels::gemm_mfma),
    ("loops that diverge", kernels::collatz),
    ("recursion", kernels::recursion),
    (
        "16 KiB of private memory for each work-item",
        kernels::scratch,
    ),
    (
        "counters that CPU and GPU add to at the same time",
        kernels::shared_counters,
    ),
    ("a million and some work-items", kernels::many),
    ("group memory that the launch sizes", kernels::reverse),
    ("launches that depend on each other", queues::chain),
    (
        "queues that wait for each other by barrier packets",
        queues::across_queues,
    ),
    ("eight queues at once", queues::many_queues),
    ("eight processes at once", queues::many_processes),
    ("kernels that enqueue kernels", queues::enqueue),
    ("programs and launches that cannot be", refused::refused),
];

fn main() {
    tap::main(CASES);
}
