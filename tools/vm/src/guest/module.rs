// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Loading and unloading kernel modules.

use crate::protocol::Setup;
use anyhow::Context;
use nix::errno::Errno;
use nix::kmod::delete_module;
use nix::kmod::finit_module;
use nix::kmod::DeleteModuleFlags;
use nix::kmod::ModuleInitFlags;
use std::ffi::CString;
use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::Duration;
use std::time::Instant;

/// How long a module may stay in use after every process is gone. Closing files and tearing down address
/// spaces is deferred work in the kernel, but not for seconds.
const UNLOAD_DEADLINE: Duration = Duration::from_secs(30);
/// Pause between two tries.
const UNLOAD_INTERVAL: Duration = Duration::from_millis(20);

/// The modules that are to be unloaded at the end, in order of loading.
#[derive(Default)]
pub(super) struct Loaded(Vec<String>);

impl Loaded {
    /// Loads what `setup` names.
    ///
    /// # Errors
    /// Names the file and the errno; the kernel log says more.
    pub(super) fn load(&mut self, setup: &Setup) -> anyhow::Result<()> {
        for path in &setup.needs {
            self.load_one(path, "")?;
        }
        if let Some(path) = &setup.module {
            self.load_one(path, &setup.module_args)?;
        }
        if let Some(path) = &setup.stub {
            self.load_one(path, &stub_args(&setup.module_args))?;
        }
        Ok(())
    }

    fn load_one(&mut self, path: &str, args: &str) -> anyhow::Result<()> {
        let name = module_name(path)?;
        let file = File::open(path).with_context(|| format!("opening the module {path}"))?;
        finit_module(&file, &CString::new(args)?, ModuleInitFlags::empty())
            .with_context(|| format!("loading the module {path}"))?;
        self.0.push(name);
        Ok(())
    }

    /// Whether anything was ever loaded.
    pub(super) fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Unloads in reverse order; a module that is gone already is fine. Returns what went wrong.
    pub(super) fn unload(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for name in self.0.iter().rev() {
            if let Err(error) = unload_one(name) {
                problems.push(format!("{error:#}"));
            }
        }
        problems
    }
}

/// What the stub is given so that it shows the parameters that the driver has, by amdgpu's names.
pub(crate) fn stub_args(module_args: &str) -> String {
    let given = module_args.split_whitespace().filter_map(|arg| {
        let (name, value) = arg.split_once('=')?;
        let name = match name {
            "sched_policy" | "hws_max_conc_proc" | "gpu_recovery" => name,
            "preempt_timeout_ms" => "queue_preemption_timeout_ms",
            "max_queues" => "max_num_of_queues_per_device",
            _ => return None,
        };
        Some(format!("{name}={value}"))
    });
    given.collect::<Vec<_>>().join(" ")
}

fn module_name(path: &str) -> anyhow::Result<String> {
    let stem = Path::new(path).file_stem().and_then(|stem| stem.to_str());
    let stem = stem.with_context(|| format!("{path} is no module"))?;
    Ok(stem.replace('-', "_"))
}

fn unload_one(name: &str) -> anyhow::Result<()> {
    let end = Instant::now() + UNLOAD_DEADLINE;
    let c_name = CString::new(name)?;
    loop {
        match delete_module(&c_name, DeleteModuleFlags::O_NONBLOCK) {
            Ok(()) | Err(Errno::ENOENT) => return Ok(()),
            Err(Errno::EWOULDBLOCK | Errno::EBUSY) if Instant::now() < end => {
                thread::sleep(UNLOAD_INTERVAL);
            }
            Err(error) => {
                let users = std::fs::read_to_string(format!("/sys/module/{name}/refcnt"));
                let users = users.unwrap_or_default();
                anyhow::bail!(
                    "module {name} cannot be unloaded after every process is gone: {error} (reference count {})",
                    users.trim_end()
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stub_gets_what_amdgpu_has_a_name_for() {
        assert_eq!(stub_args(""), "");
        assert_eq!(
            stub_args("sched_policy=2 watchdog_ms=0  preempt_timeout_ms=500 coalesce=n gpu_recovery=n max_queues=8"),
            "sched_policy=2 queue_preemption_timeout_ms=500 gpu_recovery=n max_num_of_queues_per_device=8"
        );
        assert_eq!(stub_args("gpu_recovery force_probe=*"), "");
    }
}
