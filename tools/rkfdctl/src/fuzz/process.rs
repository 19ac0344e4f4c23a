// SPDX-License-Identifier: GPL-2.0 OR MIT
//! One process of a run: what it has on the GPU, its threads, and what must not change.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use anyhow::bail;
use anyhow::Context;
use rkfd::abi;
use rkfd::sizes::SaveArea;
use rkfd::sys::Mapping;
use rkfd::sys::PAGE;

use super::dice::Dice;
use super::kinds::Kind;
use super::queues::Queue;
use super::raw;
use super::tally::errno_name;
use super::tally::Tally;
use super::thread::Thread;

/// Findings that are written out; more are only counted.
const NAMED: u64 = 40;
/// Bytes of each buffer that must keep its contents.
const KEPT: usize = 16 * PAGE;
/// Bytes of the page of signal slots.
const SIGNALS: usize = 0x8000;
/// Flags of every buffer.
const COMMON: u32 = abi::alloc::WRITABLE | abi::alloc::EXECUTABLE | abi::alloc::NO_SUBSTITUTE;
/// A buffer in system memory that both sides see at once.
pub const GTT: u32 = abi::alloc::GTT | COMMON | abi::alloc::COHERENT | abi::alloc::UNCACHED;
/// A buffer over the process's own memory.
pub const USERPTR: u32 = abi::alloc::USERPTR | COMMON | abi::alloc::COHERENT | abi::alloc::UNCACHED;
/// A buffer in the GPU's memory that the CPU can map.
pub const VRAM: u32 = abi::alloc::VRAM | COMMON | abi::alloc::PUBLIC;

/// The GPU that a run is about, as the topology has it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its id.
    pub gpu_id: u32,
    /// Its render node.
    pub render: PathBuf,
    /// What a queue needs for its waves.
    pub save: SaveArea,
}

/// What all processes of a run are told.
#[derive(Clone)]
pub struct Plan {
    /// The GPU.
    pub target: Target,
    /// All choices follow from it.
    pub seed: u64,
    /// Threads of each process.
    pub threads: u32,
    /// Calls of each thread; `None`: until it is told to stop.
    pub calls: Option<u64>,
    /// Take no answer for granted, to see that findings are found.
    pub expect_nothing: bool,
    /// Change a byte that must not change, to the same end.
    pub spoil: bool,
    /// The count.
    pub tally: Tally,
}

/// A buffer: its handle, and the address space that it takes in the process, where it has its own.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// The driver's handle.
    pub handle: u64,
    /// GPU address.
    pub va: u64,
    /// Bytes.
    pub size: u64,
    /// Flags that it was made with.
    pub flags: u32,
    /// Offset on the render node.
    pub mmap_offset: u64,
    /// Keeps the address range.
    pub range: Option<Arc<Mapping>>,
}

/// What the threads share and change.
#[derive(Default)]
pub struct Objects {
    /// Buffers that any thread may map, unmap and free.
    pub buffers: Vec<Buffer>,
    /// Queues.
    pub queues: Vec<Arc<Queue>>,
    /// Event ids.
    pub events: Vec<u32>,
    /// Descriptors of buffers that were exported.
    pub shared: Vec<Arc<OwnedFd>>,
}

/// One process.
pub struct Process {
    pub plan: Plan,
    /// Its number and which of its lives this is.
    pub index: u32,
    pub life: u32,
    pub kfd: File,
    pub render: File,
    /// The render node once more, for its own interface alone.
    pub native: File,
    /// An address range without memory.
    pub hole: Mapping,
    /// Save area of all queues, which run no waves.
    pub save: Buffer,
    /// What packets write to.
    pub sink: Buffer,
    /// The page of signal slots, whose address range must stay taken.
    signals: Buffer,
    kept: Vec<Buffer>,
    objects: Mutex<Objects>,
    reports: Mutex<File>,
}

