// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Producers and workers without a GPU: in every order of a small case (loom), in random orders against a plain queue, and
//! as threads.

use super::*;
use crate::tasks::layout::future;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use std::sync::Mutex;
use std::thread;

#[derive(Debug)]
struct Words(Vec<AtomicU64>);

impl Memory for Words {
    type Word = AtomicU64;

    fn word(&self, offset: usize) -> &AtomicU64 {
        &self.0[offset / 8]
    }
}

fn area(shape: Shape) -> View<Words> {
    shape.check().unwrap();
    // What nobody has written may be anything.
    let words = (0..shape.bytes() / 8)
        .map(|n| AtomicU64::new((n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    View::new(Words(words.collect()), shape, 0)
}

fn small(depth: u32) -> View<Words> {
    area(Shape {
        lanes: 1,
        depth,
        segment: 64,
        futures: 4,
    })
}

impl<M: Memory> View<M> {
    /// Takes a task and gives its place back.
    fn have(&self, ring: usize, worker: usize) -> Option<Taken> {
        let visit = self.take(ring, worker);
        assert_eq!(visit.corrupt, 0);
        if let Some(taken) = &visit.taken {
            self.free(ring, taken.position);
        }
        visit.taken
    }
}

#[test]
fn tasks_come_as_they_went() {
    let view = area(Shape::default());
    let room = view.shape().arguments();
    for bytes in [0, 1, 7, 8, 9, room - 1, room] {
        let task = Task {
            function: 7,
            then: 9,
            source: 11,
            arguments: (0..bytes).map(|n| n as u8 ^ 0x5a).collect(),
        };
        let future = view.take_future(1);
        assert_eq!(view.put(3, &task, future), Ok(view.tail(3) - 1));
        let taken = view.have(3, 1).unwrap();
        assert_eq!((taken.bytes as usize, taken.future), (bytes, future));
        assert_eq!(taken.task, task);
    }
    let long = Task {
        arguments: vec![0; room + 1],
        ..Task::default()
    };
    assert_eq!(view.put(3, &long, None), Err(Refused::TooLong));
    assert!((0..view.shape().rings()).all(|ring| view.have(ring, 0).is_none()));
    view.set_closed(closed::CLOSING);
    assert_eq!(view.put(3, &Task::default(), None), Err(Refused::Closed));
}

#[test]
fn a_full_ring_says_so_and_takes_nothing() {
    let view = small(4);
    for lap in 0..3 {
        for n in 0..4 {
            assert_eq!(
                view.put(0, &Task::new(n, &[]), None),
                Ok(4 * lap + u64::from(n))
            );
        }
        assert_eq!(view.put(0, &Task::new(9, &[]), None), Err(Refused::Full));
        // The other ring has its own room.
        assert!(view.put(1, &Task::new(1, &[]), None).is_ok());
        assert_eq!(view.have(1, 0).unwrap().task.function, 1);
        for n in 0..4 {
            assert_eq!(view.have(0, 0).unwrap().task.function, n);
        }
        assert!(view.have(0, 0).is_none());
    }
}

#[test]
fn a_place_without_a_task_stops_nobody_behind() {
    let view = small(8);
    let stalled = view.claim(0).unwrap();
    for n in 1..8 {
        view.put(0, &Task::new(n, &[]), None).unwrap();
    }
    for n in 1..8 {
        assert_eq!(view.have(0, 0).unwrap().task.function, n);
    }
    assert!(view.have(0, 0).is_none());
    // Room for seven more, but the place itself is the end of the lap.
    assert_eq!(view.put(0, &Task::new(9, &[]), None), Err(Refused::Full));
    view.publish(0, stalled, &Task::new(77, &[5]), None);
    assert_eq!(view.have(0, 0).unwrap().task, Task::new(77, &[5]));
    assert!(view.put(0, &Task::new(9, &[]), None).is_ok());
    assert_eq!(view.have(0, 0).unwrap().task.function, 9);
}

#[test]
fn places_of_producers_that_are_gone_come_back() {
    let view = small(8);
    for n in 0..8 {
        if n % 3 == 0 {
            view.claim(0).unwrap();
        } else {
            view.put(0, &Task::new(n, &[]), None).unwrap();
        }
    }
    assert_eq!(view.forget_unwritten(0), 3);
    assert_eq!(view.forget_unwritten(0), 0);
    let found: Vec<u32> = std::iter::from_fn(|| view.have(0, 0))
        .map(|taken| taken.task.function)
        .collect();
    assert_eq!(found, [1, 2, 4, 5, 7]);
    for n in 0..8 {
        view.put(0, &Task::new(n, &[]), None).unwrap();
    }
    assert_eq!(std::iter::from_fn(|| view.have(0, 0)).count(), 8);
}

#[test]
fn what_a_dead_worker_has_taken_is_found_once() {
    let view = small(4);
    for lap in 0..5 {
        for n in 0..4 {
            view.put(0, &Task::new(10 * lap + n, &[]), None).unwrap();
        }
        let first = view.take(0, 3).taken.unwrap();
        let second = view.take(0, 5).taken.unwrap();
        // The head goes past them.
        assert_eq!(view.have(0, 1).unwrap().task.function, 10 * lap + 2);
        assert!(view.recover(0, 1).is_empty());
        assert_eq!(view.recover(0, 3), [first]);
        assert!(view.recover(0, 3).is_empty());
        assert_eq!(view.recover(0, 5), [second]);
        assert_eq!(view.have(0, 1).unwrap().task.function, 10 * lap + 3);
        assert!(view.have(0, 1).is_none());
    }
}

#[test]
fn a_future_ends_once_and_only_its_own_task() {
    let view = small(4);
    let futures: Vec<Future> = (0..4).map(|n| view.take_future(n).unwrap()).collect();
    assert_eq!(view.take_future(0), None);
    assert_eq!(view.futures_in_use(), 4);
    assert_eq!(view.look(futures[0]), Look::Pending);
    assert!(view.complete(futures[0], Ok(5)));
    assert!(!view.complete(futures[0], Ok(6)));
    assert_eq!(view.look(futures[0]), Look::Done(5));
    assert_eq!(view.look(futures[0]), Look::Stale);
    assert!(view.complete(futures[1], Err(9)));
    assert_eq!(view.look(futures[1]), Look::Failed(9));
    // The same cell, another generation.
    let again = view.take_future(0).unwrap();
    assert_ne!(again, futures[0]);
    assert!(
        !view.complete(futures[0], Ok(1)),
        "of a future that is over"
    );
    assert_eq!(view.look(futures[0]), Look::Stale);
    assert_eq!(view.look(again), Look::Pending);
    // One that nobody waits for is given back by its end.
    view.cell(2, cell::STATE)
        .store(futures[2].state(future::DROPPED), Ordering::Relaxed);
    assert!(view.is_open(futures[2]));
    assert!(view.complete(futures[2], Ok(1)));
    assert_eq!(view.look(futures[2]), Look::Stale);
    for bits in [1, 5 << 32, (5 << 32) | 5, u64::MAX] {
        let made_up = Future::from_bits(bits).unwrap();
        assert!(!view.complete(made_up, Ok(1)), "{bits:#x}");
        assert_eq!(view.look(made_up), Look::Stale, "{bits:#x}");
    }
}

#[test]
fn one_producer_wakes_sleepers_once() {
    let view = small(4);
    assert!(!view.must_wake());
    view.announce_sleep();
    assert!(view.must_wake());
    assert!(!view.must_wake());
}

#[derive(Clone, Debug)]
enum Step {
    Put,
    Stall,
    Write(prop::sample::Index),
    Take,
    Free(prop::sample::Index),
    Die,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Put),
        1 => Just(Step::Stall),
        2 => any::<prop::sample::Index>().prop_map(Step::Write),
        4 => Just(Step::Take),
        4 => any::<prop::sample::Index>().prop_map(Step::Free),
        1 => Just(Step::Die),
    ]
}

proptest! {
    /// Whatever producers and workers do, in whichever order, each task comes once, and a ring is full only where its
    /// next place is in use.
    #[test]
    fn no_task_is_lost_or_doubled(depth in 1u32..5, steps in prop::collection::vec(step(), 1..400)) {
        let depth = 1 << depth;
        let view = small(depth);
        let mut number = 0u32;
        let (mut open, mut held) = (Vec::new(), Vec::new());
        // Tasks in the ring, by position.
        let mut ready: VecDeque<(u64, u32)> = VecDeque::new();
        let mut busy = BTreeSet::new();
        for step in steps {
            match step {
                Step::Put | Step::Stall => {
                    let tail = view.tail(0);
                    let is_free = tail < depth.into() || !busy.contains(&(tail - u64::from(depth)));
                    match view.claim(0) {
                        Ok(position) => {
                            prop_assert!(is_free && position == tail);
                            busy.insert(position);
                            open.push(position);
                            if matches!(step, Step::Put) {
                                let position = open.pop().unwrap();
                                view.publish(0, position, &Task::new(number, &[]), None);
                                ready.push_back((position, number));
                                number += 1;
                            }
                        }
                        Err(refused) => {
                            prop_assert_eq!(refused, Refused::Full);
                            prop_assert!(!is_free);
                        }
                    }
                }
                Step::Write(index) if !open.is_empty() => {
                    let position = open.swap_remove(index.index(open.len()));
                    view.publish(0, position, &Task::new(number, &[]), None);
                    ready.push_back((position, number));
                    number += 1;
                }
                Step::Take => {
                    let visit = view.take(0, 1);
                    prop_assert_eq!(visit.corrupt, 0);
                    let first = ready.iter().enumerate().min_by_key(|(_, (position, _))| *position).map(|(n, _)| n);
                    match visit.taken {
                        Some(taken) => {
                            let (position, number) = ready.remove(first.unwrap()).unwrap();
                            prop_assert_eq!((taken.position, taken.task.function), (position, number));
                            held.push(position);
                        }
                        None => prop_assert!(first.is_none()),
                    }
                }
                Step::Free(index) if !held.is_empty() => {
                    let position = held.swap_remove(index.index(held.len()));
                    view.free(0, position);
                    busy.remove(&position);
                }
                Step::Die => {
                    let mut found: Vec<u64> = view.recover(0, 1).iter().map(|taken| taken.position).collect();
                    found.sort_unstable();
                    held.sort_unstable();
                    prop_assert_eq!(&found, &held);
                    held.clear();
                    found.iter().for_each(|position| assert!(busy.remove(position)));
                }
                Step::Write(_) | Step::Free(_) => {}
            }
        }
    }

    /// Whatever a kernel stores anywhere in a ring, workers come to an end, and the ring works again when it is empty.
    #[test]
    fn a_ring_outlives_wild_stores(
        // But for a state that says that a worker has the task: nobody can tell.
        stores in prop::collection::vec(
            (0usize..4, 0u64..8, prop_oneof![any::<u64>(), 0u64..1 << 20].prop_filter("a worker's", |value| value & 0xff != phase::TAKEN)),
            1..20,
        ),
        start in 0u64..10,
    ) {
        let view = small(4);
        for n in 0..start {
            view.put(0, &Task::new(n as u32, &[]), None).unwrap();
            view.have(0, 0).unwrap();
        }
        for (what, place, value) in stores {
            match what {
                0 => view.slot(0, place, slot::STATE).store(value, Ordering::Relaxed),
                1 => view.slot(0, place, slot::FUNCTION).store(value, Ordering::Relaxed),
                2 => view.slot(0, place, slot::FUTURE).store(value, Ordering::Relaxed),
                _ => {
                    let _ = view.put(0, &Task::new(1, &[]), None);
                }
            }
            for _ in 0..8 {
                let visit = view.take(0, 0);
                if let Some(taken) = visit.taken {
                    prop_assert!(taken.task.arguments.len() <= view.shape().arguments());
                    view.free(0, taken.position);
                }
            }
        }
        for n in 0..9 {
            prop_assert!(view.put(0, &Task::new(500 + n, &[]), None).is_ok());
            let mut last = None;
            while let Some(taken) = view.take(0, 0).taken {
                view.free(0, taken.position);
                last = Some(taken.task.function);
            }
            prop_assert_eq!(last, Some(500 + n));
        }
    }
}

#[test]
fn threads_hand_over_each_task_once() {
    const PRODUCERS: u64 = 4;
    const WORKERS: usize = 3;
    const TASKS: u64 = 3000;
    let view = area(Shape {
        lanes: 1,
        depth: 16,
        segment: 128,
        futures: 8,
    });
    let seen = Mutex::new(Vec::new());
    let left = AtomicUsize::new((PRODUCERS * TASKS) as usize);
    let check = |producer: u64, n: u64| (producer << 32) ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let view = &view;
            scope.spawn(move || {
                for n in 0..TASKS {
                    // Some with a future that they wait for.
                    let future = (n % 4 == 0).then(|| loop {
                        match view.take_future(n) {
                            Some(future) => break future,
                            None => thread::yield_now(),
                        }
                    });
                    let task = Task::new(1, &[producer, n, check(producer, n)]);
                    while view.put(0, &task, future) == Err(Refused::Full) {
                        thread::yield_now();
                    }
                    let Some(future) = future else { continue };
                    loop {
                        match view.look(future) {
                            Look::Pending => thread::yield_now(),
                            Look::Done(value) => break assert_eq!(value, producer + 10 * n),
                            other => panic!("{other:?}"),
                        }
                    }
                }
            });
        }
        for worker in 0..WORKERS {
            let (view, seen, left) = (&view, &seen, &left);
            scope.spawn(move || {
                let mut own = Vec::new();
                while left.load(Ordering::Relaxed) > 0 {
                    let Some(taken) = view.have(0, worker) else {
                        thread::yield_now();
                        continue;
                    };
                    let words: Vec<u64> = taken
                        .task
                        .arguments
                        .chunks(8)
                        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
                        .collect();
                    let [producer, n, sum] = words[..] else {
                        panic!("{words:?}");
                    };
                    assert_eq!(sum, check(producer, n));
                    own.push((producer, n));
                    if let Some(future) = taken.future {
                        assert!(view.complete(future, Ok(producer + 10 * n)));
                    }
                    left.fetch_sub(1, Ordering::Relaxed);
                }
                seen.lock().unwrap().extend(own);
            });
        }
    });
    let mut seen = seen.into_inner().unwrap();
    seen.sort_unstable();
    let wanted: Vec<(u64, u64)> = (0..PRODUCERS)
        .flat_map(|producer| (0..TASKS).map(move |n| (producer, n)))
        .collect();
    assert!(seen == wanted, "{} tasks", seen.len());
    assert_eq!(view.futures_in_use(), 0);
}

