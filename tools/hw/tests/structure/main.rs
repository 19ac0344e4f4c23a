// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The structure of the driver: its files use each other in one direction only, and layers know only those
//! below them.
//!
//! An arrow goes from a file that names something to the file that defines it, through whatever re-exports.
//! A parent that lists and re-exports its children has no arrow to them by that. Methods that a file adds to a
//! type of another one are not seen where they are called, for that takes types.

mod graph;
// A file that is not there or is no Rust fails the test at once.
#[cfg(test)]
mod tree;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use graph::circles;
use proptest::prelude::*;
use tree::{Sources, Tree};

/// The driver's source tree.
fn driver() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rust")
}

/// Files in a folder.
struct Folder(PathBuf);

impl Sources for Folder {
    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.0.join(path)).ok()
    }
}

/// Files in memory.
struct Files(BTreeMap<String, String>);

impl Sources for Files {
    fn text(&self, path: &str) -> Option<String> {
        self.0.get(path).cloned()
    }
}

fn files(list: &[(&str, &str)]) -> Files {
    let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
    Files(list.iter().map(owned).collect())
}

/// Arrows of the crate whose root is `lib.rs`, each as `from > to`.
fn arrows(sources: &Files) -> Vec<String> {
    let arrows = Tree::read(sources, "lib.rs").arrows();
    arrows.iter().map(|(a, b)| format!("{a} > {b}")).collect()
}

/// Layers, from below; those in one line know nothing of each other.
const LAYERS: &[&[&str]] = &[
    &["bindings"],
    &["hw", "kapi"],
    &["trace"],
    &["gpu"],
    &["vm", "sched"],
    &["queue", "event", "mirror"],
    &["kfd", "drm"],
    &["driver"],
];

/// The layer that a file belongs to, and how high that lies. The root is above all.
fn layer(file: &str) -> Option<(usize, &str)> {
    let name = file.split('/').next()?.trim_end_matches(".rs");
    let height = LAYERS.iter().position(|line| line.contains(&name))?;
    Some((height, name))
}

fn against_the_layers(arrows: &BTreeSet<(String, String)>) -> BTreeSet<(String, String)> {
    let wrong = |(from, to): &&(String, String)| match (layer(from), layer(to)) {
        (Some((from, one)), Some((to, other))) => to >= from && one != other,
        // Nobody uses the root but by what it declares.
        (Some(_), None) => true,
        (None, _) => false,
    };
    arrows.iter().filter(wrong).cloned().collect()
}

#[test]
fn files_of_the_driver_form_no_circle() {
    let tree = Tree::read(&Folder(driver()), "rkfd.rs");
    assert!(tree.files().len() > 100, "the tree was not read");
    let found = circles(&tree.arrows());
    assert!(found.is_empty(), "circles of imports: {found:#?}");
}

#[test]
fn layers_of_the_driver_know_only_those_below() {
    let found = against_the_layers(&Tree::read(&Folder(driver()), "rkfd.rs").arrows());
    assert!(found.is_empty(), "arrows against the layers: {found:#?}");
}

#[test]
fn every_file_has_a_layer() {
    let tree = Tree::read(&Folder(driver()), "rkfd.rs");
    let without: Vec<_> = tree
        .files()
        .into_iter()
        .filter(|file| file != "rkfd.rs" && layer(file).is_none())
        .collect();
    assert!(without.is_empty(), "{without:?}");
}

#[test]
fn arrow_against_the_layers_is_found() {
    let sources = files(&[
        ("lib.rs", "mod gpu; mod sched; mod vm; mod kfd;"),
        ("gpu.rs", "fn f() { crate::sched::run(); }"),
        ("sched.rs", "use crate::gpu::f; fn run() {}"),
        ("vm.rs", "use crate::{gpu::f, sched::run};"),
        ("kfd.rs", "use crate::{gpu::f, sched::run, vm::x};"),
    ]);
    let found = against_the_layers(&Tree::read(&sources, "lib.rs").arrows());
    let found: Vec<_> = found
        .iter()
        .map(|(a, b)| (a.as_str(), b.as_str()))
        .collect();
    assert_eq!(found, [("gpu.rs", "sched.rs"), ("vm.rs", "sched.rs")]);
}

