// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The waves of a queue leave the compute units in parts, to be saved or because of a reset: how many a step takes off,
//! and what may happen between two of them.
#![allow(clippy::unwrap_used, reason = "a test may panic; that is how it fails")]

mod common;

use common::direct::{hqd, slot};
use common::fixture::{active, FIRST};
use common::full::{blank, others_run, pressed, state, wait, written, Full, BLANK};
use common::kernel::without_llvm;
use common::{Bench, Sys};
use proptest::prelude::*;

/// Groups that leave their units between two looks at who waits.  They have one wave each.
const LEAVE: u32 = 64;
/// Groups whose entries are written to the control stack at once.
const ENTRIES: usize = 128;
/// Bytes of an entry.
const ENTRY: usize = 8;

/// The entries of the control stack of the queue, from the first that may be used on.
fn entries(f: &Full) -> Vec<[u8; ENTRY]> {
    let used = ENTRY * (1 + f.count as usize);
    let mut bytes = vec![0; used];
    let end = f.q.mqd.bus + 4096 + u64::from(f.q.save.1);
    f.b.ram_read(end - used as u64, &mut bytes);
    bytes.chunks(ENTRY).map(|e| e.try_into().unwrap()).collect()
}

fn blank_stack(f: &Full) {
    let bytes = vec![BLANK; f.q.save.1 as usize];
    f.b.ram_write(f.q.mqd.bus + 4096, &bytes);
}

/// Nothing is written to the area: the first piece follows the record.
fn untouched(f: &Full) -> bool {
    state(f, 4096).iter().all(|b| *b == BLANK)
}

/// Waves that somebody who looks at them sees.
fn seen(f: &Full) -> usize {
    f.b.gpu.waves.dispatcher.look().waves.len()
}

#[test]
fn no_step_takes_more_than_a_part_of_the_waves_off() {
    if without_llvm("parts of what leaves") {
        return;
    }
    let mut f = Full::new(16);
    f.map();
    blank(&f);
    let fence = f.b.unmap(3, 0, 0);
    let (mut last, mut parts, mut steps) = (f.count, 0, 0);
    while last > 0 {
        pressed(&mut f.b);
        let now = Full::waves(&f.b);
        assert!(now <= last && last - now <= LEAVE, "{last} {now}");
        parts += u32::from(now < last);
        assert!(active(&mut f.b, FIRST), "the queue is still there");
        assert!(untouched(&f), "nothing is written before all are off");
        (last, steps) = (now, steps + 1);
        assert!(steps < 100);
    }
    assert_eq!(parts, f.count.div_ceil(LEAVE));
    wait(&mut f.b, fence);
    assert_eq!(f.saved().0, ENTRY as u32 * (1 + f.count));
    f.map();
    f.end();
}

#[test]
fn no_step_writes_more_than_a_part_of_the_control_stack() {
    if without_llvm("parts of the control stack") {
        return;
    }
    let mut f = Full::new(24);
    f.map();
    blank(&f);
    blank_stack(&f);
    let fence = f.b.unmap(3, 0, 0);
    let (mut last, mut parts, mut steps) = (0, 0, 0);
    while f.b.ram64(fence.bus) != 100 {
        pressed(&mut f.b);
        steps += 1;
        assert!(steps < 10_000);
        let entries = entries(&f);
        let (first, rest) = entries.split_first().unwrap();
        let now = rest.iter().filter(|e| **e != [BLANK; ENTRY]).count();
        assert!(now - last <= ENTRIES, "{last} {now}");
        parts += usize::from(now > last);
        last = now;
        let valid = *first != [BLANK; ENTRY];
        assert_eq!(valid, !active(&mut f.b, FIRST), "it is valid at the end");
        assert!(!valid || now == rest.len());
    }
    assert_eq!((last, parts), (f.count as usize, last.div_ceil(ENTRIES)));
    // Each entry tells a seat, and no two waves have the same one.
    let mut seats = entries(&f).split_off(1);
    seats.sort_unstable();
    seats.dedup();
    assert_eq!(seats.len(), f.count as usize);
    f.map();
    f.end();
}

/// Where the control stack is gone when its entries are written, nothing is saved, which is the driver's mistake.
#[test]
fn a_control_stack_that_goes_away_meanwhile_loses_the_save() {
    if without_llvm("a control stack that goes away") {
        return;
    }
    let mut f = Full::new(2);
    f.map();
    blank(&f);
    blank_stack(&f);
    let fence = f.b.unmap(3, 0, 0);
    while written(&f) == 0 {
        pressed(&mut f.b);
    }
    // The last page of it, where the entries are.
    let last = f.q.mqd.gart + u64::from(f.q.save.1);
    f.b.unmap_gart(last);
    wait(&mut f.b, fence);
    assert_eq!(f.saved(), (0, 0));
    assert!(entries(&f).iter().all(|e| *e == [BLANK; ENTRY]));
    let errors = f.b.errors();
    let refused = |e: &String| e.starts_with("cwsr: ") && e.contains("cannot be saved");
    assert_eq!(
        errors.iter().filter(|e| refused(e)).count(),
        1,
        "{errors:?}"
    );
    f.b.gpu.soc.log.clear_errors();
    others_run(&mut f.b);
    f.b.no_errors();
}

