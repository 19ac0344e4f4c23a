// SPDX-License-Identifier: GPL-2.0

//! Where the thread of a wait sleeps.

use kernel::{
    new_condvar, new_spinlock,
    prelude::*,
    sync::{
        Arc,
        CondVar,
        CondVarTimeoutResult,
        SpinLock, //
    },
    time::Jiffies,
};

use super::table::Wake;

/// Where the thread of a wait sleeps.
#[pin_data]
pub(super) struct WaitPoint {
    /// The table has news since the thread looked last. Innermost; not the lock of the table, whose release
    /// enters notices, which a sleep on it would leave out.
    #[pin]
    news: SpinLock<bool>,
    #[pin]
    woken: CondVar,
}

impl WaitPoint {
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                news <- new_spinlock!(false, "rkfd_wait_news"),
                woken <- new_condvar!("rkfd_wait"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Sleeps until there are news, at most `left`.
    pub(super) fn sleep(&self, left: Jiffies) -> CondVarTimeoutResult {
        let mut news = self.news.lock();
        let result = if *news {
            CondVarTimeoutResult::Woken { jiffies: left }
        } else {
            self.woken.wait_interruptible_timeout(&mut news, left)
        };
        // The caller looks at the table now, whatever ended the sleep.
        *news = false;
        result
    }
}

impl Wake for Arc<WaitPoint> {
    fn wake(&self) {
        *self.news.lock() = true;
        self.woken.notify_all();
    }
}
