// SPDX-License-Identifier: GPL-2.0

//! Text for the log: lines of bounded length, and named words.

use kernel::fmt::{
    self,
    Write, //
};

/// Longest line that [`Lines`] passes on whole.
const LINE: usize = 160;

/// Passes on what is written to it, line by line; longer lines are cut.
pub(in crate::sched) struct Lines<'a> {
    put: &'a mut dyn FnMut(&str),
    line: [u8; LINE],
    len: usize,
}

impl<'a> Lines<'a> {
    /// Passes lines on to `put`.
    pub(in crate::sched) fn to(put: &'a mut dyn FnMut(&str)) -> Self {
        Self {
            put,
            line: [0; LINE],
            len: 0,
        }
    }

    fn end(&mut self) {
        let line = self.line.get(..self.len).unwrap_or(&[]);
        // Only a cut in the middle of a character makes this fail, and all text here is ASCII.
        if let Ok(line) = core::str::from_utf8(line) {
            (self.put)(line);
        }
        self.len = 0;
    }
}

impl Write for Lines<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                self.end();
            } else if let Some(place) = self.line.get_mut(self.len) {
                *place = byte;
                self.len += 1;
            }
        }
        Ok(())
    }
}

/// Words of a register dump in one line.
const WORDS: usize = 4;

/// Writes named words that are not 0, some in a line.
pub(in crate::sched) fn words<'a>(
    f: &mut impl Write,
    words: impl Iterator<Item = (&'a str, u32)>,
) -> fmt::Result {
    let mut in_line = 0;
    for (name, word) in words.filter(|(_, word)| *word != 0) {
        let separator = if in_line == 0 { "  " } else { " " };
        write!(f, "{separator}{name} {word:#x}")?;
        in_line += 1;
        if in_line == WORDS {
            f.write_str("\n")?;
            in_line = 0;
        }
    }
    match in_line {
        0 => Ok(()),
        _ => f.write_str("\n"),
    }
}
