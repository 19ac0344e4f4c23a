// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Names of kernels and identities of their code objects, from a process' memory.
//!
//! A loader puts the segments of a code object into memory as they are, and the first of them holds the ELF header, the
//! program headers and the dynamic symbols; this is how debuggers find libraries, too.  So the kernel of an address is
//! found without anybody's help: back by pages to an ELF header of the machine AMDGPU that has a segment around the
//! address, then through its dynamic section to the symbols.  Kernels are functions there, and each has a descriptor
//! NAME.kd, which leads to its first instruction.  Lines of sources are in sections that no loader puts into memory; who has
//! the file finds them by the [`Identity`] of the object.
//!
//! All of it belongs to the user: every number is checked, and nothing is read that was not asked for.
//!
//! Sources: the ELF specification; code object format of the AMDGPU usage document of LLVM; the hash FNV-1a of 64 bits.

use serde::Serialize;

/// Reads bytes at an address; false if they are not all there.
pub type Reader<'a> = dyn FnMut(u64, &mut [u8]) -> bool + 'a;

/// How far the header of a code object is looked for.
const BACK: u64 = 64 << 20;
const PAGE: u64 = 4096;
/// Most program headers, and entries of the dynamic section, that are looked at.
const HEADERS: u64 = 64;
const ENTRIES: u64 = 128;
/// Most symbols.
const SYMBOLS: u32 = 1 << 16;
/// Bytes of the longest name that is shown whole.
const NAME: usize = 4096;
/// Bytes of code that tell one object from another.
const CODE: u64 = 16 << 10;
/// Ends the name of a kernel descriptor.
const DESCRIPTOR: &str = ".kd";

mod elf {
    /// Magic, ELFCLASS64, ELFDATA2LSB, EV_CURRENT.
    pub const IDENT: [u8; 7] = [0x7F, b'E', b'L', b'F', 2, 1, 1];
    pub const EM_AMDGPU: u16 = 224;
    pub const HEADER: usize = 64;
    pub const PROGRAM_HEADER: usize = 56;
    pub const SYMBOL: usize = 24;
    pub const PT_LOAD: u32 = 1;
    pub const PT_DYNAMIC: u32 = 2;
    pub const PF_X: u32 = 1;
    pub const DT_NULL: u64 = 0;
    pub const DT_HASH: u64 = 4;
    pub const DT_STRTAB: u64 = 5;
    pub const DT_SYMTAB: u64 = 6;
    pub const STT_OBJECT: u8 = 1;
    pub const STT_FUNC: u8 = 2;
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>());
    found.copied().unwrap_or([0; N])
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(number(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(number(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(number(bytes, at))
}

/// Which code object it is, for those who have its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Identity {
    /// What the addresses of its symbols and lines count from.
    pub base: u64,
    /// FNV-1a of the first executable segment: its size in the file as 8 bytes, then its first 16 KiB.
    pub code: u64,
}

/// What memory tells of a kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// Its name.
    pub name: Option<String>,
    /// Its code object.
    pub object: Option<Identity>,
}

/// A code object in memory.
struct Object {
    /// What its addresses count from.
    base: u64,
    /// Address, from `base` on, and size in the file of the first executable segment.
    code: Option<(u64, u64)>,
    symbols: u64,
    count: u32,
    names: u64,
}

/// A symbol of interest.
struct Symbol {
    name: u32,
    kind: u8,
    value: u64,
}

/// The object whose header is at `header`, if there is one that has a segment around `address`.
fn object_at(read: &mut Reader<'_>, header: u64, address: u64) -> Option<Object> {
    let mut bytes = [0; elf::HEADER];
    if !read(header, &mut bytes)
        || !bytes.starts_with(&elf::IDENT)
        || u16_at(&bytes, 18) != elf::EM_AMDGPU
        || usize::from(u16_at(&bytes, 54)) != elf::PROGRAM_HEADER
    {
        return None;
    }
    let table = header.wrapping_add(u64_at(&bytes, 32));
    let count = u64::from(u16_at(&bytes, 56)).min(HEADERS);
    let (mut base, mut dynamic, mut around, mut code) = (None, None, false, None);
    for number in 0..count {
        let mut bytes = [0; elf::PROGRAM_HEADER];
        let at = table.wrapping_add(number * elf::PROGRAM_HEADER as u64);
        if !read(at, &mut bytes) {
            return None;
        }
        let (offset, from, size) = (u64_at(&bytes, 8), u64_at(&bytes, 16), u64_at(&bytes, 40));
        match u32_at(&bytes, 0) {
            elf::PT_LOAD => {
                // The segment that has the header comes first.
                let base = *base.get_or_insert(header.wrapping_add(offset).wrapping_sub(from));
                around |= address.wrapping_sub(base).wrapping_sub(from) < size;
                if u32_at(&bytes, 4) & elf::PF_X != 0 {
                    code.get_or_insert((from, u64_at(&bytes, 32)));
                }
            }
            elf::PT_DYNAMIC => dynamic = Some(from),
            _ => {}
        }
    }
    let (base, dynamic) = (base?, dynamic?);
    if !around {
        return None;
    }
    let (mut symbols, mut names, mut hash) = (None, None, None);
    for number in 0..ENTRIES {
        let mut bytes = [0; 16];
        let at = base.wrapping_add(dynamic).wrapping_add(number * 16);
        if !read(at, &mut bytes) {
            return None;
        }
        let value = Some(base.wrapping_add(u64_at(&bytes, 8)));
        match u64_at(&bytes, 0) {
            elf::DT_NULL => break,
            elf::DT_HASH => hash = value,
            elf::DT_STRTAB => names = value,
            elf::DT_SYMTAB => symbols = value,
            _ => {}
        }
    }
    // The table of hashes has a chain for each symbol.
    let mut chains = [0; 4];
    if !read(hash?.wrapping_add(4), &mut chains) {
        return None;
    }
    Some(Object {
        base,
        code,
        symbols: symbols?,
        count: u32::from_le_bytes(chains).min(SYMBOLS),
        names: names?,
    })
}

/// FNV-1a of `bytes`, after `hash`.
fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3);
    bytes.iter().fold(hash, step)
}

