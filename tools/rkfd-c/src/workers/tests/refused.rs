// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What workers refuse.

use std::ptr::null_mut;

use super::*;

fn refuse(errno: Errno, text: &str, options: &WorkersOptions) {
    let world = World::default();
    let functions = functions(&world);
    let mut workers = MaybeUninit::uninit();
    // SAFETY: options of the test's own.
    let rc = unsafe { rkfd_workers_new(Some(&functions), options, Some(&mut workers)) };
    says(errno, rc, text);
    // SAFETY: the call has written it.
    assert!(unsafe { workers.assume_init() }.is_none());
}

#[test]
fn what_cannot_be_started_is_refused() {
    let fine = options();
    let no_gpus: [*const Vm; 1] = [null()];
    let nowhere = c"/nowhere/at/all";
    refuse(
        Errno::ENOENT,
        "/nowhere",
        &WorkersOptions {
            statistics: nowhere.as_ptr(),
            ..options()
        },
    );
    for (text, options) in [
        (
            "No flags of workers: 0x2",
            WorkersOptions { flags: 2, ..fine },
        ),
        (
            "Workers are 1 to 256",
            WorkersOptions { workers: 0, ..fine },
        ),
        (
            "Workers are 1 to 256",
            WorkersOptions {
                workers: 257,
                ..fine
            },
        ),
        (
            "Lanes are",
            WorkersOptions {
                own_lanes: 3,
                ..fine
            },
        ),
        ("Lanes are", WorkersOptions { lanes: 128, ..fine }),
        (
            "depth of a ring",
            WorkersOptions {
                own_depth: 1,
                ..fine
            },
        ),
        ("depth of a ring", WorkersOptions { depth: 3, ..fine }),
        (
            "slot's bytes",
            WorkersOptions {
                own_segment: 100,
                ..fine
            },
        ),
        (
            "slot's bytes",
            WorkersOptions {
                segment: 8192,
                ..fine
            },
        ),
        (
            "Futures are",
            WorkersOptions {
                own_futures: 5,
                ..fine
            },
        ),
        ("Futures are", WorkersOptions { futures: 5, ..fine }),
        (
            "gpus is NULL",
            WorkersOptions {
                gpu_count: 1,
                ..fine
            },
        ),
        (
            "One of the GPUs is NULL",
            WorkersOptions {
                gpu_count: 1,
                gpus: no_gpus.as_ptr(),
                ..fine
            },
        ),
        (
            "sizeof(struct rkfd_workers_options)",
            WorkersOptions { size: 60, ..fine },
        ),
    ] {
        refuse(Errno::EINVAL, text, &options);
    }
}

#[test]
fn null_and_what_is_not_there_are_refused() {
    let world = World::default();
    let functions = functions(&world);
    let mut workers = MaybeUninit::uninit();
    // SAFETY: NULL is allowed in all of these.
    unsafe {
        says(
            Errno::EINVAL,
            rkfd_workers_defaults(null_mut()),
            "rkfd_workers_options is NULL",
        );
        says(
            Errno::EINVAL,
            rkfd_workers_new(Some(&functions), null(), None),
            "workers is NULL",
        );
        says(
            Errno::EINVAL,
            rkfd_workers_new(None, null(), Some(&mut workers)),
            "functions is NULL",
        );
        let fine = task(ADD, &[1, 2]);
        says(
            Errno::EINVAL,
            rkfd_workers_submit(None, &raw const fine, 0, None),
            "workers is NULL",
        );
        says(
            Errno::EINVAL,
            rkfd_workers_area(None, 0, null_mut()),
            "workers is NULL",
        );
        says(
            Errno::EINVAL,
            rkfd_workers_worker(None, 0, null_mut()),
            "workers is NULL",
        );
        // Without options: those that are ordinary.
        assert_eq!(
            rkfd_workers_new(Some(&functions), null(), Some(&mut workers)),
            0
        );
    }
    says(
        Errno::EINVAL,
        rkfd_workers_wait(None, 1, 0, None),
        "workers is NULL",
    );
    says(Errno::EINVAL, rkfd_workers_drop(None, 1), "workers is NULL");
    says(
        Errno::EINVAL,
        rkfd_workers_stop(None, 0, 0, None),
        "workers is NULL",
    );
    says(
        Errno::EINVAL,
        rkfd_workers_forget_unwritten(None, 0, None),
        "workers is NULL",
    );
    assert_eq!(rkfd_workers_address(None, 0), 0);
    assert_eq!(rkfd_workers_free(None), 0);
    // SAFETY: the call has written it.
    let workers = unsafe { workers.assume_init() }.unwrap();
    assert_eq!(rkfd_workers_address(Some(&workers), 0), 0);
    let mut info = AreaInfo {
        size: size_of::<AreaInfo>() as u32,
        ..Default::default()
    };
    let mut counters = WorkerInfo {
        size: size_of::<WorkerInfo>() as u32,
        ..Default::default()
    };
    // SAFETY: each is as large as it says, or NULL.
    unsafe {
        says(
            Errno::ERANGE,
            rkfd_workers_area(Some(&workers), 1, &raw mut info),
            "No area 1: there are 1",
        );
        says(
            Errno::EINVAL,
            rkfd_workers_area(Some(&workers), 0, null_mut()),
            "rkfd_area_info is NULL",
        );
        let rc = rkfd_workers_worker(Some(&workers), 2, &raw mut counters);
        says(Errno::ERANGE, rc, "No worker 2: there are 2");
        says(
            Errno::EINVAL,
            rkfd_workers_worker(Some(&workers), 0, null_mut()),
            "rkfd_worker_info is NULL",
        );
        says(
            Errno::EINVAL,
            rkfd_workers_submit(Some(&workers), null(), 0, None),
            "rkfd_task is NULL",
        );
    }
    assert_eq!(
        info,
        AreaInfo {
            size: info.size,
            ..Default::default()
        }
    );
    let long = [0; 29];
    says(
        Errno::EMSGSIZE,
        submit(&workers, &task(ADD, &long), 0).0,
        "than a slot has",
    );
    says(
        Errno::EMSGSIZE,
        submit(&workers, &task(ADD, &[0; 509]), 0).0,
        "no slot has more than 4064",
    );
    says(
        Errno::EINVAL,
        submit(&workers, &task(0, &[]), 0).0,
        "No function has number 0",
    );
    says(
        Errno::EINVAL,
        submit(
            &workers,
            &Task {
                flags: 4,
                ..task(ADD, &[])
            },
            0,
        )
        .0,
        "No flags of a task: 0x4",
    );
    let nothing = Task {
        bytes: 8,
        arguments: null(),
        ..task(ADD, &[])
    };
    says(
        Errno::EINVAL,
        submit(&workers, &nothing, 0).0,
        "arguments is NULL",
    );
    says(
        Errno::ERANGE,
        rkfd_workers_forget_unwritten(Some(&workers), 0, None),
        "there are 0",
    );
    says(
        Errno::EINVAL,
        stop(&workers, 2, 0).0,
        "No way to stop workers: 2",
    );
    assert_eq!(stop(&workers, 2, 0).1, 0xdead);
    assert_eq!(run(&workers, &task(ADD, &[2, 3])), (0, 5));
    assert_eq!(stop(&workers, RKFD_STOP_AT_ONCE, LIMIT_MS), (0, 0));
    assert_eq!(rkfd_workers_free(Some(workers)), 0);
}
