// SPDX-License-Identifier: GPL-2.0

//! User queues of one process, or of one open file: what user space asks for, checked, and what it may then name by id.
//!
//! [`request`] has the checks that need no hardware and no memory, [`manager`] the queues themselves,
//! [`address_space`] what the scheduler is told of where they run, [`eviction`] what stops them while memory moves.
//! [`userptr`] keeps them off memory of processes while that changes, and [`space`] does so on one GPU.

pub(crate) mod address_space;
pub(crate) mod eviction;
pub(crate) mod manager;
pub(crate) mod request;
pub(crate) mod space;
pub(crate) mod userptr;
