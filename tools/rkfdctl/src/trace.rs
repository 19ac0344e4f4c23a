// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl trace`: the packets that the GPU executed lately.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use anyhow::Context;
use rkfd::device::Kfd;
use rkfd::error::Error;
use serde_json::Value;

use crate::control::Control;
use crate::control::Record;
use crate::debugfs;
use crate::style;
use crate::timeline;
use crate::timeline::Timeline;

#[derive(clap::Args)]
pub struct Options {
    /// GPU, counted from 0
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// Seconds to look back
    #[arg(long, default_value_t = 10.0)]
    last: f64,
    /// At most this many packets, the newest [default: 1000, or with --ring or --pasid all]
    #[arg(long)]
    max: Option<u64>,
    /// Only this ring (HIQ, KIQ, compute, sdma)
    #[arg(long)]
    ring: Option<String>,
    /// Only this PASID
    #[arg(long)]
    pasid: Option<u32>,
    /// One JSON object per line, with fields and dwords
    #[arg(long)]
    json: bool,
    /// Draw instead which queue sat on which hardware slot when, as an SVG picture
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "ring", "pasid"])]
    timeline: Option<PathBuf>,
    /// Control port or socket, instead of the GPU's own
    #[arg(long)]
    control: Option<PathBuf>,
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let mut control = match &options.control {
        Some(path) => Control::open(path)?,
        None => control_of(options.gpu)?,
    };
    if !options.last.is_finite() || options.last < 0.0 {
        bail!("--last takes a number of seconds");
    }
    // CAST: saturates, which is what a reader who asks for for ever means.
    let last_ms = (options.last * 1000.0) as u64;
    if let Some(path) = &options.timeline {
        return timeline(options, &mut control, last_ms, path);
    }
    // The model counts before anything is chosen.
    let choosy = options.ring.is_some() || options.pasid.is_some();
    let most = if choosy { Some(ALL) } else { options.max };
    let records = control.trace(Some(last_ms), most)?;
    let mut count = 0;
    for record in chosen(&records, options) {
        count += 1;
        if options.json {
            anstream::println!("{}", serde_json::to_string(record)?);
        } else {
            anstream::println!("{}", line(record));
        }
    }
    if count == 0 && !options.json {
        anstream::println!("No packet in the last {} s.", options.last);
    }
    Ok(ExitCode::SUCCESS)
}

/// The records that the options name, and of these the newest, as many as are wanted.
fn chosen<'a>(records: &'a [Record], options: &Options) -> Vec<&'a Record> {
    let of_ring = |r: &Record| {
        let ring = options.ring.as_ref();
        ring.is_none_or(|ring| r.ring.eq_ignore_ascii_case(ring))
    };
    let of_process = |r: &Record| options.pasid.is_none_or(|pasid| r.pasid == Some(pasid));
    let mut found: Vec<&Record> = records
        .iter()
        .filter(|r| of_ring(r) && of_process(r))
        .collect();
    let most = options.max.and_then(|max| usize::try_from(max).ok());
    let surplus = found.len().saturating_sub(most.unwrap_or(usize::MAX));
    found.drain(..surplus);
    found
}

/// Records that are asked for where nothing else is said: all that the model keeps.
const ALL: u64 = 1 << 20;

fn timeline(
    options: &Options,
    control: &mut Control,
    last_ms: u64,
    path: &Path,
) -> anyhow::Result<ExitCode> {
    let window = control.window(last_ms, options.max.unwrap_or(ALL))?;
    let timeline = Timeline::new(&window);
    let names = match &options.control {
        Some(_) => BTreeMap::new(),
        None => process_names(options.gpu),
    };
    // CAST: for a reader.
    let ms = (timeline.end - timeline.start) as f64 / 1e6;
    let title = format!("Queues on the hardware of GPU {}, {ms:.0} ms", options.gpu);
    fs::write(path, timeline::draw(&timeline, &title, &names))
        .with_context(|| format!("{}", path.display()))?;
    let stays: usize = timeline.rows.values().map(Vec::len).sum();
    anstream::println!(
        "{}: {stays} stays of {} processes on {} slots in {ms:.0} ms",
        path.display(),
        timeline.processes().len(),
        timeline.rows.len()
    );
    for (reason, (count, length)) in timeline.reasons() {
        anstream::println!("  {}", ending(reason, count, length));
    }
    Ok(ExitCode::SUCCESS)
}

/// How many stays ended in this way, and after which time the middle one of those did.
fn ending(reason: &str, count: usize, length: Option<u64>) -> String {
    match (reason, length) {
        ("", _) => format!("lasting: {count}"),
        (_, None) => format!("ended by {reason}: {count}"),
        // CAST: for a reader.
        (_, Some(ns)) => format!(
            "ended by {reason}: {count}, in the middle after {:.1} ms",
            ns as f64 / 1e6
        ),
    }
}

/// What can be told of the processes that have queues now, by PASID. Without debugfs, nothing.
fn process_names(gpu: usize) -> BTreeMap<u32, String> {
    let text = Kfd::open()
        .and_then(|kfd| kfd.gpus())
        .ok()
        .and_then(|gpus| gpus.get(gpu)?.pci())
        .and_then(|pci| debugfs::read(&pci.address, "mqds").ok())
        .unwrap_or_default();
    debugfs::mqds(&text)
        .into_iter()
        .filter_map(|p| {
            let pid = p.pid?;
            let name = debugfs::process_name(pid)?;
            Some((p.pasid, format!("{name} ({pid})")))
        })
        .collect()
}

