// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Compute units and what waves take of them: wave slots, registers, LDS.
//!
//! Sizes: AMDGPU usage of LLVM (occupancy), `gfx_v9_0.c` (`max_waves_per_simd`).

use gfx9_isa::inst::Asic as Isa;

/// SIMDs of a compute unit.
const SIMDS: usize = 4;
/// Bytes of LDS of a compute unit.
pub const LDS: u32 = 1 << 16;
/// Scalar registers of a SIMD.
const SGPRS: u32 = 800;
/// Engines that a mask has room for.
pub const ENGINES: usize = 8;

/// Units that a dispatch may use: per engine, a bit for each unit on the die.
pub type UnitMask = [u16; ENGINES];

/// What an ASIC has per SIMD.
#[derive(Debug, Clone, Copy)]
struct Limits {
    waves: u32,
    vgprs: u32,
}

fn limits(isa: Isa) -> Limits {
    match isa {
        Isa::Gfx906 => Limits {
            waves: 10,
            vgprs: 256,
        },
        Isa::Gfx90a | Isa::Gfx942 => Limits {
            waves: 8,
            vgprs: 512,
        },
    }
}

/// What a workgroup needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Waves.
    pub waves: u32,
    /// Vector registers of a lane of each wave.
    pub vgprs: u32,
    /// Scalar registers of each wave.
    pub sgprs: u32,
    /// Bytes of LDS of the group.
    pub lds: u32,
}

/// Where a wave is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seat {
    /// Shader engine.
    pub engine: u8,
    /// Compute unit of the engine, as on the die.
    pub unit: u8,
    /// SIMD of the unit.
    pub simd: u8,
    /// Wave slot of the SIMD.
    pub slot: u8,
}

/// What a workgroup has taken.
#[derive(Debug)]
pub struct Place {
    /// Number of the unit in [`Units`].
    at: usize,
    demand: Demand,
    /// A seat for each wave.
    pub seats: Vec<Seat>,
}

#[derive(Debug, Clone, Copy)]
struct Simd {
    /// Wave slots in use, a bit each.
    taken: u32,
    vgprs: u32,
    sgprs: u32,
}

#[derive(Debug)]
struct Unit {
    engine: u8,
    number: u8,
    lds: u32,
    simds: [Simd; SIMDS],
}

/// The compute units of a device.
#[derive(Debug)]
pub struct Units {
    limits: Limits,
    units: Vec<Unit>,
    /// Where the next group is tried first.
    next: usize,
}

impl Units {
    /// The units whose bits are set.
    pub fn new(isa: Isa, mask: &UnitMask) -> Self {
        let limits = limits(isa);
        let simd = Simd {
            taken: 0,
            vgprs: limits.vgprs,
            sgprs: SGPRS,
        };
        // Neighbours in the order of use lie on different engines, as the dispatcher of the hardware deals groups out.
        let units = (0..16u8)
            .flat_map(|number| (0..ENGINES as u8).map(move |engine| (engine, number)))
            .filter(|&(engine, number)| mask[usize::from(engine)] >> number & 1 != 0)
            .map(|(engine, number)| Unit {
                engine,
                number,
                lds: LDS,
                simds: [simd; SIMDS],
            })
            .collect();
        Self {
            limits,
            units,
            next: 0,
        }
    }

    /// Whether a unit on which nothing runs has room for a group.
    pub fn can_hold(&self, demand: &Demand) -> bool {
        let by_vgprs = self.limits.vgprs / demand.vgprs.max(1);
        let by_sgprs = SGPRS / demand.sgprs.max(1);
        let each = self.limits.waves.min(by_vgprs).min(by_sgprs);
        demand.lds <= LDS && demand.waves <= each * SIMDS as u32
    }

    /// Finds room for a group on the units of `mask`.
    pub fn take(&mut self, demand: &Demand, mask: &UnitMask) -> Option<Place> {
        let count = self.units.len();
        let (at, seats) = (0..count).find_map(|step| {
            let at = (self.next + step) % count;
            let unit = self.units.get_mut(at)?;
            let allowed = mask[usize::from(unit.engine)] >> unit.number & 1 != 0;
            let seats = unit.seat(&self.limits, demand, allowed)?;
            Some((at, seats))
        })?;
        self.next = (at + 1) % count;
        Some(Place {
            at,
            demand: *demand,
            seats,
        })
    }

    /// Gives back what a group had.
    pub fn release(&mut self, place: &Place) {
        let Some(unit) = self.units.get_mut(place.at) else {
            return;
        };
        unit.lds += place.demand.lds;
        for seat in &place.seats {
            let simd = &mut unit.simds[usize::from(seat.simd) % SIMDS];
            simd.taken &= !(1 << seat.slot);
            simd.vgprs += place.demand.vgprs;
            simd.sgprs += place.demand.sgprs;
        }
    }

    /// Wave slots in use.
    pub fn waves(&self) -> u32 {
        let simds = self.units.iter().flat_map(|unit| &unit.simds);
        simds.map(|simd| simd.taken.count_ones()).sum()
    }
}