impl Process {
    /// Opens both nodes and makes what all threads use.
    ///
    /// # Errors
    /// What was refused.
    fn new(plan: &Plan, index: u32, life: u32, reports: File) -> anyhow::Result<Self> {
        let open = |path: &str| {
            File::options()
                .read(true)
                .write(true)
                .open(path)
                .context(path.to_owned())
        };
        let render = open(&plan.target.render.to_string_lossy())?;
        let nothing = Buffer {
            handle: 0,
            va: 0,
            size: 0,
            flags: 0,
            mmap_offset: 0,
            range: None,
        };
        let mut process = Self {
            plan: plan.clone(),
            index,
            life,
            kfd: open("/dev/kfd")?,
            render,
            native: open(&plan.target.render.to_string_lossy())?,
            hole: Mapping::reserve(PAGE, PAGE)?,
            save: nothing.clone(),
            sink: nothing.clone(),
            signals: nothing,
            kept: Vec::new(),
            objects: Mutex::default(),
            reports: Mutex::new(reports),
        };
        let mut acquire = abi::AcquireVm {
            drm_fd: u32::try_from(std::os::fd::AsRawFd::as_raw_fd(&process.render))?,
            gpu_id: plan.target.gpu_id,
        };
        let errno = process.call(Kind::AcquireVm, abi::ACQUIRE_VM, &mut acquire);
        if errno != 0 {
            bail!("ACQUIRE_VM: {}", errno_name(errno));
        }
        let save = usize::try_from(plan.target.save.total)?.next_multiple_of(PAGE);
        process.save = process.right_buffer("the save area", USERPTR, save)?;
        process.sink = process.right_buffer("memory for packets", GTT, PAGE)?;
        process.signals = process.right_buffer("signal slots", GTT, SIGNALS)?;
        let mut event = abi::CreateEvent {
            event_page_offset: process.signals.handle,
            ..Default::default()
        };
        let errno = process.call(Kind::CreateEvent, abi::CREATE_EVENT, &mut event);
        if errno != 0 {
            bail!("CREATE_EVENT with a page: {}", errno_name(errno));
        }
        for flags in [GTT, VRAM, USERPTR] {
            let kept = process.right_buffer("a buffer", flags, KEPT)?;
            process.fill(&kept);
            process.kept.push(kept);
        }
        Ok(process)
    }

    /// A buffer with CPU and GPU mapping at one address that no other thread is told of.
    fn right_buffer(&self, what: &str, flags: u32, size: usize) -> anyhow::Result<Buffer> {
        match self.buffer(flags, size) {
            Ok(buffer) => Ok(buffer),
            Err(errno) => bail!("{what}: {}", errno_name(errno)),
        }
    }

    /// The same; `Err` is the errno of what was refused.
    pub fn buffer(&self, flags: u32, size: usize) -> Result<Buffer, i32> {
        let own = flags & abi::alloc::USERPTR != 0;
        let range = if own {
            Mapping::anonymous(size)
        } else {
            Mapping::reserve(size, PAGE)
        };
        let range = Arc::new(range.map_err(|e| number(&e))?);
        let va = range.address() as u64; // CAST: an address.
        let mut arg = abi::AllocMemory {
            va_addr: va,
            size: size as u64, // CAST: a length.
            mmap_offset: va,
            gpu_id: self.plan.target.gpu_id,
            flags,
            ..Default::default()
        };
        match self.call(Kind::Alloc, abi::ALLOC_MEMORY_OF_GPU, &mut arg) {
            0 => {}
            errno => return Err(errno),
        }
        let buffer = Buffer {
            handle: arg.handle,
            va,
            size: arg.size,
            flags,
            mmap_offset: arg.mmap_offset,
            range: Some(range.clone()),
        };
        let done = (|| {
            if !own {
                let prot =
                    nix::sys::mman::ProtFlags::PROT_READ | nix::sys::mman::ProtFlags::PROT_WRITE;
                let mapped = range.replace_by_file(&self.render, arg.mmap_offset, prot);
                let errno = mapped.as_ref().map_or_else(number, |()| 0);
                self.answered(Kind::RenderMmap, errno, "");
                if errno != 0 {
                    return Err(errno);
                }
            }
            match self.map(buffer.handle) {
                0 => Ok(()),
                errno => Err(errno),
            }
        })();
        if let Err(errno) = done {
            let mut free = abi::FreeMemory {
                handle: buffer.handle,
            };
            self.call(Kind::Free, abi::FREE_MEMORY_OF_GPU, &mut free);
            return Err(errno);
        }
        Ok(buffer)
    }

    /// Maps a buffer on the GPU.
    fn map(&self, handle: u64) -> i32 {
        let ids = [self.plan.target.gpu_id];
        let mut arg = abi::MapMemory {
            handle,
            device_ids_array_ptr: ids.as_ptr().addr() as u64, // CAST: an address.
            n_devices: 1,
            n_success: 0,
        };
        self.call(Kind::Map, abi::MAP_MEMORY_TO_GPU, &mut arg)
    }

    /// A call whose pointers are right or lead nowhere; counted, and judged.
    pub fn call<T>(&self, kind: Kind, command: u32, arg: &mut T) -> i32 {
        debug_assert!(size_of::<T>() >= ((command >> 16) & 0x3fff) as usize); // CAST: 14 bits.
                                                                              // CAST: an address.
        let address = std::ptr::from_mut(arg).expose_provenance() as u64;
        // SAFETY: `arg` is as large as the command word says; its pointers are the caller's.
        let errno = unsafe { raw::ioctl(self.kfd.as_fd(), command, address) };
        self.answered(kind, errno, "");
        errno
    }

