// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `include/rkfd.h` is what cbindgen makes of the sources, and is a header that C and C++ compilers take.
//!
//! `RKFD_BLESS=1 cargo test -p rkfd-c --test header` writes it anew.

// A test may panic, its helpers too; that is how it fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

const HEAD: &str = "/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The user library of rkfd for C: GPUs, memory, queues, events, signals, compiled kernels and tasks of these over
 * /dev/kfd, and address spaces by render nodes alone. Kernels that hand tasks over include rkfd_tasks.h.
 *
 * Functions that can fail return 0 or a negative errno; rkfd_last_error() tells more. Each says how it goes with threads,
 * in the terms of attributes(7): what is MT-Safe may be called from any thread at any time, but for handles that are being
 * given back. A child of fork must not use its parent's handles.
 *
 * Structures begin with their size: the caller sets it to sizeof before each call, and they may grow.
 *
 * Link with librkfd.so, or with librkfd.a and -lgcc_s -ldl -lm (before glibc 2.34 -lpthread, too).
 *
 * Generated from the Rust sources by tools/rkfd-c/tests/header.rs; edit those.
 */";

/// The order of the header.
const SOURCES: [&str; 17] = [
    "version",
    "error",
    "gpu",
    "buffer",
    "event",
    "signal",
    "queue",
    "packets",
    "program",
    "failure",
    "native",
    "mirror",
    "migrate",
    "functions",
    "host",
    "workers",
    "counters",
];

