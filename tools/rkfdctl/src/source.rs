// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Lines of sources for addresses of kernels.
//!
//! The device model knows the memory of the GPU, where no loader puts line tables.  So it tells which code object an
//! address belongs to, by a hash of code, and this looks for the file that has it: the files that were named, and those of
//! processes that have a GPU open (the program, what it has mapped, and files among its arguments).  A file may hold
//! several code objects, as programs compiled from HIP do; compressed bundles are not looked into.

use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::rc::Rc;

use object::elf;
use object::read::elf::ElfFile64;
use object::read::elf::FileHeader as _;
use object::read::elf::ProgramHeader as _;
use object::LittleEndian;
use object::Object as _;
use object::ObjectSection as _;
use serde::Deserialize;
use serde::Serialize;

type Context = addr2line::Context<gimli::EndianRcSlice<gimli::LittleEndian>>;

/// Files beyond this are not looked into.
const MOST_BYTES: u64 = 512 << 20;
/// Bytes of code that tell one object from another.
const CODE: usize = 16 << 10;
const E: LittleEndian = LittleEndian;

/// A code object, as the model tells it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// What the addresses of its lines count from.
    pub base: u64,
    /// FNV-1a of the first executable segment: its size in the file as 8 bytes, then its first 16 KiB.
    pub code: u64,
}

/// A place in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Path as the compiler was given it.
    pub file: String,
    /// Line, from 1 on.
    pub line: u32,
}

impl Line {
    /// Path and line.
    pub fn full(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }

    /// The last part of the path, and the line.
    pub fn short(&self) -> String {
        let name = self.file.rsplit('/').next().unwrap_or(&self.file);
        format!("{name}:{}", self.line)
    }
}

/// Where lines are looked for.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Files {
    /// A file with code objects, for the lines of their sources; those of running programs are found without
    #[arg(long = "code", value_name = "FILE")]
    code: Vec<PathBuf>,
}

impl Files {
    /// Only `file`.
    pub fn of(file: &Path) -> Self {
        Self {
            code: vec![file.to_owned()],
        }
    }
}

/// Finds lines.
pub struct Sources {
    files: Vec<PathBuf>,
    /// Files that were read, with their sizes.
    read: HashSet<(PathBuf, u64)>,
    /// Code objects that were found, by their hashes.
    images: HashMap<u64, Vec<u8>>,
    contexts: HashMap<u64, Option<Context>>,
}

impl Sources {
    /// `command`: the words of a command that has run, among which files with code may be.
    pub fn new(files: &Files, command: &[String]) -> Self {
        let mut files = files.code.clone();
        files.extend(files_among(
            command.iter().map(String::as_str),
            Path::new("."),
        ));
        Self {
            files,
            read: HashSet::new(),
            images: HashMap::new(),
            contexts: HashMap::new(),
        }
    }

    /// The line of the instruction at `pc`, if its code object is in a file that has line tables.
    pub fn line(&mut self, object: Option<&Identity>, pc: u64) -> Option<Line> {
        let object = object?;
        if !self.contexts.contains_key(&object.code) && !self.images.contains_key(&object.code) {
            self.look(object.code);
        }
        let context = match self.contexts.entry(object.code) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(slot) => {
                let image = self.images.remove(&object.code)?;
                slot.insert(context(&image))
            }
        };
        let found = context
            .as_ref()?
            .find_location(pc.wrapping_sub(object.base));
        let location = found.ok()??;
        Some(Line {
            file: location.file?.to_owned(),
            line: location.line?,
        })
    }

    /// Reads files that were not read before, until the code object with the hash `code` is found.
    fn look(&mut self, code: u64) {
        let named = std::mem::take(&mut self.files);
        self.read_files(&named, code);
        self.files = named;
        if !self.images.contains_key(&code) {
            self.read_files(&files_of_processes(), code);
        }
    }

    fn read_files(&mut self, files: &[PathBuf], wanted: u64) {
        for file in files {
            if self.images.contains_key(&wanted) {
                return;
            }
            let size = fs::metadata(file).map_or(0, |data| data.len());
            if size > MOST_BYTES || !self.read.insert((file.clone(), size)) {
                continue;
            }
            if let Ok(bytes) = fs::read(file) {
                for (code, image) in objects(&bytes) {
                    self.images.entry(code).or_insert_with(|| image.to_vec());
                }
            }
        }
    }
}

/// The words that are files, seen from a folder.
fn files_among<'a>(words: impl Iterator<Item = &'a str>, folder: &Path) -> Vec<PathBuf> {
    words
        .map(|word| folder.join(word))
        .filter(|path| path.is_file())
        .collect()
}

/// Files that may have the code of processes that have a GPU open.
fn files_of_processes() -> Vec<PathBuf> {
    // What the program was given is read before the program itself, which is bigger.
    let (mut files, mut bigger) = (Vec::new(), Vec::new());
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let path = process.path();
        let is_gpu = |entry: fs::DirEntry| {
            fs::read_link(entry.path())
                .is_ok_and(|to| to == Path::new("/dev/kfd") || to.starts_with("/dev/dri"))
        };
        let open = fs::read_dir(path.join("fd"));
        if !open.into_iter().flatten().flatten().any(is_gpu) {
            continue;
        }
        let words = fs::read(path.join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        files.extend(files_among(
            words.split('\0').filter(|w| !w.is_empty()),
            &path.join("cwd"),
        ));
        bigger.push(path.join("exe"));
        let maps = fs::read_to_string(path.join("maps")).unwrap_or_default();
        let mapped: HashSet<&str> = maps
            .lines()
            .filter_map(|line| line.find(" /").map(|at| &line[at + 1..]))
            .filter(|name| !name.starts_with("/dev/"))
            .collect();
        // As the process sees them.
        let root = path.join("root");
        bigger.extend(
            mapped
                .iter()
                .map(|name| root.join(name.trim_start_matches('/'))),
        );
    }
    files.append(&mut bigger);
    files.retain(|file| file.is_file());
    files
}

