// SPDX-License-Identifier: GPL-2.0

//! The firmware of the fake device: what it makes of the HIQ's packets and of runlists.

use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};

use super::{
    backend::hiq::RING_DWORDS,
    desired::state::COMPUTE_SLOTS,
    fake::{
        doorbell,
        nth,
        number,
        Event,
        Held,
        Inner,
        Mapped,
        Mode,
        State,
        MQD_HEADER, //
    }, //
};
use crate::hw::{
    mqd::compute::HUNG_DOORBELL,
    num::{
        index,
        widen, //
    },
    pm4::{
        decode,
        Engine,
        MapTarget,
        Packet,
        QueueClass,
        UnmapAction,
        UnmapFilter, //
    },
    regs::{
        gc::CP_IQ_WAIT_TIME2,
        hqd::Slot, //
    }, //
};

impl Inner {
    /// Consumes the ring up to `wptr`.
    pub(super) fn consume(&self, state: &mut State, wptr: u64) {
        let Some(mut hiq) = state.hiq else {
            self.breach(state, "doorbell of a HIQ that is not connected");
            return;
        };
        if wptr < hiq.rptr || wptr - hiq.rptr >= widen(RING_DWORDS) {
            self.breach(state, "write pointer beyond the ring");
            return;
        }
        while hiq.rptr < wptr {
            let mut words = [0; 32];
            let left = (wptr - hiq.rptr).min(32);
            for (i, word) in (0..left).zip(words.iter_mut()) {
                let at = hiq.ring + (hiq.rptr + i) % widen(RING_DWORDS) * 4;
                *word = self.load(at).unwrap_or(0);
            }
            let left = usize::try_from(left).unwrap_or(0);
            let decoded = decode(words.get(..left).unwrap_or(&[]));
            if decoded.dwords == 0 {
                self.breach(state, "empty packet");
                break;
            }
            let to_end = widen(RING_DWORDS) - hiq.rptr % widen(RING_DWORDS);
            // CAST: A packet is short.
            if decoded.dwords as u64 > to_end {
                self.breach(state, "packet wraps");
            }
            self.execute(state, decoded.packet);
            hiq.rptr += decoded.dwords as u64; // CAST: As above.
        }
        // CAST: The remainder is below the ring's size.
        self.store(hiq.rptr_report, (hiq.rptr % widen(RING_DWORDS)) as u32);
        state.hiq = Some(hiq);
    }

    fn execute(&self, state: &mut State, packet: Packet<'_>) {
        match packet {
            Packet::Nop => {}
            Packet::SetResources(packet) => {
                if packet.queue_mask != 0xfcfc_fcfc {
                    self.breach(state, "queue mask");
                }
                self.note(
                    state,
                    Event::Resources {
                        vmids: packet.vmid_mask,
                        latency: packet.unmap_latency,
                        xnack: packet.xnack_check,
                    },
                );
            }
            Packet::WriteReg(packet) => {
                if packet.reg.dword() != CP_IQ_WAIT_TIME2.dword() {
                    self.breach(state, "write to another register");
                }
                self.note(state, Event::WaitTime2(packet.value));
            }
            Packet::RunList(list) => {
                if state.active {
                    self.breach(state, "runlist while one is active");
                }
                if list.chain {
                    self.breach(state, "chained runlist on the HIQ");
                }
                self.note(
                    state,
                    Event::List {
                        processes: list.process_count,
                    },
                );
                self.walk(state, list.ib, list.dwords, list.process_count);
                state.active = true;
            }
            Packet::UnmapQueues(packet) => {
                let event = match packet.filter {
                    UnmapFilter::NonStatic => Event::UnmapAll,
                    UnmapFilter::Pasid(pasid) => Event::UnmapProcess(pasid),
                    UnmapFilter::Doorbells(list) => {
                        let first = list.iter().next().map_or(0, number);
                        match packet.action {
                            UnmapAction::Reset => Event::Reset(first),
                            _ => Event::UnmapQueues(list.iter().count(), first),
                        }
                    }
                    UnmapFilter::All => {
                        if !state.mapped.iter().any(|queue| queue.fixed) {
                            self.breach(state, "unmap of static queues, of which there is none");
                        }
                        Event::UnmapStatic
                    }
                };
                self.note(state, event);
                if packet.action != UnmapAction::Reset {
                    let (us, refused) = match state.mode {
                        Mode::WaitsFor(dword, us) | Mode::WaitsInVain(dword, us) => {
                            (us, Some(dword))
                        }
                        Mode::Slow(us) => (us, None),
                        _ => (0, None),
                    };
                    let there = |dword| {
                        let mut mapped = state.mapped.iter();
                        mapped.any(|queue| doorbell(queue.doorbell).dword() == dword)
                    };
                    if us != 0 && refused.is_none_or(there) {
                        let in_vain = matches!(state.mode, Mode::WaitsInVain(..));
                        state.mode = Mode::Good;
                        state.held = Some(Held {
                            filter: packet.filter,
                            until: self.clock.load(Relaxed) + us,
                            refused,
                            in_vain,
                        });
                        return;
                    }
                }
                let hung = match state.mode {
                    Mode::Refuses(_) if packet.action == UnmapAction::Reset => {
                        state.mode = Mode::Good;
                        None
                    }
                    Mode::Refuses(dword) | Mode::Stubborn(dword) => Some(dword),
                    Mode::Names(dword) => {
                        state.mode = Mode::Good;
                        Some(dword)
                    }
                    Mode::AllRefuse(us) if packet.action != UnmapAction::Reset => {
                        let first = state.mapped.iter().next();
                        let first = first.map(|queue| doorbell(queue.doorbell).dword());
                        if first.is_some() {
                            self.clock.add(us, Relaxed);
                        }
                        first
                    }
                    _ => None,
                };
                if let (Some(dword), Some(hiq)) = (hung, state.hiq) {
                    // CAST: A small index.
                    self.store(hiq.mqd + HUNG_DOORBELL as u64 * 4, dword);
                    return;
                }
                self.unmap(state, packet.filter);
            }
            Packet::QueryStatus(packet) => {
                self.note(state, Event::Fence);
                let fence = (packet.fence, packet.value);
                let _ = state.fences.push(fence, GFP_KERNEL);
                if state.mode == Mode::KeepsFences || state.held.is_some() {
                    let _ = state.kept.push(fence, GFP_KERNEL);
                } else {
                    self.signal(state, fence);
                }
            }
            _ => self.breach(state, "packet that does not belong on the HIQ"),
        }
    }

