// SPDX-License-Identifier: GPL-2.0

//! Reading packets back, for debugfs and error dumps. Any sequence of dwords is accepted.

use core::fmt;

use super::super::num;
use super::super::regs::Reg;
use super::memory::{
    WriteDataDw1,
    DST_MEMORY,
    DST_REGISTER, //
};
use super::{
    op,
    Header,
    IndirectBuffer,
    InvalidateTlbs,
    MapProcess,
    MapQueues,
    QueryStatus,
    RegisterHandshake,
    ReleaseMem,
    RunList,
    SetResources,
    SetUconfigReg,
    UnmapQueues,
    WriteMem,
    WriteReg, //
};

/// Meaning of a WRITE_DATA: register or memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteData {
    /// To a register.
    Reg(WriteReg),
    /// To memory.
    Mem(WriteMem),
}

impl WriteData {
    /// The meaning of a WRITE_DATA of 5 or 6 dwords; `None` for other forms.
    fn decode(dw: &[u32]) -> Option<Self> {
        let [_, dw1, lo, hi, value, rest @ ..] = dw else {
            return None;
        };
        let dw1 = WriteDataDw1::from_raw(*dw1);
        if dw1.undeclared() != 0 || dw1.is_set(WriteDataDw1::CACHE_POLICY) || rest.len() > 1 {
            return None;
        }
        if dw1.is_set(WriteDataDw1::ENGINE_SEL) {
            return None;
        }
        let confirm = dw1.is_set(WriteDataDw1::WR_CONFIRM);
        match (dw1.get(WriteDataDw1::DST_SEL), rest) {
            (DST_REGISTER, []) if *lo < 1 << 18 && *hi == 0 => Some(Self::Reg(WriteReg {
                reg: Reg::new(0, *lo),
                value: *value,
                no_increment: dw1.is_set(WriteDataDw1::ADDR_INCR),
                confirm,
            })),
            (DST_MEMORY, high) if lo & 3 == 0 && !dw1.is_set(WriteDataDw1::ADDR_INCR) => {
                Some(Self::Mem(WriteMem {
                    address: num::join(*lo, *hi),
                    value: *value,
                    high: high.first().copied(),
                    confirm,
                }))
            }
            _ => None,
        }
    }
}

/// Meaning of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    /// NOP of any length, or a type-2 filler.
    Nop,
    /// SET_RESOURCES.
    SetResources(SetResources),
    /// RUN_LIST.
    RunList(RunList),
    /// MAP_PROCESS.
    MapProcess(MapProcess),
    /// MAP_QUEUES.
    MapQueues(MapQueues),
    /// UNMAP_QUEUES.
    UnmapQueues(UnmapQueues),
    /// QUERY_STATUS.
    QueryStatus(QueryStatus),
    /// WRITE_DATA to a register.
    WriteReg(WriteReg),
    /// WRITE_DATA to memory.
    WriteMem(WriteMem),
    /// SET_UCONFIG_REG.
    SetUconfigReg(SetUconfigReg),
    /// INVALIDATE_TLBS.
    InvalidateTlbs(InvalidateTlbs),
    /// INDIRECT_BUFFER.
    IndirectBuffer(IndirectBuffer),
    /// WAIT_REG_MEM.
    RegisterHandshake(RegisterHandshake),
    /// RELEASE_MEM.
    ReleaseMem(ReleaseMem),
    /// A whole packet that this driver would not send: another opcode, or reserved bits.
    Other(Header, &'a [u32]),
    /// The header asks for more dwords than there are.
    Truncated(Header, &'a [u32]),
    /// Not a header.
    Garbage(u32),
    /// Nothing left.
    End,
}

/// A packet and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decoded<'a> {
    /// What it means.
    pub(crate) packet: Packet<'a>,
    /// Dwords that it takes of the input; 0 only at the end.
    pub(crate) dwords: usize,
}

/// Decodes the packet at the start of `dw`.
pub(crate) fn decode(dw: &[u32]) -> Decoded<'_> {
    let Some(first) = dw.first() else {
        return Decoded {
            packet: Packet::End,
            dwords: 0,
        };
    };
    let header = Header::from_raw(*first);
    let Some(dwords) = header.dwords() else {
        return Decoded {
            packet: Packet::Garbage(*first),
            dwords: 1,
        };
    };
    let Some(whole) = dw.get(..dwords) else {
        return Decoded {
            packet: Packet::Truncated(header, dw),
            dwords: dw.len(),
        };
    };
    Decoded {
        packet: meaning(header, whole).unwrap_or(Packet::Other(header, whole)),
        dwords,
    }
}

