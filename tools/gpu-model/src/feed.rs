// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the command processor's queues and those of SDMA have in common: rings in memory, turns, long transfers, and
//! what a driver that loads them by registers has to get right.

use crate::cp::queue::Outcome;
use crate::device::{Gpu, Wake, BAR2_SIZE};
use crate::sdma::Engine;
use crate::soc::{DoorbellTarget, Soc};
use crate::trace::Seat;
use crate::vm::access::{Destination, VmError, VmResult};
use crate::vm::range::Range;
use crate::vm::{Client, HubId};

/// Shortest polling interval of a packet that waits.
const POLL_MIN_NS: u64 = 50_000;
/// Longest one.
const POLL_MAX_NS: u64 = 2_000_000;
/// Packets that are run at a stretch.
pub const STRETCH_PACKETS: usize = 64;
/// Bytes after which a stretch ends early.
const STRETCH_BYTES: u64 = 128 * 1024;
/// Bytes that a long transfer moves before other queues get a turn.
pub const CHUNK: u64 = STRETCH_BYTES;
/// Bytes that it moves at once, between two looks at what else there is to do.
pub(crate) const PIECE: u64 = 16 * 1024;
/// How long a write may be under way after it was translated.
const FLIGHT_NS: u64 = 500_000;

/// When a connected queue runs again.
#[derive(Debug, Clone)]
pub struct Pace {
    /// Why the queue halted.
    pub halted: Option<&'static str>,
    /// Do not try before this time.
    pub not_before: u64,
    /// The queue waits for a page after a retry fault.
    pub retrying: bool,
    poll_ns: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            halted: None,
            not_before: 0,
            retrying: false,
            poll_ns: POLL_MIN_NS,
        }
    }
}

impl Pace {
    /// A doorbell rang, or what the queue waits for takes others a moment only: it is looked at often again.
    pub fn look_often(&mut self) {
        self.poll_ns = POLL_MIN_NS;
    }

    /// A stretch ended with `outcome`, at `now`. Returns why the queue halts, if it does.
    pub fn end(
        &mut self,
        outcome: Outcome,
        has_work: bool,
        now: u64,
        wake: &mut Wake,
    ) -> Option<&'static str> {
        match outcome {
            Outcome::Done | Outcome::Yield => {
                self.poll_ns = POLL_MIN_NS;
                if has_work {
                    wake.busy();
                }
            }
            Outcome::Wait => {
                self.not_before = now + self.poll_ns;
                self.poll_ns = (self.poll_ns * 2).min(POLL_MAX_NS);
                wake.at(self.not_before);
            }
            Outcome::Halt(why) => {
                self.halted = Some(why);
                return Some(why);
            }
        }
        None
    }
}

/// A bounded piece of a queue's work: so many packets, so many bytes, and no more than the step has time for.
#[derive(Debug)]
pub struct Stretch {
    packets: usize,
    moved: u64,
    replays: u64,
}

impl Stretch {
    /// Of at most `packets` packets.
    pub fn begin(gpu: &Soc, packets: usize) -> Self {
        Self {
            packets: packets.min(STRETCH_PACKETS),
            moved: gpu.bytes_moved(),
            replays: gpu.log.stats.replays,
        }
    }

    /// A packet ended with `outcome`. Tells `pace` whether it waits for a page; returns whether another one may run.
    pub fn goes_on(&mut self, gpu: &Soc, outcome: Outcome, pace: &mut Pace) -> bool {
        let replays = gpu.log.stats.replays;
        pace.retrying = outcome == Outcome::Wait && self.replays != replays;
        self.replays = replays;
        self.packets = self.packets.saturating_sub(1);
        let enough = gpu.bytes_moved().wrapping_sub(self.moved) >= STRETCH_BYTES;
        outcome == Outcome::Done && self.packets > 0 && !enough && !gpu.pressed()
    }
}

