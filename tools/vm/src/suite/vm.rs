// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The VM runner's own promises, tried from outside: a runner that misses complaints would make every
//! other test worthless.

use super::report::case;
use super::report::Suite;
use super::Runner;
use crate::child::Bound;
use crate::run_dir::RunDir;
use anyhow::Context;
use nix::sys::signal::Signal;
use std::fs;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;
use std::time::Instant;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

/// Its name in the report.
pub(super) const NAME: &str = "vm/runner";
/// Bound of one run.
const DEADLINE: Duration = Duration::from_secs(300);
/// Memory of its VMs, in MiB, as `scripts/vm` has it.
const MEMORY: u64 = 2048;
/// Makes the kernel print an error and harms nothing: there is no such 9p share.
const COMPLAIN: &str =
    "mkdir /tmp/m; mount -t 9p -o trans=virtio nosuch /tmp/m 2>/dev/null; echo done";
/// What the kernel says to it.
const COMPLAINT: &str = "no channels available for device nosuch";

/// The parts of a run, as `--timings` names them.
const PARTS: [&str; 14] = [
    "scripts: what is to be built",
    "entering the toolbox",
    "options, accelerator",
    "waiting for memory",
    "GPU models",
    "jail, QEMU, firmware, unpacking the kernel",
    "kernel, to process 1",
    "file systems and ports of the guest",
    "shares and modules",
    "command, to its first output",
    "command, to its end",
    "unloading, leak check",
    "power-off",
    "end of the models",
];

/// A line of the table of where the time went.
#[derive(Debug, PartialEq)]
struct Part {
    name: String,
    seconds: f64,
    until: f64,
}

/// The lines of the table.
///
/// # Errors
/// What is wrong with it: a name, their order, or a line that does not go on where the one before it ended.
fn parts(table: &str) -> Result<Vec<Part>, String> {
    /// Three figures, each rounded to milliseconds.
    const ROUNDED: f64 = 0.0016;
    let mut lines = table.lines();
    let head: Vec<&str> = lines.next().unwrap_or("").split_whitespace().collect();
    if head != ["part", "seconds", "until"] {
        return Err(format!("the table begins with {head:?}"));
    }
    let mut parts: Vec<Part> = Vec::new();
    for line in lines {
        // The figure at its end, and what is before it.
        let figure = |text: &str| {
            let (rest, last) = text.trim_end().rsplit_once(' ')?;
            Some((rest.to_owned(), last.parse::<f64>().ok()?))
        };
        let read = figure(line).and_then(|(rest, until)| Some((figure(&rest)?, until)));
        let Some(((name, seconds), until)) = read else {
            return Err(format!("no line of the table: {line}"));
        };
        let name = name.trim_end();
        let before = parts.last().map_or(0.0, |part| part.until);
        if (before + seconds - until).abs() > ROUNDED {
            return Err(format!(
                "{before:.3} and {seconds:.3} are not {until:.3}: {name}"
            ));
        }
        parts.push(Part {
            name: name.into(),
            seconds,
            until,
        });
    }
    let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
    if names != PARTS {
        return Err(format!("the parts are {names:?}"));
    }
    Ok(parts)
}

/// The memory that one of its VMs takes, in MiB.
pub(super) fn memory() -> u64 {
    MEMORY
}

/// What a run showed.
struct Shown {
    status: Option<i32>,
    out: Vec<u8>,
    err: String,
}

impl Shown {
    /// Why it is not as wanted, if it is not.
    fn unless(&self, status: i32, good: bool) -> Option<String> {
        if self.status == Some(status) && good {
            return None;
        }
        let out = String::from_utf8_lossy(&self.out);
        Some(format!(
            "wanted status {status}, found {:?}\nstandard output:\n{out}\nstandard error:\n{}",
            self.status, self.err
        ))
    }
}

