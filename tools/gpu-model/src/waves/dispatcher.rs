// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Hands workgroups to those who execute them.
//!
//! The device starts, freezes and ends dispatches; threads that execute take one group at a time and give it back after a
//! slice.  A group that has begun is in one of four places: with a thread, ready, waiting for translations, or halted.
//! Groups begin in ascending order, and one that has begun gets its turns whatever begins after it; more of them begin
//! while those before them go on, up to what the compute units hold.
//!
//! Locks: the device may take this one while it holds its own, never the other way round.  A thread that executes holds
//! neither a group nor translations when it wakes the device.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::job::{After, Dispatch, Frozen, Job, Resting, Work};
use super::kernel::Kernel;
use super::look::{Look, Seen};
use super::posts::Posts;
use super::progress::{Leaving, Progress};
use super::report::{Report, Spot, What};
use super::sync::Resources;
use super::units::Units;
use super::watch::Watch;

#[derive(Debug)]
struct State {
    units: Units,
    dispatches: BTreeMap<u64, Progress>,
    /// Groups that could go on so far: their order.
    turns: u64,
    reports: VecDeque<Report>,
    next_serial: u64,
    /// A group that has begun is next, not a new one.
    resume: bool,
    /// The dispatch that began a group last.
    last: u64,
    stop: bool,
    /// The device is gone for a while.
    still: bool,
    /// The device is behind with the reports.
    crowded: bool,
    begun: u64,
}

/// Reports from which on the device is behind, and nothing is handed out before half of them are taken.
const MOST_REPORTS: usize = 256;

/// Wakes the device.
type Waker = Box<dyn Fn() + Send + Sync>;

/// The dispatches of a device.
pub struct Dispatcher {
    state: Mutex<State>,
    /// There is work.
    work: Condvar,
    /// A group was given back.
    idle: Condvar,
    /// The device sleeps and has to be woken.
    asleep: AtomicBool,
    /// How many look at the waves, which stand still meanwhile.
    looks: AtomicU32,
    waker: Mutex<Option<Waker>>,
    /// Where waves of different groups meet.
    pub sync: Resources,
    /// Who watches waves execute.
    pub watch: Watch,
    /// Their stores to the device's own BARs.
    pub posts: Posts,
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.lock().fmt(f)
    }
}

impl State {
    /// Nothing is handed out.
    fn halts(&self) -> bool {
        self.still || self.crowded
    }

    fn pick(&mut self) -> Option<Work> {
        if self.halts() {
            return None;
        }
        let resume = self.resume;
        self.resume = !resume;
        if resume {
            self.resume().or_else(|| self.begin())
        } else {
            self.begin().or_else(|| self.resume())
        }
    }

    /// The group that could go on first.
    fn resume(&mut self) -> Option<Work> {
        let turns = self.dispatches.values_mut();
        let turns = turns.filter_map(|progress| Some((progress.turn()?, progress)));
        let (_, progress) = turns.min_by_key(|(turn, _)| *turn)?;
        let job = progress.resume()?;
        progress.running += 1;
        Some(Work::Resume(job))
    }

    fn next_turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    fn tell(&mut self, report: Report) {
        report.dispatch.count_report(true);
        self.reports.push_back(report);
    }

    /// The next group of the dispatch whose turn it is, if there is room for it: those of higher priority first, among
    /// equals in turn.
    fn begin(&mut self) -> Option<Work> {
        let mut serials: Vec<u64> = self.dispatches.keys().copied().collect();
        let last = self.last;
        serials.sort_by_key(|serial| {
            let priority = self
                .dispatches
                .get(serial)
                .map_or((0, 0), |p| p.dispatch.kernel.priority);
            (std::cmp::Reverse(priority), *serial <= last, *serial)
        });
        serials.into_iter().find_map(|serial| self.begin_of(serial))
    }

