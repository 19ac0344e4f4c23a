// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Which suites a change can affect: `make test CHANGED=1`.
//!
//! The map is `tests/areas.toml`, from paths to the names of suites. It is meant for a quick answer while working; what
//! is only affected by several layers in between is found by the whole of `make test`.

use anyhow::Context;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Where the map is, from the top of the checkout.
pub const FILE: &str = "tests/areas.toml";

/// Files that belong together.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Area {
    /// Starts of their paths, from the top of the checkout. A `*` at the end stands for the name that follows, without
    /// its folders and its extension.
    pub paths: Vec<String>,
    /// Parts of names of suites, as `--filter` takes them; a `*` is that name.
    pub suites: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Map {
    area: Vec<Area>,
}

/// The areas of a checkout.
///
/// # Errors
/// A file that cannot be read or is not of the form.
pub fn load(top: &Path) -> anyhow::Result<Vec<Area>> {
    let path = top.join(FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let map: Map = toml::from_str(&text).with_context(|| format!("in {}", path.display()))?;
    Ok(map.area)
}

impl Area {
    /// The suites for a file, if it is one of this area, and how much of its path says so.
    fn suites_of(&self, file: &str) -> Option<(usize, Vec<String>)> {
        let fits = |path: &String| match path.strip_suffix('*') {
            Some(start) => {
                let name = file.strip_prefix(start)?;
                let name = name.split(['/', '.']).next().unwrap_or(name);
                Some((start.len(), name))
            }
            None => file.starts_with(path.as_str()).then_some((path.len(), "")),
        };
        let (length, name) = self.paths.iter().filter_map(fits).max()?;
        let suites = self.suites.iter().map(|suite| suite.replace('*', name));
        Some((length, suites.collect()))
    }
}

/// The suites that changes of the files can affect: for each file those of the area that names most of its path.
///
/// # Errors
/// A file of no area.
pub fn affected<'a>(
    areas: &[Area],
    files: impl IntoIterator<Item = &'a str>,
) -> anyhow::Result<BTreeSet<String>> {
    let mut suites = BTreeSet::new();
    for file in files {
        let (_, found) = areas
            .iter()
            .filter_map(|area| area.suites_of(file))
            .max_by_key(|(length, _)| *length)
            .with_context(|| format!("{file} is in no area of {FILE}"))?;
        suites.extend(found);
    }
    Ok(suites)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn areas() -> Vec<Area> {
        let area = |paths: &[&str], suites: &[&str]| Area {
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            suites: suites.iter().map(|suite| (*suite).to_owned()).collect(),
        };
        vec![
            area(&["rust/", "include/"], &["kunit"]),
            area(&["rust/hw/", "rust/hw.rs"], &["rkfd_hw"]),
            area(&["tests/e2e/*", "tools/conformance/*"], &["e2e/*"]),
            area(&["Documentation/"], &[]),
        ]
    }

    fn found(files: &[&str]) -> Vec<String> {
        let suites = affected(&areas(), files.iter().copied()).unwrap();
        suites.into_iter().collect()
    }

    #[test]
    fn the_closest_area_counts() {
        assert_eq!(found(&["rust/vm.rs"]), ["kunit"]);
        assert_eq!(found(&["rust/hw/pm4/decode.rs"]), ["rkfd_hw"]);
        assert_eq!(found(&["rust/hw.rs", "rust/vm.rs"]), ["kunit", "rkfd_hw"]);
        assert_eq!(found(&["tests/e2e/demo"]), ["e2e/demo"]);
        assert_eq!(found(&["tools/conformance/sdma.c"]), ["e2e/sdma"]);
        assert!(found(&["Documentation/testing.md"]).is_empty());
    }

    #[test]
    fn a_file_of_no_area_is_an_error() {
        let error = affected(&areas(), ["tools/new/lib.rs"]).unwrap_err();
        let wanted = "tools/new/lib.rs is in no area of tests/areas.toml";
        assert_eq!(error.to_string(), wanted);
    }
}
