// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Logs of bounded size: the beginning and the end are kept, and a line says what is missing between.

use crate::kmsg::Level;
use crate::kmsg::Record;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::io::Read;
use std::io::Write;
use std::path::Path;
use std::thread;
use std::thread::JoinHandle;

/// Bytes that a log holds from its beginning.
pub const HEAD: usize = 16 << 20;
/// Bytes that it holds from its end, once it is longer than that.
pub const TAIL: usize = 2 << 20;

/// A log that takes any number of bytes and keeps the first and the last. The last ones are written when
/// it is dropped.
#[derive(Debug)]
pub struct Bounded<W: Write> {
    to: W,
    head_left: usize,
    tail: VecDeque<u8>,
    tail_size: usize,
    cut: u64,
}

impl<W: Write> Bounded<W> {
    /// A log in `to` of the usual size.
    pub fn new(to: W) -> Self {
        Self::sized(to, HEAD, TAIL)
    }

    fn sized(to: W, head: usize, tail: usize) -> Self {
        Self {
            to,
            head_left: head,
            tail: VecDeque::new(),
            tail_size: tail,
            cut: 0,
        }
    }

    fn keep(&mut self, data: &[u8]) {
        self.tail.extend(data);
        let surplus = self.tail.len().saturating_sub(self.tail_size);
        self.tail.drain(..surplus);
        self.cut += surplus as u64;
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.cut > 0 {
            // The end begins with a whole line.
            let line = self.tail.iter().position(|byte| *byte == b'\n');
            let partial = line.map_or(0, |at| at + 1);
            self.tail.drain(..partial);
            self.cut += partial as u64;
            writeln!(self.to, "[rkfd-vm: {} bytes are left out here]", self.cut)?;
        }
        let (first, second) = self.tail.as_slices();
        self.to.write_all(first)?;
        self.to.write_all(second)?;
        self.tail.clear();
        self.cut = 0;
        self.to.flush()
    }
}

impl Bounded<Vec<u8>> {
    /// What it keeps of the beginning until now.
    pub fn head(&self) -> &[u8] {
        &self.to
    }

    /// All that it keeps.
    pub fn into_bytes(mut self) -> Vec<u8> {
        // A vector takes what it is given.
        let _ = self.finish();
        std::mem::take(&mut self.to)
    }
}

impl<W: Write> Write for Bounded<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let (head, rest) = data.split_at_checked(self.head_left).unwrap_or((data, &[]));
        if !head.is_empty() {
            self.to.write_all(head)?;
            self.head_left -= head.len();
            if self.head_left == 0 {
                // Written now, since a killed runner never writes the end.
                let end = self.tail_size;
                write!(
                    self.to,
                    "\n[rkfd-vm: this log is long: from here on, only its last {end} bytes are kept]\n"
                )?;
            }
        }
        self.keep(rest);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl<W: Write> Drop for Bounded<W> {
    fn drop(&mut self) {
        // A log on a full disk ends early; the run does not depend on it.
        let _ = self.finish();
    }
}

/// The thread that writes a log.
#[derive(Debug)]
pub struct Copier(Option<JoinHandle<()>>);

impl Copier {
    /// Does `work`, which owns the log, in a thread.
    pub fn spawn(work: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(thread::spawn(work)))
    }

    /// Copies `from` to its end into a new file at `path`.
    ///
    /// # Errors
    /// Where the file cannot be made.
    pub fn start(mut from: impl Read + Send + 'static, path: &Path) -> io::Result<Self> {
        let mut log = Bounded::new(File::create(path)?);
        let copy = move || {
            let mut buffer = vec![0; 64 * 1024];
            loop {
                let length = match from.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(length) => length,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(_) => return,
                };
                // A full disk must not stop the writer.
                let _ = log.write_all(buffer.get(..length).unwrap_or(&[]));
            }
        };
        Ok(Self::spawn(copy))
    }

    /// Waits until the stream has ended and all of the log is in its file.
    pub fn complete(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}

/// Kernel messages in memory.
#[derive(Debug)]
pub struct Records {
    head: Vec<Record>,
    head_left: usize,
    tail: VecDeque<Record>,
    tail_left: usize,
    cut: u64,
    cut_bytes: u64,
}

impl Default for Records {
    fn default() -> Self {
        Self::sized(HEAD, TAIL)
    }
}

impl Records {
    fn sized(head: usize, tail: usize) -> Self {
        Self {
            head: Vec::new(),
            head_left: head,
            tail: VecDeque::new(),
            tail_left: tail,
            cut: 0,
            cut_bytes: 0,
        }
    }

    /// The memory that a message takes.
    fn size(record: &Record) -> usize {
        size_of::<Record>() + record.text.len()
    }

    /// Adds one; the oldest one after the beginning may go for it.
    pub fn push(&mut self, record: Record) {
        let size = Self::size(&record);
        if self.tail.is_empty() && self.cut == 0 && size <= self.head_left {
            self.head_left -= size;
            self.head.push(record);
            return;
        }
        while size > self.tail_left {
            let Some(oldest) = self.tail.pop_front() else {
                break;
            };
            self.tail_left += Self::size(&oldest);
            self.cut += 1;
            self.cut_bytes += oldest.text.len() as u64;
        }
        if size > self.tail_left {
            self.cut += 1;
            self.cut_bytes += record.text.len() as u64;
        } else {
            self.tail_left -= size;
            self.tail.push_back(record);
        }
    }

