// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Memory of a few words, each of them an atomic of the checker.

use crate::sync::{AtomicU64, Ordering};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phys {
    Vram(u64),
    Bus(u64),
}

impl Phys {
    pub fn offset(self, n: u64) -> Phys {
        match self {
            Phys::Vram(at) => Phys::Vram(at + n),
            Phys::Bus(at) => Phys::Bus(at + n),
        }
    }
}

#[derive(Debug)]
pub struct NoMemory;

/// Words of VRAM by their addresses.
#[derive(Debug)]
pub struct Map(Vec<(u64, AtomicU64)>);

impl Map {
    pub fn new(words: &[(u64, u64)]) -> Self {
        Self(
            words
                .iter()
                .map(|&(at, value)| (at, AtomicU64::new(value)))
                .collect(),
        )
    }

    fn word(&self, at: u64) -> Option<&AtomicU64> {
        self.0.iter().find(|(a, _)| *a == at).map(|(_, word)| word)
    }

    pub fn load(&self, at: u64) -> u64 {
        self.word(at).unwrap().load(Ordering::Acquire)
    }

    pub fn store(&self, at: u64, value: u64) {
        self.word(at).unwrap().store(value, Ordering::Release);
    }

    pub fn read_entry(&self, slot: Phys, _root: u64) -> Result<u64, NoMemory> {
        let Phys::Vram(at) = slot else {
            return Err(NoMemory);
        };
        let word = self.word(at).ok_or(NoMemory)?;
        Ok(word.load(Ordering::Acquire))
    }

    pub fn exists(&self, at: Phys, _write: bool) -> bool {
        matches!(at, Phys::Vram(_))
    }

    pub fn blocked(&self, at: Phys) -> bool {
        matches!(at, Phys::Bus(_))
    }
}
