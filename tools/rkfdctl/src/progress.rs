// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Progress of what takes time, for people.

use std::io::IsTerminal;

use indicatif::ProgressBar;
use indicatif::ProgressStyle;

/// A bar of `steps` by a template of `indicatif`, if standard error is a terminal. It is drawn by who advances it.
pub fn bar(steps: u64, template: &str) -> Option<ProgressBar> {
    if !std::io::stderr().is_terminal() {
        return None;
    }
    let bar = ProgressBar::new(steps);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    Some(bar)
}

/// The template of what takes a time that is known.
pub const TIMED: &str = "{bar:30} {elapsed} {msg}";
