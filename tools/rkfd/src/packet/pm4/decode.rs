// SPDX-License-Identifier: GPL-2.0 OR MIT
//! From dwords back to packets.

use super::super::join;
use super::Compare;
use super::CopySource;
use super::Packet;
use super::PacketError;
use super::ReleaseData;
use super::ReleaseInterrupt;
use super::Result;
use super::ACQUIRE_MEM;
use super::ATOMIC_MEM;
use super::COPY_DATA;
use super::DMA_DATA;
use super::EVENT_WRITE;
use super::INDIRECT_BUFFER;
use super::MAX_PAYLOAD;
use super::NOP;
use super::RELEASE_MEM;
use super::SET_SH_REG;
use super::WAIT_REG_MEM;
use super::WRITE_DATA;

impl Packet {
    /// Reads one packet and says how many dwords it has.
    ///
    /// # Errors
    /// [`PacketError::Short`] where it is cut off, [`PacketError::Unknown`] where it is not one that [`Packet::encode`] makes.
    pub fn decode(dwords: &[u32]) -> Result<(Self, usize)> {
        let &header = dwords
            .first()
            .ok_or(PacketError::Short { needed: 1, have: 0 })?;
        if header >> 30 != 3 {
            return Err(PacketError::Unknown(header));
        }
        // CAST: 14 and 8 bits.
        let count = ((header >> 16) & 0x3fff) as usize;
        let opcode = (header >> 8) & 0xff;
        if opcode == NOP && count == MAX_PAYLOAD {
            return Ok((Packet::Nop(Vec::new()), 1));
        }
        let len = count + 2;
        let p = dwords.get(1..len).ok_or(PacketError::Short {
            needed: len,
            have: dwords.len(),
        })?;
        Ok((
            Self::from_payload(opcode, p).ok_or(PacketError::Unknown(header))?,
            len,
        ))
    }

    fn from_payload(opcode: u32, p: &[u32]) -> Option<Self> {
        Some(match (opcode, p) {
            (NOP, p) => Packet::Nop(p.to_vec()),
            (WRITE_DATA, &[dw1, lo, hi, ref data @ ..])
                if !data.is_empty() && (dw1 >> 8) & 0xf == 5 =>
            {
                Packet::WriteData {
                    address: join(lo, hi),
                    data: data.to_vec(),
                    confirm: (dw1 >> 20) & 1 == 1,
                }
            }
            (INDIRECT_BUFFER, &[lo, hi, dw3]) => Packet::IndirectBuffer {
                address: join(lo, hi),
                dwords: dw3 & 0xf_ffff,
                chain: (dw3 >> 20) & 1 == 1,
            },
            (RELEASE_MEM, &[dw1, dw2, lo, hi, dlo, dhi, ctxid]) => Packet::ReleaseMem {
                event: dw1 & 0x3f,
                address: join(lo, hi),
                data: match dw2 >> 29 {
                    0 => ReleaseData::None,
                    1 => ReleaseData::Dword(dlo),
                    2 => ReleaseData::Qword(join(dlo, dhi)),
                    3 => ReleaseData::Clock,
                    _ => return None,
                },
                interrupt: match (dw2 >> 24) & 7 {
                    0 => ReleaseInterrupt::None,
                    2 => ReleaseInterrupt::AfterWrite(ctxid),
                    _ => return None,
                },
            },
            (ACQUIRE_MEM, &[coher, ..]) if p.len() == 6 => Packet::AcquireMem {
                coher: coher & 0x7fff_ffff,
            },
            (EVENT_WRITE, &[dw1]) => Packet::EventWrite {
                event: dw1 & 0x3f,
                index: (dw1 >> 8) & 0xf,
            },
            (WAIT_REG_MEM, &[dw1, lo, hi, reference, mask, interval]) if (dw1 >> 4) & 3 == 1 => {
                Packet::WaitMem {
                    compare: Compare::from_code(dw1 & 7)?,
                    address: join(lo, hi),
                    reference,
                    mask,
                    interval: interval & 0xffff,
                }
            }
            (COPY_DATA, &[dw1, slo, shi, lo, hi]) if (dw1 >> 8) & 0xf == 5 => Packet::CopyData {
                source: match dw1 & 0xf {
                    1 => CopySource::Memory(join(slo, shi)),
                    5 => CopySource::Immediate(join(slo, shi)),
                    9 => CopySource::Clock,
                    _ => return None,
                },
                address: join(lo, hi),
                wide: (dw1 >> 16) & 1 == 1,
            },
            (ATOMIC_MEM, &[operation, lo, hi, slo, shi, clo, chi, _]) => Packet::AtomicMem {
                operation: operation & 0x7f,
                address: join(lo, hi),
                source: join(slo, shi),
                compare: join(clo, chi),
            },
            (DMA_DATA, &[_, slo, shi, dlo, dhi, dw6]) => Packet::DmaData {
                source: join(slo, shi),
                destination: join(dlo, dhi),
                bytes: dw6 & 0x1f_ffff,
            },
            (SET_SH_REG, &[offset, ref values @ ..]) if !values.is_empty() => Packet::SetShReg {
                offset: offset & 0xffff,
                values: values.to_vec(),
            },
            _ => return None,
        })
    }
}
