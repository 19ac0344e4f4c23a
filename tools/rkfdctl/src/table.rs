// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Tables for readers.

use tabled::settings::object::Columns;
use tabled::settings::Alignment;
use tabled::settings::Style;
use tabled::Table;
use tabled::Tabled;

/// Rows in columns without lines between them; those of `right` are aligned to the right, the others to the left.
pub fn plain<T: Tabled>(
    rows: impl IntoIterator<Item = T>,
    right: impl IntoIterator<Item = usize>,
) -> String {
    let mut table = Table::new(rows);
    table.with(Style::blank());
    for column in right {
        table.modify(Columns::one(column), Alignment::right());
    }
    let text = table.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_with_their_text() {
        #[derive(Tabled)]
        struct Row {
            name: &'static str,
            count: u32,
            note: &'static str,
        }
        let row = |name, count, note| Row { name, count, note };
        let text = plain(&[row("a", 5, "x"), row("bcd", 12345, "longer")], [1]);
        assert_eq!(
            text,
            " name   count   note\n a          5   x\n bcd    12345   longer"
        );
    }
}
