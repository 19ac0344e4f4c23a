// SPDX-License-Identifier: GPL-2.0 OR MIT
//! User queues: a ring, two pointers, a doorbell.
//!
//! Submission enters the kernel nowhere: packets go into the ring, the write pointer goes to memory, a store fence
//! orders both, and one 64-bit store to the doorbell tells the GPU. The pointer is stored *before* the doorbell is rung
//! because the scheduler reads it from memory whenever it connects the queue anew.
//!
//! A queue may be used from any thread. Packets of PM4 and SDMA queues go into the ring behind a lock, which is held
//! while they are copied; those of AQL queues without one ([`producers`]). Waiters hold no lock and back off
//! ([`crate::backoff`]).
//!
//! The kernel lets a queue's memory go only when the queue is off the hardware. So does this module ([`destroy`]).
//!
//! | kind | write pointer in memory | read pointer in memory | doorbell |
//! |---|---|---|---|
//! | PM4 | dwords, monotonic, 64 bits | dwords, wraps with the ring, 32 bits | write pointer |
//! | SDMA | bytes, monotonic, 64 bits | bytes, monotonic, 64 bits | write pointer |
//! | AQL | packets, monotonic, 64 bits | packets, monotonic, 64 bits | index of the newest packet |

mod bells;
mod destroy;
pub mod error;
mod laps;
mod line;
pub(crate) mod object;
mod options;
pub mod producers;
mod save;
mod scratch;
mod slots;
mod watch;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::RwLock;
use std::time::Duration;

use nix::errno::Errno;

pub use self::bells::KernelDoorbells;
use self::destroy::destroy;
pub use self::options::QueueKind;
pub use self::options::QueueOptions;
pub use self::save::SaveBuffer;
pub use self::scratch::ScratchUse;
pub use self::slots::Slot;
pub use self::slots::Slots;

use self::error::QueueError;
use self::line::WriteSide;
use self::object::Object;
use self::producers::Ring as _;
use self::scratch::Scratch;
use self::slots::Producers;
use self::watch::Watcher;
use crate::abi;
use crate::abi::queue_type;
use crate::backoff::wait_until;
use crate::clock::Deadline;
use crate::device::Device;
use crate::device::DOORBELL_SLICE;
use crate::error::Error;
use crate::error::Result;
use crate::memory::Buffer;
use crate::memory::Kind;
use crate::packet::aql;
use crate::ring::Ring;
use crate::sys;
use crate::sys::Mapping;

/// Bytes of the end-of-pipe buffer of a compute queue.
const EOP_BYTES: usize = 4096;

/// What the kernel and the GPU use of a queue, which must stay until the queue is gone.
#[derive(Debug)]
struct Live {
    device: Arc<Device>,
    doorbells: Arc<Mapping>,
    ring: Arc<Buffer>,
    object: Arc<Object>,
    _eop: Option<Buffer>,
    _save: Option<Arc<SaveBuffer>>,
    /// Private memory of the waves of an AQL queue.
    scratch: RwLock<Scratch>,
}

