// SPDX-License-Identifier: GPL-2.0

//! Which devices are bound: the module parameter `force_probe`.
//!
//! The convention of `i915` and `xe`: a comma-separated list of PCI device ids in hexadecimal. `*`
//! stands for all. An entry with `!` in front forbids: `!740f`, `!*`. Forbidding wins. An id may
//! stand in the list more than once, spaces around entries do not count.

/// The answer of a list for one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Not named.
    Unnamed,
    /// Bind it whatever it is.
    Forced,
    /// Do not bind it.
    Forbidden,
}

/// The decision of `list` for `device`.
pub(crate) fn decide(list: &[u8], device: u16) -> Decision {
    let mut found = Decision::Unnamed;
    for entry in entries(list) {
        let (forbids, name) = split(entry);
        if !names(name, device) {
            continue;
        }
        if forbids {
            return Decision::Forbidden;
        }
        found = Decision::Forced;
    }
    found
}

/// The first entry of `list` that is neither an id nor `*`.
pub(crate) fn malformed(list: &[u8]) -> Option<&[u8]> {
    entries(list).find(|entry| {
        let (_, name) = split(entry);
        name != b"*" && id(name).is_none()
    })
}

fn entries(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == b',')
        .map(|entry| entry.trim_ascii())
        .filter(|entry| !entry.is_empty())
}

fn split(entry: &[u8]) -> (bool, &[u8]) {
    match entry.strip_prefix(b"!") {
        Some(name) => (true, name),
        None => (false, entry),
    }
}

fn names(name: &[u8], device: u16) -> bool {
    name == b"*" || id(name) == Some(device)
}

/// An id in hexadecimal, with or without `0x`.
fn id(name: &[u8]) -> Option<u16> {
    let digits = name
        .strip_prefix(b"0x")
        .or_else(|| name.strip_prefix(b"0X"))
        .unwrap_or(name);
    // A sign would be taken as part of the number.
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u16::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()
}
