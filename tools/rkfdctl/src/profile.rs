// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl profile`: what the kernels of a command execute, as the device model counts it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::process::ExitCode;

use anyhow::Context;
use serde::Deserialize;
use serde::Serialize;
use serde_json::json;
use tabled::settings::Style;
use tabled::Table;
use tabled::Tabled;

use crate::control::Control;
use crate::source::Files;
use crate::source::Identity;
use crate::source::Line;
use crate::source::Sources;

#[derive(clap::Args)]
pub struct Options {
    /// The model, counted from 0
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// The control socket or port of a model that was started by hand
    #[arg(long)]
    control: Option<PathBuf>,
    /// Only kernels whose name has this in it
    #[arg(long, value_name = "PART")]
    kernel: Option<String>,
    /// Show so many places of each kernel
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    #[command(flatten)]
    files: Files,
    /// One JSON object per kernel and line
    #[arg(long)]
    json: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// What a class of instructions has done.
#[derive(Debug, Deserialize, Serialize)]
struct Class {
    instructions: u64,
    loaded: u64,
    stored: u64,
    conflicts: u64,
}

/// An instruction; `source` is added here.
#[derive(Debug, Deserialize, Serialize)]
struct Place {
    pc: u64,
    count: u64,
    conflicts: u64,
    instruction: String,
    #[serde(default)]
    source: Option<String>,
    /// The same without the folders.
    #[serde(skip)]
    line: Option<String>,
}

/// A kernel, as the model answers.
#[derive(Debug, Deserialize, Serialize)]
struct Kernel {
    kernel: Option<String>,
    entry: u64,
    object: Option<Identity>,
    instructions: u64,
    classes: BTreeMap<String, Class>,
    top: Vec<Place>,
}

#[derive(Deserialize)]
struct Answer {
    kernels: Vec<Kernel>,
}

#[derive(Tabled)]
#[tabled(rename_all = "UPPERCASE")]
struct ClassRow<'a> {
    class: &'a str,
    instructions: u64,
    loaded: u64,
    stored: u64,
    conflicts: u64,
}

#[derive(Tabled)]
#[tabled(rename_all = "UPPERCASE")]
struct PlaceRow<'a> {
    pc: String,
    count: u64,
    share: String,
    conflicts: u64,
    source: &'a str,
    instruction: &'a str,
}

impl Kernel {
    fn text(&self) -> String {
        let name = match &self.kernel {
            Some(name) => name.clone(),
            None => format!("the kernel at {:#x}", self.entry),
        };
        let mut text = format!("{name}: {} instructions of waves\n", self.instructions);
        let mut classes: Vec<_> = self.classes.iter().collect();
        classes.sort_by_key(|(_, class)| std::cmp::Reverse(class.instructions));
        let classes = classes.into_iter().map(|(name, class)| ClassRow {
            class: name,
            instructions: class.instructions,
            loaded: class.loaded,
            stored: class.stored,
            conflicts: class.conflicts,
        });
        let places = self.top.iter().map(|place| PlaceRow {
            pc: match place.pc.checked_sub(self.entry) {
                Some(offset) => format!("+{offset:#x}"),
                None => format!("{:#x}", place.pc),
            },
            count: place.count,
            share: share(place.count, self.instructions),
            conflicts: place.conflicts,
            source: place.line.as_deref().unwrap_or("-"),
            instruction: &place.instruction,
        });
        for mut table in [Table::new(classes), Table::new(places)] {
            table.with(Style::blank());
            // Writing to a String does not fail.
            let _ = writeln!(text, "{table}\n");
        }
        text
    }
}

/// A part in per cent, with one digit behind the point.
fn share(part: u64, whole: u64) -> String {
    let tenths = u128::from(part) * 1000 / u128::from(whole.max(1));
    format!("{}.{}%", tenths / 10, tenths % 10)
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let (program, arguments) = options
        .command
        .split_first()
        .context("a command is missing")?;
    // The port has one user at a time, and the command may be one.
    let control = || match &options.control {
        Some(path) => Control::open(path),
        None => Control::of_index(options.gpu),
    };
    let mut start = json!({ "cmd": "profile-start" });
    if let Some(kernel) = &options.kernel {
        start["kernel"] = kernel.as_str().into();
    }
    control()?.request(&start)?;
    let status = Command::new(program).args(arguments).status();
    // Also where the command could not be started: a profile that goes on makes everything slower.
    let mut control = control()?;
    control.request(&json!({ "cmd": "profile-stop" }))?;
    let status = status.with_context(|| format!("{program} cannot be run"))?;
    let answer = control.request(&json!({ "cmd": "profile", "top": options.top }))?;
    let mut answer: Answer = serde_json::from_value(answer).context("the model's profile")?;
    let mut sources = Sources::new(&options.files, &options.command);
    for kernel in &mut answer.kernels {
        for place in &mut kernel.top {
            let line = sources.line(kernel.object.as_ref(), place.pc);
            place.source = line.as_ref().map(Line::full);
            place.line = line.as_ref().map(Line::short);
        }
        if options.json {
            anstream::println!("{}", serde_json::to_string(kernel)?);
        } else {
            anstream::print!("{}", kernel.text());
        }
    }
    if answer.kernels.is_empty() && !options.json {
        anstream::println!("no kernel was executed");
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_lists_classes_and_places_by_their_counts() {
        let class = |instructions: u64, stored: u64, conflicts: u64| json!({"instructions": instructions, "loaded": 0, "stored": stored, "conflicts": conflicts});
        let mut kernel: Kernel = serde_json::from_value(json!({
            "kernel": "saxpy", "entry": 0x1000, "object": null, "instructions": 300,
            "classes": {"lds": class(10, 2560, 620), "scalar": class(200, 0, 0), "vector": class(90, 0, 0)},
            "top": [
                {"pc": 0x1010, "count": 200, "conflicts": 0, "instruction": "s_sub_u32 s4, s4, 1"},
                {"pc": 0xf00, "count": 10, "conflicts": 620, "instruction": "ds_write_b32 v1, v0"},
            ],
        }))
        .unwrap();
        kernel.top[1].line = Some("saxpy.cl:9".into());
        let text = kernel.text();
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .filter(|line| !line.is_empty())
            .collect();
        let want = [
            "saxpy: 300 instructions of waves",
            "CLASS INSTRUCTIONS LOADED STORED CONFLICTS",
            "scalar 200 0 0 0",
            "vector 90 0 0 0",
            "lds 10 0 2560 620",
            "PC COUNT SHARE CONFLICTS SOURCE INSTRUCTION",
            "+0x10 200 66.6% 0 - s_sub_u32 s4, s4, 1",
            "0xf00 10 3.3% 620 saxpy.cl:9 ds_write_b32 v1, v0",
        ];
        assert_eq!(lines, want);
    }
}
