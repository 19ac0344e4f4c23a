// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `make mutants`: small wrong changes to the driver, each of which some suite must notice.
//!
//! A mutant that no suite notices shows a test that is missing. All that can be are built into one module, where a
//! number chooses (see [`build`]); each is then tried in VMs of its own, one suite after the other until one fails.

pub mod build;
pub mod data;
pub mod results;

use super::line::available_memory;
use super::line::Line;
use super::trial::Found;
use super::trial::Subject;
use super::trial::Subjects;
use crate::cli::Places;
use crate::ktap::Status;
use crate::lock;
use crate::suite::report::Suite;
use crate::term::Paint;
use anyhow::Context;
use build::Workshop;
use data::Mutant;
use nix::fcntl::Flock;
use results::Results;
use results::Verdict;
use std::collections::BTreeMap;
use std::fs;
use std::fs::File;
use std::num::NonZero;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;
use std::time::Instant;

/// Where the mutants are, from the top of the checkout.
pub const FOLDER: &str = "tests/mutants";
/// How much longer than on the driver as it is a suite may take with a mutant. One that takes more proves nothing.
const PATIENCE: u32 = 4;
/// What its VM may take beside it.
const BOOT_TIME: Duration = Duration::from_secs(60);
/// A suite's time on the driver as it is.
const FIRST_TIME: Duration = Duration::from_secs(600);

/// VMs at a time, at most.
const MOST_VMS: usize = 3;

/// VMs at a time: half as many again as there are processors, since some wait for time-outs. The number is fixed, so that
/// a suite's time on the driver as it is says what it takes with a mutant.
fn vms_at_once() -> usize {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    (processors + processors.div_ceil(2)).min(MOST_VMS)
}

/// What to do.
pub struct Options {
    /// Only mutants that have one of these in their name, file or suites; nothing means all.
    pub filter: Vec<String>,
    /// Forget what is known from earlier runs.
    pub fresh: bool,
}

/// One suite with one module.
enum Work<'a> {
    /// The driver as it is. Suites of KUnit share a VM.
    Baseline(Subject, Vec<&'a str>),
    Mutant(usize),
}

/// What came of a mutant.
enum Outcome {
    Verdict(Verdict),
    /// No suite failed, and of one it is not known whether it would have: which, and why.
    NoVerdict(String),
}

struct Mill<'a> {
    places: &'a Places,
    dir: PathBuf,
    /// All that there are, in the order of their numbers.
    all: Vec<Mutant>,
    /// Those that are wanted.
    mutants: Vec<Mutant>,
    subjects: BTreeMap<String, Subject>,
    switched: Workshop,
    /// One build at a time: the processors are for VMs, too.
    alone: Mutex<Workshop>,
    results: Mutex<Results>,
    /// Why mutants have no verdict, by name.
    undecided: Mutex<BTreeMap<String, String>>,
    paint: Paint,
}

/// The mutants of the checkout that the filter wants, with what is wrong with any of them.
///
/// # Errors
/// As [`data::load`].
pub fn list(top: &Path, filter: &[String]) -> anyhow::Result<Vec<Mutant>> {
    let mut mutants = data::load(&top.join(FOLDER))?;
    let wanted = |mutant: &Mutant| {
        let file = mutant.file.to_string_lossy();
        let has = |text: &String| {
            mutant.name.contains(text)
                || file.contains(text)
                || mutant.suites.iter().any(|suite| suite.contains(text))
        };
        filter.is_empty() || filter.iter().any(has)
    };
    mutants.retain(wanted);
    anyhow::ensure!(!mutants.is_empty(), "no mutant has that in its name");
    Ok(mutants)
}

/// Runs them and prints the table; whether all were noticed.
///
/// # Errors
/// Mutants that do not apply, a module that does not build, a suite that fails without any.
pub fn run(places: &Places, options: &Options) -> anyhow::Result<bool> {
    let mutants = list(&places.top, &options.filter)?;
    let found = Subjects::find(&places.top)?;
    let mut subjects = BTreeMap::new();
    for mutant in &mutants {
        for suite in &mutant.suites {
            let subject = found
                .get(suite)
                .with_context(|| format!("mutant {}", mutant.name))?;
            subjects.insert(suite.clone(), subject);
        }
    }
    let dir = places.out.join("mutants");
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let _alone = alone(&dir)?;
    let results = Results::load(&dir.join("results.json"), places, options.fresh)?;
    let mill = Mill {
        places,
        switched: Workshop::new(places, &dir.join("switched")),
        alone: Mutex::new(Workshop::new(places, &dir.join("alone"))),
        dir,
        all: list(&places.top, &[])?,
        mutants,
        subjects,
        results: Mutex::new(results),
        undecided: Mutex::default(),
        paint: Paint::for_stdout(),
    };
    mill.run()
}

