// SPDX-License-Identifier: GPL-2.0 OR MIT
//! User queues: a ring, two pointers, a doorbell.
//!
//! Submission enters the kernel nowhere: packets go into the ring, the write pointer goes to memory, a store fence
//! orders both, and one 64-bit store to the doorbell tells the GPU. The pointer is stored *before* the doorbell is rung
//! because the scheduler reads it from memory whenever it connects the queue anew.
//!
//! | kind | write pointer in memory | read pointer in memory | doorbell |
//! |---|---|---|---|
//! | PM4 | dwords, monotonic, 64 bits | dwords, wraps with the ring, 32 bits | write pointer |
//! | SDMA | bytes, monotonic, 64 bits | bytes, monotonic, 64 bits | write pointer |
//! | AQL | packets, monotonic, 64 bits | packets, monotonic, 64 bits | index of the newest packet |

use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use crate::abi;
use crate::abi::queue_type;
use crate::clock::Deadline;
use crate::device::Device;
use crate::device::DOORBELL_SLICE;
use crate::error::Error;
use crate::error::Result;
use crate::memory::Buffer;
use crate::memory::Kind;
use crate::packet::aql;
use crate::ring::Ring;
use crate::sizes::SaveArea;
use crate::sys;
use crate::sys::Mapping;
use crate::sys::PAGE;

/// Memory into which the GPU saves the waves of a compute queue when it is preempted.
///
/// Each queue that runs waves needs one of its own. Queues of one process that run no waves (packets of the command
/// processor only) save nothing and may share one: on a large part it takes more than 60 MiB.
#[derive(Debug)]
pub struct SaveBuffer {
    buffer: Buffer,
    area: SaveArea,
}

impl SaveBuffer {
    /// Allocates the memory that the GPU's shape demands.
    ///
    /// # Errors
    /// Those of [`Device::save_area`] and [`Buffer::new`].
    pub fn new(device: &Arc<Device>) -> Result<Self> {
        let area = device.save_area()?;
        let total = usize::try_from(area.total)
            .map_err(|_| Error::Argument("A save area beyond memory"))?;
        let buffer = Buffer::new(device, Kind::Userptr, total)?;
        // Where the debugger's part lies: the only words of the header that user space owns here.
        buffer.write_u32(16, area.context)?;
        buffer.write_u32(20, area.debugger)?;
        Ok(Self { buffer, area })
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.buffer.size()
    }
}

/// Bytes of the end-of-pipe buffer of a compute queue.
const EOP_BYTES: usize = 4096;

/// Offsets of the pointers in their page; those of an AQL queue are those of `amd_queue_t`.
const WPTR: usize = 0x38;
const RPTR: usize = 0x80;

/// What a queue executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// PM4 packets on a compute pipe.
    Pm4,
    /// AQL packets on a compute pipe.
    Aql,
    /// SDMA packets on a copy engine.
    Sdma,
}

/// How to create a queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    /// What it executes.
    pub kind: QueueKind,
    /// Ring size in bytes: a power of two, at least one page.
    pub ring_bytes: usize,
    /// 0 (stopped) to 100.
    pub percentage: u32,
    /// 0 to 15; 7 is ordinary.
    pub priority: u32,
    /// The copy engine of an SDMA queue; the kernel chooses where `None`.
    pub engine: Option<u32>,
}

impl QueueOptions {
    /// An ordinary queue with a ring of 4 KiB (compute) or 64 KiB (SDMA).
    pub fn new(kind: QueueKind) -> Self {
        let ring_bytes = if kind == QueueKind::Sdma {
            0x10000
        } else {
            PAGE
        };
        Self {
            kind,
            ring_bytes,
            percentage: 100,
            priority: 7,
            engine: None,
        }
    }
}

/// A live queue; destroyed when dropped, before the buffers that it uses.
#[derive(Debug)]
pub struct Queue {
    device: Arc<Device>,
    options: QueueOptions,
    id: u32,
    doorbell_offset: u64,
    doorbells: Arc<Mapping>,
    ring: Ring,
    // The order matters only in so far as `drop` destroys the queue before any of these goes.
    ring_buffer: Buffer,
    pointers: Buffer,
    _eop: Option<Buffer>,
    _save: Option<Arc<SaveBuffer>>,
    // Units written when the doorbell was last rung.
    told: u64,
    // Dropping it has nothing to destroy any more.
    destroyed: bool,
}

