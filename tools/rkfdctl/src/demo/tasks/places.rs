// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Where areas and workers are: the memory node of each page of a GPU's area, and the processors of its workers.
//!
//! The library asks for both; here is looked at what came of it. A mapping of the driver's memory consists of frame numbers
//! alone, so that neither move_pages(2) nor `numa_maps` tells of its pages. The driver's page table has their physical
//! addresses (debugfs `vms`, for root), and the kernel's zones say to which node these belong.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::PoisonError;

use anyhow::bail;
use anyhow::Context;
use rkfd::sys::PAGE;
use rkfd::tasks::function::Functions;
use rkfd::tasks::function::Outcome;
use rkfd::tasks::layout::Shape;
use rkfd::tasks::ring::Task;
use rkfd::tasks::Options as TaskOptions;
use rkfd::tasks::Tasks;

use super::super::heading;
use super::row;
use super::stage::Stage;
use super::stage::LIMIT;
use crate::debugfs;
use crate::debugfs::number;
use crate::style;

/// The function that notes on which processors its worker may run.
const WHERE: u32 = 1;

/// Processors by number, in order.
type Processors = Vec<usize>;

/// Physical addresses of a zone, and its node.
#[derive(Debug, PartialEq)]
struct Zone {
    node: u32,
    addresses: Range<u64>,
}

/// Reads `/proc/zoneinfo`. Zones without pages have no address.
fn zones(text: &str) -> Vec<Zone> {
    let mut zones = Vec::new();
    let (mut node, mut spanned) = (None, None);
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["Node", of, "zone", _] => {
                node = of.trim_end_matches(',').parse().ok();
                spanned = None;
            }
            ["spanned", pages] => spanned = number(pages),
            ["start_pfn:", first] => {
                if let (Some(node), Some(pages), Some(first)) = (node, spanned, number(first)) {
                    let bytes = |pages: u64| pages.saturating_mul(PAGE as u64); // CAST: 64 bits.
                    let addresses = bytes(first)..bytes(first.saturating_add(pages));
                    zones.push(Zone { node, addresses });
                }
            }
            _ => {}
        }
    }
    zones
}

/// The node of a physical address; `None` where no zone has it, or zones of several nodes do.
fn node_at(zones: &[Zone], address: u64) -> Option<u32> {
    let mut nodes = zones
        .iter()
        .filter(|zone| zone.addresses.contains(&address))
        .map(|zone| zone.node);
    let node = nodes.next()?;
    nodes.all(|other| other == node).then_some(node)
}

/// Reads the two numbers of `FIRST-LAST`.
fn bounds(word: &str) -> Option<(u64, u64)> {
    let (first, last) = word.split_once('-')?;
    number(first).zip(number(last))
}

/// Physical addresses of the pages of a range, which the page tables of a process have as system memory, from `vms`.
///
/// # Errors
/// A page that no address space of the process shows as such.
fn pages(vms: &str, process: u32, range: Range<u64>) -> anyhow::Result<Vec<u64>> {
    let mut ours = false;
    let mut stretches = Vec::new();
    for line in vms.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["PASID", _, "pid", pid, ..] => ours = number(pid) == Some(process.into()),
            [addresses, "->", physical, "system", ..] if ours => {
                let stretch = bounds(addresses).zip(number(physical));
                stretches.extend(stretch);
            }
            _ => {}
        }
    }
    let physical = |at: u64| {
        let mut found = stretches.iter();
        let ((first, _), physical) =
            found.find(|((first, last), _)| (*first..=*last).contains(&at))?;
        Some(physical + (at - first))
    };
    range
        .step_by(PAGE)
        .map(|at| physical(at).with_context(|| format!("no page table of ours shows {at:#x}")))
        .collect()
}

/// Reads a list of processors, such as `0-3,8`.
fn list(text: &str) -> Option<Processors> {
    let mut found = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        found.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(found)
}

/// Processors as a list, for a reader.
fn text_of(processors: &[usize]) -> String {
    let words: Vec<String> = processors.iter().map(usize::to_string).collect();
    words.join(",")
}

/// The processors that the calling thread may run on.
fn allowed() -> Option<Processors> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let mut lines = status.lines();
    list(lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?)
}

/// The processors of a node.
fn processors_of(node: u32) -> anyhow::Result<Processors> {
    let path = format!("/sys/devices/system/node/node{node}/cpulist");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    list(&text).with_context(|| format!("{path} says {text:?}"))
}

