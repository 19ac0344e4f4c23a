// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Functions that tasks name, and what they get and give.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::ptr::null;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use library::tasks::function;
use library::tasks::function::Outcome;
use library::tasks::host as service;
use library::tasks::layout::SLOT_HEAD;
use library::tasks::ring;
use nix::errno::Errno;

use crate::error::array;
use crate::error::given;
use crate::error::guard;
use crate::error::release;
use crate::error::Failure;
use crate::error::Result;
use crate::host::Host;
use crate::sized::grows;
use crate::sized::read;

/// What a function of a task returns: it ended, with `value`.
pub const RKFD_OUTCOME_DONE: c_int = 0;
/// The task that it gave to rkfd_task_then() takes the place of its own, and ends the future.
pub const RKFD_OUTCOME_THEN: c_int = 1;
/// It failed, and so does any other number: `value` is the reason, which RKFD_TASK_REASON_OWN is added to. What would
/// follow does not run.
pub const RKFD_OUTCOME_FAILED: c_int = 2;

/// Why a task failed: no function has its number.
pub const RKFD_TASK_REASON_FUNCTION: u32 = 1;
/// The function does not take so many bytes of arguments, or a slot has fewer.
pub const RKFD_TASK_REASON_BYTES: u32 = 2;
/// The function panicked, which those of C cannot.
pub const RKFD_TASK_REASON_PANIC: u32 = 3;
/// The worker died while it ran the function.
pub const RKFD_TASK_REASON_WORKER: u32 = 4;
/// There is no such function to follow, or more than 64 followed each other.
pub const RKFD_TASK_REASON_THEN: u32 = 5;
/// Reasons of functions begin here.
pub const RKFD_TASK_REASON_OWN: u32 = 256;

/// The task is of high priority: workers take it before others, but for every ninth.
pub const RKFD_TASK_URGENT: u32 = 1;

/// Most bytes of arguments: those of the largest slot.
const MOST_BYTES: usize = 4096 - SLOT_HEAD;

/// A task. Set `size` and all others to 0, then what is to differ.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// sizeof(struct rkfd_task).
    pub size: u32,
    /// Number of the function, not 0.
    pub function: u32,
    /// Number of the function that follows it, with the same arguments and with its value as `input`; 0: none.
    pub then: u32,
    /// What the caller calls itself; the function is told.
    pub source: u32,
    /// RKFD_TASK_URGENT or 0.
    pub flags: u32,
    /// Bytes of the arguments.
    pub bytes: u32,
    /// The arguments, which are copied; any where `bytes` is 0.
    pub arguments: *const c_void,
}

/// What a function of a task gets. A kernel may have chosen any of it, but for the number of bytes, which is one that the
/// function takes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// sizeof(struct rkfd_call), as the library has it.
    pub size: u32,
    /// Number of the function.
    pub function: u32,
    /// The arguments, on 8 bytes; NULL where there are none. They are gone when the function returns.
    pub arguments: *const c_void,
    /// Bytes of the arguments.
    pub bytes: u32,
    /// What the producer calls itself; in kernels rkfd_place().
    pub source: u32,
    /// Value of the function that this one follows; 0 for the first.
    pub input: u64,
    /// The GPU that the task came from, as `gpus` of struct rkfd_workers_options has it; behind the last, the program itself.
    pub area: u32,
    /// Who runs it, from 0.
    pub worker: u32,
}

grows! {
    Task, "rkfd_task", 32;
    Call, "rkfd_call", 40;
}

/// A function of tasks: gets `data` of rkfd_functions_add(), and returns RKFD_OUTCOME_*. `value` is 0 before the call.
pub type TaskCallback =
    Option<unsafe extern "C" fn(data: *mut c_void, call: *const Call, value: *mut u64) -> c_int>;

/// What C gave with a callback and gets back with each call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Data(*mut c_void);

impl Data {
    pub(crate) fn new(data: *mut c_void) -> Self {
        Self(data)
    }

    pub(crate) fn pointer(self) -> *mut c_void {
        self.0
    }
}

// SAFETY: a number to this library, which does not look at what it points to; who registers a callback promises that it
// may be called with it from any thread.
unsafe impl Send for Data {}
// SAFETY: as above; a shared one is copied and no more.
unsafe impl Sync for Data {}

/// Where a thread is: what it may call, and what it has asked for, depends on it.
enum Place {
    /// Not in a callback of tasks.
    Outside,
    /// In a function, with the task that is to take its place.
    Function(Option<ring::Task>),
    /// In the callback that prints.
    Print,
}

thread_local! {
    static PLACE: RefCell<Place> = const { RefCell::new(Place::Outside) };
}

