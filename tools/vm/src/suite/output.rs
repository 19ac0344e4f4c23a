// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What a test prints: the beginning and the end of it, so that a test that prints without end takes no more memory.

use crate::log::Bounded;
use crate::session::Stream;
use std::io::Write;

/// What it printed.
#[derive(Default)]
pub(super) struct Output {
    out: Vec<u8>,
    err: Vec<u8>,
}

impl Output {
    /// That of a program whose output is in one stream.
    pub(super) fn of(out: Vec<u8>) -> Self {
        Self {
            out,
            ..Self::default()
        }
    }

    /// Its standard output.
    pub(super) fn out(&self) -> &[u8] {
        &self.out
    }

    /// Its standard error.
    pub(super) fn err(&self) -> &[u8] {
        &self.err
    }

    /// All of it as text, standard error behind standard output.
    pub(super) fn text(&self) -> String {
        let all: Vec<u8> = self.out.iter().chain(&self.err).copied().collect();
        String::from_utf8_lossy(&all).into_owned()
    }
}

/// What it prints, as it comes. Of each stream as much is kept as of a log.
pub(super) struct Collector {
    out: Bounded<Vec<u8>>,
    err: Bounded<Vec<u8>>,
}

impl Collector {
    /// One that has nothing yet.
    pub(super) fn new() -> Self {
        let empty = || Bounded::new(Vec::new());
        Self {
            out: empty(),
            err: empty(),
        }
    }

    /// Adds what came on a stream.
    pub(super) fn add(&mut self, stream: Stream, data: &[u8]) {
        let to = match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        };
        // A vector takes what it is given.
        let _ = to.write_all(data);
    }

    /// The beginning of standard output, as far as it came.
    pub(super) fn out_so_far(&self) -> &[u8] {
        self.out.head()
    }

    /// What is kept of all that came.
    pub(super) fn finish(self) -> Output {
        Output {
            out: self.out.into_bytes(),
            err: self.err.into_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::HEAD;
    use crate::log::TAIL;

    #[test]
    fn both_streams_are_kept_apart_and_in_bounds() {
        const CHUNK: usize = 64 << 10;
        let mut collector = Collector::new();
        collector.add(Stream::Out, b"ok 1 first\n");
        assert_eq!(collector.out_so_far(), b"ok 1 first\n");
        let line = b"0123456789abcde\n";
        let chunk = line.repeat(CHUNK / line.len());
        for _ in 0..(20 << 20) / CHUNK {
            collector.add(Stream::Out, &chunk);
            collector.add(Stream::Err, &chunk);
        }
        collector.add(Stream::Out, b"1..1\n");
        collector.add(Stream::Err, b"the last words\n");
        let output = collector.finish();
        let check = |stream: &[u8], begin: &[u8], end: &[u8], all: usize| {
            let size = stream.len();
            assert!((HEAD..=HEAD + TAIL + 200).contains(&size), "{size}");
            assert!(stream.starts_with(begin) && stream.ends_with(end));
            let text = String::from_utf8_lossy(stream);
            let (_, rest) = text.split_once("are kept]\n[rkfd-vm: ").unwrap();
            let (cut, tail) = rest.split_once(" bytes are left out here]\n").unwrap();
            assert_eq!(cut.parse(), Ok(all - HEAD - tail.len()));
        };
        let (first, plan, last) = (b"ok 1 first\n", b"1..1\n", b"the last words\n");
        check(
            output.out(),
            first,
            plan,
            first.len() + (20 << 20) + plan.len(),
        );
        check(output.err(), line, last, (20 << 20) + last.len());
    }

    #[test]
    fn a_short_output_is_as_it_came() {
        let mut collector = Collector::new();
        for (stream, data) in [
            (Stream::Out, "one\n"),
            (Stream::Err, "error"),
            (Stream::Out, "two"),
        ] {
            collector.add(stream, data.as_bytes());
        }
        let output = collector.finish();
        assert_eq!(
            (output.out(), output.err()),
            (&b"one\ntwo"[..], &b"error"[..])
        );
        assert_eq!(output.text(), "one\ntwoerror");
    }
}
