// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Workers without a GPU.

use super::function::Outcome;
use super::*;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::Mutex;

const LIMIT: Duration = Duration::from_secs(120);

/// How often each number was given to the function `COUNT`.
type Counts = Arc<Mutex<BTreeMap<u64, u32>>>;

const ADD: u32 = 1;
const COUNT: u32 = 2;
const PANIC: u32 = 3;
const FAIL: u32 = 4;
const TWICE: u32 = 5;
const LOOP: u32 = 6;
const OTHER: u32 = 7;

fn functions(counts: &Counts) -> Functions {
    let mut functions = Functions::new();
    functions
        .add(ADD, "add", 16..=16, |call| {
            Outcome::Done(call.word(0).unwrap() + call.word(1).unwrap())
        })
        .unwrap();
    let counts = counts.clone();
    functions
        .add(COUNT, "count", 8..=64, move |call| {
            *counts
                .lock()
                .unwrap()
                .entry(call.word(0).unwrap())
                .or_default() += 1;
            Outcome::Done(call.word(0).unwrap())
        })
        .unwrap();
    functions
        .add(PANIC, "panic", 0..=0, |_| panic!("on purpose"))
        .unwrap();
    functions
        .add(FAIL, "fail", 0..=0, |_| Outcome::Failed(7))
        .unwrap();
    functions
        .add(TWICE, "twice", 0..=64, |call| Outcome::Done(2 * call.input))
        .unwrap();
    functions
        .add(LOOP, "loop", 0..=0, |_| Outcome::Then(Task::new(LOOP, &[])))
        .unwrap();
    functions
        .add(OTHER, "other", 0..=0, |_| {
            Outcome::Then(Task::new(ADD, &[20, 1]))
        })
        .unwrap();
    functions
}

fn start(options: Options) -> (Tasks, Counts) {
    let counts = Counts::default();
    let tasks = Tasks::start(options, functions(&counts)).unwrap();
    (tasks, counts)
}

fn run(tasks: &Tasks, task: &Task) -> std::result::Result<u64, TaskError> {
    tasks.wait(tasks.submit(task).unwrap(), LIMIT)
}

#[test]
fn tasks_end_with_their_value_or_reason() {
    let (tasks, _) = start(Options::default());
    let fails = |task: &Task, reason: u64| {
        assert_eq!(
            run(&tasks, task),
            Err(TaskError::Failed(reason)),
            "{task:?}"
        );
    };
    assert_eq!(run(&tasks, &Task::new(ADD, &[2, 3])), Ok(5));
    fails(&Task::new(99, &[]), failure::FUNCTION);
    fails(&Task::new(ADD, &[2]), failure::BYTES);
    fails(&Task::new(PANIC, &[]), failure::PANIC);
    fails(&Task::new(FAIL, &[]), failure::OWN + 7);
    fails(&Task::new(LOOP, &[]), failure::THEN);
    // What follows gets the value of what it follows, and the same arguments.
    assert_eq!(run(&tasks, &Task::new(ADD, &[2, 3]).then(TWICE)), Ok(10));
    assert_eq!(run(&tasks, &Task::new(OTHER, &[])), Ok(21));
    assert_eq!(run(&tasks, &Task::new(OTHER, &[]).then(TWICE)), Ok(42));
    fails(&Task::new(ADD, &[2, 3]).then(99), failure::THEN);
    fails(&Task::new(FAIL, &[]).then(TWICE), failure::OWN + 7);
    let statistics = tasks.statistics();
    let own = statistics.areas[0];
    assert_eq!(own.taken[Priority::Low.index()], own.done + own.failed);
    assert_eq!((own.done, own.failed, own.rejected), (4, 7, 3));
    assert_eq!((own.futures, own.late, own.corrupt), (0, 0, 0));
}

#[test]
fn what_was_handed_over_runs_before_the_end() {
    let (tasks, counts) = start(Options {
        own: Shape {
            lanes: 2,
            depth: 1024,
            ..Shape::default()
        },
        ..Options::default()
    });
    for n in 0..500 {
        tasks.post(&Task::new(COUNT, &[n]), Priority::Low).unwrap();
        tasks.post(&Task::new(COUNT, &[n]), Priority::High).unwrap();
    }
    drop(tasks);
    let wanted: BTreeMap<u64, u32> = (0..500).map(|n| (n, 2)).collect();
    assert_eq!(*counts.lock().unwrap(), wanted);
}

