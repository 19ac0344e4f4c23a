// SPDX-License-Identifier: GPL-2.0

//! What a call is made with.

use crate::{
    kapi::task::ThreadGroup,
    kfd::{
        process::Process,
        system::System, //
    },
};
use kernel::sync::Arc;

/// The caller.
pub(crate) struct Call<'a> {
    /// What all open files share.
    pub(crate) system: &'a Arc<System>,
    /// The process that opened the file; the dispatcher checked that it is the caller's.
    pub(crate) process: &'a Arc<Process>,
    /// The process that opened the file.
    pub(crate) opener: &'a ThreadGroup,
}
