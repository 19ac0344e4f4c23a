// SPDX-License-Identifier: GPL-2.0

//! The kernel interface queue: a ring that the firmware serves for the driver alone.
//!
//! It is the one queue that is loaded by registers ([`slot`]). Through it the driver connects the
//! scheduler's queue (HIQ) and asks for TLB flushes by address space. Submissions are synchronous: each
//! ends with a fence and waits for it, so the ring is empty between them.
//!
//! A firmware that does not answer in time is not waited for again: a caller that needs it gets `EIO` at once or
//! takes a path through registers. It may answer later, for its engine waited for memory, or is that of
//! a model on a busy host. When the fence has come after all, the ring is empty and the queue is used
//! again.
//!
//! Source: `gfx_v9_0.c` (`mqd_init`, `ring_test_ring`), `amdgpu_amdkfd_gfx_v9.c` (`hiq_mqd_load`),
//! `amdgpu_amdkfd.c` (`unmap_hiq`).
//!
//! Lock order: [`Kiq::state`] is held while waiting for the fence, and comes before the bank lock
//! and everything innermost.

use kernel::{
    new_mutex,
    prelude::*,
    sync::Mutex, //
};

use super::{
    access::Hw,
    gart::{
        Gart,
        GartBuffer, //
    },
    gfx, //
};
use crate::{
    hw::{
        asic::EOP_BYTES,
        doorbell::{
            DoorbellLayout,
            DoorbellOffset, //
        },
        mqd::{
            self,
            ComputeMqd,
            Eop,
            QueueConfig,
            QueueFormat, //
        },
        num::index,
        pm4::{
            DoorbellList,
            InvalidateTlbs,
            MapQueues,
            MapTarget,
            SetUconfigReg,
            UnmapAction,
            UnmapFilter,
            UnmapQueues,
            WriteMem,
            NOP_ONE, //
        },
        regs::{
            gc::{
                self,
                RlcCpSchedulers, //
            },
            hqd::Slot,
            hub::FlushType, //
        },
        timeouts::KIQ_MS, //
    },
    kapi::log::dev_limited, //
};

mod slot;

/// What one buffer holds, by byte offset: each part has a page.
const RING: usize = 0;
const EOP: usize = 0x1000;
const MQD: usize = 0x2000;
const POINTERS: usize = 0x3000;
const BUFFER: usize = 0x4000;
/// The pointers page.
const RPTR: usize = POINTERS;
const WPTR: usize = POINTERS + 8;
const FENCE: usize = POINTERS + 16;

/// Ring in bytes.
const RING_BYTES: u32 = 4096;
const RING_DWORDS: usize = index(RING_BYTES) / 4;
/// Longest submission without its fence.
const MAX_DWORDS: usize = 64;

/// What the ring test writes before and expects after (`gfx_v9_0_ring_test_ring`).
const TEST_BEFORE: u32 = 0xcafe_dead;
const TEST_AFTER: u32 = 0xdead_beef;

/// Whether the firmware serves the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    /// It has answered so far.
    Up,
    /// It has not answered the last submission in time.
    Late,
    /// The queue was not started, or was given up.
    Out,
}

struct State {
    /// Ring, EOP buffer, MQD and pointers; `None` after the queue was taken down.
    memory: Option<GartBuffer>,
    /// Dwords written since the start, not wrapped.
    wptr: u64,
    /// Last fence value.
    sequence: u32,
    service: Service,
}

impl State {
    /// Whether the firmware serves the queue, as far as is known.
    fn is_ready(&self) -> bool {
        let Some(memory) = &self.memory else {
            return false;
        };
        match self.service {
            Service::Up => true,
            // The fence is behind all that was submitted: the ring is empty.
            Service::Late => memory.read32(FENCE) == Ok(self.sequence),
            Service::Out => false,
        }
    }
}

