// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `rkfdctl mem walk`: the page-table entries that lead to a GPU address, twice.
//!
//! The driver shows each entry as it has written it (`walk` in debugfs). The device model walks the tables that lie in the
//! GPU's memory by itself, from the root that its registers have. A card of silicon does not: there is the first part only.

use std::fs;
use std::process::ExitCode;

use anyhow::bail;
use anyhow::Context;
use serde::Serialize;
use serde_json::json;
use serde_json::Value;

use super::spaces;
use crate::control::Control;
use crate::debugfs;
use crate::debugfs::number;
use crate::debugfs::value;
use crate::style;

/// Both read the tables one after the other, and others may change them in between: so often they are read anew.
const ATTEMPTS: usize = 5;
/// Address spaces that hardware knows at a time; the first is the driver's own.
const VMIDS: std::ops::Range<u8> = 1..16;

#[derive(clap::Args)]
pub struct Options {
    /// GPU, counted from 0
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// The address space
    #[arg(long, required_unless_present = "pid")]
    pasid: Option<u32>,
    /// The address space of this process, if it has one on the GPU
    #[arg(long, conflicts_with = "pasid")]
    pid: Option<u32>,
    /// GPU address, in hexadecimal behind 0x
    #[arg(value_parser = address)]
    address: u64,
    /// Both walks as JSON
    #[arg(long)]
    json: bool,
}

fn address(text: &str) -> Result<u64, String> {
    match number(text) {
        Some(address) if text.starts_with("0x") => Ok(address),
        _ => Err("an address is hexadecimal, such as 0x7f0000000000".to_owned()),
    }
}

/// A page that a walk ends at.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Page {
    /// As an entry has it: of VRAM with the offset of the frame buffer.
    address: u64,
    bytes: u64,
    vram: bool,
    /// `rwx`, with `-` for what is not allowed.
    rights: String,
}

/// An entry as the driver has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Step {
    level: String,
    /// Where its table is.
    table: u64,
    index: u64,
    entry: u64,
    /// What it says, in words.
    says: String,
}

/// The driver's walk.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Driver {
    root: u64,
    steps: Vec<Step>,
    page: Option<Page>,
    /// The range that holds the address, and what it shows.
    buffer: Option<String>,
}

/// The model's walk.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Model {
    vmid: u8,
    root: u64,
    /// Entries of directories, from the root down.
    directories: Vec<u64>,
    page: Option<Page>,
    /// Byte of the VRAM where the page begins, if it is there.
    vram_offset: Option<u64>,
    /// Difference between that and the address in entries.
    fb_offset: u64,
    /// What it found, in its own words.
    found: String,
}

/// What `rkfdctl mem walk --json` prints.
#[derive(Debug, Serialize)]
struct Report {
    pasid: u32,
    address: u64,
    driver: Driver,
    /// `None`: there is no model, or the address space is not on the hardware.
    model: Option<Model>,
    agree: Option<bool>,
}

pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let gpus = super::addresses()?;
    let pci = gpus
        .get(options.gpu)
        .with_context(|| format!("the driver serves {} GPUs, counted from 0", gpus.len()))?;
    let pasid = match options.pasid {
        Some(pasid) => pasid,
        None => pasid_of(pci, options.pid)?,
    };
    let mut report = look(pci, pasid, options.address)?;
    for _ in 1..ATTEMPTS {
        if report.agree != Some(false) {
            break;
        }
        report = look(pci, pasid, options.address)?;
    }
    if options.json {
        anstream::println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok(match report.agree {
        Some(false) => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

/// The one address space of a process.
fn pasid_of(pci: &str, pid: Option<u32>) -> anyhow::Result<u32> {
    let spaces = spaces::parse(&debugfs::read(pci, "vms")?);
    let mut own = spaces.iter().filter(|space| space.pid == pid);
    match (own.next(), own.next()) {
        (Some(space), None) => Ok(space.pasid),
        (None, _) => bail!("the process has no address space on this GPU"),
        (Some(first), Some(second)) => bail!(
            "the process has several address spaces, PASID {} and {} among them: name one by --pasid",
            first.pasid,
            second.pasid
        ),
    }
}

/// Walks twice.
fn look(pci: &str, pasid: u32, address: u64) -> anyhow::Result<Report> {
    let driver = ask_driver(pci, pasid, address)?;
    let model = match Control::of_pci(pci)? {
        Some(mut control) => ask_model(&mut control, pasid, address)?,
        None => None,
    };
    let agree = model.as_ref().map(|model| agree(&driver, model));
    Ok(Report {
        pasid,
        address,
        driver,
        model,
        agree,
    })
}

/// Whether the model has read what the driver has written.
fn agree(driver: &Driver, model: &Model) -> bool {
    let directories = driver.steps.iter().map(|step| step.entry);
    // The last entry of the driver's is a page's, or leads to nothing; the model has those above it.
    let above = driver.steps.len().saturating_sub(1);
    let same = directories
        .take(above)
        .eq(model.directories.iter().copied());
    same && driver.root == model.root && driver.page == model.page
}

fn ask_driver(pci: &str, pasid: u32, address: u64) -> anyhow::Result<Driver> {
    let path = debugfs::directory(pci).join("walk");
    let name = || format!("{} (debugfs must be mounted; root only)", path.display());
    for _ in 0..ATTEMPTS {
        fs::write(&path, format!("{pasid} {address:#x}\n")).with_context(name)?;
        let text = fs::read_to_string(&path).with_context(name)?;
        // Another one may have asked in between.
        if let Some(found) = parse(&text, pasid, address)? {
            return Ok(found);
        }
    }
    bail!("others ask the driver all the time");
}

/// Reads the answer of `walk`; `None` if it is to another question.
fn parse(text: &str, pasid: u32, address: u64) -> anyhow::Result<Option<Driver>> {
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap_or("").split_whitespace().collect();
    if value(&head, "PASID") != Some(pasid.into()) || value(&head, "address") != Some(address) {
        return Ok(None);
    }
    let root = value(&head, "base").with_context(|| format!("no open file has PASID {pasid}"))?;
    let mut driver = Driver {
        root,
        steps: Vec::new(),
        page: None,
        buffer: None,
    };
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let entry = value(&words, "entry").zip(words.iter().position(|word| *word == "entry"));
        let Some((entry, at)) = entry else {
            driver.buffer = (line != "no buffer").then(|| line.to_owned());
            continue;
        };
        let says = words.get(at + 2..).unwrap_or_default();
        let step = || {
            Some(Step {
                level: (*words.first()?).to_owned(),
                table: value(&words, "table")?,
                index: value(&words, "index")?,
                entry,
                says: says.join(" "),
            })
        };
        driver
            .steps
            .push(step().with_context(|| format!("the driver wrote {line:?}"))?);
        driver.page = page(says);
    }
    Ok(Some(driver))
}

/// Reads `to page ADDRESS of BYTES bytes vram rw- …`.
fn page(says: &[&str]) -> Option<Page> {
    let ["to", "page", address, "of", bytes, "bytes", memory, rest @ ..] = says else {
        return None;
    };
    let rights = rest.iter().find(|word| **word != "snooped")?;
    Some(Page {
        address: number(address)?,
        bytes: number(bytes)?,
        vram: *memory == "vram",
        rights: (*rights).to_owned(),
    })
}

/// Finds the VMID that an address space has at present, and walks there; `None` where it has none.
fn ask_model(control: &mut Control, pasid: u32, address: u64) -> anyhow::Result<Option<Model>> {
    for vmid in VMIDS {
        let answer = control.request(&json!({ "cmd": "vm", "vmid": vmid, "va": address }))?;
        let hubs = answer["hubs"]
            .as_array()
            .context("the model names no hubs")?;
        let hub = hubs
            .iter()
            .find(|hub| hub["pasid"] == json!(pasid) && hub["enabled"] == json!(true));
        if let Some(hub) = hub {
            return model(vmid, hub).map(Some);
        }
    }
    Ok(None)
}

/// Reads what a hub of the model has found.
fn model(vmid: u8, hub: &Value) -> anyhow::Result<Model> {
    let root = hub["root"].as_str().and_then(number);
    let directories: Option<Vec<u64>> = hub["directories"]
        .as_array()
        .and_then(|entries| entries.iter().map(Value::as_u64).collect());
    let fb_offset = hub["fb_offset"].as_u64().context("no offset of VRAM")?;
    let page = match hub["page"]["address"].as_u64() {
        None => None,
        Some(address) => {
            let vram = hub["page"]["memory"] == json!("vram");
            Some(Page {
                address: address.wrapping_add(if vram { fb_offset } else { 0 }),
                bytes: hub["page"]["bytes"].as_u64().context("no size of a page")?,
                vram,
                rights: hub["page"]["rights"].as_str().unwrap_or("").to_owned(),
            })
        }
    };
    Ok(Model {
        vmid,
        root: root.context("the model names no root")?,
        directories: directories.context("the model names no entries")?,
        vram_offset: page
            .as_ref()
            .filter(|page| page.vram)
            .map(|page| page.address.wrapping_sub(fb_offset)),
        fb_offset,
        page,
        found: hub["walk"].as_str().unwrap_or("").to_owned(),
    })
}

fn print(report: &Report) {
    let driver = &report.driver;
    anstream::println!(
        "{}",
        style::head(format!(
            "PASID {}, address {:#x}, page table base {:#x}",
            report.pasid, report.address, driver.root
        ))
    );
    for step in &driver.steps {
        anstream::println!(
            "  {:<4}  {:#014x} [{:>3}]  {:#018x}  {}",
            step.level,
            step.table,
            step.index,
            step.entry,
            step.says
        );
    }
    anstream::println!("  {}", driver.buffer.as_deref().unwrap_or("no buffer"));
    match &report.model {
        None => anstream::println!(
            "{}",
            style::dim("No walk of the device model: there is none, or the address space has no queue on the hardware.")
        ),
        Some(model) => {
            let verdict = match report.agree {
                Some(true) => style::good("agrees"),
                _ => style::bad("differs"),
            };
            anstream::println!("The device model, VMID {}, {verdict}: {}", model.vmid, model.found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "\
PASID 33 address 0x100001000 page table base 0x3feed001
PDB2 table 0x00003feed000 index 0   entry 0x000000003fee0001 to table 0x00003fee0000
PTB  table 0x00003fee0000 index 1   entry 0x0000000000005061 to page 0x000000005000 of 0x1000 bytes vram rw- Rw fragment 0
0x000100000000-0x000100001fff Vram from byte 0x1000 in 1 pieces
";

    fn both() -> (Driver, Model) {
        let driver = parse(ANSWER, 33, 0x1_0000_1000).unwrap().unwrap();
        let hub = json!({
            "root": "0x3feed001", "directories": [0x3fee_0001u64], "fb_offset": 0x1000u64, "walk": "Ok(..)",
            "page": { "memory": "vram", "address": 0x4000u64, "bytes": 0x1000u64, "rights": "rw-" },
        });
        (driver, model(3, &hub).unwrap())
    }

    #[test]
    fn the_answer_of_the_driver_is_read() {
        let (driver, _) = both();
        assert_eq!(driver.root, 0x3fee_d001);
        let levels: Vec<(&str, u64)> = driver
            .steps
            .iter()
            .map(|step| (step.level.as_str(), step.index))
            .collect();
        assert_eq!(levels, [("PDB2", 0), ("PTB", 1)]);
        assert_eq!(
            driver.page,
            Some(Page {
                address: 0x5000,
                bytes: 0x1000,
                vram: true,
                rights: "rw-".into()
            })
        );
        assert!(driver.buffer.unwrap().contains("from byte 0x1000"));
        // To another question, and to one about nobody.
        assert_eq!(parse(ANSWER, 34, 0x1_0000_1000).unwrap(), None);
        assert!(parse("PASID 9 address 0x0 of no open file\n", 9, 0).is_err());
    }

    #[test]
    fn any_difference_is_one() {
        let (driver, model) = both();
        assert!(agree(&driver, &model));
        let other = Model {
            root: 0,
            ..model.clone()
        };
        assert!(!agree(&driver, &other));
        let other = Model {
            directories: vec![0x3fee_1001],
            ..model.clone()
        };
        assert!(!agree(&driver, &other));
        let other = Model {
            page: None,
            ..model
        };
        assert!(!agree(&driver, &other));
    }
}
