// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Run lists: what the scheduler knows of the one that it executes, and its start. (`walk` connects the queues,
//! `window` slices the time of a list that is over-subscribed, `watch` looks after its memory.)

use super::walk::Walk;
use super::watch::LOOK_NS;
use super::window::IDLE_NS;
use crate::cp::mqd::MEC;
use crate::cp::pm4::{op, Packet};
use crate::cp::queue::{Outcome, Run};
use crate::decode;
use crate::device::Gpu;
use crate::strays::{Learned, Reading};
use crate::trace::Reason;
use crate::vm::access::Reach;
use crate::vm::space::Ticket;
use crate::vm::Access;

/// Unit of MAP_PROCESS.process_quantum.  The microcode's unit is not documented; KFD writes 10.
pub(super) const QUANTUM_UNIT_NS: u64 = 10_000_000;
/// Most queues and most processes that a run list remembers as taken away; further ones come back with its windows.
const MAX_RETIRED: usize = 4096;

/// The run list being executed.
#[derive(Debug, Clone)]
pub struct Runlist {
    pub(super) base: u64,
    pub(super) size: u32,
    /// Next dword.
    pub(super) pos: u32,
    /// Most processes at a time; 0 for no limit.
    pub(super) process_cnt: u32,
    /// The list ends with a chained RUN_LIST.
    pub over_subscribed: bool,
    /// Owner of the next MAP_QUEUES.
    pub(super) current: Option<Current>,
    /// Processes installed in this window.
    pub(super) installed: u32,
    /// What the last of them, whose queues are still to be connected, has flushed.
    pub(super) flush: Option<Ticket>,
    /// PASIDs seen in this pass.
    pub(super) seen: Vec<u16>,
    /// Where the window stopped for want of a slot: resume with this MAP_PROCESS, then at `pos`.
    pub(super) resume_process: Option<u32>,
    /// What the scheduler is doing with it.
    pub(super) phase: Phase,
    /// Queues (doorbell dword indices) and processes that UNMAP_QUEUES took away by name.
    pub(super) retired: (Vec<u32>, Vec<u16>),
    /// What to record when it connects a queue.
    pub(super) reason: Reason,
    pub(super) quantum_ns: u64,
    pub(super) window_start: u64,
    pub(super) idle_ns: u64,
    /// Packets that user queues had run when the last window ended.
    pub(super) packets: u64,
    /// Digest of the buffer, while it has to stay: until the first QUERY_STATUS behind the list, and as long as the list
    /// is active if it is over-subscribed.
    pub(super) digest: Option<u64>,
    /// When the scheduler looks at the buffer and the MQDs again.
    pub(super) look_at: u64,
    /// It has found them changed and reported it.
    pub(super) changed: bool,
}

/// What the scheduler is doing with a run list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The RUN_LIST packet reads all of the buffer, to learn its doorbells.
    Reading(Reading),
    /// The RUN_LIST packet connects the first window.
    Starting,
    /// The window runs.
    Running,
    /// The window is over; its queues are off their slots at this time.
    Leaving(u64),
    /// The next window is being connected.
    Filling,
}

/// A process whose queues are being connected.
#[derive(Debug, Clone, Copy)]
pub(super) struct Current {
    pub(super) pasid: u16,
    pub(super) vmid: u8,
    /// Dword of its MAP_PROCESS.
    pub(super) at: u32,
    /// Queues that it announced.
    pub(super) announced: u32,
    /// Queues of it that were seen.
    pub(super) found: u32,
}

impl Runlist {
    /// A fresh run list from the fields of a RUN_LIST packet.
    pub fn new(base: u64, size: u32, process_cnt: u32, now: u64) -> Self {
        Self {
            base,
            size,
            pos: 0,
            process_cnt,
            over_subscribed: false,
            current: None,
            installed: 0,
            flush: None,
            seen: Vec::new(),
            resume_process: None,
            phase: Phase::Reading(Reading::default()),
            retired: Default::default(),
            reason: Reason::Map,
            quantum_ns: QUANTUM_UNIT_NS,
            window_start: now,
            idle_ns: IDLE_NS,
            packets: 0,
            digest: None,
            look_at: now.saturating_add(LOOK_NS),
            changed: false,
        }
    }

    /// A QUERY_STATUS has followed: the buffer may go, unless further windows are filled from it.
    pub fn release_buffer(&mut self) {
        self.digest = self.digest.filter(|_| self.over_subscribed);
    }

    /// Leaves queues out from now on.
    pub fn retire(&mut self, doorbells: &[u32], pasid: Option<u16>) {
        // Without time slicing nothing is connected again.
        if self.over_subscribed {
            // A queue buffer that chains to itself may name the same ones for ever.
            for doorbell in doorbells {
                if !self.retired.0.contains(doorbell) && self.retired.0.len() < MAX_RETIRED {
                    self.retired.0.push(*doorbell);
                }
            }
            let new = pasid.filter(|p| !self.retired.1.contains(p));
            self.retired
                .1
                .extend(new.filter(|_| self.retired.1.len() < MAX_RETIRED));
        }
    }

