// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The topology that the driver publishes in sysfs.
//!
//! Files hold `key value` lines; unknown keys are kept, missing keys read as nothing. A generation number brackets a
//! snapshot: if it changed between the first and the last read, the snapshot is taken again.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use crate::error::Error;
use crate::error::Result;

/// Where the kernel puts it.
pub const ROOT: &str = "/sys/devices/virtual/kfd/kfd/topology";

const ATTEMPTS: u32 = 16;

/// The `key value` lines of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties(BTreeMap<String, u64>);

impl Properties {
    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<u64> {
        self.0.get(key).copied()
    }

    /// The value of `key` where it fits 32 bits.
    pub fn get_u32(&self, key: &str) -> Option<u32> {
        self.get(key).and_then(|v| u32::try_from(v).ok())
    }

    /// All pairs, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(k, v)| (k.as_str(), *v))
    }

    /// Reads `key value` lines. The comma list of `sibling_map` is not a number and is left out.
    ///
    /// # Errors
    /// The offending line, where one is neither.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let mut map = BTreeMap::new();
        for line in text.lines().filter(|l| !l.trim().is_empty()) {
            let (key, value) = line.split_once(' ').ok_or_else(|| line.to_owned())?;
            if key == "sibling_map" {
                continue;
            }
            map.insert(
                key.to_owned(),
                value.trim().parse().map_err(|_| line.to_owned())?,
            );
        }
        Ok(Self(map))
    }
}

/// One node: a CPU or a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its number in the topology.
    pub index: u32,
    /// The GPU's id, 0 for a CPU.
    pub gpu_id: u32,
    /// The ASIC's name, empty for a CPU.
    pub name: String,
    /// `properties`.
    pub properties: Properties,
    /// `mem_banks/*/properties`.
    pub mem_banks: Vec<Properties>,
    /// `caches/*/properties`.
    pub caches: Vec<Properties>,
    /// `io_links/*/properties`.
    pub io_links: Vec<Properties>,
}

/// A consistent snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The generation it was taken at.
    pub generation: u64,
    /// The nodes, by number.
    pub nodes: Vec<Node>,
}

impl Topology {
    /// Takes a snapshot of the running system, or `None` where the driver publishes no topology.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Topology`], [`Error::TopologyUnstable`].
    pub fn read() -> Result<Option<Self>> {
        Self::read_from(Path::new(ROOT))
    }

    /// As [`Topology::read`], below another directory.
    ///
    /// # Errors
    /// As [`Topology::read`].
    pub fn read_from(root: &Path) -> Result<Option<Self>> {
        if !root.is_dir() {
            return Ok(None);
        }
        for _ in 0..ATTEMPTS {
            let before = generation(root)?;
            let nodes = match nodes(root) {
                Ok(nodes) => nodes,
                // A node that went away while it was read; the generation tells.
                Err(Error::File { source, .. })
                    if source.kind() == io::ErrorKind::NotFound && generation(root)? != before =>
                {
                    continue
                }
                Err(e) => return Err(e),
            };
            if generation(root)? == before {
                return Ok(Some(Self {
                    generation: before,
                    nodes,
                }));
            }
        }
        Err(Error::TopologyUnstable)
    }

    /// The node of a GPU.
    pub fn gpu(&self, gpu_id: u32) -> Option<&Node> {
        self.nodes
            .iter()
            .find(|n| gpu_id != 0 && n.gpu_id == gpu_id)
    }
}

fn text(path: PathBuf) -> Result<String> {
    fs::read_to_string(&path).map_err(Error::file(path))
}

fn number(path: PathBuf) -> Result<u64> {
    let t = text(path.clone())?;
    t.trim()
        .parse()
        .map_err(|_| Error::Topology { path, line: t })
}

fn generation(root: &Path) -> Result<u64> {
    number(root.join("generation_id"))
}

fn properties(path: PathBuf) -> Result<Properties> {
    Properties::parse(&text(path.clone())?).map_err(|line| Error::Topology { path, line })
}

