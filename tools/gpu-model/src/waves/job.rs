// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What is handed out to those who execute: dispatches, their workgroups, and how a slice of one ended.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use gfx9_isa::group::Group;
use gfx9_isa::races::Checker;

use super::kernel::Kernel;
use super::names::{self, Identity, Origin, Reader};
use super::report::Spot;
use super::units::{Place, Seat};

/// A dispatch under way.
#[derive(Debug)]
pub struct Dispatch {
    /// Names it; never used again.
    pub serial: u64,
    /// What its waves execute.
    pub kernel: Kernel,
    /// Its groups are to be given back at once.
    frozen: AtomicBool,
    /// What its waves have come to that the device has not looked at yet.
    told: AtomicU32,
    /// Grows when decoded instructions have to be compared with memory again.
    code: AtomicU64,
    /// The kernel's name and code object, once somebody has looked for them.
    origin: OnceLock<Origin>,
}

impl Dispatch {
    /// A dispatch that begins or goes on.
    pub fn new(serial: u64, kernel: Kernel) -> Self {
        Self {
            serial,
            kernel,
            frozen: AtomicBool::new(false),
            told: AtomicU32::new(0),
            code: AtomicU64::new(0),
            origin: OnceLock::new(),
        }
    }

    /// Looks for the kernel's name and code object, unless somebody has done so before; `read` reads the memory of the
    /// address space.
    pub fn learn_name(&self, read: &mut Reader<'_>) {
        self.origin
            .get_or_init(|| names::kernel_at(read, self.kernel.entry));
    }

    /// The kernel's name, if somebody has looked for it and it has one.
    pub fn name(&self) -> Option<&str> {
        self.origin.get()?.name.as_deref()
    }

    /// The kernel's code object, if somebody has looked for it and it is in memory.
    pub fn object(&self) -> Option<Identity> {
        self.origin.get()?.object
    }

    /// The kernel in messages: its name, or where it begins.
    pub fn title(&self) -> String {
        match self.name() {
            Some(name) => format!("kernel {name}"),
            None => format!("the kernel at {:#x}", self.kernel.entry),
        }
    }

    /// Its groups are to be given back.
    pub fn freeze(&self) {
        self.frozen.store(true, Ordering::Release);
    }

    /// Its groups may be executed again.
    pub fn thaw(&self) {
        self.frozen.store(false, Ordering::Release);
    }

    /// Whether its groups are to be given back.
    pub fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::Acquire)
    }

    /// There is one more report of it, or one less.
    pub(super) fn count_report(&self, more: bool) {
        if more {
            self.told.fetch_add(1, Ordering::Relaxed);
        } else {
            self.told.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether there are reports of it that the device has not taken.
    pub(super) fn has_reports(&self) -> bool {
        self.told.load(Ordering::Relaxed) != 0
    }

    /// Its groups are to be given back, and the device has taken all reports of it.
    pub(super) fn is_told(&self) -> bool {
        self.is_frozen() && !self.has_reports()
    }

    /// The version of the instruction cache.
    pub fn code(&self) -> u64 {
        self.code.load(Ordering::Relaxed)
    }

    /// The instruction cache is invalid.
    pub fn invalidate_code(&self) {
        self.code.fetch_add(1, Ordering::Relaxed);
    }
}

/// A workgroup that has begun.
#[derive(Debug)]
pub struct Job {
    /// Of which dispatch.
    pub dispatch: Arc<Dispatch>,
    /// Id of the group.
    pub id: [u32; 3],
    /// Waves, LDS, barrier.
    pub group: Waves,
    /// What it has of a compute unit.
    pub place: Place,
    /// Slots of private memory, one for each wave.
    pub slots: Vec<u32>,
    /// Checks its accesses to LDS, if somebody wants that.
    pub check: Option<Check>,
}

/// [`Checker`] for records.
pub struct Check(pub Box<Checker>);

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Check")
    }
}

