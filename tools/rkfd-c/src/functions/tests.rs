// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Functions without workers.

use std::ptr::null_mut;

use library::tasks::failure;

use super::*;

const INVALID: c_int = -(Errno::EINVAL as c_int);
const EXISTS: c_int = -(Errno::EEXIST as c_int);

fn table() -> Box<Functions> {
    let mut functions = MaybeUninit::uninit();
    assert_eq!(rkfd_functions_new(Some(&mut functions)), 0);
    // SAFETY: the call has written it.
    unsafe { functions.assume_init() }.unwrap()
}

/// Stores what it gets to `data`, and does what its first word says: the code to return, with the second as value.
unsafe extern "C" fn tell(data: *mut c_void, call: *const Call, value: *mut u64) -> c_int {
    // SAFETY: the tests' promise; those of the library for the other two.
    let (seen, call, value) = unsafe { (&mut *data.cast::<Vec<u64>>(), &*call, &mut *value) };
    assert_eq!((call.size as usize, *value), (size_of::<Call>(), 0));
    assert_eq!(call.bytes == 0, call.arguments.is_null());
    assert!(on_worker());
    let words: Vec<u64> = (0..call.bytes as usize / 8)
        // SAFETY: as many words as there are.
        .map(|n| unsafe { call.arguments.cast::<u64>().add(n).read() })
        .collect();
    seen.extend([call.function, call.source, call.area, call.worker].map(u64::from));
    seen.push(call.input);
    seen.extend(&words);
    let Some((code, rest)) = words.split_first() else {
        return 7;
    };
    for word in rest {
        *value = *word;
        let task = Task {
            size: size_of::<Task>() as u32,
            function: 9,
            then: 8,
            source: 7,
            flags: 0,
            bytes: 8,
            arguments: (&raw const *word).cast(),
        };
        // SAFETY: a task of this function's own.
        assert_eq!(unsafe { rkfd_task_then(&raw const task) }, 0);
    }
    *code as c_int
}

fn run(words: &[u64]) -> (Outcome, Vec<u64>) {
    let mut seen: Vec<u64> = Vec::new();
    let entry = Entry {
        number: 5,
        bytes: 0..=64,
        callback: tell,
        data: Data::new((&raw mut seen).cast()),
    };
    let arguments: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let outcome = entry.run(&function::Call {
        arguments: &arguments,
        input: 11,
        source: 12,
        area: 13,
        worker: 14,
    });
    assert!(!on_worker());
    (outcome, seen)
}

#[test]
fn functions_are_told_everything_and_end_as_they_say() {
    let (outcome, seen) = run(&[0, 42]);
    assert_eq!(outcome, Outcome::Done(42));
    assert_eq!(seen, [5, 12, 13, 14, 11, 0, 42]);
    assert_eq!(run(&[RKFD_OUTCOME_FAILED as u64, 3]).0, Outcome::Failed(3));
    assert_eq!(run(&[77, 3]).0, Outcome::Failed(3));
    let (outcome, seen) = run(&[]);
    assert_eq!(outcome, Outcome::Failed(0));
    assert_eq!(seen, [5, 12, 13, 14, 11]);
    // The last one counts.
    let mut next = ring::Task::new(9, &[43]).then(8);
    next.source = 7;
    assert_eq!(
        run(&[RKFD_OUTCOME_THEN as u64, 42, 43]).0,
        Outcome::Then(next)
    );
    // None was given; the one of a call before is not had again.
    let none = Outcome::Then(ring::Task::default());
    assert_eq!(run(&[RKFD_OUTCOME_THEN as u64]).0, none);
}

#[test]
fn reasons_are_those_of_the_library() {
    for (ours, theirs) in [
        (RKFD_TASK_REASON_FUNCTION, failure::FUNCTION),
        (RKFD_TASK_REASON_BYTES, failure::BYTES),
        (RKFD_TASK_REASON_PANIC, failure::PANIC),
        (RKFD_TASK_REASON_WORKER, failure::WORKER),
        (RKFD_TASK_REASON_THEN, failure::THEN),
        (RKFD_TASK_REASON_OWN, failure::OWN),
    ] {
        assert_eq!(u64::from(ours), theirs);
    }
}

