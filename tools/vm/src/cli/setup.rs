// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the guest is told: directories, modules and their parameters, and where and in which environment a command runs.

use super::MachineOptions;
use super::Places;
use crate::driver::Driver;
use crate::driver::Installed;
use crate::passthrough;
use crate::protocol::Setup;
use crate::protocol::Share;
use anyhow::Context;
use std::fs;
use std::path::Path;

impl MachineOptions {
    /// What the guest prepares.
    ///
    /// # Errors
    /// A directory that cannot be shared, a module that is not built.
    pub(super) fn setup(
        &self,
        places: &Places,
        cards: &[passthrough::Card],
    ) -> anyhow::Result<Setup> {
        let mut setup = Setup::default();
        for (index, dir) in self.share.iter().enumerate() {
            setup.shares.push(Share {
                tag: format!("share{index}"),
                path: shared_path(dir)?,
            });
        }
        if self.driver == Driver::Amdgpu {
            return self.setup_amdgpu(places, setup);
        }
        let dir = places.out.join("module");
        let flavour = if self.debug_kernel {
            Some("debug")
        } else if self.kernel_args.contains("kunit.enable=1") {
            Some("kunit")
        } else {
            None
        };
        let built = match flavour {
            Some(flavour) => places.out.join(format!("module-{flavour}")),
            None => dir.clone(),
        };
        let there = built.join("rkfd.ko").exists();
        // Tests and users find the module at one path whatever its flavour, also where they load it themselves.
        if flavour.is_some() && there {
            setup.binds.push((text(&built)?, text(&dir)?));
        }
        if self.no_module {
            return Ok(setup);
        }
        anyhow::ensure!(
            there,
            "the module is not built ({}): scripts/build module {}, or use --no-module",
            built.join("rkfd.ko").display(),
            flavour.unwrap_or("base")
        );
        let stub = dir.join("amdgpu.ko");
        if stub.exists() && !self.no_amdgpu_stub {
            setup.stub = Some(text(&stub)?);
        }
        setup.module = Some(text(&dir.join("rkfd.ko"))?);
        setup.module_args = self.module_args.clone();
        if !cards.is_empty() && !self.module_args.contains("force_probe=") {
            // Who passes a card through wants the driver to take it.
            let ids: Vec<&str> = cards.iter().map(|card| card.device_id.as_str()).collect();
            setup.module_args = format!("{} force_probe={}", self.module_args, ids.join(","));
        }
        Ok(setup)
    }

    /// amdgpu and what it needs, with the firmware files that it asks for.
    fn setup_amdgpu(&self, places: &Places, mut setup: Setup) -> anyhow::Result<Setup> {
        anyhow::ensure!(
            !self.debug_kernel,
            "the debug kernel has no amdgpu: --driver amdgpu goes without --debug-kernel"
        );
        setup.firmware = true;
        if self.no_module {
            return Ok(setup);
        }
        let installed = Installed::find(&places.out.join("module-amdgpu"))?;
        setup.needs = installed
            .needs
            .iter()
            .map(|path| text(path))
            .collect::<anyhow::Result<_>>()?;
        setup.module = Some(text(&installed.module)?);
        setup.module_args = Installed::parameters(&self.module_args);
        Ok(setup)
    }

    /// Where the command runs: the first shared directory, else the current directory if the guest has
    /// it, else the checkout.
    pub fn working_directory(&self, places: &Places) -> String {
        let shared = self.share.first().and_then(|dir| shared_path(dir).ok());
        let current = std::env::current_dir().unwrap_or_default();
        let inside = current.starts_with(&places.top);
        let fallback = if inside { current } else { places.top.clone() };
        shared.unwrap_or_else(|| fallback.to_string_lossy().into_owned())
    }
}

