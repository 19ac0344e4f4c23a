// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What a lane does next: packets of the GPUs, and operations on the memory that they use at that moment.
//!
//! All choices follow from the seed and from what the memory must hold, never from time. In a round each page is cut into
//! stripes, and each stripe belongs to one party: the CPU, a GPU, or nobody. Parties write their own stripes only, and read
//! these and nobody's. So they work on the same pages at once, and what is in memory then does not depend on who was first.

use std::collections::HashSet;

use rkfd::native::Hint;
use rkfd::native::Reach;

use super::shadow::Access;
use super::shadow::Shadow;
use super::shadow::STRIPE;
use super::shadow::STRIPES;

mod ops;
mod parties;

pub use self::ops::Advice;
pub use self::ops::GpuOp;
pub use self::ops::MemoryOp;
pub use self::ops::Place;
pub use self::parties::Busy;
pub use self::parties::Parties;
use self::parties::Use;

/// Pages of the largest leaf of the CPU that the plan has in mind.
const HUGE: usize = 512;
/// Attempts to find a page for an operation.
const TRIES: usize = 24;

/// Choices of a lane.
#[derive(Debug)]
pub struct Planner {
    rng: fastrand::Rng,
    /// So many GPUs memory moves to, and back; without them all other choices are the same as if there were no such operation.
    migrates: usize,
}

impl Planner {
    /// All that a lane does follows from these two numbers.
    pub fn new(seed: u64, lane: usize) -> Self {
        // Neighbouring numbers must not give neighbouring states. CAST: a small number.
        let mixed = fastrand::Rng::with_seed(seed).u64(..) ^ lane as u64;
        Self {
            rng: fastrand::Rng::with_seed(fastrand::Rng::with_seed(mixed).u64(..)),
            migrates: 0,
        }
    }

    /// Has memory move to so many GPUs, and back.
    pub fn migrate(&mut self, gpus: usize) {
        self.migrates = gpus;
    }

    fn below(&mut self, n: usize) -> usize {
        self.rng.usize(0..n.max(1))
    }

    /// A page for which `good` holds.
    fn page(&mut self, pages: usize, good: impl Fn(usize) -> bool) -> Option<usize> {
        (0..TRIES).map(|_| self.below(pages)).find(|p| good(*p))
    }

    /// Pages of a range: mostly few, sometimes as many as a large page has, and then where one begins.
    fn range(&mut self, pages: usize) -> (usize, usize) {
        let first = self.below(pages);
        let count = match self.below(8) {
            0 => {
                return (
                    first - first % HUGE,
                    HUGE.min(pages - (first - first % HUGE)),
                )
            }
            1 => 1 + self.below(128),
            2..=3 => 1,
            _ => 1 + self.below(16),
        };
        (first, count.min(pages - first))
    }

    /// The beginning of some range in which `good` holds.
    fn stretch(&mut self, pages: usize, good: impl Fn(usize) -> bool) -> Option<(usize, usize)> {
        for _ in 0..TRIES {
            let (first, most) = self.range(pages);
            let count = (first..first + most).take_while(|p| good(*p)).count();
            if count > 0 {
                return Some((first, count));
            }
        }
        None
    }

