// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Workers without a GPU, as C uses them.

mod refused;

use std::ffi::c_void;
use std::ffi::CString;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::Mutex;
use std::time::Duration;

use super::*;
use crate::counters::rkfd_workers_area;
use crate::counters::rkfd_workers_worker;
use crate::counters::AreaInfo;
use crate::counters::WorkerInfo;
use crate::error::rkfd_last_error;
use crate::functions::rkfd_functions_add;
use crate::functions::rkfd_functions_free;
use crate::functions::rkfd_functions_new;
use crate::functions::rkfd_task_then;
use crate::functions::Call;
use crate::functions::RKFD_OUTCOME_DONE;
use crate::functions::RKFD_OUTCOME_FAILED;
use crate::functions::RKFD_OUTCOME_THEN;
use crate::functions::RKFD_TASK_REASON_BYTES;
use crate::functions::RKFD_TASK_REASON_FUNCTION;
use crate::functions::RKFD_TASK_REASON_OWN;
use crate::functions::RKFD_TASK_REASON_THEN;

const LIMIT_MS: u32 = 120_000;

const ADD: u32 = 1;
const FAIL: u32 = 2;
const TWICE: u32 = 3;
const OTHER: u32 = 4;
const LOOP: u32 = 5;
const HOLD: u32 = 6;
const STOP: u32 = 7;

fn says(errno: Errno, rc: c_int, text: &str) {
    // SAFETY: the text is this thread's, and copied before its next failure.
    let last = unsafe { CStr::from_ptr(rkfd_last_error()) }
        .to_str()
        .unwrap()
        .to_owned();
    assert_eq!(rc, -(errno as c_int), "{last}");
    assert!(last.contains(text), "{last:?} lacks {text:?}");
}

/// What the functions get as `data`.
#[derive(Default)]
struct World {
    gate: AtomicBool,
    begun: AtomicBool,
    /// Values of `HOLD`, in the order in which they ran.
    ran: Mutex<Vec<u64>>,
    workers: Mutex<usize>,
}

fn words(of: &Call) -> Vec<u64> {
    // SAFETY: the library's promise.
    let word = |n| unsafe { of.arguments.cast::<u64>().add(n).read() };
    (0..of.bytes as usize / 8).map(word).collect()
}

unsafe extern "C" fn work(data: *mut c_void, call: *const Call, value: *mut u64) -> c_int {
    // SAFETY: the promise of these tests, and that of the library.
    let (world, call, value) = unsafe { (&*data.cast::<World>(), &*call, &mut *value) };
    let words = words(call);
    match call.function {
        ADD => *value = words[0] + words[1],
        TWICE => *value = 2 * call.input,
        FAIL => {
            *value = words[0];
            return RKFD_OUTCOME_FAILED;
        }
        OTHER | LOOP => {
            let numbers = [20u64, 1];
            let next = Task {
                size: size_of::<Task>() as u32,
                function: if call.function == LOOP { LOOP } else { ADD },
                then: 0,
                source: 0,
                flags: 0,
                bytes: 16,
                arguments: numbers.as_ptr().cast(),
            };
            // SAFETY: a task of this function's own.
            assert_eq!(unsafe { rkfd_task_then(&raw const next) }, 0);
            return RKFD_OUTCOME_THEN;
        }
        HOLD => {
            world.begun.store(true, Ordering::Release);
            while !world.gate.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            world.ran.lock().unwrap().push(words[0]);
            *value = words[0];
        }
        _ => {
            let address = *world.workers.lock().unwrap() as *const Workers;
            // SAFETY: the test keeps it while this runs.
            let rc = rkfd_workers_stop(unsafe { address.as_ref() }, RKFD_STOP_AT_ONCE, 0, None);
            *value = u64::from(rc.unsigned_abs());
        }
    }
    RKFD_OUTCOME_DONE
}

fn options() -> WorkersOptions {
    let mut options = WorkersOptions {
        size: size_of::<WorkersOptions>() as u32,
        ..defaults()
    };
    // SAFETY: as large as it says.
    assert_eq!(unsafe { rkfd_workers_defaults(&raw mut options) }, 0);
    options
}

fn functions(world: &World) -> Box<Functions> {
    let mut functions = MaybeUninit::uninit();
    assert_eq!(rkfd_functions_new(Some(&mut functions)), 0);
    // SAFETY: the call has written it.
    let functions = unsafe { functions.assume_init() }.unwrap();
    let data: *const World = world;
    for (number, least, most) in [
        (ADD, 16, 16),
        (FAIL, 8, 8),
        (TWICE, 0, 64),
        (OTHER, 0, 0),
        (LOOP, 0, 16),
        (HOLD, 8, 8),
        (STOP, 0, 0),
    ] {
        let data = data.cast_mut().cast();
        // SAFETY: the world outlives the workers of its test.
        let rc =
            unsafe { rkfd_functions_add(Some(&functions), number, least, most, Some(work), data) };
        assert_eq!(rc, 0);
    }
    functions
}

