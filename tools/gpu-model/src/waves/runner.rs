// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Executes workgroups: one thread's decoded code, translations and memory.

use std::sync::Arc;

use gfx9_isa::env::{Gws, GwsOp, Messages};
use gfx9_isa::exec::Exception;
use gfx9_isa::group::{Event, Group, Host, State};
use gfx9_isa::processor::{Processor, Stop};
use gfx9_isa::races::Finding;
use rustc_hash::FxHashMap;

use super::code::{CodePages, WaveMemory};
use super::dispatcher::Dispatcher;
use super::job::{After, Dispatch, Job, Waves, Work};
use super::kernel::Kernel;
use super::report::{Failure, Report, Spot, What};
use super::sync::Resources;
use super::watch::{Recorder, Watchers};
use crate::clock::Clock;
use crate::mem::Bus;
use crate::vm::executor::Executor;
use crate::vm::own::Post;
use crate::vm::space::Spaces;
use crate::vm::window::{Fault, PageCache};
use crate::vm::{Access, Client, HubId, CID_TCP};

/// Instructions between two quiescent points.
const BATCH: u64 = 1024;
/// Instructions after which one who executes looks whether the group is to be given back: so many at most go on executing
/// when a queue is taken off, or the device is reset.
const LOOK: u64 = 64;
/// Batches of a slice.
const SLICE: u32 = 32;
/// Exceptions that trap handlers have taken over, of a slice, which are reported.
const HANDLED: u32 = 16;
/// Address spaces whose decoded code a runner keeps.
const SPACES: usize = 4;

/// Bits of TRAPSTS.
mod trapsts {
    pub const MEM_VIOL: u32 = 1 << 8;
    pub const ILLEGAL_INST: u32 = 1 << 11;
    pub const XNACK_ERROR: u32 = 1 << 28;
}

/// Messages of `s_sendmsg`, in its low four bits.
mod message {
    pub const INTERRUPT: u16 = 1;
    pub const GET_DOORBELL: u16 = 10;
}

/// `llvm.debugtrap`: nothing without a debugger.
const TRAP_DEBUG: u8 = 3;
/// `llvm.trap`.
const TRAP_ABORT: u8 = 2;

/// Code of one address space.
struct Code {
    processor: Processor,
    pages: CodePages,
}

/// What executes waves, for one thread.
pub struct Runner {
    memory: Executor,
    cache: PageCache,
    clock: Clock,
    /// The engine clock in MHz.
    mhz: u64,
    code: FxHashMap<u8, Code>,
}

/// What a batch of instructions has come to.
struct Batch {
    /// Why there were no more.
    event: Event,
    /// The fault that it met.
    fault: Option<Fault>,
    /// The last interrupt: M0, and whether it is privileged.
    sent: Option<(u32, bool)>,
    /// Stores to doorbells.
    posts: Vec<Post>,
}

/// The rest of the machine as a wave sees it.
struct Outside<'a> {
    clock: &'a Clock,
    mhz: u64,
    doorbell: u32,
    dispatch: &'a Dispatch,
    sync: &'a Resources,
    /// The last interrupt: M0, and whether it is privileged.
    sent: Option<(u32, bool)>,
}

impl Messages for Outside<'_> {
    fn send(&mut self, message: u16, m0: u32, privileged: bool) -> Option<u64> {
        match message & 0xF {
            message::INTERRUPT => {
                self.sent = Some((m0 & 0xFF_FFFF, privileged));
                None
            }
            message::GET_DOORBELL => Some(u64::from(self.doorbell)),
            _ => None,
        }
    }

    fn clock(&mut self, constant: bool) -> u64 {
        if constant {
            self.clock.ticks()
        } else {
            let ns = u128::from(self.clock.now_ns());
            // It wraps, as a counter does.
            (ns * u128::from(self.mhz) / 1000) as u64
        }
    }

    fn gws(&mut self, op: GwsOp, resource: u32, value: u32, ticket: &mut u64) -> Gws {
        let share = self.dispatch.kernel.sync;
        self.sync.operate(share, op, (resource, value), ticket)
    }

    fn instructions_changed(&mut self) {
        self.dispatch.invalidate_code();
    }
}