/// One worker, and one ring of four for the program's tasks.
fn one_worker() -> Options {
    Options {
        own: Shape {
            lanes: 1,
            depth: 4,
            segment: 64,
            futures: 64,
        },
        workers: 1,
        ..Options::default()
    }
}

/// A function that waits until the gate is open, for one worker with a ring of four.
fn gated() -> (Tasks, Arc<AtomicBool>, Arc<AtomicU64>) {
    let gate = Arc::new(AtomicBool::new(false));
    let begun = Arc::new(AtomicU64::new(0));
    let mut functions = Functions::new();
    let (its_gate, its_begun) = (gate.clone(), begun.clone());
    functions
        .add(1, "wait", 0..=8, move |call| {
            its_begun.fetch_add(1, Ordering::AcqRel);
            while !its_gate.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            Outcome::Done(call.word(0).unwrap_or(0))
        })
        .unwrap();
    (Tasks::start(one_worker(), functions).unwrap(), gate, begun)
}

/// Hands tasks over, the first of which is in hand and the others in the ring.
fn one_in_hand(tasks: &Tasks, begun: &AtomicU64, count: u64) -> Vec<Future> {
    let submit = |n| tasks.submit(&Task::new(1, &[n])).unwrap();
    let mut futures = vec![submit(0)];
    while begun.load(Ordering::Acquire) == 0 {
        std::thread::yield_now();
    }
    futures.extend((1..count).map(submit));
    futures
}

const SHORT: Duration = Duration::from_millis(5);

#[test]
fn workers_that_end_at_once_leave_what_they_do_not_have_in_hand() {
    let (tasks, gate, begun) = gated();
    let futures = one_in_hand(&tasks, &begun, 4);
    assert_eq!((tasks.left(), tasks.ready(0), tasks.ready(1)), (4, 3, 0));
    for _ in 0..2 {
        let late = tasks.stop(Stop::AtOnce, SHORT).unwrap_err();
        assert!(matches!(late, Error::TimedOut { seen: 4, .. }), "{late}");
    }
    assert!(!tasks.has_ended());
    let refused = tasks.submit(&Task::new(1, &[9]));
    assert_eq!(refused, Err(TaskError::Refused(Refused::Closed)));
    std::thread::scope(|scope| {
        // One sleeps for what never runs.
        let waiter = scope.spawn(|| tasks.wait(futures[3], LIMIT));
        std::thread::sleep(SHORT);
        gate.store(true, Ordering::Release);
        assert_eq!(tasks.stop(Stop::AtOnce, LIMIT).unwrap(), 3);
        assert_eq!(waiter.join().unwrap(), Err(TaskError::Left));
    });
    assert!(tasks.has_ended());
    assert_eq!(tasks.wait(futures[0], LIMIT), Ok(0));
    for future in &futures[1..3] {
        assert_eq!(tasks.wait(*future, LIMIT), Err(TaskError::Left));
    }
    assert_eq!(tasks.wait(futures[1], LIMIT), Err(TaskError::Stale));
    assert_eq!(tasks.stop(Stop::Drained, Duration::ZERO).unwrap(), 3);
    let own = tasks.statistics().areas[0];
    assert_eq!((own.done, own.failed, own.futures), (1, 0, 0));
    assert_eq!(begun.load(Ordering::Acquire), 1);
}

#[test]
fn workers_that_drain_leave_nothing() {
    let (tasks, gate, begun) = gated();
    let futures = one_in_hand(&tasks, &begun, 5);
    let late = tasks.stop(Stop::Drained, SHORT).unwrap_err();
    assert!(matches!(late, Error::TimedOut { seen: 5, .. }), "{late}");
    gate.store(true, Ordering::Release);
    // Several may ask for it.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert_eq!(tasks.stop(Stop::Drained, LIMIT).unwrap(), 0));
        }
    });
    for (n, future) in (0..).zip(futures) {
        assert_eq!(tasks.wait(future, Duration::ZERO), Ok(n));
    }
    assert_eq!(tasks.statistics().areas[0].done, 5);
}

