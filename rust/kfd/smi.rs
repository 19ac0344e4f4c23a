// SPDX-License-Identifier: GPL-2.0

//! The event stream of SMI_EVENTS: lines about processes, queues and resets of a GPU, for monitors and profilers.
//!
//! A file belongs to a GPU and reports what its mask names, from the moment the mask is written on. Events of a process
//! go to files that the same process opened and to those of openers with CAP_SYS_ADMIN; resets go to all. As
//! upstream has it, bit 63 of the mask (`KFD_SMI_EVENT_ALL_PROCESS`) makes no difference.
//!
//! A file holds 8 KiB. A line that finds no room is dropped, for no thread that reports may wait for a reader. Files
//! outlive a reset of the whole chip, since they name the GPU by its id.
//!
//! [`Smi::files`] is a spinlock and innermost but for those of the files: the interrupt thread, notifiers of memory that
//! changes and workers report, and nothing is allocated meanwhile.

pub(crate) mod event;
pub(crate) mod fifo;

pub(crate) use self::event::{
    EvictionTrigger,
    Locations,
    MigrateTrigger,
    Migration,
    SmiEvent,
    UnmapTrigger, //
};
use self::fifo::{
    Fifo,
    SIZE, //
};
use crate::kapi::{
    event_file::{
        self,
        EventFile, //
    },
    task::{
        boottime_ns,
        capable,
        Capability,
        ThreadGroup, //
    },
    waitqueue::{
        new_waitqueue,
        WaitQueue, //
    },
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    },
    uaccess::UserSlice,
};

/// What `/proc/PID/fd` shows of a file.
const NAME: &CStr = c"kfd_smi_ev";

/// What one file reports and has not been read.
#[pin_data]
struct File {
    gpu_id: u32,
    /// Process id of the opener, in the initial namespace.
    opener: i32,
    /// The opener may see all processes.
    privileged: bool,
    /// Events that are reported, a bit each.
    mask: Atomic<u64>,
    #[pin]
    lines: SpinLock<Fifo>,
    #[pin]
    waiters: WaitQueue,
}

