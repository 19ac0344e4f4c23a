// SPDX-License-Identifier: GPL-2.0 OR MIT
//! TCG, or KVM where it is proven to work.
//!
//! `/dev/kvm` can exist and yet hang every guest (nested virtualisation that is only pretended). So KVM
//! is used only where the processor announces it and a short probe boot has come up. A clear answer is
//! kept until the host boots again. A probe that takes too long, cannot be made, or is killed, gives none: the host may
//! have been busy or short of memory, so that TCG does for now, and a later run asks again.

use crate::child::Bound;
use nix::fcntl::Flock;
use nix::fcntl::FlockArg;
use nix::sys::signal::Signal;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;
use std::time::Duration;

/// How long the probe may take; a working KVM needs a tenth of it.
const PROBE_DEADLINE: Duration = Duration::from_secs(20);

/// How long no other probe is made after one without an answer; each of them may cost its deadline.
const PROBE_PAUSE: Duration = Duration::from_secs(600);

/// What is kept where a probe gave no answer.
const UNKNOWN: &str = "unknown";

/// What a probe says of KVM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    /// The guest ran.
    Works,
    /// QEMU refused, or the guest broke.
    Fails,
    /// It came to no end in time, could not be made, or was ended by somebody else.
    NoAnswer,
}

/// Signals by which a program ends for what it did itself. By any other somebody else ended it: the kernel for want of
/// memory, a user, the end of a job.
const OWN_FAULTS: [Signal; 7] = [
    Signal::SIGABRT,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGSEGV,
    Signal::SIGSYS,
    Signal::SIGTRAP,
];

/// What the end of a probe says: its exit status, or none where it ran on, or why it could not be made or waited for.
fn judged(end: &io::Result<Option<ExitStatus>>) -> Probe {
    let Ok(Some(status)) = end else {
        return Probe::NoAnswer;
    };
    match status.signal() {
        Some(number) if OWN_FAULTS.iter().all(|own| *own as i32 != number) => Probe::NoAnswer,
        Some(_) => Probe::Fails,
        None if status.success() => Probe::Works,
        None => Probe::Fails,
    }
}

/// How QEMU runs the guest's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// By translation; works everywhere.
    Tcg,
    /// By the processor.
    Kvm,
}

/// What the user asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Choice {
    /// KVM where it is proven to work.
    Auto,
    /// Always TCG.
    Tcg,
    /// KVM without asking.
    Kvm,
}

impl Accel {
    /// Value of `-accel`.
    pub fn option(self) -> &'static str {
        match self {
            Accel::Tcg => "tcg,thread=multi",
            Accel::Kvm => "kvm",
        }
    }

    /// Value of `-smp` for a guest with so many processors.
    ///
    /// TCG makes locked instructions atomic only in a machine that can have several processors: in others no second
    /// one could see the difference. The model could: it shares the guest's memory, and what its waves add to a word
    /// while the guest adds to it would be lost. So there is a socket for one more processor, which stays empty.
    pub fn processors(self, cpus: u32) -> String {
        match self {
            Accel::Tcg => format!("cpus={cpus},maxcpus={}", cpus.max(2)),
            Accel::Kvm => format!("cpus={cpus}"),
        }
    }

    /// Value of `-cpu`.
    pub fn cpu(self) -> &'static str {
        match self {
            // Five-level paging off: the kernel asks its capability words whether it is on, and KASAN
            // misjudges an address when an interrupt comes while the boot CPU is being identified.
            // No fast string operations: where they are announced, the kernel clears and copies pages by
            // the byte, which TCG translates to a loop of bytes; without them, by words of 8 bytes.
            Accel::Tcg => "max,la57=off,erms=off,fsrm=off",
            Accel::Kvm => "host",
        }
    }

    /// Decides. `kernel` is booted for the probe; `cache` keeps the answer.
    pub fn choose(choice: Choice, kernel: &Path, cache: &Path) -> Self {
        match choice {
            Choice::Tcg => Accel::Tcg,
            Choice::Kvm => Accel::Kvm,
            Choice::Auto => {
                let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
                if announces_kvm(&info)
                    && fs::File::options()
                        .read(true)
                        .write(true)
                        .open("/dev/kvm")
                        .is_ok()
                {
                    remembered(cache, PROBE_PAUSE, || probe(kernel))
                } else {
                    Accel::Tcg
                }
            }
        }
    }
}

fn announces_kvm(cpuinfo: &str) -> bool {
    cpuinfo
        .lines()
        .filter(|line| line.starts_with("flags"))
        .any(|line| {
            line.split_whitespace()
                .any(|flag| flag == "svm" || flag == "vmx")
        })
}

