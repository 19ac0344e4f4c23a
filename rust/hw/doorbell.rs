// SPDX-License-Identifier: GPL-2.0

//! The doorbell BAR: fixed indices, process slices, and the ids that each queue may use.
//!
//! BAR2 is an array of 32-bit slots. gfx9 doorbells are 64 bits wide, so doorbell *id* `n` of a page
//! is dword `2n`, byte `8n`. All registers and packets take a *dword index on the whole BAR*,
//! stored two bits up, so that the word that carries it reads as a byte offset.
//!
//! The bus interface routes by the low 12 bits of the byte address: SDMA and interrupt ranges are
//! holes that repeat in every 4 KiB page, and everything else goes to the CP. Hence an SDMA queue
//! needs an id inside its engine's hole and a CP queue one outside all holes.
//!
//! Source: `amdgpu_doorbell.h`, `vega20_reg_init.c`, `kfd_doorbell.c`,
//! `kfd_device_queue_manager.c` `allocate_doorbell`, `nbio_v7_4.c`.

use super::num;
use super::regs::nbio;

/// Bytes of a doorbell.
pub(crate) const BYTES: u32 = 8;
/// Ids in a process slice.
pub(crate) const SLICE_IDS: u32 = 1024;
/// Bytes of a process slice: two pages.
pub(crate) const SLICE_BYTES: u32 = SLICE_IDS * BYTES;
/// Ids in a page, the period of the routing holes.
pub(crate) const PAGE_IDS: u32 = 512;
/// Bytes of a page.
pub(crate) const PAGE_BYTES: u32 = PAGE_IDS * BYTES;

/// Dword index of a doorbell on BAR2.
///
/// # Invariants
///
/// Fits the 26-bit field of MQD and MAP_QUEUES, and is even.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DoorbellOffset(u32);

impl DoorbellOffset {
    /// The doorbell with `id` of the page or slice that begins at byte `base` of BAR2.
    ///
    /// `None` if `base` is not aligned to a doorbell or the result does not fit the hardware field.
    pub(crate) const fn new(base: u64, id: u32) -> Option<Self> {
        if !num::is_aligned(base, num::widen(BYTES)) {
            return None;
        }
        let dword = match (base / 4).checked_add(num::widen(id) * 2) {
            Some(dword) => dword,
            None => return None,
        };
        if dword > num::low_mask(26) {
            return None;
        }
        // INVARIANT: Both terms are even and the range was checked in the line above.
        Some(Self(num::lo32(dword)))
    }

    /// The doorbell with qword index `id` of the kernel page at the start of BAR2.
    pub(crate) const fn kernel(id: u32) -> Self {
        // INVARIANT: The mask leaves 25 bits before doubling.
        Self((id & 0x1ff_ffff) * 2)
    }

    /// Dword index from an untrusted word, such as a saved MQD.
    pub(crate) const fn from_dword(dword: u32) -> Option<Self> {
        if num::widen(dword) > num::low_mask(26) || dword & 1 != 0 {
            None
        } else {
            // INVARIANT: Checked in the line above.
            Some(Self(dword))
        }
    }

    /// Dword index.
    pub(crate) const fn dword(self) -> u32 {
        self.0
    }

    /// Id in a process slice, as interrupts name it. Slices begin at multiples of their size.
    pub(crate) const fn id_in_slice(self) -> u32 {
        self.0 / 2 % SLICE_IDS
    }

    /// Byte offset in BAR2, where the CPU writes.
    pub(crate) const fn byte(self) -> usize {
        num::index(self.0) * 4
    }

    /// Id inside its 8 KiB slice, given that slices are aligned to their size.
    pub(crate) const fn slice_id(self) -> u32 {
        self.0 / 2 % SLICE_IDS
    }

    /// The word of MQD and MAP_QUEUES with this offset in bits 27 to 2.
    pub(crate) const fn field(self) -> u32 {
        self.0 << 2
    }
}

/// Indices of the first page in units of 8 bytes, and the holes that repeat in all pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DoorbellLayout {
    /// Kernel interface queue.
    pub(crate) kiq: u32,
    /// HSA interface queue (amdgpu's slot; KFD takes a free id of its own page).
    pub(crate) hiq: u32,
    /// Debug interface queue.
    pub(crate) diq: u32,
    /// First of eight kernel compute rings.
    pub(crate) mec_ring0: u32,
    /// Upper end of what CP_MEC_DOORBELL_RANGE covers.
    pub(crate) userqueue_end: u32,
    /// First id of SDMA engine 0.
    pub(crate) sdma0: u32,
    /// Distance between the ids of two engines.
    pub(crate) sdma_stride: u32,
    /// Interrupt ring 0; rings 1 and 2 follow.
    pub(crate) ih: u32,
    /// Retry CAM.
    pub(crate) ih_retry_cam: u32,
    /// First id of the holes.
    pub(crate) first_non_cp: u32,
    /// Last id of the holes.
    pub(crate) last_non_cp: u32,
    /// Last id that amdgpu assigns in the kernel page.
    pub(crate) max_assignment: u32,
    /// Doorbells of one SDMA engine, in dwords, as the range register takes it.
    pub(crate) sdma_range_dwords: u32,
    /// Doorbells of the interrupt handler, in dwords.
    pub(crate) ih_range_dwords: u32,
}

