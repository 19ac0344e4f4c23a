// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Private memory of an AQL queue's waves (scratch).
//!
//! The packet processor gives each wave a slot of the queue's scratch memory, which `amd_queue_t` describes; a wave that
//! finds none free waits. A dispatch that wants more per work-item than a slot has stops the queue. So the library makes
//! room before it submits such a dispatch: it waits until the queue is idle, since a slot in use cannot be moved.
//!
//! Registers and slots: `COMPUTE_TMPRING_SIZE`, and the buffer resource as ROCr makes it for gfx9.

use std::sync::PoisonError;
use std::sync::RwLockReadGuard;

use super::object::ScratchFields;
use super::Queue;
use crate::error::Error;
use crate::error::Result;
use crate::memory::Buffer;
use crate::memory::Kind;
use crate::packet::aql::Barrier;
use crate::packet::aql::BarrierKind;
use crate::signal::Signals;
use crate::sizes::Shape;

/// Work-items of a wave.
const LANES: u64 = 64;
/// Bytes of a wave's slot are counted in these.
const WAVE_UNIT: u64 = 1024;
/// Most units of a slot: 13 bits.
const MOST_UNITS: u64 = (1 << 13) - 1;
/// Most slots: 12 bits.
const MOST_WAVES: u64 = (1 << 12) - 1;
/// Slots of a compute unit, where memory allows.
const WAVES_PER_CU: u64 = 32;
/// Part of the free memory that a queue's scratch may take: 1 / n.
const SHARE: u64 = 8;

/// What a queue has.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    memory: Option<Buffer>,
    lane_bytes: u32,
}

/// How much there is to be, and in how many slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    /// Bytes of a work-item.
    lane_bytes: u32,
    /// Slots of an XCC.
    waves: u64,
}

impl Plan {
    /// For waves whose work-items want `bytes` each, of `free` bytes of memory.
    ///
    /// # Errors
    /// [`Error::Argument`] for more than a slot can have.
    fn new(bytes: u32, shape: Shape, free: u64) -> Result<Self> {
        let units = (u64::from(bytes) * LANES).div_ceil(WAVE_UNIT).max(1);
        if units > MOST_UNITS {
            return Err(Error::Argument(
                "More private memory than a wave can have: 131056 bytes for each work-item",
            ));
        }
        // Each shader engine has as many.
        let engines = shape.engines.max(1);
        let wanted = (shape.compute_units * WAVES_PER_CU).max(engines);
        let affordable = free / SHARE / shape.xccs.max(1) / (units * WAVE_UNIT);
        let waves = wanted.min(MOST_WAVES).min(affordable) / engines * engines;
        Ok(Self {
            // CAST: at most 8191 * 16.
            lane_bytes: (units * WAVE_UNIT / LANES) as u32,
            waves: waves.max(engines),
        })
    }

    /// Bytes of an XCC.
    fn bytes(&self) -> u64 {
        self.waves * u64::from(self.lane_bytes) * LANES
    }

    fn fields(&self, address: u64) -> ScratchFields {
        // CAST: 12 and 13 bits; halves of an address.
        let units = u64::from(self.lane_bytes) * LANES / WAVE_UNIT;
        ScratchFields {
            ring_size: (self.waves | (units << 12)) as u32,
            resource: [
                address as u32,
                // Swizzled, so that a dword of all work-items of a wave is in one piece.
                ((address >> 32) as u32 & 0xffff) | (1 << 31),
                u32::try_from(self.bytes()).unwrap_or(u32::MAX),
                // Elements of 4 bytes in strides of 64 lanes, whose number is added: unsigned 32-bit, x y z w.
                0x00ea_4fac,
            ],
            location: address,
            bytes: self.bytes(),
            lane_bytes: self.lane_bytes,
        }
    }
}

/// The right to submit packets that use the scratch memory that there is.
#[derive(Debug)]
pub struct ScratchUse<'q> {
    _held: Option<RwLockReadGuard<'q, Scratch>>,
}

