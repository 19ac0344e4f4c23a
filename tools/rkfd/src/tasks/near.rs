// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Which memory and which CPUs are near a GPU, and how to use them.
//!
//! Neither is needed for anything to be right: what the system does not tell or permit is left as it is.

use std::fs;

use nix::errno::Errno;
use nix::libc;

/// `MPOL_PREFERRED` of `linux/mempolicy.h`.
const PREFERRED: libc::c_long = 1;
/// Nodes that a mask here can name.
const NODES: usize = 1024;
/// Words of such a mask.
const WORDS: usize = NODES / 64;

fn attribute(pci: &str, name: &str) -> Option<String> {
    fs::read_to_string(format!("/sys/bus/pci/devices/{pci}/{name}")).ok()
}

/// The memory node of a PCI device, such as `0000:01:00.0`; `None` where it has none.
pub(super) fn node_of(pci: &str) -> Option<u32> {
    attribute(pci, "numa_node")?.trim().parse().ok()
}

/// CPUs near a PCI device.
pub(super) fn cpus_of(pci: &str) -> Option<Vec<usize>> {
    parse_list(attribute(pci, "local_cpulist")?.trim()).filter(|cpus| !cpus.is_empty())
}

/// Reads a list such as `0-3,8`.
fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut found = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        match part.split_once('-') {
            Some((first, last)) => found.extend(first.parse::<usize>().ok()?..=last.parse().ok()?),
            None => found.push(part.parse().ok()?),
        }
    }
    Some(found)
}

/// Runs `work` with the calling thread's memory taken from a node first: its own, and what the kernel allocates for it.
pub(super) fn on_node<T>(node: Option<u32>, work: impl FnOnce() -> T) -> T {
    let policy = node.and_then(|node| Policy::prefer(node as usize)); // CAST: 32 bits into 64.
    let result = work();
    drop(policy);
    result
}

/// The thread's policy of before, which returns when dropped.
struct Policy {
    mode: libc::c_int,
    mask: [u64; WORDS],
}

impl Policy {
    fn prefer(node: usize) -> Option<Self> {
        let mut before = Self {
            mode: 0,
            mask: [0; WORDS],
        };
        let mut mask = [0u64; WORDS];
        *mask.get_mut(node / 64)? |= 1 << (node % 64);
        // SAFETY: the kernel writes a mode and as many bits as the mask has.
        let got = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut before.mode,
                before.mask.as_mut_ptr(),
                NODES,
                0,
                0,
            )
        };
        Errno::result(got).ok()?;
        set(PREFERRED, &mask)?;
        Some(before)
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        let _ = set(self.mode.into(), &self.mask);
    }
}

fn set(mode: libc::c_long, mask: &[u64; WORDS]) -> Option<()> {
    // The kernel takes the default policy with an empty mask only.
    let (mask, nodes) = if mask.iter().all(|word| *word == 0) {
        (std::ptr::null(), 0)
    } else {
        (mask.as_ptr(), NODES)
    };
    // SAFETY: the kernel reads as many bits as the mask has.
    let done = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask, nodes) };
    Errno::result(done).ok().map(drop)
}

/// Keeps the calling thread on those of `cpus` that it may run on.
pub(super) fn stay_on(cpus: &[usize]) {
    // SAFETY: a set of CPUs is plain bits, and valid when zeroed.
    let (mut wanted, mut allowed): (libc::cpu_set_t, libc::cpu_set_t) =
        unsafe { std::mem::zeroed() };
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: the kernel writes at most `size` bytes into a set of that size.
    if unsafe { libc::sched_getaffinity(0, size, &raw mut allowed) } != 0 {
        return;
    }
    let mut any = false;
    for cpu in cpus.iter().copied().filter(|cpu| *cpu < 8 * size) {
        // SAFETY: `cpu` is a bit of both sets.
        unsafe {
            if libc::CPU_ISSET(cpu, &allowed) {
                libc::CPU_SET(cpu, &mut wanted);
                any = true;
            }
        }
    }
    if any {
        // SAFETY: the kernel reads `size` bytes of a set of that size.
        unsafe { libc::sched_setaffinity(0, size, &raw const wanted) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(parse_list("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse_list("5"), Some(vec![5]));
        assert_eq!(parse_list(""), Some(Vec::new()));
        assert_eq!(parse_list("a-b"), None);
    }

    #[test]
    fn a_policy_is_put_back() {
        let mode = || {
            let mut mode: libc::c_int = -1;
            let mut mask = [0u64; WORDS];
            // SAFETY: as in `Policy::prefer`.
            unsafe {
                libc::syscall(
                    libc::SYS_get_mempolicy,
                    &raw mut mode,
                    mask.as_mut_ptr(),
                    NODES,
                    0,
                    0,
                )
            };
            mode
        };
        let before = mode();
        let within = on_node(Some(0), mode);
        // A kernel without nodes refuses, and then nothing changes.
        assert!(within == 1 || within == before, "{within}");
        assert_eq!(mode(), before);
    }

    #[test]
    fn a_thread_stays_where_it_is_told_to() {
        std::thread::spawn(|| {
            stay_on(&[0]);
            // SAFETY: takes nothing.
            let cpu = unsafe { libc::sched_getcpu() };
            // SAFETY: as in `stay_on`.
            let mut now: libc::cpu_set_t = unsafe { std::mem::zeroed() };
            // SAFETY: as in `stay_on`.
            unsafe { libc::sched_getaffinity(0, size_of_val(&now), &raw mut now) };
            // SAFETY: a bit of the set.
            if unsafe { libc::CPU_ISSET(0, &now) } {
                assert_eq!(cpu, 0);
            }
        })
        .join()
        .unwrap();
    }
}