    /// Packets of GPU `gpu`, which the shadow has done when this returns. No stripe is in two of them, so that a GPU may do
    /// them in any order.
    pub fn batch(
        &mut self,
        shadow: &mut Shadow,
        busy: &mut Busy,
        parties: Parties,
        gpu: usize,
        packets: usize,
    ) -> Vec<GpuOp> {
        let mut taken = HashSet::new();
        let mut ops = Vec::new();
        for _ in 0..packets {
            let Some(op) = self.packet(shadow, parties, gpu + 1, &mut taken) else {
                continue;
            };
            match &op {
                GpuOp::Write { page, offset, data } => {
                    let bytes: Vec<u8> = data.iter().flat_map(|d| d.to_le_bytes()).collect();
                    shadow.write(*page, *offset, &bytes);
                    busy.mark(shadow, *page, Use::Written);
                }
                GpuOp::Fill {
                    page,
                    offset,
                    data,
                    bytes,
                } => {
                    shadow.write(*page, *offset, &data.to_le_bytes().repeat(bytes / 4));
                    busy.mark(shadow, *page, Use::Written);
                }
                GpuOp::Add {
                    page,
                    offset,
                    value,
                    times,
                } => {
                    shadow.add(*page, *offset, value.wrapping_mul(u64::from(*times)));
                    busy.mark(shadow, *page, Use::Written);
                }
                GpuOp::Copy { from, to, bytes } => {
                    let source = shadow
                        .bytes(from.0)
                        .and_then(|b| b.get(from.1..from.1 + bytes));
                    let source = source.map(<[u8]>::to_vec).unwrap_or_default();
                    shadow.write(to.0, to.1, &source);
                    busy.mark(shadow, from.0, Use::Read);
                    busy.mark(shadow, to.0, Use::Written);
                }
                GpuOp::Read { page, .. } => busy.mark(shadow, *page, Use::Read),
            }
            ops.push(op);
        }
        ops
    }

    /// A stripe for a party that nothing has taken in this batch.
    fn stripe(
        &mut self,
        shadow: &Shadow,
        taken: &mut HashSet<(usize, usize)>,
        good_page: impl Fn(usize) -> bool,
        good_stripe: impl Fn(usize) -> bool,
    ) -> Option<(usize, usize)> {
        // Pages that show the same page of the file are one.
        let key = |page: usize| shadow.shared(page).map_or(page, |at| shadow.pages() + at);
        for _ in 0..TRIES {
            let page = self.page(shadow.pages(), &good_page)?;
            let stripe = self.below(STRIPES);
            if good_stripe(stripe) && taken.insert((key(page), stripe)) {
                return Some((page, stripe));
            }
        }
        None
    }

    fn packet(
        &mut self,
        shadow: &Shadow,
        parties: Parties,
        party: usize,
        taken: &mut HashSet<(usize, usize)>,
    ) -> Option<GpuOp> {
        let writable = |page| shadow.access(page) == Access::Write;
        let known = |page| shadow.access(page) >= Access::Read && !shadow.unsure(page);
        let own = |stripe| parties.owner(stripe) == party;
        let readable = |stripe| parties.readable(party, stripe);
        // A part of a stripe, in units of 8 bytes.
        let units = STRIPE / 8;
        let kind = self.below(10);
        if kind >= 7 {
            let (page, stripe) = self.stripe(shadow, taken, known, readable)?;
            let skip = self.below(units);
            let (offset, bytes) = (stripe * STRIPE + skip * 8, (units - skip) * 8);
            let wanted = shadow.bytes(page)?.get(offset..offset + bytes)?.to_vec();
            return Some(GpuOp::Read {
                page,
                offset,
                wanted,
            });
        }
        let (page, stripe) = self.stripe(shadow, taken, writable, own)?;
        let skip = self.below(units);
        let offset = stripe * STRIPE + skip * 8;
        let bytes = 8 * (1 + self.below(units - skip));
        Some(match kind {
            0..=1 => GpuOp::Write {
                page,
                offset,
                data: (0..bytes / 4).map(|_| self.rng.u32(..)).collect(),
            },
            2 => GpuOp::Fill {
                page,
                offset,
                data: self.rng.u32(..),
                bytes,
            },
            3..=4 => GpuOp::Add {
                page,
                offset,
                value: self.rng.u64(..),
                times: 1 + self.rng.u32(0..4),
            },
            _ => {
                let (from, source) = self.stripe(shadow, taken, known, readable)?;
                GpuOp::Copy {
                    from: (from, source * STRIPE + skip * 8),
                    to: (page, offset),
                    bytes,
                }
            }
        })
    }

