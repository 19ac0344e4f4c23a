// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Queues, and packets for them.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use nix::libc;
use rkfd::abi;
use rkfd::abi::queue_type;
use rkfd::sys::Mapping;
use rkfd::sys::PAGE;

use super::kinds::Kind;
use super::process::Buffer;
use super::process::GTT;
use super::process::USERPTR;
use super::process::VRAM;
use super::raw;
use super::thread::Thread;

/// Bytes of every ring.
const RING: usize = PAGE;
/// Most queues of a process.
const QUEUES: usize = 6;
/// Bytes of a process's doorbells.
const SLICE: usize = 8192;
/// Units that give GWS back.
const NO_GWS: u32 = 0;
/// Command word of ALLOC_QUEUE_GWS.
const ALLOC_QUEUE_GWS: u32 = super::calls::command(3, 0x1e, 16);

/// A queue that exists, or did.
pub struct Queue {
    pub id: u32,
    kind: u32,
    doorbell: usize,
    slice: Mapping,
    memory: Vec<Buffer>,
    /// Units written, `None` once it is being destroyed.
    written: Mutex<Option<u64>>,
}

/// Where the pointers lie in their page: as in the thunk's queue structure and, for AQL, in `amd_queue_t`.
fn pointers(kind: u32) -> (u64, u64) {
    if kind == queue_type::COMPUTE_AQL {
        (0x38, 0x80)
    } else {
        (8, 16)
    }
}

impl Queue {
    fn ring(&self) -> Option<&Mapping> {
        self.memory.first()?.range.as_deref()
    }

    fn pointer(&self, offset: u64) -> Option<*mut u64> {
        let page = self.memory.get(1)?.range.as_ref()?;
        // CAST: an offset in a page.
        Some(page.as_ptr().wrapping_add(offset as usize).cast())
    }

