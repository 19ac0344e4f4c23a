// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What a wave reaches outside of itself: memory, the group's LDS, messages and clocks.

use crate::fp;

/// One 32-bit value per lane.
pub type Lanes = [u32; 64];
/// One 64-bit value per lane.
pub type Wide = [u64; 64];

/// Why an access did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryFault {
    /// The translation is missing and is to be retried: the instruction runs again later.
    Retry {
        /// Address that missed.
        address: u64,
    },
    /// The access is not allowed.
    Denied {
        /// Address that was refused.
        address: u64,
    },
}

/// Global memory of the wave's address space.
///
/// Bit `n` of `lanes` tells whether lane `n` takes part; nothing is read or written for others.  An access that
/// returns a fault has changed neither memory nor `data`, so that the instruction can be executed again.
pub trait Memory {
    /// Reads `bytes` (1, 2, 4, 8, 12 or 16) bytes per lane, little-endian, into `data[0]` on; what is narrower
    /// than a dword is zero-extended.
    ///
    /// # Errors
    /// Where an address of a lane cannot be read.
    fn load(
        &mut self,
        address: &Wide,
        lanes: u64,
        bytes: u32,
        data: &mut [Lanes],
    ) -> Result<(), MemoryFault>;

    /// Writes `bytes` bytes per lane; with equal addresses the highest lane's value stays.
    ///
    /// # Errors
    /// Where an address of a lane cannot be written.
    fn store(
        &mut self,
        address: &Wide,
        lanes: u64,
        bytes: u32,
        data: &[Lanes],
    ) -> Result<(), MemoryFault>;

    /// Applies `op` to `bytes` (4 or 8, naturally aligned) bytes per lane, lanes in ascending order, each atomically;
    /// `old` receives what was there before.
    ///
    /// # Errors
    /// Where an address of a lane cannot be read and written.
    fn atomic(
        &mut self,
        op: AtomicOp,
        address: &Wide,
        lanes: u64,
        bytes: u32,
        data: [&Wide; 2],
        old: &mut Wide,
    ) -> Result<(), MemoryFault>;

    /// Reads dwords for the scalar unit.
    ///
    /// # Errors
    /// Where the address cannot be read.
    fn scalar_load(&mut self, address: u64, data: &mut [u32]) -> Result<(), MemoryFault>;

    /// Writes dwords for the scalar unit.
    ///
    /// # Errors
    /// Where the address cannot be written.
    fn scalar_store(&mut self, address: u64, data: &[u32]) -> Result<(), MemoryFault>;

    /// Reads dwords of code.
    ///
    /// # Errors
    /// Where the address cannot be executed.
    fn fetch(&mut self, address: u64, data: &mut [u32]) -> Result<(), MemoryFault> {
        self.scalar_load(address, data)
    }

    /// A number for the contents of the page of [`CODE_PAGE`] bytes at `page`, as code.  It differs from the one
    /// before if the memory, or where the page lies, may have changed since; decoded instructions are kept as long as
    /// it does not.  Without a number they are kept only until the wave leaves the page or stops.  It is asked for when
    /// a wave begins to run, comes from another page, or has invalidated the instruction cache.
    ///
    /// # Errors
    /// Where the page cannot be executed.
    fn code_version(&mut self, page: u64) -> Result<Option<u64>, MemoryFault> {
        let _ = page;
        Ok(None)
    }
}

/// Bytes of the pages in which decoded code is kept.
pub const CODE_PAGE: u64 = 4096;

/// What a global wave sync instruction leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gws {
    /// The wave goes on.
    Go,
    /// The wave waits; the instruction runs again later.
    Wait,
}

/// An operation of global wave sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the instructions")]
pub enum GwsOp {
    Init,
    Barrier,
    SemaV,
    SemaBr,
    SemaP,
    SemaReleaseAll,
}

/// The rest of the machine.
pub trait Messages {
    /// `s_sendmsg` with its immediate and M0; the result, if any, is written to EXEC_LO (GET_DOORBELL, SAVEWAVE write
    /// 64 bits to EXEC).
    fn send(&mut self, message: u16, m0: u32, privileged: bool) -> Option<u64>;

    /// The core clock's counter, or the one of constant rate.
    fn clock(&mut self, constant: bool) -> u64;

    /// Global wave sync on `resource` with `value`.  `ticket` is 0 when a wave comes to the instruction; when it tries
    /// again, it is what the call left there that let it wait.
    fn gws(&mut self, op: GwsOp, resource: u32, value: u32, ticket: &mut u64) -> Gws;

    /// The instruction cache is invalid.
    fn instructions_changed(&mut self);
}

/// What one instruction may touch outside of the wave.
pub struct Env<'a> {
    /// Global memory.
    pub memory: &'a mut dyn Memory,
    /// The group's allocation of LDS.
    pub lds: &'a mut [u8],
    /// Messages and clocks.
    pub messages: &'a mut dyn Messages,
}