/// The numbered subdirectories of `dir` in order; none where it does not exist.
fn numbered(dir: &Path) -> Result<Vec<(u32, PathBuf)>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::file(dir)(e)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Error::file(dir))?;
        if let Some(n) = entry.file_name().to_str().and_then(|s| s.parse().ok()) {
            found.push((n, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

fn all_properties(dir: &Path) -> Result<Vec<Properties>> {
    numbered(dir)?
        .into_iter()
        .map(|(_, p)| properties(p.join("properties")))
        .collect()
}

fn nodes(root: &Path) -> Result<Vec<Node>> {
    let mut nodes = Vec::new();
    for (index, dir) in numbered(&root.join("nodes"))? {
        let path = dir.join("gpu_id");
        let gpu_id = number(path.clone())?;
        nodes.push(Node {
            index,
            gpu_id: u32::try_from(gpu_id).map_err(|_| Error::Topology {
                path,
                line: gpu_id.to_string(),
            })?,
            name: text(dir.join("name"))?.trim().to_owned(),
            properties: properties(dir.join("properties"))?,
            mem_banks: all_properties(&dir.join("mem_banks"))?,
            caches: all_properties(&dir.join("caches"))?,
            io_links: all_properties(&dir.join("io_links"))?,
        });
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn put(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn sample(root: &Path) {
        put(root.join("generation_id"), "2\n");
        for (n, id, name, props) in [
            (0, "0", "", "cpu_cores_count 2\n"),
            (1, "4660", "aldebaran", "simd_count 416\n"),
        ] {
            let dir = root.join(format!("nodes/{n}"));
            put(dir.join("gpu_id"), &format!("{id}\n"));
            put(dir.join("name"), &format!("{name}\n"));
            put(dir.join("properties"), props);
            put(
                dir.join("mem_banks/0/properties"),
                "heap_type 1\nsize_in_bytes 1073741824\n",
            );
            put(
                dir.join("caches/0/properties"),
                "level 1\ntype 9\nsibling_map 1,0,1\n",
            );
        }
    }

    #[test]
    fn reads_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        sample(dir.path());
        let t = Topology::read_from(dir.path()).unwrap().unwrap();
        assert_eq!((t.generation, t.nodes.len()), (2, 2));
        let gpu = t.gpu(0x1234).unwrap();
        assert_eq!((gpu.index, gpu.name.as_str()), (1, "aldebaran"));
        assert_eq!(gpu.properties.get("simd_count"), Some(416));
        assert_eq!(gpu.mem_banks[0].get("size_in_bytes"), Some(1 << 30));
        assert_eq!(gpu.caches[0].get("type"), Some(9));
        assert_eq!(gpu.caches[0].get("sibling_map"), None);
        assert!(t.gpu(0).is_none(), "a CPU is no GPU");
    }

    #[test]
    fn absent_is_not_an_error() {
        assert_eq!(
            Topology::read_from(Path::new("/nonexistent/topology")).unwrap(),
            None
        );
    }

    #[test]
    fn nonsense_is_an_error_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        sample(dir.path());
        put(
            dir.path().join("nodes/1/properties"),
            "simd_count 416\nlds_size_in_kb many\n",
        );
        match Topology::read_from(dir.path()) {
            Err(Error::Topology { line, .. }) => assert_eq!(line, "lds_size_in_kb many"),
            other => panic!("{other:?}"),
        }
    }

    proptest! {
        #[test]
        fn properties_survive_a_round_trip(map in prop::collection::btree_map("[a-z][a-z0-9_]{0,20}", any::<u64>(), 0..20)) {
            prop_assume!(!map.contains_key("sibling_map"));
            let lines: Vec<String> = map.iter().map(|(k, v)| format!("{k} {v}\n")).collect();
            let text = lines.concat();
            prop_assert_eq!(Properties::parse(&text).unwrap().0, map);
        }
    }
}
