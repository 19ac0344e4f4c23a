// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A driver's first minutes, played through registers.

mod common;

use common::proc::Proc;
use common::queue::{release_mem, write_data};
use common::Bench;
use gpu_model::asic::{Asic, GFX906, GFX90A};

fn both(f: impl Fn(&'static Asic)) {
    f(&GFX90A);
    f(&GFX906);
}

fn ready(asic: &'static Asic) -> Bench {
    Bench::scheduled(asic)
}

#[test]
fn kiq_ring_test_writes_a_scratch_register() {
    both(|asic| {
        let mut b = Bench::new(asic);
        b.bring_up();
        b.start_kiq();
        b.wr(0x30100, 0xcafe_dead);
        b.submit_kiq(&[0xc001_7900, 0x40, 0xdead_beef]);
        b.run();
        assert_eq!(b.rd(0x30100), 0xdead_beef);
        assert_eq!(b.kiq.as_ref().unwrap().rptr(&b), 3);
        b.no_errors();
    });
}

#[test]
fn kiq_fence_interrupts_with_source_178() {
    let mut b = Bench::new(&GFX90A);
    b.bring_up();
    b.start_kiq();
    let fence = b.alloc_sys(4096);
    b.submit_kiq(&[0xc003_3700, (5 << 8) | (1 << 20), fence.gart as u32, 0, 7]);
    b.submit_kiq(&[0xc003_3700, 1 << 16, 0x30b5, 0, 0x2000_0000]);
    b.run();
    assert_eq!(b.ram32(fence.bus), 7);
    let ivs = b.irqs();
    assert_eq!(ivs.len(), 1);
    assert_eq!((ivs[0].client, ivs[0].source, ivs[0].vmid), (0x14, 178, 0));
    // me 2, pipe 1, queue 0.
    assert_eq!(ivs[0].ring_id, (2 << 2) | 1);
    b.no_errors();
}

#[test]
fn hiq_query_status_writes_the_fence() {
    both(|asic| {
        let mut b = ready(asic);
        let fence = b.unmap(3, 0, 0);
        b.run();
        assert_eq!(b.ram64(fence.bus), 100);
        b.no_errors();
    });
}

#[test]
fn hiq_accepts_the_wait_time_register_write() {
    let mut b = ready(&GFX90A);
    b.submit_hiq(&[0xc003_3700, 1 << 16, 0x30b0, 0, 0x4040_0001]);
    b.run();
    assert_eq!(b.rd(0xc2c0), 0x4040_0001);
    b.no_errors();
}

#[test]
fn user_queue_writes_memory_and_signals() {
    both(|asic| {
        let mut b = ready(asic);
        let mut p = Proc::new(&mut b, 0x8001, 0);
        let (data_va, data) = p.page(&mut b, 4096);
        let mut q = p.queue(&mut b);
        let mut ib = p.map_process(&b, 1);
        ib.extend(q.map_queues());
        b.run_list(&ib, false, 1);
        b.run();
        b.no_errors();
        // The scheduler shows the owner: first VMID of the pool.
        let vmid = if b.tf { 3u64 } else { 8 };
        assert_eq!(b.rd(0x3080 + 4 * (0xc + vmid)), 0x8000_8001);
        assert_eq!(b.rd(0x4280 + 4 * vmid), 0x8001);
        assert_eq!(b.rd(0x4280 + 4 * (0x10 + vmid)), 0x8001);

        let mut words = write_data(data_va, 0x1234_5678);
        words.extend(release_mem(data_va + 8, 0x55, 0x55));
        q.send(&mut b, &words);
        assert_eq!(b.ram32(data), 0x1234_5678);
        assert_eq!(b.ram64(data + 8), 0x55);
        assert_eq!(b.ram32(q.ptrs), 13);
        let ivs = b.irqs();
        assert_eq!(ivs.len(), 1);
        let iv = ivs[0];
        assert_eq!(
            (iv.client, iv.source, iv.vmid, iv.pasid, iv.data[0]),
            (0x14, 181, vmid as u32, 0x8001, 0x55)
        );
        // MEC1, first slot of the pool: pipe 0, queue 2.
        assert_eq!(iv.ring_id, (2 << 4) | (1 << 2));

        let fence = b.unmap(3, 0, 0);
        b.run();
        assert_eq!(b.ram64(fence.bus), 100);
        // Written back: read pointer, write pointer, not active.
        assert_eq!(b.ram32(q.mqd.bus + 138 * 4), 13);
        assert_eq!(b.ram32(q.mqd.bus + 182 * 4), 13);
        assert_eq!(b.ram32(q.mqd.bus + 130 * 4), 0);
        assert_eq!(b.rd(0x3080 + 4 * (0xc + vmid)), 0);
        b.no_errors();

        // Work queued while unmapped, doorbell lost: found through memory at the next map.
        q.push(&mut b, &write_data(data_va + 16, 9));
        q.ring_bell(&mut b);
        b.run();
        assert_eq!(b.ram32(data + 16), 0);
        b.run_list(&ib, false, 1);
        b.run();
        assert_eq!(b.ram32(data + 16), 9);
        b.no_errors();
    });
}

#[test]
fn ring_wraps_inside_a_packet() {
    let mut b = ready(&GFX90A);
    let mut p = Proc::new(&mut b, 0x11, 0);
    let (va, bus) = p.page(&mut b, 4096);
    let mut q = p.queue(&mut b);
    let mut ib = p.map_process(&b, 1);
    ib.extend(q.map_queues());
    b.run_list(&ib, false, 1);
    b.run();
    // 5-dword packets never divide 1024: packets straddle the end again and again.
    for i in 0..1000u32 {
        q.send(
            &mut b,
            &write_data(va + u64::from(i % 1024) * 4, i ^ 0x5a5a),
        );
    }
    for i in 0..1000u32 {
        assert_eq!(b.ram32(bus + u64::from(i) * 4), i ^ 0x5a5a);
    }
    assert_eq!(u64::from(b.ram32(q.ptrs)), 5000 % 1024);
    b.no_errors();
}

#[test]
fn forty_queues_take_turns_on_24_slots() {
    let mut b = ready(&GFX90A);
    let mut p = Proc::new(&mut b, 0x21, 0);
    let (va, bus) = p.page(&mut b, 4096);
    let mut queues: Vec<_> = (0..40).map(|_| p.queue(&mut b)).collect();
    let mut ib = p.map_process(&b, 40);
    for q in &queues {
        ib.extend(q.map_queues());
    }
    b.run_list(&ib, true, 1);
    b.run();
    for (i, q) in queues.iter_mut().enumerate() {
        q.push(&mut b, &write_data(va + 8 * i as u64, 100 + i as u32));
        q.ring_bell(&mut b);
    }
    b.run_for(300_000_000);
    for i in 0..40u64 {
        assert_eq!(b.ram32(bus + 8 * i), 100 + i as u32, "queue {i}");
    }
    assert_eq!(b.gpu.soc.log.stats.max_connected, 2 + 24);
    let fence = b.unmap(3, 0, 0);
    b.run();
    assert_eq!(b.ram64(fence.bus), 100);
    b.no_errors();
}

#[test]
fn thirty_processes_take_turns_on_13_vmids() {
    let mut b = ready(&GFX90A);
    let mut ib = Vec::new();
    let mut all = Vec::new();
    for i in 0..30u16 {
        let mut p = Proc::new(&mut b, 0x100 + i, u64::from(i));
        let (va, bus) = p.page(&mut b, 4096);
        let q = p.queue(&mut b);
        ib.extend(p.map_process(&b, 1));
        ib.extend(q.map_queues());
        all.push((q, va, bus));
    }
    b.run_list(&ib, true, 13);
    b.run();
    for (i, (q, va, _)) in all.iter_mut().enumerate() {
        // The same virtual address in every process: isolation shows in the data.
        q.push(&mut b, &write_data(*va, i as u32 + 1));
        q.push(&mut b, &release_mem(*va + 8, 1, i as u32 + 1));
        q.ring_bell(&mut b);
    }
    b.run_for(400_000_000);
    for (i, (_, _, bus)) in all.iter().enumerate() {
        assert_eq!(b.ram32(*bus), i as u32 + 1);
    }
    let mut seen: Vec<(u32, u32)> = b.irqs().iter().map(|v| (v.pasid, v.data[0])).collect();
    seen.sort_unstable();
    assert_eq!(
        seen,
        (0..30).map(|i| (0x100 + i, i + 1)).collect::<Vec<_>>()
    );
    b.no_errors();
}

#[test]
fn an_idle_list_is_walked_less_and_less_but_a_doorbell_is_served_soon() {
    let mut b = ready(&GFX90A);
    let mut p = Proc::new(&mut b, 0x21, 0);
    let (va, bus) = p.page(&mut b, 4096);
    let mut queues: Vec<_> = (0..30).map(|_| p.queue(&mut b)).collect();
    let mut ib = p.map_process(&b, 30);
    for q in &queues {
        ib.extend(q.map_queues());
    }
    b.run_list(&ib, true, 1);
    b.run_for(1_000_000_000);
    // 1 s at 64 ms, and a few short ones at the start.
    let idle = b.gpu.soc.log.stats.rotations;
    assert!((10..40).contains(&idle), "{idle}");
    for (i, q) in queues.iter_mut().enumerate() {
        q.push(&mut b, &write_data(va + 4 * i as u64, 7));
        q.ring_bell(&mut b);
    }
    b.run_for(70_000_000);
    assert_eq!(b.words(bus, 30), vec![7; 30]);
    b.no_errors();
}
