// SPDX-License-Identifier: GPL-2.0

//! What callers give the scheduler.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    gpu::vmid::VmidContext,
    hw::{
        doorbell::DoorbellOffset,
        mqd::{
            Cwsr,
            Eop, //
        },
        pm4::Engine, //
    }, //
};

/// Something that must outlive the hardware's use of a process or a queue: page tables, mappings,
/// doorbell slices.
///
/// The scheduler drops it when the hardware can no longer touch it, in a context that holds none
/// of the scheduler's locks.
pub(crate) trait KeepAlive: Send + Sync {}

/// Address space and trap handler of a process, as MAP_PROCESS installs them.
pub(crate) struct ProcessParams {
    /// PASID, not 0 and not attached yet.
    pub(crate) pasid: u16,
    /// Root of the page table with its flags.
    pub(crate) page_table_base: u64,
    /// SH_MEM_CONFIG, which carries the XNACK mode.
    pub(crate) sh_mem_config: u32,
    /// SH_MEM_BASES.
    pub(crate) sh_mem_bases: u32,
    /// Trap handler, 0 if there is none.
    pub(crate) tba: u64,
    /// Memory of the trap handler.
    pub(crate) tma: u64,
    /// Dropped after the last use of the address space.
    #[cfg_attr(not(rkfd_kunit), expect(dead_code, reason = "held, not read"))]
    pub(crate) keep: Option<Arc<dyn KeepAlive>>,
}

/// The plain values of [`ProcessParams`].
#[derive(Clone, Copy)]
pub(super) struct ProcessValues {
    pub(super) pasid: u16,
    page_table_base: u64,
    sh_mem_config: u32,
    sh_mem_bases: u32,
    tba: u64,
    tma: u64,
}

impl ProcessParams {
    /// What a VMID shows of the process.
    pub(super) fn context(&self) -> VmidContext {
        VmidContext {
            pasid: self.pasid,
            page_table_base: self.page_table_base,
            sh_mem_config: self.sh_mem_config,
            sh_mem_bases: self.sh_mem_bases,
            tba: self.tba,
            tma: self.tma,
        }
    }

    /// A copy of the plain values.
    pub(super) fn values(&self) -> ProcessValues {
        ProcessValues {
            pasid: self.pasid,
            page_table_base: self.page_table_base,
            sh_mem_config: self.sh_mem_config,
            sh_mem_bases: self.sh_mem_bases,
            tba: self.tba,
            tma: self.tma,
        }
    }

    /// Puts plain values back.
    pub(super) fn set_values(&mut self, values: ProcessValues) {
        self.pasid = values.pasid;
        self.page_table_base = values.page_table_base;
        self.sh_mem_config = values.sh_mem_config;
        self.sh_mem_bases = values.sh_mem_bases;
        self.tba = values.tba;
        self.tma = values.tma;
    }
}

/// Which queue of which SDMA engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SdmaPlace {
    /// Engine.
    pub(crate) engine: u32,
    /// Queue id on the engine.
    pub(crate) queue: u32,
}

/// Type of a queue. `S` tells of an SDMA queue what is known of its engine: where it is, for the scheduler; what
/// was asked for, before it has a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueKind<S = SdmaPlace> {
    /// Compute, PM4 packets.
    Pm4,
    /// Compute, AQL packets.
    Aql,
    /// SDMA.
    Sdma(S),
}

impl<S> QueueKind<S> {
    /// Whether the queue takes a compute HQD, and waves run for it.
    pub(crate) const fn is_compute(&self) -> bool {
        matches!(self, Self::Pm4 | Self::Aql)
    }
}

impl QueueKind {
    /// Engine that runs the queue.
    pub(crate) fn engine(self) -> Engine {
        match self {
            Self::Pm4 | Self::Aql => Engine::Compute,
            // CAST: Engine numbers are below 16; they come from `SdmaPool`.
            Self::Sdma(place) => Engine::Sdma(place.engine as u8),
        }
    }

