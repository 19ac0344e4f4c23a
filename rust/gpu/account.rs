// SPDX-License-Identifier: GPL-2.0

//! How much memory buffers may take: VRAM per GPU, system memory for all GPUs together.
//!
//! The limits are upstream's (`amdgpu_amdkfd_gpuvm.c`), for runtimes size their pools by them: what
//! page tables may need is held back, and system memory leaves the machine enough to live on. Page tables that
//! need more than that count as buffers do. Buffers count by their bytes; only what is *reported* as available
//! counts each in whole units of 2 MiB, so
//! that a pool of that size can be had.

use kernel::{
    new_mutex,
    prelude::*,
    sizes::{
        SZ_2M,
        SZ_8M, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};

/// What is held back for page tables in a VRAM of `total` bytes, as upstream estimates it.
pub(crate) fn table_reserve(total: u64) -> u64 {
    // CAST: A constant.
    (total >> 14).max(SZ_8M as u64)
}

/// System memory that is left alone: 1.5 GiB (`AMDGPU_RESERVE_MEM_LIMIT`).
const SYSTEM_RESERVE: u64 = 3 << 29;

/// An amount of memory of which parts are taken and given back.
pub(crate) struct Budget {
    limit: Atomic<u64>,
    unit: u64,
    used: Atomic<u64>,
    /// As `used`, each part in whole units.
    used_units: Atomic<u64>,
}

impl Budget {
    /// Makes a budget of `limit` bytes, reported in multiples of `unit`, a power of two.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EINVAL` if `unit` is no power of two.
    pub(crate) fn new(limit: u64, unit: u64) -> Result<Arc<Self>> {
        if !unit.is_power_of_two() {
            return Err(EINVAL);
        }
        Ok(Arc::new(Self::with_limit(limit, unit), GFP_KERNEL)?)
    }

    const fn with_limit(limit: u64, unit: u64) -> Self {
        Self {
            limit: Atomic::new(limit),
            unit,
            used: Atomic::new(0),
            used_units: Atomic::new(0),
        }
    }

    /// The budget for buffers in `free` bytes of a VRAM of `total` bytes.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn for_vram(total: u64, free: u64) -> Result<Arc<Self>> {
        // CAST: A constant.
        Self::new(free.saturating_sub(table_reserve(total)), SZ_2M as u64)
    }

    /// Takes `size` bytes.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is not so much left.
    pub(crate) fn charge(self: &Arc<Self>, size: u64) -> Result<Charge> {
        Ok(Charge {
            amount: self.take(size)?,
            budget: Owner::Device(self.clone()),
        })
    }

    /// As [`Self::charge`], for a budget of the module.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is not so much left.
    pub(crate) fn charge_module(&'static self, size: u64) -> Result<Charge> {
        Ok(Charge {
            amount: self.take(size)?,
            budget: Owner::Module(self),
        })
    }

    fn take(&self, size: u64) -> Result<u64> {
        let mut used = self.used.load(Relaxed);
        loop {
            let new = used.checked_add(size).ok_or(ENOMEM)?;
            if new > self.limit() {
                return Err(ENOMEM);
            }
            match self.used.cmpxchg(used, new, Relaxed) {
                Ok(_) => break,
                Err(now) => used = now,
            }
        }
        self.used_units.fetch_add(self.whole_units(size), Relaxed);
        Ok(size)
    }

    /// `size` rounded up to whole units, which are powers of two.
    fn whole_units(&self, size: u64) -> u64 {
        // OVERFLOW: Not more than the limit, and units are small.
        let below = self.unit.wrapping_sub(1);
        size.wrapping_add(below) & !below
    }

    fn give_back(&self, amount: u64) {
        // OVERFLOW: What is given back was taken.
        self.used_units
            .fetch_add(self.whole_units(amount).wrapping_neg(), Relaxed);
        self.used.fetch_add(amount.wrapping_neg(), Relaxed);
    }

    /// Bytes taken.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Bytes that can be taken at all.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// Bytes left, in whole units, if each part took whole units.
    pub(crate) fn available(&self) -> u64 {
        let used = self.used_units.load(Relaxed);
        self.limit().saturating_sub(used) & !(self.unit - 1)
    }
}

/// The owner of the budget.
enum Owner {
    Device(Arc<Budget>),
    Module(&'static Budget),
}

/// A part of a [`Budget`] that is taken; dropping gives it back.
pub(crate) struct Charge {
    budget: Owner,
    amount: u64,
}

impl Charge {
    /// Bytes taken.
    pub(crate) fn amount(&self) -> u64 {
        self.amount
    }