    fn begin_of(&mut self, serial: u64) -> Option<Work> {
        let progress = self.dispatches.get_mut(&serial)?;
        let dispatch = Arc::clone(&progress.dispatch);
        let kernel = &dispatch.kernel;
        if !progress.wants_units() {
            return None;
        }
        let demand = kernel.demand();
        let place = self.units.take(&demand, &kernel.units)?;
        self.last = serial;
        if let Some(Resting { id, group, slots }) = progress.take_resting() {
            progress.running += 1;
            let mut job = Job {
                dispatch,
                id,
                group,
                place,
                slots,
                check: None,
            };
            job.seat_waves();
            return Some(Work::Resume(job));
        }
        let Some(slots) = progress.take_slots(demand.waves) else {
            self.units.release(&place);
            return None;
        };
        let number = progress.next;
        progress.next += 1;
        progress.resident += 1;
        progress.running += 1;
        self.begun += 1;
        Some(Work::Begin {
            dispatch,
            number,
            place,
            slots,
        })
    }

    /// Whether [`State::pick`] might find something.
    fn has_work(&self) -> bool {
        let wants = |p: &Progress| p.turn().is_some() || p.wants_units();
        !self.halts() && self.dispatches.values().any(wants)
    }
}

impl Dispatcher {
    /// Without any dispatch.
    pub fn new(units: Units) -> Self {
        Self {
            state: Mutex::new(State {
                units,
                dispatches: BTreeMap::new(),
                turns: 0,
                reports: VecDeque::new(),
                next_serial: 1,
                resume: false,
                last: 0,
                stop: false,
                still: false,
                crowded: false,
                begun: 0,
            }),
            work: Condvar::new(),
            idle: Condvar::new(),
            asleep: AtomicBool::new(false),
            looks: AtomicU32::new(0),
            waker: Mutex::new(None),
            sync: Resources::default(),
            watch: Watch::default(),
            posts: Posts::default(),
        }
    }

    /// Whether an empty unit has room for a group of the kernel.
    pub fn can_hold(&self, kernel: &Kernel) -> bool {
        self.state.lock().units.can_hold(&kernel.demand())
    }

    /// Starts a dispatch, or lets one go on that was taken off; returns its serial number.
    pub fn start(&self, frozen: Frozen) -> u64 {
        let mut state = self.state.lock();
        let serial = state.next_serial;
        state.next_serial += 1;
        let progress = Progress::new(serial, frozen);
        if progress.is_over() {
            state.tell(about(progress.dispatch, What::Done));
        } else {
            state.dispatches.insert(serial, progress);
        }
        drop(state);
        self.work.notify_all();
        serial
    }

    /// Asks for the groups of a dispatch that is about to be taken off: none of them is handed out any more.  Returns
    /// whether nobody executes one, so that [`Dispatcher::freeze`] waits for nobody, and all is taken that they have told.
    /// The device is woken when that is so.
    pub fn hold(&self, serial: u64) -> bool {
        let state = self.state.lock();
        match state.dispatches.get(&serial) {
            Some(progress) => {
                progress.dispatch.freeze();
                progress.running == 0 && !progress.dispatch.has_reports()
            }
            // It has ended, and that is the last report.
            None => state.reports.iter().all(|r| r.dispatch.serial != serial),
        }
    }

    /// A dispatch that was to be taken off goes on where it is.
    pub fn release(&self, serial: u64) {
        let state = self.state.lock();
        let held = state.dispatches.get(&serial).map(|p| &p.dispatch);
        let Some(dispatch) = held.filter(|dispatch| dispatch.is_frozen()) else {
            return;
        };
        dispatch.thaw();
        drop(state);
        self.work.notify_all();
    }

    /// Takes a dispatch off; `None` if it has ended.  Waits for those who execute it, which takes them a few instructions,
    /// unless [`Dispatcher::hold`] has been asked before.  Its groups leave their units with [`Dispatcher::unseat`].
    pub fn freeze(&self, serial: u64) -> Option<Leaving> {
        let mut state = self.state.lock();
        state.dispatches.get(&serial)?.dispatch.freeze();
        while state.dispatches.get(&serial).is_some_and(|p| p.running > 0) {
            self.idle.wait(&mut state);
        }
        // The last group may have ended meanwhile.
        state.dispatches.remove(&serial).map(Leaving::new)
    }

