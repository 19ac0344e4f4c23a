// SPDX-License-Identifier: GPL-2.0

//! System memory as the kernel's own GPU contexts (VMID 0) see it.
//!
//! A window of 512 MiB in the GPU's address space, translated by one flat table in VRAM. Rings,
//! descriptors, fences and runlists lie in it: coherent memory of whole pages, each mapped for
//! as long as its [`GartBuffer`] lives. Memory that is moved is shown in it part by part ([`GartWindow`]).
//!
//! Lock order: the range allocator's lock is innermost; the hub's flush lock is taken alone.

use kernel::{
    alloc::Flags,
    prelude::*,
    sync::Arc, //
};

use super::{
    access::{
        keep_until_unbind,
        Access,
        Hw, //
    },
    hub,
    vram::{
        VramBlock,
        VramManager, //
    }, //
};
use crate::{
    hw::{
        mqd::CONTROL_STACK_OFFSET,
        pte::{
            self,
            Aperture,
            Mtype, //
        },
        regs::hub::FlushType, //
    },
    kapi::{
        dma::DmaBuffer,
        dma_map::DmaMap,
        range::{
            Range,
            RangeAllocator, //
        }, //
    },
};

/// Bytes of the window (`gmc_v9_0.c`).
pub(crate) const WINDOW: u64 = 512 << 20;
/// Alignment of the window in the GPU's address space.
const WINDOW_ALIGN: u64 = 4 << 30;
/// End of the addresses below the hole of the 48-bit space (`AMDGPU_GMC_HOLE_START`).
const MC_END: u64 = 1 << 47;

/// Where the window goes: at address 0 if it fits below VRAM and that is the smaller gap, else at
/// the end of the addresses below the hole (`amdgpu_gmc.c` `amdgpu_gmc_gart_location`).
///
/// `None` if neither gap holds it.
pub(crate) fn window_start(fb_base: u64, fb_top: u64) -> Option<u64> {
    let before = fb_base;
    let next = fb_top
        .checked_add(1)?
        .checked_next_multiple_of(WINDOW_ALIGN)?;
    let after = MC_END.saturating_sub(next);
    let start = if before >= WINDOW && before < after || after < WINDOW {
        0
    } else {
        (MC_END - WINDOW) & !(WINDOW_ALIGN - 1)
    };
    let end = start + WINDOW - 1;
    (end < fb_base || start > fb_top).then_some(start)
}

/// What buffers need to go away.
struct Core {
    access: Arc<Access>,
    /// Counts pages of the window.
    pages: Arc<RangeAllocator>,
    table: VramBlock,
    /// PAGE_TABLE_BASE of VMID 0.
    base: u64,
    start: u64,
}

/// Entries that are written at once.
const BATCH: usize = 64;

impl Core {
    /// Table offset of the entry of the first page, in VRAM.
    fn entries(&self, pages: &Range) -> u64 {
        self.table.offset() + pages.start() * 8
    }

    fn flush(hw: &Hw) -> Result {
        hw.hdp_flush();
        hub::flush_vmid(hw, 0, FlushType::Legacy)
    }

    /// Takes the entries of `pages` away. Where that fails, the table and what `keep` makes, which includes the pages, are
    /// kept until the device is unbound.
    fn retract<T: Send + 'static>(self: &Arc<Self>, pages: &Range, keep: impl FnOnce() -> T) {
        // Without a device there is no table, and the memory is freed by what unbinds.
        let Some(hw) = self.access.enter() else {
            return;
        };
        if hw.is_lost() {
            return;
        }
        let cleared = hw.vram_fill(self.entries(pages), pages.size() * 8, 0);
        let Err(e) = cleared.and_then(|()| Self::flush(&hw)) else {
            return;
        };
        dev_err!(
            hw.dev(),
            "GART unmap of {:#x} failed: {:?}; its memory is kept until the device is unbound\n",
            self.start + pages.start() * pte::PAGE,
            e
        );
        // Also the table, which would go to another owner with the last buffer.
        keep_until_unbind(&self.access, &hw, (keep(), self.clone()));
    }
}

/// The window of one GPU.
pub(crate) struct Gart {
    core: Arc<Core>,
}

