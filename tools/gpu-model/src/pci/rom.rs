// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The expansion ROM: an image with the tables that a driver of these GPUs reads, made from the descriptor.
//!
//! Boards of this family carry their identity in an ATOM image: a PCI image header, behind it a ROM header with two
//! master tables, one of functions (byte code) and one of data.  The layout is that of `atombios.h` and
//! `atomfirmware.h` of Linux, the places of the strings of `enum atombios_image_offset` there.  The device is posted
//! when the guest starts, so there is nothing for functions to do, and none is there; the entry point for the
//! firmware of the machine returns at once.

use crate::asic::Asic;
use crate::board::Board;
use crate::clock::NS_PER_TICK;
use crate::regs::nbio::BIOS_SCRATCH_0;

/// Bytes of the ROM, and of its BAR.
pub const SIZE: usize = 4096;

/// Unit of the image size in the headers.
const BLOCK: usize = 512;
/// Where the PCI data structure begins.
const PCIR: usize = 0x100;
/// Where the strings begin that the ROM header refers to.
const STRINGS: usize = 0x140;
/// Where the ATOM ROM header begins.
const HEADER: usize = 0x200;
/// Master table of functions, with as many entries as `atom_master_list_of_command_functions_v2_1`.
const FUNCTIONS: usize = 0x240;
const FUNCTION_COUNT: usize = 81;
/// Master table of data, with as many entries as `atom_master_list_of_data_tables_v2_1`.
const DATA: usize = 0x300;
const DATA_COUNT: usize = 35;
/// Where the tables themselves begin.
const TABLES: usize = 0x380;

/// Entries of the master table of data.
mod entry {
    pub(super) const FIRMWARE_INFO: usize = 4;
    pub(super) const SMU_INFO: usize = 8;
    pub(super) const GFX_INFO: usize = 14;
    pub(super) const INDIRECT_IO: usize = 23;
}

/// What is written one after the other, little endian.
#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    fn bytes(mut self, values: &[u8]) -> Self {
        self.0.extend_from_slice(values);
        self
    }

    fn halves(mut self, values: &[u16]) -> Self {
        self.0.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        self
    }

    fn dwords(mut self, values: &[u32]) -> Self {
        self.0.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        self
    }

    /// With the common header of all tables in front: size, format and content revision.
    fn table(self, format: u8, content: u8) -> Vec<u8> {
        let size = u16::try_from(self.0.len() + 4).unwrap_or(u16::MAX);
        let mut table = size.to_le_bytes().to_vec();
        table.extend([format, content]);
        table.extend(self.0);
        table
    }
}

/// The image of an ASIC on a board.
pub struct Image(Vec<u8>);

