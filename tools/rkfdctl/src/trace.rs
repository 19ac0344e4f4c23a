// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl trace`: the packets that the GPU executed lately.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use rkfd::device::Kfd;
use rkfd::error::Error;

use crate::control::Control;
use crate::control::Record;
use crate::style;

#[derive(clap::Args)]
pub struct Options {
    /// GPU, counted from 0
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// Seconds to look back
    #[arg(long, default_value_t = 10.0)]
    last: f64,
    /// At most this many packets, the newest
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
    let records = control.trace(Some(last_ms), options.max)?;
    let chosen = records.iter().filter(|r| {
        options
            .ring
            .as_ref()
            .is_none_or(|ring| r.ring.eq_ignore_ascii_case(ring))
            && options.pasid.is_none_or(|pasid| r.pasid == Some(pasid))
    });
    let mut count = 0;
    for record in chosen {
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

/// The control port of GPU number `index`, without binding the GPU.
fn control_of(index: usize) -> anyhow::Result<Control> {
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
    let text = if r.text.is_empty() {
        &r.packet
    } else {
        &r.text
    };
    format!(
        "{} {:<8}{who} {text}",
        style::dim(format!("{ms:>8}.{us:03} ms")),
        style::head(&r.ring)
    )
}
