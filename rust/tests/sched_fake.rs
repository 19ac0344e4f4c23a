// SPDX-License-Identifier: GPL-2.0

//! A scheduler firmware for the suites of the scheduler: it walks the HIQ's ring when the doorbell
//! rings, records what it is told, keeps the set of mapped queues, and counts every breach of the
//! contract. Time passes only when the driver pauses.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};

pub(super) use super::fixtures::{
    config,
    create,
    finish,
    pm4,
    process,
    scheduler,
    sdma,
    setup,
    setup_with,
    working_scheduler,
    Callers,
    Token, //
};

use super::{
    fake_mem::Block,
    fake_regs::Registers, //
};
use crate::hw::{
    asic::AsicDesc,
    doorbell::DoorbellOffset,
    pm4::UnmapFilter,
    regs::hqd::Slot, //
};

/// CP_IQ_WAIT_TIME2 before the driver changes it.
pub(super) const WAIT_TIME2: u32 = 0x1234_5640;
/// First dword of a compute descriptor.
pub(super) const MQD_HEADER: u32 = 0xc031_0800;

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
    /// The queue that follows has global wave sync, of as many slots.
    Gws { pasid: u16, slots: u32 },
    /// RUN_LIST at the end of a list.
    Chain,
    /// UNMAP_QUEUES of everything but static queues.
    UnmapAll,
    /// UNMAP_QUEUES of static queues too.
    UnmapStatic,
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
    /// A VMID was given to a process, by registers.
    Bind(u32, u16),
    /// A VMID was taken back.
    Unbind(u32),
    /// A queue was loaded by registers.
    Load { vmid: u32, doorbell: u32 },
    /// A queue was asked to leave its slot: doorbell number and request (0 for SDMA).
    Dequeue(u32, u32),
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
    /// Every queue refuses to be preempted, each for so many microseconds; a reset helps.
    AllRefuse(u64),
    /// Waits so many microseconds for the queue with this doorbell, then behaves as with `Refuses`. Goes on at once
    /// when the queue is reset by register. Those that it does not wait for leave at once.
    WaitsFor(u32, u64),
    /// As before, and a reset by register does not help.
    WaitsInVain(u32, u64),
    /// The next preemption names the queue with this doorbell, which is not mapped, and does nothing.
    Names(u32),
    /// The next preemption takes so many microseconds.
    Slow(u64),
    /// Registers read all ones.
    Lost,
    /// The device was removed.
    Gone,
}

/// An UNMAP_QUEUES that takes its time; fences wait for it.
#[derive(Clone, Copy)]
pub(super) struct Held {
    /// What it takes off.
    pub(super) filter: UnmapFilter,
    /// When it ends, microseconds.
    pub(super) until: u64,
    /// Dword index of the doorbell of the queue that it waits for, and would name then.
    pub(super) refused: Option<u32>,
    /// A reset by register of that queue does not help.
    pub(super) in_vain: bool,
}

impl Held {
    /// Whether the queue with doorbell number `number` has left its place.
    pub(super) fn has_left(&self, number: u32) -> bool {
        self.refused
            .is_some_and(|dword| doorbell(number).dword() != dword)
    }
}

/// A queue on the hardware.
#[derive(Clone, Copy)]
pub(super) struct Mapped {
    pub(super) pasid: u16,
    pub(super) doorbell: u32,
    /// Mapped as a static queue.
    pub(super) fixed: bool,
    /// The copy engine of an SDMA queue that the firmware mapped.
    pub(super) engine: Option<u32>,
}

/// Where the firmware found the ring.
#[derive(Clone, Copy)]
pub(super) struct Hiq {
    pub(super) ring: u64,
    pub(super) rptr_report: u64,
    pub(super) mqd: u64,
    pub(super) rptr: u64,
}

pub(super) struct State {
    pub(super) mode: Mode,
    pub(super) hiq: Option<Hiq>,
    pub(super) active: bool,
    /// Descriptors of compute queues that the active list names.
    pub(super) listed: KVec<u64>,
    pub(super) mapped: KVec<Mapped>,
    pub(super) regs: Registers,
    log: KVec<Event>,
    /// Address and value of every fence asked for.
    pub(super) fences: KVec<(u64, u64)>,
    pub(super) kept: KVec<(u64, u64)>,
    pub(super) held: Option<Held>,
    /// Address and value that the next pause stores.
    pub(super) on_pause: Option<(u64, u32)>,
    pub(super) doorbells: u64,
    /// What was warned of, in lines.
    pub(super) warnings: KVec<u8>,
    /// Doorbell number, read and write pointer of queues in slots, where they are not 0.
    pub(super) pointers: KVec<(u32, u32, u32)>,
    /// Doorbell numbers of queues in slots whose ring the hardware marks as empty.
    pub(super) empty: KVec<u32>,
    /// Doorbell numbers of queues in slots that are in an indirect buffer, and where.
    pub(super) buffers: KVec<(u32, u32)>,
    breaches: KVec<&'static str>,
}

impl State {
    pub(super) fn pointers_of(&self, doorbell: u32) -> (u32, u32) {
        let mut pointers = self.pointers.iter();
        let found = pointers.find(|(of, _, _)| *of == doorbell);
        found.map_or((0, 0), |(_, rptr, wptr)| (*rptr, *wptr))
    }

    pub(super) fn buffer_of(&self, doorbell: u32) -> Option<u32> {
        let mut buffers = self.buffers.iter();
        buffers.find(|(of, _)| *of == doorbell).map(|(_, at)| *at)
    }
}

