// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Gives `librkfd.so` the name that programs look for at run time: its major version.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Set by cargo for every build script.
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default();
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librkfd.so.{major}");
}