/// Counters of the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KiqStatus {
    /// Dwords written since the start.
    pub(crate) wptr: u64,
    /// Read pointer that the firmware reported last, in dwords of the ring.
    pub(crate) rptr: u32,
    /// Submissions.
    pub(crate) submissions: u32,
    /// The queue is out of service: the firmware has not answered in time, or was not asked to start it.
    pub(crate) stuck: bool,
}

/// The kernel interface queue of one GPU.
#[pin_data]
pub(crate) struct Kiq {
    #[pin]
    state: Mutex<State>,
    doorbell: DoorbellOffset,
}

impl Kiq {
    /// Allocates the queue's memory.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENOSPC`, and what [`Gart::alloc`] reports.
    pub(super) fn new(
        hw: &Hw,
        gart: &Gart,
        layout: &DoorbellLayout,
    ) -> Result<impl PinInit<Self, Error>> {
        let memory = gart.alloc(hw, BUFFER)?;
        let doorbell = DoorbellOffset::kernel(layout.kiq);
        Ok(try_pin_init!(Self {
            state <- new_mutex!(
                State { memory: Some(memory), wptr: 0, sequence: 0, service: Service::Out },
                "rkfd_kiq"
            ),
            doorbell,
        }? Error))
    }

    /// Writes the queue's descriptor, loads it by registers and proves that it works.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the queue does not start or the test does not come back, `EIO` if the device
    /// is lost.
    pub(super) fn start(&self, hw: &Hw) -> Result {
        let mut state = self.state.lock();
        let memory = state.memory.as_ref().ok_or(ENODEV)?;
        let mqd = self.describe(hw, memory)?;
        // The first packet must not meet what an earlier owner of the page left; it is zeroed.
        memory.fill_dwords(RING, RING_DWORDS, NOP_ONE)?;
        // Nor an earlier life of the queue: the descriptor starts at 0.
        memory.write64(RPTR, 0)?;
        memory.write64(WPTR, 0)?;
        let mut stored = Ok(());
        mqd.write(|dw, value| {
            let result = memory.write32(MQD + 4 * dw, value);
            if stored.is_ok() {
                stored = result;
            }
        });
        stored?;
        slot::load(hw, Slot::KIQ, &mqd)?;
        gfx::enable_doorbells(hw);
        state.wptr = 0;
        state.service = Service::Up;
        self.ring_test(hw, &mut state).inspect_err(|e| {
            // The caller that starts it gives up; a late answer changes nothing.
            state.service = Service::Out;
            dev_err!(
                hw.dev(),
                "KIQ ring test failed: {:?}; is MEC firmware loaded?\n",
                e
            )
        })
    }

    fn describe(&self, hw: &Hw, memory: &GartBuffer) -> Result<ComputeMqd> {
        // CAST: Offsets inside the buffer.
        let at = |offset: usize| memory.gpu_addr() + offset as u64;
        let config = QueueConfig {
            mqd: at(MQD),
            ring: at(RING),
            ring_bytes: RING_BYTES,
            rptr_report: at(RPTR),
            wptr_poll: at(WPTR),
            eop: Some(Eop {
                base: at(EOP),
                bytes: EOP_BYTES,
            }),
            ..QueueConfig::new(QueueFormat::Kiq, self.doorbell)
        };
        ComputeMqd::new(hw.asic(), config).map_err(|e| {
            dev_err!(
                hw.dev(),
                "KIQ cannot be described: {}\n",
                format_args!("{e}")
            );
            EINVAL
        })
    }

    /// Lets the firmware write a register and looks.
    fn ring_test(&self, hw: &Hw, state: &mut State) -> Result {
        hw.write(gc::SCRATCH_REG0, TEST_BEFORE);
        let packet = SetUconfigReg {
            reg: gc::SCRATCH_REG0,
            value: TEST_AFTER,
        };
        self.submit_locked(hw, state, &packet.encode().map_err(|_| EINVAL)?)?;
        let value = hw.read(gc::SCRATCH_REG0);
        if value != TEST_AFTER {
            dev_err!(
                hw.dev(),
                "SCRATCH_REG0 reads {:#x} after the KIQ's fence\n",
                value
            );
            return Err(EIO);
        }
        Ok(())
    }

