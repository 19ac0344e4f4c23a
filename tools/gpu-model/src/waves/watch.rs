// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Profiles of kernels, traces of instructions, and the checker of LDS.
//!
//! As long as none is on, what executes looks at one flag per slice of a group.  Otherwise each slice gets [`Recorder`],
//! an observer of its instructions, and hands over what these have seen when it ends.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use gfx9_isa::exec::cost::{Class, Costs, Traffic};
use gfx9_isa::exec::touch::Touches;
use gfx9_isa::exec::{Exception, Flow};
use gfx9_isa::inst::{Inst, Operand};
use gfx9_isa::observe::Observer;
use gfx9_isa::races::{Checker, Finding, Mistake};
use gfx9_isa::tables::Ty;
use gfx9_isa::text::text;
use gfx9_isa::wave::Wave;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};

use super::job::{Check, Dispatch, Job};
use super::names::Identity;

/// Kernels of a profile, and instructions of a kernel; what is more is counted without its place.
const KERNELS: usize = 1024;
const PLACES: usize = 1 << 16;

/// What is known of one instruction of a kernel.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The instruction as it was executed last.
    pub inst: Inst,
    /// How often waves have executed it.
    pub count: u64,
    /// See [`Traffic::conflicts`].
    pub conflicts: u64,
}

/// What was executed.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Instructions of each class, in the order of [`Class::ALL`], and what they have moved.
    pub classes: [(u64, Traffic); Class::ALL.len()],
    /// By address.
    pub places: FxHashMap<u64, Place>,
}

impl Tally {
    fn count(&mut self, pc: u64, inst: &Inst, traffic: Traffic) {
        let class = Class::of(inst.row);
        let of_class = Class::ALL.iter().position(|known| *known == class);
        if let Some(slot) = of_class.and_then(|at| self.classes.get_mut(at)) {
            slot.0 += 1;
            add(&mut slot.1, traffic);
        }
        self.place(pc, inst, 1, traffic.conflicts);
    }

    fn place(&mut self, pc: u64, inst: &Inst, count: u64, conflicts: u64) {
        if self.places.len() >= PLACES && !self.places.contains_key(&pc) {
            return;
        }
        let place = self.places.entry(pc).or_insert(Place {
            inst: *inst,
            count: 0,
            conflicts: 0,
        });
        place.inst = *inst;
        place.count += count;
        place.conflicts += conflicts;
    }

    fn merge(&mut self, other: &Tally) {
        for (to, from) in self.classes.iter_mut().zip(&other.classes) {
            to.0 += from.0;
            add(&mut to.1, from.1);
        }
        for (pc, place) in &other.places {
            self.place(*pc, &place.inst, place.count, place.conflicts);
        }
    }

    /// All instructions.
    pub fn instructions(&self) -> u64 {
        self.classes.iter().map(|(count, _)| count).sum()
    }

    /// The addresses at which most has been executed, these first.
    pub fn top(&self, most: usize) -> Vec<(u64, Place)> {
        let mut places: Vec<_> = self
            .places
            .iter()
            .map(|(pc, place)| (*pc, *place))
            .collect();
        places.sort_by_key(|(pc, place)| (std::cmp::Reverse(place.count), *pc));
        places.truncate(most);
        places
    }
}

fn add(to: &mut Traffic, from: Traffic) {
    to.loaded += from.loaded;
    to.stored += from.stored;
    to.conflicts += from.conflicts;
}

/// A kernel in a profile: its name, if a code object tells, where it begins, and the code object.
pub type Key = (Option<String>, u64, Option<Identity>);

#[derive(Debug, Default)]
struct Profile {
    /// Only kernels with this in their names.
    part: Option<String>,
    /// Which profile it is.
    number: u64,
    running: bool,
    kernels: BTreeMap<Key, Tally>,
}

/// Which waves a trace has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of kernels with this in their names.
    pub kernel: Option<String>,
    /// Of this group.
    pub group: Option<[u32; 3]>,
    /// With this number in their group.
    pub wave: Option<u32>,
}