impl Runner {
    /// Runs them all, on the test kernel.
    ///
    /// # Errors
    /// Where files for them cannot be made.
    pub(super) fn vm(&self) -> anyhow::Result<()> {
        let name = NAME;
        if !self.wants(name) || self.debug {
            return Ok(());
        }
        self.progress(name);
        let start = Instant::now();
        let dir = RunDir::new()?;
        let mut tests = Vec::new();
        let mut add = |name: &str, failure| tests.push(case(name, failure));

        // Every byte value, more than one buffer of it.
        let bytes: Vec<u8> = (0..=255u8).cycle().take(200_000).collect();
        let shown = self.runner(dir.path(), &[], "cat; echo oops >&2; exit 7", &bytes)?;
        let good = shown.out == bytes && shown.err == "oops\n";
        add(
            "the streams are the command's, and so is the status",
            shown.unless(7, good),
        );

        let shown = self.runner(dir.path(), &[], COMPLAIN, b"")?;
        let good = shown.err.contains(COMPLAINT) && shown.out == b"done\n";
        add(
            "an error in the kernel log fails the run",
            shown.unless(70, good),
        );

        let options = ["--expect-kmsg", COMPLAINT];
        let shown = self.runner(dir.path(), &options, COMPLAIN, b"")?;
        add(
            "an expected one does not",
            shown.unless(0, shown.err.is_empty()),
        );

        let shown = self.runner(dir.path(), &["--timeout", "10"], "echo up; sleep 1000", b"")?;
        let good = shown.out == b"up\n" && shown.err.contains("took longer than 10 s");
        add(
            "a command that takes too long is killed",
            shown.unless(124, good),
        );

        let shown = self.interrupted(dir.path(), "echo up; sleep 1000", 1)?;
        add(
            "an interrupted command gives the signal's status",
            shown.unless(130, shown.out == b"up\n"),
        );

        let shown = self.interrupted(dir.path(), "trap '' INT; echo up; sleep 1000", 2)?;
        add(
            "the second interrupt kills a command that does not care",
            shown.unless(130, shown.out == b"up\n" && shown.err.is_empty()),
        );

        let crash = "echo c > /proc/sysrq-trigger; sleep 1000";
        let shown = self.runner(dir.path(), &[], crash, b"")?;
        let good = shown.err.contains("Kernel panic");
        add(
            "a panic ends the run at once and is shown",
            shown.unless(125, good),
        );

        let share = dir.path().join("share");
        fs::create_dir(&share)?;
        fs::write(share.join("in"), "from outside")?;
        let path = share.display().to_string();
        let script = "pwd; cat in; echo from inside > out";
        let shown = self.runner(dir.path(), &["--share", &path], script, b"")?;
        let written = fs::read_to_string(share.join("out")).unwrap_or_default();
        let good =
            shown.out == format!("{path}\nfrom outside").as_bytes() && written == "from inside\n";
        add(
            "a shared directory is read and written",
            shown.unless(0, good),
        );

        add("the parts of the time", self.timings(dir.path())?);

        self.add(&Suite {
            name: name.into(),
            tests,
            time: start.elapsed(),
            log: None,
        });
        Ok(())
    }

    /// What is wrong with the table of where the time went, if anything.
    fn timings(&self, dir: &Path) -> anyhow::Result<Option<String>> {
        /// How long the part before the program took, and all until it began, by the stamps.
        const SCRIPTS: Duration = Duration::from_millis(1500);
        const BEFORE: Duration = Duration::from_secs(2);
        /// The program may take so long after its last part.
        const END: f64 = 10.0;
        let began = Instant::now();
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let start = now.saturating_sub(BEFORE);
        let stamp = |name: &str, time: Duration| format!("{name}={:.6}", time.as_secs_f64());
        let stamps = [stamp("start", start), stamp(PARTS[0], start + SCRIPTS)];
        let [first, second] = stamps.each_ref().map(String::as_str);
        let options = ["--timings", "--stamp", first, "--stamp", second];
        let shown = self.runner(dir, &options, "echo first; sleep 3", b"")?;
        let all = (BEFORE + began.elapsed()).as_secs_f64();
        let wrong = match parts(&shown.err) {
            Err(wrong) => Some(wrong),
            Ok(parts) => {
                let took = |name: &str| parts.iter().find(|part| part.name == name);
                let is = |name: &str, least: f64, most: f64| {
                    let found = took(name).map_or(0.0, |part| part.seconds);
                    (least..most).contains(&found)
                };
                let until = parts.last().map_or(0.0, |part| part.until);
                let good = is(PARTS[0], 1.499, 1.501)
                    && is("command, to its end", 1.0, all)
                    && (all - END..all).contains(&until);
                (!good).then(|| format!("all took {all:.3} s"))
            }
        };
        let good = wrong.is_none() && shown.out == b"first\n";
        let shown = shown.unless(0, good);
        Ok(shown.map(|shown| format!("{}\n{shown}", wrong.unwrap_or_default())))
    }

