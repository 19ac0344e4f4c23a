// SPDX-License-Identifier: GPL-2.0

//! The queues of one process, or of one open file: ids, limits, doorbells, and the memory that each keeps mapped.
//!
//! The process lock protects a [`QueueManager`]: the queue of each id. A [`Queue`] is shared, so that the lock
//! is not held across a wait for the hardware. `Queue::changes` comes after the process lock and is held across
//! such waits; it keeps other changes of the same queue waiting, and nothing else.

use core::ops::Range;

use super::request::{
    Change,
    MappingReq,
    Properties,
    SdmaEngine, //
};
use crate::{
    gpu::{
        Doorbell,
        DoorbellSlice, //
    },
    hw::{
        asic::{
            AsicDesc,
            IpVersion, //
        },
        doorbell::BYTES,
        mqd::{
            self,
            CuMask, //
        },
        shader::ComputeUnits, //
    },
    kapi::slots::Slots,
    sched::{
        KeepAlive,
        QueueHold,
        QueueKind,
        QueueSpec,
        QueueUpdate,
        SchedProcess,
        SchedQueue,
        Scheduler,
        SdmaSlot,
        UpdateError,
        WaveState, //
    },
    vm::{
        MappingHold,
        SizeRule,
        Vm, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

/// Queue ids of a process are below this.
pub(crate) const MAX_QUEUES: u32 = 1024;
/// Graphics version whose firmware has no limit of its own.
const NO_HWS_LIMIT: IpVersion = IpVersion(9, 4, 3);

/// Queues of one process on one GPU.
pub(crate) fn max_per_device(asic: &AsicDesc) -> usize {
    if asic.ip.gc == NO_HWS_LIMIT {
        255
    } else {
        127
    }
}

/// How the memory of a queue has to lie in its mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Ring, end-of-pipe buffer and save area are mappings of their own, as upstream demands.
    Exact,
    /// Everything lies anywhere in a mapping, each in one.
    Within,
}

/// Where a queue is made.
pub(crate) struct Target<'a> {
    /// The GPU, as the process numbers them.
    pub(crate) device: usize,
    /// Its ASIC.
    pub(crate) asic: &'static AsicDesc,
    /// Its compute units.
    pub(crate) units: ComputeUnits,
    /// Its scheduler.
    pub(crate) sched: &'a Arc<Scheduler>,
    /// The process as the scheduler knows it.
    pub(crate) process: &'a Arc<SchedProcess>,
    /// The doorbells of the process.
    pub(crate) doorbells: &'a Arc<DoorbellSlice>,
}

/// Mappings that a queue uses.
struct Holds {
    /// The ring, and former rings that the hardware may still read.
    rings: KVec<MappingHold>,
    /// Pointers, end-of-pipe buffer, save area.
    _others: KVec<MappingHold>,
}

/// The memory of a queue. The scheduler keeps it as long as the hardware may use it; after an orderly
/// end it is released at once.
#[pin_data]
pub(crate) struct QueueMemory {
    fit: Fit,
    #[pin]
    holds: Mutex<Option<Holds>>,
}

impl KeepAlive for QueueMemory {}

impl QueueMemory {
    /// Holds what a queue needs in `vm`, the address space of a GPU with these compute units. Waits while the GPU
    /// drops translations. The save area may be memory of the program instead of a buffer, if `kept` says of its addresses that
    /// the GPU has it whenever queues run: nothing is held then.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: a size that does not suit the GPU.
    /// - `EFAULT`: memory that is not mapped as `fit` requires.
    /// - `ENOMEM`: no memory.
    pub(crate) fn hold(
        vm: &Vm,
        asic: &AsicDesc,
        units: ComputeUnits,
        properties: &Properties,
        fit: Fit,
        kept: impl Fn(&Range<u64>) -> bool,
    ) -> Result<Arc<Self>> {
        let area = asic.shader.save_area(units.count(), asic.num_xcc);
        let reqs = properties.mapping_reqs(&area, asic.num_xcc)?;
        Self::new(vm, &reqs, fit, kept)
    }

