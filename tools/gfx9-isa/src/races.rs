// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A checker of LDS: accesses of two waves that nothing orders, reads of what nobody has written, and accesses beyond the
//! allocation.
//!
//! [`Checker`] is an [`Observer`] of one group.  Each wave has a vector clock.  Barriers order what was before them in all
//! waves and what is behind them.  An atomic on LDS orders its wave behind the earlier atomics on the same dword; an atomic
//! on memory and global wave sync order it behind all earlier ones of the group, since what waves tell each other there
//! is not followed.  Two accesses to the same byte race if they are of different waves, at least one writes, not both are
//! atomics, and nothing orders them.  Lanes of one wave do not race with each other.
//!
//! What is reported has happened, in the order that the group's seed gave: a race that another order would show may be
//! missing.  A plain load or store is taken for what it is: a program that uses one as an atomic, which compilers make of
//! atomic loads and stores, is reported where another wave's atomic or store is not ordered with it.

use std::collections::HashSet;
use std::sync::Arc;

use crate::exec::touch::How;
use crate::exec::touch::Touch;
use crate::exec::touch::Touched;
use crate::exec::touch::Touches;
use crate::exec::Exception;
use crate::exec::Flow;
use crate::inst::Inst;
use crate::observe::Observer;
use crate::wave::Wave;

/// Waves of a group, at most.
const WAVES: usize = 16;
/// Findings that are kept of one group.
const FINDINGS: usize = 64;

/// What is wrong with an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mistake {
    /// Nothing orders it with an earlier access of another wave.
    Race {
        /// Wave of the earlier access.
        wave: usize,
        /// Address of its instruction.
        pc: u64,
        /// How it accessed.
        how: How,
    },
    /// Nobody has written what it reads.
    Unwritten,
    /// The group's allocation ends before.
    Beyond,
}

/// A wrong access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Finding {
    /// What is wrong.
    pub mistake: Mistake,
    /// Number of the wave in the group.
    pub wave: usize,
    /// Address of its instruction.
    pub pc: u64,
    /// First byte of LDS that is concerned.
    pub address: u64,
    /// How it is accessed.
    pub how: How,
}

/// How far a wave knows of the others: accesses of wave `n` up to the value of element `n` are before what it does now.
type Clock = [u32; WAVES];

fn join(to: &mut Clock, from: &Clock) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = (*to).max(*from);
    }
}

/// An access that later ones may race with.
#[derive(Clone, Copy)]
struct Past {
    wave: u8,
    /// Bytes of the dword, a bit each.
    bytes: u8,
    how: How,
    /// The wave's own clock.
    clock: u32,
    pc: u64,
}

/// A dword of LDS.
#[derive(Clone, Default)]
struct Cell {
    past: Vec<Past>,
    /// Bytes that were written, a bit each.
    written: u8,
    /// What waves knew at their atomics.
    released: Option<Box<Clock>>,
}

/// A barrier, by its number; two of them are enough, since no wave is two barriers ahead of another.
#[derive(Clone, Copy, Default)]
struct Gate {
    number: u32,
    clock: Clock,
}

/// A wave as far as the checker follows it.
#[derive(Clone, Copy, Default)]
struct Follow {
    clock: Clock,
    /// Barriers that it has come to.
    barriers: u32,
    /// It has come to one and not yet gone on.
    at_barrier: bool,
}

/// A mistake without waves and addresses of LDS: the instruction's address and how it accesses, the same of the other
/// access of a race, and whether it is beyond the allocation.
type Key = (u64, How, Option<(u64, How)>, bool);

/// Checks the accesses of one group to its LDS.
pub struct Checker {
    touches: Arc<Touches>,
    waves: [Follow; WAVES],
    gates: [Gate; 2],
    /// What waves knew at their atomics on memory.
    met: Clock,
    cells: Vec<Cell>,
    /// The wave that executes, its PC, and what the instruction does.
    turn: usize,
    pc: u64,
    touched: Touched,
    findings: Vec<Finding>,
    /// What was found.
    known: HashSet<Key>,
}

impl Checker {
    /// For a group with `bytes` bytes of LDS.  One that has executed before, unobserved, is not `fresh`: what it did
    /// until now is taken as ordered, and all of LDS as written.
    pub fn new(touches: &Arc<Touches>, bytes: usize, fresh: bool) -> Self {
        let cell = Cell {
            written: if fresh { 0 } else { 0xF },
            ..Cell::default()
        };
        let mut waves = [Follow::default(); WAVES];
        for (number, wave) in waves.iter_mut().enumerate() {
            wave.clock[number] = 1;
        }
        Self {
            touches: Arc::clone(touches),
            waves,
            gates: [Gate::default(); 2],
            met: [0; WAVES],
            cells: vec![cell; bytes.div_ceil(4)],
            turn: 0,
            pc: 0,
            touched: Touched::default(),
            findings: Vec::new(),
            known: HashSet::new(),
        }
    }

