// SPDX-License-Identifier: GPL-2.0 OR MIT
//! One code object, read and checked without a GPU.
//!
//! Nothing in the file is believed: every offset, size and count is checked against the file and the segments, so that
//! what comes out of [`CodeObject::parse`] can be placed in memory without another look.

use std::borrow::Cow;
use std::collections::BTreeMap;

use object::elf;
use object::read::elf::FileHeader as _;
use object::read::elf::ProgramHeader as _;
use object::read::elf::Rela as _;
use object::read::elf::SectionHeader as _;
use object::read::elf::Sym as _;
use object::LittleEndian;

use super::descriptor;
use super::descriptor::Descriptor;
use super::error::CodeError;
use super::error::Result;
use super::metadata::KernelMetadata;
use super::metadata::Metadata;
use super::target::Target;

type Header = elf::FileHeader64<LittleEndian>;

const E: LittleEndian = LittleEndian;
/// `ELFOSABI_AMDGPU_HSA`.
const OS_ABI_HSA: u8 = 64;
/// `NT_AMDGPU_METADATA`, and the name that goes with it.
const NOTE: (u32, &[u8]) = (32, b"AMDGPU");
/// An image beyond this is no program.
const MOST_BYTES: u64 = 1 << 32;
/// Code begins at a multiple of this, since registers hold its address without the low bits.
const CODE_ALIGN: u64 = 256;

/// A part of the image, `address` bytes from its start.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    address: u64,
    /// What the file has of it; the rest is 0.
    bytes: Vec<u8>,
    size: u64,
    executable: bool,
}

impl Segment {
    fn end(&self) -> u64 {
        self.address + self.size
    }

    fn covers(&self, address: u64, size: u64) -> bool {
        let end = address.checked_add(size);
        address >= self.address && end.is_some_and(|end| end <= self.end())
    }
}

/// A word of the image that depends on where it is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Relocation {
    address: u64,
    bytes: usize,
    /// The image's base is added to `value`; otherwise that is a distance.
    absolute: bool,
    value: u64,
    /// The high half of the sum is meant.
    high: bool,
}

/// A symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Distance from the image's start.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// A kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelCode {
    /// Its name: the descriptor's symbol without `.kd`.
    pub name: String,
    /// Distance of the descriptor from the image's start.
    pub address: u64,
    /// The descriptor.
    pub descriptor: Descriptor,
    /// What the compiler says of it; assembly may say nothing.
    pub metadata: Option<KernelMetadata>,
}

impl KernelCode {
    /// Bytes of the kernel's arguments, those that the source does not name included.
    pub fn kernarg_bytes(&self) -> u32 {
        let said = self.metadata.as_ref().map_or(0, |m| m.kernarg_bytes);
        said.max(self.descriptor.kernarg_bytes)
    }
}

/// A code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeObject {
    target: Target,
    version: u8,
    segments: Vec<Segment>,
    relocations: Vec<Relocation>,
    symbols: BTreeMap<String, Symbol>,
    metadata: Metadata,
    kernels: Vec<KernelCode>,
}

fn demand(what: &'static str, found: u32, wanted: u32) -> Result<()> {
    if found == wanted {
        Ok(())
    } else {
        Err(CodeError::Foreign {
            what,
            found,
            wanted,
        })
    }
}

