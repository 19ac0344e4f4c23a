// SPDX-License-Identifier: GPL-2.0

//! The scheduler on every GPU that is there: queues of address spaces made for the test execute
//! packets, through the scheduler firmware's slots and VMIDs, and memory shows what they did.

use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    },
};

use super::{
    params::{
        Cwsr,
        EvictCause,
        ProcessParams,
        QueueKind,
        QueueParams,
        QueueUpdate, //
    },
    SchedProcess,
    SchedQueue,
    Scheduler, //
};
use crate::{
    gpu::{
        Doorbell,
        DoorbellSlice,
        GartBuffer,
        Gpu,
        Hw,
        Pasid,
        VramBlock, //
    },
    hw::{
        pm4::WriteMem,
        pte::{
            self,
            Access,
            Mtype,
            PageAttrs,
            Place,
            PAGE, //
        },
        regs::gc::{
            ShMemBases,
            ShMemConfig, //
        },
        sdma, //
    },
    kapi::kunit,
    kfd::facade,
    vm::pt::{
        Reserve,
        Run,
        Store,
        Tree, //
    }, //
};

/// How long a packet may take, far more than it should.
const PATIENCE: Delta = Delta::from_millis(20_000);
/// First address of the queues' memory in their address spaces.
const BASE: u64 = 0x7f00_0000_0000;
/// Bytes of a queue's memory.
const BLOCK: u64 = 0x10_000;
/// Bytes of a ring.
const RING: u32 = 0x1000;

/// Places inside a queue's memory.
mod layout {
    pub(super) const RPTR: u64 = 0x1000;
    pub(super) const WPTR: u64 = 0x1080;
    pub(super) const EOP: u64 = 0x2000;
    pub(super) const DATA: u64 = 0x3000;
    /// A second ring.
    pub(super) const OTHER: u64 = 0x4000;
}

/// Runs `f` on every GPU in service, or skips the test.
fn on_each(mut f: impl FnMut(&Bench<'_>) -> Result) -> Result {
    let devices = facade()?.devices()?;
    if devices.is_empty() {
        kunit::skip(c"no GPU is in service");
    }
    for device in &devices {
        f(&Bench {
            gpu: device.gpu(),
            sched: device.sched(),
        })?;
    }
    Ok(())
}

/// A GPU and its scheduler.
struct Bench<'a> {
    gpu: &'a Arc<Gpu>,
    sched: &'a Arc<Scheduler>,
}

/// VRAM for page tables.
struct Tables<'a> {
    gpu: &'a Gpu,
    hw: &'a Hw,
}

impl Store for Tables<'_> {
    type Block = VramBlock;

    fn alloc(&self) -> Result<VramBlock> {
        self.gpu.vram().alloc(PAGE, PAGE)
    }

    fn write(&self, block: &VramBlock, first: usize, entries: &[u64]) {
        // CAST: An index below 512.
        let _ = self
            .hw
            .vram_write_u64s(block.offset() + 8 * first as u64, entries);
    }

    fn publish(&self) {
        self.hw.hdp_flush();
    }

    fn pa(block: &VramBlock) -> u64 {
        block.pa()
    }
}

/// An address space with queues. Fields go in order: queues, process, then what they use.
struct Space<'a> {
    bench: &'a Bench<'a>,
    queues: KVec<Queue>,
    process: Arc<SchedProcess>,
    slice: Arc<DoorbellSlice>,
    tree: Tree<VramBlock>,
    _pasid: Pasid,
}

/// A queue and the memory it uses.
struct Queue {
    queue: Arc<SchedQueue>,
    mem: GartBuffer,
    va: u64,
    doorbell: usize,
    /// Write pointer: dwords, or bytes for SDMA.
    wptr: u64,
    /// The ring's place in `mem`.
    ring: u64,
    sdma: bool,
}

