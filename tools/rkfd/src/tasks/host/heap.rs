// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A heap of addresses: the first free range that is large enough; neighbours that are free are one range.

use std::collections::BTreeMap;

/// Alignment of what asks for none, and what sizes are rounded up to: lines of the GPU's cache are nobody else's.
const LEAST: u64 = 128;

/// A heap.
#[derive(Debug)]
pub(super) struct Heap {
    /// Length by start.
    free: BTreeMap<u64, u64>,
    used: BTreeMap<u64, u64>,
}

impl Heap {
    /// Of as many bytes from `start` on.
    pub(super) fn new(start: u64, bytes: u64) -> Self {
        Self {
            free: BTreeMap::from([(start, bytes)]),
            used: BTreeMap::new(),
        }
    }

    /// Bytes that are in use.
    pub(super) fn used(&self) -> u64 {
        self.used.values().sum()
    }

    /// Takes `bytes` bytes at a multiple of `align`, a power of two or 0. `None`: there is no such range, or the request is none.
    pub(super) fn allocate(&mut self, bytes: u64, align: u64) -> Option<u64> {
        if bytes == 0 || (align != 0 && !align.is_power_of_two()) {
            return None;
        }
        let align = align.max(LEAST);
        let bytes = bytes.checked_next_multiple_of(LEAST)?;
        let (start, length, at) = self.free.iter().find_map(|(start, length)| {
            let at = start.checked_next_multiple_of(align)?;
            let end = at.checked_add(bytes)?;
            (end <= start + length).then_some((*start, *length, at))
        })?;
        self.free.remove(&start);
        let (before, behind) = (at - start, start + length - (at + bytes));
        if before > 0 {
            self.free.insert(start, before);
        }
        if behind > 0 {
            self.free.insert(at + bytes, behind);
        }
        self.used.insert(at, bytes);
        Some(at)
    }

    /// Gives an allocation back, and returns its bytes. `None`: there is none at that address.
    pub(super) fn release(&mut self, address: u64) -> Option<u64> {
        let bytes = self.used.remove(&address)?;
        let (mut start, mut length) = (address, bytes);
        if let Some((before, of)) = self.free.range(..address).next_back() {
            if before + of == address {
                (start, length) = (*before, of + bytes);
            }
        }
        if let Some(behind) = self.free.remove(&(address + bytes)) {
            length += behind;
        }
        self.free.insert(start, length);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Allocations lie in the heap, aligned and apart; when all are gone the heap is whole again.
        #[test]
        fn allocations_are_apart(steps in prop::collection::vec((0u64..5000, 0u32..14, any::<prop::sample::Index>()), 1..100)) {
            let (start, bytes) = (0x10_0080, 1 << 16);
            let mut heap = Heap::new(start, bytes);
            let mut have: Vec<(u64, u64)> = Vec::new();
            for (want, align, index) in steps {
                let align = if align == 0 { 0 } else { 1 << (align - 1) };
                match heap.allocate(want, align) {
                    Some(at) => {
                        prop_assert!(want > 0 && at % align.max(1) == 0);
                        prop_assert!(at >= start && at + want <= start + bytes);
                        for (other, len) in &have {
                            prop_assert!(at + want <= *other || other + len <= at);
                        }
                        have.push((at, want));
                    }
                    None => {
                        if !have.is_empty() {
                            let (at, want) = have.swap_remove(index.index(have.len()));
                            prop_assert!(heap.release(at).unwrap() >= want);
                            prop_assert_eq!(heap.release(at), None, "twice");
                        }
                    }
                }
            }
            for (at, _) in have {
                prop_assert!(heap.release(at).is_some());
            }
            prop_assert_eq!(heap.used(), 0);
            prop_assert_eq!(heap.free, BTreeMap::from([(start, bytes)]));
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let mut heap = Heap::new(4096, 4096);
        assert_eq!(heap.allocate(0, 0), None);
        assert_eq!(heap.allocate(8, 3), None);
        assert_eq!(heap.allocate(4097, 0), None);
        assert_eq!(heap.allocate(u64::MAX, 1 << 63), None);
        assert_eq!(heap.release(4096), None);
        assert_eq!(heap.allocate(4096, 4096), Some(4096));
        assert_eq!(heap.allocate(1, 0), None);
    }
}
