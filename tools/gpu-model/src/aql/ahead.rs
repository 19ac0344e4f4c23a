// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Dispatches that begin while those before them in their queue are under way.
//!
//! A packet waits for all before it where its barrier bit is set, and to be launched in any case for those before it to
//! have been launched.  So behind a dispatch under way those that follow begin as well, up to a packet of another kind or
//! with the bit.  Each has its signal completed when it ends, in whatever order.  Packets become invalid, and the read
//! index moves, in the order of the ring: a kernel may read its packet as long as it runs.
//!
//! What such a packet lacks (its code, its signal, memory) is met when it is its turn, as an error of the queue.
//!
//! Sources: packet processing of the HSA platform system architecture specification.

use super::{kind, pair};
use crate::cp::queue::Run;
use crate::cp::slot::SlotId;
use crate::device::Gpu;
use crate::vm::access::VmError;
use crate::vm::Access;
use crate::waves::front::{Flight, Stand, MAX_LATER};

/// Header: the packet waits until all before it are complete.
const BARRIER: u32 = 1 << 8;
/// Bytes of a packet, of a signal and of a kernel descriptor.
const SIZE: usize = 64;

impl Gpu {
    /// Completes dispatches behind the one at the read index, and begins further ones.
    pub(super) fn aql_ahead(&mut self, slot: SlotId, run: &mut Run) {
        let is_failed = |flight: &Flight| matches!(flight.stand, Stand::Failed(..));
        for number in 0..run.later.len() {
            let Some((stand, started)) = run.later.get(number).map(|f| (f.stand, f.started)) else {
                break;
            };
            let index = run.rptr.wrapping_add(1 + number as u64);
            let next = match stand {
                Stand::Done(ended) => {
                    let told = self.aql_tell(slot, run, index, (started, ended));
                    told.then_some(Stand::Told)
                }
                Stand::Failed(e, false) => {
                    let told = self.tell_runtime(slot, run, e) != Err(VmError::Retry);
                    told.then_some(Stand::Failed(e, true))
                }
                Stand::Running | Stand::Told | Stand::Failed(_, true) => None,
            };
            if let (Some(stand), Some(flight)) = (next, run.later.get_mut(number)) {
                flight.stand = stand;
            }
        }
        while run.later.len() < MAX_LATER && !run.draining && !run.flights().any(is_failed) {
            let Some(flight) = self.aql_begin_ahead(slot, run) else {
                break;
            };
            run.later.push_back(flight);
        }
    }

    /// Completes the signal of packet `index`; false if that has to wait.
    fn aql_tell(&mut self, slot: SlotId, run: &Run, index: u64, times: (u64, u64)) -> bool {
        let at = run.packet_at(index);
        let mut p = [0u32; 16];
        if !self
            .soc
            .vm_accessible(run.fetcher(), at, SIZE, Access::Read)
            || self.soc.vm_read_dwords(run.fetcher(), at, &mut p).is_err()
        {
            return false;
        }
        let signal = pair(&p, 14);
        signal == 0
            || (self
                .soc
                .vm_accessible(run.client(), signal, SIZE, Access::Write)
                && self.signal_complete(slot, run, signal, times).is_ok())
    }

    /// Begins the dispatch behind all that are under way, if it may begin.
    fn aql_begin_ahead(&mut self, slot: SlotId, run: &Run) -> Option<Flight> {
        let ahead = 1 + run.later.len() as u64;
        if ahead >= run.pending() {
            return None;
        }
        let index = run.rptr.wrapping_add(ahead);
        let at = run.packet_at(index);
        let mut p = [0u32; 16];
        if !self
            .soc
            .vm_accessible(run.fetcher(), at, SIZE, Access::Read)
        {
            return None;
        }
        self.soc.vm_read_dwords(run.fetcher(), at, &mut p).ok()?;
        if p[0] & (0xFF | BARRIER) != kind::KERNEL_DISPATCH
            || !self
                .soc
                .vm_accessible(run.client(), pair(&p, 8), SIZE, Access::Read)
        {
            return None;
        }
        let kernel = self.aql_kernel(slot, run, (index, at, &p)).ok()?;
        // The slots of the queue's private memory are those of one dispatch.
        if kernel.scratch.is_some() && run.flights().any(|flight| flight.private) {
            return None;
        }
        let origin = self.origin_of(run);
        self.soc
            .log
            .packet(self.soc.clock.now_ns(), run.ring(), origin, &p, 16);
        self.soc.log.stats.dispatches += 1;
        Some(self.start_kernel(kernel))
    }
}
