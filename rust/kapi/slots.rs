// SPDX-License-Identifier: GPL-2.0

//! A table whose indices are ids that user space sees: the lowest free one is given out.

use kernel::prelude::*;

/// Memory for a table, allocated where that is allowed and charged to the caller.
pub(crate) struct Spare<T>(KVVec<Option<T>>);

impl<T> Spare<T> {
    /// For indices below `count`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(count: usize) -> Result<Self> {
        Ok(Self(KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?))
    }
}

/// Values by small integers.
pub(crate) struct Slots<T> {
    items: KVVec<Option<T>>,
    used: usize,
    /// No index from `first` to here is free.
    hint: usize,
}

impl<T> Slots<T> {
    /// An empty table that gives out indices from `first` on.
    pub(crate) const fn new(first: u32) -> Self {
        Self {
            items: KVVec::new(),
            used: 0,
            // CAST: `u32` fits in `usize` on the 64-bit machines that this driver supports.
            hint: first as usize,
        }
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// Whether there is no value.
    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// All indices in use are below this one.
    pub(crate) fn end(&self) -> u32 {
        u32::try_from(self.items.len()).unwrap_or(u32::MAX)
    }

    fn first_free(&self) -> usize {
        self.items
            .get(self.hint..)
            .and_then(|tail| tail.iter().position(Option::is_none))
            .map_or(self.items.len().max(self.hint), |at| self.hint + at)
    }

    /// How large a [`Spare`] has to be taken by [`Self::grow`] so that the next [`Self::insert`] allocates
    /// nothing; `None` if there is room.
    pub(crate) fn shortage(&self) -> Option<usize> {
        let free = self.first_free();
        let capacity = self.items.capacity();
        (free >= capacity).then(|| (free + 1).max(2 * capacity))
    }

    /// Moves into larger memory. Returns what is not needed any more, to be freed where that is allowed.
    pub(crate) fn grow(&mut self, spare: Spare<T>) -> Spare<T> {
        let Spare(mut larger) = spare;
        if larger.capacity() <= self.items.capacity() {
            return Spare(larger);
        }
        for item in self.items.drain_all() {
            // It is larger.
            let _ = larger.push_within_capacity(item);
        }
        Spare(core::mem::replace(&mut self.items, larger))
    }

    /// Stores `value` at the lowest free index below `limit`.
    ///
    /// # Errors
    ///
    /// - `ENOSPC`: every index is in use.
    /// - `ENOMEM`: no memory.
    pub(crate) fn insert(&mut self, value: T, limit: u32) -> Result<u32> {
        let free = self.first_free();
        let index = u32::try_from(free)?;
        if index >= limit {
            return Err(ENOSPC);
        }
        while self.items.len() <= free {
            self.items.push(None, GFP_KERNEL_ACCOUNT)?;
        }
        *self.items.get_mut(free).ok_or(ENOMEM)? = Some(value);
        self.used += 1;
        self.hint = free + 1;
        Ok(index)
    }

    /// Takes the value at `index` out.
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let at = usize::try_from(index).ok()?;
        let value = self.items.get_mut(at)?.take()?;
        self.used -= 1;
        self.hint = self.hint.min(at);
        Some(value)
    }

    /// The value at `index`.
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.items.get(usize::try_from(index).ok()?)?.as_ref()
    }

    /// The value at `index`, to change.
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.items.get_mut(usize::try_from(index).ok()?)?.as_mut()
    }

    /// Index and value of all that is there.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0u32..)
            .zip(self.items.iter())
            .filter_map(|(index, item)| Some((index, item.as_ref()?)))
    }
}