impl Image {
    /// Makes the image.
    pub fn new(asic: &Asic, board: &Board) -> Self {
        let mut image = Self(vec![0; SIZE]);
        image.pci_header(asic);
        image.strings(asic);
        image.rom_header();
        image.tables(asic, board);
        let sum = image.0.iter().fold(0u8, |sum, b| sum.wrapping_add(*b));
        image.put(0x21, &[sum.wrapping_neg()]);
        image
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Reads bytes; beyond the end everything is ones.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        for (i, d) in data.iter_mut().enumerate() {
            let at = usize::try_from(offset).ok().and_then(|o| o.checked_add(i));
            *d = at.and_then(|a| self.0.get(a)).copied().unwrap_or(0xFF);
        }
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.0.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    fn put16(&mut self, at: usize, value: usize) {
        self.put(at, &u16::try_from(value).unwrap_or(u16::MAX).to_le_bytes());
    }

    /// The header of a PC-AT image (PCI Firmware Specification): its initialisation is a far return.
    fn pci_header(&mut self, asic: &Asic) {
        self.put(0x00, &[0x55, 0xAA, (SIZE / BLOCK) as u8, 0xCB]);
        self.put16(0x18, PCIR);
        self.put(0x30, b" 761295520");
        self.put16(0x48, HEADER);
        let data = Words::default()
            .bytes(b"PCIR")
            .halves(&[0x1002, asic.device_id, 0, 0x18])
            // Revision of the structure, class 0x038000.
            .bytes(&[0, 0x00, 0x80, 0x03])
            .halves(&[(SIZE / BLOCK) as u16, 0])
            // PC-AT code, the last image.
            .bytes(&[0x00, 0x80])
            .halves(&[0]);
        self.put(PCIR, &data.0);
    }

    fn strings(&mut self, asic: &Asic) {
        // Part number, ASIC, bus, memory; then the name of the image.
        let name = asic.name.to_ascii_uppercase();
        let strings = format!(
            "GPU-MODEL-{name}\0{name}\0PCI_EXPRESS\0HBM\0\r\ngpu-model {}\0",
            asic.name
        );
        self.put(0x2F, &[4]);
        self.put16(0x6E, STRINGS);
        self.put(STRINGS, strings.as_bytes());
        self.put(0x50, b"01/01/26 00:00\0");
        let after = STRINGS + strings.len();
        let version = b"ATOMBIOSBK-AMD VER000.000.000.000.000000\0";
        self.put(after, version);
        // Configuration file, change list, build.
        let configuration = after + version.len();
        self.put16(HEADER + 0x0C, configuration);
        self.put(configuration, b"model\0none\x000\0");
    }

    fn rom_header(&mut self) {
        self.put(HEADER, &[0x28, 0, 2, 2]);
        self.put(HEADER + 4, b"ATOM");
        self.put16(HEADER + 0x1E, FUNCTIONS);
        self.put16(HEADER + 0x20, DATA);
    }

    fn tables(&mut self, asic: &Asic, board: &Board) {
        let none = Words::default().halves(&[0; FUNCTION_COUNT]);
        self.put(FUNCTIONS, &none.table(2, 1));
        let mut list = [0u16; DATA_COUNT];
        let mut at = TABLES;
        for (index, table) in [
            (entry::FIRMWARE_INFO, firmware_info(board)),
            (entry::SMU_INFO, smu_info()),
            (entry::GFX_INFO, gfx_info(asic)),
            (
                entry::INDIRECT_IO,
                Words::default().dwords(&[0]).table(1, 1),
            ),
        ] {
            self.put(at, &table);
            if let Some(offset) = list.get_mut(index) {
                *offset = u16::try_from(at).unwrap_or(0);
            }
            at += table.len().next_multiple_of(4);
        }
        self.put(DATA, &Words::default().halves(&list).table(2, 1));
    }
}

/// `atom_firmware_info_v3_1`: clocks at start in 10 kHz, capabilities, the first scratch register.
fn firmware_info(board: &Board) -> Vec<u8> {
    Words::default()
        .dwords(&[
            0x0001_0000,
            board.engine_clock * 100,
            board.memory_clock * 100,
            // No capability: neither virtualisation nor ECC of memory or SRAM.
            0,
            0,
            BIOS_SCRATCH_0,
        ])
        .halves(&[0; 4])
        .bytes(&[0; 4])
        .dwords(&[0; 8])
        .table(3, 1)
}

/// `atom_smu_info_v3_1`: the reference clock, by which the clock counter counts, in 10 kHz.
fn smu_info() -> Vec<u8> {
    let reference = (1_000_000_000 / NS_PER_TICK / 10_000) as u32;
    Words::default()
        .bytes(&[0; 4])
        .halves(&[0; 4])
        .dwords(&[reference])
        // GPIO pins: none.
        .bytes(&[0xFF, 0, 0xFF, 0, 0xFF, 0, 0xFF, 0])
        .table(3, 1)
}

/// `atom_gfx_info_v2_4`: what the shader engines have.
fn gfx_info(asic: &Asic) -> Vec<u8> {
    /// Vector registers of a lane, lanes of a wave, KiB of LDS, and slots for private memory, of a unit.
    const REGISTERS: u16 = 256;
    const LANES: u16 = 64;
    const LDS: u16 = 64;
    const SCRATCH_SLOTS: u8 = 32;
    /// Render back-ends of an engine and channels of the texture cache.
    const BACKENDS: u8 = 4;
    const CHANNELS: u8 = 16;
    let engines = asic.engines as u8;
    let units = asic.units_per_engine as u8;
    Words::default()
        .bytes(&[9, 9, engines, 0, units, 1, BACKENDS, CHANNELS])
        .dwords(&[0; 8])
        .bytes(&[units, BACKENDS])
        .halves(&[0, REGISTERS, 0, 0, LANES, asic.waves_per_simd, LDS])
        .bytes(&[0, 0, 0, SCRATCH_SLOTS])
        .dwords(&[0; 2])
        .table(2, 4)
}