    /// All of them, with a message in place of those that are missing; none remain here.
    pub fn take(&mut self) -> Vec<Record> {
        let all = std::mem::take(self);
        let mut records = all.head;
        if all.cut > 0 {
            let last = records.last();
            records.push(Record {
                level: Level::WARNING,
                from_kernel: false,
                sequence: last.map_or(0, |last| last.sequence),
                micros: last.map_or(0, |last| last.micros),
                text: format!(
                    "rkfd-vm: {} kernel messages of {} bytes are left out here",
                    all.cut, all.cut_bytes
                ),
            });
        }
        records.extend(all.tail);
        records
    }

    /// The last ones, `count` at most.
    pub fn last(&self, count: usize) -> Vec<&Record> {
        let from_head = count.saturating_sub(self.tail.len());
        let head = self
            .head
            .iter()
            .skip(self.head.len().saturating_sub(from_head));
        let tail = self.tail.iter().skip(self.tail.len().saturating_sub(count));
        head.chain(tail).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(head: usize, tail: usize, parts: &[&str]) -> String {
        let mut bytes = Vec::new();
        let mut log = Bounded::sized(&mut bytes, head, tail);
        for part in parts {
            log.write_all(part.as_bytes()).unwrap();
        }
        drop(log);
        String::from_utf8(bytes).unwrap()
    }

    const LONG: &str =
        "\n[rkfd-vm: this log is long: from here on, only its last 4 bytes are kept]\n";

    #[test]
    fn a_short_log_is_whole() {
        assert_eq!(logged(8, 4, &["abc", "defg"]), "abcdefg");
        assert_eq!(logged(8, 4, &[]), "");
    }

    #[test]
    fn a_log_that_fits_with_its_end_misses_nothing() {
        let found = logged(8, 4, &["abcdefg", "hijkl"]);
        assert_eq!(found, format!("abcdefgh{LONG}ijkl"));
    }

    #[test]
    fn what_is_missing_is_counted_and_lines_are_whole() {
        let found = logged(4, 4, &["one\ntwo\nthree\n4\n"]);
        // Of 12 bytes after the beginning the last four are "e\n4\n".
        assert_eq!(
            found,
            format!("one\n{LONG}[rkfd-vm: 10 bytes are left out here]\n4\n")
        );
        let found = logged(2, 4, &["abcdefghij"]);
        assert_eq!(
            found,
            format!("ab{LONG}[rkfd-vm: 4 bytes are left out here]\nghij")
        );
    }

    #[test]
    fn a_log_in_memory_is_taken_once_and_whole() {
        let mut log = Bounded::sized(Vec::new(), 4, 4);
        log.write_all(b"one\ntwo\n3\n").unwrap();
        assert!(log.head().starts_with(b"one\n"));
        let found = String::from_utf8(log.into_bytes()).unwrap();
        let wanted = format!("one\n{LONG}[rkfd-vm: 4 bytes are left out here]\n3\n");
        assert_eq!(found, wanted);
    }

    #[test]
    fn a_copier_keeps_a_file_in_bounds_whatever_it_copies() {
        const SIZE: usize = 20 << 20;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let line = |number: usize| format!("line {number:08} {}\n", "x".repeat(49));
        let lines = SIZE / line(0).len();
        let text: String = (0..lines).map(line).collect();
        let mut copier = Copier::start(io::Cursor::new(text.clone().into_bytes()), &path).unwrap();
        copier.complete();
        let found = std::fs::read_to_string(&path).unwrap();
        let (head, rest) = found.split_at(HEAD);
        assert!(text.starts_with(head));
        let begin = format!(
            "\n[rkfd-vm: this log is long: from here on, only its last {TAIL} bytes are kept]\n[rkfd-vm: "
        );
        let rest = rest.strip_prefix(&begin).unwrap();
        let (cut, tail) = rest.split_once(" bytes are left out here]\n").unwrap();
        // All but the rest of a line, and what is missing is just what is between.
        assert!(
            (TAIL - line(0).len()..=TAIL).contains(&tail.len()),
            "{}",
            tail.len()
        );
        assert!(text.ends_with(tail));
        assert_eq!(cut.parse(), Ok(text.len() - HEAD - tail.len()));
    }

    #[test]
    fn memory_is_bounded_by_bytes_and_the_gap_is_marked() {
        let record = |number: u64| Record {
            level: Level::INFO,
            from_kernel: true,
            sequence: number,
            micros: number,
            text: format!("message {number:04}"),
        };
        let one = Records::size(&record(0));
        let mut records = Records::sized(3 * one, 2 * one);
        for number in 0..100 {
            records.push(record(number));
        }
        let texts = |records: Vec<&Record>| -> Vec<String> {
            records
                .into_iter()
                .map(|record| record.text.clone())
                .collect()
        };
        let wanted = ["message 0002", "message 0098", "message 0099"];
        assert_eq!(texts(records.last(3)), wanted);
        // One that is larger than all room is missing, too.
        records.push(Record {
            text: "x".repeat(9 * one),
            ..record(100)
        });
        records.push(record(101));
        let all = records.take();
        let wanted = [
            "message 0000",
            "message 0001",
            "message 0002",
            &format!(
                "rkfd-vm: 98 kernel messages of {} bytes are left out here",
                97 * 12 + 9 * one
            ),
            "message 0101",
        ];
        assert_eq!(texts(all.iter().collect()), wanted);
        assert!(records.take().is_empty());
    }
}
