// SPDX-License-Identifier: GPL-2.0

//! Access to the hardware of one GPU.
//!
//! [`Hw`] has the three BARs. It lies behind a [`Gate`]: a caller that touches hardware enters first and
//! gets a [`HwGuard`], and unbind closes the gate before the BARs go away.
//!
//! A device that was pulled, or a model that died, answers all ones. The first such answer that
//! the memory size register confirms marks the GPU *lost*: bus mastering is turned off; from then on reads return
//! all ones without touching the bus, waits end at once with `EIO`, and nothing hangs. A device that answers
//! but does not stop using memory that goes away is given up in the same way ([`Hw::give_up`]).
//!
//! # When memory may go
//!
//! Two states of this layer free memory that the device may have used without asking the device: the GPU is lost,
//! or the gate is closed. Bus mastering is off before either can be seen. Turning it off is a configuration
//! write, whose completion does not pass what the device has posted before, so nothing of the device arrives
//! in memory afterwards.
//!
//! Lock order: [`Locks::tlb`] and [`Locks::banks`] are innermost, and neither is taken under the
//! other.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    devres,
    new_mutex,
    pci,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Acquire,
            AtomicFlag,
            Full, //
        },
        barrier,
        lock::{
            mutex::MutexBackend,
            Guard, //
        },
        Arc,
        Mutex, //
    },
    time::Delta, //
};

use super::poll::poll;
use crate::{
    hw::{
        asic::AsicDesc,
        regs::{
            gc,
            hdp,
            nbio,
            Reg, //
        },
    },
    kapi::{
        dma_map::{
            DmaMap,
            DmaMapper, //
        },
        gate::{
            Gate,
            GateGuard, //
        },
        log::dev_limited,
        mmio::{
            BarMapping,
            Caching, //
        },
        pci::{
            assume_bound,
            clear_master, //
        },
    },
};

/// BAR numbers and what each must hold at least.
const BAR_VRAM: u32 = 0;
const BAR_DOORBELL: u32 = 2;
const BAR_MMIO: u32 = 5;
/// VRAM without which no driver can work: tables, descriptors and something to share out.
pub(crate) const MIN_VRAM: u64 = 16 << 20;
/// Kernel pages and one process slice.
const MIN_DOORBELL: usize = 0x4000;
/// Pause between two looks of a poll.
const POLL_PAUSE: Delta = Delta::from_micros(20);
/// Pause between two looks at a device that is being reset.
const RESET_PAUSE: Delta = Delta::from_millis(1);

/// The gate in front of [`Hw`]. Bus mastering is off before it is closed.
pub(crate) type Access = Gate<Hw>;
/// Proof that the device is bound, and access to it. May sleep, may nest, is not `Send`.
pub(crate) type HwGuard<'a> = GateGuard<'a, Hw>;

/// What names a register: a [`Reg`], or its byte offset in BAR5.
pub(crate) trait Address: Copy {
    /// Byte offset in BAR5.
    fn byte(self) -> usize;
}

impl Address for Reg {
    fn byte(self) -> usize {
        Reg::byte(self)
    }
}

impl Address for usize {
    fn byte(self) -> usize {
        self
    }
}

/// Locks of hardware that can only be used by one at a time.
#[pin_data]
struct Locks {
    /// GRBM_GFX_CNTL and GRBM_GFX_INDEX, which choose what banked registers show.
    #[pin]
    banks: Mutex<()>,
    /// The driver's invalidation engine in both hubs.
    #[pin]
    tlb: Mutex<()>,
}

/// The hardware of one bound GPU.
pub(crate) struct Hw {
    /// The page of registers that programs may map, for the device itself. Every process maps it, so
    /// there is one mapping for all.
    remap: Option<Arc<DmaMap>>,
    /// The doorbells, likewise.
    doorbell_map: Arc<DmaMap>,
    dma: DmaMapper,
    mmio: BarMapping,
    doorbell: BarMapping,
    vram: BarMapping,
    pdev: ARef<pci::Device>,
    asic: &'static AsicDesc,
    reach: Reach,
    locks: Arc<Locks>,
}

