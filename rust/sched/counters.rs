// SPDX-License-Identifier: GPL-2.0

//! Counters of a scheduler. They are read without any of its locks.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// Declares the counters once, with what each counts.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Live counters.
        pub(super) struct Counters {
            $($(#[$doc])* pub(super) $name: Counter,)*
        }

        impl Counters {
            /// All zero.
            pub(super) fn new() -> Self {
                Self { $($name: Counter::new(),)* }
            }

            /// The present values.
            pub(super) fn snapshot(&self) -> SchedStats {
                SchedStats { $($name: self.$name.get(),)* }
            }
        }

        /// Values of the counters at one time.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct SchedStats {
            $($(#[$doc])* pub(crate) $name: u64,)*
        }

        impl SchedStats {
            /// Names and values, for dumps.
            pub(crate) fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Changes asked for: create, update, destroy, evict, restore, ...
    changes,
    /// Changes that shared a preemption or runlist with an earlier one.
    coalesced,
    /// Queues created.
    creates,
    /// Queues changed.
    updates,
    /// Queues destroyed.
    destroys,
    /// RUN_LIST packets.
    runlists,
    /// Runlists that the firmware had to take turns on.
    oversubscribed,
    /// Dwords of runlist IBs.
    runlist_dwords,
    /// Dwords of them that were written; the others were there from the list before.
    runlist_written,
    /// MAP_QUEUES in runlist IBs.
    queues_mapped,
    /// Preemptions: UNMAP_QUEUES with QUERY_STATUS.
    preemptions,
    /// Preemptions of single queues or one process.
    narrow_preemptions,
    /// Packets on the HIQ.
    packets,
    /// Dwords on the HIQ, padding included.
    dwords,
    /// Doorbell writes for the HIQ.
    doorbells,
    /// Waits for space on the HIQ.
    stalls,
    /// Microseconds spent waiting for preemptions.
    preempt_us,
    /// Longest preemption in microseconds.
    preempt_max_us,
    /// Fences that did not come in time.
    timeouts,
    /// Queues that were seen to refuse preemption, by the firmware or by the driver.
    refusals,
    /// Queues that were reset because they refused.
    queue_resets,
    /// Those of them that were not waited for as long as the firmware does.
    early_resets,
    /// Queues that stopped at a packet which cannot be executed.
    halts,
    /// Queues that had work and made no progress.
    stuck,
    /// Looks of the progress watchdog, at the queues and at the firmware.
    samples,
    /// Evictions that took effect.
    evictions,
    /// Restores that took effect.
    restores,
    /// Resets that the scheduler came back from.
    resets,
}

/// One counter.
pub(super) struct Counter(Atomic<u64>);

impl Counter {
    fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Adds one.
    pub(super) fn inc(&self) {
        self.add(1);
    }

    /// Adds `n`.
    pub(super) fn add(&self, n: u64) {
        self.0.add(n, Relaxed);
    }

    /// Keeps the larger of the present value and `n`. Only one thread raises a counter.
    pub(super) fn raise(&self, n: u64) {
        if n > self.get() {
            self.0.store(n, Relaxed);
        }
    }

    /// Stores `n`. Only one thread stores.
    pub(super) fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