impl Object {
    fn identity(&self, read: &mut Reader<'_>) -> Option<Identity> {
        let (from, size) = self.code?;
        let mut code = fnv(0xCBF2_9CE4_8422_2325, &size.to_le_bytes());
        let mut at = 0;
        while at < size.min(CODE) {
            let mut piece = [0; 256];
            let piece = piece.get_mut(..(size.min(CODE) - at).min(256) as usize)?;
            if !read(self.base.wrapping_add(from).wrapping_add(at), piece) {
                return None;
            }
            code = fnv(code, piece);
            at += piece.len() as u64;
        }
        let base = self.base;
        Some(Identity { base, code })
    }

    fn symbols(&self, read: &mut Reader<'_>) -> Vec<Symbol> {
        let mut bytes = vec![0; self.count as usize * elf::SYMBOL];
        if !read(self.symbols, &mut bytes) {
            return Vec::new();
        }
        let symbols = bytes.chunks_exact(elf::SYMBOL).map(|bytes| Symbol {
            name: u32_at(bytes, 0),
            kind: number::<1>(bytes, 4)[0] & 0xF,
            value: u64_at(bytes, 8),
        });
        symbols.collect()
    }

    /// A name; what cannot be printed becomes a question mark.
    fn name(&self, read: &mut Reader<'_>, at: u32) -> Option<String> {
        let mut bytes = Vec::new();
        let mut from = self.names.wrapping_add(at.into());
        while bytes.len() < NAME {
            // No piece lies across two pages, and names end where their section does.
            let mut piece = [0; 64];
            let piece = piece.get_mut(..64 - (from % 64) as usize)?;
            if !read(from, piece) {
                return None;
            }
            let end = piece.iter().position(|byte| *byte == 0);
            bytes.extend_from_slice(piece.get(..end.unwrap_or(piece.len()))?);
            if end.is_some() {
                break;
            }
            from = from.wrapping_add(piece.len() as u64);
        }
        bytes.truncate(NAME);
        let text = String::from_utf8_lossy(&bytes);
        let shown = |c: char| if c.is_control() { '?' } else { c };
        let text: String = text.chars().map(shown).collect();
        (!text.is_empty()).then_some(text)
    }
}

