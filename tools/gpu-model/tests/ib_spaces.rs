// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Indirect buffers of privileged rings run in the address space that they name, those of users in their own.

mod common;

use common::fixture::Fixture;
use common::queue::{indirect, release_mem, write_data};
use gpu_model::asic::{Asic, GFX906, GFX90A};

/// INDIRECT_BUFFER with a VMID.
fn call(va: u64, words: &[u32], vmid: u32) -> Vec<u32> {
    let mut packet = indirect(va, words.len() as u32, false);
    packet[3] |= vmid << 24;
    packet
}

/// A process with a buffer of these packets in its memory: (GPU address of the buffer).
fn with_buffer(asic: &'static Asic, words: impl Fn(u64) -> Vec<u32>) -> (Fixture, u64, Vec<u32>) {
    let f = Fixture::new(asic, 0x4a, 0x4000);
    let words = words(f.va);
    f.b.set_words(f.bus + 0x1000, &words);
    let at = f.va + 0x1000;
    (f, at, words)
}

#[test]
fn a_buffer_of_a_kernel_ring_runs_where_it_says() {
    for asic in [&GFX90A, &GFX906] {
        let (mut f, at, words) = with_buffer(asic, |va| write_data(va, 7));
        let vmid = f.b.first_vmid();
        let fence = f.b.alloc_sys(4096);
        f.b.submit_kiq(&call(at, &words, vmid));
        // The ring goes on in its own space.
        f.b.submit_kiq(&write_data(fence.gart, 8));
        f.b.run();
        assert_eq!(
            (f.b.ram32(f.bus), f.b.ram32(fence.bus)),
            (7, 8),
            "{}",
            asic.name
        );
        f.b.no_errors();
    }
}

#[test]
fn a_buffer_that_it_calls_stays_there() {
    let mut f = Fixture::new(&GFX90A, 0x4a, 0x4000);
    let inner = write_data(f.va, 7);
    f.b.set_words(f.bus + 0x2000, &inner);
    // Its VMID field has no effect, since it is not privileged.
    let outer = call(f.va + 0x2000, &inner, 0);
    f.b.set_words(f.bus + 0x1000, &outer);
    let vmid = f.b.first_vmid();
    let packet = call(f.va + 0x1000, &outer, vmid);
    f.b.submit_kiq(&packet);
    f.b.run();
    assert_eq!(f.b.ram32(f.bus), 7);
    f.b.no_errors();
}

#[test]
fn a_buffer_in_the_space_of_a_user_has_the_rights_of_a_user() {
    for bad in [
        // SET_CONFIG_REG of GRBM_GFX_INDEX's neighbourhood, and a packet of the scheduler.
        vec![0xc001_6800, 0x10, 1],
        vec![0xc004_a300, 1 << 29, 0, 0, 0, 0],
    ] {
        let (mut f, at, words) = with_buffer(&GFX90A, |va| {
            let mut words = bad.clone();
            words.extend(write_data(va, 7));
            words
        });
        let vmid = f.b.first_vmid();
        let before = f.b.gpu.soc.log.stats.user_errors;
        f.b.submit_kiq(&call(at, &words, vmid));
        f.b.run();
        assert_eq!(f.b.gpu.soc.log.stats.user_errors - before, 1, "{bad:x?}");
        assert_eq!(f.b.ram32(f.bus), 0);
        f.b.no_errors();
    }
}

#[test]
fn the_interrupt_of_such_a_buffer_has_its_space() {
    let (mut f, at, words) = with_buffer(&GFX90A, |va| release_mem(va, 5, 9));
    let vmid = f.b.first_vmid();
    // Interrupts of me 2, pipe 1.
    f.b.wr(0x8088, (2 << 2) | 1);
    let control = f.b.rd(0xc2d0);
    f.b.wr(0xc2d0, control | (1 << 26));
    f.b.wr(0x8088, 0);
    f.b.irqs();
    f.b.submit_kiq(&call(at, &words, vmid));
    f.b.run_for(1_000_000);
    let seen: Vec<_> = f.b.irqs().iter().map(|iv| (iv.vmid, iv.pasid)).collect();
    assert_eq!((f.b.ram64(f.bus), seen), (5, vec![(vmid, 0x4a)]));
}

#[test]
fn a_user_cannot_leave_its_space() {
    for sdma in [false, true] {
        let mut f = Fixture::with(&GFX90A, 0x4a, 0x4000, |b, p, _| {
            if sdma {
                p.sdma_queue(b, 0, 0)
            } else {
                p.queue(b)
            }
        });
        let (va, at) = (f.va, f.va + 0x1000);
        for vmid in [0, 9] {
            let words = if sdma {
                vec![5, va as u32, (va >> 32) as u32, 7 + vmid, 0, 0, 0, 0]
            } else {
                write_data(va, 7 + vmid)
            };
            f.b.set_words(f.bus + 0x1000, &words);
            let packet = if sdma {
                sdma_call(at, 8, vmid)
            } else {
                call(at, &words, vmid)
            };
            f.q.send(&mut f.b, &packet);
            assert_eq!(f.b.ram32(f.bus), 7 + vmid);
        }
        f.b.no_errors();
    }
}

/// SDMA INDIRECT, which has to end at a multiple of 8 dwords of the ring.
fn sdma_call(va: u64, dwords: u32, vmid: u32) -> Vec<u32> {
    vec![
        0,
        0,
        4 | (vmid << 16),
        va as u32,
        (va >> 32) as u32,
        dwords,
        0,
        0,
    ]
}

#[test]
fn a_buffer_of_the_gfx_ring_of_sdma_runs_where_it_says() {
    for asic in [&GFX90A, &GFX906] {
        let (mut f, at, _) = with_buffer(asic, |va| {
            vec![5, va as u32, (va >> 32) as u32, 7, 0, 0, 0, 0]
        });
        let vmid = f.b.first_vmid();
        let (ring, fence) = (f.b.alloc_sys(4096), f.b.alloc_sys(4096));
        let mut words = sdma_call(at, 8, vmid);
        words.extend([5, fence.gart as u32, (fence.gart >> 32) as u32, 8]);
        f.b.set_words(ring.bus, &words);
        // RB_BASE, RB_RPTR, RB_WPTR, RB_CNTL (2^10 dwords, RB_ENABLE) of the GFX block.
        let gfx = f.b.sdma_bases[0] + 0x80 * 4;
        f.b.wr(gfx + 4, (ring.gart >> 8) as u32);
        f.b.wr(gfx + 8, (ring.gart >> 40) as u32);
        for pointer in 3..7 {
            f.b.wr(gfx + 4 * pointer, 0);
        }
        f.b.wr(gfx, (10 << 1) | 1);
        f.b.wr(gfx + 4 * 5, words.len() as u32 * 4);
        f.b.run();
        assert_eq!(
            (f.b.ram32(f.bus), f.b.ram32(fence.bus)),
            (7, 8),
            "{}",
            asic.name
        );
        f.b.no_errors();
    }
}
