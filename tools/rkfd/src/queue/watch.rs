// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A thread that sleeps until its queue stops at a packet, and says so.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;

use super::error::QueueError;
use super::object::Object;
use crate::error::Error;
use crate::error::Result;
use crate::event::FIRST_AGE;

/// How long it sleeps at most before it looks by itself.
const SLEEP: Duration = Duration::from_secs(10);

/// Ends when dropped: its thread calls nobody after that.
#[derive(Debug)]
pub(super) struct Watcher {
    object: Arc<Object>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// # Errors
    /// [`Error::Thread`].
    pub(super) fn start(
        object: Arc<Object>,
        mut tell: Box<dyn FnMut(QueueError) + Send>,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (its_object, its_stop) = (object.clone(), stop.clone());
        let run = move || {
            let mut age = FIRST_AGE;
            let mut last = None;
            while !its_stop.load(Ordering::Acquire) {
                // The driver may tell more of the same stop later.
                let now = its_object.error();
                if now != last {
                    last = now;
                    if let Some(error) = now {
                        tell(error);
                    }
                } else if its_object.sleep(&mut age, SLEEP).is_err() {
                    // The GPU is gone; nothing more comes from it.
                    return;
                }
            }
        };
        let thread = thread::Builder::new()
            .name("rkfd-queue-error".into())
            .spawn(run)
            .map_err(Error::Thread)?;
        Ok(Self {
            object,
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Where this fails the event is gone, and so is the thread.
        let _ = self.object.wake();
        if let Some(thread) = self.thread.take() {
            if thread.thread().id() != thread::current().id() {
                // A panic in there was the callback's, and printed.
                let _ = thread.join();
            }
        }
    }
}
