// SPDX-License-Identifier: GPL-2.0 OR MIT
//! PM4 packets of user compute queues (type 3).
//!
//! Header: type `[31:30]` = 3, count `[29:16]` = dwords after the header minus 1, opcode `[15:8]`, shader type `[1]`.
//! Layouts are those of kernel 7.3's `soc15d.h` and `kfd_pm4_headers_ai.h`.

mod decode;
mod text;

use super::address;
use super::aligned;
use super::fits;
use super::halves;
use super::PacketError;
use super::Result;

const NOP: u32 = 0x10;
const ATOMIC_MEM: u32 = 0x1e;
const WRITE_DATA: u32 = 0x37;
const WAIT_REG_MEM: u32 = 0x3c;
const INDIRECT_BUFFER: u32 = 0x3f;
const COPY_DATA: u32 = 0x40;
const EVENT_WRITE: u32 = 0x46;
const RELEASE_MEM: u32 = 0x49;
const DMA_DATA: u32 = 0x50;
const ACQUIRE_MEM: u32 = 0x58;
const SET_SH_REG: u32 = 0x76;

/// Longest payload that the header's count can describe, in dwords.
const MAX_PAYLOAD: usize = 0x3fff;

/// `ATOMIC` code of a 64-bit add in the L2.
pub const ATOMIC_ADD64: u32 = 47;
/// `ATOMIC` code of a 32-bit add in the L2.
pub const ATOMIC_ADD32: u32 = 15;
/// Event of RELEASE_MEM: caches flushed and invalidated, then the timestamp.
pub const CACHE_FLUSH_AND_INV_TS: u32 = 0x14;
/// Event of EVENT_WRITE: earlier waves of this queue are done.
pub const CS_PARTIAL_FLUSH: u32 = 0x07;
/// COHER_CNTL of ACQUIRE_MEM: write back and invalidate L2, invalidate the L1, scalar and instruction caches.
pub const COHER_ALL: u32 = (1 << 18) | (1 << 22) | (1 << 23) | (1 << 27) | (1 << 29);

/// What RELEASE_MEM stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseData {
    /// Nothing.
    None,
    /// 32 bits.
    Dword(u32),
    /// 64 bits.
    Qword(u64),
    /// The GPU's clock, 64 bits.
    Clock,
}

/// Whether RELEASE_MEM raises an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseInterrupt {
    /// No.
    None,
    /// After the write is confirmed; the value names the event (the interrupt's context id).
    AfterWrite(u32),
}

/// Comparison of WAIT_REG_MEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are the comparisons.
pub enum Compare {
    Always,
    Less,
    LessEqual,
    Equal,
    NotEqual,
    GreaterEqual,
    Greater,
}

impl Compare {
    const ALL: [Self; 7] = [
        Self::Always,
        Self::Less,
        Self::LessEqual,
        Self::Equal,
        Self::NotEqual,
        Self::GreaterEqual,
        Self::Greater,
    ];

    pub(super) fn code(self) -> u32 {
        match self {
            Self::Always => 0,
            Self::Less => 1,
            Self::LessEqual => 2,
            Self::Equal => 3,
            Self::NotEqual => 4,
            Self::GreaterEqual => 5,
            Self::Greater => 6,
        }
    }

    pub(super) fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.code() == code)
    }

    /// The operator, for a reader.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::GreaterEqual => ">=",
            Self::Greater => ">",
        }
    }
}

/// Where COPY_DATA takes its value from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopySource {
    /// Memory at this address.
    Memory(u64),
    /// This value.
    Immediate(u64),
    /// The GPU's clock.
    Clock,
}

