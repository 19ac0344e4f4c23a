// SPDX-License-Identifier: GPL-2.0

//! What is held against processes whose queues keep a GPU from others.
//!
//! A [`Conduct`] is of one process on one GPU, and is older than what the process attaches: another open file of the render
//! node, `/dev/kfd` beside it, and the scheduler that follows a reset of the chip find the same. A program that a
//! process executes inherits it; a child that it makes begins with a clean one.
//!
//! An entry of the table lives while anything of its process is attached, and, unless it is clean, until the process
//! has ended. What is over is taken out whenever something is attached or detached, so that there are at most as many
//! entries as there were living processes then.
//!
//! # Locks
//!
//! The lock of a [`Conduct`] is innermost, that of the table comes before it. Both are spinlocks, under which nothing is
//! allocated or freed.

use core::ops::Deref;

use kernel::{
    new_spinlock,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        SpinLock, //
    },
};

use crate::kapi::task::ThreadGroup;

/// What is held against a process whose queues refused to be preempted.
///
/// All others wait while the firmware gives up on such a queue. Once may be a mistake; from then on its queues get
/// less time. A process that does it again, after the time in which the first occasion was over, is barred: its queues
/// do not run any more, and it gets no new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// Nothing.
    Clean,
    /// A queue refused; when, in microseconds.
    Refused(u64),
    /// Barred, and not logged yet.
    BarPending,
    /// Barred.
    Barred,
}

impl Record {
    /// The record after a queue refused at `now`. Refusals within `window` microseconds are one occasion: they
    /// may be of one preemption.
    fn after_refusal(self, now: u64, window: u64) -> Self {
        match self {
            Self::Clean => Self::Refused(now),
            Self::Refused(first) if now.saturating_sub(first) <= window => self,
            Self::Refused(_) => Self::BarPending,
            Self::BarPending | Self::Barred => self,
        }
    }
}

/// What was seen of a process on a GPU.
#[derive(Clone, Copy)]
struct Facts {
    record: Record,
    /// One of its SDMA queues could only be ended by a reset of the chip.
    cost_chip: bool,
}

/// What is held against a process on a GPU.
#[pin_data]
pub(crate) struct Conduct {
    #[pin]
    facts: SpinLock<Facts>,
}

impl Conduct {
    /// Nothing.
    fn new() -> impl PinInit<Self> {
        let facts = Facts {
            record: Record::Clean,
            cost_chip: false,
        };
        pin_init!(Self {
            facts <- new_spinlock!(facts, "rkfd_conduct"),
        })
    }

    fn is_clean(&self) -> bool {
        let facts = *self.facts.lock();
        facts.record == Record::Clean && !facts.cost_chip
    }

    /// Whether a queue of the process refused to be preempted.
    pub(crate) fn has_refused(&self) -> bool {
        self.facts.lock().record != Record::Clean
    }

    /// Whether no queue of the process may run.
    pub(crate) fn is_barred(&self) -> bool {
        matches!(
            self.facts.lock().record,
            Record::BarPending | Record::Barred
        )
    }

    /// Notes that a queue refused to be preempted at `now`, see [`Record`]: microseconds since the machine was started,
    /// for the record outlives schedulers. Returns whether the process is barred.
    pub(crate) fn note_refusal(&self, now: u64, window: u64) -> bool {
        let mut facts = self.facts.lock();
        facts.record = facts.record.after_refusal(now, window);
        matches!(facts.record, Record::BarPending | Record::Barred)
    }

    /// Whether the process was barred and that was not logged, which the caller does.
    pub(crate) fn take_bar(&self) -> bool {
        let mut facts = self.facts.lock();
        let pending = facts.record == Record::BarPending;
        if pending {
            facts.record = Record::Barred;
        }
        pending
    }

    /// Whether an SDMA queue of the process could only be ended by a reset of the chip.
    pub(crate) fn has_cost_chip(&self) -> bool {
        self.facts.lock().cost_chip
    }

