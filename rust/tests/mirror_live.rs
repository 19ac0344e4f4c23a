// SPDX-License-Identifier: GPL-2.0

//! Mirrors on every GPU that was probed, and accesses that are served: skipped where there is none.
//!
//! Page tables are read back from VRAM, so what is checked is what the GPU will find. The accesses are made up: what is
//! called is what an interrupt would lead to.

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

use super::{
    gpu_live::on_each,
    vm_live_bench::Bench, //
};
use crate::{
    gpu::Gpu,
    kapi::kunit::UserMemory,
    kfd::facade,
    mirror::{
        Mirrors,
        Request,
        Rights, //
    },
    sched::Scheduler, //
};

const PAGE: u64 = 0x1000;
const HUGE: u64 = 0x20_0000;
/// A multiple of 64 MiB.
const VA: u64 = 0x7000_0000_0000;

const RW: Rights = Rights {
    write: true,
    execute: false,
};
const RX: Rights = Rights {
    write: false,
    execute: true,
};

fn scheduler(gpu: &Arc<Gpu>) -> Result<Arc<Scheduler>> {
    facade()?.scheduler(gpu).ok_or(ENODEV)
}

/// An address space with mirrors, closed when dropped.
struct Space {
    bench: Bench,
    mirrors: Arc<Mirrors>,
}

impl Space {
    fn new(gpu: &Arc<Gpu>) -> Result<Self> {
        let bench = Bench::new(gpu)?;
        let mirrors = Mirrors::new(&bench.vm, &scheduler(gpu)?)?;
        Ok(Self { bench, mirrors })
    }

    fn mirror(&self, memory: &UserMemory, gpu: u64, len: u64, rights: Rights) -> Result<u32> {
        let request = Request {
            cpu: memory.address(),
            gpu,
            len,
            rights,
        };
        Ok(self.mirrors.create(&request)?.id())
    }

    /// Whether the GPU may read and write at `va`.
    fn access(&self, va: u64) -> Result<Option<(bool, bool)>> {
        let found = self.bench.walk(va)?;
        Ok(found.map(|(_, attrs)| (attrs.access.read, attrs.access.write)))
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        self.mirrors.close();
    }
}

#[kunit_tests(rkfd_mirror_live)]
mod cases {
    use super::*;

    #[test]
    fn entries_follow_the_memory_and_go_with_the_mirror() -> Result {
        on_each(|gpu| {
            let space = Space::new(gpu)?;
            let used = gpu.vram().used();
            let memory = UserMemory::new(8 * PAGE_SIZE)?;
            // Neither granule nor window begins where it does.
            let at = VA + 64 * 1024 * 1024 - 4 * PAGE;
            let id = space.mirror(&memory, at, 8 * PAGE, RW)?;
            for page in 0..8 {
                assert_eq!(space.access(at + page * PAGE)?, Some((true, true)));
            }
            assert_eq!(space.access(at + 8 * PAGE)?, None);
            assert_eq!(space.access(at - PAGE)?, None);
            let mirror = space.mirrors.find(id)?;
            assert_eq!(mirror.usage().bytes, 8 * PAGE);
            UserMemory::part(memory.address() + 5 * PAGE, PAGE_SIZE).unmap();
            // Gone before the memory was; what lies beside it comes back without being asked for.
            assert_eq!(space.access(at + 5 * PAGE)?, None);
            assert_eq!(mirror.usage().changes, 1);
            space.mirrors.populate(id, at + 6 * PAGE, 2 * PAGE)?;
            assert_eq!(space.access(at + 6 * PAGE)?, Some((true, true)));
            assert_eq!(space.access(at)?, Some((true, true)));
            assert_eq!(space.mirrors.populate(id, at, 8 * PAGE).err(), Some(EFAULT));
            drop(mirror);
            space.mirrors.destroy(id)?;
            assert_eq!(space.mirrors.find(id).err(), Some(ENOENT));
            for page in 0..8 {
                assert_eq!(space.access(at + page * PAGE)?, None);
            }
            space.bench.vm.reap();
            assert_eq!(gpu.vram().used(), used);
            Ok(())
        })
    }

    #[test]
    fn accesses_are_served_where_the_program_has_memory() -> Result {
        on_each(|gpu| {
            let space = Space::new(gpu)?;
            let memory = UserMemory::new(4 * PAGE_SIZE)?;
            let hole = UserMemory::part(memory.address() + 2 * PAGE, PAGE_SIZE);
            let at = memory.address() + 2 * PAGE;
            space.mirror(&memory, VA, 4 * PAGE, RW)?;
            hole.unmap();
            let serve = |va, write, execute| space.mirrors.service(va, write, execute);
            assert_eq!(serve(VA - 1, false, false).err(), Some(EFAULT));
            assert_eq!(serve(VA + 4 * PAGE, false, false).err(), Some(EFAULT));
            assert_eq!(serve(VA + 2 * PAGE, false, false).err(), Some(EFAULT));
            assert_eq!(serve(VA, false, true).err(), Some(EPERM));
            serve(VA + PAGE + 12, true, false)?;
            // Memory that comes later announces itself to nobody.
            let late = UserMemory::at(at, PAGE_SIZE)?;
            serve(VA + 2 * PAGE + 4, true, false)?;
            assert_eq!(space.access(VA + 2 * PAGE)?, Some((true, true)));
            assert_eq!(space.access(VA + PAGE)?, Some((true, true)));
            late.unmap();
            assert_eq!(space.access(VA + 2 * PAGE)?, None);
            Ok(())
        })
    }

    #[test]
    fn rights_are_the_lesser_of_program_and_mirror() -> Result {
        on_each(|gpu| {
            let space = Space::new(gpu)?;
            let readable = UserMemory::read_only(2 * PAGE_SIZE)?;
            let writable = UserMemory::new(2 * PAGE_SIZE)?;
            space.mirror(&readable, VA, 2 * PAGE, RW)?;
            space.mirror(&writable, VA + HUGE, 2 * PAGE, RX)?;
            assert_eq!(space.access(VA)?, Some((true, false)));
            assert_eq!(space.access(VA + HUGE)?, Some((true, false)));
            let serve = |va, write, execute| space.mirrors.service(va, write, execute);
            assert_eq!(serve(VA, true, false).err(), Some(EPERM));
            assert_eq!(serve(VA + HUGE, true, false).err(), Some(EPERM));
            serve(VA, false, false)?;
            serve(VA + HUGE, false, true)?;
            Ok(())
        })
    }

    #[test]
    fn closed_address_space_shows_nothing_and_makes_no_mirror() -> Result {
        on_each(|gpu| {
            let space = Space::new(gpu)?;
            let memory = UserMemory::new(2 * PAGE_SIZE)?;
            space.mirror(&memory, VA, 2 * PAGE, RW)?;
            space.mirrors.close();
            assert_eq!(space.access(VA)?, None);
            assert_eq!(space.mirror(&memory, VA, 2 * PAGE, RW).err(), Some(ENODEV));
            Ok(())
        })
    }
}