    /// Takes groups of a dispatch that leaves off their units, so many at most; each is moved twice.  Returns whether there
    /// is more to be done.
    pub fn unseat(&self, leaving: &mut Leaving, groups: usize) -> bool {
        let mut state = self.state.lock();
        let more = (0..groups).all(|_| leaving.unseat(&mut state.units));
        drop(state);
        // There may be room for others now.
        self.work.notify_all();
        more
    }

    /// Takes the next group off that is not to go on, and gives its memory back.  Returns whether there was one.
    pub fn kill(&self, leaving: &mut Leaving) -> bool {
        let mut state = self.state.lock();
        let killed = leaving.kill(&mut state.units);
        drop(state);
        self.work.notify_one();
        killed.is_some()
    }

    /// A dispatch that was being taken off goes on after all: groups that are still on their units do so where they are.
    pub fn rejoin(&self, leaving: Leaving) {
        let progress = leaving.into_progress();
        progress.dispatch.thaw();
        let mut state = self.state.lock();
        state.dispatches.insert(progress.dispatch.serial, progress);
        drop(state);
        self.work.notify_all();
    }

    /// Something to do, if there is any.
    pub fn take(&self) -> Option<Work> {
        let mut state = self.state.lock();
        if self.is_looked_at() {
            return None;
        }
        state.pick()
    }

