// SPDX-License-Identifier: GPL-2.0

//! Which memory leaves VRAM next, of buffers and [rooms](super::rooms). Tested by `rkfd_vm_evict_live`,
//! `rkfd_mirror_migrate_live` and e2e migrate-evict.

use kernel::{
    prelude::*,
    sync::Arc,
    time::Delta, //
};

use super::{
    bo::Memory,
    rooms::{
        Entry,
        Whose, //
    }, //
};
use crate::kapi::{
    dmem::{
        Limit,
        Protection, //
    },
    gem::Object,
    lru::MOST, //
};

/// So long queues run between a restore and the next time that they are stopped for others. Some hundred times what it
/// takes to stop and start them. So long, too, pages stay that have just moved in.
pub(super) const LEAST_RUN: Delta = Delta::from_millis(50);

/// How memory can be evicted.
pub(super) enum Hold {
    /// Not at all.
    Fixed,
    /// At once.
    Idle,
    /// Queues have to stop, which have run for so long.
    Busy(Delta),
    /// Queues run that have not run long enough, or pages have just moved in; so much is left.
    Protected(Delta),
    /// At last, where nothing else can be: its group is to keep it if that is possible.
    Low,
}

/// What an allocation is short of.
pub(super) enum Short {
    /// Free VRAM. What is to be put there is charged already.
    Memory,
    /// What this control group may have.
    Group(Limit),
}

impl Short {
    /// The group whose memory is to become less, if it is one.
    pub(super) fn limit(&self) -> Option<&Limit> {
        match self {
            Self::Memory => None,
            Self::Group(limit) => Some(limit),
        }
    }

    /// `limit` is in the way now. The error says whether it is another one: what did not help before may help now.
    pub(super) fn move_to(&mut self, limit: Limit) -> Error {
        let is_same = matches!(self, Self::Group(before) if before.is(&limit));
        *self = Self::Group(limit);
        if is_same {
            ENOMEM
        } else {
            EAGAIN
        }
    }
}

/// What can be had of [`Victims`].
pub(super) enum Next<'a> {
    /// This buffer.
    Buffer(&'a Object<Memory>),
    /// This room.
    Room(&'a Arc<Entry>),
    /// Only what a group's `dmem.low` protects.
    Low,
    /// Nothing before so much time has passed.
    Wait(Delta),
    /// Nothing.
    Nothing,
}

/// Where a victim stands in the lists.
#[derive(Clone, Copy)]
enum At {
    Buffer(usize),
    Room(usize),
}

/// Memory in VRAM that may leave it, each once.
pub(super) struct Victims {
    /// The one that was used longest ago first.
    objects: KVVec<Object<Memory>>,
    /// In no order.
    rooms: KVVec<Arc<Entry>>,
    /// Those of the objects that were given out, or cannot leave.
    tried: KVVec<bool>,
    /// Likewise of the rooms.
    tried_rooms: KVVec<bool>,
}

impl Victims {
    /// All of both.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(objects: KVVec<Object<Memory>>, rooms: KVVec<Arc<Entry>>) -> Result<Self> {
        Ok(Self {
            tried: KVVec::from_elem(false, objects.len(), GFP_KERNEL)?,
            tried_rooms: KVVec::from_elem(false, rooms.len(), GFP_KERNEL)?,
            objects,
            rooms,
        })
    }

    /// What is to leave next for who is `short` and may take of `whose` rooms: of what can leave at once the one that was used
    /// longest ago; then the buffer whose queues have run longest. With `ignore_low` also what only `dmem.low` protects.
    ///
    /// # Errors
    ///
    /// Those of `hold_of`, which says how a buffer can leave.
    pub(super) fn next(
        &mut self,
        short: &Short,
        whose: Whose,
        ignore_low: bool,
        hold_of: impl Fn(&Object<Memory>) -> Result<Hold>,
    ) -> Result<Next<'_>> {
        let (mut idle, mut busy) = (None, None);
        let mut wait = Wait::default();
        for ((at, object), tried) in self.objects.iter().enumerate().zip(&mut self.tried) {
            if *tried {
                continue;
            }
            match hold_of(object)? {
                Hold::Fixed => *tried = true,
                Hold::Idle => {
                    let used = object
                        .movable()
                        .map_or(i64::MIN, |movable| movable.last_use());
                    idle = Some((used, At::Buffer(at)));
                    break;
                }
                Hold::Busy(ran) if busy.is_none_or(|(longest, _)| ran > longest) => {
                    busy = Some((ran, At::Buffer(at)));
                }
                Hold::Busy(_) => {}
                Hold::Protected(left) => wait.note(left),
                Hold::Low => wait.low = true,
            }
        }
        for ((at, room), tried) in self.rooms.iter().enumerate().zip(&mut self.tried_rooms) {
            if *tried {
                continue;
            }
            match hold_of_room(room, short, whose, ignore_low) {
                Hold::Fixed => *tried = true,
                Hold::Idle | Hold::Busy(_) => {
                    let used = room.last_use();
                    if idle.is_none_or(|(oldest, _)| used < oldest) {
                        idle = Some((used, At::Room(at)));
                    }
                }
                Hold::Protected(left) => wait.note(left),
                Hold::Low => wait.low = true,
            }
        }
        let next = idle.map(|(_, at)| at).or(busy.map(|(_, at)| at));
        Ok(match next {
            Some(At::Buffer(at)) => {
                *self.tried.get_mut(at).ok_or(EINVAL)? = true;
                Next::Buffer(self.objects.get(at).ok_or(EINVAL)?)
            }
            Some(At::Room(at)) => {
                *self.tried_rooms.get_mut(at).ok_or(EINVAL)? = true;
                Next::Room(self.rooms.get(at).ok_or(EINVAL)?)
            }
            None => match wait.least {
                Some(left) => Next::Wait(left),
                None if wait.low => Next::Low,
                None => Next::Nothing,
            },
        })
    }

    /// Where there may be more buffers than these, makes those that were tried, and are in VRAM still, the ones that were used
    /// last, so that buffers that cannot leave, of which there may be any number, do not hide others; false if there are none.
    /// The caller has [`Residency::turn`](super::evict::Residency::turn).
    pub(super) fn touch_fixed(&self) -> bool {
        let mut any = false;
        if self.objects.len() < MOST {
            return any;
        }
        let all = self.objects.iter().zip(&self.tried);
        for (object, _) in all.filter(|(_, tried)| **tried) {
            if let Some(movable) = object.movable().filter(|movable| movable.is_home()) {
                movable.note_use();
                object.touch();
                any = true;
            }
        }
        any
    }
}

/// What stands against a choice.
#[derive(Default)]
struct Wait {
    /// The least time after which something can leave.
    least: Option<Delta>,
    /// Something is protected by `dmem.low` alone.
    low: bool,
}

impl Wait {
    fn note(&mut self, left: Delta) {
        if self.least.is_none_or(|least| left < least) {
            self.least = Some(left);
        }
    }
}

/// How a room can be evicted: its pages are served from system memory as well, by queues that run or wait for a moment.
fn hold_of_room(room: &Entry, short: &Short, whose: Whose, ignore_low: bool) -> Hold {
    if whose == Whose::Others && room.is_of_current() {
        return Hold::Fixed;
    }
    match room.protection(short.limit(), ignore_low) {
        Protection::None => {}
        Protection::Low => return Hold::Low,
        Protection::Full => return Hold::Fixed,
    }
    let age = room.age();
    if age < LEAST_RUN {
        return Hold::Protected(LEAST_RUN - age);
    }
    Hold::Idle
}
