// SPDX-License-Identifier: GPL-2.0

//! The directories of the topology.
//!
//! A change updates files in place: directories are added first, then the files that count them change,
//! then superfluous directories go, and the generation last. A reader that saw the same generation before
//! and after has read one state.

use super::{
    model::Node,
    text::File, //
};
use crate::kapi::kobject::{
    Directory,
    Parent,
    Text, //
};
use kernel::{
    device::Device,
    prelude::*,
    sync::Arc, //
};

const PROPERTIES: &CStr = c"properties";

/// A directory with nothing but `properties`.
struct Leaf {
    properties: Arc<Text>,
    _directory: Directory,
}

/// Numbered leaves in a directory.
struct List {
    // Dropped first.
    leaves: KVec<Leaf>,
    directory: Directory,
}

impl List {
    fn new(parent: &Directory, name: &str) -> Result<Self> {
        Ok(Self {
            leaves: KVec::new(),
            directory: Directory::new(Parent::Directory(parent), fmt!("{}", name), &[])?,
        })
    }

    /// Sets the leaves that are there and adds those that are missing.
    fn extend(&mut self, files: KVec<File>) -> Result {
        for (index, file) in files.into_iter().enumerate() {
            if let Some(leaf) = self.leaves.get(index) {
                leaf.properties.set(file);
            } else {
                self.leaves.reserve(1, GFP_KERNEL)?;
                let properties = Text::new(file)?;
                let directory = Directory::new(
                    Parent::Directory(&self.directory),
                    fmt!("{}", index),
                    &[(PROPERTIES, properties.clone())],
                )?;
                self.leaves
                    .push_within_capacity(Leaf {
                        properties,
                        _directory: directory,
                    })
                    .map_err(|_| ENOMEM)?;
            }
        }
        Ok(())
    }

    fn truncate(&mut self, len: usize) {
        self.leaves.truncate(len);
    }
}

/// A directory under `nodes`.
struct NodeDirectory {
    gpu_id: Arc<Text>,
    name: Arc<Text>,
    properties: Arc<Text>,
    mem_banks: List,
    caches: List,
    io_links: List,
    p2p_links: List,
    _perf: Directory,
    // Dropped last.
    _directory: Directory,
}

impl NodeDirectory {
    fn new(parent: &Directory, index: usize) -> Result<Self> {
        let gpu_id = Text::new(KVVec::new())?;
        let name = Text::new(KVVec::new())?;
        let properties = Text::new(KVVec::new())?;
        let directory = Directory::new(
            Parent::Directory(parent),
            fmt!("{}", index),
            &[
                (c"gpu_id", gpu_id.clone()),
                (c"name", name.clone()),
                (PROPERTIES, properties.clone()),
            ],
        )?;
        Ok(Self {
            gpu_id,
            name,
            properties,
            mem_banks: List::new(&directory, "mem_banks")?,
            caches: List::new(&directory, "caches")?,
            io_links: List::new(&directory, "io_links")?,
            p2p_links: List::new(&directory, "p2p_links")?,
            _perf: Directory::new(Parent::Directory(&directory), fmt!("perf"), &[])?,
            _directory: directory,
        })
    }

    fn update(&mut self, node: Node) -> Result {
        let lengths = [
            node.mem_banks.len(),
            node.caches.len(),
            node.io_links.len(),
            node.p2p_links.len(),
        ];
        self.mem_banks.extend(node.mem_banks)?;
        self.caches.extend(node.caches)?;
        self.io_links.extend(node.io_links)?;
        self.p2p_links.extend(node.p2p_links)?;
        self.gpu_id.set(node.gpu_id);
        self.name.set(node.name);
        self.properties.set(node.properties);
        let lists = [
            &mut self.mem_banks,
            &mut self.caches,
            &mut self.io_links,
            &mut self.p2p_links,
        ];
        for (list, len) in lists.into_iter().zip(lengths) {
            list.truncate(len);
        }
        Ok(())
    }
}

/// The `topology` directory.
pub(super) struct Tree {
    generation: u32,
    generation_text: Arc<Text>,
    // From the leaves to the root: dropped in this order.
    nodes: KVec<NodeDirectory>,
    nodes_directory: Directory,
    _root: Directory,
}

impl Tree {
    /// Makes the directory under `parent`, without nodes.
    ///
    /// # Errors
    ///
    /// What sysfs reports.
    pub(super) fn new(parent: &Device, system_properties: File) -> Result<Self> {
        let generation = 1;
        let generation_text = Text::new(super::model::number(generation)?)?;
        let root = Directory::new(
            Parent::Device(parent),
            fmt!("topology"),
            &[
                (c"generation_id", generation_text.clone()),
                (c"system_properties", Text::new(system_properties)?),
            ],
        )?;
        let nodes_directory = Directory::new(Parent::Directory(&root), fmt!("nodes"), &[])?;
        Ok(Self {
            generation,
            generation_text,
            nodes: KVec::new(),
            nodes_directory,
            _root: root,
        })
    }

    /// Makes `nodes` the content of the tree.
    ///
    /// # Errors
    ///
    /// What sysfs reports. The tree may then lack the last nodes.
    pub(super) fn update(&mut self, nodes: KVec<Node>) -> Result {
        let len = nodes.len();
        let result = self.fill(nodes);
        self.nodes.truncate(len);
        self.generation = self.generation.wrapping_add(1);
        self.generation_text
            .set(super::model::number(self.generation)?);
        result
    }

    fn fill(&mut self, nodes: KVec<Node>) -> Result {
        for (index, node) in nodes.into_iter().enumerate() {
            if index == self.nodes.len() {
                let directory = NodeDirectory::new(&self.nodes_directory, index)?;
                self.nodes.push(directory, GFP_KERNEL)?;
            }
            self.nodes.get_mut(index).ok_or(EINVAL)?.update(node)?;
        }
        Ok(())
    }

    /// Number of nodes.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
}
