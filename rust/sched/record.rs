// SPDX-License-Identifier: GPL-2.0

//! What the scheduler knows of each process and each queue: what is wanted, and where the hardware
//! stands.

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::Arc,
};

use super::{
    mqd::MqdMem,
    params::{
        Cwsr,
        EvictCause,
        KeepAlive,
        ProcessParams, //
    },
    sdma::SdmaSlot,
    watchdog::Watch, //
};
use crate::{
    gpu::Doorbell,
    hw::{
        doorbell::DoorbellOffset,
        pm4::{
            process::Debug,
            Engine, //
        }, //
    }, //
};

/// Where a queue is, as far as the driver knows.
///
/// ```text
/// Created ──┬─> Mapped ──> Preempting ──> Unmapped
///           │     ^  \          │            │
///           │     │   \         v            │
///           │     │    `────> Lost ──────────┤ (after a reset)
///           │     └──────────────────────────┘
///           └─> (destroyed)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Was never part of a runlist.
    Created,
    /// Part of the runlist that the hardware works on.
    Mapped,
    /// Its preemption was requested and is not confirmed.
    Preempting,
    /// Was mapped once, and the hardware confirmed that it is off.
    Unmapped,
    /// The hardware never confirmed: it may still run, until the device is reset.
    Lost,
}

impl Phase {
    /// Whether the hardware may touch the queue's memory.
    pub(crate) fn on_hardware(self) -> bool {
        match self {
            Self::Mapped | Self::Preempting | Self::Lost => true,
            Self::Created | Self::Unmapped => false,
        }
    }

    /// The phase after the queue became part of a submitted runlist.
    pub(super) fn mapped(self) -> Result<Self> {
        match self {
            Self::Created | Self::Unmapped => Ok(Self::Mapped),
            Self::Mapped | Self::Preempting | Self::Lost => Err(EINVAL),
        }
    }

    /// The phase after preemption was requested.
    pub(super) fn preempting(self) -> Self {
        match self {
            Self::Mapped => Self::Preempting,
            other => other,
        }
    }

    /// The phase after the requested preemption was confirmed.
    pub(super) fn preempted(self) -> Self {
        match self {
            Self::Preempting => Self::Unmapped,
            other => other,
        }
    }

    /// The phase after the hardware stopped answering.
    pub(super) fn lost(self) -> Self {
        match self {
            Self::Mapped | Self::Preempting => Self::Lost,
            other => other,
        }
    }

    /// The phase after the hardware was reset or removed, so that nothing runs on it.
    pub(super) fn stopped(self) -> Self {
        match self {
            Self::Created => Self::Created,
            _ => Self::Unmapped,
        }
    }

    /// Name in dumps.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Mapped => "mapped",
            Self::Preempting => "preempting",
            Self::Unmapped => "unmapped",
            Self::Lost => "lost",
        }
    }
}

/// Type of a queue, without ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpecKind {
    /// Compute, PM4 packets.
    Pm4,
    /// Compute, AQL packets.
    Aql,
    /// SDMA.
    Sdma {
        /// Engine.
        engine: u32,
        /// Queue id on the engine.
        queue: u32,
    },
}

impl SpecKind {
    /// Engine that runs the queue.
    pub(crate) fn engine(self) -> Engine {
        match self {
            Self::Pm4 | Self::Aql => Engine::Compute,
            // CAST: Engine numbers are below 16; they come from `SdmaPool`.
            Self::Sdma { engine, .. } => Engine::Sdma(engine as u8),
        }
    }

    /// Whether the queue takes a compute HQD.
    pub(crate) fn is_compute(self) -> bool {
        self.engine() == Engine::Compute
    }

    /// Name in dumps.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Pm4 => "pm4",
            Self::Aql => "aql",
            Self::Sdma { .. } => "sdma",
        }
    }
}

