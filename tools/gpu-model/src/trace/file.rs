// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The log file, bounded: what a driver or a VMM makes the model write must not fill the disk.

use std::fs::File;
use std::io::Write;

/// Most bytes of a log file, its last line apart.
pub const MAX_BYTES: u64 = 16 << 20;

/// A log file that ends with a mark where it was cut.
#[derive(Debug)]
pub(super) struct LogFile {
    file: File,
    /// Bytes that it still takes; `None` once it was cut.
    left: Option<u64>,
}

impl LogFile {
    /// For a file that is empty.
    pub(super) fn new(file: File) -> Self {
        Self {
            file,
            left: Some(MAX_BYTES),
        }
    }

    /// Writes a line; the first one that does not fit is replaced by the mark, and all later ones are dropped.
    pub(super) fn line(&mut self, line: &str) {
        let Some(left) = self.left else { return };
        self.left = left.checked_sub(line.len() as u64 + 1);
        // A full disk must not stop the device; the counters still tell.
        let _ = match self.left {
            Some(_) => writeln!(self.file, "{line}"),
            None => writeln!(self.file, "the log ends here: it has {MAX_BYTES} bytes"),
        };
    }
}

#[cfg(test)]
mod tests {
    // A test may panic; that is how it fails.
    #![allow(clippy::unwrap_used)]

    use super::super::Log;
    use super::MAX_BYTES;

    #[test]
    fn a_log_file_is_cut_at_its_bound() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut log = Log::new(16, Some(file.reopen().unwrap()), false);
        let line = "x".repeat((1 << 16) - 1);
        let fit = MAX_BYTES >> 16;
        for _ in 0..fit {
            log.note(&line);
        }
        assert_eq!(file.as_file().metadata().unwrap().len(), MAX_BYTES);
        log.note("one too many");
        log.protocol_error(0, "rule", "and another one".into());
        log.note("");
        let text = std::fs::read_to_string(file.path()).unwrap();
        let (whole, mark) = text.split_at(usize::try_from(MAX_BYTES).unwrap());
        assert_eq!(whole.lines().count() as u64, fit);
        assert_eq!(
            mark,
            format!("the log ends here: it has {MAX_BYTES} bytes\n")
        );
        // The error is counted and kept all the same.
        assert_eq!((log.total_errors(), log.errors().count()), (1, 1));
    }
}
