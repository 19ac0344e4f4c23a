// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Kernel arguments that the command processor puts into user SGPRs.

mod common;

use common::kernel::*;
use gpu_model::asic::{Asic, GFX906, GFX90A};

/// Stores s3, s4 and s2 where the first argument, by the address in s[0:1], leads.  A kernel with preloaded arguments begins behind 256
/// bytes, in which another one ends.
fn program(at_entry: &str) -> String {
    let dwords = at_entry.lines().count();
    format!(
        "{at_entry}\n.fill {}, 4, 0xbf800000\n\
         s_load_dwordx2 s[8:9], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\nv_mov_b32 v0, s8\nv_mov_b32 v1, s9\n\
         v_mov_b32 v2, s3\nv_mov_b32 v3, s4\nv_mov_b32 v4, s2\n\
         global_store_dwordx3 v[0:1], v[2:4], off\ns_endpgm",
        64 - dwords
    )
}

#[test]
fn gfx90a_preloads_arguments_and_skips_the_code_that_loads_them() {
    if without_llvm("preload") {
        return;
    }
    let both: [&Asic; 2] = [&GFX90A, &GFX906];
    for asic in both {
        let mut f = fixture(asic, 1, false, false);
        for (dword, value) in [(2, 0x1111), (3, 0x2222), (4, 0x3333), (5, 0x4444)] {
            f.b.set32(f.bus + KERNARG + 4 * dword, value);
        }
        let mut kernel = Launch::new(&program("s_endpgm"), 1, 1);
        // Three dwords of the arguments, from dword 3 on, into s2, s3 and s4.
        kernel.properties = (1 << 3) | ((3 | (3 << 7)) << 16);
        kernel.users = 5;
        kernel.rsrc2 = 0;
        launch(&mut f, asic, &kernel);
        let want = if asic.name == "gfx90a" {
            [0x3333, 0x4444, 0x2222]
        } else {
            // There it is no field: the kernel begins, and ends, at its entry.
            [0; 3]
        };
        assert_eq!(data(&f, 3), want, "{}", asic.name);
        assert!(is_done(&f));
        f.b.no_errors();
    }
}
