// SPDX-License-Identifier: GPL-2.0

//! A scheduler firmware for the suites of the scheduler: it walks the HIQ's ring when the doorbell
//! rings, records what it is told, keeps the set of mapped queues, and counts every breach of the
//! contract. Time passes only when the driver pauses.

use kernel::{
    fmt, new_mutex, new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex,
        SpinLock, //
    },
};

use super::{
    hiq::RING_DWORDS,
    machine::Machine,
    params::{
        Config,
        KeepAlive,
        ProcessParams, //
    },
    platform::{
        DeviceMem,
        Place,
        Platform, //
    },
    record::{
        QueueHold,
        QueueSpec,
        SpecKind, //
    },
    state::COMPUTE_SLOTS, //
};
use crate::{
    hw::{
        asic::{
            AsicDesc,
            GFX90A, //
        },
        doorbell::DoorbellOffset,
        mqd::{
            compute::HUNG_DOORBELL,
            layout::compute as at, //
        },
        num::{
            index,
            join,
            widen, //
        },
        pm4::{
            decode,
            Engine,
            MapTarget,
            Packet,
            UnmapAction,
            UnmapFilter, //
        },
        regs::{
            gc::CP_IQ_WAIT_TIME2,
            hqd::{
                self,
                Slot, //
            },
            Reg, //
        }, //
    },
    kapi::workqueue::OwnedQueue, //
};

/// CP_IQ_WAIT_TIME2 before the driver changes it.
pub(super) const WAIT_TIME2: u32 = 0x1234_5640;
/// First dword of a compute descriptor.
const MQD_HEADER: u32 = 0xc031_0800;

/// What the firmware was told, or found in a runlist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// SET_RESOURCES.
    Resources {
        vmids: u16,
        latency: u8,
        xnack: bool,
    },
    /// WRITE_DATA to CP_IQ_WAIT_TIME2.
    WaitTime2(u32),
    /// RUN_LIST on the HIQ.
    List { processes: u32 },
    /// MAP_PROCESS.
    Process { pasid: u16, queues: u32 },
    /// MAP_QUEUES of a compute queue, by doorbell number.
    Queue(u32),
    /// MAP_QUEUES of an SDMA queue: engine and doorbell number.
    Sdma(u8, u32),
    /// RUN_LIST at the end of a list.
    Chain,
    /// UNMAP_QUEUES of everything.
    UnmapAll,
    /// UNMAP_QUEUES of a process.
    UnmapProcess(u16),
    /// UNMAP_QUEUES of single queues: number and first.
    UnmapQueues(usize, u32),
    /// UNMAP_QUEUES with reset of one queue.
    Reset(u32),
    /// QUERY_STATUS.
    Fence,
    /// The HIQ was disconnected.
    HiqOff,
}

/// How the firmware behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// As the contract says.
    Good,
    /// Consumes packets and never writes a fence; [`Fake::release_fences`] writes them late.
    KeepsFences,
    /// Consumes nothing.
    Dead,
    /// Does not preempt while the queue with this doorbell is mapped, and names it in the
    /// descriptor; a reset helps.
    Refuses(u32),
    /// As before, and a reset does not help either.
    Stubborn(u32),
    /// Registers read all ones.
    Lost,
    /// The device was removed.
    Gone,
}

/// A queue on the hardware.
#[derive(Clone, Copy)]
struct Mapped {
    pasid: u16,
    doorbell: u32,
}

/// Memory with an address.
#[pin_data]
struct Block {
    addr: u64,
    size: usize,
    place: Place,
    #[pin]
    words: SpinLock<KVec<u32>>,
    /// Written and not flushed; what matters for VRAM alone.
    dirty: Atomic<bool>,
}

impl Block {
    fn load(&self, offset: usize) -> Result<u32> {
        if offset % 4 != 0 {
            return Err(EINVAL);
        }
        self.words.lock().get(offset / 4).copied().ok_or(EINVAL)
    }

    fn store(&self, offset: usize, value: u32) -> Result {
        if offset % 4 != 0 {
            return Err(EINVAL);
        }
        *self.words.lock().get_mut(offset / 4).ok_or(EINVAL)? = value;
        Ok(())
    }
}

/// What the driver holds; the firmware notices when it is gone.
struct Mem {
    block: Arc<Block>,
    fake: Arc<Inner>,
}

impl Drop for Mem {
    fn drop(&mut self) {
        let mut blocks = self.fake.blocks.lock();
        blocks.retain(|block| block.addr != self.block.addr);
    }
}