/// The control port of GPU number `index`, without binding the GPU.
///
/// # Errors
/// [`Error::NoGpu`]; a sentence where there is no such GPU, or it is no model.
pub fn control_of(index: usize) -> anyhow::Result<Control> {
    let gpus = Kfd::open()?.gpus()?;
    if gpus.is_empty() {
        return Err(Error::NoGpu.into());
    }
    let Some(gpu) = gpus.get(index) else {
        bail!(
            "there is no GPU {index}: the driver serves {}, counted from 0",
            gpus.len()
        );
    };
    let pci = gpu.pci();
    match pci
        .as_ref()
        .map(|p| Control::of_pci(&p.address))
        .transpose()?
        .flatten()
    {
        Some(control) => Ok(control),
        None => bail!(
            "GPU {index} has no trace: only the device model records packets, and this is no model"
        ),
    }
}

/// One packet, for a reader.
pub fn line(r: &Record) -> String {
    let ms = r.t_ns / 1_000_000;
    let us = r.t_ns / 1000 % 1000;
    let mut who = String::new();
    if let Some(vmid) = r.vmid.filter(|v| *v != 0) {
        who = format!(" vmid {vmid}");
    }
    if let Some(pasid) = r.pasid.filter(|p| *p != 0) {
        who.push_str(&format!(" pasid {pasid:#x}"));
    }
    format!(
        "{} {}{who} {}",
        style::dim(format!("{ms:>8}.{us:03} ms")),
        style::head(format!("{:<8}", r.ring)),
        compact(r)
    )
}

/// The packet's name and its fields that are not 0.
fn compact(r: &Record) -> String {
    let Some(fields) = r.fields.as_object().filter(|f| !f.is_empty()) else {
        return if r.text.is_empty() {
            r.packet.clone()
        } else {
            r.text.clone()
        };
    };
    let mut line = r.packet.clone();
    for (key, value) in fields {
        match value {
            Value::Number(n) => match n.as_u64() {
                Some(0) => {}
                Some(small @ 1..=9) => line.push_str(&format!(" {key}={small}")),
                Some(large) => line.push_str(&format!(" {key}={large:#x}")),
                None => line.push_str(&format!(" {key}={n}")),
            },
            Value::String(text) if key == "text" => line.push_str(&format!(" {text}")),
            Value::String(text) => line.push_str(&format!(" {key}={text}")),
            other => line.push_str(&format!(" {key}={other}")),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(fields: Value, text: &str) -> Record {
        let value = serde_json::json!({
            "seq": 7, "t_ns": 12_345_678, "ring": "runlist", "vmid": 0, "pasid": 1, "packet": "MAP_QUEUES",
            "fields": fields, "text": text, "raw": [],
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_newest_are_counted_among_those_that_are_wanted() {
        let of = |seq: u64, ring: &str, pasid: u32| Record {
            seq,
            ring: ring.into(),
            pasid: Some(pasid),
            ..record(Value::Null, "")
        };
        let records = [
            of(1, "HIQ", 0),
            of(2, "compute", 5),
            of(3, "HIQ", 0),
            of(4, "compute", 6),
            of(5, "compute", 5),
        ];
        let options = |ring: Option<&str>, pasid, max| Options {
            gpu: 0,
            last: 1.0,
            max,
            ring: ring.map(str::to_owned),
            pasid,
            json: false,
            timeline: None,
            control: None,
        };
        let seqs = |options: Options| -> Vec<u64> {
            chosen(&records, &options).iter().map(|r| r.seq).collect()
        };
        assert_eq!(seqs(options(None, None, None)), [1, 2, 3, 4, 5]);
        assert_eq!(seqs(options(Some("hiq"), None, Some(1))), [3]);
        assert_eq!(seqs(options(None, Some(5), Some(2))), [2, 5]);
        assert_eq!(seqs(options(Some("compute"), Some(5), Some(1))), [5]);
        assert_eq!(seqs(options(None, None, Some(0))), [0u64; 0]);
    }

    #[test]
    fn endings_are_told_with_what_is_known() {
        assert_eq!(ending("", 3, Some(1)), "lasting: 3");
        assert_eq!(ending("unmap", 2, None), "ended by unmap: 2");
        assert_eq!(
            ending("quantum", 9, Some(100_250_000)),
            "ended by quantum: 9, in the middle after 100.2 ms"
        );
    }

    #[test]
    fn zero_fields_are_left_out_and_addresses_are_hexadecimal() {
        let r = record(
            serde_json::json!({ "me": 1, "pipe": 0, "mqd_addr": 0xb000, "mask": "0xff" }),
            "",
        );
        // In the order of the keys.
        assert_eq!(compact(&r), "MAP_QUEUES mask=0xff me=1 mqd_addr=0xb000");
    }

    #[test]
    fn without_fields_the_models_own_text_is_shown() {
        assert_eq!(
            compact(&record(Value::Null, "MAP_QUEUES as told")),
            "MAP_QUEUES as told"
        );
        assert_eq!(compact(&record(Value::Null, "")), "MAP_QUEUES");
        assert_eq!(
            compact(&record(serde_json::json!({ "text": "pasid 1" }), "x")),
            "MAP_QUEUES pasid 1"
        );
    }

    #[test]
    fn a_line_holds_time_ring_and_process() {
        let plain = anstream::adapter::strip_str(&line(&record(Value::Null, "text"))).to_string();
        assert_eq!(plain, "      12.345 ms runlist  pasid 0x1 text");
    }
}
