// SPDX-License-Identifier: GPL-2.0 OR MIT
//! PCI configuration space: identity, BARs, MSI and PCI Express capabilities.

mod rom;

use crate::asic::Asic;
use crate::device::BAR2_SIZE;
use crate::regs::BAR5_SIZE;
use crate::vm::own::BarAddresses;

pub use rom::{Image as Rom, SIZE as ROM_SIZE};

/// Bytes of extended configuration space.
pub const CONFIG_SIZE: usize = 4096;

/// Subsystem ids.  The default tells the model from a card; others let a driver take it for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subsystem {
    /// Subsystem vendor.
    pub vendor: u16,
    /// Subsystem device.
    pub device: u16,
}

impl Default for Subsystem {
    fn default() -> Self {
        Self {
            vendor: 0x1AF4,
            device: 0x6B66,
        }
    }
}

impl std::fmt::Display for Subsystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04x}:{:04x}", self.vendor, self.device)
    }
}

impl std::str::FromStr for Subsystem {
    type Err = String;

    /// Parses `VVVV:DDDD`, four hexadecimal digits each.
    fn from_str(text: &str) -> Result<Self, String> {
        let id = |part: &str| {
            let digits = part.len() == 4 && part.bytes().all(|b| b.is_ascii_hexdigit());
            u16::from_str_radix(part, 16).ok().filter(|_| digits)
        };
        let (vendor, device) = text
            .split_once(':')
            .and_then(|(v, d)| id(v).zip(id(d)))
            .ok_or_else(|| format!("{text}: not VVVV:DDDD in hexadecimal"))?;
        Ok(Self { vendor, device })
    }
}

const PM_CAP: usize = 0x48;
/// Power management control and status: PowerState in the low two bits.
const PMCSR: usize = PM_CAP + 4;
const D0: u8 = 0;
const D3HOT: u8 = 3;
const PCIE_CAP: usize = 0x50;
const MSI_CAP: usize = 0xA0;
/// Where extended capabilities begin.
const VENDOR_CAP: usize = 0x100;

/// Configuration space with its writable bits.
#[derive(Debug, Clone)]
pub struct ConfigSpace {
    bytes: Vec<u8>,
    writable: Vec<u8>,
}

impl ConfigSpace {
    /// The space of an ASIC with this much VRAM.
    pub fn new(asic: &Asic, vram_size: u64, subsystem: Subsystem) -> Self {
        let mut c = Self {
            bytes: vec![0; CONFIG_SIZE],
            writable: vec![0; CONFIG_SIZE],
        };
        c.put16(0x00, 0x1002);
        c.put16(0x02, asic.device_id);
        // Command: memory space, bus master, parity, SERR, INTx disable.
        c.writable16(0x04, 0x0546);
        // Status: capability list.
        c.put16(0x06, 0x0010);
        c.put(0x08, asic.revision);
        // Class 0x038000, display controller, other.
        c.put(0x0A, 0x80);
        c.put(0x0B, 0x03);
        c.writable8(0x0C, 0xFF);
        c.bar64(0x10, vram_size, true);
        c.bar64(0x18, BAR2_SIZE, false);
        c.bar32(0x24, BAR5_SIZE as u32);
        c.put16(0x2C, subsystem.vendor);
        c.put16(0x2E, subsystem.device);
        c.rom();
        c.put(0x34, PM_CAP as u8);
        c.writable8(0x3C, 0xFF);
        // Interrupt pin 0: no INTx.
        c.power_management();
        c.pci_express();
        c.msi();
        c.vendor_specific();
        c
    }

    fn power_management(&mut self) {
        self.put(PM_CAP, 0x01);
        self.put(PM_CAP + 1, PCIE_CAP as u8);
        self.put16(PM_CAP + 2, 0x0003);
        // No_Soft_Reset (bit 3) is 0: the way back from D3hot is a reset.
        self.writable16(PMCSR, 0x0003);
    }

    fn pci_express(&mut self) {
        self.put(PCIE_CAP, 0x10);
        self.put(PCIE_CAP + 1, MSI_CAP as u8);
        // Version 2, legacy endpoint: works behind a root port and on the root complex.
        self.put16(PCIE_CAP + 2, 0x0012);
        // Device capabilities: 256-byte payload, extended tags, role-based error reporting.
        self.put32(PCIE_CAP + 4, 0x0000_8021);
        self.writable16(PCIE_CAP + 8, 0xFFFF);
        // Link: 16 GT/s, x16.
        self.put32(PCIE_CAP + 0x0C, 0x0000_0104);
        self.put16(PCIE_CAP + 0x12, 0x0104);
        self.writable16(PCIE_CAP + 0x10, 0x0FFF);
        // Device capabilities 2: 32- and 64-bit atomic completer (bits 7 and 8).
        self.put32(PCIE_CAP + 0x24, 0x0000_0180);
        self.writable16(PCIE_CAP + 0x28, 0xFFFF);
        self.put32(PCIE_CAP + 0x2C, 0x0000_001E);
        self.put16(PCIE_CAP + 0x30, 0x0004);
    }

