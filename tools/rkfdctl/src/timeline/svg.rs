// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The picture: one row per slot, time from left to right, one colour per process.
//!
//! Colours are those of Okabe and Ito, which people with impaired colour vision tell apart; the ninth process and further
//! ones repeat them with hatching. Every bar carries its text as a tooltip, wide ones on their face as well.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Stay;
use super::Timeline;

/// Okabe and Ito's palette without black, each with the colour of text on it.
const COLOURS: [(&str, &str); 7] = [
    ("#0072b2", "#ffffff"),
    ("#e69f00", "#000000"),
    ("#009e73", "#000000"),
    ("#cc79a7", "#000000"),
    ("#56b4e9", "#000000"),
    ("#d55e00", "#000000"),
    ("#f0e442", "#000000"),
];
/// Queues of the kernel.
const KERNEL: (&str, &str) = ("#767676", "#ffffff");

const LEFT: f64 = 170.0;
const WIDTH: f64 = 1200.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 64.0;
const ROW: f64 = 26.0;
const BAR: f64 = 20.0;
const LEGEND_COLUMN: f64 = 280.0;
const LEGEND_LINE: f64 = 22.0;
/// Width of a digit in pixels, roughly, at the size of text on bars.
const DIGIT: f64 = 7.0;

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

/// A step of 1, 2 or 5 times a power of ten that gives at most about twelve ticks, in milliseconds.
fn step(span_ms: f64) -> f64 {
    let rough = (span_ms / 12.0).max(1e-3);
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|s| *s >= rough)
        .unwrap_or(10.0 * power)
}

