// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Memory by GPU virtual address without the device's lock, for one client and a batch of instructions.
//!
//! A [`Window`] finds a page in the wave's own [`PageCache`], else in the shared cache, else by a walk.  What does not
//! succeed is a value ([`Fault`]), not an interrupt: who owns the hub's registers raises it later.

use super::fault::may_retry;
use super::hub::Context;
use super::own::{OwnBar, OwnRanges, Post};
use super::space::{Epoch, Space, Spaces};
use super::walk::{bits, Page, WalkFault};
use super::{Access, Client, HubId};
use crate::mem::{Frame, Map, Phys};

/// Entries of a [`PageCache`].
const ENTRIES: usize = 64;
/// Bytes of memory that one entry stands for: a page or a part of a bigger one.
pub(super) const PAGE: u64 = 4096;

/// An access that did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Who accessed.
    pub client: Client,
    /// Which address; of an access that spans pages, in the one that failed.
    pub va: u64,
    /// How.
    pub access: Access,
    /// What the walk has found; `None` for missing permission.  [`WalkFault::Nowhere`] with a bus address may be a load
    /// from one of the device's own BARs, or an atomic there.
    pub why: Option<WalkFault>,
    /// The access is to be replayed later.
    pub retry: bool,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Page number of the address.
    number: u64,
    epoch: Epoch,
    /// First byte of the page.
    frame: Frame,
    /// Permission bits, of the entry and of the memory.
    perms: u64,
}

/// Pages that a wave has used last, by the low bits of their number.
#[derive(Debug)]
pub struct PageCache {
    /// Whose pages, in which map.
    of: Option<(HubId, u8, u64)>,
    entries: Box<[Option<Entry>; ENTRIES]>,
}

impl Default for PageCache {
    fn default() -> Self {
        Self {
            of: None,
            entries: Box::new([None; ENTRIES]),
        }
    }
}

impl PageCache {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.fill(None);
    }

    fn slot(number: u64) -> usize {
        number as usize % ENTRIES
    }
}

/// Where an access goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Memory, in the window's map.
    Memory(Frame),
    /// A page that reads zero and drops writes.
    Nothing,
    /// One of the device's own BARs; only stores come there.
    Own(OwnBar),
}

/// Memory as a client sees it, until the next quiescent point.
#[derive(Debug)]
pub struct Window<'a> {
    map: &'a Map,
    space: &'a Space,
    client: Client,
    retries: bool,
    cache: &'a mut PageCache,
    fault: Option<Fault>,
    own: OwnRanges,
    /// Stores to doorbells, in their order, and how many there may be.
    posts: Vec<Post>,
    room: usize,
    /// How often a translation has led to one of the device's own BARs.
    own_found: usize,
}

impl<'a> Window<'a> {
    pub(super) fn new(
        map: &'a Map,
        spaces: &'a Spaces,
        client: Client,
        retries: bool,
        cache: &'a mut PageCache,
    ) -> Self {
        // Frames are good in their map only, and pages in their address space.
        let of = Some((client.hub, client.vmid, map.generation()));
        if cache.of != of {
            cache.clear();
            cache.of = of;
        }
        Self {
            map,
            space: spaces.space(client.hub, client.vmid),
            client,
            retries,
            cache,
            fault: None,
            own: OwnRanges::default(),
            posts: Vec::new(),
            room: 0,
            own_found: 0,
        }
    }

    /// With the device's own BARs as a place for stores; `room` stores to doorbells have room at present.  A store that
    /// has none is one to retry, without a fault.
    pub fn with_own(self, own: OwnRanges, room: usize) -> Self {
        Self { own, room, ..self }
    }

    /// The stores to doorbells so far, for the device to deliver.
    pub fn take_posts(&mut self) -> Vec<Post> {
        std::mem::take(&mut self.posts)
    }

    /// See [`Window::has_room_since`].
    pub(super) fn own_found(&self) -> usize {
        self.own_found
    }

    /// Whether there is room for one more store to doorbells for each translation since [`Window::own_found`] was
    /// `before`.
    pub(super) fn has_room_since(&self, before: usize) -> bool {
        let more = self.own_found.wrapping_sub(before);
        more == 0 || self.posts.len().saturating_add(more) <= self.room
    }

    /// Stores to one of the device's own BARs.
    pub(super) fn write_own(&mut self, to: OwnBar, bytes: &[u8]) {
        match to {
            OwnBar::Doorbell(offset) => self.posts.push(Post::new(offset, bytes)),
            // The first dword of the page is the flush of memory, the second that of registers.
            OwnBar::Flush(offset) if offset < 4 => self.map.hdp_flush(),
            OwnBar::Flush(_) => {}
        }
    }

