// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The scheduler's next step, against what makes a step right, whatever the queues are.

use crate::sched::plan::{
    plan, ActiveList, ProcessView, QueueView, Rules, Scope, Step, UNMAP_DOORBELLS,
};
use proptest::prelude::*;

/// A process: its PASID and its queues.
type Process = (u16, Vec<QueueView>);

const RULES: Rules = Rules {
    coalesce: true,
    targeted: true,
    gathered: false,
};

fn next(active: Option<&ActiveList>, rules: Rules, processes: &[Process]) -> Step {
    next_with(active, rules, processes, 0)
}

/// As [`next`], and the process with PASID `detached` was detached and is in the list.
fn next_with(
    active: Option<&ActiveList>,
    rules: Rules,
    processes: &[Process],
    detached: u16,
) -> Step {
    let views = processes.iter().map(|(pasid, queues)| {
        let view = ProcessView {
            pasid: *pasid,
            ends_list: *pasid == detached,
        };
        (view, queues.iter().copied())
    });
    plan(active, rules, views)
}

/// A compute queue that runs and may go on.
fn running(doorbell: u32) -> QueueView {
    QueueView {
        doorbell,
        is_compute: true,
        on_hardware: true,
        wanted: true,
        must_leave: false,
    }
}

/// One that was destroyed.
fn leaving(doorbell: u32) -> QueueView {
    QueueView {
        wanted: false,
        must_leave: true,
        ..running(doorbell)
    }
}

/// One that was just made.
fn coming(doorbell: u32) -> QueueView {
    QueueView {
        on_hardware: false,
        ..running(doorbell)
    }
}

const LIST: ActiveList = ActiveList {
    chained: false,
    dwords: 0,
    processes: 1,
    queues: 1,
    written: 0,
    fixed: false,
};

#[test]
fn work_is_mapped_at_once_where_nothing_runs() {
    assert_eq!(next(None, RULES, &[(1, vec![])]), Step::Idle);
    assert_eq!(next(None, RULES, &[(1, vec![coming(2)])]), Step::Map);
}

#[test]
fn running_work_is_preempted_for_new_work_only_after_a_moment() {
    let processes = [(1, vec![running(2), coming(4)])];
    assert_eq!(next(Some(&LIST), RULES, &processes), Step::Gather);
    let rules = Rules {
        gathered: true,
        ..RULES
    };
    let whole = Step::Preempt(Scope::Dynamic);
    assert_eq!(next(Some(&LIST), rules, &processes), whole);
    let rules = Rules {
        coalesce: false,
        ..RULES
    };
    assert_eq!(next(Some(&LIST), rules, &processes), whole);
    // Nothing that runs would have to stop for it.
    let processes = [(1, vec![leaving(2), coming(4)])];
    assert_eq!(next(Some(&LIST), RULES, &processes), whole);
}

#[test]
fn few_queues_are_named_and_a_process_that_leaves_whole_is() {
    let some = [(1, vec![leaving(2), running(4), leaving(6)])];
    assert_eq!(
        next(Some(&LIST), RULES, &some),
        Step::Preempt(Scope::Doorbells([2, 6, 0, 0], 2))
    );
    let all = [(1, vec![leaving(2), leaving(4)]), (7, vec![running(6)])];
    assert_eq!(
        next(Some(&LIST), RULES, &all),
        Step::Preempt(Scope::Pasid(1))
    );
    let two = [(1, vec![leaving(2)]), (7, vec![leaving(4), running(6)])];
    assert_eq!(
        next(Some(&LIST), RULES, &two),
        Step::Preempt(Scope::Doorbells([2, 4, 0, 0], 2))
    );
    let many: Vec<_> = (1..=5).map(|n| leaving(2 * n)).collect();
    let many = [(1, many), (7, vec![leaving(12)])];
    assert_eq!(
        next(Some(&LIST), RULES, &many),
        Step::Preempt(Scope::Dynamic)
    );
}

#[test]
fn list_that_names_a_detached_process_ends() {
    let whole = Step::Preempt(Scope::Dynamic);
    let gone = [(1, vec![]), (7, vec![running(6)])];
    assert_eq!(next(Some(&LIST), RULES, &gone), Step::Idle);
    assert_eq!(next_with(Some(&LIST), RULES, &gone, 1), whole);
    let going = [(1, vec![leaving(2)]), (7, vec![running(6)])];
    assert_eq!(next_with(Some(&LIST), RULES, &going, 1), whole);
}

