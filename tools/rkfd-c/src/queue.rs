// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Queues: their life, their rings, their doorbells.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use library::packet::aql;
use library::queue;
use library::queue::poll;
use library::queue::QueueKind;
use library::queue::QueueOptions as Options;
use nix::errno::Errno;

use crate::error::array;
use crate::error::given;
use crate::error::guard;
use crate::error::release;
use crate::error::Failure;
use crate::error::Result;
use crate::gpu::Vm;

/// Executes PM4 packets on a compute pipe. The ring counts dwords.
pub const RKFD_QUEUE_PM4: u32 = 0;
/// Executes AQL packets on a compute pipe. The ring counts packets of 64 bytes.
pub const RKFD_QUEUE_AQL: u32 = 1;
/// Executes SDMA packets on a copy engine. The ring counts bytes.
pub const RKFD_QUEUE_SDMA: u32 = 2;

/// How to create a queue; start from rkfd_queue_defaults().
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// Ring size in bytes: a power of two of at least 4096, or 0 for 4 KiB (compute) or 64 KiB (SDMA).
    pub ring_bytes: u64,
    /// 0 (stopped) to 100.
    pub percentage: u32,
    /// 0 to 15; 7 is ordinary.
    pub priority: u32,
    /// The copy engine of an SDMA queue; below 0 the driver chooses.
    pub engine: i32,
    /// 0.
    pub reserved: u32,
}

/// Where a queue is, and how far.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// Its id in this process.
    pub queue_id: u32,
    /// RKFD_QUEUE_*.
    pub kind: u32,
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
}

/// A user queue. Its functions may be called from any thread; packets of one thread are not torn apart by another's,
/// but rkfd_queue_reserve() reserves for nobody in particular.
#[derive(Debug)]
pub struct Queue {
    kind: QueueKind,
    ring_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    queue: queue::Queue,
    /// Packets that the GPU was not told of.
    uncommitted: bool,
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut state = self.lock();
        state.queue.stage(dwords)?;
        state.uncommitted = true;
        Ok(())
    }

    /// Puts one AQL packet into the ring; its index.
    pub(crate) fn emit_aql(&self, packet: &[u32; aql::DWORDS], header: u16) -> Result<u64> {
        let mut state = self.lock();
        let index = state.queue.stage_aql(packet, header)?;
        state.uncommitted = true;
        Ok(index)
    }

    /// Waits for the GPU to read on; nothing may be left of which it does not know.
    fn wait(
        &self,
        what: &'static str,
        limit: Duration,
        done: impl Fn(&queue::Queue) -> bool,
    ) -> Result<()> {
        if self.lock().uncommitted {
            return Err(Failure::new(
                Errno::EBUSY,
                format!("Waiting for {what}, but packets are not committed"),
            ));
        }
        // The lock is taken for each look, so that waiting keeps nobody from emitting.
        Ok(poll(what, limit, || {
            let state = self.lock();
            (done(&state.queue), state.queue.read_pointer())
        })?)
    }
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            ring_bytes: 0,
            percentage: 100,
            priority: 7,
            engine: -1,
            reserved: 0,
        }
    }
}

/// The ordinary options: a ring of the ordinary size, percentage 100, priority 7, an engine of the driver's choice.
#[no_mangle]
pub extern "C" fn rkfd_queue_defaults() -> QueueOptions {
    QueueOptions::default()
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
    options.engine = u32::try_from(from.engine).ok();
    if options.engine.is_some() && kind != QueueKind::Sdma {
        return Err(Failure::invalid("Only an SDMA queue is bound to an engine"));
    }
    if from.reserved != 0 {
        return Err(Failure::invalid("The reserved field is not 0"));
    }
    Ok(options)
}

