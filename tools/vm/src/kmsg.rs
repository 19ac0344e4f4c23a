// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Records of the kernel log as `/dev/kmsg` hands them out.
//!
//! The format is that of Documentation/ABI/testing/dev-kmsg: `prefix,sequence,microseconds,flags[,more];text`
//! where the low three bits of the prefix are the level and the rest is the facility (0 is the kernel);
//! bytes that do not print are written as `\xNN`; lines that start with a space are a dictionary.

use std::fmt;

/// How bad a message is (include/linux/kern_levels.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(pub u8);

impl Level {
    /// KERN_ERR.
    pub const ERROR: Level = Level(3);
    /// KERN_WARNING.
    pub const WARNING: Level = Level(4);
    /// KERN_INFO.
    pub const INFO: Level = Level(6);

    /// The level's usual name.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; 8] = [
            "emergency",
            "alert",
            "critical",
            "error",
            "warning",
            "notice",
            "info",
            "debug",
        ];
        NAMES.get(usize::from(self.0)).copied().unwrap_or("?")
    }
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// How bad.
    pub level: Level,
    /// Whether the kernel said it, not a process through `/dev/kmsg`.
    pub from_kernel: bool,
    /// Position in the log.
    pub sequence: u64,
    /// Time since boot in microseconds.
    pub micros: u64,
    /// What it says, unescaped; may have several lines.
    pub text: String,
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.micros / 1_000_000, self.micros % 1_000_000);
        write!(
            f,
            "[{seconds:5}.{micros:06}] {:<7} {}",
            self.level.name(),
            self.text
        )
    }
}

impl Record {
    /// Reads one line; none for a dictionary line or anything else that is no record.
    pub fn parse(line: &str) -> Option<Self> {
        if line.starts_with(' ') {
            return None;
        }
        let (prefix, text) = line.split_once(';')?;
        let mut fields = prefix.split(',');
        let priority: u32 = fields.next()?.parse().ok()?;
        let sequence = fields.next()?.parse().ok()?;
        let micros = fields.next()?.parse().ok()?;
        Some(Self {
            // CAST: three bits.
            level: Level((priority & 7) as u8),
            from_kernel: priority >> 3 == 0,
            sequence,
            micros,
            text: unescape(text),
        })
    }
}

/// Undoes the `\xNN` of the record format; anything that only looks like it stays as it is.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\\x") {
        let (before, escape) = rest.split_at(at);
        bytes.extend_from_slice(before.as_bytes());
        let code = escape
            .get(2..4)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        let taken = match code {
            Some(byte) => {
                bytes.push(byte);
                4
            }
            None => {
                bytes.extend_from_slice(b"\\x");
                2
            }
        };
        rest = escape.get(taken..).unwrap_or("");
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Longest line of the stream in bytes: far more than the kernel makes of one message.
const LINE_MAX: usize = 1 << 20;

/// Cuts a stream of bytes into records.
#[derive(Debug, Default)]
pub struct Splitter {
    partial: Vec<u8>,
}

impl Splitter {
    /// Takes the next bytes and returns the records that are complete with them.
    pub fn push(&mut self, data: &[u8]) -> Vec<Record> {
        self.partial.extend_from_slice(data);
        let Some(end) = self.partial.iter().rposition(|byte| *byte == b'\n') else {
            if self.partial.len() > LINE_MAX {
                // No record of the kernel's. Its sequence number is missing, which counts as a loss.
                self.partial.clear();
            }
            return Vec::new();
        };
        let complete: Vec<u8> = self.partial.drain(..=end).collect();
        String::from_utf8_lossy(&complete)
            .lines()
            .filter_map(Record::parse)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_record_of_the_kernel() {
        let record = Record::parse("4,339,5140900,c;rkfd 0000:01:00.0: queue 3 hangs").unwrap();
        assert_eq!(record.level, Level::WARNING);
        assert!(record.from_kernel);
        assert_eq!((record.sequence, record.micros), (339, 5_140_900));
        assert_eq!(record.text, "rkfd 0000:01:00.0: queue 3 hangs");
        assert_eq!(
            record.to_string(),
            "[    5.140900] warning rkfd 0000:01:00.0: queue 3 hangs"
        );
    }

    #[test]
    fn a_record_of_a_process_and_one_with_a_caller() {
        let record = Record::parse("12,7,100,-;hello").unwrap();
        assert!(!record.from_kernel);
        assert_eq!(record.level, Level::WARNING);
        let record = Record::parse("6,8,101,-,caller=T1;a;b").unwrap();
        assert_eq!(record.text, "a;b");
    }

    #[test]
    fn escapes_are_undone_and_broken_ones_kept() {
        let text = |line: &str| Record::parse(line).unwrap().text;
        assert_eq!(text("6,1,1,-;one\\x0atwo"), "one\ntwo");
        assert_eq!(text("6,1,1,-;\\xc3\\xa4"), "ä");
        assert_eq!(text("6,1,1,-;\\xzz \\x"), "\\xzz \\x");
    }

    #[test]
    fn dictionaries_and_rubbish_are_no_records() {
        for line in [" SUBSYSTEM=pci", "", "hello", "6,1;x", "a,b,c,d;x"] {
            assert_eq!(Record::parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_line_without_end_takes_no_more_memory() {
        let mut splitter = Splitter::default();
        for _ in 0..64 {
            assert!(splitter.push(&[b'x'; 64 * 1024]).is_empty());
            assert!(splitter.partial.len() <= LINE_MAX);
        }
        let records = splitter.push(b"rest\n6,1,1,-;good\n");
        assert_eq!(records.len(), 1);
    }

    proptest! {
        #[test]
        fn any_line_is_read_without_panic(line in ".*") {
            let _ = Record::parse(&line);
        }

        #[test]
        fn cutting_does_not_matter(texts in prop::collection::vec("[ -~]{0,40}", 1..20), cut in 1usize..50) {
            let lines: Vec<String> = texts.iter().enumerate()
                .map(|(at, text)| format!("6,{at},{at},-;{}\n SUBSYSTEM=x\n", text.replace('\\', "\\x5c")))
                .collect();
            let wire = lines.concat();
            let mut splitter = Splitter::default();
            let mut records = Vec::new();
            for chunk in wire.as_bytes().chunks(cut) {
                records.extend(splitter.push(chunk));
            }
            let read: Vec<String> = records.into_iter().map(|record| record.text).collect();
            prop_assert_eq!(read, texts);
        }
    }
}
