// SPDX-License-Identifier: GPL-2.0

//! How many of a set of ranges cover each place: what a union grows and shrinks by.

use core::ops::Range;

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode,
        RBTreeNodeReservation, //
    },
};

/// A place where a range begins or ends.
struct Boundary {
    /// Ranges that cover the places from here to the next boundary.
    cover: u64,
    /// Ranges that begin or end here.
    edges: u64,
}

/// Memory for the two boundaries of a range.
pub(crate) struct Boundaries([Option<RBTreeNodeReservation<u64, Boundary>>; 2]);

impl Boundaries {
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self([
            Some(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?),
            Some(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?),
        ]))
    }
}

/// Boundaries that left a [`Coverage`], to be freed where that is allowed.
#[expect(dead_code, reason = "kept until it is dropped, not used")]
pub(crate) struct Removed([Option<RBTreeNode<u64, Boundary>>; 2]);

/// A multiset of ranges.
///
/// # Invariants
///
/// Each range has a boundary at its start and at its end, and no boundary is without an edge.
pub(crate) struct Coverage(RBTree<u64, Boundary>);

impl Coverage {
    /// No range.
    pub(crate) fn new() -> Self {
        Self(RBTree::new())
    }

    /// Ranges that cover the places just below `at`.
    fn cover_below(&self, at: u64) -> u64 {
        let below = match self.0.cursor_lower_bound(&at) {
            Some(cursor) => cursor.peek_prev().map(|(_, boundary)| boundary.cover),
            None => self.0.cursor_back().map(|cursor| cursor.current().1.cover),
        };
        below.unwrap_or(0)
    }

    fn add_edge(&mut self, at: u64, room: &mut Option<RBTreeNodeReservation<u64, Boundary>>) {
        if let Some(boundary) = self.0.get_mut(&at) {
            boundary.edges += 1;
            return;
        }
        let cover = self.cover_below(at);
        if let Some(room) = room.take() {
            let _ = self
                .0
                .insert(room.into_node(at, Boundary { cover, edges: 1 }));
        }
    }

    fn remove_edge(&mut self, at: u64) -> Option<RBTreeNode<u64, Boundary>> {
        let boundary = self.0.get_mut(&at)?;
        boundary.edges -= 1;
        // INVARIANT: Without an edge the cover is that of the place below, so nothing is lost.
        (boundary.edges == 0)
            .then(|| self.0.remove_node(&at))
            .flatten()
    }

    /// Calls `f` with the cover of each part of `range`, which it may change, and the length of the part.
    fn for_each(&mut self, range: &Range<u64>, mut f: impl FnMut(&mut u64, u64)) {
        let mut cursor = self.0.cursor_lower_bound_mut(&range.start);
        while let Some(mut here) = cursor {
            let next = here.peek_next().map_or(range.end, |(next, _)| *next);
            let (start, boundary) = here.current_mut();
            if *start >= range.end {
                return;
            }
            f(&mut boundary.cover, next - *start);
            cursor = here.move_next();
        }
    }

    /// Adds a range that is not empty; returns by how much the union grew. What `room` still has is to be
    /// dropped where memory may be freed.
    pub(crate) fn add(&mut self, range: &Range<u64>, room: &mut Boundaries) -> u64 {
        let Boundaries([first, second]) = room;
        // INVARIANT: Both boundaries get an edge.
        self.add_edge(range.start, first);
        self.add_edge(range.end, second);
        let mut grown = 0;
        self.for_each(range, |cover, len| {
            if *cover == 0 {
                grown += len;
            }
            *cover += 1;
        });
        grown
    }

    /// Takes a range out that was added; returns by how much the union shrank.
    pub(crate) fn remove(&mut self, range: &Range<u64>) -> (u64, Removed) {
        let mut shrunk = 0;
        self.for_each(range, |cover, len| {
            *cover -= 1;
            if *cover == 0 {
                shrunk += len;
            }
        });
        let removed = Removed([self.remove_edge(range.start), self.remove_edge(range.end)]);
        (shrunk, removed)
    }

    /// Number of boundaries.
    #[cfg(rkfd_kunit)]
    pub(crate) fn boundaries(&self) -> usize {
        self.0.iter().count()
    }
}
