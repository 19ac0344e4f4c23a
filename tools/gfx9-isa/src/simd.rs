// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Loops over lanes, compiled for the host's vector units.
//!
//! Each kernel is compiled twice: for the baseline of the target, and for x86-64-v3 (AVX2, FMA, BMI2).  Which of them
//! runs is decided once, from what the processor reports.  AVX-512 is left out as long as the oldest compiler that the
//! workspace supports (1.85) has no stable target features for it.
//!
//! This module and the macro [`twice`] hold the only `unsafe` of the crate: calls of functions whose target features
//! were found before, and two intrinsics that turn signs into a mask.

use crate::env::Lanes;
use crate::env::Wide;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering;

/// What the processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The baseline of the target.
    Base,
    /// x86-64-v3: AVX2, FMA, BMI1, BMI2, LZCNT, POPCNT.
    V3,
}

/// The level that the kernels run at.  `ISA_SIMD=base` in the environment keeps them at the baseline.
#[inline]
pub fn level() -> Level {
    static FOUND: AtomicU8 = AtomicU8::new(0);
    match FOUND.load(Ordering::Relaxed) {
        0 => {
            let level = detect();
            FOUND.store(1 + level as u8, Ordering::Relaxed);
            level
        }
        1 => Level::Base,
        _ => Level::V3,
    }
}

