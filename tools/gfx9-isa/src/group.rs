// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A workgroup: waves that share LDS and barriers.
//!
//! [`Group::run`] executes its waves in turn on one thread.  How long each turn is follows from the seed and from
//! nothing else: with the same seed, memory and answers, a group executes the same instructions in the same order,
//! however the budget is divided and however often the group is saved and restored in between.

use crate::env::Env;
use crate::env::Memory;
use crate::env::MemoryFault;
use crate::env::Messages;
use crate::exec::Exception;
use crate::exec::Flow;
use crate::observe::Nobody;
use crate::observe::Observer;
use crate::processor::Processor;
use crate::processor::Stop;
use crate::wave::Wave;
use crate::wave::Words;

/// Instructions of the longest turn.
const TURN: u64 = 256;
/// Waves of a group, at most.
const WAVES: usize = 16;
/// Bytes of LDS, at most.
const LDS: usize = 1 << 16;
/// Begins what [`Group::save`] writes; the last digit is the version of the format.
const MAGIC: u32 = 0x4757_3903;
/// Bytes before LDS in what [`Group::save`] writes.
const HEAD: usize = 32;

/// What a wave does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It executes.
    Ready,
    /// It is at a barrier.
    Barrier,
    /// It waits for global wave sync, and tries again after others have gone on.
    Wait,
    /// It waits for a translation, until [`Group::resume`].
    Retry,
    /// It was halted by itself, a trap or an exception, until [`Group::resume`].
    Halted,
    /// It has ended.
    Ended,
    /// It has ended after its trap handler has saved it.
    Saved,
}

impl State {
    const ALL: [State; 7] = [
        State::Ready,
        State::Barrier,
        State::Wait,
        State::Retry,
        State::Halted,
        State::Ended,
        State::Saved,
    ];

    fn is_over(self) -> bool {
        matches!(self, State::Ended | State::Saved)
    }
}

/// Why [`Group::run`] returns.  `wave` is the number of the wave in the group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// As many instructions as were allowed have been executed.
    Budget,
    /// All waves have ended.
    Done,
    /// All waves have ended, and some were saved.
    Saved,
    /// No wave can go on by itself.
    Stalled,
    /// A translation is missing; the wave waits, with its PC at the instruction.
    Retry {
        /// Wave.
        wave: usize,
        /// Address that missed.
        address: u64,
    },
    /// An access is not allowed; the wave is halted, with its PC at the instruction.
    Fault {
        /// Wave.
        wave: usize,
        /// Address that was refused.
        address: u64,
        /// The access is one to code.
        fetch: bool,
    },
    /// The instruction at PC cannot be executed; the wave is halted.
    Illegal {
        /// Wave.
        wave: usize,
        /// The exception, or why the words are no instruction.
        why: Stop,
    },
    /// The wave has sent a message (see [`Messages::send`]); it goes on.
    Message {
        /// Wave.
        wave: usize,
        /// Immediate of `s_sendmsg`.
        message: u16,
    },
    /// The wave is halted at `s_trap`; PC is that of the instruction.
    Trap {
        /// Wave.
        wave: usize,
        /// Number of the trap.
        id: u8,
    },
    /// An instruction has raised these exceptions of floats, which MODE lets trap; the wave is halted, with its PC behind
    /// the instruction.
    Math {
        /// Wave.
        wave: usize,
        /// Bits of [`crate::wave::excp`].
        raised: u32,
    },
    /// The wave has halted itself.
    Halt {
        /// Wave.
        wave: usize,
    },
}

/// What executes a group, and what its waves reach.
pub struct Host<'a> {
    /// Executes; of the group's address space.
    pub processor: &'a mut Processor,
    /// Global memory of the address space.
    pub memory: &'a mut dyn Memory,
    /// Messages and clocks.
    pub messages: &'a mut dyn Messages,
}

/// Why bytes are no saved group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The bytes are no workgroup that this version has saved")]
pub struct RestoreError;

