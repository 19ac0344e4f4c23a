// SPDX-License-Identifier: GPL-2.0

//! Attributes of ranges of a process's memory, as SET_ATTR sets and GET_ATTR reports them.
//!
//! The list is changed in memory that was made before, for it is locked inside the memory manager: SET_ATTR brings a new
//! list with it, which has room for unmappings that cut ranges later.

use core::ops::Range;

use kernel::prelude::*;

use crate::{
    mirror::Hint,
    vm::pt::PAGE, //
};

/// No location, or several.
pub(crate) const UNDEFINED: u32 = u32::MAX;
/// The location of system memory.
pub(crate) const SYSTEM: u32 = 0;

/// Flags (`KFD_IOCTL_SVM_FLAG_*`). Others are stored and reported.
pub(crate) mod flags {
    /// Has no effect; upstream's neither.
    pub(crate) const HOST_ACCESS: u32 = 0x1;
    /// CPU and GPU see each other's writes, as they do in system memory anyway.
    pub(crate) const COHERENT: u32 = 0x2;
    /// The GPU does not write.
    pub(crate) const GPU_RO: u32 = 0x8;
    /// The GPU may fetch instructions.
    pub(crate) const GPU_EXEC: u32 = 0x10;
    /// Shown before it is accessed, although accesses are repeated.
    pub(crate) const GPU_ALWAYS_MAPPED: u32 = 0x40;
}

/// Largest exponent of the granularity that is stored.
const MAX_GRANULARITY: u8 = 0x3f;
/// Exponent of the pages of 2 MiB.
const DEFAULT_GRANULARITY: u8 = 9;
/// Exponents of what moves at once for an access: 64 KiB to 2 MiB, in pages.
const REACH: core::ops::RangeInclusive<u8> = 4..=9;

/// Room that a list has for ranges that are cut, beside what it holds.
const SPARE: usize = 64;

/// How a GPU may access memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Wherever it lies.
    Anywhere,
    /// Where it lies, without a move on its account.
    InPlace,
    /// Not.
    None,
}

/// A GPU of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GpuName {
    /// Its id in the topology, which is the location of its VRAM.
    pub(crate) id: u32,
    /// As the process numbers it.
    pub(crate) number: usize,
}

/// Where a prefetch brings memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// To the VRAM of the GPU that it names.
    Vram,
    /// To the system.
    System,
}

/// What a change of attributes changes besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effect {
    /// Page tables.
    pub(crate) maps: bool,
    /// Where memory is to be that is accessed.
    pub(crate) places: bool,
}

/// Attributes of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// Where pages are to lie: a GPU id, [`SYSTEM`] or [`UNDEFINED`].
    pub(crate) preferred: u32,
    /// Where they were to be brought last; as above.
    pub(crate) prefetch: u32,
    /// [`flags`].
    pub(crate) flags: u32,
    /// Pages that move together, as the exponent of 2.
    pub(crate) granularity: u8,
    /// GPUs with [`Access::Anywhere`]: a bit each, as the process numbers them.
    pub(crate) access: u64,
    /// GPUs with [`Access::InPlace`].
    pub(crate) in_place: u64,
}

impl Attributes {
    /// Of memory while none of it is set; `gpus` may access it.
    pub(crate) const fn unset(gpus: u64) -> Self {
        Self {
            preferred: UNDEFINED,
            prefetch: UNDEFINED,
            flags: flags::HOST_ACCESS | flags::COHERENT,
            granularity: DEFAULT_GRANULARITY,
            access: gpus,
            in_place: 0,
        }
    }

    /// How GPU number `gpu` may access it.
    pub(crate) fn access_of(&self, gpu: usize) -> Access {
        let bit = bit(gpu);
        match (self.access & bit != 0, self.in_place & bit != 0) {
            (true, _) => Access::Anywhere,
            (false, true) => Access::InPlace,
            (false, false) => Access::None,
        }
    }

    /// Whether a flag is set.
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Where memory is to be that `gpu` accesses, where accesses are repeated; `None`: nothing moves for it. What is always mapped
    /// is accessed without a fault, so that no access moves it.
    pub(crate) fn hint(&self, gpu: GpuName) -> Option<Hint> {
        let access = self.access_of(gpu.number);
        if access == Access::None || self.has(flags::GPU_ALWAYS_MAPPED) {
            return None;
        }
        match self.preferred {
            SYSTEM => Some(Hint::System),
            // What another GPU has in its VRAM is not reached, so that its preference says nothing.
            location if location != gpu.id && access == Access::InPlace => Some(Hint::Stay),
            _ => {
                let exponent = self.granularity.clamp(*REACH.start(), *REACH.end());
                Some(Hint::Vram {
                    reach: Some(PAGE << exponent),
                })
            }
        }
    }

