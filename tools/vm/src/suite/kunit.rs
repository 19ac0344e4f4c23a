// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The module's KUnit suites, which run when it is loaded, once per ASIC.

use super::filter::Filter;
use super::report::case;
use super::report::Suite;
use super::times::VmTime;
use super::trial::Guard;
use super::Runner;
use crate::kmsg::Record;
use crate::ktap;
use crate::ktap::Test;
use crate::protocol::MARK;
use crate::protocol::MARK_MODULE;
use crate::session::Channel;
use crate::session::Session;
use crate::suite::header::Conditions;
use crate::suite::header::Header;
use crate::timings::Timings;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

/// A VM in which the suites run.
#[derive(Clone, Debug)]
pub(super) struct Vm {
    name: &'static str,
    options: &'static [&'static str],
    /// All suites count. Those that need no GPU give the same result everywhere and count once.
    all: bool,
    /// The suites that are asked for, if not all of them are.
    only: Vec<String>,
}

impl Vm {
    /// Its name in the report.
    pub(super) fn unit(&self) -> String {
        format!("kunit/{}", self.name)
    }

    /// The suites that the kernel runs, as `kunit.filter_glob` takes it: one pattern.
    fn glob(&self) -> Option<String> {
        match self.only.as_slice() {
            [suite] => Some(suite.clone()),
            [] => (!self.all).then(|| format!("*{LIVE}")),
            // The kernel takes one pattern: what some of them have in common; the others are not counted.
            [first, others @ ..] => {
                let common = others.iter().fold(first.len(), |length, other| {
                    let same = first.bytes().zip(other.bytes()).take(length);
                    same.take_while(|(a, b)| a == b).count()
                });
                Some(format!("{}*", first.get(..common).unwrap_or("")))
            }
        }
    }

    /// Whether the result of this suite counts.
    fn counts(&self, suite: &str) -> bool {
        (self.all || suite.ends_with(LIVE))
            && (self.only.is_empty() || self.only.iter().any(|only| only == suite))
    }

    /// The VM with the one suite of that name in the report, if there is such a suite.
    pub(super) fn for_suite(name: &str, suites: &[String]) -> Option<Self> {
        let (unit, suite) = name.split_once(": ")?;
        let mut vm = VMS.into_iter().find(|vm| vm.unit() == unit)?;
        let known = suites.iter().any(|known| known == suite);
        vm.only = vec![suite.to_owned()];
        (known && vm.counts(suite)).then_some(vm)
    }

    /// The VM with the suites of this one and of `other`, if both are of one machine.
    pub(super) fn with(&self, other: &Self) -> Option<Self> {
        let mut both = self.clone();
        both.only.extend(other.only.iter().cloned());
        (self.name == other.name).then_some(both)
    }

    /// The memory that one takes, in MiB.
    pub(super) fn memory(conditions: Conditions) -> u64 {
        let machine = Header::default().machine(None, None, conditions);
        machine.map_or(0, |machine| machine.footprint())
    }

    /// The VM with what is asked for of its suites; none if nothing is.
    fn wanted(mut self, filter: &Filter, suites: &[String]) -> Option<Self> {
        let unit = self.unit();
        if filter.wants_all_of(&unit) {
            return Some(self);
        }
        let here = suites.iter().filter(|suite| self.counts(suite));
        let only: Vec<String> = here
            .filter(|suite| filter.wants(&format!("{unit}: {suite}")))
            .cloned()
            .collect();
        // What names no suite is said of the VM as a whole, as of its end.
        let wanted = !only.is_empty() || filter.wants(&unit);
        self.only = only;
        wanted.then_some(self)
    }
}