/// The values of a queue that its descriptor and MAP_QUEUES carry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueSpec {
    /// Type.
    pub(crate) kind: SpecKind,
    /// Ring.
    pub(crate) ring_base: u64,
    /// Bytes of the ring.
    pub(crate) ring_size: u32,
    /// Read pointer report.
    pub(crate) rptr: u64,
    /// Write pointer in memory.
    pub(crate) wptr: u64,
    /// End-of-pipe buffer.
    pub(crate) eop: u64,
    /// Its bytes.
    pub(crate) eop_size: u32,
    /// Wave save area.
    pub(crate) cwsr: Option<Cwsr>,
    /// Doorbell.
    pub(crate) doorbell: DoorbellOffset,
    /// 0 to 15.
    pub(crate) priority: u32,
    /// 0: stopped.
    pub(crate) percent: u32,
    /// Compute units per shader engine.
    pub(crate) cu_mask: Option<[u32; 8]>,
    /// The process has a trap handler.
    pub(crate) trap: bool,
    /// Has the device's global wave sync.
    pub(crate) gws: bool,
}

impl QueueSpec {
    /// Whether there is a ring; a queue without one stands still.
    pub(crate) fn has_ring(&self) -> bool {
        self.ring_size > 0 && self.ring_base != 0
    }

    /// Whether the queue would run if nothing kept it from running.
    pub(crate) fn is_active(&self) -> bool {
        self.has_ring() && self.percent > 0
    }
}

/// What a queue owns for as long as the hardware may use it.
#[derive(Default)]
pub(crate) struct QueueHold {
    /// Doorbell.
    pub(crate) _doorbell: Option<Doorbell>,
    /// SDMA queue id.
    pub(crate) _slot: Option<SdmaSlot>,
    /// Mappings and whatever else the creator wants kept.
    pub(crate) keep: Option<Arc<dyn KeepAlive>>,
}

/// Room for one replaced keep-alive.
pub(super) type KeepRoom = RBTreeNodeReservation<u64, Arc<dyn KeepAlive>>;

/// A change that waits until the queue is off the hardware.
pub(super) struct PendingUpdate {
    /// Complete new values.
    pub(super) spec: QueueSpec,
    /// What replaces the present keep-alive, and room to bury that one.
    pub(super) keep: Option<(Arc<dyn KeepAlive>, KeepRoom)>,
}

/// Whether a queue has hung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hang {
    /// No.
    Sound,
    /// Yes, and its owner does not know yet.
    Untold,
    /// Yes, and its owner was told.
    Told,
}

/// A queue.
pub(super) struct QueueRec {
    pub(super) spec: QueueSpec,
    pub(super) mqd: MqdMem,
    pub(super) phase: Phase,
    /// Destroyed by its owner; the record goes when the hardware is done with it.
    pub(super) doomed: bool,
    /// Nobody waits for the record: the reaper takes it.
    pub(super) orphan: bool,
    pub(super) update: Option<PendingUpdate>,
    /// A queue that has hung does not run again.
    pub(super) hang: Hang,
    /// Oldest change that needs this queue off the hardware and did not get it yet.
    pub(super) need: Option<u64>,
    /// What the watchdog saw last.
    pub(super) watch: Watch,
    pub(super) hold: QueueHold,
}

impl QueueRec {
    /// Whether the queue should be part of the runlist, given whether its process `runs`.
    pub(super) fn wanted(&self, runs: bool) -> bool {
        runs && !self.doomed && self.hang == Hang::Sound && self.spec.is_active()
    }

    /// The values that the queue has or will have soon.
    pub(super) fn newest_spec(&self) -> &QueueSpec {
        self.update
            .as_ref()
            .map_or(&self.spec, |update| &update.spec)
    }

    /// Says whether the process has a trap handler; in force when the queue is mapped next.
    pub(super) fn set_trap(&mut self, trap: bool) {
        let mut spec = *self.newest_spec();
        if spec.kind.is_compute() && spec.trap != trap {
            spec.trap = trap;
            let keep = self.update.take().and_then(|update| update.keep);
            self.update = Some(PendingUpdate { spec, keep });
        }
    }

