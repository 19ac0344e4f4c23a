// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Boots the test kernel with modelled GPUs, runs commands in the guest, and judges what the kernel and
//! the models said meanwhile.
//!
//! The parts, in the order of a run: [`cli`] has the options, [`accel`] chooses between TCG and KVM,
//! [`passthrough`] checks a real card, [`budget`] waits for memory, [`model`] starts a device model per GPU,
//! [`tsc`] measures the clock that the guest reads, [`qemu`] writes QEMU's command line and [`jail`] says
//! what QEMU can reach, [`session`] boots, talks to [`guest`] by [`protocol`] and collects the kernel log,
//! which [`kmsg`] reads and [`complaints`] judges.
//! [`suite`] is the test driver on top, with the parsers of [`ktap`].

pub mod accel;
pub mod budget;
pub mod child;
pub mod cli;
pub mod complaints;
pub mod driver;
pub mod guest;
pub mod jail;
pub mod kmsg;
pub mod ktap;
pub mod lock;
pub mod log;
pub mod model;
pub mod passthrough;
pub mod protocol;
pub mod qemu;
pub mod run_dir;
pub mod session;
pub mod suite;
pub mod term;
pub mod timings;
pub mod tsc;