    /// The map in which [`Place::Memory`] lies.
    #[inline]
    pub fn map(&self) -> &'a Map {
        self.map
    }

    /// The present epoch of the address space.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        self.space.epoch()
    }

    /// The last fault of the accesses that go through [`gfx9_isa::env::Memory`], with all that is known of it.
    pub fn take_fault(&mut self) -> Option<Fault> {
        self.fault.take()
    }

    pub(super) fn note_fault(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }

    /// The place of an address by the wave's own cache.  It is the beginning of the rest of a page of 4 KiB.
    #[inline]
    pub(super) fn hit(&self, va: u64, access: Access) -> Option<Frame> {
        let number = va / PAGE;
        let entry = self.cache.entries[PageCache::slot(number)].as_ref()?;
        let needed = access.needs();
        let good = entry.number == number
            && entry.perms & needed == needed
            && entry.epoch == self.space.epoch();
        good.then(|| entry.frame.offset(va % PAGE))
    }

    /// Translates one address; returns the place and how many bytes that can be accessed alike begin there.
    ///
    /// # Errors
    /// The address cannot be accessed so.
    #[inline]
    pub fn translate(&mut self, va: u64, access: Access) -> Result<(Place, u64), Fault> {
        match self.hit(va, access) {
            Some(frame) => Ok((Place::Memory(frame), PAGE - va % PAGE)),
            None => self.translate_shared(va, access),
        }
    }

    /// As [`Window::translate`], without the wave's own cache, which gets the page.
    ///
    /// # Errors
    /// The address cannot be accessed so.
    #[inline(never)]
    pub fn translate_shared(&mut self, va: u64, access: Access) -> Result<(Place, u64), Fault> {
        let found = self.space.translate(self.map, va);
        let found = found.map_err(|why| self.fault(va, access, Some(why)))?;
        let page = found.page;
        if !page.permits(access) {
            return Err(self.fault(va, access, None));
        }
        let offset = va & ((1u64 << page.shift) - 1);
        let left = (1u64 << page.shift) - offset;
        let Some(base) = page.phys else {
            return Ok((Place::Nothing, left));
        };
        let at = base.offset(offset);
        let (frame, there) = match self.map.find(at, access.writes()) {
            Ok(found) => found,
            Err(_) if self.map.blocked(at) => {
                return Err(self.fault(va, access, Some(WalkFault::Blocked)));
            }
            Err(_) => {
                return self
                    .elsewhere(va, access, page.perms, at)
                    .map(|to| (to, left))
            }
        };
        self.keep(va, page, found.epoch);
        Ok((Place::Memory(frame), left.min(there)))
    }

    /// The place behind an address at which no memory answers.
    #[cold]
    fn elsewhere(&mut self, va: u64, access: Access, perms: u64, at: Phys) -> Result<Place, Fault> {
        match self.own.find(at) {
            Some(own) if access == Access::Write => {
                self.own_found = self.own_found.wrapping_add(1);
                Ok(Place::Own(own))
            }
            _ => {
                let why = WalkFault::Nowhere {
                    entry: perms,
                    target: at,
                    level: u32::MAX,
                };
                Err(self.fault(va, access, Some(why)))
            }
        }
    }

    /// Puts the 4 KiB page around `va` into the wave's cache, if all of it lies in one piece of memory.
    fn keep(&mut self, va: u64, page: Page, epoch: Epoch) {
        let number = va / PAGE;
        let part = page.narrowed(va, PAGE.trailing_zeros());
        let Some(Ok((frame, there))) = part.phys.map(|at| self.map.find(at, false)) else {
            return;
        };
        if there < PAGE {
            return;
        }
        let mut perms = page.perms;
        if !self.map.is_writable(frame) {
            perms &= !bits::W;
        }
        self.cache.entries[PageCache::slot(number)] = Some(Entry {
            number,
            epoch,
            frame,
            perms,
        });
    }

    #[cold]
    fn fault(&self, va: u64, access: Access, why: Option<WalkFault>) -> Fault {
        let Context { retry, .. } = self.space.setup().context;
        // While bus mastering is off an access to the bus waits, whatever the context says.
        let blocked = why == Some(WalkFault::Blocked);
        let retries = retry && self.retries && self.client.vmid != 0;
        Fault {
            client: self.client,
            va,
            access,
            why,
            retry: blocked || (retries && may_retry(why)),
        }
    }

    /// Reads bytes; aligned 4- and 8-byte reads are single copies.
    ///
    /// # Errors
    /// Some byte cannot be read; the buffer's content is then unspecified.
    pub fn read(&mut self, va: u64, buf: &mut [u8], access: Access) -> Result<(), Fault> {
        let (mut va, mut buf) = (va, buf);
        while !buf.is_empty() {
            let (place, left) = self.translate(va, access)?;
            let n = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let (now, rest) = buf.split_at_mut(n);
            match place {
                Place::Memory(frame) => {
                    // What was found is there as long as the map is pinned.
                    let _ = self.map.load_bytes(frame, now);
                }
                Place::Nothing | Place::Own(_) => now.fill(0),
            }
            buf = rest;
            va = va.wrapping_add(n as u64);
        }
        Ok(())
    }
}
