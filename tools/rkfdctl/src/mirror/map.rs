// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What a mirror shows, as a picture: of characters, or as SVG.
//!
//! A mirror of all memory is as large as the address space, and nearly nothing of it is shown. So a picture has *strips*: addresses
//! near each other, of which something is shown. Other mirrors are one strip.

use std::fmt::Write;

use super::parse::Mirror;
use super::parse::Part;
use super::parse::Range;
use super::parse::GRANULE;
use crate::style;

/// Characters in a line.
const COLUMNS: u64 = 64;
/// Lines of a strip at most.
const LINES: u64 = 16;
/// Strips of a mirror at most.
const STRIPS: usize = 24;
/// Shown addresses further apart than this are in two strips of a mirror of all memory.
const GAP: u64 = 64 << 20;
const PAGE: u64 = 4 << 10;

/// Addresses that are drawn, with what is shown there.
#[derive(Debug, PartialEq)]
pub struct Strip<'m> {
    pub range: Range,
    pub shown: &'m [Part],
}

/// The strips of a mirror, and how many there would be.
pub fn strips(mirror: &Mirror) -> (Vec<Strip<'_>>, usize) {
    if !mirror.flags.iter().any(|flag| flag == "whole") {
        let strip = Strip {
            range: mirror.gpu,
            shown: &mirror.shown,
        };
        return (vec![strip], 1);
    }
    let near = |a: &Part, b: &Part| b.range.first - a.range.last <= GAP;
    let mut strips = Vec::new();
    let mut all = 0;
    for shown in mirror.shown.chunk_by(near) {
        let (Some(low), Some(high)) = (shown.first(), shown.last()) else {
            continue;
        };
        all += 1;
        if strips.len() < STRIPS {
            // Whole granules, but not beyond the mirror.
            let first = (low.range.first & !(GRANULE - 1)).max(mirror.gpu.first);
            let last = (high.range.last | (GRANULE - 1)).min(mirror.gpu.last);
            strips.extend(Range::new(first, last).map(|range| Strip { range, shown }));
        }
    }
    (strips, all)
}

/// What is drawn for some addresses.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cell {
    Nothing,
    /// Some of it, in leaves of 4 KiB.
    Some,
    /// All of it, in leaves of 4 KiB.
    Small,
    /// Mostly leaves of 2 MiB.
    Huge,
    /// Mostly in VRAM, in leaves of 4 KiB.
    SmallInVram,
    /// Mostly in VRAM, in leaves of 2 MiB.
    HugeInVram,
}

const CELLS: [(Cell, &str); 6] = [
    (Cell::HugeInVram, "VRAM in 2 MiB leaves"),
    (Cell::SmallInVram, "VRAM in 4 KiB leaves"),
    (Cell::Huge, "in 2 MiB leaves"),
    (Cell::Small, "in 4 KiB leaves"),
    (Cell::Some, "some of it in 4 KiB leaves"),
    (Cell::Nothing, "not shown"),
];

impl Cell {
    fn of(range: &Range, shown: &[Part]) -> Self {
        let (mut small, mut huge, mut vram) = (0, 0, 0);
        for part in shown {
            let first = part.range.first.max(range.first);
            let last = part.range.last.min(range.last);
            if let Some(both) = Range::new(first, last) {
                *(if part.huge { &mut huge } else { &mut small }) += both.len();
                vram += if part.vram { both.len() } else { 0 };
            }
        }
        let in_vram = vram > 0 && vram >= small + huge - vram;
        if huge > 0 && huge >= small {
            if in_vram {
                Self::HugeInVram
            } else {
                Self::Huge
            }
        } else if in_vram {
            Self::SmallInVram
        } else if small + huge == range.len() {
            Self::Small
        } else if small + huge > 0 {
            Self::Some
        } else {
            Self::Nothing
        }
    }

    /// They differ in shape, so that they can be told apart without colours.
    fn symbol(self) -> char {
        match self {
            Self::Nothing => '·',
            Self::Some => '░',
            Self::Small => '▒',
            Self::Huge => '█',
            Self::SmallInVram => 'v',
            Self::HugeInVram => 'V',
        }
    }

    fn paint(self, text: &str) -> String {
        match self {
            Self::Nothing => style::dim(text),
            Self::Some | Self::Small => style::value(text),
            Self::Huge => style::good(text),
            Self::SmallInVram | Self::HugeInVram => style::head(text),
        }
    }
}

/// Bytes of a character: a power of two, from a page on.
fn scale(len: u64) -> u64 {
    let mut cell = PAGE;
    while len.div_ceil(cell) > COLUMNS * LINES {
        cell *= 2;
    }
    cell
}