impl DoorbellLayout {
    /// gfx906 and gfx90a (`AMDGPU_VEGA20_DOORBELL_*`).
    pub(crate) const VEGA20: Self = Self {
        kiq: 0x000,
        hiq: 0x001,
        diq: 0x002,
        mec_ring0: 0x003,
        userqueue_end: 0x08A,
        sdma0: 0x100,
        sdma_stride: 0xA,
        ih: 0x178,
        ih_retry_cam: 0x17B,
        first_non_cp: 0x100,
        last_non_cp: 0x18F,
        max_assignment: 0x1F7,
        sdma_range_dwords: 20,
        ih_range_dwords: 8,
    };

    /// First id of SDMA engine `engine`; also the kernel ring's doorbell.
    pub(crate) const fn sdma_base(&self, engine: u32) -> u32 {
        self.sdma0 + self.sdma_stride * engine
    }

    /// Id, inside a process slice, of user queue `queue` of SDMA engine `engine`.
    ///
    /// The two low ids of consecutive queues lie in different pages of the slice, so that eight
    /// queues use four ids of the hole. `None` if the queue would leave the engine's range.
    pub(crate) const fn sdma_id(&self, engine: u32, queue: u32) -> Option<u32> {
        if queue / 2 >= self.sdma_range_dwords / 2 {
            return None;
        }
        let id = self.sdma_base(engine) + (queue & 1) * PAGE_IDS + (queue >> 1);
        if id >= SLICE_IDS {
            return None;
        }
        Some(id)
    }

    /// Whether a CP queue may use `id` of a slice.
    pub(crate) const fn cp_may_use(&self, id: u32) -> bool {
        let in_page = id % PAGE_IDS;
        id < SLICE_IDS && (in_page < self.first_non_cp || in_page > self.last_non_cp)
    }

    /// Ids of a slice that CP queues may use, in the order of allocation.
    pub(crate) fn cp_ids(&'static self) -> impl Iterator<Item = u32> {
        (0..SLICE_IDS).filter(|id| self.cp_may_use(*id))
    }

    /// Doorbell of interrupt ring `ring`.
    pub(crate) const fn ih_ring(&self, ring: u32) -> DoorbellOffset {
        DoorbellOffset::kernel(self.ih + ring)
    }

    /// Doorbell that releases a retry CAM entry.
    pub(crate) const fn retry_cam(&self) -> DoorbellOffset {
        DoorbellOffset::kernel(self.ih_retry_cam)
    }

    /// Range register value of SDMA engine `engine`.
    pub(crate) const fn sdma_range(&self, engine: u32) -> nbio::DoorbellRange {
        nbio::DoorbellRange::new()
            .with(
                nbio::DoorbellRange::OFFSET,
                DoorbellOffset::kernel(self.sdma_base(engine)).dword(),
            )
            .with(nbio::DoorbellRange::SIZE, self.sdma_range_dwords)
    }

    /// Range register value of the interrupt handler.
    pub(crate) const fn ih_range(&self) -> nbio::DoorbellRange {
        nbio::DoorbellRange::new()
            .with(nbio::DoorbellRange::OFFSET, self.ih_ring(0).dword())
            .with(nbio::DoorbellRange::SIZE, self.ih_range_dwords)
    }

    /// Values of CP_MEC_DOORBELL_RANGE_LOWER and UPPER: byte offsets 0 and 0x450.
    pub(crate) const fn mec_range(&self) -> [u32; 2] {
        [
            DoorbellOffset::kernel(self.kiq).field(),
            DoorbellOffset::kernel(self.userqueue_end).field(),
        ]
    }

    /// Bytes at the start of BAR2 that belong to the kernel: all fixed indices.
    pub(crate) const fn kernel_bytes(&self) -> u32 {
        let end = (self.max_assignment + 1) * BYTES;
        end.div_ceil(PAGE_BYTES) * PAGE_BYTES
    }
}

/// Byte offset in BAR2 of process slice `n` when slices begin at `first`, both sized by `slice`.
///
/// `first` must be a multiple of `slice`, or `slice_id` would not name the id. `None` if the slice
/// does not lie inside a BAR of `bar_len` bytes.
pub(crate) const fn slice_offset(first: u64, n: u32, bar_len: u64) -> Option<u64> {
    let slice = num::widen(SLICE_BYTES);
    if !num::is_aligned(first, slice) {
        return None;
    }
    let start = match first.checked_add(num::widen(n) * slice) {
        Some(start) => start,
        None => return None,
    };
    match start.checked_add(slice) {
        Some(end) if end <= bar_len => Some(start),
        _ => None,
    }
}

/// Number of process slices that fit behind `first` in a BAR of `bar_len` bytes.
pub(crate) const fn slice_count(first: u64, bar_len: u64) -> u32 {
    num::lo32(bar_len.saturating_sub(first) / num::widen(SLICE_BYTES))
}