/// A packet of a user queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Skipped; the payload is carried along.
    Nop(Vec<u32>),
    /// Stores dwords in memory.
    WriteData {
        /// First address, 4-byte aligned.
        address: u64,
        /// The dwords.
        data: Vec<u32>,
        /// Wait until the write arrived.
        confirm: bool,
    },
    /// Runs packets from another buffer.
    IndirectBuffer {
        /// Its address, 4-byte aligned.
        address: u64,
        /// Its length in dwords (20 bits).
        dwords: u32,
        /// Does not return.
        chain: bool,
    },
    /// Waits for earlier work, then stores and interrupts.
    ReleaseMem {
        /// `event_type`, such as [`CACHE_FLUSH_AND_INV_TS`].
        event: u32,
        /// Where to, aligned to the data's size.
        address: u64,
        /// What.
        data: ReleaseData,
        /// Whether to interrupt.
        interrupt: ReleaseInterrupt,
    },
    /// Cache maintenance before later work.
    AcquireMem {
        /// `COHER_CNTL`, 31 bits.
        coher: u32,
    },
    /// Raises an event inside the GPU.
    EventWrite {
        /// `event_type`.
        event: u32,
        /// `event_index`.
        index: u32,
    },
    /// Waits until memory compares.
    WaitMem {
        /// The comparison.
        compare: Compare,
        /// 4-byte aligned.
        address: u64,
        /// Compared with.
        reference: u32,
        /// Applied to memory's value first.
        mask: u32,
        /// Clocks between polls.
        interval: u32,
    },
    /// Copies one value to memory.
    CopyData {
        /// From.
        source: CopySource,
        /// To, aligned to the size.
        address: u64,
        /// 64 bits rather than 32.
        wide: bool,
    },
    /// An atomic operation of the L2.
    AtomicMem {
        /// Its code, 7 bits.
        operation: u32,
        /// On this address, aligned to the operand.
        address: u64,
        /// Operand.
        source: u64,
        /// Compared with, where the operation compares.
        compare: u64,
    },
    /// Copies memory to memory.
    DmaData {
        /// From.
        source: u64,
        /// To.
        destination: u64,
        /// Length in bytes (21 bits).
        bytes: u32,
    },
    /// Sets consecutive shader registers.
    SetShReg {
        /// Index of the first, from 0x2c00.
        offset: u32,
        /// Their values.
        values: Vec<u32>,
    },
}

impl Packet {
    /// Appends the packet's dwords to `out`.
    ///
    /// # Errors
    /// [`PacketError`] where an address is not aligned or a value does not fit; `out` is unchanged then.
    pub fn encode(&self, out: &mut Vec<u32>) -> Result<()> {
        let (opcode, payload) = self.payload()?;
        if payload.is_empty() {
            return Err(PacketError::Empty("PM4 payload"));
        }
        // A NOP of the highest count has another meaning: it is one dword long.
        let limit = if opcode == NOP {
            MAX_PAYLOAD
        } else {
            MAX_PAYLOAD + 1
        };
        if payload.len() > limit {
            return Err(PacketError::TooLarge {
                what: "PM4 payload",
                value: payload.len() as u64,
                bits: 14,
            });
        }
        let count = fits("PM4 count", payload.len() as u64 - 1, 14)?;
        out.push((3 << 30) | (count << 16) | (opcode << 8) | (1 << 1));
        out.extend_from_slice(&payload);
        Ok(())
    }