/// The cells of a strip, line by line, each line with its first address.
fn cells(strip: &Strip<'_>, cell: u64) -> Vec<(u64, Vec<Cell>)> {
    let mut lines = Vec::new();
    let mut shown = strip.shown;
    let mut at = Some(strip.range.first);
    while let Some(start) = at.filter(|start| *start <= strip.range.last) {
        let mut line = Vec::new();
        let mut next = Some(start);
        for _ in 0..COLUMNS {
            let Some(first) = next.filter(|first| *first <= strip.range.last) else {
                break;
            };
            let last = first.saturating_add(cell - 1).min(strip.range.last);
            // Those below are needed no more.
            let skip = shown.partition_point(|part| part.range.last < first);
            shown = shown.get(skip..).unwrap_or_default();
            let end = shown.partition_point(|part| part.range.first <= last);
            let met = shown.get(..end).unwrap_or_default();
            line.push(Range::new(first, last).map_or(Cell::Nothing, |r| Cell::of(&r, met)));
            next = last.checked_add(1);
        }
        lines.push((start, line));
        at = next;
    }
    lines
}

/// A name for a heading.
pub fn title(mirror: &Mirror, process: &str, gpu: usize) -> String {
    let pid = mirror.pid.map_or("-".to_owned(), |pid| pid.to_string());
    format!(
        "mirror {} of {process} ({pid}), PASID {}, GPU {gpu}: {} from {:#x} at {:#x}, {} shown",
        mirror.id,
        mirror.pasid,
        style::bytes(mirror.gpu.len()),
        mirror.cpu.first,
        mirror.gpu.first,
        style::bytes(mirror.bytes),
    )
}

/// What the characters mean.
pub fn legend() -> String {
    let of =
        |(cell, text): &(Cell, &str)| format!("{} {text}", cell.paint(&cell.symbol().to_string()));
    let all: Vec<String> = CELLS.iter().map(of).collect();
    all.join("   ")
}

/// The picture of a mirror.
pub fn text(mirror: &Mirror, title: &str) -> String {
    let (strips, all) = strips(mirror);
    let mut out = format!("{}\n", style::head(title));
    for strip in &strips {
        let cell = scale(strip.range.len());
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(out, "  a character is {}", style::bytes(cell));
        for (first, line) in cells(strip, cell) {
            let _ = write!(out, "  {first:#014x} ");
            for same in line.chunk_by(|a, b| a == b) {
                if let Some(cell) = same.first() {
                    let symbols: String = same.iter().map(|cell| cell.symbol()).collect();
                    out += &cell.paint(&symbols);
                }
            }
            out.push('\n');
        }
    }
    for hint in &mirror.hinted {
        let Range { first, last } = hint.range;
        let reach = hint
            .reach
            .as_ref()
            .map_or(String::new(), |reach| format!(", {reach} at once"));
        let _ = writeln!(
            out,
            "  hint {first:#014x} to {last:#014x}: {}{reach}",
            hint.place
        );
    }
    if mirror.more_hints > 0 {
        let _ = writeln!(
            out,
            "  and {} more hints than the driver lists",
            mirror.more_hints
        );
    }
    if strips.is_empty() {
        out += "  nothing is shown\n";
    }
    if all > strips.len() {
        let _ = writeln!(out, "  and {} parts above", all - strips.len());
    }
    if mirror.more_bytes > 0 {
        let more = style::bytes(mirror.more_bytes);
        let _ = writeln!(
            out,
            "  {more} more are shown, in more ranges than the driver lists"
        );
    }
    out
}

/// Colours of Okabe and Ito, which people with impaired colour vision tell apart.
const HUGE: &str = "#0072b2";
const SMALL: &str = "#e69f00";
const HUGE_IN_VRAM: &str = "#009e73";
const SMALL_IN_VRAM: &str = "#cc79a7";
const NOTHING: &str = "#e8e8e8";
const LEFT: f64 = 150.0;
const WIDTH: f64 = 1100.0;
const BAR: f64 = 18.0;
const STEP: f64 = 30.0;
const HEAD: f64 = 34.0;

fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

