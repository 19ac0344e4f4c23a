// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Rings for tasks, threads that run them, and futures.

use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::CStr;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr::null;

use library::backoff::Backoff;
use library::clock::Deadline;
use library::error::Error;
use library::tasks::failure;
use library::tasks::layout::Priority;
use library::tasks::layout::Shape;
use library::tasks::ring::Future;
use library::tasks::ring::Refused;
use library::tasks::Options;
use library::tasks::Stop;
use library::tasks::TaskError;
use library::tasks::Tasks;
use nix::errno::Errno;

use crate::error::array;
use crate::error::given;
use crate::error::guard;
use crate::error::Failure;
use crate::error::Result;
use crate::functions::on_worker;
use crate::functions::task_of;
use crate::functions::Functions;
use crate::functions::Task;
use crate::functions::RKFD_TASK_URGENT;
use crate::gpu::Vm;
use crate::queue::millis;
use crate::sized::answer;
use crate::sized::grows;
use crate::sized::read;

/// Workers run on any CPU, not only on those near the GPUs, and areas are on no memory node in particular.
pub const RKFD_WORKERS_ANYWHERE: u32 = 1;

/// Workers end when all tasks that are there have run.
pub const RKFD_STOP_DRAINED: u32 = 0;
/// Workers end when each has run the task that it has in hand. The others are left, and never run.
pub const RKFD_STOP_AT_ONCE: u32 = 1;

/// Rings for tasks of kernels and of the program, and the threads that run these.
#[derive(Debug)]
pub struct Workers(Tasks);

/// What to start: set `size`, call rkfd_workers_defaults(), then change what is to differ.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WorkersOptions {
    /// sizeof(struct rkfd_workers_options).
    pub size: u32,
    /// RKFD_WORKERS_ANYWHERE or 0.
    pub flags: u32,
    /// GPUs whose kernels hand tasks over; any where `gpu_count` is 0.
    pub gpus: *const *const Vm,
    /// How many these are.
    pub gpu_count: u32,
    /// Threads that run tasks, 1 to 256.
    pub workers: u32,
    /// For the area of each GPU: rings of each priority, a power of two up to 64.
    pub lanes: u32,
    /// Slots of a ring, a power of two from 2 to 65536.
    pub depth: u32,
    /// Bytes of a slot, 32 and the arguments: a multiple of 64 up to 4096.
    pub segment: u32,
    /// Futures that can be in use at the same time: a power of two up to 1048576, or 0.
    pub futures: u32,
    /// The same for the area of the program's own tasks.
    pub own_lanes: u32,
    /// See `depth`.
    pub own_depth: u32,
    /// See `segment`.
    pub own_segment: u32,
    /// See `futures`.
    pub own_futures: u32,
    /// NULL, or a file that is made, and removed at the end: counters that other programs read while the workers run. `rkfdctl
    /// tasks` looks at /dev/shm/rkfd-tasks-*.
    pub statistics: *const c_char,
}

grows! {
    WorkersOptions, "rkfd_workers_options", 64;
}

fn defaults() -> WorkersOptions {
    let of = Options::default();
    WorkersOptions {
        size: size_of::<WorkersOptions>() as u32, // CAST: a constant.
        flags: if of.near { 0 } else { RKFD_WORKERS_ANYWHERE },
        gpus: null(),
        gpu_count: 0,
        workers: u32::try_from(of.workers).unwrap_or(1),
        lanes: of.shape.lanes,
        depth: of.shape.depth,
        segment: of.shape.segment,
        futures: of.shape.futures,
        own_lanes: of.own.lanes,
        own_depth: of.own.depth,
        own_segment: of.own.segment,
        own_futures: of.own.futures,
        statistics: null(),
    }
}