#[cfg(target_arch = "x86_64")]
#[cold]
fn detect() -> Level {
    let kept = std::env::var_os("ISA_SIMD").is_some_and(|level| level == "base");
    let found = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt");
    if found && !kept {
        Level::V3
    } else {
        Level::Base
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[cold]
fn detect() -> Level {
    Level::Base
}

/// Two versions of one function; `V` is the type of the second one, whose features must be there.
macro_rules! kernel_type {
    ($(#[$doc:meta])* $name:ident, ($($arg:ident: $ty:ty),*) $(-> $out:ty)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name(unsafe fn($($ty),*) $(-> $out)?);

        impl $name {
            /// The version for this processor.
            ///
            /// # Safety
            /// `v3` must be safe to call wherever the features of [`Level::V3`] are present.
            pub(crate) unsafe fn new(
                base: fn($($ty),*) $(-> $out)?,
                v3: unsafe fn($($ty),*) $(-> $out)?,
            ) -> Self {
                match level() {
                    Level::Base => Self(base),
                    Level::V3 => Self(v3),
                }
            }

            /// Runs it.
            #[inline]
            pub(crate) fn run(self, $($arg: $ty),*) $(-> $out)? {
                // SAFETY: it is a safe function, or one whose features the processor has: `new` has seen to it.
                unsafe { (self.0)($($arg),*) }
            }
        }
    };
}

kernel_type!(
    /// A kernel on 32 bits per lane.
    K32, (cx: &crate::exec::Cx, src: [&Lanes; 3], dst: &mut Lanes)
);
kernel_type!(
    /// A kernel on 64 bits per lane.
    K64, (cx: &crate::exec::Cx, src: [&Wide; 3], dst: &mut Wide)
);
kernel_type!(
    /// A kernel on 32 bits per lane with a flag, 0 or all ones, as second result.
    KFlag, (cx: &crate::exec::Cx, src: [&Lanes; 3], dst: &mut Lanes, flag: &mut Lanes)
);

/// `twice!(Type, (arguments) -> result, body)`: a kernel of `Type` that is compiled for each [`Level`].  With a second
/// body, that one is for [`Level::V3`].
macro_rules! twice {
    ($name:ident, ($($arg:pat_param => $ty:ty),*), $body:block) => {
        $crate::simd::twice!($name, ($($arg => $ty),*), $body, $body)
    };
    ($name:ident, ($($arg:pat_param => $ty:ty),*), $base:block, $wide:block) => {{
        fn base($($arg: $ty),*) $base

        #[cfg_attr(
            target_arch = "x86_64",
            target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")
        )]
        unsafe fn v3($($arg: $ty),*) $wide

        // SAFETY: nothing but its target features makes `v3` unsafe to call.
        unsafe { $crate::simd::$name::new(base, v3) }
    }};
}
pub(crate) use twice;

/// A loop over lanes that is compiled for each level and chosen per call.
macro_rules! by_level {
    ($(#[$doc:meta])* $vis:vis $name:ident, ($($arg:ident: $ty:ty),*) $(-> $out:ty)?, $body:block) => {
        $(#[$doc])*
        $vis fn $name($($arg: $ty),*) $(-> $out)? {
            fn plain($($arg: $ty),*) $(-> $out)? $body

            #[cfg_attr(
                target_arch = "x86_64",
                target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")
            )]
            unsafe fn wide($($arg: $ty),*) $(-> $out)? $body

            match level() {
                Level::Base => plain($($arg),*),
                // SAFETY: the processor has the features.
                Level::V3 => unsafe { wide($($arg),*) },
            }
        }
    };
}
pub(crate) use by_level;

by_level!(
    /// Replaces the lanes in `lanes`.
    pub(crate) blend, (lanes: u64, new: &Lanes, old: &mut Lanes), {
        for (half, (new, old)) in new.chunks_exact(32).zip(old.chunks_exact_mut(32)).enumerate() {
            let lanes = (lanes >> (32 * half)) as u32;
            for at in 0..32 {
                let keep = (lanes >> at & 1).wrapping_sub(1);
                old[at] = old[at] & keep | new[at] & !keep;
            }
        }
    }
);

by_level!(
    /// Keeps some bits and inverts some.
    pub(crate) change, (from: &Lanes, keep: u32, flip: u32, to: &mut Lanes), {
        for at in 0..64 {
            to[at] = from[at] & keep ^ flip;
        }
    }
);

by_level!(
    /// Whether all addresses are canonical: 48 bits, sign-extended.
    pub(crate) canonical, (address: &Wide) -> bool, {
        let bad = address.iter().fold(0, |bad, at| bad | at.wrapping_add(1 << 47) >> 48);
        bad == 0
    }
);

by_level!(
    /// The greatest value.
    pub(crate) greatest, (value: &Lanes) -> u32, {
        value.iter().fold(0, |most, value| most.max(*value))
    }
);

by_level!(
    /// Whether an address lies in one of two windows of 4 GiB.
    pub(crate) in_aperture, (address: &Wide, windows: [u64; 2]) -> bool, {
        let mut found = false;
        for at in address {
            let window = at & !0xFFFF_FFFF;
            found |= (window == windows[0]) | (window == windows[1]);
        }
        found
    }
);

by_level!(
    /// `low` and `high` as numbers of 64 bits, plus `base`.
    pub(crate) join, (low: &Lanes, high: &Lanes, base: u64, to: &mut Wide), {
        for at in 0..64 {
            to[at] = (u64::from(low[at]) | u64::from(high[at]) << 32).wrapping_add(base);
        }
    }
);

by_level!(
    /// `base` plus an unsigned offset per lane.
    pub(crate) offset, (low: &Lanes, base: u64, to: &mut Wide), {
        for at in 0..64 {
            to[at] = base.wrapping_add(u64::from(low[at]));
        }
    }
);

by_level!(
    /// Whether the lanes' values are `first`, `first + step` and so on.
    pub(crate) steps64, (value: &Wide, step: u64) -> bool, {
        let first = value[0];
        let mut off = 0;
        for (at, value) in value.iter().enumerate() {
            off |= value ^ first.wrapping_add(step.wrapping_mul(at as u64));
        }
        off == 0
    }
);

by_level!(
    /// As [`steps64`], on 32 bits.
    pub(crate) steps32, (value: &Lanes, step: u32) -> bool, {
        let first = value[0];
        let mut off = 0;
        for (at, value) in value.iter().enumerate() {
            off |= value ^ first.wrapping_add(step.wrapping_mul(at as u32));
        }
        off == 0
    }
);

/// The top bits of all lanes.
pub(crate) fn signs(flags: &Lanes) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if level() == Level::V3 {
        // SAFETY: the processor has the features.
        return unsafe { signs_v3(flags) };
    }
    flags
        .iter()
        .enumerate()
        .fold(0, |mask, (lane, flag)| mask | u64::from(flag >> 31) << lane)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn signs_v3(flags: &Lanes) -> u64 {
    use std::arch::x86_64::_mm256_loadu_ps;
    use std::arch::x86_64::_mm256_movemask_ps;
    flags
        .chunks_exact(8)
        .enumerate()
        .fold(0, |mask, (at, part)| {
            // SAFETY: `part` has eight elements of 32 bits, and the load needs no alignment.
            let signs = unsafe { _mm256_movemask_ps(_mm256_loadu_ps(part.as_ptr().cast())) };
            mask | (signs as u64 & 0xFF) << (8 * at)
        })
}

/// Bit `n` of `mask` as 0 or all ones in lane `n`.
#[inline(always)]
pub(crate) fn flag(mask: u64, lane: usize) -> u32 {
    ((mask >> lane) as u32 & 1).wrapping_neg()
}