/// The pictures of mirrors with their titles, one above the other.
pub fn svg(mirrors: &[(String, &Mirror)]) -> String {
    let mut body = String::new();
    let mut y = 70.0;
    for (title, mirror) in mirrors {
        y += HEAD;
        let _ = writeln!(
            body,
            r##"<text class="mirror" x="20" y="{}" font-weight="600" fill="#111111">{}</text>"##,
            y - 12.0,
            escape(title)
        );
        let (strips, all) = strips(mirror);
        for strip in &strips {
            draw(&mut body, strip, y);
            y += STEP;
        }
        let note = match (strips.is_empty(), all - strips.len(), mirror.more_bytes) {
            (true, _, _) => "nothing is shown".to_owned(),
            (_, 0, 0) => continue,
            (_, parts, more) => format!("{parts} more parts and {more} more bytes are shown"),
        };
        let _ = writeln!(
            body,
            r##"<text x="{LEFT}" y="{}" fill="#444444">{note}</text>"##,
            y + 12.0
        );
        y += STEP;
    }
    let (width, height) = (LEFT + WIDTH + 30.0, y + 20.0);
    let mut out = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title" font-family="system-ui, sans-serif" font-size="13">
<title id="title">What mirrors show</title>
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="20" y="28" font-size="17" font-weight="600" fill="#111111">What mirrors show, by GPU address</text>
"##
    );
    let legend = [
        (HUGE, "in 2 MiB leaves"),
        (SMALL, "in 4 KiB leaves"),
        (HUGE_IN_VRAM, "VRAM in 2 MiB leaves"),
        (SMALL_IN_VRAM, "VRAM in 4 KiB leaves"),
        (NOTHING, "not shown"),
    ];
    let mut x = 20.0;
    for (fill, text) in legend {
        let _ = writeln!(
            out,
            r##"<g class="legend"><rect x="{x}" y="42" width="26" height="15" fill="{fill}" stroke="#333333" stroke-width="0.5"/><text x="{}" y="54" fill="#111111">{text}</text></g>"##,
            x + 33.0
        );
        x += 180.0;
    }
    out + &body + "</svg>\n"
}