fn start(world: &World, options: &WorkersOptions) -> Box<Workers> {
    let functions = functions(world);
    let mut workers = MaybeUninit::uninit();
    // SAFETY: options of this test's own.
    let rc = unsafe { rkfd_workers_new(Some(&functions), options, Some(&mut workers)) };
    assert_eq!(rc, 0);
    rkfd_functions_free(Some(functions));
    // SAFETY: the call has written it.
    unsafe { workers.assume_init() }.unwrap()
}

/// One worker with a ring of four.
fn narrow() -> WorkersOptions {
    WorkersOptions {
        workers: 1,
        own_lanes: 1,
        own_depth: 4,
        own_segment: 64,
        own_futures: 8,
        ..options()
    }
}

fn task(function: u32, words: &[u64]) -> Task {
    Task {
        size: size_of::<Task>() as u32,
        function,
        then: 0,
        source: 0,
        flags: 0,
        bytes: 8 * words.len() as u32,
        arguments: words.as_ptr().cast(),
    }
}

/// Hands a task over; what the call says, and the future.
fn submit(workers: &Workers, task: &Task, limit_ms: u32) -> (c_int, u64) {
    let mut future = MaybeUninit::new(9);
    // SAFETY: a task of the caller's.
    let rc = unsafe { rkfd_workers_submit(Some(workers), task, limit_ms, Some(&mut future)) };
    // SAFETY: it was written before.
    (rc, unsafe { future.assume_init() })
}

fn handed(workers: &Workers, task: &Task) -> u64 {
    let (rc, future) = submit(workers, task, LIMIT_MS);
    assert_eq!(rc, 0);
    assert_ne!(future, 0);
    future
}

fn wait(workers: &Workers, future: u64, limit_ms: u32) -> (c_int, u64) {
    let mut value = MaybeUninit::new(0xdead);
    let rc = rkfd_workers_wait(Some(workers), future, limit_ms, Some(&mut value));
    // SAFETY: it was written before.
    (rc, unsafe { value.assume_init() })
}

fn run(workers: &Workers, task: &Task) -> (c_int, u64) {
    wait(workers, handed(workers, task), LIMIT_MS)
}

fn stop(workers: &Workers, how: u32, limit_ms: u32) -> (c_int, u64) {
    let mut left = MaybeUninit::new(0xdead);
    let rc = rkfd_workers_stop(Some(workers), how, limit_ms, Some(&mut left));
    // SAFETY: it was written before.
    (rc, unsafe { left.assume_init() })
}

fn area(workers: &Workers) -> AreaInfo {
    let mut info = AreaInfo {
        size: size_of::<AreaInfo>() as u32,
        ..Default::default()
    };
    // SAFETY: as large as it says.
    let rc = unsafe { rkfd_workers_area(Some(workers), 0, &raw mut info) };
    assert_eq!(rc, 0);
    info
}