/// A live queue; destroyed when dropped.
#[derive(Debug)]
pub struct Queue {
    options: QueueOptions,
    id: u32,
    doorbell_offset: u64,
    /// Write side of a PM4 or SDMA queue.
    ring: Mutex<WriteSide>,
    /// How many wait in its line, for those who look without the lock.
    in_line: AtomicUsize,
    /// Its write pointer, for those who look without the lock.
    written: AtomicU64,
    /// Units written when its doorbell was last rung.
    told: AtomicU64,
    /// Write side of an AQL queue.
    producers: Producers,
    watcher: Mutex<Option<Watcher>>,
    live: Arc<Live>,
    /// The kernel said that the queue is gone.
    gone: bool,
    /// What it answered when it could not destroy it.
    refused: Option<Errno>,
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
        Self::create(device, options, save, true)
    }

    /// As [`Queue::new`], with a save buffer that other queues may use too (see [`SaveBuffer`]). The driver reports no
    /// exceptions of such a queue, since the save area is where it would look for the word.
    ///
    /// # Errors
    /// As [`Queue::new`]; [`Error::Argument`] for a compute queue without one.
    pub fn with_save_buffer(
        device: &Arc<Device>,
        options: QueueOptions,
        save: Option<Arc<SaveBuffer>>,
    ) -> Result<Self> {
        Self::create(device, options, save, false)
    }

    fn create(
        device: &Arc<Device>,
        options: QueueOptions,
        save: Option<Arc<SaveBuffer>>,
        own_save: bool,
    ) -> Result<Self> {
        let ring = Ring::new(options.kind, options.ring_bytes)?;
        let ring_buffer = Arc::new(Buffer::new(device, Kind::Gtt, options.ring_bytes)?);
        let object = Arc::new(Object::new(device, options.kind, &ring_buffer)?);
        let compute = options.kind != QueueKind::Sdma;
        let mut packets = 0;
        if options.kind == QueueKind::Aql {
            packets = options.ring_bytes / aql::BYTES;
            for slot in 0..packets {
                ring_buffer.write_u32(slot * aql::BYTES, aql::INVALID.into())?;
            }
        }
        let mut arg = abi::CreateQueue {
            ring_base_address: ring_buffer.address(),
            write_pointer_address: object.write_address(),
            read_pointer_address: object.read_address(),
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
            if own_save {
                s.report_to(&object)?;
            }
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
                if destroy(device, arg.queue_id).is_err() {
                    // The GPU may still use them.
                    std::mem::forget((ring_buffer, object, eop, save));
                }
                return Err(e);
            }
        };
        let live = Arc::new(Live {
            device: device.clone(),
            doorbells,
            ring: ring_buffer,
            object,
            _eop: eop,
            _save: save,
            scratch: RwLock::default(),
        });
        let queue = Self {
            options,
            id: arg.queue_id,
            doorbell_offset: arg.doorbell_offset,
            ring: Mutex::new(WriteSide::new(ring)),
            in_line: AtomicUsize::new(0),
            written: AtomicU64::new(0),
            told: AtomicU64::new(0),
            producers: Producers::new(packets),
            watcher: Mutex::new(None),
            live,
            gone: false,
            refused: None,
        };
        if options.kind == QueueKind::Aql {
            let object = &queue.live.object;
            object.complete(queue.id, queue.doorbell_address())?;
        }
        Ok(queue)
    }

    /// Its GPU.
    pub fn device(&self) -> &Arc<Device> {
        &self.live.device
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
        self.live.ring.address()
    }

    /// The ring's size in bytes.
    pub fn ring_bytes(&self) -> usize {
        self.options.ring_bytes
    }

    /// Address of the write pointer.
    pub fn write_pointer_address(&self) -> u64 {
        self.live.object.write_address()
    }

    /// Address of the read pointer.
    pub fn read_pointer_address(&self) -> u64 {
        self.live.object.read_address()
    }

    /// Address of an AQL queue's `amd_queue_t`; kernels and tools know the queue by it.
    pub fn object_address(&self) -> u64 {
        self.live.object.address()
    }

    /// The mmap offset of `/dev/kfd` that stands for the doorbell.
    pub fn doorbell_offset(&self) -> u64 {
        self.doorbell_offset
    }

    /// The doorbell's address in this process.
    pub fn doorbell_address(&self) -> u64 {
        // CAST: a 64-bit process.
        self.live.doorbells.address() as u64 + self.doorbell_in_slice() as u64
    }

    fn doorbell_in_slice(&self) -> usize {
        // CAST: 13 bits. The mask keeps the access, 8-byte aligned, inside the mapping.
        (self.doorbell_offset & (DOORBELL_SLICE as u64 - 8)) as usize
    }

    fn write_side(&self) -> MutexGuard<'_, WriteSide> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn demand(&self, aql: bool) -> Result<()> {
        match (aql, self.options.kind) {
            (true, QueueKind::Aql) | (false, QueueKind::Pm4 | QueueKind::Sdma) => Ok(()),
            (true, _) => Err(Error::Argument("Only an AQL queue takes AQL packets")),
            (false, _) => Err(Error::Argument("An AQL queue takes packets of 64 bytes")),
        }
    }

    /// The read pointer as the GPU reported it, in the ring's units (a PM4 queue's wraps with the ring).
    pub fn read_pointer(&self) -> u64 {
        let object = &self.live.object;
        match self.options.kind {
            QueueKind::Pm4 => object.read_low().into(),
            QueueKind::Aql | QueueKind::Sdma => object.read().load(Ordering::Acquire),
        }
    }

    /// The write pointer, in the ring's units, monotonic. That of an AQL queue counts the places that were taken.
    pub fn write_pointer(&self) -> u64 {
        match self.options.kind {
            QueueKind::Aql => self.live.object.write().load(Ordering::Acquire),
            QueueKind::Pm4 | QueueKind::Sdma => self.written.load(Ordering::Acquire),
        }
    }

    /// Units that the GPU has read, monotonic.
    fn consumed(&self) -> u64 {
        if self.options.kind != QueueKind::Pm4 {
            return self.read_pointer();
        }
        let units = (self.options.ring_bytes / 4) as u64; // CAST: a size in memory.
        loop {
            // The reader is at most a ring behind the writer, so the two tell where it is: if they are of one moment.
            let written = self.written.load(Ordering::Acquire);
            let read = self.read_pointer();
            if self.written.load(Ordering::Acquire) == written {
                return written.wrapping_sub(written.wrapping_sub(read) % units);
            }
        }
    }

    /// What the GPU was told of, in the ring's units; of an AQL queue, what is valid.
    fn submitted(&self) -> u64 {
        match self.options.kind {
            QueueKind::Aql => self.producers.highest(),
            QueueKind::Pm4 | QueueKind::Sdma => self.told.load(Ordering::Acquire),
        }
    }

    /// True when the GPU read everything that was submitted.
    pub fn drained(&self) -> bool {
        self.submitted().wrapping_sub(self.consumed()) == 0
    }

    /// Waits until the GPU read everything that was submitted before the call. Packets of an AQL queue are announced
    /// first; those of other queues that were not flushed are not waited for.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; [`Error::QueueFailed`] where an AQL queue stopped at a packet.
    pub fn drain(&self, limit: Duration) -> Result<()> {
        let target = self.submitted();
        self.wait("the queue to drain", limit, |q| {
            // CAST: a difference of two indices that are close; negative where the GPU is further.
            q.consumed().wrapping_sub(target) as i64 >= 0
        })
    }

    /// Waits until there is room for `units` units. It is room for whoever comes first then: those who want more may wait
    /// for as long as others take each little that there is, unless they wait in [`Queue::stage_within`].
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::QueueFailed`].
    pub fn wait_for_room(&self, units: u64, limit: Duration) -> Result<()> {
        self.wait("room in the ring", limit, |q| q.free() >= units)
    }

    fn wait(
        &self,
        what: &'static str,
        limit: Duration,
        done: impl Fn(&Self) -> bool,
    ) -> Result<()> {
        wait_until(what, limit, || {
            if self.options.kind == QueueKind::Aql {
                self.announce();
            }
            let done = done(self);
            if !done {
                self.check()?;
            }
            Ok((done, self.read_pointer()))
        })
    }

    /// What stopped an AQL queue, if anything did.
    pub fn error(&self) -> Option<QueueError> {
        self.live.object.error()
    }

    fn check(&self) -> Result<()> {
        match self.error() {
            Some(error) => Err(Error::QueueFailed(error)),
            None => Ok(()),
        }
    }

    /// Sleeps until an AQL queue stops at a packet.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; [`Error::Argument`] on another kind of queue; [`Error::Call`].
    pub fn wait_error(&self, limit: Duration) -> Result<QueueError> {
        self.demand(true)?;
        let deadline = Deadline::after(limit);
        let mut age = crate::event::FIRST_AGE;
        loop {
            if let Some(error) = self.error() {
                return Ok(error);
            }
            let waited = deadline.elapsed();
            if deadline.passed() {
                return Err(Error::TimedOut {
                    what: "a queue to fail",
                    seen: self.read_pointer(),
                    ms: waited.as_millis(),
                });
            }
            self.live
                .object
                .sleep(&mut age, limit.saturating_sub(waited))?;
        }
    }

    /// Calls `tell` from a thread of its own each time that an AQL queue stops, and again where the driver tells more of the
    /// same stop. It takes the place of the one before; `None` ends the calls. After it returned, the one before is not
    /// called any more (unless it is the caller).
    ///
    /// # Errors
    /// [`Error::Argument`] on another kind of queue; [`Error::Thread`].
    pub fn on_error(&self, tell: Option<Box<dyn FnMut(QueueError) + Send>>) -> Result<()> {
        self.demand(true)?;
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        *watcher = None;
        if let Some(tell) = tell {
            *watcher = Some(Watcher::start(self.live.object.clone(), tell)?);
        }
        Ok(())
    }

    /// Room in the ring now, in its units (dwords, bytes or packets); none while somebody waits in
    /// [`Queue::stage_within`], who gets it first.
    pub fn free(&self) -> u64 {
        if self.in_line.load(Ordering::Acquire) != 0 {
            return 0;
        }
        let spare = match self.options.kind {
            QueueKind::Pm4 => 1,
            QueueKind::Sdma => 4,
            QueueKind::Aql => 0,
        };
        let units = self.options.ring_bytes as u64 / self.unit(); // CAST: a size in memory.
        let used = self.write_pointer().wrapping_sub(self.consumed());
        // The GPU may have read on between the two, and producers run ahead of the ring.
        let used = if used > u64::MAX / 2 { 0 } else { used };
        units.saturating_sub(spare).saturating_sub(used)
    }

    fn unit(&self) -> u64 {
        match self.options.kind {
            QueueKind::Pm4 => 4,
            QueueKind::Sdma => 1,
            QueueKind::Aql => aql::BYTES as u64, // CAST: a constant.
        }
    }

    /// Tells the GPU of everything written: the write pointer goes to memory, then the doorbell rings, once.
    ///
    /// Returns whether there was anything to tell.
    pub fn flush(&self) -> bool {
        if self.options.kind == QueueKind::Aql {
            return self.announce();
        }
        let ring = self.write_side();
        let written = ring.ring.written();
        if written == self.told.load(Ordering::Relaxed) {
            return false;
        }
        self.live.object.write().store(written, Ordering::Release);
        self.ring_doorbell(written);
        self.told.store(written, Ordering::Release);
        true
    }

    /// Stores a value to the doorbell, after everything stored before.
    pub fn ring_doorbell(&self, value: u64) {
        sys::publish();
        // SAFETY: `doorbell_in_slice` is 8-byte aligned and inside the mapping, which lives as long as `self`. Any value
        // is harmless: it only wakes this process's own queue. Threads ring it at the same time, hence the atomic store.
        unsafe {
            let at = self
                .live
                .doorbells
                .as_ptr()
                .add(self.doorbell_in_slice())
                .cast();
            AtomicU64::from_ptr(at).store(value, Ordering::Relaxed);
        };
    }

    /// Changes percentage and priority; percentage 0 stops the queue.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn update(&self, percentage: u32, priority: u32) -> Result<()> {
        let mut arg = abi::UpdateQueue {
            ring_base_address: self.ring_address(),
            queue_id: self.id,
            ring_size: u32::try_from(self.options.ring_bytes)
                .map_err(|_| Error::Argument("A ring beyond 4 GiB"))?,
            queue_percentage: percentage,
            queue_priority: priority,
        };
        let device = &self.live.device;
        device
            .kfd()
            .plain("UPDATE_QUEUE", abi::UPDATE_QUEUE, &mut arg)
    }

    /// Restricts the queue's waves to the compute units whose bits are set, 32 per word.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn set_cu_mask(&self, mask: &[u32]) -> Result<()> {
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
                &**self.live.device.kfd(),
                "SET_CU_MASK",
                abi::SET_CU_MASK,
                &mut arg,
            )
        }
    }
}
