// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A lane: memory of its own, the GPUs that have it at addresses of theirs, and rounds of packets and operations after each
//! of which every byte is what the shadow says.

use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::sync::Arc;

use anyhow::bail;
use anyhow::Context;
use nix::errno::Errno;
use rkfd::native::Hint;
use rkfd::sys::PAGE;

use super::arena::Arena;
use super::persist;
use super::plan::pattern;
use super::plan::Busy;
use super::plan::GpuOp;
use super::plan::MemoryOp;
use super::plan::Parties;
use super::plan::Place;
use super::plan::Planner;
use super::shadow::Access;
use super::shadow::Shadow;
use super::shadow::STRIPE;
use super::tally::Kind;
use super::tally::Tally;

/// Most packets of a GPU in a round, and most operations on memory meanwhile.
const PACKETS: usize = 24;
const OPERATIONS: usize = 8;
/// All pages are compared by the CPU once in so many rounds, and by the GPUs.
const BY_CPU: u64 = 8;
const BY_GPU: u64 = 32;
/// Pages that a GPU reads at once.
pub const SWEPT: usize = 32;
/// Attempts at a call for which there is no memory, a millisecond apart.
const TRIES: u32 = 5000;
/// The round in which something is spoiled on purpose: the first after which all pages are compared.
const SPOILED: u64 = BY_CPU - 1;

/// What is done wrong on purpose, to see that it is found.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Spoil {
    /// A byte changes that nobody writes.
    Byte,
    /// A packet that writes is left out.
    Packet,
}

/// A GPU that has the memory of a lane.
pub trait Gpu {
    /// Begins packets.
    fn submit(&mut self, ops: &[GpuOp]) -> anyhow::Result<()>;
    /// Waits until they are done, and returns what was read, one after the other.
    fn finish(&mut self) -> anyhow::Result<Vec<u8>>;
    /// The program has mapped pages, or may do more with them.
    fn show(&mut self, first: usize, count: usize) -> anyhow::Result<()>;
    /// Memory moves to its VRAM or to system memory, where `fill` says so also that of pages which have none. Returns the bytes
    /// that were moved, or nothing where there was no room or the GPU moves none.
    fn migrate(
        &mut self,
        first: usize,
        count: usize,
        to: Place,
        fill: bool,
    ) -> anyhow::Result<Option<u64>>;
    /// Says where memory is to be when this GPU accesses it, or that it may be anywhere. Returns whether that was noted.
    fn hint(&mut self, first: usize, count: usize, hint: Option<Hint>) -> anyhow::Result<bool>;
}

/// A lane.
pub struct Lane<G> {
    number: usize,
    // In this order: the GPUs lose the memory before it goes.
    gpus: Vec<G>,
    arena: Arena,
    shadow: Shadow,
    planner: Planner,
    tally: Arc<Tally>,
    round: u64,
    choices: DefaultHasher,
    spoil: Option<Spoil>,
}

impl<G: Gpu> Lane<G> {
    /// A lane with memory that shows something in most of its pages.
    pub fn new(
        number: usize,
        seed: u64,
        arena: Arena,
        file_pages: usize,
        gpus: Vec<G>,
        tally: Arc<Tally>,
    ) -> anyhow::Result<Self> {
        let shadow = Shadow::new(arena.pages(), file_pages);
        let mut lane = Self {
            number,
            gpus,
            arena,
            shadow,
            planner: Planner::new(seed, number),
            tally,
            round: 0,
            choices: DefaultHasher::new(),
            spoil: None,
        };
        let (pages, own) = (lane.arena.pages(), lane.arena.pages() * 5 / 8);
        let file = file_pages.min(pages - own);
        for op in [
            MemoryOp::MapPrivate {
                first: 0,
                count: own,
                access: Access::Write,
            },
            MemoryOp::MapShared {
                first: own,
                count: file,
                from: 0,
                access: Access::Write,
            },
            MemoryOp::Unmap {
                first: own + file,
                count: pages - own - file,
            },
        ] {
            if !matches!(op, MemoryOp::Unmap { count: 0, .. }) {
                lane.perform(op, &Busy::new(&lane.shadow), lane.parties())?;
            }
        }
        Ok(lane)
    }

