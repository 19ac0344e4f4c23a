// SPDX-License-Identifier: GPL-2.0

//! The owners of the parts of the doorbell BAR.
//!
//! | bytes of BAR2 | owner |
//! |---|---|
//! | page 0 | fixed kernel doorbells: KIQ, SDMA, interrupt rings ([`DoorbellLayout`]) |
//! | page 1 | kernel queues of the scheduler ([`DoorbellManager::alloc_kernel`]) |
//! | from 8 KiB on, 8 KiB each | process slices ([`DoorbellManager::alloc_slice`]) |
//!
//! A slice is mapped into a process as a whole. Which ids of it a queue may use is a matter of
//! routing; see [`hw::doorbell`](crate::hw::doorbell). Doorbells keep no value: BAR2 has no memory
//! behind it, and a queue starts from the write pointer in memory. What is reset for the next
//! owner is therefore the id map, checked when a slice is taken again.

use kernel::{
    fmt, new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

use crate::{
    hw::doorbell::{
        slice_count,
        slice_offset,
        DoorbellLayout,
        DoorbellOffset,
        BYTES,
        PAGE_BYTES,
        PAGE_IDS,
        SLICE_BYTES,
        SLICE_IDS, //
    },
    kapi::task, //
};

/// Where the page of kernel queues begins.
const KERNEL_PAGE: u64 = 0x1000;
/// Where process slices begin: after the two kernel pages, at a multiple of the slice.
const FIRST_SLICE: u64 = 0x2000;
/// Slices that are managed at most: the BAR of a card is 2 MiB and holds 255.
const MAX_SLICES: usize = 4096;
const WORDS: usize = 16;

/// A set of ids below 1024.
#[derive(Clone, Copy)]
struct IdSet([u64; WORDS]);

impl IdSet {
    const EMPTY: Self = Self([0; WORDS]);

    fn position(id: u32) -> (usize, u64) {
        let id = crate::hw::num::index(id);
        (id / 64, 1 << (id % 64))
    }

    fn contains(&self, id: u32) -> bool {
        let (word, bit) = Self::position(id);
        self.0.get(word).is_none_or(|word| word & bit != 0)
    }

    /// Adds `id`; false if it was there.
    fn insert(&mut self, id: u32) -> bool {
        let (word, bit) = Self::position(id);
        match self.0.get_mut(word) {
            Some(word) if *word & bit == 0 => {
                *word |= bit;
                true
            }
            _ => false,
        }
    }

    fn remove(&mut self, id: u32) {
        let (word, bit) = Self::position(id);
        if let Some(word) = self.0.get_mut(word) {
            *word &= !bit;
        }
    }

    fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// The ids of the set, in order.
    fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..SLICE_IDS).filter(|id| self.contains(*id))
    }
}

/// A slice in use.
struct Taken {
    /// Process that took it, for messages.
    pid: i32,
    /// Its doorbells that queues have.
    ids: IdSet,
}

struct State {
    /// By number.
    slices: KVVec<Option<Taken>>,
    /// Where to look first, so that a freed slice rests before it is used again.
    next: usize,
    in_use: usize,
    /// Ids of the kernel page.
    kernel: IdSet,
}

/// The doorbell BAR of one GPU.
#[pin_data]
pub(crate) struct DoorbellManager {
    layout: &'static DoorbellLayout,
    count: usize,
    bar_len: u64,
    #[pin]
    state: Mutex<State>,
}