const fn vm(name: &'static str, options: &'static [&'static str], all: bool) -> Vm {
    Vm {
        name,
        options,
        all,
        only: Vec::new(),
    }
}

const VMS: [Vm; 4] = [
    vm("gfx90a", &[], true),
    vm("gfx906", &["--asic", "gfx906"], false),
    vm(
        "gfx90a, no HWS",
        &["--module-args", "sched_policy=2"],
        false,
    ),
    vm(
        "gfx906, no HWS",
        &["--asic", "gfx906", "--module-args", "sched_policy=2"],
        false,
    ),
];

/// End of the names of suites that run against the GPU.
const LIVE: &str = "_live";

impl Runner {
    /// The VMs that are asked for.
    pub(super) fn kunit_vms(&self) -> Vec<Vm> {
        let suites = suites_in(&self.places.top);
        let wanted = |vm: Vm| vm.wanted(&self.filter, &suites);
        VMS.into_iter().filter_map(wanted).collect()
    }

    /// Boots one of them and reads the suites from the kernel log.
    ///
    /// # Errors
    /// Where the options do not fit this machine.
    pub(super) fn kunit(&self, vm: Vm) -> anyhow::Result<()> {
        let name = vm.unit();
        self.progress(&name);
        let header = Header {
            vm: vm.options.iter().map(|word| (*word).to_owned()).collect(),
            ..Header::default()
        };
        let mut machine = header.machine(None, None, self.conditions())?;
        machine.kernel_args = "kunit.enable=1".into();
        if let Some(glob) = vm.glob() {
            let _ = write!(machine.kernel_args, " kunit.filter_glob={glob}");
        }
        let start = Instant::now();
        let config = machine.config(&self.places)?;
        let log_dir = config.log_dir.clone();
        let channel = Channel::new();
        let _guard = self
            .trial
            .as_ref()
            .map(|trial| Guard::new(trial, channel.sender(), log_dir.join("kernel.log")));
        let session = Session::boot_on(&config, channel, Timings::default());
        let mut time = VmTime {
            name: name.clone(),
            boot: start.elapsed(),
            ..VmTime::default()
        };
        let mut session = match session {
            Ok(session) => session,
            Err(error) => {
                let why = match &self.trial {
                    Some(trial) => trial.no_vm(&error, &log_dir),
                    None => Some(format!("{error:#}")),
                };
                self.add(&Suite::check(&name, start.elapsed(), Some(log_dir), why));
                return Ok(());
            }
        };
        let mut records = session.take_kernel_log();
        if self.trial.is_some() {
            let found = suites(&name, &records);
            if found.iter().any(|suite| suite.counts().failed > 0) {
                found.iter().for_each(|suite| self.add(suite));
                return Ok(());
            }
        }
        let end = Instant::now();
        let verdict = session.finish(false);
        if let (Some(trial), Some(_)) = (&self.trial, verdict.interrupted) {
            trial.time_is_up();
        }
        time.end = end.elapsed();
        time.cpu = verdict.cpu;
        records.extend(verdict.kernel_log.iter().cloned());
        let mut suites = suites(&name, &records);
        suites.retain(|suite| {
            let (_, short) = suite.name.rsplit_once(": ").unwrap_or_default();
            vm.counts(short) || suite.counts().failed > 0
        });
        // The message that follows a gap looks as any other.
        let lost = (verdict.lost_messages > 0)
            .then(|| format!("{} kernel messages were lost", verdict.lost_messages));
        // A failed expectation is an error message as well, but counts as its case already.
        let complaints: Vec<String> = verdict
            .complaints
            .iter()
            .filter(|record| !is_ktap(&record.text))
            .map(ToString::to_string)
            .chain(lost)
            .chain(verdict.problems)
            .collect();
        let failure = (!complaints.is_empty()).then(|| complaints.join("\n"));
        time.suites = total(&suites).min(time.boot);
        time.boot = time.boot.saturating_sub(time.suites);
        time.count = suites.len();
        self.add_vm_time(time);
        suites.push(Suite::check(
            &format!("{name}: log and unload"),
            start.elapsed().saturating_sub(total(&suites)),
            None,
            failure,
        ));
        for mut suite in suites {
            suite.log = Some(log_dir.join("kernel.log"));
            self.add(&suite);
        }
        Ok(())
    }
}

/// The names of all suites in all VMs, as the report prints them.
pub(super) fn names(top: &Path) -> Vec<String> {
    let suites = suites_in(top);
    let of = |vm: &Vm| {
        let here = suites.iter().filter(|suite| vm.counts(suite));
        let names: Vec<String> = here
            .map(|suite| format!("{}: {suite}", vm.unit()))
            .collect();
        names
    };
    VMS.iter().flat_map(of).collect()
}

/// The names of the suites of a checkout.
pub(super) fn suites_in(top: &Path) -> Vec<String> {
    let mut suites = Vec::new();
    find_suites(&top.join("rust"), &mut suites);
    suites.sort();
    suites
}

/// The names of the suites in the module's sources, below `dir`. Sources that cannot be read have none: that
/// the module has suites at all is checked when they run.
fn find_suites(dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            find_suites(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path).unwrap_or_default();
            found.extend(declared(&text).map(str::to_owned));
        }
    }
}

