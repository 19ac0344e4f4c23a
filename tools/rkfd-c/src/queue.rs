// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Queues: their life, their rings, their doorbells.

use std::ffi::c_int;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::thread;
use std::thread::ThreadId;
use std::time::Duration;

use library::device::DOORBELL_SLICE;
use library::error::Error;
use library::packet::aql;
use library::queue;
use library::queue::QueueKind;
use library::queue::QueueOptions as Options;
use nix::errno::Errno;

use crate::error::array;
use crate::error::given;
use crate::error::guard;
use crate::error::Failure;
use crate::error::Result;
use crate::gpu::Vm;
use crate::sized::answer;
use crate::sized::grows;
use crate::sized::read;

/// Executes PM4 packets on a compute pipe. The ring counts dwords.
pub const RKFD_QUEUE_PM4: u32 = 0;
/// Executes AQL packets on a compute pipe. The ring counts packets of 64 bytes.
pub const RKFD_QUEUE_AQL: u32 = 1;
/// Executes SDMA packets on a copy engine. The ring counts bytes.
pub const RKFD_QUEUE_SDMA: u32 = 2;

/// How to create a queue: set `size`, call rkfd_queue_defaults(), then change what is to differ.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// sizeof(struct rkfd_queue_options).
    pub size: u32,
    /// The copy engine of an SDMA queue; below 0 the driver chooses.
    pub engine: i32,
    /// Ring size in bytes: a power of two of at least 4096, or 0 for 4 KiB (compute) or 64 KiB (SDMA).
    pub ring_bytes: u64,
    /// 0 (stopped) to 100.
    pub percentage: u32,
    /// 0 to 15; 7 is ordinary.
    pub priority: u32,
    /// For how many milliseconds an AQL packet waits for room, where the call names no limit.
    pub full_limit_ms: u32,
    /// 0.
    pub reserved: u32,
}

/// Where a queue is, and how far.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// sizeof(struct rkfd_queue_info); set it before the call.
    pub size: u32,
    /// Its id in this process.
    pub queue_id: u32,
    /// RKFD_QUEUE_*.
    pub kind: u32,
    /// 0.
    pub reserved: u32,
    /// The ring's size in bytes.
    pub ring_bytes: u64,
    /// The ring's address.
    pub ring: u64,
    /// Address of the write pointer.
    pub write_pointer: u64,
    /// Address of the read pointer.
    pub read_pointer: u64,
    /// Address of the doorbell in this process.
    pub doorbell: u64,
    /// Units written; monotonic.
    pub written: u64,
    /// The GPU's read pointer in units; that of a PM4 queue wraps with the ring.
    pub read: u64,
    /// Units of room.
    pub room: u64,
    /// Address of an AQL queue's amd_queue_t, 0 for other queues.
    pub object: u64,
    /// Byte of the doorbell in the process's doorbells on the GPU (RKFD_BUFFER_DOORBELL).
    pub doorbell_offset: u64,
}

grows! {
    QueueOptions, "rkfd_queue_options", 32;
    QueueInfo, "rkfd_queue_info", 88;
}

/// A user queue. Packets of one call stay together, whoever else emits. PM4 and SDMA packets are copied behind a lock;
/// AQL packets go into places that producers take without one, in the order in which they came.
#[derive(Debug)]
pub struct Queue {
    kind: QueueKind,
    ring_bytes: u64,
    pub(crate) queue: queue::Queue,
    /// Threads with PM4 or SDMA packets in the ring of which the GPU was not told.
    uncommitted: Mutex<Vec<ThreadId>>,
}

fn kind_of(number: u32) -> Result<QueueKind> {
    match number {
        RKFD_QUEUE_PM4 => Ok(QueueKind::Pm4),
        RKFD_QUEUE_AQL => Ok(QueueKind::Aql),
        RKFD_QUEUE_SDMA => Ok(QueueKind::Sdma),
        other => Err(Failure::invalid(format!("No kind of queue: {other}"))),
    }
}

fn number_of(kind: QueueKind) -> u32 {
    match kind {
        QueueKind::Pm4 => RKFD_QUEUE_PM4,
        QueueKind::Aql => RKFD_QUEUE_AQL,
        QueueKind::Sdma => RKFD_QUEUE_SDMA,
    }
}

fn name_of(kind: QueueKind) -> &'static str {
    match kind {
        QueueKind::Pm4 => "a PM4 queue",
        QueueKind::Aql => "an AQL queue",
        QueueKind::Sdma => "an SDMA queue",
    }
}

/// Units of the ring that `bytes` bytes of packets take.
fn units(kind: QueueKind, bytes: u64) -> u64 {
    match kind {
        QueueKind::Pm4 => bytes.div_ceil(4),
        QueueKind::Sdma => bytes,
        QueueKind::Aql => bytes.div_ceil(aql::BYTES as u64), // CAST: a constant.
    }
}

