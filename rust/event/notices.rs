// SPDX-License-Identifier: GPL-2.0

//! What was reported for the events of a process and is not in its table yet.
//!
//! Of fixed size, so that a report allocates nothing and is done after a few instructions. Reports of the
//! same kind that meet in here become one, as they would have had both come a moment later: a signal page has one
//! slot for each event, and an event holds the latest payload.

use super::{
    payload::{
        HwExceptionData,
        MemoryExceptionData,
        Payload, //
    },
    table::SIGNAL_LIMIT, //
};

/// Words of a set of signal ids.
const WORDS: usize = (SIGNAL_LIMIT / u64::BITS) as usize;

/// Signal ids, one bit each.
pub(crate) struct IdSet([u64; WORDS]);

impl IdSet {
    const fn new() -> Self {
        Self([0; WORDS])
    }

    /// Adds `id`; false if it is none of a signal event.
    fn insert(&mut self, id: u32) -> bool {
        let bit = 1u64 << (id % u64::BITS);
        match self.0.get_mut(crate::hw::num::index(id / u64::BITS)) {
            Some(word) if id != 0 => {
                *word |= bit;
                true
            }
            _ => false,
        }
    }

    /// The ids, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0u32..).zip(self.0).flat_map(|(index, word)| {
            let mut rest = word;
            core::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(index * u64::BITS + bit)
            })
        })
    }
}

/// Reports that wait to be entered into the table.
pub(crate) struct Notices {
    /// Whether there is any.
    pending: bool,
    /// Context ids of interrupts.
    pub(crate) ids: IdSet,
    /// An interrupt whose id says nothing came, or some were lost: every slot is to be looked at.
    pub(crate) scan: bool,
    memory: Option<MemoryExceptionData>,
    hw_exception: Option<HwExceptionData>,
}

impl Notices {
    /// None.
    pub(crate) const fn new() -> Self {
        Self {
            pending: false,
            ids: IdSet::new(),
            scan: false,
            memory: None,
            hw_exception: None,
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        !self.pending
    }

    /// An interrupt with context id `id` came.
    pub(crate) fn interrupt(&mut self, id: u32) {
        self.pending = true;
        self.scan |= !self.ids.insert(id);
    }

    /// Interrupts were lost.
    pub(crate) fn lost(&mut self) {
        self.pending = true;
        self.scan = true;
    }

    /// All events of the payload's kind are to be signalled.
    pub(crate) fn raise(&mut self, payload: Payload) {
        match payload {
            Payload::Memory(data) => self.memory = Some(data),
            Payload::HwException(data) => self.hw_exception = Some(data),
            Payload::None | Payload::Age(_) => return,
        }
        self.pending = true;
    }

    /// The payloads that were raised.
    pub(crate) fn payloads(&self) -> impl Iterator<Item = Payload> {
        let memory = self.memory.map(Payload::Memory);
        memory
            .into_iter()
            .chain(self.hw_exception.map(Payload::HwException))
    }

    /// Takes all of them out.
    pub(crate) fn take(&mut self) -> Self {
        core::mem::replace(self, Self::new())
    }
}