/// The suites that a source file declares by the attribute `kunit_tests(NAME)`.
fn declared(source: &str) -> impl Iterator<Item = &str> {
    let rest = source.split("kunit_tests(").skip(1);
    rest.filter_map(|rest| rest.split_once(')'))
        .map(|(name, _)| name)
}

fn total(suites: &[Suite]) -> Duration {
    suites.iter().map(|suite| suite.time).sum()
}

/// KUnit indents all that it says within a suite, or starts it with a `#`.
fn is_ktap(text: &str) -> bool {
    text.starts_with("    ") || text.starts_with("# ") || text.starts_with("not ok ")
}

/// The suites in the part of the log that begins with the loading of the module.
fn suites(name: &str, records: &[Record]) -> Vec<Suite> {
    let mark = format!("{MARK}{MARK_MODULE}");
    let loading = records.iter().skip_while(|record| record.text != mark);
    let kernel: Vec<&Record> = loading.filter(|record| record.from_kernel).collect();
    let document = ktap::parse(kernel.iter().flat_map(|record| record.text.lines()));
    if document.tests.is_empty() {
        let why = "the module printed no KTAP: does the kernel have CONFIG_KUNIT, and the module its suites?";
        let failed = case("KUnit", Some(why.into()));
        return vec![Suite {
            name: name.to_owned(),
            tests: vec![failed],
            time: Duration::ZERO,
            log: None,
        }];
    }
    let mut suites = Vec::new();
    for test in document.tests {
        suites.push(Suite {
            name: format!("{name}: {}", test.name),
            time: time_of(&kernel, &test),
            tests: leaves_of(test),
            log: None,
        });
    }
    suites
}

/// The cases of a suite; the suite itself where it has none.
fn leaves_of(test: Test) -> Vec<Test> {
    let own_failure = test.status == ktap::Status::Failed;
    let any_failed = test
        .children
        .iter()
        .any(|child| child.status == ktap::Status::Failed);
    if test.children.is_empty() || (own_failure && !any_failed) {
        vec![test]
    } else {
        test.children
    }
}

