// SPDX-License-Identifier: GPL-2.0 OR MIT
//! AQL queues: 64-byte packets and signals.
//!
//! Formats: `hsa.h`, `amd_hsa_signal.h` and `amd_hsa_queue.h` of the ROCm runtime.

mod ahead;
pub mod signal;

use crate::cp::eop::{exception, source};
use crate::cp::queue::{Frame, Outcome, Run};
use crate::cp::slot::SlotId;
use crate::device::Gpu;
use crate::vm::access::{VmError, VmResult};
use crate::vm::Access;
use crate::waves::front::Stand;
use crate::waves::launch::Refused;

/// Packet types in header bits 7:0.
mod kind {
    pub const VENDOR: u32 = 0;
    pub const INVALID: u32 = 1;
    pub const KERNEL_DISPATCH: u32 = 2;
    pub const BARRIER_AND: u32 = 3;
    pub const BARRIER_OR: u32 = 5;
}

/// Vendor packet format: run a PM4 indirect buffer.
const FORMAT_PM4_IB: u32 = 1;
/// Vendor packet format: wait until a signal's value meets a condition (`hsa_amd_barrier_value_packet_t`).
const FORMAT_BARRIER_VALUE: u32 = 2;

/// Why a packet cannot run: the value for queue_inactive_signal and the KFD exception code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueError {
    /// Value of the inactive signal.
    pub signal: u64,
    /// Exception code of the interrupt.
    pub exception: u32,
    /// In words.
    pub why: &'static str,
}

const fn error(signal: u64, exception: u32, why: &'static str) -> QueueError {
    QueueError {
        signal,
        exception,
        why,
    }
}

/// The queue's private memory does not do; the runtime gives it more and lets the packet run again.
pub const SCRATCH: QueueError = error(0x1, 0, "dispatch needs more scratch than the queue has");
/// See the words.
pub const DIMENSION: QueueError = error(0x2, 16, "dispatch has a zero or bad dimension");
/// See the words.
pub const GROUP_MEMORY: QueueError = error(0x4, 17, "group segment is larger than LDS");
/// See the words.
pub const CODE_OBJECT: QueueError = error(
    0x8,
    exception::CODE,
    "code object is null, not aligned or not readable",
);
const FORMAT: QueueError = error(
    0x20,
    exception::UNSUPPORTED_PACKET,
    "packet type not supported",
);
/// See the words.
pub const WORKGROUP: QueueError = error(0x40, 21, "workgroup is too large");
/// See the words.
pub const REGISTERS: QueueError = error(0x80, 22, "no compute unit has registers for a workgroup");
const VENDOR: QueueError = error(0x100, 23, "vendor packet not supported");

fn pair(p: &[u32; 16], i: usize) -> u64 {
    let at = |i: usize| p.get(i).copied().map_or(0, u64::from);
    at(i) | (at(i + 1) << 32)
}

/// How far a dispatch is.
enum Dispatched {
    /// The packet is looked at again.
    Waits,
    /// It began and ended at these times.
    Over(u64, u64),
    /// It is over, and its signal says so.
    Told,
}