/// Creates a queue (RKFD_QUEUE_* kind) with all that it needs: ring, pointers, end-of-pipe buffer, save area, doorbell.
/// NULL options are rkfd_queue_defaults().
#[no_mangle]
pub extern "C" fn rkfd_queue_new(
    vm: Option<&Vm>,
    kind: u32,
    options: Option<&QueueOptions>,
    queue: Option<&mut MaybeUninit<Option<Box<Queue>>>>,
) -> c_int {
    guard(|| {
        let out = given(queue, "queue")?;
        out.write(None);
        let vm = given(vm, "vm")?;
        let kind = kind_of(kind)?;
        let options = options_of(kind, &options.copied().unwrap_or_default())?;
        let made = queue::Queue::new(&vm.device, options)?;
        out.write(Some(Box::new(Queue {
            kind,
            ring_bytes: options.ring_bytes as u64, // CAST: a 64-bit process.
            state: Mutex::new(State {
                queue: made,
                uncommitted: false,
            }),
        })));
        Ok(())
    })
}

/// Destroys a queue, whatever it still has to do; NULL is allowed.
#[no_mangle]
pub extern "C" fn rkfd_queue_free(queue: Option<Box<Queue>>) {
    release(queue);
}

/// Tells where a queue is, and how far.
#[no_mangle]
pub extern "C" fn rkfd_queue_describe(
    queue: Option<&Queue>,
    info: Option<&mut MaybeUninit<QueueInfo>>,
) -> c_int {
    guard(|| {
        let (queue, info) = (given(queue, "queue")?, given(info, "info")?);
        let state = queue.lock();
        let q = &state.queue;
        info.write(QueueInfo {
            queue_id: q.id(),
            kind: number_of(queue.kind),
            ring_bytes: queue.ring_bytes,
            ring: q.ring_address(),
            write_pointer: q.write_pointer_address(),
            read_pointer: q.read_pointer_address(),
            doorbell: q.doorbell_address(),
            written: q.write_pointer(),
            read: q.read_pointer(),
            room: q.free(),
        });
        Ok(())
    })
}

/// Changes percentage (0 stops the queue) and priority.
#[no_mangle]
pub extern "C" fn rkfd_queue_update(
    queue: Option<&Queue>,
    percentage: u32,
    priority: u32,
) -> c_int {
    guard(|| {
        let queue = given(queue, "queue")?;
        Ok(queue.lock().queue.update(percentage, priority)?)
    })
}

/// Restricts the waves of a compute queue to the compute units whose bits are set; `mask` has `words` words of 32 units
/// each, the first unit in the lowest bit of the first word. Packets that run no waves are not concerned.
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
        Ok(queue.lock().queue.set_cu_mask(mask)?)
    })
}

/// Waits until the ring has room for `dwords` dwords of packets; for `limit_ms` at most, then -ETIMEDOUT. -EINVAL where
/// the ring never has that room, -EBUSY where packets are not committed and the GPU therefore cannot make room.
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
        if queue.lock().queue.free() >= wanted {
            return Ok(());
        }
        let limit = Duration::from_millis(limit_ms.into());
        queue.wait("room in the ring", limit, |q| q.free() >= wanted)
    })
}

/// Tells the GPU of everything emitted, by one doorbell: the write pointer goes to memory, a store barrier orders it and
/// the packets before the doorbell, then the doorbell is rung. Success where there was nothing to tell.
#[no_mangle]
pub extern "C" fn rkfd_queue_commit(queue: Option<&Queue>) -> c_int {
    guard(|| {
        let mut state = given(queue, "queue")?.lock();
        state.queue.flush();
        state.uncommitted = false;
        Ok(())
    })
}

/// Waits until the GPU read everything from the ring; for `limit_ms` at most, then -ETIMEDOUT. -EBUSY where packets are
/// not committed. Read is not done: let the last packet raise an event, complete a signal or write memory, and wait for
/// that. Polls, without entering the kernel.
#[no_mangle]
pub extern "C" fn rkfd_queue_wait(queue: Option<&Queue>, limit_ms: u32) -> c_int {
    guard(|| {
        let limit = Duration::from_millis(limit_ms.into());
        given(queue, "queue")?.wait("the queue to drain", limit, queue::Queue::drained)
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
        let plain = rkfd_queue_defaults();
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
