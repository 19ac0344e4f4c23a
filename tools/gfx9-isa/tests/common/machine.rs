// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A flat memory and a loop that runs one wave.
#![allow(dead_code, reason = "each test program uses its part")]

use gfx9_isa::decode::Decoder;
use gfx9_isa::env::AtomicOp;
use gfx9_isa::env::Env;
use gfx9_isa::env::Gws;
use gfx9_isa::env::GwsOp;
use gfx9_isa::env::Lanes;
use gfx9_isa::env::Memory;
use gfx9_isa::env::MemoryFault;
use gfx9_isa::env::Messages;
use gfx9_isa::env::Wide;
use gfx9_isa::exec::Exception;
use gfx9_isa::exec::Executor;
use gfx9_isa::exec::Flow;
use gfx9_isa::inst::Asic;
use gfx9_isa::wave::reg;
use gfx9_isa::wave::Wave;

/// Where the memory begins.
pub const BASE: u64 = 0x1000_0000;

/// Bytes from [`BASE`] on; everything else faults.
pub struct Flat {
    pub bytes: Vec<u8>,
    /// Accesses that were refused.
    pub faults: u64,
    /// Of all pages, as code.
    pub version: Option<u64>,
}

impl Flat {
    pub fn new(size: usize) -> Self {
        Self {
            bytes: vec![0; size],
            faults: 0,
            version: Some(0),
        }
    }

    fn slice(&mut self, address: u64, size: u64) -> Result<&mut [u8], MemoryFault> {
        let fault = MemoryFault::Denied { address };
        let from = address.checked_sub(BASE);
        let end = from.and_then(|from| from.checked_add(size));
        match (from, end) {
            (Some(from), Some(end)) if end <= self.bytes.len() as u64 => {
                Ok(&mut self.bytes[from as usize..end as usize])
            }
            _ => {
                self.faults += 1;
                Err(fault)
            }
        }
    }

    pub fn word(&self, index: usize) -> u32 {
        u32::from_le_bytes(self.bytes[4 * index..4 * index + 4].try_into().unwrap())
    }

    pub fn set_word(&mut self, index: usize, value: u32) {
        self.bytes[4 * index..4 * index + 4].copy_from_slice(&value.to_le_bytes());
    }
}

fn each(lanes: u64) -> impl Iterator<Item = usize> {
    (0..64).filter(move |lane| lanes >> lane & 1 != 0)
}

impl Memory for Flat {
    fn load(
        &mut self,
        address: &Wide,
        lanes: u64,
        bytes: u32,
        data: &mut [Lanes],
    ) -> Result<(), MemoryFault> {
        for lane in each(lanes) {
            self.slice(address[lane], bytes.into())?;
        }
        for lane in each(lanes) {
            let found = self.slice(address[lane], bytes.into())?.to_vec();
            for (row, part) in data.iter_mut().zip(found.chunks(4)) {
                let mut word = [0; 4];
                word[..part.len()].copy_from_slice(part);
                row[lane] = u32::from_le_bytes(word);
            }
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
        for lane in each(lanes) {
            self.slice(address[lane], bytes.into())?;
        }
        for lane in each(lanes) {
            let all: Vec<u8> = data
                .iter()
                .flat_map(|row| row[lane].to_le_bytes())
                .collect();
            let to = self.slice(address[lane], bytes.into())?;
            to.copy_from_slice(&all[..bytes as usize]);
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
            self.slice(address[lane], bytes.into())?;
        }
        for lane in each(lanes) {
            let place = self.slice(address[lane], bytes.into())?;
            let mut word = [0; 8];
            word[..bytes as usize].copy_from_slice(place);
            old[lane] = u64::from_le_bytes(word);
            let new = op.apply(bytes == 8, old[lane], data[0][lane], data[1][lane]);
            place.copy_from_slice(&new.to_le_bytes()[..bytes as usize]);
        }
        Ok(())
    }

    fn scalar_load(&mut self, address: u64, data: &mut [u32]) -> Result<(), MemoryFault> {
        let found = self.slice(address, 4 * data.len() as u64)?;
        for (slot, part) in data.iter_mut().zip(found.chunks(4)) {
            *slot = u32::from_le_bytes(part.try_into().unwrap());
        }
        Ok(())
    }

    fn scalar_store(&mut self, address: u64, data: &[u32]) -> Result<(), MemoryFault> {
        let to = self.slice(address, 4 * data.len() as u64)?;
        for (part, value) in to.chunks_mut(4).zip(data) {
            part.copy_from_slice(&value.to_le_bytes());
        }
        Ok(())
    }

    fn code_version(&mut self, _: u64) -> Result<Option<u64>, MemoryFault> {
        Ok(self.version)
    }
}

/// Records messages; the clock counts calls.
pub struct Host {
    pub sent: Vec<(u16, u32)>,
    pub clock: u64,
    /// Global wave sync: operation, resource, value.
    pub synced: Vec<(GwsOp, u32, u32)>,
    /// What it leads to.
    pub answer: Gws,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            sent: Vec::new(),
            clock: 0,
            synced: Vec::new(),
            answer: Gws::Go,
        }
    }
}

