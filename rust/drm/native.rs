// SPDX-License-Identifier: GPL-2.0

//! The native interface: the calls of `uapi/rkfd_drm.h`.
//!
//! An open file is an address space with buffers, queues, doorbells and events ([`Context`]). It depends on no process:
//! any holder of the descriptor may call, and two opens by one program share nothing.
//!
//! Calls touch user memory, whose faults may be served late or never. So none of them keeps the device from being
//! unplugged, and no lock is held around such an access.

use kernel::{
    drm::ioctl::DrmIoctlDescriptor,
    prelude::*, //
};

use super::device::RkfdDrm;
use crate::kapi::drm_ioctl::{
    render_call,
    Call, //
};

mod args;
mod bind;
mod buffer;
mod context;
mod event;
mod mirror;
mod notices;
mod query;
mod queue;
mod uapi;

pub(super) use self::context::Context;

use self::{
    args::{
        Device,
        File, //
    },
    uapi::nr, //
};

/// One more than the highest number of a call.
pub(super) const END: usize = nr::MIRROR_MIGRATE as usize + 1;

/// Declares calls by number, argument and the function that answers.
macro_rules! calls {
    ($($name:ident, $text:literal: $nr:expr, $arg:ty => $run:path;)*) => {
        $(
            #[doc = concat!("The call `", stringify!($name), "`.")]
            struct $name;

            // SAFETY: Named in the table of `RkfdDrm` only.
            unsafe impl Call for $name {
                type Driver = RkfdDrm;
                type Arg = $arg;
                const NR: u32 = $nr;
                const NAME: &'static CStr = $text;

                fn run(dev: &Device, file: &File, arg: &mut $arg) -> Result {
                    $run(dev, file, arg)
                }
            }
        )*

        /// Puts the calls into the driver's table.
        pub(super) const fn add_to<const N: usize>(
            mut table: [DrmIoctlDescriptor; N],
        ) -> [DrmIoctlDescriptor; N] {
            // CAST: `usize` has at least 32 bits.
            $( table[$nr as usize] = render_call::<$name>(); )*
            table
        }
    };
}

calls! {
    Query, c"RKFD_QUERY": nr::QUERY, uapi::Query => query::query;
    BoCreate, c"RKFD_BO_CREATE": nr::BO_CREATE, uapi::BoCreate => buffer::create;
    BoInfo, c"RKFD_BO_INFO": nr::BO_INFO, uapi::BoInfo => buffer::info;
    Bind, c"RKFD_BIND": nr::BIND, uapi::BindList => bind::bind;
    QueueCreate, c"RKFD_QUEUE_CREATE": nr::QUEUE_CREATE, uapi::QueueCreate => queue::create;
    QueueUpdate, c"RKFD_QUEUE_UPDATE": nr::QUEUE_UPDATE, uapi::QueueUpdate => queue::update;
    QueueDestroy, c"RKFD_QUEUE_DESTROY": nr::QUEUE_DESTROY, uapi::QueueDestroy => queue::destroy;
    EventCreate, c"RKFD_EVENT_CREATE": nr::EVENT_CREATE, uapi::EventCreate => event::create;
    EventDestroy, c"RKFD_EVENT_DESTROY": nr::EVENT_DESTROY, uapi::EventDestroy => event::destroy;
    Wait, c"RKFD_WAIT": nr::WAIT, uapi::Wait => event::wait;
    Faults, c"RKFD_FAULTS": nr::FAULTS, uapi::Faults => event::faults;
    MirrorCreate, c"RKFD_MIRROR_CREATE": nr::MIRROR_CREATE, uapi::MirrorCreate => mirror::create;
    MirrorDestroy, c"RKFD_MIRROR_DESTROY": nr::MIRROR_DESTROY, uapi::MirrorDestroy => mirror::destroy;
    MirrorQuery, c"RKFD_MIRROR_QUERY": nr::MIRROR_QUERY, uapi::MirrorQuery => mirror::query;
    MirrorPopulate, c"RKFD_MIRROR_POPULATE": nr::MIRROR_POPULATE, uapi::MirrorPopulate => mirror::populate;
    MirrorMigrate, c"RKFD_MIRROR_MIGRATE": nr::MIRROR_MIGRATE, uapi::MirrorMigrate => mirror::migrate;
}
