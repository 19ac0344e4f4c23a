// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The queue object that the GPU knows: `amd_queue_t` with its signals, in one page.
//!
//! The packet processor finds the object through the address of the read index, which it has from the queue's
//! descriptor, and the distance that the object itself tells. It stops at a packet that it cannot run and stores the
//! reason to the value of the object's *inactive signal*, which raises an event. It goes on, with the same packet, when
//! the value is 0 again.
//!
//! Layout: `amd_hsa_queue.h` and `amd_hsa_signal.h` of ROCr.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use crate::device::Device;
use crate::error::Result;
use crate::event::Event;
use crate::memory::Buffer;
use crate::memory::Kind;
use crate::packet::aql;
use crate::queue::error::QueueError;
use crate::queue::QueueKind;
use crate::signal;
use crate::sizes::Shape;
use crate::sys::PAGE;

/// Offsets in `amd_queue_t`.
pub(crate) mod at {
    /// `hsa_queue.type`: 0, several producers.
    pub const TYPE: usize = 0x00;
    /// `hsa_queue.features`: bit 0, kernel dispatches.
    pub const FEATURES: usize = 0x04;
    /// `hsa_queue.base_address`.
    pub const BASE: usize = 0x08;
    /// `hsa_queue.doorbell_signal`.
    pub const DOORBELL_SIGNAL: usize = 0x10;
    /// `hsa_queue.size`, in packets.
    pub const SIZE: usize = 0x18;
    /// `hsa_queue.id`.
    pub const ID: usize = 0x20;
    /// `write_dispatch_id`.
    pub const WRITE: usize = 0x38;
    /// `group_segment_aperture_base_hi`.
    pub const GROUP_APERTURE: usize = 0x40;
    /// `private_segment_aperture_base_hi`.
    pub const PRIVATE_APERTURE: usize = 0x44;
    /// `max_cu_id`.
    pub const MAX_CU: usize = 0x48;
    /// `max_wave_id`, within a compute unit.
    pub const MAX_WAVE: usize = 0x4c;
    /// `read_dispatch_id`.
    pub const READ: usize = 0x80;
    /// `read_dispatch_id_field_base_byte_offset`.
    pub const READ_OFFSET: usize = 0x88;
    /// `compute_tmpring_size`.
    pub const SCRATCH_RING_SIZE: usize = 0x8c;
    /// `scratch_resource_descriptor`.
    pub const SCRATCH_RESOURCE: usize = 0x90;
    /// `scratch_backing_memory_location`.
    pub const SCRATCH_LOCATION: usize = 0xa0;
    /// `scratch_backing_memory_byte_size`.
    pub const SCRATCH_BYTES: usize = 0xa8;
    /// `scratch_wave64_lane_byte_size`.
    pub const SCRATCH_LANE_BYTES: usize = 0xb0;
    /// `queue_properties`: bit 1, 64-bit pointers.
    pub const PROPERTIES: usize = 0xb4;
    /// `queue_inactive_signal`.
    pub const INACTIVE_SIGNAL: usize = 0xc0;
    /// Bytes of `amd_queue_t`.
    pub const END: usize = 0x100;
}

/// The signals behind the object.
const DOORBELL: usize = at::END;
const INACTIVE: usize = DOORBELL + signal::BYTES;
/// The word for the driver's reasons (`err_payload_addr`), as a signal of its own, which is what ROCr has it be.
const EXCEPTION: usize = INACTIVE + signal::BYTES;

/// `AMD_SIGNAL_KIND_DOORBELL`, as the bits of -1.
const KIND_DOORBELL: u64 = u64::MAX;

/// What the packet processor reads of the queue's scratch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScratchFields {
    /// `COMPUTE_TMPRING_SIZE`.
    pub(super) ring_size: u32,
    /// The buffer resource that waves get.
    pub(super) resource: [u32; 4],
    /// Where the memory begins.
    pub(super) location: u64,
    /// Its bytes, of one XCC.
    pub(super) bytes: u64,
    /// Bytes of a work-item.
    pub(super) lane_bytes: u32,
}