/// Keeps other runs away from the folder: of two, one would try the other's module. Held by the value.
fn alone(dir: &Path) -> anyhow::Result<Flock<File>> {
    let path = dir.join("lock");
    let file = File::create(&path).with_context(|| format!("making {}", path.display()))?;
    lock::take(file)?.with_context(|| format!("{} is in use by another run", dir.display()))
}

impl Mill<'_> {
    fn run(&self) -> anyhow::Result<bool> {
        let open: Vec<usize> = (0..self.mutants.len())
            .filter(|at| self.verdict(*at).is_none())
            .collect();
        if !open.is_empty() {
            self.build()?;
            self.baselines(&open);
            // A suite that fails without any mutant proves nothing.
            let proves = |suite: &String| self.results().baseline(suite).is_some();
            let work = open.into_iter().filter_map(|at| {
                let suites = &self.mutants.get(at)?.suites;
                let memory = suites.iter().map(|suite| self.memory(suite)).max()?;
                suites
                    .iter()
                    .all(proves)
                    .then_some((memory, Work::Mutant(at)))
            });
            self.side_by_side(work.collect());
        }
        Ok(self.table())
    }

    /// The number of a mutant in the build that holds all; the same whatever is asked for, so that the build is, too.
    fn build(&self) -> anyhow::Result<()> {
        let start = Instant::now();
        println!("  building the module with its mutants");
        let together: Vec<(u32, &Mutant)> = (1u32..)
            .zip(&self.all)
            .filter(|(_, mutant)| !mutant.alone)
            .collect();
        self.switched.switched(&together)?;
        self.switched.companions(&self.dir.join("companions"))?;
        println!("  built in {} s", start.elapsed().as_secs());
        Ok(())
    }

    /// Every suite that will be asked must pass on the driver as it is.
    fn baselines(&self, open: &[usize]) {
        let mutants = open.iter().filter_map(|at| self.mutants.get(*at));
        let mut names: Vec<&str> = mutants
            .flat_map(|mutant| mutant.suites.iter().map(String::as_str))
            .filter(|suite| self.results().baseline(suite).is_none())
            .collect();
        names.sort_unstable();
        names.dedup();
        let mut together: Vec<(Subject, Vec<&str>)> = Vec::new();
        for name in names {
            let Some(subject) = self.subjects.get(name) else {
                continue;
            };
            let last = together.last_mut();
            match last.and_then(|last| Some((last.0.with(subject)?, last))) {
                Some((both, last)) => {
                    last.0 = both;
                    last.1.push(name);
                }
                None => together.push((subject.clone(), vec![name])),
            }
        }
        let work = together
            .into_iter()
            .map(|(subject, names)| (subject.memory(), Work::Baseline(subject, names)));
        self.side_by_side(work.collect());
    }

    fn side_by_side(&self, work: Vec<(u64, Work<'_>)>) {
        let line = Line::new(work, available_memory());
        thread::scope(|scope| {
            for worker in 0..vms_at_once() {
                let line = &line;
                scope.spawn(move || {
                    while let Some((size, work)) = line.next(|_, _| true) {
                        match work {
                            Work::Baseline(subject, names) => {
                                self.baseline(&subject, &names, worker);
                            }
                            Work::Mutant(at) => self.mutant(at, worker),
                        }
                        line.done(size);
                    }
                });
            }
        });
    }

    fn baseline(&self, subject: &Subject, names: &[&str], worker: usize) {
        let start = Instant::now();
        let all = names.join(", ");
        let out = self.out(worker, &format!("baseline of {all}"));
        let found = out.and_then(|out| {
            self.switched.install(Some(0), &out.join("module"))?;
            self.try_subject(subject, out, FIRST_TIME)
        });
        let whole = start.elapsed();
        let suites = match found {
            Ok(Found::Ran(suites)) => {
                match first_failure(&suites).or_else(|| missing(names, &suites)) {
                    None => Ok(suites),
                    Some(why) => Err(why),
                }
            }
            Ok(Found::NoVerdict(why)) => Err(why),
            Err(error) => Err(format!("{error:#}")),
        };
        let suites = match suites {
            Ok(suites) => suites,
            Err(why) => return self.broken("as it is", &all, &why),
        };
        for name in names {
            let time = time_of(name, &suites, whole);
            println!(
                "  {} as it is   {name:<56} {:>6.1} s",
                self.paint.good("✓"),
                time.as_secs_f64()
            );
            self.results().set_baseline(name, time);
        }
    }

    fn mutant(&self, at: usize, worker: usize) {
        let Some(mutant) = self.mutants.get(at) else {
            return;
        };
        let start = Instant::now();
        match self.try_mutant(mutant, worker) {
            Ok(Outcome::Verdict(verdict)) => {
                println!("{}", self.line(mutant, &verdict, start.elapsed()));
                self.results().set(mutant, verdict);
            }
            // The next run tries again.
            Ok(Outcome::NoVerdict(why)) => self.undecided(mutant, &why),
            Err(error) => self.undecided(mutant, &format!("{error:#}")),
        }
    }

    fn try_mutant(&self, mutant: &Mutant, worker: usize) -> anyhow::Result<Outcome> {
        let out = self.out(worker, &mutant.name)?;
        let module = out.join("module");
        if mutant.alone {
            let workshop = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
            workshop.alone(mutant)?;
            workshop.install(None, &module)?;
        } else {
            let (number, _) = (1u32..)
                .zip(&self.all)
                .find(|(_, one)| one.name == mutant.name)
                .context("it is not listed")?;
            self.switched.install(Some(number), &module)?;
        }
        let mut undecided = None;
        for name in &mutant.suites {
            let usual = self.results().baseline(name).unwrap_or_default();
            let time = BOOT_TIME + usual * PATIENCE;
            let subject = self.subjects.get(name).context("it is not known")?;
            let suites = match self.try_subject(subject, out.clone(), time)? {
                Found::Ran(suites) => suites,
                Found::NoVerdict(why) => {
                    // Another suite may notice.
                    undecided.get_or_insert(format!("{name}: {why}"));
                    continue;
                }
            };
            anyhow::ensure!(!suites.is_empty(), "{name} did not run");
            if let Some(why) = first_failure(&suites) {
                return Ok(Outcome::Verdict(Verdict::Killed {
                    by: name.clone(),
                    why,
                }));
            }
        }
        Ok(undecided.map_or(Outcome::Verdict(Verdict::Alive), Outcome::NoVerdict))
    }

    fn try_subject(
        &self,
        subject: &Subject,
        out: PathBuf,
        time: Duration,
    ) -> anyhow::Result<Found> {
        let places = Places {
            out,
            ..self.places.clone()
        };
        subject.run(places, time)
    }

    /// A folder that looks like `build/`, for one VM at a time, with what is known of the module to come.
    fn out(&self, worker: usize, what: &str) -> anyhow::Result<PathBuf> {
        let out = self.dir.join(format!("out.{worker}"));
        let module = out.join("module");
        fs::create_dir_all(&module).with_context(|| format!("making {}", module.display()))?;
        // The guest sees this folder and the checkout, and nothing of what links lead to elsewhere.
        for name in ["bin", "selftests"] {
            build::link_files(&self.places.out.join(name), &out.join(name))?;
        }
        build::link_files(&self.dir.join("companions"), &module)?;
        let kunit = out.join("module-kunit");
        let _ = fs::remove_file(&kunit);
        std::os::unix::fs::symlink("module", &kunit)
            .with_context(|| format!("making {}", kunit.display()))?;
        fs::write(out.join("what"), what)?;
        Ok(out)
    }

    fn memory(&self, suite: &str) -> u64 {
        self.subjects.get(suite).map_or(0, Subject::memory)
    }

    fn results(&self) -> MutexGuard<'_, Results> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn undecided(&self, mutant: &Mutant, why: &str) {
        self.broken(mutant.folder(), &mutant.name, why);
        let first = why.lines().next().unwrap_or("").to_owned();
        super::lock(&self.undecided).insert(mutant.name.clone(), first);
    }

    fn verdict(&self, at: usize) -> Option<Verdict> {
        let mutant = self.mutants.get(at)?;
        self.results().get(mutant)
    }

    fn broken(&self, place: &str, name: &str, why: &str) {
        println!("  {} {place:<9} {name}", self.paint.bad("!"));
        for line in why.lines().take(30) {
            println!("      {line}");
        }
    }

    fn line(&self, mutant: &Mutant, verdict: &Verdict, time: Duration) -> String {
        let time = match time.as_secs_f64() {
            0.0 => String::new(),
            seconds => format!(" {seconds:>6.1} s"),
        };
        let folder = mutant.folder();
        let name = &mutant.name;
        match verdict {
            Verdict::Killed { by, why } => format!(
                "  {} {folder:<9} {name:<36} {by:<46}{time}  {}",
                self.paint.good("killed"),
                self.paint.dim(why)
            ),
            Verdict::Alive => format!(
                "  {}  {folder:<9} {name:<36} {}{time}\n         {}",
                self.paint.bad("ALIVE"),
                mutant.suites.join(", "),
                mutant.wrong
            ),
        }
    }

    /// Prints all verdicts; whether none is missing and all are good.
    fn table(&self) -> bool {
        println!();
        let undecided = super::lock(&self.undecided);
        let (mut killed, mut alive, mut open) = (0, 0, 0);
        for (at, mutant) in self.mutants.iter().enumerate() {
            match self.verdict(at) {
                Some(verdict) => {
                    match verdict {
                        Verdict::Killed { .. } => killed += 1,
                        Verdict::Alive => alive += 1,
                    }
                    println!("{}", self.line(mutant, &verdict, Duration::ZERO));
                }
                None => {
                    let why = undecided.get(&mutant.name).map(String::as_str);
                    open += usize::from(why.is_none());
                    println!(
                        "  {} {:<9} {:<36} {}",
                        self.paint.bad(if why.is_some() {
                            "NO VERDICT"
                        } else {
                            "not tried"
                        }),
                        mutant.folder(),
                        mutant.name,
                        why.unwrap_or("")
                    );
                }
            }
        }
        println!();
        let none = undecided.len();
        println!("{killed} killed, {alive} alive, {none} without a verdict, {open} not tried");
        alive + none + open == 0
    }
}

