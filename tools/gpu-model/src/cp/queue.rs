// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A connected queue: what it is, starting, stopping. (`feed` lets it run.)

use std::collections::VecDeque;

use super::hqd::{f, r};
use super::restoring::Restoring;
use super::saving::Saving;
use super::slot::SlotId;
use crate::device::Gpu;
use crate::feed::{Ahead, Pace};
use crate::hws::process::Flush;
use crate::trace::{Origin, Reason, Ring, Seat};
use crate::vm::{Client, HubId, CID_CPC, CID_CPF};
use crate::waves::front::Flight;

/// What a queue is for; decides which packets it may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Kernel interface queue.
    Kiq,
    /// Scheduler queue.
    Hiq,
    /// Any other.
    User,
}

/// An indirect buffer being run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// GPU address of the buffer.
    pub base: u64,
    /// Its length in dwords.
    pub size: u32,
    /// Next dword.
    pub pos: u32,
    /// Address space that it runs in.
    pub vmid: u8,
}

/// Why a packet did not finish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Done, go on with the next.
    Done,
    /// Done or in progress, but let others run first.
    Yield,
    /// Try the same packet again later.
    Wait,
    /// The queue stops for good (until it is reset or remapped).
    Halt(&'static str),
}

/// Execution state of an active queue.
#[derive(Debug)]
pub struct Run {
    /// Role.
    pub role: Role,
    /// VMID.
    pub vmid: u8,
    /// Doorbell dword index, the queue's name in traces.
    pub doorbell: u32,
    /// AQL packets instead of PM4.
    pub aql: bool,
    /// Privileged: may touch any register.
    pub privileged: bool,
    /// GPU address of the ring.
    pub base: u64,
    /// Ring length in units (dwords, or 64-byte packets).
    pub len: u64,
    /// Read pointer in units, not wrapped.
    pub rptr: u64,
    /// Write pointer in units, not wrapped.
    pub wptr: u64,
    /// Read pointer that memory holds, as far as the queue knows.
    pub reported: Option<u64>,
    /// Read pointer at connection.
    pub started: u64,
    /// Indirect buffers, innermost last.
    pub frames: Vec<Frame>,
    /// The current packet is in the trace already.
    pub traced: bool,
    /// Progress inside a long packet, in bytes.
    pub progress: u64,
    /// A DMA_DATA is under way: a halt of the engine does not stop it.
    pub in_dma: bool,
    /// Read pointers from memory before the first packet.
    pub poll_wptr: bool,
    /// AQL: the read index must be fetched.
    pub fetch_rptr: bool,
    /// The read pointer could not be written to memory yet.
    pub report_due: bool,
    /// AQL: an error was signalled; wait for the runtime to mend it.
    pub stalled: bool,
    /// AQL: the indirect buffer of a vendor packet has been entered.
    pub in_vendor: bool,
    /// The queue left a record in its context save area and looks for it first; the address of its MQD.
    pub restore: Option<u64>,
    /// What has been read of it so far.
    pub restoring: Option<Box<Restoring>>,
    /// The queue is to leave, and its waves are being saved: it runs nothing meanwhile.
    pub saving: Option<Box<Saving>>,
    /// The dispatch that is under way, or has ended and is to be completed.
    pub flight: Option<Flight>,
    /// AQL: dispatches of the packets behind that one, in their order, which need not wait for it.  There are none
    /// without one at the read index.
    pub later: VecDeque<Flight>,
    /// The queue has been asked to leave and cannot save its waves: it starts no further ones.
    pub draining: bool,
    /// INVALIDATE_TLBS has dropped translations that somebody may still use.
    pub flush: Option<Flush>,
    /// The next part of a long transfer.
    pub ahead: Option<Ahead>,
    /// When it runs again.
    pub pace: Pace,
}

impl Run {
    /// The address space of the packets that run now: that of the queue, or the one that a privileged ring has named
    /// for an indirect buffer.
    pub fn space(&self) -> u8 {
        self.frames.last().map_or(self.vmid, |fr| fr.vmid)
    }

    /// The packets that run now may do anything.  Those of a buffer in another address space may not.
    pub fn is_trusted(&self) -> bool {
        (self.privileged || self.role != Role::User) && self.space() == self.vmid
    }

    /// All dispatches that are under way or wait for their completion, oldest first.
    pub fn flights(&self) -> impl Iterator<Item = &Flight> {
        self.flight.iter().chain(&self.later)
    }

    /// Where a packet of an AQL queue is.
    pub fn packet_at(&self, index: u64) -> u64 {
        self.base.wrapping_add((index & (self.len - 1)) * 64)
    }

