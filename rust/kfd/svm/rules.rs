// SPDX-License-Identifier: GPL-2.0

//! What attributes mean for the mirror of one GPU, and what the GPU's SMI_EVENTS are told of it.
//!
//! Called inside the memory manager, too, with locks of pages and of mirrors: [`Svm`]'s list and the files of events are
//! innermost.

use core::ops::Range;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    attributes::{
        flags,
        Access,
        Attributes,
        GpuName, //
    },
    Svm, //
};
use crate::{
    gpu::devmem::{
        Movement,
        Stage,
        Trigger,
        Witness, //
    },
    kfd::{
        device::Device,
        smi::{
            EvictionTrigger,
            Locations,
            MigrateTrigger,
            Migration,
            SmiEvent,
            UnmapTrigger, //
        },
    },
    mirror::{
        Hidden,
        Rights,
        Rule,
        Rules,
        Wanted, //
    },
    vm::pt::PAGE, //
};

/// What one GPU of a process may do.
pub(crate) struct OnGpu {
    svm: Arc<Svm>,
    device: Arc<Device>,
    gpu: GpuName,
}

impl OnGpu {
    /// Of GPU number `number` of the process: the rules of its mirrors, and who is told of moves of the program's memory.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(svm: &Arc<Svm>, device: &Arc<Device>, number: usize) -> Result<Arc<Self>> {
        let gpu = GpuName {
            id: device.gpu_id(),
            number,
        };
        let new = Self {
            svm: svm.clone(),
            device: device.clone(),
            gpu,
        };
        Ok(Arc::new(new, GFP_KERNEL_ACCOUNT)?)
    }

    fn of(&self, attributes: &Attributes, xnack: bool) -> Rule {
        let allowed = attributes.access_of(self.gpu.number) != Access::None;
        Rule {
            rights: allowed.then_some(Rights {
                write: !attributes.has(flags::GPU_RO),
                execute: attributes.has(flags::GPU_EXEC),
            }),
            kept: !xnack || attributes.has(flags::GPU_ALWAYS_MAPPED),
        }
    }

    /// The locations that attributes of `address` name.
    fn locations(&self, address: u64) -> Locations {
        let unset = self.svm.unset();
        let page = address..address.saturating_add(PAGE);
        let ranges = self.svm.ranges.lock();
        let of = |attributes: &Attributes| Locations {
            prefetch: attributes.prefetch,
            preferred: attributes.preferred,
        };
        ranges.at(&page, &unset, of).0
    }

    /// Reports a move, but for one that is on others' account.
    fn report(&self, movement: &Movement) {
        let group = &self.svm.group;
        let trigger = match movement.trigger {
            Trigger::Request => MigrateTrigger::Prefetch,
            Trigger::Access => MigrateTrigger::GpuFault,
            Trigger::Fault => MigrateTrigger::CpuFault,
            Trigger::Eviction | Trigger::End => return,
        };
        let (page, end) = pages_of(&movement.range);
        let migration = Migration {
            page,
            pages: end - page,
            is_out: movement.is_out,
            trigger,
        };
        let event = match movement.stage {
            Stage::Begins => {
                let locations = self.locations(movement.range.start);
                SmiEvent::MigrateStart(group, migration, locations)
            }
            Stage::Ended(result) => {
                let error = result.err().map_or(0, Error::to_errno);
                SmiEvent::MigrateEnd(group, migration, error)
            }
        };
        self.device.report(&event);
    }
}

/// Numbers of the first page of a range, and of the first above.
fn pages_of(range: &Range<u64>) -> (u64, u64) {
    (range.start / PAGE, range.end.div_ceil(PAGE))
}

impl Rules for OnGpu {
    fn rule(&self, range: &Range<u64>) -> (Rule, u64) {
        let (unset, xnack) = (self.svm.unset(), self.svm.xnack());
        let ranges = self.svm.ranges.lock();
        ranges.at(range, &unset, |attributes| self.of(attributes, xnack))
    }

    fn wanted(&self, va: u64, bounds: &Range<u64>) -> Wanted {
        let unset = self.svm.unset();
        let ranges = self.svm.ranges.lock();
        let hint = |attributes: &Attributes| attributes.hint(self.gpu);
        let (hint, range) = ranges.around(va, bounds, &unset, hint);
        Wanted {
            range,
            hint,
            unasked: ranges.gap(va),
        }
    }

    fn learns_of_end(&self) -> bool {
        // Waves are saved to memory of the process when its queues are stopped, at its end, too.
        true
    }

    fn hidden(&self, range: &Range<u64>, why: Hidden) {
        let trigger = match why {
            Hidden::Change => UnmapTrigger::Notifier,
            Hidden::Migration => UnmapTrigger::Migration,
            Hidden::Unmapped => UnmapTrigger::Unmapped,
        };
        let (first, end) = pages_of(range);
        let event = SmiEvent::UnmapFromGpu(&self.svm.group, first, end - first, trigger);
        self.device.report(&event);
    }

    fn access_begins(&self, page: u64, write: bool) {
        let event = SmiEvent::PageFaultStart(&self.svm.group, page / PAGE, write);
        self.device.report(&event);
    }

    fn access_ends(&self, page: u64, moved: bool) {
        let event = SmiEvent::PageFaultEnd(&self.svm.group, page / PAGE, moved);
        self.device.report(&event);
    }

    fn memory_moves(&self, movement: &Movement) {
        self.report(movement);
    }

    fn queues_run(&self, run: bool) {
        let group = &self.svm.group;
        let event = if run {
            SmiEvent::QueueRestore(group)
        } else {
            SmiEvent::QueueEviction(group, EvictionTrigger::Svm)
        };
        self.device.report(&event);
    }
}

impl Witness for OnGpu {
    fn memory_moves(&self, movement: &Movement) {
        // Addresses of the program are those of the GPU.
        self.report(movement);
    }
}