impl Gpu {
    /// Runs one AQL packet.
    pub fn aql_step(&mut self, slot: SlotId, run: &mut Run) -> Outcome {
        if run.stalled {
            return self.aql_stalled(slot, run);
        }
        let at = run.packet_at(run.rptr);
        let mut p = [0u32; 16];
        // The header is written back at the end; a page that is missing now must not be found missing then.
        let ready = self
            .soc
            .vm_read_dwords(run.fetcher(), at, &mut p)
            .and_then(|()| self.soc.vm_probe(run.client(), at, 4, Access::Write));
        match ready {
            Ok(()) => {}
            Err(VmError::Retry) => return Outcome::Wait,
            Err(VmError::Fault) => return Outcome::Halt("packet fetch faulted"),
        }
        let header = p[0] & 0xFFFF;
        if header & 0xFF == kind::INVALID {
            return Outcome::Wait;
        }
        if !run.traced {
            let origin = self.origin_of(run);
            self.soc
                .log
                .packet(self.soc.clock.now_ns(), run.ring(), origin, &p, 16);
            run.traced = true;
        }
        let now = self.soc.clock.ticks();
        let mut times = (now, now);
        let done = match header & 0xFF {
            // What its buffer has dispatched belongs to the packet.
            _ if run.in_vendor && !self.settle_flight(run) => return Outcome::Wait,
            _ if run.in_vendor => Ok(()),
            kind::VENDOR if p[0] >> 16 == FORMAT_BARRIER_VALUE => {
                match self.aql_barrier_value(run, &p) {
                    Ok(Some(true)) => Ok(()),
                    Ok(None) => Err(VENDOR),
                    Ok(Some(false)) | Err(VmError::Retry) => return Outcome::Wait,
                    Err(VmError::Fault) => return Outcome::Halt("dependent signal faulted"),
                }
            }
            kind::VENDOR => match self.aql_vendor(run, &p) {
                Ok(()) => return Outcome::Yield,
                Err(e) => Err(e),
            },
            kind::BARRIER_AND | kind::BARRIER_OR => match self.aql_barrier(run, &p) {
                Ok(true) => Ok(()),
                Ok(false) | Err(VmError::Retry) => return Outcome::Wait,
                Err(VmError::Fault) => return Outcome::Halt("dependent signal faulted"),
            },
            kind::KERNEL_DISPATCH => match self.aql_dispatch(slot, run, (at, &p)) {
                Ok(Dispatched::Waits) => {
                    self.aql_ahead(slot, run);
                    return Outcome::Wait;
                }
                Ok(Dispatched::Told) => {
                    self.aql_retire(run, at);
                    return Outcome::Done;
                }
                Ok(Dispatched::Over(begun, ended)) => {
                    times = (begun, ended);
                    Ok(())
                }
                Err(e) => Err(e),
            },
            _ => Err(FORMAT),
        };
        if let Err(e) = done {
            return self.aql_error(slot, run, e);
        }
        let signal = pair(&p, 14);
        if signal != 0 {
            match self.signal_complete(slot, run, signal, times) {
                Ok(()) => {}
                Err(VmError::Retry) => return Outcome::Wait,
                Err(VmError::Fault) => return Outcome::Halt("completion signal faulted"),
            }
        }
        self.aql_retire(run, at);
        Outcome::Done
    }

    fn aql_retire(&mut self, run: &mut Run, at: u64) {
        // Probed before the packet ran.
        let _ = self
            .soc
            .vm_write(run.client(), at, &(kind::INVALID as u16).to_le_bytes());
        run.rptr = run.rptr.wrapping_add(1);
        run.in_vendor = false;
        // Only one that a changed save area has made up can still be on the units.
        if let Some(flight) = run.flight.take() {
            self.waves.forget(flight);
        }
        run.flight = run.later.pop_front();
        // One that has begun ahead of its turn is in the trace.
        run.traced = run.flight.is_some();
    }

    fn aql_vendor(&mut self, run: &mut Run, p: &[u32; 16]) -> Result<(), QueueError> {
        if p[0] >> 16 != FORMAT_PM4_IB {
            return Err(VENDOR);
        }
        let [_, jump, lo, hi, size, ..] = *p;
        if jump >> 30 != 3 || (jump >> 8) & 0xFF != 0x3F {
            return Err(VENDOR);
        }
        let size = size & 0xF_FFFF;
        run.in_vendor = true;
        if size != 0 {
            run.frames.push(Frame {
                base: u64::from(lo & !3) | (u64::from(hi & 0xFFFF) << 32),
                size,
                pos: 0,
                vmid: run.vmid,
            });
            run.traced = false;
        }
        Ok(())
    }

    fn aql_barrier(&mut self, run: &Run, p: &[u32; 16]) -> Result<bool, VmError> {
        let all = p[0] & 0xFF == kind::BARRIER_AND;
        let mut any = false;
        let mut signals = 0;
        for i in 0..5 {
            let signal = pair(p, 2 + 2 * i);
            if signal == 0 {
                continue;
            }
            signals += 1;
            let zero = self
                .soc
                .vm_read_u64(run.client(), signal.wrapping_add(signal::VALUE))?
                == 0;
            if all && !zero {
                return Ok(false);
            }
            any |= zero;
        }
        Ok(all || any || signals == 0)
    }