/// A workgroup.
#[derive(Clone)]
pub struct Group {
    waves: Vec<(Wave, State)>,
    lds: Vec<u8>,
    /// State of the generator of turns.
    random: u64,
    /// Whose turn it is, and how many instructions of it are left.
    turn: usize,
    left: u64,
}

impl Group {
    /// A group of at most 16 waves with `lds` bytes of LDS (at most 64 KiB), which are 0.
    pub fn new(waves: Vec<Wave>, lds: usize, seed: u64) -> Self {
        let mut waves: Vec<_> = waves.into_iter().map(|wave| (wave, State::Ready)).collect();
        waves.truncate(WAVES);
        Self {
            turn: waves.len().saturating_sub(1),
            waves,
            lds: vec![0; lds.min(LDS)],
            random: seed,
            left: 0,
        }
    }

    /// How many waves there are, also those that have ended.
    pub fn len(&self) -> usize {
        self.waves.len()
    }

    /// Whether the group has no waves.
    pub fn is_empty(&self) -> bool {
        self.waves.is_empty()
    }

    /// Whether all waves have ended.
    pub fn is_over(&self) -> bool {
        self.waves.iter().all(|(_, state)| state.is_over())
    }

    /// A wave.
    pub fn wave(&self, number: usize) -> Option<&Wave> {
        self.waves.get(number).map(|(wave, _)| wave)
    }

    /// As [`Group::wave`].
    pub fn wave_mut(&mut self, number: usize) -> Option<&mut Wave> {
        self.waves.get_mut(number).map(|(wave, _)| wave)
    }

    /// What a wave does; [`State::Ended`] if there is none.
    pub fn state(&self, number: usize) -> State {
        self.waves
            .get(number)
            .map_or(State::Ended, |(_, state)| *state)
    }

    /// LDS.
    pub fn lds(&self) -> &[u8] {
        &self.lds
    }

    /// As [`Group::lds`].
    pub fn lds_mut(&mut self) -> &mut [u8] {
        &mut self.lds
    }

    /// Lets a wave that is halted or waits for a translation go on at its PC.
    pub fn resume(&mut self, number: usize) {
        if let Some((_, state @ (State::Retry | State::Halted))) = self.waves.get_mut(number) {
            *state = State::Ready;
        }
    }

    /// Lets all waves that wait for translations go on.
    pub fn retry(&mut self) {
        for (_, state) in &mut self.waves {
            if *state == State::Retry {
                *state = State::Ready;
            }
        }
    }

    /// Ends a wave where it is; others no longer wait for it.
    pub fn kill_wave(&mut self, number: usize) {
        if let Some((_, state)) = self.waves.get_mut(number) {
            *state = State::Ended;
            self.release();
        }
    }

    /// Ends all waves.
    pub fn kill(&mut self) {
        for (_, state) in &mut self.waves {
            *state = State::Ended;
        }
    }

    /// Opens the barrier if nobody is missing.
    fn release(&mut self) {
        let arrived = |state: &State| *state == State::Barrier || state.is_over();
        if self.waves.iter().all(|(_, state)| arrived(state)) {
            for (_, state) in &mut self.waves {
                if *state == State::Barrier {
                    *state = State::Ready;
                }
            }
        }
    }

    /// Gives the turn to the next wave that can go on; false if there is none.
    fn next_turn(&mut self) -> bool {
        let count = self.waves.len();
        let found = (1..=count)
            .map(|step| (self.turn + step) % count)
            .find(|at| self.waves[*at].1 == State::Ready);
        let Some(turn) = found else {
            return false;
        };
        self.turn = turn;
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.random;
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        self.left = 1 + (x ^ x >> 31) % TURN;
        true
    }

    /// Executes at most `budget` instructions of all waves together, up to the next event.
    ///
    /// Waves wait for global wave sync in their instruction: where all that can go on do, the group has stalled, and
    /// they try again at the next call.
    pub fn run(&mut self, host: &mut Host<'_>, budget: u64) -> Event {
        self.observe(host, budget, &mut Nobody)
    }

