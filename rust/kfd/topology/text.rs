// SPDX-License-Identifier: GPL-2.0

//! Text files of the topology: lines of a key, a space and an unsigned decimal.

use core::fmt;
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

/// A file.
pub(crate) type File = KVVec<u8>;

/// A file being written; at most one page.
pub(crate) struct Lines {
    bytes: KVVec<u8>,
}

impl Lines {
    /// An empty file.
    pub(crate) const fn new() -> Self {
        Self {
            bytes: KVVec::new(),
        }
    }

    /// Appends `key value`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or `EFBIG` beyond one page.
    pub(crate) fn property(&mut self, key: &str, value: impl Into<u64>) -> Result {
        self.put(key.as_bytes())?;
        self.put(b" ")?;
        self.decimal(value.into())?;
        self.put(b"\n")
    }

    /// Appends a line.
    ///
    /// # Errors
    ///
    /// As [`property`](Self::property).
    pub(crate) fn line(&mut self, text: &str) -> Result {
        self.put(text.as_bytes())?;
        self.put(b"\n")
    }

    /// Appends a line with a number.
    ///
    /// # Errors
    ///
    /// As [`property`](Self::property).
    pub(crate) fn number(&mut self, value: impl Into<u64>) -> Result {
        self.decimal(value.into())?;
        self.put(b"\n")
    }

    /// Appends `key`, a space and `bits` as 0 and 1 with commas between.
    ///
    /// # Errors
    ///
    /// As [`property`](Self::property).
    pub(crate) fn bits(&mut self, key: &str, bits: impl Iterator<Item = bool>) -> Result {
        self.put(key.as_bytes())?;
        let mut separator: &[u8] = b" ";
        for bit in bits {
            self.put(separator)?;
            self.put(if bit { b"1" } else { b"0" })?;
            separator = b",";
        }
        self.put(b"\n")
    }

    /// The file.
    pub(crate) fn finish(self) -> KVVec<u8> {
        self.bytes
    }

    fn decimal(&mut self, value: u64) -> Result {
        fmt::Write::write_fmt(self, format_args!("{value}")).map_err(|_| ENOMEM)
    }

    fn put(&mut self, bytes: &[u8]) -> Result {
        if self.bytes.len() + bytes.len() > PAGE_SIZE {
            return Err(EFBIG);
        }
        Ok(self.bytes.extend_from_slice(bytes, GFP_KERNEL)?)
    }
}

impl fmt::Write for Lines {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put(text.as_bytes()).map_err(|_| fmt::Error)
    }
}
