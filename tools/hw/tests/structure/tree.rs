// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A crate as its source files show it: which module lies in which file, what each defines, and which names
//! each file uses.
//!
//! Modules of tests (`#[cfg(rkfd_kunit)]`, `#[cfg(test)]`) are left out: they may use what they like.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// A path as the source writes it.
type Segments = Vec<String>;

/// What a name means inside a module.
#[derive(Clone, Debug)]
enum Name {
    /// An item that the module's file defines.
    Item,
    /// A name for something elsewhere. `reexport`: for others, and not an arrow of this module.
    Alias { path: Segments, reexport: bool },
}

/// A module.
#[derive(Debug, Default)]
struct Module {
    file: String,
    names: BTreeMap<String, Name>,
    globs: Vec<Segments>,
    children: BTreeSet<String>,
    /// Paths that its code uses, imports apart.
    uses: Vec<Segments>,
}

/// All modules of a crate, by path; the root's is empty.
#[derive(Debug, Default)]
pub struct Tree {
    modules: BTreeMap<Segments, Module>,
}

/// Reads a source file by its path.
pub trait Sources {
    /// The text of a file, `None` if there is none.
    fn text(&self, path: &str) -> Option<String>;
}

fn is_test(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|attr| {
        let syn::Meta::List(list) = &attr.meta else {
            return false;
        };
        let cfg = list.tokens.to_string();
        list.path.is_ident("cfg") && (cfg == "rkfd_kunit" || cfg == "test")
    })
}

