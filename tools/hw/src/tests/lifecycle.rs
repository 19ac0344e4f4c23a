// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The scheduler's life: every event in every state.

use crate::sched::lifecycle::{Event, Lifecycle};

use Lifecycle::{
    Gone, Recovering, Running, Stopping, Suspended, Unreleased, Wedged, WedgedSuspended,
};

const STATES: [Lifecycle; 8] = [
    Running,
    Suspended,
    Recovering,
    Wedged,
    WedgedSuspended,
    Stopping,
    Unreleased,
    Gone,
];

const EVENTS: [Event; 8] = [
    Event::Failed { reset: true },
    Event::Failed { reset: false },
    Event::Abandoned,
    Event::Restarted,
    Event::Suspended,
    Event::Resumed,
    Event::ShutDown,
    Event::Released,
];

#[test]
fn transitions_are_these() {
    // In the order of `EVENTS`.
    #[rustfmt::skip]
    let table = [
        (Running, [Some(Recovering), Some(Wedged), Some(Running), Some(Running), Some(Suspended), Some(Running), Some(Stopping), Some(Gone)]),
        (Suspended, [Some(Recovering), Some(Wedged), Some(Suspended), Some(Running), Some(Suspended), None, Some(Stopping), Some(Gone)]),
        (Recovering, [Some(Recovering), Some(Recovering), Some(Wedged), Some(Running), None, Some(Recovering), Some(Unreleased), Some(Gone)]),
        (Wedged, [Some(Wedged), Some(Wedged), Some(Wedged), Some(Running), Some(WedgedSuspended), Some(Wedged), Some(Unreleased), Some(Gone)]),
        (WedgedSuspended, [Some(WedgedSuspended), Some(WedgedSuspended), Some(WedgedSuspended), None, Some(WedgedSuspended), Some(Wedged), Some(Unreleased), Some(Gone)]),
        (Stopping, [Some(Unreleased), Some(Unreleased), Some(Stopping), None, Some(Stopping), Some(Stopping), Some(Stopping), Some(Gone)]),
        (Unreleased, [Some(Unreleased), Some(Unreleased), Some(Unreleased), None, Some(Unreleased), Some(Unreleased), Some(Unreleased), Some(Gone)]),
        (Gone, [Some(Gone), Some(Gone), Some(Gone), None, Some(Gone), Some(Gone), Some(Gone), Some(Gone)]),
    ];
    assert_eq!(table.map(|(state, _)| state), STATES);
    for (state, after) in table {
        for (event, expected) in EVENTS.into_iter().zip(after) {
            assert_eq!(state.after(event), expected, "{state:?}, {event:?}");
        }
    }
}

#[test]
fn nothing_leads_back_from_the_end() {
    for state in STATES.into_iter().filter(|s| s.is_shut_down()) {
        for after in EVENTS.into_iter().filter_map(|event| state.after(event)) {
            assert!(after.is_shut_down(), "{state:?} becomes {after:?}");
        }
    }
}

#[test]
fn answers_go_with_the_state() {
    for state in STATES {
        assert_eq!(Lifecycle::from_raw(state.raw()), state);
        let answers = [
            state.takes_changes(),
            state.is_out_of_service(),
            state == Gone,
        ];
        let yes = answers.into_iter().filter(|answer| *answer).count();
        assert_eq!(yes, 1, "{state:?}: {answers:?}");
    }
    assert_eq!(Lifecycle::from_raw(u32::MAX), Gone);
    let suspended = STATES.into_iter().filter(|s| s.is_suspended());
    assert_eq!(suspended.collect::<Vec<_>>(), [Suspended, WedgedSuspended]);
}
