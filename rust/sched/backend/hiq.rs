// SPDX-License-Identifier: GPL-2.0

//! The HIQ: the ring through which the driver talks to the scheduler firmware.
//!
//! Terms: the *write pointer* counts dwords and never wraps; the *read pointer*, which the device
//! writes to memory, counts dwords and wraps at the ring's size. One dword always stays free, so
//! that a full ring and an empty one differ. A packet does not wrap: what does not fit before the
//! ring's end goes to its start, and the gap is filled with one-dword NOPs.
//!
//! The driver writes the dwords from the write pointer up to (not including) the
//! dword before the read pointer, and the write pointer. The device writes the read pointer and
//! nothing else.
//!
//! [`Hiq::hold`] reserves space and returns a [`Held`]. Nothing is visible to the device before
//! [`Held::submit`]; dropping a [`Held`] takes the packets back.

use kernel::{
    prelude::*,
    sync::{
        barrier::{
            dma_mb,
            Write, //
        },
        Arc, //
    }, //
};

use crate::{
    hw::{
        asic::{
            AsicDesc,
            EOP_BYTES, //
        },
        doorbell::DoorbellOffset,
        mqd::{
            ComputeMqd,
            Eop,
            QueueConfig,
            QueueFormat, //
        },
        num::widen,
        pm4::NOP_ONE,
        regs::hqd::{
            Slot,
            CP_HQD_PQ_RPTR, //
        }, //
    },
    sched::platform::{
        poll,
        DeviceMem,
        Platform, //
    }, //
};

/// Dwords of the ring (contract: 2048 bytes).
pub(crate) const RING_DWORDS: u32 = 512;

/// Places inside the HIQ's one block of GART memory.
mod layout {
    /// The ring.
    pub(super) const RING: usize = 0;
    /// End-of-pipe buffer.
    pub(super) const EOP: usize = 0x1000;
    /// Descriptor.
    pub(super) const MQD: usize = 0x2000;
    /// Read pointer, written by the device.
    pub(super) const RPTR: usize = 0x3000;
    /// Write pointer, written by the driver.
    pub(super) const WPTR: usize = 0x3040;
    /// All of it.
    pub(super) const SIZE: usize = 0x4000;
}

/// Bytes of GART memory that a [`Hiq`] needs.
pub(crate) const HIQ_BYTES: usize = layout::SIZE;
/// Bytes of the ring.
pub(crate) const RING_BYTES: u32 = RING_DWORDS * 4;

/// GPU addresses of the HIQ's parts, for its descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HiqAddrs {
    /// Ring.
    pub(crate) ring: u64,
    /// End-of-pipe buffer of [`EOP_BYTES`].
    pub(crate) eop: u64,
    /// Descriptor.
    pub(crate) mqd: u64,
    /// Read pointer report.
    pub(crate) rptr: u64,
    /// Write pointer.
    pub(crate) wptr: u64,
}

/// Counters of a ring.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HiqStats {
    /// Dwords of packets, without padding.
    pub(crate) dwords: u64,
    /// Dwords of padding.
    pub(crate) padding: u64,
    /// Doorbell writes.
    pub(crate) doorbells: u64,
    /// Times that the driver had to wait for space.
    pub(crate) stalls: u64,
}

/// The ring.
///
/// # Invariants
///
/// - `mem` is at least [`HIQ_BYTES`] long.
/// - `seen <= wptr <= seen + RING_DWORDS - 1`: the device never holds more than the ring.
pub(crate) struct Hiq {
    mem: Arc<dyn DeviceMem>,
    /// Published write pointer.
    wptr: u64,
    /// Newest read pointer taken from the device, unwrapped.
    seen: u64,
    stats: HiqStats,
}

impl Hiq {
    /// Makes an empty ring on zeroed `mem`. The caller still has to write the descriptor.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `mem` is too small, else as [`DeviceMem`].
    pub(crate) fn new(mem: Arc<dyn DeviceMem>) -> Result<Self> {
        if mem.size() < layout::SIZE {
            return Err(EINVAL);
        }
        // INVARIANT: The size was checked; both pointers are zero.
        let mut hiq = Self {
            mem,
            wptr: 0,
            seen: 0,
            stats: HiqStats::default(),
        };
        hiq.rewind()?;
        Ok(hiq)
    }

