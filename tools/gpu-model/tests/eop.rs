// SPDX-License-Identifier: GPL-2.0 OR MIT
//! EOP buffers belong to the hardware while their queue is connected: it writes into them.

mod common;

use common::fixture::Fixture;
use common::queue::{release_mem, write_data};
use gpu_model::asic::{GFX906, GFX90A};

/// Address of the queue's EOP buffer, from its MQD.
fn eop(f: &Fixture) -> u64 {
    (u64::from(f.b.ram32(f.q.mqd.bus + 165 * 4))
        | (u64::from(f.b.ram32(f.q.mqd.bus + 166 * 4)) << 32))
        << 8
}

#[test]
fn each_event_leaves_a_record() {
    for asic in [&GFX90A, &GFX906] {
        let mut f = Fixture::new(asic, 0x43, 4096);
        let (eop, va) = (eop(&f), f.va);
        let page = f.b.alloc_ram(4096);
        f.p.set_pte(&mut f.b, eop, page | 0x77);
        f.b.flush_vmid(f.b.first_vmid());
        f.q.send(&mut f.b, &write_data(va, 1));
        assert_eq!(f.b.words(page, 1024), vec![0; 1024], "no event, no record");
        for n in 1..=200u64 {
            f.q.send(&mut f.b, &release_mem(va, n, 0));
        }
        assert_eq!(f.b.gpu.soc.log.stats.eop_records, 200);
        let words = f.b.words(page, 1024);
        assert!(
            words.chunks(8).all(|r| r.iter().any(|w| *w != 0)),
            "the ring is full"
        );
        f.b.no_errors();
    }
}

#[test]
fn a_buffer_that_was_freed_too_early_shows() {
    let mut f = Fixture::new(&GFX90A, 0x43, 4096);
    let (eop, va) = (eop(&f), f.va);
    f.b.irqs();
    f.p.set_pte(&mut f.b, eop, 0);
    f.b.flush_vmid(f.b.first_vmid());
    f.q.send(&mut f.b, &release_mem(va, 5, 0));
    let ivs = f.b.irqs();
    assert_eq!((ivs[0].client, ivs[0].source), (0x1b, 0));
    assert_eq!(
        (u64::from(ivs[0].data[0]) << 12) | (u64::from(ivs[0].data[1] & 0xf) << 44),
        eop
    );
}

#[test]
fn a_queue_that_retries_waits_for_its_buffer() {
    let mut f = Fixture::with(&GFX90A, 0x43, 4096, |b, p, _| {
        p.retry = true;
        p.queue(b)
    });
    let (eop, va) = (eop(&f), f.va);
    f.p.set_pte(&mut f.b, eop, 0);
    f.b.flush_vmid(f.b.first_vmid());
    f.q.send(&mut f.b, &release_mem(va, 5, 0));
    f.b.run_for(5_000_000);
    assert_eq!(f.b.ram64(f.bus), 0, "no record, no data");
    let page = f.b.alloc_ram(4096);
    f.p.set_pte(&mut f.b, eop, page | 0x77);
    f.b.run_for(5_000_000);
    assert_eq!(f.b.ram64(f.bus), 5);
    assert_ne!(f.b.ram32(page), 0);
    assert_eq!(f.b.gpu.soc.log.stats.eop_records, 1);
    f.b.no_errors();
}

/// Barrier-AND without dependencies, which completes a signal.
fn barrier(signal: u64) -> [u32; 16] {
    let mut p = [0; 16];
    p[0] = 3;
    p[14] = signal as u32;
    p[15] = (signal >> 32) as u32;
    p
}

#[test]
fn a_completed_signal_leaves_a_record() {
    for asic in [&GFX90A, &GFX906] {
        let mut f = Fixture::with(asic, 0x43, 4096, |b, p, _| p.queue(b).into_aql(b));
        let (eop, signal) = (eop(&f), f.va + 64);
        let page = f.b.alloc_ram(4096);
        f.p.set_pte(&mut f.b, eop, page | 0x77);
        f.b.flush_vmid(f.b.first_vmid());
        f.q.send_aql(&mut f.b, &barrier(0));
        assert_eq!(f.b.words(page, 1024), vec![0; 1024], "no signal, no record");
        for n in 1..=3u64 {
            f.b.set64(f.bus + 72, 5);
            f.q.send_aql(&mut f.b, &barrier(signal));
            assert_eq!(f.b.ram64(f.bus + 72), 4, "{}", asic.name);
            assert_eq!(f.b.gpu.soc.log.stats.eop_records, n);
            let words = f.b.words(page, 1024);
            let records = words.chunks(8).take_while(|r| r[0] != 0).count();
            assert_eq!(records as u64, n, "one behind the other");
            let last = &words[8 * (n as usize - 1)..][..8];
            assert_eq!(last[6..], [signal as u32, (signal >> 32) as u32]);
        }
        f.b.no_errors();
    }
}

/// The record of a signal comes before its value, so a queue that retries waits with both.
#[test]
fn a_signal_waits_for_the_buffer() {
    let mut f = Fixture::with(&GFX90A, 0x43, 4096, |b, p, _| {
        p.retry = true;
        p.queue(b).into_aql(b)
    });
    let (eop, signal) = (eop(&f), f.va + 64);
    f.b.set64(f.bus + 72, 5);
    f.p.set_pte(&mut f.b, eop, 0);
    f.b.flush_vmid(f.b.first_vmid());
    f.q.send_aql(&mut f.b, &barrier(signal));
    f.b.run_for(5_000_000);
    assert_eq!(f.b.ram64(f.bus + 72), 5, "no record, no completion");
    let page = f.b.alloc_ram(4096);
    f.p.set_pte(&mut f.b, eop, page | 0x77);
    f.b.run_for(5_000_000);
    assert_eq!(f.b.ram64(f.bus + 72), 4);
    assert_eq!(f.b.gpu.soc.log.stats.eop_records, 1);
    f.b.no_errors();
}