/// The memory node of a PCI device; `None` where the system names none.
fn node_of(pci: &str) -> Option<u32> {
    let path = format!("/sys/bus/pci/devices/{pci}/numa_node");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Whether addresses in a device's page tables are physical ones: nothing translates between it and memory.
fn is_physical(pci: &str) -> bool {
    let group = Path::new("/sys/bus/pci/devices")
        .join(pci)
        .join("iommu_group");
    !group.exists()
        || fs::read_to_string(group.join("type")).is_ok_and(|is| is.trim() == "identity")
}

/// What workers note, and how many there are.
struct Notes {
    workers: usize,
    found: Mutex<BTreeMap<usize, Option<Processors>>>,
    all: Condvar,
}

impl Notes {
    /// Notes the processors of a worker, and keeps it until all have come, so that each of them has one task.
    fn note(&self, worker: usize) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.insert(worker, allowed());
        self.all.notify_all();
        let wait = self
            .all
            .wait_timeout_while(found, LIMIT, |found| found.len() < self.workers);
        drop(wait);
    }
}

/// The processors that each worker may run on, as they find them themselves.
fn workers(stage: &Stage, shape: Shape, near: bool) -> anyhow::Result<(Tasks, Vec<Processors>)> {
    let notes = Arc::new(Notes {
        workers: stage.workers,
        found: Mutex::default(),
        all: Condvar::new(),
    });
    let mut functions = Functions::new();
    let noted = notes.clone();
    functions.add(WHERE, "where", 0..=0, move |call| {
        noted.note(call.worker);
        Outcome::Done(0)
    })?;
    let options = TaskOptions {
        near,
        ..stage.options(shape)
    };
    let tasks = Tasks::start(options, functions)?;
    let asked: Vec<_> = (0..stage.workers)
        .map(|_| tasks.submit(&Task::new(WHERE, &[])))
        .collect::<Result<_, _>>()?;
    for future in asked {
        tasks.wait(future, 2 * LIMIT)?;
    }
    let found = std::mem::take(&mut *notes.found.lock().unwrap_or_else(PoisonError::into_inner));
    let found: Option<Vec<Processors>> = found.into_values().collect();
    match found {
        Some(found) if found.len() == stage.workers => Ok((tasks, found)),
        _ => bail!(
            "not each of {} workers has said where it runs",
            stage.workers
        ),
    }
}

/// Where the pages of an area are, and that it is their GPU's node.
fn memory(gpu: usize, node: u32, pci: &str, area: Range<u64>) -> anyhow::Result<String> {
    if !is_physical(pci) {
        return Ok("pages are behind an IOMMU".into());
    }
    let Ok(vms) = debugfs::read(pci, "vms") else {
        return Ok("pages are shown to root only".into());
    };
    let zones = zones(&fs::read_to_string("/proc/zoneinfo").context("/proc/zoneinfo")?);
    let mut counts: BTreeMap<Option<u32>, usize> = BTreeMap::new();
    let pages = pages(&vms, std::process::id(), area)?;
    for page in &pages {
        *counts.entry(node_at(&zones, *page)).or_default() += 1;
    }
    let here = counts.remove(&Some(node)).unwrap_or(0);
    if !counts.is_empty() {
        let places = counts.iter().map(|(other, count)| match other {
            Some(other) => format!("{count} on node {other}"),
            None => format!("{count} on a node that cannot be told"),
        });
        let places: Vec<String> = places.collect();
        bail!(
            "the area of GPU {gpu}, which is at node {node}, has {here} pages there, {}",
            places.join(", ")
        );
    }
    Ok(format!("{here} of {} pages on it", pages.len()))
}

/// Where the workers near a GPU may run, and that all of that is among the processors `near` it.
fn threads(
    gpu: usize,
    near: &[usize],
    workers: &[(usize, &Processors)],
    permitted: &[usize],
) -> anyhow::Result<String> {
    if !near.iter().any(|processor| permitted.contains(processor)) {
        return Ok("its processors are not for this program".into());
    }
    let mut told = Vec::new();
    for (worker, processors) in workers {
        if !processors.iter().all(|processor| near.contains(processor)) {
            bail!(
                "worker {worker}, which is near GPU {gpu}, may run on processors {}; those of its node are {}",
                text_of(processors),
                text_of(near)
            );
        }
        told.push(format!(
            "worker {worker} on its processors {}",
            text_of(processors)
        ));
    }
    if told.is_empty() {
        told.push("no worker".into());
    }
    Ok(told.join(", "))
}

