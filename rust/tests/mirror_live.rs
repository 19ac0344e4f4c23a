// SPDX-License-Identifier: GPL-2.0

//! Mirrors on every GPU that was probed, and accesses that are served: skipped where there is none.
//!
//! Page tables are read back from VRAM, so what is checked is what the GPU will find. The accesses are made up: what is
//! called is what an interrupt would lead to.

use core::ops::Range;

use kernel::{
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};

use super::{
    gpu_live::on_each,
    vm_live_bench::{
        eventually,
        Bench, //
    }, //
};
use crate::{
    driver::power,
    gpu::{
        devmem::Movement,
        Gpu, //
    },
    kapi::kunit::UserMemory,
    kfd::facade,
    mirror::{
        Filling,
        Hidden,
        Mirrors,
        Request,
        Rights,
        Rule,
        Rules,
        Wanted, //
    },
    sched::Scheduler,
    vm::{
        bind::Bind,
        BoFlags,
        BoKind, //
    },
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

const BUFFER: BoFlags = BoFlags {
    writable: false,
    executable: false,
    coherent: false,
    uncached: false,
    public: false,
    contiguous: false,
};

const AT_ONCE: Filling = Filling {
    at_once: true,
    on_access: false,
};
const ON_ACCESS: Filling = Filling {
    at_once: false,
    on_access: true,
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
        let mirrors = Mirrors::new(&bench.vm, &scheduler(gpu)?, None)?;
        Ok(Self { bench, mirrors })
    }

    fn mirror(&self, memory: &UserMemory, gpu: u64, len: u64, rights: Rights) -> Result<u32> {
        self.filled(memory, gpu, len, rights, AT_ONCE)
    }

    fn filled(
        &self,
        memory: &UserMemory,
        gpu: u64,
        len: u64,
        rights: Rights,
        filling: Filling,
    ) -> Result<u32> {
        let request = Request {
            cpu: memory.address(),
            gpu,
            len,
            rights,
            filling,
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

/// Rules that allow everything, until they are asked for the n-th time: that answer still allows, and before it is given
/// nothing is allowed any more.
#[pin_data]
struct Turning {
    allowed: Atomic<bool>,
    /// Questions up to the one that turns them.
    left: Atomic<i32>,
    #[pin]
    mirrors: Mutex<Option<Arc<Mirrors>>>,
}

impl Turning {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                allowed: Atomic::new(true),
                left: Atomic::new(0),
                mirrors <- new_mutex!(None, "rkfd_test_mirrors"),
            }),
            GFP_KERNEL,
        )
    }
}

impl Rules for Turning {
    fn rule(&self, range: &Range<u64>) -> (Rule, u64) {
        let rule = Rule {
            rights: self.allowed.load(Relaxed).then_some(RW),
            kept: false,
        };
        if self.left.fetch_add(-1, Relaxed) == 1 {
            self.allowed.store(false, Relaxed);
            let mirrors = self.mirrors.lock().clone();
            if let Some(mirrors) = mirrors {
                let _ = mirrors.apply_rules(range);
            }
        }
        (rule, range.end)
    }

    fn wanted(&self, _va: u64, bounds: &Range<u64>) -> Wanted {
        Wanted {
            range: bounds.clone(),
            hint: None,
            unasked: None,
        }
    }

    fn learns_of_end(&self) -> bool {
        false
    }

    fn hidden(&self, _range: &Range<u64>, _why: Hidden) {}

    fn access_begins(&self, _page: u64, _write: bool) {}

    fn access_ends(&self, _page: u64, _moved: bool) {}

    fn memory_moves(&self, _movement: &Movement) {}