impl Messages for Host {
    fn send(&mut self, message: u16, m0: u32, _: bool) -> Option<u64> {
        self.sent.push((message, m0));
        None
    }

    fn clock(&mut self, _: bool) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn gws(&mut self, op: GwsOp, resource: u32, value: u32, ticket: &mut u64) -> Gws {
        // It counts how often the wave has tried.
        *ticket += 1;
        self.synced.push((op, resource, value));
        self.answer
    }

    fn instructions_changed(&mut self) {}
}

/// One wave with all that it reaches.
pub struct Machine {
    pub wave: Wave,
    pub memory: Flat,
    pub lds: Vec<u8>,
    pub host: Host,
    decoder: Decoder,
    executor: Executor,
}

impl Machine {
    pub fn new(asic: Asic) -> Self {
        let mut wave = Wave::new(asic);
        wave.set_pair(reg::EXEC, u64::MAX);
        Self {
            wave,
            memory: Flat::new(1 << 16),
            lds: vec![0; 4096],
            host: Host::default(),
            decoder: Decoder::new(asic),
            executor: Executor::new(asic),
        }
    }

    /// Executes the instruction at `words`.
    pub fn step(&mut self, words: &[u32]) -> Result<Flow, Exception> {
        let inst = self.decoder.decode(words).map_err(|_| Exception::Illegal {
            name: "words",
            why: "they do not decode",
        })?;
        let mut env = Env {
            memory: &mut self.memory,
            lds: &mut self.lds,
            messages: &mut self.host,
        };
        self.executor.execute(&mut self.wave, &inst, &mut env)
    }

    /// Runs code from its beginning to its end, at most `most` instructions.
    pub fn run(&mut self, code: &[u32], most: usize) -> Result<Flow, Exception> {
        self.wave.pc = 0;
        for _ in 0..most {
            let at = (self.wave.pc / 4) as usize;
            let flow = self.step(code.get(at..).unwrap_or(&[]))?;
            if flow == Flow::End {
                return Ok(flow);
            }
        }
        panic!("the program does not end");
    }

    /// Assembles and runs one instruction or more.
    pub fn asm(&mut self, text: &str) -> Result<Flow, Exception> {
        let program = format!("{text}\ns_endpgm\n");
        let code = super::assemble(self.wave.asic(), &program);
        self.run(&code, 10_000)
    }

    pub fn set(&mut self, number: usize, value: Lanes) {
        *self.wave.vgpr_mut(number, false).unwrap() = value;
    }

    pub fn get(&self, number: usize) -> Lanes {
        *self.wave.vgpr(number, false)
    }

    pub fn set_wide(&mut self, number: usize, value: &Wide) {
        self.set(number, value.map(|x| x as u32));
        self.set(number + 1, value.map(|x| (x >> 32) as u32));
    }

    pub fn get_wide(&self, number: usize) -> Wide {
        let (low, high) = (self.get(number), self.get(number + 1));
        std::array::from_fn(|lane| u64::from(low[lane]) | u64::from(high[lane]) << 32)
    }
}