impl Runner {
    /// Registers the calling thread as one that executes; `mhz` is the engine clock.
    pub fn new(bus: &Arc<Bus>, spaces: &Arc<Spaces>, clock: Clock, mhz: u32) -> Self {
        Self {
            memory: Executor::new(bus, spaces),
            cache: PageCache::default(),
            clock,
            mhz: u64::from(mhz.max(1)),
            code: FxHashMap::default(),
        }
    }

    /// Executes a slice of a group, or less if `stop` asks for it.
    pub fn run(&mut self, dispatcher: &Dispatcher, work: Work, stop: &dyn Fn() -> bool) {
        let fresh = matches!(work, Work::Begin { .. });
        let mut job = match work {
            Work::Resume(job) => job,
            Work::Begin {
                dispatch,
                number,
                place,
                slots,
            } => {
                let id = dispatch.kernel.id(number);
                let waves = dispatch.kernel.group(id, &place.seats, &slots);
                let lds = dispatch.kernel.demand().lds as usize;
                // The same dispatch executes in the same order again.
                let seed = number ^ dispatch.kernel.packet.rotate_left(32);
                Job {
                    group: Waves(Group::new(waves, lds, seed)),
                    dispatch,
                    id,
                    place,
                    slots,
                    check: None,
                }
            }
        };
        if job.check.is_some() || dispatcher.watch.is_on() {
            dispatcher.watch.attach(&mut job, fresh);
        }
        let mut reported = false;
        let mut recorder = self.recorder(dispatcher, &job);
        let after = self.slice(dispatcher, &mut job, stop, &mut reported, recorder.as_mut());
        self.memory.pause();
        if let Some(recorder) = &recorder {
            dispatcher.watch.close(recorder);
        }
        dispatcher.give_back(job, after);
        if reported {
            dispatcher.wake_device();
        }
    }

    fn slice(
        &mut self,
        dispatcher: &Dispatcher,
        job: &mut Job,
        stop: &dyn Fn() -> bool,
        reported: &mut bool,
        mut recorder: Option<&mut Recorder>,
    ) -> After {
        let mut batches = 0;
        let mut behind = false;
        // A handler may return to what has trapped, for ever.
        let mut left = HANDLED;
        loop {
            let away = job.dispatch.is_frozen() || dispatcher.is_looked_at();
            if away || behind || batches == SLICE || stop() {
                return After::Ready;
            }
            let Batch {
                event,
                fault,
                sent,
                posts,
            } = self.batch(dispatcher, job, stop, recorder.as_deref_mut());
            if is_failure(event) {
                self.learn_name(&job.dispatch);
            }
            let findings = self.findings(dispatcher, job);
            let mut tell = |job: &Job, spot: Spot, what| {
                if matches!(what, What::Handled(_)) {
                    if left == 0 {
                        return;
                    }
                    left -= 1;
                }
                *reported = true;
                behind = dispatcher.report(Report {
                    dispatch: Arc::clone(&job.dispatch),
                    spot,
                    what,
                });
            };
            if !posts.is_empty() {
                tell(job, job.spot(0), What::Posted(posts));
            }
            if !findings.is_empty() {
                tell(job, job.spot(0), What::Lds(findings));
            }
            match event {
                Event::Budget => batches += 1,
                Event::Done | Event::Saved => return After::Over,
                Event::Stalled => return stalled(&job.group.0),
                Event::Message { wave, .. } => {
                    if let Some((m0, privileged)) = sent {
                        tell(job, job.spot(wave), What::Message(m0, privileged));
                    }
                }
                Event::Retry { wave, .. } => match fault {
                    Some(fault) => tell(job, job.spot(wave), What::Retry(fault)),
                    // Its stores to doorbells have no room: it tries again when the device has had time for others.
                    None => {
                        job.group.0.resume(wave);
                        return After::Ready;
                    }
                },
                Event::Halt { .. } => {}
                Event::Fault { wave, address, .. } => {
                    let spot = job.spot(wave);
                    let (bits, failure) = match fault {
                        Some(_) => (
                            trapsts::MEM_VIOL | trapsts::XNACK_ERROR,
                            Failure::Memory { va: address },
                        ),
                        None => (trapsts::MEM_VIOL, Failure::Aperture { va: address }),
                    };
                    let handled = trap(job, wave, bits, 0);
                    if let Some(fault) = fault {
                        tell(job, spot, What::Fault { fault, handled });
                    }
                    tell(job, spot, failed(failure, handled));
                }
                Event::Illegal { wave, why } => {
                    let spot = job.spot(wave);
                    let (pc, name) = (spot.pc, mnemonic(why));
                    let handled = trap(job, wave, trapsts::ILLEGAL_INST, 0);
                    tell(job, spot, failed(Failure::Illegal { pc, name }, handled));
                }
                Event::Trap { wave, id } => {
                    let spot = job.spot(wave);
                    let handled = trap(job, wave, 0, id);
                    match id {
                        // Nothing without a debugger.
                        TRAP_DEBUG if handled => {}
                        TRAP_DEBUG => skip(&mut job.group.0, wave),
                        TRAP_ABORT => tell(job, spot, failed(Failure::Abort, handled)),
                        id => tell(job, spot, failed(Failure::Trap(id), handled)),
                    }
                }
                Event::Math { wave, raised } => {
                    let spot = job.spot(wave);
                    let handled = trap(job, wave, 0, 0);
                    tell(job, spot, failed(Failure::Math(raised), handled));
                }
            }
        }
    }