#[test]
fn list_of_which_nothing_runs_ends() {
    let last = [(1, vec![leaving(2)])];
    assert_eq!(
        next(Some(&LIST), RULES, &last),
        Step::Preempt(Scope::Dynamic)
    );
}

#[test]
fn what_a_narrow_unmap_cannot_do_takes_the_whole_list() {
    let one = [(1, vec![leaving(2), running(4)])];
    let chained = ActiveList {
        chained: true,
        ..LIST
    };
    let fixed = ActiveList {
        fixed: true,
        ..LIST
    };
    let whole = Step::Preempt(Scope::Dynamic);
    assert_eq!(next(Some(&chained), RULES, &one), whole);
    assert_eq!(next(Some(&fixed), RULES, &one), Step::Preempt(Scope::All));
    let rules = Rules {
        targeted: false,
        ..RULES
    };
    assert_eq!(next(Some(&LIST), rules, &one), whole);
    let sdma = QueueView {
        is_compute: false,
        ..leaving(2)
    };
    assert_eq!(next(Some(&LIST), RULES, &[(1, vec![sdma])]), whole);
    // It comes back with other values.
    let changed = QueueView {
        must_leave: true,
        ..running(2)
    };
    assert_eq!(next(Some(&LIST), RULES, &[(1, vec![changed])]), whole);
}

fn views() -> impl Strategy<Value = Vec<Process>> {
    let queue = any::<(bool, bool, bool, bool)>();
    let process = proptest::collection::vec(queue, 0..7);
    proptest::collection::vec(process, 0..5).prop_map(|processes| {
        let mut doorbell = 0;
        let mut view = |(is_compute, on_hardware, wanted, must_leave)| {
            doorbell += 2;
            QueueView {
                doorbell,
                is_compute,
                on_hardware,
                wanted,
                // Nobody waits for a queue that is off.
                must_leave: must_leave && on_hardware,
            }
        };
        let mut pasid = 0;
        let mut made = Vec::new();
        for queues in processes {
            pasid += 1;
            made.push((pasid, queues.into_iter().map(&mut view).collect()));
        }
        made
    })
}

/// Whether a queue has to leave the hardware.
fn has_to_leave(queue: &QueueView) -> bool {
    queue.on_hardware && (queue.must_leave || !queue.wanted)
}

proptest! {
    #[test]
    fn step_is_right_for_any_queues(
        processes in views(),
        active in proptest::option::of(any::<(bool, bool)>()),
        (coalesce, targeted, gathered) in any::<(bool, bool, bool)>(),
    ) {
        let active = active.map(|(chained, fixed)| ActiveList { chained, fixed, ..LIST });
        let rules = Rules { coalesce, targeted, gathered };
        let step = next(active.as_ref(), rules, &processes);
        let all = || processes.iter().flat_map(|(pasid, queues)| {
            queues.iter().map(move |queue| (*pasid, queue))
        });
        let remove = all().any(|(_, queue)| has_to_leave(queue));
        let add = all().any(|(_, queue)| queue.wanted && !queue.on_hardware);
        match step {
            // A list that runs is replaced, so what is to be added waits for its end.
            Step::Idle => prop_assert!(!add && (!remove || active.is_none())),
            Step::Map => prop_assert!(active.is_none() && add),
            Step::Gather => prop_assert!(add && !remove && coalesce && !gathered),
            Step::Preempt(scope) => {
                prop_assert!(active.is_some() && (add || remove));
                for (pasid, queue) in all() {
                    let covered = scope.covers(pasid, queue.doorbell);
                    // All that has to leave does, and if only some is named nothing else does.
                    prop_assert!(covered || !has_to_leave(queue));
                    if !scope.ends_list() && queue.on_hardware {
                        prop_assert_eq!(covered, has_to_leave(queue));
                        prop_assert!(!covered || queue.is_compute);
                    }
                }
                if !scope.ends_list() {
                    // The list goes on, and whoever left must not come back with it.
                    prop_assert!(!add && targeted && coalesce);
                    prop_assert!(all().all(|(_, queue)| !(queue.wanted && queue.must_leave)));
                }
                if let Scope::Doorbells(list, count) = scope {
                    prop_assert!((1..=UNMAP_DOORBELLS).contains(&count));
                    prop_assert!(list.iter().skip(count).all(|doorbell| *doorbell == 0));
                }
            }
        }
    }
}
