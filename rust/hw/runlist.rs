// SPDX-License-Identifier: GPL-2.0

//! The run list: which processes and queues the scheduler runs.
//!
//! A list is a buffer of packets: for each process MAP_PROCESS, then MAP_QUEUES for each of its
//! queues. If the hardware cannot hold all of it at once, the list is *over-subscribed* and ends
//! with a RUN_LIST packet that starts the same list over, upon which the scheduler time-slices.
//!
//! Composing takes two passes over the caller's processes. [`Plan::new`] counts, so that the caller
//! can allocate; [`Plan::build`] writes. The second pass checks that it sees what the first saw.
//! Nothing here knows the driver's own process: it is whatever implements [`Process`], in practice
//! one `Vm`. Source: `kfd_packet_manager.c`.

use core::fmt;

use super::doorbell::DoorbellOffset;
use super::num;
use super::pm4;
use super::pm4::process::Debug;
use super::pm4::{
    EncodeError,
    Engine,
    MapProcess,
    MapProcessFlavour,
    MapQueues,
    MapTarget,
    QueueClass,
    RunList,
    Trap, //
};
use super::regs::gc::{
    ShMemBases,
    ShMemConfig, //
};

/// What the scheduler installs for a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    /// PASID, not 0 and unique in the list.
    pub(crate) pasid: u16,
    /// Root of the page tables with flags, see `pte::page_table_base`.
    pub(crate) page_table_base: u64,
    /// Address modes; its RETRY_DISABLE bit is the XNACK mode.
    pub(crate) sh_mem_config: ShMemConfig,
    /// LDS and scratch apertures.
    pub(crate) sh_mem_bases: ShMemBases,
    /// Trap handler.
    pub(crate) trap: Option<Trap>,
    /// Time slice when over-subscribed, `timeouts::PROCESS_QUANTUM` by default.
    pub(crate) quantum: u32,
    /// Global wave sync slots that its GWS queue gets.
    pub(crate) num_gws: u32,
    /// The process has a debug interface queue: MAP_PROCESS does not count its queues, and those for
    /// compute are static.
    pub(crate) diq: bool,
    /// The words of a debugger that is attached.
    pub(crate) debug: Debug,
}

impl Context {
    /// Whether faults of the process are retried.
    pub(crate) const fn xnack(&self) -> bool {
        !self.sh_mem_config.is_set(ShMemConfig::RETRY_DISABLE)
    }
}

/// A queue that is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    /// Engine.
    pub(crate) engine: Engine,
    /// Doorbell.
    pub(crate) doorbell: DoorbellOffset,
    /// Address of its MQD in VMID 0.
    pub(crate) mqd: u64,
    /// Address of its write pointer in its own VMID.
    pub(crate) wptr: u64,
    /// Uses global wave sync.
    pub(crate) gws: bool,
}

/// A process with queues to run.
pub(crate) trait Process {
    /// Its context.
    fn context(&self) -> Context;

    /// Its active queues, in the order in which they are to be mapped.
    fn queues(&self) -> impl Iterator<Item = Queue>;
}

impl<P: Process> Process for &P {
    fn context(&self) -> Context {
        (**self).context()
    }

    fn queues(&self) -> impl Iterator<Item = Queue> {
        (**self).queues()
    }
}

/// A process whose queues lie in a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SliceProcess<'a> {
    /// Its context.
    pub(crate) context: Context,
    /// Its queues.
    pub(crate) queues: &'a [Queue],
}

impl Process for SliceProcess<'_> {
    fn context(&self) -> Context {
        self.context
    }

    fn queues(&self) -> impl Iterator<Item = Queue> {
        self.queues.iter().copied()
    }
}

/// What the hardware and the policy allow at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Layout of MAP_PROCESS.
    pub(crate) flavour: MapProcessFlavour,
    /// Processes mapped at a time: the VMIDs of compute or fewer.
    pub(crate) max_processes: u32,
    /// Compute queue slots given to the scheduler by SET_RESOURCES.
    pub(crate) compute_slots: u32,
    /// The scheduler keeps XNACK modes apart (SET_RESOURCES.enb_xnack_retry_disable_check).
    pub(crate) xnack_check: bool,
    /// Run one process at a time and clean up between them.
    pub(crate) isolate: bool,
}

/// Why a list does not fit the hardware at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Oversubscription {
    /// More processes than can be mapped.
    pub(crate) processes: bool,
    /// More compute queues than slots.
    pub(crate) compute_queues: bool,
    /// More than one queue with global wave sync.
    pub(crate) gws_queues: bool,
    /// Different XNACK modes that the scheduler keeps apart.
    pub(crate) xnack_modes: bool,
}

