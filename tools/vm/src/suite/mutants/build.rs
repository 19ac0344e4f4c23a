// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Modules with mutants, built from a copy of the driver's sources.
//!
//! One build holds all mutants, each behind a number that stands in the module's file itself: it is there however
//! the module is loaded, and a trial needs no compiler.

use super::data;
use super::data::Mutant;
use super::data::Sources;
use crate::child::Bound;
use crate::cli::Places;
use anyhow::Context;
use std::fs;
use std::fs::File;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

/// What the module is built from.
const SOURCES: [&str; 5] = ["rust", "include", "uapi", "Kbuild", "Kconfig"];
/// Modules that tests load beside the driver, with the folders of their sources.
const COMPANIONS: [(&str, &str); 2] = [
    ("amdgpu.ko", "tools/amdgpu-stub"),
    ("pm_cycle.ko", "tools/pm-cycle"),
];
/// Stands before the number in the module's file.
const MAGIC: &[u8; 16] = b"rkfd mutant no: ";
/// The crate of the driver, which gets one more module.
const ROOT: &str = "rust/rkfd.rs";
/// That module: the number is read from memory that the compiler knows nothing of.
const MUTATION: &str = r#"// SPDX-License-Identifier: GPL-2.0
//! Which mutant is chosen; the number is written into the module's file.

#[repr(C, align(16))]
pub struct Choice {
    magic: [u8; 16],
    number: core::sync::atomic::AtomicU32,
}

#[used]
#[no_mangle]
pub static RKFD_MUTANT: Choice = Choice {
    magic: *b"rkfd mutant no: ",
    number: core::sync::atomic::AtomicU32::new(0),
};

#[inline(never)]
pub(crate) fn is(number: u32) -> bool {
    // SAFETY: The static is valid for reads for ever, and nobody writes it.
    let chosen = unsafe { core::ptr::read_volatile(&raw const RKFD_MUTANT.number) };
    chosen.into_inner() == number
}
"#;
/// Bound of one build on a slow machine.
const DEADLINE: Duration = Duration::from_secs(1800);

/// A copy of the sources and what is built of it.
pub struct Workshop {
    tree: PathBuf,
    build: PathBuf,
    kernel: PathBuf,
    top: PathBuf,
    log: PathBuf,
}

impl Workshop {
    /// One below `dir`.
    pub fn new(places: &Places, dir: &Path) -> Self {
        Self {
            tree: dir.join("tree"),
            build: dir.join("build"),
            kernel: places.kernel.clone(),
            top: places.top.clone(),
            log: dir.join("build.log"),
        }
    }

    /// Builds a module that has all these mutants behind their numbers.
    ///
    /// # Errors
    /// A mutant that does not apply, or the compiler's messages.
    pub fn switched(&self, mutants: &[(u32, &Mutant)]) -> anyhow::Result<()> {
        let mut sources = read_sources(&self.top)?;
        data::apply_switched(&mut sources, mutants)?;
        let root = sources
            .get_mut(Path::new(ROOT))
            .with_context(|| format!("there is no {ROOT}"))?;
        let at = root
            .find("\nmod ")
            .with_context(|| format!("{ROOT} has no modules"))?;
        root.insert_str(at, "\nmod mutation;");
        sources.insert("rust/mutation.rs".into(), MUTATION.to_owned());
        self.build(&sources)
    }

    /// Builds a module that has this mutant only.
    ///
    /// # Errors
    /// As [`Self::switched`].
    pub fn alone(&self, mutant: &Mutant) -> anyhow::Result<()> {
        let mut sources = read_sources(&self.top)?;
        data::apply(&mut sources, mutant)?;
        self.build(&sources)
    }

    fn build(&self, sources: &Sources) -> anyhow::Result<()> {
        write_sources(&self.tree, sources)?;
        self.make(&self.tree, &self.build, &["RKFD_KUNIT=y"])
    }

    fn make(&self, tree: &Path, build: &Path, more: &[&str]) -> anyhow::Result<()> {
        fs::create_dir_all(build).with_context(|| format!("making {}", build.display()))?;
        let log = File::create(&self.log)?;
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let mut command = Command::new("make");
        command
            .arg("-C")
            .arg(&self.kernel)
            .arg(format!("M={}", tree.display()))
            .arg(format!("MO={}", build.display()))
            .args(["-s", "LLVM=1"])
            .arg(format!("-j{processors}"))
            // A wrong line may leave names unused.
            .arg(format!(
                "KRUSTFLAGS=-Awarnings -Cincremental={}/.incremental",
                build.display()
            ))
            .args(more)
            .arg("modules")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        for ours in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"] {
            command.env_remove(ours);
        }
        let status = Bound::spawn(&mut command, &[])
            .context("starting make")?
            .wait_for(DEADLINE)?;
        if status.is_some_and(|status| status.success()) {
            return Ok(());
        }
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let from = text.lines().position(|line| line.starts_with("error"));
        let lines: Vec<&str> = text.lines().skip(from.unwrap_or(0)).take(40).collect();
        anyhow::bail!("the module does not build:\n{}", lines.join("\n"))
    }

    /// Puts the module with that number, and those beside it, into `dir`.
    ///
    /// # Errors
    /// What copying gave.
    pub fn install(&self, number: Option<u32>, dir: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        let mut module = fs::read(self.build.join("rkfd.ko")).context("reading rkfd.ko")?;
        if let Some(number) = number {
            choose(&mut module, number)?;
        }
        fs::write(dir.join("rkfd.ko"), module)?;
        Ok(())
    }

    /// Builds what tests load beside the driver, into `dir`.
    ///
    /// # Errors
    /// The compiler's messages.
    pub fn companions(&self, dir: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(dir)?;
        for (file, source) in COMPANIONS {
            let build = self.build.join(source.rsplit('/').next().unwrap_or(source));
            self.make(&self.top.join(source), &build, &[])?;
            fs::copy(build.join(file), dir.join(file))
                .with_context(|| format!("copying {file}"))?;
        }
        Ok(())
    }
}

