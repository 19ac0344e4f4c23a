// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What a driver reads to learn what the device is: compute units and firmware.

mod common;

use std::collections::HashSet;

use common::Bench;
use gpu_model::asic::{Asic, GFX906, GFX90A};
use gpu_model::board::Board;

/// GRBM_GFX_INDEX, CC_GC_SHADER_ARRAY_CONFIG, GC_USER_SHADER_ARRAY_CONFIG.
const INDEX: u64 = 0x30800;
const FUSES: u64 = 0x89bc;
const USER: u64 = 0x89c0;
/// CP_MEC_ME1_UCODE_ADDR.
const MEC: u64 = 0x3e068;
const ALL: u32 = 0xe000_0000;

/// ASIC, engines, units of an engine, active units by default.
const PARTS: [(&Asic, u32, u32, u32); 2] = [(&GFX90A, 8, 14, 104), (&GFX906, 4, 16, 60)];

fn select(b: &mut Bench, engine: u32, array: u32) {
    b.wr(INDEX, (engine << 16) | (array << 8) | (1 << 30));
}

/// The active units of each engine, a bit each, as a driver computes them.
fn active(b: &mut Bench, engines: u32, physical: u32) -> Vec<u32> {
    let masks = (0..engines)
        .map(|engine| {
            select(b, engine, 0);
            let inactive = b.rd(FUSES) | b.rd(USER);
            assert_eq!(b.rd(FUSES) & 0xffff, 0);
            !(inactive >> 16) & ((1 << physical) - 1)
        })
        .collect();
    b.wr(INDEX, ALL);
    masks
}

fn count(masks: &[u32]) -> u32 {
    masks.iter().map(|m| m.count_ones()).sum()
}

#[test]
fn the_usual_boards_have_one_unit_fused_in_each_engine() {
    for (asic, engines, physical, units) in PARTS {
        let mut b = Bench::new(asic);
        let masks = active(&mut b, engines, physical);
        assert_eq!(count(&masks), units);
        assert!(masks.iter().all(|m| m.count_ones() == physical - 1));
        let different: HashSet<u32> = masks.iter().copied().collect();
        assert_eq!(different.len(), masks.len(), "{masks:x?}");
        // Units that the die does not have are not active either.
        select(&mut b, 1, 0);
        assert_eq!(b.rd(FUSES), (0xffff & !masks[1]) << 16);
        b.no_errors();
    }
}

#[test]
fn every_number_of_units_is_shared_out_equally() {
    for (asic, engines, physical, _) in PARTS {
        let total = engines * physical;
        for units in 1..=total {
            let board = Board {
                compute_units: units,
                ..asic.board
            };
            let mut b = Bench::on_board(asic, board);
            let masks = active(&mut b, engines, physical);
            assert_eq!(count(&masks), units);
            let shares: Vec<u32> = masks.iter().map(|m| m.count_ones()).collect();
            assert!(shares.is_sorted_by(|a, b| a >= b), "{shares:?}");
            assert!(shares[0] - shares[shares.len() - 1] <= 1, "{shares:?}");
            // Engines that have lost equally many have not lost the same.
            let lost: Vec<u32> = masks.into_iter().filter(|m| *m != 0).collect();
            let different: HashSet<u32> = lost.iter().copied().collect();
            if units < total && shares[shares.len() - 1] != 0 && shares[0] < physical {
                assert_eq!(different.len(), lost.len(), "{units}: {lost:x?}");
            }
            b.no_errors();
        }
    }
}

#[test]
fn boards_that_cannot_be_are_refused() {
    for (asic, engines, physical, _) in PARTS {
        let usual = asic.board;
        let sdma_versions = if asic.name == "gfx906" {
            1 << 13
        } else {
            1 << 14
        };
        for (bad, good) in [
            (
                Board {
                    compute_units: 0,
                    ..usual
                },
                Board {
                    compute_units: 1,
                    ..usual
                },
            ),
            (
                Board {
                    compute_units: engines * physical + 1,
                    ..usual
                },
                Board {
                    compute_units: engines * physical,
                    ..usual
                },
            ),
            (
                Board {
                    mec_firmware: 1 << 17,
                    ..usual
                },
                Board {
                    mec_firmware: 0,
                    ..usual
                },
            ),
            (
                Board {
                    sdma_firmware: sdma_versions,
                    ..usual
                },
                Board {
                    sdma_firmware: sdma_versions - 1,
                    ..usual
                },
            ),
        ] {
            assert!(bad.check(asic).is_err(), "{bad:?}");
            assert_eq!(good.check(asic), Ok(()));
        }
    }
}