    /// Runs a shell script in a VM without GPU and module.
    fn runner(
        &self,
        dir: &Path,
        options: &[&str],
        script: &str,
        stdin: &[u8],
    ) -> anyhow::Result<Shown> {
        self.runner_with(dir, options, script, stdin, |_| Ok(()))
    }

    /// The same, interrupted `times` when it has said `up`.
    fn interrupted(&self, dir: &Path, script: &str, times: usize) -> anyhow::Result<Shown> {
        let out = dir.join("stdout");
        self.runner_with(dir, &[], script, b"", |process| {
            let end = Instant::now() + DEADLINE;
            while fs::read(&out)?.is_empty() && process.try_wait()?.is_none() {
                anyhow::ensure!(Instant::now() < end, "the command does not start");
                thread::sleep(Duration::from_millis(20));
            }
            for time in 0..times {
                if time > 0 {
                    // Two signals at once may arrive as one.
                    thread::sleep(Duration::from_secs(1));
                }
                process.signal(Signal::SIGINT);
            }
            Ok(())
        })
    }

    fn runner_with(
        &self,
        dir: &Path,
        options: &[&str],
        script: &str,
        stdin: &[u8],
        meanwhile: impl FnOnce(&mut Bound) -> anyhow::Result<()>,
    ) -> anyhow::Result<Shown> {
        let path = |name| dir.join(name);
        File::create(path("stdin"))?.write_all(stdin)?;
        let mut command = Command::new(self.places.out.join("bin/rkfd-vm"));
        // This run has claimed its memory; where it waited behind others, its output would say so.
        command
            .env_remove("RKFD_CACHE")
            .arg("--top")
            .arg(&self.places.top)
            .arg("--out")
            .arg(&self.places.out)
            .arg("--kernel")
            .arg(&self.places.kernel)
            .args(["--gpus", "0", "--no-module"])
            .args(options)
            .args(["--", "sh", "-c", script])
            .stdin(File::open(path("stdin"))?)
            .stdout(File::create(path("stdout"))?)
            .stderr(File::create(path("stderr"))?);
        let mut process = Bound::spawn(&mut command, &[]).context("starting rkfd-vm")?;
        meanwhile(&mut process)?;
        let status = process.wait_for(DEADLINE)?;
        Ok(Shown {
            status: status.and_then(|status| status.code()),
            out: fs::read(path("stdout"))?,
            err: String::from_utf8_lossy(&fs::read(path("stderr"))?).into_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table with these figures of seconds, and of the time until then.
    fn table(figure: impl Fn(usize) -> (f64, f64)) -> String {
        let lines = PARTS.iter().enumerate().map(|(number, name)| {
            let (seconds, until) = figure(number);
            format!("{name:<42}  {seconds:>8.3}  {until:>8.3}\n")
        });
        let head = format!("{:<42}  {:>8}  {:>8}\n", "part", "seconds", "until");
        head + &lines.collect::<String>()
    }

    #[test]
    fn a_table_must_be_whole_and_add_up() {
        let good = |number: usize| {
            let until = (number + 1) as f64 * 0.125;
            (0.125, until)
        };
        let found = parts(&table(good)).unwrap();
        assert_eq!(found.len(), PARTS.len());
        assert_eq!(
            found[1],
            Part {
                name: "entering the toolbox".into(),
                seconds: 0.125,
                until: 0.25,
            }
        );
        let wrong = |table: &str| parts(table).unwrap_err();
        let gap = table(|number| {
            let (seconds, until) = good(number);
            (seconds, if number > 5 { until + 0.002 } else { until })
        });
        assert!(wrong(&gap).contains("kernel, to process 1"));
        let whole = table(good);
        assert!(wrong("").contains("begins with"));
        assert!(wrong(&whole.replace("power-off", "power off")).contains("power off"));
        let (missing, _) = whole.split_once("end of the models").unwrap();
        assert!(wrong(missing).contains("the parts are"));
        assert!(wrong(&format!("{whole}error\n")).contains("no line"));
    }
}