/// Meaning of a whole packet, if this driver could have sent it.
fn meaning(header: Header, dw: &[u32]) -> Option<Packet<'static>> {
    if header.get(Header::TYPE) == 2 {
        return Some(Packet::Nop);
    }
    if header.is_set(Header::PREDICATE) || header.undeclared() != 0 {
        return None;
    }
    Some(match header.get(Header::OPCODE) {
        op::NOP => Packet::Nop,
        op::SET_RESOURCES => Packet::SetResources(SetResources::decode(dw.try_into().ok()?)?),
        op::RUN_LIST => Packet::RunList(RunList::decode(dw.try_into().ok()?)?),
        op::MAP_PROCESS => Packet::MapProcess(MapProcess::decode(dw)?),
        op::MAP_QUEUES => Packet::MapQueues(MapQueues::decode(dw.try_into().ok()?)?),
        op::UNMAP_QUEUES => Packet::UnmapQueues(UnmapQueues::decode(dw.try_into().ok()?)?),
        op::QUERY_STATUS => Packet::QueryStatus(QueryStatus::decode(dw.try_into().ok()?)?),
        op::WRITE_DATA => match WriteData::decode(dw)? {
            WriteData::Reg(write) => Packet::WriteReg(write),
            WriteData::Mem(write) => Packet::WriteMem(write),
        },
        op::SET_UCONFIG_REG => Packet::SetUconfigReg(SetUconfigReg::decode(dw.try_into().ok()?)?),
        op::INVALIDATE_TLBS => Packet::InvalidateTlbs(InvalidateTlbs::decode(dw.try_into().ok()?)?),
        op::INDIRECT_BUFFER => Packet::IndirectBuffer(IndirectBuffer::decode(dw.try_into().ok()?)?),
        op::WAIT_REG_MEM => {
            Packet::RegisterHandshake(RegisterHandshake::decode(dw.try_into().ok()?)?)
        }
        op::RELEASE_MEM => Packet::ReleaseMem(ReleaseMem::decode(dw.try_into().ok()?)?),
        _ => return None,
    })
}

/// All packets of a ring section or run list, in order.
#[derive(Clone, Debug)]
pub(crate) struct Packets<'a> {
    rest: &'a [u32],
}

impl<'a> Packets<'a> {
    /// The packets of `dw`.
    pub(crate) const fn new(dw: &'a [u32]) -> Self {
        Self { rest: dw }
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Decoded<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let decoded = decode(self.rest);
        self.rest = self.rest.get(decoded.dwords..).unwrap_or(&[]);
        Some(decoded)
    }
}

impl fmt::Display for Decoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.packet {
            Packet::Nop => write!(f, "NOP dwords {}", self.dwords),
            Packet::SetResources(packet) => packet.fmt(f),
            Packet::RunList(packet) => packet.fmt(f),
            Packet::MapProcess(packet) => packet.fmt(f),
            Packet::MapQueues(packet) => packet.fmt(f),
            Packet::UnmapQueues(packet) => packet.fmt(f),
            Packet::QueryStatus(packet) => packet.fmt(f),
            Packet::WriteReg(packet) => packet.fmt(f),
            Packet::WriteMem(packet) => packet.fmt(f),
            Packet::SetUconfigReg(packet) => packet.fmt(f),
            Packet::InvalidateTlbs(packet) => packet.fmt(f),
            Packet::IndirectBuffer(packet) => packet.fmt(f),
            Packet::RegisterHandshake(packet) => packet.fmt(f),
            Packet::ReleaseMem(packet) => packet.fmt(f),
            Packet::Other(header, dw) => raw(f, "", *header, dw),
            Packet::Truncated(header, dw) => raw(f, "truncated ", *header, dw),
            Packet::Garbage(word) => write!(f, "not a packet: {word:#010x}"),
            Packet::End => f.write_str("end"),
        }
    }
}

/// Dwords of an unknown packet that a dump shows.
const SHOWN: usize = 24;

/// Prints a packet dword by dword.
fn raw(f: &mut fmt::Formatter<'_>, what: &str, header: Header, dw: &[u32]) -> fmt::Result {
    let opcode = header.get(Header::OPCODE);
    match op::name(opcode) {
        Some(name) => write!(f, "{what}{name}:")?,
        None => write!(f, "{what}opcode {opcode:#x}:")?,
    }
    for word in dw.iter().take(SHOWN) {
        write!(f, " {word:08x}")?;
    }
    if dw.len() > SHOWN {
        write!(f, " … {} dwords", dw.len())?;
    }
    Ok(())
}