impl Mem {
    fn alive(&self) -> Result {
        match self.fake.mode() {
            Mode::Gone => Err(ENODEV),
            _ => Ok(()),
        }
    }
}

impl DeviceMem for Mem {
    fn gpu_addr(&self) -> u64 {
        self.block.addr
    }

    fn size(&self) -> usize {
        self.block.size
    }

    fn read32(&self, offset: usize) -> Result<u32> {
        self.alive()?;
        self.block.load(offset)
    }

    fn read64(&self, offset: usize) -> Result<u64> {
        self.alive()?;
        Ok(join(self.block.load(offset)?, self.block.load(offset + 4)?))
    }

    fn write32(&self, offset: usize, value: u32) -> Result {
        self.alive()?;
        if self.block.place == Place::Vram {
            self.block.dirty.store(true, Relaxed);
        }
        self.block.store(offset, value)
    }

    fn write64(&self, offset: usize, value: u64) -> Result {
        self.write32(offset, crate::hw::num::lo32(value))?;
        self.write32(offset + 4, crate::hw::num::hi32(value))
    }

    fn write_dwords(&self, offset: usize, words: &[u32]) -> Result {
        for (i, word) in words.iter().enumerate() {
            self.write32(offset + i * 4, *word)?;
        }
        Ok(())
    }

    fn clear(&self, offset: usize, len: usize) -> Result {
        for place in (offset..offset + len).step_by(4) {
            self.write32(place, 0)?;
        }
        Ok(())
    }

    fn flush(&self) -> Result {
        self.alive()?;
        self.block.dirty.store(false, Relaxed);
        Ok(())
    }
}

/// Where the firmware found the ring.
#[derive(Clone, Copy)]
struct Hiq {
    ring: u64,
    rptr_report: u64,
    mqd: u64,
    rptr: u64,
}

struct State {
    mode: Mode,
    hiq: Option<Hiq>,
    active: bool,
    mapped: KVec<Mapped>,
    log: KVec<Event>,
    /// Address and value of every fence asked for.
    fences: KVec<(u64, u64)>,
    kept: KVec<(u64, u64)>,
    /// Address and value that the next pause stores.
    on_pause: Option<(u64, u32)>,
    doorbells: u64,
    breaches: KVec<&'static str>,
}

#[pin_data]
struct Inner {
    asic: &'static AsicDesc,
    clock: Atomic<u64>,
    next_addr: Atomic<u64>,
    #[pin]
    blocks: Mutex<KVec<Arc<Block>>>,
    #[pin]
    state: Mutex<State>,
}

impl Inner {
    fn mode(&self) -> Mode {
        self.state.lock().mode
    }

    fn find(&self, addr: u64) -> Option<(Arc<Block>, usize)> {
        let blocks = self.blocks.lock();
        blocks.iter().find_map(|block| {
            let offset = usize::try_from(addr.checked_sub(block.addr)?).ok()?;
            (offset < block.size).then(|| (block.clone(), offset))
        })
    }

    fn load(&self, addr: u64) -> Option<u32> {
        let (block, offset) = self.find(addr)?;
        block.load(offset).ok()
    }

    /// Whether the firmware could read stale words at `addr`. Other blocks do not count: their
    /// queues may just be being made while the worker composes this list.
    fn is_dirty(&self, addr: u64) -> bool {
        self.find(addr)
            .is_some_and(|(block, _)| block.dirty.load(Relaxed))
    }

    fn store(&self, addr: u64, value: u32) -> bool {
        self.find(addr)
            .is_some_and(|(block, offset)| block.store(offset, value).is_ok())
    }

    fn breach(&self, state: &mut State, what: &'static str) {
        pr_err!("fake firmware: {what}\n");
        let _ = state.breaches.push(what, GFP_KERNEL);
    }

    fn note(&self, state: &mut State, event: Event) {
        if state.log.push(event, GFP_KERNEL).is_err() {
            self.breach(state, "no memory for the log");
        }
    }

