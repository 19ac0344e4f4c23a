// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Code objects that the compilers at hand make, read and planned without a GPU; and broken ones, which are refused.

// A test may panic, its helpers too; that is how it fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::process::Command;
use std::sync::OnceLock;

use proptest::prelude::*;
use rkfd::code::error::CodeError;
use rkfd::code::metadata::ArgumentKind;
use rkfd::code::object::CodeObject;
use rkfd::code::target::Target;

/// A kernel with global, group and private memory, a variable with an address in it, and a hidden argument.
const OPENCL: &str = r"
#define WI(d) __builtin_amdgcn_workitem_id_##d()
typedef unsigned int uint;
__constant uint table[4] = { 1, 2, 3, 5 };
__constant uint *const __constant pointers[2] = { &table[1], &table[3] };

__attribute__((reqd_work_group_size(64, 1, 1)))
void kernel gather(global uint *out, local uint *shared, uint which, float scale)
{
	volatile uint own[16];
	for (uint i = 0; i < 16; i++)
		own[(i * which) % 16] = i;
	shared[WI(x)] = own[which % 16] + (uint)scale;
	out[WI(x)] = shared[63 - WI(x)] + *pointers[which % 2];
}

void kernel plain(global uint *out)
{
	out[__builtin_amdgcn_workgroup_id_x()] = 1;
}
";

/// A kernel without a word about its arguments.
const ASSEMBLY: &str = "
	.amdgcn_target \"amdgcn-amd-amdhsa--gfx906\"
	.text
	.globl bare
	.p2align 8
	.type bare,@function
bare:
	s_endpgm
	.size bare, .-bare
	.rodata
	.p2align 6
	.amdhsa_kernel bare
		.amdhsa_next_free_vgpr 1
		.amdhsa_next_free_sgpr 8
		.amdhsa_kernarg_size 24
		.amdhsa_group_segment_fixed_size 512
	.end_amdhsa_kernel
";

fn compile(name: &str, source: &str, arguments: &[&str]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join(name), dir.path().join("out.co"));
    fs::write(&from, source).unwrap();
    let output = Command::new("clang")
        .args([
            "-target",
            "amdgcn-amd-amdhsa",
            "-nogpulib",
            "-w",
            "-O1",
            "-o",
        ])
        .arg(&to)
        .args(arguments)
        .arg(&from)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    fs::read(to).unwrap()
}

fn opencl(processor: &str, version: u8) -> Vec<u8> {
    let (processor, version) = (
        format!("-mcpu={processor}"),
        format!("-mcode-object-version={version}"),
    );
    compile(
        "a.cl",
        OPENCL,
        &["-Xclang", "-cl-std=CL2.0", &processor, &version],
    )
}

fn assembly() -> Vec<u8> {
    compile("a.s", ASSEMBLY, &["-mcpu=gfx906"])
}

/// One object for the tests that break it.
fn sample() -> &'static [u8] {
    static SAMPLE: OnceLock<Vec<u8>> = OnceLock::new();
    SAMPLE.get_or_init(|| opencl("gfx90a", 5))
}

fn refused(bytes: &[u8]) -> CodeError {
    CodeObject::parse(bytes).unwrap_err()
}

#[test]
fn every_version_is_read() {
    for (processor, version) in [
        ("gfx90a", 4),
        ("gfx906", 5),
        ("gfx90a:xnack-", 6),
        ("gfx942", 5),
    ] {
        let object = CodeObject::parse(&opencl(processor, version)).unwrap();
        assert_eq!(object.version(), version);
        assert_eq!(object.target().to_string(), processor);
        let names: Vec<_> = object.kernels().iter().map(|k| k.name.as_str()).collect();
        assert_eq!(names, ["gather", "plain"]);
        let kernel = object.kernel("gather").unwrap();
        let metadata = kernel.metadata.as_ref().unwrap();
        assert_eq!(metadata.language, "OpenCL C");
        assert_eq!(metadata.language_version, (2, 0));
        assert_eq!(metadata.required_group, Some([64, 1, 1]));
        assert_eq!(metadata.wavefront_size, 64);
        let explicit = metadata.arguments.iter().filter(|a| !a.kind.is_hidden());
        let explicit: Vec<_> = explicit
            .map(|a| (a.kind.clone(), a.offset, a.size))
            .collect();
        assert_eq!(
            explicit,
            [
                (ArgumentKind::GlobalBuffer, 0, 8),
                (ArgumentKind::DynamicShared, 8, 4),
                (ArgumentKind::ByValue, 12, 4),
                (ArgumentKind::ByValue, 16, 4),
            ]
        );
        assert_eq!(kernel.kernarg_bytes(), metadata.kernarg_bytes);
        assert!(kernel.descriptor.private_bytes >= 64, "{kernel:?}");
        assert_eq!(kernel.descriptor.private_bytes, metadata.private_bytes);
        assert_eq!(object.kernel("gather.kd").unwrap(), kernel);
        let none = object.kernel("scatter").unwrap_err().to_string();
        assert!(none.contains("gather, plain"), "{none}");
    }
}

