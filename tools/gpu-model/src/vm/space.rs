// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Address spaces and their cached translations, shared by all threads.
//!
//! Each hub has 16 address spaces.  A [`Space`] has the set-up of its tables, an epoch that grows with every
//! invalidation, and the translations and directory entries that the hub caches.  The register file of the hub
//! ([`super::hub::Hub`]) writes the set-up and invalidates; everybody translates.
//!
//! *What is cached is never older than the last invalidation.*  A walk that began before an invalidation may end after
//! it with what the tables were before.  Its result may be used (the access was under way), but not be kept: the epoch
//! is read before the walk, and what the walk has found is kept only if it is still the same.  [`Space::insert`] looks
//! under the lock of the shard, [`Spaces::invalidate`] takes this lock after it has moved the epoch: an entry goes in
//! before and is dropped, or is refused.  The epoch moves at the beginning and at the end of an invalidation; what is
//! found between the two, while it is odd, may be old and is not kept either.
//!
//! *An invalidation of a range drops no more than it is asked to.*  The epoch is that of the space all the same: who has
//! cached a page beside this looks it up again, and finds it here as it was if the range does not touch it.  What a walk
//! that is overtaken has found is not kept anywhere, whether the range touches it or not; so it is with a walk that
//! was never made.
//!
//! *An invalidation is acknowledged when nobody uses older translations any more.*  The threads that execute waves
//! have caches of their own and translations in flight.  They register ([`Registration`]) and pass quiescent
//! points, at which they hold none; [`Spaces::acknowledged`] tells whether all have passed one since the invalidation.
//! The packet engines run under the lock that the registers are written under, and need none.
//!
//! Lock order: directories, then a shard.  The list of executors is taken alone.

use std::sync::Arc;

use super::hub::{Context, VMIDS};
use super::range::Range;
use super::tlb::{Levels, PdeCache, Set, SIZES};
use super::walk::{walk, Directories, Page, WalkFault};
use super::HubId;
use crate::mem::Map;
use crate::sync::{fence, AtomicU64, Mutex, Ordering, RwLock};

/// Parts of a space's cache with a lock each.
const SHARDS: usize = 8;

/// The set-up of an address space, as the hub's registers have it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Setup {
    /// Page tables.
    pub context: Context,
    /// What page tables add to a VRAM offset.
    pub fb_offset: u64,
}

/// What [`Space::epoch`] was before a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch(u64);

impl Epoch {
    /// No invalidation is under way.
    fn is_settled(self) -> bool {
        self.0 % 2 == 0
    }
}

/// A translated page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Translation {
    /// The page.
    pub page: Page,
    /// The translation is good as long as this is the epoch of its space.
    pub epoch: Epoch,
    /// It was in the cache.
    pub hit: bool,
}

/// A lock on a cache line of its own: threads that use different shards do not disturb each other.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(RwLock<Set>);

/// One address space of one hub.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Space {
    epoch: AtomicU64,
    setup: RwLock<Setup>,
    shards: [Shard; SHARDS],
    directories: Mutex<PdeCache>,
}

impl Space {
    /// The present epoch.  To be read before a look-up or a walk whose result is to be kept.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// The set-up of the tables.
    pub fn setup(&self) -> Setup {
        *self.setup.read()
    }

    /// Changes the set-up.  What is cached stays as it is.
    pub fn set_up(&self, setup: Setup) {
        *self.setup.write() = setup;
    }

    fn shard(&self, shift: u32, number: u64) -> &RwLock<Set> {
        // Neighbours in different shards, and the big pages of a range not all in the one of its small ones.
        let at = (number ^ u64::from(shift)) as usize % SHARDS;
        &self.shards[at].0
    }

    /// The cached page that holds `va`.
    pub fn lookup(&self, va: u64) -> Option<Page> {
        SIZES.iter().find_map(|&s| {
            let number = va >> s;
            self.shard(s, number).read().lookup(s, number)
        })
    }

    /// As [`Space::lookup`], but the caches do not notice.
    pub fn peek(&self, va: u64) -> Option<Page> {
        SIZES.iter().find_map(|&s| {
            let number = va >> s;
            self.shard(s, number).read().peek(s, number)
        })
    }

    /// Translations held.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|s| s.0.read().len()).sum()
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps a valid translation of the page that holds `va`, unless an invalidation has begun since `epoch`.
    pub fn insert(&self, epoch: Epoch, va: u64, page: Page) {
        // Pages of unusual sizes (flat tables with big blocks) are cached as their 4 KiB parts.
        let shift = if SIZES.contains(&page.shift) {
            page.shift
        } else {
            12
        };
        let number = va >> shift;
        let mut set = self.shard(shift, number).write();
        // Not before the lock is taken, see above.
        if epoch.is_settled() && self.epoch() == epoch {
            set.insert(number, page.narrowed(va, shift));
        }
    }

    /// Translates one address by the cache or by the tables.
    ///
    /// # Errors
    /// See [`WalkFault`].
    pub fn translate(&self, map: &Map, va: u64) -> Result<Translation, WalkFault> {
        let epoch = self.epoch();
        if let Some(page) = self.lookup(va) {
            return Ok(Translation {
                page,
                epoch,
                hit: true,
            });
        }
        let page = self.walk(map, epoch, va)?;
        self.insert(epoch, va, page);
        Ok(Translation {
            page,
            epoch,
            hit: false,
        })
    }

