// SPDX-License-Identifier: GPL-2.0

//! The runlist of the desired state. How it is laid out is [`hw::runlist`](crate::hw::runlist)'s
//! business; here is what goes in, and the memory it lies in.
//!
//! The memory is edited in place: a list differs little from the one before it, and as long as nobody
//! in front of a process came or went, what the device reads of that process is not touched.

use kernel::{
    prelude::*,
    rbtree::RBTree,
    sync::Arc, //
};

use super::{
    admit::max_processes,
    params::Config,
    platform::{
        DeviceMem,
        Place,
        Platform, //
    },
    record::ProcRec,
    state::{
        ActiveList,
        State,
        COMPUTE_SLOTS, //
    }, //
};
use crate::hw::{
    asic::AsicDesc,
    num::{
        index,
        len32, //
    },
    pm4::{
        MapQueues,
        RunList,
        Trap, //
    },
    regs::gc::{
        ShMemBases,
        ShMemConfig, //
    },
    runlist::{
        Context,
        Limits,
        Plan,
        Process,
        Queue,
        RunListError, //
    },
    timeouts, //
};

/// Queues of one process in a list: MAP_PROCESS.num_queues has 10 bits.
pub(super) const MAX_QUEUES_PER_PROCESS: usize = 1023;

/// Room for a runlist: the memory that the firmware reads, and the copy that it is built in.
pub(super) struct ListBuffer {
    mem: Arc<dyn DeviceMem>,
    /// The list as composed last.
    words: KVVec<u32>,
    /// What the memory holds: the list before it, or the start of it.
    held: KVVec<u32>,
    capacity: usize,
}

/// Granularity of [`ListBuffer`]'s edits in dwords: a cache line.
const EDIT: usize = 16;

impl ListBuffer {
    /// Dwords of the first buffer: enough for a dozen processes with two dozen queues.
    pub(super) const FIRST_DWORDS: usize = 1024;

    /// Allocates room for `dwords`, rounded up to whole pages.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: longer than a runlist can be. `ENOMEM`, `ENODEV`.
    pub(super) fn new(platform: &dyn Platform, dwords: usize) -> Result<Self> {
        let bytes = dwords
            .checked_mul(4)
            .and_then(|bytes| bytes.checked_next_multiple_of(kernel::page::PAGE_SIZE))
            .ok_or(ENOSPC)?;
        let capacity = bytes / 4;
        if dwords > index(RunList::MAX_IB_DWORDS) {
            return Err(ENOSPC);
        }
        Ok(Self {
            mem: platform.alloc(bytes, Place::Gart)?,
            words: KVVec::with_capacity(capacity, GFP_KERNEL)?,
            held: KVVec::with_capacity(capacity, GFP_KERNEL)?,
            capacity,
        })
    }

    /// Dwords that fit.
    pub(super) fn capacity(&self) -> usize {
        self.capacity.min(index(RunList::MAX_IB_DWORDS))
    }

    /// The list as built last.
    pub(super) fn words(&self) -> &[u32] {
        &self.words
    }

    /// GPU address.
    pub(super) fn gpu_addr(&self) -> u64 {
        self.mem.gpu_addr()
    }

    /// Composes the list of `processes` and gives it to the device. Returns how many dwords were
    /// written: what the former list has in common with it stays as it is.
    fn fill(&mut self, plan: &Plan, processes: Wanted<'_>) -> Result<usize> {
        // Never allocates: as many words were there when the buffer was made.
        self.words.clear();
        self.words
            .extend_with(plan.dwords().min(self.capacity()), 0, GFP_NOWAIT)?;
        plan.build(processes, self.mem.gpu_addr(), &mut self.words)
            .map_err(bug)?;
        let written = self.edit()?;
        self.mem.flush()?;
        Ok(written)
    }

    /// Brings the memory from what it holds to what was composed.
    fn edit(&mut self) -> Result<usize> {
        let mut written = 0;
        for (nth, new) in self.words.chunks(EDIT).enumerate() {
            let at = nth * EDIT;
            if self.held.get(at..at + new.len()) == Some(new) {
                continue;
            }
            self.mem.write_dwords(at * 4, new)?;
            written += new.len();
            // Noted at once, so that an error leaves the copy true. Never allocates either.
            match self.held.get_mut(at..) {
                Some(held) if held.len() >= new.len() => {
                    held.get_mut(..new.len())
                        .ok_or(EINVAL)?
                        .copy_from_slice(new);
                }
                _ => {
                    self.held.truncate(at);
                    self.held.extend_from_slice(new, GFP_NOWAIT)?;
                }
            }
        }
        Ok(written)
    }
}

/// A driver bug in a value that goes into a list.
fn bug(error: RunListError) -> Error {
    pr_err!("scheduler: no runlist: {}\n", format_args!("{error}"));
    EINVAL
}

/// A process that has a queue to run.
struct Runnable<'a> {
    rec: &'a ProcRec,
    /// Global wave sync slots of the device.
    num_gws: u32,
}