    /// Does something wrong in one round.
    pub fn spoil(&mut self, what: Option<Spoil>) {
        self.spoil = what;
    }

    /// Has memory move to its GPUs, and back.
    pub fn migrate(&mut self) {
        self.planner.migrate(self.gpus.len());
    }

    /// Its GPUs.
    pub fn gpus(&self) -> &[G] {
        &self.gpus
    }

    /// Rounds that it has finished.
    pub fn rounds(&self) -> u64 {
        self.round
    }

    /// A number that two lanes share if they made the same choices.
    pub fn choices(&self) -> u64 {
        self.choices.finish()
    }

    fn parties(&self) -> Parties {
        Parties {
            gpus: self.gpus.len(),
            round: self.round,
        }
    }

    /// One round.
    pub fn round(&mut self) -> anyhow::Result<()> {
        let (number, round) = (self.number, self.round);
        self.whole_round()
            .with_context(|| format!("lane {number}, round {round}"))?;
        self.round += 1;
        self.tally.round();
        Ok(())
    }

    fn whole_round(&mut self) -> anyhow::Result<()> {
        let parties = self.parties();
        let mut busy = Busy::new(&self.shadow);
        let mut batches = Vec::new();
        for at in 0..self.gpus.len() {
            let packets = self.planner.some(PACKETS);
            let shadow = &mut self.shadow;
            let mut batch = self.planner.batch(shadow, &mut busy, parties, at, packets);
            batch.hash(&mut self.choices);
            if self.spoils(Spoil::Packet) {
                let writes = |op: &GpuOp| matches!(op, GpuOp::Write { .. });
                if let Some(lost) = batch.iter().position(writes) {
                    batch.remove(lost);
                }
            }
            let gpu = self.gpus.get_mut(at).context("a GPU")?;
            gpu.submit(&batch).with_context(|| format!("GPU {at}"))?;
            batches.push(batch);
        }
        for _ in 0..self.planner.some(OPERATIONS) {
            let op = self.planner.memory(&self.shadow, &busy);
            op.hash(&mut self.choices);
            self.perform(op, &busy, parties)
                .with_context(|| format!("{op:?}"))?;
        }
        for (at, batch) in batches.iter().enumerate() {
            self.finish(at, batch)?;
        }
        for page in busy.all_written().collect::<Vec<_>>() {
            self.compare(page)?;
        }
        if self.spoils(Spoil::Byte) {
            self.spoil_byte()?;
        }
        if self.round % BY_CPU == BY_CPU - 1 {
            self.compare_all()?;
        }
        if self.round % BY_GPU == BY_GPU - 1 {
            self.sweep()?;
        }
        Ok(())
    }

    /// Compares all memory a last time, by all parties.
    pub fn close(&mut self) -> anyhow::Result<()> {
        let number = self.number;
        self.compare_all()
            .and_then(|()| self.sweep())
            .with_context(|| format!("lane {number}, at the end"))
    }

    fn spoils(&self, what: Spoil) -> bool {
        self.spoil == Some(what) && self.round == SPOILED
    }

    fn spoil_byte(&self) -> anyhow::Result<()> {
        let good = |page: &usize| self.shadow.access(*page) == Access::Write;
        let page = (0..self.shadow.pages())
            .filter(good)
            .find(|page| self.shadow.bytes(*page).is_some())
            .context("no page to spoil")?;
        let byte = self.shadow.bytes(page).and_then(|bytes| bytes.last());
        self.arena
            .store(page, PAGE - 1, &[byte.map_or(1, |byte| !byte)]);
        Ok(())
    }