    /// Consumes the ring up to `wptr`.
    fn consume(&self, state: &mut State, wptr: u64) {
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
                        self.breach(state, "unmap of static queues");
                        Event::UnmapAll
                    }
                };
                self.note(state, event);
                let hung = match state.mode {
                    Mode::Refuses(_) if packet.action == UnmapAction::Reset => {
                        state.mode = Mode::Good;
                        None
                    }
                    Mode::Refuses(dword) | Mode::Stubborn(dword) => Some(dword),
                    _ => None,
                };
                if let (Some(dword), Some(hiq)) = (hung, state.hiq) {
                    // CAST: A small index.
                    self.store(hiq.mqd + HUNG_DOORBELL as u64 * 4, dword);
                    return;
                }
                state.mapped.retain(|queue| match packet.filter {
                    UnmapFilter::Pasid(pasid) => queue.pasid != pasid,
                    UnmapFilter::Doorbells(list) => list
                        .iter()
                        .all(|doorbell| number(doorbell) != queue.doorbell),
                    UnmapFilter::NonStatic | UnmapFilter::All => false,
                });
                if matches!(packet.filter, UnmapFilter::NonStatic | UnmapFilter::All) {
                    state.active = false;
                }
            }
            Packet::QueryStatus(packet) => {
                self.note(state, Event::Fence);
                let fence = (packet.fence, packet.value);
                let _ = state.fences.push(fence, GFP_KERNEL);
                if state.mode == Mode::KeepsFences {
                    let _ = state.kept.push(fence, GFP_KERNEL);
                } else {
                    self.signal(state, fence);
                }
            }
            _ => self.breach(state, "packet that does not belong on the HIQ"),
        }
    }

    fn signal(&self, state: &mut State, (addr, value): (u64, u64)) {
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
                        0 => self.breach(state, "more queues than announced"),
                        _ => announced -= 1,
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
                    let _ = state.mapped.push(Mapped { pasid, doorbell }, GFP_KERNEL);
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

/// The number that [`doorbell`] was made from.
fn number(doorbell: DoorbellOffset) -> u32 {
    doorbell.dword() / 2
}

/// Doorbell `n` of the BAR.
pub(super) fn doorbell(n: u32) -> DoorbellOffset {
    DoorbellOffset::kernel(n)
}

/// The fake device.
pub(super) struct Fake {
    inner: Arc<Inner>,
}

impl Fake {
    /// A device whose firmware behaves.
    pub(super) fn new(asic: &'static AsicDesc) -> Result<Arc<Self>> {
        let inner = Arc::pin_init(
            try_pin_init!(Inner {
                asic,
                clock: Atomic::new(0),
                next_addr: Atomic::new(0x10_0000),
                blocks <- new_mutex!(KVec::new()),
                state <- new_mutex!(State {
                    mode: Mode::Good,
                    hiq: None,
                    active: false,
                    mapped: KVec::new(),
                    log: KVec::new(),
                    fences: KVec::new(),
                    kept: KVec::new(),
                    on_pause: None,
                    doorbells: 0,
                    breaches: KVec::new(),
                }),
            }? Error),
            GFP_KERNEL,
        )?;
        Ok(Arc::new(Self { inner }, GFP_KERNEL)?)
    }

    /// Changes the behaviour.
    pub(super) fn set_mode(&self, mode: Mode) {
        self.inner.state.lock().mode = mode;
    }

    /// Takes the log.
    pub(super) fn log(&self) -> KVec<Event> {
        core::mem::replace(&mut self.inner.state.lock().log, KVec::new())
    }

    /// Addresses and values of all fences asked for since the last call.
    pub(super) fn fences(&self) -> KVec<(u64, u64)> {
        core::mem::replace(&mut self.inner.state.lock().fences, KVec::new())
    }

    /// Writes the fences that were kept, late.
    pub(super) fn release_fences(&self) {
        let mut state = self.inner.state.lock();
        let kept = core::mem::replace(&mut state.kept, KVec::new());
        for fence in &kept {
            self.inner.signal(&mut state, *fence);
        }
    }

    /// Breaches of the contract so far.
    pub(super) fn breaches(&self) -> usize {
        self.inner.state.lock().breaches.len()
    }

    /// Doorbell writes.
    pub(super) fn doorbells(&self) -> u64 {
        self.inner.state.lock().doorbells
    }

    /// Queues on the hardware.
    pub(super) fn mapped(&self) -> usize {
        self.inner.state.lock().mapped.len()
    }

    /// Blocks of memory that the driver holds.
    pub(super) fn blocks(&self) -> usize {
        self.inner.blocks.lock().len()
    }

    /// Reads memory as the device.
    pub(super) fn load(&self, addr: u64) -> Option<u32> {
        self.inner.load(addr)
    }

    /// Writes memory as the device.
    pub(super) fn store(&self, addr: u64, value: u32) -> bool {
        self.inner.store(addr, value)
    }

    /// Microseconds that passed.
    pub(super) fn elapsed(&self) -> u64 {
        self.inner.clock.load(Relaxed)
    }

    /// The next pause of the driver moves the read pointer at `addr` to `value`.
    pub(super) fn consume_on_pause(&self, addr: u64, value: u32) {
        self.inner.state.lock().on_pause = Some((addr, value));
    }

    /// The device was reset: nothing is mapped or connected, and it behaves.
    pub(super) fn reset(&self) {
        let mut state = self.inner.state.lock();
        state.mode = Mode::Good;
        state.hiq = None;
        state.active = false;
        state.mapped.clear();
    }
}

impl Platform for Fake {
    fn asic(&self) -> &'static AsicDesc {
        self.inner.asic
    }

    fn alloc(&self, size: usize, place: Place) -> Result<Arc<dyn DeviceMem>> {
        if self.inner.mode() == Mode::Gone {
            return Err(ENODEV);
        }
        let size = size.next_multiple_of(4096);
        // A page stays free between blocks, so that an overrun hits nothing.
        // CAST: Sizes are small.
        let addr = self.inner.next_addr.fetch_add(size as u64 + 4096, Relaxed);
        let words = KVec::from_elem(0, size / 4, GFP_KERNEL)?;
        let block = Arc::pin_init(
            pin_init!(Block {
                addr,
                size,
                place,
                words <- new_spinlock!(words),
                dirty: Atomic::new(false),
            }),
            GFP_KERNEL,
        )?;
        let mem: Arc<dyn DeviceMem> = Arc::new(
            Mem {
                block: block.clone(),
                fake: self.inner.clone(),
            },
            GFP_KERNEL,
        )?;
        self.inner.blocks.lock().push(block, GFP_KERNEL)?;
        Ok(mem)
    }

    fn hiq_doorbell(&self) -> DoorbellOffset {
        doorbell(0x200)
    }

    fn map_hiq(&self, mqd: u64, wptr: u64) -> Result {
        let word = |dw: usize| self.inner.load(mqd + dw as u64 * 4).unwrap_or(0); // CAST: Small.
        let wide = |dw: usize| join(word(dw), word(dw + 1));
        let mut state = self.inner.state.lock();
        if word(0) != MQD_HEADER || wide(at::CP_HQD_PQ_WPTR_POLL_ADDR_LO) != wptr {
            self.inner.breach(&mut state, "descriptor of the HIQ");
        }
        state.hiq = Some(Hiq {
            ring: wide(at::CP_HQD_PQ_BASE_LO) << 8,
            rptr_report: wide(at::CP_HQD_PQ_RPTR_REPORT_ADDR_LO),
            mqd,
            rptr: 0,
        });
        Ok(())
    }

    fn unmap_hiq(&self) -> Result {
        let mut state = self.inner.state.lock();
        state.hiq = None;
        self.inner.note(&mut state, Event::HiqOff);
        Ok(())
    }

    fn read(&self, reg: Reg) -> Result<u32> {
        self.check()?;
        Ok(if reg == CP_IQ_WAIT_TIME2 {
            WAIT_TIME2
        } else {
            0
        })
    }

    fn read_slot(&self, slot: Slot, regs: &[Reg], words: &mut [u32]) -> Result {
        self.check()?;
        // Queue n of the mapped ones sits in the n-th slot of the firmware.
        let nth = (0..slot.bit())
            .filter(|bit| 0xfcfc_fcfc_u64 & 1 << bit != 0)
            .count();
        let state = self.inner.state.lock();
        let queue = match slot.me() {
            1 => state.mapped.get(nth).copied(),
            _ => None,
        };
        for (word, reg) in words.iter_mut().zip(regs) {
            *word = match (queue, *reg) {
                (Some(_), hqd::CP_HQD_ACTIVE) => 1,
                (Some(queue), hqd::CP_HQD_PQ_DOORBELL_CONTROL) => doorbell(queue.doorbell).field(),
                _ => 0,
            };
        }
        Ok(())
    }

    fn ring_hiq(&self, wptr: u64) -> Result {
        let mut state = self.inner.state.lock();
        state.doorbells += 1;
        match state.mode {
            Mode::Gone => return Err(ENODEV),
            Mode::Dead | Mode::Lost => {}
            _ => self.inner.consume(&mut state, wptr),
        }
        Ok(())
    }

    fn check(&self) -> Result {
        match self.inner.mode() {
            Mode::Lost => Err(EIO),
            Mode::Gone => Err(ENODEV),
            _ => Ok(()),
        }
    }

    fn complain(&self, what: fmt::Arguments<'_>) {
        // Errors that a test provokes are no errors of the run.
        pr_info!("scheduler under test: {what}\n");
    }

    fn now(&self) -> u64 {
        self.inner.clock.load(Relaxed)
    }

    fn pause(&self, us: u64) {
        self.inner.clock.add(us, Relaxed);
        let due = self.inner.state.lock().on_pause.take();
        if let Some((addr, value)) = due {
            self.inner.store(addr, value);
        }
    }
}