impl File {
    fn new(gpu_id: u32) -> Result<Arc<Self>> {
        Arc::pin_init(
            try_pin_init!(Self {
                gpu_id,
                opener: ThreadGroup::current().pid(),
                privileged: capable(Capability::SysAdmin),
                mask: Atomic::new(0),
                lines <- new_spinlock!(Fifo::new()?, "rkfd_smi_lines"),
                waiters <- new_waitqueue!("rkfd_smi_waiters"),
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )
    }

    fn wants(&self, gpu_id: u32, event: &SmiEvent<'_>) -> bool {
        let visible = event
            .process()
            .is_none_or(|group| self.privileged || group.pid() == self.opener);
        self.gpu_id == gpu_id && visible && self.mask.load(Relaxed) & event.bit() != 0
    }
}

/// The open files.
#[pin_data]
pub(crate) struct Smi {
    #[pin]
    files: SpinLock<KVec<Arc<File>>>,
    /// Resets so far, of all GPUs.
    resets: Atomic<u32>,
}

impl Smi {
    /// Without files.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                files <- new_spinlock!(KVec::new(), "rkfd_smi_files"),
                resets: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// Opens a file that reports events of GPU `gpu_id`, none at first.
    ///
    /// # Errors
    ///
    /// Those of [`event_file::open`].
    pub(crate) fn open(self: &Arc<Self>, gpu_id: u32) -> Result<u32> {
        let file = File::new(gpu_id)?;
        self.list(file.clone())?;
        // From here on its drop takes the file off the list.
        let reader = Reader {
            smi: self.clone(),
            file,
        };
        event_file::open(NAME, KBox::new(reader, GFP_KERNEL_ACCOUNT)?)
    }

    /// Reports `event` of GPU `gpu_id`. Neither sleeps nor allocates.
    pub(crate) fn report(&self, gpu_id: u32, event: &SmiEvent<'_>) {
        let files = self.files.lock();
        if !files.iter().any(|file| file.wants(gpu_id, event)) {
            return;
        }
        let line = event.line(gpu_id, boottime_ns());
        for file in files.iter().filter(|file| file.wants(gpu_id, event)) {
            if file.lines.lock().push(line.bytes()) {
                file.waiters.wake_all();
            }
        }
    }

    /// Reports that a reset of GPU `gpu_id` begins. The same number is reported when it is over.
    pub(crate) fn reset_begins(self: &Arc<Self>, gpu_id: u32, cause: &'static str) -> ResetReport {
        let number = self.resets.fetch_add(1, Relaxed).wrapping_add(1);
        self.report(gpu_id, &SmiEvent::PreReset(number, cause));
        ResetReport {
            smi: self.clone(),
            gpu_id,
            number,
            cause,
        }
    }

    fn list(&self, file: Arc<File>) -> Result {
        let mut room = KVec::new();
        loop {
            let mut files = self.files.lock();
            if files.len() < files.capacity() {
                return files.push_within_capacity(file).map_err(|_| ENOMEM);
            }
            if room.capacity() > files.len() {
                for file in files.drain_all() {
                    room.push_within_capacity(file).map_err(|_| ENOMEM)?;
                }
                room.push_within_capacity(file).map_err(|_| ENOMEM)?;
                let old = core::mem::replace(&mut *files, room);
                drop(files);
                drop(old);
                return Ok(());
            }
            let len = files.len();
            drop(files);
            room.reserve(2 * len + 1, GFP_KERNEL_ACCOUNT)?;
        }
    }

    fn unlist(&self, file: &Arc<File>) {
        let mut files = self.files.lock();
        let at = files.iter().position(|listed| Arc::ptr_eq(listed, file));
        let gone = at.and_then(|at| files.remove(at).ok());
        drop(files);
        drop(gone);
    }
}

/// A reset that was reported and is under way. Dropped where the reset fails, which nothing reports.
pub(crate) struct ResetReport {
    smi: Arc<Smi>,
    gpu_id: u32,
    number: u32,
    cause: &'static str,
}

impl ResetReport {
    /// Reports that the reset is over and the GPU works.
    pub(crate) fn over(self) {
        let event = SmiEvent::PostReset(self.number, self.cause);
        self.smi.report(self.gpu_id, &event);
    }
}

/// The descriptor of a file.
struct Reader {
    smi: Arc<Smi>,
    file: Arc<File>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.smi.unlist(&self.file);
    }
}

impl EventFile for Reader {
    fn read(&self, to: UserSlice) -> Result<usize> {
        let mut to = to.writer();
        let mut bytes = KVec::from_elem(0u8, to.len().min(SIZE), GFP_KERNEL_ACCOUNT)?;
        let taken = self.file.lines.lock().take(&mut bytes);
        if taken.len == 0 {
            return Err(EAGAIN);
        }
        let bytes = bytes.get(..taken.len).ok_or(EINVAL)?;
        to.write_slice(bytes)
            .inspect_err(|_| self.file.lines.lock().put_back(taken))?;
        Ok(taken.len)
    }

    /// Takes the mask; what follows it is ignored.
    ///
    /// # Errors
    ///
    /// `EFAULT`: less than 8 bytes, or no memory there.
    fn write(&self, from: UserSlice) -> Result<usize> {
        const LEN: usize = core::mem::size_of::<u64>();
        let mut from = from.reader();
        if from.len() < LEN {
            return Err(EFAULT);
        }
        self.file.mask.store(from.read::<u64>()?, Relaxed);
        Ok(LEN)
    }

    fn is_readable(&self) -> bool {
        !self.file.lines.lock().is_empty()
    }

    fn waiters(&self) -> &WaitQueue {
        &self.file.waiters
    }
}
