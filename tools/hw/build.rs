// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Announces the conditions that the kernel build sets for modules and this build never does.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(MODULE)");
    println!("cargo::rustc-check-cfg=cfg(rkfd_kunit)");
    println!("cargo::rerun-if-changed=build.rs");
}
