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

use super::{
    dump,
    machine::Machine, //
};

/// The files; they go when this is dropped, which waits for readers.
#[pin_data]
pub(super) struct Files {
    #[pin]
    runlist: File<Arc<Machine>>,
    #[pin]
    mqds: File<Arc<Machine>>,
    #[pin]
    hqds: File<Arc<Machine>>,
    #[pin]
    sched: File<Arc<Machine>>,
}

impl Files {
    /// Makes the files of `machine` in `dir`. Without debugfs they do not exist, which is no error.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(dir: &Dir, machine: &Arc<Machine>) -> Result<Pin<KBox<Self>>> {
        let of = |machine: &Arc<Machine>| machine.clone();
        KBox::pin_init(
            try_pin_init!(Self {
                runlist <- dir.read_callback_file(c"runlist", of(machine), &|m, f| dump::runlist(m, f)),
                mqds <- dir.read_callback_file(c"mqds", of(machine), &|m, f| dump::mqds(m, f)),
                hqds <- dir.read_callback_file(c"hqds", of(machine), &|m, f| dump::hqds(m, f)),
                sched <- dir.read_callback_file(c"sched", of(machine), &|m, f| dump::stats(m, f)),
            }? Error),
            GFP_KERNEL,
        )
    }
}