    /// Notes that. Returns whether it is the first time.
    pub(crate) fn note_chip_reset(&self) -> bool {
        !core::mem::replace(&mut self.facts.lock().cost_chip, true)
    }
}

/// A process on a GPU.
struct Entry {
    gpu: u32,
    group: ThreadGroup,
    /// How much of it is attached.
    users: usize,
    conduct: Arc<Conduct>,
}

impl Entry {
    fn is_over(&self) -> bool {
        self.users == 0 && (self.conduct.is_clean() || self.group.has_ended())
    }
}

struct Table {
    entries: RBTree<u64, Entry>,
    /// Key of the newest entry.
    newest: u64,
}

/// What is held against processes, on all GPUs. It outlives their bindings.
#[pin_data]
pub(crate) struct Conducts {
    #[pin]
    table: SpinLock<Table>,
}

impl Conducts {
    /// No process is known.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let table = Table {
            entries: RBTree::new(),
            newest: 0,
        };
        Arc::pin_init(
            pin_init!(Self {
                table <- new_spinlock!(table, "rkfd_conducts"),
            }),
            GFP_KERNEL,
        )
    }

    /// What is held against process `group` on the GPU with id `gpu`, of which something is attached as long as the
    /// result lives.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn standing(self: &Arc<Self>, gpu: u32, group: &ThreadGroup) -> Result<Standing> {
        self.sweep();
        // For an entry, if there is none. Dropped without the lock.
        let fresh = Arc::pin_init(Conduct::new(), GFP_KERNEL_ACCOUNT)?;
        let room = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let mut guard = self.table.lock();
        let table = &mut *guard;
        let mut known = table.entries.iter_mut();
        let known = known.find(|(_, entry)| entry.gpu == gpu && entry.group.is(group));
        let (id, conduct) = match known {
            Some((id, entry)) => {
                entry.users += 1;
                (*id, entry.conduct.clone())
            }
            None => {
                // OVERFLOW: 2^64 entries are not made.
                table.newest += 1;
                let entry = Entry {
                    gpu,
                    group: group.clone(),
                    users: 1,
                    conduct: fresh.clone(),
                };
                table.entries.insert(room.into_node(table.newest, entry));
                (table.newest, fresh.clone())
            }
        };
        drop(guard);
        Ok(Standing {
            conducts: self.clone(),
            id,
            conduct,
        })
    }

    /// Takes out what is over.
    fn sweep(&self) {
        loop {
            let over = {
                let mut table = self.table.lock();
                let mut entries = table.entries.iter();
                let over = entries.find(|(_, entry)| entry.is_over());
                let id = over.map(|(id, _)| *id);
                id.and_then(|id| table.entries.remove_node(&id))
            };
            if over.is_none() {
                return;
            }
            // Freed here, without the lock.
        }
    }

    /// Entries of the table.
    #[cfg(rkfd_kunit)]
    pub(crate) fn count(&self) -> usize {
        self.table.lock().entries.iter().count()
    }
}

/// The [`Conduct`] of a process of which something is attached.
pub(crate) struct Standing {
    conducts: Arc<Conducts>,
    id: u64,
    conduct: Arc<Conduct>,
}

impl Standing {
    /// To be compared with [`Standing::is_of`].
    pub(crate) fn conduct(&self) -> &Arc<Conduct> {
        &self.conduct
    }

    /// Whether this is of the process and the GPU that `conduct` is of.
    pub(crate) fn is_of(&self, conduct: &Arc<Conduct>) -> bool {
        Arc::ptr_eq(&self.conduct, conduct)
    }
}

impl Deref for Standing {
    type Target = Conduct;

    fn deref(&self) -> &Conduct {
        &self.conduct
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if let Some(entry) = self.conducts.table.lock().entries.get_mut(&self.id) {
            entry.users = entry.users.saturating_sub(1);
        }
        self.conducts.sweep();
    }
}
