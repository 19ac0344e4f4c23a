// SPDX-License-Identifier: GPL-2.0 OR MIT
//! An address space of the GPU that shows the program's own memory, with a queue and kernels.

use std::alloc::Layout;
use std::mem::size_of;
use std::ptr::NonNull;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering;

use anyhow::bail;
use anyhow::Context;
use nix::errno::Errno;
use rkfd::backoff::poll;
use rkfd::code::object::CodeObject;
use rkfd::code::object::KernelCode;
use rkfd::device::Device;
use rkfd::native::Bo;
use rkfd::native::Filling;
use rkfd::native::Heap;
use rkfd::native::Mirror;
use rkfd::native::Queue;
use rkfd::native::QueueKind;
use rkfd::native::Rights;
use rkfd::native::Space;
use rkfd::packet::aql;
use rkfd::packet::aql::KernelDispatch;
use rkfd::packet::aql::Scope;
use rkfd::sys::PAGE;

use super::stage::LIMIT;

/// Where the code is bound, and the queue: the program has nothing there.
const CODE_AT: u64 = 1 << 32;
const QUEUE_AT: u64 = 2 << 32;
/// Arguments of a kernel, those that the source does not name included.
const ARGUMENTS: usize = 64;

/// Memory of malloc. What was put there stays until this is dropped.
///
/// Kernels store to it while the program has pointers: everything in it is accessed by pointers and atomics alone.
pub struct Memory {
    /// Where everything goes, if the GPU sees only that: the rest of a piece of whole pages.
    arena: Option<Arena>,
    pieces: Vec<(NonNull<u8>, Layout)>,
}

struct Arena {
    start: NonNull<u8>,
    bytes: usize,
    used: usize,
}

fn allocate(layout: Layout) -> anyhow::Result<NonNull<u8>> {
    // SAFETY: no layout here is empty.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).context("no memory")
}

impl Memory {
    fn new() -> Self {
        Self {
            arena: None,
            pieces: Vec::new(),
        }
    }

    /// Memory of `bytes` in whole pages, from which everything comes.
    fn with_arena(bytes: usize) -> anyhow::Result<Self> {
        let layout = Layout::from_size_align(bytes.next_multiple_of(PAGE), PAGE)?;
        let start = allocate(layout)?;
        Ok(Self {
            arena: Some(Arena {
                start,
                bytes: layout.size(),
                used: 0,
            }),
            pieces: vec![(start, layout)],
        })
    }

    /// Puts a value into memory of its own. It is not dropped.
    ///
    /// # Errors
    /// There is no memory left.
    pub fn put<T>(&mut self, value: T) -> anyhow::Result<*mut T> {
        let layout = Layout::new::<T>();
        let at = match &mut self.arena {
            None => {
                let piece = allocate(layout)?;
                self.pieces.push((piece, layout));
                piece
            }
            Some(arena) => {
                let offset = arena.used.next_multiple_of(layout.align());
                arena.used = offset + layout.size();
                if arena.used > arena.bytes {
                    bail!("the memory that the GPU sees is full");
                }
                // SAFETY: inside the piece, as was checked.
                unsafe { arena.start.add(offset) }
            }
        };
        let at = at.cast::<T>().as_ptr();
        // SAFETY: memory of this layout that nobody else has.
        unsafe { at.write(value) };
        Ok(at)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for (piece, layout) in self.pieces.drain(..) {
            // SAFETY: allocated with this layout, and freed once.
            unsafe { std::alloc::dealloc(piece.as_ptr(), layout) };
        }
    }
}

/// `amd_signal_t`.
#[repr(C, align(64))]
struct Signal {
    kind: u64,
    value: AtomicI64,
    rest: [u64; 6],
}

/// Arguments, aligned as packets want them.
#[repr(C, align(64))]
struct Arguments([u64; ARGUMENTS]);

/// How the GPU has the program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// All of it, by a mirror that accesses fill.
    Whole,
    /// One range of so many bytes, by a mirror that is filled at once.
    Range(usize),
}

/// An address space with a queue, kernels, and the program's memory.
pub struct Room {
    // In this order: no packet runs any more, then the GPU's access ends, then the memory goes.
    queue: Queue,
    mirror: Mirror,
    /// What the GPU sees.
    pub memory: Memory,
    way: Way,
    signal: *mut Signal,
    arguments: *mut Arguments,
    object: CodeObject,
    _code: Bo,
    _space: Space,
}

/// A kernel that is ready to run: its packet has everything.
pub struct Launch([u32; aql::DWORDS]);

