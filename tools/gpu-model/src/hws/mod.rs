// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The hardware scheduler: what the microcode of the first micro-engine does with the HIQ.

pub mod map;
pub mod packets;
pub mod process;
pub mod runlist;
pub mod unmap;
pub mod walk;
pub mod watch;
pub mod window;

use crate::cp::slot::SlotId;
use runlist::Runlist;

/// What SET_RESOURCES gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resources {
    /// VMIDs to hand out.
    pub vmid_mask: u16,
    /// Compute slots to use.
    pub queue_mask: u64,
    /// How long a queue may take to preempt, in nanoseconds.
    pub unmap_latency_ns: u64,
    /// Processes of different retry modes must not run together.
    pub xnack_check: bool,
}

/// A process that holds a VMID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// PASID.
    pub pasid: u16,
    /// SH_MEM_CONFIG.RETRY_DISABLE of the process.
    pub retry_disable: bool,
    /// Its resources of global wave sync.
    pub gws: u8,
}

/// Where a queue is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Compute slot.
    Compute(SlotId),
    /// SDMA engine and RLC context.
    Sdma(usize, usize),
}

/// A queue the scheduler has connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapped {
    /// Where.
    pub target: Target,
    /// MQD address (VMID 0).
    pub mqd: u64,
    /// Doorbell dword index.
    pub doorbell: u32,
    /// Owner.
    pub pasid: u16,
    /// Its address space.
    pub vmid: u8,
    /// Survives UNMAP_QUEUES of the non-static kind, and rotation.
    pub is_static: bool,
    /// Connected by the KIQ, not by a run list.
    pub by_kiq: bool,
    /// Did not leave at the end of a window; the list may name it again.
    pub stayed: bool,
}

/// An UNMAP_QUEUES that waits for queues.
#[derive(Debug, Clone)]
pub struct PendingUnmap {
    /// When the queues that answer have left.
    pub ready: u64,
    /// When it is over, whatever the others do.
    pub deadline: u64,
    /// Doorbells of queues that will not answer.
    pub refused: Vec<u32>,
}

/// Scheduler state.
#[derive(Debug, Default)]
pub struct Hws {
    /// Pools.
    resources: Option<Resources>,
    /// Owners of VMIDs.
    processes: [Option<Process>; 16],
    /// Connected queues.
    mapped: Vec<Mapped>,
    /// The run list being executed.
    runlist: Option<Runlist>,
    /// An unmap of the HIQ in progress.
    unmap: Option<PendingUnmap>,
    /// The same of the KIQ.
    kiq_unmap: Option<PendingUnmap>,
    /// Slot and MQD of the HIQ.
    hiq: Option<(SlotId, u64)>,
    /// Where the microcode runs whose state this is: the slot that took SET_RESOURCES.
    home: Option<SlotId>,
    /// A fault swallowed a fence of its: for all that a driver can tell it is dead.
    silent: bool,
    /// It could not take a queue off that it has no further means against, and has told the driver so.
    gave_up: bool,
}

impl Hws {
    /// What SET_RESOURCES gave.
    pub fn resources(&self) -> Option<Resources> {
        self.resources
    }

    /// The process that holds a VMID.
    pub fn process(&self, vmid: u8) -> Option<Process> {
        self.processes.get(usize::from(vmid)).copied().flatten()
    }

    /// Connected queues.
    pub fn mapped(&self) -> &[Mapped] {
        &self.mapped
    }

    /// The run list being executed.
    pub fn runlist(&self) -> Option<&Runlist> {
        self.runlist.as_ref()
    }

    /// Slot and MQD of the HIQ.
    pub fn hiq(&self) -> Option<(SlotId, u64)> {
        self.hiq
    }

    /// A HIQ was loaded, with this MQD.
    pub fn loaded_hiq(&mut self, slot: SlotId, mqd: u64) {
        self.hiq = Some((slot, mqd));
    }

    /// Microcode stops or starts anew where `hit` says; what it knew is gone if it was the scheduler's.  Queues that
    /// it connected stay on their slots, as nobody took them off.
    pub fn microcode_ended(&mut self, hit: impl Fn(SlotId) -> bool) {
        if !self.home.is_some_and(hit) {
            return;
        }
        self.mapped.retain(|m| m.by_kiq);
        *self = Hws {
            mapped: std::mem::take(&mut self.mapped),
            hiq: self.hiq,
            ..Hws::default()
        };
    }
}
