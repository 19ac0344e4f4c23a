// SPDX-License-Identifier: GPL-2.0

//! The register side of the fake device: hardware slots, SDMA blocks and VMIDs, for a scheduler
//! that works without firmware. It keeps the same set of mapped queues as the firmware does.

use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};

use super::fake::{
    number,
    Event,
    Fake,
    Inner,
    Mapped,
    Mode,
    State, //
};
use crate::{
    gpu::vmid::VmidContext,
    hw::{
        doorbell::DoorbellOffset,
        mqd::layout::compute as at,
        num::{
            index,
            join, //
        },
        regs::{
            gc::CP_PQ_WPTR_POLL_CNTL1,
            hqd::{
                self,
                DoorbellControl,
                EopRptr,
                HqdVmid,
                Slot,
                WINDOW, //
            },
            sdma::{
                Block,
                ContextStatus,
                Doorbell,
                RbCntl,
                RLC_QUEUES, //
            },
            Reg, //
        }, //
    }, //
};

/// Words that a queue advances while it is loaded, so that a saved pointer can be told.
pub(super) const STEP: u32 = 16;

/// Registers of the fake device.
pub(super) struct Registers {
    /// The window of each slot, as far as it was written.
    window: KVec<(u32, Reg, u32)>,
    /// Slots whose write pointer was fetched from memory.
    polled: u64,
    /// Unbanked registers.
    plain: KVec<(Reg, u32)>,
    /// What each VMID stands for.
    pub(super) vmids: [Option<VmidContext>; 16],
    /// A slot whose queue takes its time to leave, and when it has left, microseconds.
    leaving: Option<(Slot, u64)>,
}

impl Registers {
    pub(super) const fn new() -> Self {
        Self {
            window: KVec::new(),
            polled: 0,
            plain: KVec::new(),
            vmids: [None; 16],
            leaving: None,
        }
    }

    /// Whether the driver works by registers.
    pub(super) fn in_use(&self) -> bool {
        !self.window.is_empty() || !self.plain.is_empty()
    }

    pub(super) fn slot(&self, slot: Slot, reg: Reg) -> u32 {
        let mut words = self.window.iter();
        words
            .find(|(bit, at, _)| *bit == slot.bit() && *at == reg)
            .map_or(0, |(_, _, value)| *value)
    }

    fn set_slot(&mut self, slot: Slot, reg: Reg, value: u32) {
        let mut words = self.window.iter_mut();
        let found = words.find(|(bit, at, _)| *bit == slot.bit() && *at == reg);
        match found {
            Some((_, _, word)) => *word = value,
            None => {
                let _ = self.window.push((slot.bit(), reg, value), GFP_KERNEL);
            }
        }
    }

    pub(super) fn plain(&self, reg: Reg) -> u32 {
        let found = self.plain.iter().find(|(at, _)| *at == reg);
        found.map_or(0, |(_, value)| *value)
    }

    pub(super) fn set_plain(&mut self, reg: Reg, value: u32) {
        match self.plain.iter_mut().find(|(at, _)| *at == reg) {
            Some((_, word)) => *word = value,
            None => {
                let _ = self.plain.push((reg, value), GFP_KERNEL);
            }
        }
    }
}

/// Number of the doorbell with dword index `dword`.
fn doorbell_of(dword: u32) -> u32 {
    DoorbellOffset::from_dword(dword).map_or(0, number)
}

impl Inner {
    fn slot_doorbell(state: &State, slot: Slot) -> u32 {
        let control = state.regs.slot(slot, hqd::CP_HQD_PQ_DOORBELL_CONTROL);
        DoorbellControl::from_raw(control).get(DoorbellControl::OFFSET)
    }

