// SPDX-License-Identifier: GPL-2.0

//! A process as the owner of queues that use its memory.

use super::shared::Process;
use crate::{
    kfd::smi::{
        EvictionTrigger,
        SmiEvent, //
    },
    queue::{
        space::Space,
        userptr::{
            self,
            Change,
            Eviction,
            Owner, //
        }, //
    },
    vm::{
        Bo,
        BoKind, //
    },
};
use kernel::{
    impl_has_work,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    workqueue::WorkItem, //
};

impl_has_work! {
    impl HasWork<Self> for Process { self.restore }
}

impl WorkItem for Process {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        userptr::restore(&this);
    }
}

impl Owner for Process {
    const ENDS_WITH_MEMORY: bool = true;

    fn eviction(&self) -> &Mutex<Eviction> {
        &self.eviction
    }

    fn spaces(&self) -> impl Iterator<Item = &Space> {
        self.devices.iter().map(|device| device.space())
    }

    fn buffers(&self) -> Result<KVVec<Arc<Bo>>> {
        let mut buffers = KVVec::new();
        let state = self.state.lock();
        for (_, allocation) in state.devices.iter().flat_map(|d| d.allocations.iter()) {
            if allocation.bo.kind() == BoKind::Userptr {
                buffers.push(allocation.bo.clone(), GFP_KERNEL_ACCOUNT)?;
            }
        }
        drop(state);
        Ok(buffers)
    }

    fn has_ended(&self) -> bool {
        self.is_over()
    }

    fn pid(&self) -> i32 {
        self.group().pid()
    }

    fn report(&self, space: usize, change: Change) {
        let event = match change {
            Change::Evicted => SmiEvent::QueueEviction(self.group(), EvictionTrigger::Userptr),
            Change::Restored => SmiEvent::QueueRestore(self.group()),
            Change::Delayed => SmiEvent::QueueRestoreDelayed(self.group()),
        };
        if let Some(device) = self.devices.get(space) {
            device.device().report(&event);
        }
    }

    fn schedule(self: &Arc<Self>) {
        self.enqueue::<0>();
    }
}