    fn msi(&mut self) {
        self.put(MSI_CAP, 0x05);
        self.put(MSI_CAP + 1, 0x00);
        // One vector, 64-bit addresses.
        self.put16(MSI_CAP + 2, 0x0080);
        self.writable16(MSI_CAP + 2, 0x0071);
        self.writable32(MSI_CAP + 4, 0xFFFF_FFFC);
        self.writable32(MSI_CAP + 8, 0xFFFF_FFFF);
        self.writable16(MSI_CAP + 12, 0xFFFF);
    }

    /// The first extended capability of all AMD GPUs: vendor-specific, with nothing in it.
    fn vendor_specific(&mut self) {
        self.put32(VENDOR_CAP, 0x0001_000B);
        // Length 16, revision 1, id 1.
        self.put32(VENDOR_CAP + 4, 0x0101_0001);
    }

    fn put(&mut self, at: usize, v: u8) {
        if let Some(b) = self.bytes.get_mut(at) {
            *b = v;
        }
    }

    fn put16(&mut self, at: usize, v: u16) {
        for (i, b) in v.to_le_bytes().into_iter().enumerate() {
            self.put(at + i, b);
        }
    }

    fn put32(&mut self, at: usize, v: u32) {
        for (i, b) in v.to_le_bytes().into_iter().enumerate() {
            self.put(at + i, b);
        }
    }

    fn writable8(&mut self, at: usize, v: u8) {
        if let Some(b) = self.writable.get_mut(at) {
            *b = v;
        }
    }

    fn writable16(&mut self, at: usize, v: u16) {
        for (i, b) in v.to_le_bytes().into_iter().enumerate() {
            self.writable8(at + i, b);
        }
    }

    fn writable32(&mut self, at: usize, v: u32) {
        for (i, b) in v.to_le_bytes().into_iter().enumerate() {
            self.writable8(at + i, b);
        }
    }

    fn bar64(&mut self, at: usize, size: u64, prefetchable: bool) {
        self.put(at, 0x04 | if prefetchable { 0x08 } else { 0 });
        let mask = !(size - 1);
        self.writable32(at, mask as u32 & !0xF);
        self.writable32(at + 4, (mask >> 32) as u32);
    }

    /// Expansion ROM: address and enable bit.
    fn rom(&mut self) {
        self.writable32(0x30, !(ROM_SIZE as u32 - 1) | 1);
    }

    fn bar32(&mut self, at: usize, size: u32) {
        self.writable32(at, !(size - 1) & !0xF);
    }

    /// Reads bytes; beyond the end everything is ones.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        for (i, d) in data.iter_mut().enumerate() {
            let at = usize::try_from(offset).ok().and_then(|o| o.checked_add(i));
            *d = at.and_then(|a| self.bytes.get(a)).copied().unwrap_or(0xFF);
        }
    }

    /// Writes the writable bits of bytes.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let state = self.power_state();
        self.write_bytes(offset, data);
        // D1 and D2 are not supported: such a write changes nothing.
        if !matches!(self.power_state(), D0 | D3HOT) {
            if let Some(b) = self.bytes.get_mut(PMCSR) {
                *b = *b & !3 | state;
            }
        }
    }

    fn write_bytes(&mut self, offset: u64, data: &[u8]) {
        for (i, &d) in data.iter().enumerate() {
            let Some(at) = usize::try_from(offset).ok().and_then(|o| o.checked_add(i)) else {
                return;
            };
            let mask = self.writable.get(at).copied().unwrap_or(0);
            if let Some(b) = self.bytes.get_mut(at) {
                *b = *b & !mask | d & mask;
            }
        }
    }

    /// Where the guest has put the BARs. What they hold while memory decoding is off, as during their sizing, is no
    /// address.
    pub fn bars(&self) -> Option<BarAddresses> {
        if !self.decodes_memory() {
            return None;
        }
        let dword = |at: usize| {
            let b = self.bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
            b.map_or(0, u32::from_le_bytes)
        };
        Some(BarAddresses {
            doorbells: u64::from(dword(0x18) & !0xF) | (u64::from(dword(0x1C)) << 32),
            registers: u64::from(dword(0x24) & !0xF),
        })
    }

    fn power_state(&self) -> u8 {
        self.bytes.get(PMCSR).map_or(D0, |b| b & 3)
    }

    /// The function is in D3hot.
    pub fn asleep(&self) -> bool {
        self.power_state() == D3HOT
    }

    /// Memory space is on: the BARs are where they say.
    pub fn decodes_memory(&self) -> bool {
        self.bytes.get(4).is_some_and(|b| b & 2 != 0)
    }

    /// Bus mastering is on.
    pub fn bus_master(&self) -> bool {
        self.bytes.get(4).is_some_and(|b| b & 4 != 0)
    }
}
