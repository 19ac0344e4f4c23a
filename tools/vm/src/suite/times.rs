// SPDX-License-Identifier: GPL-2.0 OR MIT
//! How long suites take: measured in earlier runs, so that the slow ones begin first and VMs are evenly filled.
//!
//! It is only a hint: without it, or with wrong values in it, the same suites run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

/// What a suite takes that was never measured, in seconds.
const UNKNOWN: f64 = 8.0;
/// The same of those that are known to be slow, by a part of their names.
const SLOW: [(&str, f64); 16] = [
    ("kunit/", 60.0),
    ("vm/runner", 60.0),
    ("e2e/many-processes", 90.0),
    ("e2e/stress-queues", 60.0),
    ("e2e/hang-", 40.0),
    ("e2e/hung", 40.0),
    ("e2e/gpu-reset", 40.0),
    ("e2e/unplug", 40.0),
    ("e2e/slow-save", 40.0),
    ("e2e/sleep", 30.0),
    ("e2e/apart", 30.0),
    ("e2e/rocr", 30.0),
    ("e2e/bench", 30.0),
    ("e2e/scarce", 30.0),
    ("e2e/failslab", 30.0),
    ("e2e/thunk", 20.0),
];
/// How much longer everything takes on the debug kernel.
const DEBUG: f64 = 5.0;
/// What a VM takes beside its suites: boot, load, unload.
const VM: f64 = 6.0;
/// The same on the debug kernel, with its search for leaks.
const DEBUG_VM: f64 = 75.0;
/// How much a new measurement counts against the earlier ones.
const WEIGHT: f64 = 0.5;

/// Times of suites on one kernel.
#[derive(Debug)]
pub(super) struct Times {
    path: PathBuf,
    debug: bool,
    /// In seconds.
    known: BTreeMap<String, f64>,
}

impl Times {
    /// Those of earlier runs below `out`.
    pub(super) fn load(out: &Path, debug: bool) -> Self {
        let kernel = if debug { "debug" } else { "base" };
        let path = out.join(format!("suite-times-{kernel}.json"));
        let text = fs::read_to_string(&path).unwrap_or_default();
        let known = serde_json::from_str(&text).unwrap_or_default();
        Self { path, debug, known }
    }

    /// What a suite probably takes.
    pub(super) fn of(&self, name: &str) -> Duration {
        let guess = || {
            let slow = SLOW.iter().find(|(part, _)| name.starts_with(part));
            let seconds = slow.map_or(UNKNOWN, |(_, seconds)| *seconds);
            seconds * if self.debug { DEBUG } else { 1.0 }
        };
        let seconds = self.known.get(name).copied().unwrap_or_else(guess);
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }

    /// What a VM takes beside its suites.
    pub(super) fn of_vm(&self) -> Duration {
        Duration::from_secs_f64(if self.debug { DEBUG_VM } else { VM })
    }

    /// Notes what a suite has taken.
    pub(super) fn note(&mut self, name: &str, time: Duration) {
        let seconds = time.as_secs_f64();
        self.known
            .entry(name.to_owned())
            .and_modify(|old| *old += (seconds - *old) * WEIGHT)
            .or_insert(seconds);
    }

    /// Keeps what was noted. A hint that cannot be written is none.
    pub(super) fn save(&self) {
        let new = self.path.with_extension("new");
        let text = serde_json::to_string_pretty(&self.known).unwrap_or_default();
        if fs::write(&new, text).is_ok() {
            let _ = fs::rename(&new, &self.path);
        }
    }
}

/// Where the time of a VM went.
#[derive(Clone, Debug, Default)]
pub(super) struct VmTime {
    /// The first of its suites.
    pub(super) name: String,
    /// From the start to the first suite.
    pub(super) boot: Duration,
    /// In suites.
    pub(super) suites: Duration,
    /// How many.
    pub(super) count: usize,
    /// Loading the driver anew between them.
    pub(super) reloads: Duration,
    /// Unloading, looking for leaks, power-off.
    pub(super) end: Duration,
    /// Processor time of QEMU and the models.
    pub(super) cpu: Duration,
}