    pub(super) fn write_banked(&self, state: &mut State, slot: Slot, writes: &[(Reg, u32)]) {
        for (reg, value) in writes {
            if *reg == CP_PQ_WPTR_POLL_CNTL1 {
                if *value != slot.poll_mask() {
                    self.breach(state, "fetches the write pointer of another slot");
                }
                state.regs.polled |= 1 << slot.bit();
                continue;
            }
            if !WINDOW.iter().any(|entry| entry.reg == *reg) {
                self.breach(state, "banked write outside the window");
            }
            let was = state.regs.slot(slot, *reg);
            state.regs.set_slot(slot, *reg, *value);
            match *reg {
                hqd::CP_HQD_ACTIVE if was == 0 && *value == 1 => self.start(state, slot),
                hqd::CP_HQD_DEQUEUE_REQUEST if *value != 0 => self.dequeue(state, slot, *value),
                _ => {}
            }
        }
    }

    fn start(&self, state: &mut State, slot: Slot) {
        let word = |reg| state.regs.slot(slot, reg);
        let vmid = HqdVmid::from_raw(word(hqd::CP_HQD_VMID)).get(HqdVmid::VMID);
        let control = DoorbellControl::from_raw(word(hqd::CP_HQD_PQ_DOORBELL_CONTROL));
        let fetcher = EopRptr::from_raw(word(hqd::CP_HQD_EOP_RPTR));
        let mqd = join(word(hqd::CP_MQD_BASE_ADDR), word(hqd::CP_MQD_BASE_ADDR_HI));
        let request = word(hqd::CP_HQD_DEQUEUE_REQUEST);
        let polled = state.regs.polled & 1 << slot.bit() != 0;
        for (bad, what) in [
            (
                !control.is_set(DoorbellControl::EN),
                "queue without doorbell",
            ),
            (
                !fetcher.is_set(EopRptr::INIT_FETCHER),
                "EOP fetcher does not start",
            ),
            (request != 0, "queue starts with a request to leave"),
            (!polled, "write pointer was not fetched"),
            (self.load(mqd).is_none(), "descriptor in freed memory"),
            (
                self.is_dirty(mqd),
                "descriptor in VRAM written and not flushed",
            ),
        ] {
            if bad {
                self.breach(state, what);
            }
        }
        let doorbell = doorbell_of(control.get(DoorbellControl::OFFSET));
        self.connect(state, vmid, doorbell);
    }

    fn connect(&self, state: &mut State, vmid: u32, doorbell: u32) {
        let tenant = state.regs.vmids.get(index(vmid)).copied().flatten();
        let Some(context) = tenant else {
            self.breach(state, "queue of a VMID without address space");
            return;
        };
        if state.mapped.iter().any(|queue| queue.doorbell == doorbell) {
            self.breach(state, "queue loaded twice");
        }
        let queue = Mapped {
            pasid: context.pasid,
            doorbell,
            fixed: false,
            engine: None,
        };
        let _ = state.mapped.push(queue, GFP_KERNEL);
        self.note(state, Event::Load { vmid, doorbell });
    }

    fn dequeue(&self, state: &mut State, slot: Slot, request: u32) {
        let dword = Self::slot_doorbell(state, slot);
        self.note(state, Event::Dequeue(doorbell_of(dword), request));
        match state.mode {
            Mode::Refuses(refuses) | Mode::Stubborn(refuses) if refuses == dword => return,
            Mode::Slow(us) => {
                state.mode = Mode::Good;
                state.regs.leaving = Some((slot, self.clock.load(Relaxed) + us));
                return;
            }
            _ => {}
        }
        self.leave(state, slot);
    }

    /// Ends the time of a queue that leaves its slot slowly.
    pub(super) fn end_leaving(&self, state: &mut State) {
        let now = self.clock.load(Relaxed);
        if let Some((slot, _)) = state.regs.leaving.take_if(|(_, until)| *until <= now) {
            self.leave(state, slot);
        }
    }