/// The environment of a command in the guest.
pub fn environment(places: &Places, gpus: usize) -> Vec<(String, String)> {
    let out = places.out.display();
    let mut env = vec![
        (
            "PATH".into(),
            format!("{out}/bin:{out}/selftests:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ),
        ("HOME".into(), "/root".into()),
        // Characters alone: by LANG each program opens a dozen files of the locale, which is most of its start under TCG.
        ("LC_CTYPE".into(), "C.UTF-8".into()),
        ("RKFD_IN_TOOLBOX".into(), "1".into()),
        ("RKFD_TOP".into(), places.top.display().to_string()),
        ("RKFD_OUT".into(), out.to_string()),
        ("RKFD_MODULE".into(), format!("{out}/module/rkfd.ko")),
        ("RKFD_GPUS".into(), gpus.to_string()),
    ];
    if let Ok(term) = std::env::var("TERM") {
        env.push(("TERM".into(), term));
    }
    env
}

fn text(path: &Path) -> anyhow::Result<String> {
    let text = path
        .to_str()
        .with_context(|| format!("{} is not UTF-8", path.display()))?;
    Ok(text.to_owned())
}

/// The absolute path of a directory to share.
fn shared_path(dir: &Path) -> anyhow::Result<String> {
    let path = fs::canonicalize(dir).with_context(|| format!("--share {}", dir.display()))?;
    anyhow::ensure!(path.is_dir(), "--share {}: not a directory", dir.display());
    const SYSTEM: [&str; 14] = [
        "/", "/tmp", "/var", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run",
        "/sbin", "/sys", "/usr",
    ];
    anyhow::ensure!(
        !SYSTEM.iter().any(|system| path == Path::new(system)),
        "--share {}: the guest needs its own",
        path.display()
    );
    text(&path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        machine: MachineOptions,
    }

    #[test]
    fn every_kernel_finds_its_own_module_also_where_nobody_loads_it() {
        let out = tempfile::tempdir().unwrap();
        let out = out.path();
        let places = Places {
            top: out.into(),
            out: out.into(),
            kernel: out.into(),
        };
        let setup = |words: &[&str]| {
            let line = Line::try_parse_from([&["vm"], words].concat()).unwrap();
            line.machine.setup(&places, &[])
        };
        let at = |name: &str| out.join(name).to_str().unwrap().to_owned();
        for missing in [&["--debug-kernel"], &[][..]] {
            let error = setup(missing).unwrap_err().to_string();
            assert!(error.contains("the module is not built"), "{error}");
        }
        assert_eq!(
            setup(&["--debug-kernel", "--no-module"]).unwrap(),
            Setup::default()
        );
        for flavour in ["module", "module-debug"] {
            fs::create_dir(out.join(flavour)).unwrap();
            fs::write(out.join(flavour).join("rkfd.ko"), "").unwrap();
        }
        let bind = vec![(at("module-debug"), at("module"))];
        let ko = Some(at("module/rkfd.ko"));
        for (words, binds, module) in [
            (&[][..], &vec![], &ko),
            (&["--no-module"], &vec![], &None),
            (&["--debug-kernel"], &bind, &ko),
            (&["--debug-kernel", "--no-module"], &bind, &None),
        ] {
            let setup = setup(words).unwrap();
            assert_eq!((&setup.binds, &setup.module), (binds, module), "{words:?}");
        }
    }

    #[test]
    fn amdgpu_comes_with_what_it_needs_and_not_with_the_debug_kernel() {
        let out = tempfile::tempdir().unwrap();
        let out = out.path();
        let tree = out.join("module-amdgpu/lib/modules/7");
        fs::create_dir_all(&tree).unwrap();
        fs::write(
            tree.join("modules.dep"),
            "k/amdgpu.ko: k/ttm.ko\nk/ttm.ko:\n",
        )
        .unwrap();
        let places = Places {
            top: out.into(),
            out: out.into(),
            kernel: out.into(),
        };
        let setup = |words: &str| {
            let line = Line::try_parse_from(["vm"].into_iter().chain(words.split_whitespace()));
            line.unwrap().machine.setup(&places, &[])
        };
        let at = |name: &str| tree.join(name).to_str().unwrap().to_owned();
        let found = setup("--driver amdgpu --module-args noretry=1").unwrap();
        assert_eq!(found.needs, [at("k/ttm.ko")]);
        assert_eq!(found.module, Some(at("k/amdgpu.ko")));
        assert!(found.module_args.ends_with(" num_kcq=1 noretry=1"));
        assert!(found.firmware && found.stub.is_none());
        let bare = setup("--driver amdgpu --no-module").unwrap();
        assert_eq!((bare.module, bare.firmware), (None, true));
        let error = setup("--driver amdgpu --debug-kernel").unwrap_err();
        assert!(error.to_string().contains("--debug-kernel"), "{error}");
        // What is allowed to one driver is not allowed to the other.
        let options = |words: &str| {
            let line = Line::try_parse_from(["vm"].into_iter().chain(words.split_whitespace()));
            line.unwrap().machine.model_options().unwrap().join(" ")
        };
        assert_eq!(options(""), "");
        assert_eq!(
            options("--driver amdgpu --vram 2G"),
            "--no-rule flush-range --no-rule load-running --no-rule mqd-flush --no-rule pte-flush --vram 2G"
        );
    }

    #[test]
    fn system_directories_are_not_shared() {
        assert!(shared_path(Path::new("/usr")).is_err());
        assert!(shared_path(Path::new("/usr/..")).is_err());
        assert!(shared_path(Path::new("/no/such/dir")).is_err());
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(
            shared_path(dir.path()).unwrap(),
            dir.path().to_str().unwrap()
        );
    }
}
