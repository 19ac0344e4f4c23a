// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Where all waves are, for people who want to know what a kernel does.

use std::sync::Arc;

use gfx9_isa::decode::Decoder;
use gfx9_isa::group::{Group, State};
use gfx9_isa::inst::Inst;

use super::dispatcher::Dispatcher;
use super::job::{Dispatch, Job, Resting};
use super::report::Spot;
use crate::vm::window::Window;
use crate::vm::Access;

/// What a wave does, in a word.
pub const fn word(state: State) -> &'static str {
    match state {
        State::Ready => "ready",
        State::Barrier => "barrier",
        State::Wait => "sync",
        State::Retry => "translation",
        State::Halted => "halted",
        State::Ended => "ended",
        State::Saved => "saved",
    }
}

/// A wave.
#[derive(Debug)]
pub struct Seen {
    /// Its dispatch.
    pub dispatch: Arc<Dispatch>,
    /// Where it is.
    pub spot: Spot,
    /// It has a seat on a compute unit; one that was taken off waits for one.
    pub seated: bool,
    /// What it does.
    pub state: State,
    /// Active lanes.
    pub exec: u64,
}

impl Seen {
    fn waves<'a>(
        group: &'a Group,
        make: impl Fn(usize) -> (Arc<Dispatch>, Spot, bool) + 'a,
    ) -> impl Iterator<Item = Seen> + 'a {
        (0..group.len()).filter_map(move |number| {
            let wave = group.wave(number)?;
            let state = group.state(number);
            if matches!(state, State::Ended | State::Saved) {
                return None;
            }
            let (dispatch, spot, seated) = make(number);
            Some(Seen {
                dispatch,
                spot,
                seated,
                state,
                exec: wave.exec(),
            })
        })
    }

    /// The waves of a group on a unit that have not ended.
    pub(super) fn of(job: &Job) -> impl Iterator<Item = Seen> + '_ {
        Self::waves(&job.group.0, move |number| {
            (Arc::clone(&job.dispatch), job.spot(number), true)
        })
    }

    /// The same of a group without a unit.
    pub(super) fn of_resting<'a>(
        dispatch: &'a Arc<Dispatch>,
        group: &'a Resting,
    ) -> impl Iterator<Item = Seen> + 'a {
        Self::waves(&group.group.0, move |number| {
            let spot = Spot {
                group: group.id,
                wave: number as u32,
                pc: group.group.0.wave(number).map_or(0, |wave| wave.pc),
                ..Spot::default()
            };
            (Arc::clone(dispatch), spot, false)
        })
    }
}

/// All waves; they stand still as long as this value is there.
#[must_use]
pub struct Look<'a> {
    dispatcher: &'a Dispatcher,
    /// The waves, by dispatch, group and number.
    pub waves: Vec<Seen>,
}

impl<'a> Look<'a> {
    pub(super) fn new(dispatcher: &'a Dispatcher, mut waves: Vec<Seen>) -> Self {
        waves.sort_by_key(|seen| {
            let [x, y, z] = seen.spot.group;
            (seen.dispatch.serial, z, y, x, seen.spot.wave)
        });
        Self { dispatcher, waves }
    }

    /// Whether the dispatch of a wave is still on the units.  What was read of its address space before is that of the
    /// wave then: a dispatch that comes back has another serial number.
    pub fn is_current(&self, seen: &Seen) -> bool {
        self.dispatcher.has(seen.dispatch.serial)
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        self.dispatcher.end_look();
    }
}

/// The instruction at an address, if it can be read and is one.
pub fn instruction(memory: &mut Window<'_>, decoder: &Decoder, pc: u64) -> Option<Inst> {
    let mut bytes = [0; 8];
    let (first, second) = bytes.split_at_mut(4);
    memory.read(pc, first, Access::Execute).ok()?;
    // An instruction of four bytes may be the last of its page.
    let whole = memory
        .read(pc.wrapping_add(4), second, Access::Execute)
        .is_ok();
    let word = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0, |word, b| word << 8 | u32::from(*b))
    };
    let words = [word(first), word(second)];
    decoder.decode(words.get(..if whole { 2 } else { 1 })?).ok()
}