/// Between the parts none of its waves executes, though all of them could.
#[test]
fn nothing_of_the_queue_runs_while_it_leaves() {
    if without_llvm("a queue that leaves") {
        return;
    }
    let mut f = Full::new(16);
    f.map();
    let fence = f.b.unmap(3, 0, 0);
    while Full::waves(&f.b) == f.count {
        pressed(&mut f.b);
    }
    f.give_page();
    let begun = f.b.gpu.waves.dispatcher.figures().0;
    wait(&mut f.b, fence);
    assert_eq!(f.stored(), 0);
    assert_eq!(f.b.gpu.waves.dispatcher.figures().0, begun);
    f.list();
    f.finish();
}

/// What happens between two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    QueueReset,
    PipeReset,
    SoftReset,
    DeviceReset,
    /// The scheduler that has asked is reset: its work is over.
    SchedulerReset,
    /// The request of a register is withdrawn.
    Withdrawn,
    /// The engine of a queue that a register takes off is halted.
    Halted,
    /// Bus mastering is off for a while.
    MasterOff,
}

use Meanwhile::*;

impl Meanwhile {
    fn by_register(self) -> bool {
        matches!(self, Withdrawn | Halted)
    }

    fn happens(self, b: &mut Bench) {
        match self {
            QueueReset => {
                b.wr(0x8088, FIRST);
                b.wr(0xc76c, 1);
                b.wr(0x8088, 0);
            }
            PipeReset => {
                b.wr(0x8234, 1 << 16);
                b.wr(0x8234, 0);
            }
            SoftReset => {
                b.wr(0x8020, 1 | (1 << 18));
                b.wr(0x8020, 0);
            }
            DeviceReset => b.gpu.device_reset(),
            SchedulerReset => {
                b.wr(0x8088, 2 << 2);
                b.wr(0xc76c, 1);
                b.advance(100_000);
                assert_eq!(b.rd(hqd(130)) & 1, 0);
                b.wr(0x8088, 0);
            }
            Withdrawn => request(b, 0),
            Halted => b.wr(0x8234, 1 << 30),
            MasterOff => b.gpu.soc.mem.set_bus_master(false),
        }
    }
}

/// CP_HQD_DEQUEUE_REQUEST of the queue that registers have loaded.
fn request(b: &mut Bench, v: u32) {
    b.wr(0x8088, slot(1, 0).select());
    b.wr(hqd(152), v);
    b.wr(0x8088, 0);
}

/// A full queue, on the slot that registers load or on the scheduler's, and its select.
fn running(by_register: bool) -> (Full, u32) {
    let mut f = Full::new(12);
    if !by_register {
        f.map();
        return (f, FIRST);
    }
    f.b.give_vmid(12, &f.p);
    let s = slot(1, 0);
    f.b.hqd_load(s, &f.q, 12);
    let count = f.count;
    f.until(|b| Full::waves(b) == count);
    (f, s.select())
}

/// Asks the queue to leave.
fn ask(f: &mut Full, by_register: bool) -> Option<Sys> {
    if !by_register {
        return Some(f.b.unmap(3, 0, 0));
    }
    request(&mut f.b, 1);
    f.b.advance(200_000);
    None
}

/// Steps, and looks each time whether what there is fits together; returns the waves on the units.
fn steps(f: &mut Full, select: u32, count: usize) -> u32 {
    let mut last = Full::waves(&f.b);
    for _ in 0..count {
        pressed(&mut f.b);
        let (now, seen) = (Full::waves(&f.b), seen(f));
        assert!(now <= last && last - now <= LEAVE, "{last} {now}");
        // All of the dispatch is under way, or nothing of it.
        assert!(seen == 0 || (seen, now) == (f.count as usize, f.count));
        assert!(active(&mut f.b, select));
        assert!(now == 0 || untouched(f));
        assert!(state(f, 256).iter().all(|b| *b == BLANK), "it is not valid");
        assert_eq!(entries(f)[0], [BLANK; ENTRY]);
        last = now;
    }
    last
}

