// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Compiles every size, offset and command word of `rkfd::abi` against the C header.
//!
//! `KFD_HEADERS` names a directory that holds `linux/kfd_ioctl.h` (the kernel source's `include/uapi`); without it
//! the system's header is used, whose version decides which calls it can know.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rkfd::abi;

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
    let source = dir.path().join("abi.c");
    fs::write(
        &source,
        format!("#include <stddef.h>\n#include <linux/kfd_ioctl.h>\n{body}"),
    )
    .map_err(|e| e.to_string())?;
    let cc = env::var("CC").unwrap_or_else(|_| "cc".into());
    let output = Command::new(cc)
        .arg("-fsyntax-only")
        .arg("-I")
        .arg(dir.path())
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

fn assertions() -> String {
    let mut c = String::new();
    for layout in abi::LAYOUTS {
        let name = layout.name;
        writeln!(
            c,
            "_Static_assert(sizeof(struct {name}) == {}, \"size of {name}\");",
            layout.size
        )
        .unwrap();
        for f in layout.fields {
            writeln!(
                c,
                "_Static_assert(offsetof(struct {name}, {0}) == {1}, \"offset of {name}.{0}\");\n\
                 _Static_assert(sizeof(((struct {name} *)0)->{0}) == {2}, \"size of {name}.{0}\");",
                f.name, f.offset, f.size
            )
            .unwrap();
        }
        // No field of the C structure may be missing here.
        let covered: usize = layout.fields.iter().map(|f| f.size).sum();
        assert_eq!(covered, layout.size, "{name} has a gap");
    }
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

#[test]
fn header_agrees() {
    if let Err(e) = compile(&assertions()) {
        panic!("{e}");
    }
}

/// The comparison above must be able to fail.
#[test]
fn a_wrong_offset_is_noticed() {
    let wrong =
        "_Static_assert(offsetof(struct kfd_ioctl_create_queue_args, gpu_id) == 40, \"gpu_id\");";
    assert!(compile(wrong).unwrap_err().contains("gpu_id"));
}
