// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What earlier runs have found: a run that was interrupted goes on where it was.
//!
//! A verdict holds as long as the driver, the tests, the model and the mutant are what they were.

use super::build::read_sources;
use super::data::Mutant;
use crate::cli::Places;
use anyhow::Context;
use serde::Deserialize;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// A suite failed.
    Killed {
        /// Which.
        by: String,
        /// The case that failed first.
        why: String,
    },
    /// All of its suites passed.
    Alive,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Known {
    /// Of everything but the mutants.
    state: u64,
    /// Times of suites on the driver as it is, in seconds.
    baselines: BTreeMap<String, f64>,
    /// By name, with the state of the mutant.
    verdicts: BTreeMap<String, (u64, Verdict)>,
}

/// The file of results.
pub struct Results {
    path: PathBuf,
    known: Known,
}

impl Results {
    /// Reads it; what does not hold any more is forgotten.
    ///
    /// # Errors
    /// A source that cannot be read.
    pub fn load(path: &Path, places: &Places, fresh: bool) -> anyhow::Result<Self> {
        let state = state(places)?;
        Ok(Self::of(path, state, fresh))
    }

    fn of(path: &Path, state: u64, fresh: bool) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let known: Option<Known> = serde_json::from_str(&text).ok();
        let known = known.filter(|known| known.state == state && !fresh);
        Self {
            path: path.to_owned(),
            known: known.unwrap_or_else(|| Known {
                state,
                ..Known::default()
            }),
        }
    }

    /// What is known of a mutant.
    pub fn get(&self, mutant: &Mutant) -> Option<Verdict> {
        let (state, verdict) = self.known.verdicts.get(&mutant.name)?;
        (*state == hash(mutant)).then(|| verdict.clone())
    }

    /// Keeps a verdict.
    pub fn set(&mut self, mutant: &Mutant, verdict: Verdict) {
        let entry = (hash(mutant), verdict);
        self.known.verdicts.insert(mutant.name.clone(), entry);
        self.save();
    }

    /// The time of a suite that passed on the driver as it is.
    pub fn baseline(&self, suite: &str) -> Option<Duration> {
        let seconds = self.known.baselines.get(suite)?;
        Duration::try_from_secs_f64(*seconds).ok()
    }

    /// Keeps a suite's time.
    pub fn set_baseline(&mut self, suite: &str, time: Duration) {
        let seconds = time.as_secs_f64();
        self.known.baselines.insert(suite.to_owned(), seconds);
        self.save();
    }

    fn save(&self) {
        // Whoever interrupts us must not find half a file. Without it the next run only takes longer.
        let new = self.path.with_extension("new");
        let text = serde_json::to_string_pretty(&self.known).unwrap_or_default();
        if fs::write(&new, text).is_ok() {
            let _ = fs::rename(&new, &self.path);
        }
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Of all that verdicts rest upon.
fn state(places: &Places) -> anyhow::Result<u64> {
    let mut hasher = DefaultHasher::new();
    read_sources(&places.top)?.hash(&mut hasher);
    places.kernel.hash(&mut hasher);
    let mut paths = vec![
        places.out.join("bin/gpu-model"),
        places.out.join("bin/rkfdctl"),
    ];
    for dir in ["tests/e2e", "tools/selftests"] {
        files(&places.top.join(dir), &mut paths)?;
    }
    paths.sort();
    for path in paths {
        let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        (path, bytes).hash(&mut hasher);
    }
    Ok(hasher.finish())
}

fn files(dir: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            files(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_holds_while_nothing_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.json");
        let mut mutant = Mutant {
            name: "m".into(),
            file: "f".into(),
            wrong: "w".into(),
            find: "a".into(),
            replace: "b".into(),
            suites: vec!["s".into()],
            alone: false,
        };
        let verdict = Verdict::Killed {
            by: "s".into(),
            why: "case".into(),
        };
        let mut results = Results::of(&path, 1, false);
        assert_eq!(results.get(&mutant), None);
        results.set(&mutant, verdict.clone());
        results.set_baseline("s", Duration::from_millis(1500));
        let results = Results::of(&path, 1, false);
        assert_eq!(results.get(&mutant), Some(verdict));
        assert_eq!(results.baseline("s"), Some(Duration::from_millis(1500)));
        assert_eq!(Results::of(&path, 2, false).get(&mutant), None);
        assert_eq!(Results::of(&path, 1, true).get(&mutant), None);
        mutant.replace = "c".into();
        assert_eq!(results.get(&mutant), None);
    }
}