/// Whether the device can still reach memory.
///
/// # Invariants
///
/// A thread that sees `ended` also sees that what ends the access has returned.
pub(crate) struct Reach {
    ended: AtomicFlag,
}

impl Reach {
    /// Of a device that masters the bus.
    pub(crate) const fn new() -> Self {
        Self {
            ended: AtomicFlag::new(false),
        }
    }

    /// Whether the access has ended.
    pub(crate) fn has_ended(&self) -> bool {
        // Pairs with `end`: what the caller frees must not be seen free before.
        self.ended.load(Acquire)
    }

    /// Ends the access by `cut`, which may run more than once, and makes that known afterwards. Returns
    /// whether this call was the first to do so.
    pub(crate) fn end(&self, cut: impl FnOnce()) -> bool {
        if self.has_ended() {
            return false;
        }
        // A second caller does not rely on the first one, which may not have come to the end of it.
        cut();
        // INVARIANT: `cut` has returned.
        !self.ended.xchg(true, Full)
    }
}

impl Hw {
    /// Maps the BARs.
    ///
    /// # Errors
    ///
    /// `ENODEV` if one is absent or too small, `EBUSY` if another driver holds it, `ENOMEM`.
    pub(super) fn new(pdev: &pci::Device<Bound>, asic: &'static AsicDesc) -> Result<Self> {
        let mmio_len = crate::hw::num::index(crate::hw::regs::MMIO_SIZE);
        let mmio = BarMapping::new(pdev, BAR_MMIO, c"rkfd-mmio", Caching::Uncached, mmio_len)?;
        let doorbell = BarMapping::new(
            pdev,
            BAR_DOORBELL,
            c"rkfd-doorbell",
            Caching::Uncached,
            MIN_DOORBELL,
        )?;
        let dma = DmaMapper::new(pdev.as_ref())?;
        let doorbell_map = dma.resource(pdev.as_ref(), doorbell.bus_addr(), doorbell.len())?;
        let mut hw = Self {
            remap: None,
            doorbell_map: Arc::new(doorbell_map, GFP_KERNEL)?,
            dma,
            mmio,
            doorbell,
            vram: BarMapping::new(
                pdev,
                BAR_VRAM,
                c"rkfd-vram",
                Caching::WriteCombined,
                usize::try_from(MIN_VRAM)?,
            )?,
            pdev: pdev.into(),
            asic,
            reach: Reach::new(),
            locks: Arc::pin_init(
                try_pin_init!(Locks {
                    banks <- new_mutex!((), "rkfd_banks"),
                    tlb <- new_mutex!((), "rkfd_tlb"),
                }? Error),
                GFP_KERNEL,
            )?,
        };
        if let Some(addr) = hw.mmio_remap_bus_addr() {
            let map = hw.dma.resource(hw.dev(), addr, kernel::page::PAGE_SIZE)?;
            hw.remap = Some(Arc::new(map, GFP_KERNEL)?);
        }
        Ok(hw)
    }

    /// Where the device reaches the page of [`Hw::mmio_remap_bus_addr`], if there is one.
    pub(crate) fn mmio_remap(&self) -> Option<&Arc<DmaMap>> {
        self.remap.as_ref()
    }

    /// Where the device reaches its own doorbells.
    pub(crate) fn doorbell_map(&self) -> &Arc<DmaMap> {
        &self.doorbell_map
    }

