// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Packets as one line of text, for a reader.

use std::fmt;

use super::CopySource;
use super::Packet;
use super::ReleaseData;
use super::ReleaseInterrupt;

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Packet::Nop(p) => write!(f, "NOP, {} dwords skipped", p.len()),
            Packet::WriteData {
                address,
                data,
                confirm,
            } => {
                write!(f, "WRITE_DATA [{address:#x}] <-")?;
                for d in data.iter().take(4) {
                    write!(f, " {d:#010x}")?;
                }
                if data.len() > 4 {
                    write!(f, " ... {} dwords", data.len())?;
                }
                f.write_str(if *confirm { ", confirmed" } else { "" })
            }
            Packet::IndirectBuffer {
                address,
                dwords,
                chain,
            } => {
                let verb = if *chain { "chain to" } else { "call" };
                write!(f, "INDIRECT_BUFFER {verb} {address:#x}, {dwords} dwords")
            }
            Packet::ReleaseMem {
                event,
                address,
                data,
                interrupt,
            } => {
                write!(f, "RELEASE_MEM event {event:#x}")?;
                match data {
                    ReleaseData::None => {}
                    ReleaseData::Dword(v) => write!(f, ", [{address:#x}] <- {v:#010x}")?,
                    ReleaseData::Qword(v) => write!(f, ", [{address:#x}] <- {v:#018x}")?,
                    ReleaseData::Clock => write!(f, ", [{address:#x}] <- GPU clock")?,
                }
                match interrupt {
                    ReleaseInterrupt::None => f.write_str(", no interrupt"),
                    ReleaseInterrupt::AfterWrite(id) => write!(f, ", interrupt for event {id}"),
                }
            }
            Packet::AcquireMem { coher } => write!(f, "ACQUIRE_MEM coher {coher:#x}"),
            Packet::EventWrite { event, index } => {
                write!(f, "EVENT_WRITE event {event:#x} index {index}")
            }
            Packet::WaitMem {
                compare,
                address,
                reference,
                mask,
                ..
            } => {
                write!(
                    f,
                    "WAIT_REG_MEM until [{address:#x}] & {mask:#x} {} {reference:#x}",
                    compare.sign()
                )
            }
            Packet::CopyData {
                source,
                address,
                wide,
            } => {
                write!(f, "COPY_DATA [{address:#x}] <- ")?;
                match source {
                    CopySource::Memory(s) => write!(f, "[{s:#x}]")?,
                    CopySource::Immediate(v) => write!(f, "{v:#x}")?,
                    CopySource::Clock => f.write_str("GPU clock")?,
                }
                write!(f, ", {} bits", if *wide { 64 } else { 32 })
            }
            Packet::AtomicMem {
                operation,
                address,
                source,
                ..
            } => {
                write!(
                    f,
                    "ATOMIC_MEM operation {operation} on [{address:#x}] with {source:#x}"
                )
            }
            Packet::DmaData {
                source,
                destination,
                bytes,
            } => {
                write!(
                    f,
                    "DMA_DATA [{destination:#x}] <- [{source:#x}], {bytes} bytes"
                )
            }
            Packet::SetShReg { offset, values } => {
                write!(
                    f,
                    "SET_SH_REG {} registers from {:#x}",
                    values.len(),
                    0x2c00 + offset
                )
            }
        }
    }
}
