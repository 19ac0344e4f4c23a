// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Kernels: from a dispatch packet to waves that execute, and back to its completion.
//!
//! [`kernel`] is what a packet and its kernel descriptor say, [`units`] what compute units hold, [`dispatcher`] hands
//! workgroups out ([`job`]) and takes them off ([`progress`]), [`runner`] executes them, on the threads of [`pool`] or in the device's steps, and says what
//! their waves come to ([`report`]).  Only [`front`] and [`launch`] are behind the device's lock: they start dispatches,
//! take them off, and turn what waves come to into interrupts, queue errors and signals.  [`sync`] is where waves of
//! different groups meet, [`posts`] how they ring doorbells, [`saved`] the form in which a dispatch lies in a save
//! area, [`measure`] how much that is,
//! [`names`] tells what a kernel is called, [`look`] where all waves are,
//! [`watch`] what they execute, and [`errors`] what kernels have done wrong.

#![allow(
    clippy::precedence,
    reason = "fields of registers are shifted and masked everywhere"
)]

pub mod code;
pub mod dispatcher;
pub mod errors;
pub mod front;
pub mod job;
pub mod kernel;
pub mod launch;
pub mod look;
pub mod measure;
pub mod names;
pub mod pool;
pub mod posts;
pub mod progress;
pub mod report;
pub mod runner;
pub mod saved;
pub mod sync;
pub mod units;
pub mod watch;
