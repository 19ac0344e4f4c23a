// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The VM that the options come to on this machine, and what of it QEMU can reach.

use super::logs::new_log_dir;
use super::MachineOptions;
use super::Places;
use crate::accel::Accel;
use crate::budget::Budget;
use crate::jail;
use crate::passthrough;
use crate::protocol::Setup;
use crate::qemu;
use crate::session::Config;
use crate::tsc;
use anyhow::Context;
use std::path::Path;
use std::path::PathBuf;

impl MachineOptions {
    /// Checks the options against this machine and makes the VM's configuration of them.
    ///
    /// # Errors
    /// Nodes that cannot be alike, a directory that cannot be shared, a card that cannot be passed through, something not built.
    pub fn config(&self, places: &Places) -> anyhow::Result<Config> {
        self.check_nodes()?;
        let kernel = places.kernel.join("arch/x86/boot/bzImage");
        anyhow::ensure!(
            kernel.exists(),
            "the test kernel is not built: scripts/kernel ensure"
        );
        let host = passthrough::Host::default();
        let mut cards = Vec::new();
        for address in &self.passthrough {
            let card = host
                .check(address)
                .with_context(|| format!("--passthrough {address} is not possible"))?;
            cards.push(card);
        }
        let models = usize::from(self.models());
        let program = places.out.join("bin/gpu-model");
        anyhow::ensure!(
            models == 0 || program.exists(),
            "the GPU model is not built ({}): make tools, or use --gpus 0",
            program.display()
        );
        let asics = (0..models)
            .filter_map(|index| self.asic.get(index).or(self.asic.last()).cloned())
            .collect();
        let accel = Accel::choose(self.accel, &kernel, &places.kernel.join("rkfd-kvm-probe"));
        let setup = self.setup(places, &cards)?;
        let cache = std::env::var_os("RKFD_CACHE").map(PathBuf::from);
        let jail = places.out.join("bin/rkfd-jail");
        anyhow::ensure!(jail.exists(), "{} is not built: make tools", jail.display());
        Ok(Config {
            accel,
            jail,
            reach: reach(
                places,
                cache.as_deref(),
                kernel,
                &setup,
                accel,
                !cards.is_empty(),
            )?,
            budget: cache.map(|cache| (Budget::new(&cache), self.footprint())),
            init: places.out.join("bin/rkfd-init"),
            model: program,
            asics,
            model_options: self.model_options()?,
            setup,
            cards: cards.into_iter().map(|card| card.address).collect(),
            memory: self.mebibytes(),
            cpus: self.smp,
            nodes: self.numa,
            hz: tsc::hz(&places.kernel),
            kernel_args: self.kernel_args.clone(),
            policy: self.policy(),
            log_dir: new_log_dir(&places.out)?,
        })
    }
}

/// What QEMU can reach: for the guest the checkout and what is built from it; not what git knows of the user,
/// which may be a password, nor the cache, in which cargo's settings are.
fn reach(
    places: &Places,
    cache: Option<&Path>,
    kernel: PathBuf,
    setup: &Setup,
    accel: Accel,
    cards: bool,
) -> anyhow::Result<jail::Spec> {
    let mut devices = Vec::new();
    if accel == Accel::Kvm {
        devices.push("/dev/kvm".into());
    }
    if cards {
        devices.push("/dev/vfio".into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&path).map(|dir| dir.join(qemu::PROGRAM));
    let program = programs
        .find(|program| program.is_file())
        .with_context(|| format!("there is no {}", qemu::PROGRAM))?;
    let git = places.top.join(".git");
    Ok(jail::Spec {
        exports: vec![places.top.clone(), places.out.clone()],
        hidden: cache.map(Path::to_owned).into_iter().chain([git]).collect(),
        shares: setup.shares.clone(),
        kernel,
        devices,
        toolbox: std::env::var_os("RKFD_IN_TOOLBOX").is_some_and(|inside| !inside.is_empty()),
        cards,
        program,
        ..jail::Spec::default()
    })
}