    fn budget(&self) -> &Budget {
        match &self.budget {
            Owner::Device(budget) => budget,
            Owner::Module(budget) => budget,
        }
    }

    /// Makes it a part of `amount` bytes.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is not so much left; less is never refused. Then it is as before.
    pub(crate) fn resize(&mut self, amount: u64) -> Result {
        let budget = self.budget();
        budget.take(amount.saturating_sub(self.amount))?;
        budget.give_back(self.amount.saturating_sub(amount));
        // Where the units do not add up to those of the whole.
        let parts = budget
            .whole_units(amount.saturating_sub(self.amount))
            .wrapping_sub(budget.whole_units(self.amount.saturating_sub(amount)));
        let whole = budget
            .whole_units(amount)
            .wrapping_sub(budget.whole_units(self.amount));
        budget
            .used_units
            .fetch_add(whole.wrapping_sub(parts), Relaxed);
        self.amount = amount;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget().give_back(self.amount);
    }
}

/// What page tables take of the VRAM: first what is held back for them, beyond that the budget of buffers, in
/// whole units, so that what is reported as available stays exact.
#[pin_data]
pub(crate) struct TableBudget {
    reserve: u64,
    /// Innermost.
    #[pin]
    state: Mutex<TableState>,
}

struct TableState {
    used: u64,
    /// Of the budget of buffers.
    beyond: Charge,
}

impl TableBudget {
    /// For tables in a VRAM where `reserve` bytes are held back for them and buffers have `buffers`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(buffers: &Arc<Budget>, reserve: u64) -> Result<Arc<Self>> {
        let state = TableState {
            used: 0,
            beyond: buffers.charge(0)?,
        };
        Arc::pin_init(
            pin_init!(Self {
                reserve,
                state <- new_mutex!(state, "rkfd_table_budget"),
            }),
            GFP_KERNEL,
        )
    }

    fn resize(&self, state: &mut TableState, used: u64) -> Result {
        let beyond = used.saturating_sub(self.reserve);
        let beyond = state.beyond.budget().whole_units(beyond);
        if beyond != state.beyond.amount() {
            state.beyond.resize(beyond)?;
        }
        state.used = used;
        Ok(())
    }

    /// Takes `size` bytes.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if neither the reserve nor the budget of buffers has so much left.
    pub(crate) fn charge(self: &Arc<Self>, size: u64) -> Result<TableCharge> {
        let mut state = self.state.lock();
        let used = state.used.checked_add(size).ok_or(ENOMEM)?;
        self.resize(&mut state, used)?;
        Ok(TableCharge {
            budget: self.clone(),
            size,
        })
    }

    /// Bytes taken.
    pub(crate) fn used(&self) -> u64 {
        self.state.lock().used
    }

    /// Bytes held back.
    pub(crate) fn reserve(&self) -> u64 {
        self.reserve
    }
}

/// A part of a [`TableBudget`] that is taken; dropping gives it back.
pub(crate) struct TableCharge {
    budget: Arc<TableBudget>,
    size: u64,
}

impl Drop for TableCharge {
    fn drop(&mut self) {
        let mut state = self.budget.state.lock();
        let used = state.used.saturating_sub(self.size);
        // Less is never refused.
        let _ = self.budget.resize(&mut state, used);
    }
}

/// System memory for buffers of all GPUs.
pub(crate) struct SystemBudgets {
    /// Everything that GPUs keep from being paged out.
    pub(crate) all: Budget,
    /// What of it was allocated for GPUs, in contrast to pinned user memory.
    pub(crate) allocated: Budget,
}

/// System memory belongs to no GPU, so its account is the module's. The limits follow from the
/// machine and are filled in on use.
static SYSTEM: SystemBudgets = SystemBudgets {
    all: Budget::with_limit(0, crate::hw::pte::PAGE),
    allocated: Budget::with_limit(0, crate::hw::pte::PAGE),
};

/// The account of system memory.
pub(crate) fn system() -> &'static SystemBudgets {
    let ram = crate::kapi::pages::total_ram();
    SYSTEM.all.limit.store(system_limit(ram), Relaxed);
    // As much as `ttm` allows by default.
    SYSTEM.allocated.limit.store(ram / 2, Relaxed);
    &SYSTEM
}

/// System memory that GPUs may hold on a machine with `ram` bytes.
pub(crate) const fn system_limit(ram: u64) -> u64 {
    let most = ram - (ram >> 6);
    if most < 2 * SYSTEM_RESERVE {
        most >> 1
    } else {
        most - SYSTEM_RESERVE
    }
}
