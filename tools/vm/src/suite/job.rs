// SPDX-License-Identifier: GPL-2.0 OR MIT
//! End-to-end tests as jobs: a file of `tests/e2e` on one ASIC under one scheduling policy.

use super::header::Conditions;
use super::header::Header;
use super::header::Sharing;
use crate::cli::MachineOptions;
use crate::complaints::Policy;
use anyhow::Context;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;

/// Kernel parameter of a VM of the debug kernel in which nothing is sought that leaked.
const NO_LEAKS: &str = " kmemleak=off";

/// A test on one ASIC under one scheduling policy.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) header: Header,
    pub(super) asic: Option<String>,
    pub(super) sched_policy: Option<u8>,
    /// kmemleak watches it, if the kernel has that.
    pub(super) leaks: bool,
}

impl Job {
    /// Its name in the report.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The options of its VM.
    ///
    /// # Errors
    /// Options that `scripts/vm` does not have.
    pub(super) fn machine(&self, conditions: Conditions) -> anyhow::Result<MachineOptions> {
        let mut machine =
            self.header
                .machine(self.asic.as_deref(), self.sched_policy, conditions)?;
        if conditions.debug && !self.leaks {
            machine.kernel_args.push_str(NO_LEAKS);
        }
        Ok(machine)
    }

    /// The memory that its VM takes, in MiB.
    pub(super) fn memory(&self, conditions: Conditions) -> u64 {
        // One with wrong options never boots.
        let machine = self.machine(conditions);
        machine.map_or(0, |machine| machine.footprint())
    }

    /// With whom it shares its VM.
    pub(super) fn sharing(&self) -> Sharing {
        self.header.sharing
    }

    /// It shares neither the loaded driver nor the state of the GPUs.
    pub(super) fn is_fresh(&self) -> bool {
        self.sharing() != Sharing::Any
    }

    /// Which kernel messages count while it runs.
    pub(super) fn policy(&self) -> Policy {
        let mut policy = self.header.policy.clone();
        policy.expected.extend(self.policy_of_driver().expected);
        policy
    }

    /// Which kernel messages count of the driver, whatever it is used for.
    pub(super) fn policy_of_driver(&self) -> Policy {
        let driver = self
            .machine(Conditions::default())
            .map(|machine| machine.driver);
        Policy {
            expected: driver.unwrap_or_default().expected().collect(),
            ..Policy::default()
        }
    }

    /// Parameters of the module.
    pub(super) fn args(&self, conditions: Conditions) -> String {
        let machine = self.machine(conditions);
        machine.map_or(String::new(), |machine| machine.module_args)
    }

    /// Jobs with equal keys can share a VM: all is equal but the module's parameters.
    pub(super) fn key(&self, conditions: Conditions) -> String {
        match self.machine(conditions) {
            Ok(machine) => {
                let module_args = String::new();
                format!(
                    "{:?}",
                    MachineOptions {
                        module_args,
                        ..machine
                    }
                )
            }
            Err(_) => self.name.clone(),
        }
    }
}

/// All tests of a checkout in all their variants; those with a wrong header are left out.
///
/// # Errors
/// Where a file cannot be read.
pub(super) fn all_jobs(top: &Path) -> anyhow::Result<Vec<Job>> {
    let found = discover(&top.join("tests/e2e"))?;
    Ok(found
        .into_iter()
        .filter_map(|(_, jobs)| jobs.ok())
        .flatten()
        .collect())
}