/// One strip with what is shown of it.
fn draw(out: &mut String, strip: &Strip<'_>, y: f64) {
    // CAST: a picture's coordinates.
    let len = strip.range.len() as f64;
    let x = |address: u64| LEFT + (address - strip.range.first) as f64 / len * WIDTH;
    let _ = writeln!(
        out,
        r##"<text x="{}" y="{}" text-anchor="end" fill="#111111">{:#x}</text>
<rect x="{LEFT}" y="{y}" width="{WIDTH}" height="{BAR}" fill="{NOTHING}"><title>{} from {:#x} on</title></rect>"##,
        LEFT - 8.0,
        y + 13.0,
        strip.range.first,
        style::bytes(strip.range.len()),
        strip.range.first,
    );
    for part in strip.shown {
        let Range { first, last } = part.range;
        let (fill, leaf) = match (part.huge, part.vram) {
            (true, false) => (HUGE, "2 MiB"),
            (false, false) => (SMALL, "4 KiB"),
            (true, true) => (HUGE_IN_VRAM, "2 MiB"),
            (false, true) => (SMALL_IN_VRAM, "4 KiB"),
        };
        let place = if part.vram { " of VRAM" } else { "" };
        // What is small is seen, too.
        let width = (part.range.len() as f64 / len * WIDTH).max(0.5);
        let _ = writeln!(
            out,
            r##"<rect class="shown" x="{:.2}" y="{y}" width="{width:.2}" height="{BAR}" fill="{fill}"><title>{first:#x} to {last:#x}: {}{place} in {leaf} leaves</title></rect>"##,
            x(first),
            style::bytes(part.range.len()),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::super::parse::EXAMPLE;
    use super::*;

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn a_character_for_each_part() {
        let report = parse(EXAMPLE);
        let text = text(&report.mirrors[0], "title");
        let picture = plain(&text);
        let lines: Vec<&str> = picture.lines().collect();
        // 8 MiB are 16 lines of 64 characters with 8 KiB each: 12 KiB, of which the last 4 are in VRAM, then 4 MiB from 2 MiB
        // on, half of them in VRAM.
        assert_eq!(lines[0], "title");
        assert_eq!(lines[1], "  a character is 8 KiB");
        // Two hints, and one that is not listed.
        assert_eq!(lines.len(), 2 + 16 + 3);
        assert_eq!(
            lines[18..],
            [
                "  hint 0x000100000000 to 0x0001000fffff: vram, 64K at once",
                "  hint 0x000100200000 to 0x0001003fffff: stay",
                "  and 1 more hints than the driver lists",
            ]
        );
        assert_eq!(lines[2], format!("  0x000100000000 ▒v{}", "·".repeat(62)));
        assert_eq!(lines[3], format!("  0x000100080000 {}", "·".repeat(64)));
        assert_eq!(lines[6], format!("  0x000100200000 {}", "V".repeat(64)));
        assert_eq!(lines[9], format!("  0x000100380000 {}", "V".repeat(64)));
        assert_eq!(lines[10], format!("  0x000100400000 {}", "█".repeat(64)));
        assert_eq!(lines[13], format!("  0x000100580000 {}", "█".repeat(64)));
        assert_eq!(lines[14], format!("  0x000100600000 {}", "·".repeat(64)));
        assert_ne!(text, picture);
        let empty = plain(&super::text(&report.mirrors[1], "t"));
        assert_eq!(empty, "t\n  a character is 4 KiB\n  0x000200000000 ·\n");
    }

    #[test]
    fn a_character_is_what_most_of_it_is() {
        let range = Range::new(0x10000, 0x17fff).unwrap();
        let part = |first: u64, pages: u64, huge, vram| Part {
            range: Range::new(first, first + pages * PAGE - 1).unwrap(),
            huge,
            vram,
        };
        let of = |shown: &[Part]| Cell::of(&range, shown).symbol();
        assert_eq!(of(&[part(0x10000, 8, false, true)]), 'v');
        assert_eq!(of(&[part(0x0, 0x400, true, true)]), 'V');
        let (inside, outside) = (
            part(0x10000, 3, false, true),
            part(0x13000, 4, false, false),
        );
        assert_eq!(of(&[inside]), 'v');
        assert_eq!(of(&[inside, outside]), '░');
        assert_eq!(of(&[inside, part(0x13000, 3, false, false)]), 'v');
        assert_eq!(of(&[inside, part(0x13000, 5, false, false)]), '▒');
        assert_eq!(of(&[inside, part(0x13000, 5, true, false)]), '█');
        assert_eq!(of(&[]), '·');
    }

    #[test]
    fn the_scale_is_a_power_of_two_that_leaves_few_lines() {
        assert_eq!(
            (scale(1), scale(4 << 20), scale((4 << 20) + 1)),
            (4096, 4096, 8192)
        );
        assert_eq!(scale(1 << 47), (1 << 47) / 1024);
    }

    #[test]
    fn all_memory_is_drawn_where_something_is() {
        let mut mirror = parse(EXAMPLE).mirrors.remove(0);
        mirror.flags = vec!["whole".to_owned()];
        mirror.gpu = Range::new(0x1000, (1 << 47) - 1).unwrap();
        let part = |first: u64| Part {
            range: Range::new(first, first + 0xfff).unwrap(),
            huge: false,
            vram: false,
        };
        mirror.hinted.clear();
        mirror.more_hints = 0;
        mirror.shown = vec![part(0x1000), part(0x3000), part(0x7f00_0000_3000)];
        let (found, all) = strips(&mirror);
        let ranges: Vec<Range> = found.iter().map(|strip| strip.range).collect();
        let range = |first, last| Range::new(first, last).unwrap();
        assert_eq!(
            ranges,
            [
                range(0x1000, 0x1f_ffff),
                range(0x7f00_0000_0000, 0x7f00_001f_ffff)
            ]
        );
        assert_eq!((all, found[0].shown.len(), found[1].shown.len()), (2, 2, 1));
        let picture = plain(&text(&mirror, "t"));
        assert!(picture.contains("  0x000000001000 ▒·▒····"), "{picture}");
        mirror.shown = (0..40).map(|at| part((at + 1) << 30)).collect();
        mirror.more_bytes = 8192;
        let picture = plain(&text(&mirror, "t"));
        assert!(picture.ends_with(
            "  and 16 parts above\n  8 KiB more are shown, in more ranges than the driver lists\n"
        ));
        mirror.shown.clear();
        mirror.more_bytes = 0;
        assert_eq!(plain(&text(&mirror, "t")), "t\n  nothing is shown\n");
    }

    #[test]
    fn the_drawing_has_bars_titles_and_a_legend() {
        let report = parse(EXAMPLE);
        let named = vec![
            ("one <1> & more".to_owned(), &report.mirrors[0]),
            ("two".to_owned(), &report.mirrors[1]),
        ];
        let picture = svg(&named);
        assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
        assert_eq!(picture.matches(r#"class="shown""#).count(), 4);
        assert_eq!(picture.matches(r#"class="legend""#).count(), 5);
        assert!(picture.contains(">one &lt;1&gt; &amp; more</text>"));
        // The second quarter of the width, and the third.
        assert!(picture.contains(r##"x="425.00" y="104" width="275.00" height="18" fill="#009e73"><title>0x100200000 to 0x1003fffff: 2 MiB of VRAM in 2 MiB leaves"##));
        assert!(picture.contains(r##"x="700.00" y="104" width="275.00" height="18" fill="#0072b2"><title>0x100400000 to 0x1005fffff: 2 MiB in 2 MiB leaves"##));
        let none = svg(&[]);
        assert!(none.ends_with("</svg>\n") && !none.contains("class=\"mirror\""));
    }
}