/// A read-modify-write operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Store the data.
    Swap,
    /// Store the first data where memory equals the second.
    CmpSwap,
    /// Add.
    Add,
    /// Memory minus data.
    Sub,
    /// Data minus memory.
    Rsub,
    /// Signed minimum.
    SMin,
    /// Unsigned minimum.
    UMin,
    /// Signed maximum.
    SMax,
    /// Unsigned maximum.
    UMax,
    /// And.
    And,
    /// Or.
    Or,
    /// Exclusive or.
    Xor,
    /// Count up, wrapping to 0 past the data.
    Inc,
    /// Count down, wrapping to the data.
    Dec,
    /// Clear the bits of the first data, set those of the second.
    MskOr,
    /// Subtract the first data where it is not above memory, else add the second.
    Wrap,
    /// Each half: replaced by the low 31 bits of the data's half if its bit 31 is set.
    CondXchg,
    /// As [`AtomicOp::CmpSwap`], compared as floats.
    CmpSwapFloat,
    /// Float sum.
    AddFloat,
    /// Float minimum.
    MinFloat,
    /// Float maximum.
    MaxFloat,
    /// Two sums of 16-bit floats.
    PkAddF16,
    /// Two sums of bfloat16.
    PkAddBf16,
}

impl AtomicOp {
    /// What memory holds afterwards: `old` with `data`, on 8 bytes if `wide`, else on 4.
    ///
    /// Float sums are rounded to nearest even; denormals are kept.
    pub fn apply(self, wide: bool, old: u64, data: u64, data2: u64) -> u64 {
        let mask = if wide { u64::MAX } else { 0xFFFF_FFFF };
        let sign = |x: u64| {
            if wide {
                x as i64
            } else {
                i64::from(x as u32 as i32)
            }
        };
        let (old, data, data2) = (old & mask, data & mask, data2 & mask);
        let result = match self {
            AtomicOp::Swap => data,
            AtomicOp::CmpSwap if old == data2 => data,
            AtomicOp::CmpSwap => old,
            AtomicOp::Add => old.wrapping_add(data),
            AtomicOp::Sub => old.wrapping_sub(data),
            AtomicOp::Rsub => data.wrapping_sub(old),
            AtomicOp::SMin => sign(old).min(sign(data)) as u64,
            AtomicOp::UMin => old.min(data),
            AtomicOp::SMax => sign(old).max(sign(data)) as u64,
            AtomicOp::UMax => old.max(data),
            AtomicOp::And => old & data,
            AtomicOp::Or => old | data,
            AtomicOp::Xor => old ^ data,
            AtomicOp::Inc if old >= data => 0,
            AtomicOp::Inc => old.wrapping_add(1),
            AtomicOp::Dec if old == 0 || old > data => data,
            AtomicOp::Dec => old.wrapping_sub(1),
            AtomicOp::MskOr => (old & !data) | data2,
            AtomicOp::Wrap if old >= data => old - data,
            AtomicOp::Wrap => old.wrapping_add(data2),
            AtomicOp::CondXchg => {
                let half = |old: u64, data: u64| {
                    if data & 0x8000_0000 != 0 {
                        data & 0x7FFF_FFFF
                    } else {
                        old & 0xFFFF_FFFF
                    }
                };
                half(old, data) | half(old >> 32, data >> 32) << 32
            }
            AtomicOp::CmpSwapFloat => {
                let equal = if wide {
                    f64::from_bits(old) == f64::from_bits(data2)
                } else {
                    f32::from_bits(old as u32) == f32::from_bits(data2 as u32)
                };
                if equal {
                    data
                } else {
                    old
                }
            }
            AtomicOp::AddFloat if wide => fp::add64(old, data, 0),
            AtomicOp::AddFloat => u64::from(fp::add32(old as u32, data as u32)),
            AtomicOp::MinFloat if wide => fp::min64(old, data, true),
            AtomicOp::MinFloat => u64::from(fp::min32(old as u32, data as u32, true)),
            AtomicOp::MaxFloat if wide => fp::max64(old, data, true),
            AtomicOp::MaxFloat => u64::from(fp::max32(old as u32, data as u32, true)),
            AtomicOp::PkAddF16 => {
                let half = |at: u32| {
                    let (a, b) = ((old >> at) as u32 & 0xFFFF, (data >> at) as u32 & 0xFFFF);
                    u64::from(fp::add16(a, b)) << at
                };
                half(0) | half(16)
            }
            AtomicOp::PkAddBf16 => {
                let half = |at: u32| {
                    let (a, b) = ((old >> at) as u32 & 0xFFFF, (data >> at) as u32 & 0xFFFF);
                    u64::from(fp::f32_to_bf16(fp::add32(a << 16, b << 16))) << at
                };
                half(0) | half(16)
            }
        };
        result & mask
    }
}
