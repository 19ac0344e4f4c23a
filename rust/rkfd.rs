// SPDX-License-Identifier: GPL-2.0

//! HSA compute driver for AMD gfx9 GPUs.
//!
//! The layers, each of which knows only those left of it: `hw` (facts), `gpu` (one PCI device),
//! `vm` and `sched`, `queue`, `event` and `mirror`, `kfd` and `drm` (the two faces), [`driver`] (composes
//! them per device). [`kapi`] lies beneath all: it is the only place that calls C, and but for the few promises that
//! it lists the only one with `unsafe` code.

mod bindings;
mod driver;
mod drm;
mod event;
mod gpu;
mod hw;
mod kapi;
mod kfd;
mod mirror;
mod queue;
mod sched;
#[cfg(rkfd_kunit)]
mod tests;
mod trace;
mod vm;

kernel::prelude::module! {
    type: driver::RkfdModule,
    name: "rkfd",
    authors: ["The rkfd authors"],
    description: "HSA compute driver for AMD gfx9 GPUs",
    license: "GPL v2",
    imports_ns: ["DMA_BUF"],
    params: {
        gpu_recovery: bool {
            default: true,
            description: "Reset a GPU whose scheduler does not answer (default: yes)",
        },
        sched_policy: u32 {
            default: 0,
            description: "0 = scheduler firmware, takes turns when slots run out (default); 1 = firmware, refuses what does not fit; 2 = no firmware, the driver loads queues by registers",
        },
        hws_max_conc_proc: i32 {
            default: -1,
            description: "Processes that the scheduler firmware runs at a time (default: as many as there are VMIDs)",
        },
        coalesce: bool {
            default: true,
            description: "Collect changes of queues (default: yes); n = a full preemption and a full runlist for each",
        },
        gather_us: u32 {
            default: 2000,
            description: "Microseconds that an added queue waits for further ones before running work is preempted for it",
        },
        targeted: bool {
            default: true,
            description: "Take single queues off the hardware where that is enough (default: yes)",
        },
        preempt_timeout_ms: u32 {
            default: 9000,
            description: "Milliseconds that a preemption may take before the GPU counts as hung",
        },
        watchdog_ms: u32 {
            default: 10000,
            description: "Milliseconds without progress after which a queue with work is reported (0 = never)",
        },
        max_queues: u32 {
            default: 4096,
            description: "Queues on a GPU",
        },
        max_queues_per_process: u32 {
            default: 1024,
            description: "Queues of a process on a GPU",
        },
        max_processes: u32 {
            default: 512,
            description: "Processes with queues on a GPU",
        },
    },
}