    /// An operation on memory that the packets under way bear.
    pub fn memory(&mut self, shadow: &Shadow, busy: &Busy) -> MemoryOp {
        for _ in 0..TRIES {
            if let Some(op) = self.some_memory(shadow, busy) {
                return op;
            }
        }
        MemoryOp::Fork
    }

    fn some_access(&mut self) -> Access {
        match self.below(8) {
            0 => Access::None,
            1..=2 => Access::Read,
            _ => Access::Write,
        }
    }

    /// Wherever packets under way are: whatever is there, holes among it.
    fn some_migration(&mut self, pages: usize) -> MemoryOp {
        let (first, count) = self.range(pages);
        let to = match self.below(3) {
            0 => Place::System,
            _ => Place::Vram,
        };
        MemoryOp::Migrate {
            first,
            count,
            gpu: self.below(self.migrates),
            to,
            fill: to == Place::Vram && self.below(4) == 0,
        }
    }

    /// For any memory, that of packets under way, too.
    fn some_hint(&mut self, pages: usize) -> MemoryOp {
        let (first, count) = self.range(pages);
        let reach = Reach::ALL.get(self.below(Reach::ALL.len())).copied();
        let hint = match self.below(6) {
            0 => None,
            1 => Some(Hint::System),
            2 => Some(Hint::Stay),
            _ => Some(Hint::Vram(reach.unwrap_or_default())),
        };
        MemoryOp::Hint {
            first,
            count,
            gpu: self.below(self.migrates),
            hint,
        }
    }

    fn some_memory(&mut self, shadow: &Shadow, busy: &Busy) -> Option<MemoryOp> {
        let pages = shadow.pages();
        if self.migrates > 0 {
            // A third, and hints besides.
            match self.below(12) {
                0..=3 => return Some(self.some_migration(pages)),
                4 => return Some(self.some_hint(pages)),
                _ => {}
            }
        }
        let idle = |page| busy.page(page) == Use::Idle;
        let mapped = |page| shadow.mapped(page);
        Some(match self.below(100) {
            0..=9 => {
                let (first, count) = self.stretch(pages, idle)?;
                MemoryOp::MapPrivate {
                    first,
                    count,
                    access: self.some_access(),
                }
            }
            10..=15 => {
                let (first, count) = self.stretch(pages, idle)?;
                let from = self.below(shadow.file_pages());
                let count = count.min(shadow.file_pages() - from);
                if count == 0 {
                    return None;
                }
                MemoryOp::MapShared {
                    first,
                    count,
                    from,
                    access: self.some_access(),
                }
            }
            16..=21 => {
                let (first, count) = self.stretch(pages, |p| idle(p) && mapped(p))?;
                MemoryOp::Unmap { first, count }
            }
            22..=27 => {
                let (from, count) = self.stretch(pages, |p| idle(p) && mapped(p))?;
                let apart = |p: usize| p < from || p >= from + count;
                let (to, room) = self.stretch(pages, |p| idle(p) && apart(p))?;
                MemoryOp::Move {
                    from,
                    count: count.min(room),
                    to,
                }
            }
            28..=37 => {
                let access = self.some_access();
                // Packets under way go on reading what becomes read-only.
                let bears = |page| match access {
                    Access::None => idle(page),
                    Access::Read => busy.page(page) <= Use::Read,
                    Access::Write => true,
                };
                let (first, count) = self.stretch(pages, |p| mapped(p) && bears(p))?;
                MemoryOp::Protect {
                    first,
                    count,
                    access,
                }
            }
            38..=43 => {
                // The content of the file stays.
                let bears = |p| mapped(p) && (idle(p) || !shadow.private(p));
                let (first, count) = self.stretch(pages, bears)?;
                MemoryOp::Discard { first, count }
            }
            44..=47 => {
                let bears = |p| idle(p) && shadow.private(p) && !shadow.unsure(p);
                let (first, count) = self.stretch(pages, bears)?;
                MemoryOp::Free { first, count }
            }
            48..=50 => {
                let (first, count) =
                    self.stretch(shadow.file_pages(), |at| busy.file(at) == Use::Idle)?;
                MemoryOp::Punch { first, count }
            }
            51..=64 => {
                let (first, count) = self.stretch(pages, mapped)?;
                let at = self.below(Advice::ALL.len());
                MemoryOp::Advise {
                    first,
                    count,
                    advice: *Advice::ALL.get(at)?,
                }
            }
            65..=67 => MemoryOp::Fork,
            68..=87 => {
                let writable = |p| shadow.access(p) == Access::Write;
                let (first, count) = self.stretch(pages, writable)?;
                MemoryOp::Write {
                    first,
                    count,
                    seed: self.rng.u64(..),
                }
            }
            _ => {
                let known = |p| shadow.access(p) >= Access::Read && !shadow.unsure(p);
                let (first, count) = self.stretch(pages, known)?;
                MemoryOp::Check { first, count }
            }
        })
    }