impl Room {
    /// Opens the address space: all memory of the program where the GPU repeats accesses, else `bytes` of it.
    ///
    /// # Errors
    /// A step is refused.
    pub fn new(device: &Device, code: &[u8], bytes: usize) -> anyhow::Result<Self> {
        let space = Space::open(device.render_path()).context("the native interface")?;
        // SAFETY: the packets of this space are those of `launch`, whose kernels access what `Memory` has and what the
        // caller says; all of that is accessed by atomics.
        let whole = unsafe { space.mirror_all(Rights::Write) };
        let (mirror, mut memory, way) = match whole {
            Ok(mirror) => (mirror, Memory::new(), Way::Whole),
            Err(e) if e.errno() == Some(Errno::EOPNOTSUPP) => {
                let memory = Memory::with_arena(bytes)?;
                let Some(arena) = &memory.arena else {
                    bail!("no memory for the GPU");
                };
                let (start, len) = (arena.start.as_ptr(), arena.bytes);
                let at = start.expose_provenance() as u64; // CAST: an address.
                                                           // SAFETY: as above; the memory outlives the mirror.
                let mirror =
                    unsafe { space.mirror(start, len, at, Rights::Write, Filling::AtOnce) };
                (
                    mirror.context("a mirror of a range")?,
                    memory,
                    Way::Range(len),
                )
            }
            Err(e) => return Err(e).context("a mirror of all memory"),
        };
        let object = CodeObject::parse(code)?;
        let image = space.bo(Heap::System, usize::try_from(object.bytes())?)?;
        for (offset, bytes) in object.stores(CODE_AT) {
            let offset = usize::try_from(offset)?;
            if offset
                .checked_add(bytes.len())
                .is_none_or(|end| end > image.size())
            {
                bail!("a part of the code object lies outside of it");
            }
            // SAFETY: inside the buffer, as was checked; the GPU does not have it yet.
            unsafe {
                let to = image.as_ptr().add(offset);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
            }
        }
        let mut list = space.list();
        list.map(CODE_AT, &image, 0, image.size(), Rights::Execute)?;
        space.bind(&list).context("binding the code")?;
        let queue = space.queue(QueueKind::Aql, QUEUE_AT).context("queue")?;
        let signal = memory.put(Signal {
            kind: 1,
            value: AtomicI64::new(0),
            rest: [0; 6],
        })?;
        let arguments = memory.put(Arguments([0; ARGUMENTS]))?;
        Ok(Self {
            queue,
            mirror,
            memory,
            way,
            signal,
            arguments,
            object,
            _code: image,
            _space: space,
        })
    }

    /// How the GPU has the program's memory.
    pub fn way(&self) -> Way {
        self.way
    }

    /// Accesses for which memory was shown.
    ///
    /// # Errors
    /// The driver does not say.
    pub fn faults(&self) -> anyhow::Result<u64> {
        Ok(self.mirror.query()?.faults)
    }

    /// Makes a kernel ready that takes 8-byte arguments, with one work-item.
    ///
    /// # Errors
    /// There is no such kernel, or it takes others.
    pub fn prepare(&self, name: &str, arguments: &[u64]) -> anyhow::Result<Launch> {
        let kernel: &KernelCode = self.object.kernel(name)?;
        let explicit = kernel.metadata.iter().flat_map(|m| &m.arguments);
        let explicit: Vec<(u32, u32)> = explicit
            .filter(|argument| !argument.kind.is_hidden())
            .map(|argument| (argument.offset, argument.size))
            .collect();
        let wanted: Vec<(u32, u32)> = (0..)
            .step_by(8)
            .map(|at| (at, 8))
            .take(arguments.len())
            .collect();
        // CAST: 32 bits into 64.
        let fits = kernel.kernarg_bytes() as usize <= ARGUMENTS * size_of::<u64>();
        if explicit != wanted || !fits || kernel.descriptor.private_bytes != 0 {
            bail!("the kernel {name} takes other arguments, or private memory");
        }
        for (n, value) in arguments.iter().enumerate() {
            // SAFETY: in the arguments, of which there are no more; no kernel runs.
            unsafe { (&raw mut (*self.arguments).0[n]).write_volatile(*value) };
        }
        let (mut packet, header) = KernelDispatch {
            grid: [1; 3],
            group: [1; 3],
            private_bytes: 0,
            group_bytes: kernel.descriptor.group_bytes,
            kernel_object: CODE_AT + kernel.address,
            kernargs: self.arguments.expose_provenance() as u64, // CAST: an address.
            completion: self.signal.expose_provenance() as u64,  // CAST: an address.
            barrier: true,
            acquire: Scope::System,
            release: Scope::System,
        }
        .encode()?;
        packet[0] = packet[0] & 0xffff_0000 | u32::from(header);
        Ok(Launch(packet))
    }

    fn value(&self) -> &AtomicI64 {
        // SAFETY: in memory that lives as long as `self`; all access to it is atomic, the GPU's included.
        unsafe { &(*self.signal).value }
    }

    /// Runs a kernel and polls for its end.
    ///
    /// # Errors
    /// It does not end in time.
    pub fn run(&self, launch: &Launch) -> anyhow::Result<()> {
        self.value().store(1, Ordering::Release);
        self.queue.submit(&launch.0)?;
        let ended = poll("the kernel's signal", LIMIT, || {
            let value = self.value().load(Ordering::Acquire);
            (value == 0, value as u64) // CAST: the bits, for a message.
        });
        match (ended, self.queue.inactive()?) {
            (Err(_), reason) if reason != 0 => bail!("the queue stopped, reason {reason:#x}"),
            (ended, _) => Ok(ended?),
        }
    }
}
