// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Mirrors of the native interface and attributes of SVM, over memory whose fate the threads play with.

use rkfd::sys::PAGE;

use super::calls::command;
use super::calls::READ;
use super::calls::WRITE;
use super::kinds::Kind;
use super::native::halves;
use super::native::native;
use super::thread::Thread;
use super::thread::CHURNED;

/// Where mirrors lie: behind what is bound, each a piece of its own.
const BASE: u64 = 0x2_0000_0000;
const PIECES: u64 = 24;
const PIECE: u64 = 4 << 20;
/// How many of the newest mirrors calls are about; older ones stay until the file is closed.
const NEWEST: u64 = 4;
/// Most attributes of one call.
const ATTRIBUTES: usize = 4;
/// Flags of MIRROR_CREATE.
const READ_ONLY: u32 = 1;
const EXECUTE: u32 = 2;
const POPULATED: u32 = 4;
const FAULT: u32 = 8;
const WHOLE: u32 = 16;
/// Flags and places of MIRROR_MIGRATE.
const NOW: u32 = 1;
const KEEP: u32 = 2;
const FILL: u32 = 4;
const ANYWHERE: u32 = 0;
const IN_VRAM: u32 = 1;
const IN_SYSTEM: u32 = 2;
const STAY: u32 = 3;