impl DoorbellManager {
    /// Manages a BAR of `bar_len` bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it has no room for one slice, `ENOMEM`.
    pub(crate) fn new(layout: &'static DoorbellLayout, bar_len: u64) -> Result<Arc<Self>> {
        // The two kernel pages are a fact of this driver, the fixed indices one of the hardware.
        if u64::from(layout.kernel_bytes()) > KERNEL_PAGE {
            return Err(EINVAL);
        }
        // A larger BAR than any card has costs no more than one of this size.
        let count = crate::hw::num::index(slice_count(FIRST_SLICE, bar_len)).min(MAX_SLICES);
        if count == 0 {
            return Err(EINVAL);
        }
        let mut slices = KVVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            slices.push(None, GFP_KERNEL)?;
        }
        Arc::pin_init(
            try_pin_init!(Self {
                layout,
                count,
                bar_len,
                state <- new_mutex!(
                    State { slices, next: 0, in_use: 0, kernel: IdSet::EMPTY },
                    "rkfd_doorbells"
                ),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Slices in use and in all.
    pub(crate) fn usage(&self) -> (usize, usize) {
        (self.state.lock().in_use, self.count)
    }

    /// Takes a process slice with no id in use.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if all are taken, `ENOMEM`.
    pub(crate) fn alloc_slice(self: &Arc<Self>) -> Result<Arc<DoorbellSlice>> {
        let mut state = self.state.lock();
        let first = state.next;
        let index = Iterator::chain(first..self.count, 0..first)
            .find(|i| matches!(state.slices.get(*i), Some(None)))
            .ok_or(ENOSPC)?;
        let offset =
            slice_offset(FIRST_SLICE, u32::try_from(index)?, self.bar_len).ok_or(ENOSPC)?;
        *state.slices.get_mut(index).ok_or(EINVAL)? = Some(Taken {
            pid: task::current_tgid(),
            ids: IdSet::EMPTY,
        });
        state.next = (index + 1) % self.count;
        state.in_use += 1;
        drop(state);

        let owned = SliceIndex {
            manager: self.clone(),
            index,
        };
        Ok(Arc::new(
            DoorbellSlice { offset, owned },
            GFP_KERNEL_ACCOUNT,
        )?)
    }

    /// Writes the owner of each doorbell, as a table.
    pub(super) fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        let taken = state.slices.iter().flatten();
        let doorbells: u32 = taken.map(|slice| slice.ids.len()).sum();
        writeln!(f, "slices {} of {}", state.in_use, self.count)?;
        writeln!(f, "doorbells {}", doorbells)?;
        write!(f, "kernel")?;
        for id in state.kernel.iter() {
            write!(f, " {:#x}", KERNEL_PAGE + u64::from(id * BYTES))?;
        }
        writeln!(f, "\nslice  bytes     pid       doorbells (byte in slice)")?;
        for (index, slice) in state.slices.iter().enumerate() {
            let Some(slice) = slice else { continue };
            // CAST: There are few enough that all lie in a BAR.
            let base = FIRST_SLICE + index as u64 * u64::from(SLICE_BYTES);
            write!(f, "{:<6} {:<#9x} {:<9}", index, base, slice.pid)?;
            for id in slice.ids.iter() {
                write!(f, " {:#x}", id * BYTES)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }

    /// Takes a doorbell for a kernel queue that the CP serves.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if all are taken.
    pub(crate) fn alloc_kernel(self: &Arc<Self>) -> Result<KernelDoorbell> {
        let mut state = self.state.lock();
        let id = (0..PAGE_IDS)
            .find(|id| self.layout.cp_may_use(*id) && !state.kernel.contains(*id))
            .ok_or(ENOSPC)?;
        let offset = DoorbellOffset::new(KERNEL_PAGE, id).ok_or(ENOSPC)?;
        state.kernel.insert(id);
        drop(state);
        Ok(KernelDoorbell {
            manager: self.clone(),
            id,
            offset,
        })
    }
}

/// The claim on a slice.
struct SliceIndex {
    manager: Arc<DoorbellManager>,
    index: usize,
}

impl Drop for SliceIndex {
    fn drop(&mut self) {
        let mut state = self.manager.state.lock();
        if let Some(slice) = state.slices.get_mut(self.index) {
            *slice = None;
        }
        state.in_use -= 1;
    }
}

/// 8 KiB of BAR2 that one process maps.
pub(crate) struct DoorbellSlice {
    offset: u64,
    owned: SliceIndex,
}

impl DoorbellSlice {
    /// First byte in BAR2, a multiple of [`DoorbellSlice::SIZE`].
    pub(crate) fn bar_offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of a slice.
    pub(crate) const SIZE: u32 = SLICE_BYTES;

    fn layout(&self) -> &'static DoorbellLayout {
        self.owned.manager.layout
    }

    /// Runs `f` on the ids in use.
    fn with_ids<R>(&self, f: impl FnOnce(&mut IdSet) -> R) -> Option<R> {
        let mut state = self.owned.manager.state.lock();
        let slice = state.slices.get_mut(self.owned.index)?.as_mut()?;
        Some(f(&mut slice.ids))
    }

    fn claim(self: &Arc<Self>, id: u32) -> Result<Doorbell> {
        let offset = DoorbellOffset::new(self.offset, id).ok_or(EINVAL)?;
        if self.with_ids(|ids| ids.insert(id)) != Some(true) {
            return Err(EBUSY);
        }
        Ok(Doorbell {
            slice: self.clone(),
            id,
            offset,
        })
    }

    /// Takes the lowest free doorbell for a queue of the CP.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if all are taken.
    pub(crate) fn alloc_cp(self: &Arc<Self>) -> Result<Doorbell> {
        for id in self.layout().cp_ids() {
            match self.claim(id) {
                Err(e) if e == EBUSY => continue,
                result => return result,
            }
        }
        Err(ENOSPC)
    }

    /// Takes the doorbell `id` of a CP queue, as a checkpoint restore asks.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the CP does not serve it, `EBUSY` if it is taken.
    #[cfg(rkfd_kunit)]
    pub(crate) fn alloc_cp_at(self: &Arc<Self>, id: u32) -> Result<Doorbell> {
        if id >= SLICE_IDS || !self.layout().cp_may_use(id) {
            return Err(EINVAL);
        }
        self.claim(id)
    }

    /// Takes the doorbell of user queue `queue` of SDMA engine `engine`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is none, `EBUSY` if it is taken.
    pub(crate) fn alloc_sdma(self: &Arc<Self>, engine: u32, queue: u32) -> Result<Doorbell> {
        let id = self.layout().sdma_id(engine, queue).ok_or(EINVAL)?;
        self.claim(id)
    }

    /// Doorbells in use.
    #[cfg(rkfd_kunit)]
    pub(crate) fn in_use(&self) -> u32 {
        self.with_ids(|ids| ids.len()).unwrap_or(0)
    }
}

/// A doorbell of a user queue; dropping gives it back.
pub(crate) struct Doorbell {
    slice: Arc<DoorbellSlice>,
    id: u32,
    offset: DoorbellOffset,
}

impl Doorbell {
    /// Dword index on the whole BAR, as MQD and MAP_QUEUES take it.
    #[cfg(rkfd_kunit)]
    pub(crate) fn dword_offset(&self) -> u32 {
        self.offset.dword()
    }

    /// The same, typed.
    pub(crate) fn offset(&self) -> DoorbellOffset {
        self.offset
    }

    /// Byte inside the slice, where the process writes.
    pub(crate) fn byte_in_slice(&self) -> u32 {
        self.id * BYTES
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        self.slice.with_ids(|ids| ids.remove(self.id));
    }
}

/// A doorbell of a kernel queue; dropping gives it back.
pub(crate) struct KernelDoorbell {
    manager: Arc<DoorbellManager>,
    id: u32,
    offset: DoorbellOffset,
}

impl KernelDoorbell {
    /// Where it is on BAR2.
    pub(crate) fn offset(&self) -> DoorbellOffset {
        self.offset
    }
}

impl Drop for KernelDoorbell {
    fn drop(&mut self) {
        self.manager.state.lock().kernel.remove(self.id);
    }
}

const _: () = assert!(
    FIRST_SLICE % (SLICE_BYTES as u64) == 0 && KERNEL_PAGE + (PAGE_BYTES as u64) == FIRST_SLICE,
    "slices follow the kernel pages at a multiple of their size"
);