/// The name of the first case that failed, or what it says where it has no name of its own.
fn first_failure(suites: &[Suite]) -> Option<String> {
    let mut first = None;
    for suite in suites {
        for test in &suite.tests {
            test.leaves(&mut Vec::new(), &mut |path, test| {
                if test.status != Status::Failed || first.is_some() {
                    return;
                }
                let line = test.diagnostics.iter().find(|line| !line.trim().is_empty());
                let line = line.map_or("", |line| line.trim());
                let line: String = line.chars().take(100).collect();
                let name = path.join(": ");
                let generic = name == suite.name || name == "runs to its end";
                first = Some(if generic { line } else { name });
            });
        }
    }
    first
}

/// What the suite took, in a VM that took `whole`.
fn time_of(name: &str, suites: &[Suite], whole: Duration) -> Duration {
    let own = suites.iter().find(|suite| suite.name == name);
    own.map_or(whole, |own| own.time)
}

/// What of several suites did not run, if anything.
fn missing(names: &[&str], suites: &[Suite]) -> Option<String> {
    let ran = |name: &str| suites.iter().any(|suite| suite.name == name);
    let missing: Vec<&str> = names.iter().copied().filter(|name| !ran(name)).collect();
    (!missing.is_empty()).then(|| format!("did not run: {}", missing.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::report::case;

    #[test]
    fn a_folder_has_one_run_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = alone(dir.path()).unwrap();
        let error = alone(dir.path()).unwrap_err();
        assert!(format!("{error:#}").contains("in use by another run"));
        drop(first);
        alone(dir.path()).unwrap();
    }

    #[test]
    fn what_did_not_run_is_named() {
        let suite = Suite::check("kunit/a: b", Duration::ZERO, None, None);
        assert_eq!(missing(&["kunit/a: b"], &[suite.clone()]), None);
        assert_eq!(
            missing(&["kunit/a: b", "kunit/a: c"], &[suite]),
            Some("did not run: kunit/a: c".into())
        );
    }

    #[test]
    fn a_suite_that_shared_a_vm_takes_its_own_time() {
        let seconds = Duration::from_secs;
        let suites = [("kunit/a: b", 2), ("kunit/a: c", 5)]
            .map(|(name, time)| Suite::check(name, seconds(time), None, None));
        assert_eq!(time_of("kunit/a: c", &suites, seconds(10)), seconds(5));
        assert_eq!(time_of("kunit/a: d", &suites, seconds(10)), seconds(10));
    }

    #[test]
    fn the_first_failure_is_named() {
        let mut suite = Suite::check("e2e/a", Duration::ZERO, None, None);
        assert_eq!(first_failure(&[suite.clone()]), None);
        suite.tests.push(case("b", Some("because".into())));
        suite.tests.push(case("c", Some("also".into())));
        assert_eq!(first_failure(&[suite]), Some("b".into()));
        let whole = Suite::check("e2e/a", Duration::ZERO, None, Some("\nno VM: x".into()));
        assert_eq!(first_failure(&[whole]), Some("no VM: x".into()));
    }
}