    /// Takes what was found since the last call: each pair of instructions once, and no more than 64 of them.
    pub fn take(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    fn find(&mut self, mistake: Mistake, address: u64, how: How) {
        let other = match mistake {
            Mistake::Race { pc, how, .. } => Some((pc, how)),
            Mistake::Unwritten | Mistake::Beyond => None,
        };
        let key = (self.pc, how, other, mistake == Mistake::Beyond);
        if self.known.len() < FINDINGS && self.known.insert(key) {
            self.findings.push(Finding {
                mistake,
                wave: self.turn,
                pc: self.pc,
                address,
                how,
            });
        }
    }

    fn touch(&mut self, touch: Touch) {
        let Touch {
            address,
            bytes,
            how,
        } = touch;
        let end = address.saturating_add(bytes.into());
        let size = 4 * self.cells.len() as u64;
        if end > size {
            self.find(Mistake::Beyond, address.max(size), how);
        }
        let mut at = address;
        while at < end.min(size) {
            let next = (at / 4 * 4 + 4).min(end);
            let mask = ((1u16 << (next - at)) - 1) << (at % 4);
            self.access(at, mask as u8, how);
            at = next;
        }
    }

    /// Accesses some bytes of the dword that has the byte at `address`.
    fn access(&mut self, address: u64, bytes: u8, how: How) {
        let turn = self.turn;
        let Some(cell) = self.cells.get_mut((address / 4) as usize) else {
            return;
        };
        let clock = &mut self.waves[turn].clock;
        if let (How::Atomic, Some(released)) = (how, &cell.released) {
            join(clock, released);
        }
        let unwritten = how != How::Write && bytes & !cell.written != 0;
        let races = |past: &&Past| {
            usize::from(past.wave) != turn
                && past.bytes & bytes != 0
                && (past.how != How::Read || how != How::Read)
                && (past.how != How::Atomic || how != How::Atomic)
                && clock[usize::from(past.wave)] < past.clock
        };
        let race = cell.past.iter().find(races).copied();
        // What comes later and races with one of these races with this access, too.
        cell.past.retain(|past| {
            let before = clock[usize::from(past.wave)] >= past.clock;
            let within = past.bytes & !bytes == 0;
            let as_strict = how == How::Write || past.how == how;
            let same_reader = how == How::Write || usize::from(past.wave) == turn;
            !(before && within && as_strict && same_reader)
        });
        cell.past.push(Past {
            wave: turn as u8,
            bytes,
            how,
            clock: clock[turn],
            pc: self.pc,
        });
        if how != How::Read {
            cell.written |= bytes;
        }
        if how == How::Atomic {
            cell.released = Some(Box::new(*clock));
            clock[turn] += 1;
        }
        if unwritten {
            self.find(Mistake::Unwritten, address, how);
        }
        if let Some(Past {
            wave,
            pc,
            how: earlier,
            ..
        }) = race
        {
            let mistake = Mistake::Race {
                wave: wave.into(),
                pc,
                how: earlier,
            };
            self.find(mistake, address, how);
        }
    }

    /// The wave has come to a barrier.
    fn arrive(&mut self) {
        let turn = self.turn;
        let wave = &mut self.waves[turn];
        wave.barriers += 1;
        wave.at_barrier = true;
        let gate = &mut self.gates[wave.barriers as usize % 2];
        if gate.number != wave.barriers {
            *gate = Gate {
                number: wave.barriers,
                clock: [0; WAVES],
            };
        }
        join(&mut gate.clock, &wave.clock);
        wave.clock[turn] += 1;
    }
}

impl Observer for Checker {
    fn turn(&mut self, number: usize) {
        self.turn = number.min(WAVES - 1);
    }

    fn before(&mut self, wave: &Wave, inst: &Inst) {
        self.pc = wave.pc;
        let follow = &mut self.waves[self.turn];
        if std::mem::take(&mut follow.at_barrier) {
            // All others have come to it.
            let gate = &self.gates[follow.barriers as usize % 2];
            join(&mut follow.clock, &gate.clock);
        }
        self.touches.of(wave, inst, &mut self.touched);
    }

    fn after(&mut self, _: &Wave, _: &Inst, result: Result<Flow, Exception>) {
        match result {
            Ok(Flow::Barrier) => self.arrive(),
            // The instruction comes again.
            Ok(Flow::Wait) | Err(_) => {}
            Ok(_) => {
                if self.touched.meets {
                    let turn = self.turn;
                    let clock = &mut self.waves[turn].clock;
                    join(clock, &self.met);
                    join(&mut self.met, clock);
                    clock[turn] += 1;
                }
                let touched = std::mem::take(&mut self.touched.lds);
                for touch in &touched {
                    self.touch(*touch);
                }
                // Its memory is used again.
                self.touched.lds = touched;
            }
        }
    }
}
