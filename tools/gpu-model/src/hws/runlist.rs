// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Run lists: walking the buffer, time-slicing when it is over-subscribed.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::map::NotMapped;
use super::{Mapped, Target};
use crate::cp::mqd::MEC;
use crate::cp::pm4::{length, op, Packet};
use crate::cp::queue::{Outcome, Run};
use crate::decode;
use crate::device::{Gpu, Wake};
use crate::regs::RETRY_DISABLE;
use crate::trace::{Origin, Reason, Ring};
use crate::vm::Access;

/// Unit of MAP_PROCESS.process_quantum.  The microcode's unit is not documented; KFD writes 10.
const QUANTUM_UNIT_NS: u64 = 10_000_000;
/// A window whose queues are all idle ends early, after this time ...
const IDLE_NS: u64 = 1_000_000;
/// ... which doubles up to this one while no window finds work and no doorbell rings.
const IDLE_MAX_NS: u64 = 64_000_000;
/// How often the scheduler looks at the buffer and the MQDs of an active list.
const LOOK_NS: u64 = 50_000_000;
/// Dwords of the buffer that it compares.
const DIGEST_DWORDS: u32 = 16384;
/// SDMA*_RLC*_DOORBELL_OFFSET in an SDMA MQD.
const SDMA_DOORBELL_DW: u64 = 22;
/// Most queues and most processes that a run list remembers as taken away; further ones come back with its windows.
const MAX_RETIRED: usize = 4096;
/// Packets walked per turn.
const WALK_BUDGET: usize = 64;

/// The run list being executed.
#[derive(Debug, Clone)]
pub struct Runlist {
    base: u64,
    size: u32,
    /// Next dword.
    pos: u32,
    /// Most processes at a time; 0 for no limit.
    process_cnt: u32,
    /// The list ends with a chained RUN_LIST.
    pub over_subscribed: bool,
    /// Owner of the next MAP_QUEUES: PASID, VMID, position of its MAP_PROCESS, queues it announced, queues seen.
    current: Option<Current>,
    /// Processes installed in this window.
    installed: u32,
    /// PASIDs seen in this pass.
    seen: Vec<u16>,
    /// Where the window stopped for want of a slot: resume with this MAP_PROCESS, then at `pos`.
    resume_process: Option<u32>,
    /// What the scheduler is doing with it.
    phase: Phase,
    /// Queues (doorbell dword indices) and processes that UNMAP_QUEUES took away by name.
    retired: (Vec<u32>, Vec<u16>),
    /// What to record when it connects a queue.
    reason: Reason,
    quantum_ns: u64,
    window_start: u64,
    idle_ns: u64,
    /// Packets that user queues had run when the last window ended.
    packets: u64,
    /// Digest of the buffer, while it has to stay: until the first QUERY_STATUS behind the list.
    digest: Option<u64>,
    /// When the scheduler looks at the buffer and the MQDs again.
    look_at: u64,
    /// It has found them changed and reported it.
    changed: bool,
}

/// What the scheduler is doing with a run list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The RUN_LIST packet connects the first window.
    Starting,
    /// The window runs.
    Running,
    /// The window is over; its queues are off their slots at this time.
    Leaving(u64),
    /// The next window is being connected.
    Filling,
}

#[derive(Debug, Clone, Copy)]
struct Current {
    pasid: u16,
    vmid: u8,
    at: u32,
    announced: u32,
    found: u32,
}

/// How a turn of walking ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walk {
    More,
    WindowFull,
    End,
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
            seen: Vec::new(),
            resume_process: None,
            phase: Phase::Starting,
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

    /// A QUERY_STATUS has followed: the buffer may go.
    pub fn release_buffer(&mut self) {
        self.digest = None;
    }
}

impl Runlist {
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

    fn is_retired(&self, doorbell: u32, pasid: u16) -> bool {
        self.retired.0.contains(&doorbell) || self.retired.1.contains(&pasid)
    }
}

