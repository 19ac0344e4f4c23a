// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Loops that measure the speed of execution, one per class of instructions, with the memory that they run on.
//!
//! `cargo bench -p gfx9-isa` and `rkfdctl bench isa` run them.  Words and text are those of gfx90a; a test compares
//! them with LLVM.

mod loops;

pub use loops::workloads;

use crate::env::AtomicOp;
use crate::env::Env;
use crate::env::Gws;
use crate::env::GwsOp;
use crate::env::Lanes;
use crate::env::Memory;
use crate::env::MemoryFault;
use crate::env::Messages;
use crate::env::Wide;
use crate::inst::Asic;
use crate::lanes;
use crate::lanes::each;
use crate::processor::Processor;
use crate::processor::Stop;
use crate::wave::reg;
use crate::wave::Wave;
use std::time::Duration;

/// An endless loop.
#[derive(Debug)]
pub struct Workload {
    /// Name, without blanks.
    pub name: &'static str,
    /// Class of its instructions.
    pub class: &'static str,
    /// Assembler source.
    pub text: &'static str,
    /// The same, assembled.
    pub words: &'static [u32],
    /// Instructions of one turn of the loop.
    pub instructions: u32,
    /// Bytes that all lanes together load and store in one turn.
    pub bytes: u32,
    /// Floating-point operations of matrices in one turn.
    pub flops: u32,
}

/// Where data begins.
const BASE: u64 = 0x1000_0000;
/// Where code begins.
const CODE: u64 = 0x2000_0000;
/// Bytes of data.
const SIZE: usize = 8 << 20;
/// Bytes per page.
const PAGE: u64 = 4096;
/// Translations that are kept.
const CACHED: usize = 64;

/// Memory behind a table of pages, with a direct-mapped cache of translations before it.
struct Paged {
    bytes: Vec<u8>,
    code: &'static [u32],
    /// Frame of each page of the data.
    table: Vec<u32>,
    cache: [(u64, usize); CACHED],
}

impl Paged {
    fn new(code: &'static [u32]) -> Self {
        let pages = SIZE / PAGE as usize;
        // Half-precision numbers between 1/16 and 1, of both signs; frames in an order of their own.
        let mut state = 1u32;
        let mut bytes = vec![0; SIZE];
        for half in bytes.chunks_exact_mut(2) {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let value = 0x2C00 + (state >> 16 & 0xFFF) as u16 + (state >> 31 << 15) as u16;
            half.copy_from_slice(&value.to_le_bytes());
        }
        Self {
            bytes,
            code,
            table: (0..pages).map(|page| (page * 5 % pages) as u32).collect(),
            cache: [(u64::MAX, 0); CACHED],
        }
    }

    /// Where the byte at `address` lies.
    #[inline]
    fn place(&mut self, address: u64) -> Result<usize, MemoryFault> {
        let page = address / PAGE;
        let slot = &mut self.cache[page as usize % CACHED];
        if slot.0 != page {
            let index = page.wrapping_sub(BASE / PAGE);
            let frame = usize::try_from(index)
                .ok()
                .and_then(|at| self.table.get(at));
            let frame = *frame.ok_or(MemoryFault::Denied { address })?;
            *slot = (page, frame as usize * PAGE as usize);
        }
        Ok(slot.1 + (address % PAGE) as usize)
    }

    /// `size` bytes, which lie in one page.
    #[inline]
    fn span(&mut self, address: u64, size: usize) -> Result<&mut [u8], MemoryFault> {
        let from = self.place(address)?;
        let end = from + size;
        let inside = address % PAGE + size as u64 <= PAGE;
        match self.bytes.get_mut(from..end) {
            Some(span) if inside => Ok(span),
            _ => Err(MemoryFault::Denied { address }),
        }
    }

    /// All lanes at once, if they are one run of memory in one page.
    #[inline]
    fn run(&mut self, address: &Wide, lanes: u64, bytes: u32) -> Option<&mut [u8]> {
        let first = lanes::run(address, lanes, bytes)?;
        self.span(first, 64 * bytes as usize).ok()
    }
}

impl Memory for Paged {
    fn load(
        &mut self,
        address: &Wide,
        lanes: u64,
        bytes: u32,
        data: &mut [Lanes],
    ) -> Result<(), MemoryFault> {
        if let Some(span) = self.run(address, lanes, bytes) {
            lanes::unpack(span, bytes, data);
            return Ok(());
        }
        for lane in each(lanes) {
            lanes::load(self.span(address[lane], bytes as usize)?, lane, data);
        }
        Ok(())
    }

    fn store(
        &mut self,
        address: &Wide,
        lanes: u64,
        bytes: u32,
        data: &[Lanes],
    ) -> Result<(), MemoryFault> {
        if let Some(span) = self.run(address, lanes, bytes) {
            lanes::pack(data, bytes, span);
            return Ok(());
        }
        for lane in each(lanes) {
            lanes::store(data, lane, self.span(address[lane], bytes as usize)?);
        }
        Ok(())
    }

    fn atomic(
        &mut self,
        op: AtomicOp,
        address: &Wide,
        lanes: u64,
        bytes: u32,
        data: [&Wide; 2],
        old: &mut Wide,
    ) -> Result<(), MemoryFault> {
        for lane in each(lanes) {
            let span = self.span(address[lane], bytes as usize)?;
            let mut word = [0; 8];
            word[..span.len()].copy_from_slice(span);
            old[lane] = u64::from_le_bytes(word);
            let new = op.apply(bytes == 8, old[lane], data[0][lane], data[1][lane]);
            let size = span.len();
            span.copy_from_slice(&new.to_le_bytes()[..size]);
        }
        Ok(())
    }

