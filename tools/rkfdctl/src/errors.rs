// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl errors`: what kernels have done wrong lately, as the device model has it; `rkfdctl check`: the same of a
//! command, with the checker of LDS on.

use std::path::PathBuf;
use std::process::Command;
use std::process::ExitCode;

use anyhow::Context;
use serde::Deserialize;
use serde::Serialize;
use serde_json::json;

use crate::control::Control;
use crate::source::Files;
use crate::source::Identity;
use crate::source::Sources;

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    model: Model,
    /// Only those of kernels whose name has this in it
    #[arg(long, value_name = "PART")]
    kernel: Option<String>,
}

#[derive(clap::Args)]
pub struct CheckOptions {
    #[command(flatten)]
    model: Model,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(clap::Args)]
struct Model {
    /// The model, counted from 0
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// The control socket or port of a model that was started by hand
    #[arg(long)]
    control: Option<PathBuf>,
    #[command(flatten)]
    files: Files,
    /// One JSON object per error and line
    #[arg(long)]
    json: bool,
}

impl Model {
    fn control(&self) -> anyhow::Result<Control> {
        match &self.control {
            Some(path) => Control::open(path),
            None => Control::of_index(self.gpu),
        }
    }
}

/// The earlier access of a race.
#[derive(Debug, Deserialize, Serialize)]
struct Other {
    wave: u32,
    pc: u64,
    #[serde(default)]
    source: Option<String>,
}

/// An error, as the model answers; `source` is added here.
#[derive(Debug, Deserialize, Serialize)]
pub struct ProgramError {
    seq: u64,
    t_ns: u64,
    kind: String,
    text: String,
    kernel: Option<String>,
    entry: u64,
    object: Option<Identity>,
    pasid: u32,
    doorbell: u32,
    group: [u32; 3],
    wave: u32,
    pc: u64,
    va: Option<u64>,
    other: Option<Other>,
    #[serde(default)]
    source: Option<String>,
}

#[derive(Deserialize)]
struct Answer {
    total: u64,
    errors: Vec<ProgramError>,
}

/// Where an instruction is: in its source if that is known, and from the kernel's start on.
fn place(entry: u64, pc: u64, source: Option<&str>) -> String {
    let offset = match pc.checked_sub(entry) {
        Some(offset) => format!("+{offset:#x}"),
        None => format!("{pc:#x}"),
    };
    match source {
        Some(source) => format!("{source} ({offset})"),
        None => offset,
    }
}

impl ProgramError {
    /// Adds lines of sources.
    fn find_lines(&mut self, sources: &mut Sources) {
        let object = self.object;
        let mut line = |pc| Some(sources.line(object.as_ref(), pc)?.full());
        self.source = line(self.pc);
        if let Some(other) = &mut self.other {
            other.source = line(other.pc);
        }
    }

    /// One line for people.
    pub fn text(&self) -> String {
        let kernel = match &self.kernel {
            Some(name) => name.clone(),
            None => format!("the kernel at {:#x}", self.entry),
        };
        let at = place(self.entry, self.pc, self.source.as_deref());
        let [x, y, z] = self.group;
        let wave = self.wave;
        let mut text = format!(
            "{kernel}: {at}: wave {wave} of group {x},{y},{z}: {}",
            self.text
        );
        if let Some(other) = &self.other {
            let before = place(self.entry, other.pc, other.source.as_deref());
            text = format!("{text} at {before}");
        }
        if let Some(va) = self.va {
            text = format!("{text}, address {va:#x}");
        }
        text
    }
}

fn ask(control: &mut Control, from: u64) -> anyhow::Result<Answer> {
    let answer = control.request(&json!({ "cmd": "program-errors", "from": from }))?;
    serde_json::from_value(answer).context("the model's list of errors")
}