impl Queue {
    /// Creates a queue.
    ///
    /// # Errors
    /// [`Error::Argument`] for a ring size that cannot be; [`Error::Call`].
    pub fn new(device: &Arc<Device>, options: QueueOptions) -> Result<Self> {
        let save = match options.kind {
            QueueKind::Sdma => None,
            _ => Some(Arc::new(SaveBuffer::new(device)?)),
        };
        Self::with_save_buffer(device, options, save)
    }

    /// As [`Queue::new`], with a save buffer that other queues may use too (see [`SaveBuffer`]).
    ///
    /// # Errors
    /// As [`Queue::new`]; [`Error::Argument`] for a compute queue without one.
    pub fn with_save_buffer(
        device: &Arc<Device>,
        options: QueueOptions,
        save: Option<Arc<SaveBuffer>>,
    ) -> Result<Self> {
        let ring = Ring::new(options.kind, options.ring_bytes)?;
        let ring_buffer = Buffer::new(device, Kind::Gtt, options.ring_bytes)?;
        let pointers = Buffer::new(device, Kind::Gtt, PAGE)?;
        let compute = options.kind != QueueKind::Sdma;
        if options.kind == QueueKind::Aql {
            for slot in 0..options.ring_bytes / aql::BYTES {
                ring_buffer.write_u32(slot * aql::BYTES, aql::INVALID.into())?;
            }
        }
        let mut arg = abi::CreateQueue {
            ring_base_address: ring_buffer.address(),
            write_pointer_address: pointers.address() + WPTR as u64, // CAST: constants.
            read_pointer_address: pointers.address() + RPTR as u64,
            ring_size: u32::try_from(options.ring_bytes)
                .map_err(|_| Error::Argument("A ring beyond 4 GiB"))?,
            gpu_id: device.id(),
            queue_type: match (options.kind, options.engine) {
                (QueueKind::Pm4, _) => queue_type::COMPUTE,
                (QueueKind::Aql, _) => queue_type::COMPUTE_AQL,
                (QueueKind::Sdma, None) => queue_type::SDMA,
                (QueueKind::Sdma, Some(_)) => queue_type::SDMA_BY_ENGINE,
            },
            sdma_engine_id: options.engine.unwrap_or(0),
            queue_percentage: options.percentage,
            queue_priority: options.priority,
            ..Default::default()
        };
        let mut eop = None;
        if compute {
            let e = Buffer::new(device, Kind::VramPrivate, EOP_BYTES)?;
            arg.eop_buffer_address = e.address();
            arg.eop_buffer_size = EOP_BYTES as u64; // CAST: a constant.
            eop = Some(e);
            let s = save
                .as_deref()
                .ok_or(Error::Argument("A compute queue needs a save buffer"))?;
            arg.ctx_save_restore_address = s.buffer.address();
            arg.ctx_save_restore_size = s.area.context;
            arg.ctl_stack_size = s.area.control_stack;
        }
        device
            .kfd()
            .plain("CREATE_QUEUE", abi::CREATE_QUEUE, &mut arg)?;
        let doorbells = match device.doorbells(arg.doorbell_offset) {
            Ok(mapping) => mapping,
            Err(e) => {
                // The first error is the one to report.
                let _ = destroy(device, arg.queue_id);
                return Err(e);
            }
        };
        Ok(Self {
            device: device.clone(),
            options,
            id: arg.queue_id,
            doorbell_offset: arg.doorbell_offset,
            doorbells,
            ring,
            ring_buffer,
            pointers,
            _eop: eop,
            _save: save,
            told: 0,
            destroyed: false,
        })
    }

    /// Destroys the queue, as dropping it does, and reports how that went.
    ///
    /// # Errors
    /// [`Error::Call`]: `EIO` where the queue does not leave the hardware, or left it only by a reset of the chip, with
    /// which the process lost its memory on the GPU.
    pub fn destroy(mut self) -> Result<()> {
        self.destroyed = true;
        destroy(&self.device, self.id)
    }

    /// The queue's id in this process.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// What it executes.
    pub fn kind(&self) -> QueueKind {
        self.options.kind
    }

    /// The ring's address.
    pub fn ring_address(&self) -> u64 {
        self.ring_buffer.address()
    }

    /// The ring's size in bytes.
    pub fn ring_bytes(&self) -> usize {
        self.options.ring_bytes
    }

