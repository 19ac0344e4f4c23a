// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The driver's decoded tables in debugfs (`rkfd/PCI-ADDRESS/…`), read back.
//!
//! Lines are words; unknown words are left alone, so that the driver may say more than is asked for here.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;

/// Where the tables of the GPU at a PCI address are.
pub fn directory(pci: &str) -> PathBuf {
    Path::new("/sys/kernel/debug/rkfd").join(pci)
}

/// Reads one table.
///
/// # Errors
/// Where it cannot be read; the message says what debugfs needs.
pub fn read(pci: &str, table: &str) -> anyhow::Result<String> {
    let path = directory(pci).join(table);
    fs::read_to_string(&path)
        .with_context(|| format!("{} (debugfs must be mounted; root only)", path.display()))
}

/// A number in decimal or, behind `0x`, in hexadecimal.
pub fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The number behind the word `key`.
pub fn value(words: &[&str], key: &str) -> Option<u64> {
    let at = words.iter().position(|w| *w == key)?;
    number(words.get(at + 1)?)
}

/// A queue in `mqds`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queue {
    /// Its id.
    pub id: u64,
    /// `pm4`, `aql`, `sdma`…
    pub kind: String,
    /// What the scheduler thinks of it: `mapped`…
    pub state: String,
    /// Byte offset in the doorbell BAR.
    pub doorbell: u64,
    /// Bytes.
    pub ring_bytes: u64,
    /// 0 to 15.
    pub priority: Option<u64>,
    /// 0 to 100.
    pub percent: Option<u64>,
    /// The descriptor's fields that are not 0.
    pub fields: BTreeMap<String, u64>,
}

/// A process in `mqds`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    /// Its PASID on this GPU.
    pub pasid: u32,
    /// Its id, where the driver tells.
    pub pid: Option<u32>,
    /// Its queues.
    pub queues: Vec<Queue>,
}

/// Reads `mqds`.
pub fn mqds(text: &str) -> Vec<Process> {
    let mut processes: Vec<Process> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["pasid", pasid, ..] => {
                let id = |n: Option<u64>| n.and_then(|n| u32::try_from(n).ok());
                if let Some(pasid) = id(number(pasid)) {
                    processes.push(Process {
                        pasid,
                        pid: id(value(&words, "pid")),
                        queues: Vec::new(),
                    });
                }
            }
            ["queue", id, kind, rest @ ..] => {
                let Some((id, process)) = number(id).zip(processes.last_mut()) else {
                    continue;
                };
                // Everything up to the first key is the state.
                let state: Vec<&str> = rest
                    .iter()
                    .copied()
                    .take_while(|w| *w != "doorbell")
                    .collect();
                let ring = rest
                    .iter()
                    .position(|w| *w == "ring")
                    .and_then(|at| rest.get(at + 1)?.split_once('+'));
                process.queues.push(Queue {
                    id,
                    kind: (*kind).to_owned(),
                    state: state.join(" "),
                    doorbell: value(rest, "doorbell").unwrap_or(0),
                    ring_bytes: ring.and_then(|(_, size)| number(size)).unwrap_or(0),
                    priority: value(rest, "priority"),
                    percent: value(rest, "percent"),
                    fields: BTreeMap::new(),
                });
            }
            [name, field] => {
                let queue = processes.last_mut().and_then(|p| p.queues.last_mut());
                if let Some((queue, field)) = queue.zip(number(field)) {
                    queue.fields.insert((*name).to_owned(), field);
                }
            }
            _ => {}
        }
    }
    processes
}

/// An occupied slot in `hqds`.
#[derive(Clone, Debug, PartialEq)]
pub struct Hqd {
    /// Such as `me 1 pipe 0 q 2` or `SDMA 0`.
    pub name: String,
    /// The process' VMID.
    pub vmid: u64,
    /// Byte offset in the doorbell BAR.
    pub doorbell: u64,
    /// In the ring's units.
    pub rptr: u64,
    /// In the ring's units.
    pub wptr: u64,
}

/// Reads `hqds`.
pub fn hqds(text: &str) -> Vec<Hqd> {
    text.lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let at = words.iter().position(|w| w.starts_with("0x"))?;
            let vmid = at.checked_sub(1)?;
            let n = |i: usize| words.get(at + i).and_then(|w| number(w));
            Some(Hqd {
                name: words.get(..vmid)?.join(" "),
                vmid: number(words.get(vmid)?)?,
                doorbell: n(0)?,
                rptr: n(2)?,
                wptr: n(3)?,
            })
        })
        .collect()
}

/// Reads `sched`: one counter per line, name and value.
pub fn counters(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| {
            let (name, value) = line.trim().split_once(' ')?;
            Some((name.to_owned(), number(value.trim())?))
        })
        .collect()
}

/// The name of a process, where it still lives.
pub fn process_name(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_with_and_without_a_pid() {
        let found = mqds(
            "pasid 32 pid 77 page table 0x3feed001\n  \
             queue 512 pm4 mapped doorbell 0x3e000 ring 0x7efef1627000+0x1000 rptr 0x7efef1625080 \
             wptr 0x7efef1625038 priority 7 percent 100 mqd 0x803fede000\n    \
             CP_HQD_PQ_RPTR                     0x00000240\n    CP_HQD_PQ_WPTR_LO                  0x00000250\n  \
             queue 514 sdma not mapped doorbell 0x3e800 ring 0x7efef1602000+0x10000 priority 3 percent 0\n\
             pasid 31 page table 0x3feee001\n  a line of words that nobody knows\n",
        );
        assert_eq!(
            (found[0].pasid, found[0].pid, found[0].queues.len()),
            (32, Some(77), 2)
        );
        let [compute, sdma] = &found[0].queues[..] else {
            panic!("{found:?}")
        };
        assert_eq!((compute.id, compute.kind.as_str()), (512, "pm4"));
        assert_eq!(
            (compute.state.as_str(), sdma.state.as_str()),
            ("mapped", "not mapped")
        );
        assert_eq!((compute.doorbell, compute.ring_bytes), (0x3e000, 0x1000));
        assert_eq!(compute.fields.get("CP_HQD_PQ_WPTR_LO"), Some(&0x250));
        assert_eq!((sdma.percent, sdma.ring_bytes), (Some(0), 0x10000));
        assert_eq!(
            found[1],
            Process {
                pasid: 31,
                pid: None,
                queues: Vec::new()
            }
        );
    }

    #[test]
    fn counters_are_names_and_numbers() {
        let found = counters("health running\ncreates 12\n  runlists 0x10\nnothing\ndwords  7 \n");
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [
                ("creates".to_owned(), 12),
                ("dwords".to_owned(), 7),
                ("runlists".to_owned(), 16)
            ]
        );
    }

    #[test]
    fn slots() {
        let found = hqds(
            "slot           vmid  doorbell  ring              rptr      wptr      error\n\
             me 1 pipe 0 q 2     3    0x2000  0x007f7982117000     0x1e0   0x595e0  0x0\n\
             15 slots idle\n\
             SDMA 0            5    0x7800  0x007fc43831f000  0x175c80  0x175c84\n",
        );
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].name.as_str(), found[0].vmid, found[0].doorbell),
            ("me 1 pipe 0 q 2", 3, 0x2000)
        );
        assert_eq!(
            (found[1].name.as_str(), found[1].rptr, found[1].wptr),
            ("SDMA 0", 0x175c80, 0x175c84)
        );
    }
}