    /// Empties the ring, for a device that has forgotten it.
    ///
    /// # Errors
    ///
    /// As [`DeviceMem`].
    pub(crate) fn rewind(&mut self) -> Result {
        self.mem.clear(0, layout::SIZE)?;
        // INVARIANT: Both pointers are zero.
        self.wptr = 0;
        self.seen = 0;
        Ok(())
    }

    /// Addresses of the parts.
    pub(crate) fn addrs(&self) -> HiqAddrs {
        let base = self.mem.gpu_addr();
        let at = |offset: usize| base + offset as u64; // CAST: Lossless, offsets are small.
        HiqAddrs {
            ring: at(layout::RING),
            eop: at(layout::EOP),
            mqd: at(layout::MQD),
            rptr: at(layout::RPTR),
            wptr: at(layout::WPTR),
        }
    }

    /// Writes the descriptor for a device that is an `asic`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: an address has no encoding; a driver bug. `ENOMEM`; else of the memory.
    pub(crate) fn describe(&self, asic: &AsicDesc, doorbell: DoorbellOffset) -> Result {
        let addrs = self.addrs();
        let mut config = QueueConfig::new(QueueFormat::Hiq, doorbell);
        config.mqd = addrs.mqd;
        config.ring = addrs.ring;
        config.ring_bytes = RING_BYTES;
        config.rptr_report = addrs.rptr;
        config.wptr_poll = addrs.wptr;
        config.eop = Some(Eop {
            base: addrs.eop,
            bytes: EOP_BYTES,
        });
        let mqd = ComputeMqd::new(asic, config).map_err(|error| {
            pr_err!("scheduler: HIQ: {}\n", format_args!("{error}"));
            EINVAL
        })?;
        let mut words = KVec::with_capacity(mqd.dwords(), GFP_KERNEL)?;
        mqd.write(|_, word| {
            // Words come in ascending order and no more than the capacity.
            let _ = words.push_within_capacity(word);
        });
        self.write_mqd(&words)
    }

    /// Writes the descriptor.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is larger than a page, else as [`DeviceMem`].
    pub(crate) fn write_mqd(&self, image: &[u32]) -> Result {
        if image.len() * 4 > layout::RPTR - layout::MQD {
            return Err(EINVAL);
        }
        self.mem.write_dwords(layout::MQD, image)
    }

    /// Reads dword `index` of the descriptor, which the device may have changed.
    ///
    /// # Errors
    ///
    /// As [`DeviceMem`].
    pub(crate) fn read_mqd(&self, index: usize) -> Result<u32> {
        self.mem.read32(layout::MQD + index * 4)
    }

    /// Writes dword `index` of the descriptor.
    ///
    /// # Errors
    ///
    /// As [`DeviceMem`].
    pub(crate) fn set_mqd(&self, index: usize, value: u32) -> Result {
        self.mem.write32(layout::MQD + index * 4, value)
    }

    /// Counters.
    pub(crate) fn stats(&self) -> HiqStats {
        self.stats
    }

    /// Published write pointer in dwords.
    #[cfg(rkfd_kunit)]
    pub(crate) fn wptr(&self) -> u64 {
        self.wptr
    }

    /// Reads how far the device has come, unwrapped.
    ///
    /// # Errors
    ///
    /// `EIO` if the device reports a read pointer outside what was submitted; else as [`DeviceMem`].
    pub(crate) fn rptr(&mut self, platform: &dyn Platform) -> Result<u64> {
        let raw = self.mem.read32(layout::RPTR)?;
        if raw >= RING_DWORDS {
            platform.err(fmt!("HIQ read pointer {raw:#x} lies outside the ring"));
            return Err(EIO);
        }
        let before = self.seen % widen(RING_DWORDS);
        let step = (widen(raw) + widen(RING_DWORDS) - before) % widen(RING_DWORDS);
        let now = self.seen + step;
        if now > self.wptr {
            platform.err(fmt!(
                "HIQ read pointer {raw:#x} ran past the write pointer {:#x}",
                self.wptr
            ));
            return Err(EIO);
        }
        // INVARIANT: Checked above, and `now >= seen`.
        self.seen = now;
        Ok(now)
    }