const NAMES: [(&str, &str); 39] = [
    ("Gpu", "rkfd_gpu"),
    ("GpuInfo", "rkfd_gpu_info"),
    ("Vm", "rkfd_vm"),
    ("Buffer", "rkfd_buffer"),
    ("BufferOptions", "rkfd_buffer_options"),
    ("Event", "rkfd_event"),
    ("ExceptionInfo", "rkfd_exception_info"),
    ("Signals", "rkfd_signals"),
    ("Queue", "rkfd_queue"),
    ("QueueInfo", "rkfd_queue_info"),
    ("QueueOptions", "rkfd_queue_options"),
    ("QueueErrorInfo", "rkfd_queue_error_info"),
    ("ErrorCallback", "rkfd_error_callback"),
    ("Program", "rkfd_program"),
    ("Kernel", "rkfd_kernel"),
    ("KernelInfo", "rkfd_kernel_info"),
    ("ArgumentInfo", "rkfd_argument_info"),
    ("Dispatch", "rkfd_dispatch"),
    ("Space", "rkfd_space"),
    ("SpaceInfo", "rkfd_space_info"),
    ("Bo", "rkfd_bo"),
    ("BindList", "rkfd_bind_list"),
    ("SpaceQueue", "rkfd_space_queue"),
    ("SpaceEvent", "rkfd_space_event"),
    ("FaultInfo", "rkfd_fault_info"),
    ("Mirror", "rkfd_mirror"),
    ("MirrorOptions", "rkfd_mirror_options"),
    ("MirrorInfo", "rkfd_mirror_info"),
    ("MigrateOptions", "rkfd_migrate_options"),
    ("Functions", "rkfd_functions"),
    ("Task", "rkfd_task"),
    ("Call", "rkfd_call"),
    ("TaskCallback", "rkfd_task_callback"),
    ("Host", "rkfd_host"),
    ("PrintCallback", "rkfd_print_callback"),
    ("Workers", "rkfd_workers"),
    ("WorkersOptions", "rkfd_workers_options"),
    ("AreaInfo", "rkfd_area_info"),
    ("WorkerInfo", "rkfd_worker_info"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn committed() -> PathBuf {
    root().join("include/rkfd.h")
}

fn generate() -> String {
    let mut config = cbindgen::Config {
        language: cbindgen::Language::C,
        style: cbindgen::Style::Tag,
        cpp_compat: true,
        header: Some(HEAD.into()),
        include_guard: Some("RKFD_H".into()),
        no_includes: true,
        sys_includes: vec!["stdint.h".into()],
        tab_width: 8,
        line_length: 110,
        documentation_style: cbindgen::DocumentationStyle::Doxy,
        ..Default::default()
    };
    config.function.sort_by = Some(cbindgen::SortKey::None);
    config.function.args = cbindgen::Layout::Auto;
    config.export.rename = NAMES
        .iter()
        .map(|(rust, c)| (rust.to_string(), c.to_string()))
        .collect();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in SOURCES {
        builder = builder.with_src(root().join("src").join(format!("{name}.rs")));
    }
    let mut out = Vec::new();
    builder
        .generate()
        .expect("the sources parse")
        .write(&mut out);
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn the_committed_header_is_that_of_the_sources() {
    let text = generate();
    if env::var_os("RKFD_BLESS").is_some() {
        fs::create_dir_all(root().join("include")).unwrap();
        fs::write(committed(), &text).unwrap();
    }
    let found = fs::read_to_string(committed()).unwrap_or_default();
    let at = text
        .lines()
        .zip(found.lines())
        .position(|(a, b)| a != b)
        .unwrap_or(text.lines().count().min(found.lines().count()));
    assert!(
        text == found,
        "include/rkfd.h is stale from line {}: wanted {:?}, found {:?}; RKFD_BLESS=1 writes it anew",
        at + 1,
        text.lines().nth(at),
        found.lines().nth(at),
    );
}

#[test]
fn every_function_of_the_sources_is_in_the_header() {
    let header = fs::read_to_string(committed()).unwrap();
    let mut count = 0;
    for name in SOURCES {
        let source = fs::read_to_string(root().join("src").join(format!("{name}.rs"))).unwrap();
        for rest in source.split("extern \"C\" fn ").skip(1) {
            let function = rest.split('(').next().unwrap();
            assert!(header.contains(&format!("{function}(")), "{function}");
            count += 1;
        }
    }
    assert!(count > 30, "only {count} functions found");
}

/// Names that a header for C defines: what its macros, structures, types and functions are called.
fn names(header: &str) -> BTreeSet<String> {
    let mut code = String::new();
    for part in header.split("/*") {
        code += part.split_once("*/").map_or(part, |(_, behind)| behind);
    }
    let words: Vec<&str> = code
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("rkfd_") || word.starts_with("RKFD_"))
        .collect();
    words.into_iter().map(str::to_owned).collect()
}

/// A program for CPU and GPU in one file includes both.
#[test]
fn the_header_for_kernels_has_no_name_of_this_one() {
    let ours = names(&fs::read_to_string(committed()).unwrap());
    let theirs = root().join("../rkfd/include/rkfd_tasks.h");
    let theirs = names(&fs::read_to_string(theirs).unwrap());
    assert!(ours.contains("rkfd_workers_submit") && ours.contains("RKFD_TASK_URGENT"));
    assert!(theirs.contains("rkfd_task_submit") && theirs.contains("RKFD_TASK_LOW"));
    let both: Vec<_> = ours.intersection(&theirs).collect();
    assert!(both.is_empty(), "{both:?}");
}

/// A source that includes the header and nothing else.
fn compile(compiler: &str, language: &str, standard: &str) {
    let source = format!("{}/include-only.{language}", env!("CARGO_TARGET_TMPDIR"));
    fs::write(
        &source,
        "#include \"rkfd.h\"\nint use(struct rkfd_queue *q);\nint use(struct rkfd_queue *q) { return rkfd_queue_commit(q); }\n",
    )
    .unwrap();
    let output = Command::new(compiler)
        .args(["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
        .args(["-x", language, standard, "-I"])
        .arg(root().join("include"))
        .arg(&source)
        .output()
        .unwrap_or_else(|e| panic!("{compiler}: {e}"));
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_c_compiler_takes_the_header() {
    let cc = env::var("CC").unwrap_or_else(|_| "cc".into());
    compile(&cc, "c", "-std=c99");
    compile(&cc, "c", "-std=c11");
}

#[test]
fn a_cplusplus_compiler_takes_the_header() {
    let cxx = env::var("CXX").unwrap_or_else(|_| "c++".into());
    compile(&cxx, "c++", "-std=c++11");
}