/// The options in the terms of the library.
///
/// # Safety
/// `gpus` points to as many address spaces as there are to be, `statistics`, unless NULL, to a text that ends in a zero byte.
unsafe fn options_of(from: &WorkersOptions) -> Result<Options> {
    if from.flags & !RKFD_WORKERS_ANYWHERE != 0 {
        let text = format!("No flags of workers: {:#x}", from.flags);
        return Err(Failure::invalid(text));
    }
    let gpus = match from.gpu_count {
        0 => &[][..],
        // SAFETY: the caller's promise; a reference that may be missing has the layout of a pointer.
        count => unsafe { array(from.gpus.cast::<Option<&Vm>>(), count, "gpus") }?,
    };
    let gpus = gpus
        .iter()
        .map(|vm| Ok(given(*vm, "One of the GPUs")?.device.clone()));
    let statistics = (!from.statistics.is_null()).then(|| {
        // SAFETY: not NULL, and the caller's promise.
        let path = unsafe { CStr::from_ptr(from.statistics) };
        PathBuf::from(OsStr::from_bytes(path.to_bytes()))
    });
    Ok(Options {
        gpus: gpus.collect::<Result<_>>()?,
        shape: Shape {
            lanes: from.lanes,
            depth: from.depth,
            segment: from.segment,
            futures: from.futures,
        },
        own: Shape {
            lanes: from.own_lanes,
            depth: from.own_depth,
            segment: from.own_segment,
            futures: from.own_futures,
        },
        workers: from.workers as usize, // CAST: 32 bits into 64.
        near: from.flags & RKFD_WORKERS_ANYWHERE == 0,
        statistics,
    })
}

/// A reason of the library's own in words.
fn reason_text(reason: u64) -> &'static str {
    match reason {
        failure::FUNCTION => "no function has its number",
        failure::BYTES => "the function does not take so many bytes",
        failure::PANIC => "the function panicked",
        failure::WORKER => "the worker died while it ran the function",
        failure::THEN => "what was to follow does not exist, or too many followed each other",
        _ => "a reason of the function",
    }
}

fn refused(why: Refused) -> Failure {
    match why {
        Refused::Full => Failure::new(Errno::EAGAIN, "The ring is full"),
        Refused::NoFuture => Failure::new(Errno::EAGAIN, "All futures are in use"),
        Refused::TooLong => {
            Failure::new(Errno::EMSGSIZE, "More bytes of arguments than a slot has")
        }
        Refused::Closed => Failure::new(Errno::ESHUTDOWN, "The workers take no new tasks"),
    }
}

/// The failure of a task, or of its wait.
fn ended(error: TaskError) -> Failure {
    match error {
        TaskError::Refused(why) => refused(why),
        TaskError::Failed(reason) => {
            let text = format!("The task failed: {} ({reason})", reason_text(reason));
            Failure::new(Errno::EIO, text)
        }
        TaskError::Pending(limit) => {
            let text = format!("Waited {} ms for the end of a task", limit.as_millis());
            Failure::new(Errno::ETIMEDOUT, text)
        }
        TaskError::Stale => Failure::invalid("Not a future that waits for a task"),
        TaskError::Left => {
            Failure::new(Errno::ECANCELED, "The workers have ended without the task")
        }
    }
}

pub(crate) fn of(workers: Option<&Workers>) -> Result<&Tasks> {
    Ok(&given(workers, "workers")?.0)
}

fn future_of(bits: u64) -> Result<Future> {
    Future::from_bits(bits).ok_or_else(|| ended(TaskError::Stale))
}

/// Sets options, whose `size` is set, to what is ordinary: no GPU, two workers, near the GPUs, four lanes of 256 slots of 256
/// bytes and 4096 futures for each area.
///
/// MT-Safe.
///
/// # Safety
/// `options` points to as many bytes as its `size` says.
#[no_mangle]
pub unsafe extern "C" fn rkfd_workers_defaults(options: *mut WorkersOptions) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { answer(options) }?.give(defaults());
        Ok(())
    })
}

/// Makes an area for each GPU and one for the program's own tasks, and starts threads that run the functions of a table, as
/// it is now. `options` NULL: those of rkfd_workers_defaults(). Without a GPU no driver is needed. -EINVAL for a shape, a number
/// of workers or flags that cannot be; the errno of the file where the statistics cannot be made; -EAGAIN where the system
/// has no thread.
///
/// MT-Safe.
///
/// # Safety
/// `options` points to as many bytes as its `size` says, `gpus` to `gpu_count` address spaces, `statistics` to a text that ends
/// in a zero byte.
#[no_mangle]
pub unsafe extern "C" fn rkfd_workers_new(
    functions: Option<&Functions>,
    options: *const WorkersOptions,
    workers: Option<&mut MaybeUninit<Option<Box<Workers>>>>,
) -> c_int {
    guard(|| {
        let out = given(workers, "workers")?;
        out.write(None);
        let functions = given(functions, "functions")?;
        let options = if options.is_null() {
            defaults()
        } else {
            // SAFETY: the caller's promise.
            unsafe { read(options) }?
        };
        // SAFETY: the caller's promise; without options there is neither.
        let options = unsafe { options_of(&options) }?;
        let made = Tasks::start(options, functions.library()?)?;
        out.write(Some(Box::new(Workers(made))));
        Ok(())
    })
}

