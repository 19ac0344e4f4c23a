// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Thin user library for a `/dev/kfd` compute driver.
//!
//! A program opens the driver ([`device::Kfd`]), binds a GPU ([`device::Device`]), makes buffers that CPU and GPU see at
//! one address ([`memory::Buffer`]), and submits packets ([`packet`]) through queues that live in user memory
//! ([`queue::Queue`]). Compiled kernels are loaded and launched by [`code`]. It sleeps on events ([`event::Event`]) or polls memory. Nothing between a packet and its effect
//! enters the kernel.
//!
//! ```no_run
//! use std::time::Duration;
//! use rkfd::packet::pm4::Packet;
//!
//! # fn main() -> rkfd::error::Result<()> {
//! let gpu = rkfd::device::Device::first()?;
//! let target = rkfd::memory::Buffer::new(&gpu, rkfd::memory::Kind::Gtt, 4096)?;
//! let queue = rkfd::queue::Queue::new(&gpu, rkfd::queue::QueueOptions::new(rkfd::queue::QueueKind::Pm4))?;
//! let write = Packet::WriteData { address: target.address(), data: vec![42], confirm: true };
//! queue.submit(&Packet::encode_all(&[write])?)?;
//! rkfd::backoff::poll("the value", Duration::from_secs(5), || match target.read_u32(0) {
//!     Ok(v) => (v == 42, v.into()),
//!     Err(_) => (false, 0),
//! })?;
//! # Ok(())
//! # }
//! ```
//!
//! `unsafe` is confined to [`sys`] and to the few accesses of memory shared with the GPU, each argued where it is.

#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    target_endian = "little"
)))]
compile_error!("/dev/kfd exists on 64-bit little-endian Linux only");

pub mod abi;
pub mod backoff;
pub mod clock;
pub mod code;
pub mod device;
pub mod error;
pub mod event;
pub mod exception;
mod hdp;
pub mod memory;
pub mod monitor;
pub mod native;
pub mod packet;
pub mod queue;
pub mod ring;
pub mod signal;
pub mod sizes;
pub mod sys;
pub mod tasks;
pub mod topology;
