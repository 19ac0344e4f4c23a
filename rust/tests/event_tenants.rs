// SPDX-License-Identifier: GPL-2.0

//! Who hears what a GPU reports: the owner of one address space, or those of all.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

use crate::{
    event::{
        reasons::Reasons,
        tenants::{
            Loss,
            Tenant,
            Tenants, //
        },
    },
    gpu::VmFault,
    kapi::task::ThreadGroup,
};

/// Counts reports; how many there are shows in `live`.
struct Listener {
    group: ThreadGroup,
    heard: Atomic<i32>,
    live: Arc<Atomic<i32>>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.live.add(-1, Relaxed);
    }
}

impl Tenant for Listener {
    fn group(&self) -> &ThreadGroup {
        &self.group
    }

    fn has_queues(&self) -> bool {
        false
    }

    fn interrupt(&self, _id: u32) {}

    fn interrupts_lost(&self) {}

    fn faulted(&self, _fault: &VmFault) -> bool {
        false
    }

    fn faults_dropped(&self, _count: u64) {}

    fn lost(&self, _what: Loss) {
        self.heard.add(1, Relaxed);
    }

    fn queue_failed(&self, _doorbell: u32, _reasons: Reasons) -> bool {
        false
    }
}

/// Address spaces, two of which have the first and the last PASID.
const PASIDS: [u16; 4] = [1, 2, 700, u16::MAX];

/// A list of tenants, and who is in it.
struct Bench {
    tenants: Arc<Tenants>,
    live: Arc<Atomic<i32>>,
}

impl Bench {
    fn new() -> Result<Self> {
        Ok(Self {
            tenants: Tenants::new()?,
            live: Arc::new(Atomic::new(0), GFP_KERNEL)?,
        })
    }

    fn listener(&self) -> Result<Arc<Listener>> {
        let listener = Listener {
            group: ThreadGroup::current(),
            heard: Atomic::new(0),
            live: self.live.clone(),
        };
        self.live.add(1, Relaxed);
        Ok(Arc::new(listener, GFP_KERNEL)?)
    }

    /// Has one listen to each of [`PASIDS`], the last of them first.
    fn fill(&self) -> Result<KVec<Arc<Listener>>> {
        let mut all = KVec::new();
        for pasid in PASIDS.into_iter().rev() {
            let listener = self.listener()?;
            self.tenants.set(pasid, listener.clone())?;
            all.push(listener, GFP_KERNEL)?;
        }
        Ok(all)
    }
}

#[kunit_tests(rkfd_event_tenants)]
mod cases {
    use super::*;

    #[test]
    fn what_concerns_all_is_heard_by_each_once() -> Result {
        let bench = Bench::new()?;
        let all = bench.fill()?;
        bench.tenants.for_each(|tenant| tenant.lost(Loss::Gpu));
        for listener in &all {
            assert_eq!(listener.heard.load(Relaxed), 1);
        }
        // Those that have gone hear nothing, all others do.
        bench.tenants.clear(1);
        bench.tenants.clear(700);
        bench.tenants.for_each(|tenant| tenant.lost(Loss::Gpu));
        let heard = all.iter().map(|listener| listener.heard.load(Relaxed));
        assert!(heard.eq([2, 1, 2, 1]));
        Ok(())
    }

    #[test]
    fn what_concerns_one_is_heard_by_its_owner() -> Result {
        let bench = Bench::new()?;
        let all = bench.fill()?;
        let found = bench.tenants.get(2).ok_or(ENOENT)?;
        found.lost(Loss::Queue);
        let heard = all.iter().map(|listener| listener.heard.load(Relaxed));
        assert!(heard.eq([0, 0, 1, 0]));
        assert!(bench.tenants.get(3).is_none());
        Ok(())
    }

    #[test]
    fn an_owner_that_is_forgotten_ends() -> Result {
        let bench = Bench::new()?;
        let _ = bench.fill()?;
        // The list alone keeps them.
        assert_eq!(bench.live.load(Relaxed), 4);
        let late = bench.listener()?;
        assert_eq!(bench.tenants.set(2, late.clone()), Err(EINVAL));
        bench.tenants.clear(2);
        assert!(bench.tenants.get(2).is_none());
        assert_eq!(bench.live.load(Relaxed), 4);
        // The number may have another owner now.
        bench.tenants.set(2, late)?;
        bench.tenants.clear(2);
        bench.tenants.clear(2);
        assert_eq!(bench.live.load(Relaxed), 3);
        drop(bench.tenants);
        assert_eq!(bench.live.load(Relaxed), 0);
        Ok(())
    }
}