/// Takes no new tasks and ends the threads (RKFD_STOP_*), for `limit_ms` at most. `left`, unless NULL, receives how many tasks
/// were left, kernels' among them: 0 after RKFD_STOP_DRAINED, but for those that were handed over at the same time. Who waits for
/// one of these learns of it: -ECANCELED, in kernels RKFD_TASK_CLOSED.
///
/// -ETIMEDOUT where a function still runs, or where tasks are there; `left` has how many have not ended, roughly. No new tasks are
/// taken then (-ESHUTDOWN), the threads end when they can, and the call can be repeated, also with the other number; there is
/// no way back from RKFD_STOP_AT_ONCE. 0 where they have ended already. -EINVAL for another number; -EDEADLK from a function of
/// tasks, which would wait for itself.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_workers_stop(
    workers: Option<&Workers>,
    how: u32,
    limit_ms: u32,
    left: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    guard(|| {
        let tasks = of(workers)?;
        let stop = match how {
            RKFD_STOP_DRAINED => Stop::Drained,
            RKFD_STOP_AT_ONCE => Stop::AtOnce,
            other => return Err(Failure::invalid(format!("No way to stop workers: {other}"))),
        };
        if on_worker() {
            let text = "A worker does not wait for the end of workers";
            return Err(Failure::new(Errno::EDEADLK, text));
        }
        let result = tasks.stop(stop, millis(limit_ms));
        let found = match &result {
            Ok(found) | Err(Error::TimedOut { seen: found, .. }) => Some(*found),
            Err(_) => None,
        };
        if let (Some(left), Some(found)) = (left, found) {
            left.write(found);
        }
        Ok(result.map(drop)?)
    })
}

/// Gives areas and what is left in them back; NULL is allowed. Kernels that use an area have ended before, as with any memory. -EBUSY
/// where rkfd_workers_stop() has not returned 0: everything stays then, and the handle stays valid.
///
/// MT-Unsafe race:workers: no other call may use the handle meanwhile, nor after success.
#[no_mangle]
pub extern "C" fn rkfd_workers_free(workers: Option<Box<Workers>>) -> c_int {
    guard(|| {
        let Some(workers) = workers else {
            return Ok(());
        };
        if workers.0.has_ended() {
            return Ok(());
        }
        // The caller keeps it.
        let _ = Box::into_raw(workers);
        Err(Failure::new(Errno::EBUSY, "The workers were not stopped"))
    })
}

/// Address of the area of a GPU, by its number in `gpus`: an argument of kernels, which name it struct rkfd_tasks *. 0 for NULL,
/// and where there is no such GPU. It is valid until rkfd_workers_free().
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_workers_address(workers: Option<&Workers>, gpu: u32) -> u64 {
    // CAST: 32 bits into 64.
    workers.map_or(0, |workers| workers.0.address(gpu as usize))
}