/// Units that fit an empty ring. A full PM4 or SDMA ring keeps one dword free, so that it does not look empty.
fn capacity(kind: QueueKind, ring_bytes: u64) -> u64 {
    let spare = if kind == QueueKind::Aql { 0 } else { 4 };
    units(kind, ring_bytes.saturating_sub(spare))
}

impl Queue {
    pub(crate) fn ring_bytes(&self) -> u64 {
        self.ring_bytes
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ThreadId>> {
        self.uncommitted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn demand(&self, kind: QueueKind) -> Result<()> {
        if self.kind == kind {
            return Ok(());
        }
        Err(Failure::invalid(format!(
            "A packet for {} on {}",
            name_of(kind),
            name_of(self.kind)
        )))
    }

    /// Puts whole packets into the ring, or none of them.
    pub(crate) fn emit(&self, dwords: &[u32]) -> Result<()> {
        let mut uncommitted = self.lock();
        self.queue.stage(dwords)?;
        note(&mut uncommitted);
        Ok(())
    }

    /// As [`Queue::emit`], but waits for room in line, for `limit` at most.
    pub(crate) fn emit_within(&self, dwords: &[u32], limit: Duration) -> Result<()> {
        {
            let mut uncommitted = self.lock();
            match self.queue.stage(dwords) {
                Ok(()) => {
                    note(&mut uncommitted);
                    return Ok(());
                }
                Err(Error::RingFull { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The GPU makes room by what it knows of.
        self.commit();
        self.queue.stage_within(dwords, limit)?;
        note(&mut self.lock());
        Ok(())
    }

    fn commit(&self) {
        if self.kind == QueueKind::Aql {
            self.queue.flush();
            return;
        }
        // Emitting waits meanwhile, so that what is forgotten here was flushed.
        let mut uncommitted = self.lock();
        self.queue.flush();
        uncommitted.clear();
    }

    /// A thread that waits for the GPU to read what it has not committed itself would wait in vain.
    fn all_committed(&self, what: &'static str) -> Result<()> {
        if !self.lock().contains(&thread::current().id()) {
            return Ok(());
        }
        Err(Failure::new(
            Errno::EBUSY,
            format!("Waiting for {what}, but packets of this thread are not committed"),
        ))
    }
}

/// The calling thread has packets in the ring of which the GPU was not told.
fn note(uncommitted: &mut Vec<ThreadId>) {
    let me = thread::current().id();
    if !uncommitted.contains(&me) {
        uncommitted.push(me);
    }
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            size: size_of::<Self>() as u32, // CAST: a constant.
            engine: -1,
            ring_bytes: 0,
            percentage: 100,
            priority: 7,
            full_limit_ms: 30_000,
            reserved: 0,
        }
    }
}

/// Sets options, whose `size` is set, to the ordinary ones: a ring of the ordinary size, percentage 100, priority 7, an
/// engine of the driver's choice, 30 s.
///
/// MT-Safe.
///
/// # Safety
/// `options` points to as many bytes as its `size` says.
#[no_mangle]
pub unsafe extern "C" fn rkfd_queue_defaults(options: *mut QueueOptions) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { answer(options) }?.give(QueueOptions::default());
        Ok(())
    })
}

fn options_of(kind: QueueKind, from: &QueueOptions) -> Result<Options> {
    let mut options = Options::new(kind);
    if from.ring_bytes != 0 {
        options.ring_bytes = usize::try_from(from.ring_bytes)
            .ok()
            .filter(|_| u32::try_from(from.ring_bytes).is_ok())
            .ok_or_else(|| Failure::invalid("A ring beyond 4 GiB"))?;
    }
    options.percentage = from.percentage;
    options.priority = from.priority;
    options.full_limit = Duration::from_millis(from.full_limit_ms.into());
    options.engine = u32::try_from(from.engine).ok();
    if options.engine.is_some() && kind != QueueKind::Sdma {
        return Err(Failure::invalid("Only an SDMA queue is bound to an engine"));
    }
    if from.reserved != 0 {
        return Err(Failure::invalid("The reserved field is not 0"));
    }
    Ok(options)
}

/// Creates a queue (RKFD_QUEUE_* kind) with all that it needs: ring, pointers, end-of-pipe buffer, save area, doorbell, and
/// for AQL an amd_queue_t with an event for its errors. NULL options are those of rkfd_queue_defaults().
///
/// MT-Safe.
///
/// # Safety
/// `options` is NULL or points to as many bytes as its `size` says.
#[no_mangle]
pub unsafe extern "C" fn rkfd_queue_new(
    vm: Option<&Vm>,
    kind: u32,
    options: *const QueueOptions,
    queue: Option<&mut MaybeUninit<Option<Box<Queue>>>>,
) -> c_int {
    guard(|| {
        let out = given(queue, "queue")?;
        out.write(None);
        let vm = given(vm, "vm")?;
        let kind = kind_of(kind)?;
        let options = if options.is_null() {
            QueueOptions::default()
        } else {
            // SAFETY: the caller's promise.
            unsafe { read(options) }?
        };
        let options = options_of(kind, &options)?;
        let made = queue::Queue::new(&vm.device, options)?;
        out.write(Some(Box::new(Queue {
            kind,
            ring_bytes: options.ring_bytes as u64, // CAST: a 64-bit process.
            queue: made,
            uncommitted: Mutex::new(Vec::new()),
        })));
        Ok(())
    })
}

/// Destroys a queue, whatever it still has to do; NULL is allowed. -EIO means that the queue does not leave the hardware, or
/// left it only by a reset of the GPU: the queue and all its memory stay then, the handle stays valid, and the call can be
/// repeated, which succeeds where the queue is gone. Not to be called from an error callback of the same queue.
///
/// MT-Unsafe race:queue: no other call may use the queue meanwhile, nor after success.
#[no_mangle]
pub extern "C" fn rkfd_queue_free(queue: Option<Box<Queue>>) -> c_int {
    guard(|| {
        let Some(mut queue) = queue else {
            return Ok(());
        };
        let destroyed = queue.queue.destroy();
        if destroyed.is_err() {
            // The caller keeps it.
            let _ = Box::into_raw(queue);
        }
        Ok(destroyed?)
    })
}

/// Tells where a queue is, and how far.
///
/// MT-Safe.
///
/// # Safety
/// `info` points to as many bytes as its `size` says.
#[no_mangle]
pub unsafe extern "C" fn rkfd_queue_describe(queue: Option<&Queue>, info: *mut QueueInfo) -> c_int {
    guard(|| {
        let queue = given(queue, "queue")?;
        // SAFETY: the caller's promise.
        let info = unsafe { answer(info) }?;
        let q = &queue.queue;
        info.give(QueueInfo {
            size: 0,
            queue_id: q.id(),
            kind: number_of(queue.kind),
            reserved: 0,
            ring_bytes: queue.ring_bytes,
            ring: q.ring_address(),
            write_pointer: q.write_pointer_address(),
            read_pointer: q.read_pointer_address(),
            doorbell: q.doorbell_address(),
            written: q.write_pointer(),
            read: q.read_pointer(),
            room: q.free(),
            object: match queue.kind {
                QueueKind::Aql => q.object_address(),
                QueueKind::Pm4 | QueueKind::Sdma => 0,
            },
            // CAST: a constant.
            doorbell_offset: q.doorbell_offset() % DOORBELL_SLICE as u64,
        });
        Ok(())
    })
}

/// Changes percentage (0 stops the queue) and priority.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_queue_update(
    queue: Option<&Queue>,
    percentage: u32,
    priority: u32,
) -> c_int {
    guard(|| {
        let queue = given(queue, "queue")?;
        Ok(queue.queue.update(percentage, priority)?)
    })
}

