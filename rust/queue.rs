// SPDX-License-Identifier: GPL-2.0

//! User queues of one process: what user space asks for, checked, and what it may then name by id.
//!
//! [`request`] has the checks that need no hardware and no memory, [`manager`] the queues themselves.

pub(crate) mod manager;
pub(crate) mod request;
