// SPDX-License-Identifier: GPL-2.0

//! The kernel's copy engine: a ring of the driver's own on an SDMA engine.
//!
//! It is the engine's GFX context, in VMID 0, which sees VRAM untranslated and system memory through the GART. Each job
//! is a few packets, a FENCE that stores the job's number, and a TRAP, whose interrupt lets [`CopyEngine::retire`]
//! signal the fences of the jobs that are done. A waiter looks at the number in memory now and then, so that a
//! lost interrupt costs time only.
//!
//! # When memory may go
//!
//! The memory of a job is the engine's until its fence is signalled ([`InFlight`]). `Ok` and `ECANCELED` say that the
//! engine does not touch it any more: the job is done, or was not begun or ended half way by an engine that is at
//! rest. After any other error it may still be written, unless the device is lost.
//!
//! # Life
//!
//! [`CopyEngine::start`] begins with an empty ring, [`CopyEngine::stop`] waits for what is in it, for a bounded time, and
//! disables it: before a reset of the engines, before a sleep, at the end, and after a job that took too long. In
//! between a stop and a start submissions are refused, and the caller does without (`EBUSY`).
//!
//! Lock order: [`CopyEngine::state`] comes after the locks of the interrupt rings and before the hardware's. Fences are
//! signalled under it, so nothing is allocated under it, and no fence is waited for.
//!
//! Source: `sdma_v4_0.c` (`gfx_resume`, `gfx_enable`, `ring_emit_fence`, `emit_fill_buffer`).

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        MutexGuard, //
    },
    time::msecs_to_jiffies, //
};

use super::{
    access::Hw,
    gart::{
        Gart,
        GartBuffer, //
    }, //
};
use crate::{
    hw::{
        asic::AsicDesc,
        bits::Overflow,
        doorbell::DoorbellOffset,
        num::{
            hi32,
            index,
            lo32, //
        },
        regs::sdma::{
            Block,
            ContextStatus,
            Doorbell,
            DoorbellOffset as OffsetReg,
            RbCntl,
            WptrPollCntl, //
        },
        sdma::{
            self,
            fence,
            trap, //
        },
        timeouts::{
            COPY_MS,
            SDMA_IDLE_MS, //
        }, //
    },
    kapi::{
        fence::{
            Fence,
            FenceContext,
            FenceMemory,
            PendingFence,
            Signalling, //
        },
        log::dev_limited, //
    },
};

/// The SDMA engine that has the ring (`amdgpu_ttm_set_buffer_funcs_status` takes the first, too).
const ENGINE: u32 = 0;

/// What the buffer holds, by byte offset.
const RING: usize = 0;
const RING_BYTES: u32 = 16 << 10;
const RING_DWORDS: usize = index(RING_BYTES) / 4;
const RPTR: usize = RING + index(RING_BYTES);
const NUMBER: usize = RPTR + 8;
const BUFFER: usize = RPTR + 0x1000;

/// Jobs in the ring.
const MAX_JOBS: usize = 32;
/// Bytes that one job fills or copies at most.
pub(crate) const JOB_BYTES: u64 = 16 << 20;
/// Copies of one job that have nothing to do with each other.
pub(crate) const MAX_PARTS: usize = 16;
/// Bytes of each of them at most; any engine copies as many with one packet.
pub(crate) const PART_BYTES: u64 = 2 << 20;
/// Dwords of a job: COPY packets, which are longer than those of CONST_FILL, FENCE and TRAP.
const JOB_DWORDS: usize = MAX_PARTS * 7 + 4 + 2;
/// RPTR_WRITEBACK_TIMER after a reset, which amdgpu keeps (`sdma0_4_0_default.h`).
const WRITEBACK_TIMER: u32 = 4;
/// Pause between two looks at the number in memory, should interrupts get lost.
const LOOK_MS: u32 = 20;

/// A part of a job: a copy between two addresses of VMID 0, which do not overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CopyPart {
    /// Source.
    pub(crate) from: u64,
    /// Destination.
    pub(crate) to: u64,
    /// Not more than [`PART_BYTES`].
    pub(crate) bytes: u64,
}

