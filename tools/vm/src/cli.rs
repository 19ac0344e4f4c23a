// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Options of the VM, shared by `rkfd-vm` and the test driver.

use crate::accel::Accel;
use crate::accel::Choice;
use crate::budget::Budget;
use crate::complaints::Policy;
use crate::driver::Driver;
use crate::driver::Installed;
use crate::jail;
use crate::passthrough;
use crate::protocol::Setup;
use crate::protocol::Share;
use crate::qemu;
use crate::session::Config;
use crate::tsc;
use anyhow::Context;
use clap::Args;
use regex::Regex;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

/// Runs whose logs are kept: several times what one `make test` boots, so that none of its own go.
const LOGS_KEPT: usize = 300;

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

fn memory_size(text: &str) -> Result<String, String> {
    let digits = text.trim_end_matches(['M', 'G']);
    let valid = text.len() - digits.len() == 1 && digits.parse::<u32>().is_ok_and(|size| size > 0);
    if valid {
        Ok(text.to_owned())
    } else {
        Err("a size looks like 512M or 2G".into())
    }
}

/// A size as the options and the model take it, in MiB.
fn mebibytes(text: &str) -> Option<u64> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    match unit {
        "" => Some(number >> 20),
        "K" => Some(number >> 10),
        "M" => Some(number),
        "G" => number.checked_mul(1024),
        _ => None,
    }
}

impl MachineOptions {
    /// The number of modelled GPUs.
    pub fn models(&self) -> u8 {
        self.gpus.unwrap_or(u8::from(self.passthrough.is_empty()))
    }

    /// The host's memory that it may come to use, in MiB: the guest's, and of each model its VRAM; where its
    /// size is the model's own choice, what tests touch of that, or all where the model itself writes it.
    pub fn footprint(&self) -> u64 {
        /// The model's usual VRAM.
        const USUAL: u64 = 1024;
        /// Of that.
        const TOUCHED: u64 = 512;
        let guest = mebibytes(&self.mem).unwrap_or(0);
        let options = self.model_options().unwrap_or_default();
        let filled = options.iter().any(|word| word == "--noise-everywhere");
        let usual = if filled { USUAL } else { TOUCHED };
        let mut words = options.iter().rev();
        let mut vram = None;
        let mut value = None;
        // The last one holds, as for the model.
        while let (Some(word), None) = (words.next(), vram) {
            vram = match word.strip_prefix("--vram") {
                Some("") => value.and_then(mebibytes),
                Some(rest) => rest.strip_prefix('=').and_then(mebibytes),
                None => None,
            };
            value = Some(word.as_str());
        }
        let models = u64::from(self.models());
        guest.saturating_add(vram.unwrap_or(usual).saturating_mul(models))
    }

    /// Has models give nothing that hardware does not promise: memory that nobody has written is noise, and an
    /// invalidation drops the range that it names and no more. What the options say of these themselves holds.
    ///
    /// # Errors
    /// Options of the models in which a quote is not closed.
    pub fn make_harsh(&mut self) -> anyhow::Result<()> {
        const OPTIONS: [&[&str]; 2] = [
            &["--noise-everywhere"],
            &["--invalidation-ranges", "size-bit"],
        ];
        let given = self.model_options()?;
        for words in OPTIONS {
            let named = |word: &String| word.split('=').next() == words.first().copied();
            if !given.iter().any(named) {
                self.model_args = format!("{} {}", self.model_args, words.join(" "));
            }
        }
        Ok(())
    }

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