#[test]
fn name_that_a_parent_reexports_is_of_the_file_that_defines_it() {
    let sources = files(&[
        ("lib.rs", "mod a;"),
        ("a.rs", "mod b; mod c; pub(crate) use self::{b::B, c::C};"),
        ("a/b.rs", "use super::C; pub(crate) struct B(C);"),
        ("a/c.rs", "use crate::a::B; pub(crate) struct C(B);"),
    ]);
    assert_eq!(arrows(&sources), ["a/b.rs > a/c.rs", "a/c.rs > a/b.rs"]);
    let found = circles(&Tree::read(&sources, "lib.rs").arrows());
    assert_eq!(
        found,
        [vec!["a/b.rs".to_owned(), "a/c.rs".to_owned()]].into()
    );
}

#[test]
fn parent_that_uses_its_child_closes_a_circle() {
    let sources = files(&[
        ("lib.rs", "mod a;"),
        ("a.rs", "mod b; use b::B; pub(crate) struct A(B);"),
        ("a/b.rs", "pub(crate) struct B; fn f(_: &super::A) {}"),
    ]);
    assert_eq!(arrows(&sources), ["a.rs > a/b.rs", "a/b.rs > a.rs"]);
}

#[test]
fn paths_are_found_wherever_they_stand() {
    let sources = files(&[
        ("lib.rs", "mod a; mod b; mod c; mod d; mod e; mod f; mod g;"),
        ("a.rs", "use crate::b; fn f() -> u32 { b::x() }"),
        (
            "b.rs",
            "pub fn x() -> u32 { 0 } fn y() { say!(\"{}\", crate::c::Z, [crate::d::Z]); }",
        ),
        ("c.rs", "pub const Z: u32 = crate::d::Z;"),
        ("d.rs", "pub const Z: u32 = 0; impl crate::e::T for u8 {}"),
        (
            "e.rs",
            "pub trait T {} fn inner() { use crate::f::*; let _ = W; }",
        ),
        (
            "f.rs",
            "pub struct W; pub(in crate::a) fn v() {} #[cfg(rkfd_kunit)] mod test;",
        ),
        (
            "g.rs",
            "use crate::a; use crate::f as other; use kernel::prelude::*; type V = other::W;",
        ),
    ]);
    let expected = [
        "a.rs > b.rs",
        "b.rs > c.rs",
        "b.rs > d.rs",
        "c.rs > d.rs",
        "d.rs > e.rs",
        "e.rs > f.rs",
        "g.rs > f.rs",
    ];
    assert_eq!(arrows(&sources), expected);
}

/// How many modules the generated crates have.
const MODULES: usize = 8;

/// A crate of modules that use each other as `uses` says.
fn generated(uses: &BTreeSet<(usize, usize)>) -> Files {
    let mut files = BTreeMap::new();
    let list: Vec<_> = (0..MODULES).map(|n| format!("mod m{n};\n")).collect();
    files.insert("lib.rs".to_owned(), list.concat());
    for n in 0..MODULES {
        let of = uses.iter().filter(|(from, _)| *from == n);
        let code: String = of
            .map(|(_, to)| match (n + to) % 3 {
                0 => format!("use crate::m{to}::X as X{to};\n"),
                1 => format!("fn f{to}() {{ super::m{to}::g() }}\n"),
                _ => format!("use crate::m{to}; const C{to}: u32 = m{to}::D;\n"),
            })
            .collect();
        let defined = "pub struct X; pub fn g() {} pub const D: u32 = 0;\n";
        files.insert(format!("m{n}.rs"), code + defined);
    }
    Files(files)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn planted_circle_is_found(
        uses in proptest::collection::btree_set((0..MODULES, 0..MODULES), 0..20),
        way in proptest::sample::subsequence((0..MODULES).collect::<Vec<_>>(), 2..=MODULES),
    ) {
        // Downwards only: no circle.
        let mut uses: BTreeSet<_> = uses.into_iter().filter(|(from, to)| from > to).collect();
        let found = circles(&Tree::read(&generated(&uses), "lib.rs").arrows());
        prop_assert_eq!(found, BTreeSet::new());
        // A way down, and its end leads back to its beginning.
        uses.extend(way.windows(2).map(|pair| (pair[1], pair[0])));
        uses.insert((way[0], way[way.len() - 1]));
        let found = circles(&Tree::read(&generated(&uses), "lib.rs").arrows());
        prop_assert_eq!(found.len(), 1);
        for module in way {
            let file = format!("m{module}.rs");
            prop_assert!(found.iter().all(|circle| circle.contains(&file)));
        }
    }
}