/// The code object around an address.
fn around(read: &mut Reader<'_>, address: u64) -> Option<Object> {
    let mut page = address & !(PAGE - 1);
    for _ in 0..BACK / PAGE {
        let mut magic = [0; 4];
        // A code object has no gaps.
        if !read(page, &mut magic) {
            return None;
        }
        if elf::IDENT.starts_with(&magic) {
            if let Some(found) = object_at(read, page, address) {
                return Some(found);
            }
        }
        page = page.checked_sub(PAGE)?;
    }
    None
}

/// What is known of the kernel whose first instruction is at `entry`, if its code object is in memory.
pub fn kernel_at(read: &mut Reader<'_>, entry: u64) -> Origin {
    match around(read, entry) {
        Some(object) => Origin {
            name: name_at(read, &object, entry),
            object: object.identity(read),
        },
        None => Origin::default(),
    }
}

fn name_at(read: &mut Reader<'_>, object: &Object, entry: u64) -> Option<String> {
    let symbols = object.symbols(read);
    let value = entry.wrapping_sub(object.base);
    let of_kind = |kind: u8| symbols.iter().filter(move |symbol| symbol.kind == kind);
    let function = of_kind(elf::STT_FUNC).find(|symbol| symbol.value == value);
    if let Some(function) = function {
        return object.name(read, function.name);
    }
    for symbol in of_kind(elf::STT_OBJECT) {
        let descriptor = object.base.wrapping_add(symbol.value);
        let mut offset = [0; 8];
        if !read(descriptor.wrapping_add(16), &mut offset)
            || descriptor.wrapping_add(u64::from_le_bytes(offset)) != entry
        {
            continue;
        }
        let name = object.name(read, symbol.name);
        if let Some(kernel) = name.as_deref().and_then(|n| n.strip_suffix(DESCRIPTOR)) {
            return Some(kernel.to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the object is loaded.
    const BASE: u64 = 0x7F00_0001_0000;

    fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
        image[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Two pages: headers, symbols and descriptors in the first, code in the second.  The kernel `scale` has a function
    /// and a descriptor, `hidden` a descriptor only.
    fn object() -> Vec<u8> {
        let mut image = vec![0; 0x2000];
        put(&mut image, 0, &elf::IDENT);
        put(&mut image, 18, &elf::EM_AMDGPU.to_le_bytes());
        put(&mut image, 32, &64u64.to_le_bytes());
        put(&mut image, 54, &56u16.to_le_bytes());
        put(&mut image, 56, &3u16.to_le_bytes());
        let headers: [(u32, u64, u64); 3] = [(1, 0, 0x1000), (1, 0x1000, 0x1000), (2, 0x200, 0x40)];
        for (number, (kind, from, size)) in headers.into_iter().enumerate() {
            let at = 64 + 56 * number;
            put(&mut image, at, &kind.to_le_bytes());
            for field in [8, 16] {
                put(&mut image, at + field, &from.to_le_bytes());
            }
            for field in [32, 40] {
                put(&mut image, at + field, &size.to_le_bytes());
            }
        }
        let dynamic = [
            (elf::DT_SYMTAB, 0x300),
            (elf::DT_STRTAB, 0x400),
            (elf::DT_HASH, 0x500),
        ];
        for (number, (tag, value)) in dynamic.into_iter().enumerate() {
            let value: u64 = value;
            put(&mut image, 0x200 + 16 * number, &tag.to_le_bytes());
            put(&mut image, 0x208 + 16 * number, &value.to_le_bytes());
        }
        put(&mut image, 0x400, b"\0scale\0scale.kd\0hidden.kd\0");
        put(&mut image, 0x504, &4u32.to_le_bytes());
        let symbols: [(u32, u8, u64); 4] = [
            (0, 0, 0),
            (1, elf::STT_FUNC | 0x10, 0x1100),
            (7, elf::STT_OBJECT | 0x10, 0x600),
            (16, elf::STT_OBJECT | 0x10, 0x640),
        ];
        for (number, (name, info, value)) in symbols.into_iter().enumerate() {
            let at = 0x300 + 24 * number;
            put(&mut image, at, &name.to_le_bytes());
            put(&mut image, at + 4, &[info]);
            put(&mut image, at + 8, &value.to_le_bytes());
        }
        put(&mut image, 0x610, &(0x1100u64 - 0x600).to_le_bytes());
        put(&mut image, 0x650, &(0x1200u64 - 0x640).to_le_bytes());
        image
    }

    fn origin(image: &[u8], entry: u64) -> Origin {
        let mut read = |va: u64, bytes: &mut [u8]| {
            let from = va.wrapping_sub(BASE) as usize;
            let found = from
                .checked_add(bytes.len())
                .and_then(|end| image.get(from..end));
            found.map(|found| bytes.copy_from_slice(found)).is_some()
        };
        kernel_at(&mut read, entry)
    }

    fn find(image: &[u8], entry: u64) -> Option<String> {
        origin(image, entry).name
    }

    #[test]
    fn kernels_have_the_names_of_their_symbols() {
        let image = object();
        assert_eq!(find(&image, BASE + 0x1100).as_deref(), Some("scale"));
        assert_eq!(find(&image, BASE + 0x1200).as_deref(), Some("hidden"));
        // No kernel begins there.
        assert_eq!(find(&image, BASE + 0x1104), None);
        // Nothing is there.
        assert_eq!(find(&image, BASE + 0x9000), None);
        assert_eq!(find(&image, 0x100), None);
    }

    #[test]
    fn another_object_before_it_is_passed_over() {
        // A whole object, and one whose header says that it ends before the address.
        let mut image = object();
        let mut second = object();
        put(&mut second, 64 + 56 + 40, &0x80u64.to_le_bytes());
        image.extend(&second);
        assert_eq!(find(&image, BASE + 0x1100).as_deref(), Some("scale"));
        assert_eq!(find(&image, BASE + 0x3100), None);
        let other = |at: usize, byte: u8| {
            let mut image = object();
            put(&mut image, at, &[byte]);
            find(&image, BASE + 0x1100)
        };
        assert_eq!(other(18, 62), None, "of another machine");
        assert_eq!(other(0x504, 1), None, "without symbols");
        assert_eq!(other(0x402, 7).as_deref(), Some("s?ale"));
    }

    #[test]
    fn the_code_tells_one_object_from_another() {
        // The second segment is the code: 4 KiB in the file.
        let mut image = object();
        put(&mut image, 64 + 56 + 4, &elf::PF_X.to_le_bytes());
        put(&mut image, 0x1100, b"code");
        let identity = |image: &[u8]| origin(image, BASE + 0x1100).object;
        let found = identity(&image).unwrap();
        assert_eq!(found.base, BASE);
        // Reference vectors of the hash's authors: nothing, and "foobar".
        assert_eq!(fnv(0xCBF2_9CE4_8422_2325, b""), 0xCBF2_9CE4_8422_2325);
        assert_eq!(fnv(0xCBF2_9CE4_8422_2325, b"foobar"), 0x8594_4171_F739_67E8);
        let size = fnv(0xCBF2_9CE4_8422_2325, &0x1000u64.to_le_bytes());
        assert_eq!(found.code, fnv(size, &image[0x1000..]));
        // It does not depend on data, or on where the object lies.
        let mut moved = vec![0; 0x3000];
        moved.extend(&image);
        put(&mut moved, 0x3700, b"data");
        let there = origin(&moved, BASE + 0x4100).object.unwrap();
        assert_eq!((there.base, there.code), (BASE + 0x3000, found.code));
        put(&mut image, 0x1ffc, b"else");
        assert_ne!(identity(&image).unwrap().code, found.code);
        // Code that is not all there, and an object without.
        put(&mut image, 64 + 56 + 32, &0x1001u64.to_le_bytes());
        assert_eq!(identity(&image), None);
        assert_eq!(identity(&object()), None);
    }

    #[test]
    fn numbers_that_lead_nowhere_find_nothing() {
        let image = object();
        for at in (0..0x660).step_by(4) {
            let mut wrong = image.clone();
            put(&mut wrong, at, &u32::MAX.to_le_bytes());
            // It ends, and what it finds is a name of the table.
            let found = find(&wrong, BASE + 0x1100);
            assert!(found.is_none_or(|name| name.len() <= NAME), "at {at:#x}");
        }
    }
}
