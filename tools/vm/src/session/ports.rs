// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The host's ends of the virtio-serial ports, and the threads that read them.

use super::Event;
use super::Stream;
use crate::kmsg::Splitter;
use crate::log::Bounded;
use crate::log::Copier;
use crate::protocol;
use crate::protocol::PORT_KMSG;
use crate::protocol::PORT_STATUS;
use crate::protocol::PORT_STDERR;
use crate::protocol::PORT_STDIN;
use crate::protocol::PORT_STDOUT;
use anyhow::Context;
use std::fs::File;
use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::SyncSender;
use std::thread;

/// Longest line on the status port in bytes; the largest ones hold what kmemleak found.
const LINE_MAX: u64 = 16 << 20;

/// The ends of the ports, ours and QEMU's.
pub(super) struct Ports {
    ours: Vec<(&'static str, UnixStream)>,
    /// QEMU's ends; to be closed here once it runs.
    pub(super) theirs: Vec<OwnedFd>,
}

impl Ports {
    /// Makes a pair of sockets for each port.
    pub(super) fn new() -> io::Result<Self> {
        let mut ports = Self {
            ours: Vec::new(),
            theirs: Vec::new(),
        };
        for name in [PORT_STATUS, PORT_KMSG, PORT_STDIN, PORT_STDOUT, PORT_STDERR] {
            let (ours, theirs) = UnixStream::pair()?;
            ports.ours.push((name, ours));
            ports.theirs.push(theirs.into());
        }
        Ok(ports)
    }

    /// Names, and the descriptors that QEMU is to inherit.
    pub(super) fn numbers(&self) -> Vec<(&'static str, i32)> {
        let names = self.ours.iter().map(|(name, _)| *name);
        names
            .zip(self.theirs.iter().map(AsRawFd::as_raw_fd))
            .collect()
    }

    /// Our end of a port.
    pub(super) fn get(&self, wanted: &str) -> anyhow::Result<UnixStream> {
        let found = self.ours.iter().find(|(name, _)| *name == wanted);
        let (_, stream) = found.with_context(|| format!("no port {wanted}"))?;
        Ok(stream.try_clone()?)
    }
}

/// Turns the guest's replies into events.
pub(super) fn read_status(port: UnixStream, events: SyncSender<Event>) {
    thread::spawn(move || {
        let mut port = BufReader::new(port);
        let mut line = Vec::new();
        loop {
            line.clear();
            match port.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            if let Ok(reply) = serde_json::from_slice(&line) {
                if events.send(Event::Reply(reply)).is_err() {
                    return;
                }
            }
        }
        let _ = events.send(Event::Closed(PORT_STATUS));
    });
}

/// Turns kernel log records into events, as long as somebody takes them, and lines of `log`.
pub(super) fn read_kmsg(
    mut port: UnixStream,
    events: SyncSender<Event>,
    mut log: Bounded<File>,
) -> Copier {
    Copier::spawn(move || {
        let mut splitter = Splitter::default();
        let mut buffer = vec![0; 64 * 1024];
        let mut wanted = true;
        while let Ok(length) = port.read(&mut buffer) {
            if length == 0 {
                break;
            }
            for record in splitter.push(buffer.get(..length).unwrap_or(&[])) {
                // The log file is a convenience; the events are what counts.
                let _ = writeln!(log, "{record}");
                wanted = wanted && events.send(Event::Kmsg(record)).is_ok();
            }
        }
        drop(log);
        let _ = events.send(Event::Closed(PORT_KMSG));
    })
}

/// Turns the bytes of an output stream into events.
pub(super) fn read_data(
    name: &'static str,
    mut port: UnixStream,
    stream: Stream,
    events: SyncSender<Event>,
) {
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length) = port.read(&mut buffer) {
            if length == 0 {
                break;
            }
            let data = buffer.get(..length).unwrap_or(&[]).to_vec();
            if events.send(Event::Data(stream, data)).is_err() {
                return;
            }
        }
        let _ = events.send(Event::Closed(name));
    });
}

/// Copies `from` to the command's standard input until its end, from a thread of its own.
pub fn pump_stdin(mut from: impl Read + Send + 'static, mut to: UnixStream) {
    thread::spawn(move || {
        let mut buffer = vec![0; protocol::STDIN_FRAME_MAX];
        loop {
            let length = match from.read(&mut buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => 0,
            };
            let frame = protocol::stdin_frame(buffer.get(..length).unwrap_or(&[]));
            if to.write_all(&frame).is_err() || length == 0 {
                return;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kmsg::Record;
    use crate::log::Records;
    use crate::log::HEAD;
    use crate::log::TAIL;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn a_flood_of_kernel_messages_is_bounded_on_disk_and_in_memory() {
        /// Of text each.
        const LENGTH: usize = 1000;
        const COUNT: usize = (20 << 20) / LENGTH;
        /// For the lines that stand for what is missing.
        const MARKS: usize = 1000;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kernel.log");
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (sender, events) = sync_channel(64);
        let mut copier = read_kmsg(ours, sender, Bounded::new(File::create(&path).unwrap()));
        let text = |number: usize| format!("{number:0LENGTH$}");
        let flood = thread::spawn(move || {
            for number in 0..COUNT {
                writeln!(theirs, "6,{number},{number},-;{}", text(number)).unwrap();
            }
        });
        let mut records = Records::default();
        let mut count = 0;
        for event in events {
            match event {
                Event::Kmsg(record) => {
                    records.push(record);
                    count += 1;
                }
                other => {
                    assert!(matches!(other, Event::Closed(PORT_KMSG)));
                    break;
                }
            }
        }
        flood.join().unwrap();
        copier.complete();
        assert_eq!(count, COUNT);

        let size = usize::try_from(path.metadata().unwrap().len()).unwrap();
        assert!((HEAD..=HEAD + TAIL + MARKS).contains(&size), "{size}");
        let log = std::fs::read_to_string(&path).unwrap();
        assert!(
            log.starts_with("[    0.000000] info    0000"),
            "{}",
            &log[..99]
        );
        assert!(log.ends_with(&format!("{}\n", text(COUNT - 1))));
        assert_eq!(log.matches("[rkfd-vm: ").count(), 2);

        let kept = records.take();
        let memory = |record: &Record| size_of::<Record>() + record.text.len();
        let size: usize = kept.iter().map(memory).sum();
        let range = HEAD + TAIL - 2 * (LENGTH + size_of::<Record>())..=HEAD + TAIL + MARKS;
        assert!(range.contains(&size), "{size}");
        assert_eq!(kept.first().unwrap().text, text(0));
        assert_eq!(kept.last().unwrap().text, text(COUNT - 1));
        let cut = COUNT - (kept.len() - 1);
        let mark = format!(
            "rkfd-vm: {cut} kernel messages of {} bytes are left out here",
            cut * LENGTH
        );
        assert_eq!(kept.iter().filter(|record| record.text == mark).count(), 1);
    }
}
