// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The expansion ROM, read as a driver reads it: PCI header, ATOM header, master table of data, tables.
//!
//! Numbers are those of `atom.h`, `atombios.h` and `atomfirmware.h` of Linux.
#![allow(clippy::unwrap_used)]

mod common;

use common::Bench;
use gpu_model::asic::{Asic, GFX906, GFX90A};
use gpu_model::board::Board;
use gpu_model::pci::{ConfigSpace, Rom, Subsystem, ROM_SIZE};

struct Image(Vec<u8>);

impl Image {
    fn of(asic: &Asic, board: &Board) -> Self {
        Self(Rom::new(asic, board).bytes().to_vec())
    }

    fn byte(&self, at: usize) -> usize {
        usize::from(self.0[at])
    }

    fn half(&self, at: usize) -> usize {
        self.byte(at) | (self.byte(at + 1) << 8)
    }

    fn dword(&self, at: usize) -> usize {
        self.half(at) | (self.half(at + 2) << 16)
    }

    /// A string that ends with a zero, and where the next one begins.
    fn text(&self, at: usize) -> (String, usize) {
        let end = at + self.0[at..].iter().position(|b| *b == 0).unwrap();
        let text = String::from_utf8(self.0[at..end].to_vec()).unwrap();
        (text, end + 1)
    }

    /// The ATOM header.
    fn header(&self) -> usize {
        self.half(0x48)
    }

    /// A table of data by its index in the master list: its place, size, format and content revision.
    fn table(&self, index: usize) -> (usize, usize, [usize; 2]) {
        let list = self.half(self.header() + 0x20);
        assert!(4 + 2 * index < self.half(list), "within the master table");
        let at = self.half(list + 4 + 2 * index);
        (at, self.half(at), [self.byte(at + 2), self.byte(at + 3)])
    }
}

#[test]
fn the_pci_image_is_what_a_machine_and_a_driver_accept() {
    for asic in [&GFX90A, &GFX906] {
        let image = Image::of(asic, &asic.board);
        assert_eq!(image.0.len(), ROM_SIZE);
        assert_eq!(image.half(0), 0xAA55);
        assert_eq!(image.byte(2) * 512, ROM_SIZE);
        // Who runs it comes back at once.
        assert_eq!(image.byte(3), 0xCB);
        let sum = image.0.iter().fold(0u8, |sum, b| sum.wrapping_add(*b));
        assert_eq!(sum, 0);
        let pcir = image.half(0x18);
        assert_eq!(&image.0[pcir..pcir + 4], b"PCIR");
        assert_eq!(image.half(pcir + 4), 0x1002);
        assert_eq!(image.half(pcir + 6), usize::from(asic.device_id));
        assert_eq!(image.half(pcir + 10), 0x18);
        assert_eq!(&image.0[pcir + 13..pcir + 16], [0x00, 0x80, 0x03]);
        assert_eq!(image.half(pcir + 16) * 512, ROM_SIZE);
        assert_eq!(image.byte(pcir + 21) & 0x80, 0x80, "the last image");
    }
}

#[test]
fn the_atom_header_leads_to_strings_and_tables() {
    let image = Image::of(&GFX90A, &GFX90A.board);
    assert_eq!(&image.0[0x30..0x3A], b" 761295520");
    let header = image.header();
    assert_eq!(&image.0[header + 4..header + 8], b"ATOM");
    assert_eq!([image.byte(header + 2), image.byte(header + 3)], [2, 2]);
    // Part number, ASIC, bus, memory, and the name behind CR and LF.
    assert_eq!(image.byte(0x2F), 4);
    let mut at = image.half(0x6E);
    assert!(
        at < header,
        "the version is searched from here to the header"
    );
    assert_eq!(image.text(at).0, "GPU-MODEL-GFX90A");
    for _ in 0..4 {
        at = image.text(at).1;
    }
    assert_eq!(image.text(at + 2).0, "gpu-model gfx90a");
    let version = image.text(image.text(at).1).0;
    assert!(version.starts_with("ATOMBIOSBK-AMD VER"), "{version}");
    // Configuration, change list, build; all before the header.
    let (configuration, changes) = image.text(image.half(header + 0x0C));
    let build = image.text(changes).1;
    assert_eq!(configuration, "model");
    assert!(image.text(build).1 <= header);
    // No function: the device is posted.
    let functions = image.half(header + 0x1E);
    let entries = &image.0[functions + 4..functions + image.half(functions)];
    assert_eq!(entries.len(), 2 * 81);
    assert!(entries.iter().all(|b| *b == 0));
    // No indirect access either: its first byte would be 1.
    let (indirect, size, _) = image.table(23);
    assert!(size > 4 && image.byte(indirect + 4) == 0);
    // What the list does not have is not there.
    assert_eq!(image.table(28).0, 0);
}