impl Gart {
    /// Takes the table from VRAM and clears it. The hubs are programmed afterwards.
    ///
    /// # Errors
    ///
    /// `ENOSPC` or `ENOMEM` without memory, `EIO` if the device is lost.
    pub(super) fn new(
        access: &Arc<Access>,
        hw: &Hw,
        vram: &Arc<VramManager>,
        start: u64,
    ) -> Result<Self> {
        let table = vram.alloc(WINDOW / pte::PAGE * 8, pte::PAGE)?;
        hw.vram_fill(table.offset(), table.size(), 0)?;
        let base = pte::page_table_base(table.pa(), Aperture::Vram).map_err(|_| EINVAL)?;
        hw.hdp_flush();
        Ok(Self {
            core: Arc::new(
                Core {
                    access: access.clone(),
                    pages: RangeAllocator::new(0, WINDOW / pte::PAGE)?,
                    table,
                    base,
                    start,
                },
                GFP_KERNEL,
            )?,
        })
    }

    /// First address of the window.
    pub(crate) fn start(&self) -> u64 {
        self.core.start
    }

    /// Last address of the window.
    pub(crate) fn end(&self) -> u64 {
        self.core.start + WINDOW - 1
    }

    /// PAGE_TABLE_BASE of VMID 0.
    pub(super) fn table_base(&self) -> u64 {
        self.core.base
    }

    /// Allocates zeroed coherent memory of at least `size` bytes and maps it uncached.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `size` is 0.
    /// - `ENOMEM`, `ENOSPC`: no memory or no room in the window.
    /// - `EIO`, `ETIMEDOUT`: the device does not answer.
    pub(crate) fn alloc(&self, hw: &Hw, size: usize) -> Result<GartBuffer> {
        self.alloc_as(hw, size, Usage::General)
    }

    /// As [`Self::alloc`], for the descriptor of a compute queue of one XCC and the control stack behind it. As many as
    /// programs have queues, so their memory is charged to the group of the caller.
    ///
    /// # Errors
    ///
    /// As [`Self::alloc`].
    pub(crate) fn alloc_mqd(&self, hw: &Hw, size: usize) -> Result<GartBuffer> {
        self.alloc_as(hw, size, Usage::Mqd)
    }

    /// Shows `len` bytes from byte `offset` on of the memory that `dma` maps, both whole pages, snooped and uncached.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no whole pages, or the part leaves the memory.
    /// - `ENOMEM`, `ENOSPC`: no memory or no room in the window.
    /// - `EIO`, `ETIMEDOUT`: the device does not answer.
    pub(crate) fn show(
        &self,
        hw: &Hw,
        dma: &Arc<DmaMap>,
        offset: u64,
        len: u64,
    ) -> Result<GartWindow> {
        if len == 0 || (offset | len) % pte::PAGE != 0 {
            return Err(EINVAL);
        }
        let pages = self.core.pages.alloc(len / pte::PAGE)?;
        let shown = Shown {
            dma: dma.clone(),
            pages,
        };
        let window = GartWindow {
            shown: Arc::new(shown, GFP_KERNEL)?,
            core: self.core.clone(),
        };
        window.map(hw, offset, len)?;
        Ok(window)
    }

    fn alloc_as(&self, hw: &Hw, size: usize, usage: Usage) -> Result<GartBuffer> {
        let flags = usage.flags();
        let memory = DmaBuffer::new(hw.dev(), size, flags)?;
        // CAST: `usize` is at most 64 bits wide.
        let count = memory.size() as u64 / pte::PAGE;
        let pages = self.core.pages.alloc(count)?;
        let buffer = GartBuffer {
            address: self.core.start + pages.start() * pte::PAGE,
            held: Arc::new(Held { memory, pages }, flags)?,
            core: self.core.clone(),
        };
        buffer.map(hw, usage)?;
        Ok(buffer)
    }
}

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Usage {
    /// What the GPU must not cache.
    General,
    /// A compute queue's descriptor with its control stack.
    Mqd,
}

impl Usage {
    /// What the memory is charged to: no control group where the device has it, once.
    fn flags(self) -> Flags {
        match self {
            Self::General => GFP_KERNEL,
            Self::Mqd => GFP_KERNEL_ACCOUNT,
        }
    }