/// Hands a task of the program's over. `future`, unless NULL, receives what rkfd_workers_wait() takes, which is the caller's until
/// that has told the end, or rkfd_workers_drop() was called; 0 where the call fails. Each thread uses one lane.
///
/// Where the ring has no room, or all futures are in use, it waits for that as long as `limit_ms`: -EAGAIN where that is 0, else
/// -ETIMEDOUT. -EMSGSIZE for more bytes of arguments than a slot has; -ESHUTDOWN after rkfd_workers_stop(); -EINVAL for function 0
/// and unknown flags. Nothing is handed over where it fails.
///
/// MT-Safe.
///
/// # Safety
/// `task` points to as many bytes as its `size` says, its arguments to `bytes` bytes that nobody changes meanwhile.
#[no_mangle]
pub unsafe extern "C" fn rkfd_workers_submit(
    workers: Option<&Workers>,
    task: *const Task,
    limit_ms: u32,
    mut future: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    guard(|| {
        if let Some(future) = &mut future {
            future.write(0);
        }
        let tasks = of(workers)?;
        // SAFETY: the caller's promise.
        let from = unsafe { read(task) }?;
        // SAFETY: the caller's promise.
        let task = unsafe { task_of(&from) }?;
        let priority = match from.flags & RKFD_TASK_URGENT {
            0 => Priority::Low,
            _ => Priority::High,
        };
        let submit = || match future.is_some() {
            true => tasks.submit_as(&task, priority).map(Future::bits),
            false => tasks.post(&task, priority).map(|()| 0),
        };
        let bits = match submit() {
            Err(TaskError::Refused(Refused::Full | Refused::NoFuture)) if limit_ms > 0 => {
                when_there_is_room(limit_ms, submit)?
            }
            result => result.map_err(ended)?,
        };
        if let Some(future) = future {
            future.write(bits);
        }
        Ok(())
    })
}

/// Tries again and again.
fn when_there_is_room(
    limit_ms: u32,
    submit: impl Fn() -> std::result::Result<u64, TaskError>,
) -> Result<u64> {
    let limit = millis(limit_ms);
    let deadline = Deadline::after(limit);
    let mut backoff = Backoff::new();
    loop {
        match submit() {
            Err(TaskError::Refused(why @ (Refused::Full | Refused::NoFuture))) => {
                if deadline.passed() {
                    let why = match why {
                        Refused::Full => "room in a ring",
                        _ => "a future",
                    };
                    let text = format!("Waited {limit_ms} ms for {why}");
                    return Err(Failure::new(Errno::ETIMEDOUT, text));
                }
                backoff.pause(limit.saturating_sub(deadline.elapsed()));
            }
            result => return result.map_err(ended),
        }
    }
}

/// Waits until a task of the program's has ended, for `limit_ms` at most: spins for a moment, then sleeps; with 0 it looks once.
/// `value`, unless NULL, receives what the function ended with, and everything that it stored is seen. -EIO where the task
/// failed, with the reason (RKFD_TASK_REASON_*) as value; -ECANCELED where the workers have ended without it. The future is given
/// back then, in all three cases. -ETIMEDOUT: it is still the caller's. -EINVAL for what is no future that waits.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_workers_wait(
    workers: Option<&Workers>,
    future: u64,
    limit_ms: u32,
    value: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    guard(|| {
        let tasks = of(workers)?;
        let result = tasks.wait(future_of(future)?, millis(limit_ms));
        if let (Some(value), Ok(seen) | Err(TaskError::Failed(seen))) = (value, result) {
            value.write(seen);
        }
        result.map(drop).map_err(ended)
    })
}

/// Gives a future back without waiting: its task runs all the same. -EINVAL for what is no future that waits.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_workers_drop(workers: Option<&Workers>, future: u64) -> c_int {
    guard(|| match of(workers)?.drop_future(future_of(future)?) {
        true => Ok(()),
        false => Err(ended(TaskError::Stale)),
    })
}

/// Gives back the places of a GPU's rings that waves have taken and not filled, after the queue that they were in is gone, or
/// the GPU was reset, and when all others that hand tasks over there are at rest. `count`, unless NULL, receives how many there
/// were. -ERANGE where there is no such GPU.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_workers_forget_unwritten(
    workers: Option<&Workers>,
    gpu: u32,
    count: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    guard(|| {
        let tasks = of(workers)?;
        let gpu = number(gpu, tasks.gpus(), "GPU")?;
        let found = tasks.forget_unwritten(gpu);
        if let Some(count) = count {
            count.write(found);
        }
        Ok(())
    })
}

/// A number below how many there are.
pub(crate) fn number(of: u32, count: usize, what: &str) -> Result<usize> {
    let number = of as usize; // CAST: 32 bits into 64.
    if number >= count {
        let text = format!("No {what} {of}: there are {count}");
        return Err(Failure::new(Errno::ERANGE, text));
    }
    Ok(number)
}

#[cfg(test)]
mod tests;