/// A connected queue, as far as feeding it goes.
pub trait Queue {
    /// There is something to do.
    fn has_work(&self) -> bool;
    /// When it runs again.
    fn pace(&mut self) -> &mut Pace;
    /// How accesses to its pointers in memory appear to the VM.
    fn client(&self) -> Client;
    /// Its pointers.
    fn pointers(&mut self) -> Pointers<'_>;
}

impl<Q: Queue> Queue for Box<Q> {
    fn has_work(&self) -> bool {
        (**self).has_work()
    }

    fn pace(&mut self) -> &mut Pace {
        (**self).pace()
    }

    fn client(&self) -> Client {
        (**self).client()
    }

    fn pointers(&mut self) -> Pointers<'_> {
        (**self).pointers()
    }
}

/// The pointers of a queue, in its units and not wrapped.
#[derive(Debug)]
pub struct Pointers<'a> {
    /// Read pointer.
    pub rptr: u64,
    /// Write pointer.
    pub wptr: &'a mut u64,
    /// Read pointer that memory holds, as far as the queue knows.
    pub reported: &'a mut Option<u64>,
    /// The read pointer could not be written to memory yet.
    pub report_due: &'a mut bool,
}

/// What a doorbell makes of a write pointer in units of `unit` bytes: a narrow one has its low bits only.
pub fn rung_to(old: u64, value: u64, wide: bool, unit: u64) -> u64 {
    let low = u64::from(u32::MAX) / unit;
    if wide {
        value / unit
    } else {
        old & !low | (value / unit)
    }
}

/// A kind of engine whose queues get their turns in rounds.
pub trait Feed {
    /// Where a queue is connected.
    type Seat: Copy;
    /// The state of one that is.
    type Queue: Queue;

    /// Goes on with a round that an earlier step left, or begins one. Returns whether it goes on.
    fn begin_round(gpu: &mut Gpu) -> bool;
    /// The seats that are still to have their turn in it, in order, as far as they have anything to do.
    fn seats(gpu: &Gpu) -> Vec<Self::Seat>;
    /// A seat gets its turn.
    fn leave_round(gpu: &mut Gpu, seat: Self::Seat);
    /// The turn of a seat is over; whether it goes on in the next step, before the others have theirs.
    fn goes_on(gpu: &mut Gpu, seat: Self::Seat) -> bool;
    /// All seats have had their turn.
    fn end_round(gpu: &mut Gpu);

    /// How many packets the queue of a seat may run now; `None` if it has nothing to do, or may not.
    fn due(gpu: &mut Gpu, seat: Self::Seat, now: u64, wake: &mut Wake) -> Option<usize>;
    /// Takes the queue of a seat to run it.
    fn take(gpu: &mut Gpu, seat: Self::Seat) -> Option<Self::Queue>;
    /// Runs a packet.
    fn packet(gpu: &mut Gpu, seat: Self::Seat, queue: &mut Self::Queue) -> Outcome;
    /// Whether the engine lets the queue run another packet, if it has one.
    fn permits(gpu: &Gpu, seat: Self::Seat, queue: &Self::Queue) -> bool;
    /// A stretch has ended, with `left` packets of the turn left: reports the pointers.
    fn report(
        gpu: &mut Gpu,
        seat: Self::Seat,
        queue: &mut Self::Queue,
        outcome: Outcome,
        left: usize,
    );
    /// The queue has halted.
    fn halted(gpu: &mut Gpu, seat: Self::Seat, queue: &Self::Queue, why: &'static str);
    /// Gives the queue back to its seat.
    fn put_back(gpu: &mut Gpu, seat: Self::Seat, queue: Self::Queue);
}

impl Gpu {
    /// Goes on with the round in which every connected queue of the engines gets a turn, or begins one.  Returns whether
    /// one had work.
    pub fn feed<F: Feed>(&mut self, now: u64, wake: &mut Wake) -> bool {
        let resumed = F::begin_round(self);
        let mut any = false;
        for seat in F::seats(self) {
            F::leave_round(self, seat);
            let ran = self.turn::<F>(seat, now, wake);
            any |= ran;
            if F::goes_on(self, seat) {
                return true;
            }
            if ran && self.soc.pressed() {
                // It may have been the last one: the next step begins a round then.
                wake.busy();
                return true;
            }
        }
        F::end_round(self);
        if resumed {
            // When those that had their turn in an earlier step want the next one is not known here.
            wake.busy();
        }
        any
    }

