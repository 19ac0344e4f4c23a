// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Which driver the guest loads: this project's, or the kernel's own amdgpu with amdkfd for comparison.

use anyhow::Context;
use regex::Regex;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

/// The driver of the GPUs.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// rkfd.ko
    #[default]
    Rkfd,
    /// The kernel's own amdgpu.ko, on a kernel that has it
    Amdgpu,
}

/// Parameters with which amdgpu comes up on the model: the blocks common, GMC, IH, GFX and SDMA without the security
/// processor, the power controller and video; nothing that needs these; and one kernel queue.
const PARAMETERS: &str =
    "ip_block_mask=0x67 dpm=0 ras_enable=0 runpm=0 gpu_recovery=0 ppfeaturemask=0 num_kcq=1";

/// What it then remarks on: blocks that the parameters leave out (their consequence is that nobody reads the board's
/// EEPROM), what amdgpu asks of every gfx90a although its NBIO cannot tell, and statistics of amdgpu's own that do not
/// add up when it goes (`amdgpu_vm_fini`).
const EXPECTED: [&str; 4] = [
    r"^amdgpu \S+: disabled ip block: [3478] <(psp|smu|vcn_v2_6|jpeg_v2_6)>$",
    r"^amdgpu \S+: Cannot access FRU, EEPROM accessor not initialized$",
    r"^amdgpu \S+: memory partition mode query is not supported$",
    r"^amdgpu \S+: VM memory stats for proc .* task .* is non-zero when fini$",
];

/// Options of the models that allow what breaks the contract (`Documentation/gpu-model.md` names each with its
/// place in amdgpu's source).
const MODEL_OPTIONS: [&str; 8] = [
    "--no-rule",
    "flush-range",
    "--no-rule",
    "load-running",
    "--no-rule",
    "mqd-flush",
    "--no-rule",
    "pte-flush",
];

impl Driver {
    /// Its name, as a module.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rkfd => "rkfd",
            Self::Amdgpu => "amdgpu",
        }
    }

    /// Messages of the kernel that say nothing about a run.
    pub fn expected(self) -> impl Iterator<Item = Regex> {
        let patterns = match self {
            Self::Rkfd => &[][..],
            Self::Amdgpu => &EXPECTED[..],
        };
        // Constants, which a unit test compiles.
        patterns.iter().filter_map(|text| Regex::new(text).ok())
    }

    /// More options of each model.
    pub fn model_options(self) -> impl Iterator<Item = String> {
        let options = match self {
            Self::Rkfd => &[][..],
            Self::Amdgpu => &MODEL_OPTIONS[..],
        };
        options.iter().map(|&text| text.to_owned())
    }
}

/// amdgpu as it was installed below a directory.
#[derive(Debug, PartialEq, Eq)]
pub struct Installed {
    /// The modules that it needs, in order of loading.
    pub needs: Vec<PathBuf>,
    /// Itself.
    pub module: PathBuf,
}

impl Installed {
    /// Finds it in the only tree of modules below `root`.
    ///
    /// # Errors
    /// It was not installed there.
    pub fn find(root: &Path) -> anyhow::Result<Self> {
        let missing = || {
            format!(
                "amdgpu is not installed in {}: scripts/build amdgpu",
                root.display()
            )
        };
        let mut trees = fs::read_dir(root.join("lib/modules")).with_context(missing)?;
        let tree = trees.next().with_context(missing)??.path();
        let list = fs::read_to_string(tree.join("modules.dep")).with_context(missing)?;
        Self::from_list(&tree, &list).with_context(missing)
    }

    /// Reads `modules.dep`: a line for each module with all that it needs behind it, what is to be loaded first last.
    fn from_list(tree: &Path, list: &str) -> Option<Self> {
        let mut lines = list.lines().filter_map(|line| line.split_once(':'));
        let (module, needs) = lines.find(|(module, _)| module.ends_with("/amdgpu.ko"))?;
        let needs = needs.split_whitespace().rev();
        Some(Self {
            needs: needs.map(|path| tree.join(path)).collect(),
            module: tree.join(module),
        })
    }

    /// The parameters of amdgpu, `more` last so that it counts.
    pub fn parameters(more: &str) -> String {
        format!("{PARAMETERS} {more}").trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_needs_is_loaded_before_it() {
        let list = "kernel/a/ttm.ko:\n\
                    kernel/b/amdgpu.ko: kernel/a/helper.ko kernel/a/ttm.ko\n\
                    kernel/a/helper.ko: kernel/a/ttm.ko\n";
        let tree = Path::new("/m");
        let found = Installed::from_list(tree, list).unwrap();
        assert_eq!(found.module, tree.join("kernel/b/amdgpu.ko"));
        let needs = ["kernel/a/ttm.ko", "kernel/a/helper.ko"].map(|path| tree.join(path));
        assert_eq!(found.needs, needs);
        assert_eq!(Installed::from_list(tree, "kernel/a/ttm.ko:\n"), None);
    }

    #[test]
    fn a_missing_installation_names_the_command() {
        let dir = tempfile::tempdir().unwrap();
        let error = Installed::find(dir.path()).unwrap_err().to_string();
        assert!(error.contains("scripts/build amdgpu"), "{error}");
    }

    #[test]
    fn every_pattern_compiles_and_the_users_parameters_are_last() {
        assert_eq!(Driver::Amdgpu.expected().count(), EXPECTED.len());
        assert_eq!(Driver::Rkfd.expected().count(), 0);
        assert!(Installed::parameters("num_kcq=2").ends_with("num_kcq=1 num_kcq=2"));
        assert!(Installed::parameters("").ends_with("num_kcq=1"));
    }
}