impl Filter {
    /// Group and number as `X,Y,Z:N`, or one of both.
    ///
    /// # Errors
    /// The text is neither; in words.
    pub fn waves(mut self, what: &str) -> Result<Self, String> {
        let wrong = || format!("{what}: a group X,Y,Z, the number N of a wave, or X,Y,Z:N");
        let (group, wave) = match what.split_once(':') {
            Some((group, wave)) => (Some(group), Some(wave)),
            None if what.contains(',') => (Some(what), None),
            None => (None, Some(what)),
        };
        if let Some(group) = group {
            let ids: Result<Vec<u32>, _> = group.split(',').map(str::parse).collect();
            let ids = ids.map_err(|_| wrong())?;
            self.group = Some(ids.try_into().map_err(|_| wrong())?);
        }
        if let Some(wave) = wave {
            self.wave = Some(wave.parse().map_err(|_| wrong())?);
        }
        Ok(self)
    }
}

fn has_part(part: Option<&String>, name: Option<&str>) -> bool {
    part.is_none_or(|part| name.is_some_and(|name| name.contains(part)))
}

struct Trace {
    filter: Filter,
    to: Box<dyn Write + Send>,
}

/// What the checker has reported: entry of the kernel, address of the instruction, and what is wrong with it.
type Known = (u64, u64, &'static str, u64);

#[derive(Default)]
struct State {
    profile: Profile,
    trace: Option<Trace>,
    /// The checker of LDS is on, and has reported these.
    check: Option<FxHashSet<Known>>,
}

/// Who watches waves.
#[derive(Default)]
pub struct Watch {
    on: AtomicBool,
    costs: Arc<Costs>,
    touches: OnceLock<Arc<Touches>>,
    state: Mutex<State>,
}

impl Watch {
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let on = state.profile.running || state.trace.is_some() || state.check.is_some();
        self.on.store(on, Ordering::Release);
        result
    }

    /// Begins a profile of kernels with `part` in their names; what was counted before is forgotten.
    pub fn start_profile(&self, part: Option<String>) {
        self.change(|state| {
            state.profile = Profile {
                part,
                number: state.profile.number + 1,
                running: true,
                kernels: BTreeMap::new(),
            };
        });
    }

    /// Ends the profile; what was counted stays.
    pub fn stop_profile(&self) {
        self.change(|state| state.profile.running = false);
    }

    /// Whether a profile is running, and what it has so far: groups that somebody executes hand theirs over later.
    pub fn profile(&self) -> (bool, Vec<(Key, Tally)>) {
        let state = self.state.lock();
        let kernels = state.profile.kernels.iter();
        let kernels = kernels.map(|(key, tally)| (key.clone(), tally.clone()));
        (state.profile.running, kernels.collect())
    }

    /// Writes a line for each instruction of some waves from now on.
    pub fn trace(&self, filter: Filter, to: Box<dyn Write + Send>) {
        self.change(|state| state.trace = Some(Trace { filter, to }));
    }

    /// Checks accesses of groups to LDS from now on, or no more.  What was reported before is reported again.
    pub fn check(&self, on: bool) {
        self.change(|state| state.check = on.then(FxHashSet::default));
    }

    /// Gives a group its checker, or takes it away; `fresh`: it has executed nothing yet.
    pub fn attach(&self, job: &mut Job, fresh: bool) {
        let wanted = self.is_on() && self.state.lock().check.is_some();
        if !wanted {
            job.check = None;
        } else if job.check.is_none() {
            let touches = self.touches.get_or_init(Arc::default);
            let lds = job.group.0.lds().len();
            let checker = Checker::new(touches, lds, fresh);
            job.check = Some(Check(Box::new(checker)));
        }
    }

    /// Of what the checker of a group has found, that which was not reported of the kernel before.
    pub fn new_findings(&self, entry: u64, check: &mut Check) -> Vec<Finding> {
        let mut findings = check.0.take();
        if findings.is_empty() {
            return findings;
        }
        let mut state = self.state.lock();
        let Some(known) = &mut state.check else {
            return Vec::new();
        };
        findings.retain(|finding| {
            let (what, other) = match finding.mistake {
                Mistake::Race { pc, .. } => ("race", pc),
                Mistake::Unwritten => ("unwritten", 0),
                Mistake::Beyond => ("beyond", 0),
            };
            known.len() < PLACES && known.insert((entry, finding.pc, what, other))
        });
        findings
    }

    /// Whether somebody watches.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    /// What watches a slice of a group, if somebody wants to know of it.
    pub fn recorder(&self, dispatch: &Dispatch, group: [u32; 3]) -> Option<Recorder> {
        let state = self.state.lock();
        let name = dispatch.name();
        let profile = &state.profile;
        let counts = profile.running && has_part(profile.part.as_ref(), name);
        let traced = state.trace.as_ref().map(|trace| &trace.filter);
        let traced = traced.filter(|filter| {
            has_part(filter.kernel.as_ref(), name) && filter.group.is_none_or(|id| id == group)
        });
        if !counts && traced.is_none() {
            return None;
        }
        let [x, y, z] = group;
        let kernel = name.map_or_else(|| format!("{:#x}", dispatch.kernel.entry), str::to_owned);
        Some(Recorder {
            key: (
                name.map(str::to_owned),
                dispatch.kernel.entry,
                dispatch.object(),
            ),
            profile: counts.then_some(profile.number),
            tally: Tally::default(),
            title: format!("{kernel} {x},{y},{z}"),
            traced: traced.cloned(),
            lines: String::new(),
            costs: Arc::clone(&self.costs),
            number: 0,
            pc: 0,
            exec: 0,
            traffic: Traffic::default(),
        })
    }

    /// Takes what was seen.
    pub fn close(&self, recorder: &Recorder) {
        let mut state = self.state.lock();
        let profile = &mut state.profile;
        if recorder.profile == Some(profile.number) {
            let known = profile.kernels.contains_key(&recorder.key);
            if known || profile.kernels.len() < KERNELS {
                let tally = profile.kernels.entry(recorder.key.clone()).or_default();
                tally.merge(&recorder.tally);
            }
        }
        let failed = match &mut state.trace {
            Some(trace) if !recorder.lines.is_empty() => {
                trace.to.write_all(recorder.lines.as_bytes()).is_err()
            }
            _ => false,
        };
        if failed {
            eprintln!("gpu-model: the trace of instructions ends: it cannot be written");
            state.trace = None;
        }
    }

    /// Writes out what a trace has buffered.
    pub fn flush(&self) {
        if let Some(trace) = &mut self.state.lock().trace {
            // A file that cannot be written is noticed at the next line.
            let _ = trace.to.flush();
        }
    }
}

