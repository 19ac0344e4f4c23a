// SPDX-License-Identifier: GPL-2.0

//! The scheduler's files in debugfs: `runlist`, `mqds`, `hqds` and `sched`, one set per GPU.

use kernel::{
    debugfs::{
        Dir,
        File, //
    },
    prelude::*,
    sync::Arc, //
};

use super::dump;
use crate::sched::core::SchedCore;

/// The files; they go when this is dropped, which waits for readers.
#[pin_data]
pub(in crate::sched) struct Files {
    #[pin]
    runlist: File<Arc<SchedCore>>,
    #[pin]
    mqds: File<Arc<SchedCore>>,
    #[pin]
    hqds: File<Arc<SchedCore>>,
    #[pin]
    sched: File<Arc<SchedCore>>,
}

impl Files {
    /// Makes the files of `core` in `dir`. Without debugfs they do not exist, which is no error.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(in crate::sched) fn new(dir: &Dir, core: &Arc<SchedCore>) -> Result<Pin<KBox<Self>>> {
        let of = |core: &Arc<SchedCore>| core.clone();
        KBox::pin_init(
            try_pin_init!(Self {
                runlist <- dir.read_callback_file(c"runlist", of(core), &|m, f| dump::runlist(m, f)),
                mqds <- dir.read_callback_file(c"mqds", of(core), &|m, f| dump::mqds(m, f)),
                hqds <- dir.read_callback_file(c"hqds", of(core), &|m, f| dump::hqds(m, f)),
                sched <- dir.read_callback_file(c"sched", of(core), &|m, f| dump::stats(m, f)),
            }? Error),
            GFP_KERNEL,
        )
    }
}
