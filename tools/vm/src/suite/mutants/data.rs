// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The files of mutants: what each changes, in words and in text, and which suites notice.

use anyhow::Context;
use regex::Regex;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::path::PathBuf;

/// A small wrong change to the driver.
#[derive(Clone, Debug, Hash, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// Its name, unique among all.
    pub name: String,
    /// The source file, from the top of the checkout.
    pub file: PathBuf,
    /// What is wrong with it, as one sentence.
    pub wrong: String,
    /// The text that is replaced; any white space stands for any other. Where it needs surroundings to be found once,
    /// it stands between `@{` and `}@` in them.
    pub find: String,
    /// What takes its place; nothing drops statements.
    pub replace: String,
    /// The suites that notice, the cheapest first, by the names of the report.
    pub suites: Vec<String>,
    /// It gets a build of its own, because its text is neither an expression nor whole statements.
    #[serde(default)]
    pub alone: bool,
}

/// A file of mutants.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listing {
    mutant: Vec<Mutant>,
}

/// Reads `*.toml` of the folder, in the order of their names.
///
/// # Errors
/// A file that cannot be read or is not of the form, a name that is there twice, a mutant without effect or
/// without a suite.
pub fn load(dir: &Path) -> anyhow::Result<Vec<Mutant>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    let mut mutants = Vec::new();
    let mut names = BTreeSet::new();
    for path in paths {
        let text = fs::read_to_string(&path)?;
        let listing: Listing =
            toml::from_str(&text).with_context(|| format!("in {}", path.display()))?;
        for mutant in listing.mutant {
            mutant
                .check()
                .with_context(|| format!("{}: mutant {}", path.display(), mutant.name))?;
            anyhow::ensure!(
                names.insert(mutant.name.clone()),
                "there are two mutants {}",
                mutant.name
            );
            mutants.push(mutant);
        }
    }
    Ok(mutants)
}

impl Mutant {
    fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.suites.is_empty(), "it names no suite");
        anyhow::ensure!(!self.wrong.is_empty(), "it does not say what is wrong");
        let (before, changed, after) = self.parts()?;
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        anyhow::ensure!(words(changed) != words(&self.replace), "it changes nothing");
        anyhow::ensure!(!changed.trim().is_empty(), "it finds nothing");
        anyhow::ensure!(
            ![before, changed, after, &self.replace]
                .iter()
                .any(|part| part.contains("@{")),
            "it has two places"
        );
        anyhow::ensure!(
            self.alone || self.is_statement() || !self.replace.trim().is_empty(),
            "an expression cannot be dropped"
        );
        Ok(())
    }

    /// The folder of `rust/` that it is in; a file of its own right is in that of its name.
    pub fn folder(&self) -> &str {
        let mut parts = self.file.iter().skip(1);
        let name = parts.next().and_then(|part| part.to_str()).unwrap_or("");
        name.strip_suffix(".rs").unwrap_or(name)
    }

    /// Where the text is in the source.
    ///
    /// # Errors
    /// Where it is not there, or more than once.
    pub fn place(&self, source: &str) -> anyhow::Result<Range<usize>> {
        let (before, changed, after) = self.parts()?;
        let regex = format!(
            r"{}\s*({})\s*{}",
            pattern(before),
            pattern(changed),
            pattern(after)
        );
        let regex = Regex::new(&regex).context("the text is too long")?;
        let mut found = regex.captures_iter(source);
        let first = found
            .next()
            .and_then(|captures| captures.get(1))
            .with_context(|| format!("{} does not have its text", self.file.display()))?;
        let others = found.count();
        anyhow::ensure!(
            others == 0,
            "{} has its text {} times",
            self.file.display(),
            others + 1
        );
        Ok(first.range())
    }

    /// What stands before the text that is replaced, that text, and what stands behind it.
    fn parts(&self) -> anyhow::Result<(&str, &str, &str)> {
        let Some((before, rest)) = self.find.split_once("@{") else {
            return Ok(("", &self.find, ""));
        };
        let (changed, after) = rest.split_once("}@").context("its place has no end")?;
        Ok((before, changed, after))
    }

    fn is_statement(&self) -> bool {
        let changed = self.parts().map_or("", |(_, changed, _)| changed);
        changed.trim_end().ends_with([';', '}'])
    }

    /// The text with both, the wrong one where the mutant of that number is chosen.
    fn switched(&self, number: u32, original: &str) -> String {
        let chosen = format!(
            "if crate::mutation::is({number}) {{ {} }} else {{ {original} }}",
            self.replace
        );
        if self.is_statement() {
            chosen
        } else {
            format!("({chosen})")
        }
    }
}

/// The words of a text with any white space between them.
fn pattern(text: &str) -> String {
    let words: Vec<String> = text.split_whitespace().map(regex::escape).collect();
    words.join(r"\s+")
}

/// The text of a mutant in a source, with its number.
type Place<'a> = (Range<usize>, u32, &'a Mutant);

/// Sources by their paths from the top of the checkout.
pub type Sources = BTreeMap<PathBuf, String>;

/// Changes the source of one mutant.
///
/// # Errors
/// As [`Mutant::place`].
pub fn apply(sources: &mut Sources, mutant: &Mutant) -> anyhow::Result<()> {
    let source = source_of(sources, mutant)?;
    let range = mutant.place(source)?;
    source.replace_range(range, &mutant.replace);
    Ok(())
}

