// SPDX-License-Identifier: GPL-2.0

//! A map of disjoint address ranges to values.

use core::ops::Range;

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
};

/// Values by disjoint, non-empty, half-open ranges of addresses.
///
/// # Invariants
///
/// The ranges in `tree` (key to `end`) are not empty and do not overlap.
pub(crate) struct IntervalMap<V> {
    tree: RBTree<u64, Item<V>>,
    len: usize,
}

/// What a node holds beside its key, the start of the range.
pub(crate) struct Item<V> {
    end: u64,
    value: V,
}

/// Memory for one more range, allocated ahead so that insertion cannot fail under a lock.
pub(crate) struct Slot<V>(RBTreeNodeReservation<u64, Item<V>>);

impl<V> Slot<V> {
    /// Allocates.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?))
    }
}

impl<V> IntervalMap<V> {
    /// Makes an empty map.
    pub(crate) fn new() -> Self {
        Self {
            tree: RBTree::new(),
            len: 0,
        }
    }

    /// Number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no range.
    #[cfg_attr(not(rkfd_kunit), expect(dead_code, reason = "seen by tests"))]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first range that shares an address with `range`.
    pub(crate) fn first_overlap(&self, range: Range<u64>) -> Option<(Range<u64>, &V)> {
        if range.is_empty() {
            return None;
        }
        // Ranges are disjoint, so only the last one that starts at or before `range.start` can
        // reach into it from below.
        if let Some(found) = self.containing(range.start) {
            return Some(found);
        }
        let cursor = self.tree.cursor_lower_bound(&range.start)?;
        let (start, item) = cursor.current();
        let start = *start;
        if start >= range.end {
            return None;
        }
        // The value outlives the cursor; fetch it from the tree itself.
        let end = item.end;
        Some((start..end, &self.tree.get(&start)?.value))
    }

    /// The range that contains `address`.
    pub(crate) fn containing(&self, address: u64) -> Option<(Range<u64>, &V)> {
        let start = self.floor(address)?;
        let item = self.tree.get(&start)?;
        (address < item.end).then_some((start..item.end, &item.value))
    }

    /// The start of the last range that starts at or before `address`.
    fn floor(&self, address: u64) -> Option<u64> {
        match self.tree.cursor_lower_bound(&address) {
            Some(cursor) => {
                let (start, _) = cursor.current();
                if *start == address {
                    return Some(address);
                }
                cursor.peek_prev().map(|(start, _)| *start)
            }
            None => self.tree.cursor_back().map(|cursor| *cursor.current().0),
        }
    }

    /// Adds `range`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `range` is empty or overlaps one in the map, which is unchanged then.
    pub(crate) fn insert(&mut self, slot: Slot<V>, range: Range<u64>, value: V) -> Result {
        if range.is_empty() || self.first_overlap(range.clone()).is_some() {
            return Err(EINVAL);
        }
        // INVARIANT: Not empty, and no overlap, by the check above.
        let item = Item {
            end: range.end,
            value,
        };
        self.tree.insert(slot.0.into_node(range.start, item));
        self.len += 1;
        Ok(())
    }

    /// Takes the range that starts at `start` out.
    pub(crate) fn remove(&mut self, start: u64) -> Option<(Range<u64>, V)> {
        let item = self.tree.remove(&start)?;
        self.len -= 1;
        Some((start..item.end, item.value))
    }

    /// Takes the lowest range out.
    #[cfg_attr(not(rkfd_kunit), expect(dead_code, reason = "seen by tests"))]
    pub(crate) fn pop_first(&mut self) -> Option<(Range<u64>, V)> {
        let start = *self.tree.cursor_front()?.current().0;
        self.remove(start)
    }

    /// All ranges in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Range<u64>, &V)> {
        self.tree
            .iter()
            .map(|(start, item)| (*start..item.end, &item.value))
    }
}