/// Settings of most suites: no delay, so that the driver of a test decides when things happen.
pub(super) fn config() -> Config {
    Config {
        gather_ms: 0,
        ..Config::default()
    }
}

/// A scheduler that its test drives.
pub(super) fn machine(fake: &Arc<Fake>, config: Config) -> Result<Arc<Machine>> {
    let platform: Arc<dyn Platform> = fake.clone();
    Machine::new(platform, config, None)
}

/// A scheduler with its worker.
pub(super) fn working_machine(fake: &Arc<Fake>, config: Config) -> Result<Arc<Machine>> {
    let platform: Arc<dyn Platform> = fake.clone();
    let queue = OwnedQueue::new(c"rkfd-sched-test", 2)?;
    Machine::new(platform, config, Some(queue))
}

/// A well-behaved gfx90a and a driven scheduler on it, with the log of the bring-up taken.
pub(super) fn setup() -> Result<(Arc<Fake>, Arc<Machine>)> {
    let fake = Fake::new(&GFX90A)?;
    let machine = machine(&fake, config())?;
    let _ = fake.log();
    Ok((fake, machine))
}

/// A process.
pub(super) fn process(pasid: u16) -> ProcessParams {
    ProcessParams {
        pasid,
        page_table_base: 0x1234_5001,
        sh_mem_config: 0x1018,
        sh_mem_bases: 0x0001_0002,
        tba: 0,
        tma: 0,
        keep: None,
    }
}