    /// The VMID of a process whose queues are still to be connected.
    pub fn entered_vmid(&self) -> Option<u8> {
        self.current.map(|c| c.vmid)
    }

    /// Queues and processes that are remembered as taken away.
    pub fn retired(&self) -> usize {
        self.retired.0.len() + self.retired.1.len()
    }

    pub(super) fn is_retired(&self, doorbell: u32, pasid: u16) -> bool {
        self.retired.0.contains(&doorbell) || self.retired.1.contains(&pasid)
    }
}

impl Gpu {
    /// RUN_LIST on the HIQ; returns when the first window is connected.
    pub fn run_list(&mut self, run: &mut Run, p: &Packet) -> Outcome {
        if run.progress == 0 {
            if self.is_runlist_blocked(p) {
                return Outcome::Wait;
            }
            run.progress = 1;
            if !self.start_runlist(p) {
                return Outcome::Done;
            }
        }
        let Some(mut list) = self.hws.runlist.take() else {
            return Outcome::Done;
        };
        if let Phase::Reading(mut at) = list.phase {
            let learned = self.learn_doorbells(list.base, list.size, &mut at);
            list.phase = match learned {
                Learned::All => Phase::Starting,
                Learned::Piece | Learned::Blocked => Phase::Reading(at),
            };
            self.hws.runlist = Some(list);
            return match learned {
                Learned::All | Learned::Piece => Outcome::Yield,
                Learned::Blocked => Outcome::Wait,
            };
        }
        let end = self.walk(&mut list);
        if end.is_over() {
            list.phase = Phase::Running;
            list.window_start = self.soc.clock.now_ns();
        }
        self.hws.runlist = Some(list);
        match end {
            Walk::More => Outcome::Yield,
            Walk::Blocked => Outcome::Wait,
            Walk::Flushing => {
                run.pace.look_often();
                Outcome::Wait
            }
            Walk::WindowFull | Walk::End => Outcome::Done,
        }
    }

    /// Whether the buffer of a RUN_LIST packet cannot be read because bus mastering is off.
    fn is_runlist_blocked(&mut self, p: &Packet) -> bool {
        if self.soc.mem.bus_master() {
            return false;
        }
        let (base, bytes) = (p.qw(1) & !3, (p.dw(3) & 0xF_FFFF) as usize * 4);
        let blocked = self.soc.vm_reach(MEC, base, bytes, Access::Read) == Reach::Blocked;
        self.soc.log.stats.dma_blocked += u64::from(blocked);
        blocked
    }

    fn start_runlist(&mut self, p: &Packet) -> bool {
        let text = decode::pm4::decode(self.soc.asic, &p.words).text();
        let base = p.qw(1) & !3;
        let control = p.dw(3);
        let size = control & 0xF_FFFF;
        let mut ok = true;
        let mut rule = |bad: bool, why: &str| {
            if bad {
                ok = false;
                self.soc
                    .protocol_error("run-list", format!("{why}: {text}"));
            }
        };
        rule((control >> 23) & 1 == 0, "VALID is 0");
        rule(
            (control >> 20) & 1 != 0,
            "chained RUN_LIST outside a run list",
        );
        rule(size == 0, "empty buffer");
        if self.hws.resources.is_none() {
            ok = false;
            self.soc
                .protocol_error("run-list", format!("before SET_RESOURCES: {text}"));
        }
        let dynamic = self.hws.mapped.iter().any(|m| !m.is_static && !m.by_kiq);
        // A list whose queues have all been taken away by name is over, unless it is sliced.
        let active = self
            .hws
            .runlist
            .as_ref()
            .is_some_and(|l| l.over_subscribed || dynamic);
        if active {
            ok = false;
            self.soc.protocol_error(
                "run-list",
                format!("a run list is active and was not unmapped: {text}"),
            );
        }
        if !ok {
            return false;
        }
        self.soc.log.stats.runlists += 1;
        self.soc.log.stats.dwords_runlist += u64::from(size);
        let mut list = Runlist::new(base, size, (control >> 24) & 0xF, self.soc.clock.now_ns());
        if size >= 4 {
            let mut tail = [0u32; 4];
            if self
                .soc
                .vm_read_dwords(MEC, base + u64::from(size - 4) * 4, &mut tail)
                .is_err()
            {
                return false;
            }
            let [header, _, _, flags] = tail;
            let is_chain = header >> 30 == 3 && (header >> 8) & 0xFF == u32::from(op::RUN_LIST);
            list.over_subscribed = is_chain && (flags >> 20) & 1 != 0;
        }
        self.begin_learning();
        list.digest = self.runlist_digest(&list);
        self.hws.runlist = Some(list);
        true
    }
}