impl Unit {
    /// Seats the waves of a group, on the SIMDs in turn; takes nothing if not all have room.
    fn seat(&mut self, limits: &Limits, demand: &Demand, allowed: bool) -> Option<Vec<Seat>> {
        if !allowed || self.lds < demand.lds {
            return None;
        }
        let mut simds = self.simds;
        let mut seats = Vec::with_capacity(demand.waves as usize);
        for _ in 0..demand.waves {
            // The emptiest one.
            let (number, simd) = simds
                .iter_mut()
                .enumerate()
                .filter(|(_, simd)| {
                    simd.taken.count_ones() < limits.waves
                        && simd.vgprs >= demand.vgprs
                        && simd.sgprs >= demand.sgprs
                })
                .min_by_key(|(_, simd)| simd.taken.count_ones())?;
            let slot = simd.taken.trailing_ones();
            simd.taken |= 1 << slot;
            simd.vgprs -= demand.vgprs;
            simd.sgprs -= demand.sgprs;
            seats.push(Seat {
                engine: self.engine,
                unit: self.number,
                simd: number as u8,
                slot: slot as u8,
            });
        }
        self.simds = simds;
        self.lds -= demand.lds;
        Some(seats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ONE: UnitMask = [1, 0, 0, 0, 0, 0, 0, 0];

    fn demand(waves: u32, vgprs: u32, sgprs: u32, lds: u32) -> Demand {
        Demand {
            waves,
            vgprs,
            sgprs,
            lds,
        }
    }

    /// How many such groups one unit holds.
    fn occupancy(isa: Isa, demand: Demand) -> usize {
        let mut units = Units::new(isa, &ONE);
        std::iter::from_fn(|| units.take(&demand, &ONE)).count()
    }

    #[test]
    fn each_resource_limits_the_groups_of_a_unit() {
        for (isa, slots) in [(Isa::Gfx906, 40), (Isa::Gfx90a, 32)] {
            assert_eq!(occupancy(isa, demand(1, 8, 16, 0)), slots);
            assert_eq!(occupancy(isa, demand(16, 8, 16, 0)), slots / 16);
            assert_eq!(occupancy(isa, demand(1, 8, 16, 0x8000)), 2);
            assert_eq!(occupancy(isa, demand(1, 8, 112, 0)), 7 * 4);
        }
        assert_eq!(occupancy(Isa::Gfx906, demand(1, 256, 16, 0)), 4);
        assert_eq!(occupancy(Isa::Gfx90a, demand(1, 256, 16, 0)), 8);
        assert_eq!(occupancy(Isa::Gfx90a, demand(1, 512, 16, 0)), 4);
        let units = Units::new(Isa::Gfx90a, &ONE);
        assert!(units.can_hold(&demand(16, 128, 112, LDS)));
        assert!(!units.can_hold(&demand(16, 256, 16, 0)));
        assert!(!units.can_hold(&demand(1, 8, 16, LDS + 512)));
    }

    #[test]
    fn masks_keep_groups_off_units() {
        let all = [3; ENGINES];
        let mut units = Units::new(Isa::Gfx90a, &all);
        let mut mask = [0; ENGINES];
        assert!(units.take(&demand(1, 8, 16, 0), &mask).is_none());
        mask[5] = 2;
        for _ in 0..32 {
            let place = units.take(&demand(1, 8, 16, 0), &mask);
            let seat = place.and_then(|place| place.seats.first().copied());
            assert_eq!(seat.map(|s| (s.engine, s.unit)), Some((5, 1)));
        }
        assert!(units.take(&demand(1, 8, 16, 0), &mask).is_none());
        assert_eq!(units.waves(), 32);
    }

    proptest! {
        /// Whatever comes and goes: no wave slot is given twice, and at the end all is free again.
        #[test]
        fn what_is_taken_is_given_back(
            steps in proptest::collection::vec((1u32..17, 1u32..65, 1u32..8, 0u32..65, any::<bool>()), 1..80)
        ) {
            let mask = [7, 1, 0, 0, 0, 0, 0, 0];
            let mut units = Units::new(Isa::Gfx90a, &mask);
            let mut held: Vec<Place> = Vec::new();
            for (waves, vgprs, sgprs, lds, give) in steps {
                if give && !held.is_empty() {
                    units.release(&held.swap_remove(0));
                }
                if let Some(place) = units.take(&demand(waves, vgprs * 8, sgprs * 16, lds * 1024), &mask) {
                    held.push(place);
                }
                let mut seats: Vec<_> = held.iter().flat_map(|p| &p.seats).map(|s| (s.engine, s.unit, s.simd, s.slot)).collect();
                let count = seats.len();
                seats.sort_unstable();
                seats.dedup();
                prop_assert_eq!(seats.len(), count);
                prop_assert_eq!(units.waves() as usize, count);
            }
            for place in &held {
                units.release(place);
            }
            for unit in &units.units {
                prop_assert_eq!(unit.lds, LDS);
                prop_assert!(unit.simds.iter().all(|s| (s.taken, s.vgprs, s.sgprs) == (0, 512, SGPRS)));
            }
        }
    }
}