    /// Runs the ring test once more.
    ///
    /// # Errors
    ///
    /// As [`Kiq::submit`]; `EIO` if the register was not written.
    #[cfg(rkfd_kunit)]
    pub(crate) fn test(&self, hw: &Hw) -> Result {
        self.ring_test(hw, &mut self.state.lock())
    }

    /// Runs packets and waits until they are done. Sleeps.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: too many dwords.
    /// - `ETIMEDOUT`: the firmware does not answer; the queue is out of service until it does.
    /// - `EIO`: the queue is out of service, or the device lost.
    /// - `ENODEV`: the queue was taken down.
    pub(crate) fn submit(&self, hw: &Hw, packets: &[u32]) -> Result {
        self.submit_locked(hw, &mut self.state.lock(), packets)
    }

    fn submit_locked(&self, hw: &Hw, state: &mut State, packets: &[u32]) -> Result {
        if packets.len() > MAX_DWORDS {
            return Err(EINVAL);
        }
        if hw.is_lost() || !state.is_ready() {
            return Err(EIO);
        }
        if state.service == Service::Late {
            dev_info!(hw.dev(), "KIQ has answered late; it is used again\n");
            state.service = Service::Up;
        }
        let memory = state.memory.as_ref().ok_or(ENODEV)?;
        let sequence = state.sequence.wrapping_add(1);
        let fence = WriteMem {
            // CAST: An offset inside the buffer.
            address: memory.gpu_addr() + FENCE as u64,
            value: sequence,
            high: None,
            confirm: true,
        };
        let words = fence.encode().map_err(|_| EINVAL)?;
        let fence_words = words.get(..fence.dwords()).ok_or(EINVAL)?;

        let mut wptr = put(memory, state.wptr, packets)?;
        wptr = put(memory, wptr, fence_words)?;
        memory.write64(WPTR, wptr)?;
        hw.doorbell64(self.doorbell.byte(), wptr);
        let result = hw.wait(KIQ_MS * 1000, || {
            Ok((memory.read32(FENCE)? == sequence).then_some(()))
        });
        let rptr = memory.read32(RPTR);
        state.wptr = wptr;
        state.sequence = sequence;
        result.inspect_err(|e| {
            state.service = Service::Late;
            dev_err!(
                hw.dev(),
                "KIQ does not answer: {:?}; written {:#x}, read {:#x} dwords\n",
                e,
                wptr,
                rptr.unwrap_or(u32::MAX)
            );
        })
    }

    /// Connects the HIQ, whose descriptor and write pointer are at the given addresses of VMID 0.
    ///
    /// # Errors
    ///
    /// `EINVAL` for addresses that are not aligned; otherwise as [`Kiq::submit`].
    pub(crate) fn map_hiq(&self, hw: &Hw, mqd: u64, wptr: u64, doorbell: DoorbellOffset) -> Result {
        let packet = MapQueues {
            target: MapTarget::KiqHiq { slot: Slot::HIQ },
            doorbell,
            mqd,
            wptr,
        };
        self.submit(hw, &packet.encode().map_err(|_| EINVAL)?)
    }

    /// Disconnects the HIQ, by the KIQ or, failing that, by registers.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the slot stays active, `EIO` if the device is lost.
    pub(crate) fn unmap_hiq(&self, hw: &Hw, doorbell: DoorbellOffset) -> Result {
        let packet = UnmapQueues {
            action: UnmapAction::Reset,
            filter: UnmapFilter::Doorbells(DoorbellList::one(doorbell)),
        };
        match self.submit(hw, &packet.encode()) {
            // Of a device that is lost it was said.
            Err(e) if hw.check_alive().is_ok() => {
                dev_limited!(dev_warn, hw.dev(), "KIQ cannot unmap the HIQ: {:?}\n", e);
            }
            _ => {}
        }
        // The firmware may ignore the packet, for the HIQ is no ordinary queue.
        hw.modify(gc::RLC_CP_SCHEDULERS, |raw| {
            RlcCpSchedulers::from_raw(raw)
                .with(RlcCpSchedulers::SCHEDULER1, 0)
                .raw()
        });
        slot::dequeue(hw, Slot::HIQ)
    }