/// Restricts the waves of a compute queue to the compute units whose bits are set; `mask` has `words` words of 32 units
/// each, the first unit in the lowest bit of the first word. Packets that run no waves are not concerned.
///
/// MT-Safe.
///
/// # Safety
/// `mask` points to that many words.
#[no_mangle]
pub unsafe extern "C" fn rkfd_queue_set_cu_mask(
    queue: Option<&Queue>,
    mask: *const u32,
    words: u32,
) -> c_int {
    guard(|| {
        let queue = given(queue, "queue")?;
        if queue.kind == QueueKind::Sdma {
            return Err(Failure::invalid("An SDMA queue has no compute units"));
        }
        // SAFETY: the caller's promise.
        let mask = unsafe { array(mask, words, "mask") }?;
        Ok(queue.queue.set_cu_mask(mask)?)
    })
}

/// Waits until the ring has room for `dwords` dwords of packets; for `limit_ms` at most, then -ETIMEDOUT. -EINVAL where
/// the ring never has that room, -EBUSY where packets of the calling thread are not committed and the GPU therefore cannot
/// make room, -EIO where an AQL queue stopped at a packet. Spins for a moment, then sleeps. Room is room for any thread, in no
/// order: rkfd_aql_reserve() takes it, and for PM4 and SDMA rkfd_queue_emit_within().
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_queue_reserve(queue: Option<&Queue>, dwords: u32, limit_ms: u32) -> c_int {
    guard(|| {
        let queue = given(queue, "queue")?;
        let wanted = units(queue.kind, u64::from(dwords) * 4);
        let most = capacity(queue.kind, queue.ring_bytes);
        if wanted > most {
            return Err(Failure::invalid(format!(
                "The ring never has room for {wanted} units; {most} at most"
            )));
        }
        if queue.queue.free() >= wanted {
            return Ok(());
        }
        queue.all_committed("room in the ring")?;
        Ok(queue.queue.wait_for_room(wanted, millis(limit_ms))?)
    })
}

