// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Compiles every size, offset and command word of `rkfd::abi` and of `rkfd::native::abi` against their C headers.
//!
//! `KFD_HEADERS` names a directory that holds `linux/kfd_ioctl.h` (the kernel source's `include/uapi`); without it
//! the system's header is used, whose version decides which calls it can know.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use rkfd::abi;
use rkfd::native;

fn header() -> PathBuf {
    let dir =
        env::var_os("KFD_HEADERS").map_or_else(|| PathBuf::from("/usr/include"), PathBuf::from);
    let file = dir.join("linux/kfd_ioctl.h");
    assert!(
        file.is_file(),
        "no {}: set KFD_HEADERS to a kernel's include/uapi",
        file.display()
    );
    file
}

/// Compiles `body` behind the header alone (not its neighbours, which are not made for user space).
fn compile(body: &str) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let linux = dir.path().join("linux");
    fs::create_dir(&linux).map_err(|e| e.to_string())?;
    fs::copy(header(), linux.join("kfd_ioctl.h")).map_err(|e| e.to_string())?;
    compile_with("linux/kfd_ioctl.h", dir.path(), body)
}

/// Compiles `body` behind the header of the native interface.
fn compile_native(body: &str) -> Result<(), String> {
    let uapi = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../uapi");
    compile_with("rkfd_drm.h", &uapi, body)
}

/// Compiles `body` behind a header that `include` has.
fn compile_with(header: &str, include: &Path, body: &str) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let source = dir.path().join("abi.c");
    let text = format!("#include <stddef.h>\n#include <{header}>\n{body}");
    fs::write(&source, text).map_err(|e| e.to_string())?;
    let cc = env::var("CC").unwrap_or_else(|_| "cc".into());
    let output = Command::new(cc)
        .arg("-fsyntax-only")
        .arg("-I")
        .arg(include)
        .args(["-I", "/usr/include/libdrm"])
        .arg(&source)
        .output()
        .map_err(|e| format!("cannot run the C compiler: {e}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn layouts(layouts: &[abi::Layout]) -> String {
    let mut c = String::new();
    for layout in layouts {
        let name = layout.name;
        writeln!(
            c,
            "_Static_assert(sizeof(struct {name}) == {}, \"size of {name}\");",
            layout.size
        )
        .unwrap();
        for f in layout.fields {
            // C knows no raw identifiers.
            let field = f.name.trim_start_matches("r#");
            writeln!(
                c,
                "_Static_assert(offsetof(struct {name}, {field}) == {0}, \"offset of {name}.{field}\");\n\
                 _Static_assert(sizeof(((struct {name} *)0)->{field}) == {1}, \"size of {name}.{field}\");",
                f.offset, f.size
            )
            .unwrap();
        }
        // No field of the C structure may be missing here.
        let covered: usize = layout.fields.iter().map(|f| f.size).sum();
        assert_eq!(covered, layout.size, "{name} has a gap");
    }
    c
}

fn assertions() -> String {
    let mut c = layouts(abi::LAYOUTS);
    for call in abi::CALLS {
        writeln!(
            c,
            "_Static_assert(AMDKFD_IOC_{0} == {1:#x}u, \"command {0}\");",
            call.name, call.command
        )
        .unwrap();
    }
    c.push_str(
        "_Static_assert(sizeof(struct kfd_event_data) == 48, \"size of kfd_event_data\");\n\
         _Static_assert(offsetof(struct kfd_event_data, event_id) == 40, \"event_id\");\n\
         _Static_assert(offsetof(struct kfd_event_data, kfd_event_data_ext) == 32, \"ext\");\n",
    );
    c
}

fn native_assertions() -> String {
    let mut c = layouts(native::abi::LAYOUTS);
    for call in native::abi::CALLS {
        writeln!(
            c,
            "_Static_assert(DRM_IOCTL_RKFD_{0} == {1:#x}u, \"command {0}\");",
            call.name, call.command
        )
        .unwrap();
    }
    for (name, number) in native::abi::NUMBERS {
        writeln!(
            c,
            "_Static_assert(DRM_RKFD_{name} == {number:#x}u, \"{name}\");"
        )
        .unwrap();
    }
    let gem_close = native::abi::GEM_CLOSE;
    writeln!(
        c,
        "_Static_assert(DRM_IOCTL_GEM_CLOSE == {gem_close:#x}u, \"GEM_CLOSE\");"
    )
    .unwrap();
    c
}

#[test]
fn header_agrees() {
    if let Err(e) = compile(&assertions()) {
        panic!("{e}");
    }
}

#[test]
fn native_header_agrees() {
    if let Err(e) = compile_native(&native_assertions()) {
        panic!("{e}");
    }
}

/// The comparison above must be able to fail.
#[test]
fn a_wrong_offset_is_noticed() {
    let wrong =
        "_Static_assert(offsetof(struct kfd_ioctl_create_queue_args, gpu_id) == 40, \"gpu_id\");";
    assert!(compile(wrong).unwrap_err().contains("gpu_id"));
    let wrong = "_Static_assert(offsetof(struct drm_rkfd_bind_op, handle) == 28, \"handle\");";
    assert!(compile_native(wrong).unwrap_err().contains("handle"));
}
