// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Host-only tests: register tables against the written contract, and properties.

mod bits;
mod doorbell;
mod fields;
mod fields_gfx;
mod fields_packets;
mod ih;
mod layout;
mod lifecycle;
mod mqd;
mod plan;
mod pm4;
mod pte;
mod registers;
mod runlist;