/// Tells the GPU of everything emitted, by whichever thread, by one doorbell: the write pointer goes to memory, a store
/// barrier orders it and the packets before the doorbell, then the doorbell is rung. Success where there was nothing to
/// tell.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_queue_commit(queue: Option<&Queue>) -> c_int {
    guard(|| {
        given(queue, "queue")?.commit();
        Ok(())
    })
}

/// Waits until the GPU has read everything from the ring that was committed before the call (of an AQL queue, everything
/// that is valid); for `limit_ms` at most, then -ETIMEDOUT. -EBUSY where packets of the calling thread are not committed,
/// -EIO where an AQL queue stopped at a packet. Read is not done: let the last packet raise an event, complete a signal or
/// write memory, and wait for that. Spins for a moment, then sleeps.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_queue_wait(queue: Option<&Queue>, limit_ms: u32) -> c_int {
    guard(|| {
        let queue = given(queue, "queue")?;
        queue.all_committed("the queue to drain")?;
        Ok(queue.queue.drain(millis(limit_ms))?)
    })
}

pub(crate) fn millis(limit: u32) -> Duration {
    Duration::from_millis(limit.into())
}

/// Takes `count` places of an AQL ring in a row, for packets that the caller writes in place. Waits for room behind those
/// who came first, spinning for a moment, then sleeping; for `limit_ms` at most, then -ETIMEDOUT, and the places are
/// nobody's. `first` receives the index of the first; the others follow. Each has to be made valid by rkfd_aql_publish().
/// -EINVAL for 0 and for more than the ring has, -EIO where the queue stopped at a packet.
///
/// MT-Safe; without a lock.
#[no_mangle]
pub extern "C" fn rkfd_aql_reserve(
    queue: Option<&Queue>,
    count: u32,
    limit_ms: u32,
    first: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    guard(|| {
        let (queue, first) = (given(queue, "queue")?, given(first, "first")?);
        queue.demand(QueueKind::Aql)?;
        first.write(queue.queue.take_aql(count.into(), millis(limit_ms))?);
        Ok(())
    })
}

/// Where the packet with that index is to be written: 64 bytes, of which the first two, the header, are
/// rkfd_aql_publish()'s. NULL where nobody has taken the place, and where its packet was published.
///
/// MT-Safe; without a lock.
#[no_mangle]
pub extern "C" fn rkfd_aql_place(queue: Option<&Queue>, index: u64) -> *mut c_void {
    queue
        .and_then(|q| q.queue.aql_place(index))
        .map_or(null_mut(), |at| at.cast())
}

/// Makes a packet valid that was written in place: stores its header, after all of the packet. The GPU may run it from now
/// on, and does after rkfd_queue_commit(). -EINVAL where the place is not open, which it is not any more once its packet
/// was published, by this thread or another; and for a header of type INVALID (1).
///
/// MT-Safe; without a lock.
#[no_mangle]
pub extern "C" fn rkfd_aql_publish(queue: Option<&Queue>, index: u64, header: u16) -> c_int {
    guard(|| {
        let queue = given(queue, "queue")?;
        queue.demand(QueueKind::Aql)?;
        Ok(queue.queue.publish_aql(index, header)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities() {
        assert_eq!(capacity(QueueKind::Pm4, 4096), 1023);
        assert_eq!(capacity(QueueKind::Sdma, 4096), 4092);
        assert_eq!(capacity(QueueKind::Aql, 4096), 64);
        assert_eq!(units(QueueKind::Aql, 68), 2);
    }

    #[test]
    fn options_are_checked() {
        let plain = QueueOptions::default();
        let sdma = options_of(QueueKind::Sdma, &plain).unwrap();
        assert_eq!((sdma.ring_bytes, sdma.engine), (0x10000, None));
        let engine = QueueOptions { engine: 1, ..plain };
        assert_eq!(
            options_of(QueueKind::Sdma, &engine).unwrap().engine,
            Some(1)
        );
        assert!(options_of(QueueKind::Pm4, &engine).is_err());
        for wrong in [
            QueueOptions {
                ring_bytes: 1 << 32,
                ..plain
            },
            QueueOptions {
                reserved: 1,
                ..plain
            },
        ] {
            assert!(options_of(QueueKind::Pm4, &wrong).is_err());
        }
        assert!(kind_of(3).is_err());
        for kind in [QueueKind::Pm4, QueueKind::Aql, QueueKind::Sdma] {
            assert_eq!(kind_of(number_of(kind)).unwrap(), kind);
        }
    }
}