    /// Where the prefetch that was set last brings memory, if it was to `gpu` (`None`: to the system), and `repeats` says whether
    /// accesses are repeated. No GPU reaches the VRAM of another one: so what others access without moving it goes to the
    /// system. `None`: there was no such prefetch.
    pub(crate) fn destination(&self, gpu: Option<GpuName>, repeats: bool) -> Option<Destination> {
        let location = gpu.map_or(SYSTEM, |gpu| gpu.id);
        if self.prefetch != location {
            return None;
        }
        let Some(gpu) = gpu else {
            return Some(Destination::System);
        };
        let users = if repeats {
            self.in_place
        } else {
            self.access | self.in_place
        };
        if users & !bit(gpu.number) != 0 {
            Some(Destination::System)
        } else {
            Some(Destination::Vram)
        }
    }

    /// Whether memory is to be at the same place for both when it is accessed.
    fn lies_as(&self, other: &Self) -> bool {
        self.preferred == other.preferred
            && self.access == other.access
            && self.in_place == other.in_place
    }

    /// Whether page tables are the same for both.
    fn maps_as(&self, other: &Self) -> bool {
        const SEEN: u32 = flags::GPU_RO | flags::GPU_EXEC | flags::GPU_ALWAYS_MAPPED;
        self.access | self.in_place == other.access | other.in_place
            && self.flags & SEEN == other.flags & SEEN
    }
}

/// The bit of a GPU; 0 for a number that has none.
fn bit(gpu: usize) -> u64 {
    u32::try_from(gpu).map_or(0, |gpu| 1u64.checked_shl(gpu).unwrap_or(0))
}

/// A change of one attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Preferred(u32),
    Prefetch(u32),
    /// Of the GPU with a number.
    Access(usize, Access),
    SetFlags(u32),
    ClearFlags(u32),
    /// As it came.
    Granularity(u32),
}

impl Change {
    fn apply(self, to: &mut Attributes) {
        match self {
            Self::Preferred(location) => to.preferred = location,
            Self::Prefetch(location) => to.prefetch = location,
            Self::Access(gpu, access) => {
                let bit = bit(gpu);
                to.access &= !bit;
                to.in_place &= !bit;
                match access {
                    Access::Anywhere => to.access |= bit,
                    Access::InPlace => to.in_place |= bit,
                    Access::None => {}
                }
            }
            Self::SetFlags(mask) => to.flags |= mask,
            Self::ClearFlags(mask) => to.flags &= !mask,
            Self::Granularity(exponent) => {
                to.granularity = u8::try_from(exponent)
                    .map_or(MAX_GRANULARITY, |exponent| exponent.min(MAX_GRANULARITY));
            }
        }
    }
}

/// A range of addresses with attributes of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// First byte.
    pub(crate) start: u64,
    /// First byte above.
    pub(crate) end: u64,
    /// What it has.
    pub(crate) attributes: Attributes,
}

/// What GET_ATTR reports of a range: what all its parts have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    /// [`UNDEFINED`] if it is not the same everywhere.
    pub(crate) preferred: u32,
    /// As above.
    pub(crate) prefetch: u32,
    /// Flags that are set everywhere.
    pub(crate) all_flags: u32,
    /// Flags that are set somewhere.
    pub(crate) any_flags: u32,
    /// The least.
    pub(crate) granularity: u8,
    /// GPUs that have [`Access::Anywhere`] everywhere.
    pub(crate) access: u64,
    /// GPUs that have [`Access::InPlace`] everywhere.
    pub(crate) in_place: u64,
}

impl Summary {
    fn of(attributes: &Attributes) -> Self {
        Self {
            preferred: attributes.preferred,
            prefetch: attributes.prefetch,
            all_flags: attributes.flags,
            any_flags: attributes.flags,
            granularity: attributes.granularity,
            access: attributes.access,
            in_place: attributes.in_place,
        }
    }

    fn add(&mut self, attributes: &Attributes) {
        if self.preferred != attributes.preferred {
            self.preferred = UNDEFINED;
        }
        if self.prefetch != attributes.prefetch {
            self.prefetch = UNDEFINED;
        }
        self.all_flags &= attributes.flags;
        self.any_flags |= attributes.flags;
        self.granularity = self.granularity.min(attributes.granularity);
        self.access &= attributes.access;
        self.in_place &= attributes.in_place;
    }

