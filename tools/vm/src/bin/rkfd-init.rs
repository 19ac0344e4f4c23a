// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Process 1 of the guest.

fn main() {
    rkfd_vm::guest::main();
}