impl Thread<'_> {
    /// One call about mirrors.
    pub(super) fn native_mirror(&mut self) {
        match self.dice.below(8) {
            0..=2 => self.mirror_create(),
            3 => self.mirror_destroy(),
            4 => {
                self.mirror_query();
            }
            5..=6 => self.mirror_migrate(),
            _ => self.mirror_populate(),
        }
    }

    /// Some whole pages of the thread's own memory: address and length in bytes.
    pub(super) fn some_memory(&mut self) -> (u64, u64) {
        // CAST: small.
        let pages = CHURNED as u64;
        let first = self.dice.below(pages);
        let count = 1 + self.dice.below(pages - first);
        // CAST: addresses and lengths.
        (
            self.churned.address() as u64 + first * PAGE as u64,
            count * PAGE as u64,
        )
    }

    /// An address where mirrors lie, or, seldom, where buffers are bound.
    fn some_place(&mut self) -> u64 {
        if self.dice.one_in(8) {
            return super::native::BASE;
        }
        let within = self.dice.below(1024) * PAGE as u64; // CAST: a length.
        BASE + self.dice.below(PIECES) * PIECE + within
    }

    /// Attributes of some of the thread's memory, set or asked for.
    pub(super) fn svm(&mut self) {
        let (address, len) = self.some_memory();
        let count = self.dice.below(ATTRIBUTES as u64 + 1);
        let gpu_id = self.process.plan.target.gpu_id;
        let mut arg = [0u32; 6 + 2 * ATTRIBUTES];
        arg[0..2].copy_from_slice(&halves(self.dice.w64(address)));
        arg[2..4].copy_from_slice(&halves(self.dice.w64(len)));
        let op = self.dice.below(2) as u32; // CAST: below 2.
        arg[4] = self.dice.w32(op);
        // Not more than there are.
        arg[5] = count as u32; // CAST: small.
        for attribute in arg[6..].chunks_exact_mut(2) {
            let kind = self.dice.below(8) as u32; // CAST: below 8.
            let value = match kind {
                0..=1 => self.dice.pick(&[0, gpu_id, u32::MAX]).unwrap_or(0),
                2..=4 => gpu_id,
                _ => self.dice.below(256) as u32, // CAST: below 256.
            };
            attribute[0] = self.dice.w32(kind);
            attribute[1] = self.dice.w32(value);
        }
        let size = 24 + 8 * count as u32; // CAST: small.
        self.process
            .call(Kind::Svm, command(READ | WRITE, 0x20, size), &mut arg);
    }

    fn some_mirror(&mut self) -> u32 {
        let back = self.dice.below(NEWEST) as u32; // CAST: small.
        let right = self.newest_mirror.saturating_sub(back).max(1);
        self.dice.w32(right)
    }

    fn mirror_create(&mut self) {
        let (mut cpu, mut len) = self.some_memory();
        let mut gpu = self.some_place();
        // Half of them where accesses are not repeated, too.
        let fill = self
            .dice
            .pick(&[POPULATED, POPULATED, FAULT, POPULATED | FAULT]);
        let rights = self
            .dice
            .pick(&[0, READ_ONLY, EXECUTE, READ_ONLY | EXECUTE]);
        let mut flags = fill.unwrap_or(POPULATED) | rights.unwrap_or(0);
        if self.dice.one_in(16) {
            // Seldom, for no other mirror can be made beside it.
            (cpu, gpu, len) = (0, 0, 0);
            flags = FAULT | WHOLE | rights.unwrap_or(0);
        }
        let mut arg = [0u32; 10];
        arg[0..2].copy_from_slice(&halves(self.dice.w64(cpu)));
        arg[2..4].copy_from_slice(&halves(self.dice.w64(gpu)));
        arg[4..6].copy_from_slice(&halves(self.dice.w64(len)));
        arg[6] = self.dice.w32(flags);
        arg[7] = self.dice.w32(0);
        if self.native_call(Kind::NativeMirrorCreate, native(11, 40), &mut arg) == 0 {
            self.newest_mirror = arg[7];
        }
    }

    fn mirror_destroy(&mut self) {
        let mut arg = [self.some_mirror(), self.dice.w32(0)];
        self.native_call(Kind::NativeMirrorDestroy, native(12, 8), &mut arg);
    }

    /// What the driver says of some mirror, if it is there.
    fn mirror_query(&mut self) -> Option<[u32; 20]> {
        let mut arg = [0u32; 20];
        arg[0] = self.some_mirror();
        // Also as programs of earlier versions do.
        let size = self.dice.pick(&[64, 72, 80]).unwrap_or(80);
        let errno = self.native_call(Kind::NativeMirrorQuery, native(13, size), &mut arg);
        (errno == 0).then_some(arg)
    }

    /// All of a mirror, or what may be no part of one.
    fn mirror_populate(&mut self) {
        let Some(known) = self.mirror_query() else {
            return;
        };
        let whole = |at: usize| u64::from(known[at]) | (u64::from(known[at + 1]) << 32);
        let mut arg = [0u32; 6];
        (arg[0], arg[1]) = (known[0], self.dice.w32(0));
        arg[2..4].copy_from_slice(&halves(self.dice.w64(whole(4))));
        arg[4..6].copy_from_slice(&halves(self.dice.w64(whole(6))));
        self.native_call(Kind::NativeMirrorPopulate, native(14, 24), &mut arg);
    }

    /// All of a mirror, or what may be no part of one, goes somewhere.
    fn mirror_migrate(&mut self) {
        let Some(known) = self.mirror_query() else {
            return;
        };
        let whole = |at: usize| u64::from(known[at]) | (u64::from(known[at + 1]) << 32);
        let flags = self.dice.pick(&[NOW, NOW, NOW | FILL, NOW | KEEP, KEEP]);
        let place = self
            .dice
            .pick(&[IN_VRAM, IN_VRAM, IN_SYSTEM, ANYWHERE, STAY]);
        // What moves at once, for hints.
        let granularity = match flags {
            Some(flags) if flags & KEEP != 0 => self.dice.pick(&[0, 16, 18, 21]),
            _ => None,
        };
        let mut arg = [0u32; 12];
        (arg[0], arg[1]) = (known[0], self.dice.w32(flags.unwrap_or(NOW)));
        arg[2..4].copy_from_slice(&halves(self.dice.w64(whole(4))));
        arg[4..6].copy_from_slice(&halves(self.dice.w64(whole(6))));
        arg[6] = self.dice.w32(place.unwrap_or(IN_VRAM));
        arg[7] = self.dice.w32(granularity.unwrap_or(0));
        arg[8] = self.dice.w32(0);
        self.native_call(Kind::NativeMirrorMigrate, native(15, 48), &mut arg);
    }
}