    fn new(
        vm: &Vm,
        reqs: &super::request::MappingReqs,
        fit: Fit,
        kept: impl Fn(&Range<u64>) -> bool,
    ) -> Result<Arc<Self>> {
        let hold = |req| hold(vm, req, fit);
        let mut others = KVec::with_capacity(4, GFP_KERNEL_ACCOUNT)?;
        others.push(hold(&reqs.wptr)?, GFP_KERNEL_ACCOUNT)?;
        others.push(hold(&reqs.rptr)?, GFP_KERNEL_ACCOUNT)?;
        let mut rings = KVec::with_capacity(1, GFP_KERNEL_ACCOUNT)?;
        rings.push(hold(&reqs.ring)?, GFP_KERNEL_ACCOUNT)?;
        if let Some(req) = &reqs.eop {
            others.push(hold(req)?, GFP_KERNEL_ACCOUNT)?;
        }
        if let Some(req) = &reqs.ctx {
            let end = req.va.checked_add(req.size).ok_or(EINVAL)?;
            if !kept(&(req.va..end)) {
                others.push(hold(req)?, GFP_KERNEL_ACCOUNT)?;
            }
        }
        let holds = Holds {
            rings,
            _others: others,
        };
        Arc::pin_init(
            pin_init!(Self {
                fit,
                holds <- new_mutex!(Some(holds), "rkfd_queue_memory"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Adds a ring.
    fn add_ring(&self, ring: MappingHold) -> Result {
        if let Some(holds) = &mut *self.holds.lock() {
            holds.rings.push(ring, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(())
    }

    /// Drops all rings but the newest.
    fn drop_old_rings(&self) {
        if let Some(holds) = &mut *self.holds.lock() {
            while holds.rings.len() > 1 {
                drop(holds.rings.remove(0));
            }
        }
    }

    /// Drops the newest ring.
    fn drop_new_ring(&self) {
        if let Some(holds) = &mut *self.holds.lock() {
            drop(holds.rings.pop());
        }
    }

    /// The hardware is done with all of it.
    fn release(&self) {
        let holds = self.holds.lock().take();
        drop(holds);
    }
}

fn hold(vm: &Vm, req: &MappingReq, fit: Fit) -> Result<MappingHold> {
    let rule = match (req.size, fit) {
        (0, _) => SizeRule::AtLeast(1),
        (size, Fit::Exact) => SizeRule::Exact(size),
        (size, Fit::Within) => SizeRule::AtLeast(size),
    };
    vm.hold(req.va, rule).map_err(|_| EFAULT)
}

/// A queue.
#[pin_data]
pub(crate) struct Queue {
    device: usize,
    units: ComputeUnits,
    sched: Arc<Scheduler>,
    queue: Arc<SchedQueue>,
    memory: Arc<QueueMemory>,
    kind: QueueKind,
    /// Context save area; 0 for none.
    ctx: u64,
    /// What lies behind the ring, bytes.
    metadata_size: u32,
    /// Id of its doorbell in the slice.
    doorbell: u32,
    /// Held while it is changed, or while what must not change is read.
    #[pin]
    changes: Mutex<()>,
}

impl Queue {
    /// The GPU, as the process numbers them.
    pub(crate) fn device(&self) -> usize {
        self.device
    }

    /// Takes the queue off the hardware and waits for that. When this returns, the hardware does not use its
    /// memory any more, unless the result says otherwise.
    ///
    /// # Errors
    ///
    /// - `EIO`: the queue does not stop; the scheduler keeps the memory.
    /// - `EINTR`: the caller is being killed; the scheduler keeps the memory until it is free.
    pub(crate) fn destroy(&self) -> Result {
        match self.sched.destroy_queue(&self.queue) {
            Ok(()) => {}
            // Nothing runs on a GPU that is gone.
            Err(error) if error == ENODEV => {}
            Err(error) => return Err(error),
        }
        self.memory.release();
        Ok(())
    }

    /// Whether waves run for it.
    pub(crate) fn is_compute(&self) -> bool {
        self.kind.is_compute()
    }

    /// Changes the queue, in one step, and waits until that is in force. An SDMA queue has no compute units: a mask
    /// is left out.
    ///
    /// # Errors
    ///
    /// - `ENOENT`: the queue was destroyed meanwhile.
    /// - `EFAULT`: the ring is not mapped as required.
    /// - `EACCES`: the queue hung and was reset; it does not run again.
    /// - `EIO`, `ENODEV`, `EINTR`, `EINVAL`, `ENOMEM`, `ENOSPC`: those of the scheduler.
    pub(crate) fn update(&self, change: &Change<'_>, vm: &Vm) -> Result {
        // Rings are exchanged one after the other: which is the newest must be clear.
        let _changes = self.changes.lock();
        if let Some((base, size)) = change.ring {
            let bytes = u64::from(size) + u64::from(self.metadata_size);
            let req = MappingReq::pages(base, bytes).map_err(|_| EFAULT)?;
            self.memory.add_ring(hold(vm, &req, self.memory.fit)?)?;
        }
        let (ring_base, ring_size) = change.ring.unzip();
        let cu_mask = change.cu_mask.filter(|_| self.is_compute());
        let result = self.sched.update_queue(
            &self.queue,
            QueueUpdate {
                ring_base,
                ring_size,
                percent: change.percent,
                priority: change.priority,
                cu_mask: cu_mask.map(|(mask, count)| {
                    let CuMask(engines) = mqd::spread(&self.units, mask, count);
                    engines
                }),
                ..QueueUpdate::default()
            },
        );
        let has_ring = change.ring.is_some();
        match result {
            Ok(()) if has_ring => self.memory.drop_old_rings(),
            // The queue is as before.
            Err(UpdateError::Refused(_)) if has_ring => self.memory.drop_new_ring(),
            // It is not known which ring the hardware reads: keep both. That cannot happen again and
            // again: the caller is being killed, or the GPU is not coming back.
            _ => {}
        }
        result.map_err(Error::from)
    }

    /// Gives the GPU's global wave sync to the queue, or takes it back.
    ///
    /// # Errors
    ///
    /// As [`Scheduler::set_gws`]; `EINVAL`: the queue was destroyed meanwhile.
    pub(crate) fn set_gws(&self, on: bool) -> Result {
        let _changes = self.changes.lock();
        self.sched
            .set_gws(&self.queue, on)
            .map_err(|error| if error == ENOENT { EINVAL } else { error })
    }

    /// The saved waves of a queue that does not run.
    ///
    /// # Errors
    ///
    /// - `EFAULT`: the queue was destroyed meanwhile.
    /// - Those of the scheduler.
    pub(crate) fn wave_state(&self) -> Result<WaveState> {
        // Keeps others from starting it.
        let _changes = self.changes.lock();
        self.sched
            .wave_state(&self.queue)
            .map_err(|error| if error == ENOENT { EFAULT } else { error })
    }
}

/// What a queue that is being made has already.
pub(crate) struct Prepared {
    memory: Arc<QueueMemory>,
    kind: QueueKind,
    doorbell: Doorbell,
    sdma: Option<SdmaSlot>,
}

impl Prepared {
    /// Id of its doorbell in the slice, as interrupts name it.
    pub(crate) fn doorbell_id(&self) -> u32 {
        self.doorbell.byte_in_slice() / BYTES
    }
}

/// What user space learns of a new queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Created {
    /// Its id.
    pub(crate) id: u32,
    /// Its doorbell, bytes into the slice.
    pub(crate) doorbell: u32,
}

/// The queues of one process.
pub(crate) struct QueueManager {
    queues: Slots<Arc<Queue>>,
}

impl QueueManager {
    /// No queue.
    pub(crate) const fn new() -> Self {
        Self {
            queues: Slots::new(0),
        }
    }

    /// Whether there is no queue.
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    fn count_on(&self, device: usize) -> usize {
        self.queues
            .iter()
            .filter(|(_, queue)| queue.device == device)
            .count()
    }

    /// Takes what a queue needs besides `memory`, without making it.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no such SDMA engine.
    /// - `ENOSPC`: too many queues on this GPU.
    /// - `ENOMEM`: too many queues in the process; no free SDMA queue; no memory.
    /// - `EBUSY`: no free doorbell.
    pub(crate) fn prepare(
        &self,
        target: &Target<'_>,
        properties: &Properties,
        memory: Arc<QueueMemory>,
    ) -> Result<Prepared> {
        if self.count_on(target.device) >= max_per_device(target.asic) {
            return Err(ENOSPC);
        }
        if self.queues.len() >= crate::hw::num::index(MAX_QUEUES) {
            return Err(ENOMEM);
        }
        let (kind, doorbell, sdma) = match properties.kind {
            QueueKind::Pm4 => (QueueKind::Pm4, target.doorbells.alloc_cp(), None),
            QueueKind::Aql => (QueueKind::Aql, target.doorbells.alloc_cp(), None),
            QueueKind::Sdma(engine) => {
                let slot = sdma_slot(target, engine)?;
                let place = slot.place();
                let doorbell = target.doorbells.alloc_sdma(place.engine, place.queue);
                (QueueKind::Sdma(place), doorbell, Some(slot))
            }
        };
        Ok(Prepared {
            memory,
            kind,
            doorbell: doorbell.map_err(|_| EBUSY)?,
            sdma,
        })
    }

    /// Makes a queue with what was prepared for the same target; it runs soon.
    ///
    /// # Errors
    ///
    /// - `ENOSPC`: too many queues on this GPU.
    /// - `EPERM`: what is held against the process, see [`Scheduler::create_queue`].
    /// - `ENOMEM`: no memory.
    /// - `EIO`, `ENODEV`: the GPU does not answer or is gone.
    pub(crate) fn create(
        &mut self,
        target: &Target<'_>,
        properties: &Properties,
        prepared: Prepared,
    ) -> Result<Created> {
        let Prepared {
            memory,
            kind,
            doorbell,
            sdma,
        } = prepared;
        let byte = doorbell.byte_in_slice();
        let spec = QueueSpec {
            kind,
            ring_base: properties.ring_base,
            ring_size: properties.ring_size,
            rptr: properties.rptr,
            wptr: properties.wptr,
            eop: (properties.eop != 0).then_some(mqd::Eop {
                base: properties.eop,
                bytes: properties.eop_size,
            }),
            cwsr: kind.is_compute().then_some(mqd::Cwsr {
                base: properties.ctx,
                bytes: properties.ctx_size,
                ctl_stack: properties.ctl_stack_size,
            }),
            doorbell: doorbell.offset(),
            priority: properties.priority,
            percent: properties.effective_percent(),
            cu_mask: None,
            trap: false,
            gws: false,
        };
        let hold = QueueHold {
            doorbell: Some(doorbell),
            sdma,
            keep: Some(memory.clone()),
        };
        let queue = target.sched.create_queue(target.process, spec, hold)?;
        let queue = Arc::pin_init(
            pin_init!(Queue {
                device: target.device,
                units: target.units,
                sched: target.sched.clone(),
                queue,
                memory,
                kind,
                ctx: properties.ctx,
                metadata_size: properties.metadata_size,
                doorbell: byte / BYTES,
                changes <- new_mutex!((), "rkfd_queue_changes"),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        let id = self.queues.insert(queue, MAX_QUEUES)?;
        Ok(Created { id, doorbell: byte })
    }

    /// The queue with an id.
    pub(crate) fn find(&self, id: u32) -> Option<Arc<Queue>> {
        self.queues.get(id).cloned()
    }

    /// Takes the queue with an id out, to be [destroyed](Queue::destroy) without the lock. The id is free.
    pub(crate) fn take(&mut self, id: u32) -> Option<Arc<Queue>> {
        self.queues.remove(id)
    }

    /// Address of the context save area of the compute queue with a doorbell; 0 if it has none.
    pub(crate) fn save_area(&self, device: usize, doorbell: u32) -> Option<u64> {
        let (_, queue) = self
            .queues
            .iter()
            .find(|(_, queue)| queue.device == device && queue.doorbell == doorbell)?;
        Some(queue.ctx)
    }

    /// Forgets every queue, after the scheduler took the whole process off the hardware of
    /// all GPUs; `done(device)` tells where that went well.
    pub(crate) fn clear(&mut self, done: impl Fn(usize) -> bool) {
        for id in 0..self.queues.end() {
            if let Some(queue) = self.queues.remove(id) {
                if done(queue.device) {
                    queue.memory.release();
                }
            }
        }
    }
}

/// Takes an SDMA queue. Queues spread over the engines: the lowest queue number that any engine has free
/// wins, and among those the first engine.
fn sdma_slot(target: &Target<'_>, engine: SdmaEngine) -> Result<SdmaSlot> {
    let slot = match engine {
        SdmaEngine::Number(number) => target.sched.alloc_sdma(Some(number)),
        // The topology lists none.
        SdmaEngine::Xgmi => Err(ENOSPC),
        SdmaEngine::General => target
            .sched
            .alloc_sdma_spread(target.asic.sdma_general_engines),
    };
    slot.map_err(|_| ENOMEM)
}