    /// Whether the condition of a barrier-value packet holds; `None` for one that does not exist.
    fn aql_barrier_value(&mut self, run: &Run, p: &[u32; 16]) -> VmResult<Option<bool>> {
        let (signal, value, mask) = (pair(p, 2), pair(p, 4) as i64, pair(p, 6));
        if p[8] > 3 {
            return Ok(None);
        }
        if signal == 0 {
            return Ok(Some(true));
        }
        let at = signal.wrapping_add(signal::VALUE);
        let now = (self.soc.vm_read_u64(run.client(), at)? & mask) as i64;
        Ok(Some(match p[8] {
            0 => now == value,
            1 => now != value,
            2 => now < value,
            _ => now >= value,
        }))
    }

    /// Runs a dispatch, in several calls; returns the times (ticks) between which it ran when it is over.
    fn aql_dispatch(
        &mut self,
        slot: SlotId,
        run: &mut Run,
        packet: (u64, &[u32; 16]),
    ) -> Result<Dispatched, QueueError> {
        let Some(flight) = &run.flight else {
            if run.draining {
                return Ok(Dispatched::Waits);
            }
            let (at, p) = packet;
            return match self.aql_kernel(slot, run, (run.rptr, at, p)) {
                Ok(kernel) => {
                    self.soc.log.stats.dispatches += 1;
                    run.flight = Some(self.start_kernel(kernel));
                    Ok(Dispatched::Waits)
                }
                Err(Refused::Retry) => Ok(Dispatched::Waits),
                Err(Refused::Error(e)) => {
                    self.soc.log.stats.dispatches += 1;
                    Err(e)
                }
            };
        };
        match flight.stand {
            Stand::Running | Stand::Failed(_, true) => Ok(Dispatched::Waits),
            Stand::Done(end) => Ok(Dispatched::Over(flight.started, end)),
            Stand::Told => Ok(Dispatched::Told),
            Stand::Failed(e, false) => {
                if self.tell_runtime(slot, run, e) != Err(VmError::Retry) {
                    if let Some(flight) = &mut run.flight {
                        flight.stand = Stand::Failed(e, true);
                    }
                }
                Ok(Dispatched::Waits)
            }
        }
    }

    /// Stores the code of an error in queue_inactive_signal; returns the signal, 0 if there is none.
    fn tell_runtime(&mut self, slot: SlotId, run: &Run, e: QueueError) -> VmResult<u64> {
        let signal = match self.inactive_signal(slot, run) {
            Err(VmError::Fault) => 0,
            found => found?,
        };
        if signal != 0 && self.signal_set(slot, run, signal, e.signal) == Err(VmError::Retry) {
            return Err(VmError::Retry);
        }
        Ok(signal)
    }

    /// Address of queue_inactive_signal's signal, found through the read index as the packet processor does.
    fn inactive_signal(&mut self, slot: SlotId, run: &Run) -> VmResult<u64> {
        match self.queue_object(slot, run)? {
            0 => Ok(0),
            object => self.soc.vm_read_u64(run.client(), object.wrapping_add(192)),
        }
    }

    /// Stops in front of a bad packet and tells the runtime.
    fn aql_error(&mut self, slot: SlotId, run: &mut Run, e: QueueError) -> Outcome {
        let Ok(signal) = self.tell_runtime(slot, run, e) else {
            return Outcome::Wait;
        };
        // What the runtime mends by itself concerns nobody else.
        if e.exception != 0 {
            let id = (run.doorbell / 2) & 0x3FF;
            self.cp_interrupt(slot, run.vmid, source::BAD_OPCODE, id | (e.exception << 10));
            self.queue_mistake(slot, run, "aql-packet", e.why.to_string());
        }
        self.trace_sched(
            slot,
            "QUEUE_ERROR",
            format!("{} (signal value {:#x})", e.why, e.signal),
        );
        if signal == 0 {
            return Outcome::Halt(e.why);
        }
        run.stalled = true;
        Outcome::Wait
    }

    /// The runtime writes 0 to the inactive signal when the cause is mended; the packet is then processed again.
    fn aql_stalled(&mut self, slot: SlotId, run: &mut Run) -> Outcome {
        let value = self.inactive_signal(slot, run).and_then(|s| {
            if s == 0 {
                Ok(1)
            } else {
                self.soc
                    .vm_read_u64(run.client(), s.wrapping_add(signal::VALUE))
            }
        });
        match value {
            Ok(0) => {
                run.stalled = false;
                run.traced = false;
                Outcome::Yield
            }
            Err(VmError::Fault) => Outcome::Halt("queue_inactive_signal faulted"),
            Ok(_) | Err(VmError::Retry) => Outcome::Wait,
        }
    }
}