    /// The ASIC.
    pub(crate) fn asic(&self) -> &'static AsicDesc {
        self.asic
    }

    /// The bound PCI device.
    pub(crate) fn pdev(&self) -> &pci::Device<Bound> {
        // SAFETY: `Hw` exists only between probe and the closing of the gate in unbind, while the device is bound.
        unsafe { assume_bound(&self.pdev) }
    }

    /// The bound device.
    pub(crate) fn dev(&self) -> &Device<Bound> {
        self.pdev().as_ref()
    }

    /// What maps memory for the device. Its mappings end when the gate has closed.
    pub(crate) fn dma(&self) -> &DmaMapper {
        &self.dma
    }

    /// Whether the device has stopped to answer.
    pub(crate) fn is_lost(&self) -> bool {
        self.reach.has_ended()
    }

    /// Turns bus mastering off, which stays off until the device is bound anew. Registers go on to answer.
    pub(super) fn end_dma(&self) {
        clear_master(self.pdev());
    }

    /// Ends all use of a device, because of `why`: bus mastering is off when it counts as lost, and it counts
    /// as lost when this returns. May be called anywhere.
    pub(crate) fn give_up(&self, why: &str) {
        if self.reach.end(|| self.end_dma()) {
            dev_err!(self.dev(), "{}; giving the GPU up\n", why);
        }
    }

    /// Ends all use of a device whose registers do not answer; its access to memory may work all the same.
    fn mark_lost(&self) {
        self.give_up("the GPU does not answer (registers read all ones)");
    }

    /// Reads a register.
    ///
    /// All ones if the device is lost, or if `reg` is outside BAR5, which is a driver bug.
    pub(crate) fn read(&self, reg: impl Address) -> u32 {
        if self.is_lost() {
            return u32::MAX;
        }
        let value = self.mmio.read32(reg.byte()).unwrap_or(u32::MAX);
        if value == u32::MAX && !self.answers() {
            self.mark_lost();
        }
        value
    }

    /// Whether the memory size register, which is never all ones on a live device, reads so.
    fn answers(&self) -> bool {
        self.mmio
            .read32(nbio::RCC_CONFIG_MEMSIZE.byte())
            .is_ok_and(|size| size != nbio::MEMSIZE_DEAD)
    }

    /// Finds out whether the device still answers, and marks it lost if not.
    pub(crate) fn check_alive(&self) -> Result {
        if !self.is_lost() && !self.answers() {
            self.mark_lost();
        }
        if self.is_lost() {
            return Err(EIO);
        }
        Ok(())
    }

    /// Waits until a device that was reset answers again; sleeps.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` after `timeout_us` microseconds.
    pub(super) fn wait_for_answer(&self, timeout_us: u32) -> Result {
        poll(timeout_us, RESET_PAUSE, || Ok(self.answers().then_some(())))
    }

    /// Writes a register, after all earlier memory writes. Dropped if the device is lost.
    pub(crate) fn write(&self, reg: impl Address, value: u32) {
        if self.is_lost() {
            return;
        }
        if self.mmio.write32(reg.byte(), value).is_err() {
            dev_limited!(
                dev_err,
                self.dev(),
                "register {:#x} is outside BAR5\n",
                reg.byte()
            );
        }
    }

    /// Writes the low half of `value` to `reg` and the high half to the register that follows.
    pub(crate) fn write_pair(&self, reg: Reg, value: u64) {
        self.write(reg, crate::hw::num::lo32(value));
        self.write(reg.nth(1), crate::hw::num::hi32(value));
    }

    /// Reads, changes and writes back a register.
    pub(crate) fn modify(&self, reg: impl Address, change: impl FnOnce(u32) -> u32) {
        let value = self.read(reg);
        self.write(reg, change(value));
    }

    /// Waits until `reg & mask == want`; sleeps. Returns the value that ended the wait.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` after `timeout_us` microseconds, `EIO` if the device is lost.
    pub(crate) fn poll(
        &self,
        reg: impl Address,
        mask: u32,
        want: u32,
        timeout_us: u32,
    ) -> Result<u32> {
        self.wait(timeout_us, || {
            let value = self.read(reg);
            // All ones have every bit that is waited for.
            if self.is_lost() {
                return Err(EIO);
            }
            Ok((value & mask == want).then_some(value))
        })
    }

    /// Calls `step` until it returns a value; sleeps between the calls.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if a call after `timeout_us` microseconds has no value either, `EIO` if the device is lost, and
    /// whatever `step` returns.
    pub(crate) fn wait<T>(
        &self,
        timeout_us: u32,
        mut step: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let mut alive_check = 0_u32;
        poll(timeout_us, POLL_PAUSE, || {
            let value = step()?;
            if value.is_none() {
                // A wait on memory sees no all-ones answer; look now and then.
                alive_check = alive_check.wrapping_add(1);
                if alive_check % 1024 == 0 {
                    self.check_alive()?;
                }
                if self.is_lost() {
                    return Err(EIO);
                }
            }
            Ok(value)
        })
    }

    /// Writes a 64-bit doorbell at byte `byte` of BAR2, after all earlier memory writes.
    pub(crate) fn doorbell64(&self, byte: usize, value: u64) {
        if self.is_lost() {
            return;
        }
        if self.doorbell.write64(byte, value).is_err() {
            dev_limited!(
                dev_err,
                self.dev(),
                "doorbell {:#x} is outside BAR2\n",
                byte
            );
        }
    }

    /// Writes a 32-bit doorbell at byte `byte` of BAR2, after all earlier memory writes.
    pub(crate) fn doorbell32(&self, byte: usize, value: u32) {
        if self.is_lost() {
            return;
        }
        if self.doorbell.write32(byte, value).is_err() {
            dev_limited!(
                dev_err,
                self.dev(),
                "doorbell {:#x} is outside BAR2\n",
                byte
            );
        }
    }

    /// Offset in the VRAM BAR, checked for a lost device.
    fn vram_off(&self, off: u64) -> Result<usize> {
        if self.is_lost() {
            return Err(EIO);
        }
        Ok(usize::try_from(off)?)
    }

    /// Copies to VRAM. The GPU sees it after [`Hw::hdp_flush`].
    ///
    /// # Errors
    ///
    /// `EINVAL` outside the CPU-visible VRAM, `EIO` if the device is lost.
    pub(crate) fn vram_write(&self, off: u64, src: &[u8]) -> Result {
        self.vram.copy_to(self.vram_off(off)?, src)
    }

    /// Copies from VRAM. Same errors as [`Hw::vram_write`].
    pub(crate) fn vram_read(&self, off: u64, dst: &mut [u8]) -> Result {
        self.vram.copy_from(self.vram_off(off)?, dst)
    }

    /// Stores 64-bit words in VRAM, each untorn. `off` must be a multiple of 8.
    ///
    /// Same errors as [`Hw::vram_write`].
    pub(crate) fn vram_write_u64s(&self, off: u64, words: &[u64]) -> Result {
        self.vram.write_u64s(self.vram_off(off)?, words)
    }

    /// Fills VRAM with a byte. Same errors as [`Hw::vram_write`].
    pub(crate) fn vram_fill(&self, off: u64, len: u64, byte: u8) -> Result {
        self.vram
            .fill(self.vram_off(off)?, usize::try_from(len)?, byte)
    }

    /// Makes earlier CPU writes to VRAM visible to the GPU.
    pub(crate) fn hdp_flush(&self) {
        // The writes may still sit in the CPU's write-combining buffers.
        barrier::mb(barrier::Write);
        let reg = hdp::mem_flush(self.asic.hdp_remap);
        self.write(reg, 0);
        // The read returns after the flush.
        let _ = self.read(reg);
    }

    /// CPU physical address of VRAM offset 0, for user mappings.
    pub(crate) fn vram_bus_addr(&self) -> u64 {
        self.vram.bus_addr()
    }

    /// Bytes of VRAM that the CPU sees.
    pub(crate) fn vram_visible(&self) -> u64 {
        // CAST: `usize` is at most 64 bits wide.
        self.vram.len() as u64
    }

    /// CPU physical address of BAR2, for user mappings.
    pub(crate) fn doorbell_bus_addr(&self) -> u64 {
        self.doorbell.bus_addr()
    }

    /// Length of BAR2 in bytes.
    pub(crate) fn doorbell_len(&self) -> u64 {
        // CAST: `usize` is at most 64 bits wide.
        self.doorbell.len() as u64
    }

    /// CPU physical address of the page with the HDP flush registers, for user mappings.
    pub(crate) fn mmio_remap_bus_addr(&self) -> Option<u64> {
        let address = self.mmio.bus_addr() + u64::from(self.asic.hdp_remap);
        // Where CPU pages are larger, other registers would come along.
        let page_is_alone = kernel::page::PAGE_SIZE == crate::hw::num::index(hdp::REMAP_SIZE);
        (page_is_alone && address % u64::from(hdp::REMAP_SIZE) == 0).then_some(address)
    }

    /// Chooses what banked registers show, until the result is dropped.
    ///
    /// Sleeps while another thread holds the choice; must not be nested.
    pub(crate) fn select(&self, bank: gc::GrbmGfxCntl) -> Selected<'_> {
        let lock = self.locks.banks.lock();
        self.write(gc::GRBM_GFX_CNTL, bank.raw());
        Selected {
            hw: self,
            rest: (gc::GRBM_GFX_CNTL, gc::GrbmGfxCntl::new().raw()),
            _lock: lock,
        }
    }

    /// Selects a shader engine; see [`Hw::select`].
    pub(super) fn select_engine(&self, engine: u32) -> Selected<'_> {
        let lock = self.locks.banks.lock();
        self.write(gc::GRBM_GFX_INDEX, gc::GrbmGfxIndex::engine(engine).raw());
        Selected {
            hw: self,
            rest: (gc::GRBM_GFX_INDEX, gc::GrbmGfxIndex::BROADCAST.raw()),
            _lock: lock,
        }
    }

    /// Exclusive use of the driver's invalidation engine. Sleeps.
    pub(super) fn tlb_lock(&self) -> Guard<'_, (), MutexBackend> {
        self.locks.tlb.lock()
    }
}

