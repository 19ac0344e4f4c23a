// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the threads that read the ports of a VM send, until each has sent its last.

use super::Event;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;
use std::time::Instant;

/// Why no event comes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Nothing {
    /// The time is up.
    Yet,
    /// No thread is left that could send one.
    Anymore,
}

/// Events, and the ports that more may come from.
pub(super) struct Inbox {
    events: Receiver<Event>,
    open_ports: usize,
}

impl Inbox {
    /// Of so many ports.
    pub(super) fn new(events: Receiver<Event>, open_ports: usize) -> Self {
        Self { events, open_ports }
    }

    /// Whether the guest may still say something.
    pub(super) fn is_open(&self) -> bool {
        self.open_ports > 0
    }

    /// The next event, by `end` where there is one.
    pub(super) fn next(&mut self, end: Option<Instant>) -> Result<Event, Nothing> {
        let event = match end {
            None => self
                .events
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
            Some(end) => self
                .events
                .recv_timeout(end.saturating_duration_since(Instant::now())),
        };
        match event {
            Ok(event) => {
                if let Event::Closed(_) = event {
                    self.open_ports = self.open_ports.saturating_sub(1);
                }
                Ok(event)
            }
            Err(RecvTimeoutError::Timeout) => Err(Nothing::Yet),
            Err(RecvTimeoutError::Disconnected) => {
                // A thread that panicked has closed no port, and none will.
                self.open_ports = 0;
                Err(Nothing::Anymore)
            }
        }
    }

    /// Takes what comes until all ports are closed, for `limit` at most, or until `each` says that it is enough.
    pub(super) fn drain(&mut self, limit: Duration, mut each: impl FnMut(Event) -> bool) {
        let end = Some(Instant::now() + limit);
        while self.is_open() {
            match self.next(end) {
                Ok(event) => {
                    if !each(event) {
                        return;
                    }
                }
                Err(Nothing::Yet) => return,
                Err(Nothing::Anymore) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::sync::mpsc::SyncSender;
    use std::thread;

    /// An inbox of two ports whose threads are these; what draining it brought, unless it did not end.
    fn drained(
        first: impl FnOnce(SyncSender<Event>) + Send + 'static,
        second: impl FnOnce(SyncSender<Event>) + Send + 'static,
    ) -> Option<(Vec<Event>, bool)> {
        let (sender, events) = mpsc::sync_channel(64);
        let senders = [sender.clone(), sender];
        let [one, other] = senders;
        let threads = [
            thread::spawn(move || first(one)),
            thread::spawn(move || second(other)),
        ];
        let (done, result) = mpsc::channel();
        thread::spawn(move || {
            let mut inbox = Inbox::new(events, 2);
            let mut all = Vec::new();
            inbox.drain(Duration::from_secs(600), |event| {
                all.push(event);
                true
            });
            let _ = done.send((all, inbox.is_open()));
        });
        let result = result.recv_timeout(Duration::from_secs(60)).ok();
        for thread in threads {
            let _ = thread.join();
        }
        result
    }

    #[test]
    fn what_came_before_the_last_port_closed_is_taken() {
        let (all, open) = drained(
            |events| {
                events.send(Event::Interrupt(3)).unwrap();
                events.send(Event::Closed("one")).unwrap();
            },
            |events| events.send(Event::Closed("other")).unwrap(),
        )
        .unwrap();
        assert_eq!(all.len(), 3);
        assert!(!open);
    }

    #[test]
    fn a_thread_that_panicked_is_not_waited_for() {
        let (all, open) = drained(
            |events| {
                events.send(Event::Interrupt(3)).unwrap();
                // Its port stays open.
                panic!("of the test's own");
            },
            |events| events.send(Event::Closed("other")).unwrap(),
        )
        .expect("draining ends");
        assert_eq!(all.len(), 2);
        assert!(!open);
    }

    #[test]
    fn draining_ends_when_the_time_is_up_or_the_taker_has_enough() {
        let (sender, events) = mpsc::sync_channel(64);
        let mut inbox = Inbox::new(events, 2);
        inbox.drain(Duration::from_millis(1), |_| true);
        assert!(inbox.is_open());
        sender.send(Event::Interrupt(3)).unwrap();
        inbox.drain(Duration::from_secs(600), |_| false);
        assert!(inbox.is_open());
    }
}