/// The code objects in a file, with their hashes.
fn objects(bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = bytes.get(at..) {
        let Some(next) = rest.iter().position(|byte| *byte == elf::ELFMAG[0]) else {
            break;
        };
        let image = rest.get(next..).unwrap_or_default();
        if let Some(code) = hash(image) {
            found.push((code, image));
        }
        at += next + 1;
    }
    found
}

/// The hash of a code object's code, if `image` begins with one.
fn hash(image: &[u8]) -> Option<u64> {
    let ident = image.get(..7)?;
    if !ident.starts_with(&elf::ELFMAG) || ident.get(4..) != Some(&[2, 1, 1]) {
        return None;
    }
    let header = elf::FileHeader64::<LittleEndian>::parse(image).ok()?;
    if header.e_machine(E) != elf::EM_AMDGPU {
        return None;
    }
    let headers = header.program_headers(E, image).ok()?;
    let code = headers
        .iter()
        .find(|part| part.p_type(E) == elf::PT_LOAD && part.p_flags(E) & elf::PF_X != 0)?;
    let data = code.data(E, image).ok()?;
    let start = fnv(0xCBF2_9CE4_8422_2325, &(data.len() as u64).to_le_bytes());
    Some(fnv(start, data.get(..CODE).unwrap_or(data)))
}

/// FNV-1a of `bytes`, after `hash`.
fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3);
    bytes.iter().fold(hash, step)
}

/// The line tables of a code object.
fn context(image: &[u8]) -> Option<Context> {
    let file = ElfFile64::<LittleEndian>::parse(image).ok()?;
    let load = |id: gimli::SectionId| -> Result<_, gimli::Error> {
        let section = file.section_by_name(id.name());
        let data = section.and_then(|section| section.data().ok());
        let data: Rc<[u8]> = Rc::from(data.unwrap_or_default());
        Ok(gimli::EndianRcSlice::new(data, gimli::LittleEndian))
    };
    let dwarf = gimli::Dwarf::load(load).ok()?;
    Context::from_dwarf(dwarf).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
        image[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// A header, two segments and 64 bytes of code.
    fn object() -> Vec<u8> {
        let mut image = vec![0; 0x140];
        put(&mut image, 0, &[0x7F, b'E', b'L', b'F', 2, 1, 1, 64]);
        put(&mut image, 18, &elf::EM_AMDGPU.to_le_bytes());
        put(&mut image, 32, &64u64.to_le_bytes());
        put(&mut image, 54, &56u16.to_le_bytes());
        put(&mut image, 56, &2u16.to_le_bytes());
        for (number, flags) in [(0, 4u32), (1, 5)] {
            let at = 64 + 56 * number;
            put(&mut image, at, &1u32.to_le_bytes());
            put(&mut image, at + 4, &flags.to_le_bytes());
            put(&mut image, at + 8, &(0x100 * number as u64).to_le_bytes());
            put(&mut image, at + 32, &0x40u64.to_le_bytes());
        }
        put(&mut image, 0x100, b"code");
        image
    }

    #[test]
    fn code_objects_are_found_wherever_they_are_in_a_file() {
        let image = object();
        let start = fnv(0xCBF2_9CE4_8422_2325, &0x40u64.to_le_bytes());
        let code = fnv(start, &image[0x100..]);
        let mut file = b"\x7fEL\x7fELF\x02\x01\x01".to_vec();
        file.extend(&image);
        file.extend(b"\x7f");
        let mut second = object();
        put(&mut second, 0x104, b"x");
        file.extend(&second);
        let found = objects(&file);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].0, code);
        assert_eq!(found[0].1[..0x140], image);
        assert_ne!(found[1].0, code);
        for at in 0..image.len() {
            // What is cut off is none, or another one; nothing of it panics.
            let cut = objects(&image[..at]);
            assert!(cut.is_empty(), "{at}");
        }
        put(&mut file, 10 + 18, &62u16.to_le_bytes());
        assert_eq!(objects(&file).len(), 1, "of another machine");
    }

    #[test]
    fn without_line_tables_there_is_no_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kernel.co");
        fs::write(&path, object()).unwrap();
        let files = Files { code: vec![path] };
        let mut sources = Sources::new(&files, &[]);
        let code = hash(&object()).unwrap();
        let identity = Identity { base: 0x1000, code };
        assert_eq!(sources.line(Some(&identity), 0x1100), None);
        assert!(sources.contexts.contains_key(&code), "it was found");
        let other = Identity {
            code: 1,
            ..identity
        };
        assert_eq!(sources.line(Some(&other), 0x1100), None);
        assert_eq!(sources.line(None, 0x1100), None);
    }

    #[test]
    fn lines_have_a_long_and_a_short_text() {
        let line = Line {
            file: "/src/a/vadd.cl".into(),
            line: 12,
        };
        assert_eq!(
            (line.full(), line.short()),
            ("/src/a/vadd.cl:12".into(), "vadd.cl:12".into())
        );
    }
}