    /// Address of the write pointer.
    pub fn write_pointer_address(&self) -> u64 {
        self.pointers.address() + WPTR as u64 // CAST: a constant.
    }

    /// Address of the read pointer.
    pub fn read_pointer_address(&self) -> u64 {
        self.pointers.address() + RPTR as u64 // CAST: a constant.
    }

    /// The mmap offset of `/dev/kfd` that stands for the doorbell.
    pub fn doorbell_offset(&self) -> u64 {
        self.doorbell_offset
    }

    /// The doorbell's address in this process.
    pub fn doorbell_address(&self) -> u64 {
        self.doorbells.address() as u64 + self.doorbell_in_slice() as u64 // CAST: a 64-bit process.
    }

    fn doorbell_in_slice(&self) -> usize {
        // CAST: 13 bits. The mask keeps the access, 8-byte aligned, inside the mapping.
        (self.doorbell_offset & (DOORBELL_SLICE as u64 - 8)) as usize
    }

    fn pointer(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: `pointers` is a page that lives as long as `self`; both offsets are 8-byte aligned and inside it. The
        // GPU is the only other writer, and all access is atomic.
        unsafe {
            AtomicU64::from_ptr(
                (self.pointers.address() as usize as *mut u8)
                    .add(offset)
                    .cast(),
            )
        }
    }

    /// The read pointer as the GPU reported it, in the ring's units (a PM4 queue's wraps with the ring).
    pub fn read_pointer(&self) -> u64 {
        let p = self.pointer(RPTR);
        if self.options.kind == QueueKind::Pm4 {
            // SAFETY: the low half of the same live, aligned word; atomic as well.
            let low: &AtomicU32 = unsafe { AtomicU32::from_ptr(p.as_ptr().cast()) };
            u64::from(low.load(Ordering::Acquire))
        } else {
            p.load(Ordering::Acquire)
        }
    }

    /// The write pointer, in the ring's units, monotonic.
    pub fn write_pointer(&self) -> u64 {
        self.ring.written()
    }

    /// True when the GPU read everything that was submitted.
    pub fn drained(&self) -> bool {
        self.ring.pending(self.read_pointer()) == 0
    }

    /// Waits until the GPU read everything, without entering the kernel while it does.
    ///
    /// # Errors
    /// [`Error::TimedOut`].
    pub fn drain(&self, limit: Duration) -> Result<()> {
        poll("the queue to drain", limit, || {
            let seen = self.read_pointer();
            (self.ring.pending(seen) == 0, seen)
        })
    }

    /// Room in the ring now, in its units (dwords, bytes or packets).
    pub fn free(&self) -> u64 {
        self.ring.free(self.read_pointer())
    }

    /// Writes dwords of PM4 or SDMA packets and rings the doorbell.
    ///
    /// # Errors
    /// [`Error::RingFull`] where the GPU has to read on first; [`Error::Argument`] on an AQL queue.
    pub fn submit(&mut self, dwords: &[u32]) -> Result<()> {
        self.stage(dwords)?;
        self.flush();
        Ok(())
    }

    /// Writes dwords of PM4 or SDMA packets, of which the GPU learns with the next [`Queue::flush`].
    ///
    /// # Errors
    /// As [`Queue::submit`]; nothing is written then.
    pub fn stage(&mut self, dwords: &[u32]) -> Result<()> {
        if self.options.kind == QueueKind::Aql {
            return Err(Error::Argument("An AQL queue takes packets of 64 bytes"));
        }
        self.put(dwords)
    }

    /// Writes one AQL packet (its header last) and rings the doorbell. Returns its index.
    ///
    /// # Errors
    /// [`Error::RingFull`]; [`Error::Argument`] on another kind of queue.
    pub fn submit_aql(&mut self, packet: &[u32; aql::DWORDS], header: u16) -> Result<u64> {
        let index = self.stage_aql(packet, header)?;
        self.flush();
        Ok(index)
    }

    /// Writes one AQL packet, of which the GPU learns with the next [`Queue::flush`]. Returns its index.
    ///
    /// # Errors
    /// As [`Queue::submit_aql`]; nothing is written then.
    pub fn stage_aql(&mut self, packet: &[u32; aql::DWORDS], header: u16) -> Result<u64> {
        if self.options.kind != QueueKind::Aql {
            return Err(Error::Argument("Only an AQL queue takes AQL packets"));
        }
        let index = self.ring.written();
        let slot = self.ring.offset(index);
        let (body, first) = aql::in_two_steps(packet, header);
        self.put(&body)?;
        sys::publish();
        // One store makes the packet valid.
        self.ring_buffer.write_u32(slot, first)?;
        Ok(index)
    }

