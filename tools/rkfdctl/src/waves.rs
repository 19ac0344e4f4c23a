// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl waves`: where every wave is, as the device model has it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;
use serde::Serialize;
use serde_json::json;
use serde_json::Value;
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
    /// Only waves of kernels whose name has this in it
    #[arg(long, value_name = "PART")]
    kernel: Option<String>,
    /// Show so many waves at most
    #[arg(long, value_name = "N")]
    max: Option<u64>,
    /// Refresh, each time after so many seconds (1 without a number)
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1")]
    watch: Option<f64>,
    /// Stop after so many refreshes
    #[arg(long, requires = "watch")]
    count: Option<u64>,
    #[command(flatten)]
    files: Files,
    /// One JSON object per wave and line
    #[arg(long)]
    json: bool,
}

/// Place of a wave on the compute units.
#[derive(Debug, Deserialize, Serialize)]
struct Seat {
    engine: u8,
    unit: u8,
    simd: u8,
    slot: u8,
}

/// A wave, as the model answers; `source` is added here.
#[derive(Debug, Deserialize, Serialize)]
struct Wave {
    kernel: Option<String>,
    entry: u64,
    object: Option<Identity>,
    vmid: u8,
    pasid: u32,
    doorbell: u32,
    me: u8,
    pipe: u8,
    queue: u8,
    dispatch: u64,
    packet: u64,
    group: [u32; 3],
    wave: u32,
    seat: Option<Seat>,
    state: String,
    pc: u64,
    exec: u64,
    instruction: Option<String>,
    #[serde(default)]
    source: Option<String>,
    /// The same without the folders.
    #[serde(skip)]
    line: Option<String>,
}

#[derive(Deserialize)]
struct Answer {
    total: u64,
    waves: Vec<Wave>,
}

#[derive(Tabled)]
#[tabled(rename_all = "UPPERCASE")]
struct Row {
    kernel: String,
    pasid: u32,
    group: String,
    wave: u32,
    seat: String,
    state: String,
    pc: String,
    exec: String,
    source: String,
    instruction: String,
}

impl Wave {
    /// The kernel's name, or where it begins.
    fn kernel(&self) -> String {
        match &self.kernel {
            Some(name) => name.clone(),
            None => format!("{:#x}", self.entry),
        }
    }

    fn row(&self) -> Row {
        let [x, y, z] = self.group;
        let seat = match &self.seat {
            Some(seat) => format!("{}.{}.{}.{}", seat.engine, seat.unit, seat.simd, seat.slot),
            None => "-".into(),
        };
        // Code of other functions may lie before the kernel.
        let pc = match self.pc.checked_sub(self.entry) {
            Some(offset) => format!("+{offset:#x}"),
            None => format!("{:#x}", self.pc),
        };
        Row {
            kernel: self.kernel(),
            pasid: self.pasid,
            group: format!("{x},{y},{z}"),
            wave: self.wave,
            seat,
            state: self.state.clone(),
            pc,
            exec: format!("{:016x}", self.exec),
            source: self.line.clone().unwrap_or_else(|| "-".into()),
            instruction: self.instruction.clone().unwrap_or_else(|| "?".into()),
        }
    }
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let mut control = match &options.control {
        Some(path) => Control::open(path)?,
        None => Control::of_index(options.gpu)?,
    };
    let mut sources = Sources::new(&options.files, &[]);
    let Some(seconds) = options.watch else {
        print(&mut control, &mut sources, options)?;
        return Ok(ExitCode::SUCCESS);
    };
    let pause = Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|pause| !pause.is_zero())
        .context("--watch takes a number of seconds")?;
    let mut round = 0;
    loop {
        if !options.json {
            anstream::print!("\x1b[H\x1b[J");
        }
        print(&mut control, &mut sources, options)?;
        round += 1;
        if options.count.is_some_and(|count| round >= count) {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(pause);
    }
}

fn request(options: &Options) -> Value {
    let mut request = json!({ "cmd": "waves" });
    if let Some(kernel) = &options.kernel {
        request["kernel"] = kernel.as_str().into();
    }
    if let Some(max) = options.max {
        request["max"] = max.into();
    }
    request
}

fn print(control: &mut Control, sources: &mut Sources, options: &Options) -> anyhow::Result<()> {
    let answer = control.request(&request(options))?;
    let mut answer: Answer = serde_json::from_value(answer).context("the model's waves")?;
    for wave in &mut answer.waves {
        let line = sources.line(wave.object.as_ref(), wave.pc);
        wave.source = line.as_ref().map(Line::full);
        wave.line = line.as_ref().map(Line::short);
    }
    if options.json {
        for wave in &answer.waves {
            anstream::println!("{}", serde_json::to_string(wave)?);
        }
        return Ok(());
    }
    if !answer.waves.is_empty() {
        anstream::println!("{}", table(&answer.waves));
    }
    anstream::println!("{}", summary(&answer));
    Ok(())
}

fn table(waves: &[Wave]) -> Table {
    let mut table = Table::new(waves.iter().map(Wave::row));
    table.with(Style::blank());
    table
}

fn summary(answer: &Answer) -> String {
    let kernels: BTreeSet<String> = answer.waves.iter().map(Wave::kernel).collect();
    let shown = answer.waves.len() as u64;
    let mut text = format!("{} waves of {} kernels", answer.total, kernels.len());
    if shown < answer.total {
        text = format!("{text}, {shown} of them shown");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Answer {
        let wave = |number: u32, seat: Value, name: Value| {
            json!({
                "kernel": name, "entry": 0x7f00_0000_1000u64, "object": null, "vmid": 8, "pasid": 32770, "doorbell": 5,
                "me": 1, "pipe": 0, "queue": 2, "dispatch": 7, "packet": 3,
                "group": [4, 0, 1], "wave": number, "seat": seat, "state": "ready",
                "pc": 0x7f00_0000_1040u64, "exec": u64::MAX, "instruction": "s_nop 0",
            })
        };
        let seat = json!({"engine": 3, "unit": 12, "simd": 1, "slot": 0});
        let waves = json!({
            "ok": true, "total": 5,
            "waves": [wave(0, seat, "saxpy".into()), wave(1, Value::Null, Value::Null)],
        });
        serde_json::from_value(waves).unwrap()
    }

    #[test]
    fn a_row_tells_where_a_wave_is() {
        let mut answer = answer();
        answer.waves[1].line = Some("saxpy.cl:3".into());
        let text = table(&answer.waves).to_string();
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .filter(|words: &Vec<&str>| !words.is_empty())
            .collect();
        let head = "KERNEL PASID GROUP WAVE SEAT STATE PC EXEC SOURCE INSTRUCTION";
        assert_eq!(lines[0].join(" "), head);
        let first = "saxpy 32770 4,0,1 0 3.12.1.0 ready +0x40 ffffffffffffffff - s_nop 0";
        assert_eq!(lines[1].join(" "), first);
        let second =
            "0x7f0000001000 32770 4,0,1 1 - ready +0x40 ffffffffffffffff saxpy.cl:3 s_nop 0";
        assert_eq!(lines[2].join(" "), second);
        assert_eq!(summary(&answer), "5 waves of 2 kernels, 2 of them shown");
    }
}