impl<'a> Space<'a> {
    fn new(bench: &'a Bench<'a>) -> Result<Self> {
        let hw = bench.gpu.enter()?;
        let tables = Tables {
            gpu: bench.gpu,
            hw: &hw,
        };
        let tree = Tree::new(&tables, bench.gpu.asic().pte)?;
        let root = pte::page_table_base(tree.root().pa(), Place::Vram).map_err(|_| EINVAL)?;
        let pasid = bench.gpu.pasids().alloc()?;
        let process = bench.sched.attach(ProcessParams {
            pasid: pasid.get(),
            page_table_base: root,
            sh_mem_config: ShMemConfig::for_xnack(false).raw(),
            sh_mem_bases: ShMemBases::KFD.raw(),
            tba: 0,
            tma: 0,
            keep: None,
        })?;
        Ok(Self {
            bench,
            queues: KVec::new(),
            process,
            slice: bench.gpu.doorbells().alloc_slice()?,
            tree,
            _pasid: pasid,
        })
    }

    /// Makes memory and maps it where the next queue has it.
    fn memory(&mut self) -> Result<(GartBuffer, u64)> {
        let hw = self.bench.gpu.enter()?;
        let mem = self.bench.gpu.gart().alloc(&hw, usize::try_from(BLOCK)?)?;
        let tables = Tables {
            gpu: self.bench.gpu,
            hw: &hw,
        };
        let va = BASE + u64::try_from(self.queues.len())? * BLOCK;
        let runs = [Run {
            addr: mem.bus_addr(),
            len: BLOCK,
        }];
        let attrs = PageAttrs {
            place: Place::System { snooped: true },
            access: Access::RWX,
            mtype: Mtype::Uc,
            fragment: 0,
        };
        let mut reserve = Reserve::new();
        let need = self.tree.missing(va, &runs);
        reserve.fill(&tables, self.bench.gpu.asic().pte, need)?;
        let changed = self.tree.map(&tables, &mut reserve, va, &runs, attrs)?;
        hw.hdp_flush();
        drop(changed);
        Ok((mem, va))
    }

    fn add(&mut self, kind: QueueKind, doorbell: Doorbell) -> Result<usize> {
        let (mem, va) = self.memory()?;
        let is_sdma = matches!(kind, QueueKind::Sdma(_));
        let byte = doorbell.offset().byte();
        let queue = self.bench.sched.create_queue(
            &self.process,
            QueueParams {
                kind,
                ring_base: va,
                ring_size: RING,
                rptr: va + layout::RPTR,
                wptr: va + layout::WPTR,
                eop: if is_sdma { 0 } else { va + layout::EOP },
                eop_size: if is_sdma { 0 } else { 4096 },
                cwsr: None::<Cwsr>,
                doorbell,
                priority: 7,
                percent: 100,
                keep: None,
            },
        )?;
        self.queues.push(
            Queue {
                queue,
                mem,
                va,
                doorbell: byte,
                wptr: 0,
                ring: 0,
                sdma: is_sdma,
            },
            GFP_KERNEL,
        )?;
        Ok(self.queues.len() - 1)
    }

    /// Adds a PM4 queue.
    fn pm4(&mut self) -> Result<usize> {
        let doorbell = self.slice.alloc_cp()?;
        self.add(QueueKind::Pm4, doorbell)
    }

    /// Adds an SDMA queue on `engine`.
    fn sdma(&mut self, engine: u32) -> Result<usize> {
        let slot = self.bench.sched.alloc_sdma(Some(engine))?;
        let doorbell = self.slice.alloc_sdma(slot.engine(), slot.queue())?;
        self.add(QueueKind::Sdma(slot), doorbell)
    }

    /// Queue `n` shall store `value`.
    fn submit(&mut self, n: usize, value: u32) -> Result {
        let hw = self.bench.gpu.enter()?;
        let queue = self.queues.get_mut(n).ok_or(EINVAL)?;
        queue.submit(&hw, value)
    }

    /// Waits until queue `n` has stored `value`.
    fn expect(&self, n: usize, value: u32) -> Result {
        let queue = self.queues.get(n).ok_or(EINVAL)?;
        let start: Instant<Monotonic> = Instant::now();
        loop {
            let seen = queue.value()?;
            if seen == value {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                pr_err!("queue {n} stored {seen:#x}, not {value:#x}\n");
                return Err(ETIMEDOUT);
            }
            fsleep(Delta::from_micros(100));
        }
    }

    /// Slots of the hardware that serve queue `n`.
    fn slots(&self, n: usize) -> Result<usize> {
        let queue = self.queues.get(n).ok_or(EINVAL)?;
        self.bench.slots_of(queue.doorbell)
    }
}