    /// How the queue's accesses appear to the VM.
    pub fn client(&self) -> Client {
        Client {
            hub: HubId::Gfx,
            vmid: self.space(),
            cid: CID_CPC,
        }
    }

    /// How the queue's fetches appear to the VM.
    pub fn fetcher(&self) -> Client {
        Client {
            hub: HubId::Gfx,
            vmid: self.space(),
            cid: CID_CPF,
        }
    }

    /// Units that are ready.
    pub fn pending(&self) -> u64 {
        let ahead = self.wptr.wrapping_sub(self.rptr);
        if !self.aql {
            return ahead & (self.len - 1);
        }
        // Producers take their index first and then wait for room: the write index may be more than a ring ahead, and
        // what lies in the ring is work. An index that went back is none.
        if ahead > u64::MAX / 2 {
            0
        } else {
            ahead.min(self.len)
        }
    }

    /// The read pointer has reached the write pointer.  A full AQL ring is not empty; the pointers of a PM4 ring wrap,
    /// so a full one looks like an empty one.
    pub fn ring_empty(&self) -> bool {
        if self.aql {
            self.rptr == self.wptr
        } else {
            self.pending() == 0
        }
    }

    /// There is something to do.
    pub fn has_work(&self) -> bool {
        self.pace.halted.is_none()
            && (self.poll_wptr
                || self.fetch_rptr
                || self.report_due
                || self.restore.is_some()
                || self.flight.is_some()
                || !self.frames.is_empty()
                || self.pending() > 0)
    }

    /// Trace stream of the queue.
    pub fn ring(&self) -> Ring {
        match (self.role, self.aql) {
            (Role::Kiq, _) => Ring::Kiq,
            (Role::Hiq, _) => Ring::Hiq,
            (Role::User, true) => Ring::Aql,
            (Role::User, false) => Ring::Compute,
        }
    }
}

impl Gpu {
    /// Identity of a queue for the trace.
    pub fn origin_of(&self, run: &Run) -> Origin {
        Origin {
            vmid: run.space(),
            pasid: self.soc.pasid_of(run.space(), HubId::Gfx),
            doorbell: run.doorbell,
        }
    }

    /// Identity of the queue whose registers a slot holds.
    fn slot_origin(&self, slot: SlotId) -> Origin {
        let h = self.cp.hqd(slot);
        let vmid = (h.reg(r::VMID) & 0xF) as u8;
        Origin {
            vmid,
            pasid: self.soc.pasid_of(vmid, HubId::Gfx),
            doorbell: h.doorbell(),
        }
    }

    fn trace_seat(&mut self, slot: SlotId, connect: bool, reason: Reason, text: String) {
        let origin = self.slot_origin(slot);
        let seat = (Seat::Compute(slot), reason);
        self.soc
            .log
            .seat(self.soc.clock.now_ns(), origin, connect, seat, text);
    }

    /// Records a scheduling event of a slot.
    pub fn trace_sched(&mut self, slot: SlotId, name: &'static str, text: String) {
        let origin = self.slot_origin(slot);
        self.soc.log.event(
            self.soc.clock.now_ns(),
            Ring::Sched,
            origin,
            name,
            format!("{slot}: {text}"),
        );
    }