/// A job that was handed over.
struct Job {
    fence: PendingFence,
    /// Where the ring goes on behind it, in dwords, not wrapped.
    end: u64,
}

struct State {
    /// Ring, read pointer and number; `None` after the engine was taken down.
    memory: Option<GartBuffer>,
    running: bool,
    /// A context that did not come to rest may still run what it was given, though nothing starts it.
    at_rest: bool,
    /// Dwords written since the start, not wrapped.
    wptr: u64,
    /// Dwords whose jobs are done.
    done: u64,
    /// Number of the last job.
    number: u32,
    /// Fences made since the driver was bound.
    fences: u64,
    /// The last of the numbers, in order, oldest first. Has room for [`MAX_JOBS`].
    jobs: KVec<Job>,
}

/// Counters of the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyStatus {
    /// Dwords written since the start.
    pub(crate) written: u64,
    /// Dwords of jobs that are done.
    pub(crate) done: u64,
    /// Jobs since the driver was bound.
    pub(crate) jobs: u64,
    /// The engine takes jobs.
    pub(crate) ready: bool,
}

/// The kernel's ring on one GPU.
#[pin_data]
pub(crate) struct CopyEngine {
    block: Block,
    doorbell: DoorbellOffset,
    long_count: bool,
    context: FenceContext,
    #[pin]
    state: Mutex<State>,
}

impl CopyEngine {
    /// Allocates the ring's memory.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENOSPC`, and what [`Gart::alloc`] reports; `ENODEV` if the ASIC has no SDMA engine.
    pub(super) fn new(hw: &Hw, gart: &Gart) -> Result<Arc<Self>> {
        let asic: &'static AsicDesc = hw.asic();
        let engine = asic.sdma.engine(ENGINE).ok_or(ENODEV)?;
        let state = State {
            memory: Some(gart.alloc(hw, BUFFER)?),
            running: false,
            at_rest: true,
            wptr: 0,
            done: 0,
            number: 0,
            fences: 0,
            jobs: KVec::with_capacity(MAX_JOBS, GFP_KERNEL)?,
        };
        Arc::pin_init(
            pin_init!(Self {
                block: engine.gfx(),
                doorbell: DoorbellOffset::kernel(asic.doorbell.sdma_base(ENGINE)),
                long_count: asic.sdma.long_count,
                context: FenceContext::new(),
                state <- new_mutex!(state, "rkfd_copy"),
            }),
            GFP_KERNEL,
        )
    }

    /// Enables the ring and proves that it works. The SDMA engine must run.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the engine does not answer, `EIO` if the device is lost or the context never came to rest.
    pub(super) fn start(&self, hw: &Hw) -> Result {
        let mut state = self.state.lock();
        if !state.at_rest && !is_idle(hw, &self.block) {
            return Err(EIO);
        }
        let memory = state.memory.as_ref().ok_or(ENODEV)?;
        // Nothing of an earlier life is executed or taken for an answer.
        memory.fill_dwords(RING, RING_DWORDS, sdma::NOP)?;
        memory.write64(RPTR, 0)?;
        memory.write32(NUMBER, state.number)?;
        // CAST: An offset inside the buffer.
        let report = memory.gpu_addr() + RPTR as u64;
        enable(hw, &self.block, memory.gpu_addr(), report, self.doorbell);
        state.wptr = 0;
        state.done = 0;
        state.running = true;
        state.at_rest = false;
        drop(state);
        // Without an interrupt, as no thread waits for one.
        let test = self.submit(hw, &[], false)?;
        self.wait(hw, &test).inspect_err(|e| {
            // The loss of the device was reported once already.
            if !hw.is_lost() {
                dev_err!(
                    hw.dev(),
                    "the copy engine does not answer: {:?}; is SDMA firmware loaded?\n",
                    e
                );
            }
        })
    }

