// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Random choices, all from one seed, and values that do not belong where they are put.

/// An address that no user may name.
pub const KERNEL_ADDRESS: u64 = 0xffff_8000_0000_1000;
/// An address in the first page, where nothing is mapped.
pub const LOW_ADDRESS: u64 = 8;

/// Values for 64-bit fields. None of them is near something that exists.
const ODD_64: [u64; 12] = [
    0,
    1,
    LOW_ADDRESS,
    0xfff,
    0x1001,
    1 << 31,
    1 << 32,
    1 << 47,
    (1 << 47) - 0x1000,
    KERNEL_ADDRESS,
    i64::MAX as u64, // CAST: a positive constant.
    u64::MAX,
];
/// Values for 32-bit fields.
const ODD_32: [u32; 10] = [
    0,
    1,
    3,
    17,
    0xfff,
    0x1001,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_0000,
    u32::MAX,
];

/// One stream of choices.
pub struct Dice {
    rng: fastrand::Rng,
    /// Whether the call at hand may get odd values.
    wild: bool,
}

impl Dice {
    /// The stream of one thread of one life of one process.
    pub fn new(seed: u64, process: u32, life: u32, thread: u32) -> Self {
        let mut mixed = seed;
        for part in [process, life, thread] {
            // Neighbouring numbers must not give neighbouring states.
            mixed = fastrand::Rng::with_seed(mixed ^ u64::from(part)).u64(..);
        }
        Self {
            rng: fastrand::Rng::with_seed(mixed),
            wild: false,
        }
    }

    /// Begins a call: one of three may get odd values.
    pub fn begin(&mut self) {
        self.wild = self.one_in(3);
    }

    /// A call of which everything is right.
    pub fn begin_right(&mut self) {
        self.wild = false;
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(0..n.max(1)) == 0
    }

    /// A number below `n`, 0 where there is none.
    pub fn below(&mut self, n: u64) -> u64 {
        self.rng.u64(0..n.max(1))
    }

    /// An index below `n`, `None` where there is none.
    pub fn index(&mut self, n: usize) -> Option<usize> {
        (n > 0).then(|| self.rng.usize(0..n))
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.rng.u64(..)
    }

    /// One of `of`.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        self.index(of.len()).and_then(|at| of.get(at)).copied()
    }

    /// Whether a field of the call at hand gets an odd value.
    pub fn odd(&mut self) -> bool {
        self.wild && self.one_in(4)
    }

    /// `right`, or an odd value.
    pub fn w64(&mut self, right: u64) -> u64 {
        if self.odd() {
            self.pick(&ODD_64).unwrap_or(right)
        } else {
            right
        }
    }

    /// `right`, or an odd value.
    pub fn w32(&mut self, right: u32) -> u32 {
        if self.odd() {
            if self.one_in(4) {
                return self.rng.u32(..);
            }
            self.pick(&ODD_32).unwrap_or(right)
        } else {
            right
        }
    }

    /// `right`, or an address that can be neither read nor written. `hole` is one without memory.
    pub fn pointer(&mut self, right: u64, hole: u64) -> u64 {
        if self.odd() {
            self.pick(&[0, LOW_ADDRESS, KERNEL_ADDRESS, u64::MAX - 7, hole])
                .unwrap_or(right)
        } else {
            right
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(mut dice: Dice) -> Vec<u64> {
        (0..8).map(|_| dice.any()).collect()
    }

    #[test]
    fn a_stream_follows_from_its_numbers() {
        let base = first(Dice::new(1, 2, 3, 4));
        assert_eq!(base, first(Dice::new(1, 2, 3, 4)));
        for other in [
            [2, 2, 3, 4],
            [1, 3, 3, 4],
            [1, 2, 4, 4],
            [1, 2, 3, 5],
            [1, 3, 2, 4],
        ] {
            let [seed, process, life, thread] = other;
            assert_ne!(
                base,
                first(Dice::new(u64::from(seed), process, life, thread))
            );
        }
    }

    #[test]
    fn a_right_call_has_no_odd_value() {
        let mut dice = Dice::new(1, 0, 0, 0);
        dice.begin_right();
        for n in 0..1000 {
            assert_eq!(dice.w64(n), n);
            assert_eq!(dice.pointer(n, 1), n);
            assert_eq!(dice.w32(7), 7);
        }
        let odd = (0..1000).filter(|_| {
            dice.begin();
            dice.w64(0x5555) != 0x5555
        });
        assert!((20..300).contains(&odd.count()));
    }
}