impl Oversubscription {
    /// Whether there is any reason.
    pub(crate) const fn any(self) -> bool {
        self.processes || self.compute_queues || self.gws_queues || self.xnack_modes
    }
}

impl fmt::Display for Oversubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (on, reason) in [
            (self.processes, "processes"),
            (self.compute_queues, "compute queues"),
            (self.gws_queues, "cooperative queues"),
            (self.xnack_modes, "mixed retry modes"),
        ] {
            if on {
                write!(f, "{separator}{reason}")?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

/// A list cannot be composed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunListError {
    /// A packet cannot be encoded, or the buffer is too short.
    Encode(EncodeError),
    /// A process has no PASID.
    NoPasid,
    /// Two processes have the same PASID.
    DuplicatePasid(u16),
    /// The list is longer than RUN_LIST can name.
    TooLong(usize),
    /// The processes are not those that were planned for.
    Changed,
}

impl From<EncodeError> for RunListError {
    fn from(error: EncodeError) -> Self {
        Self::Encode(error)
    }
}

impl fmt::Display for RunListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encode(error) => error.fmt(f),
            Self::NoPasid => f.write_str("a process without PASID"),
            Self::DuplicatePasid(pasid) => write!(f, "two processes with PASID {pasid}"),
            Self::TooLong(dwords) => write!(f, "{dwords} dwords exceed a run list"),
            Self::Changed => f.write_str("the processes changed meanwhile"),
        }
    }
}

/// Size and nature of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    limits: Limits,
    processes: u32,
    compute_queues: u32,
    sdma_queues: u32,
    gws_queues: u32,
    /// XNACK mode of the first process, with which the list begins.
    first_xnack: bool,
    mixed_xnack: bool,
    dwords: usize,
}

impl Plan {
    /// Counts what a list of `processes` needs.
    ///
    /// # Errors
    ///
    /// `NoPasid`, `DuplicatePasid`, `TooLong`.
    pub(crate) fn new<P: Process>(
        limits: Limits,
        processes: impl Iterator<Item = P> + Clone,
    ) -> Result<Self, RunListError> {
        let mut plan = Self {
            limits,
            processes: 0,
            compute_queues: 0,
            sdma_queues: 0,
            gws_queues: 0,
            first_xnack: false,
            mixed_xnack: false,
            dwords: 0,
        };
        for (nth, process) in processes.clone().enumerate() {
            let context = process.context();
            if context.pasid == 0 {
                return Err(RunListError::NoPasid);
            }
            let mut earlier = processes.clone().take(nth);
            if earlier.any(|other| other.context().pasid == context.pasid) {
                return Err(RunListError::DuplicatePasid(context.pasid));
            }
            if nth == 0 {
                plan.first_xnack = context.xnack();
            }
            plan.mixed_xnack |= context.xnack() != plan.first_xnack;
            plan.processes = plan.processes.saturating_add(1);
            for queue in process.queues() {
                let counter = match queue.engine {
                    Engine::Compute => &mut plan.compute_queues,
                    Engine::Sdma(_) => &mut plan.sdma_queues,
                };
                *counter = counter.saturating_add(1);
                plan.gws_queues = plan.gws_queues.saturating_add(u32::from(queue.gws));
            }
        }
        plan.dwords = plan.length().ok_or(RunListError::TooLong(usize::MAX))?;
        if plan.dwords > num::index(RunList::MAX_IB_DWORDS) {
            return Err(RunListError::TooLong(plan.dwords));
        }
        Ok(plan)
    }

    fn length(&self) -> Option<usize> {
        let contexts = num::index(self.processes).checked_mul(self.limits.flavour.dwords())?;
        let queues = num::index(self.compute_queues)
            .checked_add(num::index(self.sdma_queues))?
            .checked_mul(MapQueues::DWORDS)?;
        let tail = if self.oversubscription().any() {
            RunList::DWORDS
        } else {
            0
        };
        contexts.checked_add(queues)?.checked_add(tail)
    }

    /// Dwords of the list; 0 if there is no process.
    pub(crate) const fn dwords(&self) -> usize {
        self.dwords
    }

    /// Processes in the list.
    pub(crate) const fn processes(&self) -> u32 {
        self.processes
    }

    /// Queues in the list.
    pub(crate) const fn queues(&self) -> u32 {
        self.compute_queues.saturating_add(self.sdma_queues)
    }