fn print(errors: &mut [ProgramError], sources: &mut Sources, json: bool) -> anyhow::Result<()> {
    for error in errors {
        error.find_lines(sources);
        if json {
            anstream::println!("{}", serde_json::to_string(error)?);
        } else {
            anstream::println!("{}", error.text());
        }
    }
    Ok(())
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let mut answer = ask(&mut options.model.control()?, 0)?;
    if let Some(part) = &options.kernel {
        let named = |e: &ProgramError| e.kernel.as_ref().is_some_and(|name| name.contains(part));
        answer.errors.retain(named);
    }
    let mut sources = Sources::new(&options.model.files, &[]);
    print(&mut answer.errors, &mut sources, options.model.json)?;
    if !options.model.json {
        let (total, shown) = (answer.total, answer.errors.len());
        anstream::println!("{total} errors of kernels, {shown} of them shown");
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a command with the checker on; fails if there are errors.
pub fn check(options: &CheckOptions) -> anyhow::Result<ExitCode> {
    let (program, arguments) = options
        .command
        .split_first()
        .context("a command is missing")?;
    // The port has one user at a time, and the command may be one.
    let before = {
        let mut control = options.model.control()?;
        control.request(&json!({ "cmd": "check", "on": true }))?;
        ask(&mut control, u64::MAX)?.total
    };
    let status = Command::new(program).args(arguments).status();
    let mut control = options.model.control()?;
    // Also where the command could not be started: everything is slower with the checker.
    control.request(&json!({ "cmd": "check", "on": false }))?;
    let status = status.with_context(|| format!("{program} cannot be run"))?;
    let mut answer = ask(&mut control, before)?;
    let mut sources = Sources::new(&options.model.files, &options.command);
    print(&mut answer.errors, &mut sources, options.model.json)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(match code {
        Some(0) if answer.total > before => ExitCode::FAILURE,
        Some(code) => ExitCode::from(code),
        None => ExitCode::FAILURE,
    })
}

/// What the kernel `name` has done wrong last, with lines from `file`; empty where no model is asked.
pub fn of_kernel(gpu: usize, name: &str, file: &std::path::Path) -> Vec<String> {
    let Ok(answer) = Control::of_index(gpu).and_then(|mut control| ask(&mut control, 0)) else {
        return Vec::new();
    };
    let of_it = |e: &&mut ProgramError| e.kernel.as_deref() == Some(name);
    let mut errors = answer.errors;
    let Some(last) = errors.iter_mut().filter(of_it).map(|e| e.pasid).next_back() else {
        return Vec::new();
    };
    let mut sources = Sources::new(&Files::of(file), &[]);
    let ours = errors.iter_mut().filter(of_it).filter(|e| e.pasid == last);
    ours.map(|error| {
        error.find_lines(&mut sources);
        error.text()
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_kernel_line_wave_and_address() {
        let mut error: ProgramError = serde_json::from_value(json!({
            "seq": 0, "t_ns": 5, "kind": "memory", "text": "memory violation", "kernel": "saxpy",
            "entry": 0x1000, "object": null, "pasid": 3, "doorbell": 8, "group": [1, 0, 2], "wave": 3,
            "pc": 0x1040, "va": 0x7000, "other": null,
        }))
        .unwrap();
        let text = "saxpy: +0x40: wave 3 of group 1,0,2: memory violation, address 0x7000";
        assert_eq!(error.text(), text);
        error.source = Some("/src/saxpy.cl:7".into());
        let text = "saxpy: /src/saxpy.cl:7 (+0x40): wave 3 of group 1,0,2: memory violation, address 0x7000";
        assert_eq!(error.text(), text);
        error.kernel = None;
        error.va = None;
        error.text = "read of LDS races with the write of wave 1".into();
        error.other = Some(Other {
            wave: 1,
            pc: 0xF00,
            source: Some("/src/saxpy.cl:5".into()),
        });
        let text = "the kernel at 0x1000: /src/saxpy.cl:7 (+0x40): wave 3 of group 1,0,2: \
                    read of LDS races with the write of wave 1 at /src/saxpy.cl:5 (0xf00)";
        assert_eq!(error.text(), text);
    }
}