    /// The queue in a slot saves what it did, and leaves.
    fn leave(&self, state: &mut State, slot: Slot) {
        // What the queue did while it was loaded.
        let rptr = state.regs.slot(slot, hqd::CP_HQD_PQ_RPTR) + STEP;
        for reg in [hqd::CP_HQD_PQ_RPTR, hqd::CP_HQD_PQ_WPTR_LO] {
            state.regs.set_slot(slot, reg, rptr);
        }
        let mqd = join(
            state.regs.slot(slot, hqd::CP_MQD_BASE_ADDR),
            state.regs.slot(slot, hqd::CP_MQD_BASE_ADDR_HI),
        );
        for entry in WINDOW
            .iter()
            .filter(|entry| entry.mqd_dw >= at::CP_HQD_ACTIVE)
        {
            let word = state.regs.slot(slot, entry.reg);
            self.store(mqd + entry.mqd_dw as u64 * 4, word); // CAST: A small index.
        }
        self.disconnect(state, slot);
    }

    fn disconnect(&self, state: &mut State, slot: Slot) {
        let doorbell = doorbell_of(Self::slot_doorbell(state, slot));
        state.mapped.retain(|queue| queue.doorbell != doorbell);
        state.regs.set_slot(slot, hqd::CP_HQD_ACTIVE, 0);
        state.regs.polled &= !(1 << slot.bit());
    }

    pub(super) fn reset_banked(&self, state: &mut State, slot: Slot) -> Result {
        let dword = Self::slot_doorbell(state, slot);
        self.note(state, Event::Reset(doorbell_of(dword)));
        match state.mode {
            Mode::Stubborn(stubborn) if stubborn == dword => return Err(ETIMEDOUT),
            Mode::Refuses(refuses) if refuses == dword => state.mode = Mode::Good,
            _ => {}
        }
        self.disconnect(state, slot);
        Ok(())
    }

    pub(super) fn write_plain(&self, state: &mut State, reg: Reg, value: u32) {
        let was = state.regs.plain(reg);
        state.regs.set_plain(reg, value);
        let Some(block) = self.block(|block| block.rb_cntl() == reg) else {
            return;
        };
        let enabled = |raw| RbCntl::from_raw(raw).is_set(RbCntl::RB_ENABLE);
        let doorbell = doorbell_of(state.regs.plain(block.doorbell_offset()) >> 2);
        match (enabled(was), enabled(value)) {
            (false, true) => {
                let control = Doorbell::from_raw(state.regs.plain(block.doorbell()));
                if !control.is_set(Doorbell::ENABLE) {
                    self.breach(state, "SDMA queue without doorbell");
                }
                if state.regs.plain(block.rb_wptr_poll_cntl()) & 4 == 0 {
                    self.breach(state, "SDMA queue does not look for its write pointer");
                }
                let vmid = RbCntl::from_raw(value).get(RbCntl::RB_VMID);
                self.connect(state, vmid, doorbell);
            }
            (true, false) => {
                let rptr = state.regs.plain(block.rb_rptr()) + STEP;
                state.regs.set_plain(block.rb_rptr(), rptr);
                state.mapped.retain(|queue| queue.doorbell != doorbell);
                self.note(state, Event::Dequeue(doorbell, 0));
            }
            _ => {}
        }
    }

    pub(super) fn read_plain(&self, state: &State, reg: Reg) -> u32 {
        match self.block(|block| block.context_status() == reg) {
            Some(block) => {
                let dword = state.regs.plain(block.doorbell_offset()) >> 2;
                let busy = state.mode == Mode::Stubborn(dword);
                ContextStatus::new()
                    .with_flag(ContextStatus::IDLE, !busy)
                    .raw()
            }
            None => state.regs.plain(reg),
        }
    }