    /// As [`Group::run`], with an observer.
    pub fn observe<O: Observer + ?Sized>(
        &mut self,
        host: &mut Host<'_>,
        budget: u64,
        observer: &mut O,
    ) -> Event {
        let mut budget = budget;
        loop {
            let ready = self.state(self.turn) == State::Ready;
            if (self.left == 0 || !ready) && !self.next_turn() {
                return self.rest();
            }
            if budget == 0 {
                return Event::Budget;
            }
            let turn = self.turn;
            let mut env = Env {
                memory: &mut *host.memory,
                lds: &mut self.lds,
                messages: &mut *host.messages,
            };
            let Some((wave, _)) = self.waves.get_mut(turn) else {
                return Event::Stalled;
            };
            observer.turn(turn);
            let budget_of_turn = self.left.min(budget);
            let (done, stop) = host
                .processor
                .observe(wave, &mut env, budget_of_turn, observer);
            budget -= done;
            self.left -= done;
            if done > 0 {
                self.wake();
            }
            if let Some(event) = self.stopped(turn, stop) {
                return event;
            }
        }
    }

    /// Others that wait for global wave sync try again.
    fn wake(&mut self) {
        for (_, state) in &mut self.waves {
            if *state == State::Wait {
                *state = State::Ready;
            }
        }
    }

    /// No wave is ready.
    fn rest(&mut self) -> Event {
        if !self.is_over() {
            self.wake();
            return Event::Stalled;
        }
        let saved = self.waves.iter().any(|(_, state)| *state == State::Saved);
        if saved {
            Event::Saved
        } else {
            Event::Done
        }
    }

    fn stopped(&mut self, wave: usize, stop: Stop) -> Option<Event> {
        let (state, event) = match stop {
            Stop::Budget | Stop::Flow(Flow::Next | Flow::Refetch) => return None,
            Stop::Flow(Flow::Message(message)) => {
                return Some(Event::Message { wave, message });
            }
            Stop::Flow(Flow::Sleep(_)) => {
                self.left = 0;
                return None;
            }
            Stop::Flow(Flow::Wait) => (State::Wait, None),
            Stop::Flow(Flow::Barrier) => (State::Barrier, None),
            Stop::Flow(Flow::End) => (State::Ended, None),
            Stop::Flow(Flow::Saved) => (State::Saved, None),
            Stop::Flow(Flow::Halt) => (State::Halted, Some(Event::Halt { wave })),
            Stop::Flow(Flow::Trap(id)) => (State::Halted, Some(Event::Trap { wave, id })),
            Stop::Flow(Flow::Math(raised)) => (State::Halted, Some(Event::Math { wave, raised })),
            Stop::Exception(Exception::Memory(fault)) => Self::fault(wave, fault, false),
            Stop::Exception(Exception::Violation { address }) => {
                Self::fault(wave, MemoryFault::Denied { address }, false)
            }
            Stop::Fetch(fault) => Self::fault(wave, fault, true),
            Stop::Exception(_) | Stop::Undecodable(_) => {
                (State::Halted, Some(Event::Illegal { wave, why: stop }))
            }
        };
        if let Some((_, slot)) = self.waves.get_mut(wave) {
            *slot = state;
        }
        self.left = 0;
        self.release();
        event
    }

    fn fault(wave: usize, fault: MemoryFault, fetch: bool) -> (State, Option<Event>) {
        match fault {
            MemoryFault::Retry { address } => (State::Retry, Some(Event::Retry { wave, address })),
            MemoryFault::Denied { address } => {
                let event = Event::Fault {
                    wave,
                    address,
                    fetch,
                };
                (State::Halted, Some(event))
            }
        }
    }