    /// Waits for a batch and compares what was read.
    fn finish(&mut self, at: usize, batch: &[GpuOp]) -> anyhow::Result<()> {
        let gpu = self.gpus.get_mut(at).context("a GPU")?;
        let found = gpu.finish().with_context(|| format!("GPU {at}"))?;
        let mut rest = found.as_slice();
        for op in batch {
            self.tally.add(Kind::from(op), true);
            let GpuOp::Read {
                page,
                offset,
                wanted,
            } = op
            else {
                continue;
            };
            let Some((read, behind)) = rest.split_at_checked(wanted.len()) else {
                bail!("GPU {at} has read too little");
            };
            rest = behind;
            if let Some(n) = wanted.iter().zip(read).position(|(w, f)| w != f) {
                bail!(
                    "GPU {at} reads {:#04x}, not {:#04x}, at {:#x} of page {page} ({:#x})",
                    read.get(n).copied().unwrap_or(0),
                    wanted.get(n).copied().unwrap_or(0),
                    offset + n,
                    self.arena.range(*page, 1).start
                );
            }
            self.tally.read_by_gpu(wanted.len());
        }
        Ok(())
    }

    /// Compares a page that no GPU writes now, if the program may read it.
    fn compare(&mut self, page: usize) -> anyhow::Result<()> {
        if self.shadow.access(page) < Access::Read {
            return Ok(());
        }
        let mut found = [0; PAGE];
        self.arena.load(page, 0, &mut found);
        self.tally.compared(PAGE);
        let address = self.arena.range(page, 1).start;
        self.shadow.judge(page, &found).map_err(|wrong| {
            let shown = match self.shadow.shared(page) {
                Some(at) => format!("page {at} of the file"),
                None => "its own memory".to_owned(),
            };
            anyhow::anyhow!("page {page} ({address:#x}, {shown}): {wrong}")
        })
    }

    fn compare_all(&mut self) -> anyhow::Result<()> {
        (0..self.shadow.pages()).try_for_each(|page| self.compare(page))
    }

    /// Has every GPU read every page.
    fn sweep(&mut self) -> anyhow::Result<()> {
        let known: Vec<GpuOp> = (0..self.shadow.pages())
            .filter(|page| self.shadow.access(*page) >= Access::Read)
            .filter_map(|page| {
                Some(GpuOp::Read {
                    page,
                    offset: 0,
                    wanted: self.shadow.bytes(page)?.to_vec(),
                })
            })
            .collect();
        for at in 0..self.gpus.len() {
            for some in known.chunks(SWEPT) {
                let gpu = self.gpus.get_mut(at).context("a GPU")?;
                gpu.submit(some).with_context(|| format!("GPU {at}"))?;
                self.finish(at, some)?;
            }
        }
        Ok(())
    }

    /// The GPUs may have to be told of pages that the program may use now.
    fn show(&mut self, first: usize, count: usize) -> anyhow::Result<()> {
        let mut from = first;
        while from < first + count {
            let usable = self.shadow.access(from) >= Access::Read;
            let same = (from..first + count)
                .take_while(|page| (self.shadow.access(*page) >= Access::Read) == usable)
                .count();
            if usable {
                for gpu in &mut self.gpus {
                    gpu.show(from, same)?;
                }
            }
            from += same;
        }
        Ok(())
    }

