// SPDX-License-Identifier: GPL-2.0 OR MIT
//! GPUs that have the memory of lanes through mirrors, by the native interface.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context;
use nix::errno::Errno;
use rkfd::error::Error;
use rkfd::native;
use rkfd::native::Bo;
use rkfd::native::Filling;
use rkfd::native::Heap;
use rkfd::native::Hint;
use rkfd::native::Migration;
use rkfd::native::Mirror;
use rkfd::native::Queue;
use rkfd::native::QueueKind;
use rkfd::native::Rights;
use rkfd::native::Space;
use rkfd::packet::pm4;
use rkfd::packet::sdma;
use rkfd::sys::Mapping;
use rkfd::sys::PAGE;

use super::arena::Arena;
use super::lane::Gpu;
use super::lane::SWEPT;
use super::plan::GpuOp;
use super::plan::Place;
use super::tally::Tally;
use super::TRIES;

/// Where the results of lane n lie, and its queue, for the GPU: far from each other, and from memory of the program.
const RESULTS: u64 = 0x2_0000_0000;
const QUEUES: u64 = 0x8_0000_0000;
/// Where the memory of lane n lies for the GPU.
const MEMORY: u64 = 0x100_0000_0000;
/// Between the places of two lanes.
const LANE: u64 = 1 << 28;
/// Between the memory of two lanes.
const ROOM: u64 = 1 << 30;
/// Pages by which the GPU addresses of some lanes differ from those of the CPU, beyond whole large pages.
const SHIFTS: [u64; 3] = [0, 3, 16];
/// Bytes of results, and behind them the fence.
const READ: usize = SWEPT * PAGE;
/// Between two looks at faults while a batch is waited for.
const LOOK: Duration = Duration::from_millis(500);

/// How a GPU has the memory of lanes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Way {
    /// Filled at once, and again after each change while the queues wait
    Populated,
    /// Filled by accesses, which are repeated until then
    Fault,
}

impl Way {
    /// The name of the option.
    pub fn title(self) -> &'static str {
        match self {
            Self::Populated => "populated",
            Self::Fault => "fault",
        }
    }
}

/// An address space of a GPU that the lanes of one way share.
#[derive(Debug)]
pub struct Room {
    space: Space,
    way: Way,
}

