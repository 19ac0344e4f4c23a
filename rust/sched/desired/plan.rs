// SPDX-License-Identifier: GPL-2.0

//! What to do next to bring the hardware to the desired state, where the scheduler firmware runs it.
//!
//! Pure: it sees one [`QueueView`] per queue and decides. It uses nothing of the kernel, and the host tests
//! compile this very file (`tools/hw`).

/// Doorbells that one UNMAP_QUEUES can name.
pub(crate) const UNMAP_DOORBELLS: usize = 4;

/// The runlist that the hardware works on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ActiveList {
    /// The firmware takes turns: it walks the IB again and again.
    pub(crate) chained: bool,
    /// Dwords of the IB.
    pub(crate) dwords: u32,
    /// Processes in it.
    pub(crate) processes: usize,
    /// Queues in it.
    pub(crate) queues: usize,
    /// Dwords of the IB that the list before it did not have.
    pub(crate) written: u32,
    /// It has static queues.
    pub(crate) fixed: bool,
}

/// What UNMAP_QUEUES names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The whole runlist; ends it.
    Dynamic,
    /// The same with static queues.
    All,
    /// All queues of one process.
    Pasid(u16),
    /// Up to four compute queues, by dword index of their doorbells; unused entries are 0.
    Doorbells([u32; UNMAP_DOORBELLS], usize),
}

impl Scope {
    /// What takes `list` off the hardware.
    pub(crate) fn whole(list: &ActiveList) -> Self {
        match list.fixed {
            true => Self::All,
            false => Self::Dynamic,
        }
    }

    /// Whether nothing of the list is left.
    pub(crate) fn ends_list(&self) -> bool {
        matches!(self, Self::Dynamic | Self::All)
    }

    /// Whether it names the queue of process `pasid` with doorbell `doorbell` (dword index).
    pub(crate) fn covers(&self, pasid: u16, doorbell: u32) -> bool {
        match self {
            Self::Dynamic | Self::All => true,
            Self::Pasid(scope) => *scope == pasid,
            Self::Doorbells(list, count) => {
                list.iter().take(*count).any(|named| *named == doorbell)
            }
        }
    }
}

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Hardware and desired state agree.
    Idle,
    /// Work was added; wait a moment for more before running work is preempted for it.
    Gather,
    /// Take queues off the hardware.
    Preempt(Scope),
    /// Submit a runlist; none is active.
    Map,
}

/// How to decide where there is a choice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Changes share preemptions and runlists.
    pub(crate) coalesce: bool,
    /// Unmap single queues or one process where that is enough.
    pub(crate) targeted: bool,
    /// The time for further additions is over.
    pub(crate) gathered: bool,
}

/// What the decision needs to know of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueView {
    /// Dword index of its doorbell.
    pub(crate) doorbell: u32,
    /// It takes a compute HQD; else it is one of SDMA.
    pub(crate) is_compute: bool,
    /// The hardware may use it.
    pub(crate) on_hardware: bool,
    /// It should be part of the runlist.
    pub(crate) wanted: bool,
    /// A change waits until it is off the hardware.
    pub(crate) must_leave: bool,
}

/// What the decision needs to know of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessView {
    /// Its PASID.
    pub(crate) pasid: u16,
    /// It was detached, and the active list names its address space: the list has to end.
    pub(crate) ends_list: bool,
}

/// Decides what to do next, given the list that is `active` and all `processes` with their queues.
pub(crate) fn plan(
    active: Option<&ActiveList>,
    rules: Rules,
    processes: impl Iterator<Item = (ProcessView, impl Iterator<Item = QueueView>)>,
) -> Step {
    let mut add = false;
    let mut remove = false;
    // Something of the list goes on running, if it is left alone.
    let mut running = false;
    // Removal that a narrow UNMAP_QUEUES can do: nothing else has to change.
    let mut narrow = rules.targeted && rules.coalesce;
    let mut doorbells = [0; UNMAP_DOORBELLS];
    let mut named = 0;
    let mut pasid = None;
    for (process, queues) in processes {
        let mut leaving = 0;
        let mut staying = 0;
        let mut sdma = false;
        if process.ends_list {
            remove = true;
            narrow = false;
        }
        for queue in queues {
            if !queue.on_hardware {
                add |= queue.wanted;
                continue;
            }
            if queue.wanted && !queue.must_leave {
                staying += 1;
                running = true;
                continue;
            }
            remove = true;
            leaving += 1;
            sdma |= !queue.is_compute;
            // It comes back with other values, which takes a new runlist.
            narrow &= !queue.wanted;
            if let Some(entry) = doorbells.get_mut(named) {
                *entry = queue.doorbell;
            }
            named += 1;
        }
        if leaving == 0 {
            continue;
        }
        // UNMAP_QUEUES with engine 0 and a narrow selection names compute queues.
        narrow &= !sdma;
        // One PASID and nothing else of it stays.
        pasid = match (pasid, named == leaving && staying == 0) {
            (None, true) => Some(process.pasid),
            _ => Some(0),
        };
    }
    match active {
        None if add => Step::Map,
        None => Step::Idle,
        Some(_) if !add && !remove => Step::Idle,
        Some(_) if running && add && !remove && !rules.gathered && rules.coalesce => Step::Gather,
        // A list of which nothing runs on is ended as a whole, so that it names nothing any more.
        Some(list) if remove && !add && narrow && running && !list.chained && !list.fixed => {
            match pasid {
                Some(pasid) if pasid != 0 => Step::Preempt(Scope::Pasid(pasid)),
                _ if named <= UNMAP_DOORBELLS => Step::Preempt(Scope::Doorbells(doorbells, named)),
                _ => Step::Preempt(Scope::whole(list)),
            }
        }
        Some(list) => Step::Preempt(Scope::whole(list)),
    }
}