#[pin_data]
pub(super) struct Inner {
    pub(super) asic: &'static AsicDesc,
    pub(super) clock: Atomic<u64>,
    pub(super) stall: Atomic<u64>,
    pub(super) next_addr: Atomic<u64>,
    #[pin]
    pub(super) callers: Callers,
    #[pin]
    pub(super) blocks: Mutex<KVec<Arc<Block>>>,
    #[pin]
    pub(super) state: Mutex<State>,
}

impl Inner {
    pub(super) fn mode(&self) -> Mode {
        self.state.lock().mode
    }

    pub(super) fn find(&self, addr: u64) -> Option<(Arc<Block>, usize)> {
        let blocks = self.blocks.lock();
        blocks.iter().find_map(|block| {
            let offset = usize::try_from(addr.checked_sub(block.addr)?).ok()?;
            (offset < block.size).then(|| (block.clone(), offset))
        })
    }

    pub(super) fn load(&self, addr: u64) -> Option<u32> {
        let (block, offset) = self.find(addr)?;
        block.load(offset).ok()
    }

    /// Whether the firmware could read stale words at `addr`. Other blocks do not count: their
    /// queues may just be being made while the worker composes this list.
    pub(super) fn is_dirty(&self, addr: u64) -> bool {
        self.find(addr)
            .is_some_and(|(block, _)| block.dirty.load(Relaxed))
    }

    pub(super) fn store(&self, addr: u64, value: u32) -> bool {
        self.find(addr)
            .is_some_and(|(block, offset)| block.store(offset, value).is_ok())
    }

    pub(super) fn breach(&self, state: &mut State, what: &'static str) {
        pr_err!("fake firmware: {what}\n");
        let _ = state.breaches.push(what, GFP_KERNEL);
    }

    pub(super) fn note(&self, state: &mut State, event: Event) {
        if state.log.push(event, GFP_KERNEL).is_err() {
            self.breach(state, "no memory for the log");
        }
    }
}

/// The number that [`doorbell`] was made from.
pub(super) fn number(doorbell: DoorbellOffset) -> u32 {
    doorbell.dword() / 2
}

/// Doorbell `n` of the BAR.
pub(super) fn doorbell(n: u32) -> DoorbellOffset {
    DoorbellOffset::kernel(n)
}

/// Queue n of the mapped ones sits in the n-th slot of the firmware: the n of a slot.
pub(super) fn nth(slot: Slot) -> usize {
    let bits = (0..slot.bit()).filter(|bit| 0xfcfc_fcfc_u64 & 1 << bit != 0);
    bits.count()
}

/// The fake device.
pub(super) struct Fake {
    pub(super) inner: Arc<Inner>,
}

impl Fake {
    /// A device whose firmware behaves.
    pub(super) fn new(asic: &'static AsicDesc) -> Result<Arc<Self>> {
        let inner = Arc::pin_init(
            try_pin_init!(Inner {
                asic,
                clock: Atomic::new(0),
                stall: Atomic::new(0),
                next_addr: Atomic::new(0x10_0000),
                callers <- Callers::new(),
                blocks <- new_mutex!(KVec::new()),
                state <- new_mutex!(State {
                    mode: Mode::Good,
                    hiq: None,
                    active: false,
                    listed: KVec::new(),
                    mapped: KVec::new(),
                    regs: Registers::new(),
                    log: KVec::new(),
                    fences: KVec::new(),
                    kept: KVec::new(),
                    held: None,
                    on_pause: None,
                    doorbells: 0,
                    warnings: KVec::new(),
                    pointers: KVec::new(),
                    empty: KVec::new(),
                    buffers: KVec::new(),
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

    /// Static queues on the hardware.
    pub(super) fn fixed(&self) -> usize {
        let state = self.inner.state.lock();
        state.mapped.iter().filter(|queue| queue.fixed).count()
    }

    /// Queues of a process on the hardware.
    pub(super) fn mapped_of(&self, pasid: u16) -> usize {
        let state = self.inner.state.lock();
        state
            .mapped
            .iter()
            .filter(|queue| queue.pasid == pasid)
            .count()
    }

    /// VMIDs that were given to processes by registers.
    pub(super) fn tenants(&self) -> usize {
        self.inner.state.lock().regs.vmids.iter().flatten().count()
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

    /// Takes memory away: its block ends at `addr` from now on.
    pub(super) fn cut(&self, addr: u64) -> bool {
        let found = self.inner.find(addr);
        found.is_some_and(|(block, offset)| {
            block.cut(offset);
            true
        })
    }

    /// Microseconds that passed.
    pub(super) fn elapsed(&self) -> u64 {
        self.inner.clock.load(Relaxed)
    }

    /// Who calls.
    pub(super) fn callers(&self) -> &Callers {
        &self.inner.callers
    }

    /// Lets time pass.
    pub(super) fn pass(&self, us: u64) {
        self.inner.clock.add(us, Relaxed);
    }

    /// The next pause takes the caller so many microseconds longer, in which the firmware has no time either.
    pub(super) fn stall(&self, us: u64) {
        self.inner.stall.store(us, Relaxed);
    }

    /// Lines that were warned of and contain `part`.
    pub(super) fn warnings(&self, part: &str) -> usize {
        let state = self.inner.state.lock();
        let text = core::str::from_utf8(&state.warnings).unwrap_or("");
        text.lines().filter(|line| line.contains(part)).count()
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
        state.listed.clear();
        state.mapped.clear();
        state.held = None;
        state.regs = Registers::new();
    }
}