fn number(value: f64) -> String {
    if value.fract().abs() < 1e-9 {
        format!("{value:.0}")
    } else {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

struct Look {
    fill: String,
    ink: &'static str,
    name: String,
}

/// Colours of the processes, and definitions of the hatching they need.
fn looks(timeline: &Timeline, names: &BTreeMap<u32, String>) -> (BTreeMap<u32, Look>, String) {
    let mut looks = BTreeMap::new();
    let mut definitions = String::new();
    for (i, pasid) in timeline.processes().into_iter().enumerate() {
        let kernel = pasid == 0;
        let (colour, ink) = if kernel {
            KERNEL
        } else {
            COLOURS.get(i % COLOURS.len()).copied().unwrap_or(KERNEL)
        };
        let round = i / COLOURS.len();
        let fill = if round == 0 || kernel {
            colour.to_owned()
        } else {
            let angle = 45 * round;
            // Writing to a string cannot fail.
            let _ = writeln!(
                definitions,
                r#"<pattern id="p{pasid}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate({angle})"><rect width="6" height="6" fill="{colour}"/><rect width="1.5" height="6" fill="{ink}" opacity="0.45"/></pattern>"#
            );
            format!("url(#p{pasid})")
        };
        let name = match names.get(&pasid) {
            _ if kernel => "kernel".to_owned(),
            Some(name) => format!("{name}, PASID {pasid}"),
            None => format!("PASID {pasid}"),
        };
        looks.insert(pasid, Look { fill, ink, name });
    }
    (looks, definitions)
}

/// Draws the picture. `names` says what is known of processes beside their PASID.
pub fn draw(timeline: &Timeline, title: &str, names: &BTreeMap<u32, String>) -> String {
    let (looks, definitions) = looks(timeline, names);
    // CAST: a picture's coordinates.
    let span = (timeline.end - timeline.start).max(1) as f64;
    let x = |t: u64| LEFT + t.saturating_sub(timeline.start) as f64 / span * WIDTH;
    let rows = timeline.rows.len() as f64;
    let bottom = TOP + rows * ROW;
    let columns = (((LEFT + WIDTH) / LEGEND_COLUMN) as usize).max(1);
    let legend_top = bottom + 66.0;
    let lines = looks.len().div_ceil(columns) as f64;
    let (width, height) = (
        LEFT + WIDTH + RIGHT,
        legend_top + (lines + 1.0) * LEGEND_LINE,
    );
    let mut out = String::new();
    // Writing to a string cannot fail, here and below.
    let _ = write!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title" font-family="system-ui, sans-serif" font-size="13">
<title id="title">{title}</title>
<defs>
{definitions}</defs>
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="{LEFT}" y="26" font-size="17" font-weight="600" fill="#111111">{title}</text>
<text x="{LEFT}" y="48" fill="#444444">Hardware slots (rows) and the queues connected to them; a bar is one stay.</text>
"##,
        title = escape(title),
    );
    axis(&mut out, span / 1e6, bottom);
    for (i, (slot, stays)) in timeline.rows.iter().enumerate() {
        let y = TOP + i as f64 * ROW;
        let _ = writeln!(
            out,
            r##"<text class="slot" x="{}" y="{}" text-anchor="end" fill="#111111">{}</text>
<line x1="{LEFT}" y1="{line}" x2="{}" y2="{line}" stroke="#e0e0e0"/>"##,
            LEFT - 8.0,
            y + ROW / 2.0 + 4.5,
            escape(&slot.name()),
            LEFT + WIDTH,
            line = y + ROW,
        );
        for stay in stays {
            if let Some(look) = looks.get(&stay.pasid) {
                bar(
                    &mut out,
                    stay,
                    look,
                    timeline.start,
                    x(stay.start),
                    x(stay.end),
                    y,
                );
            }
        }
    }
    let _ = writeln!(
        out,
        r##"<text x="{LEFT}" y="{}" font-weight="600" fill="#111111">Processes</text>"##,
        legend_top - 8.0
    );
    for (i, look) in timeline
        .processes()
        .iter()
        .filter_map(|p| looks.get(p))
        .enumerate()
    {
        let at_x = LEFT + (i % columns) as f64 * LEGEND_COLUMN;
        let at_y = legend_top + (i / columns) as f64 * LEGEND_LINE;
        let _ = writeln!(
            out,
            r##"<g class="legend"><rect x="{at_x}" y="{at_y}" width="26" height="15" fill="{}" stroke="#333333" stroke-width="0.5"/><text x="{}" y="{}" fill="#111111">{}</text></g>"##,
            look.fill,
            at_x + 33.0,
            at_y + 12.0,
            escape(&look.name),
        );
    }
    out.push_str("</svg>\n");
    out
}

/// Ticks, their figures and the axis' name.
fn axis(out: &mut String, span_ms: f64, bottom: f64) {
    let step = step(span_ms);
    let mut t = 0.0;
    while t <= span_ms + step * 1e-6 {
        let x = LEFT + t / span_ms * WIDTH;
        let _ = writeln!(
            out,
            r##"<line x1="{x:.2}" y1="{TOP}" x2="{x:.2}" y2="{bottom}" stroke="#d0d0d0" stroke-dasharray="2 3"/>
<text class="tick" x="{x:.2}" y="{}" text-anchor="middle" fill="#444444">{}</text>"##,
            bottom + 17.0,
            number(t),
        );
        t += step;
    }
    let _ = writeln!(
        out,
        r##"<text class="axis" x="{}" y="{}" text-anchor="middle" fill="#111111">time (ms)</text>"##,
        LEFT + WIDTH / 2.0,
        bottom + 36.0,
    );
}

fn bar(out: &mut String, stay: &Stay, look: &Look, zero: u64, from: f64, to: f64, row: f64) {
    let width = (to - from).max(0.5);
    let y = row + (ROW - BAR) / 2.0;
    // CAST: for a reader.
    let ms = |t: u64| number(t.saturating_sub(zero) as f64 / 1e6);
    let ended = match stay.reason.as_str() {
        "" => "still there".to_owned(),
        reason => format!("left: {reason}"),
    };
    let _ = writeln!(
        out,
        r##"<g class="stay"><title>{}, VMID {}, doorbell {:#x}: {} to {} ms, {}</title><rect x="{from:.2}" y="{y}" width="{width:.2}" height="{BAR}" fill="{}" stroke="#ffffff" stroke-width="{}"/>{}</g>"##,
        escape(&look.name),
        stay.vmid,
        stay.doorbell,
        ms(stay.start),
        ms(stay.end),
        escape(&ended),
        look.fill,
        if width > 4.0 { 0.8 } else { 0.0 },
        face(stay, look, from, width, y),
    );
}

/// The doorbell on the bar, if it is wide enough.
fn face(stay: &Stay, look: &Look, from: f64, width: f64, y: f64) -> String {
    let text = format!("{:#x}", stay.doorbell);
    if text.len() as f64 * DIGIT + 6.0 > width {
        return String::new();
    }
    // Behind the text of a hatched bar lies a plain strip.
    let strip = if look.fill.starts_with("url") {
        format!(
            r##"<rect x="{:.2}" y="{}" width="{:.2}" height="14" fill="#ffffff" opacity="0.9"/>"##,
            from + width / 2.0 - text.len() as f64 * DIGIT / 2.0 - 2.0,
            y + 3.0,
            text.len() as f64 * DIGIT + 4.0,
        )
    } else {
        String::new()
    };
    let ink = if strip.is_empty() {
        look.ink
    } else {
        "#000000"
    };
    format!(
        r##"{strip}<text x="{:.2}" y="{}" text-anchor="middle" font-size="11" fill="{ink}">{text}</text>"##,
        from + width / 2.0,
        y + 14.0,
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::of;
    use super::super::tests::record;
    use super::*;

    fn picture(records: &[crate::control::Record]) -> String {
        let names = BTreeMap::from([(1, "stress <1> (77)".to_owned())]);
        draw(&of(records), "Queues & slots", &names)
    }

    #[test]
    fn it_holds_rows_bars_axis_and_legend() {
        let svg = picture(&[
            record(100, "CONNECT", "compute", 0, 1, "map"),
            record(100, "CONNECT", "sdma1", 0, 2, "map"),
            record(150, "DISCONNECT", "compute", 0, 1, "quantum"),
            record(200, "CONNECT", "compute", 0, 2, "map"),
        ]);
        assert_eq!(svg.matches(r#"class="slot""#).count(), 2);
        assert_eq!(svg.matches(r#"class="stay""#).count(), 3);
        assert_eq!(svg.matches(r#"class="legend""#).count(), 2);
        assert!(
            svg.contains(">me 1 pipe 0 queue 2</text>") && svg.contains(">sdma1 queue 2</text>")
        );
        assert!(svg.contains(">time (ms)</text>"));
        for tick in ["0", "10", "50", "100"] {
            assert!(
                svg.contains(&format!(r##"fill="#444444">{tick}</text>"##)),
                "{tick}"
            );
        }
        assert!(svg.contains(
            "stress &lt;1&gt; (77), PASID 1, VMID 8, doorbell 0x801: 0 to 50 ms, left: quantum"
        ));
        assert!(svg.contains("Queues &amp; slots"));
        // The first half of the width belongs to the first process.
        assert!(
            svg.contains(r##"<rect x="170.00" y="67" width="600.00" height="20" fill="#0072b2""##)
        );
    }

    #[test]
    fn many_processes_stay_distinct() {
        let records: Vec<_> = (1..=20)
            .map(|p| record(u64::from(p), "CONNECT", "compute", 0, p, "map"))
            .collect();
        let (looks, definitions) = looks(&of(&records), &BTreeMap::new());
        let mut fills: Vec<&str> = looks.values().map(|l| l.fill.as_str()).collect();
        fills.sort_unstable();
        fills.dedup();
        assert_eq!(fills.len(), 20);
        assert_eq!(definitions.matches("<pattern").count(), 13);
        assert!(definitions.contains("rotate(45)") && definitions.contains("rotate(90)"));
    }

    #[test]
    fn nothing_is_a_picture_too() {
        let svg = picture(&[]);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches(r#"class="stay""#).count(), 0);
    }

    #[test]
    fn steps_are_round() {
        for (span, wanted) in [(100.0, 10.0), (130.0, 20.0), (3.0, 0.5), (12_000.0, 1000.0)] {
            assert!((step(span) - wanted).abs() < 1e-9, "{span}: {}", step(span));
        }
        assert_eq!((number(0.5).as_str(), number(20.0).as_str()), ("0.5", "20"));
    }
}