    /// Counts an answer, and reports one that is not documented.
    pub fn answered(&self, kind: Kind, errno: i32, of: &str) {
        self.plan.tally.count(kind, errno);
        if !kind.expects(errno) || self.plan.expect_nothing && errno != 0 {
            self.report(&format!(
                "{}{of}: {} is not documented",
                kind.name(),
                errno_name(errno)
            ));
        }
    }

    /// Says what was found.
    pub fn report(&self, what: &str) {
        if self.plan.tally.next_report() < NAMED {
            let line = format!("process {} (life {}): {what}\n", self.index, self.life);
            let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
            // One write, so that lines of several processes do not mix; who reads has room for all of them.
            let _ = reports.write_all(line.as_bytes());
        }
    }

    /// What the threads share.
    pub fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The render node.
    pub fn render(&self) -> BorrowedFd<'_> {
        self.render.as_fd()
    }

    /// Upper half of every word that this life of this process, and nobody else, writes.
    pub fn mark(&self) -> u32 {
        0x8000_0000 | ((self.index & 0x7f) << 24) | ((self.life & 0xff) << 16)
    }

    fn words<'a>(&self, buffer: &'a Buffer) -> impl Iterator<Item = (u32, *mut u32)> + use<'a> {
        let start: *mut u32 = buffer
            .range
            .as_ref()
            .map_or(std::ptr::null_mut(), |range| range.as_ptr().cast());
        let count = buffer.range.as_ref().map_or(0, |range| range.size() / 4);
        // CAST: the buffers are small.
        (0..count).map(move |at| (at as u32 & 0xffff, start.wrapping_add(at)))
    }

    fn fill(&self, buffer: &Buffer) {
        for (at, word) in self.words(buffer) {
            // SAFETY: a word of a mapping that the buffer owns; the GPU does not write to it.
            unsafe { word.write_volatile(self.mark() | at) };
        }
    }

    /// Compares what nobody may have changed.
    pub fn check(&self) {
        for buffer in &self.kept {
            for (at, word) in self.words(buffer) {
                // SAFETY: a word of a mapping that the buffer owns.
                let found = unsafe { word.read_volatile() };
                if found != self.mark() | at {
                    self.report(&format!(
                        "dword {at} of a buffer with flags {:#x} that nobody writes is {found:#010x}, was {:#010x}",
                        buffer.flags,
                        self.mark() | at
                    ));
                    break;
                }
            }
        }
        for (at, word) in self.words(&self.sink) {
            // SAFETY: as above; the GPU may write at any time, which a volatile read bears.
            let found = unsafe { word.read_volatile() };
            if found != 0 && found & 0xffff_0000 != self.mark() {
                self.report(&format!(
                    "dword {at} of memory that only own packets write is {found:#010x}"
                ));
                break;
            }
        }
    }

    /// Changes a byte that must not change.
    fn spoil(&self) {
        if let Some((_, word)) = self.kept.first().and_then(|kept| self.words(kept).next()) {
            // SAFETY: a word of a mapping that the buffer owns.
            unsafe { word.write_volatile(0) };
        }
    }
}

/// The errno of an error, 0 where it has none.
fn number(error: &rkfd::error::Error) -> i32 {
    // CAST: its number.
    error.errno().map_or(0, |errno| errno as i32)
}

/// Lives as process `index` until the end of the plan; returns the exit status.
pub fn live(plan: &Plan, index: u32, life: u32, reports: File) -> i32 {
    let fallback = reports.try_clone();
    let process = match Process::new(plan, index, life, reports) {
        Ok(process) => process,
        Err(e) => {
            plan.tally.next_report();
            if let Ok(mut reports) = fallback {
                let _ = reports.write_all(
                    format!("process {index} (life {life}) could not begin: {e:#}\n").as_bytes(),
                );
            }
            return 1;
        }
    };
    let work = |number: u32| -> anyhow::Result<()> {
        let dice = Dice::new(plan.seed, index, life, number);
        Thread::new(&process, dice)?.run(number == 0);
        Ok(())
    };
    let ended = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        threads
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect::<Vec<_>>()
    });
    for end in ended {
        match end {
            Ok(Ok(())) => {}
            Ok(Err(e)) => process.report(&format!("a thread: {e:#}")),
            Err(_) => process.report("a thread panicked"),
        }
    }
    if plan.spoil {
        process.spoil();
    }
    process.check();
    0
}