    /// How many.
    pub fn some(&mut self, most: usize) -> usize {
        1 + self.below(most)
    }
}

/// The bytes that the CPU stores in a stripe.
pub fn pattern(seed: u64, page: usize, stripe: usize) -> [u8; STRIPE] {
    // CAST: small numbers.
    let mut rng = fastrand::Rng::with_seed(seed ^ ((page as u64) << 8) ^ stripe as u64);
    let mut bytes = [0; STRIPE];
    rng.fill(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Shadow {
        let mut shadow = Shadow::new(64, 16);
        shadow.map_private(0, 24, Access::Write);
        shadow.map_private(24, 8, Access::Read);
        shadow.map_private(32, 4, Access::None);
        shadow.map_shared(40, 16, 0, Access::Write);
        shadow.map_shared(56, 4, 2, Access::Read);
        shadow
    }

    #[test]
    fn a_stripe_has_one_party_and_has_all_of_them_in_turn() {
        for gpus in 0..3 {
            for stripe in 0..STRIPES {
                let of = |round| Parties { gpus, round }.owner(stripe);
                let parties: HashSet<usize> = (0..gpus as u64 + 2).map(of).collect();
                assert_eq!(parties.len(), gpus + 2);
            }
        }
        let parties = Parties { gpus: 2, round: 7 };
        for party in 0..4 {
            assert_eq!(parties.stripes(party).count(), STRIPES / 4);
        }
    }

    #[test]
    fn packets_keep_to_their_stripes_and_to_the_rights() {
        let mut planner = Planner::new(1, 0);
        for round in 0..200 {
            let mut shadow = memory();
            let mut busy = Busy::new(&shadow);
            let parties = Parties { gpus: 2, round };
            let gpu = round as usize % 2;
            let mut kinds = HashSet::new();
            for op in planner.batch(&mut shadow, &mut busy, parties, gpu, 40) {
                kinds.insert(std::mem::discriminant(&op));
                let (page, offset, bytes) = match &op {
                    GpuOp::Write { page, offset, data } => (*page, *offset, data.len() * 4),
                    GpuOp::Fill {
                        page,
                        offset,
                        bytes,
                        ..
                    } => (*page, *offset, *bytes),
                    GpuOp::Add { page, offset, .. } => (*page, *offset, 8),
                    GpuOp::Copy { from, to, bytes } => {
                        assert!(shadow.access(from.0) >= Access::Read);
                        assert!(parties.readable(gpu + 1, from.1 / STRIPE));
                        assert_eq!(from.1 / STRIPE, (from.1 + bytes - 1) / STRIPE);
                        (to.0, to.1, *bytes)
                    }
                    GpuOp::Read {
                        page,
                        offset,
                        wanted,
                    } => {
                        assert!(shadow.access(*page) >= Access::Read);
                        assert!(parties.readable(gpu + 1, offset / STRIPE));
                        assert_eq!(offset / STRIPE, (offset + wanted.len() - 1) / STRIPE);
                        continue;
                    }
                };
                assert_eq!(shadow.access(page), Access::Write);
                assert!(busy.written(&shadow, page));
                assert_eq!(parties.owner(offset / STRIPE), gpu + 1);
                assert_eq!(offset / STRIPE, (offset + bytes - 1) / STRIPE);
                assert_eq!(offset % 8, 0);
            }
            assert!(kinds.len() >= 4, "round {round} has {} kinds", kinds.len());
        }
    }

    #[test]
    fn what_is_in_use_keeps_its_content() {
        let mut planner = Planner::new(2, 0);
        let mut seen = HashSet::new();
        for round in 0..3000 {
            let mut shadow = memory();
            let mut busy = Busy::new(&shadow);
            let parties = Parties { gpus: 1, round };
            planner.batch(&mut shadow, &mut busy, parties, 0, 20);
            let op = planner.memory(&shadow, &busy);
            seen.insert(std::mem::discriminant(&op));
            let free_of = |first: usize, count: usize, most: Use| {
                assert!(count > 0 && first + count <= shadow.pages());
                for page in first..first + count {
                    assert!(busy.page(page) <= most, "{op:?} meets page {page}");
                }
            };
            match op {
                MemoryOp::MapPrivate { first, count, .. }
                | MemoryOp::MapShared { first, count, .. }
                | MemoryOp::Unmap { first, count }
                | MemoryOp::Free { first, count } => free_of(first, count, Use::Idle),
                MemoryOp::Move { from, count, to } => {
                    free_of(from, count, Use::Idle);
                    free_of(to, count, Use::Idle);
                    assert!(from + count <= to || to + count <= from);
                }
                MemoryOp::Protect {
                    first,
                    count,
                    access,
                } => {
                    let most = [Use::Idle, Use::Read, Use::Written];
                    free_of(first, count, most[access as usize]);
                }
                MemoryOp::Discard { first, count } => {
                    for page in first..first + count {
                        assert!(busy.page(page) == Use::Idle || shadow.shared(page).is_some());
                    }
                }
                MemoryOp::Punch { first, count } => {
                    assert!((first..first + count).all(|at| busy.file(at) == Use::Idle));
                }
                _ => {}
            }
        }
        assert_eq!(seen.len(), 12, "each kind of operation comes");
    }

    #[test]
    fn memory_moves_where_that_is_wanted() {
        let mut planner = Planner::new(3, 0);
        planner.migrate(2);
        let shadow = memory();
        let busy = Busy::new(&shadow);
        let (mut seen, mut hints) = (HashSet::new(), HashSet::new());
        for _ in 0..6000 {
            let op = planner.memory(&shadow, &busy);
            if let MemoryOp::Hint {
                first,
                count,
                gpu,
                hint,
            } = op
            {
                assert!(gpu < 2 && count > 0 && first + count <= shadow.pages());
                hints.insert((gpu, hint));
            }
            if let MemoryOp::Migrate {
                first,
                count,
                gpu,
                to,
                fill,
            } = op
            {
                assert!(count > 0 && first + count <= shadow.pages());
                assert!(gpu < 2 && !(fill && to == Place::System));
                seen.insert((gpu, to, fill));
            }
        }
        assert_eq!(seen.len(), 6, "{seen:?}");
        // Every one for VRAM, and the three others, for each GPU.
        assert_eq!(hints.len(), 2 * (Reach::ALL.len() + 3), "{hints:?}");
    }

    #[test]
    fn a_plan_follows_from_its_numbers() {
        let plan = |seed, lane| {
            let (mut planner, mut shadow) = (Planner::new(seed, lane), memory());
            let mut busy = Busy::new(&shadow);
            let parties = Parties { gpus: 1, round: 0 };
            let batch = planner.batch(&mut shadow, &mut busy, parties, 0, 20);
            (batch, planner.memory(&shadow, &busy))
        };
        assert_eq!(plan(5, 1), plan(5, 1));
        assert_ne!(plan(5, 1), plan(5, 2));
        assert_ne!(plan(5, 1), plan(6, 1));
    }
}