/// Watches a slice of a group.
pub struct Recorder {
    key: Key,
    /// Number of the profile that counts.
    profile: Option<u64>,
    tally: Tally,
    /// Begins each line.
    title: String,
    traced: Option<Filter>,
    lines: String,
    costs: Arc<Costs>,
    /// The wave that executes, and what it had before the instruction.
    number: usize,
    pc: u64,
    exec: u64,
    traffic: Traffic,
}

impl Recorder {
    fn line(&mut self, wave: &Wave, inst: &Inst, result: Result<Flow, Exception>) {
        let wanted = self.traced.as_ref().is_some_and(|filter| {
            let number = self.number as u32;
            filter.wave.is_none_or(|wave| wave == number)
        });
        if !wanted {
            return;
        }
        let offset = self.pc.wrapping_sub(self.key.1);
        let text = text(inst, wave.asic());
        // Writing to a String does not fail.
        let _ = write!(
            self.lines,
            "{}:{} {offset:+#x} exec={:016x} {text}",
            self.title, self.number, self.exec
        );
        match result {
            Ok(Flow::Wait) => self.lines.push_str(" ; waits"),
            Ok(_) => results(&mut self.lines, wave, inst, self.exec),
            Err(why) => {
                let _ = write!(self.lines, " ; {why}");
            }
        }
        self.lines.push('\n');
    }
}