    /// How GPU number `gpu` may access all of it.
    pub(crate) fn access_of(&self, gpu: usize) -> Access {
        let bit = bit(gpu);
        match (self.access & bit != 0, self.in_place & bit != 0) {
            (true, _) => Access::Anywhere,
            (false, true) => Access::InPlace,
            (false, false) => Access::None,
        }
    }
}

/// A list of [`Entry`]s, or memory for one.
pub(crate) type List = KVVec<Entry>;

/// The ranges of a process that have attributes of their own.
///
/// # Invariants
///
/// The entries are in ascending order, not empty, and do not overlap. Neighbours without a gap have different attributes.
pub(crate) struct Ranges {
    list: List,
}

/// Adds `entry`, for which there is room, behind all others.
fn append(list: &mut List, entry: Entry) {
    if entry.start >= entry.end {
        return;
    }
    match list.last_mut() {
        Some(last) if last.end == entry.start && last.attributes == entry.attributes => {
            last.end = entry.end;
        }
        _ => {
            let _ = list.push_within_capacity(entry);
        }
    }
}

impl Ranges {
    /// None.
    pub(crate) const fn new() -> Self {
        Self { list: KVVec::new() }
    }

    /// How many entries the list for a [`Self::change`] has to have room for.
    pub(crate) fn room(&self) -> usize {
        // Each entry may be cut in three, and has a gap before it; as many may be cut afterwards.
        3 * (self.list.len() + 1) + SPARE
    }

    /// Changes attributes of `range`, where memory that has none has `unset`; `room` becomes the list. Returns the old list,
    /// and what is to change besides; if `room` is too small, that, and nothing has changed.
    pub(crate) fn change(
        &mut self,
        mut room: List,
        range: &Range<u64>,
        unset: &Attributes,
        changes: &[Change],
    ) -> core::result::Result<(List, Effect), List> {
        if room.capacity() < self.room() {
            return Err(room);
        }
        room.clear();
        let mut effect = Effect::default();
        let mut changed = |start: u64, end: u64, before: &Attributes| {
            let mut attributes = *before;
            for change in changes {
                change.apply(&mut attributes);
            }
            if start < end {
                effect.maps |= !attributes.maps_as(before);
                effect.places |= !attributes.lies_as(before);
            }
            Entry {
                start,
                end,
                attributes,
            }
        };
        // Up to here the range is done.
        let mut at = range.start;
        for entry in &self.list {
            if entry.start >= range.end && at < range.end {
                append(&mut room, changed(at, range.end, unset));
                at = range.end;
            }
            if entry.end <= range.start || entry.start >= range.end {
                append(&mut room, *entry);
                continue;
            }
            let (low, high) = (entry.start.max(range.start), entry.end.min(range.end));
            append(&mut room, Entry { end: low, ..*entry });
            append(&mut room, changed(at, low, unset));
            append(&mut room, changed(low, high, &entry.attributes));
            append(
                &mut room,
                Entry {
                    start: high,
                    ..*entry
                },
            );
            at = high;
        }
        if at < range.end {
            append(&mut room, changed(at, range.end, unset));
        }
        // INVARIANT: Built in ascending order, from disjoint parts; `append` joins neighbours.
        Ok((core::mem::replace(&mut self.list, room), effect))
    }

    /// Forgets the attributes of `range`. Allocates nothing: if there is no room to cut an entry in two, it stays as it is, and
    /// false is returned.
    pub(crate) fn remove(&mut self, range: &Range<u64>) -> bool {
        let first = self.list.partition_point(|entry| entry.end <= range.start);
        if let Some(entry) = self.list.get_mut(first) {
            if entry.start < range.start && range.end < entry.end {
                let tail = Entry {
                    start: range.end,
                    ..*entry
                };
                let end = core::mem::replace(&mut entry.end, range.start);
                if self.list.insert_within_capacity(first + 1, tail).is_err() {
                    if let Some(entry) = self.list.get_mut(first) {
                        entry.end = end;
                    }
                    return false;
                }
                return true;
            }
        }
        self.list.retain(|entry| {
            if entry.start < range.start {
                if entry.end > range.start {
                    entry.end = range.start;
                }
            } else if entry.start < range.end {
                entry.start = range.end;
            }
            entry.start < entry.end
        });
        true
    }