fn path_attr(attrs: &[syn::Attribute]) -> Option<String> {
    attrs.iter().find_map(|attr| match &attr.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit {
                lit: syn::Lit::Str(text),
                ..
            }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// Folder of a file.
fn folder(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn join(folder: &str, name: &str) -> String {
    match folder {
        "" => name.to_owned(),
        _ => format!("{folder}/{name}"),
    }
}

impl Tree {
    /// Reads the crate whose root is the file `root`.
    pub fn read(sources: &impl Sources, root: &str) -> Self {
        let mut tree = Self::default();
        tree.read_file(sources, root, folder(root), Vec::new());
        tree
    }

    /// Reads the module at `path` from `file`; files of its children lie in `children`.
    fn read_file(&mut self, sources: &impl Sources, file: &str, children: &str, path: Segments) {
        let text = sources
            .text(file)
            .unwrap_or_else(|| panic!("there is no file {file}"));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
        self.read_items(sources, file, children, path, &parsed.items);
    }

    fn read_items(
        &mut self,
        sources: &impl Sources,
        file: &str,
        children: &str,
        path: Segments,
        items: &[syn::Item],
    ) {
        let mut module = Module {
            file: file.to_owned(),
            ..Module::default()
        };
        for item in items {
            if let syn::Item::Mod(inner) = item {
                if is_test(&inner.attrs) {
                    continue;
                }
                let name = inner.ident.to_string();
                module.children.insert(name.clone());
                let mut below = path.clone();
                below.push(name.clone());
                match (&inner.content, path_attr(&inner.attrs)) {
                    (Some((_, items)), _) => {
                        self.read_items(sources, file, &join(children, &name), below, items);
                    }
                    (None, Some(at)) => {
                        let at = join(folder(file), &at);
                        self.read_file(sources, &at, folder(&at), below);
                    }
                    (None, None) => {
                        let at = join(children, &format!("{name}.rs"));
                        self.read_file(sources, &at, &join(children, &name), below);
                    }
                }
            } else {
                module.note(item);
            }
        }
        self.modules.insert(path, module);
    }
}

impl Module {
    fn note(&mut self, item: &syn::Item) {
        let defined = match item {
            syn::Item::Const(item) => Some(&item.ident),
            syn::Item::Enum(item) => Some(&item.ident),
            syn::Item::Fn(item) => Some(&item.sig.ident),
            syn::Item::Static(item) => Some(&item.ident),
            syn::Item::Struct(item) => Some(&item.ident),
            syn::Item::Trait(item) => Some(&item.ident),
            syn::Item::Type(item) => Some(&item.ident),
            syn::Item::Union(item) => Some(&item.ident),
            syn::Item::Macro(item) => item.ident.as_ref(),
            syn::Item::Use(item) => {
                if !is_test(&item.attrs) {
                    let reexport = !matches!(item.vis, syn::Visibility::Inherited);
                    self.note_use(&item.tree, &mut Vec::new(), reexport);
                }
                return;
            }
            _ => None,
        };
        if let Some(name) = defined {
            self.names.insert(name.to_string(), Name::Item);
        }
        self.visit_item(item);
    }

    fn note_use(&mut self, tree: &syn::UseTree, prefix: &mut Segments, reexport: bool) {
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.note_use(&path.tree, prefix, reexport);
                prefix.pop();
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.note_use(tree, prefix, reexport);
                }
            }
            syn::UseTree::Name(name) => {
                let mut path = prefix.clone();
                if name.ident != "self" {
                    path.push(name.ident.to_string());
                }
                if let Some(alias) = path.last().cloned() {
                    self.names.insert(alias, Name::Alias { path, reexport });
                }
            }
            syn::UseTree::Rename(rename) => {
                let mut path = prefix.clone();
                if rename.ident != "self" {
                    path.push(rename.ident.to_string());
                }
                let alias = rename.rename.to_string();
                // An import for its methods alone has no name; it is an arrow all the same.
                let alias = match alias.as_str() {
                    "_" => format!("_ {}", path.join("::")),
                    _ => alias,
                };
                self.names.insert(alias, Name::Alias { path, reexport });
            }
            syn::UseTree::Glob(_) => self.globs.push(prefix.clone()),
        }
    }

    /// Paths in the tokens of a macro: those with `::` in them.
    fn note_tokens(&mut self, tokens: TokenStream) {
        let mut path: Segments = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end_path(&mut path);
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.end_path(&mut path);
                    colons = 0;
                    self.note_tokens(group.stream());
                }
                _ => {
                    self.end_path(&mut path);
                    colons = 0;
                }
            }
        }
        self.end_path(&mut path);
    }

    fn end_path(&mut self, path: &mut Segments) {
        let path = std::mem::take(path);
        if path.len() > 1 {
            self.uses.push(path);
        }
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // Inside a function: as good as one at the top.
        self.note_use(&item.tree, &mut Vec::new(), false);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|part| part.ident.to_string());
        if path.leading_colon.is_none() {
            self.uses.push(segments.collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.note_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

/// How often one name may lead to another before it counts as unknown.
const DEPTH: usize = 16;

impl Tree {
    /// All arrows between files: the one that uses, and the one that defines.
    pub fn arrows(&self) -> BTreeSet<(String, String)> {
        let mut arrows = BTreeSet::new();
        for (at, module) in &self.modules {
            let imports = module.names.values().filter_map(|name| match name {
                Name::Alias {
                    path,
                    reexport: false,
                } => Some(path),
                _ => None,
            });
            // An imported module is only a name: what is used of it counts.
            let imports = imports.filter(|path| !self.is_module(at, path));
            for path in imports.chain(&module.uses) {
                if let Some(file) = self.find(at, path, DEPTH) {
                    if file != module.file {
                        arrows.insert((module.file.clone(), file));
                    }
                }
            }
        }
        arrows
    }

    /// All files.
    pub fn files(&self) -> BTreeSet<String> {
        self.modules.values().map(|m| m.file.clone()).collect()
    }

    fn is_module(&self, at: &[String], path: &[String]) -> bool {
        self.walk(at, path, DEPTH)
            .is_some_and(|(module, rest)| rest.is_empty() && self.modules.contains_key(&module))
    }

    /// The file that defines what `path` names in module `at`; `None` outside of the crate.
    fn find(&self, at: &[String], path: &[String], depth: usize) -> Option<String> {
        let (module, rest) = self.walk(at, path, depth)?;
        // A module alone is only a name.
        (!rest.is_empty()).then(|| self.modules[&module].file.clone())
    }

    /// Follows `path` from module `at`: the module in which it ends, and what is left of it in there.
    fn walk(&self, at: &[String], path: &[String], depth: usize) -> Option<(Segments, Segments)> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.descend(Vec::new(), rest, depth, true),
            "self" => self.descend(at.to_vec(), rest, depth, true),
            "super" => {
                let mut above = at.to_vec();
                above.pop()?;
                match rest.first().map(String::as_str) {
                    Some("super") => self.walk(&above, rest, depth),
                    _ => self.descend(above, rest, depth, true),
                }
            }
            // A name of the module's own, or another crate's.
            _ => self.descend(at.to_vec(), path, depth, false),
        }
    }

    /// Follows `path` inside module `at`. `known`: it is one of this crate's, whatever it is.
    fn descend(
        &self,
        at: Segments,
        path: &[String],
        depth: usize,
        known: bool,
    ) -> Option<(Segments, Segments)> {
        let depth = depth.checked_sub(1)?;
        let module = self.modules.get(&at)?;
        let Some((first, rest)) = path.split_first() else {
            return Some((at, Vec::new()));
        };
        if module.children.contains(first) {
            let mut below = at;
            below.push(first.clone());
            return self.descend(below, rest, depth, true);
        }
        match module.names.get(first) {
            Some(Name::Item) => return Some((at, path.to_vec())),
            Some(Name::Alias { path: alias, .. }) => {
                // `use kernel::x` in a module that has no such child is another crate's.
                if alias.first() == Some(first) && alias.len() == 1 {
                    return None;
                }
                let mut whole = alias.clone();
                whole.extend_from_slice(rest);
                return self.walk(&at, &whole, depth);
            }
            None => {}
        }
        for glob in &module.globs {
            let mut whole = glob.clone();
            whole.extend_from_slice(path);
            if let Some((found, rest)) = self.walk(&at, &whole, depth) {
                let named = rest.first().is_none_or(|name| {
                    matches!(self.modules[&found].names.get(name), Some(Name::Item))
                });
                if named {
                    return Some((found, rest));
                }
            }
        }
        // Made by a macro, such as the module's parameters at the root, which belong to nobody.
        (known && !at.is_empty()).then(|| (at, path.to_vec()))
    }
}