/// Puts all mutants that share a build into the sources, each behind its number. Returns the text with
/// which the chosen number is read, a module of the driver called `mutation`.
///
/// # Errors
/// As [`Mutant::place`], and where texts overlap.
pub fn apply_switched(sources: &mut Sources, mutants: &[(u32, &Mutant)]) -> anyhow::Result<()> {
    let mut places: BTreeMap<&Path, Vec<Place<'_>>> = BTreeMap::new();
    for (number, mutant) in mutants {
        let range = mutant
            .place(source_of(sources, mutant)?)
            .with_context(|| format!("mutant {}", mutant.name))?;
        let places = places.entry(&mutant.file).or_default();
        places.push((range, *number, mutant));
    }
    for (file, mut places) in places {
        places.sort_by_key(|(range, ..)| range.start);
        for pair in places.windows(2) {
            if let [(first, _, a), (second, _, b)] = pair {
                anyhow::ensure!(
                    first.end <= second.start,
                    "{}: the texts of {} and {} overlap: one of them needs `alone = true`",
                    file.display(),
                    a.name,
                    b.name
                );
            }
        }
        let source = sources.get_mut(file).context("it was there")?;
        for (range, number, mutant) in places.into_iter().rev() {
            let original = source.get(range.clone()).unwrap_or("").to_owned();
            source.replace_range(range, &mutant.switched(number, &original));
        }
    }
    Ok(())
}

fn source_of<'a>(sources: &'a mut Sources, mutant: &Mutant) -> anyhow::Result<&'a mut String> {
    let file = &mutant.file;
    sources
        .get_mut(file)
        .with_context(|| format!("mutant {}: there is no {}", mutant.name, file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(find: &str, replace: &str) -> Mutant {
        Mutant {
            name: "m".into(),
            file: "rust/event/table.rs".into(),
            wrong: "It is wrong.".into(),
            find: find.into(),
            replace: replace.into(),
            suites: vec!["kunit/gfx90a: rkfd_event_wait".into()],
            alone: false,
        }
    }

    fn sources(text: &str) -> Sources {
        [("rust/event/table.rs".into(), text.to_owned())].into()
    }

    #[test]
    fn a_text_is_found_once_whatever_its_white_space() {
        let wrapped = mutant("a(b, c);", "");
        assert_eq!(wrapped.place("x a(b,\n    c); y").unwrap(), 2..14);
        let why = |source| wrapped.place(source).unwrap_err().to_string();
        assert_eq!(why("a(b)"), "rust/event/table.rs does not have its text");
        assert_eq!(
            why("a(b, c); a(b, c);"),
            "rust/event/table.rs has its text 2 times"
        );
    }

    #[test]
    fn surroundings_are_found_and_stay() {
        let mutant = mutant("A => @{x}@, B", "y");
        let source = "B => x,\n A => x, B => x";
        let range = mutant.place(source).unwrap();
        assert_eq!((range.clone(), &source[range]), (14..15, "x"));
        let mut all = sources("A => x, B");
        apply_switched(&mut all, &[(1, &mutant)]).unwrap();
        assert_eq!(
            all[Path::new("rust/event/table.rs")],
            "A => (if crate::mutation::is(1) { y } else { x }), B"
        );
    }

    #[test]
    fn statements_and_expressions_are_switched() {
        let mut all = sources("f(); if a < b { g(); }");
        let statement = mutant("f();", "");
        let expression = mutant("a < b", "a <= b");
        apply_switched(&mut all, &[(3, &expression), (7, &statement)]).unwrap();
        assert_eq!(
            all[Path::new("rust/event/table.rs")],
            "if crate::mutation::is(7) {  } else { f(); } \
             if (if crate::mutation::is(3) { a <= b } else { a < b }) { g(); }"
        );
        let mut all = sources("f(); if a < b { g(); }");
        apply(&mut all, &expression).unwrap();
        assert_eq!(
            all[Path::new("rust/event/table.rs")],
            "f(); if a <= b { g(); }"
        );
    }

    #[test]
    fn overlapping_texts_are_refused() {
        let mut all = sources("a.b(c);");
        let (outer, inner) = (mutant("a.b(c);", ""), mutant("b(c)", "b(d)"));
        let error = apply_switched(&mut all, &[(1, &outer), (2, &inner)]).unwrap_err();
        assert!(error.to_string().contains("overlap"), "{error}");
    }

    #[test]
    fn a_mutant_must_change_something() {
        assert!(mutant("a <  b", "a < b").check().is_err());
        assert!(mutant("a < b", "").check().is_err());
        assert!(mutant("f();", "").check().is_ok());
        assert!(mutant("f() @{x", "y").check().is_err());
        assert!(mutant("@{a}@ @{b}@", "y").check().is_err());
        assert_eq!(mutant("f();", "").folder(), "event");
    }

    #[test]
    fn files_are_read_in_order_and_names_are_unique() {
        let dir = tempfile::tempdir().unwrap();
        let text = |name: &str| {
            format!(
                "[[mutant]]\nname = '{name}'\nfile = 'rust/vm.rs'\nwrong = 'W.'\nfind = 'f();'\n\
                 replace = ''\nsuites = ['s']\n"
            )
        };
        fs::write(dir.path().join("b.toml"), text("two")).unwrap();
        fs::write(dir.path().join("a.toml"), text("one")).unwrap();
        fs::write(dir.path().join("README.md"), "no mutant").unwrap();
        let names: Vec<String> = load(dir.path())
            .unwrap()
            .into_iter()
            .map(|mutant| mutant.name)
            .collect();
        assert_eq!(names, ["one", "two"]);
        fs::write(dir.path().join("c.toml"), text("one")).unwrap();
        let error = load(dir.path()).unwrap_err().to_string();
        assert_eq!(error, "there are two mutants one");
    }
}