    /// Writes packets that store `value` at `to`, and rings. False where there is no room.
    fn submit(&self, to: u64, value: u32) -> bool {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(old), Some(ring)) = (*written, self.ring()) else {
            return false;
        };
        let (wptr, rptr) = pointers(self.kind);
        let (Some(wptr), Some(rptr)) = (self.pointer(wptr), self.pointer(rptr)) else {
            return false;
        };
        // CAST: halves of an address.
        let (lo, hi) = (to as u32, (to >> 32) as u32);
        // Bytes of the unit that the write pointer counts in, and the packet.
        let (unit, packet): (u64, Vec<u32>) = match self.kind {
            queue_type::COMPUTE => (4, vec![0xc003_3702, (5 << 8) | (1 << 20), lo, hi, value]),
            queue_type::COMPUTE_AQL => {
                // A barrier that waits for nothing.
                let mut packet = vec![0; 16];
                packet[0] = 3 | (1 << 8);
                (64, packet)
            }
            _ => (1, vec![2, lo, hi, 0, value]),
        };
        let size = RING as u64; // CAST: a length.
                                // CAST: as above.
        let bytes = packet.len() as u64 * 4;
        // SAFETY: a word of a page that the queue's memory owns; the GPU writes to it.
        let read = unsafe { rptr.read_volatile() };
        // PM4's pointer wraps with the ring, the others' do not.
        let used = (old.wrapping_sub(read)).wrapping_mul(unit) & (size - 1);
        if used + bytes >= size {
            return false;
        }
        for (at, word) in packet.iter().enumerate().rev() {
            // CAST: an offset in the ring.
            let place = ((old * unit) as usize + 4 * at) % RING;
            // SAFETY: a word of the ring, which the queue's memory owns.
            unsafe {
                ring.as_ptr()
                    .wrapping_add(place)
                    .cast::<u32>()
                    .write_volatile(*word)
            };
        }
        let new = old + bytes / unit;
        rkfd::sys::publish();
        // SAFETY: as for the read pointer.
        unsafe { wptr.write_volatile(new) };
        rkfd::sys::publish();
        let ring = if self.kind == queue_type::COMPUTE_AQL {
            new - 1
        } else {
            new
        };
        // SAFETY: the queue's doorbell lies in the slice that the queue has mapped.
        unsafe {
            self.slice
                .as_ptr()
                .wrapping_add(self.doorbell)
                .cast::<u64>()
                .write_volatile(ring)
        };
        *written = Some(new);
        true
    }

    /// Nothing is submitted from here on.
    fn close(&self) {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Thread<'_> {
    fn any_queue(&mut self) -> Option<Arc<Queue>> {
        let queues = self.process.objects();
        let at = self.dice.index(queues.queues.len())?;
        queues.queues.get(at).cloned()
    }

    fn any_queue_id(&mut self) -> u32 {
        let right = self.any_queue().map_or(0, |queue| queue.id);
        self.dice.w32(right)
    }

    pub fn create_queue(&mut self) {
        if self.process.objects().queues.len() >= QUEUES {
            return self.destroy_queue();
        }
        let kinds = [
            queue_type::COMPUTE,
            queue_type::COMPUTE_AQL,
            queue_type::SDMA,
            queue_type::SDMA_BY_ENGINE,
        ];
        let kind = self.dice.pick(&kinds).unwrap_or(queue_type::COMPUTE);
        let mut memory = Vec::new();
        for flags in [USERPTR, GTT, VRAM] {
            match self.process.buffer(flags, RING) {
                Ok(buffer) => memory.push(buffer),
                Err(_) => return self.process.objects().buffers.append(&mut memory),
            }
        }
        let [ring, page, eop] = &memory[..] else {
            return;
        };
        if let (queue_type::COMPUTE_AQL, Some(range)) = (kind, &ring.range) {
            for at in (0..RING).step_by(64) {
                // SAFETY: a word of the ring, which nobody else knows yet. At 1, an invalid packet, the queue waits.
                unsafe {
                    range
                        .as_ptr()
                        .wrapping_add(at)
                        .cast::<u32>()
                        .write_volatile(1)
                };
            }
        }
        let (wptr, rptr) = pointers(kind);
        let compute = matches!(kind, queue_type::COMPUTE | queue_type::COMPUTE_AQL);
        let save = &self.process.save;
        let sizes = self.process.plan.target.save;
        let dice = &mut self.dice;
        let mut arg = abi::CreateQueue {
            ring_base_address: dice.w64(ring.va),
            write_pointer_address: dice.w64(page.va + wptr),
            read_pointer_address: dice.w64(page.va + rptr),
            ring_size: dice.w32(4096),
            gpu_id: dice.w32(self.process.plan.target.gpu_id),
            queue_type: dice.w32(kind),
            queue_percentage: dice.w32(100),
            queue_priority: dice.w32(7),
            eop_buffer_address: if compute { dice.w64(eop.va) } else { 0 },
            eop_buffer_size: if compute { dice.w64(eop.size) } else { 0 },
            ctx_save_restore_address: if compute { dice.w64(save.va) } else { 0 },
            ctx_save_restore_size: if compute { dice.w32(sizes.context) } else { 0 },
            ctl_stack_size: if compute {
                dice.w32(sizes.control_stack)
            } else {
                0
            },
            sdma_engine_id: dice.w32(0),
            ..Default::default()
        };
        if self
            .process
            .call(Kind::CreateQueue, abi::CREATE_QUEUE, &mut arg)
            != 0
        {
            return self.process.objects().buffers.append(&mut memory);
        }
        // What was asked for may be another ring than the one that would be written: then nothing is.
        let as_meant = arg.ring_base_address == memory[0].va
            && arg.write_pointer_address == memory[1].va + wptr
            && arg.read_pointer_address == memory[1].va + rptr
            && arg.ring_size == 4096
            && arg.queue_type == kind;
        let slice = arg.doorbell_offset & !(SLICE as u64 - 1); // CAST: a length.
        let Ok(slice) = Mapping::of_device(&self.process.kfd, SLICE, slice) else {
            return self
                .process
                .report("the doorbells of a new queue cannot be mapped");
        };
        let queue = Queue {
            id: arg.queue_id,
            kind,
            doorbell: (arg.doorbell_offset % SLICE as u64) as usize, // CAST: below 8192.
            slice,
            memory,
            written: Mutex::new(as_meant.then_some(0)),
        };
        self.process.objects().queues.push(Arc::new(queue));
    }

    pub fn destroy_queue(&mut self) {
        let queue = {
            let mut objects = self.process.objects();
            let at = self.dice.index(objects.queues.len());
            at.map(|at| objects.queues.swap_remove(at))
        };
        let Some(queue) = queue.filter(|_| !self.dice.odd()) else {
            // An id beyond those of queues: one that met a queue would leave its record behind, and the call that
            // destroys it later would count as a finding.
            let mut arg = abi::DestroyQueue {
                queue_id: self.dice.w32(0x7777) | 0x1_0000,
                pad: 0,
            };
            self.process
                .call(Kind::DestroyQueue, abi::DESTROY_QUEUE, &mut arg);
            return;
        };
        queue.close();
        let mut arg = abi::DestroyQueue {
            queue_id: queue.id,
            pad: 0,
        };
        let errno = self
            .process
            .call(Kind::DestroyQueue, abi::DESTROY_QUEUE, &mut arg);
        if errno != 0 {
            self.process
                .report("a queue that exists could not be destroyed");
        }
        // What it lay in is a buffer like others from now on.
        self.process
            .objects()
            .buffers
            .extend(queue.memory.iter().cloned());
    }

    pub fn update_queue(&mut self) {
        let queue = self.any_queue();
        let ring = queue
            .as_ref()
            .and_then(|queue| queue.memory.first())
            .map_or(0, |ring| ring.va);
        let share = self.dice.pick(&[0, 1, 50, 100, 100]).unwrap_or(100);
        let priority = self.dice.below(16) as u32; // CAST: below 16.
        let dice = &mut self.dice;
        let mut arg = abi::UpdateQueue {
            ring_base_address: dice.w64(ring),
            queue_id: dice.w32(queue.map_or(0, |queue| queue.id)),
            ring_size: dice.w32(4096),
            queue_percentage: dice.w32(share),
            queue_priority: dice.w32(priority),
        };
        self.process
            .call(Kind::UpdateQueue, abi::UPDATE_QUEUE, &mut arg);
    }

    pub fn cu_mask(&mut self) {
        // CAST: halves of random numbers.
        let mask: Vec<u32> = (0..32).map(|_| self.dice.any() as u32).collect();
        let bits = 32 * (1 + self.dice.below(32) as u32); // CAST: below 32.
        let mut arg = abi::SetCuMask {
            queue_id: self.any_queue_id(),
            // More than there are would be read from behind the mask.
            num_cu_mask: if self.dice.odd() { bits - 1 } else { bits },
            cu_mask_ptr: self.pointer(mask.as_ptr().addr()),
        };
        self.process
            .call(Kind::SetCuMask, abi::SET_CU_MASK, &mut arg);
    }

    pub fn wave_state(&mut self) {
        let mut arg = abi::GetQueueWaveState {
            // CAST: an address.
            ctl_stack_address: self.pointer(self.process.save.va as usize),
            queue_id: self.any_queue_id(),
            ..Default::default()
        };
        self.process
            .call(Kind::WaveState, abi::GET_QUEUE_WAVE_STATE, &mut arg);
    }

    pub fn queue_gws(&mut self) {
        let units = self.dice.pick(&[NO_GWS, 1, 64]).unwrap_or(1);
        let mut arg = [self.any_queue_id(), self.dice.w32(units), 0, 0];
        self.process.call(Kind::QueueGws, ALLOC_QUEUE_GWS, &mut arg);
    }

    pub fn submit(&mut self) {
        let Some(queue) = self.any_queue() else {
            return;
        };
        for _ in 0..=self.dice.below(8) {
            let at = self.dice.below(PAGE as u64 / 4); // CAST: a length.
            let value = self.process.mark() | at as u32; // CAST: below 1024.
            if queue.submit(self.process.sink.va + 4 * at, value) {
                self.process.answered(Kind::Submit, 0, "");
            }
        }
    }

    pub fn kfd_mmap(&mut self) {
        let gpu = u64::from(self.dice.w32(self.process.plan.target.gpu_id)) << 46;
        let (kind, len) = self
            .dice
            .pick(&[(3, SLICE), (0, PAGE), (1, PAGE), (2, PAGE)])
            .unwrap_or((0, PAGE));
        let len = if self.dice.odd() {
            self.dice
                .pick(&[0, 1, PAGE, 3 * PAGE, 1 << 24])
                .unwrap_or(len)
        } else {
            len
        };
        let offset = (((kind << 62) | gpu) & !0xfff) | (self.dice.w64(0) & 0x7fff_f000);
        let prot = if self.dice.one_in(3) {
            libc::PROT_READ
        } else {
            libc::PROT_READ | libc::PROT_WRITE
        };
        let flags = if self.dice.one_in(6) {
            libc::MAP_PRIVATE
        } else {
            libc::MAP_SHARED
        };
        match raw::map(self.process.kfd.as_fd(), len, prot, flags, offset) {
            Err(errno) => self.process.answered(Kind::KfdMmap, errno, ""),
            Ok(start) => {
                self.process.answered(Kind::KfdMmap, 0, "");
                // SAFETY: the first word of a mapping that nobody else knows.
                unsafe { raw::at(start).cast::<u32>().read_volatile() };
                // SAFETY: as above; this is the last use.
                unsafe { raw::unmap(start, len) };
            }
        }
    }
}
