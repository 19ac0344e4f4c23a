// SPDX-License-Identifier: GPL-2.0

//! HSA compute driver for AMD gfx9 GPUs.
//!
//! The layers, each of which knows only those left of it: `hw` (facts), `gpu` (one PCI device),
//! `vm` and `sched`, `queue` and `event`, `kfd` and `drm` (the two faces), [`driver`] (composes
//! them per device). [`kapi`] lies beneath all: it is the only place that calls C.

mod bindings;
mod driver;
mod drm;
mod event;
mod gpu;
mod hw;
mod kapi;
mod kfd;
mod queue;
mod sched;
#[cfg(rkfd_kunit)]
mod tests;
mod vm;

kernel::prelude::module! {
    type: driver::RkfdModule,
    name: "rkfd",
    authors: ["The rkfd authors"],
    description: "HSA compute driver for AMD gfx9 GPUs",
    license: "GPL v2",
    params: {
        force_probe: u32 {
            default: 0,
            description: "PCI device id of a card to bind although it is not the GPU model (0 = none)",
        },
        gpu_recovery: bool {
            default: true,
            description: "Reset a GPU whose scheduler does not answer (default: yes)",
        },
    },
}