    /// All of the group's state, in a format of its own.
    pub fn save(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.saved_size());
        for part in 0..self.saved_parts() {
            self.save_part(part, &mut bytes);
        }
        bytes
    }

    /// Bytes that [`Group::save`] returns.
    pub fn saved_size(&self) -> usize {
        let waves = self.waves.iter().map(|(wave, _)| 4 + wave.saved_size());
        HEAD + self.lds.len() + waves.sum::<usize>()
    }

    /// Parts of what [`Group::save`] returns: one with LDS, and one for each wave.
    pub fn saved_parts(&self) -> usize {
        1 + self.waves.len()
    }

    /// Appends a part of what [`Group::save`] returns.
    pub fn save_part(&self, part: usize, bytes: &mut Vec<u8>) {
        let word = |bytes: &mut Vec<u8>, value: u32| bytes.extend_from_slice(&value.to_le_bytes());
        let Some(wave) = part.checked_sub(1) else {
            word(bytes, MAGIC);
            word(bytes, self.waves.len() as u32);
            word(bytes, self.lds.len() as u32);
            word(bytes, self.turn as u32);
            bytes.extend_from_slice(&self.random.to_le_bytes());
            bytes.extend_from_slice(&self.left.to_le_bytes());
            bytes.extend_from_slice(&self.lds);
            return;
        };
        if let Some((wave, state)) = self.waves.get(wave) {
            let place = State::ALL.iter().position(|at| at == state);
            word(bytes, place.unwrap_or(0) as u32);
            wave.save(bytes);
        }
    }

    /// A group as [`Group::save`] has written it.
    ///
    /// # Errors
    /// Where the bytes are not such a group.
    pub fn restore(bytes: &[u8]) -> Result<Self, RestoreError> {
        let mut rest = bytes;
        let mut parts = Parts::begin(&mut rest)?;
        while parts.lacks_waves() {
            parts.wave(&mut rest)?;
        }
        if rest.is_empty() {
            Ok(parts.group)
        } else {
            Err(RestoreError)
        }
    }
}

/// A group that is read back a part at a time.
pub struct Parts {
    group: Group,
    count: usize,
}

impl Parts {
    /// Bytes of the longest part.
    pub const LONGEST: usize = {
        let wave = 4 + crate::wave::LONGEST_SAVED;
        if HEAD + LDS > wave {
            HEAD + LDS
        } else {
            wave
        }
    };

    /// Takes the first part off the bytes that [`Group::save`] has written.
    ///
    /// # Errors
    /// Where they are not such bytes.
    pub fn begin(bytes: &mut &[u8]) -> Result<Self, RestoreError> {
        let mut from = Words(bytes);
        let parts = Self::read(&mut from).ok_or(RestoreError)?;
        *bytes = from.0;
        Ok(parts)
    }

    fn read(from: &mut Words<'_>) -> Option<Self> {
        if from.word()? != MAGIC {
            return None;
        }
        let count = from.word()? as usize;
        let lds = from.word()? as usize;
        let turn = from.word()? as usize;
        let random = from.wide()?;
        let left = from.wide()?;
        if count > WAVES || lds > LDS || turn >= count.max(1) || left > TURN {
            return None;
        }
        let group = Group {
            waves: Vec::with_capacity(count),
            lds: from.bytes(lds)?,
            random,
            turn,
            left,
        };
        Some(Self { group, count })
    }

    /// Whether there are further parts.
    pub fn lacks_waves(&self) -> bool {
        self.group.waves.len() < self.count
    }

    /// Takes the next part, a wave.
    ///
    /// # Errors
    /// As for [`Parts::begin`].
    pub fn wave(&mut self, bytes: &mut &[u8]) -> Result<(), RestoreError> {
        let mut from = Words(bytes);
        let state = from.word().and_then(|at| State::ALL.get(at as usize));
        let state = *state.ok_or(RestoreError)?;
        let wave = Wave::restore(&mut from).ok_or(RestoreError)?;
        self.group.waves.push((wave, state));
        *bytes = from.0;
        Ok(())
    }

    /// The group; `None` as long as it lacks waves.
    pub fn group(self) -> Option<Group> {
        (!self.lacks_waves()).then_some(self.group)
    }
}
