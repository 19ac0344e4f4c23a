// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Circles in a graph of files.

use std::collections::{BTreeMap, BTreeSet};

/// Everything that can be reached from each node.
fn reachable(arrows: &BTreeSet<(String, String)>) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in arrows {
        next.entry(from).or_default().push(to);
    }
    let mut all = BTreeMap::new();
    for from in next.keys().copied() {
        let mut seen = BTreeSet::new();
        let mut queue = next[from].clone();
        while let Some(node) = queue.pop() {
            if seen.insert(node) {
                queue.extend(next.get(node).into_iter().flatten());
            }
        }
        all.insert(from, seen);
    }
    all
}

/// The circles: the largest sets of files each of which leads to all others of the set.
pub fn circles(arrows: &BTreeSet<(String, String)>) -> BTreeSet<Vec<String>> {
    let reachable = reachable(arrows);
    let leads = |from: &str, to: &str| reachable.get(from).is_some_and(|seen| seen.contains(to));
    let in_circle = reachable.keys().filter(|node| leads(node, node));
    in_circle
        .map(|node| {
            let with = reachable
                .keys()
                .filter(|other| leads(node, other) && leads(other, node));
            with.map(|other| (*other).to_owned()).collect()
        })
        .collect()
}
