// SPDX-License-Identifier: GPL-2.0 OR MIT
//! AQL queues.

use crate::cp::queue::{Outcome, Run};
use crate::cp::slot::SlotId;
use crate::device::Gpu;

impl Gpu {
    /// Runs one AQL packet.
    pub fn aql_step(&mut self, _slot: SlotId, _run: &mut Run) -> Outcome {
        Outcome::Halt("AQL not modelled yet")
    }
}