    /// Waits for something to do; `None` when the device is gone.
    pub fn wait(&self) -> Option<Work> {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return None;
            }
            if !self.is_looked_at() {
                if let Some(work) = state.pick() {
                    return Some(work);
                }
            }
            self.work.wait(&mut state);
        }
    }

    /// Gives a group back after a slice.
    pub fn give_back(&self, job: Job, after: After) {
        let mut state = self.state.lock();
        let serial = job.dispatch.serial;
        let room = after == After::Over;
        if room {
            state.units.release(&job.place);
        }
        let turn = state.next_turn();
        if let Some(progress) = state.dispatches.get_mut(&serial) {
            match after {
                After::Ready => progress.put_ready(turn, job),
                After::Waiting => progress.put_waiting(job),
                After::Halted => progress.put_halted(job),
                After::Over => {
                    progress.give_slots_back(&job.slots);
                    progress.resident -= 1;
                }
            }
        }
        let (mut over, mut held) = (false, None);
        if let Some(progress) = state.dispatches.get_mut(&serial) {
            progress.running -= 1;
            over = progress.is_over();
            let last = progress.running == 0 && progress.dispatch.is_frozen();
            held = (last && !over).then(|| Arc::clone(&progress.dispatch));
        }
        if over {
            if let Some(progress) = state.dispatches.remove(&serial) {
                state.tell(about(progress.dispatch, What::Done));
            }
        }
        let tells = over || held.is_some();
        if let Some(dispatch) = held {
            state.tell(about(dispatch, What::Held));
        }
        // Who gives a group back takes the next one; others may have waited for the room.
        let more = (room || after == After::Ready) && state.has_work();
        drop(state);
        if more {
            self.work.notify_one();
        }
        self.idle.notify_all();
        if tells {
            self.wake_device();
        }
    }

    /// All waves, which stand still as long as somebody looks.  Waits for those who execute, which takes them a few
    /// instructions.
    pub fn look(&self) -> Look<'_> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        let mut state = self.state.lock();
        while state.dispatches.values().any(|p| p.running > 0) {
            self.idle.wait(&mut state);
        }
        let mut waves: Vec<Seen> = Vec::new();
        for progress in state.dispatches.values() {
            waves.extend(progress.seated().flat_map(Seen::of));
            let resting = progress.without_unit();
            waves.extend(resting.flat_map(|group| Seen::of_resting(&progress.dispatch, group)));
        }
        drop(state);
        Look::new(self, waves)
    }

    /// A look ends.
    pub(super) fn end_look(&self) {
        // Under the lock: a thread that has seen the counter and not yet begun to wait would miss the notice.
        let state = self.state.lock();
        self.looks.fetch_sub(1, Ordering::SeqCst);
        drop(state);
        self.work.notify_all();
    }

    /// Whether somebody looks at the waves: groups are to be given back.
    pub fn is_looked_at(&self) -> bool {
        self.looks.load(Ordering::SeqCst) != 0
    }

    /// Whether a dispatch is under way.
    pub fn has(&self, serial: u64) -> bool {
        self.state.lock().dispatches.contains_key(&serial)
    }

    /// Tells the device something.  Returns whether it is behind with what it was told, so that the group is to be given
    /// back.
    pub fn report(&self, report: Report) -> bool {
        let mut state = self.state.lock();
        if matches!(report.what, What::Failed(_) | What::Fault { .. }) {
            // What is wrong with one group is likely to be wrong with all: no more of them begin.
            if let Some(progress) = state.dispatches.get_mut(&report.dispatch.serial) {
                progress.failed = true;
            }
        }
        state.tell(report);
        state.crowded |= state.reports.len() >= MOST_REPORTS;
        state.crowded
    }

    /// Reports that nobody has taken.
    pub fn reports(&self) -> usize {
        self.state.lock().reports.len()
    }

    /// Takes the oldest report.
    pub fn take_report(&self) -> Option<Report> {
        let mut state = self.state.lock();
        let report = state.reports.pop_front();
        if let Some(report) = &report {
            report.dispatch.count_report(false);
        }
        if state.crowded && state.reports.len() <= MOST_REPORTS / 2 {
            state.crowded = false;
            drop(state);
            self.work.notify_all();
        }
        report
    }

    /// Lets the groups that wait for translations try again; returns whether there are any.
    pub fn retry(&self) -> bool {
        let mut state = self.state.lock();
        let turn = state.next_turn();
        let mut any = false;
        for progress in state.dispatches.values_mut() {
            any |= progress.is_waiting();
            progress.retry(turn);
        }
        drop(state);
        if any {
            self.work.notify_all();
        }
        any
    }

    /// Whether groups wait for translations.
    pub fn is_waiting(&self) -> bool {
        let state = self.state.lock();
        state.dispatches.values().any(Progress::is_waiting)
    }

    /// Whether somebody might execute something now.
    pub fn has_work(&self) -> bool {
        self.state.lock().has_work()
    }

    /// Groups that have begun, and waves on the units now.
    pub fn figures(&self) -> (u64, u32) {
        let state = self.state.lock();
        (state.begun, state.units.waves())
    }

    /// Who wakes the device from its sleep.
    pub fn set_waker(&self, waker: Waker) {
        *self.waker.lock() = Some(waker);
    }

    /// The device is about to sleep, under its lock; false if it must not: reports are there that it takes in its next
    /// step.  While all stands still, the device takes none, so they keep nobody awake.
    pub fn may_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let state = self.state.lock();
        let may = state.still || state.reports.is_empty();
        drop(state);
        if !may {
            self.asleep.store(false, Ordering::SeqCst);
        }
        may
    }

    /// The device is awake.
    pub fn awake(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Wakes the device if it sleeps.  The caller holds nothing that the device waits for.
    pub fn wake_device(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            if let Some(waker) = &*self.waker.lock() {
                waker();
            }
        }
    }

    /// Hands nothing out, or again.
    pub fn stand_still(&self, still: bool) {
        self.state.lock().still = still;
        self.work.notify_all();
    }

    /// Ends the threads that wait for work.
    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.work.notify_all();
    }
}

/// Says something of a dispatch as a whole.
fn about(dispatch: Arc<Dispatch>, what: What) -> Report {
    Report {
        dispatch,
        spot: Spot::default(),
        what,
    }
}