    /// Gives a queue its turn, a stretch of packets; returns whether it had one.
    pub(crate) fn turn<F: Feed>(&mut self, seat: F::Seat, now: u64, wake: &mut Wake) -> bool {
        let Some(mut left) = F::due(self, seat, now, wake) else {
            return false;
        };
        let Some(mut queue) = F::take(self, seat) else {
            return false;
        };
        let mut stretch = Stretch::begin(&self.soc, left);
        let outcome = loop {
            let outcome = F::packet(self, seat, &mut queue);
            left = left.saturating_sub(1);
            let more = stretch.goes_on(&self.soc, outcome, queue.pace());
            if !more || !queue.has_work() || !F::permits(self, seat, &queue) {
                break outcome;
            }
        };
        F::report(self, seat, &mut queue, outcome, left);
        let has_work = queue.has_work();
        if let Some(why) = queue.pace().end(outcome, has_work, now, wake) {
            F::halted(self, seat, &queue, why);
        }
        F::put_back(self, seat, queue);
        true
    }
}

/// A ring of dwords in memory.
#[derive(Debug, Clone, Copy)]
pub struct DwordRing {
    /// GPU address.
    pub base: u64,
    /// Its length in dwords, a power of two.
    pub len: u64,
}

/// The next part of a long transfer: its addresses were translated while the part before was written, as hardware does
/// that has many writes under way.
#[derive(Debug, Clone)]
pub struct Ahead {
    vmid: u8,
    hub: HubId,
    va: u64,
    places: Vec<Destination>,
    until: u64,
}

impl Ahead {
    fn len(&self) -> usize {
        self.places.iter().map(|place| place.len).sum()
    }

    /// Whether a page that it was translated by is one that an invalidation of this range drops.
    fn is_touched_by(&self, range: Range) -> bool {
        let mut va = self.va;
        self.places.iter().any(|place| {
            let touched = range.touches(va, place.page);
            va = va.wrapping_add(place.len as u64);
            touched
        })
    }
}

/// One part of a long transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Bytes that were moved before.
    pub from: u64,
    /// Bytes to be moved now.
    pub len: u64,
    /// Bytes of the part after it.
    pub next: u64,
}

impl Soc {
    /// A doorbell moves the write pointer of a queue.  `wrong` is what is the matter with the new one, a mistake of the
    /// driver's if the queue is its own.
    pub fn ring(
        &mut self,
        queue: &mut impl Queue,
        wptr: u64,
        drivers: bool,
        wrong: Option<String>,
    ) {
        *queue.pointers().wptr = wptr;
        queue.pace().look_often();
        match wrong {
            Some(text) if drivers => self.protocol_error("wptr-beyond-ring", text),
            Some(text) => self.user_error("wptr-beyond-ring", text),
            None => {}
        }
    }

    /// Reads a pointer that a queue has in memory.
    ///
    /// # Errors
    /// How the packet that wanted it ends.
    pub fn fetch_pointer(&mut self, c: Client, at: u64) -> Result<u64, Outcome> {
        self.vm_read_u64(c, at & !7).map_err(|e| match e {
            VmError::Retry => Outcome::Wait,
            VmError::Fault => Outcome::Halt("pointer memory faulted"),
        })
    }

    /// Writes the read pointer of a queue to memory: the place and the bytes, or nothing where it has none.
    pub fn report_pointer(&mut self, queue: &mut impl Queue, to: Option<(u64, &[u8])>) {
        let client = queue.client();
        let due = to.map(|(at, bytes)| self.vm_write(client, at, bytes) == Err(VmError::Retry));
        let pointers = queue.pointers();
        *pointers.report_due = due.unwrap_or(*pointers.report_due);
        if due != Some(true) {
            *pointers.reported = Some(pointers.rptr);
        }
    }