/// Waves of a compute unit.
const WAVES_PER_CU: u32 = 40;

/// The page of a queue: its pointers and, for AQL, the rest of the object.
#[derive(Debug)]
pub(crate) struct Object {
    page: Buffer,
    ring: Arc<Buffer>,
    /// Raised by the inactive signal and by the driver's reports; AQL only.
    event: Option<Event>,
}

impl Object {
    /// The page of a queue to be.
    ///
    /// # Errors
    /// Those of [`Buffer::new`] and [`Event::new`].
    pub(crate) fn new(device: &Arc<Device>, kind: QueueKind, ring: &Arc<Buffer>) -> Result<Self> {
        let mut object = Self {
            page: Buffer::new(device, Kind::Gtt, PAGE)?,
            ring: ring.clone(),
            event: None,
        };
        if kind == QueueKind::Aql {
            let event = Event::new(device, true)?;
            object.describe(device, ring, &event)?;
            object.event = Some(event);
        }
        Ok(object)
    }

    /// Fills in what the packet processor and its runtime read, but for what only the kernel knows.
    fn describe(&self, device: &Device, ring: &Buffer, event: &Event) -> Result<()> {
        let page = &self.page;
        let apertures = &device.gpu().apertures;
        let units = device
            .shape()
            .map_or(0, |shape: Shape| shape.compute_units * shape.xccs);
        // CAST: the high half of an address is the purpose, three times; counts of a GPU's parts.
        let high = |address: u64| (address >> 32) as u32;
        let packets = (ring.size() / aql::BYTES) as u32;
        let last_unit = (units as u32).saturating_sub(1);
        for (offset, value) in [
            (at::TYPE, 0),
            (at::FEATURES, 1),
            (at::SIZE, packets),
            (at::GROUP_APERTURE, high(apertures.lds_base)),
            (at::PRIVATE_APERTURE, high(apertures.scratch_base)),
            (at::MAX_CU, last_unit),
            (at::MAX_WAVE, WAVES_PER_CU - 1),
            (at::READ_OFFSET, at::READ as u32), // CAST: a constant.
            (at::PROPERTIES, 1 << 1),
        ] {
            page.write_u32(offset, value)?;
        }
        page.write_u64(at::BASE, ring.address())?;
        page.write_u64(at::DOORBELL_SIGNAL, self.address_of(DOORBELL))?;
        page.write_u64(at::INACTIVE_SIGNAL, self.address_of(INACTIVE))?;
        page.write_u64(DOORBELL + signal::KIND, KIND_DOORBELL)?;
        for signal in [INACTIVE, EXCEPTION] {
            page.write_u64(signal + signal::KIND, signal::KIND_USER)?;
            page.write_u64(signal + signal::MAILBOX, event.slot_address())?;
            page.write_u32(signal + signal::EVENT_ID, event.id())?;
        }
        Ok(())
    }

    /// Fills in what CREATE_QUEUE returned.
    ///
    /// # Errors
    /// None that can happen: the offsets lie inside the page.
    pub(crate) fn complete(&self, id: u32, doorbell: u64) -> Result<()> {
        self.page.write_u64(at::ID, id.into())?;
        self.page.write_u64(DOORBELL + signal::VALUE, doorbell)
    }

    /// Tells of scratch memory, while the queue is idle.
    ///
    /// # Errors
    /// None that can happen: the offsets lie inside the page.
    pub(super) fn set_scratch(&self, fields: &ScratchFields) -> Result<()> {
        let page = &self.page;
        page.write_u32(at::SCRATCH_RING_SIZE, fields.ring_size)?;
        page.write_dwords(at::SCRATCH_RESOURCE, &fields.resource)?;
        page.write_u64(at::SCRATCH_LOCATION, fields.location)?;
        page.write_u64(at::SCRATCH_BYTES, fields.bytes)?;
        page.write_u32(at::SCRATCH_LANE_BYTES, fields.lane_bytes)
    }

    fn address_of(&self, offset: usize) -> u64 {
        self.page.address() + offset as u64 // CAST: less than a page.
    }