    fn unmap(&self, state: &mut State, filter: UnmapFilter) {
        state.mapped.retain(|queue| match filter {
            UnmapFilter::Pasid(pasid) => queue.pasid != pasid,
            UnmapFilter::Doorbells(list) => list
                .iter()
                .all(|doorbell| number(doorbell) != queue.doorbell),
            UnmapFilter::NonStatic => queue.fixed,
            UnmapFilter::All => false,
        });
        if matches!(filter, UnmapFilter::NonStatic | UnmapFilter::All) {
            state.active = false;
            state.listed.clear();
        }
    }

    /// Ends an UNMAP_QUEUES whose time is over, or `now`, and writes the fences behind it.
    pub(super) fn end_held(&self, state: &mut State, now: bool) {
        let Some(held) = state.held else { return };
        if !now && self.clock.load(Relaxed) < held.until {
            return;
        }
        state.held = None;
        match (held.refused, state.hiq) {
            (Some(dword), Some(hiq)) if !now => {
                state.mode = Mode::Refuses(dword);
                // CAST: A small index.
                self.store(hiq.mqd + HUNG_DOORBELL as u64 * 4, dword);
            }
            _ => self.unmap(state, held.filter),
        }
        let kept = core::mem::replace(&mut state.kept, KVec::new());
        for fence in &kept {
            self.signal(state, *fence);
        }
    }

    /// The queue in `slot` is reset by register.
    pub(super) fn reset_mapped(&self, state: &mut State, slot: Slot) -> Result {
        let Some(queue) = state.mapped.get(nth(slot)).copied() else {
            self.breach(state, "reset of a slot without a queue");
            return Ok(());
        };
        self.note(state, Event::Reset(queue.doorbell));
        let dword = doorbell(queue.doorbell).dword();
        match state.held {
            Some(held) if held.refused == Some(dword) && held.in_vain => return Err(ETIMEDOUT),
            Some(held) if held.refused == Some(dword) => {
                state
                    .mapped
                    .retain(|other| other.doorbell != queue.doorbell);
                self.end_held(state, true);
            }
            _ => self.breach(state, "reset by register of a queue that obeys"),
        }
        Ok(())
    }

    pub(super) fn signal(&self, state: &mut State, (addr, value): (u64, u64)) {
        let low = self.store(addr, crate::hw::num::lo32(value));
        let high = self.store(addr + 4, crate::hw::num::hi32(value));
        if !(low && high) {
            self.breach(state, "fence in freed memory");
        }
    }