    /// Walks the tables, with the help of the cached directory entries; does not keep the translation.
    ///
    /// # Errors
    /// See [`WalkFault`].
    pub fn walk(&self, map: &Map, epoch: Epoch, va: u64) -> Result<Page, WalkFault> {
        let setup = self.setup();
        let mut directories = Walker { space: self, epoch };
        let page = walk(map, &setup.context, setup.fb_offset, va, &mut directories)?;
        // All of a page has to be there, not only what is accessed now.
        let last = page.phys.map(|p| p.offset((1u64 << page.shift) - 1));
        if let Some(last) = last.filter(|_| page.shift > 12) {
            if !map.exists(last, false) && !map.blocked(last) {
                return Err(WalkFault::Nowhere {
                    entry: page.perms,
                    target: last,
                    level: u32::MAX,
                });
            }
        }
        Ok(page)
    }

    fn invalidate(&self, from: Levels, range: Range) {
        // One at a time, and no directory entry is added meanwhile.
        let mut directories = self.directories.lock();
        self.epoch.fetch_add(1, Ordering::AcqRel);
        directories.drop_levels(from.pdes, range);
        for shard in &self.shards {
            shard.0.write().invalidate(from, range);
        }
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }
}

/// The directory entries of a space, for one walk.
struct Walker<'a> {
    space: &'a Space,
    epoch: Epoch,
}

impl Directories for Walker<'_> {
    fn get(&self, level: u32, pfn: u64, covers: u32) -> Option<u64> {
        self.space.directories.lock().get(level, pfn >> covers)
    }

    fn put(&mut self, level: u32, pfn: u64, covers: u32, entry: u64) {
        let mut directories = self.space.directories.lock();
        // As in `Space::insert`; no invalidation is under way while this lock is held.
        if self.space.epoch() == self.epoch {
            directories.put(level, pfn >> covers, covers, entry);
        }
    }
}

/// An invalidation that has been carried out; who has seen it has seen all lesser ones.  The default is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// The last invalidation that a thread has seen; nobody waits for one that is paused.
#[derive(Debug)]
struct Seen(AtomicU64);

/// [`Seen`] of a thread that holds no translation.
const PAUSED: u64 = u64::MAX;

/// All address spaces.
#[derive(Debug, Default)]
pub struct Spaces {
    hubs: [[Space; VMIDS]; 2],
    /// Invalidations that have been carried out.
    invalidations: AtomicU64,
    executors: Mutex<Vec<Arc<Seen>>>,
}

impl Spaces {
    /// One address space; of the VMID its four bits count.
    pub fn space(&self, hub: HubId, vmid: u8) -> &Space {
        let spaces = match hub {
            HubId::Gfx => &self.hubs[0],
            HubId::Mm => &self.hubs[1],
        };
        &spaces[usize::from(vmid) % VMIDS]
    }

    /// Drops all that is cached for the VMIDs whose bits are set from some levels.
    pub fn invalidate(&self, hub: HubId, vmids: u16, from: Levels) -> Ticket {
        self.invalidate_range(hub, vmids, from, Range::ALL)
    }

    /// Drops what is cached for the VMIDs whose bits are set from some levels: translations and directory entries that
    /// cover an address of the range, and no others.
    pub fn invalidate_range(&self, hub: HubId, vmids: u16, from: Levels, range: Range) -> Ticket {
        for vmid in (0..VMIDS as u8).filter(|v| (vmids >> v) & 1 != 0) {
            self.space(hub, vmid).invalidate(from, range);
        }
        Ticket(self.invalidations.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// Whether no executor uses translations that are older than the invalidation.
    pub fn acknowledged(&self, ticket: Ticket) -> bool {
        // Pairs with the fence of `Registration::pass`: either it is seen here that the executor is not paused, or
        // the executor sees the epochs that the invalidation has moved.
        fence(Ordering::SeqCst);
        let executors = self.executors.lock();
        executors
            .iter()
            .all(|e| e.0.load(Ordering::Acquire) >= ticket.0)
    }

    /// Registers the calling thread as one that keeps translations; it is paused at first.
    pub fn register(self: &Arc<Self>) -> Registration {
        let seen = Arc::new(Seen(AtomicU64::new(PAUSED)));
        self.executors.lock().push(Arc::clone(&seen));
        Registration {
            spaces: Arc::clone(self),
            seen,
        }
    }
}

/// A thread that keeps translations from one quiescent point to the next.
#[derive(Debug)]
pub struct Registration {
    spaces: Arc<Spaces>,
    seen: Arc<Seen>,
}

impl Registration {
    /// The address spaces.
    pub fn spaces(&self) -> &Arc<Spaces> {
        &self.spaces
    }

    /// A quiescent point: the thread holds no translation now, and looks at the epoch of each that it has cached
    /// before it uses it again.  Invalidations wait for the next one.
    pub fn pass(&mut self) {
        let now = self.spaces.invalidations.load(Ordering::Acquire);
        self.seen.0.store(now, Ordering::Release);
        // Pairs with the fence of `Spaces::acknowledged`.
        fence(Ordering::SeqCst);
    }

    /// As [`Registration::pass`], and the thread uses no translation until the next one: nobody waits for it.
    pub fn pause(&mut self) {
        self.seen.0.store(PAUSED, Ordering::Release);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut executors = self.spaces.executors.lock();
        executors.retain(|seen| !Arc::ptr_eq(seen, &self.seen));
    }
}