    /// What a copy engine shows of the queues that the firmware mapped there: the n-th is in context n.
    pub(super) fn read_copy(&self, state: &State, reg: Reg) -> u32 {
        for number in 0..self.asic.sdma_engines() {
            let Some(engine) = self.asic.sdma.engine(number) else {
                continue;
            };
            for (queue, block) in (0..RLC_QUEUES).filter_map(|n| Some((n, engine.rlc(n)?))) {
                let left = |number| state.held.is_some_and(|held| held.has_left(number));
                let mapped = state.mapped.iter();
                let queue = mapped
                    .filter(|queue| queue.engine == Some(number))
                    .nth(index(queue))
                    .filter(|queue| !left(queue.doorbell));
                let busy = |queue: &Mapped| {
                    let dword = super::fake::doorbell(queue.doorbell).dword();
                    state.held.is_some_and(|held| held.refused == Some(dword))
                };
                if reg == block.rb_cntl() {
                    // The firmware has asked all at once.
                    let enabled = queue.is_some() && state.held.is_none();
                    return RbCntl::new().with_flag(RbCntl::RB_ENABLE, enabled).raw();
                }
                if reg == block.context_status() {
                    let idle = !queue.is_some_and(busy);
                    return ContextStatus::new()
                        .with_flag(ContextStatus::IDLE, idle)
                        .raw();
                }
                if reg == block.doorbell_offset() {
                    return queue.map_or(0, |queue| {
                        super::fake::doorbell(queue.doorbell).dword() << 2
                    });
                }
            }
        }
        0
    }

    fn block(&self, wanted: impl Fn(&Block) -> bool) -> Option<Block> {
        (0..self.asic.sdma_engines())
            .filter_map(|number| self.asic.sdma.engine(number))
            .flat_map(|engine| (0..RLC_QUEUES).filter_map(move |queue| engine.rlc(queue)))
            .find(wanted)
    }

    pub(super) fn bind(&self, state: &mut State, vmid: u32, context: &VmidContext) {
        if !self.asic.owns_vmid(vmid) {
            self.breach(state, "VMID of somebody else");
        }
        let mut tenants = state.regs.vmids.iter().flatten();
        if tenants.any(|tenant| tenant.pasid == context.pasid) {
            self.breach(state, "PASID with two VMIDs");
        }
        match state.regs.vmids.get_mut(index(vmid)) {
            Some(tenant @ None) => *tenant = Some(*context),
            _ => self.breach(state, "VMID is taken"),
        }
        self.note(state, Event::Bind(vmid, context.pasid));
    }

    pub(super) fn unbind(&self, state: &mut State, vmid: u32) {
        let tenant = state.regs.vmids.get_mut(index(vmid)).and_then(Option::take);
        // At its start the driver takes back what it does not know to be in use.
        let Some(context) = tenant else {
            return;
        };
        if state
            .mapped
            .iter()
            .any(|queue| queue.pasid == context.pasid)
        {
            self.breach(state, "VMID given back while a queue uses it");
        }
        self.note(state, Event::Unbind(vmid));
    }
}

/// What a test has the registers show.
impl Fake {
    /// Sets the pointers of the queue with doorbell `n`, as the registers show them.
    pub(super) fn set_pointers(&self, n: u32, rptr: u32, wptr: u32) -> Result {
        let mut state = self.inner.state.lock();
        state.pointers.retain(|(doorbell, _, _)| *doorbell != n);
        Ok(state.pointers.push((n, rptr, wptr), GFP_KERNEL)?)
    }

    /// Whether the hardware marks the ring of the queue with doorbell `n` as empty.
    pub(super) fn mark_empty(&self, n: u32, empty: bool) -> Result {
        let mut state = self.inner.state.lock();
        state.empty.retain(|doorbell| *doorbell != n);
        if empty {
            state.empty.push(n, GFP_KERNEL)?;
        }
        Ok(())
    }

    /// Says that the queue with doorbell `n` is at dword `at` of an indirect buffer.
    pub(super) fn enter_buffer(&self, n: u32, at: u32) -> Result {
        let mut state = self.inner.state.lock();
        state.buffers.retain(|(doorbell, _)| *doorbell != n);
        Ok(state.buffers.push((n, at), GFP_KERNEL)?)
    }

    /// Sets the write pointer of an SDMA queue that was loaded by registers.
    pub(super) fn set_sdma_wptr(&self, engine: u32, queue: u32, wptr: u32) -> Result {
        let engine = self.inner.asic.sdma.engine(engine).ok_or(EINVAL)?;
        let block = engine.rlc(queue).ok_or(EINVAL)?;
        let mut state = self.inner.state.lock();
        state.regs.set_plain(block.rb_wptr(), wptr);
        Ok(())
    }
}