    /// Maps it on another GPU as well.
    ///
    /// # Errors
    /// Those of [`Buffer::share`].
    pub(super) fn share(&self, device: &Arc<Device>) -> Result<()> {
        self.page.share(device)
    }

    /// The object's address.
    pub(crate) fn address(&self) -> u64 {
        self.page.address()
    }

    /// Address of the write pointer.
    pub(crate) fn write_address(&self) -> u64 {
        self.address_of(at::WRITE)
    }

    /// Address of the read pointer.
    pub(crate) fn read_address(&self) -> u64 {
        self.address_of(at::READ)
    }

    /// Address of the word for the driver's reasons.
    pub(crate) fn exception_address(&self) -> u64 {
        self.address_of(EXCEPTION + signal::VALUE)
    }

    /// The event that errors raise.
    pub(crate) fn event(&self) -> Option<&Event> {
        self.event.as_ref()
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the callers' offsets are constants, 8-byte aligned and inside the page, which lives as long as `self`;
        // all access to these words is atomic, the GPU's and the driver's included.
        unsafe { AtomicU64::from_ptr((self.page.address() as usize as *mut u8).add(offset).cast()) }
    }

    /// The write pointer.
    pub(crate) fn write(&self) -> &AtomicU64 {
        self.word(at::WRITE)
    }

    /// The read pointer, all 64 bits.
    pub(crate) fn read(&self) -> &AtomicU64 {
        self.word(at::READ)
    }

    /// The read pointer of a PM4 queue, which has 32 bits.
    pub(crate) fn read_low(&self) -> u32 {
        // SAFETY: the low half of the live, aligned word; atomic as well.
        let low: &AtomicU32 = unsafe { AtomicU32::from_ptr(self.read().as_ptr().cast()) };
        low.load(Ordering::Acquire)
    }

    /// What stopped the queue, if anything did.
    pub(crate) fn error(&self) -> Option<QueueError> {
        self.event.as_ref()?;
        let code = self.word(INACTIVE + signal::VALUE).load(Ordering::Acquire);
        let exceptions = self.word(EXCEPTION + signal::VALUE).load(Ordering::Acquire);
        if code == 0 && exceptions == 0 {
            return None;
        }
        Some(QueueError {
            code,
            exceptions,
            packet: self.first_valid(),
        })
    }

    /// The first word of the place with that index, with a packet's header, which other threads may be storing.
    fn first_word(&self, index: u64) -> u32 {
        let packets = (self.ring.size() / aql::BYTES).max(1) as u64; // CAST: a size in memory, and back below.
        let place = (index % packets) as usize * aql::BYTES;
        let ring = self.ring.address() as usize as *mut u8;
        // SAFETY: the place begins inside the ring, which is whole pages, aligned, and mapped at its address for as long as
        // `self` lives; all access to the first words of places is atomic.
        let word: &AtomicU32 = unsafe { AtomicU32::from_ptr(ring.add(place).cast()) };
        word.load(Ordering::Acquire)
    }

    /// Index of the packet that the GPU looks at. It stores its read index now and then only, but makes a header invalid
    /// when the packet is done.
    fn first_valid(&self) -> u64 {
        let read = self.read().load(Ordering::Acquire);
        let packets = self.ring.size() / aql::BYTES;
        (0..packets as u64) // CAST: a size in memory.
            .map(|n| read.wrapping_add(n))
            .find(|index| self.first_word(*index) & 0xff != u32::from(aql::INVALID))
            .unwrap_or(read)
    }

    /// Sleeps until the event is raised that errors raise, though not for those that `age` covers.
    ///
    /// # Errors
    /// Those of [`Event::wait_past`].
    pub(crate) fn sleep(&self, age: &mut u64, limit: Duration) -> Result<()> {
        if let Some(event) = &self.event {
            event.wait_past(age, limit)?;
        }
        Ok(())
    }

    /// Wakes who sleeps.
    ///
    /// # Errors
    /// Those of [`Event::set`].
    pub(crate) fn wake(&self) -> Result<()> {
        self.event.as_ref().map_or(Ok(()), Event::set)
    }
}