    /// Takes no more jobs, waits for those that were handed over, and disables the ring. Fences of jobs that were not
    /// done are signalled with `ECANCELED`, or with `ETIMEDOUT` if the context does not come to rest. Sleeps; bounded.
    pub(super) fn stop(&self, hw: &Hw) {
        let mut state = self.state.lock();
        if !state.running {
            return;
        }
        state.running = false;
        drop(state);
        // Jobs that do not end are cancelled below.
        let _ = hw.wait(SDMA_IDLE_MS * 1000, || {
            self.retire();
            Ok(self.state.lock().jobs.is_empty().then_some(()))
        });
        disable(hw, &self.block);
        let rests = hw.wait(SDMA_IDLE_MS * 1000, || {
            Ok(is_idle(hw, &self.block).then_some(()))
        });
        if rests.is_err() && !hw.is_lost() {
            dev_err!(hw.dev(), "the copy engine does not stop\n");
        }
        // What it has completed in the end.
        self.retire();
        let reaches_nothing = rests.is_ok() || hw.is_lost();
        let _signalling = Signalling::begin();
        let mut state = self.state.lock();
        state.at_rest = reaches_nothing;
        let result = Err(if reaches_nothing {
            ECANCELED
        } else {
            ETIMEDOUT
        });
        while let Ok(job) = state.jobs.remove(0) {
            job.fence.signal(result);
        }
    }

    /// Frees the ring's memory; the SDMA engine must not run any more.
    pub(super) fn release(&self) {
        let memory = self.state.lock().memory.take();
        drop(memory);
    }

    /// Signals the fences of the jobs that are done. Allocates nothing; sleeps for its lock only.
    pub(super) fn retire(&self) {
        let _signalling = Signalling::begin();
        let mut state = self.state.lock();
        let Some(number) = state.memory.as_ref().and_then(|m| m.read32(NUMBER).ok()) else {
            return;
        };
        // Behind the last job by as many as are not done; what is no number of a job is none.
        let open = index(state.number.wrapping_sub(number));
        let Some(done) = state.jobs.len().checked_sub(open) else {
            return;
        };
        for _ in 0..done {
            if let Ok(job) = state.jobs.remove(0) {
                state.done = job.end;
                job.fence.signal(Ok(()));
            }
        }
    }

    /// Fills `bytes` bytes, a multiple of 4 and not more than [`JOB_BYTES`], from address `to` of VMID 0 with zeroes.
    /// Waits for room in the ring.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: a size or an address that is not allowed.
    /// - `EBUSY`: the engine takes no jobs at present.
    /// - `ENOMEM`.
    /// - Those of [`CopyEngine::wait`], for a job that is in the way.
    pub(crate) fn clear(&self, hw: &Hw, to: u64, bytes: u64) -> Result<Fence> {
        if to % 4 != 0 {
            return Err(EINVAL);
        }
        self.job(hw, bytes, |at, part| {
            sdma::fill(to + at, 0, part, self.long_count)
        })
    }

    /// Copies `bytes` bytes, not more than [`JOB_BYTES`], from address `from` of VMID 0 to `to`; the two do not overlap.
    /// Waits for room in the ring.
    ///
    /// # Errors
    ///
    /// Those of [`Self::clear`].
    pub(crate) fn copy(&self, hw: &Hw, from: u64, to: u64, bytes: u64) -> Result<Fence> {
        self.job(hw, bytes, |at, part| {
            sdma::copy(from + at, to + at, part, self.long_count)
        })
    }

    /// Copies each of `parts`, not more than [`MAX_PARTS`], in any order. Waits for room in the ring.
    ///
    /// # Errors
    ///
    /// Those of [`Self::clear`]; `EINVAL` also for no parts, or too many.
    pub(crate) fn copy_parts(&self, hw: &Hw, parts: &[CopyPart]) -> Result<Fence> {
        let mut packets = [0; JOB_DWORDS];
        let mut len = 0;
        if parts.is_empty() || parts.len() > MAX_PARTS {
            return Err(EINVAL);
        }
        for part in parts {
            if part.bytes > PART_BYTES {
                return Err(EINVAL);
            }
            let packet = sdma::copy(part.from, part.to, part.bytes, self.long_count);
            len = put(&mut packets, len, &packet.map_err(|_| EINVAL)?)?;
        }
        self.submit(hw, packets.get(..len).ok_or(EINVAL)?, true)
    }

