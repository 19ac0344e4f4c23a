// SPDX-License-Identifier: GPL-2.0

//! The memory of queue descriptors (MQDs); their content is [`hw::mqd`](crate::hw::mqd)'s business.
//!
//! - A compute queue has a block of its own: one page with the MQD and, with wave save, its control
//!   stack right behind, where the hardware looks for it. The block lies in VRAM on ASICs that say
//!   so, else in GART memory.
//! - SDMA descriptors are small and their number is fixed, so they lie in one block of GART memory,
//!   by engine and queue id.
//!
//! While a queue is on the hardware its descriptor belongs to the firmware: the driver writes it
//! before the first mapping and between two mappings.

pub(super) mod saved;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    params::{
        QueueKind,
        QueueSpec, //
    },
    platform::{
        DeviceMem,
        Domain,
        Platform, //
    },
    sdma_ids::QUEUES_PER_ENGINE, //
};
use crate::hw::{
    asic::AsicDesc,
    mqd::{
        buffer_bytes,
        layout::{
            compute,
            sdma,
            COMPUTE_DWORDS, //
        },
        ComputeMqd,
        CuMask,
        MqdError,
        QueueConfig,
        QueueFormat,
        SdmaMqd,
        SdmaQueueConfig,
        SDMA_BYTES, //
    },
    num::{
        hi32,
        index,
        lo32, //
    }, //
};

/// Distance of SDMA descriptors.
const SDMA_STRIDE: usize = SDMA_BYTES;

/// The block of SDMA descriptors.
pub(super) struct SdmaMqds {
    mem: Arc<dyn DeviceMem>,
}

impl SdmaMqds {
    /// Allocates descriptors for all SDMA queues of the device.
    ///
    /// # Errors
    ///
    /// Of [`Platform::alloc`].
    pub(super) fn new(platform: &dyn Platform) -> Result<Arc<Self>> {
        let count = platform.asic().sdma_engines() * QUEUES_PER_ENGINE;
        let mem = platform.alloc(index(count) * SDMA_STRIDE, Domain::Gart)?;
        Ok(Arc::new(Self { mem }, GFP_KERNEL)?)
    }
}

/// The descriptor of one queue. A clone is the same descriptor.
#[derive(Clone)]
pub(super) struct MqdMem {
    mem: Arc<dyn DeviceMem>,
    base: usize,
    asic: &'static AsicDesc,
}

impl MqdMem {
    /// Allocates and initialises the descriptor of a queue.
    ///
    /// # Errors
    ///
    /// `EINVAL`: `spec` has no descriptor. `ENOMEM`, `ENOSPC`, `ENODEV`.
    pub(super) fn new(platform: &dyn Platform, pool: &SdmaMqds, spec: &QueueSpec) -> Result<Self> {
        let asic = platform.asic();
        Self::check(asic, spec)?;
        let (mem, base) = match spec.kind {
            QueueKind::Sdma(place) => {
                let base = index(place.engine * QUEUES_PER_ENGINE + place.queue) * SDMA_STRIDE;
                (pool.mem.clone(), base)
            }
            QueueKind::Pm4 | QueueKind::Aql => {
                let domain = match asic.mqd_in_vram {
                    true => Domain::Vram,
                    false => Domain::GartMqd,
                };
                (platform.alloc(Self::block_bytes(asic, spec)?, domain)?, 0)
            }
        };
        let mqd = Self { mem, base, asic };
        mqd.init(spec)?;
        Ok(mqd)
    }

    /// Bytes of a compute queue's block.
    fn block_bytes(asic: &AsicDesc, spec: &QueueSpec) -> Result<usize> {
        let one = buffer_bytes(spec.cwsr.map_or(0, |cwsr| cwsr.ctl_stack));
        one.checked_mul(asic.num_xcc.into())
            .and_then(|bytes| usize::try_from(bytes).ok())
            .ok_or(EINVAL)
    }

    /// GPU address in VMID 0.
    pub(super) fn gpu_addr(&self) -> u64 {
        // CAST: Lossless, offsets inside a block are small.
        self.mem.gpu_addr() + self.base as u64
    }

    /// Reads dword `dw`, as the firmware left it.
    ///
    /// # Errors
    ///
    /// `EINVAL` beyond the descriptor, `ENODEV`.
    pub(super) fn read(&self, dw: usize) -> Result<u32> {
        self.mem.read32(self.base + dw * 4)
    }
}

impl MqdMem {
    /// Stores dword `dw` of a queue that is not on the hardware.
    ///
    /// # Errors
    ///
    /// As [`MqdMem::read`].
    pub(super) fn write(&self, dw: usize, value: u32) -> Result {
        self.mem.write32(self.base + dw * 4, value)
    }

    /// Makes stored dwords visible to the hardware.
    ///
    /// # Errors
    ///
    /// `ENODEV`.
    pub(super) fn flush(&self) -> Result {
        self.mem.flush()
    }
}

/// What a queue's descriptor says, checked.
enum Image {
    Compute(ComputeMqd),
    Sdma(SdmaMqd),
}

