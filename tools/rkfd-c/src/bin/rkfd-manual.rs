// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Writes manual pages of section 3 from `include/rkfd.h`: one per function, one per structure, and `rkfd.3`, which lists
//! them. `rkfd-manual DIR`; `tools/rkfd-c/install` calls it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::exit;

/// What the header declares, with the comment in front of it.
#[derive(Debug, PartialEq, Eq)]
struct Item {
    /// The paragraphs of its comment.
    text: Vec<String>,
    /// The declaration as it stands there.
    code: String,
    kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Function(String),
    /// A structure with fields.
    Structure(String),
    /// A structure that only its pointers are seen of, a type of functions, a constant.
    Other(String),
}

impl Item {
    fn name(&self) -> &str {
        match &self.kind {
            Kind::Function(name) | Kind::Structure(name) | Kind::Other(name) => name,
        }
    }
}

/// The paragraphs of a comment, its stars and line ends gone.
fn paragraphs(comment: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    for line in comment.lines() {
        let line = line.trim().trim_start_matches('*').trim();
        let Some(last) = all.last_mut() else {
            continue;
        };
        if line.is_empty() {
            if !last.is_empty() {
                all.push(String::new());
            }
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(line);
        }
    }
    all.retain(|p| !p.is_empty());
    all
}

/// The declaration at the start of `rest`, which ends with a semicolon outside of braces, or with its line for `#define`.
fn declaration(rest: &str) -> &str {
    if rest.starts_with('#') {
        return rest.lines().next().unwrap_or_default();
    }
    let mut depth = 0;
    for (at, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return &rest[..=at],
            _ => {}
        }
    }
    rest
}

fn kind_of(code: &str) -> Option<Kind> {
    let word = |text: &str| -> String {
        text.chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
            .collect()
    };
    if let Some(rest) = code.strip_prefix("#define ") {
        return Some(Kind::Other(word(rest)));
    }
    if let Some(rest) = code.strip_prefix("struct ") {
        let name = word(rest);
        return Some(match code.contains('{') {
            true => Kind::Structure(name),
            // A function may return one, too.
            false if !code.contains('(') => Kind::Other(name),
            false => return None,
        });
    }
    if let Some((_, rest)) = code.split_once("(*") {
        if code.starts_with("typedef ") {
            return Some(Kind::Other(word(rest)));
        }
    }
    let (before, _) = code.split_once('(')?;
    let at = before.rfind("rkfd_")?;
    Some(Kind::Function(word(&before[at..])))
}

/// What the header declares, in its order.
fn items(header: &str) -> Vec<Item> {
    let mut found = Vec::new();
    let mut rest = header;
    while let Some((_, after)) = rest.split_once("/**\n") {
        let Some((comment, after)) = after.split_once("*/") else {
            break;
        };
        let code = declaration(after.trim_start());
        if let Some(kind) = kind_of(code) {
            found.push(Item {
                text: paragraphs(comment),
                code: code.to_owned(),
                kind,
            });
        }
        // Comments of fields stay inside the declaration.
        let skip = after.find(code).map_or(0, |at| at + code.len());
        rest = after.get(skip..).unwrap_or_default();
    }
    found
}

/// Text that the formatter takes for nothing else.
fn plain(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

fn code(out: &mut String, text: &str) {
    out.push_str(".nf\n");
    for line in text.lines() {
        let _ = writeln!(out, "{}", plain(line));
    }
    out.push_str(".fi\n");
}

/// The first sentence of an item.
fn summary(item: &Item) -> String {
    let first = item.text.first().map_or("", String::as_str);
    let end = [". ", "; "]
        .iter()
        .filter_map(|mark| first.find(mark))
        .min();
    let end = end.unwrap_or(first.len());
    first[..end].trim_end_matches('.').to_owned()
}

fn head(name: &str, summary: &str, version: &str) -> String {
    format!(
        ".TH {name} 3 \"\" \"librkfd {version}\"\n.SH NAME\n{name} \\- {}\n.SH LIBRARY\nrkfd user library \
         (\\fIlibrkfd\\fP, \\fI\\-lrkfd\\fP)\n",
        plain(summary)
    )
}

fn page(item: &Item, version: &str) -> String {
    let mut out = head(item.name(), &summary(item), version);
    out.push_str(".SH SYNOPSIS\n.nf\n#include <rkfd.h>\n.fi\n.PP\n");
    code(&mut out, &item.code);
    out.push_str(".SH DESCRIPTION\n");
    let mut threads = None;
    for paragraph in &item.text {
        if paragraph.starts_with("MT-") {
            threads = Some(paragraph);
        } else if paragraph.starts_with("# Safety") {
            let rest = paragraph.trim_start_matches("# Safety").trim();
            let _ = writeln!(out, ".PP\nThe caller sees to it: {}", plain(rest));
        } else {
            let _ = writeln!(out, ".PP\n{}", plain(paragraph));
        }
    }
    if let Kind::Function(_) = item.kind {
        if item.code.starts_with("int ") {
            out.push_str(
                ".SH RETURN VALUE\n0, or a negative errno; \\fBrkfd_last_error\\fP(3) tells more.\n",
            );
        }
        out.push_str(".SH ATTRIBUTES\n");
        let _ = writeln!(
            out,
            "Thread safety, in the terms of \\fBattributes\\fP(7): {}",
            plain(threads.map_or("not stated", String::as_str))
        );
    }
    out.push_str(".SH SEE ALSO\n\\fBrkfd\\fP(3)\n");
    out
}

fn overview(items: &[Item], version: &str) -> String {
    let mut out = head(
        "rkfd",
        "GPUs, memory, queues, events and signals over /dev/kfd",
        version,
    );
    for (title, wanted) in [("FUNCTIONS", 0), ("STRUCTURES", 1), ("OTHER NAMES", 2)] {
        let _ = writeln!(out, ".SH {title}");
        for item in items {
            let (kind, section) = match item.kind {
                Kind::Function(_) => (0, "(3)"),
                Kind::Structure(_) => (1, "(3)"),
                Kind::Other(_) => (2, ""),
            };
            if kind == wanted {
                let _ = writeln!(
                    out,
                    ".TP\n\\fB{}\\fP{section}\n{}",
                    item.name(),
                    plain(&summary(item))
                );
            }
        }
    }
    out
}

/// Writes the pages and returns how many there are.
fn write(header: &str, version: &str, into: &Path) -> std::io::Result<usize> {
    fs::create_dir_all(into)?;
    let items = items(header);
    let mut pages = 1;
    fs::write(into.join("rkfd.3"), overview(&items, version))?;
    for item in &items {
        if !matches!(item.kind, Kind::Other(_)) {
            fs::write(into.join(format!("{}.3", item.name())), page(item, version))?;
            pages += 1;
        }
    }
    Ok(pages)
}

fn main() {
    let Some(into) = std::env::args_os().nth(1) else {
        eprintln!("usage: rkfd-manual DIR");
        exit(2);
    };
    let header = include_str!("../../include/rkfd.h");
    match write(header, env!("CARGO_PKG_VERSION"), Path::new(&into)) {
        Ok(pages) => println!("{pages} pages in {}", Path::new(&into).display()),
        Err(e) => {
            eprintln!("{}: {e}", Path::new(&into).display());
            exit(1);
        }
    }
}
