// SPDX-License-Identifier: GPL-2.0

//! Hardware facts: everything that the silicon and its firmware fix, and nothing else.
//!
//! This layer knows registers, packets, queue descriptors, page-table entries and interrupt vectors
//! of gfx9 compute devices. It is pure: only `core`, no allocation, no kernel call, no `unsafe`; it
//! also compiles on the host, where unit tests, property tests and Miri reach it without a kernel.
//! It writes into memory that its caller provides and never touches a device.
//!
//! - [`asic`] holds all differences between ASICs as values of one type, [`shader`] what a device has of
//!   its ASIC's compute units.
//! - [`regs`] has register addresses and fields, [`mqd`] the queue descriptors that mirror them.
//! - [`pm4`] encodes and decodes the packets of the HIQ and the KIQ, [`runlist`] composes the list
//!   that the scheduler firmware walks, [`sdma`] and [`aql`] describe the other two packet worlds.
//! - [`pte`] is the page-table format, [`ih`] the interrupt ring, [`doorbell`] the doorbell BAR.
//! - [`cwsr`] sizes the wave save area, [`timeouts`] names every bound on a wait.
//!
//! Everything that comes from hardware or memory is checked before use, and no function here
//! panics on such input. Printing: the types implement `core::fmt::Display`; the kernel's own
//! print macros take them through `format_args!`.

#![forbid(unsafe_code)]
#![expect(
    dead_code,
    unused_imports,
    reason = "the layer describes and re-exports all of the hardware, not only what is used today"
)]

pub(crate) mod aql;
pub(crate) mod asic;
pub(crate) mod bits;
pub(crate) mod cwsr;
pub(crate) mod doorbell;
pub(crate) mod ih;
pub(crate) mod load;
pub(crate) mod mqd;
pub(crate) mod num;
pub(crate) mod pm4;
pub(crate) mod pte;
pub(crate) mod regs;
pub(crate) mod runlist;
pub(crate) mod sdma;
pub(crate) mod shader;
pub(crate) mod timeouts;