    /// Walks a runlist and maps all of it (turns are not modelled).
    fn walk(&self, state: &mut State, ib: u64, dwords: u32, process_count: u32) {
        let Some((block, offset)) = self.find(ib) else {
            self.breach(state, "runlist in freed memory");
            return;
        };
        let words = block.words.lock();
        let first = offset / 4;
        let list = words.get(first..first + index(dwords)).unwrap_or(&[]);
        let mut copy = KVec::new();
        let copied = copy.extend_from_slice(list, GFP_ATOMIC).is_ok();
        drop(words);
        if !copied || copy.len() != index(dwords) {
            self.breach(state, "runlist longer than its memory");
            return;
        }
        let mut rest: &[u32] = &copy;
        let mut pasid = 0;
        let mut announced = 0;
        let mut uncounted = false;
        let mut gws = 0;
        let mut processes = 0;
        let mut compute = 0;
        let mut chained = false;
        while !rest.is_empty() {
            let decoded = decode(rest);
            match decoded.packet {
                Packet::MapProcess(packet) => {
                    if announced != 0 {
                        self.breach(state, "fewer queues than announced");
                    }
                    if state.mapped.iter().any(|queue| queue.pasid == packet.pasid) {
                        self.breach(state, "process twice in a list");
                    }
                    pasid = packet.pasid;
                    announced = packet.num_queues;
                    // Queues beside a debug queue are not counted.
                    uncounted = packet.diq;
                    if uncounted != (announced == 0) {
                        self.breach(state, "queues counted beside a debug queue, or none");
                    }
                    gws = packet.num_gws;
                    processes += 1;
                    self.note(
                        state,
                        Event::Process {
                            pasid,
                            queues: packet.num_queues,
                        },
                    );
                }
                Packet::MapQueues(packet) => {
                    let doorbell = number(packet.doorbell);
                    match announced {
                        0 if uncounted => {}
                        0 => self.breach(state, "more queues than announced"),
                        _ => announced -= 1,
                    }
                    let fixed = matches!(
                        packet.target,
                        MapTarget::Scheduled {
                            class: QueueClass::Static,
                            ..
                        }
                    );
                    let cooperative =
                        matches!(packet.target, MapTarget::Scheduled { gws: true, .. });
                    if cooperative {
                        if gws == 0 {
                            self.breach(state, "cooperative queue of a process without GWS");
                        }
                        self.note(state, Event::Gws { pasid, slots: gws });
                    }
                    let event = match packet.target {
                        MapTarget::Scheduled {
                            engine: Engine::Compute,
                            ..
                        } => {
                            compute += 1;
                            if self.load(packet.mqd) != Some(MQD_HEADER) {
                                self.breach(state, "descriptor in freed memory");
                            }
                            let _ = state.listed.push(packet.mqd, GFP_KERNEL);
                            if self.is_dirty(packet.mqd) {
                                self.breach(state, "descriptor in VRAM written and not flushed");
                            }
                            Event::Queue(doorbell)
                        }
                        MapTarget::Scheduled {
                            engine: Engine::Sdma(engine),
                            ..
                        } => {
                            if self.load(packet.mqd).is_none() {
                                self.breach(state, "SDMA descriptor in freed memory");
                            }
                            Event::Sdma(engine, doorbell)
                        }
                        _ => {
                            self.breach(state, "queue in a named slot");
                            Event::Queue(doorbell)
                        }
                    };
                    if state.mapped.iter().any(|queue| queue.doorbell == doorbell) {
                        self.breach(state, "queue mapped twice");
                    }
                    let engine = match packet.target {
                        MapTarget::Scheduled {
                            engine: Engine::Sdma(engine),
                            ..
                        } => Some(engine.into()),
                        _ => None,
                    };
                    let queue = Mapped {
                        pasid,
                        doorbell,
                        fixed,
                        engine,
                    };
                    let _ = state.mapped.push(queue, GFP_KERNEL);
                    self.note(state, event);
                }
                Packet::RunList(tail) => {
                    chained = true;
                    if !tail.chain
                        || tail.ib != ib
                        || tail.dwords != dwords
                        || tail.process_count != process_count
                    {
                        self.breach(state, "tail that does not start the list over");
                    }
                    self.note(state, Event::Chain);
                }
                _ => self.breach(state, "packet that does not belong in a runlist"),
            }
            rest = rest.get(decoded.dwords..).unwrap_or(&[]);
            if chained && !rest.is_empty() {
                self.breach(state, "packets after the tail");
            }
        }
        if announced != 0 {
            self.breach(state, "fewer queues than announced");
        }
        let fits = compute <= COMPUTE_SLOTS && processes <= index(self.asic.vmid_count());
        if !chained && !fits {
            self.breach(state, "more than the hardware holds without a tail");
        }
        if index(process_count) > index(self.asic.vmid_count()) || process_count == 0 {
            self.breach(state, "process count");
        }
    }
}
