// SPDX-License-Identifier: GPL-2.0 OR MIT
//! From loading a driver to the first packet that had an effect.

use std::fs;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::ExitCode;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use nix::libc;
use rkfd::error::Error;

use super::counts::median;
use super::counts::Model;
use super::measure::Worker;
use super::measure::GPU;
use super::report::Row;
use crate::control::model_addresses;

/// Times that the driver is loaded.
const LOADS: usize = 3;
/// How long the driver may be in use after the last program has ended, and how long it may take to come up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Parameters that amdgpu is given in a VM of `scripts/vm`, and those that change what is measured.
const PARAMETERS: [&str; 9] = [
    "ip_block_mask",
    "dpm",
    "ras_enable",
    "runpm",
    "gpu_recovery",
    "ppfeaturemask",
    "num_kcq",
    "sched_policy",
    "queue_preemption_timeout_ms",
];

/// A driver and how it is loaded.
pub enum Driver {
    /// rkfd, from this file.
    Rkfd(PathBuf),
    /// amdgpu, from the tree of modules below this directory, with these parameters.
    Amdgpu(PathBuf, Vec<String>),
}

impl Driver {
    /// The one that is bound to the first device model.
    ///
    /// # Errors
    /// There is no model, no driver, or another one.
    pub fn bound() -> anyhow::Result<Self> {
        let devices = Path::new("/sys/bus/pci/devices");
        let models = model_addresses(devices);
        let address = models.first().context("there is no device model")?;
        let link = devices.join(address).join("driver");
        let target = fs::read_link(&link).with_context(|| link.display().to_string())?;
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        match &*name {
            "rkfd" => {
                let file = std::env::var_os("RKFD_MODULE");
                let file = file.unwrap_or_else(|| "build/module/rkfd.ko".into());
                Ok(Self::Rkfd(file.into()))
            }
            "amdgpu" => {
                let out = std::env::var_os("RKFD_OUT").unwrap_or_else(|| "build".into());
                let parameters = Path::new("/sys/module/amdgpu/parameters");
                let given = PARAMETERS.iter().map(|name| {
                    let path = parameters.join(name);
                    let value = fs::read_to_string(&path);
                    let value = value.with_context(|| path.display().to_string())?;
                    anyhow::Ok(format!("{name}={}", value.trim()))
                });
                let given = given.collect::<anyhow::Result<_>>()?;
                Ok(Self::Amdgpu(Path::new(&out).join("module-amdgpu"), given))
            }
            other => bail!("the driver {other} is not known here"),
        }
    }

    /// The module's name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Rkfd(_) => "rkfd",
            Self::Amdgpu(..) => "amdgpu",
        }
    }

    fn load(&self) -> anyhow::Result<()> {
        let mut command = match self {
            Self::Rkfd(file) => {
                let mut command = Command::new("insmod");
                command.arg(file);
                command
            }
            Self::Amdgpu(root, parameters) => {
                let mut command = Command::new("modprobe");
                command.arg("-d").arg(root).arg("amdgpu").args(parameters);
                command
            }
        };
        let status = command.stdout(Stdio::null()).status();
        let status = status.with_context(|| format!("{command:?}"))?;
        if !status.success() {
            bail!("{command:?}: {status}");
        }
        Ok(())
    }
}

/// Unloads whichever driver there is. A program's last reference may be given back a little after its end.
fn unload() -> anyhow::Result<()> {
    // Beside rkfd this is the stand-in, if it is loaded at all.
    for module in ["amdgpu", "rkfd"] {
        let end = Instant::now() + PATIENCE;
        while Path::new("/sys/module").join(module).exists() {
            let out = Command::new("rmmod")
                .arg(module)
                .output()
                .context("rmmod")?;
            if !out.status.success() {
                if Instant::now() >= end {
                    bail!("{}", String::from_utf8_lossy(&out.stderr).trim());
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
    Ok(())
}

/// Loads the driver anew, a few times. A process of its own uses the GPU, since a driver may keep what belongs to one until
/// that ends.
///
/// # Errors
/// It does not come up again.
pub fn measure(driver: &Driver, model: &mut Model, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let mut loads = Vec::new();
    let whole = model.series(
        "load the driver, first packet",
        "counted with unloading",
        LOADS,
        |_| {
            unload()?;
            let mut first = First::start()?;
            let began = Instant::now();
            driver.load()?;
            loads.push(began.elapsed());
            let status = first.0.wait()?;
            let took = began.elapsed();
            if !status.success() {
                bail!("the process that waits for the GPU: {status}");
            }
            Ok(took)
        },
    )?;
    rows.push(Row::timed("load the driver", "", median(loads)));
    rows.push(whole);
    Ok(())
}

/// The process of [`first`]; killed when dropped, unless it has ended.
struct First(Child);

impl First {
    /// Starts it; it waits for the GPU when this returns.
    fn start() -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("this program's own path")?;
        let mut first = Self(
            Command::new(program)
                .args(["bench", "versus", "first"])
                .stdout(Stdio::piped())
                .spawn()
                .context("starting a process")?,
        );
        let out = first.0.stdout.take().context("a process without output")?;
        BufReader::new(out).read_line(&mut String::new())?;
        Ok(first)
    }
}

impl Drop for First {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process that has a packet executed as soon as there is a GPU. It opens nothing before, so that it is not one that a
/// driver has known without a GPU.
pub fn first() -> anyhow::Result<ExitCode> {
    println!("ready");
    std::io::stdout().flush()?;
    let end = Instant::now() + PATIENCE;
    while !there() {
        if Instant::now() >= end {
            bail!("the driver does not come up");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let device = loop {
        match crate::open_gpu(GPU) {
            Err(e) if is_early(&e) && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => break opened?,
        }
    };
    Worker::new(&device)?.effect(1)?;
    Ok(ExitCode::SUCCESS)
}

/// Whether `/dev/kfd` is there and cannot be opened yet: a driver that is being loaded lets files be opened last.
fn is_early(error: &anyhow::Error) -> bool {
    let file = error.downcast_ref::<Error>();
    matches!(file, Some(Error::File { source, .. }) if source.raw_os_error() == Some(libc::ENXIO))
}

/// Whether a GPU is in the topology and a render node in the file system.
fn there() -> bool {
    let entries = |path: &str| fs::read_dir(path).into_iter().flatten().flatten();
    let gpu = entries("/sys/devices/virtual/kfd/kfd/topology/nodes").any(|node| {
        let id = fs::read_to_string(node.path().join("gpu_id"));
        id.is_ok_and(|id| id.trim() != "0")
    });
    let render =
        || entries("/dev/dri").any(|e| e.file_name().to_string_lossy().starts_with("renderD"));
    gpu && Path::new("/dev/kfd").exists() && render()
}