    /// Reserves `dwords` in one piece, waiting up to `timeout` microseconds for space.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: zero, or more than the ring can ever hold in one piece.
    /// - `ETIMEDOUT`: the device does not consume.
    /// - `EIO`, `ENODEV`: the device is lost, gone, or reports nonsense.
    pub(crate) fn hold<'a>(
        &'a mut self,
        platform: &'a dyn Platform,
        dwords: u32,
        timeout: u64,
    ) -> Result<Held<'a>> {
        // With more than half of the ring, padding plus packet could exceed it for ever.
        if dwords == 0 || dwords > RING_DWORDS / 2 - 1 {
            return Err(EINVAL);
        }
        let to_end = widen(RING_DWORDS) - self.wptr % widen(RING_DWORDS);
        let padding = if to_end < widen(dwords) { to_end } else { 0 };
        let limit = widen(RING_DWORDS) - 1;
        let needed = self.wptr + padding + widen(dwords);
        if needed - self.seen > limit && needed - self.rptr(platform)? > limit {
            self.stats.stalls += 1;
            poll(platform, timeout, || {
                Ok(needed - self.rptr(platform)? <= limit)
            })?;
        }
        let mut held = Held {
            start: self.wptr,
            end: needed,
            at: self.wptr,
            padding,
            hiq: self,
            platform,
        };
        for _ in 0..padding {
            held.put(&[NOP_ONE])?;
        }
        Ok(held)
    }
}

/// Reserved space in the ring, and the only way to write to it.
#[must_use = "nothing is submitted before `submit`"]
pub(crate) struct Held<'a> {
    hiq: &'a mut Hiq,
    platform: &'a dyn Platform,
    start: u64,
    at: u64,
    end: u64,
    padding: u64,
}

impl Held<'_> {
    /// Appends a packet.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if it exceeds what was reserved, else as [`DeviceMem`].
    pub(crate) fn push(&mut self, packet: &[u32]) -> Result {
        self.put(packet)
    }

    fn put(&mut self, words: &[u32]) -> Result {
        let next = self
            .at
            .checked_add(u64::try_from(words.len())?)
            .filter(|next| *next <= self.end)
            .ok_or(ENOSPC)?;
        let index = usize::try_from(self.at % widen(RING_DWORDS))?;
        self.hiq.mem.write_dwords(layout::RING + index * 4, words)?;
        self.at = next;
        Ok(())
    }

    /// Publishes the packets and rings the doorbell.
    ///
    /// Only what was pushed is published, so that a shorter packet than reserved leaves no gap.
    ///
    /// # Errors
    ///
    /// As [`DeviceMem`] and [`Platform::ring_hiq`]. After an error the packets may or may not reach
    /// the device.
    pub(crate) fn submit(self) -> Result<Submitted> {
        // The device may fetch as soon as it sees a new write pointer, in memory (when it connects
        // the queue) or by the doorbell. The barrier keeps the packets ahead of the pointer in
        // memory; the doorbell is a register write, which the accessor orders behind both.
        dma_mb(Write);
        self.hiq.mem.write64(layout::WPTR, self.at)?;
        // INVARIANT: `hold` checked that `end`, and so `at`, fits behind the read pointer.
        self.hiq.wptr = self.at;
        self.hiq.stats.padding += self.padding;
        self.hiq.stats.dwords += self.at - self.start - self.padding;
        self.hiq.stats.doorbells += 1;
        self.platform.ring_hiq(self.at)?;
        Ok(Submitted {
            first: self.start + self.padding,
            end: self.at,
        })
    }
}

/// Where packets are in the ring, in dwords from its beginning, unwrapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Submitted {
    first: u64,
    end: u64,
}

impl Submitted {
    /// Whether the device has consumed the first of the packets. The register tells, where the read pointer in memory
    /// may be late.
    ///
    /// # Errors
    ///
    /// `EIO`, `ENODEV`.
    pub(crate) fn is_taken_up(&self, platform: &dyn Platform) -> Result<bool> {
        let mut words = [0];
        platform.read_slot(Slot::HIQ, &[CP_HQD_PQ_RPTR], &mut words)?;
        let size = widen(RING_DWORDS);
        let [raw] = words;
        // One that lies outside of the ring is before or behind them, too.
        let passed = (widen(raw) % size + size - self.first % size) % size;
        Ok(passed >= 1 && passed <= self.end - self.first)
    }
}