    /// Reads dwords of a ring from position `at` on, which wraps.
    ///
    /// # Errors
    /// See [`Soc::vm_read`].
    pub fn fetch_ring(
        &mut self,
        c: Client,
        ring: DwordRing,
        at: u64,
        out: &mut [u32],
    ) -> VmResult<()> {
        let start = at & (ring.len - 1);
        let first = (ring.len - start).min(out.len() as u64) as usize;
        let (a, b) = out.split_at_mut(first);
        self.vm_read_dwords(c, ring.base + start * 4, a)?;
        if b.is_empty() {
            return Ok(());
        }
        self.vm_read_dwords(c, ring.base, b)
    }

    /// Moves a long transfer of `total` bytes on, of which `progress` are done, by at most [`CHUNK`] bytes. `piece`
    /// moves one part of it.
    pub fn transfer(
        &mut self,
        progress: &mut u64,
        total: u64,
        mut piece: impl FnMut(&mut Self, Part) -> VmResult<()>,
    ) -> Outcome {
        let end = total.min(progress.saturating_add(CHUNK));
        while *progress < end {
            let len = (end - *progress).min(PIECE);
            let next = (total - *progress - len).min(PIECE);
            let part = Part {
                from: *progress,
                len,
                next,
            };
            // A part that faults for good is dropped, as the default page would.
            if piece(self, part) == Err(VmError::Retry) {
                return Outcome::Wait;
            }
            *progress += len;
            if self.pressed() {
                break;
            }
        }
        if *progress >= total {
            Outcome::Done
        } else {
            Outcome::Yield
        }
    }

    /// Writes a part of a long transfer, and translates the next one.
    ///
    /// # Errors
    /// See [`Soc::vm_write`].
    pub fn write_part(
        &mut self,
        c: Client,
        ahead: &mut Option<Ahead>,
        va: u64,
        (buf, next): (&[u8], u64),
    ) -> VmResult<()> {
        let now = self.clock.now_ns();
        let fits = |a: &Ahead| {
            a.va == va
                && a.len() == buf.len()
                && (a.vmid, a.hub) == (c.vmid, c.hub)
                && a.until >= now
        };
        let done = match ahead.take().filter(fits) {
            Some(under_way) => self.land(&under_way, buf),
            None => self.vm_write(c, va, buf),
        };
        if done.is_ok() && next != 0 && self.rules.late_writes {
            let va = va.wrapping_add(buf.len() as u64);
            *ahead = self.translate_ahead(c, va, next as usize);
        }
        done
    }

    fn land(&mut self, under_way: &Ahead, buf: &[u8]) -> VmResult<()> {
        self.note_moved(buf.len());
        let mut rest = buf;
        for place in &under_way.places {
            let (now, later) = rest.split_at(place.len);
            rest = later;
            let Some(at) = place.to else { continue };
            if self.mem.blocked(at) {
                // It waits, and is translated afresh then.
                self.log.stats.dma_blocked += 1;
                return Err(VmError::Retry);
            }
            if self.mem.write(at, now).is_err() {
                let text = format!(
                    "VMID {} writes {:#x}, translated before the last flush, to {at:x?}, which is gone",
                    under_way.vmid, under_way.va
                );
                self.protocol_error("late-write", text);
                return Err(VmError::Fault);
            }
        }
        Ok(())
    }

    fn translate_ahead(&mut self, c: Client, va: u64, len: usize) -> Option<Ahead> {
        // Nothing faults ahead of time.
        let places = self.vm_destinations(c, va, len)?;
        Some(Ahead {
            vmid: c.vmid,
            hub: c.hub,
            va,
            places,
            until: self.clock.now_ns().saturating_add(FLIGHT_NS),
        })
    }

    /// What is wrong with the address space of a queue that is loaded by registers.
    pub fn check_loaded_space(
        &self,
        vmid: u8,
        rule: &'static str,
    ) -> impl Iterator<Item = (&'static str, String)> {
        let wrong = if vmid == 0 {
            Vec::new()
        } else {
            self.check_vmid(vmid)
        };
        wrong.into_iter().map(move |text| (rule, text))
    }