/// A compute queue with doorbell `n`.
pub(super) fn pm4(n: u32) -> QueueSpec {
    QueueSpec {
        kind: SpecKind::Pm4,
        ring_base: 0x7f00_0000_0000 + widen(n) * 0x10_0000,
        ring_size: 0x1000,
        rptr: 0x7e00_0000_0000 + widen(n) * 0x1000,
        wptr: 0x7e00_0000_0080 + widen(n) * 0x1000,
        eop: 0x7d00_0000_0000 + widen(n) * 0x1000,
        eop_size: 4096,
        cwsr: None,
        doorbell: doorbell(n),
        priority: 7,
        percent: 100,
        cu_mask: None,
        trap: false,
    }
}

/// An SDMA queue with doorbell `n`.
pub(super) fn sdma(n: u32, engine: u32, queue: u32) -> QueueSpec {
    QueueSpec {
        kind: SpecKind::Sdma { engine, queue },
        eop: 0,
        eop_size: 0,
        ..pm4(n)
    }
}

/// Creates a compute queue with doorbell `n`.
pub(super) fn create(machine: &Arc<Machine>, proc: u64, n: u32) -> Result<u64> {
    machine.create_queue(proc, pm4(n), QueueHold::default())
}

/// Counts how many of it live.
pub(super) struct Token {
    count: Arc<Atomic<i64>>,
}

impl KeepAlive for Token {}

impl Token {
    /// A keep-alive that is counted in `count`.
    pub(super) fn keep(count: &Arc<Atomic<i64>>) -> Result<Arc<dyn KeepAlive>> {
        count.add(1, Relaxed);
        let token: Arc<dyn KeepAlive> = Arc::new(
            Self {
                count: count.clone(),
            },
            GFP_KERNEL,
        )?;
        Ok(token)
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.count.add(-1, Relaxed);
    }
}

/// Shuts a scheduler down and checks that nothing is left and no rule was broken.
pub(super) fn finish(fake: &Arc<Fake>, machine: Arc<Machine>) -> Result {
    machine.shutdown();
    machine.release();
    let mapped = fake.mapped();
    drop(machine);
    let (blocks, breaches) = (fake.blocks(), fake.breaches());
    if mapped != 0 || blocks != 0 || breaches != 0 {
        pr_err!("left behind: {mapped} queues mapped, {blocks} blocks, {breaches} breaches\n");
        return Err(EBUSY);
    }
    Ok(())
}
