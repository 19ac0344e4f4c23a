// SPDX-License-Identifier: GPL-2.0 OR MIT
//! DISPATCH_INDIRECT: dimensions of a dispatch in memory.

mod common;

use common::kernel::*;
use common::queue::release_mem;
use gpu_model::asic::{Asic, GFX906, GFX90A};

const BOTH: [&Asic; 2] = [&GFX90A, &GFX906];

/// SET_SH_REG of COMPUTE_* registers, counted from 0x2C00.
fn set(register: u32, values: &[u32]) -> Vec<u32> {
    let mut packet = vec![0xc000_7600 | ((values.len() as u32) << 16), register];
    packet.extend_from_slice(values);
    packet
}

#[test]
fn dimensions_in_memory_are_those_at_the_time_of_the_packet() {
    if without_llvm("indirect") {
        return;
    }
    for asic in BOTH {
        let mut f = common::fixture::Fixture::new(asic, 0x31, 0x10000);
        // s[0:1] address, s2 group: stores the group's id plus one.
        let program = "s_lshl_b32 s3, s2, 2\nv_mov_b32 v1, s3\ns_add_u32 s2, s2, 1\n\
            v_mov_b32 v0, s2\nglobal_store_dword v1, v0, s[0:1]\ns_endpgm";
        f.b.set_words(f.bus + 0x4000, &assemble(asic, program));
        let entry = (f.va + 0x4000) >> 8;
        let out = f.va + 0x100;
        let dims = f.va + 0x800;
        f.b.set_words(f.bus + 0x800, &[9, 1, 1]);
        for packet in [
            set(0x204, &[0, 0, 0, 1, 1, 1]),
            set(0x20c, &[entry as u32, (entry >> 32) as u32]),
            set(0x212, &[2, (2 << 1) | (1 << 7)]),
            set(0x22d, &[9]),
            set(0x240, &[out as u32, (out >> 32) as u32]),
            // A packet before it brings the dimensions: five groups, not nine.
            common::queue::write_data(dims, 5),
            vec![0xc002_1600, dims as u32, (dims >> 32) as u32, 0x21],
            release_mem(f.va + 0x40, 0xdead_beef, 9),
        ] {
            f.q.push(&mut f.b, &packet);
        }
        f.q.ring_bell(&mut f.b);
        f.b.run_for(5_000_000);
        assert_eq!(
            f.b.words(f.bus + 0x100, 6),
            [1, 2, 3, 4, 5, 0],
            "{}",
            asic.name
        );
        assert_eq!(f.b.ram64(f.bus + 0x40), 0xdead_beef);
        // Without a group nothing runs, and the queue goes on.
        f.b.set32(f.bus + 0x800, 0);
        f.b.set_words(f.bus + 0x100, &[0; 6]);
        f.q.push(
            &mut f.b,
            &[0xc002_1600, dims as u32, (dims >> 32) as u32, 0x21],
        );
        f.q.push(&mut f.b, &release_mem(f.va + 0x40, 1, 9));
        f.q.ring_bell(&mut f.b);
        f.b.run_for(5_000_000);
        assert_eq!(f.b.words(f.bus + 0x100, 6), [0; 6]);
        assert_eq!(f.b.ram64(f.bus + 0x40), 1);
        f.b.no_errors();
    }
}