    /// The entries that meet `range`.
    fn in_range<'a>(&'a self, range: &Range<u64>) -> impl Iterator<Item = &'a Entry> {
        let first = self.list.partition_point(|entry| entry.end <= range.start);
        let end = range.end;
        let rest = self.list.get(first..).unwrap_or_default().iter();
        rest.take_while(move |entry| entry.start < end)
    }

    /// Whether something of `range` has attributes of its own.
    pub(crate) fn meets(&self, range: &Range<u64>) -> bool {
        self.in_range(range).next().is_some()
    }

    /// The first entry from `from` on, cut there.
    pub(crate) fn next(&self, from: u64) -> Option<Range<u64>> {
        let entry = self.in_range(&(from..u64::MAX)).next()?;
        Some(entry.start.max(from)..entry.end)
    }

    /// Whether all of `range` has attributes of its own, for each part of which `holds`.
    pub(crate) fn all(
        &self,
        range: &Range<u64>,
        mut holds: impl FnMut(&Attributes) -> bool,
    ) -> bool {
        let mut at = range.start;
        for entry in self.in_range(range) {
            if entry.start > at || !holds(&entry.attributes) {
                return false;
            }
            at = entry.end;
        }
        at >= range.end
    }

    /// What GET_ATTR reports. Parts without attributes of their own count only where there is no other.
    pub(crate) fn summary(&self, range: &Range<u64>, unset: &Attributes) -> Summary {
        let mut entries = self.in_range(range);
        let Some(first) = entries.next() else {
            return Summary::of(unset);
        };
        let mut summary = Summary::of(&first.attributes);
        for entry in entries {
            summary.add(&entry.attributes);
        }
        summary
    }

    /// What `of` makes of the attributes at the first byte of `range`, and where in it that ends.
    pub(crate) fn at<R: PartialEq>(
        &self,
        range: &Range<u64>,
        unset: &Attributes,
        of: impl Fn(&Attributes) -> R,
    ) -> (R, u64) {
        let mut at = range.start;
        let mut value = None;
        let same = |value: &mut Option<R>, new: R| match value {
            Some(value) => *value == new,
            None => {
                *value = Some(new);
                true
            }
        };
        for entry in self.in_range(range) {
            if at < entry.start {
                if !same(&mut value, of(unset)) {
                    break;
                }
                at = entry.start;
            }
            if !same(&mut value, of(&entry.attributes)) {
                break;
            }
            at = entry.end.min(range.end);
        }
        match value {
            None => (of(unset), range.end),
            // What is left is a gap, unless an entry differs.
            Some(value) => {
                let ends = self.in_range(&(at..range.end)).next().is_none();
                let end = if ends && value == of(unset) {
                    range.end
                } else {
                    at
                };
                (value, end)
            }
        }
    }
}

impl Ranges {
    /// What `of` makes of the attributes at `address`, and the addresses around, within `bounds`, which has it, for which it is
    /// the same.
    pub(crate) fn around<R: PartialEq>(
        &self,
        address: u64,
        bounds: &Range<u64>,
        unset: &Attributes,
        of: impl Fn(&Attributes) -> R,
    ) -> (R, Range<u64>) {
        let mut start = bounds.start;
        loop {
            let (value, end) = self.at(&(start..bounds.end), unset, &of);
            if address < end || end >= bounds.end {
                return (value, start..end);
            }
            start = end;
        }
    }

    /// The addresses around `address` that have no attributes of their own; `None`: it has.
    pub(crate) fn gap(&self, address: u64) -> Option<Range<u64>> {
        let next = self.list.partition_point(|entry| entry.end <= address);
        let before = next.checked_sub(1).and_then(|at| self.list.get(at));
        let start = before.map_or(0, |entry| entry.end);
        match self.list.get(next) {
            Some(entry) if entry.start <= address => None,
            Some(entry) => Some(start..entry.start),
            None => Some(start..u64::MAX),
        }
    }

    /// How many pieces of `size` bytes, each from a multiple of it on, have something with attributes of its own for which
    /// `holds`.
    pub(crate) fn pieces(&self, size: u64, holds: impl Fn(&Attributes) -> bool) -> u64 {
        let (mut count, mut counted_to) = (0, 0);
        for entry in self.list.iter().filter(|entry| holds(&entry.attributes)) {
            let first = (entry.start / size).max(counted_to);
            let end = entry.end.div_ceil(size);
            count += end.saturating_sub(first);
            counted_to = end.max(counted_to);
        }
        count
    }
}

#[cfg(rkfd_kunit)]
impl Ranges {
    /// All entries.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.list
    }
}
