// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Colours, which only a terminal gets to see (`anstream` strips them elsewhere and honours `NO_COLOR`).

use std::fmt::Display;

use anstyle::AnsiColor;
use anstyle::Style;

fn paint(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// A heading.
pub fn head(text: impl Display) -> String {
    paint(Style::new().bold(), text)
}

/// A value that matters.
pub fn value(text: impl Display) -> String {
    paint(AnsiColor::Cyan.on_default(), text)
}

/// Something that went as it should.
pub fn good(text: impl Display) -> String {
    paint(AnsiColor::Green.on_default().bold(), text)
}

/// Something that did not.
pub fn bad(text: impl Display) -> String {
    paint(AnsiColor::Red.on_default().bold(), text)
}

/// Something beside the point.
pub fn dim(text: impl Display) -> String {
    paint(Style::new().dimmed(), text)
}

/// A size in binary units.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut scaled = n;
    while scaled >= 1024 && scaled % 1024 == 0 && unit + 1 < UNITS.len() {
        scaled /= 1024;
        unit += 1;
    }
    if scaled < 10_000 || unit + 1 == UNITS.len() {
        return format!("{scaled} {}", UNITS[unit]);
    }
    // A size that is no round number of a larger unit.
    let mut rough = scaled as f64; // CAST: for a reader.
    while rough >= 1024.0 && unit + 1 < UNITS.len() {
        rough /= 1024.0;
        unit += 1;
    }
    format!("{rough:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_read_well() {
        assert_eq!(bytes(0), "0 bytes");
        assert_eq!(bytes(4096), "4 KiB");
        assert_eq!(bytes(1 << 30), "1 GiB");
        assert_eq!(bytes((1 << 30) - (2 << 20)), "1022 MiB");
        assert_eq!(bytes((1 << 30) + 4096), "1.0 GiB");
        assert_eq!(bytes(63_512_576), "60.6 MiB");
    }
}