    /// Why the list does not fit the hardware at once.
    pub(crate) const fn oversubscription(&self) -> Oversubscription {
        // At least one process can always be mapped.
        let max_processes = if self.limits.max_processes == 0 {
            1
        } else {
            self.limits.max_processes
        };
        Oversubscription {
            processes: self.processes > max_processes,
            compute_queues: self.compute_queues > self.limits.compute_slots,
            gws_queues: self.gws_queues > 1,
            xnack_modes: self.mixed_xnack && self.limits.xnack_check,
        }
    }

    /// RUN_LIST.process_cnt.
    const fn process_count(&self) -> u32 {
        let allowed = if self.limits.isolate {
            1
        } else {
            self.limits.max_processes
        };
        if self.processes < allowed {
            self.processes
        } else {
            allowed
        }
    }

    /// The packet that goes on the HIQ and starts the list at `ib`.
    pub(crate) const fn run_list(&self, ib: u64) -> RunList {
        self.packet(ib, false)
    }

    const fn packet(&self, ib: u64, chain: bool) -> RunList {
        RunList {
            ib,
            dwords: num::len32(self.dwords),
            chain,
            process_count: self.process_count(),
        }
    }

    /// Writes the list, which hardware will see at address `ib`, to the start of `out`.
    ///
    /// Processes of one XNACK mode come first, those of the other mode after them. Returns the
    /// length, which is [`Plan::dwords`].
    ///
    /// # Errors
    ///
    /// `Encode` if a value does not fit a packet or `out` is too short (nothing is written then in
    /// the latter case); `Changed` if the processes are not those of the plan.
    pub(crate) fn build<P: Process>(
        &self,
        processes: impl Iterator<Item = P> + Clone,
        ib: u64,
        out: &mut [u32],
    ) -> Result<usize, RunListError> {
        let have = out.len();
        let room = out.get_mut(..self.dwords).ok_or(EncodeError::NoSpace {
            need: self.dwords,
            have,
        })?;
        let mut writer = Writer { room, at: 0 };
        let modes: &[bool] = if self.mixed_xnack {
            &[self.first_xnack, !self.first_xnack]
        } else {
            &[self.first_xnack]
        };
        for mode in modes {
            for process in processes.clone() {
                let context = process.context();
                if context.xnack() == *mode {
                    self.write_process(&mut writer, &context, &process)?;
                }
            }
        }
        if self.oversubscription().any() {
            writer.put(&self.packet(ib, true).encode()?)?;
        }
        if writer.at == self.dwords {
            Ok(writer.at)
        } else {
            Err(RunListError::Changed)
        }
    }

    fn write_process<P: Process>(
        &self,
        writer: &mut Writer<'_>,
        context: &Context,
        process: &P,
    ) -> Result<(), RunListError> {
        let queues = process.queues().count();
        let gws = process.queues().any(|queue| queue.gws);
        let packet = MapProcess {
            pasid: context.pasid,
            page_table_base: context.page_table_base,
            sh_mem_config: context.sh_mem_config,
            sh_mem_bases: context.sh_mem_bases,
            trap: context.trap,
            quantum: context.quantum,
            num_queues: if context.diq { 0 } else { num::len32(queues) },
            num_gws: if gws { context.num_gws } else { 0 },
            cleaner_shader: self.limits.isolate,
            diq: context.diq,
            debug: context.debug,
        };
        match self.limits.flavour {
            MapProcessFlavour::V9 => writer.put(&packet.encode_v9()?)?,
            MapProcessFlavour::Aldebaran => writer.put(&packet.encode_aldebaran()?)?,
        }
        for queue in process.queues() {
            let packet = MapQueues {
                target: MapTarget::Scheduled {
                    engine: queue.engine,
                    class: if context.diq && queue.engine == Engine::Compute {
                        QueueClass::Static
                    } else {
                        QueueClass::Normal
                    },
                    gws: queue.gws,
                },
                doorbell: queue.doorbell,
                mqd: queue.mqd,
                wptr: queue.wptr,
            };
            writer.put(&packet.encode()?)?;
        }
        Ok(())
    }
}

/// Appends packets to the room that was planned.
struct Writer<'a> {
    room: &'a mut [u32],
    at: usize,
}

impl Writer<'_> {
    /// Appends a packet. The room has the planned size, so that a shortage means a change.
    fn put(&mut self, packet: &[u32]) -> Result<(), RunListError> {
        let rest = self.room.get_mut(self.at..).unwrap_or(&mut []);
        self.at += pm4::put(packet, rest).map_err(|_| RunListError::Changed)?;
        Ok(())
    }
}