/// The executable files of the folder by name, with their jobs or what is wrong with their header.
pub(super) fn discover(dir: &Path) -> anyhow::Result<Vec<(String, anyhow::Result<Vec<Job>>)>> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(dir) else {
        return Ok(found);
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let meta = fs::metadata(&path).with_context(|| format!("looking at {}", path.display()))?;
        if !meta.is_file() || meta.permissions().mode() & 0o111 == 0 {
            continue;
        }
        // The folder's own name tells the kind of test.
        let folder = dir.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
        let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let jobs = Header::parse(&String::from_utf8_lossy(&text))
            .map(|header| jobs(&name, &path, &header));
        found.push((name, jobs));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

/// One job for each ASIC and scheduling policy that the header asks for.
///
/// kmemleak watches one of them: it takes two fifths of the time, and each of them does the same. Which one depends on the
/// test's name, so that it watches some tests on each ASIC under each policy.
pub(super) fn jobs(name: &str, path: &Path, header: &Header) -> Vec<Job> {
    let asics = each(&header.asics);
    let policies = each(&header.sched_policies);
    let mut jobs = Vec::new();
    for asic in &asics {
        for policy in &policies {
            // Policy 0 is what a test without this choice has, also in its name and its VM.
            let policy = policy.filter(|n| *n != 0);
            let named = policy.map(|n| format!("sched_policy={n}"));
            let of: Vec<&str> = asic.iter().chain(&named).map(String::as_str).collect();
            let of = of.join(", ");
            jobs.push(Job {
                name: match of.as_str() {
                    "" => name.to_owned(),
                    of => format!("{name} ({of})"),
                },
                path: path.to_owned(),
                header: header.clone(),
                asic: asic.clone(),
                sched_policy: policy,
                leaks: false,
            });
        }
    }
    let watched = name.bytes().map(usize::from).sum::<usize>() % jobs.len().max(1);
    if let Some(job) = jobs.get_mut(watched) {
        job.leaks = true;
    }
    jobs
}

/// Each of the choices, or none where there is no choice.
fn each<T: Clone>(choices: &[T]) -> Vec<Option<T>> {
    if choices.is_empty() {
        return vec![None];
    }
    choices.iter().cloned().map(Some).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kmemleak_watches_each_test_once_and_each_kind_of_vm() {
        let header = Header::parse("# asic: gfx90a gfx906\n# sched-policy: 0 2\n").unwrap();
        let debug = Conditions {
            debug: true,
            ..Conditions::default()
        };
        let mut kinds = [0; 4];
        for name in ["e2e/a", "e2e/b", "e2e/c", "e2e/d", "e2e/e"] {
            let jobs = jobs(name, Path::new(name), &header);
            let args = |conditions| {
                let args = |job: &Job| job.machine(conditions).unwrap().kernel_args;
                jobs.iter().map(args).collect::<Vec<_>>()
            };
            let watched: Vec<bool> = args(debug).iter().map(|args| args.is_empty()).collect();
            assert_eq!(watched.iter().filter(|watched| **watched).count(), 1);
            assert!(args(debug)
                .iter()
                .all(|args| args.is_empty() || args.trim() == "kmemleak=off"));
            assert!(args(Conditions::default()).iter().all(String::is_empty));
            for (kind, watched) in kinds.iter_mut().zip(watched) {
                *kind += usize::from(watched);
            }
        }
        assert!(kinds.iter().all(|kind| *kind > 0), "{kinds:?}");
        let alone = jobs("e2e/a", Path::new("e2e/a"), &Header::default());
        assert_eq!(alone[0].machine(debug).unwrap().kernel_args, "");
    }

    #[test]
    fn executables_are_found_and_split_by_asic() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("e2e");
        fs::create_dir(&dir).unwrap();
        let write = |name: &str, text: &str, mode: u32| {
            let path = dir.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        write("b", "#!/bin/sh\n# asic: gfx90a gfx906\n", 0o755);
        write(
            "c",
            "#!/bin/sh\n# sched-policy: 0 2\n# asic: gfx906\n",
            0o755,
        );
        write("a", "#!/bin/sh\n", 0o755);
        write("lib.sh", "#!/bin/sh\n", 0o644);
        write("bad", "# timeout: x\n", 0o755);
        let found = discover(&dir).unwrap();
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["e2e/a", "e2e/b", "e2e/bad", "e2e/c"]);
        let jobs = found[1].1.as_ref().unwrap();
        assert_eq!(jobs[1].name, "e2e/b (gfx906)");
        let plain = Conditions::default();
        assert_ne!(jobs[0].key(plain), jobs[1].key(plain));
        assert!(found[2].1.is_err());
        let jobs = found[3].1.as_ref().unwrap();
        let names: Vec<&str> = jobs.iter().map(Job::name).collect();
        assert_eq!(names, ["e2e/c (gfx906)", "e2e/c (gfx906, sched_policy=2)"]);
        let args = |job: &Job| job.machine(plain).unwrap().module_args;
        assert_eq!([args(&jobs[0]), args(&jobs[1])], ["", "sched_policy=2"]);
        assert_eq!(jobs[0].key(plain), jobs[1].key(plain));
        assert_ne!(jobs[0].args(plain), jobs[1].args(plain));
        assert!(discover(Path::new("/no/such/folder")).unwrap().is_empty());
    }
}