/// What an instruction has left in its destinations: scalars, and the value of the first lane that was active.
fn results(out: &mut String, wave: &Wave, inst: &Inst, exec: u64) {
    let mut mark = " ;";
    for (operand, ty) in [(inst.dst, inst.row.dst[0]), (inst.sdst, inst.row.dst[1])] {
        if ty == Ty::None {
            continue;
        }
        for at in 0..ty.regs().min(4) {
            let lane = (exec.trailing_zeros() & 63) as usize;
            let value = |number: u8, acc: bool| {
                let number = usize::from(number) + at;
                let inside = number < wave.limits()[usize::from(acc)];
                inside.then(|| wave.vgpr(number, acc)[lane])
            };
            let shown = match operand {
                Operand::S(code) => {
                    let value = wave.sgpr.get(usize::from(code) + at);
                    value.map(|value| (format!("s{}", usize::from(code) + at), *value))
                }
                Operand::V(number) => value(number, false)
                    .map(|value| (format!("v{}[{lane}]", usize::from(number) + at), value)),
                Operand::A(number) => value(number, true)
                    .map(|value| (format!("a{}[{lane}]", usize::from(number) + at), value)),
                _ => None,
            };
            if let Some((name, value)) = shown {
                let _ = write!(out, "{mark} {name}={value:#x}");
                mark = "";
            }
        }
    }
}

impl Observer for Recorder {
    fn turn(&mut self, number: usize) {
        self.number = number;
    }

    fn before(&mut self, wave: &Wave, inst: &Inst) {
        self.pc = wave.pc;
        self.exec = wave.exec();
        if self.profile.is_some() {
            self.traffic = self.costs.traffic(wave, inst);
        }
    }

    fn after(&mut self, wave: &Wave, inst: &Inst, result: Result<Flow, Exception>) {
        let done = matches!(result, Ok(flow) if flow != Flow::Wait);
        if done && self.profile.is_some() {
            self.tally.count(self.pc, inst, self.traffic);
        }
        if self.traced.is_some() {
            self.line(wave, inst, result);
        }
    }
}

/// Who watches a slice of a group.
pub struct Watchers<'a> {
    /// For traces and profiles.
    pub recorder: Option<&'a mut Recorder>,
    /// Checks LDS.
    pub checker: Option<&'a mut Checker>,
}

impl Observer for Watchers<'_> {
    fn turn(&mut self, number: usize) {
        if let Some(recorder) = &mut self.recorder {
            recorder.turn(number);
        }
        if let Some(checker) = &mut self.checker {
            checker.turn(number);
        }
    }

    fn before(&mut self, wave: &Wave, inst: &Inst) {
        if let Some(recorder) = &mut self.recorder {
            recorder.before(wave, inst);
        }
        if let Some(checker) = &mut self.checker {
            checker.before(wave, inst);
        }
    }

    fn after(&mut self, wave: &Wave, inst: &Inst, result: Result<Flow, Exception>) {
        if let Some(recorder) = &mut self.recorder {
            recorder.after(wave, inst, result);
        }
        if let Some(checker) = &mut self.checker {
            checker.after(wave, inst, result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_name_a_group_a_wave_or_both() {
        let filter = |text: &str| Filter::default().waves(text);
        let group = |group, wave| Filter {
            kernel: None,
            group,
            wave,
        };
        assert_eq!(filter("3"), Ok(group(None, Some(3))));
        assert_eq!(filter("1,2,3"), Ok(group(Some([1, 2, 3]), None)));
        assert_eq!(filter("1,0,9:2"), Ok(group(Some([1, 0, 9]), Some(2))));
        for wrong in ["", "x", "1,2", "1,2,3,4", "1,2,3:", "1:2", "-1", "1,2,x:0"] {
            assert!(filter(wrong).is_err(), "{wrong}");
        }
    }
}
