// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the device waits for, trapped accesses do not: threads that execute waves, and what these tell.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{mpsc, Arc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::direct::hqd;
use common::fixture::{active, inject, Fixture, FIRST};
use common::full::pressed;
use common::kernel::{self, is_done, submit, without_llvm, Launch, DATA};
use common::queue::write_data;
use common::{Bench, Sys, RAM_BUS};
use gpu_model::asic::GFX90A;
use gpu_model::device::Gpu;
use gpu_model::inject::Kind;
use gpu_model::server::Shared;
use gpu_model::waves::job::{After, Job, Work};
use gpu_model::waves::report::{Report, What};

/// Longer than any host takes for what is waited for here.
const PATIENCE: Duration = Duration::from_secs(60);

/// A device whose worker runs.
struct Served {
    shared: Arc<Shared>,
    worker: JoinHandle<()>,
    now: Arc<AtomicU64>,
    ram: File,
}

impl Served {
    fn new(b: Bench) -> Self {
        let ram = b.ram_file();
        let Bench { gpu, now, .. } = b;
        let shared = Shared::new(gpu);
        let worker = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.run_worker()
        });
        Self {
            shared,
            worker,
            now,
            ram,
        }
    }

    /// What an access of the guest finds, which must not wait for ever.
    fn access<T: Send + 'static>(&self, access: impl FnOnce(&mut Gpu) -> T + Send + 'static) -> T {
        let shared = Arc::clone(&self.shared);
        in_time(move || shared.trapped(access))
    }

    /// The device looks several times at what it waits for, and answers meanwhile.
    fn looks_again(&self) {
        for _ in 0..5 {
            let before = self.access(steps);
            self.eventually("a step", |s| s.access(steps) > before + 1);
            let size = self.access(|gpu| {
                let mut size = [0; 4];
                gpu.mmio_read(0x378c, &mut size);
                u32::from_le_bytes(size)
            });
            assert_eq!(size, 64);
        }
    }

    fn word(&self, at: Sys) -> u32 {
        let mut word = [0; 4];
        self.ram.read_exact_at(&mut word, at.bus - RAM_BUS).unwrap();
        u32::from_le_bytes(word)
    }

    fn eventually(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !holds(self) {
            assert!(begun.elapsed() < PATIENCE, "{what}");
            self.now.fetch_add(1_000_000, Ordering::Relaxed);
            self.shared.wake();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn end(self) {
        let errors = self.access(|gpu| gpu.soc.log.total_errors());
        assert_eq!(errors, 0);
        self.shared.stop();
        self.worker.join().unwrap();
    }
}

fn steps(gpu: &mut Gpu) -> u64 {
    gpu.latency.step.count()
}

/// INVALIDATE_TLBS of the KIQ: the ring goes on when nobody uses the old translations any more.
#[test]
fn a_flush_waits_for_those_who_execute() {
    for kind in [0, 2] {
        let mut f = Fixture::new(&GFX90A, 0x41, 4096);
        let fence = f.b.alloc_sys(4096);
        let mut executor = f.b.gpu.soc.spaces.register();
        executor.pass();
        f.b.submit_kiq(&[0xc000_9800, 1 | (1 << 4) | (0x41 << 5) | (kind << 29)]);
        f.b.submit_kiq(&write_data(fence.gart, 7));
        let s = Served::new(f.b);
        let count = |gpu: &mut Gpu| gpu.soc.log.stats.tlb_invalidations;
        let before = s.access(count);
        s.looks_again();
        assert_eq!((s.word(fence), s.access(count)), (0, before), "{kind}");
        executor.pass();
        s.eventually("the fence", |s| s.word(fence) == 7);
        // Once for each hub, however often it was looked at.
        assert_eq!(s.access(count), before + 2);
        s.end();
    }
}

/// MAP_PROCESS: the queues of the process run when nobody uses what its VMID had before.
#[test]
fn a_process_waits_for_those_who_execute() {
    for slices in [false, true] {
        let mut f = Fixture::new(&GFX90A, 0x41, 4096);
        f.preempt();
        let done = Sys {
            bus: f.bus,
            gart: 0,
        };
        f.q.push(&mut f.b, &write_data(f.va, 7));
        f.b.run_list(&f.list, slices, 1);
        let mut executor = f.b.gpu.soc.spaces.register();
        executor.pass();
        let s = Served::new(f.b);
        s.looks_again();
        let seen = s.access(|gpu| (gpu.hws.mapped().len(), gpu.hws.process(3).map(|p| p.pasid)));
        // The HIQ is there, and the process has its VMID.
        assert_eq!(seen, (1, Some(0x41)));
        assert_eq!(s.word(done), 0);
        executor.pass();
        // The next one is paused, or windows that follow each other would wait for it.
        executor.pause();
        s.eventually("the queue runs", |s| s.word(done) == 7);
        s.end();
    }
}

/// A queue with a kernel of one group, which waits for a dword of its data and is with somebody who executes it.
fn executed() -> (Fixture, Job) {
    let program = "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n\
        again: s_load_dword s6, s[4:5], 0x0 glc\ns_waitcnt lgkmcnt(0)\n\
        s_cmp_eq_u32 s6, 0\ns_cbranch_scc1 again\ns_endpgm";
    let mut f = kernel::fixture(&GFX90A, 1, false, true);
    submit(&mut f, &GFX90A, &Launch::new(program, 64, 64));
    f.b.run_steps(50);
    let Some(Work::Resume(job)) = f.b.gpu.waves.dispatcher.take() else {
        panic!("the group has begun");
    };
    (f, job)
}

fn mapped(gpu: &mut Gpu) -> usize {
    gpu.hws.mapped().iter().filter(|m| !m.by_kiq).count()
}

#[test]
fn a_preemption_waits_for_those_who_execute() {
    if without_llvm("preemption of what executes") {
        return;
    }
    // Also UNMAP_QUEUES with reset.
    for action in [0, 1] {
        let (mut f, job) = executed();
        let fence = f.b.unmap(3, action, 0);
        let dispatcher = Arc::clone(&f.b.gpu.waves.dispatcher);
        let mqd = f.q.mqd;
        let s = Served::new(f.b);
        s.looks_again();
        assert_eq!((s.word(fence), s.access(mapped)), (10, 1));
        dispatcher.give_back(job, After::Ready);
        s.eventually("the fence", |s| s.word(fence) == 100);
        assert_eq!((s.access(mapped), dispatcher.figures().1), (0, 0));
        // The waves are in the save area, unless the queue was reset.
        let dw = |n: u64| {
            s.word(Sys {
                bus: mqd.bus + 4 * n,
                ..mqd
            })
        };
        assert_eq!(dw(175) - dw(174), if action == 0 { 16 } else { 0 });
        s.end();
    }
}

/// What its waves have told is taken before a queue leaves, as much in a step as there is time for.
#[test]
fn a_preemption_waits_for_what_waves_have_told() {
    if without_llvm("preemption behind reports") {
        return;
    }
    const TOLD: u64 = 40;
    for action in [0, 1] {
        let (mut f, job) = executed();
        let dispatcher = Arc::clone(&f.b.gpu.waves.dispatcher);
        let posted = |f: &Fixture| f.b.gpu.soc.log.stats.interrupts_posted;
        let before = posted(&f);
        for _ in 0..TOLD {
            dispatcher.report(Report {
                dispatch: Arc::clone(&job.dispatch),
                spot: job.spot(0),
                what: What::Message(1, false),
            });
        }
        let fence = f.b.unmap(3, action, 0);
        dispatcher.give_back(job, After::Ready);
        let (mut last, mut steps) = (before, 0);
        while f.b.ram64(fence.bus) != 100 {
            pressed(&mut f.b);
            steps += 1;
            assert!(steps < 10_000);
            let now = posted(&f);
            // One before a group executes in the step, and one behind it.
            assert!(now <= last + 2, "{last} {now}");
            assert!(mapped(&mut f.b.gpu) == 1 || now == before + TOLD);
            last = now;
        }
        assert_eq!(last, before + TOLD);
        f.b.no_errors();
    }
}

/// The end of a window of time slicing.
#[test]
fn a_window_waits_for_those_who_execute() {
    if without_llvm("windows and what executes") {
        return;
    }
    let (mut f, job) = executed();
    let dispatcher = Arc::clone(&f.b.gpu.waves.dispatcher);
    f.b.gpu.waves.dispatcher.give_back(job, After::Ready);
    f.preempt();
    f.b.run_list(&f.list, true, 1);
    f.b.run_steps(50);
    let Some(Work::Resume(job)) = dispatcher.take() else {
        panic!("the group goes on");
    };
    let rotations = f.b.gpu.soc.log.stats.rotations;
    f.b.advance(200_000_000);
    let s = Served::new(f.b);
    s.looks_again();
    let seen = s.access(move |gpu| (mapped(gpu), gpu.soc.log.stats.rotations - rotations));
    assert_eq!(seen, (1, 1));
    dispatcher.give_back(job, After::Ready);
    s.eventually("the next windows", |s| {
        s.access(move |gpu| gpu.soc.log.stats.rotations > rotations + 2)
    });
    s.end();
}

/// What does not take for ever.
fn in_time<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, answer) = mpsc::channel();
    std::thread::spawn(move || done.send(what()));
    answer.recv_timeout(PATIENCE).expect("an end")
}

