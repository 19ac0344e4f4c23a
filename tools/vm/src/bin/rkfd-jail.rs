// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Starts QEMU with nothing in reach but what the guest may see and what QEMU itself needs.

fn main() -> ! {
    rkfd_vm::jail::main()
}
