// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Where most tests begin: the scheduler runs, and a process has a queue in its run list.

use std::time::{Duration, Instant};

use super::direct::hqd;
use super::proc::Proc;
use super::queue::UserQueue;
use super::Bench;
use gpu_model::asic::Asic;
use gpu_model::inject::{Injection, Kind};

/// A process with a page and a connected queue.
pub struct Fixture {
    pub b: Bench,
    pub p: Proc,
    pub q: UserQueue,
    /// The page: GPU address, bus address.
    pub va: u64,
    pub bus: u64,
    pub list: Vec<u32>,
}

impl Fixture {
    /// With a PM4 queue.
    pub fn new(asic: &'static Asic, pasid: u16, page: u64) -> Self {
        Self::with(asic, pasid, page, |b, p, _| p.queue(b))
    }

    /// With the queue that `make` gives; it is told the page, as (GPU address, bus address).
    pub fn with(
        asic: &'static Asic,
        pasid: u16,
        page: u64,
        make: impl FnOnce(&mut Bench, &mut Proc, (u64, u64)) -> UserQueue,
    ) -> Self {
        Self::on(Bench::scheduled(asic), pasid, page, make)
    }

    /// As [`Fixture::with`], on a device whose scheduler runs.
    pub fn on(
        mut b: Bench,
        pasid: u16,
        page: u64,
        make: impl FnOnce(&mut Bench, &mut Proc, (u64, u64)) -> UserQueue,
    ) -> Self {
        let mut p = Proc::new(&mut b, pasid, 0);
        let (va, bus) = p.page(&mut b, page);
        let q = make(&mut b, &mut p, (va, bus));
        let mut list = p.map_process(&b, 1);
        list.extend(q.map_queues());
        b.run_list(&list, false, 1);
        b.run();
        b.no_errors();
        Self {
            b,
            p,
            q,
            va,
            bus,
            list,
        }
    }

    /// Takes the queue off its slot and waits for the fence.
    pub fn preempt(&mut self) {
        let fence = self.b.unmap(3, 0, 0);
        self.b.run();
        let begun = Instant::now();
        while self.b.gpu.waves.has_threads() && self.b.ram64(fence.bus) != 100 {
            // They give their waves back when the machine lets them run.
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
            self.b.run_for(100_000);
        }
        assert_eq!(self.b.ram64(fence.bus), 100);
    }

    /// Submits the run list again.
    pub fn resume(&mut self) {
        let list = self.list.clone();
        self.b.run_list(&list, false, 1);
        self.b.run();
    }
}

/// GRBM_GFX_CNTL of MEC1, pipe 0, queue 2: the first slot of the pool.
pub const FIRST: u32 = (1 << 2) | (2 << 8);

/// Whether the slot that GRBM_GFX_CNTL selects holds a queue.
pub fn active(b: &mut Bench, select: u32) -> bool {
    b.wr(0x8088, select);
    let v = b.rd(hqd(130));
    b.wr(0x8088, 0);
    v & 1 != 0
}

/// Switches a fault on, for one doorbell (dword index) or for all.
pub fn inject(b: &mut Bench, kind: Kind, doorbell: Option<u32>, ms: Option<u64>) {
    assert!(b.gpu.soc.inject.add(Injection {
        kind,
        doorbell,
        count: None,
        ms
    }));
}

/// UNMAP_QUEUES by doorbell list.
pub fn unmap_doorbells(b: &mut Bench, action: u32, bells: &[u64]) {
    let mut w = vec![
        0xc004_a300,
        action | ((bells.len() as u32) << 29),
        0,
        0,
        0,
        0,
    ];
    for (i, bell) in bells.iter().enumerate() {
        w[2 + i] = *bell as u32;
    }
    b.submit_hiq(&w);
    b.run();
}