impl VmTime {
    /// All of it.
    pub(super) fn total(&self) -> Duration {
        self.boot + self.suites + self.reloads + self.end
    }
}

/// Most suites in the table.
const SLOWEST: usize = 60;

/// The table of VMs and of the slowest suites, for people.
pub(super) fn table(
    vms: &[VmTime],
    suites: &[(String, Duration)],
    cpus: &BTreeMap<String, Duration>,
) -> String {
    let mut text = format!(
        "\n{:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6}  VM that begins with\n",
        "total s", "CPU s", "boot", "suites", "reloads", "end", "suites"
    );
    let mut sorted: Vec<&VmTime> = vms.iter().collect();
    sorted.sort_by_key(|vm| std::cmp::Reverse(vm.total()));
    let mut sum = VmTime {
        name: format!("all {} VMs", vms.len()),
        ..VmTime::default()
    };
    for vm in vms {
        sum.boot += vm.boot;
        sum.suites += vm.suites;
        sum.reloads += vm.reloads;
        sum.end += vm.end;
        sum.cpu += vm.cpu;
        sum.count += vm.count;
    }
    for vm in sorted.into_iter().chain([&sum]) {
        text.push_str(&format!(
            "{:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>6}  {}\n",
            vm.total().as_secs_f64(),
            vm.cpu.as_secs_f64(),
            vm.boot.as_secs_f64(),
            vm.suites.as_secs_f64(),
            vm.reloads.as_secs_f64(),
            vm.end.as_secs_f64(),
            vm.count,
            vm.name
        ));
    }
    let mut slow: Vec<&(String, Duration)> = suites.iter().collect();
    slow.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    text.push_str("\nthe slowest suites, in seconds, and their processor time\n");
    for (name, time) in slow.into_iter().take(SLOWEST) {
        let cpu = cpus.get(name);
        let cpu = cpu.map_or(String::new(), |cpu| format!("{:.1}", cpu.as_secs_f64()));
        text.push_str(&format!("{:>8.1} {cpu:>8}  {name}\n", time.as_secs_f64()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_counts_and_else_a_guess() {
        let dir = tempfile::tempdir().unwrap();
        let mut times = Times::load(dir.path(), false);
        assert_eq!(times.of("e2e/demo (gfx90a)"), Duration::from_secs(8));
        assert_eq!(times.of("e2e/hang-sdma (gfx906)"), Duration::from_secs(40));
        times.note("e2e/demo (gfx90a)", Duration::from_secs(2));
        times.note("e2e/demo (gfx90a)", Duration::from_secs(4));
        times.save();
        let times = Times::load(dir.path(), false);
        assert_eq!(times.of("e2e/demo (gfx90a)"), Duration::from_secs(3));
        let debug = Times::load(dir.path(), true);
        assert_eq!(debug.of("e2e/demo (gfx90a)"), Duration::from_secs(40));
        assert!(debug.of_vm() > times.of_vm());
        fs::write(dir.path().join("suite-times-base.json"), "broken").unwrap();
        let times = Times::load(dir.path(), false);
        assert_eq!(times.of("e2e/demo (gfx90a)"), Duration::from_secs(8));
    }

    #[test]
    fn the_table_begins_with_the_slowest_and_ends_with_the_sum() {
        let vm = |name: &str, suites| VmTime {
            name: name.into(),
            suites: Duration::from_secs(suites),
            count: 2,
            ..VmTime::default()
        };
        let suites = [
            ("e2e/a".to_owned(), Duration::from_secs(1)),
            ("e2e/b".to_owned(), Duration::from_secs(9)),
        ];
        let cpus = BTreeMap::from([("e2e/b".to_owned(), Duration::from_secs(4))]);
        let text = table(&[vm("e2e/a", 5), vm("e2e/b", 7)], &suites, &cpus);
        let places: Vec<usize> = [
            " e2e/b\n",
            " e2e/a\n",
            "12.0",
            "all 2 VMs",
            "9.0      4.0  e2e/b",
            "1.0           e2e/a",
        ]
        .iter()
        .map(|part| text.find(part).unwrap_or_else(|| panic!("{part}: {text}")))
        .collect();
        assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{text}");
    }
}