impl Image {
    /// Describes `spec` for a descriptor at `mqd`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the hardware has no encoding for a value.
    fn new(asic: &AsicDesc, spec: &QueueSpec, mqd: u64) -> Result<Self> {
        let described = match spec.kind {
            QueueKind::Pm4 => Self::compute(asic, spec, mqd, QueueFormat::Pm4),
            QueueKind::Aql => Self::compute(asic, spec, mqd, QueueFormat::Aql),
            QueueKind::Sdma(place) => SdmaMqd::new(SdmaQueueConfig {
                ring: spec.ring_base,
                ring_bytes: spec.ring_size,
                rptr_report: spec.rptr,
                doorbell: spec.doorbell,
                engine: place.engine,
                queue: place.queue,
            })
            .map(Self::Sdma),
        };
        described.map_err(|error| {
            pr_debug!("queue refused: {}\n", format_args!("{error}"));
            EINVAL
        })
    }

    fn compute(
        asic: &AsicDesc,
        spec: &QueueSpec,
        mqd: u64,
        format: QueueFormat,
    ) -> Result<Self, MqdError> {
        let mut config = QueueConfig::new(format, spec.doorbell);
        config.mqd = mqd;
        config.ring = spec.ring_base;
        config.ring_bytes = spec.ring_size;
        config.rptr_report = spec.rptr;
        config.wptr_poll = spec.wptr;
        config.eop = spec.eop;
        config.cwsr = spec.cwsr;
        config.trap_handler = spec.trap;
        config.priority = spec.priority;
        config.gws = spec.gws;
        if let Some(mask) = spec.cu_mask {
            config.cu_mask = CuMask(mask);
        }
        ComputeMqd::new(asic, config).map(Self::Compute)
    }
}

impl MqdMem {
    /// Whether `spec` has a descriptor. A queue without a ring needs none: it does not run.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the hardware has no encoding for a value.
    pub(super) fn check(asic: &AsicDesc, spec: &QueueSpec) -> Result {
        match spec.has_ring() {
            true => Image::new(asic, spec, 0).map(|_| ()),
            false => Ok(()),
        }
    }

    /// Writes the descriptor of a queue that never ran.
    fn init(&self, spec: &QueueSpec) -> Result {
        let mut words = KVec::with_capacity(COMPUTE_DWORDS, GFP_KERNEL)?;
        let mut put = |_, word| {
            // Words come in ascending order and no more than the capacity.
            let _ = words.push_within_capacity(word);
        };
        match self.image(spec)? {
            Image::Compute(mqd) => mqd.write(&mut put),
            Image::Sdma(mqd) => mqd.write(&mut put),
        }
        self.mem.write_dwords(self.base, &words)?;
        self.mem.flush()
    }

    /// Writes what differs for `spec`, keeping what the hardware saved. The queue must not be mapped.
    ///
    /// # Errors
    ///
    /// `EINVAL` if [`MqdMem::check`] would fail; else of the memory: the device is lost or gone.
    pub(super) fn update(&self, spec: &QueueSpec) -> Result {
        if !spec.has_ring() {
            return Ok(());
        }
        let mut result = Ok(());
        let read = |dw: usize| self.read(dw).unwrap_or(0);
        let put = |dw: usize, word: u32| {
            if result.is_ok() {
                result = self.mem.write32(self.base + dw * 4, word);
            }
        };
        match self.image(spec)? {
            Image::Compute(mqd) => mqd.update(read, put),
            Image::Sdma(mqd) => mqd.update(read, put),
        }
        result?;
        self.mem.flush()
    }

    /// Stores where the queue stands, when the hardware could not. The queue must not be mapped.
    ///
    /// The pointers are in the unit of the registers: dwords for compute, bytes for SDMA. What else the
    /// descriptor says is of an earlier preemption, and the queue would take up packets, indirect buffers
    /// and waves that it has long finished: it is made void. Only registers of shaders, which packets of
    /// a compute queue have set, stay as they were then.
    ///
    /// # Errors
    ///
    /// Of the memory: the device is lost or gone.
    pub(super) fn begin_at(&self, spec: &QueueSpec, rptr: u64, wptr: u64) -> Result {
        let put = |dw: usize, word| self.mem.write32(self.base + dw * 4, word);
        let mut result = Ok(());
        let mut try_put = |dw, word| {
            if result.is_ok() {
                result = put(dw, word);
            }
        };
        let image = self.image(spec)?;
        match &image {
            Image::Compute(mqd) => mqd.void(&mut try_put),
            Image::Sdma(mqd) => mqd.write(&mut try_put),
        }
        result?;
        match image {
            Image::Compute(_) => {
                put(compute::CP_HQD_PQ_RPTR, lo32(rptr))?;
                put(compute::CP_HQD_PQ_WPTR_LO, lo32(wptr))?;
                put(compute::CP_HQD_PQ_WPTR_HI, hi32(wptr))?;
            }
            Image::Sdma(_) => {
                put(sdma::RB_RPTR, lo32(rptr))?;
                put(sdma::RB_RPTR_HI, hi32(rptr))?;
                put(sdma::RB_WPTR, lo32(wptr))?;
                put(sdma::RB_WPTR_HI, hi32(wptr))?;
            }
        }
        self.mem.flush()
    }

    fn image(&self, spec: &QueueSpec) -> Result<Image> {
        Image::new(self.asic, spec, self.gpu_addr())
    }
}
