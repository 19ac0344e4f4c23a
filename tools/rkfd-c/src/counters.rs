// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Counters of areas and workers.

use std::ffi::c_int;

use nix::errno::Errno;

use crate::error::guard;
use crate::error::Failure;
use crate::sized::answer;
use crate::sized::grows;
use crate::workers::number;
use crate::workers::of;
use crate::workers::Workers;

/// An area and its counters, each as of the moment when it was read.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AreaInfo {
    /// sizeof(struct rkfd_area_info); set it before the call.
    pub size: u32,
    /// Id of its GPU; 0: the program's own.
    pub gpu_id: u32,
    /// Rings of each priority.
    pub lanes: u32,
    /// Slots of a ring.
    pub depth: u32,
    /// Bytes of a slot.
    pub segment: u32,
    /// Futures that it has.
    pub futures: u32,
    /// Futures in use.
    pub futures_in_use: u32,
    /// Memory node of the GPU, where the area was asked for; -1 where the system does not tell, and with
    /// RKFD_WORKERS_ANYWHERE.
    pub node: i32,
    /// Its address for kernels; 0: the program's own.
    pub address: u64,
    /// Tasks of high priority that workers took.
    pub taken_high: u64,
    /// Those of low priority.
    pub taken_low: u64,
    /// Tasks that ended with a value.
    pub done: u64,
    /// Tasks that failed.
    pub failed: u64,
    /// Of these, those that were not run, since no function takes them.
    pub rejected: u64,
    /// Slots that had a state which they cannot have.
    pub corrupt: u64,
    /// Tasks whose future was none.
    pub late: u64,
    /// Tasks in the ring that was visited last, behind the one that was taken.
    pub waiting: u64,
    /// Calls of kernels that found no room.
    pub refused: u64,
    /// Tasks in its rings that no worker has taken yet.
    pub ready: u64,
}

/// Counters of a worker, each as of the moment when it was read.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerInfo {
    /// sizeof(struct rkfd_worker_info); set it before the call.
    pub size: u32,
    /// 0.
    pub reserved: u32,
    /// Functions that it ran.
    pub runs: u64,
    /// Times that it looked at the rings.
    pub turns: u64,
    /// Times that it went to sleep.
    pub sleeps: u64,
    /// Times that it was woken.
    pub wakes: u64,
    /// Times that it woke by itself.
    pub looks: u64,
    /// Tasks of a thread that had died which were put in line again.
    pub recovered: u64,
    /// Tasks of one which failed.
    pub lost: u64,
    /// Threads that ended before their time.
    pub deaths: u64,
}

grows! {
    AreaInfo, "rkfd_area_info", 120;
    WorkerInfo, "rkfd_worker_info", 72;
}

/// Describes the area of a GPU, by its number in `gpus`; behind the last, that of the program's own tasks. -ERANGE behind that.
///
/// MT-Safe.
///
/// # Safety
/// `info` points to as many bytes as its `size` says.
#[no_mangle]
pub unsafe extern "C" fn rkfd_workers_area(
    workers: Option<&Workers>,
    area: u32,
    info: *mut AreaInfo,
) -> c_int {
    guard(|| {
        let tasks = of(workers)?;
        // SAFETY: the caller's promise.
        let info = unsafe { answer(info) }?;
        let found = tasks.statistics().areas;
        let area = number(area, found.len(), "area")?;
        let (Some(found), Some(shape)) = (found.get(area), tasks.shape(area)) else {
            // `number` has looked.
            return Err(Failure::new(Errno::ERANGE, "No such area"));
        };
        let [taken_high, taken_low] = found.taken;
        let node = tasks.node(area).and_then(|node| i32::try_from(node).ok());
        info.give(AreaInfo {
            size: 0,
            gpu_id: u32::try_from(found.gpu).unwrap_or_default(),
            lanes: shape.lanes,
            depth: shape.depth,
            segment: shape.segment,
            futures: shape.futures,
            futures_in_use: found.futures,
            node: node.unwrap_or(-1),
            address: tasks.address(area),
            taken_high,
            taken_low,
            done: found.done,
            failed: found.failed,
            rejected: found.rejected,
            corrupt: found.corrupt,
            late: found.late,
            waiting: found.waiting,
            refused: found.refused,
            ready: tasks.ready(area),
        });
        Ok(())
    })
}

/// Tells the counters of a worker, from 0. -ERANGE where there is none of that number.
///
/// MT-Safe.
///
/// # Safety
/// `info` points to as many bytes as its `size` says.
#[no_mangle]
pub unsafe extern "C" fn rkfd_workers_worker(
    workers: Option<&Workers>,
    worker: u32,
    info: *mut WorkerInfo,
) -> c_int {
    guard(|| {
        let tasks = of(workers)?;
        // SAFETY: the caller's promise.
        let info = unsafe { answer(info) }?;
        let found = tasks.statistics().workers;
        let Some(found) = found.get(number(worker, found.len(), "worker")?) else {
            // `number` has looked.
            return Err(Failure::new(Errno::ERANGE, "No such worker"));
        };
        info.give(WorkerInfo {
            size: 0,
            reserved: 0,
            runs: found.runs,
            turns: found.turns,
            sleeps: found.sleeps,
            wakes: found.wakes,
            looks: found.looks,
            recovered: found.recovered,
            lost: found.lost,
            deaths: found.deaths,
        });
        Ok(())
    })
}
