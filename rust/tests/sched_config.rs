// SPDX-License-Identifier: GPL-2.0

//! The scheduler's module parameters, and what they change.

use kernel::{
    prelude::*,
    str::CString, //
};

use super::{
    config::{
        BadValue,
        Config,
        Parameters,
        Policy, //
    },
    fake::{
        config,
        create,
        finish,
        process,
        setup_with,
        working_scheduler,
        Event,
        Fake, //
    },
    params::QueueUpdate, //
};
use crate::hw::asic::GFX90A;

/// What a module without parameters has.
const DEFAULTS: Parameters = Parameters {
    sched_policy: 0,
    hws_max_conc_proc: -1,
    coalesce: true,
    targeted: true,
    gather_us: 2000,
    preempt_timeout_ms: 9000,
    watchdog_ms: 10_000,
    max_queues: 4096,
    max_queues_per_process: 1024,
    max_processes: 512,
};

/// Sets one parameter.
type Change = fn(&mut Parameters, u32);

/// The parameter that `tunables` are refused for, and its range.
fn refused(tunables: Parameters) -> Option<(&'static str, i64, i64)> {
    let bad = tunables.config().err()?;
    Some((bad.name, *bad.range.start(), *bad.range.end()))
}

#[kunit_tests(rkfd_sched_tunables)]
mod cases {
    use super::*;

    #[test]
    fn defaults_are_upstreams() -> Result {
        let config = DEFAULTS.config().map_err(|_| EINVAL)?;
        assert_eq!(config.policy, Policy::Oversubscribe);
        assert_eq!(config.turn_processes, None);
        assert_eq!(config.timeout_ms, 9000);
        assert_eq!(config.max_queues, 4096);
        assert_eq!(config.max_queues_per_process, 1024);
        assert_eq!(config.max_processes, 512);
        assert!(config.coalesce && config.targeted);
        Ok(())
    }

    #[test]
    fn policies_are_numbered_as_upstream() -> Result {
        for (sched_policy, policy) in [
            (0, Policy::Oversubscribe),
            (1, Policy::Strict),
            (2, Policy::Direct),
        ] {
            let tunables = Parameters {
                sched_policy,
                ..DEFAULTS
            };
            assert_eq!(tunables.config().map_err(|_| EINVAL)?.policy, policy);
        }
        Ok(())
    }