impl Gpu {
    /// RUN_LIST on the HIQ; returns when the first window is connected.
    pub fn run_list(&mut self, run: &mut Run, p: &Packet) -> Outcome {
        if run.progress == 0 {
            run.progress = 1;
            if !self.start_runlist(p) {
                return Outcome::Done;
            }
        }
        let Some(mut list) = self.hws.runlist.take() else {
            return Outcome::Done;
        };
        let end = self.walk(&mut list);
        if end != Walk::More {
            list.phase = Phase::Running;
            list.window_start = self.clock.now_ns();
        }
        self.hws.runlist = Some(list);
        if end == Walk::More {
            Outcome::Yield
        } else {
            Outcome::Done
        }
    }

    fn start_runlist(&mut self, p: &Packet) -> bool {
        let text = decode::pm4::decode(self.asic, &p.words).text();
        let base = p.qw(1) & !3;
        let control = p.dw(3);
        let size = control & 0xF_FFFF;
        let mut ok = true;
        let mut rule = |bad: bool, why: &str| {
            if bad {
                ok = false;
                self.protocol_error("run-list", format!("{why}: {text}"));
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
            self.protocol_error("run-list", format!("before SET_RESOURCES: {text}"));
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
            self.protocol_error(
                "run-list",
                format!("a run list is active and was not unmapped: {text}"),
            );
        }
        if !ok {
            return false;
        }
        self.log.stats.runlists += 1;
        let mut list = Runlist::new(base, size, (control >> 24) & 0xF, self.clock.now_ns());
        if size >= 4 {
            let mut tail = [0u32; 4];
            if self
                .vm_read_dwords(MEC, base + u64::from(size - 4) * 4, &mut tail)
                .is_err()
            {
                return false;
            }
            let [header, _, _, flags] = tail;
            let is_chain = header >> 30 == 3 && (header >> 8) & 0xFF == u32::from(op::RUN_LIST);
            list.over_subscribed = is_chain && (flags >> 20) & 1 != 0;
        }
        self.learn_doorbells(list.base, list.size);
        list.digest = self.runlist_digest(&list);
        self.hws.runlist = Some(list);
        true
    }

    /// A digest of the (first part of the) buffer of a list; `None` where it is not to be read.
    fn runlist_digest(&mut self, list: &Runlist) -> Option<u64> {
        let mut words = vec![0; list.size.min(DIGEST_DWORDS) as usize];
        let bytes = words.len() * 4;
        if list.over_subscribed || !self.vm_accessible(MEC, list.base, bytes, Access::Read) {
            return None;
        }
        self.vm_read_dwords(MEC, list.base, &mut words).ok()?;
        let mut hasher = DefaultHasher::new();
        words.hash(&mut hasher);
        Some(hasher.finish())
    }

    /// The scheduler may walk a list again as long as it is active, and read the MQDs that it names: a driver that has
    /// freed one of them too early is found out.
    pub fn look_again(&mut self) {
        let now = self.clock.now_ns();
        let Some(mut list) = self.hws.runlist.take() else {
            return;
        };
        list.look_at = now.saturating_add(LOOK_NS);
        // A scheduler that a driver must take for dead looks at nothing any more.
        if !list.changed && !self.hws_seems_dead() {
            if list.digest.is_some() && self.runlist_digest(&list) != list.digest {
                list.changed = true;
                let text = format!(
                    "the buffer at {:#x} changed while its list is active",
                    list.base
                );
                self.protocol_error("run-list", text);
            }
            let listed: Vec<Mapped> = self
                .hws
                .mapped
                .iter()
                .filter(|m| !m.by_kiq)
                .copied()
                .collect();
            for m in listed {
                if !self.is_still_mqd(&m) {
                    list.changed = true;
                    let text = format!(
                        "MQD {:#x} (doorbell {:#x}) is none any more, but its queue is mapped",
                        m.mqd, m.doorbell
                    );
                    self.protocol_error("mqd", text);
                }
            }
        }
        self.hws.runlist = Some(list);
    }

    fn is_still_mqd(&mut self, m: &Mapped) -> bool {
        match m.target {
            Target::Compute(_) => {
                let own = self.peek_u32(MEC, m.mqd + 128 * 4);
                self.has_mqd(m.mqd) && own.is_some_and(|low| low & !3 == m.mqd as u32)
            }
            Target::Sdma(..) => {
                let doorbell = self.peek_u32(MEC, m.mqd + SDMA_DOORBELL_DW * 4);
                doorbell.is_some_and(|v| (v >> 2) & 0x3FF_FFFF == m.doorbell)
            }
        }
    }

    fn runlist_packet(&mut self, list: &Runlist, pos: u32) -> Option<Packet> {
        let at = list.base + u64::from(pos) * 4;
        let mut header = [0];
        self.vm_read_dwords(MEC, at, &mut header).ok()?;
        let [header] = header;
        let len = length(header);
        let wrong = if header >> 30 != 3 {
            Some("is none of type 3".to_string())
        } else if len > u64::from(list.size - pos) {
            Some(format!("runs beyond the buffer of {}", list.size))
        } else {
            None
        };
        if let Some(wrong) = wrong {
            let text = format!("packet {header:#010x} at dword {pos} {wrong}");
            self.protocol_error("run-list", text);
            return None;
        }
        let mut words = vec![0; len as usize];
        self.vm_read_dwords(MEC, at, &mut words).ok()?;
        Some(Packet {
            op: ((header >> 8) & 0xFF) as u8,
            words,
            len,
        })
    }

    fn walk(&mut self, list: &mut Runlist) -> Walk {
        if let Some(at) = list.resume_process.take() {
            // The process whose queues did not all fit goes on in this window.
            let Some(p) = self.runlist_packet(list, at) else {
                return self.abandon(list);
            };
            if !self.enter_process(list, &p, at, true) {
                return Walk::WindowFull;
            }
        }
        for _ in 0..WALK_BUDGET {
            if list.pos >= list.size {
                self.close_process(list);
                return Walk::End;
            }
            let Some(p) = self.runlist_packet(list, list.pos) else {
                return self.abandon(list);
            };
            let origin = Origin {
                vmid: list.current.map_or(0, |c| c.vmid),
                pasid: list.current.map_or(p.dw(1) as u16, |c| c.pasid),
                doorbell: 0,
            };
            let step = match p.op {
                op::NOP => None,
                op::MAP_PROCESS => {
                    self.close_process(list);
                    let at = list.pos;
                    (!self.enter_process(list, &p, at, false)).then_some(Walk::WindowFull)
                }
                op::MAP_QUEUES => self.runlist_map_queues(list, &p),
                op::RUN_LIST => {
                    self.close_process(list);
                    self.log.packet(
                        self.clock.now_ns(),
                        Ring::Runlist,
                        origin,
                        &p.words,
                        p.words.len(),
                    );
                    return self.chain(list, &p);
                }
                _ => {
                    let text = decode::pm4::decode(self.asic, &p.words).text();
                    self.protocol_error(
                        "run-list",
                        format!("packet not allowed in a run list: {text}"),
                    );
                    return self.abandon(list);
                }
            };
            if let Some(end) = step {
                return end;
            }
            self.log.packet(
                self.clock.now_ns(),
                Ring::Runlist,
                origin,
                &p.words,
                p.words.len(),
            );
            self.check_layout("run list", &p.words);
            list.pos += p.len as u32;
        }
        Walk::More
    }

    /// The list is unusable: nothing more is taken from it.
    fn abandon(&mut self, list: &mut Runlist) -> Walk {
        list.pos = list.size;
        list.over_subscribed = false;
        list.current = None;
        Walk::End
    }

    /// Gives the process of a MAP_PROCESS packet a VMID; false if the window has no room for it.
    fn enter_process(&mut self, list: &mut Runlist, p: &Packet, at: u32, again: bool) -> bool {
        let pasid = p.dw(1) as u16;
        if p.words.len() != self.asic.map_process_dw {
            let text = format!(
                "MAP_PROCESS of {} dwords, this ASIC takes {}",
                p.words.len(),
                self.asic.map_process_dw
            );
            self.protocol_error("map-process", text);
        }
        if !again && list.seen.contains(&pasid) {
            self.protocol_error(
                "map-process",
                format!("PASID {pasid:#x} appears twice in the run list"),
            );
        }
        let retry_disable = p.dw(5) & RETRY_DISABLE != 0;
        let mixed = self.hws.resources.is_some_and(|r| r.xnack_check)
            && self
                .hws
                .processes
                .iter()
                .flatten()
                .any(|o| o.retry_disable != retry_disable);
        let full = list.process_cnt != 0 && list.installed >= list.process_cnt;
        let vmid = self.pick_vmid(pasid).filter(|_| !mixed && !full);
        let Some(vmid) = vmid else {
            if !list.over_subscribed {
                let why = if mixed {
                    "mixes retry modes"
                } else {
                    "has more processes than VMIDs or process_cnt"
                };
                self.protocol_error(
                    "run-list",
                    format!("the list {why} but is not chained (PASID {pasid:#x})"),
                );
                self.abandon(list);
            }
            return false;
        };
        self.install_process(vmid, p);
        if !again {
            list.seen.push(pasid);
        }
        list.installed += 1;
        // The window lasts as long as the process with the longest quantum in it.
        let quantum = u64::from(p.dw(1) >> 25).max(1) * QUANTUM_UNIT_NS;
        list.quantum_ns = if list.installed == 1 {
            quantum
        } else {
            list.quantum_ns.max(quantum)
        };
        list.current = Some(Current {
            pasid,
            vmid,
            at,
            announced: p.dw(13) >> 22,
            found: 0,
        });
        true
    }

    fn close_process(&mut self, list: &mut Runlist) {
        if let Some(c) = list.current.take() {
            if c.announced != 0 && c.found > c.announced {
                let text = format!(
                    "PASID {:#x}: {} MAP_QUEUES, num_queues {}",
                    c.pasid, c.found, c.announced
                );
                self.protocol_error("map-process", text);
            }
        }
    }

    fn runlist_map_queues(&mut self, list: &mut Runlist, p: &Packet) -> Option<Walk> {
        let Some(mut c) = list.current else {
            let text = decode::pm4::decode(self.asic, &p.words).text();
            self.protocol_error("map-queues", format!("before any MAP_PROCESS: {text}"));
            return None;
        };
        c.found += 1;
        if list.is_retired((p.dw(2) & 0x0FFF_FFFC) >> 2, c.pasid) {
            list.current = Some(c);
            return None;
        }
        match self.map_queue(p, c.pasid, c.vmid, list.reason) {
            Ok(()) | Err(NotMapped::Refused) => {
                list.current = Some(c);
                None
            }
            Err(NotMapped::NoSlot) => {
                if list.over_subscribed {
                    list.resume_process = Some(c.at);
                    list.current = None;
                    Some(Walk::WindowFull)
                } else {
                    let text = decode::pm4::decode(self.asic, &p.words).text();
                    self.protocol_error(
                        "run-list",
                        format!("no slot is left and the list is not chained: {text}"),
                    );
                    Some(self.abandon(list))
                }
            }
        }
    }

    fn chain(&mut self, list: &mut Runlist, p: &Packet) -> Walk {
        let control = p.dw(3);
        if (control >> 20) & 1 == 0 || (control >> 23) & 1 == 0 {
            let text = decode::pm4::decode(self.asic, &p.words).text();
            self.protocol_error(
                "run-list",
                format!("RUN_LIST inside a run list must be valid and chained: {text}"),
            );
            return self.abandon(list);
        }
        list.base = p.qw(1) & !3;
        list.size = control & 0xF_FFFF;
        list.pos = 0;
        list.process_cnt = (control >> 24) & 0xF;
        list.seen.clear();
        if list.size == 0 {
            return self.abandon(list);
        }
        Walk::End
    }

    fn is_busy(&self, m: &Mapped) -> bool {
        match m.target {
            Target::Compute(s) => self.cp.hqd(s).run.as_ref().is_some_and(|r| r.has_work()),
            Target::Sdma(e, q) => self.sdma_has_work(e, q),
        }
    }

    /// Time-slicing of an over-subscribed list.
    pub fn hws_tick(&mut self, now: u64, wake: &mut Wake) {
        let Some(list) = &self.hws.runlist else {
            return;
        };
        if !self.inject.hws_hung() && list.phase == Phase::Running {
            if now >= list.look_at {
                self.look_again();
            }
            if let Some(list) = &self.hws.runlist {
                wake.at(list.look_at);
            }
        }
        let Some(list) = &self.hws.runlist else {
            return;
        };
        if !list.over_subscribed || self.inject.hws_hung() || self.hws.unmap.is_some() {
            return;
        }
        match list.phase {
            Phase::Starting => {}
            Phase::Running => {
                let busy = self.window_busy();
                let due = list.window_start + if busy { list.quantum_ns } else { list.idle_ns };
                if now < due {
                    wake.at(due);
                    return;
                }
                self.end_window(now);
                wake.busy();
            }
            Phase::Leaving(at) if now < at => wake.at(at),
            Phase::Leaving(_) => {
                self.empty_window();
                wake.busy();
            }
            Phase::Filling => {
                self.fill_window(now);
                wake.busy();
            }
        }
    }

    fn window_busy(&self) -> bool {
        self.hws
            .mapped
            .iter()
            .any(|m| !m.is_static && !m.by_kiq && self.is_busy(m))
    }

    fn user_packets(&self) -> u64 {
        let s = &self.log.stats;
        s.packets_compute + s.packets_aql + s.packets_sdma
    }

    /// A doorbell rang: the queue it is for may be waiting for its window.
    pub fn hws_doorbell(&mut self) {
        if let Some(list) = &mut self.hws.runlist {
            list.idle_ns = IDLE_NS;
        }
    }

    /// Queues of the window that leave at its end, those that answer; and how long the slowest of them takes.
    fn leaving(&self) -> (Vec<Mapped>, u64) {
        let limit = self.preempt_limit_ns();
        let mut wait = 0;
        let leaves = |m: &&Mapped| {
            let (refuses, delay) = self.preempt_answer(m, false);
            let leaves = !m.is_static && !m.by_kiq && !refuses && delay <= limit;
            if leaves {
                wait = wait.max(delay);
            }
            leaves
        };
        let all = self.hws.mapped.iter().filter(leaves).copied().collect();
        (all, wait)
    }

    /// The quantum is over: the queues are asked to leave.
    fn end_window(&mut self, now: u64) {
        let (_, wait) = self.leaving();
        if let Some(list) = &mut self.hws.runlist {
            list.phase = Phase::Leaving(now.saturating_add(wait));
        }
        self.log.stats.rotations += 1;
        if wait == 0 {
            self.empty_window();
        }
    }

    /// Takes the queues of the window off their slots.
    fn empty_window(&mut self) {
        let Some(mut list) = self.hws.runlist.take() else {
            return;
        };
        for m in self.leaving().0 {
            self.disconnect(&m, Reason::Quantum);
        }
        // Who does not leave keeps its slot, and the list finds it there when it comes to it.
        for m in &mut self.hws.mapped {
            m.stayed = !m.is_static && !m.by_kiq;
        }
        self.release_idle_processes();
        list.installed = 0;
        list.reason = Reason::Quantum;
        list.current = None;
        if list.pos == 0 {
            list.seen.clear();
        }
        let packets = self.user_packets();
        list.idle_ns = if packets != list.packets {
            IDLE_NS
        } else {
            (list.idle_ns * 2).min(IDLE_MAX_NS)
        };
        list.packets = packets;
        list.phase = Phase::Filling;
        self.hws.runlist = Some(list);
    }

    /// Connects a part of the next window.
    fn fill_window(&mut self, now: u64) {
        let Some(mut list) = self.hws.runlist.take() else {
            return;
        };
        if self.walk(&mut list) != Walk::More {
            list.phase = Phase::Running;
            list.window_start = now;
        }
        self.hws.runlist = Some(list);
    }
}