#[test]
fn broadcasts_reach_all_engines_and_read_the_first() {
    for (asic, engines, _, _) in PARTS {
        let mut b = Bench::new(asic);
        assert_eq!(b.rd(INDEX), ALL, "as a reset leaves it");
        assert_eq!(b.rd(USER), 0);
        let first = b.rd(FUSES);
        b.wr(USER, 0x0003_ffff);
        for engine in 0..engines {
            select(&mut b, engine, 0);
            assert_eq!(b.rd(USER), 0x0003_0000, "only INACTIVE_CUS is there");
        }
        select(&mut b, 0, 0);
        assert_eq!(b.rd(FUSES), first);
        // One engine, all its arrays.
        b.wr(INDEX, (2 << 16) | (1 << 29));
        b.wr(USER, 0x8000_0000);
        b.wr(INDEX, ALL);
        assert_eq!(b.rd(USER), 0x0003_0000);
        select(&mut b, 2, 0);
        assert_eq!(b.rd(USER), 0x8000_0000);
        b.no_errors();
        // The fuses stay; what the driver gave up comes back with a reset.
        let fuses = b.rd(FUSES);
        b.gpu.device_reset();
        select(&mut b, 2, 0);
        assert_eq!((b.rd(FUSES), b.rd(USER)), (fuses, 0));
    }
}

#[test]
fn arrays_that_do_not_exist_have_no_units() {
    for (asic, engines, _, _) in PARTS {
        for (engine, array) in [(engines, 0), (0, 1), (0xff, 0xff)] {
            let mut b = Bench::quiet(asic);
            select(&mut b, engine, array);
            assert_eq!(b.rd(FUSES), 0xffff_0000);
            assert_eq!(b.rd(USER), 0xffff_0000);
            b.wr(USER, 0);
            let errors = b.errors();
            assert_eq!(errors.len(), 3, "{errors:?}");
            assert!(errors.iter().all(|e| e.contains("names no shader array")));
        }
    }
}

#[test]
fn fuses_are_not_written() {
    let mut b = Bench::quiet(&GFX90A);
    let fuses = b.rd(FUSES);
    b.wr(FUSES, 0);
    assert_eq!(b.rd(FUSES), fuses);
    let errors = b.errors();
    assert_eq!(errors.len(), 1);
    assert!(
        errors[0].contains("CC_GC_SHADER_ARRAY_CONFIG"),
        "{errors:?}"
    );
}

fn versions(b: &mut Bench) -> (u32, Vec<u32>) {
    let bases = b.sdma_bases.clone();
    let sdma = bases.into_iter().map(|at| b.rd(at)).collect();
    (b.rd(MEC), sdma)
}

#[test]
fn firmware_versions_outlive_resets() {
    for (asic, mec, sdma) in [(&GFX90A, 70, vec![8; 5]), (&GFX906, 472, vec![145; 2])] {
        let mut b = Bench::new(asic);
        let boot = (mec, sdma);
        assert_eq!(versions(&mut b), boot);
        b.bring_up();
        assert_eq!(versions(&mut b), boot);
        // GRBM_SOFT_RESET of CP, GFX and CPC.
        b.wr(0x8020, 1 | (1 << 16) | (1 << 18));
        b.wr(0x8020, 0);
        assert_eq!(versions(&mut b), boot);
        // A driver that loads its own leaves its version, as far as the field goes.
        b.wr(MEC, 0xffff_ffff);
        let at = b.sdma_bases[1];
        b.wr(at, 0xffff_ffff);
        let bits = if asic.name == "gfx906" { 13 } else { 14 };
        assert_eq!(b.rd(MEC), 0x1_ffff);
        assert_eq!(b.rd(at), (1 << bits) - 1);
        // Mode 1 through the PSP.
        b.wr(0x58200, 0x0007_0000);
        b.run_for(50_000_000);
        assert_eq!(versions(&mut b), boot);
        b.no_errors();
    }
}

#[test]
fn firmware_versions_are_the_boards() {
    let board = Board {
        mec_firmware: 0x1_2345,
        sdma_firmware: 0,
        ..GFX90A.board
    };
    let mut b = Bench::on_board(&GFX90A, board);
    assert_eq!(versions(&mut b), (0x1_2345, vec![0; 5]));
    b.no_errors();
}
