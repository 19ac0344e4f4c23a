// SPDX-License-Identifier: GPL-2.0

//! Building the runlist: for each process MAP_PROCESS and then one MAP_QUEUES per queue, and, when
//! there is more than the hardware holds, a tail that makes the firmware start over.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    params::Config,
    platform::{
        DeviceMem,
        Place,
        Platform, //
    },
    record::{
        ProcRec,
        QueueRec,
        SpecKind, //
    },
    state::{
        max_processes,
        ActiveList,
        State, //
    }, //
};
use crate::hw::{
    asic::AsicDesc,
    num::{
        index,
        len32, //
    },
    pm4::{
        process::Debug,
        EncodeError,
        Engine,
        MapProcess,
        MapQueues,
        MapTarget,
        QueueKind,
        RunList,
        Trap, //
    },
    regs::gc::{
        ShMemBases,
        ShMemConfig, //
    },
    timeouts, //
};

/// Queues of one process in a list: MAP_PROCESS.num_queues has 10 bits.
pub(super) const MAX_QUEUES_PER_PROCESS: usize = 1023;

/// Room for a runlist: the memory that the firmware reads, and the copy that it is built in.
pub(super) struct ListBuffer {
    mem: Arc<dyn DeviceMem>,
    words: KVVec<u32>,
    capacity: usize,
}

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

    fn push(&mut self, packet: &[u32]) -> Result {
        if self.words.len() + packet.len() > self.capacity() {
            return Err(ENOSPC);
        }
        for word in packet {
            // Never allocates: the capacity was checked.
            self.words.push_within_capacity(*word).map_err(|_| ENOSPC)?;
        }
        Ok(())
    }

    /// Empties the buffer for another list.
    fn restart(&mut self) {
        self.words.clear();
    }

    /// Gives the list to the device.
    fn commit(&self) -> Result {
        self.mem.write_dwords(0, &self.words)?;
        self.mem.flush()
    }
}

fn bug(error: EncodeError) -> Error {
    pr_err!("scheduler: bad runlist packet: {}\n", format_args!("{error}"));
    EINVAL
}

/// Encodes MAP_PROCESS.
fn map_process(asic: &AsicDesc, proc: &ProcRec, queues: usize, list: &mut ListBuffer) -> Result {
    let params = &proc.params;
    let packet = MapProcess {
        pasid: params.pasid,
        page_table_base: params.page_table_base,
        sh_mem_config: ShMemConfig::from_raw(params.sh_mem_config),
        sh_mem_bases: ShMemBases::from_raw(params.sh_mem_bases),
        trap: (params.tba != 0).then_some(Trap {
            tba: params.tba,
            tma: params.tma,
        }),
        quantum: timeouts::PROCESS_QUANTUM,
        num_queues: len32(queues),
        num_gws: 0,
        cleaner_shader: false,
        debug: Debug::default(),
    };
    let mut words = [0; MapProcess::DWORDS_ALDEBARAN];
    let len = packet
        .encode_to(asic.map_process, &mut words)
        .map_err(bug)?;
    list.push(words.get(..len).ok_or(EINVAL)?)
}

/// Encodes MAP_QUEUES.
fn map_queue(queue: &QueueRec, list: &mut ListBuffer) -> Result {
    let engine = match queue.spec.kind {
        SpecKind::Pm4 | SpecKind::Aql => Engine::Compute,
        SpecKind::Sdma { engine, .. } => Engine::Sdma(u8::try_from(engine)?),
    };
    let packet = MapQueues {
        target: MapTarget::Scheduled {
            engine,
            kind: QueueKind::Normal,
            gws: false,
        },
        doorbell: queue.spec.doorbell,
        mqd: queue.mqd.gpu_addr(),
        wptr: queue.spec.wptr,
    };
    list.push(&packet.encode().map_err(bug)?)
}

/// Whether processes of different XNACK modes have queues to run, and the first one's mode.
fn xnack_modes(state: &State) -> (bool, bool) {
    let mut modes = state
        .procs
        .values()
        .filter(|proc| proc.wanted_queues() > 0)
        .map(ProcRec::retry_disabled);
    match modes.next() {
        Some(first) => (first, modes.any(|mode| mode != first)),
        None => (false, false),
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
        let load = self.load();
        // With the check on, the firmware keeps the modes apart by taking turns.
        let (first_mode, mixed) = xnack_modes(self);
        let chained = load.oversubscribed(asic, config)
            || mixed && asic.xnack_check(config.mec_firmware);
        let mut list = self.ib.take().ok_or(EINVAL)?;
        list.restart();
        let filled = self.fill(asic, &mut list, first_mode, chained, config);
        let result = filled.and_then(|filled| {
            if let Some((_, active)) = &filled {
                list.commit()?;
                self.active = Some(*active);
            }
            Ok(filled)
        });
        self.ib = Some(list);
        result
    }

    fn fill(
        &mut self,
        asic: &AsicDesc,
        list: &mut ListBuffer,
        first_mode: bool,
        chained: bool,
        config: &Config,
    ) -> Result<Option<([u32; RunList::DWORDS], ActiveList)>> {
        let mut processes = 0;
        let mut queues = 0;
        // Processes of one XNACK mode come before those of the other.
        for mode in [first_mode, !first_mode] {
            for proc in self.procs.values_mut() {
                let wanted = proc.wanted_queues();
                if wanted == 0 || proc.retry_disabled() != mode {
                    continue;
                }
                map_process(asic, proc, wanted, list)?;
                processes += 1;
                queues += wanted;
                let runs = proc.runs();
                for queue in proc.queues.values_mut().filter(|queue| queue.wanted(runs)) {
                    map_queue(queue, list)?;
                    queue.phase = queue.phase.mapped()?;
                }
            }
        }
        if processes == 0 {
            return Ok(None);
        }
        let dwords = list.words().len() + if chained { RunList::DWORDS } else { 0 };
        let packet = RunList {
            ib: list.gpu_addr(),
            dwords: len32(dwords),
            chain: false,
            process_count: len32(processes.min(max_processes(asic, config))),
        };
        if chained {
            let tail = RunList {
                chain: true,
                ..packet
            };
            list.push(&tail.encode().map_err(bug)?)?;
        }
        Ok(Some((
            packet.encode().map_err(bug)?,
            ActiveList {
                chained,
                dwords: packet.dwords,
                processes,
                queues,
            },
        )))
    }
}