    fn payload(&self) -> Result<(u32, Vec<u32>)> {
        Ok(match self {
            Packet::Nop(payload) => (NOP, payload.clone()),
            Packet::WriteData {
                address: a,
                data,
                confirm,
            } => {
                if data.is_empty() {
                    return Err(PacketError::Empty("WRITE_DATA"));
                }
                let [lo, hi] = address("WRITE_DATA address", *a, 4)?;
                let mut p = vec![(5 << 8) | (u32::from(*confirm) << 20), lo, hi];
                p.extend_from_slice(data);
                (WRITE_DATA, p)
            }
            Packet::IndirectBuffer {
                address: a,
                dwords,
                chain,
            } => {
                let [lo, hi] = address("INDIRECT_BUFFER address", *a, 4)?;
                let size = fits("INDIRECT_BUFFER size", u64::from(*dwords), 20)?;
                if size == 0 {
                    return Err(PacketError::Empty("INDIRECT_BUFFER"));
                }
                (
                    INDIRECT_BUFFER,
                    vec![lo, hi, size | (u32::from(*chain) << 20) | (1 << 23)],
                )
            }
            Packet::ReleaseMem {
                event,
                address: a,
                data,
                interrupt,
            } => {
                let (data_sel, align, value) = match data {
                    ReleaseData::None => (0, 4, 0),
                    ReleaseData::Dword(v) => (1, 4, u64::from(*v)),
                    ReleaseData::Qword(v) => (2, 8, *v),
                    ReleaseData::Clock => (3, 8, 0),
                };
                let (int_sel, ctxid) = match interrupt {
                    ReleaseInterrupt::None => (0, 0),
                    ReleaseInterrupt::AfterWrite(id) => (2, *id),
                };
                let [lo, hi] = address("RELEASE_MEM address", *a, align)?;
                let [dlo, dhi] = halves(value);
                let event = fits("RELEASE_MEM event", u64::from(*event), 6)?;
                // Event index 5: end of pipe. Actions: write back and invalidate L2 (TC_WB 15, TC 17).
                let dw1 = event | (5 << 8) | (1 << 15) | (1 << 17);
                (
                    RELEASE_MEM,
                    vec![
                        dw1,
                        (int_sel << 24) | (data_sel << 29),
                        lo,
                        hi,
                        dlo,
                        dhi,
                        ctxid,
                    ],
                )
            }
            Packet::AcquireMem { coher } => {
                let coher = fits("ACQUIRE_MEM coher", u64::from(*coher), 31)?;
                // The whole address space, in units of 256 bytes.
                (ACQUIRE_MEM, vec![coher, u32::MAX, 0xff, 0, 0, 10])
            }
            Packet::EventWrite { event, index } => {
                let event = fits("EVENT_WRITE event", u64::from(*event), 6)?;
                let index = fits("EVENT_WRITE index", u64::from(*index), 4)?;
                (EVENT_WRITE, vec![event | (index << 8)])
            }
            Packet::WaitMem {
                compare,
                address: a,
                reference,
                mask,
                interval,
            } => {
                let [lo, hi] = address("WAIT_REG_MEM address", *a, 4)?;
                let interval = fits("WAIT_REG_MEM interval", u64::from(*interval), 16)?;
                (
                    WAIT_REG_MEM,
                    vec![
                        compare.code() | (1 << 4),
                        lo,
                        hi,
                        *reference,
                        *mask,
                        interval,
                    ],
                )
            }
            Packet::CopyData {
                source,
                address: a,
                wide,
            } => {
                let align = if *wide { 8 } else { 4 };
                let (src_sel, [slo, shi]) = match source {
                    CopySource::Memory(s) => (1, address("COPY_DATA source", *s, align)?),
                    CopySource::Immediate(v) => (5, halves(*v)),
                    CopySource::Clock => (9, [0, 0]),
                };
                let [lo, hi] = address("COPY_DATA destination", *a, align)?;
                let dw1 = src_sel | (5 << 8) | (u32::from(*wide) << 16) | (1 << 20);
                (COPY_DATA, vec![dw1, slo, shi, lo, hi])
            }
            Packet::AtomicMem {
                operation,
                address: a,
                source,
                compare,
            } => {
                let operation = fits("ATOMIC_MEM operation", u64::from(*operation), 7)?;
                let [lo, hi] = address("ATOMIC_MEM address", *a, 4)?;
                let ([slo, shi], [clo, chi]) = (halves(*source), halves(*compare));
                (ATOMIC_MEM, vec![operation, lo, hi, slo, shi, clo, chi, 0])
            }
            Packet::DmaData {
                source,
                destination,
                bytes,
            } => {
                let [slo, shi] = address("DMA_DATA source", *source, 1)?;
                let [dlo, dhi] = address("DMA_DATA destination", *destination, 1)?;
                let bytes = fits("DMA_DATA bytes", u64::from(*bytes), 21)?;
                if bytes == 0 {
                    return Err(PacketError::Empty("DMA_DATA"));
                }
                (DMA_DATA, vec![1 << 31, slo, shi, dlo, dhi, bytes])
            }
            Packet::SetShReg { offset, values } => {
                if values.is_empty() {
                    return Err(PacketError::Empty("SET_SH_REG"));
                }
                let mut p = vec![fits("SET_SH_REG offset", u64::from(*offset), 16)?];
                p.extend_from_slice(values);
                (SET_SH_REG, p)
            }
        })
    }

    /// Encodes a sequence.
    ///
    /// # Errors
    /// As [`Packet::encode`].
    pub fn encode_all(packets: &[Packet]) -> Result<Vec<u32>> {
        let mut out = Vec::new();
        for p in packets {
            p.encode(&mut out)?;
        }
        Ok(out)
    }

    /// Checks that an address would be accepted where packets demand dword alignment.
    ///
    /// # Errors
    /// [`PacketError::Unaligned`].
    pub fn check_address(value: u64) -> Result<u64> {
        aligned("address", value, 4)
    }
}

#[cfg(test)]
mod tests;