impl Bench<'_> {
    /// Slots of the hardware with the doorbell at `byte`.
    fn slots_of(&self, byte: usize) -> Result<usize> {
        use crate::hw::regs::hqd;
        let mut count = 0;
        for slot in (0..32).filter_map(hqd::Slot::from_bit) {
            let mut words = [0; 2];
            let regs = [hqd::CP_HQD_ACTIVE, hqd::CP_HQD_PQ_DOORBELL_CONTROL];
            self.sched
                .machine
                .platform
                .read_slot(slot, &regs, &mut words)?;
            let [active, control] = words;
            let offset = hqd::DoorbellControl::from_raw(control).get(hqd::DoorbellControl::OFFSET);
            count += usize::from(active & 1 != 0 && crate::hw::num::index(offset) * 4 == byte);
        }
        Ok(count)
    }
}

impl Queue {
    fn submit(&mut self, hw: &Hw, value: u32) -> Result {
        let data = self.va + layout::DATA;
        let mut words = [0; 8];
        let len = if self.sdma {
            let packet = sdma::fence(data, value).ok_or(EINVAL)?;
            words[..4].copy_from_slice(&packet);
            4
        } else {
            let packet = WriteMem {
                address: data,
                value,
                high: None,
                confirm: true,
            };
            let encoded = packet.encode().map_err(|_| EINVAL)?;
            let len = packet.dwords();
            words[..len].copy_from_slice(&encoded[..len]);
            len
        };
        let unit = if self.sdma { 4 } else { 1 };
        for word in words.iter().take(len) {
            let byte = self.wptr * if self.sdma { 1 } else { 4 } % u64::from(RING);
            self.mem
                .write32(usize::try_from(self.ring + byte)?, *word)?;
            self.wptr += unit;
        }
        self.mem
            .write64(usize::try_from(layout::WPTR)?, self.wptr)?;
        hw.doorbell64(self.doorbell, self.wptr);
        Ok(())
    }

    fn value(&self) -> Result<u32> {
        self.mem.read32(usize::try_from(layout::DATA)?)
    }
}

#[kunit_tests(rkfd_sched_live)]
mod cases {
    use super::*;

    #[test]
    fn firmware_answers() -> Result {
        on_each(|bench| {
            for _ in 0..3 {
                bench.sched.ping()?;
            }
            assert_eq!(bench.sched.stats().timeouts, 0);
            Ok(())
        })
    }

    #[test]
    fn packets_submitted_before_the_mapping_are_executed() -> Result {
        on_each(|bench| {
            let mut space = Space::new(bench)?;
            let queue = space.pm4()?;
            // The queue is most likely not mapped yet; the doorbell is lost, the pointer is not.
            space.submit(queue, 0x1111)?;
            space.expect(queue, 0x1111)?;
            for value in 0x2000..0x2100 {
                space.submit(queue, value)?;
                space.expect(queue, value)?;
            }
            assert_eq!(space.slots(queue)?, 1);
            Ok(())
        })
    }

    #[test]
    fn destroyed_queue_has_no_slot() -> Result {
        on_each(|bench| {
            let mut space = Space::new(bench)?;
            let stays = space.pm4()?;
            let goes = space.pm4()?;
            space.submit(stays, 1)?;
            space.submit(goes, 1)?;
            space.expect(stays, 1)?;
            space.expect(goes, 1)?;
            let queue = space.queues.pop().ok_or(EINVAL)?;
            bench.sched.destroy_queue(&queue.queue)?;
            assert_eq!(bench.slots_of(queue.doorbell)?, 0);
            assert_eq!(space.slots(stays)?, 1);
            space.submit(stays, 2)?;
            space.expect(stays, 2)?;
            bench.sched.detach(&space.process)?;
            assert_eq!(space.slots(stays)?, 0);
            Ok(())
        })
    }