impl Process for Runnable<'_> {
    fn context(&self) -> Context {
        let params = &self.rec.params;
        Context {
            pasid: params.pasid,
            page_table_base: params.page_table_base,
            sh_mem_config: ShMemConfig::from_raw(params.sh_mem_config),
            sh_mem_bases: ShMemBases::from_raw(params.sh_mem_bases),
            trap: (params.tba != 0).then_some(Trap {
                tba: params.tba,
                tma: params.tma,
            }),
            quantum: timeouts::PROCESS_QUANTUM,
            num_gws: self.num_gws,
            diq: self.rec.diq,
            debug: self.rec.debug,
        }
    }

    fn queues(&self) -> impl Iterator<Item = Queue> {
        let runs = self.rec.runs();
        self.rec
            .queues
            .values()
            .filter(move |queue| queue.wanted(runs))
            .map(|queue| Queue {
                engine: queue.spec.kind.engine(),
                doorbell: queue.spec.doorbell,
                mqd: queue.mqd.gpu_addr(),
                wptr: queue.spec.wptr,
                gws: queue.spec.gws,
            })
    }
}

/// The processes that have a queue to run, oldest first.
#[derive(Clone)]
struct Wanted<'a> {
    procs: &'a RBTree<u64, ProcRec>,
    num_gws: u32,
    next: u64,
}

impl<'a> Iterator for Wanted<'a> {
    type Item = Runnable<'a>;

    fn next(&mut self) -> Option<Runnable<'a>> {
        loop {
            let cursor = self.procs.cursor_lower_bound(&self.next)?;
            let id = *cursor.current().0;
            self.next = id.checked_add(1)?;
            let proc = self.procs.get(&id)?;
            if proc.wants_any() {
                return Some(Runnable {
                    rec: proc,
                    num_gws: self.num_gws,
                });
            }
        }
    }
}

/// What the hardware holds at a time.
pub(super) fn limits(asic: &AsicDesc, config: &Config) -> Limits {
    Limits {
        flavour: asic.map_process,
        max_processes: len32(max_processes(asic, config)),
        compute_slots: len32(COMPUTE_SLOTS),
        xnack_check: asic.xnack_check(config.mec_firmware),
        isolate: false,
    }
}

impl State {
    /// Dwords that the runlist of everything attached takes at most, with `extra` further queues.
    pub(super) fn list_dwords(&self, asic: &AsicDesc, extra: usize) -> usize {
        let load = self.load();
        load.processes * asic.map_process.dwords()
            + (load.queues + extra) * MapQueues::DWORDS
            + RunList::DWORDS
    }

    /// Dwords that the next list may have.
    pub(super) fn list_capacity(&self) -> usize {
        let of = |buffer: &Option<ListBuffer>| buffer.as_ref().map_or(0, ListBuffer::capacity);
        of(&self.ib).max(of(&self.next_ib))
    }

    /// Takes a larger buffer for the next list, and gives back one that is not needed any more.
    pub(super) fn swap_buffer(&mut self, buffer: &mut Option<ListBuffer>) {
        if let Some(new) = buffer.take() {
            if new.capacity() > self.list_capacity() {
                *buffer = self.next_ib.replace(new);
            } else {
                *buffer = Some(new);
            }
        }
        if buffer.is_none() {
            *buffer = self.old_ib.take();
        }
    }

    /// Builds the runlist of everything that should run, and notes those queues as mapped.
    ///
    /// Returns the RUN_LIST packet, or `None` if nothing should run. No list may be active.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `ENOSPC`: a value does not fit; a driver bug. `ENODEV`.
    pub(super) fn build(
        &mut self,
        asic: &AsicDesc,
        config: &Config,
    ) -> Result<Option<([u32; RunList::DWORDS], ActiveList)>> {
        if self.active.is_some() {
            return Err(EBUSY);
        }
        if let Some(next) = self.next_ib.take() {
            self.old_ib = self.ib.replace(next);
        }
        let wanted = Wanted {
            procs: &self.procs,
            num_gws: asic.num_gws(config.mec_firmware),
            next: 0,
        };
        let plan = Plan::new(limits(asic, config), wanted.clone()).map_err(bug)?;
        if plan.processes() == 0 {
            return Ok(None);
        }
        let list = self.ib.as_mut().ok_or(EINVAL)?;
        let written = list.fill(&plan, wanted)?;
        let packet = plan.run_list(list.gpu_addr());
        let words = packet
            .encode()
            .map_err(|error| bug(RunListError::Encode(error)))?;
        let active = ActiveList {
            chained: plan.oversubscription().any(),
            dwords: packet.dwords,
            processes: index(plan.processes()),
            queues: index(plan.queues()),
            written: len32(written),
            fixed: self.procs.values().any(|proc| proc.diq && proc.wants_any()),
        };
        for proc in self.procs.values_mut() {
            let runs = proc.runs();
            for queue in proc.queues.values_mut() {
                if queue.wanted(runs) {
                    queue.phase = queue.phase.mapped()?;
                }
            }
        }
        self.active = Some(active);
        Ok(Some((words, active)))
    }
}
