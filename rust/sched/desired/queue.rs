// SPDX-License-Identifier: GPL-2.0

//! What the scheduler knows of a queue: what is wanted, and where the hardware stands.

use kernel::{
    prelude::*,
    rbtree::RBTreeNodeReservation,
    sync::Arc, //
};

use super::progress::Progress;
use crate::{
    gpu::Doorbell,
    hw::ih::PacketException,
    sched::{
        mqd::MqdMem,
        params::{
            KeepAlive,
            QueueSpec, //
        },
        sdma_ids::SdmaSlot, //
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
    pub(in crate::sched) fn mapped(self) -> Result<Self> {
        match self {
            Self::Created | Self::Unmapped => Ok(Self::Mapped),
            Self::Mapped | Self::Preempting | Self::Lost => Err(EINVAL),
        }
    }

    /// The phase after preemption was requested.
    pub(in crate::sched) fn preempting(self) -> Self {
        match self {
            Self::Mapped => Self::Preempting,
            other => other,
        }
    }

    /// The phase after the requested preemption was confirmed.
    pub(in crate::sched) fn preempted(self) -> Self {
        match self {
            Self::Preempting => Self::Unmapped,
            other => other,
        }
    }

    /// The phase after the hardware stopped answering.
    pub(in crate::sched) fn lost(self) -> Self {
        match self {
            Self::Mapped | Self::Preempting => Self::Lost,
            other => other,
        }
    }

    /// The phase after the hardware was reset or removed, so that nothing runs on it.
    pub(in crate::sched) fn stopped(self) -> Self {
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

/// What a queue owns for as long as the hardware may use it.
#[derive(Default)]
pub(crate) struct QueueHold {
    /// The doorbell that the queue's [`QueueSpec`] names.
    #[expect(dead_code, reason = "held, not read")]
    pub(crate) doorbell: Option<Doorbell>,
    /// The SDMA queue id that it names.
    #[expect(dead_code, reason = "held, not read")]
    pub(crate) sdma: Option<SdmaSlot>,
    /// Mappings and whatever else the creator wants kept.
    pub(crate) keep: Option<Arc<dyn KeepAlive>>,
}

/// A table entry for the descriptor of a queue that is gone.
pub(in crate::sched) type MqdRoom = RBTreeNodeReservation<u64, MqdMem>;

/// A table entry for one replaced keep-alive.
pub(in crate::sched) type KeepRoom = RBTreeNodeReservation<u64, Arc<dyn KeepAlive>>;

/// A change that waits until the queue is off the hardware.
pub(in crate::sched) struct PendingUpdate {
    /// Complete new values.
    pub(in crate::sched) spec: QueueSpec,
    /// What replaces the present keep-alive, and the table entry that takes that one.
    pub(in crate::sched) keep: Option<(Arc<dyn KeepAlive>, KeepRoom)>,
}

/// Whether a queue has hung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HangState {
    /// No.
    None,
    /// Yes, and its owner was not notified yet.
    Pending,
    /// Yes, and its owner was notified.
    Reported,
}

/// Whether a queue has stopped at a packet that cannot be executed. It does not run again: the hardware would stop
/// there at each turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sched) enum HaltState {
    /// No.
    None,
    /// Yes, and it was not reported yet; what is wrong with the packet.
    Pending(PacketException),
    /// Yes, and it was reported.
    Reported,
}

/// A queue.
pub(in crate::sched) struct QueueRec {
    pub(in crate::sched) spec: QueueSpec,
    pub(in crate::sched) mqd: MqdMem,
    pub(in crate::sched) phase: Phase,
    /// Destroyed by its owner; the record goes when the hardware is done with it.
    pub(in crate::sched) destroyed: bool,
    /// No thread waits for the record: the reaper takes it.
    pub(in crate::sched) orphan: bool,
    pub(in crate::sched) update: Option<PendingUpdate>,
    /// A queue that has hung does not run again.
    pub(in crate::sched) hang: HangState,
    /// One that has stopped at a bad packet neither.
    pub(in crate::sched) halt: HaltState,
    /// Oldest change that needs this queue off the hardware and did not get it yet.
    pub(in crate::sched) pending_since: Option<u64>,
    /// The active list names the queue.
    pub(in crate::sched) listed: bool,
    /// The table entry that takes the descriptor if the queue goes before the list that names it.
    pub(in crate::sched) mqd_room: Option<MqdRoom>,
    /// What the watchdog saw last.
    pub(in crate::sched) progress: Progress,
    pub(in crate::sched) hold: QueueHold,
}

impl QueueRec {
    /// Whether the queue should be part of the runlist, given whether its process `runs`.
    pub(in crate::sched) fn wanted(&self, runs: bool) -> bool {
        runs && self.may_run() && self.spec.is_active()
    }

    /// Notes that the queue does not run again. Its owner is notified once.
    pub(super) fn mark_hung(&mut self) {
        if self.hang == HangState::None {
            self.hang = HangState::Pending;
        }
    }

    /// The values that the queue has or will have soon.
    pub(in crate::sched) fn newest_spec(&self) -> &QueueSpec {
        self.update
            .as_ref()
            .map_or(&self.spec, |update| &update.spec)
    }

    /// Says whether the process has a trap handler; in force when the queue is mapped next.
    pub(in crate::sched) fn set_trap(&mut self, trap: bool) {
        let mut spec = *self.newest_spec();
        if spec.kind.is_compute() && spec.trap != trap {
            spec.trap = trap;
            let keep = self.update.take().and_then(|update| update.keep);
            self.update = Some(PendingUpdate { spec, keep });
        }
    }

    /// Whether the queue takes part when its process runs, now or after an eviction.
    pub(in crate::sched) fn takes_part(&self) -> bool {
        self.may_run() && self.newest_spec().is_active()
    }

    /// Whether nothing keeps the queue from running for good.
    pub(in crate::sched) fn may_run(&self) -> bool {
        !self.destroyed && self.halt == HaltState::None && self.hang == HangState::None
    }

    /// Notes that change number `change` needs the queue off the hardware.
    ///
    /// Returns whether there is anything to wait for.
    pub(in crate::sched) fn require_off(&mut self, change: u64) -> bool {
        if !self.phase.on_hardware() {
            return false;
        }
        self.pending_since.get_or_insert(change);
        true
    }
}
