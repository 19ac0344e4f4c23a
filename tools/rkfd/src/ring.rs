// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The arithmetic of a ring, without its memory.

use crate::error::Error;
use crate::error::Result;
use crate::packet::aql;
use crate::queue::QueueKind;

/// Where a run of dwords goes: at `offset`, and from the ring's start after `first_dwords`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spans {
    /// Byte offset in the ring.
    pub offset: usize,
    /// Dwords before the ring's end.
    pub first_dwords: usize,
}

/// Write side of a ring: sizes in units (PM4: dwords, SDMA: bytes, AQL: packets).
#[derive(Clone, Debug)]
pub struct Ring {
    bytes: usize,
    unit: usize,
    written: u64,
    /// The reported read pointer wraps with the ring.
    wraps: bool,
    /// Units that must stay free, so that a full ring does not look empty.
    spare: u64,
}

impl Ring {
    /// A ring of `bytes` bytes.
    ///
    /// # Errors
    /// [`Error::Argument`] where that is not a power of two of at least one page.
    pub fn new(kind: QueueKind, bytes: usize) -> Result<Self> {
        if !bytes.is_power_of_two() || bytes < 4096 {
            return Err(Error::Argument(
                "A ring's size is a power of two of at least 4096 bytes",
            ));
        }
        let (unit, wraps, spare) = match kind {
            QueueKind::Pm4 => (4, true, 1),
            QueueKind::Sdma => (1, false, 4),
            QueueKind::Aql => (aql::BYTES, false, 0),
        };
        Ok(Self {
            bytes,
            unit,
            written: 0,
            wraps,
            spare,
        })
    }

    /// The write pointer in units.
    pub fn written(&self) -> u64 {
        self.written
    }

    fn units(&self) -> u64 {
        (self.bytes / self.unit) as u64 // CAST: a size in memory.
    }

    /// Byte offset in the ring of unit `index`.
    pub fn offset(&self, index: u64) -> usize {
        // CAST: less than the ring's size.
        (index % self.units()) as usize * self.unit
    }

    /// Units written that a reader at `read` has not read.
    pub fn pending(&self, read: u64) -> u64 {
        let distance = self.written.wrapping_sub(read);
        if self.wraps {
            distance % self.units()
        } else {
            distance
        }
    }

    /// Units that can be written while the reader is at `read`.
    pub fn free(&self, read: u64) -> u64 {
        self.units()
            .saturating_sub(self.spare)
            .saturating_sub(self.pending(read))
    }

    /// Units of so many dwords.
    pub fn units_of(&self, dwords: usize) -> u64 {
        dwords.saturating_mul(4).div_ceil(self.unit) as u64 // CAST: a size in memory.
    }

    /// Whether so many dwords do not even fit an empty ring.
    pub fn never_has(&self, dwords: usize) -> bool {
        self.units_of(dwords) > self.units().saturating_sub(self.spare)
    }

    /// Takes room for `dwords` dwords and advances the write pointer.
    ///
    /// # Errors
    /// [`Error::RingFull`]; nothing is taken then.
    pub fn reserve(&mut self, dwords: usize, read: u64) -> Result<Spans> {
        let wanted = self.units_of(dwords);
        let free = self.free(read);
        if wanted > free {
            return Err(Error::RingFull { wanted, free });
        }
        let offset = self.offset(self.written);
        self.written += wanted;
        Ok(Spans {
            offset,
            first_dwords: dwords.min((self.bytes - offset) / 4),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_checked() {
        for bytes in [0, 2048, 4095, 6000] {
            assert!(Ring::new(QueueKind::Pm4, bytes).is_err(), "{bytes}");
        }
        assert!(Ring::new(QueueKind::Pm4, 4096).is_ok());
    }

    #[test]
    fn a_full_ring_keeps_its_spare() {
        let mut r = Ring::new(QueueKind::Pm4, 4096).unwrap();
        assert_eq!(
            r.reserve(1023, 0).unwrap(),
            Spans {
                offset: 0,
                first_dwords: 1023
            }
        );
        assert!(matches!(
            r.reserve(1, 0),
            Err(Error::RingFull { wanted: 1, free: 0 })
        ));
        assert_eq!(r.pending(0), 1023);
        assert!(!r.never_has(1023) && r.never_has(1024) && r.never_has(usize::MAX));
        // The reader went to dword 2: two more fit, and wrap.
        assert_eq!(
            r.reserve(2, 2).unwrap(),
            Spans {
                offset: 4092,
                first_dwords: 1
            }
        );
        assert_eq!(r.written(), 1025);
        assert_eq!(r.pending(1), 0, "1025 wraps to 1");
    }

    #[test]
    fn aql_counts_packets() {
        let mut r = Ring::new(QueueKind::Aql, 4096).unwrap();
        for i in 0..64 {
            assert_eq!(r.reserve(16, 0).unwrap().offset, i * 64);
        }
        assert!(r.reserve(16, 0).is_err());
        assert_eq!(r.reserve(16, 1).unwrap().offset, 0);
    }

    proptest! {
        /// Whatever is written and read, spans stay inside the ring and never overtake the reader.
        #[test]
        fn never_overtakes(
            kind in prop::sample::select(vec![QueueKind::Pm4, QueueKind::Sdma]),
            steps in prop::collection::vec((1usize..600, any::<prop::sample::Index>()), 1..200),
        ) {
            let mut r = Ring::new(kind, 4096).unwrap();
            let unit = if kind == QueueKind::Pm4 { 1 } else { 4 };
            let mut read = 0u64; // Monotonic, in units.
            for (dwords, consume) in steps {
                let reported = if kind == QueueKind::Pm4 { read % 1024 } else { read };
                let before = r.written();
                match r.reserve(dwords, reported) {
                    Ok(s) => {
                        prop_assert_eq!(r.written(), before + (dwords * unit) as u64);
                        prop_assert!(r.written() - read < 1024 * unit as u64);
                        prop_assert!(s.offset + 4 * s.first_dwords <= 4096);
                        prop_assert!(4 * (dwords - s.first_dwords) <= s.offset);
                    }
                    Err(_) => prop_assert!(before - read + (dwords * unit) as u64 >= 1024 * unit as u64),
                }
                let pending = r.written() - read;
                prop_assert_eq!(pending, r.pending(if kind == QueueKind::Pm4 { read % 1024 } else { read }));
                // The reader takes some of what is there.
                let step = consume.index(usize::try_from(pending).unwrap() / unit + 1) * unit;
                read += step as u64;
            }
        }
    }
}