    /// What the checker has found in the last batch; the kernel's name is known then.
    fn findings(&mut self, dispatcher: &Dispatcher, job: &mut Job) -> Vec<Finding> {
        let entry = job.dispatch.kernel.entry;
        let Some(check) = &mut job.check else {
            return Vec::new();
        };
        let findings = dispatcher.watch.new_findings(entry, check);
        if !findings.is_empty() {
            self.learn_name(&job.dispatch);
        }
        findings
    }

    /// What watches the next slice of a group, if somebody wants to know of it.
    fn recorder(&mut self, dispatcher: &Dispatcher, job: &Job) -> Option<Recorder> {
        if !dispatcher.watch.is_on() {
            return None;
        }
        self.learn_name(&job.dispatch);
        dispatcher.watch.recorder(&job.dispatch, job.id)
    }

    /// Finds out what a kernel is called.
    fn learn_name(&mut self, dispatch: &Dispatch) {
        let client = client(&dispatch.kernel);
        let mut window = self.memory.window(client, false, &mut self.cache);
        dispatch
            .learn_name(&mut |va, bytes: &mut [u8]| window.read(va, bytes, Access::Read).is_ok());
    }

    /// Executes up to a batch of instructions, less if the group is to be given back.
    fn batch(
        &mut self,
        dispatcher: &Dispatcher,
        job: &mut Job,
        stop: &dyn Fn() -> bool,
        mut recorder: Option<&mut Recorder>,
    ) -> Batch {
        let kernel = &job.dispatch.kernel;
        if self.code.len() >= SPACES && !self.code.contains_key(&kernel.vmid) {
            self.code.clear();
        }
        let code = self.code.entry(kernel.vmid).or_insert_with(|| Code {
            processor: Processor::new(kernel.isa),
            pages: CodePages::default(),
        });
        self.memory.quiesce();
        let window = self
            .memory
            .window(client(kernel), kernel.retries, &mut self.cache)
            .with_own(dispatcher.posts.ranges(), dispatcher.posts.room());
        let version = (job.dispatch.serial, job.dispatch.code());
        let mut memory = WaveMemory::new(window, &mut code.pages, version);
        let mut outside = Outside {
            clock: &self.clock,
            mhz: self.mhz,
            doorbell: kernel.doorbell,
            dispatch: &job.dispatch,
            sync: &dispatcher.sync,
            sent: None,
        };
        let mut host = Host {
            processor: &mut code.processor,
            memory: &mut memory,
            messages: &mut outside,
        };
        let mut checker = job.check.as_mut().map(|check| &mut *check.0);
        let (group, dispatch) = (&mut job.group.0, &job.dispatch);
        let execute = |count| {
            if recorder.is_some() || checker.is_some() {
                let mut watchers = Watchers {
                    recorder: recorder.as_deref_mut(),
                    checker: checker.as_deref_mut(),
                };
                group.observe(&mut host, count, &mut watchers)
            } else {
                group.run(&mut host, count)
            }
        };
        let asked = || dispatch.is_frozen() || dispatcher.is_looked_at() || stop();
        let event = in_looks(execute, asked);
        let sent = outside.sent;
        let posts = memory.take_posts();
        dispatcher.posts.sent(posts.len());
        Batch {
            event,
            fault: memory.take_fault(),
            sent,
            posts,
        }
    }
}