fn meanwhile() -> impl Strategy<Value = Meanwhile> {
    prop::sample::select(vec![
        QueueReset,
        PipeReset,
        SoftReset,
        DeviceReset,
        SchedulerReset,
        Withdrawn,
        Halted,
        MasterOff,
    ])
}

/// Few cases, since each fills a board; PROPTEST_CASES asks for more.
fn cases() -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 32;
    }
    config
}

proptest! {
    #![proptest_config(cases())]

    /// After any part, whatever happens: the device is as if it had happened before or behind all of them.
    #[test]
    fn between_all_parts_things_fit_together(what in meanwhile(), before in 0usize..24, again in 0usize..24) {
        if without_llvm("between the parts") {
            return Ok(());
        }
        let (mut f, select) = running(what.by_register());
        blank(&f);
        blank_stack(&f);
        let fence = ask(&mut f, what.by_register());
        let waves = steps(&mut f, select, before);
        what.happens(&mut f.b);
        match what {
            QueueReset | PipeReset | SoftReset | DeviceReset => {
                // A reset of a queue or a pipe takes a while; what is saved until then is.
                f.b.advance(200_000);
                pressed(&mut f.b);
                prop_assert!(!active(&mut f.b, FIRST));
                // The driver frees the area.
                blank(&f);
                blank_stack(&f);
                let now = Full::waves(&f.b);
                prop_assert!(now + LEAVE + 1 >= waves, "none of them takes more than a part off");
                f.b.advance(1_000_000);
                f.b.run_steps(100);
                prop_assert_eq!((written(&f), Full::waves(&f.b)), (0, 0));
                prop_assert!(entries(&f).iter().all(|e| *e == [BLANK; ENTRY]));
                if let Some(fence) = fence.filter(|_| matches!(what, QueueReset | PipeReset)) {
                    wait(&mut f.b, fence);
                    others_run(&mut f.b);
                    f.b.no_errors();
                }
            }
            SchedulerReset | Withdrawn | Halted => {
                // The waves go on, and the queue may be asked again, but for by a scheduler that is no more.
                let count = f.count;
                f.until(|b| Full::waves(b) == count);
                prop_assert_eq!(seen(&f), count as usize);
                if what != SchedulerReset {
                    request(&mut f.b, 0);
                    f.b.wr(0x8234, 0);
                    blank(&f);
                    blank_stack(&f);
                    ask(&mut f, true);
                    steps(&mut f, select, again);
                    request(&mut f.b, 0);
                }
                prop_assert!(active(&mut f.b, select));
                f.end();
            }
            MasterOff => {
                for _ in 0..again {
                    pressed(&mut f.b);
                }
                prop_assert_eq!(Full::waves(&f.b), waves);
                f.b.gpu.soc.mem.set_bus_master(true);
                wait(&mut f.b, fence.unwrap());
                f.map();
                f.end();
            }
        }
    }
}

/// Resets something.
type Reset = fn(&mut Bench);

/// A reset of many waves does not take them off itself; steps do, a part each.
#[test]
fn waves_of_a_queue_that_was_reset_leave_in_parts() {
    if without_llvm("waves of a reset") {
        return;
    }
    // The last one is CP_HQD_ACTIVE, by a driver that does not ask the queue.
    let resets: [(&str, Reset); 4] = [
        ("queue", |b| QueueReset.happens(b)),
        ("soft", |b| SoftReset.happens(b)),
        ("device", |b| DeviceReset.happens(b)),
        ("active", |b| {
            b.wr(0x8088, FIRST);
            b.wr(hqd(130), 0);
            b.wr(0x8088, 0);
        }),
    ];
    for (name, reset) in resets {
        let mut f = Full::new(40);
        f.map();
        reset(&mut f.b);
        f.b.advance(200_000);
        if name != "queue" {
            assert!(!active(&mut f.b, FIRST), "{name}");
        }
        assert_eq!((Full::waves(&f.b), name), (f.count, name));
        for _ in 0..20 {
            let before = Full::waves(&f.b);
            pressed(&mut f.b);
            assert!(before - Full::waves(&f.b) <= 1, "{name}");
        }
        assert!(!active(&mut f.b, FIRST), "{name}");
        assert_eq!(seen(&f), 0, "{name}: none of them executes");
        let before = Full::waves(&f.b);
        assert!(before < f.count, "{name}");
        for _ in 0..10 {
            let before = Full::waves(&f.b);
            let _ = f.b.gpu.step();
            assert!(before - Full::waves(&f.b) <= 256, "{name}");
        }
        assert_eq!(Full::waves(&f.b), 0, "{name}");
        if name == "queue" {
            // Their room is there for others: for those of the same packet, which begins anew.
            f.dispatches = 2;
            f.map();
            f.end();
        }
    }
}
