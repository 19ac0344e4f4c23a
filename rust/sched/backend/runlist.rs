// SPDX-License-Identifier: GPL-2.0

//! The runlist of the desired state. How it is laid out is [`hw::runlist`](crate::hw::runlist)'s
//! business; here is what goes in.

use kernel::{
    prelude::*,
    rbtree::RBTree, //
};

use crate::{
    hw::{
        asic::AsicDesc,
        num::{
            index,
            len32, //
        },
        pm4::{
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
    },
    sched::{
        config::Config,
        desired::{
            admit::max_processes,
            plan::ActiveList,
            process::ProcRec,
            state::{
                State,
                COMPUTE_SLOTS, //
            }, //
        }, //
    }, //
};

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
pub(in crate::sched) fn limits(asic: &AsicDesc, config: &Config) -> Limits {
    Limits {
        flavour: asic.map_process,
        max_processes: len32(max_processes(asic, config)),
        compute_slots: len32(COMPUTE_SLOTS),
        xnack_check: asic.xnack_check(config.mec_firmware),
        isolate: false,
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
    state: &mut State,
    asic: &AsicDesc,
    config: &Config,
) -> Result<Option<([u32; RunList::DWORDS], ActiveList)>> {
    if state.active.is_some() {
        return Err(EBUSY);
    }
    let wanted = Wanted {
        procs: &state.procs,
        num_gws: asic.num_gws(config.mec_firmware),
        next: 0,
    };
    let plan = Plan::new(limits(asic, config), wanted.clone()).map_err(bug)?;
    let list = state.buffers.take_next();
    if plan.processes() == 0 {
        return Ok(None);
    }
    let written = list.fill(plan.dwords(), |at, words| {
        plan.build(wanted, at, words).map_err(bug)?;
        Ok(())
    })?;
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
        fixed: state
            .procs
            .values()
            .any(|proc| proc.diq && proc.wants_any()),
    };
    for proc in state.procs.values_mut() {
        let runs = proc.runs();
        for queue in proc.queues.values_mut() {
            if queue.wanted(runs) {
                queue.phase = queue.phase.mapped()?;
                queue.listed = true;
                proc.listed = true;
            }
        }
    }
    state.active = Some(active);
    Ok(Some((words, active)))
}