    /// Reports what is wrong with a queue that is loaded by registers, by rule and words; `registers` is what these hold.
    pub fn report_load(&mut self, name: &str, wrong: Vec<(&'static str, String)>, registers: &str) {
        for (rule, text) in wrong {
            let decoded = format!("{name} loaded by registers: {text} [{registers}]");
            self.protocol_error(rule, decoded);
        }
    }

    /// A queue that is loaded by registers listens to a doorbell (dword index) from now on.
    pub fn learn_loaded(&mut self, doorbell: u32, vmid: u8, hub: HubId) {
        let pasid = self.pasid_of(vmid, hub);
        self.strays.learn(doorbell, pasid);
    }

    /// A register that the engine read when the queue became active is written while it is: reported if the value is
    /// another one. The write is dropped.
    pub fn report_latched(&mut self, rule: &'static str, register: &str, old: u32, new: u32) {
        if old != new {
            let text = format!("{register} {old:#x} -> {new:#x} while the queue is active");
            self.protocol_error(rule, text);
        }
    }
}

impl Gpu {
    /// A heavyweight flush waits for the writes that are under way to what it drops; a lightweight one does not.
    pub fn land_writes(&mut self, hub: HubId, vmids: u16, range: Range) {
        let hit = |a: &Ahead| {
            a.hub == hub && (vmids >> (a.vmid & 0xF)) & 1 != 0 && a.is_touched_by(range)
        };
        for ahead in self.writes_under_way() {
            // None of its bytes has been written: the transfer translates the part afresh.
            let _ = ahead.take_if(|a| hit(a));
        }
    }

    fn writes_under_way(&mut self) -> impl Iterator<Item = &mut Option<Ahead>> {
        let compute = self.cp.runs_mut().map(|run| &mut run.ahead);
        let contexts = self.sdma.iter_mut().flat_map(Engine::contexts_mut);
        compute.chain(contexts.map(|c| &mut c.ahead))
    }

    /// What is wrong with the doorbell of a queue that is loaded by registers, as rule and words.
    pub fn check_loaded_doorbell(
        &self,
        byte: u64,
        target: DoorbellTarget,
        seat: Seat,
    ) -> impl Iterator<Item = (&'static str, String)> {
        let rules = [
            (
                byte + 8 > BAR2_SIZE || byte % 8 != 0,
                "doorbell-range",
                "doorbell outside BAR2 or not aligned".to_string(),
            ),
            (
                self.soc.doorbell_target(byte) != target,
                "doorbell-routing",
                match target {
                    DoorbellTarget::Sdma(_) => "the doorbell is not routed to the engine".into(),
                    _ => "the doorbell is not routed to the CP".into(),
                },
            ),
            (
                self.doorbell_taken((byte / 4) as u32, Some(seat)),
                "doorbell-duplicate",
                "the doorbell belongs to another connected queue".into(),
            ),
        ];
        rules
            .into_iter()
            .filter(|(bad, ..)| *bad)
            .map(|(_, rule, text)| (rule, text))
    }
}

#[cfg(test)]
mod tests {
    use super::rung_to;

    #[test]
    fn a_narrow_doorbell_has_the_low_bits_of_the_write_pointer() {
        let old = 0x1_2000_0010;
        assert_eq!(rung_to(old, 0x2000_0040, false, 1), 0x1_2000_0040);
        assert_eq!(rung_to(old, 0x40, true, 1), 0x40);
        // Of SDMA it counts bytes, of which 32 bits are 30 of dwords.
        assert_eq!(rung_to(old, 0x40, false, 4), 0x1_0000_0010);
        assert_eq!(rung_to(old, u64::from(u32::MAX), false, 4), 0x1_3fff_ffff);
        assert_eq!(rung_to(old, 0x10_0000_0000, true, 4), 0x4_0000_0000);
    }
}