    #[test]
    fn evicted_queue_goes_on_where_it_was() -> Result {
        on_each(|bench| {
            let mut space = Space::new(bench)?;
            let queue = space.pm4()?;
            for round in 1..=10 {
                space.submit(queue, round)?;
                space.expect(queue, round)?;
                bench.sched.evict(&space.process, EvictCause::Memory)?;
                assert_eq!(space.slots(queue)?, 0);
                // Rung while off the hardware.
                space.submit(queue, round + 0x100)?;
                bench.sched.ping()?;
                assert_eq!(space.queues.first().ok_or(EINVAL)?.value()?, round);
                bench.sched.restore(&space.process, EvictCause::Memory)?;
                space.expect(queue, round + 0x100)?;
            }
            Ok(())
        })
    }

    #[test]
    fn updated_queue_reads_its_new_ring() -> Result {
        on_each(|bench| {
            let mut space = Space::new(bench)?;
            let n = space.pm4()?;
            space.submit(n, 1)?;
            space.expect(n, 1)?;
            let queue = space.queues.first_mut().ok_or(EINVAL)?;
            queue.ring = layout::OTHER;
            bench.sched.update_queue(
                &queue.queue,
                QueueUpdate {
                    ring_base: Some(queue.va + layout::OTHER),
                    ..QueueUpdate::default()
                },
            )?;
            space.submit(n, 2)?;
            space.expect(n, 2)?;
            // Stopped, and started again.
            let queue = space.queues.first().ok_or(EINVAL)?;
            let percent = |percent| QueueUpdate {
                percent: Some(percent),
                ..QueueUpdate::default()
            };
            bench.sched.update_queue(&queue.queue, percent(0))?;
            assert_eq!(space.slots(n)?, 0);
            space.submit(n, 3)?;
            let queue = space.queues.first().ok_or(EINVAL)?;
            bench.sched.update_queue(&queue.queue, percent(100))?;
            space.expect(n, 3)?;
            Ok(())
        })
    }

    #[test]
    fn every_sdma_engine_executes() -> Result {
        on_each(|bench| {
            let mut space = Space::new(bench)?;
            for engine in 0..bench.gpu.asic().sdma_engines() {
                let queue = space.sdma(engine)?;
                space.submit(queue, 0x5d0 + engine)?;
            }
            for engine in 0..bench.gpu.asic().sdma_engines() {
                space.expect(usize::try_from(engine)?, 0x5d0 + engine)?;
            }
            bench.sched.detach(&space.process)?;
            Ok(())
        })
    }

    #[test]
    fn more_queues_than_slots_all_make_progress() -> Result {
        on_each(|bench| {
            let mut space = Space::new(bench)?;
            for n in 0..30 {
                let queue = space.pm4()?;
                space.submit(queue, 0x100 + n)?;
            }
            for n in 0..30 {
                space.expect(usize::try_from(n)?, 0x100 + n)?;
            }
            bench.sched.detach(&space.process)?;
            assert_eq!(bench.sched.load().on_hardware, 0);
            Ok(())
        })
    }

    #[test]
    fn more_processes_than_vmids_all_make_progress() -> Result {
        on_each(|bench| {
            let count = bench.gpu.asic().vmid_count() + 2;
            let mut spaces = KVec::new();
            for n in 0..count {
                let mut space = Space::new(bench)?;
                let queue = space.pm4()?;
                space.submit(queue, 0x700 + n)?;
                spaces.push(space, GFP_KERNEL)?;
            }
            for (space, n) in spaces.iter().zip(0..) {
                // The same address in each space, and a value of its own.
                space.expect(0, 0x700 + n)?;
            }
            for space in &spaces {
                bench.sched.detach(&space.process)?;
            }
            assert_eq!(bench.sched.load().on_hardware, 0);
            Ok(())
        })
    }

    #[test]
    fn burst_of_creates_takes_few_lists() -> Result {
        on_each(|bench| {
            let before = bench.sched.stats();
            let mut space = Space::new(bench)?;
            for n in 0..12 {
                let queue = space.pm4()?;
                space.submit(queue, 0x900 + n)?;
            }
            for n in 0..12 {
                space.expect(usize::try_from(n)?, 0x900 + n)?;
            }
            let after = bench.sched.stats();
            assert!(after.runlists - before.runlists < 12);
            bench.sched.detach(&space.process)?;
            // The detach takes one preemption, however many queues there are.
            let end = bench.sched.stats();
            assert_eq!(end.preemptions, after.preemptions + 1);
            assert_eq!(end.timeouts, 0);
            Ok(())
        })
    }
}