#[test]
fn relocations_follow_the_base() {
    let object = CodeObject::parse(sample()).unwrap();
    let image = |base: u64| {
        let mut image = vec![0; usize::try_from(object.bytes()).unwrap()];
        for (offset, bytes) in object.stores(base) {
            let offset = usize::try_from(offset).unwrap();
            image[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
        image
    };
    let (low, high) = (image(0x1_0000_0000), image(0x7f00_0000_0000));
    // Two pointers into the table, and nothing else, depend on the base.
    let word = |image: &[u8], at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
    let moved: Vec<_> = (0..low.len())
        .step_by(8)
        .filter(|at| word(&low, *at) != word(&high, *at))
        .collect();
    assert_eq!(moved.len(), 2);
    for (at, value) in moved.iter().zip([2u32, 5]) {
        let target = usize::try_from(word(&high, *at) - 0x7f00_0000_0000).unwrap();
        assert_eq!(high[target..target + 4], value.to_le_bytes());
    }
}

#[test]
fn assembly_without_metadata_is_read() {
    let object = CodeObject::parse(&assembly()).unwrap();
    let kernel = object.kernel("bare").unwrap();
    assert_eq!(kernel.metadata, None);
    assert_eq!(
        (kernel.kernarg_bytes(), kernel.descriptor.group_bytes),
        (24, 512)
    );
    assert_eq!(object.target().to_string(), "gfx906");
    assert!(matches!(
        object.symbol("nothing"),
        Err(CodeError::NoSymbol(_))
    ));
    assert_eq!(object.symbol("bare").unwrap().address % 256, 0);
}

#[test]
fn what_is_no_code_object_says_so() {
    assert!(matches!(refused(b""), CodeError::Elf(_)));
    assert!(matches!(refused(b"#!/bin/sh\n"), CodeError::Elf(_)));
    let own = fs::read(std::env::current_exe().unwrap()).unwrap();
    let foreign = refused(&own);
    assert!(
        matches!(
            foreign,
            CodeError::Foreign {
                what: "machine",
                ..
            }
        ),
        "{foreign}"
    );
    let unlinked = compile("a.s", ASSEMBLY, &["-mcpu=gfx906", "-c"]);
    assert!(matches!(refused(&unlinked), CodeError::NotLinked(1)));
    let change = |at: usize, value: u8| {
        let mut bytes = sample().to_vec();
        bytes[at] = value;
        refused(&bytes)
    };
    // EI_OSABI and EI_ABIVERSION.
    assert!(matches!(
        change(7, 3),
        CodeError::Foreign { what: "OS ABI", .. }
    ));
    assert!(matches!(change(8, 1), CodeError::Version(1)));
    assert!(matches!(change(8, 5), CodeError::Version(5)));
    let code = CodeObject::parse(sample()).unwrap().target();
    assert!(!code.runs_on(&Target::from_version(90006).unwrap()));
    assert!(code.runs_on(&Target::from_version(90010).unwrap()));
}

#[test]
fn what_is_not_defined_has_a_name() {
    let source = ASSEMBLY.replace(
        "s_endpgm",
        "s_getpc_b64 s[0:1]\n s_add_u32 s0, s0, elsewhere@gotpcrel32@lo+4\n s_endpgm",
    );
    let bytes = compile(
        "a.s",
        &source,
        &["-mcpu=gfx906", "-Wl,--unresolved-symbols=ignore-all"],
    );
    assert_eq!(refused(&bytes), CodeError::Undefined("elsewhere".into()));
}

#[test]
fn every_truncation_is_refused() {
    let bytes = sample();
    // The table of sections is the last thing of the file, and all of it is needed.
    for length in (0..bytes.len()).step_by(7) {
        assert!(CodeObject::parse(&bytes[..length]).is_err(), "{length}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_broken_object_is_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        head in prop::collection::vec((0usize..0x240, any::<u8>()), 0..3),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let mut bytes = sample().to_vec();
        for (at, value) in head {
            bytes[at] = value;
        }
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(object) = CodeObject::parse(&bytes) {
            // What is accepted can be placed.
            for (offset, bytes) in object.stores(0x7f00_0000_0000) {
                prop_assert!(offset + bytes.len() as u64 <= object.bytes());
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = CodeObject::parse(&bytes);
        let mut with_head = sample()[..64].to_vec();
        with_head.extend(bytes);
        let _ = CodeObject::parse(&with_head);
    }
}
