// SPDX-License-Identifier: GPL-2.0

//! The progress watchdog: whom it names, whom not, and how often. The test is the timer.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    time::msecs_to_jiffies, //
};

use super::{
    fake::{
        config,
        create,
        pm4,
        process,
        sdma,
        setup_with,
        Event::{
            Fence,
            UnmapProcess, //
        },
        Fake,
        Mode, //
    },
    health::Health,
    machine::Machine,
    params::{
        Config,
        EvictCause,
        Policy, //
    },
    record::{
        QueueHold,
        SpecKind, //
    },
    steps::destroy, //
};
use crate::kapi::ticker::{
    new_ticker,
    Tick, //
};

use super::fake::finish;

/// A look each quarter of the limit, as the timer would.
const LOOK_US: u64 = 250_000;

fn setup() -> Result<(Arc<Fake>, Arc<Machine>)> {
    setup_with(Config {
        watchdog_ms: 1000,
        ..config()
    })
}

/// Looks `times` times.
fn look(fake: &Fake, machine: &Machine, times: u32) {
    for _ in 0..times {
        fake.pass(LOOK_US);
        machine.watch();
    }
}

fn stuck(machine: &Machine) -> u64 {
    machine.counters.snapshot().stuck
}

#[kunit_tests(rkfd_sched_watchdog)]
mod cases {
    use super::*;