/// Two producers, two workers, two places, in every order with few forced switches.
mod every_order {
    use super::*;
    use loom::model::Builder;
    use loom::sync::Arc;

    #[derive(Debug)]
    struct Words(Vec<loom::sync::atomic::AtomicU64>);

    impl Word for loom::sync::atomic::AtomicU64 {
        fn load(&self, order: Ordering) -> u64 {
            Self::load(self, order)
        }

        fn store(&self, value: u64, order: Ordering) {
            Self::store(self, value, order);
        }

        fn change(&self, old: u64, new: u64) -> Result<u64, u64> {
            self.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
        }

        fn swap(&self, value: u64) -> u64 {
            Self::swap(self, value, Ordering::AcqRel)
        }

        fn fence() {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    impl Memory for Words {
        type Word = loom::sync::atomic::AtomicU64;

        fn word(&self, offset: usize) -> &Self::Word {
            &self.0[offset / 8]
        }
    }

    fn area() -> View<Words> {
        let shape = Shape {
            lanes: 1,
            depth: 2,
            segment: 64,
            futures: 0,
        };
        let word = |_| loom::sync::atomic::AtomicU64::new(0);
        View::new(Words((0..shape.bytes() / 8).map(word).collect()), shape, 0)
    }

    fn orders(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
        let mut builder = Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(run);
    }

    #[test]
    fn each_task_comes_once() {
        orders(2, || {
            let view = Arc::new(area());
            let task = |number: u32| Task::new(number, &[number.into()]);
            let its = view.clone();
            let producer = loom::thread::spawn(move || its.put(0, &task(1), None).is_ok());
            let its = view.clone();
            let worker = loom::thread::spawn(move || its.have(0, 1));
            assert!(
                view.put(0, &task(2), None).is_ok(),
                "there is room for both"
            );
            let mut found: Vec<Taken> = view.have(0, 0).into_iter().collect();
            assert!(producer.join().unwrap(), "there is room for both");
            found.extend(worker.join().unwrap());
            found.extend(std::iter::from_fn(|| view.have(0, 0)));
            let mut numbers: Vec<u32> = found.iter().map(|taken| taken.task.function).collect();
            assert!(found
                .iter()
                .all(|taken| taken.task == task(taken.task.function)));
            numbers.sort_unstable();
            assert_eq!(numbers, [1, 2]);
        });
    }

    #[test]
    fn of_two_workers_one_gets_the_task() {
        orders(3, || {
            let view = Arc::new(area());
            view.put(0, &Task::new(1, &[7]), None).unwrap();
            let its = view.clone();
            let worker = loom::thread::spawn(move || its.have(0, 1).is_some());
            let own = view.have(0, 0).is_some();
            assert!(own != worker.join().unwrap());
            // The lap goes on for the next.
            for number in 2..5 {
                view.put(0, &Task::new(number, &[]), None).unwrap();
                assert_eq!(view.have(0, 0).unwrap().task.function, number);
            }
        });
    }

    #[test]
    fn a_sleeper_is_woken_or_sees_the_task() {
        orders(3, || {
            let view = Arc::new(area());
            let its = view.clone();
            let producer = loom::thread::spawn(move || {
                its.put(0, &Task::new(1, &[]), None).unwrap();
                its.must_wake()
            });
            view.announce_sleep();
            let seen = view.have(0, 0).is_some();
            let woken = producer.join().unwrap();
            assert!(seen || woken);
        });
    }
}