    fn scalar_load(&mut self, address: u64, data: &mut [u32]) -> Result<(), MemoryFault> {
        let span = self.span(address, 4 * data.len())?;
        for (slot, word) in data.iter_mut().zip(span.chunks_exact(4)) {
            *slot = word
                .iter()
                .rev()
                .fold(0, |value, byte| value << 8 | u32::from(*byte));
        }
        Ok(())
    }

    fn scalar_store(&mut self, address: u64, data: &[u32]) -> Result<(), MemoryFault> {
        let span = self.span(address, 4 * data.len())?;
        for (word, value) in span.chunks_exact_mut(4).zip(data) {
            word.copy_from_slice(&value.to_le_bytes());
        }
        Ok(())
    }

    fn fetch(&mut self, address: u64, data: &mut [u32]) -> Result<(), MemoryFault> {
        let from = address.wrapping_sub(CODE) / 4;
        for (slot, at) in data.iter_mut().zip(from..) {
            let word = usize::try_from(at).ok().and_then(|at| self.code.get(at));
            *slot = *word.ok_or(MemoryFault::Denied { address })?;
        }
        Ok(())
    }

    fn code_version(&mut self, _: u64) -> Result<Option<u64>, MemoryFault> {
        Ok(Some(0))
    }
}

struct Silent;

impl Messages for Silent {
    fn send(&mut self, _: u16, _: u32, _: bool) -> Option<u64> {
        None
    }

    fn clock(&mut self, _: bool) -> u64 {
        0
    }

    fn gws(&mut self, _: GwsOp, _: u32, _: u32, _: &mut u64) -> Gws {
        Gws::Go
    }

    fn instructions_changed(&mut self) {}
}

/// One wave in a workload.
pub struct Bench {
    workload: &'static Workload,
    processor: Processor,
    wave: Wave,
    memory: Paged,
    lds: Vec<u8>,
}

impl Bench {
    /// The wave before its first instruction.
    pub fn new(workload: &'static Workload) -> Self {
        let mut wave = Wave::new(Asic::Gfx90a);
        wave.pc = CODE;
        wave.set_pair(reg::EXEC, u64::MAX);
        wave.set_pair(0, BASE);
        wave.set_pair(2, BASE + (SIZE as u64 / 2));
        // A buffer of all the data, without stride and swizzling.
        wave.set_pair(12, BASE);
        wave.set_pair(14, 0x0002_7FAC_0000_0000 | SIZE as u64);
        let lane = |lane: usize| lane as u32;
        let mut set = |number: usize, value: &dyn Fn(usize) -> u32| {
            if let Some(row) = wave.vgpr_mut(number, false) {
                *row = std::array::from_fn(value);
            }
        };
        set(0, &|at| 4 * lane(at));
        set(1, &|at| (1.0 + at as f32 / 1024.0).to_bits());
        set(2, &|_| 0.5f32.to_bits());
        set(3, &|at| 8 * lane(at));
        set(4, &|at| 16 * lane(at));
        set(5, &|at| 16 * lane(at));
        // Addresses without order.
        set(6, &|at| {
            BASE as u32 + 4 * (lane(at) * 2_654_435 % 0x10_0000)
        });
        for number in 8..16 {
            set(number, &|_| 0x3C00_BC00);
        }
        // Numbers near 1 and 1/2, of 64 and of 32 bits.
        set(25, &|_| 0x3FF0_0001);
        set(27, &|_| 0x3FE0_0000);
        for number in 28..32 {
            set(number, &|_| 0x3F00_0001);
        }
        Self {
            workload,
            processor: Processor::new(Asic::Gfx90a),
            wave,
            memory: Paged::new(workload.words),
            lds: vec![0; 4096],
        }
    }

    /// Executes `count` instructions.
    ///
    /// # Errors
    /// Where the loop ends, which none does.
    pub fn run(&mut self, count: u64) -> Result<(), Stop> {
        let mut env = Env {
            memory: &mut self.memory,
            lds: &mut self.lds,
            messages: &mut Silent,
        };
        match self.processor.run(&mut self.wave, &mut env, count) {
            (_, Stop::Budget) => Ok(()),
            (_, stop) => Err(stop),
        }
    }

    /// Runs for about `time` and takes the median of several parts of it.  `clock` tells the time that the thread has
    /// had so far; what else the machine does then counts little.
    ///
    /// # Errors
    /// As [`Bench::run`].
    pub fn measure(
        &mut self,
        time: Duration,
        clock: impl Fn() -> Duration,
    ) -> Result<Figures, Stop> {
        const PARTS: u32 = 9;
        let mut part = |count: u64| -> Result<Duration, Stop> {
            let start = clock();
            self.run(count)?;
            Ok(clock().saturating_sub(start))
        };
        let mut count = 1000;
        // As many instructions as a part takes.
        while count < 1 << 30 && part(count)? * PARTS * 2 < time {
            count *= 2;
        }
        let mut seconds = Vec::new();
        for _ in 0..PARTS {
            seconds.push(part(count)?.as_secs_f64());
        }
        seconds.sort_by(f64::total_cmp);
        let instructions = count as f64 / seconds[seconds.len() / 2].max(f64::MIN_POSITIVE);
        let turns = instructions / f64::from(self.workload.instructions);
        Ok(Figures {
            instructions,
            bytes: turns * f64::from(self.workload.bytes),
            flops: turns * f64::from(self.workload.flops),
        })
    }
}

/// What one core does in a second.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Instructions of a wave.
    pub instructions: f64,
    /// Bytes loaded and stored.
    pub bytes: f64,
    /// Floating-point operations of matrices.
    pub flops: f64,
}