#[test]
fn a_future_that_is_dropped_is_given_back_by_who_ends_its_task() {
    let (tasks, gate, begun) = gated();
    let futures = one_in_hand(&tasks, &begun, 3);
    assert!(tasks.drop_future(futures[1]));
    assert!(!tasks.drop_future(futures[1]));
    assert_eq!(tasks.wait(futures[1], LIMIT), Err(TaskError::Stale));
    assert_eq!(tasks.statistics().areas[0].futures, 3);
    gate.store(true, Ordering::Release);
    assert_eq!(tasks.wait(futures[2], LIMIT), Ok(2));
    // Its task has ended: the future is given back at once.
    assert!(tasks.drop_future(futures[0]));
    assert_eq!(tasks.statistics().areas[0].futures, 0);
    assert_eq!(tasks.statistics().areas[0].late, 0);
    assert!(!tasks.drop_future(futures[0]));
    assert_eq!(begun.load(Ordering::Acquire), 3);
}

#[test]
fn a_full_ring_is_said_to_be_full_and_loses_nothing() {
    let gate = Arc::new(AtomicBool::new(false));
    let ran = Arc::new(AtomicU64::new(0));
    let mut functions = Functions::new();
    let (its_gate, its_ran) = (gate.clone(), ran.clone());
    functions
        .add(1, "wait", 0..=0, move |_| {
            while !its_gate.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            its_ran.fetch_add(1, Ordering::Relaxed);
            Outcome::Done(0)
        })
        .unwrap();
    let tasks = Tasks::start(one_worker(), functions).unwrap();
    // One in hand, four in the ring.
    let mut futures = Vec::new();
    while futures.len() < 5 {
        match tasks.submit(&Task::new(1, &[])) {
            Ok(future) => futures.push(future),
            Err(e) => assert_eq!(e, TaskError::Refused(Refused::Full)),
        }
    }
    for _ in 0..3 {
        assert_eq!(
            tasks.submit(&Task::new(1, &[])),
            Err(TaskError::Refused(Refused::Full))
        );
    }
    assert_eq!(
        tasks.wait(futures[0], Duration::from_millis(1)),
        Err(TaskError::Pending(Duration::from_millis(1)))
    );
    gate.store(true, Ordering::Release);
    for future in futures {
        assert_eq!(tasks.wait(future, LIMIT), Ok(0));
    }
    assert_eq!(ran.load(Ordering::Relaxed), 5);
    assert_eq!(tasks.statistics().areas[0].futures, 0);
}

#[test]
fn the_task_of_a_dead_worker_runs_or_fails() {
    for workers in [1, 3] {
        let (tasks, counts) = start(Options {
            workers,
            ..Options::default()
        });
        let mut number = 0;
        let (mut again, mut lost) = (0, 0);
        for death in [
            Death::Taken,
            Death::Noted,
            Death::Begun,
            Death::Begun,
            Death::Taken,
        ] {
            for worker in 0..workers {
                tasks.kill(worker, death);
            }
            // Each worker dies with one of these, sooner or later.
            let mut results = Vec::new();
            while (0..workers).any(|n| tasks.crew.stations[n].fate.load(Ordering::Acquire) != 0) {
                number += 1;
                results.push((number, run(&tasks, &Task::new(COUNT, &[number]))));
            }
            let counts = counts.lock().unwrap();
            let mut failed = 0;
            for (number, result) in results {
                let times = counts.get(&number).copied().unwrap_or(0);
                match result {
                    Ok(value) => assert_eq!((value, times), (number, 1)),
                    Err(error) => {
                        // It has begun, or so it may be.
                        assert_eq!(error, TaskError::Failed(failure::WORKER));
                        assert_eq!(times, 0);
                        failed += 1;
                    }
                }
            }
            if death == Death::Begun {
                assert_eq!(failed, workers);
                lost += workers as u64;
            } else {
                assert_eq!(failed, 0, "{death:?}");
                again += workers as u64;
            }
        }
        assert_eq!(run(&tasks, &Task::new(ADD, &[1, 1])), Ok(2));
        let statistics = tasks.statistics();
        assert_eq!(statistics.of_workers(|of| of.deaths), again + lost);
        assert_eq!(statistics.of_workers(|of| of.recovered), again);
        assert_eq!(statistics.of_workers(|of| of.lost), lost);
    }
}

