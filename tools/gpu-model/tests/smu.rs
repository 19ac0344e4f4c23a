// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The mailbox of the power controller.

mod common;

use common::fixture::inject;
use common::Bench;
use gpu_model::asic::{Asic, GFX906, GFX90A};
use gpu_model::board::Board;
use gpu_model::inject::{Injection, Kind};

const OK: u32 = 1;
const FAILED: u32 = 0xff;
const UNKNOWN: u32 = 0xfe;

/// Sends a message as a driver does: clears C2PMSG_90, argument to 82, message to 66. Response and result.
fn send(b: &mut Bench, message: u32, argument: u32) -> (u32, u32) {
    b.wr(0x58a68, 0);
    b.wr(0x58a48, argument);
    b.wr(0x58a08, message);
    (b.rd(0x58a68), b.rd(0x58a48))
}

/// ASIC, GetMaxDpmFreq, UCLK, number of clocks.
const PARTS: [(&Asic, u32, u32, u32); 2] = [(&GFX90A, 0x1d, 4, 7), (&GFX906, 0x2b, 5, 11)];

#[test]
fn it_answers_test_and_version() {
    for (asic, program) in [(&GFX90A, 0x44), (&GFX906, 0x28)] {
        let mut b = Bench::new(asic);
        assert_eq!(b.rd(0x58a68), 1, "ready after the boot");
        assert_eq!(send(&mut b, 1, 41), (OK, 42));
        assert_eq!(send(&mut b, 1, 0xffff_ffff), (OK, 0));
        let (response, version) = send(&mut b, 2, 0);
        assert_eq!((response, version >> 16), (OK, program));
        assert_eq!(b.rd(0x58a08), 2);
        b.no_errors();
    }
}

#[test]
fn it_tells_the_highest_clocks() {
    for (asic, message, uclk, clocks) in PARTS {
        let (engine, memory) = if uclk == 4 {
            (1700, 1600)
        } else {
            (1725, 1000)
        };
        let mut b = Bench::new(asic);
        // All that exist, and some that do not.
        for clock in 0..clocks + 2 {
            let got = send(&mut b, message, clock << 16);
            let want = match clock {
                0 => (OK, engine),
                c if c == uclk => (OK, memory),
                c => (FAILED, c << 16),
            };
            assert_eq!(got, want, "clock {clock}");
        }
        assert_eq!(send(&mut b, message, 1), (FAILED, 1));
        assert_eq!(send(&mut b, message, 0xffff_0000), (FAILED, 0xffff_0000));
        b.no_errors();
    }
}

#[test]
fn clocks_are_the_boards_and_zero_is_not_told() {
    for (asic, message, uclk, _) in PARTS {
        let board = |engine_clock, memory_clock| Board {
            engine_clock,
            memory_clock,
            ..asic.board
        };
        let mut b = Bench::on_board(asic, board(1234, 0));
        assert_eq!(send(&mut b, message, 0), (OK, 1234));
        assert_eq!(send(&mut b, message, uclk << 16), (FAILED, uclk << 16));
        let mut b = Bench::on_board(asic, board(0, 567));
        assert_eq!(send(&mut b, message, 0), (FAILED, 0));
        assert_eq!(send(&mut b, message, uclk << 16), (OK, 567));
    }
}

#[test]
fn other_messages_are_unknown() {
    for (asic, message, _, _) in PARTS {
        let mut b = Bench::new(asic);
        for other in [
            0,
            3,
            4,
            0x1c,
            0x1d,
            0x1e,
            0x2a,
            0x2b,
            0x2c,
            0x42,
            0xffff_ffff,
        ] {
            // Of gfx90a, 3 resets the device.
            if other != message && !(other == 3 && asic.name == "gfx90a") {
                assert_eq!(send(&mut b, other, 7), (UNKNOWN, 7), "{other:#x}");
            }
        }
        b.no_errors();
    }
}

#[test]
fn only_mode_1_resets() {
    let mut b = Bench::new(&GFX90A);
    b.wr(0x30100, 0x1234);
    for mode in [0, 2, 5] {
        assert_eq!(send(&mut b, 3, mode), (FAILED, mode));
    }
    assert_eq!(b.rd(0x30100), 0x1234);
    // The upper half tells about fatal errors.
    assert_eq!(send(&mut b, 3, 0x0001_0001), (0xffff_ffff, 0xffff_ffff));
    b.run_for(50_000_000);
    assert_eq!((b.rd(0x30100), b.rd(0x58a68)), (0, 1));
    b.no_errors();
}

#[test]
fn a_deaf_controller_answers_nothing_and_resets_nothing() {
    let mut b = Bench::new(&GFX90A);
    b.wr(0x30100, 0x1234);
    inject(&mut b, Kind::DeafSmu, None, None);
    for (message, argument) in [(1, 5), (2, 0), (0x1d, 0), (3, 1), (0x77, 0)] {
        assert_eq!(send(&mut b, message, argument), (0, argument));
        b.run_for(1_000_000);
        assert_eq!(b.rd(0x58a68), 0);
    }
    assert_eq!(b.rd(0x30100), 0x1234);
    // Who does not clear the response takes the last one for its own.
    b.wr(0x58a68, 1);
    b.wr(0x58a08, 1);
    assert_eq!(b.rd(0x58a68), 1);
    // The PSP still resets; that does not mend it.
    b.wr(0x58200, 0x0007_0000);
    b.run_for(50_000_000);
    assert_eq!(b.rd(0x30100), 0);
    assert_eq!(send(&mut b, 1, 5), (0, 5));
    b.gpu.device_reset();
    assert_eq!(send(&mut b, 1, 5), (0, 5));
    b.gpu.soc.inject.clear();
    assert_eq!(send(&mut b, 1, 5), (OK, 6));
    b.no_errors();
}

#[test]
fn it_can_miss_some_messages_only() {
    let mut b = Bench::new(&GFX906);
    b.gpu.soc.inject.add(Injection {
        kind: Kind::DeafSmu,
        doorbell: None,
        count: Some(2),
        ms: None,
    });
    assert_eq!(send(&mut b, 1, 5), (0, 5));
    assert_eq!(send(&mut b, 2, 0), (0, 0));
    assert_eq!(send(&mut b, 1, 5), (OK, 6));
    assert_eq!(b.gpu.soc.inject.list(), []);
    b.no_errors();
}