/// The answer in `cache` if it was given since the host's last boot, else that of `probe`, kept. That there was none is
/// kept for `pause`.
fn remembered(cache: &Path, pause: Duration, probe: impl FnOnce() -> Probe) -> Accel {
    // Runs that start at the same time probe once, unless the lock cannot be made.
    let _guard = fs::File::create(cache.with_extension("lock"))
        .ok()
        .and_then(|file| Flock::lock(file, FlockArg::LockExclusive).ok());
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = boot.trim();
    let kept = fs::read_to_string(cache).unwrap_or_default();
    let answer = match kept.split_once(' ') {
        Some((of, "works")) if of == boot => Some(Accel::Kvm),
        Some((of, "fails")) if of == boot => Some(Accel::Tcg),
        Some((of, UNKNOWN)) if of == boot => {
            let written = fs::metadata(cache).and_then(|found| found.modified());
            let age = written.ok().and_then(|written| written.elapsed().ok());
            age.is_some_and(|age| age < pause).then_some(Accel::Tcg)
        }
        _ => None,
    };
    if let Some(answer) = answer {
        return answer;
    }
    let (answer, word) = match probe() {
        Probe::Works => (Accel::Kvm, "works"),
        Probe::Fails => (Accel::Tcg, "fails"),
        Probe::NoAnswer => (Accel::Tcg, UNKNOWN),
    };
    // A probe too many is the only harm if this cannot be written.
    let _ = fs::write(cache, format!("{boot} {word}"));
    answer
}

/// Boots the kernel without a root: it panics for want of one and, told so, resets, which ends QEMU.
fn probe(kernel: &Path) -> Probe {
    let mut command = Command::new(crate::qemu::PROGRAM);
    command
        .args([
            "-accel", "kvm", "-cpu", "host", "-machine", "q35", "-m", "256M",
        ])
        .args(crate::qemu::SANDBOX)
        .args([
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-display",
            "none",
            "-kernel",
        ])
        .arg(kernel)
        .args(["-append", "panic=-1 quiet"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    judged(&end_of(&mut command, PROBE_DEADLINE))
}

/// How a program ends that may take so long.
fn end_of(command: &mut Command, limit: Duration) -> io::Result<Option<ExitStatus>> {
    Bound::spawn(command, &[])?.wait_for(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_must_be_a_word_of_the_flags_line() {
        assert!(announces_kvm("model name: x\nflags\t\t: fpu svm sse\n"));
        assert!(announces_kvm("flags\t\t: vmx"));
        assert!(!announces_kvm(
            "flags\t\t: fpu svm_lock sse\nvmx flags\t: vnmi vmx\n"
        ));
    }

    #[test]
    fn a_clear_answer_is_kept_for_this_boot_only() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("kvm");
        let asked = |answer| remembered(&cache, Duration::ZERO, || answer);
        let again = || remembered(&cache, Duration::ZERO, || panic!("asked again"));
        assert_eq!(asked(Probe::Works), Accel::Kvm);
        assert_eq!(again(), Accel::Kvm);
        fs::write(&cache, "another-boot works").unwrap();
        assert_eq!(asked(Probe::Fails), Accel::Tcg);
        assert_eq!(again(), Accel::Tcg);
    }

    #[test]
    fn only_an_end_of_its_own_is_an_answer() {
        let long = Duration::from_secs(60);
        let end = |program: &str, limit| {
            let mut command = Command::new("sh");
            judged(&end_of(command.args(["-c", program]), limit))
        };
        assert_eq!(end("exit 0", long), Probe::Works);
        assert_eq!(end("exit 1", long), Probe::Fails);
        for own in ["ABRT", "SEGV", "SYS"] {
            assert_eq!(end(&format!("kill -{own} $$"), long), Probe::Fails, "{own}");
        }
        for foreign in ["KILL", "TERM", "HUP", "INT"] {
            let found = end(&format!("kill -{foreign} $$"), long);
            assert_eq!(found, Probe::NoAnswer, "{foreign}");
        }
        assert_eq!(end("exec sleep 1000", Duration::ZERO), Probe::NoAnswer);
        let missing = end_of(&mut Command::new("/no/such/qemu"), long);
        assert!(missing.is_err());
        assert_eq!(judged(&missing), Probe::NoAnswer);
    }

    #[test]
    fn a_probe_without_an_answer_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("kvm");
        let hour = Duration::from_secs(3600);
        let slow = || judged(&end_of(Command::new("sleep").arg("1000"), Duration::ZERO));
        assert_eq!(remembered(&cache, hour, slow), Accel::Tcg);
        // What is kept is no answer, and holds for the pause alone.
        let kept = fs::read_to_string(&cache).unwrap();
        assert_eq!(kept.split_once(' ').unwrap().1, UNKNOWN);
        let found = remembered(&cache, hour, || panic!("asked again at once"));
        assert_eq!(found, Accel::Tcg);
        assert_eq!(remembered(&cache, Duration::ZERO, slow), Accel::Tcg);
        let found = remembered(&cache, Duration::ZERO, || Probe::Works);
        assert_eq!(found, Accel::Kvm);
    }
}