/// Where the system has no thread for the place of a dead worker, its task is settled all the same, and the others go on.
#[test]
fn the_task_of_a_worker_that_nobody_replaces_runs_or_fails() {
    for death in [Death::Taken, Death::Noted, Death::Begun] {
        let (tasks, counts) = start(Options::default());
        tasks.crew.no_threads.store(true, Ordering::Relaxed);
        tasks.kill(0, death);
        let mut failed = 0;
        let mut number = 0;
        while tasks.crew.stations[0].fate.load(Ordering::Acquire) != 0 {
            number += 1;
            match run(&tasks, &Task::new(COUNT, &[number])) {
                Ok(value) => assert_eq!(value, number),
                Err(error) => {
                    assert_eq!(error, TaskError::Failed(failure::WORKER));
                    failed += 1;
                }
            }
        }
        assert_eq!(failed, u64::from(death == Death::Begun), "{death:?}");
        let counts = counts.lock().unwrap();
        assert_eq!(counts.len() as u64, number - failed, "{death:?}");
        assert!(counts.values().all(|times| *times == 1));
        drop(counts);
        assert_eq!(run(&tasks, &Task::new(ADD, &[1, 1])), Ok(2));
        let statistics = tasks.statistics();
        assert_eq!(statistics.of_workers(|of| of.deaths), 1);
        assert_eq!(statistics.of_workers(|of| of.lost), failed);
        assert_eq!(statistics.of_workers(|of| of.recovered), 1 - failed);
    }
}

#[test]
fn workers_without_work_sleep_and_are_woken() {
    let (tasks, _) = start(Options::default());
    assert_eq!(run(&tasks, &Task::new(ADD, &[1, 1])), Ok(2));
    let sleeping = |of: &statistics::WorkerCounters| of.sleeps - of.wakes - of.looks;
    let awake = |of: &statistics::WorkerCounters| of.wakes + of.looks;
    let mut checked = 0;
    for round in 0..1000 {
        let asleep = loop {
            let now = tasks.statistics();
            if now.of_workers(sleeping) == 2 {
                break now;
            }
            std::thread::yield_now();
        };
        // Counters are read one after the other: these after it was known that both sleep.
        let before = tasks.statistics();
        std::thread::sleep(Duration::from_millis(2));
        let after = tasks.statistics();
        // Nobody looks who was not woken.
        if asleep.of_workers(awake) == after.of_workers(awake) {
            assert_eq!(
                before.of_workers(|of| of.turns),
                after.of_workers(|of| of.turns)
            );
            checked += 1;
        }
        assert_eq!(run(&tasks, &Task::new(ADD, &[round, 1])), Ok(round + 1));
        if checked == 5 {
            break;
        }
    }
    assert_eq!(checked, 5);
    let end = tasks.statistics();
    assert!(end.of_workers(|of| of.wakes) >= 5, "{end:?}");
}

#[test]
fn threads_get_their_own_values() {
    let (tasks, counts) = start(Options {
        own: Shape {
            lanes: 2,
            depth: 4,
            segment: 64,
            futures: 16,
        },
        workers: 3,
        ..Options::default()
    });
    let (tasks, refused) = (&tasks, &AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                for n in 0..300 {
                    let number = (thread << 32) | n;
                    let priority = Priority::ALL[n as usize % 2];
                    let future = loop {
                        match tasks.submit_as(&Task::new(COUNT, &[number]), priority) {
                            Ok(future) => break future,
                            Err(TaskError::Refused(_)) => {
                                refused.fetch_add(1, Ordering::Relaxed);
                                std::thread::yield_now();
                            }
                            Err(e) => panic!("{e}"),
                        }
                    };
                    assert_eq!(tasks.wait(future, LIMIT), Ok(number));
                }
            });
        }
    });
    let counts = counts.lock().unwrap();
    assert_eq!(counts.len(), 1200);
    assert!(counts.values().all(|times| *times == 1));
}

#[test]
fn what_cannot_be_started_is_refused() {
    let none = || Functions::new();
    for workers in [0, 257] {
        let options = Options {
            workers,
            ..Options::default()
        };
        assert!(Tasks::start(options, none()).is_err());
    }
    let options = Options {
        own: Shape {
            depth: 3,
            ..Shape::default()
        },
        ..Options::default()
    };
    assert!(Tasks::start(options, none()).is_err());
    let mut functions = Functions::new();
    assert!(functions
        .add(0, "none", 0..=0, |_| Outcome::Done(0))
        .is_err());
    functions
        .add(1, "one", 0..=0, |_| Outcome::Done(0))
        .unwrap();
    assert!(functions
        .add(1, "one", 0..=0, |_| Outcome::Done(0))
        .is_err());
}
