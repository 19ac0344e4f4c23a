// SPDX-License-Identifier: GPL-2.0

//! Packets that write registers or wait for what they show.

use core::fmt;

use super::super::regs::gc::{
    UCONFIG_SPACE,
    UCONFIG_SPACE_END, //
};
use super::super::regs::Reg;
use super::memory::{
    WaitRegMemDw1,
    WriteDataDw1,
    DST_REGISTER, //
};
use super::{
    narrow,
    op,
    EncodeError,
    Header, //
};

/// WRITE_DATA to a register, 5 dwords.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteReg {
    /// Register.
    pub(crate) reg: Reg,
    /// Value.
    pub(crate) value: u32,
    /// Do not increment the address; KFD sets it, the KIQ does not.
    pub(crate) no_increment: bool,
    /// Wait for the acknowledgement.
    pub(crate) confirm: bool,
}

impl WriteReg {
    /// Length in dwords.
    pub(crate) const DWORDS: usize = 5;

    /// The form in which KFD writes CP_IQ_WAIT_TIME2 through the HIQ.
    pub(crate) const fn on_hiq(reg: Reg, value: u32) -> Self {
        Self {
            reg,
            value,
            no_increment: true,
            confirm: false,
        }
    }

    /// The packet.
    ///
    /// # Errors
    ///
    /// `Overflow` if the register's dword number exceeds 18 bits.
    pub(crate) fn encode(&self) -> Result<[u32; Self::DWORDS], EncodeError> {
        narrow("register", u64::from(self.reg.dword()), 18)?;
        let dw1 = WriteDataDw1::new()
            .with(WriteDataDw1::DST_SEL, DST_REGISTER)
            .with_flag(WriteDataDw1::ADDR_INCR, self.no_increment)
            .with_flag(WriteDataDw1::WR_CONFIRM, self.confirm);
        Ok([
            Header::packet(op::WRITE_DATA, Self::DWORDS).raw(),
            dw1.raw(),
            self.reg.dword(),
            0,
            self.value,
        ])
    }
}

impl fmt::Display for WriteReg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "WRITE_DATA {} = {:#x}{}",
            self.reg,
            self.value,
            if self.confirm { " confirm" } else { "" }
        )
    }
}

/// SET_UCONFIG_REG of one register, 3 dwords; the KIQ ring test uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetUconfigReg {
    /// Register in user-config space.
    pub(crate) reg: Reg,
    /// Value.
    pub(crate) value: u32,
}

impl SetUconfigReg {
    /// Length in dwords.
    pub(crate) const DWORDS: usize = 3;

    /// The packet.
    ///
    /// # Errors
    ///
    /// `Misaligned` if the register is outside user-config space.
    pub(crate) fn encode(&self) -> Result<[u32; Self::DWORDS], EncodeError> {
        let dword = self.reg.dword();
        if !(UCONFIG_SPACE..UCONFIG_SPACE_END).contains(&dword) {
            return Err(EncodeError::Misaligned {
                field: "user-config register",
                value: u64::from(dword),
            });
        }
        Ok([
            Header::packet(op::SET_UCONFIG_REG, Self::DWORDS).raw(),
            dword - UCONFIG_SPACE,
            self.value,
        ])
    }

    /// The packet's meaning; `None` if it names no user-config register.
    pub(crate) const fn decode(dw: &[u32; Self::DWORDS]) -> Option<Self> {
        if dw[1] >= UCONFIG_SPACE_END - UCONFIG_SPACE {
            return None;
        }
        Some(Self {
            reg: Reg::new(UCONFIG_SPACE, dw[1]),
            value: dw[2],
        })
    }
}

impl fmt::Display for SetUconfigReg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SET_UCONFIG_REG {} = {:#x}", self.reg, self.value)
    }
}

/// WAIT_REG_MEM as write-wait-write, 7 dwords (KIQ): writes `reference` to one register and waits
/// until the other shows it under `mask`; a TLB flush by REQ and ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegisterHandshake {
    /// Register to write.
    pub(crate) request: Reg,
    /// Register to wait for.
    pub(crate) acknowledge: Reg,
    /// Value to write and to wait for.
    pub(crate) reference: u32,
    /// Bits to compare.
    pub(crate) mask: u32,
}

/// Poll interval of the kernel's waits.
const POLL_INTERVAL: u32 = 0x20;

impl RegisterHandshake {
    /// Length in dwords.
    pub(crate) const DWORDS: usize = 7;

    const DW1: WaitRegMemDw1 = WaitRegMemDw1::new()
        .with(WaitRegMemDw1::FUNCTION, 3)
        .with(WaitRegMemDw1::OPERATION, 1);

    /// The packet.
    ///
    /// # Errors
    ///
    /// `Overflow` if a register's dword number exceeds 18 bits.
    pub(crate) fn encode(&self) -> Result<[u32; Self::DWORDS], EncodeError> {
        for reg in [self.request, self.acknowledge] {
            narrow("register", u64::from(reg.dword()), 18)?;
        }
        Ok([
            Header::packet(op::WAIT_REG_MEM, Self::DWORDS).raw(),
            Self::DW1.raw(),
            self.request.dword(),
            self.acknowledge.dword(),
            self.reference,
            self.mask,
            POLL_INTERVAL,
        ])
    }

    /// The packet's meaning; `None` for other forms of WAIT_REG_MEM.
    pub(crate) fn decode(dw: &[u32; Self::DWORDS]) -> Option<Self> {
        if dw[1] != Self::DW1.raw() || dw[2] >= 1 << 18 || dw[3] >= 1 << 18 {
            return None;
        }
        (dw[6] == POLL_INTERVAL).then_some(Self {
            request: Reg::new(0, dw[2]),
            acknowledge: Reg::new(0, dw[3]),
            reference: dw[4],
            mask: dw[5],
        })
    }
}

impl fmt::Display for RegisterHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "WAIT_REG_MEM write {} = {:#x} until {} & {:#x}",
            self.request, self.reference, self.acknowledge, self.mask
        )
    }
}
