// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What was measured of one driver.

use serde::Deserialize;
use serde::Serialize;

use super::counts::Counts;

/// How long something took.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Time {
    /// The median, in microseconds.
    Micros(f64),
    /// It did not happen.
    Never,
    /// It is no matter of time.
    Untimed,
}

/// One line.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Row {
    /// What was done.
    pub what: String,
    /// Beside what, or with what.
    pub beside: String,
    /// How long it took.
    pub time: Time,
    /// What the device was asked for, per call.
    pub counts: Option<Counts>,
}

impl Row {
    /// A row of a time alone.
    pub fn timed(what: &str, beside: &str, time: Time) -> Self {
        Self {
            what: what.to_owned(),
            beside: beside.to_owned(),
            time,
            counts: None,
        }
    }
}

/// Everything of one run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Report {
    /// The kernel module.
    pub driver: String,
    /// Its kernel.
    pub kernel: String,
    /// The guest's processor, which tells how its code is executed.
    pub processor: String,
    /// The GPU.
    pub gpu: String,
    /// Calls of a series.
    pub rounds: usize,
    /// In the order of measuring.
    pub rows: Vec<Row>,
}
