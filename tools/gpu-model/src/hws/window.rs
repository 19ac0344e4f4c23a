// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Time slicing of an over-subscribed run list: its windows follow each other.

use super::runlist::Phase;
use super::walk::Walk;
use super::{Mapped, Target};
use crate::cp::queue::{Outcome, Run};
use crate::device::{Gpu, Wake};
use crate::trace::Reason;
use crate::vm::hub::EXECUTORS_NS;

/// A window whose queues are all idle ends early, after this time ...
pub(super) const IDLE_NS: u64 = 1_000_000;
/// ... which doubles up to this one while no window finds work and no doorbell rings.
const IDLE_MAX_NS: u64 = 64_000_000;

impl Gpu {
    fn is_busy(&self, m: &Mapped) -> bool {
        match m.target {
            Target::Compute(s) => self.cp.hqd(s).run().is_some_and(Run::has_work),
            Target::Sdma(e, q) => self.sdma_has_work(e, q),
        }
    }

    /// Time-slicing of an over-subscribed list.
    pub fn hws_tick(&mut self, now: u64, wake: &mut Wake) {
        let Some(list) = &self.hws.runlist else {
            return;
        };
        if !self.soc.inject.hws_hung() && list.phase == Phase::Running {
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
        if !list.over_subscribed || self.soc.inject.hws_hung() || self.hws.unmap.is_some() {
            return;
        }
        // What the queues of the window are doing could not be saved, nor those of the next one be read.  The write that
        // turns bus mastering on begins a step.
        if !self.soc.mem.bus_master() {
            return;
        }
        match list.phase {
            Phase::Reading(_) | Phase::Starting => {}
            Phase::Running => {
                let busy = self.window_busy();
                let due = list.window_start + if busy { list.quantum_ns } else { list.idle_ns };
                if now < due {
                    wake.at(due);
                    return;
                }
                if self.end_window(now) == 0 {
                    self.empty_window(now, wake);
                }
                wake.busy();
            }
            Phase::Leaving(at) if now < at => wake.at(at),
            Phase::Leaving(_) => self.empty_window(now, wake),
            Phase::Filling => self.fill_window(now, wake),
        }
    }

    fn window_busy(&self) -> bool {
        self.hws
            .mapped
            .iter()
            .any(|m| !m.is_static && !m.by_kiq && self.is_busy(m))
    }

    fn user_packets(&self) -> u64 {
        let s = &self.soc.log.stats;
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

    /// The quantum is over: the queues are asked to leave.  Returns how long that takes them.
    fn end_window(&mut self, now: u64) -> u64 {
        let asked: Vec<_> = self
            .hws
            .mapped
            .iter()
            .filter(|m| !m.is_static && !m.by_kiq)
            .map(|m| m.target)
            .collect();
        for target in asked {
            self.ask_to_leave(target);
        }
        let (_, wait) = self.leaving();
        if let Some(list) = &mut self.hws.runlist {
            list.phase = Phase::Leaving(now.saturating_add(wait));
        }
        self.soc.log.stats.rotations += 1;
        wait
    }

    /// Takes the queues of the window off their slots, as many as the step has time for; the last one ends it.
    fn empty_window(&mut self, now: u64, wake: &mut Wake) {
        let (leaving, _) = self.leaving();
        match self.take_off(&leaving, Reason::Quantum) {
            Some(Outcome::Wait) => return wake.at(now + EXECUTORS_NS),
            Some(_) => return wake.busy(),
            None => wake.busy(),
        }
        let Some(mut list) = self.hws.runlist.take() else {
            return;
        };
        // Who does not leave keeps its slot, and the list finds it there when it comes to it.
        for m in &mut self.hws.mapped {
            m.stayed = !m.is_static && !m.by_kiq;
        }
        self.release_waves();
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
    fn fill_window(&mut self, now: u64, wake: &mut Wake) {
        let Some(mut list) = self.hws.runlist.take() else {
            return;
        };
        let end = self.walk(&mut list);
        if end.is_over() {
            list.phase = Phase::Running;
            list.window_start = now;
        }
        if end == Walk::Flushing {
            wake.at(now + EXECUTORS_NS);
        } else {
            wake.busy();
        }
        self.hws.runlist = Some(list);
    }
}