    /// Checks the options against this machine and makes the VM's configuration of them.
    ///
    /// # Errors
    /// A directory that cannot be shared, a card that cannot be passed through, something not built.
    pub fn config(&self, places: &Places) -> anyhow::Result<Config> {
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
            memory: self.mem.clone(),
            cpus: self.smp,
            hz: tsc::hz(&places.kernel),
            kernel_args: self.kernel_args.clone(),
            policy: self.policy(),
            log_dir: new_log_dir(&places.out)?,
        })
    }

    /// The options of each GPU model as words.
    fn model_options(&self) -> anyhow::Result<Vec<String>> {
        let mut words = shlex::split(&self.model_args)
            .with_context(|| format!("--model-args {}: a quote is not closed", self.model_args))?;
        words.splice(0..0, self.driver.model_options());
        if let Some(vram) = &self.vram {
            words.extend(["--vram".to_owned(), vram.clone()]);
        }
        Ok(words)
    }

    fn setup(&self, places: &Places, cards: &[passthrough::Card]) -> anyhow::Result<Setup> {
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

/// Makes a directory for the logs of a run, drops those of the oldest, and points `last` at the new one.
fn new_log_dir(out: &Path) -> anyhow::Result<PathBuf> {
    /// Tells apart what threads of one process make at the same time.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let all = out.join("logs/vm");
    fs::create_dir_all(&all).with_context(|| format!("making {}", all.display()))?;
    let mut old: Vec<PathBuf> = fs::read_dir(&all)?
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    old.sort();
    let surplus = old.len().saturating_sub(LOGS_KEPT - 1);
    for dir in old.iter().take(surplus) {
        // Another run may be deleting it, too.
        let _ = fs::remove_dir_all(dir);
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("{}-{}-{number}", now.as_millis(), std::process::id());
    let dir = all.join(&name);
    fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
    let link = all.join("last");
    let _ = fs::remove_file(&link);
    let _ = std::os::unix::fs::symlink(&name, &link);
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        machine: MachineOptions,
    }

    #[test]
    fn every_kernel_finds_its_own_module_also_where_nobody_loads_it() {
        use clap::Parser as _;
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
        use clap::Parser as _;
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
    fn sizes() {
        for good in ["512M", "2G"] {
            assert_eq!(memory_size(good).unwrap(), good);
        }
        for bad in ["", "G", "2", "0G", "2GG", "-1G", "2K", "1.5G", "2G,x=y"] {
            assert!(memory_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_footprint_is_that_of_memory_and_vram() {
        use clap::Parser as _;
        for (words, mebibytes) in [
            ("", 2048 + 512),
            ("--gpus 0 --vram 8G", 2048),
            ("--mem 8G --gpus 2", 8192 + 2 * 512),
            ("--mem 512M --vram 2G --gpus 3", 512 + 3 * 2048),
            ("--vram 268435456", 2048 + 256),
            // The model takes the last one.
            ("--vram 2G --model-args --vram=4G", 2048 + 2048),
            ("--model-args --vram=4G", 2048 + 4096),
            ("--model-args --noise-everywhere", 2048 + 1024),
            ("--model-args --noise-everywhere --vram 256M", 2048 + 256),
            ("--passthrough 0000:03:00.0", 2048),
            ("--passthrough 0000:03:00.0 --gpus 2", 2048 + 2 * 512),
        ] {
            let args = ["vm"].into_iter().chain(words.split_whitespace());
            let line = Line::try_parse_from(args).unwrap();
            assert_eq!(line.machine.footprint(), mebibytes, "{words}");
        }
    }

    #[test]
    fn harsh_models_keep_what_a_test_says() {
        use clap::Parser as _;
        let options = |words: &str| {
            let args = ["vm"].into_iter().chain(words.split_whitespace());
            let mut machine = Line::try_parse_from(args).unwrap().machine;
            machine.make_harsh().unwrap();
            (
                machine.model_options().unwrap().join(" "),
                machine.footprint(),
            )
        };
        let all = "--noise-everywhere --invalidation-ranges size-bit";
        assert_eq!(options(""), (all.into(), 2048 + 1024));
        let (found, mebibytes) = options("--vram 256M --model-args --noise-everywhere");
        assert_eq!(
            (found, mebibytes),
            (format!("{all} --vram 256M"), 2048 + 256)
        );
        for given in ["--invalidation-ranges=refuse", "--fault=slow"] {
            let (found, _) = options(&format!("--model-args {given}"));
            let rest = if given.starts_with("--inv") {
                &all[..18]
            } else {
                all
            };
            assert_eq!(found, format!("{given} {rest}"));
        }
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

    #[test]
    fn only_the_newest_logs_are_kept() {
        let out = tempfile::tempdir().unwrap();
        let mut last = PathBuf::new();
        for number in 0..LOGS_KEPT + 3 {
            fs::create_dir_all(out.path().join(format!("logs/vm/{number:04}"))).unwrap();
        }
        for _ in 0..2 {
            std::thread::sleep(std::time::Duration::from_millis(2));
            last = new_log_dir(out.path()).unwrap();
        }
        let kept: Vec<String> = fs::read_dir(out.path().join("logs/vm"))
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        assert_eq!(kept.len(), LOGS_KEPT + 1, "{kept:?}");
        assert!(!kept.contains(&"0000".to_owned()));
        let link = fs::canonicalize(out.path().join("logs/vm/last")).unwrap();
        assert_eq!(link, fs::canonicalize(last).unwrap());
    }
}
