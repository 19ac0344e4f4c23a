// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Walking a run list: processes and queues of a window are connected until it is full or the list ends.

use super::map::NotMapped;
use super::runlist::{Current, Runlist, QUANTUM_UNIT_NS};
use crate::cp::mqd::MEC;
use crate::cp::pm4::{length, op, Packet};
use crate::decode;
use crate::device::Gpu;
use crate::regs::RETRY_DISABLE;
use crate::trace::{Origin, Ring};
use crate::vm::access::VmError;

/// Packets walked per turn.
const WALK_BUDGET: usize = 64;

/// How a turn of walking ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Walk {
    /// The budget is spent, or the step has to end.
    More,
    /// Executors have not seen yet that the address space of a process is another one.
    Flushing,
    /// Something does not fit into this window.
    WindowFull,
    /// The list is over.
    End,
    /// The list, or an MQD that it names, cannot be read while bus mastering is off.
    Blocked,
}

/// Why there is no packet of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoPacket {
    /// Its memory lies on the bus, and bus mastering is off.
    Blocked,
    /// It is wrong, or where nothing is; reported.
    Wrong,
}

impl From<VmError> for NoPacket {
    fn from(e: VmError) -> Self {
        match e {
            // In the kernel's address space nothing else is tried again.
            VmError::Retry => NoPacket::Blocked,
            VmError::Fault => NoPacket::Wrong,
        }
    }
}

impl Walk {
    /// There is no more for this window.
    pub(super) fn is_over(self) -> bool {
        matches!(self, Walk::WindowFull | Walk::End)
    }
}

impl Gpu {
    fn runlist_packet(&mut self, list: &Runlist, pos: u32) -> Result<Packet, NoPacket> {
        let at = list.base + u64::from(pos) * 4;
        let mut header = [0];
        self.soc.vm_read_dwords(MEC, at, &mut header)?;
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
            self.soc.protocol_error("run-list", text);
            return Err(NoPacket::Wrong);
        }
        let mut words = vec![0; len as usize];
        self.soc.vm_read_dwords(MEC, at, &mut words)?;
        Ok(Packet {
            op: ((header >> 8) & 0xFF) as u8,
            words,
            len,
        })
    }

    pub(super) fn walk(&mut self, list: &mut Runlist) -> Walk {
        if let Some(at) = list.resume_process.take() {
            // The process whose queues did not all fit goes on in this window.
            let p = match self.runlist_packet(list, at) {
                Ok(p) => p,
                Err(NoPacket::Blocked) => {
                    list.resume_process = Some(at);
                    return Walk::Blocked;
                }
                Err(NoPacket::Wrong) => return self.abandon(list),
            };
            if !self.enter_process(list, &p, at, true) {
                return Walk::WindowFull;
            }
        }
        for _ in 0..WALK_BUDGET {
            if list.flush.is_some_and(|t| !self.soc.spaces.acknowledged(t)) {
                return Walk::Flushing;
            }
            list.flush = None;
            if list.pos >= list.size {
                self.close_process(list);
                return Walk::End;
            }
            let p = match self.runlist_packet(list, list.pos) {
                Ok(p) => p,
                Err(NoPacket::Blocked) => return Walk::Blocked,
                Err(NoPacket::Wrong) => return self.abandon(list),
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
                    self.soc.log.packet(
                        self.soc.clock.now_ns(),
                        Ring::Runlist,
                        origin,
                        &p.words,
                        p.words.len(),
                    );
                    return self.chain(list, &p);
                }
                _ => {
                    let text = decode::pm4::decode(self.soc.asic, &p.words).text();
                    self.soc.protocol_error(
                        "run-list",
                        format!("packet not allowed in a run list: {text}"),
                    );
                    return self.abandon(list);
                }
            };
            if let Some(end) = step {
                return end;
            }
            self.soc.log.packet(
                self.soc.clock.now_ns(),
                Ring::Runlist,
                origin,
                &p.words,
                p.words.len(),
            );
            self.check_layout("run list", &p.words);
            list.pos += p.len as u32;
            if self.soc.pressed() {
                break;
            }
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
        if p.words.len() != self.soc.asic.map_process_dw {
            let text = format!(
                "MAP_PROCESS of {} dwords, this ASIC takes {}",
                p.words.len(),
                self.soc.asic.map_process_dw
            );
            self.soc.protocol_error("map-process", text);
        }
        if !again && list.seen.contains(&pasid) {
            self.soc.protocol_error(
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
                self.soc.protocol_error(
                    "run-list",
                    format!("the list {why} but is not chained (PASID {pasid:#x})"),
                );
                self.abandon(list);
            }
            return false;
        };
        list.flush = self.install_process(vmid, p);
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
                self.soc.protocol_error("map-process", text);
            }
        }
    }

    fn runlist_map_queues(&mut self, list: &mut Runlist, p: &Packet) -> Option<Walk> {
        let Some(mut c) = list.current else {
            let text = decode::pm4::decode(self.soc.asic, &p.words).text();
            self.soc
                .protocol_error("map-queues", format!("before any MAP_PROCESS: {text}"));
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
            // The packet is walked again, and counted then.
            Err(NotMapped::Blocked) => Some(Walk::Blocked),
            Err(NotMapped::NoSlot) => {
                if list.over_subscribed {
                    list.resume_process = Some(c.at);
                    list.current = None;
                    Some(Walk::WindowFull)
                } else {
                    let text = decode::pm4::decode(self.soc.asic, &p.words).text();
                    self.soc.protocol_error(
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
            let text = decode::pm4::decode(self.soc.asic, &p.words).text();
            self.soc.protocol_error(
                "run-list",
                format!("RUN_LIST inside a run list must be valid and chained: {text}"),
            );
            return self.abandon(list);
        }
        let buffer = (p.qw(1) & !3, control & 0xF_FFFF);
        // The same buffer is compared with what it was at first.
        let moves = buffer != (list.base, list.size);
        (list.base, list.size) = buffer;
        list.pos = 0;
        if moves {
            list.digest = self.runlist_digest(list);
        }
        list.process_cnt = (control >> 24) & 0xF;
        list.seen.clear();
        if list.size == 0 {
            return self.abandon(list);
        }
        Walk::End
    }
}