/// Repeats a call for which there was no memory.
fn again<T>(
    tally: &Tally,
    mut call: impl FnMut() -> rkfd::error::Result<T>,
) -> rkfd::error::Result<T> {
    let mut left = TRIES;
    loop {
        match call() {
            Err(e) if e.errno() == Some(Errno::ENOMEM) && left > 0 => {
                left -= 1;
                tally.retry();
                std::thread::sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
}

impl Room {
    /// Opens the node for a way, or for one that fills at once where the GPU cannot repeat accesses.
    pub fn open(node: &Path, way: Way, tally: &Tally) -> anyhow::Result<Self> {
        let space = again(tally, || open(node))?;
        let mut room = Self { space, way };
        if way == Way::Populated {
            return Ok(room);
        }
        let page = Mapping::anonymous(PAGE)?;
        let (at, rights) = (page.as_ptr(), Rights::Read);
        // SAFETY: packets access nothing of it: there is no queue before it ends.
        let made = again(tally, || unsafe {
            room.space
                .mirror(at, PAGE, MEMORY, rights, Filling::OnAccess)
        });
        match made {
            Err(e) if e.errno() == Some(Errno::EOPNOTSUPP) => room.way = Way::Populated,
            result => drop(result.context("a mirror that accesses fill")?),
        }
        Ok(room)
    }

    /// How it has memory.
    pub fn way(&self) -> Way {
        self.way
    }

    /// Whether memory can move to its VRAM.
    pub fn migrates(&self) -> bool {
        self.space.can_migrate()
    }
}

/// A file for which there was no memory is one that a further attempt may open.
fn open(node: &Path) -> rkfd::error::Result<Space> {
    Space::open(node).map_err(|e| match &e {
        Error::File { source, .. } if source.raw_os_error() == Some(Errno::ENOMEM as i32) => {
            Error::Call {
                call: "open",
                errno: Errno::ENOMEM,
            }
        }
        _ => e,
    })
}

/// A queue of a lane on a GPU.
#[derive(Debug)]
pub struct Engine {
    // In this order: no packet runs any more, then the memory goes.
    queue: Queue,
    mirror: Mirror,
    results: Bo,
    room: Arc<Room>,
    kind: QueueKind,
    /// GPU address of the lane's first page.
    base: u64,
    pages: usize,
    results_at: u64,
    fence: u32,
    read: usize,
    patience: Duration,
    tally: Arc<Tally>,
}

/// What happened to a mirror.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Changes of memory that met it.
    pub changes: u64,
    /// Accesses for which memory was shown.
    pub faults: u64,
}

impl Engine {
    /// A queue of `kind` for lane `number` in a room.
    pub fn new(
        room: &Arc<Room>,
        number: usize,
        kind: QueueKind,
        arena: &Arena,
        patience: Duration,
        tally: &Arc<Tally>,
    ) -> anyhow::Result<Self> {
        let lane = number as u64; // CAST: a small number.
        let space = &room.space;
        let shift = SHIFTS.get(number % SHIFTS.len()).copied().unwrap_or(0) * PAGE as u64;
        let (start, len) = (arena.start(), arena.pages() * PAGE);
        let filling = match room.way {
            Way::Populated => Filling::AtOnce,
            Way::Fault => Filling::OnAccess,
        };
        let base = MEMORY + lane * ROOM + shift;
        let at = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: of an arena there are no references.
        let mirror = again(tally, || unsafe {
            space.mirror(at, len, base, Rights::Write, filling)
        })
        .context("mirror")?;
        let results = again(tally, || space.bo(Heap::System, READ + PAGE)).context("buffer")?;
        let results_at = RESULTS + lane * LANE;
        let mut list = space.list();
        list.map(results_at, &results, 0, READ + PAGE, Rights::Write)?;
        again(tally, || space.bind(&list)).context("binding the buffer")?;
        let queue = again(tally, || space.queue(kind, QUEUES + lane * LANE)).context("queue")?;
        Ok(Self {
            queue,
            mirror,
            results,
            room: room.clone(),
            kind,
            base,
            pages: arena.pages(),
            results_at,
            fence: 0,
            read: 0,
            patience,
            tally: tally.clone(),
        })
    }

    /// How it has the memory.
    pub fn way(&self) -> Way {
        self.room.way
    }

    /// What happened to its mirror.
    pub fn figures(&self) -> anyhow::Result<Figures> {
        let info = self.mirror.query()?;
        Ok(Figures {
            changes: info.changes,
            faults: info.faults,
        })
    }

    fn at(&self, page: usize, offset: usize) -> u64 {
        self.base + (page * PAGE + offset) as u64 // CAST: a size in memory.
    }

    /// Where the next bytes go that are read.
    fn result(&mut self, bytes: usize) -> anyhow::Result<u64> {
        let at = self.read;
        self.read += bytes;
        if self.read > READ {
            bail!("a batch reads more than {READ} bytes");
        }
        Ok(self.results_at + at as u64) // CAST: a size in memory.
    }

    fn pm4(&mut self, ops: &[GpuOp]) -> anyhow::Result<Vec<u32>> {
        use pm4::Packet;
        let mut packets = vec![Packet::AcquireMem {
            coher: pm4::COHER_ALL,
        }];
        let copy = |source, destination, bytes: usize| Packet::DmaData {
            source,
            destination,
            bytes: bytes as u32, // CAST: at most a page.
        };
        let write = |address, data| Packet::WriteData {
            address,
            data,
            confirm: true,
        };
        for op in ops {
            match op {
                GpuOp::Write { page, offset, data } => {
                    packets.push(write(self.at(*page, *offset), data.clone()));
                }
                GpuOp::Fill {
                    page,
                    offset,
                    data,
                    bytes,
                } => packets.push(write(self.at(*page, *offset), vec![*data; bytes / 4])),
                GpuOp::Add {
                    page,
                    offset,
                    value,
                    times,
                } => packets.extend((0..*times).map(|_| Packet::AtomicMem {
                    operation: pm4::ATOMIC_ADD64,
                    address: self.at(*page, *offset),
                    source: *value,
                    compare: 0,
                })),
                GpuOp::Copy { from, to, bytes } => {
                    packets.push(copy(self.at(from.0, from.1), self.at(to.0, to.1), *bytes));
                }
                GpuOp::Read {
                    page,
                    offset,
                    wanted,
                } => {
                    let to = self.result(wanted.len())?;
                    packets.push(copy(self.at(*page, *offset), to, wanted.len()));
                }
            }
        }
        packets.push(Packet::ReleaseMem {
            event: pm4::CACHE_FLUSH_AND_INV_TS,
            address: self.fence_at(),
            data: pm4::ReleaseData::Dword(self.fence),
            interrupt: pm4::ReleaseInterrupt::None,
        });
        Ok(Packet::encode_all(&packets)?)
    }

    fn sdma(&mut self, ops: &[GpuOp]) -> anyhow::Result<Vec<u32>> {
        use sdma::Packet;
        let mut packets = Vec::new();
        let copy = |source, destination, bytes: usize| Packet::CopyLinear {
            source,
            destination,
            bytes: bytes as u32, // CAST: at most a page.
        };
        for op in ops {
            match op {
                GpuOp::Write { page, offset, data } => packets.push(Packet::WriteLinear {
                    destination: self.at(*page, *offset),
                    data: data.clone(),
                }),
                GpuOp::Fill {
                    page,
                    offset,
                    data,
                    bytes,
                } => packets.push(Packet::ConstFill {
                    destination: self.at(*page, *offset),
                    data: *data,
                    bytes: *bytes as u32, // CAST: at most a stripe.
                }),
                GpuOp::Add {
                    page,
                    offset,
                    value,
                    times,
                } => packets.extend((0..*times).map(|_| Packet::Atomic {
                    operation: sdma::ATOMIC_ADD64,
                    address: self.at(*page, *offset),
                    source: *value,
                })),
                GpuOp::Copy { from, to, bytes } => {
                    packets.push(copy(self.at(from.0, from.1), self.at(to.0, to.1), *bytes));
                }
                GpuOp::Read {
                    page,
                    offset,
                    wanted,
                } => {
                    let to = self.result(wanted.len())?;
                    packets.push(copy(self.at(*page, *offset), to, wanted.len()));
                }
            }
        }
        packets.push(Packet::Fence {
            address: self.fence_at(),
            data: self.fence,
        });
        Ok(Packet::encode_all(&packets)?)
    }

    fn fence_at(&self) -> u64 {
        self.results_at + READ as u64 // CAST: a constant.
    }

    /// Fails with what the GPU may not access, if there is such a thing.
    fn refused(&self) -> anyhow::Result<()> {
        let (faults, _) = self.room.space.faults()?;
        let Some(fault) = faults.first() else {
            return Ok(());
        };
        let access = match fault.access & rkfd::native::abi::FAULT_WRITE {
            0 => "read from",
            _ => "write to",
        };
        let inside = fault
            .address
            .checked_sub(self.base)
            .map(|at| at / PAGE as u64);
        match inside.filter(|page| *page < self.pages as u64) {
            Some(page) => bail!("it may not {access} {:#x}: page {page}", fault.address),
            None => bail!("it may not {access} {:#x}: another lane's", fault.address),
        }
    }
}

impl Gpu for Engine {
    fn submit(&mut self, ops: &[GpuOp]) -> anyhow::Result<()> {
        self.read = 0;
        self.fence = self.fence.wrapping_add(1);
        let dwords = match self.kind {
            QueueKind::Pm4 => self.pm4(ops)?,
            QueueKind::Sdma => self.sdma(ops)?,
            QueueKind::Aql => bail!("no lane has an AQL queue"),
        };
        Ok(self.queue.submit(&dwords)?)
    }

    fn finish(&mut self) -> anyhow::Result<Vec<u8>> {
        let end = Instant::now() + self.patience;
        let space = &self.room.space;
        loop {
            match again(&self.tally, || {
                space.wait_u32(&self.results, READ, self.fence, LOOK)
            }) {
                Err(Error::TimedOut { .. }) if Instant::now() < end => self.refused()?,
                Err(e @ Error::TimedOut { .. }) => {
                    self.refused()?;
                    return Err(e).with_context(|| {
                        format!("no end of a batch after {} s", self.patience.as_secs())
                    });
                }
                result => break result?,
            }
        }
        let mut found = vec![0; self.read];
        // SAFETY: so many bytes are in the buffer, and the packets that wrote them are done.
        unsafe {
            let from = self.results.as_ptr().cast_const();
            std::ptr::copy_nonoverlapping(from, found.as_mut_ptr(), found.len());
        }
        Ok(found)
    }

    fn show(&mut self, first: usize, count: usize) -> anyhow::Result<()> {
        // Accesses fill the others.
        if self.room.way != Way::Populated {
            return Ok(());
        }
        let (at, len) = (self.at(first, 0), count * PAGE);
        again(&self.tally, || self.mirror.populate(at, len))
            .with_context(|| format!("showing {count} pages from {first} on"))
    }

    fn migrate(
        &mut self,
        first: usize,
        count: usize,
        to: Place,
        fill: bool,
    ) -> anyhow::Result<Option<u64>> {
        if !self.room.space.can_migrate() {
            return Ok(None);
        }
        let how = Migration {
            fill,
            ..Migration::now(match to {
                Place::Vram => native::Place::Vram,
                Place::System => native::Place::System,
            })
        };
        match self.mirror.migrate(self.at(first, 0), count * PAGE, how) {
            Ok(told) => Ok(Some(told.moved)),
            // A part may have moved, which changes no content.
            Err(partly) if partly.error.errno() == Some(Errno::ENOMEM) => Ok(None),
            Err(partly) => {
                Err(partly).with_context(|| format!("moving {count} pages from {first} on"))
            }
        }
    }

    fn hint(&mut self, first: usize, count: usize, hint: Option<Hint>) -> anyhow::Result<bool> {
        let (at, len) = (self.at(first, 0), count * PAGE);
        match again(&self.tally, || self.mirror.hint(at, len, hint)) {
            Ok(()) => Ok(true),
            // The GPU moves nothing, or there are as many hints as can be.
            Err(e) if matches!(e.errno(), Some(Errno::EOPNOTSUPP | Errno::ENOSPC)) => Ok(false),
            Err(e) => Err(e).with_context(|| format!("hints for {count} pages from {first} on")),
        }
    }
}