    /// Does one operation, in memory and in the shadow.
    fn perform(&mut self, op: MemoryOp, busy: &Busy, parties: Parties) -> anyhow::Result<()> {
        let (arena, shadow, tally) = (&self.arena, &mut self.shadow, &self.tally);
        let mut done = true;
        match op {
            MemoryOp::MapPrivate {
                first,
                count,
                access,
            } => {
                persist(tally, TRIES, || arena.map_private(first, count, access))?;
                shadow.map_private(first, count, access);
                self.show(first, count)?;
            }
            MemoryOp::MapShared {
                first,
                count,
                from,
                access,
            } => {
                persist(tally, TRIES, || {
                    arena.map_shared(first, count, from, access)
                })?;
                shadow.map_shared(first, count, from, access);
                self.show(first, count)?;
            }
            MemoryOp::Unmap { first, count } => {
                persist(tally, TRIES, || arena.unmap(first, count))?;
                shadow.unmap(first, count);
            }
            MemoryOp::Move { from, count, to } => {
                match persist(tally, TRIES, || arena.relocate(from, count, to)) {
                    // Memory of several kinds in one range, before anything has moved.
                    Err(Errno::EFAULT | Errno::EINVAL) => {
                        for n in 0..count {
                            persist(tally, TRIES, || arena.relocate(from + n, 1, to + n))?;
                        }
                    }
                    result => result?,
                }
                shadow.relocate(from, count, to);
                self.show(to, count)?;
            }
            MemoryOp::Protect {
                first,
                count,
                access,
            } => {
                persist(tally, TRIES, || arena.protect(first, count, access))?;
                shadow.protect(first, count, access);
                self.show(first, count)?;
            }
            MemoryOp::Discard { first, count } => {
                persist(tally, TRIES, || arena.discard(first, count))?;
                shadow.discard(first, count);
            }
            MemoryOp::Free { first, count } => {
                persist(tally, TRIES, || arena.free(first, count))?;
                shadow.free(first, count);
            }
            MemoryOp::Punch { first, count } => {
                persist(tally, TRIES, || arena.punch(first, count))?;
                shadow.punch(first, count);
            }
            MemoryOp::Advise {
                first,
                count,
                advice,
            } => done = arena.advise(first, count, advice).is_ok(),
            MemoryOp::Migrate {
                first,
                count,
                gpu,
                to,
                fill,
            } => {
                let gpu = self.gpus.get_mut(gpu).context("a GPU")?;
                let moved = gpu.migrate(first, count, to, fill)?;
                tally.moved(to, moved.unwrap_or(0));
                done = moved.is_some();
            }
            MemoryOp::Hint {
                first,
                count,
                gpu,
                hint,
            } => {
                let gpu = self.gpus.get_mut(gpu).context("a GPU")?;
                done = gpu.hint(first, count, hint)?;
            }
            MemoryOp::Fork => {
                let shadow = &self.shadow;
                done = arena.fork(shadow, tally, |page, stripe| {
                    parties.quiet(stripe) || !busy.written(shadow, page)
                })?;
            }
            MemoryOp::Write { first, count, seed } => {
                for page in first..first + count {
                    for stripe in parties.stripes(Parties::CPU) {
                        let bytes = pattern(seed, page, stripe);
                        arena.store(page, stripe * STRIPE, &bytes);
                        shadow.write(page, stripe * STRIPE, &bytes);
                    }
                }
            }
            MemoryOp::Check { first, count } => self.check(first, count, parties)?,
        }
        self.tally.add(Kind::from(&op), done);
        Ok(())
    }

    /// Compares stripes that no GPU writes.
    fn check(&self, first: usize, count: usize, parties: Parties) -> anyhow::Result<()> {
        for page in first..first + count {
            let Some(bytes) = self.shadow.bytes(page) else {
                continue;
            };
            for (stripe, wanted) in bytes.chunks(STRIPE).enumerate() {
                if !parties.quiet(stripe) {
                    continue;
                }
                let mut found = [0; STRIPE];
                self.arena.load(page, stripe * STRIPE, &mut found);
                if let Some(n) = wanted.iter().zip(&found).position(|(w, f)| w != f) {
                    bail!(
                        "byte {:#x} of page {page} ({:#x}) is {:#04x}, not {:#04x}, while GPUs work",
                        stripe * STRIPE + n,
                        self.arena.range(page, 1).start,
                        found.get(n).copied().unwrap_or(0),
                        wanted.get(n).copied().unwrap_or(0)
                    );
                }
                self.tally.compared(STRIPE);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
