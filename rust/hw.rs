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
//!   that the scheduler firmware walks, [`sdma`] describes those of the copy engines.
//! - [`pte`] is the page-table format, [`ih`] the interrupt ring, [`doorbell`] the doorbell BAR.
//! - [`cwsr`] sizes the wave save area, [`timeouts`] names every bound on a wait.
//!
//! Everything that comes from hardware or memory is checked before use, and no function here
//! panics on such input. Printing: the types implement `core::fmt::Display`; the kernel's own
//! print macros take them through `format_args!`.

#![forbid(unsafe_code)]
// Three builds use different parts of the tables: the module, the module with its KUnit suites, and the tests on the
// host. So no lint can be expected in all of them, and these are allowed where a module is a table of the hardware.

#[allow(
    dead_code,
    reason = "differences that a test compares with the contract"
)]
pub(crate) mod asic;
pub(crate) mod bits;
pub(crate) mod cwsr;
#[allow(dead_code, reason = "the inverse of an encoding, for tests of it")]
pub(crate) mod doorbell;
#[allow(dead_code, reason = "sources and fields of vectors are listed whole")]
pub(crate) mod ih;
pub(crate) mod load;
#[allow(dead_code, reason = "dwords and their fields are listed whole")]
pub(crate) mod mqd;
pub(crate) mod num;
#[allow(
    dead_code,
    unused_imports,
    reason = "packets and their fields are listed whole, and decoded by tests"
)]
pub(crate) mod pm4;
#[allow(
    dead_code,
    unused_imports,
    reason = "bits of entries are listed whole, and some addresses are looked at by tests"
)]
pub(crate) mod pte;
#[allow(
    dead_code,
    unused_imports,
    reason = "registers and their fields are listed whole"
)]
pub(crate) mod regs;
#[allow(dead_code, reason = "slices of processes are described by tests")]
pub(crate) mod runlist;
#[allow(dead_code, reason = "opcodes are listed whole")]
pub(crate) mod sdma;
pub(crate) mod shader;
pub(crate) mod timeouts;
