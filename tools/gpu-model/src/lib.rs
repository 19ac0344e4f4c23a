// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A functional model of a gfx9 compute GPU.
//!
//! [`device::Gpu`] is the machine; [`server`] attaches it to a VMM over vfio-user; [`control`] is the socket through
//! which tests look inside and inject faults.  `Documentation/gpu-model.md` describes use and limits.

pub mod aql;
pub mod asic;
pub mod board;
pub mod clock;
pub mod control;
pub mod cp;
pub mod decode;
pub mod device;
mod doorbell;
pub mod feed;
pub mod hws;
pub mod ih;
pub mod inject;
pub mod latency;
pub mod mem;
pub mod pci;
mod power;
pub mod regs;
pub mod sdma;
pub mod server;
pub mod smu;
pub mod soc;
pub mod strays;
pub mod sync;
pub mod trace;
pub mod vm;
pub mod waves;
