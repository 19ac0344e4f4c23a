// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Faults that a test switches on at run time.

use serde::Serialize;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A queue stops making progress, but can still be preempted.
    HangQueue,
    /// A queue neither progresses nor answers a preemption; only a reset frees its slot.
    IgnorePreempt,
    /// Like ignore-preempt, and a queue reset does not free the slot either; a pipe reset does.
    IgnoreQueueReset,
    /// Like ignore-preempt, and neither queue nor pipe reset frees the slot, nor the reset of a copy engine its queue;
    /// only a reset of the device does.
    IgnoreReset,
    /// Interrupt vectors vanish.
    DropInterrupts,
    /// Interrupt vectors arrive in their ring, but the message to the host is lost.
    DropMsi,
    /// End-of-pipe and status fences are not written.
    DropFences,
    /// The device falls off the bus: reads return ones.
    Die,
    /// The scheduler stops consuming its queue.
    HangHws,
    /// Preemption takes this long.
    SlowPreempt,
    /// The power controller does not answer messages, nor does it reset the device.
    DeafSmu,
    /// Invalidation requests are neither carried out nor acknowledged.
    DeafTlb,
    /// A reset of the command processor takes what is in VRAM with it.
    LoseVram,
}

impl Kind {
    /// All, with the names that the control socket and the command line have for them.
    pub const ALL: [(&'static str, Kind); 13] = [
        ("hang-queue", Kind::HangQueue),
        ("ignore-preempt", Kind::IgnorePreempt),
        ("ignore-queue-reset", Kind::IgnoreQueueReset),
        ("ignore-reset", Kind::IgnoreReset),
        ("drop-interrupts", Kind::DropInterrupts),
        ("drop-msi", Kind::DropMsi),
        ("drop-fences", Kind::DropFences),
        ("die", Kind::Die),
        ("hang-hws", Kind::HangHws),
        ("slow-preempt", Kind::SlowPreempt),
        ("deaf-smu", Kind::DeafSmu),
        ("deaf-tlb", Kind::DeafTlb),
        ("lose-vram", Kind::LoseVram),
    ];

    /// The kind of a name.
    pub fn by_name(s: &str) -> Option<Kind> {
        let named = Self::ALL.iter().find(|(name, _)| *name == s);
        named.map(|(_, kind)| *kind)
    }

    /// Names of those that can be on from the start.
    pub fn names_from_the_start() -> impl Iterator<Item = &'static str> {
        let names = Self::ALL.iter().map(|(name, _)| *name);
        names.filter(|name| Self::from_the_start(name).is_ok())
    }
}

impl Kind {
    /// What a reset by the VMM ends.
    fn ends_with_reset(self) -> bool {
        self.of_one_queue() || matches!(self, Kind::HangHws | Kind::Die)
    }

    /// A kind that can be on from the start.
    ///
    /// # Errors
    /// It is unknown, or would have no effect.
    pub fn from_the_start(name: &str) -> Result<Kind, String> {
        let kind = Kind::by_name(name).ok_or_else(|| format!("unknown fault {name}"))?;
        if kind == Kind::SlowPreempt {
            return Err("slow-preempt needs a time, which only the control socket takes".into());
        }
        // A VMM resets the device before the guest starts.
        if kind.ends_with_reset() {
            return Err(format!(
                "{name} ends when the VMM resets the device; switch it on by the control socket"
            ));
        }
        Ok(kind)
    }

    /// A state of a queue that its reset mends.
    fn of_one_queue(self) -> bool {
        matches!(
            self,
            Kind::HangQueue | Kind::IgnorePreempt | Kind::IgnoreQueueReset | Kind::IgnoreReset
        )
    }
}

/// Rules that hold unless they are switched off, for drivers that are not up to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Invalidation engines take their time; without it they are done at the next look.
    pub late_acks: bool,
    /// A long transfer goes on writing where its next part was translated to, past a flush that is not heavyweight.
    pub late_writes: bool,
    /// A request of an invalidation engine has an ADDR_RANGE also while the contexts that it names are off, so that it
    /// has nothing to do.
    pub flush_range: bool,
    /// A queue is loaded while its engine runs.
    pub load_running: bool,
    /// What the host writes to an MQD in VRAM that the device has read before is seen after the next HDP flush only.
    pub mqd_flush: bool,
    /// What the host writes to page tables is flushed before translations of the process, or of VMID 0, are invalidated.
    pub pte_flush: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            late_acks: true,
            late_writes: true,
            flush_range: true,
            load_running: true,
            mqd_flush: true,
            pte_flush: true,
        }
    }
}

impl Rules {
    /// Names of all.
    pub const NAMES: [&str; 6] = [
        "late-acks",
        "late-writes",
        "flush-range",
        "load-running",
        "mqd-flush",
        "pte-flush",
    ];

    /// Switches a rule off by its name.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn switch_off(&mut self, name: &str) -> Result<(), String> {
        match name {
            "late-acks" => self.late_acks = false,
            "late-writes" => self.late_writes = false,
            "flush-range" => self.flush_range = false,
            "load-running" => self.load_running = false,
            "mqd-flush" => self.mqd_flush = false,
            "pte-flush" => self.pte_flush = false,
            _ => {
                let known = Self::NAMES.join(", ");
                return Err(format!("unknown rule {name}; known: {known}"));
            }
        }
        Ok(())
    }
}