/// From the suite's heading to its result, by the time stamps of the log.
fn time_of(records: &[&Record], test: &Test) -> Duration {
    let heading = format!("# Subtest: {}", test.name);
    let result = format!(" {}", test.name);
    let start = records
        .iter()
        .position(|record| record.text.trim_start() == heading);
    let Some((start, first)) = start.and_then(|start| Some((start, records.get(start)?))) else {
        return Duration::ZERO;
    };
    let end = records
        .iter()
        .skip(start)
        .find(|record| record.text.contains("ok ") && record.text.ends_with(&result));
    let micros = end.map_or(0, |end| end.micros.saturating_sub(first.micros));
    Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[&str]) -> Vec<Record> {
        let record = |(at, text): (usize, &&str)| {
            let priority = if text.starts_with(MARK) { 14 } else { 6 };
            Record::parse(&format!("{priority},{at},{},-;{text}", at * 1000)).unwrap()
        };
        lines.iter().enumerate().map(record).collect()
    }

    #[test]
    fn only_suites_of_the_module_count() {
        let records = log(&[
            "1..1",
            "ok 1 rust_kernel_fmt",
            "rkfd-init: module",
            "KTAP version 1",
            "1..1",
            "    KTAP version 1",
            "    # Subtest: rkfd_pm4",
            "    1..2",
            "    ok 1 nop",
            "    ok 2 map",
            "ok 1 rkfd_pm4",
        ]);
        let suites = suites("kunit/gfx90a", &records);
        assert_eq!(suites.len(), 1);
        assert_eq!(suites[0].name, "kunit/gfx90a: rkfd_pm4");
        assert_eq!(suites[0].counts().passed, 2);
        assert_eq!(suites[0].time, Duration::from_millis(4));
    }

    /// The VMs that a filter selects, with their suites.
    fn selected(text: &str) -> Vec<(&'static str, Vec<String>)> {
        let filter = Filter::new(vec![text.to_owned()]);
        let names = ["rkfd_hw_pm4", "rkfd_gpu_live", "rkfd_vm_live"];
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let vms = VMS.into_iter();
        vms.filter_map(|vm| vm.wanted(&filter, &names))
            .map(|vm| (vm.name, vm.only))
            .collect()
    }

    #[test]
    fn suites_are_selected_by_their_names() {
        let pm4 = vec!["rkfd_hw_pm4".to_owned()];
        let live = vec!["rkfd_gpu_live".to_owned()];
        assert_eq!(selected("rkfd_hw_pm4"), [("gfx90a", pm4.clone())]);
        assert_eq!(selected("kunit/gfx90a: rkfd_hw_pm4"), [("gfx90a", pm4)]);
        assert_eq!(
            selected("gfx906, no HWS: rkfd_gpu_live: resets"),
            [("gfx906, no HWS", live.clone())]
        );
        assert_eq!(selected("gpu_live").len(), 4);
        assert_eq!(selected("gpu_live")[3], ("gfx906, no HWS", live));
        assert_eq!(
            selected("kunit/gfx906: log and unload"),
            [("gfx906", vec![])]
        );
        assert_eq!(selected("kunit").len(), 4);
        assert!(selected("kunit").iter().all(|(_, only)| only.is_empty()));
        assert_eq!(selected("kunit/gfx906: rkfd_hw_pm4")[0].0, "gfx906");
        assert!(selected("e2e/demo").is_empty());
    }

    #[test]
    fn the_kernel_is_told_what_to_run() {
        let vms = |text: &str| {
            let filter = Filter::new(vec![text.to_owned()]);
            let names = ["rkfd_hw_pm4".to_owned(), "rkfd_vm_live".to_owned()];
            let vms = VMS.into_iter();
            vms.filter_map(|vm| vm.wanted(&filter, &names)?.glob())
                .collect::<Vec<_>>()
        };
        assert_eq!(vms("kunit"), ["*_live", "*_live", "*_live"]);
        assert_eq!(vms("hw_pm4"), ["rkfd_hw_pm4"]);
        assert_eq!(vms("gfx906: rkfd_vm_live"), ["rkfd_vm_live"]);
        assert_eq!(vms("kunit/gfx90a: rkfd_"), ["rkfd_*"]);
    }

    #[test]
    fn suites_are_found_in_sources() {
        let source = "#[kunit_tests(rkfd_a)]\nmod t {}\n#[cfg_attr(MODULE, kernel::macros::kunit_tests(rkfd_b_live))]\n";
        let names: Vec<&str> = declared(source).collect();
        assert_eq!(names, ["rkfd_a", "rkfd_b_live"]);
    }

    #[test]
    fn a_module_without_suites_fails() {
        let suites = suites(
            "kunit/x",
            &log(&["ok 1 early", "rkfd-init: module", "rkfd loaded"]),
        );
        assert_eq!((suites.len(), suites[0].counts().failed), (1, 1));
    }
}