/// Makes `to` show the files that are below `from`, as hard links where that is possible.
///
/// # Errors
/// A folder that cannot be read or written.
pub fn link_files(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to).with_context(|| format!("making {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let path = entry?.path();
        let Some(name) = path.file_name() else {
            continue;
        };
        let target = to.join(name);
        if path.is_dir() {
            link_files(&path, &target)?;
            continue;
        }
        let _ = fs::remove_file(&target);
        if fs::hard_link(&path, &target).is_err() {
            fs::copy(&path, &target).with_context(|| format!("copying {}", path.display()))?;
        }
    }
    Ok(())
}

/// The sources of the module in the checkout.
///
/// # Errors
/// A file that cannot be read.
pub fn read_sources(top: &Path) -> anyhow::Result<Sources> {
    let mut sources = Sources::new();
    for name in SOURCES {
        read_into(top, Path::new(name), &mut sources)?;
    }
    Ok(sources)
}

fn read_into(top: &Path, path: &Path, sources: &mut Sources) -> anyhow::Result<()> {
    let full = top.join(path);
    let reading = || format!("reading {}", full.display());
    if !full.is_dir() {
        let hidden = path.file_name().is_some_and(is_built);
        if !hidden {
            let text = fs::read_to_string(&full).with_context(reading)?;
            sources.insert(path.to_owned(), text);
        }
        return Ok(());
    }
    for entry in fs::read_dir(&full).with_context(reading)? {
        read_into(top, &path.join(entry?.file_name()), sources)?;
    }
    Ok(())
}

/// What a build within the tree left there.
fn is_built(name: &std::ffi::OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with('.') || name.ends_with(".o") || name.ends_with("_generated.rs")
}

/// Makes `tree` hold the sources and nothing else. What is as it was keeps its time, for make.
fn write_sources(tree: &Path, sources: &Sources) -> anyhow::Result<()> {
    for (path, text) in sources {
        let path = tree.join(path);
        if fs::read_to_string(&path).is_ok_and(|old| old == *text) {
            continue;
        }
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    for path in read_sources(tree)?.into_keys() {
        if !sources.contains_key(&path) {
            fs::remove_file(tree.join(path))?;
        }
    }
    Ok(())
}

/// Writes the number into the module.
fn choose(module: &mut [u8], number: u32) -> anyhow::Result<()> {
    let mut places = module
        .windows(MAGIC.len())
        .enumerate()
        .filter(|(_, bytes)| bytes == MAGIC)
        .map(|(at, _)| at + MAGIC.len());
    let at = places.next().context("the module has no mutants")?;
    anyhow::ensure!(places.next().is_none(), "the module has two numbers");
    let place = module
        .get_mut(at..at + 4)
        .context("the module is cut off")?;
    place.copy_from_slice(&number.to_le_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_stands_behind_its_magic() {
        let mut module = [b"ELF".as_slice(), MAGIC, &[0; 8]].concat();
        choose(&mut module, 0x0102).unwrap();
        assert_eq!(module[3 + MAGIC.len()..], [2, 1, 0, 0, 0, 0, 0, 0]);
        assert!(choose(&mut b"no magic here, not at all".to_vec(), 1).is_err());
        let mut twice = [MAGIC.as_slice(), &[0; 4], MAGIC, &[0; 4]].concat();
        assert!(choose(&mut twice, 1).is_err());
        assert!(MUTATION.contains(std::str::from_utf8(MAGIC).unwrap()));
    }

    #[test]
    fn a_tree_holds_its_sources_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let mut sources: Sources = SOURCES[1..]
            .iter()
            .map(|name| (PathBuf::from(name), "x".to_owned()))
            .collect();
        sources.insert("rust/a.rs".into(), "a".into());
        sources.insert("rust/b/c.rs".into(), "c".into());
        write_sources(dir.path(), &sources).unwrap();
        assert_eq!(read_sources(dir.path()).unwrap(), sources);
        let time = |path| {
            fs::metadata(dir.path().join(path))
                .unwrap()
                .modified()
                .unwrap()
        };
        let before = time("rust/b/c.rs");
        sources.remove(Path::new("rust/a.rs"));
        write_sources(dir.path(), &sources).unwrap();
        assert_eq!(read_sources(dir.path()).unwrap(), sources);
        assert_eq!(time("rust/b/c.rs"), before);
    }
}