    fn queues_run(&self, _run: bool) {}
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
            // The thread that finds memory again may hold tables a moment longer.
            eventually(|| {
                space.bench.vm.reap();
                gpu.vram().used() == used
            })
        })
    }

    #[test]
    fn nothing_is_shown_while_the_gpu_sleeps() -> Result {
        on_each(|gpu| {
            let space = Space::new(gpu)?;
            let kept = UserMemory::new(4 * PAGE_SIZE)?;
            let accessed = UserMemory::new(2 * PAGE_SIZE)?;
            let other = VA + 64 * 1024 * 1024;
            space.mirror(&kept, VA, 4 * PAGE, RW)?;
            let id = space.filled(&accessed, other, 2 * PAGE, RW, ON_ACCESS)?;
            space.mirrors.populate(id, other, 2 * PAGE)?;
            let sees = |va| space.access(va);
            let all = |seen| [VA, VA + 3 * PAGE, other].map(sees) == [Ok(seen); 3];
            assert!(all(Some((true, true))));
            let sched = scheduler(gpu)?;
            power::suspend(gpu, &sched)?;
            let hidden = all(None);
            UserMemory::part(kept.address() + 3 * PAGE, PAGE_SIZE).unmap();
            power::resume(gpu, &sched)?;
            assert!(hidden);
            // Queues would wait for it.
            eventually(|| sees(VA) == Ok(Some((true, true))))?;
            assert_eq!(sees(VA + 3 * PAGE)?, None);
            assert_eq!(sees(other)?, None);
            space.mirrors.service(other, true, false)?;
            assert_eq!(sees(other)?, Some((true, true)));
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
    fn more_is_found_around_each_access_and_less_after_a_change() -> Result {
        on_each(|gpu| {
            let space = Space::new(gpu)?;
            // Less than a large page, and the last 304 pages of a granule with the first 196 of the next.
            let (low, pages) = (304, 500);
            let at = VA + HUGE - low * PAGE;
            let memory = UserMemory::new(pages * PAGE_SIZE)?;
            let len = pages as u64 * PAGE;
            let id = space.filled(&memory, at, len, RW, ON_ACCESS)?;
            let mirror = space.mirrors.find(id)?;
            let serve = |page: u64, write| space.mirrors.service(at + page * PAGE, write, false);
            let is = |bytes, served, changes| {
                let usage = mirror.usage();
                assert_eq!(
                    (usage.bytes / PAGE, usage.served, usage.changes),
                    (bytes, served, changes)
                );
            };
            is(0, 0, 0);
            // 16 pages from a multiple of 16 of the granule on, which the mirror has from page 208 on.
            serve(200, true)?;
            is(16, 1, 0);
            assert_eq!(space.access(at + 191 * PAGE)?, None);
            assert_eq!(space.access(at + 192 * PAGE)?, Some((true, true)));
            assert_eq!(space.access(at + 207 * PAGE)?, Some((true, true)));
            assert_eq!(space.access(at + 208 * PAGE)?, None);
            // Known by now.
            serve(207, true)?;
            is(16, 1, 0);
            serve(150, true)?;
            is(16 + 32, 2, 0);
            serve(80, true)?;
            is(16 + 32 + 64, 3, 0);
            // Has the first 16 in it.
            serve(212, true)?;
            is(32 + 64 + 128, 4, 0);
            // Cut where the mirror begins.
            serve(5, true)?;
            is(32 + 64 + 128 + 48, 5, 0);
            serve(120, true)?;
            is(low, 6, 0);
            // All of the next granule from the first access on.
            serve(low + 7, true)?;
            is(500, 7, 0);
            UserMemory::part(memory.address() + 5 * PAGE, PAGE_SIZE).unmap();
            is(196, 7, 1);
            assert_eq!(space.access(at)?, None);
            assert_eq!(serve(5, false).err(), Some(EFAULT));
            // What the program has comes along, wherever it lies.
            serve(6, false)?;
            is(499, 8, 1);
            Ok(())
        })
    }

    #[test]
    fn memory_that_is_read_is_not_allocated() -> Result {
        on_each(|gpu| {
            let space = Space::new(gpu)?;
            let memory = UserMemory::new(8 * PAGE_SIZE)?;
            let id = space.filled(&memory, VA, 8 * PAGE, RW, ON_ACCESS)?;
            space.mirrors.service(VA + 3 * PAGE, false, false)?;
            // A page of zeroes that all programs share.
            assert_eq!(space.access(VA + 3 * PAGE)?, Some((true, false)));
            space.mirrors.service(VA + 3 * PAGE, true, false)?;
            assert_eq!(space.access(VA + 3 * PAGE)?, Some((true, true)));
            let usage = space.mirrors.find(id)?.usage();
            assert_eq!((usage.bytes, usage.served), (8 * PAGE, 2));
            // That the page of zeroes goes is a change of memory, too.
            assert_eq!(usage.changes, 1);
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
    fn all_memory_is_shown_but_where_buffers_are() -> Result {
        on_each(|gpu| {
            let space = Space::new(gpu)?;
            let used = gpu.vram().used();
            let memory = UserMemory::new(12 * PAGE_SIZE)?;
            let at = memory.address();
            let mirror = space.mirrors.create_whole(RW, true)?;
            assert!(mirror.is_whole());
            assert_eq!(mirror.leaf(), HUGE);
            assert_eq!(space.mirrors.create_whole(RW, true).err(), Some(EADDRINUSE));
            assert_eq!(space.mirror(&memory, VA, PAGE, RW).err(), Some(EADDRINUSE));
            let serve = |va, write| space.mirrors.service(va, write, false);
            for page in 0..12 {
                serve(at + page * PAGE, true)?;
                assert_eq!(space.access(at + page * PAGE)?, Some((true, true)));
            }
            // In the midst of what is shown.
            let bo = space.bench.make(BoKind::System, 4 * PAGE, BUFFER)?;
            let bind = |va, len| Bind::map(0, va, len, 0, &bo, 0);
            let mut list = [bind(at + 4 * PAGE, 4 * PAGE)?];
            let vm = &space.bench.vm;
            vm.bind(core::slice::from_ref(&bo), &mut list)
                .map_err(|refused| refused.error)?;
            assert_eq!(space.access(at + 3 * PAGE)?, Some((true, true)));
            assert_eq!(space.access(at + 4 * PAGE)?, Some((true, false)));
            assert_eq!(space.access(at + 7 * PAGE)?, Some((true, false)));
            assert_eq!(space.access(at + 8 * PAGE)?, Some((true, true)));
            assert_eq!(serve(at + 4 * PAGE, true).err(), Some(EFAULT));
            // What it allows is to be repeated: it may be newer than the report.
            serve(at + 4 * PAGE, false)?;
            serve(at + 3 * PAGE, true)?;
            // Memory goes, in the granule of the buffer and below it: the buffer stays.
            UserMemory::part(at + 2 * PAGE, 4 * PAGE_SIZE).unmap();
            assert_eq!(space.access(at + 2 * PAGE)?, None);
            assert_eq!(space.access(at + 5 * PAGE)?, Some((true, false)));
            serve(at, true)?;
            assert_eq!(space.access(at)?, Some((true, true)));
            assert_eq!(space.access(at + 5 * PAGE)?, Some((true, false)));
            assert_eq!(serve(at + 2 * PAGE, false).err(), Some(EFAULT));
            // Where the buffer was, the memory is found again, and the hole stays one.
            let mut list = [Bind::unmap(0, at + 4 * PAGE, 4 * PAGE)?];
            vm.bind(&[], &mut list).map_err(|refused| refused.error)?;
            assert_eq!(space.access(at + 6 * PAGE)?, None);
            assert_eq!(serve(at + 5 * PAGE, false).err(), Some(EFAULT));
            serve(at + 6 * PAGE, true)?;
            assert_eq!(space.access(at + 6 * PAGE)?, Some((true, true)));
            // What is mapped later needs no call.
            let late = UserMemory::at(at + 5 * PAGE, PAGE_SIZE)?;
            serve(at + 5 * PAGE, true)?;
            late.unmap();
            assert_eq!(space.access(at + 5 * PAGE)?, None);
            let id = mirror.id();
            drop(mirror);
            space.mirrors.destroy(id)?;
            assert_eq!(space.access(at)?, None);
            vm.reap();
            drop(bo);
            assert_eq!(gpu.vram().used(), used);
            // The addresses are free.
            space.mirror(&memory, VA, PAGE, RW)?;
            Ok(())
        })
    }

    #[test]
    fn a_buffer_that_takes_the_place_of_what_is_shown_is_flushed() -> Result {
        on_each(|gpu| {
            let space = Space::new(gpu)?;
            let memory = UserMemory::new(2 * PAGE_SIZE)?;
            let at = memory.address();
            space.mirrors.create_whole(RW, true)?;
            for page in 0..2 {
                space.mirrors.service(at + page * PAGE, true, false)?;
                assert_eq!(space.access(at + page * PAGE)?, Some((true, true)));
            }
            let vm = &space.bench.vm;
            let bo = space.bench.make(BoKind::System, PAGE, BUFFER)?;
            let flushes = || gpu.kiq().status().submissions;
            // The hubs may know the program's page by that address.
            let before = flushes();
            vm.map(&bo, at)?;
            assert!(flushes() > before);
            assert_eq!(space.access(at)?, Some((true, false)));
            assert_eq!(space.access(at + PAGE)?, Some((true, true)));
            vm.unmap(&bo)?;
            assert_eq!(space.access(at)?, None);
            // Nothing is known of what showed nothing.
            let before = flushes();
            vm.map(&bo, at)?;
            assert_eq!(flushes(), before);
            assert_eq!(space.access(at)?, Some((true, false)));
            Ok(())
        })
    }

    #[test]
    fn what_older_rules_allowed_is_not_shown() -> Result {
        on_each(|gpu| {
            let bench = Bench::new(gpu)?;
            let rules = Turning::new()?;
            let mirrors = Mirrors::new(&bench.vm, &scheduler(gpu)?, Some(rules.clone()))?;
            let space = Space { bench, mirrors };
            let memory = UserMemory::new(PAGE_SIZE)?;
            let at = memory.address();
            space.mirrors.create_whole(RW, true)?;
            *rules.mirrors.lock() = Some(space.mirrors.clone());
            // They turn at each question of a service, until it asks less often.
            let mut turned = 0;
            let served = loop {
                rules.left.store(turned + 1, Relaxed);
                let served = space.mirrors.service(at, true, false);
                if rules.allowed.load(Relaxed) {
                    break served;
                }
                assert!(served.is_err());
                assert_eq!(space.access(at)?, None);
                rules.allowed.store(true, Relaxed);
                turned += 1;
            };
            let held = rules.mirrors.lock().take();
            drop(held);
            served?;
            assert_eq!(space.access(at)?, Some((true, true)));
            // For the access itself, where memory is looked for, and for what was found.
            assert!(turned >= 3);
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