/// The driver's own ways, by registers: ACTIVE stays as long as waves are executed.
#[test]
fn dequeues_and_resets_by_register_wait_for_those_who_execute() {
    if without_llvm("dequeues of what executes") {
        return;
    }
    // CP_HQD_DEQUEUE_REQUEST, SPI_COMPUTE_QUEUE_RESET.
    for (register, value) in [(hqd(152), 1), (0xc76c, 1)] {
        let (mut f, job) = executed();
        let dispatcher = Arc::clone(&f.b.gpu.waves.dispatcher);
        // A driver may do so if the scheduler does not answer.
        inject(&mut f.b, Kind::HangHws, None, None);
        let mut f = in_time(move || {
            f.b.wr(0x8088, FIRST);
            f.b.wr(register, value);
            for _ in 0..20 {
                f.b.advance(100_000);
                f.b.run();
                assert!(active(&mut f.b, FIRST), "{register:#x}");
            }
            f
        });
        dispatcher.give_back(job, After::Ready);
        // What gives it back wakes the device.
        assert!(!dispatcher.may_sleep());
        f.b.run();
        assert!(!active(&mut f.b, FIRST), "{register:#x}");
        assert_eq!(dispatcher.figures().1, 0);
        f.b.no_errors();
    }
}

/// A scheduler that is reset while it takes queues off leaves those that are still there as they were.
#[test]
fn a_preemption_that_is_called_off_leaves_waves_alone() {
    if without_llvm("preemption called off") {
        return;
    }
    let (mut f, job) = executed();
    let dispatcher = Arc::clone(&f.b.gpu.waves.dispatcher);
    let fence = f.b.unmap(3, 0, 0);
    let mut f = in_time(move || {
        f.b.run();
        f
    });
    assert!(!dispatcher.has_work());
    dispatcher.give_back(job, After::Ready);
    assert!(!dispatcher.has_work(), "it is held");
    // The HIQ's slot.
    f.b.wr(0x8088, 2 << 2);
    f.b.wr(0xc76c, 1);
    f.b.advance(100_000);
    assert_eq!(f.b.rd(hqd(130)) & 1, 0);
    f.b.wr(0x8088, 0);
    assert!(dispatcher.has_work(), "it goes on");
    f.b.set32(f.bus + DATA, 1);
    f.b.run();
    assert!(is_done(&f));
    assert_eq!(f.b.ram64(fence.bus), 10);
    f.b.no_errors();
}

/// Waves that send messages faster than the device takes them wait for it, and it does not wait for the last one.
#[test]
fn messages_without_end_hold_up_nobody() {
    if without_llvm("messages without end") {
        return;
    }
    for threads in [0, 2] {
        let mut f = kernel::fixture(&GFX90A, 1, false, true);
        if threads > 0 {
            f.b.gpu.waves.spawn(threads).unwrap();
        }
        let program = "loop: s_sendmsg sendmsg(MSG_INTERRUPT)\ns_branch loop";
        submit(&mut f, &GFX90A, &Launch::new(program, 64, 512));
        let most = in_time(move || {
            let (mut most, mut steps) = (0, 0);
            // With threads the first messages take their time.
            while steps < 50 || f.b.gpu.soc.log.stats.interrupts_posted < 10_000 {
                let _ = f.b.gpu.step();
                steps += 1;
                most = most.max(f.b.gpu.waves.dispatcher.reports());
            }
            // They can be taken off as ever.
            let fence = f.b.unmap(3, 0, 0);
            while f.b.ram64(fence.bus) != 100 {
                let _ = f.b.gpu.step();
            }
            most
        });
        // Each who executes tells a few more.
        assert!(most <= 256 + 16, "{most} reports");
    }
}
