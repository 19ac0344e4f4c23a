// SPDX-License-Identifier: GPL-2.0 OR MIT
//! TCG, or KVM where it is proven to work.
//!
//! `/dev/kvm` can exist and yet hang every guest (nested virtualisation that is only pretended). So KVM
//! is used only where the processor announces it and a short probe boot has come up; the answer is kept
//! per boot of the host.

use crate::child::Bound;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

/// How long the probe may take; a working KVM needs a tenth of it.
const PROBE_DEADLINE: Duration = Duration::from_secs(20);

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

    /// Value of `-cpu`.
    pub fn cpu(self) -> &'static str {
        match self {
            // Five-level paging off: the kernel asks its capability words whether it is on, and KASAN
            // misjudges an address when an interrupt comes while the boot CPU is being identified.
            Accel::Tcg => "max,la57=off",
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
                    remembered(cache, || probe(kernel))
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

/// The answer in `cache` if it was given since the host's last boot, else that of `probe`, kept.
fn remembered(cache: &Path, probe: impl FnOnce() -> bool) -> Accel {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let answer = |works| if works { Accel::Kvm } else { Accel::Tcg };
    let kept = fs::read_to_string(cache).unwrap_or_default();
    if let Some((kept_boot, works)) = kept.split_once(' ') {
        if kept_boot == boot.trim() {
            return answer(works == "works");
        }
    }
    let works = probe();
    let word = if works { "works" } else { "fails" };
    // A probe too many is the only harm if this cannot be written.
    let _ = fs::write(cache, format!("{} {word}", boot.trim()));
    answer(works)
}

/// Boots the kernel without a root: it panics for want of one and, told so, resets, which ends QEMU.
fn probe(kernel: &Path) -> bool {
    let mut command = Command::new(crate::qemu::PROGRAM);
    command
        .args([
            "-accel", "kvm", "-cpu", "host", "-machine", "q35", "-m", "256M",
        ])
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
    let Ok(mut qemu) = Bound::spawn(&mut command, &[]) else {
        return false;
    };
    let ended = qemu.wait_for(PROBE_DEADLINE);
    ended.is_ok_and(|status| status.is_some_and(|status| status.success()))
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
    fn the_answer_is_kept_for_this_boot_only() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("kvm");
        assert_eq!(remembered(&cache, || true), Accel::Kvm);
        assert_eq!(remembered(&cache, || panic!("asked again")), Accel::Kvm);
        fs::write(&cache, "another-boot works").unwrap();
        assert_eq!(remembered(&cache, || false), Accel::Tcg);
        assert_eq!(remembered(&cache, || panic!("asked again")), Accel::Tcg);
    }
}