#[test]
fn the_tables_tell_of_board_and_asic() {
    for (asic, engines, units, waves) in [(&GFX90A, 8, 14, 8), (&GFX906, 4, 16, 10)] {
        let board = Board {
            engine_clock: 1234,
            memory_clock: 567,
            ..asic.board
        };
        let image = Image::of(asic, &board);
        let (firmware, size, revision) = image.table(4);
        // struct atom_firmware_info_v3_1.
        assert_eq!((size, revision), (72, [3, 1]));
        assert_eq!(image.dword(firmware + 8), 123_400, "10 kHz");
        assert_eq!(image.dword(firmware + 12), 56_700);
        assert_eq!(image.dword(firmware + 16), 0, "no capability");
        assert_eq!(image.dword(firmware + 24), 0x4C, "scratch registers");
        // struct atom_smu_info_v3_1: the clock counter's 100 MHz.
        let (smu, size, revision) = image.table(8);
        assert_eq!((size, revision), (28, [3, 1]));
        assert_eq!(image.dword(smu + 16), 10_000);
        // struct atom_gfx_info_v2_4.
        let (gfx, size, revision) = image.table(14);
        assert_eq!((size, revision), (72, [2, 4]));
        assert_eq!(image.byte(gfx + 6), engines);
        assert_eq!(image.byte(gfx + 8), units);
        assert_eq!(image.byte(gfx + 9), 1, "shader arrays of an engine");
        assert_eq!(image.half(gfx + 48), 256, "vector registers");
        assert_eq!(image.half(gfx + 54), 64, "lanes");
        assert_eq!(image.half(gfx + 56), waves);
        assert_eq!(image.half(gfx + 58), 64, "KiB of LDS");
        assert_eq!(image.byte(gfx + 63), 32, "slots for private memory");
    }
}

#[test]
fn the_rom_has_a_bar_and_ends_where_it_ends() {
    let mut config = ConfigSpace::new(&GFX90A, 64 << 20, Subsystem::default());
    let read = |config: &ConfigSpace, at| {
        let mut data = [0; 4];
        config.read(at, &mut data);
        u32::from_le_bytes(data)
    };
    assert_eq!(read(&config, 0x30), 0);
    // PCI sizes it with all address bits, without the enable bit.
    config.write(0x30, &0xFFFF_F800u32.to_le_bytes());
    assert_eq!(read(&config, 0x30), !(ROM_SIZE as u32 - 1));
    config.write(0x30, &0xFE00_0001u32.to_le_bytes());
    assert_eq!(read(&config, 0x30), 0xFE00_0001);
    // The vendor-specific capability at the beginning of the extended ones, of 16 bytes, nothing behind it.
    assert_eq!(read(&config, 0x100), 0x0001_000B);
    assert_eq!(read(&config, 0x104) >> 20, 16);

    let rom = Rom::new(&GFX90A, &GFX90A.board);
    let mut data = [0; 4];
    rom.read(ROM_SIZE as u64 - 2, &mut data);
    assert_eq!(data, [0, 0, 0xFF, 0xFF]);
    rom.read(u64::MAX, &mut data);
    assert_eq!(data, [0xFF; 4]);
}

#[test]
fn a_board_is_posted_and_has_no_secure_processor_running() {
    for asic in [&GFX90A, &GFX906] {
        let mut b = Bench::new(asic);
        // BIOS_SCRATCH_7: ATOM_S7_ASIC_INIT_COMPLETE.
        assert_eq!(b.rd(0x53 * 4) & 0x200, 0x200);
        // MP0_SMN_C2PMSG_81: sign of life of the secure operating system, which a driver loads.
        assert_eq!(b.rd(0x58244), 0);
        // RCC_IOV_FUNC_IDENTIFIER: a physical function without virtual ones.
        assert_eq!(b.rd(0x3794), 0);
        b.no_errors();
    }
}

#[test]
fn errors_of_memory_are_fatal_and_the_fabric_says_the_same() {
    let mut b = Bench::new(&GFX90A);
    for channel in 0..4 {
        // UMCCHn_0_EccCtrl.UCFatalEn.
        assert_eq!(b.rd((0x14053 + channel * 0x400) * 4) & 0x100, 0x100);
    }
    b.no_errors();
}
