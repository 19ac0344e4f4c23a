// SPDX-License-Identifier: GPL-2.0

//! Accesses of an address space that the GPU repeats until they are allowed, while they wait to be looked at.
//!
//! The GPU reports a page once, and again only after the entry of its [`FaultToken`] is released. So all that waits here
//! is one access for each page and hub, and what finds no room is reported again later.
//!
//! They are looked at by several *lanes* at the same time, each in another granule: an access that waits for user space
//! does not hold up the others.
//!
//! An access that nothing allows is refused only when it was reported, looked at, and released once before, and neither
//! has a queue ended since, nor was memory shown there: the first report may be of a wave that is not there any more, or
//! of one that found the page when it was shown for another, and whose memory has gone before its report was looked at.

use core::ops::Range;

use kernel::{
    prelude::*,
    time::{
        Instant,
        Monotonic, //
    },
};

use crate::{
    gpu::{
        retry::{
            FaultToken,
            FaultTokens, //
        },
        VmFault, //
    },
    hw::ih::Hub,
    vm::{
        mirrored::GRANULE,
        pt::PAGE, //
    },
};

/// Accesses of an address space that are looked at at the same time.
pub(crate) const LANES: usize = 4;
/// Accesses that wait at most. The CAM of the hardware has 64 entries for all address spaces.
const ROOM: usize = 64;
/// Pages that are remembered because an access was not allowed.
const DOUBTS: usize = 16;

/// So many accesses are taken for those of queues that are about to leave. A lane waits at each, so this is seconds: more
/// than queues need, however busy the machine is.
const REFUSALS: u32 = 4096;

/// An access that waits.
pub(crate) struct Waiting {
    pub(crate) fault: VmFault,
    /// The access is repeated when this is dropped.
    pub(crate) token: FaultToken,
    /// When it was reported.
    pub(super) since: Instant<Monotonic>,
    /// How many queues had ended when it was reported.
    ended: u64,
}

/// What becomes of an access that nothing allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is to be repeated first.
    Repeat,
    /// It is an error of the program.
    Refuse,
    /// An error of the program was reported a moment ago: the queues are about to leave.
    Leave,
}

/// Accesses that wait, and what is known of those before.
pub(crate) struct Accesses {
    /// Has room for [`ROOM`] once accesses are served. In the order of their reports.
    waiting: KVec<Waiting>,
    /// Of accesses that found no room.
    crowded: FaultTokens,
    /// The granule that each lane looks at; `None` for one that does nothing.
    lanes: [Option<u64>; LANES],
    /// Pages, by [`page_of`], whose access was not allowed when it was looked at. Where 0 stands there is none.
    doubts: [u64; DOUBTS],
    /// Where the next doubt goes.
    next_doubt: usize,
    /// Queues that have ended.
    ended: u64,
    /// How often an access could not be looked at to the end, one time after the other.
    failures: u32,
    /// Refusals, and what was to be refused after them.
    refusals: u32,
}

/// What a page and a hub are known by: the hub is in the low bits. Not 0, as no program has page 0.
fn page_of(fault: &VmFault) -> u64 {
    let hub = match fault.fault.hub {
        Hub::Gfx => 0,
        Hub::Mm => 1,
    };
    (fault.fault.address & !(PAGE - 1)) | hub
}

fn granule_of(fault: &VmFault) -> u64 {
    fault.fault.address & !(GRANULE - 1)
}

impl Accesses {
    /// None, and no room for any.
    pub(crate) const fn new() -> Self {
        Self {
            waiting: KVec::new(),
            crowded: FaultTokens::new(),
            lanes: [None; LANES],
            doubts: [0; DOUBTS],
            next_doubt: 0,
            ended: 0,
            failures: 0,
            refusals: 0,
        }
    }