    /// Name in dumps.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Pm4 => "pm4",
            Self::Aql => "aql",
            Self::Sdma(_) => "sdma",
        }
    }
}

/// A user queue: the values that its descriptor and MAP_QUEUES carry.
///
/// Addresses are the process' GPU addresses; the caller has validated them and keeps them mapped with what
/// the queue holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueSpec {
    /// Type.
    pub(crate) kind: QueueKind,
    /// Ring.
    pub(crate) ring_base: u64,
    /// Bytes of the ring, a power of two.
    pub(crate) ring_size: u32,
    /// Where the hardware reports the read pointer.
    pub(crate) rptr: u64,
    /// Where user space stores the write pointer.
    pub(crate) wptr: u64,
    /// End-of-pipe buffer of a compute queue.
    pub(crate) eop: Option<Eop>,
    /// Wave save area of a compute queue.
    pub(crate) cwsr: Option<Cwsr>,
    /// Doorbell.
    pub(crate) doorbell: DoorbellOffset,
    /// 0 (least) to 15.
    pub(crate) priority: u32,
    /// 0: the queue exists but does not run.
    pub(crate) percent: u32,
    /// Compute units per shader engine.
    pub(crate) cu_mask: Option<[u32; 8]>,
    /// The process has a trap handler; the scheduler sets it.
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

/// A change of a queue; `None` leaves a property as it is.
#[derive(Default)]
pub(crate) struct QueueUpdate {
    /// Ring.
    pub(crate) ring_base: Option<u64>,
    /// Bytes of the ring, a power of two.
    pub(crate) ring_size: Option<u32>,
    /// 0 stops the queue.
    pub(crate) percent: Option<u32>,
    /// 0 (least) to 15.
    pub(crate) priority: Option<u32>,
    /// Compute units per shader engine, for compute queues.
    pub(crate) cu_mask: Option<[u32; 8]>,
    /// Whether the queue has the device's global wave sync.
    pub(crate) gws: Option<bool>,
    /// Replaces what the queue keeps alive, once the change is in force.
    pub(crate) keep: Option<Arc<dyn KeepAlive>>,
}

/// Why a change of a queue failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpdateError {
    /// It was not accepted: the queue is as before.
    Refused(Error),
    /// It was accepted, and it is not known yet whether the hardware follows.
    Unconfirmed(Error),
}

impl From<UpdateError> for Error {
    fn from(error: UpdateError) -> Self {
        match error {
            UpdateError::Refused(error) | UpdateError::Unconfirmed(error) => error,
        }
    }
}

/// Why the queues of a process may not run. Each cause counts on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum EvictCause {
    /// Pages of a user-pointer buffer are being taken away.
    Userptr,
    /// Pages of a mirror are being taken away.
    Svm,
    /// Buffers move to make room.
    Memory,
    /// The system suspends.
    Suspend,
    /// A debugger stopped the process.
    Debugger,
    /// The process accessed memory that it does not have.
    Fault,
}

impl EvictCause {
    /// Number of causes.
    pub(crate) const COUNT: usize = 6;

    /// All causes, by index.
    pub(crate) const ALL: [Self; Self::COUNT] = [
        Self::Userptr,
        Self::Svm,
        Self::Memory,
        Self::Suspend,
        Self::Debugger,
        Self::Fault,
    ];

    /// Index into an array of counts.
    pub(super) const fn index(self) -> usize {
        // CAST: The discriminant of a fieldless enum.
        self as usize
    }

    /// Name in dumps.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Userptr => "userptr",
            Self::Svm => "svm",
            Self::Memory => "memory",
            Self::Suspend => "suspend",
            Self::Debugger => "debugger",
            Self::Fault => "fault",
        }
    }
}

/// Highest queue priority.
pub(crate) const MAX_PRIORITY: u32 = 15;
