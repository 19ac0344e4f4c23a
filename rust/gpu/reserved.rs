// SPDX-License-Identifier: GPL-2.0

//! Video memory that is not the driver's: the module parameter `reserved_vram`.
//!
//! Firmware of a card keeps parts of the VRAM for itself: the VBIOS what it set up before the system
//! started, the security processor (PSP) its trusted memory region (TMR). Other parts are defective and were retired. Where they
//! are is known to the driver that loaded the firmware, or is in a memory behind the power controller, and the
//! device has no register that tells. So the user has to: `none`, or a list with commas of `SIZE@START`,
//! numbers decimal or with `0x` hexadecimal, with `K`, `M` or `G` behind them for binary multiples, as the kernel's
//! `memmap=` has it. `START` counts from the beginning of the VRAM.

/// A part of the VRAM, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// First byte.
    pub(crate) start: u64,
    /// Length, not 0; `start + size` does not overflow.
    pub(crate) size: u64,
}

/// What the user said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reserved(&'static [u8]);

impl Reserved {
    /// From the text of the parameter.
    pub(crate) const fn new(text: &'static [u8]) -> Self {
        Self(text)
    }

    /// Whether the user said anything.
    pub(crate) fn is_given(self) -> bool {
        !self.0.trim_ascii().is_empty()
    }

    /// The parts that are reserved.
    pub(crate) fn spans(self) -> impl Iterator<Item = Span> {
        self.entries().filter_map(span)
    }

    /// The first entry that is none.
    pub(crate) fn malformed(self) -> Option<&'static [u8]> {
        self.entries().find(|entry| span(entry).is_none())
    }

    fn entries(self) -> impl Iterator<Item = &'static [u8]> {
        let text = self.0.trim_ascii();
        let list = if text == b"none" { b"" } else { text };
        list.split(|byte| *byte == b',')
            .map(|entry| entry.trim_ascii())
            .filter(|entry| !entry.is_empty())
    }
}

fn span(entry: &[u8]) -> Option<Span> {
    let at = entry.iter().position(|byte| *byte == b'@')?;
    let size = number(entry.get(..at)?)?;
    let start = number(entry.get(at + 1..)?)?;
    start.checked_add(size)?;
    (size != 0).then_some(Span { start, size })
}

/// A number with an optional suffix.
fn number(text: &[u8]) -> Option<u64> {
    let (digits, shift) = match text.split_last()? {
        (b'k' | b'K', digits) => (digits, 10),
        (b'm' | b'M', digits) => (digits, 20),
        (b'g' | b'G', digits) => (digits, 30),
        _ => (text, 0),
    };
    let hexadecimal = digits
        .strip_prefix(b"0x")
        .or_else(|| digits.strip_prefix(b"0X"));
    let (digits, radix) = match hexadecimal {
        Some(digits) => (digits, 16),
        None => (digits, 10),
    };
    // A sign would be taken as part of the number.
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let value = u64::from_str_radix(core::str::from_utf8(digits).ok()?, radix).ok()?;
    value.checked_mul(1 << shift)
}
