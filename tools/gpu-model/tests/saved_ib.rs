// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A queue that was preempted inside an indirect buffer keeps its place in MQD dwords 146 to 149, which mirror
//! CP_HQD_IB_BASE_ADDR, _HI, CP_HQD_IB_RPTR and CP_HQD_IB_CONTROL (IB_SIZE, PROCESSING_IB).

mod common;

use common::fixture::Fixture;
use common::queue::{indirect, wait_mem, write_data};
use gpu_model::asic::{Asic, GFX906, GFX90A};

/// A queue that is off its slot, inside a buffer that waits for dword 4 of the page and then writes dword 0; behind
/// the call the ring writes dword 1.
fn inside(asic: &'static Asic) -> Fixture {
    let mut f = Fixture::new(asic, 0x44, 8192);
    let va = f.va;
    let mut ib = wait_mem(va + 16, 1);
    ib.extend(write_data(va, 7));
    f.b.set_words(f.bus + 4096, &ib);
    let mut ring = indirect(va + 4096, ib.len() as u32, false);
    ring.extend(write_data(va + 4, 8));
    f.q.send(&mut f.b, &ring);
    f.preempt();
    let control = f.b.ram32(f.q.mqd.bus + 149 * 4);
    assert_eq!(control, 0x80b0_0000 | ib.len() as u32, "{}", asic.name);
    assert_eq!(
        f.b.words(f.q.mqd.bus + 146 * 4, 3),
        [(va + 4096) as u32, (va >> 32) as u32, 0]
    );
    f
}

#[test]
fn the_state_of_the_buffer_is_in_the_mqd() {
    for asic in [&GFX90A, &GFX906] {
        let mut f = inside(asic);
        // What a driver may store afresh: the fields that hardware does not write.
        let control = f.b.ram32(f.q.mqd.bus + 149 * 4);
        f.b.set32(f.q.mqd.bus + 149 * 4, control & 0x800f_ffff | 0x00b0_0000);
        f.resume();
        assert_eq!(f.b.words(f.bus, 2), [0, 0]);
        f.b.set32(f.bus + 16, 1);
        f.b.run_for(10_000_000);
        assert_eq!(f.b.words(f.bus, 2), [7, 8]);
        assert_eq!(f.b.gpu.soc.log.stats.ib_dropped, 0);
        f.b.no_errors();
    }
}

#[test]
fn a_driver_that_stores_ib_control_afresh_drops_the_buffer() {
    for asic in [&GFX90A, &GFX906] {
        let mut f = inside(asic);
        f.b.set32(f.q.mqd.bus + 149 * 4, 0x00b0_0000);
        f.resume();
        f.b.run_for(10_000_000);
        assert_eq!(
            f.b.words(f.bus, 2),
            [0, 8],
            "what follows runs, the rest does not"
        );
        assert_eq!(f.b.gpu.soc.log.stats.ib_dropped, 1);
    }
}