    #[test]
    fn limits_hold_at_both_ends() -> Result {
        let with = |change: Change, value| {
            let mut tunables = DEFAULTS;
            change(&mut tunables, value);
            refused(tunables)
        };
        let cases: [(&'static str, u32, u32, Change); 7] = [
            ("sched_policy", 0, 2, |t, v| t.sched_policy = v),
            ("gather_us", 0, 1_000_000, |t, v| t.gather_us = v),
            ("preempt_timeout_ms", 1, 60_000, |t, v| {
                t.preempt_timeout_ms = v
            }),
            ("watchdog_ms", 0, 3_600_000, |t, v| t.watchdog_ms = v),
            ("max_queues", 1, 512 * 1024, |t, v| t.max_queues = v),
            ("max_queues_per_process", 1, 1024, |t, v| {
                t.max_queues_per_process = v
            }),
            ("max_processes", 1, 512, |t, v| t.max_processes = v),
        ];
        for (name, first, last, change) in cases {
            let outside = Some((name, i64::from(first), i64::from(last)));
            assert_eq!(with(change, first), None);
            assert_eq!(with(change, last), None);
            assert_eq!(with(change, last + 1), outside);
            assert_eq!(with(change, u32::MAX), outside);
            if let Some(below) = first.checked_sub(1) {
                assert_eq!(with(change, below), outside);
            }
        }
        Ok(())
    }

    #[test]
    fn of_negative_numbers_of_processes_only_minus_one_means_something() -> Result {
        let with = |hws_max_conc_proc| Parameters {
            hws_max_conc_proc,
            ..DEFAULTS
        };
        for (value, processes) in [
            (-1, None),
            (0, Some(0)),
            (3, Some(3)),
            (i32::MAX, Some(0x7fff_ffff)),
        ] {
            let config = with(value).config().map_err(|_| EINVAL)?;
            assert_eq!(config.turn_processes, processes);
        }
        for value in [-2, -16, i32::MIN] {
            assert_eq!(
                refused(with(value)),
                Some(("hws_max_conc_proc", -1, 0x7fff_ffff))
            );
        }
        let bad = with(-2).config().err().ok_or(EINVAL)?;
        assert_eq!(
            CString::try_from_fmt(fmt!("{bad}"))?.to_bytes(),
            b"hws_max_conc_proc=-2 is not within -1 to 2147483647 (-1: as many as there are VMIDs)"
        );
        Ok(())
    }

    #[test]
    fn complaint_names_parameter_value_and_range() -> Result {
        let text = |bad: BadValue| CString::try_from_fmt(fmt!("{bad}"));
        let bad = Parameters {
            sched_policy: 3,
            ..DEFAULTS
        };
        let bad = bad.config().err().ok_or(EINVAL)?;
        let message = text(bad)?;
        assert_eq!(
            message.to_bytes(),
            b"sched_policy=3 is not within 0 to 2 (0: HWS, 1: HWS without over-subscription, 2: no HWS)"
        );
        let bad = Parameters {
            max_processes: 0,
            ..DEFAULTS
        };
        let bad = bad.config().err().ok_or(EINVAL)?;
        let message = text(bad)?;
        assert_eq!(
            message.to_bytes(),
            b"max_processes=0 is not within 1 to 512"
        );
        Ok(())
    }

    #[test]
    fn processes_and_their_queues_are_limited() -> Result {
        let (fake, sched) = setup_with(Config {
            max_processes: 2,
            max_queues_per_process: 3,
            ..config()
        })?;
        let first = sched.attach(process(1))?;
        let second = sched.attach(process(2))?;
        assert_eq!(sched.attach(process(3)).err(), Some(ENOSPC));
        for n in 0..3 {
            create(&sched, first, n)?;
        }
        assert_eq!(create(&sched, first, 3).err(), Some(ENOSPC));
        create(&sched, second, 4)?;
        sched.detach(second)?;
        sched.attach(process(3))?;
        sched.converge();
        assert_eq!(fake.mapped(), 3);
        finish(&fake, sched)
    }

    #[test]
    fn without_coalescing_each_change_takes_a_preemption_and_a_list() -> Result {
        let fake = Fake::new(&GFX90A)?;
        let sched = working_scheduler(
            &fake,
            Config {
                coalesce: false,
                gather_us: 1_000_000,
                ..config()
            },
        )?;
        let proc = sched.attach(process(1))?;
        let stats = || {
            let stats = sched.core.counters.snapshot();
            (stats.preemptions, stats.runlists, stats.queues_mapped)
        };
        let first = create(&sched, proc, 0)?;
        // Nothing ran that could be preempted.
        assert_eq!(stats(), (0, 1, 1));
        create(&sched, proc, 1)?;
        assert_eq!(stats(), (1, 2, 3));
        create(&sched, proc, 2)?;
        assert_eq!(stats(), (2, 3, 6));
        let _ = fake.log();
        sched.update_queue(
            proc,
            first,
            QueueUpdate {
                priority: Some(3),
                ..QueueUpdate::default()
            },
        )?;
        assert_eq!(stats(), (3, 4, 9));
        sched.destroy_queue(proc, first)?;
        // The list is in force before the caller goes on.
        assert_eq!(stats(), (4, 5, 11));
        assert_eq!(fake.mapped(), 2);
        let unmaps = |event: &&Event| matches!(event, Event::UnmapAll);
        assert_eq!(fake.log().iter().filter(unmaps).count(), 2);
        assert_eq!(sched.core.counters.snapshot().narrow_preemptions, 0);
        finish(&fake, sched)
    }

    #[test]
    fn counters_tell_operations_apart() -> Result {
        let (fake, sched) = setup_with(config())?;
        let proc = sched.attach(process(1))?;
        let queue = create(&sched, proc, 0)?;
        create(&sched, proc, 1)?;
        sched.update_queue(
            proc,
            queue,
            QueueUpdate {
                percent: Some(50),
                ..QueueUpdate::default()
            },
        )?;
        sched.destroy_queue(proc, queue)?;
        // A queue that is not there is no operation.
        sched.destroy_queue(proc, queue)?;
        let stats = sched.core.counters.snapshot();
        assert_eq!((stats.creates, stats.updates, stats.destroys), (2, 1, 1));
        finish(&fake, sched)
    }
}
