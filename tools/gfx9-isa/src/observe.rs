// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Who watches waves execute: traces and profiles.
//!
//! What executes is compiled once for each kind of observer; without one ([`Nobody`]) nothing is left of the calls.

use crate::exec::Exception;
use crate::exec::Flow;
use crate::inst::Inst;
use crate::wave::Wave;

/// Sees each instruction of the waves that execute.
pub trait Observer {
    /// From now on it is wave `number` of the group that executes.
    fn turn(&mut self, number: usize) {
        let _ = number;
    }

    /// The wave is about to execute `inst`, which stands at its PC.
    fn before(&mut self, wave: &Wave, inst: &Inst) {
        let _ = (wave, inst);
    }

    /// The wave has executed `inst`, or could not.  One that waits or has faulted comes to the same instruction again.
    fn after(&mut self, wave: &Wave, inst: &Inst, result: Result<Flow, Exception>) {
        let _ = (wave, inst, result);
    }
}

/// Watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nobody;

impl Observer for Nobody {}