/// Executes a batch with `execute`, which does so with as many instructions as it is told unless there is another event,
/// and looks in between whether the group is to be given back.
fn in_looks(mut execute: impl FnMut(u64) -> Event, asked: impl Fn() -> bool) -> Event {
    for _ in 1..BATCH / LOOK {
        let event = execute(LOOK);
        if event != Event::Budget || asked() {
            return event;
        }
    }
    execute(LOOK)
}

/// As whom the waves of a kernel access memory.
pub fn client(kernel: &Kernel) -> Client {
    Client {
        hub: HubId::Gfx,
        vmid: kernel.vmid,
        cid: CID_TCP,
    }
}

/// Whether the event is one that may halt a wave for good.
fn is_failure(event: Event) -> bool {
    matches!(
        event,
        Event::Fault { .. } | Event::Illegal { .. } | Event::Trap { .. } | Event::Math { .. }
    )
}

/// No wave of the group is ready.
fn stalled(group: &Group) -> After {
    let any = |state: State| (0..group.len()).any(|wave| group.state(wave) == state);
    if any(State::Retry) {
        After::Waiting
    } else if any(State::Ready) {
        // Those in global wave sync try again after others.
        After::Ready
    } else {
        After::Halted
    }
}

/// Lets a halted wave enter its trap handler, if it has one; `bits` go to TRAPSTS.  A handler that fails itself has none.
fn trap(job: &mut Job, wave: usize, bits: u32, id: u8) -> bool {
    let traps = job.dispatch.kernel.traps;
    let group = &mut job.group.0;
    let Some(state) = group.wave_mut(wave) else {
        return false;
    };
    state.trapsts |= bits;
    if !traps || state.privileged() {
        return false;
    }
    state.enter_trap(id, false);
    group.resume(wave);
    true
}

/// What a failure comes to: the queue's business, or that of the trap handler.
fn failed(failure: Failure, handled: bool) -> What {
    if handled {
        What::Handled(failure)
    } else {
        What::Failed(failure)
    }
}

/// Lets a wave go on behind its `s_trap`.
fn skip(group: &mut Group, wave: usize) {
    if let Some(state) = group.wave_mut(wave) {
        state.pc = state.pc.wrapping_add(4);
    }
    group.resume(wave);
}

fn mnemonic(why: Stop) -> Option<&'static str> {
    match why {
        Stop::Exception(Exception::Illegal { name, .. } | Exception::Unimplemented { name }) => {
            Some(name)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;

    proptest! {
        /// A batch is as long as ever, and when the group is asked for, the looks that have begun are the last ones.
        #[test]
        fn few_instructions_follow_when_a_group_is_asked_for(at in 0..2 * BATCH, ends in any::<bool>()) {
            let (done, most) = (Cell::new(0), Cell::new(0));
            let execute = |count: u64| {
                let begun = done.get();
                done.set(begun + count);
                most.set(count.max(most.get()));
                if ends && (begun..done.get()).contains(&at) {
                    Event::Stalled
                } else {
                    Event::Budget
                }
            };
            let event = in_looks(execute, || !ends && done.get() > at);
            let want = if at < BATCH { at / LOOK * LOOK + LOOK } else { BATCH };
            prop_assert_eq!((done.get(), most.get()), (want, LOOK));
            let stalled = ends && at < BATCH;
            prop_assert_eq!(event, if stalled { Event::Stalled } else { Event::Budget });
        }
    }
}