    /// Memory for those that wait.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn room() -> Result<KVec<Waiting>> {
        Ok(KVec::with_capacity(ROOM, GFP_KERNEL_ACCOUNT)?)
    }

    /// Whether accesses are served.
    pub(crate) fn is_open(&self) -> bool {
        self.waiting.capacity() != 0
    }

    /// Serves accesses from now on, with memory from [`Self::room`]. Returns memory that is not needed.
    pub(crate) fn open(&mut self, room: KVec<Waiting>) -> KVec<Waiting> {
        if self.is_open() {
            room
        } else {
            core::mem::replace(&mut self.waiting, room)
        }
    }

    /// Notes an access, and returns the lane that is to be started, if one is free. Allocates nothing.
    pub(crate) fn push(&mut self, fault: &VmFault, token: FaultToken) -> Option<usize> {
        let waiting = Waiting {
            fault: *fault,
            token,
            since: Instant::now(),
            ended: self.ended,
        };
        if let Err(full) = self.waiting.push_within_capacity(waiting) {
            self.crowded.add(full.0.token);
        }
        let granule = granule_of(fault);
        if self.lanes.contains(&Some(granule)) {
            return None;
        }
        let free = self.lanes.iter().position(|lane| lane.is_none())?;
        if let Some(lane) = self.lanes.get_mut(free) {
            *lane = Some(granule);
        }
        Some(free)
    }

    /// The next access for a lane: one in a granule that no other lane looks at. `None`: the lane ends, and the accesses that
    /// found no room are to be repeated.
    pub(crate) fn next(&mut self, lane: usize) -> Result<Waiting, FaultTokens> {
        if let Some(own) = self.lanes.get_mut(lane) {
            *own = None;
        }
        let lanes = &self.lanes;
        let is_free = |waiting: &Waiting| !lanes.contains(&Some(granule_of(&waiting.fault)));
        let found = self.waiting.iter().position(is_free);
        let Some(waiting) = found.and_then(|at| self.waiting.remove(at).ok()) else {
            return Err(self.crowded.take());
        };
        if let Some(own) = self.lanes.get_mut(lane) {
            *own = Some(granule_of(&waiting.fault));
        }
        Ok(waiting)
    }

    /// An access is allowed, perhaps since memory was shown, which is that of the granule then: others may have found theirs.
    pub(crate) fn note_served(&mut self, fault: &VmFault) {
        self.failures = 0;
        let granule = granule_of(fault);
        self.note_shown(&(granule..granule.saturating_add(GRANULE)));
    }

    /// Memory is shown somewhere in `range`, GPU addresses, or is about to be.
    pub(crate) fn note_shown(&mut self, range: &Range<u64>) {
        for doubt in &mut self.doubts {
            if range.contains(&(*doubt & !(PAGE - 1))) {
                *doubt = 0;
            }
        }
    }

    /// An access could not be looked at to the end. Returns how often this happened before, without a success in between.
    pub(crate) fn note_failure(&mut self) -> u32 {
        let before = self.failures;
        self.failures = before.saturating_add(1);
        before
    }

    /// What becomes of an access that nothing allows.
    pub(crate) fn judge(&mut self, waiting: &Waiting) -> Verdict {
        if waiting.ended != self.ended {
            return Verdict::Repeat;
        }
        let page = page_of(&waiting.fault);
        if self.doubts.contains(&page) {
            let before = self.refusals;
            self.refusals = before.wrapping_add(1);
            // If the queues have not left by the next of these, it is reported again.
            return if before % REFUSALS == 0 {
                Verdict::Refuse
            } else {
                Verdict::Leave
            };
        }
        if let Some(doubt) = self.doubts.get_mut(self.next_doubt) {
            *doubt = page;
        }
        self.next_doubt = (self.next_doubt + 1) % DOUBTS;
        Verdict::Repeat
    }

    /// A queue has ended: what was reported up to now may be of its waves.
    pub(crate) fn note_end(&mut self) {
        self.ended += 1;
        self.doubts = [0; DOUBTS];
    }
}
