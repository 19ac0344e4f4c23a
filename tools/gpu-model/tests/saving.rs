// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A queue whose waves fill all compute units of a board goes to its save area, and comes back.

mod common;

use common::full::Full;
use common::kernel::without_llvm;

#[test]
fn waves_of_several_units_are_saved_and_go_on() {
    if without_llvm("a queue on several units") {
        return;
    }
    let mut f = Full::new(8);
    f.map();
    for _ in 0..2 {
        f.unmap();
        let (stack, state) = f.saved();
        assert_eq!(stack, 8 * (1 + f.count));
        // At least the vector registers and LDS.
        assert!(state >= f.count * (128 * 256 + 4096), "{state:#x}");
        f.map();
    }
    f.end();
}

#[test]
#[ignore = "prints figures of this machine"]
fn figures_of_a_whole_board() {
    if without_llvm("a whole board") {
        return;
    }
    let mut f = Full::new(104);
    // As the worker of the server has it.
    f.limit = Some(std::time::Duration::from_micros(100));
    f.map();
    for _ in 0..8 {
        let save = f.unmap();
        let (_, state) = f.saved();
        let restore = f.map();
        println!("{} KiB: save {save:?}, restore {restore:?}", state >> 10);
    }
    f.end();
}
