// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What kernels have done wrong, for the people who wrote them: the last errors, with kernel, wave and address.

use std::collections::VecDeque;

use gfx9_isa::races::{Finding, Mistake};
use serde::Serialize;

use super::job::Dispatch;
use super::names::Identity;
use super::report::{Failure, Spot};

/// Errors that are kept.
const KEPT: usize = 256;

/// An error of a kernel.
#[derive(Debug, Clone, Serialize)]
pub struct ProgramError {
    /// Number of the error since the start.
    pub seq: u64,
    /// When.
    pub t_ns: u64,
    /// What, in a word: illegal, aperture, memory, abort, trap, math, lds-race, lds-unwritten, lds-beyond.
    pub kind: &'static str,
    /// The same in words.
    pub text: String,
    /// The kernel's name, if it has one.
    pub kernel: Option<String>,
    /// Where the kernel begins.
    pub entry: u64,
    /// Its code object, if it is in memory.
    pub object: Option<Identity>,
    /// Of which process.
    pub pasid: u16,
    /// Doorbell of the queue.
    pub doorbell: u32,
    /// Id of the group.
    pub group: [u32; 3],
    /// Number of the wave in the group.
    pub wave: u32,
    /// Address of the instruction.
    pub pc: u64,
    /// Address that was accessed; of LDS, the byte in the group's allocation.
    pub va: Option<u64>,
    /// The other access of a race.
    pub other: Option<Other>,
}

/// The earlier access of a race.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Other {
    /// Number of the wave in the group.
    pub wave: u32,
    /// Address of its instruction.
    pub pc: u64,
}

impl ProgramError {
    /// An error without its cause.
    fn new(dispatch: &Dispatch, spot: Spot, (pasid, doorbell): (u16, u32)) -> Self {
        Self {
            seq: 0,
            t_ns: 0,
            kind: "",
            text: String::new(),
            kernel: dispatch.name().map(str::to_owned),
            entry: dispatch.kernel.entry,
            object: dispatch.object(),
            pasid,
            doorbell,
            group: spot.group,
            wave: spot.wave,
            pc: spot.pc,
            va: None,
            other: None,
        }
    }

    /// A wave has failed, or entered its trap handler for this reason.
    pub fn failed(dispatch: &Dispatch, spot: Spot, of: (u16, u32), failure: Failure) -> Self {
        let (kind, va) = match failure {
            Failure::Illegal { .. } => ("illegal", None),
            Failure::Aperture { va } => ("aperture", Some(va)),
            Failure::Memory { va } => ("memory", Some(va)),
            Failure::Abort => ("abort", None),
            Failure::Trap(_) => ("trap", None),
            Failure::Math(_) => ("math", None),
        };
        let text = match failure {
            Failure::Illegal {
                name: Some(name), ..
            } => format!("illegal instruction {name}"),
            Failure::Trap(id) => format!("trap {id}"),
            _ => failure.error().why.to_owned(),
        };
        Self {
            kind,
            text,
            va,
            ..Self::new(dispatch, spot, of)
        }
    }

    /// The checker has found something.
    pub fn lds(dispatch: &Dispatch, spot: Spot, of: (u16, u32), finding: &Finding) -> Self {
        let how = finding.how.word();
        let (kind, text, other) = match finding.mistake {
            Mistake::Race {
                wave,
                pc,
                how: before,
            } => {
                let other = Other {
                    wave: wave as u32,
                    pc,
                };
                let before = before.word();
                let text = format!("{how} of LDS races with the {before} of wave {wave}");
                ("lds-race", text, Some(other))
            }
            Mistake::Unwritten => {
                let text = format!("{how} of LDS that nobody has written");
                ("lds-unwritten", text, None)
            }
            Mistake::Beyond => {
                let text = format!("{how} beyond the group's LDS");
                ("lds-beyond", text, None)
            }
        };
        let spot = Spot {
            wave: finding.wave as u32,
            pc: finding.pc,
            ..spot
        };
        Self {
            kind,
            text,
            va: Some(finding.address),
            other,
            ..Self::new(dispatch, spot, of)
        }
    }
}

/// The last errors.
#[derive(Debug, Default)]
pub struct ProgramErrors {
    last: VecDeque<ProgramError>,
    total: u64,
}

impl ProgramErrors {
    /// Adds one; the oldest is forgotten if there are too many.
    pub fn add(&mut self, t_ns: u64, error: ProgramError) {
        if self.last.len() >= KEPT {
            self.last.pop_front();
        }
        self.last.push_back(ProgramError {
            seq: self.total,
            t_ns,
            ..error
        });
        self.total += 1;
    }

    /// How many there have been, and those from number `from` on that are kept, oldest first.
    pub fn since(&self, from: u64) -> (u64, Vec<ProgramError>) {
        let later = self.last.iter().filter(|error| error.seq >= from);
        (self.total, later.cloned().collect())
    }
}