    #[test]
    fn queue_that_stands_still_is_named_once() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(77))?;
        create(&machine, proc, 1)?;
        create(&machine, proc, 2)?;
        machine.converge();
        fake.set_pointers(1, 0x10, 0x40)?;
        look(&fake, &machine, 4);
        assert_eq!(stuck(&machine), 0);
        look(&fake, &machine, 1);
        assert_eq!(stuck(&machine), 1);
        // Doorbell 1 is byte 8; the registers come after.
        assert_eq!(
            fake.warnings("(pasid 77, doorbell 0x8, me 1 pipe 0 queue 2) has work and makes no progress for 1000 ms: read pointer 0x10, write pointer 0x40"),
            1
        );
        assert_eq!(fake.warnings("CP_HQD_ACTIVE 0x1 CP_HQD_PQ_RPTR 0x10"), 1);
        look(&fake, &machine, 20);
        assert_eq!(stuck(&machine), 1);
        finish(&fake, machine)
    }

    #[test]
    fn progress_starts_the_time_anew() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        create(&machine, proc, 1)?;
        machine.converge();
        for rptr in 0..10 {
            fake.set_pointers(1, rptr, 0x40)?;
            look(&fake, &machine, 4);
        }
        assert_eq!(stuck(&machine), 0);
        look(&fake, &machine, 1);
        assert_eq!(stuck(&machine), 1);
        // It gets on, and stands still once more.
        fake.set_pointers(1, 0x20, 0x40)?;
        look(&fake, &machine, 5);
        assert_eq!(stuck(&machine), 2);
        finish(&fake, machine)
    }

    #[test]
    fn idle_queue_is_never_named() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        create(&machine, proc, 1)?;
        let mut aql = pm4(2);
        aql.kind = SpecKind::Aql;
        machine.create_queue(proc, aql, QueueHold::default())?;
        machine.converge();
        // A ring of 0x400 dwords: the write pointer counts on.
        fake.set_pointers(1, 0x10, 0x8410)?;
        // 64 packets: both pointers in packets, then the read pointer in dwords.
        fake.set_pointers(2, 0x05, 0x45)?;
        look(&fake, &machine, 20);
        fake.set_pointers(2, 0x50, 0x45)?;
        look(&fake, &machine, 20);
        assert_eq!(stuck(&machine), 0);
        fake.set_pointers(2, 0x05, 0x46)?;
        look(&fake, &machine, 5);
        assert_eq!(stuck(&machine), 1);
        assert_eq!(fake.warnings("aql queue"), 1);
        finish(&fake, machine)
    }

    #[test]
    fn full_ring_is_work() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        create(&machine, proc, 1)?;
        let mut aql = pm4(2);
        aql.kind = SpecKind::Aql;
        machine.create_queue(proc, aql, QueueHold::default())?;
        machine.converge();
        // 64 packets of 64, on hardware of which nobody knows whether it marks empty rings.
        fake.set_pointers(2, 0x05, 0x45)?;
        look(&fake, &machine, 20);
        assert_eq!(stuck(&machine), 0);
        // It does: another ring is marked, and this is not.
        fake.mark_empty(1, true)?;
        look(&fake, &machine, 6);
        assert_eq!(stuck(&machine), 1);
        assert_eq!(fake.warnings("aql queue"), 1);
        // Gone through, and idle at the same place.
        fake.mark_empty(2, true)?;
        look(&fake, &machine, 20);
        assert_eq!(stuck(&machine), 1);
        finish(&fake, machine)
    }

    #[test]
    fn queue_that_stands_in_an_indirect_buffer_is_named() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        create(&machine, proc, 1)?;
        machine.converge();
        // The packet that called the buffer was the last one.
        fake.set_pointers(1, 0x40, 0x40)?;
        for at in 0..10 {
            fake.enter_buffer(1, at)?;
            look(&fake, &machine, 4);
        }
        assert_eq!(stuck(&machine), 0);
        look(&fake, &machine, 1);
        assert_eq!(stuck(&machine), 1);
        assert_eq!(
            fake.warnings("in an indirect buffer of 0 dwords at 0x0, at dword 9"),
            1
        );
        finish(&fake, machine)
    }

    #[test]
    fn report_decodes_registers_and_descriptor() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        create(&machine, proc, 1)?;
        machine.converge();
        fake.set_pointers(1, 0x10, 0x40)?;
        look(&fake, &machine, 5);
        assert_eq!(stuck(&machine), 1);
        assert_eq!(
            fake.warnings("in no indirect buffer, not asked to leave"),
            1
        );
        assert_eq!(
            fake.warnings("pm4 ring of 4096 bytes at 0x7f0000100000, priority 7, share 100 %"),
            1
        );
        // A word that only the descriptor has: the fake device shows no such register.
        assert_eq!(fake.warnings("CP_HQD_EOP_BASE_ADDR"), 1);
        finish(&fake, machine)
    }

    #[test]
    fn silent_firmware_is_noticed_without_a_change() -> Result {
        let (fake, machine) = setup()?;
        // Without a list it has nothing to be silent about.
        fake.set_mode(Mode::Dead);
        machine.tick();
        assert_eq!(machine.health(), Health::Running);
        fake.set_mode(Mode::Good);
        let proc = machine.attach(process(1))?;
        let queue = create(&machine, proc, 1)?;
        machine.converge();
        let _ = fake.log();
        machine.tick();
        assert_eq!(fake.log().as_slice(), &[Fence]);
        assert_eq!(machine.health(), Health::Running);
        // A list of which nothing is left needs nobody.
        destroy(&machine, proc, queue)?;
        assert_eq!(fake.log().as_slice(), &[UnmapProcess(1), Fence]);
        machine.tick();
        assert!(fake.log().is_empty());
        create(&machine, proc, 1)?;
        machine.converge();
        fake.set_mode(Mode::Dead);
        machine.tick();
        assert_eq!(machine.health(), Health::Wedged);
        // Once.
        let sent = fake.doorbells();
        machine.tick();
        assert_eq!(fake.doorbells(), sent);
        assert_eq!(machine.counters.snapshot().timeouts, 1);
        fake.reset();
        machine.after_reset()?;
        machine.converge();
        assert_eq!(fake.mapped(), 1);
        finish(&fake, machine)
    }

    #[test]
    fn sleeping_hardware_is_not_asked() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        create(&machine, proc, 1)?;
        machine.converge();
        machine.suspend()?;
        let _ = fake.log();
        machine.tick();
        assert!(fake.log().is_empty());
        assert_eq!(machine.health(), Health::Running);
        machine.resume()?;
        machine.converge();
        finish(&fake, machine)
    }

    #[test]
    fn queue_off_the_hardware_is_not_judged() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        create(&machine, proc, 1)?;
        machine.converge();
        fake.set_pointers(1, 0x10, 0x40)?;
        look(&fake, &machine, 3);
        let _ = machine.begin_evict(proc, EvictCause::Debugger)?;
        machine.converge();
        look(&fake, &machine, 20);
        machine.restore(proc, EvictCause::Debugger)?;
        machine.converge();
        look(&fake, &machine, 4);
        assert_eq!(stuck(&machine), 0);
        look(&fake, &machine, 1);
        assert_eq!(stuck(&machine), 1);
        finish(&fake, machine)
    }

    #[test]
    fn many_stuck_queues_are_named_a_few_at_a_time() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        for n in 1..=10 {
            create(&machine, proc, n)?;
            fake.set_pointers(n, 1, 2)?;
        }
        machine.converge();
        look(&fake, &machine, 5);
        assert_eq!(stuck(&machine), 4);
        look(&fake, &machine, 1);
        assert_eq!(stuck(&machine), 8);
        look(&fake, &machine, 5);
        assert_eq!(stuck(&machine), 10);
        finish(&fake, machine)
    }

    #[test]
    fn many_reports_do_not_fill_the_log() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        create(&machine, proc, 1)?;
        machine.converge();
        // A program lets its queue stand still again and again.
        let fills = |rounds: u32| {
            for n in 0..rounds {
                fake.set_pointers(1, 1 + n % 2, 8)?;
                look(&fake, &machine, 5);
            }
            Ok::<(), Error>(())
        };
        fills(40)?;
        assert_eq!(stuck(&machine), 40);
        assert_eq!(fake.warnings("makes no progress"), 16);
        // The next minute tells how many there were.
        fake.pass(60_000_000);
        fills(1)?;
        assert_eq!(fake.warnings("makes no progress"), 17);
        assert_eq!(fake.warnings("24 more queues"), 1);
        finish(&fake, machine)
    }

    #[test]
    fn rare_looks_need_several_sightings() -> Result {
        let (fake, machine) = setup()?;
        let proc = machine.attach(process(1))?;
        create(&machine, proc, 1)?;
        machine.converge();
        fake.set_pointers(1, 1, 2)?;
        // As if the timer had been held up.
        for sightings in 1..=3 {
            fake.pass(60_000_000);
            machine.watch();
            assert_eq!(stuck(&machine), u64::from(sightings == 3));
        }
        finish(&fake, machine)
    }

    #[test]
    fn zero_turns_it_off() -> Result {
        let (fake, machine) = setup_with(Config {
            watchdog_ms: 0,
            ..config()
        })?;
        let proc = machine.attach(process(1))?;
        create(&machine, proc, 1)?;
        machine.converge();
        fake.set_pointers(1, 1, 2)?;
        look(&fake, &machine, 20);
        assert_eq!(stuck(&machine), 0);
        finish(&fake, machine)
    }

    #[test]
    fn queues_loaded_by_registers_are_watched_too() -> Result {
        let (fake, machine) = setup_with(Config {
            watchdog_ms: 1000,
            policy: Policy::Direct,
            ..config()
        })?;
        let proc = machine.attach(process(1))?;
        create(&machine, proc, 1)?;
        machine.create_queue(proc, sdma(100, 1, 3), QueueHold::default())?;
        machine.converge();
        look(&fake, &machine, 5);
        assert_eq!(stuck(&machine), 0);
        fake.set_sdma_wptr(1, 3, 0x80)?;
        look(&fake, &machine, 5);
        assert_eq!(stuck(&machine), 1);
        assert_eq!(
            fake.warnings("(pasid 1, doorbell 0x320, SDMA 1 queue 3)"),
            1
        );
        assert_eq!(fake.warnings("RB_WPTR 0x80"), 1);
        finish(&fake, machine)
    }

    /// Counts.
    struct Count(Atomic<u32>);

    impl Tick for Count {
        fn tick(&self) {
            self.0.add(1, Relaxed);
        }
    }

    #[test]
    fn ticker_ticks_until_it_is_dropped() -> Result {
        let count = Arc::new(Count(Atomic::new(0)), GFP_KERNEL)?;
        let ticker = new_ticker!("rkfd_test_ticker", 1, count.clone());
        let ticker = KBox::pin_init(ticker, GFP_KERNEL)?;
        kernel::time::delay::fsleep(kernel::time::Delta::from_millis(20));
        assert_eq!(count.0.load(Relaxed), 0);
        ticker.start();
        // Bounded: 3 ticks take three jiffies.
        for _ in 0..1000 {
            if count.0.load(Relaxed) >= 3 {
                break;
            }
            kernel::time::delay::fsleep(kernel::time::Delta::from_millis(1));
        }
        drop(ticker);
        let ticks = count.0.load(Relaxed);
        assert!(ticks >= 3);
        // One that is far in the future goes at once.
        let late = new_ticker!(
            "rkfd_test_ticker",
            msecs_to_jiffies(3_600_000),
            count.clone()
        );
        let late = KBox::pin_init(late, GFP_KERNEL)?;
        late.start();
        drop(late);
        assert_eq!(count.0.load(Relaxed), ticks);
        Ok(())
    }
}