/// Puts a thread somewhere else; returns where it was.
fn put(place: Place) -> Place {
    let put = PLACE.try_with(|of| {
        of.try_borrow_mut()
            .map(|mut of| std::mem::replace(&mut *of, place))
    });
    // Neither fails: no borrow outlives its statement, and workers run nothing while their thread's variables go.
    put.ok()
        .and_then(|place| place.ok())
        .unwrap_or(Place::Outside)
}

/// Calls what prints, whose thread is a worker.
pub(crate) fn printing(call: impl FnOnce()) {
    let before = put(Place::Print);
    call();
    put(before);
}

/// Whether the calling thread is a worker, in a callback.
pub(crate) fn on_worker() -> bool {
    let inside = |of: &RefCell<Place>| {
        of.try_borrow()
            .is_ok_and(|of| !matches!(*of, Place::Outside))
    };
    PLACE.try_with(inside).unwrap_or(false)
}

/// A task from C, without its priority.
///
/// # Safety
/// `arguments` points to `bytes` readable bytes that nobody changes meanwhile.
pub(crate) unsafe fn task_of(from: &Task) -> Result<ring::Task> {
    if from.function == 0 {
        return Err(Failure::invalid("No function has number 0"));
    }
    if from.flags & !RKFD_TASK_URGENT != 0 {
        let text = format!("No flags of a task: {:#x}", from.flags);
        return Err(Failure::invalid(text));
    }
    // CAST: 32 bits into 64.
    if from.bytes as usize > MOST_BYTES {
        let text = format!(
            "{} bytes of arguments where no slot has more than {MOST_BYTES}",
            from.bytes
        );
        return Err(Failure::new(Errno::EMSGSIZE, text));
    }
    let arguments = match from.bytes {
        0 => Vec::new(),
        // SAFETY: the caller's promise.
        bytes => unsafe { array(from.arguments.cast::<u8>(), bytes, "arguments") }?.to_vec(),
    };
    Ok(ring::Task {
        function: from.function,
        then: from.then,
        source: from.source,
        arguments,
    })
}

/// A function of C's.
#[derive(Clone, Debug)]
struct Entry {
    number: u32,
    bytes: RangeInclusive<usize>,
    callback: unsafe extern "C" fn(*mut c_void, *const Call, *mut u64) -> c_int,
    data: Data,
}

impl Entry {
    fn run(&self, of: &function::Call<'_>) -> Outcome {
        // Words of their own, since C takes the address for one of words.
        let words: Vec<u64> = of
            .arguments
            .chunks(8)
            .map(|bytes| {
                let mut word = [0; 8];
                word.iter_mut()
                    .zip(bytes)
                    .for_each(|(to, from)| *to = *from);
                u64::from_le_bytes(word)
            })
            .collect();
        // CAST: a size; a slot's bytes; counts of areas and workers.
        let call = Call {
            size: size_of::<Call>() as u32,
            function: self.number,
            arguments: if words.is_empty() {
                null()
            } else {
                words.as_ptr().cast()
            },
            bytes: of.arguments.len() as u32,
            source: of.source,
            input: of.input,
            area: of.area as u32,
            worker: of.worker as u32,
        };
        let mut value = 0;
        put(Place::Function(None));
        // SAFETY: who added the function has promised that it may be called with `data` from any thread, and does not
        // unwind; `call`, its arguments and `value` live across the call.
        let code = unsafe { (self.callback)(self.data.pointer(), &raw const call, &raw mut value) };
        match (code, put(Place::Outside)) {
            (RKFD_OUTCOME_DONE, _) => Outcome::Done(value),
            (RKFD_OUTCOME_THEN, Place::Function(Some(task))) => Outcome::Then(task),
            // None was given: that of number 0, which does not exist.
            (RKFD_OUTCOME_THEN, _) => Outcome::Then(ring::Task::default()),
            _ => Outcome::Failed(value),
        }
    }
}

/// Functions, and the service for kernels.
#[derive(Debug, Default)]
struct Table {
    entries: BTreeMap<u32, Entry>,
    host: Option<Arc<service::Host>>,
}

impl Table {
    fn has(&self, number: u32) -> bool {
        let of_host = [
            service::PRINT,
            service::READ,
            service::ALLOCATE,
            service::RELEASE,
        ];
        self.entries.contains_key(&number) || (self.host.is_some() && of_host.contains(&number))
    }
}

/// Functions that tasks name, by their numbers.
#[derive(Debug)]
pub struct Functions(Mutex<Table>);

impl Functions {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What workers are started with: the functions that there are now.
    pub(crate) fn library(&self) -> Result<function::Functions> {
        let table = self.table();
        let mut functions = function::Functions::new();
        for (number, entry) in &table.entries {
            let entry = entry.clone();
            let bytes = entry.bytes.clone();
            functions.add(*number, "C", bytes, move |call| entry.run(call))?;
        }
        if let Some(host) = &table.host {
            host.register(&mut functions)?;
        }
        Ok(functions)
    }
}

