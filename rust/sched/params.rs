// SPDX-License-Identifier: GPL-2.0

//! What callers tell the scheduler.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    sdma::SdmaSlot,
    tunables, //
};
use crate::{
    gpu::{
        vmid::VmidContext,
        Doorbell, //
    },
    hw::{
        num::widen,
        timeouts::unmap_latency_ms, //
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
    #[cfg_attr(not(rkfd_kunit), allow(dead_code, reason = "seen by tests"))]
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

/// Type of a queue.
pub(crate) enum QueueKind {
    /// Compute, PM4 packets.
    Pm4,
    /// Compute, AQL packets.
    Aql,
    /// SDMA.
    Sdma(SdmaSlot),
}

/// Wave save area of a compute queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cwsr {
    /// GPU address in the process' address space.
    pub(crate) base: u64,
    /// Size in bytes of control stack and wave state.
    pub(crate) size: u32,
    /// Size in bytes of the control stack.
    pub(crate) ctl_stack: u32,
}

/// A user queue. Addresses are the process' GPU addresses; the caller has validated them and keeps
/// them mapped with `keep`.
pub(crate) struct QueueParams {
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
    pub(crate) eop: u64,
    /// Its bytes.
    pub(crate) eop_size: u32,
    /// Wave save area of a compute queue.
    pub(crate) cwsr: Option<Cwsr>,
    /// Doorbell.
    pub(crate) doorbell: Doorbell,
    /// 0 (least) to 15.
    pub(crate) priority: u32,
    /// 0: the queue exists but does not run.
    pub(crate) percent: u32,
    /// Dropped after the last use of the queue's memory.
    pub(crate) keep: Option<Arc<dyn KeepAlive>>,
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
    /// It was accepted, and nobody knows whether the hardware follows yet.
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

/// Whether more may be mapped than the hardware has slots for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The firmware takes turns.
    Oversubscribe,
    /// A queue or process too many is refused with `ENOSPC`.
    Strict,
    /// The same, and without the firmware: the driver loads queues into hardware slots itself.
    Direct,
}

/// Tunables, fixed for the life of a scheduler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    /// How long a preemption may take before the firmware counts as hung, in milliseconds.
    pub(crate) timeout_ms: u32,
    /// How long an addition waits for further ones when it would preempt running work, in
    /// microseconds.
    pub(crate) gather_us: u32,
    /// Off: each creation, update and destruction takes a preemption of everything and a runlist of
    /// its own, one after the other, and its caller waits for both, as upstream does.
    pub(crate) coalesce: bool,
    /// Unmap single queues or one process where that is enough.
    pub(crate) targeted: bool,
    /// What to do when hardware slots run out.
    pub(crate) policy: Policy,
    /// Processes per turn, at most and by default as many as there are VMIDs.
    pub(crate) turn_processes: Option<u32>,
    /// How long a queue with work may make no progress before somebody is told, in milliseconds;
    /// 0: for ever.
    pub(crate) watchdog_ms: u32,
    /// Queues on the device.
    pub(crate) max_queues: u32,
    /// Queues of one process on the device.
    pub(crate) max_queues_per_process: u32,
    /// Processes on the device.
    pub(crate) max_processes: u32,
    /// MEC firmware version, which decides about SET_RESOURCES flags and global wave sync; 0: not known.
    pub(crate) mec_firmware: u32,
}

impl Config {
    /// Microseconds of [`Config::timeout_ms`].
    pub(super) fn timeout_us(&self) -> u64 {
        u64::from(self.timeout_ms) * 1000
    }

    /// Microseconds that one preemption may take, with all resets of queues that refuse it, before
    /// the hardware counts as hung. One refusal takes the firmware nine tenths of the time-out, and
    /// the reset of the queue as long at worst.
    pub(super) fn cycle_us(&self) -> u64 {
        self.timeout_us() * CYCLE
    }

    /// Microseconds that a queue may take to leave its slot when the driver asks it by registers.
    pub(super) fn unload_us(&self) -> u64 {
        widen(unmap_latency_ms(self.timeout_ms)) * 1000
    }

    /// Waits for convergence are bounded by this many milliseconds: within them a change is in force
    /// or the scheduler is wedged.
    ///
    /// With the firmware, the worker may have begun a preemption when the change comes, and then
    /// submits a list (a wait for ring space, one for further additions); the preemption that follows
    /// applies the change. Before it the watchdog may ask for a sign of life (a wait for ring space, one for
    /// the fence). Without it, queues leave in the order in which that was asked for: those
    /// that take long share the time of a preemption, in the cycle that runs and in the one that
    /// the change belongs to; the last one of each may overrun it by an attempt and a reset; all
    /// others are fast.
    pub(super) fn converge_ms(&self) -> u32 {
        let us = 2 * self.cycle_us()
            + match self.policy {
                Policy::Oversubscribe | Policy::Strict => {
                    3 * self.timeout_us() + u64::from(self.gather_us)
                }
                Policy::Direct => (4 + MAX_LOADED / SLOW_SHARE) * self.unload_us(),
            };
        u32::try_from(us / 1000)
            .unwrap_or(u32::MAX)
            .saturating_add(1000)
    }
}

/// Time-outs that one preemption may take.
const CYCLE: u64 = 4;
/// An unload by registers that takes more than this part of its time-out is slow.
pub(super) const SLOW_SHARE: u64 = 8;
/// Queues that may be loaded by registers, compute and SDMA together.
const MAX_LOADED: u64 = 64;

impl Default for Config {
    fn default() -> Self {
        Self {
            timeout_ms: crate::hw::timeouts::HWS_PREEMPTION_MS,
            gather_us: 2_000,
            coalesce: true,
            targeted: true,
            policy: Policy::Oversubscribe,
            turn_processes: None,
            watchdog_ms: 0,
            max_queues: tunables::DEFAULT_QUEUES,
            max_queues_per_process: tunables::MAX_QUEUES_PER_PROCESS,
            max_processes: tunables::MAX_PROCESSES,
            mec_firmware: 0,
        }
    }
}

/// Highest queue priority.
pub(crate) const MAX_PRIORITY: u32 = 15;