    /// A job of packets that `packet(at, bytes)` makes.
    fn job<const N: usize>(
        &self,
        hw: &Hw,
        bytes: u64,
        packet: impl Fn(u64, u64) -> Result<[u32; N], Overflow>,
    ) -> Result<Fence> {
        if bytes == 0 || bytes > JOB_BYTES {
            return Err(EINVAL);
        }
        let mut words = [0; JOB_DWORDS];
        let mut used = 0;
        let mut at = 0;
        while at < bytes {
            let part = sdma::max_bytes(self.long_count).min(bytes - at);
            used = put(&mut words, used, &packet(at, part).map_err(|_| EINVAL)?)?;
            at += part;
        }
        self.submit(hw, words.get(..used).ok_or(EINVAL)?, true)
    }

    /// Hands `packets` over; `announced` with an interrupt when they are done.
    fn submit(&self, hw: &Hw, packets: &[u32], announced: bool) -> Result<Fence> {
        let memory = FenceMemory::new()?;
        loop {
            let state = self.state.lock();
            if !state.running {
                return Err(EBUSY);
            }
            let oldest = match state.jobs.first() {
                Some(job) if !has_room(&state) => job.fence.fence(),
                _ => return self.submit_locked(state, hw, memory, packets, announced),
            };
            drop(state);
            if let Some(oldest) = oldest {
                self.wait(hw, &oldest)?;
            }
        }
    }

    fn submit_locked(
        &self,
        mut state: MutexGuard<'_, State>,
        hw: &Hw,
        fence_memory: FenceMemory,
        packets: &[u32],
        announced: bool,
    ) -> Result<Fence> {
        let number = state.number.wrapping_add(1);
        let memory = state.memory.as_ref().ok_or(ENODEV)?;
        // CAST: An offset inside the buffer.
        let at = memory.gpu_addr() + NUMBER as u64;
        let mut words = [0; JOB_DWORDS];
        let mut used = put(&mut words, 0, packets)?;
        used = put(&mut words, used, &fence(at, number).ok_or(EINVAL)?)?;
        if announced {
            used = put(&mut words, used, &trap(0).ok_or(EINVAL)?)?;
        }
        let words = words.get(..used).ok_or(EINVAL)?;
        // CAST: The mask leaves less than the ring's length.
        let position = (state.wptr & (RING_DWORDS as u64 - 1)) as usize;
        // The ring has no gaps: a packet may go on at its begin.
        let (first, rest) = words.split_at(words.len().min(RING_DWORDS - position));
        memory.write_dwords(RING + 4 * position, first)?;
        memory.write_dwords(RING, rest)?;
        // CAST: A few dwords.
        let end = state.wptr + used as u64;
        let fences = state.fences + 1;
        let pending = fence_memory.init(&self.context, fences);
        let fence = pending.fence().ok_or(EINVAL)?;
        let job = Job {
            fence: pending,
            end,
        };
        // Before anything of the state has changed; there is room.
        state.jobs.push_within_capacity(job).map_err(|_| EBUSY)?;
        state.number = number;
        state.fences = fences;
        state.wptr = end;
        hw.doorbell64(self.doorbell.byte(), end * 4);
        Ok(fence)
    }

    /// Waits for a fence of this engine. Sleeps; bounded: an engine that takes longer than any job is stopped.
    ///
    /// # Errors
    ///
    /// What the fence was signalled with, see the module's documentation.
    pub(crate) fn wait(&self, hw: &Hw, fence: &Fence) -> Result {
        let mut looks = COPY_MS / LOOK_MS;
        loop {
            if let Some(result) = fence.wait(msecs_to_jiffies(LOOK_MS)) {
                return result;
            }
            self.retire();
            if let Some(result) = fence.result() {
                return result;
            }
            // A device that is lost does nothing more, and all that use it are to see it.
            let lost = hw.check_alive().is_err();
            match looks.checked_sub(1) {
                Some(left) if !lost => looks = left,
                _ => {
                    if !lost {
                        dev_limited!(
                            dev_err,
                            hw.dev(),
                            "a job of the copy engine takes longer than {} ms; the engine is not used until the next reset\n",
                            COPY_MS
                        );
                    }
                    // Signals the fence, or another thread does that is about to.
                    self.stop(hw);
                    let stopped = fence.wait(msecs_to_jiffies(3 * SDMA_IDLE_MS));
                    return stopped.unwrap_or(Err(ETIMEDOUT));
                }
            }
        }
    }

