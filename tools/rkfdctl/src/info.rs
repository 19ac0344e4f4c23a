// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl info`: GPUs, memory, queues, versions.

use std::fs;
use std::process::ExitCode;

use rkfd::device::Device;
use rkfd::device::Gpu;
use rkfd::device::Kfd;
use rkfd::device::PciIdentity;
use rkfd::error::Error;
use rkfd::topology::Properties;
use serde::Serialize;

use crate::control::Control;
use crate::style;

#[derive(clap::Args)]
pub struct Options {
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// What is known of one GPU; absent where neither driver nor model tells.
#[derive(Debug, Serialize)]
struct GpuInfo {
    index: usize,
    gpu_id: u32,
    name: String,
    gfx: String,
    pci: Option<String>,
    pci_ids: Option<String>,
    model: bool,
    render_node: Option<String>,
    compute_units: Option<u64>,
    vram_bytes: Option<u64>,
    vram_available_bytes: Option<u64>,
    compute_queue_slots: Option<u64>,
    sdma_engines: Option<u64>,
    sdma_queues_per_engine: Option<u64>,
    save_area_bytes: Option<u64>,
    firmware: Option<u64>,
    sdma_firmware: Option<u64>,
    mapped_queues: Option<usize>,
    protocol_errors: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Info {
    interface: String,
    kernel: String,
    module: Option<String>,
    gpus: Vec<GpuInfo>,
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let kfd = Kfd::open()?;
    let gpus = kfd.gpus()?;
    if gpus.is_empty() {
        return Err(Error::NoGpu.into());
    }
    let (major, minor) = kfd.version();
    let info = Info {
        interface: format!("{major}.{minor}"),
        kernel: first_line("/proc/sys/kernel/osrelease").unwrap_or_default(),
        module: first_line("/sys/module/rkfd/version")
            .or_else(|| first_line("/sys/module/rkfd/srcversion")),
        gpus: gpus
            .iter()
            .enumerate()
            .map(|(i, g)| gpu_info(&kfd, i, g))
            .collect::<anyhow::Result<_>>()?,
    };
    if options.json {
        anstream::println!("{}", serde_json::to_string_pretty(&info)?);
    } else {
        print(&info);
    }
    Ok(ExitCode::SUCCESS)
}

fn first_line(path: &str) -> Option<String> {
    fs::read_to_string(path)
        .ok()?
        .lines()
        .next()
        .map(str::to_owned)
}

/// `gfx90a` for 90010: the stepping is hexadecimal.
pub fn gfx_name(version: u64) -> String {
    if version == 0 {
        return "unknown".into();
    }
    format!(
        "gfx{}{}{:x}",
        version / 10_000,
        version / 100 % 100,
        version % 100
    )
}

/// VRAM of a node: its memory banks that are a frame buffer.
fn vram(banks: &[Properties]) -> u64 {
    let frame_buffer = |b: &&Properties| matches!(b.get("heap_type"), Some(1 | 2));
    banks
        .iter()
        .filter(frame_buffer)
        .filter_map(|b| b.get("size_in_bytes"))
        .sum()
}

fn gpu_info(kfd: &std::sync::Arc<Kfd>, index: usize, gpu: &Gpu) -> anyhow::Result<GpuInfo> {
    let properties = gpu.node.as_ref().map(|n| &n.properties);
    let get = |key: &str| properties.and_then(|p| p.get(key));
    let device = Device::open(kfd, gpu)?;
    let pci: Option<&PciIdentity> = device.pci();
    let gfx = gfx_name(gpu.gfx());
    let (mapped_queues, protocol_errors) = match pci {
        Some(p) => from_model(p),
        None => (None, None),
    };
    let per_cu = get("simd_per_cu").filter(|n| *n != 0);
    Ok(GpuInfo {
        index,
        gpu_id: gpu.id,
        name: gpu
            .node
            .as_ref()
            .map(|n| n.name.clone())
            .filter(|n| !n.is_empty())
            .unwrap_or_else(|| gfx.clone()),
        gfx,
        pci: pci.map(|p| p.address.clone()),
        pci_ids: pci.map(|p| format!("{:04x}:{:04x} rev {:02x}", p.vendor, p.device, p.revision)),
        model: pci.is_some_and(PciIdentity::is_model),
        render_node: Some(device.render_path().display().to_string()),
        compute_units: get("simd_count")
            .zip(per_cu)
            .map(|(simds, per)| simds / per),
        vram_bytes: gpu
            .node
            .as_ref()
            .map(|n| vram(&n.mem_banks))
            .filter(|n| *n != 0),
        vram_available_bytes: device.available_memory().ok(),
        compute_queue_slots: get("num_cp_queues"),
        sdma_engines: get("num_sdma_engines"),
        sdma_queues_per_engine: get("num_sdma_queues_per_engine"),
        save_area_bytes: device.save_area().ok().map(|a| a.total),
        firmware: get("fw_version").map(|v| v & 0x3ff),
        sdma_firmware: get("sdma_fw_version").map(|v| v & 0x3ff),
        mapped_queues,
        protocol_errors,
    })
}

/// Mapped user queues and protocol errors, as the model counts them. Another client may hold the port: then nothing.
fn from_model(pci: &PciIdentity) -> (Option<usize>, Option<u64>) {
    let Ok(Some(mut control)) = Control::of_pci(&pci.address) else {
        return (None, None);
    };
    let mut ask = |cmd: &str| control.request(&serde_json::json!({ "cmd": cmd })).ok();
    let queues = ask("queues").and_then(|a| {
        a.as_object()
            .and_then(|o| o.values().find_map(|v| v.as_array().cloned()))
    });
    let errors = ask("errors").and_then(|a| {
        a.as_object()
            .and_then(|o| o.values().find_map(|v| v.as_array().cloned()))
    });
    // CAST: a length.
    (queues.map(|q| q.len()), errors.map(|e| e.len() as u64))
}

fn print(info: &Info) {
    let module = info
        .module
        .as_deref()
        .map_or(String::new(), |m| format!(", module {m}"));
    anstream::println!(
        "/dev/kfd interface {}, kernel {}{module}; {} GPU{}",
        style::value(&info.interface),
        info.kernel,
        info.gpus.len(),
        if info.gpus.len() == 1 { "" } else { "s" }
    );
    for g in &info.gpus {
        let what = if g.model { "device model" } else { "card" };
        anstream::println!(
            "\n{}",
            style::head(format!("GPU {}: {} ({}), {what}", g.index, g.name, g.gfx))
        );
        row("gpu_id", Some(format!("{:#06x}", g.gpu_id)));
        row(
            "PCI",
            g.pci
                .as_ref()
                .map(|p| format!("{p}, {}", g.pci_ids.as_deref().unwrap_or("?"))),
        );
        row("render node", g.render_node.clone());
        row("compute units", g.compute_units.map(|n| n.to_string()));
        let available = g.vram_available_bytes.map_or(String::new(), |n| {
            format!(", {} available", style::bytes(n))
        });
        row(
            "VRAM",
            g.vram_bytes
                .map(|n| format!("{}{available}", style::bytes(n))),
        );
        if g.vram_bytes.is_none() {
            row("VRAM available", g.vram_available_bytes.map(style::bytes));
        }
        row(
            "compute queues",
            g.compute_queue_slots.map(|n| format!("{n} hardware slots")),
        );
        row(
            "SDMA queues",
            g.sdma_engines
                .zip(g.sdma_queues_per_engine)
                .map(|(e, q)| format!("{e} engines with {q} slots each")),
        );
        row(
            "save area",
            g.save_area_bytes
                .map(|n| format!("{} per compute queue", style::bytes(n))),
        );
        row(
            "firmware",
            g.firmware.map(|f| match g.sdma_firmware {
                Some(s) => format!("MEC {f}, SDMA {s}"),
                None => format!("MEC {f}"),
            }),
        );
        row(
            "hardware queues in use",
            g.mapped_queues.map(|n| n.to_string()),
        );
        row("protocol errors", g.protocol_errors.map(|n| n.to_string()));
    }
}

fn row(label: &str, value: Option<String>) {
    if let Some(v) = value {
        anstream::println!(
            "  {} {}",
            style::dim(format!("{label:<22}")),
            style::value(v)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_their_usual_names() {
        for (version, name) in [
            (90010, "gfx90a"),
            (90006, "gfx906"),
            (90402, "gfx942"),
            (0, "unknown"),
        ] {
            assert_eq!(gfx_name(version), name);
        }
    }

    #[test]
    fn only_frame_buffers_are_vram() {
        let bank = |heap: u32, size: u32| {
            Properties::parse(&format!("heap_type {heap}\nsize_in_bytes {size}\n")).unwrap()
        };
        assert_eq!(vram(&[bank(0, 1), bank(1, 2), bank(2, 4), bank(4, 8)]), 6);
    }
}