impl CodeObject {
    /// Reads one.
    ///
    /// # Errors
    /// Each [`CodeError`] but those of launches, of bundles and of other GPUs.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let header = Header::parse(bytes)?;
        header.endian()?;
        demand("machine", header.e_machine(E).into(), elf::EM_AMDGPU.into())?;
        demand("OS ABI", header.e_ident().os_abi.into(), OS_ABI_HSA.into())?;
        let version = match header.e_ident().abi_version {
            abi @ 2..=4 => abi + 2,
            other => return Err(CodeError::Version(other)),
        };
        if header.e_type(E) != elf::ET_DYN {
            return Err(CodeError::NotLinked(header.e_type(E)));
        }
        let segments = segments(header, bytes)?;
        let metadata = metadata(header, bytes)?;
        let sections = header.sections(E, bytes)?;
        let table = sections.symbols(E, bytes, elf::SHT_DYNSYM)?;
        let mut symbols = BTreeMap::new();
        // By number: what relocations name. Number 0 is none.
        let mut values = Vec::new();
        for symbol in table.iter() {
            let name = String::from_utf8_lossy(table.symbol_name(E, symbol)?).into_owned();
            let defined = symbol.st_shndx(E) != elf::SHN_UNDEF;
            let at = Symbol {
                address: symbol.st_value(E),
                size: symbol.st_size(E),
            };
            values.push((defined.then_some(at.address), name.clone()));
            if defined && !name.is_empty() && placed(&segments, at.address, at.size).is_some() {
                symbols.insert(name, at);
            }
        }
        let mut relocations = Vec::new();
        for section in sections.iter() {
            let Some((entries, _)) = section.rela(E, bytes)? else {
                continue;
            };
            // Those of sections that are not loaded are for debuggers.
            if section.sh_flags(E) & u64::from(elf::SHF_ALLOC) == 0 {
                continue;
            }
            for entry in entries {
                relocations.push(relocation(&segments, &values, entry)?);
            }
        }
        let mut object = Self {
            target: Target::from_flags(header.e_flags(E)),
            version,
            segments,
            relocations,
            symbols,
            metadata,
            kernels: Vec::new(),
        };
        object.kernels = object.find_kernels()?;
        Ok(object)
    }

    fn find_kernels(&self) -> Result<Vec<KernelCode>> {
        let mut kernels = Vec::new();
        for (symbol, at) in &self.symbols {
            let Some(name) = symbol.strip_suffix(".kd") else {
                continue;
            };
            let wrong = |what| CodeError::Kernel {
                name: name.to_owned(),
                what,
            };
            let bytes = self
                .descriptor_at(at.address)
                .ok_or_else(|| wrong("the descriptor is not in the file"))?;
            let descriptor = Descriptor::parse(&bytes);
            if at.address % descriptor::BYTES as u64 != 0 {
                return Err(wrong("the descriptor is not on 64 bytes"));
            }
            let entry = at.address.checked_add_signed(descriptor.entry);
            let entry = entry.filter(|entry| entry % CODE_ALIGN == 0);
            let Some(entry) = entry else {
                return Err(wrong("the code does not begin on 256 bytes"));
            };
            if !placed(&self.segments, entry, 4).is_some_and(|segment| segment.executable) {
                return Err(wrong("the code is not in memory that is executed"));
            }
            if descriptor.wavefront_size() != 64 {
                return Err(wrong("waves of 32 work-items, which no gfx9 has"));
            }
            kernels.push(KernelCode {
                name: name.to_owned(),
                address: at.address,
                descriptor,
                metadata: self.metadata.kernel(symbol).cloned(),
            });
        }
        for described in &self.metadata.kernels {
            if !self.symbols.contains_key(&described.symbol) {
                return Err(CodeError::Undefined(described.symbol.clone()));
            }
        }
        Ok(kernels)
    }

    fn descriptor_at(&self, address: u64) -> Option<[u8; descriptor::BYTES]> {
        let segment = placed(&self.segments, address, descriptor::BYTES as u64)?;
        let from = usize::try_from(address - segment.address).ok()?;
        let bytes = segment.bytes.get(from..)?.get(..descriptor::BYTES)?;
        bytes.try_into().ok()
    }

    /// What it was compiled for.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Its version: 4, 5 or 6.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// What the compiler says of it.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Its kernels, by name.
    pub fn kernels(&self) -> &[KernelCode] {
        &self.kernels
    }

    /// A kernel; `.kd` may follow its name.
    ///
    /// # Errors
    /// [`CodeError::NoKernel`].
    pub fn kernel(&self, name: &str) -> Result<&KernelCode> {
        let name = name.strip_suffix(".kd").unwrap_or(name);
        let found = self.kernels.iter().find(|kernel| kernel.name == name);
        found.ok_or_else(|| CodeError::NoKernel {
            name: name.to_owned(),
            found: match self.kernels.as_slice() {
                [] => "none".to_owned(),
                kernels => {
                    let names: Vec<_> = kernels.iter().map(|k| k.name.as_str()).collect();
                    names.join(", ")
                }
            },
        })
    }

    /// A symbol, such as that of a variable.
    ///
    /// # Errors
    /// [`CodeError::NoSymbol`].
    pub fn symbol(&self, name: &str) -> Result<Symbol> {
        let found = self.symbols.get(name).copied();
        found.ok_or_else(|| CodeError::NoSymbol(name.to_owned()))
    }

    /// Bytes of the image in memory; never 0.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(Segment::end).max().unwrap_or(0)
    }

    /// What has to be stored for an image at `base`, in this order, into memory of [`CodeObject::bytes`] that is 0
    /// everywhere else: offsets and bytes.
    pub fn stores(&self, base: u64) -> impl Iterator<Item = (u64, Cow<'_, [u8]>)> {
        let segments = self.segments.iter();
        let parts = segments.map(|s| (s.address, Cow::Borrowed(s.bytes.as_slice())));
        let words = self.relocations.iter().map(move |r| {
            let mut value = r.value.wrapping_add(if r.absolute { base } else { 0 });
            if r.high {
                value >>= 32;
            }
            let mut bytes = value.to_le_bytes().to_vec();
            bytes.truncate(r.bytes);
            (r.address, Cow::Owned(bytes))
        });
        parts.chain(words)
    }
}