#[test]
fn tasks_end_with_their_value_or_reason() {
    let world = World::default();
    let workers = start(&world, &options());
    let own = u64::from(RKFD_TASK_REASON_OWN);
    assert_eq!(run(&workers, &task(ADD, &[2, 3])), (0, 5));
    assert_eq!(
        run(
            &workers,
            &Task {
                flags: RKFD_TASK_URGENT,
                ..task(ADD, &[2, 4])
            }
        ),
        (0, 6)
    );
    assert_eq!(
        run(
            &workers,
            &Task {
                then: TWICE,
                ..task(ADD, &[2, 3])
            }
        ),
        (0, 10)
    );
    assert_eq!(run(&workers, &task(OTHER, &[])), (0, 21));
    assert_eq!(
        run(
            &workers,
            &Task {
                then: TWICE,
                ..task(OTHER, &[])
            }
        ),
        (0, 42)
    );
    for (task, reason, text) in [
        (
            task(99, &[]),
            RKFD_TASK_REASON_FUNCTION.into(),
            "no function has its number (1)",
        ),
        (
            task(ADD, &[1]),
            RKFD_TASK_REASON_BYTES.into(),
            "so many bytes (2)",
        ),
        (task(FAIL, &[7]), own + 7, "a reason of the function (263)"),
        (
            Task {
                then: TWICE,
                ..task(FAIL, &[8])
            },
            own + 8,
            "(264)",
        ),
        (
            Task {
                then: 99,
                ..task(ADD, &[2, 3])
            },
            RKFD_TASK_REASON_THEN.into(),
            "does not exist",
        ),
        (
            task(LOOP, &[]),
            RKFD_TASK_REASON_THEN.into(),
            "too many followed",
        ),
    ] {
        let (rc, value) = run(&workers, &task);
        says(Errno::EIO, rc, text);
        assert_eq!(value, reason, "{text}");
    }
    // The future of each was given back.
    let info = area(&workers);
    assert_eq!((info.taken_high, info.taken_low), (1, 10));
    assert_eq!((info.done, info.failed, info.rejected), (5, 6, 3));
    assert_eq!((info.futures_in_use, info.late, info.corrupt), (0, 0, 0));
    assert_eq!(
        (info.lanes, info.depth, info.segment, info.futures),
        (4, 256, 256, 4096)
    );
    assert_eq!((info.gpu_id, info.address, info.node), (0, 0, -1));
    assert_eq!(info.size as usize, size_of::<AreaInfo>());
    let mut runs = 0;
    for worker in 0..2 {
        let mut info = WorkerInfo {
            size: size_of::<WorkerInfo>() as u32,
            ..Default::default()
        };
        // SAFETY: as large as it says.
        let rc = unsafe { rkfd_workers_worker(Some(&workers), worker, &raw mut info) };
        assert_eq!(rc, 0);
        assert_eq!((info.deaths, info.lost, info.recovered), (0, 0, 0));
        runs += info.runs;
    }
    // ADD alone once, twice with what follows; OTHER with what follows; FAIL; 65 times LOOP.
    assert_eq!(runs, 1 + 1 + 2 + 2 + 3 + 1 + 1 + 1 + 65);
    assert_eq!(stop(&workers, RKFD_STOP_DRAINED, LIMIT_MS), (0, 0));
    assert_eq!(rkfd_workers_free(Some(workers)), 0);
}

#[test]
fn a_full_ring_is_waited_for_as_long_as_the_caller_says() {
    let world = World::default();
    let workers = start(&world, &narrow());
    let mut futures = vec![handed(&workers, &task(HOLD, &[0]))];
    while !world.begun.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    futures.extend((1..5).map(|n| handed(&workers, &task(HOLD, &[n]))));
    let (rc, none) = submit(&workers, &task(HOLD, &[5]), 0);
    says(Errno::EAGAIN, rc, "The ring is full");
    assert_eq!(none, 0);
    let (rc, none) = submit(&workers, &task(HOLD, &[5]), 5);
    says(Errno::ETIMEDOUT, rc, "Waited 5 ms for room in a ring");
    assert_eq!(none, 0);
    let (rc, value) = wait(&workers, futures[0], 0);
    says(Errno::ETIMEDOUT, rc, "Waited 0 ms for the end of a task");
    assert_eq!(value, 0xdead);
    // The ring of high priority has room for three more, and then there is no future left.
    for n in 5..8 {
        futures.push(handed(
            &workers,
            &Task {
                flags: RKFD_TASK_URGENT,
                ..task(HOLD, &[n])
            },
        ));
    }
    let urgent = Task {
        flags: RKFD_TASK_URGENT,
        ..task(HOLD, &[8])
    };
    says(
        Errno::EAGAIN,
        submit(&workers, &urgent, 0).0,
        "All futures are in use",
    );
    says(
        Errno::ETIMEDOUT,
        submit(&workers, &urgent, 5).0,
        "5 ms for a future",
    );
    assert_eq!(
        (area(&workers).futures_in_use, area(&workers).ready),
        (8, 7)
    );
    // Without one there is room.
    // SAFETY: a task of this test's own.
    let rc = unsafe { rkfd_workers_submit(Some(&workers), &raw const urgent, 0, None) };
    assert_eq!(rc, 0);
    let patient = std::thread::scope(|scope| {
        let patient = scope.spawn(|| handed(&workers, &task(HOLD, &[9])));
        std::thread::sleep(Duration::from_millis(5));
        world.gate.store(true, Ordering::Release);
        // A future has to be given back before.
        assert_eq!(wait(&workers, futures[0], LIMIT_MS), (0, 0));
        patient.join().unwrap()
    });
    for (n, future) in (1..8).zip(&futures[1..]) {
        assert_eq!(wait(&workers, *future, LIMIT_MS), (0, n));
    }
    assert_eq!(wait(&workers, patient, LIMIT_MS), (0, 9));
    assert_eq!(stop(&workers, RKFD_STOP_DRAINED, LIMIT_MS), (0, 0));
    let ran = world.ran.lock().unwrap().clone();
    // Those of high priority before those that wait longer.
    assert_eq!(ran, [0, 5, 6, 7, 8, 1, 2, 3, 4, 9]);
    assert_eq!(rkfd_workers_free(Some(workers)), 0);
}