/// Makes a table without functions.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_functions_new(
    functions: Option<&mut MaybeUninit<Option<Box<Functions>>>>,
) -> c_int {
    guard(|| {
        let out = given(functions, "functions")?;
        out.write(Some(Box::new(Functions(Mutex::default()))));
        Ok(())
    })
}

/// Gives a table back; NULL is allowed. Workers that were started with it keep what was in it.
///
/// MT-Unsafe race:functions: no other call may use the handle meanwhile or later.
#[no_mangle]
pub extern "C" fn rkfd_functions_free(functions: Option<Box<Functions>>) {
    release(functions);
}

/// Adds a function, for tasks of that number with `least` to `most` bytes of arguments; others of that number fail
/// (RKFD_TASK_REASON_BYTES). Workers that were started before do not have it. -EINVAL for number 0, for `callback` NULL and
/// for bytes that no task has; -EEXIST where the number is taken. The numbers from 0xff00 on are those of the library.
///
/// The function runs on any worker, several times at once, and keeps its worker from other tasks until it returns. It may call
/// every function of this library but rkfd_workers_stop() (-EDEADLK); a wait for another task may take as long as that
/// finds no other worker. It returns: it neither ends its thread nor throws, which ends the process.
///
/// MT-Safe.
///
/// # Safety
/// `callback` may be called from any thread with `data` as long as there are workers that were started with the table, until
/// rkfd_workers_stop() returned 0 for them.
#[no_mangle]
pub unsafe extern "C" fn rkfd_functions_add(
    functions: Option<&Functions>,
    number: u32,
    least: u32,
    most: u32,
    callback: TaskCallback,
    data: *mut c_void,
) -> c_int {
    guard(|| {
        let functions = given(functions, "functions")?;
        let callback = given(callback, "callback")?;
        if number == 0 {
            return Err(Failure::invalid("No function has number 0"));
        }
        // CAST: 32 bits into 64, both times.
        let bytes = least as usize..=most as usize;
        if bytes.is_empty() || *bytes.end() > MOST_BYTES {
            let text = format!("{least} to {most} bytes where tasks have up to {MOST_BYTES}");
            return Err(Failure::invalid(text));
        }
        let mut table = functions.table();
        if table.has(number) {
            let text = format!("There is a function {number:#x} already");
            return Err(Failure::new(Errno::EEXIST, text));
        }
        let data = Data::new(data);
        let entry = Entry {
            number,
            bytes,
            callback,
            data,
        };
        table.entries.insert(number, entry);
        Ok(())
    })
}

/// Adds the functions of a service for kernels (rkfd_print() and so on of rkfd_tasks.h). Without it, such calls of kernels
/// fail as tasks that no function has the number of. -EEXIST where a table has one, or where numbers of it are taken.
///
/// MT-Safe.
#[no_mangle]
pub extern "C" fn rkfd_functions_add_host(
    functions: Option<&Functions>,
    host: Option<&Host>,
) -> c_int {
    guard(|| {
        let functions = given(functions, "functions")?;
        let host = given(host, "host")?;
        let mut table = functions.table();
        let taken = table
            .entries
            .range(service::PRINT..=service::RELEASE)
            .next();
        if let Some((number, _)) = taken {
            let text = format!("There is a function {number:#x} already");
            return Err(Failure::new(Errno::EEXIST, text));
        }
        if table.host.is_some() {
            return Err(Failure::new(Errno::EEXIST, "There is a service already"));
        }
        table.host = Some(host.0.clone());
        Ok(())
    })
}

/// In a function of tasks: has another task take the place of its own, if the function returns RKFD_OUTCOME_THEN. It has the
/// priority of the task before; `then`, where it is 0, is that of the task before as well. The last call counts. -EPERM elsewhere
/// than in such a function; -EINVAL for number 0 or for flags; -EMSGSIZE for more bytes than any slot has.
///
/// MT-Safe.
///
/// # Safety
/// `task` points to as many bytes as its `size` says, and its arguments are readable.
#[no_mangle]
pub unsafe extern "C" fn rkfd_task_then(task: *const Task) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let from = unsafe { read(task) }?;
        if from.flags != 0 {
            return Err(Failure::invalid(
                "A task that follows has the priority of the one before",
            ));
        }
        // SAFETY: the caller's promise.
        let next = unsafe { task_of(&from) }?;
        let set = |of: &RefCell<Place>| match of.try_borrow_mut().as_deref_mut() {
            Ok(Place::Function(then)) => {
                *then = Some(next);
                true
            }
            _ => false,
        };
        match PLACE.try_with(set) {
            Ok(true) => Ok(()),
            _ => Err(Failure::new(Errno::EPERM, "Not in a function of tasks")),
        }
    })
}

#[cfg(test)]
mod tests;