/// A bank of registers is selected; dropping selects what others expect: bank 0, all engines.
pub(crate) struct Selected<'a> {
    hw: &'a Hw,
    /// What selected it, and what that holds otherwise.
    rest: (Reg, u32),
    _lock: Guard<'a, (), MutexBackend>,
}

impl Drop for Selected<'_> {
    fn drop(&mut self) {
        let (reg, value) = self.rest;
        self.hw.write(reg, value);
    }
}

/// Ends the device's access to memory, then closes the gate and waits for those inside. Returns the hardware
/// to the first caller, whose access is the only one left.
pub(super) fn shut(access: &Access) -> Option<Hw> {
    access.enter()?.end_dma();
    access.close()
}

/// A value that the device may still reach. Dropping it while the device is bound gives the device up first.
struct Reachable<T> {
    // Dropped in this order.
    _bound: WhileBound,
    _value: T,
}

struct WhileBound(Arc<Access>);

impl Drop for WhileBound {
    fn drop(&mut self) {
        if let Some(hw) = self.0.enter() {
            hw.give_up("memory goes that the GPU may still use");
        }
    }
}

/// Keeps `value`, memory that the device may still reach, until it is unbound. Where there is no memory to
/// remember it, the device is given up, and the value dropped at once.
pub(super) fn keep_until_unbind<T: Send + 'static>(access: &Arc<Access>, hw: &Hw, value: T) {
    let kept = Reachable {
        _bound: WhileBound(access.clone()),
        _value: value,
    };
    // A failure has dropped it, which is all that there is to do.
    let _ = devres::register::<_, Error>(hw.dev(), Ok(kept), GFP_KERNEL);
}