    /// Asks the firmware to drop what both hubs cache for `pasid`, and waits for it. Returns whether
    /// it did: `false` says that the queue is out of service and nothing was asked.
    ///
    /// Whether the queue is in service is looked at under the same lock as the submission, for it
    /// may go out of service at any time: by the failure of another submission, or a reset.
    ///
    /// # Errors
    ///
    /// As [`Kiq::submit`], except for a queue that is out of service.
    pub(super) fn invalidate_tlbs(&self, hw: &Hw, pasid: u16, flush: FlushType) -> Result<bool> {
        let packet = InvalidateTlbs {
            pasid,
            flush,
            all_hubs: true,
        };
        let mut state = self.state.lock();
        if !state.is_ready() {
            return Ok(false);
        }
        self.submit_locked(hw, &mut state, &packet.encode())?;
        Ok(true)
    }

    /// Whether submissions can succeed at this moment.
    #[cfg(rkfd_kunit)]
    pub(crate) fn is_ready(&self) -> bool {
        self.state.lock().is_ready()
    }

    /// Counters.
    pub(crate) fn status(&self) -> KiqStatus {
        let state = self.state.lock();
        let rptr = state.memory.as_ref().and_then(|m| m.read32(RPTR).ok());
        KiqStatus {
            wptr: state.wptr,
            rptr: rptr.unwrap_or(0),
            submissions: state.sequence,
            stuck: !state.is_ready(),
        }
    }

    /// Gives the queue up without asking it, before its engine is reset. [`Kiq::start`] brings it
    /// back.
    pub(super) fn abandon(&self, hw: &Hw) {
        self.state.lock().service = Service::Out;
        slot::clear_schedulers(hw);
    }

    /// Takes the queue down, if it is up.
    pub(super) fn stop(&self, hw: &Hw) {
        let mut state = self.state.lock();
        if state.memory.is_none() || hw.is_lost() {
            return;
        }
        match slot::unload(hw, Slot::KIQ) {
            // The loss of the device was reported once already.
            Err(e) if !hw.is_lost() => dev_warn!(hw.dev(), "KIQ does not stop: {:?}\n", e),
            _ => {}
        }
        state.service = Service::Out;
    }

    /// Frees the queue's memory; the engine must not run any more.
    pub(super) fn release(&self) {
        let memory = self.state.lock().memory.take();
        drop(memory);
    }
}

/// Copies a packet to the ring at `wptr`, which must not wrap inside it: a gap at the end is filled.
/// Returns the new write pointer.
fn put(memory: &GartBuffer, wptr: u64, packet: &[u32]) -> Result<u64> {
    // CAST: The mask leaves less than the ring's length.
    let position = (wptr & (RING_DWORDS as u64 - 1)) as usize;
    let left = RING_DWORDS - position;
    if packet.len() <= left {
        memory.write_dwords(RING + 4 * position, packet)?;
        // CAST: `usize` is at most 64 bits wide.
        return Ok(wptr + packet.len() as u64);
    }
    memory.fill_dwords(RING + 4 * position, left, NOP_ONE)?;
    memory.write_dwords(RING, packet)?;
    // CAST: `usize` is at most 64 bits wide.
    Ok(wptr + (left + packet.len()) as u64)
}

const _: () = assert!(
    MQD + mqd::COMPUTE_BYTES + 16 <= POINTERS && RING_DWORDS >= 4 * MAX_DWORDS,
    "the parts of the buffer do not overlap"
);
