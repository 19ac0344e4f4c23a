// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Gives `librkfd.so` the name that programs look for at run time: its major version, and while that is 0 its minor version,
//! too, since such versions do not take each other's place (see `src/version.rs`; `install` makes links of the same name).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Set by cargo for every build script.
    let of = |part: &str| std::env::var(format!("CARGO_PKG_VERSION_{part}")).unwrap_or_default();
    let (major, minor) = (of("MAJOR"), of("MINOR"));
    let number = match major.as_str() {
        "0" => format!("0.{minor}"),
        _ => major,
    };
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librkfd.so.{number}");
}