    /// Memory type of page `index`. Control stacks behind an uncached descriptor must not be uncached
    /// themselves (`amdgpu_gart_map_gfx9_mqd`).
    fn mtype(self, index: u64) -> Mtype {
        match self {
            Self::Mqd if index * pte::PAGE >= CONTROL_STACK_OFFSET => Mtype::Nc,
            _ => Mtype::Uc,
        }
    }
}

/// What a buffer takes up.
struct Held {
    memory: DmaBuffer,
    pages: Range,
}

/// Coherent system memory at an address of the window; dropping unmaps and frees it. Where the unmapping
/// fails, memory and address stay taken until the device is unbound.
///
/// The accessors are those of [`DmaBuffer`].
pub(crate) struct GartBuffer {
    address: u64,
    /// Shared only with the list that keeps it after a failure.
    held: Arc<Held>,
    core: Arc<Core>,
}

impl core::ops::Deref for GartBuffer {
    type Target = DmaBuffer;

    fn deref(&self) -> &DmaBuffer {
        &self.held.memory
    }
}

impl GartBuffer {
    /// Address for VMID 0.
    pub(crate) fn gpu_addr(&self) -> u64 {
        self.address
    }

    /// Table offset of the first entry, in VRAM.
    pub(crate) fn entries(&self) -> u64 {
        self.core.entries(&self.held.pages)
    }

    fn map(&self, hw: &Hw, usage: Usage) -> Result {
        for i in 0..self.held.pages.size() {
            let bus = self.held.memory.bus_addr() + i * pte::PAGE;
            let entry = pte::gart(bus, usage.mtype(i)).map_err(|_| EINVAL)?;
            hw.vram_write_u64s(self.entries() + i * 8, &[entry.raw()])?;
        }
        Core::flush(hw)
    }
}

impl Drop for GartBuffer {
    fn drop(&mut self) {
        // `DmaBuffer` frees what unbind has not freed yet.
        self.core.retract(&self.held.pages, || self.held.clone());
    }
}

/// What a [`GartWindow`] takes up.
struct Shown {
    dma: Arc<DmaMap>,
    pages: Range,
}

/// A part of memory that is mapped for the device otherwise, at an address of the window; dropping takes it out. Where that
/// fails, the mapping and the address stay taken until the device is unbound.
pub(crate) struct GartWindow {
    /// Shared only with the list that keeps it after a failure.
    shown: Arc<Shown>,
    core: Arc<Core>,
}

impl GartWindow {
    /// Address of its first byte for VMID 0.
    pub(crate) fn gpu_addr(&self) -> u64 {
        self.core.start + self.shown.pages.start() * pte::PAGE
    }

    fn map(&self, hw: &Hw, offset: u64, len: u64) -> Result {
        let mut words = [0; BATCH];
        let (mut used, mut written) = (0, 0);
        let mut put = |bus: Option<u64>| -> Result {
            if let Some(bus) = bus {
                let entry = pte::gart(bus, Mtype::Uc).map_err(|_| EINVAL)?;
                *words.get_mut(used).ok_or(EINVAL)? = entry.raw();
                used += 1;
            }
            if used == BATCH || bus.is_none() && used != 0 {
                let at = self.core.entries(&self.shown.pages) + written * 8;
                hw.vram_write_u64s(at, words.get(..used).ok_or(EINVAL)?)?;
                // CAST: A few entries.
                written += used as u64;
                used = 0;
            }
            Ok(())
        };
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        let (mut start, mut shown) = (0, 0);
        for run in self.shown.dma.runs() {
            let run_end = start + run.len;
            let mut at = offset.max(start);
            while at < end.min(run_end) {
                put(Some(run.addr + (at - start)))?;
                at += pte::PAGE;
                shown += pte::PAGE;
            }
            start = run_end;
        }
        if shown != len {
            return Err(EINVAL);
        }
        put(None)?;
        Core::flush(hw)
    }
}

impl Drop for GartWindow {
    fn drop(&mut self) {
        self.core.retract(&self.shown.pages, || self.shown.clone());
    }
}
