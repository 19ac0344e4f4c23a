// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Runs waves: fetches, decodes once, executes.
//!
//! A [`Processor`] keeps what it has decoded by pages of code.  It belongs to one address space and one thread; the
//! version of a page ([`Memory::code_version`](crate::env::Memory::code_version)) tells whether it is still the code
//! that was decoded.

use crate::decode::DecodeError;
use crate::decode::Decoder;
use crate::env::Env;
use crate::env::MemoryFault;
use crate::env::CODE_PAGE;
use crate::exec::Exception;
use crate::exec::Executor;
use crate::exec::Flow;
use crate::exec::Prepared;
use crate::inst::Asic;
use crate::inst::Inst;
use crate::observe::Nobody;
use crate::observe::Observer;
use crate::wave::Wave;
use std::collections::HashMap;

/// Instructions that begin in one page, at most.
const SLOTS: usize = (CODE_PAGE / 4) as usize;
/// Pages that are kept.
const PAGES: usize = 1024;

/// Why a wave has stopped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stop {
    /// As many instructions as were allowed have been executed.
    Budget,
    /// The last instruction leads elsewhere than to the next one.
    Flow(Flow),
    /// The instruction at PC was not executed.
    Exception(Exception),
    /// The code at PC cannot be read.
    Fetch(MemoryFault),
    /// The words at PC are no instruction.
    Undecodable(DecodeError),
}

/// Instructions of one page.
struct Page {
    version: Option<u64>,
    /// Number of the instruction at each dword plus one; 0 where none has been decoded.
    slots: Box<[u16; SLOTS]>,
    code: Vec<Prepared>,
}

impl Page {
    fn new(version: Option<u64>) -> Self {
        Self {
            version,
            slots: Box::new([0; SLOTS]),
            code: Vec::new(),
        }
    }

    #[inline]
    fn get(&self, pc: u64) -> Option<&Prepared> {
        let slot = self.slots[(pc / 4) as usize % SLOTS];
        self.code.get(usize::from(slot).wrapping_sub(1))
    }

    fn add(&mut self, pc: u64, code: Prepared) {
        self.code.push(code);
        self.slots[(pc / 4) as usize % SLOTS] = self.code.len() as u16;
    }
}

/// Executes code of one address space.
pub struct Processor {
    decoder: Decoder,
    executor: Executor,
    pages: Vec<Page>,
    by_address: HashMap<u64, usize>,
}

impl Processor {
    /// A processor of `asic` that has decoded nothing.
    pub fn new(asic: Asic) -> Self {
        Self {
            decoder: Decoder::new(asic),
            executor: Executor::new(asic),
            pages: Vec::new(),
            by_address: HashMap::new(),
        }
    }

    /// The ASIC.
    pub fn asic(&self) -> Asic {
        self.decoder.asic()
    }

    /// Forgets what was decoded.
    pub fn forget(&mut self) {
        self.pages.clear();
        self.by_address.clear();
    }

    /// The instruction at `pc`.
    ///
    /// # Errors
    /// Where it cannot be read or is none.
    pub fn decode(&self, pc: u64, env: &mut Env<'_>) -> Result<Inst, Stop> {
        let mut words = [0; 2];
        env.memory.fetch(pc, &mut words[..1]).map_err(Stop::Fetch)?;
        match self.decoder.decode(&words[..1]) {
            Err(DecodeError::Truncated) => {}
            other => return other.map_err(Stop::Undecodable),
        }
        env.memory
            .fetch(pc.wrapping_add(4), &mut words[1..])
            .map_err(Stop::Fetch)?;
        self.decoder.decode(&words).map_err(Stop::Undecodable)
    }

    /// The place of the page at `address`, as its code is now.
    fn page(&mut self, address: u64, env: &mut Env<'_>) -> Result<usize, Stop> {
        let version = env.memory.code_version(address).map_err(Stop::Fetch)?;
        if let Some(at) = self.by_address.get(&address).copied() {
            if version.is_none() || self.pages[at].version != version {
                self.pages[at] = Page::new(version);
            }
            return Ok(at);
        }
        if self.pages.len() >= PAGES {
            self.forget();
        }
        self.pages.push(Page::new(version));
        let at = self.pages.len() - 1;
        self.by_address.insert(address, at);
        Ok(at)
    }

    /// Executes at most `budget` instructions of `wave`; returns how many, and why no more.
    ///
    /// What stops a wave with [`Flow::Barrier`], [`Flow::Sleep`] and the like was executed and counts.
    pub fn run(&mut self, wave: &mut Wave, env: &mut Env<'_>, budget: u64) -> (u64, Stop) {
        self.observe(wave, env, budget, &mut Nobody)
    }

    /// As [`Processor::run`], with an observer.
    pub fn observe<O: Observer + ?Sized>(
        &mut self,
        wave: &mut Wave,
        env: &mut Env<'_>,
        budget: u64,
        observer: &mut O,
    ) -> (u64, Stop) {
        let mut done = 0;
        let stop = self.run_counting(wave, env, budget, &mut done, observer);
        (done, stop)
    }

    fn run_counting<O: Observer + ?Sized>(
        &mut self,
        wave: &mut Wave,
        env: &mut Env<'_>,
        budget: u64,
        done: &mut u64,
        observer: &mut O,
    ) -> Stop {
        // No page begins at an odd address.
        let mut address = 1;
        let mut at = 0;
        while *done < budget {
            let pc = wave.pc;
            if pc & !(CODE_PAGE - 1) != address {
                address = pc & !(CODE_PAGE - 1);
                at = match self.page(address, env) {
                    Ok(at) => at,
                    Err(stop) => return stop,
                };
            }
            let page = &self.pages[at];
            let result = match page.get(pc) {
                Some(code) => watched(code, wave, env, observer),
                None => {
                    let inst = match self.decode(pc, env) {
                        Ok(inst) => inst,
                        Err(stop) => return stop,
                    };
                    let code = self.executor.prepare(inst);
                    // What ends in the next page does not stay: that page may change by itself.
                    let last = pc.wrapping_add(u64::from(inst.size) - 1);
                    if last & !(CODE_PAGE - 1) == address {
                        self.pages[at].add(pc, code);
                    }
                    watched(&code, wave, env, observer)
                }
            };
            match result {
                Ok(Flow::Next) => *done += 1,
                Ok(flow @ Flow::Wait) => return Stop::Flow(flow),
                Ok(Flow::Refetch) => {
                    *done += 1;
                    address = 1;
                }
                Ok(flow) => {
                    *done += 1;
                    return Stop::Flow(flow);
                }
                Err(exception) => return Stop::Exception(exception),
            }
        }
        Stop::Budget
    }
}

/// Executes one instruction with an observer.
#[inline(always)]
fn watched<O: Observer + ?Sized>(
    code: &Prepared,
    wave: &mut Wave,
    env: &mut Env<'_>,
    observer: &mut O,
) -> Result<Flow, Exception> {
    observer.before(wave, &code.inst);
    let result = code.execute(wave, env);
    observer.after(wave, &code.inst, result);
    result
}