impl Job {
    /// Tells the waves which seats they have.
    pub(super) fn seat_waves(&mut self) {
        let kernel = &self.dispatch.kernel;
        for (number, seat) in self.place.seats.iter().enumerate() {
            if let Some(wave) = self.group.0.wave_mut(number) {
                wave.hw_id = kernel.hw_id(*seat);
            }
        }
    }

    /// The seat of a wave.
    pub fn seat(&self, wave: usize) -> Seat {
        self.place.seats.get(wave).copied().unwrap_or_default()
    }

    /// Where a wave is, and its instruction.
    pub fn spot(&self, wave: usize) -> Spot {
        Spot {
            seat: self.seat(wave),
            group: self.id,
            wave: wave as u32,
            pc: self.group.0.wave(wave).map_or(0, |wave| wave.pc),
        }
    }
}

/// [`Group`] for records.
pub struct Waves(pub Group);

impl fmt::Debug for Waves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waves", self.0.len())
    }
}

/// A workgroup without a unit: one that was taken off.
#[derive(Debug)]
pub struct Resting {
    /// Id of the group.
    pub id: [u32; 3],
    /// Waves, LDS, barrier.
    pub group: Waves,
    /// Slots of private memory, one for each wave.
    pub slots: Vec<u32>,
}

/// Slots of private memory, a bit each: set for those that are in use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slots(Vec<u64>);

impl Slots {
    /// None of `count` slots is in use.
    fn new(count: u32) -> Self {
        Self(vec![0; count.div_ceil(64) as usize])
    }

    /// Takes slots for `waves` waves, of which there are `count`.
    pub(super) fn take(&mut self, count: u32, waves: u32) -> Option<Vec<u32>> {
        let is_free = |slot: &u32| {
            let word = self.0.get(*slot as usize / 64);
            word.is_some_and(|word| word >> (slot % 64) & 1 == 0)
        };
        let free: Vec<u32> = (0..count).filter(is_free).take(waves as usize).collect();
        if free.len() < waves as usize {
            return None;
        }
        self.set(&free, true);
        Some(free)
    }

    pub(super) fn set(&mut self, slots: &[u32], taken: bool) {
        for slot in slots {
            if let Some(word) = self.0.get_mut(*slot as usize / 64) {
                let bit = 1 << (slot % 64);
                *word = if taken { *word | bit } else { *word & !bit };
            }
        }
    }
}

/// A dispatch that was taken off.
#[derive(Debug)]
pub struct Frozen {
    /// What its waves execute.
    pub kernel: Kernel,
    /// Number of the next group that begins.
    pub next: u64,
    /// A wave has failed, so no further group begins.
    pub failed: bool,
    /// Groups that have begun and not ended.
    pub groups: VecDeque<Resting>,
    /// Slots of private memory that these have.
    pub(super) slots: Slots,
}

impl Frozen {
    /// A dispatch of which no group has begun that has not ended; `next` is the number of the next one.
    pub fn new(kernel: Kernel, next: u64, failed: bool) -> Self {
        Self {
            slots: Slots::new(kernel.scratch.map_or(0, |s| s.slots)),
            kernel,
            next,
            failed,
            groups: VecDeque::new(),
        }
    }

    /// Adds a group that has begun.
    pub fn push(&mut self, group: Resting) {
        self.slots.set(&group.slots, true);
        self.groups.push_back(group);
    }
}

/// What somebody who executes does next.
#[derive(Debug)]
pub enum Work {
    /// Goes on with a group.
    Resume(Job),
    /// Begins a group.
    Begin {
        /// Of which dispatch.
        dispatch: Arc<Dispatch>,
        /// Its number in the dispatch.
        number: u64,
        /// Where.
        place: Place,
        /// Slots of private memory, one for each wave.
        slots: Vec<u32>,
    },
}

/// How a slice of a group ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// It can go on.
    Ready,
    /// No wave can go on before translations come.
    Waiting,
    /// No wave can go on.
    Halted,
    /// All waves have ended.
    Over,
}