/// The segment that has all of these bytes.
fn placed(segments: &[Segment], address: u64, size: u64) -> Option<&Segment> {
    segments.iter().find(|s| s.covers(address, size))
}

fn segments(header: &Header, bytes: &[u8]) -> Result<Vec<Segment>> {
    let mut found: Vec<Segment> = Vec::new();
    for part in header.program_headers(E, bytes)? {
        if part.p_type(E) != elf::PT_LOAD || part.p_memsz(E) == 0 {
            continue;
        }
        let (address, size) = (part.p_vaddr(E), part.p_memsz(E));
        let wrong = |what| CodeError::Segment {
            address,
            size,
            what,
        };
        let data = part
            .data(E, bytes)
            .map_err(|()| wrong("the file is cut off"))?;
        if data.len() as u64 > size {
            return Err(wrong("the file has more of it than memory"));
        }
        if address.checked_add(size).is_none_or(|end| end > MOST_BYTES) {
            return Err(wrong("beyond 4 GiB"));
        }
        found.push(Segment {
            address,
            bytes: data.to_vec(),
            size,
            executable: part.p_flags(E) & elf::PF_X != 0,
        });
    }
    found.sort_by_key(|s| s.address);
    for pair in found.windows(2) {
        if let [a, b] = pair {
            if a.end() > b.address {
                return Err(CodeError::Segment {
                    address: b.address,
                    size: b.size,
                    what: "over another one",
                });
            }
        }
    }
    if found.is_empty() {
        return Err(CodeError::Elf("nothing of it is loaded".into()));
    }
    Ok(found)
}

fn metadata(header: &Header, bytes: &[u8]) -> Result<Metadata> {
    for part in header.program_headers(E, bytes)? {
        let Some(mut notes) = part.notes(E, bytes)? else {
            continue;
        };
        while let Some(note) = notes.next()? {
            if (note.n_type(E), note.name()) == NOTE {
                return Metadata::parse(note.desc());
            }
        }
    }
    Ok(Metadata::default())
}

/// Types of relocations: "Relocation Records" in `AMDGPUUsage` of LLVM. Those that name a table that the linker makes are
/// gone after linking.
mod r_amdgpu {
    pub const ABS32_LO: u32 = 1;
    pub const ABS32_HI: u32 = 2;
    pub const ABS64: u32 = 3;
    pub const REL32: u32 = 4;
    pub const REL64: u32 = 5;
    pub const REL32_LO: u32 = 10;
    pub const REL32_HI: u32 = 11;
    pub const RELATIVE64: u32 = 13;
}

fn relocation(
    segments: &[Segment],
    symbols: &[(Option<u64>, String)],
    entry: &elf::Rela64<LittleEndian>,
) -> Result<Relocation> {
    let (kind, address) = (entry.r_type(E, false), entry.r_offset(E));
    let wrong = |what| CodeError::Relocation {
        kind,
        address,
        what,
    };
    // CAST: the addend's bits; sums wrap as the linker's do.
    let addend = entry.r_addend(E) as u64;
    let symbol = || {
        // CAST: 32 bits into 64.
        let number = entry.r_sym(E, false) as usize;
        match symbols.get(number) {
            // The absent symbol, whose value is 0.
            Some(_) if number == 0 => Ok(0),
            Some((Some(value), _)) => Ok(*value),
            Some((None, name)) => Err(CodeError::Undefined(name.clone())),
            None => Err(wrong("no such symbol")),
        }
    };
    let sum = || -> Result<u64> { Ok(symbol()?.wrapping_add(addend)) };
    let distance = || -> Result<u64> { Ok(symbol()?.wrapping_add(addend).wrapping_sub(address)) };
    let (bytes, absolute, value, high) = match kind {
        r_amdgpu::RELATIVE64 => (8, true, addend, false),
        r_amdgpu::ABS64 => (8, true, sum()?, false),
        r_amdgpu::ABS32_LO => (4, true, sum()?, false),
        r_amdgpu::ABS32_HI => (4, true, sum()?, true),
        r_amdgpu::REL64 => (8, false, distance()?, false),
        r_amdgpu::REL32 | r_amdgpu::REL32_LO => (4, false, distance()?, false),
        r_amdgpu::REL32_HI => (4, false, distance()?, true),
        _ => return Err(wrong("not of a type that a linked code object has")),
    };
    if placed(segments, address, bytes as u64).is_none() {
        return Err(wrong("not in memory that is loaded"));
    }
    Ok(Relocation {
        address,
        bytes,
        absolute,
        value,
        high,
    })
}