#[test]
fn workers_that_are_stopped_tell_what_is_left() {
    let world = World::default();
    let workers = start(&world, &narrow());
    let first = handed(&workers, &task(HOLD, &[0]));
    while !world.begun.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    let [second, third] = [1, 2].map(|n| handed(&workers, &task(HOLD, &[n])));
    let (rc, left) = stop(&workers, RKFD_STOP_DRAINED, 5);
    says(Errno::ETIMEDOUT, rc, "for the workers to end");
    assert_eq!(left, 3);
    says(
        Errno::ESHUTDOWN,
        submit(&workers, &task(ADD, &[1, 2]), LIMIT_MS).0,
        "no new tasks",
    );
    // It stays as it is.
    let raw = Box::into_raw(workers);
    // SAFETY: given back by the call, since that fails.
    let rc = rkfd_workers_free(Some(unsafe { Box::from_raw(raw) }));
    says(Errno::EBUSY, rc, "were not stopped");
    // SAFETY: it was not freed.
    let workers = unsafe { Box::from_raw(raw) };
    assert_eq!(rkfd_workers_drop(Some(&workers), third), 0);
    let (rc, left) = stop(&workers, RKFD_STOP_AT_ONCE, 5);
    says(Errno::ETIMEDOUT, rc, "for the workers to end");
    assert_eq!(left, 3);
    world.gate.store(true, Ordering::Release);
    assert_eq!(stop(&workers, RKFD_STOP_AT_ONCE, LIMIT_MS), (0, 2));
    assert_eq!(stop(&workers, RKFD_STOP_DRAINED, 0), (0, 2));
    assert_eq!(wait(&workers, first, 0), (0, 0));
    let (rc, value) = wait(&workers, second, LIMIT_MS);
    says(Errno::ECANCELED, rc, "ended without the task");
    assert_eq!(value, 0xdead);
    says(Errno::EINVAL, wait(&workers, second, 0).0, "Not a future");
    assert_eq!(*world.ran.lock().unwrap(), [0]);
    assert_eq!(rkfd_workers_free(Some(workers)), 0);
}

#[test]
fn futures_that_are_dropped_are_given_back() {
    let world = World::default();
    let workers = start(&world, &narrow());
    let futures: Vec<u64> = (0..3)
        .map(|n| handed(&workers, &task(HOLD, &[n])))
        .collect();
    assert_eq!(rkfd_workers_drop(Some(&workers), futures[1]), 0);
    says(
        Errno::EINVAL,
        rkfd_workers_drop(Some(&workers), futures[1]),
        "Not a future",
    );
    says(
        Errno::EINVAL,
        wait(&workers, futures[1], 0).0,
        "Not a future",
    );
    world.gate.store(true, Ordering::Release);
    assert_eq!(wait(&workers, futures[2], LIMIT_MS), (0, 2));
    assert_eq!(rkfd_workers_drop(Some(&workers), futures[0]), 0);
    let info = area(&workers);
    assert_eq!((info.futures_in_use, info.done, info.late), (0, 3, 0));
    for bits in [0, 1, futures[0], u64::MAX] {
        says(
            Errno::EINVAL,
            rkfd_workers_drop(Some(&workers), bits),
            "Not a future",
        );
        says(Errno::EINVAL, wait(&workers, bits, 0).0, "Not a future");
    }
    assert_eq!(stop(&workers, RKFD_STOP_DRAINED, LIMIT_MS), (0, 0));
}

#[test]
fn a_function_does_not_wait_for_its_worker() {
    let world = World::default();
    let workers = start(&world, &options());
    *world.workers.lock().unwrap() = (&raw const *workers) as usize;
    let found = run(&workers, &task(STOP, &[]));
    assert_eq!(found, (0, Errno::EDEADLK as u64));
    // Nothing was begun.
    assert_eq!(run(&workers, &task(ADD, &[2, 3])), (0, 5));
    assert_eq!(stop(&workers, RKFD_STOP_AT_ONCE, LIMIT_MS), (0, 0));
}

#[test]
fn counters_are_in_a_file_for_others() {
    let path = std::env::temp_dir().join(format!("rkfd-tasks-c-{}", std::process::id()));
    let text = CString::new(path.as_os_str().as_bytes()).unwrap();
    let world = World::default();
    let workers = start(
        &world,
        &WorkersOptions {
            statistics: text.as_ptr(),
            ..options()
        },
    );
    assert_eq!(run(&workers, &task(ADD, &[2, 3])), (0, 5));
    let read = library::tasks::statistics::Snapshot::read(&path).unwrap();
    assert_eq!((read.areas[0].done, read.workers.len()), (1, 2));
    assert_eq!(stop(&workers, RKFD_STOP_DRAINED, LIMIT_MS), (0, 0));
    assert_eq!(rkfd_workers_free(Some(workers)), 0);
    assert!(!path.exists());
}