    /// Connects the queue whose registers are loaded in a slot.  With `poll` the write pointer is read from memory
    /// before anything runs.
    pub fn start_queue(&mut self, slot: SlotId, role: Role, poll: bool, reason: Reason) {
        let h = self.cp.hqd(slot);
        let control = h.reg(r::PQ_CONTROL);
        let vmid = (h.reg(r::VMID) & 0xF) as u8;
        let aql = h.reg(r::AQL_CONTROL) & 0x7FFF != 0 || (control >> 25) & 3 == 2;
        let log2_dw = (control & 0x3F) + 1;
        let base = h.pair(r::PQ_BASE) << 8;
        let wptr = h.pair(r::PQ_WPTR_LO);
        let rptr = u64::from(h.reg(r::PQ_RPTR));
        let doorbell = h.doorbell();
        let privileged = control & f::PRIV_STATE != 0;
        // In VMID 0 the GART may start at address 0.
        if !(4..=30).contains(&log2_dw) || (base == 0 && vmid != 0) {
            let text = format!("{slot}: ring of 2^{log2_dw} dwords at {base:#x}");
            self.soc.protocol_error("hqd-ring", text);
            self.cp.hqd_mut(slot).set(r::ACTIVE, 0);
            return;
        }
        if privileged && vmid != 0 {
            let text = format!("{slot}: PRIV_STATE set for a queue in VMID {vmid}");
            self.soc.protocol_error("hqd-privilege", text);
        }
        let dwords = 1u64 << log2_dw;
        let len = if aql { dwords / 16 } else { dwords };
        // The PM4 read pointer register wraps; place it behind the write pointer.
        let rptr = if aql {
            rptr
        } else {
            wptr.wrapping_sub(wptr.wrapping_sub(rptr) & (len - 1))
        };
        let frames = self.saved_frames(slot);
        let run = Run {
            role,
            vmid,
            doorbell,
            aql,
            privileged,
            base,
            len,
            rptr,
            wptr,
            reported: None,
            started: rptr,
            frames,
            traced: false,
            progress: 0,
            in_dma: false,
            poll_wptr: poll,
            fetch_rptr: aql,
            report_due: false,
            stalled: false,
            in_vendor: false,
            restore: None,
            restoring: None,
            saving: None,
            flight: None,
            later: VecDeque::new(),
            draining: false,
            flush: None,
            ahead: None,
            pace: Pace::default(),
        };
        let h = self.cp.hqd_mut(slot);
        h.run = Some(Box::new(run));
        h.set(r::ACTIVE, 1);
        h.set(r::DEQUEUE, 0);
        h.dequeue_at = None;
        let connected = self.cp.iter().filter(|(_, h)| h.active()).count() as u64;
        self.soc.log.stats.max_connected = self.soc.log.stats.max_connected.max(connected);
        let text = format!(
            "{role:?} ring {base:#x} len {len} {} doorbell {doorbell:#x}",
            if aql { "aql" } else { "pm4" }
        );
        self.trace_seat(slot, true, reason, text);
        self.soc.kick();
    }

    /// The indirect buffer that a saved queue was inside.
    fn saved_frames(&mut self, slot: SlotId) -> Vec<Frame> {
        let h = self.cp.hqd_mut(slot);
        let vmid = (h.reg(r::VMID) & 0xF) as u8;
        let (control, pos) = (h.reg(r::IB_CONTROL), h.reg(r::IB_RPTR));
        if control >> 31 == 0 {
            return Vec::new();
        }
        h.set(r::IB_CONTROL, control & 0x7FF0_0000);
        vec![Frame {
            base: h.pair(r::IB_BASE),
            size: control & 0xF_FFFF,
            pos,
            vmid,
        }]
    }

    /// Brings the pointer registers of an active slot up to date.
    pub fn sync_pointers(&mut self, slot: SlotId) {
        let h = self.cp.hqd_mut(slot);
        let Some(run) = &h.run else { return };
        let rptr = if run.aql {
            run.rptr as u32
        } else {
            (run.rptr & (run.len - 1)) as u32
        };
        let wptr = run.wptr;
        let frame = run.frames.first().map(|fr| (fr.base, fr.size, fr.pos));
        h.set(r::PQ_RPTR, rptr);
        h.set_pair(r::PQ_WPTR_LO, wptr);
        h.show_frame(frame);
    }

    /// Writes the read pointer of a queue that is about to leave its slot.
    pub fn flush_rptr(&mut self, slot: SlotId) {
        if let Some(mut run) = self.cp.hqd_mut(slot).run.take() {
            if !run.fetch_rptr {
                self.report_rptr(&mut run, slot);
            }
            self.cp.hqd_mut(slot).run = Some(run);
        }
    }

    /// Disconnects a slot, whose queue is not to go on; its registers keep their values.
    pub(crate) fn kill_queue(&mut self, slot: SlotId, reason: Reason) {
        if let Some(run) = self.stop_queue(slot, reason) {
            self.waves.let_go(*run);
        }
    }

    /// Disconnects a slot; its registers keep their values.  What is returned is for [`crate::waves::pool::Pool::let_go`],
    /// since its waves may still be on the compute units.
    #[must_use]
    pub(crate) fn stop_queue(&mut self, slot: SlotId, reason: Reason) -> Option<Box<Run>> {
        self.trace_seat(slot, false, reason, String::new());
        self.freeze_kernel(slot);
        let h = self.cp.hqd_mut(slot);
        let run = h.run.take();
        h.set(r::ACTIVE, 0);
        h.set(r::DEQUEUE, 0);
        h.dequeue_at = None;
        h.reset_at = None;
        if let Some(run) = &run {
            h.show_frame(run.frames.first().map(|fr| (fr.base, fr.size, fr.pos)));
        }
        run
    }
}
