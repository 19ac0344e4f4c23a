// SPDX-License-Identifier: GPL-2.0 OR MIT
//! One thread: chooses a call, makes it, again and again.

use std::sync::Arc;

use rkfd::sys::Mapping;
use rkfd::sys::PAGE;

use super::dice::Dice;
use super::process::Process;
use super::raw::Argument;

/// Pages of the memory whose fate a thread plays with.
pub const CHURNED: usize = 64;

/// A thread.
pub struct Thread<'a> {
    pub process: &'a Process,
    pub dice: Dice,
    /// Memory that only this thread accesses, and that buffers lie over.
    pub churned: Arc<Mapping>,
    /// As much, where pages are moved.
    pub other: Mapping,
    /// Id of the mirror that it has made last; 0: none.
    pub newest_mirror: u32,
    pub argument: Box<Argument>,
}

/// Makes a call.
type Call<'a> = fn(&mut Thread<'a>);

impl<'a> Thread<'a> {
    /// The calls, and how often each is chosen.
    const CHOICES: [(u32, Call<'a>); 34] = [
        (12, Self::alloc),
        (8, Self::free),
        (10, Self::map),
        (8, Self::unmap),
        (6, Self::look),
        (5, Self::share),
        (6, Self::create_queue),
        (1, Self::destroy_queue),
        (5, Self::update_queue),
        (3, Self::cu_mask),
        (2, Self::wave_state),
        (2, Self::queue_gws),
        (12, Self::submit),
        (4, Self::create_event),
        (3, Self::destroy_event),
        (4, Self::set_event),
        (3, Self::reset_event),
        (5, Self::wait_events),
        (10, Self::about_process),
        (8, Self::fixed_answers),
        (8, Self::svm),
        (3, Self::bad_argument),
        (3, Self::odd_size),
        (2, Self::smi_events),
        (2, Self::acquire_vm),
        (3, Self::open_again),
        (3, Self::kfd_mmap),
        (3, Self::render_mmap),
        (5, Self::amdgpu_info),
        (4, Self::drm),
        (20, Self::native),
        (8, Self::churn),
        (2, Self::transient),
        (1, Self::fork),
    ];

    /// A thread of `process`.
    ///
    /// # Errors
    /// mmap's.
    pub fn new(process: &'a Process, dice: Dice) -> anyhow::Result<Self> {
        Ok(Self {
            process,
            dice,
            churned: Arc::new(Mapping::anonymous(CHURNED * PAGE)?),
            other: Mapping::anonymous(CHURNED * PAGE)?,
            newest_mirror: 0,
            argument: Argument::new(),
        })
    }

    /// Makes calls until the plan's end; `checks`: looks at what must not change, too.
    pub fn run(mut self, checks: bool) {
        let all: u64 = Self::CHOICES
            .iter()
            .map(|(weight, _)| u64::from(*weight))
            .sum();
        for made in 0..self.process.plan.calls.unwrap_or(u64::MAX) {
            if self.process.plan.tally.is_stopped() {
                break;
            }
            let mut at = self.dice.below(all);
            let chosen = Self::CHOICES.iter().find(|(weight, _)| {
                let here = at < u64::from(*weight);
                at = at.saturating_sub(u64::from(*weight));
                here
            });
            self.dice.begin();
            if let Some((_, call)) = chosen {
                call(&mut self);
            }
            if checks && made % 256 == 0 {
                self.process.check();
            }
        }
    }

    /// An address for a pointer, or one that leads nowhere.
    pub fn pointer(&mut self, right: usize) -> u64 {
        // CAST: addresses.
        self.dice
            .pointer(right as u64, self.process.hole.address() as u64)
    }
}