/// Shows for each GPU its node, the nodes of the pages of its area, and the processors of its workers.
pub fn tell(stage: &Stage, near: bool) -> anyhow::Result<()> {
    heading("Near each GPU: the pages of its area, and its workers");
    let permitted = allowed().context("the processors of this thread")?;
    let (tasks, workers) = workers(stage, stage.shape, near)?;
    for (n, gpu) in stage.gpus.iter().enumerate() {
        let label = format!("GPU {n}");
        let pci = gpu.device.pci().map(|pci| pci.address.as_str());
        let Some((pci, node)) = pci.and_then(|pci| Some((pci, node_of(pci)?))) else {
            row(&label, "no node is known");
            continue;
        };
        let first = tasks.address(n);
        let area = first..first + stage.shape.bytes() as u64; // CAST: a size in memory.
        let its = workers.iter().enumerate();
        let its: Vec<_> = its
            .filter(|(worker, _)| worker % stage.gpus.len() == n)
            .collect();
        let memory = memory(n, node, pci, area)?;
        let threads = threads(n, &processors_of(node)?, &its, &permitted)?;
        row(
            &label,
            format!("node {}: {memory}; {threads}", style::good(node)),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONES: &str = "\
Node 0, zone      DMA
  pages free     3840
        spanned  4095
        present  3998
  start_pfn:           1
Node 0, zone    DMA32
        spanned  389120
  start_pfn:           4096
Node 0, zone   Normal
  pages free     0
        spanned  0
Node 1, zone    DMA32
        spanned  131072
  start_pfn:           393216
Node 1, zone   Normal
        spanned  262144
  start_pfn:           1048576
";

    #[test]
    fn zones_say_whose_an_address_is() {
        let found = zones(ZONES);
        assert_eq!(found.len(), 4);
        assert_eq!(
            found[0],
            Zone {
                node: 0,
                addresses: 0x1000..0x100_0000
            }
        );
        for (address, node) in [
            (0, None),
            (0x1000, Some(0)),
            (0x5fff_f000, Some(0)),
            (0x6000_0000, Some(1)),
            (0x7fff_ffff, Some(1)),
            (0x8000_0000, None),
            (0x1_0000_0000, Some(1)),
            (0x1_4000_0000, None),
        ] {
            assert_eq!(node_at(&found, address), node, "{address:#x}");
        }
        // What two nodes span is nobody's.
        let both = zones(&ZONES.replace("393216", "262144"));
        assert_eq!(node_at(&both, 0x4000_0000), None);
    }

    const VMS: &str = "\
PASID 33 pid 77 page table base 0x3feed001: 2 mappings, tables PTB 2 PDB0 1 PDB1 1 PDB2 1
0x000200000000-0x000200003fff System coherent
page table:
  0x000100000000-0x0001003fffff -> 0x000010000000 vram rw- Rw, 0 x 4K, 2 x 2M, 0 x 1G
  0x000200000000-0x000200001fff -> 0x0000aaaa0000 system snooped rw- Nc, 2 x 4K, 0 x 2M, 0 x 1G
  0x000200002000-0x000200003fff -> 0x0000bbbb0000 system snooped rw- Nc, 2 x 4K, 0 x 2M, 0 x 1G

PASID 34 pid 78 page table base 0x3feed001: 1 mappings, tables PTB 2 PDB0 1 PDB1 1 PDB2 1
page table:
  0x000200000000-0x000200003fff -> 0x0000cccc0000 system snooped rw- Nc, 4 x 4K, 0 x 2M, 0 x 1G
";

    #[test]
    fn pages_are_those_of_the_process() {
        let of = |process, range| pages(VMS, process, range);
        assert_eq!(
            of(77, 0x2_0000_0000..0x2_0000_3001).unwrap(),
            [0xaaaa_0000, 0xaaaa_1000, 0xbbbb_0000, 0xbbbb_1000]
        );
        assert_eq!(of(78, 0x2_0000_1000..0x2_0000_2000).unwrap(), [0xcccc_1000]);
        let error = of(77, 0x2_0000_3000..0x2_0000_5000).unwrap_err();
        assert!(error.to_string().contains("0x200004000"), "{error}");
        // VRAM is no memory of a node.
        assert!(of(77, 0x1_0000_0000..0x1_0000_1000).is_err());
        assert!(of(79, 0x2_0000_0000..0x2_0000_1000).is_err());
    }

    #[test]
    fn workers_elsewhere_are_noticed() {
        let tell = |processors: &[usize], permitted: &[usize]| {
            let processors = processors.to_vec();
            threads(1, &[2, 3], &[(7, &processors)], permitted)
        };
        let told = |processors: &[usize], permitted: &[usize]| tell(processors, permitted).unwrap();
        assert_eq!(
            told(&[2, 3], &[0, 1, 2, 3]),
            "worker 7 on its processors 2,3"
        );
        assert_eq!(told(&[3], &[3]), "worker 7 on its processors 3");
        for elsewhere in [&[0][..], &[0, 1, 2, 3], &[1, 2]] {
            let error = tell(elsewhere, &[0, 1, 2, 3]).unwrap_err().to_string();
            assert!(error.contains("worker 7, which is near GPU 1"), "{error}");
        }
        // Where the program may not run near it, nor may its workers.
        assert!(told(&[0, 1], &[0, 1]).contains("not for this program"));
    }

    #[test]
    fn lists_of_processors() {
        assert_eq!(list("0-2,8\n"), Some(vec![0, 1, 2, 8]));
        assert_eq!(list("\n"), Some(Vec::new()));
        assert_eq!(list("x"), None);
        assert!(!allowed().unwrap().is_empty());
    }
}