impl Queue {
    /// Sees to it that waves of this AQL queue have at least `bytes` of private memory for each work-item. Where they have
    /// less, it waits until the queue is idle, as long as the queue's options say. What it returns is to be kept until the
    /// packet is written.
    ///
    /// # Errors
    /// [`Error::Argument`] for more than there can be; [`Error::TimedOut`], [`Error::QueueFailed`]; those of
    /// [`Buffer::new`].
    pub fn provide_scratch(&self, bytes: u32) -> Result<ScratchUse<'_>> {
        self.demand(true)?;
        if bytes == 0 {
            return Ok(ScratchUse { _held: None });
        }
        loop {
            let scratch = &self.live.scratch;
            let held = scratch.read().unwrap_or_else(PoisonError::into_inner);
            if held.lane_bytes >= bytes {
                return Ok(ScratchUse { _held: Some(held) });
            }
            drop(held);
            let mut held = scratch.write().unwrap_or_else(PoisonError::into_inner);
            if held.lane_bytes < bytes {
                self.grow_scratch(&mut held, bytes)?;
            }
        }
    }

    /// Bytes of private memory that each work-item can have now.
    pub fn scratch_bytes(&self) -> u32 {
        let scratch = self.live.scratch.read();
        scratch.unwrap_or_else(PoisonError::into_inner).lane_bytes
    }

    fn grow_scratch(&self, scratch: &mut Scratch, bytes: u32) -> Result<()> {
        let device = self.device();
        let shape = device.shape().ok_or(Error::Argument(
            "The GPU's shape is not known, hence not how many waves it has",
        ))?;
        let plan = Plan::new(bytes, shape, device.available_memory()?)?;
        let total = plan.bytes() * shape.xccs.max(1);
        let total = usize::try_from(total)
            .map_err(|_| Error::Argument("Scratch memory beyond the address space"))?;
        let memory = Buffer::new(device, Kind::VramPrivate, total)?;
        self.wait_idle()?;
        self.live
            .object
            .set_scratch(&plan.fields(memory.address()))?;
        scratch.lane_bytes = plan.lane_bytes;
        // The one before goes, which no wave uses any more.
        scratch.memory = Some(memory);
        Ok(())
    }

    /// Waits until every packet that was submitted is done.
    fn wait_idle(&self) -> Result<()> {
        let done = Signals::new(self.device(), 1)?;
        done.store(0, 1)?;
        let barrier = Barrier {
            kind: BarrierKind::And,
            dependencies: [0; 5],
            completion: done.address(0)?,
        };
        let (packet, header) = barrier.encode()?;
        self.submit_aql(&packet, header)?;
        let limit = self.options.full_limit;
        self.wait("the queue to be idle", limit, |_| {
            done.load(0).is_ok_and(|value| value == 0)
        })
        .inspect_err(|_| {
            // The packet still names the signal.
            std::mem::forget(done);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(compute_units: u64, engines: u64) -> Shape {
        Shape {
            compute_units,
            engines,
            gfx: 90010,
            xccs: 1,
        }
    }

    #[test]
    fn slots_are_as_many_as_waves_or_as_memory_allows() {
        let gfx90a = shape(104, 8);
        // The smallest slot has 1 KiB, 16 bytes for a work-item.
        let small = Plan::new(4, gfx90a, 1 << 30).unwrap();
        assert_eq!((small.lane_bytes, small.waves), (16, 3328));
        // 1 MiB each, of 128 MiB.
        let large = Plan::new(16384, gfx90a, 1 << 30).unwrap();
        assert_eq!(
            (large.lane_bytes, large.waves, large.bytes()),
            (16384, 128, 128 << 20)
        );
        // Never fewer than one for each shader engine.
        let poor = Plan::new(16384, gfx90a, 0).unwrap();
        assert_eq!(poor.waves, 8);
        assert_eq!(Plan::new(131_056, gfx90a, 0).unwrap().lane_bytes, 131_056);
        assert!(Plan::new(131_057, gfx90a, 1 << 40).is_err());
        assert_eq!(Plan::new(1, shape(400, 8), 1 << 40).unwrap().waves, 4088);
    }

    #[test]
    fn fields_are_those_of_the_runtimes() {
        let plan = Plan::new(100, shape(60, 4), 1 << 30).unwrap();
        assert_eq!((plan.lane_bytes, plan.waves), (112, 1920));
        let fields = plan.fields(0x7f12_3456_7000);
        assert_eq!(fields.ring_size, 1920 | (7 << 12));
        assert_eq!(
            fields.resource,
            [0x3456_7000, 0x8000_7f12, 1920 * 7168, 0x00ea_4fac]
        );
        assert_eq!((fields.bytes, fields.lane_bytes), (1920 * 7168, 112));
    }
}