    /// Whether the queue takes part when its process runs, now or after an eviction.
    pub(super) fn takes_part(&self) -> bool {
        !self.doomed && self.hang == Hang::Sound && self.newest_spec().is_active()
    }

    /// Notes that change number `change` needs the queue off the hardware.
    ///
    /// Returns whether there is anything to wait for.
    pub(super) fn require_off(&mut self, change: u64) -> bool {
        if !self.phase.on_hardware() {
            return false;
        }
        self.need.get_or_insert(change);
        true
    }
}

/// A process.
pub(super) struct ProcRec {
    pub(super) params: ProcessParams,
    /// Who attached it, for people.
    pub(super) pid: i32,
    evictions: [u32; EvictCause::COUNT],
    /// It has a debug interface queue; its compute queues are mapped as static ones.
    pub(super) diq: bool,
    /// The words of a debugger for MAP_PROCESS.
    pub(super) debug: Debug,
    pub(super) queues: RBTree<u64, QueueRec>,
    /// Detached by its owner.
    pub(super) doomed: bool,
    /// Nobody waits for the record: the reaper takes it.
    pub(super) orphan: bool,
}

impl ProcRec {
    /// Makes a process without queues.
    pub(super) fn new(params: ProcessParams) -> Self {
        Self {
            params,
            pid: super::trace::caller(),
            evictions: [0; EvictCause::COUNT],
            diq: false,
            debug: Debug::default(),
            queues: RBTree::new(),
            doomed: false,
            orphan: false,
        }
    }

    /// Whether any cause keeps the queues from running.
    pub(super) fn is_evicted(&self) -> bool {
        self.evictions.iter().any(|count| *count > 0)
    }

    /// How often `cause` holds.
    pub(super) fn evictions(&self, cause: EvictCause) -> u32 {
        self.evictions.get(cause.index()).copied().unwrap_or(0)
    }

    /// Adds one to `cause`.
    ///
    /// # Errors
    ///
    /// `EOVERFLOW`.
    pub(super) fn evict(&mut self, cause: EvictCause) -> Result {
        let count = self.evictions.get_mut(cause.index()).ok_or(EINVAL)?;
        *count = count.checked_add(1).ok_or(EOVERFLOW)?;
        Ok(())
    }

    /// Takes one from `cause` and returns whether the queues may run now.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `cause` does not hold.
    #[cfg_attr(not(rkfd_kunit), allow(dead_code, reason = "seen by tests"))]
    pub(super) fn restore(&mut self, cause: EvictCause) -> Result<bool> {
        let count = self.evictions.get_mut(cause.index()).ok_or(EINVAL)?;
        *count = count.checked_sub(1).ok_or(EINVAL)?;
        Ok(!self.is_evicted())
    }

    /// Whether a queue has global wave sync, or will have it.
    pub(super) fn has_gws(&self) -> bool {
        let mut queues = self.queues.values().filter(|queue| !queue.doomed);
        queues.any(|queue| queue.newest_spec().gws)
    }

    /// Whether anything keeps all queues of the process from running.
    pub(super) fn runs(&self) -> bool {
        !self.doomed && !self.is_evicted()
    }

    /// Whether `queue` of this process should be part of the runlist.
    pub(super) fn wants(&self, queue: &QueueRec) -> bool {
        queue.wanted(self.runs())
    }

    /// Whether any queue of this process should be part of the runlist.
    pub(super) fn wants_any(&self) -> bool {
        self.runs() && self.queues.values().any(|queue| queue.wanted(true))
    }

    /// Whether the hardware may use the address space.
    pub(super) fn on_hardware(&self) -> bool {
        self.queues.values().any(|queue| queue.phase.on_hardware())
    }

    /// Queues that should be part of the runlist.
    pub(super) fn wanted_queues(&self) -> usize {
        self.queues
            .values()
            .filter(|queue| self.wants(queue))
            .count()
    }
}