    /// Counters.
    pub(crate) fn status(&self) -> CopyStatus {
        let state = self.state.lock();
        CopyStatus {
            written: state.wptr,
            done: state.done,
            jobs: state.fences,
            ready: state.running,
        }
    }
}

/// Whether one more job fits.
fn has_room(state: &State) -> bool {
    // OVERFLOW: `done` follows `wptr` by no more than the ring's length.
    // CAST: `usize` is at most 64 bits wide.
    let free = RING_DWORDS as u64 - (state.wptr - state.done);
    // One dword stays free: a full ring looks like an empty one.
    // CAST: As for `free`, `usize` is at most 64 bits wide.
    state.jobs.len() < MAX_JOBS && free > JOB_DWORDS as u64
}

/// Appends `packet` to the `used` words; returns how many there are then.
fn put(words: &mut [u32], used: usize, packet: &[u32]) -> Result<usize> {
    let end = used + packet.len();
    words
        .get_mut(used..end)
        .ok_or(EINVAL)?
        .copy_from_slice(packet);
    Ok(end)
}

/// Enables an empty ring of [`RING_BYTES`] bytes at `ring` of VMID 0.
fn enable(hw: &Hw, block: &Block, ring: u64, report: u64, doorbell: DoorbellOffset) {
    let cntl = RbCntl::new()
        .with(RbCntl::RB_SIZE, (RING_BYTES / 4).trailing_zeros())
        .with(RbCntl::RPTR_WRITEBACK_ENABLE, 1)
        .with(RbCntl::RPTR_WRITEBACK_TIMER, WRITEBACK_TIMER);
    hw.write(block.rb_cntl(), cntl.raw());
    for reg in [
        block.rb_rptr(),
        block.rb_rptr_hi(),
        block.rb_wptr(),
        block.rb_wptr_hi(),
    ] {
        hw.write(reg, 0);
    }
    hw.write(block.rb_rptr_addr_hi(), hi32(report));
    hw.write(block.rb_rptr_addr_lo(), lo32(report));
    hw.write_pair(block.rb_base(), ring >> 8);
    // A write pointer that becomes smaller is none of a ring that has wrapped.
    hw.write(block.minor_ptr_update(), 1);
    hw.write(
        block.doorbell_offset(),
        OffsetReg::new()
            .with(OffsetReg::OFFSET, doorbell.dword())
            .raw(),
    );
    hw.write(
        block.doorbell(),
        Doorbell::new().with(Doorbell::ENABLE, 1).raw(),
    );
    hw.write(block.rb_wptr(), 0);
    hw.write(block.rb_wptr_hi(), 0);
    hw.write(block.minor_ptr_update(), 0);
    // The doorbell says where the ring ends, and memory does not.
    hw.modify(block.rb_wptr_poll_cntl(), |raw| {
        WptrPollCntl::from_raw(raw)
            .with(WptrPollCntl::ENABLE, 0)
            .with(WptrPollCntl::F32_POLL_ENABLE, 0)
            .raw()
    });
    hw.write(block.rb_cntl(), cntl.with(RbCntl::RB_ENABLE, 1).raw());
}

/// Lets the engine take no more packets from the ring.
fn disable(hw: &Hw, block: &Block) {
    hw.modify(block.rb_cntl(), |raw| {
        RbCntl::from_raw(raw).with(RbCntl::RB_ENABLE, 0).raw()
    });
    hw.write(block.doorbell(), 0);
}

fn is_idle(hw: &Hw, block: &Block) -> bool {
    ContextStatus::from_raw(hw.read(block.context_status())).is_set(ContextStatus::IDLE)
}

const _: () = assert!(
    JOB_DWORDS < RING_DWORDS
        && MAX_PARTS as u64 * sdma::max_bytes(false) >= JOB_BYTES
        && sdma::max_bytes(false) >= PART_BYTES,
    "a job fits"
);
