// SPDX-License-Identifier: GPL-2.0

//! What the scheduler needs of a device.
//!
//! The scheduler is written against two small traits, so that it runs unchanged on a GPU and on the
//! fake of the KUnit suites: [`DeviceMem`], memory that driver and device share, and [`Platform`],
//! the device itself. [`gpu`] implements both for real GPUs.

pub(super) mod gpu;

use kernel::{
    fmt,
    prelude::*,
    sync::Arc, //
};

use crate::{
    gpu::{
        conduct::Standing,
        vmid::VmidContext, //
    },
    hw::{
        asic::AsicDesc,
        doorbell::DoorbellOffset,
        regs::{
            hqd::Slot,
            Reg, //
        }, //
    }, //
};

/// Where shared memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    /// System memory behind the GART: coherent, cheap for both sides.
    Gart,
    /// As [`Domain::Gart`], for the descriptor of a compute queue: what lies behind the first page is its
    /// control stack and has a memory type of its own. Charged to the caller's memory control group.
    GartMqd,
    /// Video memory: written through the PCI aperture. What is noted of it is charged to the caller's group.
    Vram,
}

/// Memory that the driver and the GPU share, with a GPU address in VMID 0.
///
/// Offsets are bytes. Every access is bounds-checked; an access outside, or with an offset that is
/// not a multiple of the access size, is `EINVAL`, and `ENODEV` is returned once the device is gone.
///
/// The device may write at any time, so values are only ever copied in and out.
pub(crate) trait DeviceMem: Send + Sync {
    /// GPU address of the first byte, for packets and descriptors of VMID 0.
    fn gpu_addr(&self) -> u64;
    /// Size in bytes.
    fn size(&self) -> usize;
    /// Reads a dword.
    fn read32(&self, offset: usize) -> Result<u32>;
    /// Reads a qword.
    fn read64(&self, offset: usize) -> Result<u64>;
    /// Writes a dword.
    fn write32(&self, offset: usize, value: u32) -> Result;
    /// Writes a qword.
    fn write64(&self, offset: usize, value: u64) -> Result;
    /// Writes consecutive dwords.
    fn write_dwords(&self, offset: usize, words: &[u32]) -> Result;
    /// Fills a range with zeroes.
    fn clear(&self, offset: usize, len: usize) -> Result;
    /// Makes the CPU's writes visible to the GPU (HDP flush for video memory).
    fn flush(&self) -> Result;
}

/// The device as the scheduler sees it.
pub(crate) trait Platform: Send + Sync {
    /// Facts of the ASIC.
    fn asic(&self) -> &'static AsicDesc;

    /// Number of the GPU, for records.
    fn gpu_id(&self) -> u32 {
        0
    }

    /// What is held against the calling process on this device, of which something is attached as long as the result
    /// lives.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn standing(&self) -> Result<Standing>;

    /// Allocates shared memory, page-aligned and zeroed.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENOSPC` (no VRAM or GART space left), `ENODEV`.
    fn alloc(&self, size: usize, domain: Domain) -> Result<Arc<dyn DeviceMem>>;

    /// The HIQ's doorbell.
    fn hiq_doorbell(&self) -> DoorbellOffset;

    /// Connects the HIQ to its hardware slot with the descriptor at `mqd` and the write pointer at
    /// `wptr` (both GPU addresses).
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer, `EIO`, `ENODEV`.
    fn map_hiq(&self, mqd: u64, wptr: u64) -> Result;

    /// Disconnects the HIQ.
    ///
    /// # Errors
    ///
    /// As for [`Platform::map_hiq`].
    fn unmap_hiq(&self) -> Result;

    /// Reads a register.
    ///
    /// # Errors
    ///
    /// `EIO`, `ENODEV`.
    fn read(&self, reg: Reg) -> Result<u32>;

    /// Writes a register.
    ///
    /// # Errors
    ///
    /// `EIO`, `ENODEV`.
    fn write(&self, reg: Reg, value: u32) -> Result;

    /// Writes registers of a hardware slot, in order.
    ///
    /// # Errors
    ///
    /// `EIO`, `ENODEV`.
    fn write_slot(&self, slot: Slot, writes: &[(Reg, u32)]) -> Result;

    /// Resets the queue in a hardware slot and waits up to `timeout` microseconds until the slot is
    /// free.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`, `EIO`, `ENODEV`.
    fn reset_slot(&self, slot: Slot, timeout: u64) -> Result;

    /// Makes a VMID that nothing uses show an address space.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer, `EIO`, `ENODEV`.
    fn bind_vmid(&self, vmid: u32, context: &VmidContext) -> Result;

    /// Takes a VMID that nothing uses any more from its address space.
    ///
    /// # Errors
    ///
    /// As for [`Platform::bind_vmid`].
    fn unbind_vmid(&self, vmid: u32) -> Result;

    /// Reads registers of a hardware slot into `words`, one each.
    ///
    /// # Errors
    ///
    /// `EIO`, `ENODEV`.
    fn read_slot(&self, slot: Slot, regs: &[Reg], words: &mut [u32]) -> Result;

    /// Rings the HIQ's doorbell with the 64-bit write pointer in dwords.
    ///
    /// The write is ordered behind all earlier writes to shared memory.
    ///
    /// # Errors
    ///
    /// `ENODEV`.
    fn ring_hiq(&self, wptr: u64) -> Result;

    /// Checks that the device still answers.
    ///
    /// # Errors
    ///
    /// `EIO` if it is lost, `ENODEV` if it was removed.
    fn check(&self) -> Result;

    /// Logs an error of the device or the driver, with the device's name.
    fn err(&self, what: fmt::Arguments<'_>);

    /// Logs a warning about what the device does, with its name.
    fn warn(&self, what: fmt::Arguments<'_>);

    /// A monotonic clock, in microseconds. It goes on across resets, as what is held against processes does.
    fn now(&self) -> u64;

    /// Sleeps for about `us` microseconds.
    fn pause(&self, us: u64);
}

/// First pause of a [`poll`], in microseconds.
const FIRST_PAUSE: u64 = 10;
/// Longest pause: bounds how late a change is seen.
const LONGEST_PAUSE: u64 = 1_000;
/// How often a poll asks whether the device still lives. A trapped register read can be slow.
const CHECK_INTERVAL: u64 = 50_000;

/// Polls until `done` returns true or `timeout` microseconds have passed.
///
/// # Errors
///
/// `ETIMEDOUT`; whatever `done` returns; `EIO` or `ENODEV` if the device is lost or gone meanwhile.
pub(super) fn poll(
    platform: &dyn Platform,
    timeout: u64,
    mut done: impl FnMut() -> Result<bool>,
) -> Result {
    let start = platform.now();
    let mut pause = FIRST_PAUSE;
    let mut next_check = CHECK_INTERVAL;
    loop {
        // The clock is read before the condition, so that a descheduled task does not take the
        // time it slept for the device's.
        let waited = platform.now().saturating_sub(start);
        if done()? {
            return Ok(());
        }
        if waited >= timeout {
            return Err(ETIMEDOUT);
        }
        if waited >= next_check {
            platform.check()?;
            next_check = waited + CHECK_INTERVAL;
        }
        platform.pause(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