    /// Tells the GPU of everything written: the write pointer goes to memory, then the doorbell rings, once.
    ///
    /// Returns whether there was anything to tell.
    pub fn flush(&mut self) -> bool {
        let written = self.ring.written();
        if written == self.told {
            return false;
        }
        self.told = written;
        self.pointer(WPTR).store(written, Ordering::Release);
        self.ring_doorbell(match self.options.kind {
            QueueKind::Aql => written - 1,
            QueueKind::Pm4 | QueueKind::Sdma => written,
        });
        true
    }

    fn put(&mut self, dwords: &[u32]) -> Result<()> {
        let spans = self.ring.reserve(dwords.len(), self.read_pointer())?;
        let (first, second) = dwords.split_at(spans.first_dwords);
        self.ring_buffer.write_dwords(spans.offset, first)?;
        self.ring_buffer.write_dwords(0, second)
    }

    /// Stores a value to the doorbell, after everything stored before.
    pub fn ring_doorbell(&self, value: u64) {
        sys::publish();
        // SAFETY: `doorbell_in_slice` is 8-byte aligned and inside the mapping, which lives as long as `self`. Any value
        // is harmless: it only wakes this process's own queue.
        unsafe {
            self.doorbells
                .as_ptr()
                .add(self.doorbell_in_slice())
                .cast::<u64>()
                .write_volatile(value)
        };
    }

    /// Changes percentage and priority; percentage 0 stops the queue.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn update(&mut self, percentage: u32, priority: u32) -> Result<()> {
        let mut arg = abi::UpdateQueue {
            ring_base_address: self.ring_buffer.address(),
            queue_id: self.id,
            ring_size: u32::try_from(self.options.ring_bytes)
                .map_err(|_| Error::Argument("A ring beyond 4 GiB"))?,
            queue_percentage: percentage,
            queue_priority: priority,
        };
        self.device
            .kfd()
            .plain("UPDATE_QUEUE", abi::UPDATE_QUEUE, &mut arg)?;
        self.options.percentage = percentage;
        self.options.priority = priority;
        Ok(())
    }

    /// Restricts the queue's waves to the compute units whose bits are set, 32 per word.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn set_cu_mask(&mut self, mask: &[u32]) -> Result<()> {
        let bits = mask
            .len()
            .checked_mul(32)
            .and_then(|bits| u32::try_from(bits).ok())
            .ok_or(Error::Argument("A CU mask beyond any GPU"))?;
        let mut arg = abi::SetCuMask {
            queue_id: self.id,
            num_cu_mask: bits,
            cu_mask_ptr: mask.as_ptr() as u64, // CAST: an address.
        };
        // SAFETY: the pointer names `num_cu_mask` bits that live across the call.
        unsafe {
            sys::call_again(
                &**self.device.kfd(),
                "SET_CU_MASK",
                abi::SET_CU_MASK,
                &mut arg,
            )
        }
    }
}

fn destroy(device: &Device, queue_id: u32) -> Result<()> {
    let mut arg = abi::DestroyQueue { queue_id, pad: 0 };
    device
        .kfd()
        .plain("DESTROY_QUEUE", abi::DESTROY_QUEUE, &mut arg)
}

impl Drop for Queue {
    fn drop(&mut self) {
        if !self.destroyed {
            // [`Queue::destroy`] is for callers who want to know.
            let _ = destroy(&self.device, self.id);
        }
    }
}

/// Polls until `probe` says true. Neither the loop nor its deadline enters the kernel (see [`crate::clock`]).
///
/// # Errors
/// [`Error::TimedOut`] with what was seen last.
pub fn poll(
    what: &'static str,
    limit: Duration,
    mut probe: impl FnMut() -> (bool, u64),
) -> Result<()> {
    let deadline = Deadline::after(limit);
    loop {
        let (done, seen) = probe();
        if done {
            return Ok(());
        }
        if deadline.passed() {
            return Err(Error::TimedOut {
                what,
                seen,
                ms: deadline.elapsed().as_millis(),
            });
        }
        std::hint::spin_loop();
    }
}
