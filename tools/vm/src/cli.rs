// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Options of the VM, shared by `rkfd-vm` and the test driver, and what they come to: the VM ([`config`]) with its GPU
//! models ([`models`]), its NUMA nodes ([`nodes`]), what the guest prepares ([`setup`]), and the folder of a run's logs ([`logs`]).

mod config;
mod logs;
mod models;
mod nodes;
mod setup;
mod size;

pub use setup::environment;

use crate::accel::Choice;
use crate::complaints::Policy;
use crate::driver::Driver;
use clap::Args;
use regex::Regex;
use size::memory_size;
use std::path::PathBuf;

/// Where things are; `scripts/vm` and `scripts/test` fill this in.
#[derive(Args, Clone, Debug)]
pub struct Places {
    /// The checkout.
    #[arg(long, value_name = "DIR", hide = true)]
    pub top: PathBuf,
    /// What is built from the checkout.
    #[arg(long, value_name = "DIR", hide = true)]
    pub out: PathBuf,
    /// Build directory of the test kernel.
    #[arg(long, value_name = "DIR", hide = true)]
    pub kernel: PathBuf,
}

/// The virtual machine.
#[derive(Args, Clone, Debug)]
pub struct MachineOptions {
    /// Number of modelled GPUs [default: 1; none beside --passthrough]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=4))]
    pub gpus: Option<u8>,
    /// Kind of the modelled GPUs: gfx90a, gfx906; a comma between several, the last one repeats
    #[arg(
        long,
        value_name = "NAME",
        default_value = "gfx90a",
        value_delimiter = ','
    )]
    pub asic: Vec<String>,
    /// VRAM of each modelled GPU [default: the model's, 1G]
    #[arg(long, value_name = "SIZE")]
    pub vram: Option<String>,
    /// More options of each GPU model, as on its command line
    #[arg(
        long,
        value_name = "ARGS",
        default_value = "",
        allow_hyphen_values = true
    )]
    pub model_args: String,
    /// Guest memory
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = memory_size)]
    pub mem: String,
    /// Virtual CPUs
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub smp: u32,
    /// NUMA nodes: memory, virtual CPUs and GPUs are divided evenly, GPUs in order
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    pub numa: u32,
    /// Boot the kernel with KASAN, lockdep, UBSAN, kmemleak and fault injection (built when first asked for)
    #[arg(long)]
    pub debug_kernel: bool,
    /// Hand a real card to the guest by vfio-pci; instead of the modelled GPUs, unless --gpus is given too
    #[arg(long, value_name = "PCI-ADDRESS")]
    pub passthrough: Vec<String>,
    /// How guest code runs; auto is KVM where a probe boot has proven it
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Choice::Auto)]
    pub accel: Choice,
    /// Mount this directory read-write in the guest, at the same path
    #[arg(long, value_name = "DIR")]
    pub share: Vec<PathBuf>,
    /// The driver of the GPUs; amdgpu has a kernel of its own (built when first asked for)
    #[arg(long, value_name = "NAME", value_enum, default_value_t)]
    pub driver: Driver,
    /// Do not load the driver
    #[arg(long)]
    pub no_module: bool,
    /// Parameters for the driver, as on an insmod line
    #[arg(
        long,
        value_name = "ARGS",
        default_value = "",
        allow_hyphen_values = true
    )]
    pub module_args: String,
    /// Do not load the empty companion module that is called amdgpu (rocminfo looks for that name)
    #[arg(long)]
    pub no_amdgpu_stub: bool,
    /// Leave the module loaded at the end, so that neither unloading nor leaks are checked
    #[arg(long)]
    pub keep: bool,
    /// Kernel messages of level warning or error do not fail the run (reports of checkers still do)
    #[arg(long)]
    pub allow_warnings: bool,
    /// Kernel messages that match do not fail the run
    #[arg(long, value_name = "REGEX")]
    pub expect_kmsg: Vec<Regex>,
    /// More kernel parameters
    #[arg(
        long,
        value_name = "ARGS",
        default_value = "",
        allow_hyphen_values = true
    )]
    pub kernel_args: String,
}

impl MachineOptions {
    /// Which kernel messages count.
    pub fn policy(&self) -> Policy {
        Policy {
            allow_warnings: self.allow_warnings,
            expected: self
                .driver
                .expected()
                .chain(self.expect_kmsg.iter().cloned())
                .collect(),
        }
    }
}