#[test]
fn functions_that_cannot_be_are_refused() {
    let functions = table();
    let add = |number, least, most, callback: TaskCallback| {
        // SAFETY: none of them is called.
        unsafe { rkfd_functions_add(Some(&functions), number, least, most, callback, null_mut()) }
    };
    assert_eq!(add(0, 0, 8, Some(tell)), INVALID);
    assert_eq!(add(1, 0, 8, None), INVALID);
    assert_eq!(add(1, 9, 8, Some(tell)), INVALID);
    assert_eq!(add(1, 0, 4065, Some(tell)), INVALID);
    assert_eq!(add(1, 0, u32::MAX, Some(tell)), INVALID);
    assert_eq!(add(1, 0, 4064, Some(tell)), 0);
    assert_eq!(add(1, 0, 8, Some(tell)), EXISTS);
    assert_eq!(add(u32::MAX, 8, 8, Some(tell)), 0);
    functions.library().unwrap();
    assert_eq!(functions.table().entries.len(), 2);
    // SAFETY: it is not called.
    let none = unsafe { rkfd_functions_add(None, 1, 0, 8, Some(tell), null_mut()) };
    assert_eq!(none, INVALID);
    assert_eq!(rkfd_functions_new(None), INVALID);
    assert_eq!(rkfd_functions_add_host(Some(&functions), None), INVALID);
    assert_eq!(rkfd_functions_add_host(None, None), INVALID);
    rkfd_functions_free(None);
    rkfd_functions_free(Some(functions));
}

#[test]
fn a_service_has_its_numbers_alone() {
    let host = || Host(service::Host::new(|_| {}));
    let functions = table();
    let add = |of: &Functions, number| {
        // SAFETY: none of them is called.
        unsafe { rkfd_functions_add(Some(of), number, 0, 8, Some(tell), null_mut()) }
    };
    assert_eq!(rkfd_functions_add_host(Some(&functions), Some(&host())), 0);
    assert_eq!(
        rkfd_functions_add_host(Some(&functions), Some(&host())),
        EXISTS
    );
    for number in service::PRINT..=service::RELEASE {
        assert_eq!(add(&functions, number), EXISTS);
        let other = table();
        assert_eq!(add(&other, number), 0);
        assert_eq!(rkfd_functions_add_host(Some(&other), Some(&host())), EXISTS);
        other.library().unwrap();
    }
    assert_eq!(add(&functions, service::RELEASE + 1), 0);
    functions.library().unwrap();
}

#[test]
fn tasks_that_cannot_be_are_refused() {
    let fine = Task {
        size: size_of::<Task>() as u32,
        function: 1,
        then: 2,
        source: 3,
        flags: 0,
        bytes: 0,
        arguments: null(),
    };
    let bytes = [5u8; 4065];
    let with = |count| Task {
        bytes: count,
        arguments: bytes.as_ptr().cast(),
        ..fine
    };
    // SAFETY: as many bytes as each says, or none.
    let errno = |task: Task| unsafe { task_of(&task) }.map_err(|e| e.errno());
    let task = errno(with(5)).unwrap();
    assert_eq!((task.function, task.then, task.source), (1, 2, 3));
    assert_eq!(task.arguments, [5; 5]);
    assert_eq!(errno(with(4064)).unwrap().arguments.len(), 4064);
    assert_eq!(errno(fine).unwrap().arguments.len(), 0);
    assert_eq!(errno(with(4065)).unwrap_err(), Errno::EMSGSIZE);
    assert_eq!(
        errno(Task {
            function: 0,
            ..fine
        })
        .unwrap_err(),
        Errno::EINVAL
    );
    assert_eq!(errno(Task { flags: 2, ..fine }).unwrap_err(), Errno::EINVAL);
    assert_eq!(errno(Task { bytes: 1, ..fine }).unwrap_err(), Errno::EINVAL);
    // SAFETY: tasks of this test's own, and none.
    unsafe {
        assert_eq!(rkfd_task_then(&raw const fine), -(Errno::EPERM as c_int));
        let urgent = Task {
            flags: RKFD_TASK_URGENT,
            ..fine
        };
        assert_eq!(rkfd_task_then(&raw const urgent), INVALID);
        assert_eq!(rkfd_task_then(null()), INVALID);
    }
    // Nor where the thread prints, which is a worker all the same.
    printing(|| {
        assert!(on_worker());
        // SAFETY: as above.
        let rc = unsafe { rkfd_task_then(&raw const fine) };
        assert_eq!(rc, -(Errno::EPERM as c_int));
    });
    assert!(!on_worker());
}