/// One switched-on fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Injection {
    /// Kind.
    pub kind: Kind,
    /// Only for the queue with this doorbell (dword index).
    pub doorbell: Option<u32>,
    /// How many more times; `None` for always.
    pub count: Option<u64>,
    /// Delay of slow-preempt.
    pub ms: Option<u64>,
}

/// All faults that are on.
#[derive(Debug, Default)]
pub struct Injections {
    list: Vec<Injection>,
}

/// Most faults at a time.
const MAX: usize = 256;

impl Injections {
    /// Switches a fault on; false if there are too many.
    pub fn add(&mut self, i: Injection) -> bool {
        if self.list.len() >= MAX {
            return false;
        }
        self.list.push(i);
        true
    }

    /// Switches everything off.
    pub fn clear(&mut self) {
        self.list.clear();
    }

    /// What is on.
    pub fn list(&self) -> &[Injection] {
        &self.list
    }

    fn take(&mut self, kind: Kind, doorbell: Option<u32>) -> bool {
        let hit = |i: &Injection| {
            i.kind == kind && i.count != Some(0) && (i.doorbell.is_none() || i.doorbell == doorbell)
        };
        let Some(i) = self.list.iter_mut().find(|i| hit(i)) else {
            return false;
        };
        if let Some(n) = &mut i.count {
            *n -= 1;
        }
        self.list.retain(|i| i.count != Some(0));
        true
    }

    fn has(&self, kind: Kind, doorbell: Option<u32>) -> bool {
        self.list
            .iter()
            .any(|i| i.kind == kind && (i.doorbell.is_none() || i.doorbell == doorbell))
    }

    /// Consumes one dropped interrupt.
    pub fn take_interrupt(&mut self) -> bool {
        self.take(Kind::DropInterrupts, None)
    }

    /// Consumes one lost message.
    pub fn take_msi(&mut self) -> bool {
        self.take(Kind::DropMsi, None)
    }

    /// Consumes one message that the power controller does not answer.
    pub fn take_smu_message(&mut self) -> bool {
        self.take(Kind::DeafSmu, None)
    }

    /// Consumes one invalidation request that nobody answers.
    pub fn take_invalidation(&mut self) -> bool {
        self.take(Kind::DeafTlb, None)
    }

    /// Consumes one reset of the command processor that VRAM does not survive.
    pub fn take_vram_loss(&mut self) -> bool {
        self.take(Kind::LoseVram, None)
    }

    /// Invalidation requests are not answered.
    pub fn deaf_tlb(&self) -> bool {
        self.has(Kind::DeafTlb, None)
    }

    /// Consumes one dropped fence of a queue.
    pub fn take_fence(&mut self, doorbell: u32) -> bool {
        self.take(Kind::DropFences, Some(doorbell))
    }

    /// The device is off the bus.
    pub fn dead(&self) -> bool {
        self.has(Kind::Die, None)
    }

    /// The scheduler is stuck.
    pub fn hws_hung(&self) -> bool {
        self.has(Kind::HangHws, None)
    }

    /// The queue makes no progress.
    pub fn queue_hung(&self, doorbell: u32) -> bool {
        self.has(Kind::HangQueue, Some(doorbell)) || self.refuses_preempt(doorbell)
    }

    /// The queue does not answer a preemption.
    pub fn refuses_preempt(&self, doorbell: u32) -> bool {
        self.has(Kind::IgnorePreempt, Some(doorbell)) || self.refuses_queue_reset(doorbell)
    }

    /// A queue reset does not free the queue.
    pub fn refuses_queue_reset(&self, doorbell: u32) -> bool {
        self.has(Kind::IgnoreQueueReset, Some(doorbell)) || self.refuses_pipe_reset(doorbell)
    }

    /// A pipe reset does not free the queue.
    pub fn refuses_pipe_reset(&self, doorbell: u32) -> bool {
        self.has(Kind::IgnoreReset, Some(doorbell))
    }

    /// A queue reset or pipe reset freed the queue: its fault is spent.
    pub fn queue_was_reset(&mut self, doorbell: u32) {
        self.list
            .retain(|i| !(i.kind.of_one_queue() && i.doorbell == Some(doorbell)));
    }

    /// Extra preemption time in nanoseconds for a queue.
    pub fn preempt_delay_ns(&self, doorbell: u32) -> u64 {
        let slow = |i: &&Injection| {
            i.kind == Kind::SlowPreempt && (i.doorbell.is_none() || i.doorbell == Some(doorbell))
        };
        self.list
            .iter()
            .find(slow)
            .and_then(|i| i.ms)
            .unwrap_or(0)
            .saturating_mul(1_000_000)
    }

    /// A reset of the command processor mends the scheduler and all queues but those that are not its: the ones with
    /// the doorbells of `others` stay as they are.
    pub fn clear_hangs_except(&mut self, others: &[u32]) {
        let stays = |i: &Injection| i.doorbell.is_some_and(|d| others.contains(&d));
        self.list
            .retain(|i| i.kind != Kind::HangHws && (!i.kind.of_one_queue() || stays(i)));
    }

    /// A full reset mends hung engines and queues, and the fences of a queue arrive again.
    pub fn clear_hangs(&mut self) {
        self.clear_hangs_except(&[]);
        self.list
            .retain(|i| i.kind != Kind::DropFences || i.doorbell.is_none());
    }

    /// A VMM reset brings back a device that fell off the bus.
    pub fn revive(&mut self) {
        self.clear_hangs();
        self.list.retain(|i| i.kind != Kind::Die);
    }
}
