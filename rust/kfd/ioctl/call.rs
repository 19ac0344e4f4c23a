// SPDX-License-Identifier: GPL-2.0

//! What a call is made with.

use crate::{
    kapi::task::ThreadGroup,
    kfd::{
        process::{
            Context,
            Process, //
        },
        system::System, //
    },
};
use kernel::sync::{
    Arc,
    SetOnce, //
};

/// The caller.
pub(crate) struct Call<'a> {
    /// What all open files share.
    pub(crate) system: &'a Arc<System>,
    /// What the file stands for: its context if it has one, else the process that opened it. The dispatcher checked that it
    /// is the caller's.
    pub(crate) process: &'a Arc<Process>,
    /// The context of the file, from CREATE_PROCESS on.
    pub(crate) context: &'a SetOnce<Context>,
    /// The process that opened the file.
    pub(crate) opener: &'a ThreadGroup,
}
