// SPDX-License-Identifier: GPL-2.0

//! What the live suite works with: address spaces made for a test, on every GPU that is there, with
//! queues that execute packets and memory that shows what they did.

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
    config::Policy,
    desired::queue::QueueHold,
    params::{
        ProcessParams,
        QueueKind,
        QueueSpec, //
    },
    sdma_ids::SdmaSlot,
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
        mqd::Eop,
        pm4::WriteMem,
        pte::{
            self,
            Access,
            Aperture,
            Mtype,
            PageAttrs,
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
pub(super) const PATIENCE: Delta = Delta::from_millis(20_000);
/// First address of the queues' memory in their address spaces.
pub(super) const BASE: u64 = 0x7f00_0000_0000;
/// Bytes of a queue's memory.
pub(super) const BLOCK: u64 = 0x10_000;
/// Bytes of a ring.
pub(super) const RING: u32 = 0x1000;

/// Places inside a queue's memory.
pub(super) mod layout {
    pub(in crate::sched) const RPTR: u64 = 0x1000;
    pub(in crate::sched) const WPTR: u64 = 0x1080;
    pub(in crate::sched) const EOP: u64 = 0x2000;
    pub(in crate::sched) const DATA: u64 = 0x3000;
    /// A second ring.
    pub(in crate::sched) const OTHER: u64 = 0x4000;
}

/// Runs `f` on every GPU in service, or skips the test.
pub(super) fn on_each(mut f: impl FnMut(&Bench<'_>) -> Result) -> Result {
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
pub(super) struct Bench<'a> {
    pub(super) gpu: &'a Arc<Gpu>,
    pub(super) sched: &'a Arc<Scheduler>,
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
pub(super) struct Space<'a> {
    bench: &'a Bench<'a>,
    pub(super) queues: KVec<Queue>,
    pub(super) process: Arc<SchedProcess>,
    pub(super) slice: Arc<DoorbellSlice>,
    tree: Tree<VramBlock>,
    _pasid: Pasid,
}

/// A queue and the memory it uses.
pub(super) struct Queue {
    pub(super) queue: Arc<SchedQueue>,
    pub(super) mem: GartBuffer,
    pub(super) va: u64,
    pub(super) doorbell: usize,
    /// Write pointer: dwords, or bytes for SDMA.
    pub(super) wptr: u64,
    /// The ring's place in `mem`.
    pub(super) ring: u64,
    pub(super) sdma: bool,
}

impl<'a> Space<'a> {
    pub(super) fn new(bench: &'a Bench<'a>) -> Result<Self> {
        Self::with(bench, |_| ())
    }

    /// A space whose process is attached with what `change` makes of the usual parameters.
    pub(super) fn with(
        bench: &'a Bench<'a>,
        change: impl FnOnce(&mut ProcessParams),
    ) -> Result<Self> {
        let hw = bench.gpu.enter()?;
        let tables = Tables {
            gpu: bench.gpu,
            hw: &hw,
        };
        let tree = Tree::new(&tables, bench.gpu.asic().pte)?;
        let root = pte::page_table_base(tree.root().pa(), Aperture::Vram).map_err(|_| EINVAL)?;
        let pasid = bench.gpu.pasids().alloc()?;
        let mut params = ProcessParams {
            pasid: pasid.get(),
            page_table_base: root,
            sh_mem_config: ShMemConfig::for_xnack(false).raw(),
            sh_mem_bases: ShMemBases::KFD.raw(),
            tba: 0,
            tma: 0,
            keep: None,
        };
        change(&mut params);
        let process = bench.sched.attach(params)?;
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
    pub(super) fn memory(&mut self) -> Result<(GartBuffer, u64)> {
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
            aperture: Aperture::System { snooped: true },
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

    /// A queue of `kind` whose memory is at `va`.
    pub(super) fn spec(&self, kind: QueueKind, doorbell: &Doorbell, va: u64) -> QueueSpec {
        QueueSpec {
            kind,
            ring_base: va,
            ring_size: RING,
            rptr: va + layout::RPTR,
            wptr: va + layout::WPTR,
            eop: kind.is_compute().then_some(Eop {
                base: va + layout::EOP,
                bytes: 4096,
            }),
            cwsr: None,
            doorbell: doorbell.offset(),
            priority: 7,
            percent: 100,
            cu_mask: None,
            trap: false,
            gws: false,
        }
    }

    fn add(
        &mut self,
        kind: QueueKind,
        doorbell: Doorbell,
        sdma: Option<SdmaSlot>,
    ) -> Result<usize> {
        let (mem, va) = self.memory()?;
        let byte = doorbell.offset().byte();
        let spec = self.spec(kind, &doorbell, va);
        let hold = QueueHold {
            doorbell: Some(doorbell),
            sdma,
            keep: None,
        };
        let queue = self.bench.sched.create_queue(&self.process, spec, hold)?;
        self.queues.push(
            Queue {
                queue,
                mem,
                va,
                doorbell: byte,
                wptr: 0,
                ring: 0,
                sdma: !kind.is_compute(),
            },
            GFP_KERNEL,
        )?;
        Ok(self.queues.len() - 1)
    }

    /// Adds a PM4 queue.
    pub(super) fn pm4(&mut self) -> Result<usize> {
        let doorbell = self.slice.alloc_cp()?;
        self.add(QueueKind::Pm4, doorbell, None)
    }

    /// Adds an SDMA queue on `engine`.
    pub(super) fn sdma(&mut self, engine: u32) -> Result<usize> {
        let slot = self.bench.sched.alloc_sdma(Some(engine))?;
        let place = slot.place();
        let doorbell = self.slice.alloc_sdma(place.engine, place.queue)?;
        let kind = QueueKind::Sdma(place);
        self.add(kind, doorbell, Some(slot))
    }

    /// Queue `n` shall store `value`.
    pub(super) fn submit(&mut self, n: usize, value: u32) -> Result {
        let hw = self.bench.gpu.enter()?;
        let queue = self.queues.get_mut(n).ok_or(EINVAL)?;
        queue.submit(&hw, value)
    }

    /// Queue `n` shall store `value` at `address`.
    pub(super) fn store(&mut self, n: usize, address: u64, value: u32) -> Result {
        let hw = self.bench.gpu.enter()?;
        let queue = self.queues.get_mut(n).ok_or(EINVAL)?;
        queue.store(&hw, address, value)
    }

    /// Waits until queue `n` has stored `value`.
    pub(super) fn expect(&self, n: usize, value: u32) -> Result {
        let queue = self.queues.get(n).ok_or(EINVAL)?;
        let stored = eventually(|| Ok(queue.value()? == value));
        if stored == Err(ETIMEDOUT) {
            pr_err!("queue {n} stored {:#x}, not {value:#x}\n", queue.value()?);
        }
        stored
    }

    /// Slots of the hardware that serve queue `n`.
    pub(super) fn slots(&self, n: usize) -> Result<usize> {
        let queue = self.queues.get(n).ok_or(EINVAL)?;
        self.bench.slots_of(queue.doorbell)
    }
}

/// Waits until `done`.
pub(super) fn eventually(mut done: impl FnMut() -> Result<bool>) -> Result {
    let start: Instant<Monotonic> = Instant::now();
    while !done()? {
        if start.elapsed() > PATIENCE {
            return Err(ETIMEDOUT);
        }
        fsleep(Delta::from_micros(100));
    }
    Ok(())
}

impl Bench<'_> {
    /// Whether more may be mapped than there are slots and VMIDs.
    pub(super) fn takes_turns(&self) -> bool {
        self.sched.worker.core.config.policy == Policy::Oversubscribe
    }

    /// Slots of the hardware with the doorbell at `byte`.
    pub(super) fn slots_of(&self, byte: usize) -> Result<usize> {
        Ok(self.vmids_of(byte)?.len())
    }

    /// The VMID of each slot of the hardware with the doorbell at `byte`.
    pub(super) fn vmids_of(&self, byte: usize) -> Result<KVec<u32>> {
        use crate::hw::regs::hqd;
        let mut vmids = KVec::new();
        for slot in (0..32).filter_map(hqd::Slot::from_bit) {
            let mut words = [0; 3];
            let regs = [
                hqd::CP_HQD_ACTIVE,
                hqd::CP_HQD_PQ_DOORBELL_CONTROL,
                hqd::CP_HQD_VMID,
            ];
            self.sched
                .worker
                .core
                .platform
                .read_slot(slot, &regs, &mut words)?;
            let [active, control, vmid] = words;
            let offset = hqd::DoorbellControl::from_raw(control).get(hqd::DoorbellControl::OFFSET);
            if active & 1 != 0 && crate::hw::num::index(offset) * 4 == byte {
                vmids.push(vmid & 0xf, GFP_KERNEL)?;
            }
        }
        Ok(vmids)
    }
}

impl Queue {
    pub(super) fn submit(&mut self, hw: &Hw, value: u32) -> Result {
        self.store(hw, self.va + layout::DATA, value)
    }

    fn store(&mut self, hw: &Hw, address: u64, value: u32) -> Result {
        let mut words = [0; 8];
        let len = if self.sdma {
            let packet = sdma::fence(address, value).ok_or(EINVAL)?;
            words[..4].copy_from_slice(&packet);
            4
        } else {
            let packet = WriteMem {
                address,
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

    pub(super) fn value(&self) -> Result<u32> {
        self.mem.read32(usize::try_from(layout::DATA)?)
    }
}
