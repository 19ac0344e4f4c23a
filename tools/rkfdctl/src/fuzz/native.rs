// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Calls of the render node's own interface (`uapi/rkfd_drm.h`), on a file of its own that all threads share.

use std::os::fd::AsFd;
use std::os::fd::AsRawFd;

use nix::sys::eventfd::EfdFlags;
use nix::sys::eventfd::EventFd;

use super::calls::drm_command;
use super::calls::READ;
use super::calls::WRITE;
use super::kinds::Kind;
use super::raw;
use super::thread::Thread;

/// Handles of the file are small numbers; buffers with larger ones are closed at once.
const HANDLES: u32 = 32;
/// Where ranges are bound, in pages of 4 KiB.
const WINDOW: u64 = 256;
pub(super) const BASE: u64 = 1 << 32;
const PAGE: u64 = 4096;
/// Pages behind the window that queues lie in: random lists replace nothing there.
const QUEUE_PAGES: u64 = 8;
/// Where the pointers of a queue lie in its page, behind the ring.
const POINTERS: (u64, u64) = (2048, 2056);
/// Most operations of a list.
const OPS: usize = 24;
/// DRM's call that closes a handle.
const GEM_CLOSE: u32 = drm_command(WRITE, 0x09, 8);

/// The command word of a call.
pub(super) const fn native(number: u32, size: u32) -> u32 {
    drm_command(READ | WRITE, 0x80 + number, size)
}

/// Halves of a 64-bit field.
pub(super) fn halves(value: u64) -> [u32; 2] {
    // CAST: halves.
    [value as u32, (value >> 32) as u32]
}

impl Thread<'_> {
    /// One call of the native interface.
    pub fn native(&mut self) {
        match self.dice.below(25) {
            0 => self.native_query(),
            1..=3 => self.native_create(),
            4 => self.native_info(),
            5..=10 => self.native_bind(),
            11 => self.native_queue(),
            12 => self.native_queue_update(),
            13 => self.native_queue_destroy(),
            14 => self.native_event(),
            15 => self.native_event_destroy(),
            16 => self.native_wait(),
            17 => self.native_faults(),
            18..=22 => self.native_mirror(),
            _ => self.native_close(),
        }
    }

    pub(super) fn native_call<const N: usize>(
        &self,
        kind: Kind,
        word: u32,
        arg: &mut [u32; N],
    ) -> i32 {
        // CAST: an address.
        let place = arg.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: as large as the command word says; addresses in it are right, small numbers, or lead nowhere.
        let errno = unsafe { raw::ioctl(self.process.native.as_fd(), word, place) };
        self.process.answered(kind, errno, "");
        errno
    }

    fn some_handle(&mut self) -> u32 {
        let right = 1 + self.dice.below(u64::from(HANDLES)) as u32; // CAST: small.
        self.dice.w32(right)
    }

    /// An address in the window and a length that stays in it, both in bytes.
    fn some_range(&mut self) -> (u64, u64) {
        let first = self.dice.below(WINDOW);
        let count = 1 + self.dice.below((WINDOW - first).min(40));
        let (address, len) = (BASE + first * PAGE, count * PAGE);
        (self.dice.w64(address), self.dice.w64(len))
    }

    fn native_query(&mut self) {
        let mut out = [0u64; 32];
        let to = self.pointer(out.as_mut_ptr().expose_provenance());
        let [lo, hi] = halves(to);
        let what = self.dice.below(2) as u32; // CAST: small.
        let size = self.dice.pick(&[0, 8, 64, 256]).unwrap_or(0);
        let mut arg = [
            self.dice.w32(what),
            self.dice.w32(0),
            lo,
            hi,
            size,
            self.dice.w32(0),
        ];
        self.native_call(Kind::NativeQuery, native(0, 24), &mut arg);
    }

    fn native_create(&mut self) {
        let pages = self.dice.pick(&[1, 2, 16, 17, 64]).unwrap_or(1);
        let [lo, hi] = halves(self.dice.w64(pages * PAGE));
        let heap = 1 + self.dice.below(2) as u32; // CAST: small.
        let fallback = self.dice.below(3) as u32; // CAST: small.
        let flags = self.dice.below(16) as u32; // CAST: small.
        let mut arg = [
            lo,
            hi,
            self.dice.w32(heap),
            self.dice.w32(fallback),
            self.dice.w32(flags),
            0,
            0,
            0,
        ];
        let made = self.native_call(Kind::NativeCreate, native(1, 32), &mut arg) == 0;
        if made && arg[5] > HANDLES {
            self.close_handle(arg[5]);
        }
    }

    fn close_handle(&self, handle: u32) {
        self.native_call(Kind::Drm, GEM_CLOSE, &mut [handle, 0]);
    }

    fn native_close(&mut self) {
        let handle = self.some_handle();
        self.close_handle(handle);
    }

    fn native_info(&mut self) {
        let mut arg = [0; 10];
        arg[0] = self.some_handle();
        arg[1] = self.dice.w32(0);
        self.native_call(Kind::NativeInfo, native(2, 40), &mut arg);
    }

    fn native_bind(&mut self) {
        let mut ops = [0u32; 10 * OPS];
        // CAST: small.
        let count = 1 + self.dice.below(OPS as u64) as usize;
        // What a list has most often is disjoint: one page in each piece of the window.
        let disjoint = !self.dice.one_in(3);
        for (number, op) in ops.chunks_exact_mut(10).take(count).enumerate() {
            let (mut address, mut len) = self.some_range();
            if disjoint {
                // CAST: small.
                let piece = WINDOW / OPS as u64;
                let page = number as u64 * piece + self.dice.below(piece);
                (address, len) = (self.dice.w64(BASE + page * PAGE), PAGE);
            }
            let map = self.dice.one_in(2);
            // Seldom: each is a registration of its own.
            let user = map && self.dice.one_in(6);
            let offset = if map { self.dice.below(4) * PAGE } else { 0 };
            let what = if user { 2 } else { u32::from(map) };
            op[0] = self.dice.w32(what);
            op[1] = if map { self.dice.below(4) as u32 } else { 0 }; // CAST: small.
            op[2..4].copy_from_slice(&halves(address));
            op[4..6].copy_from_slice(&halves(len));
            op[6..8].copy_from_slice(&halves(self.dice.w64(offset)));
            op[8] = if map { self.some_handle() } else { 0 };
            if user {
                let (memory, all) = self.some_memory();
                op[4..6].copy_from_slice(&halves(self.dice.w64(len.min(all))));
                op[6..8].copy_from_slice(&halves(self.dice.w64(memory)));
                op[8] = 0;
            }
            op[9] = self.dice.w32(0);
        }
        let [lo, hi] = halves(self.pointer(ops.as_mut_ptr().expose_provenance()));
        // Not more operations than there are, and no larger stride.
        let stride = if self.dice.odd() { 48 } else { 40 };
        let count = if stride == 48 {
            count.min(OPS - 4)
        } else {
            count
        };
        // CAST: small.
        let mut arg = [lo, hi, count as u32, stride, self.dice.w32(0), 0];
        self.native_call(Kind::NativeBind, native(3, 24), &mut arg);
    }

    /// The address of a page for a queue.
    fn some_queue_page(&mut self) -> u64 {
        BASE + (WINDOW + self.dice.below(QUEUE_PAGES)) * PAGE
    }

    /// Binds a new buffer, which the range alone keeps, at `page`. Where a queue has the page, that is refused.
    fn bind_queue_page(&self, page: u64) {
        let mut made = [0u32; 8];
        // One page of system memory, never cached.
        (made[0], made[2], made[4]) = (4096, 2, 2);
        if self.native_call(Kind::NativeCreate, native(1, 32), &mut made) != 0 {
            return;
        }
        let mut op = [0u32; 10];
        // To be mapped, writable.
        (op[0], op[1], op[8]) = (1, 1, made[5]);
        op[2..4].copy_from_slice(&halves(page));
        op[4..6].copy_from_slice(&halves(PAGE));
        // CAST: an address.
        let [lo, hi] = halves(op.as_mut_ptr().expose_provenance() as u64);
        let mut list = [lo, hi, 1, 40, 0, 0];
        self.native_call(Kind::NativeBind, native(3, 24), &mut list);
        self.close_handle(made[5]);
    }

    fn native_queue(&mut self) {
        let page = self.some_queue_page();
        self.bind_queue_page(page);
        let mut arg = [0u32; 24];
        // An SDMA queue has no save area, which would have to be large.
        arg[0] = self.dice.w32(2);
        arg[1] = self.dice.w32(0);
        for (at, offset) in [(2, 0), (4, POINTERS.0), (6, POINTERS.1)] {
            arg[at..at + 2].copy_from_slice(&halves(self.dice.w64(page + offset)));
        }
        arg[12] = self.dice.w32(1024);
        arg[16] = self.dice.w32(u32::MAX);
        arg[17] = self.dice.w32(100);
        arg[18] = self.dice.w32(7);
        self.native_call(Kind::NativeQueueCreate, native(4, 96), &mut arg);
    }

    fn some_queue(&mut self) -> u32 {
        let right = self.dice.below(6) as u32; // CAST: small.
        self.dice.w32(right)
    }

    fn native_queue_update(&mut self) {
        let mut mask = [u32::MAX; 32];
        let [lo, hi] = halves(self.pointer(mask.as_mut_ptr().expose_provenance()));
        let [ring_lo, ring_hi] = halves(self.some_queue_page());
        let flags = 1 + self.dice.below(15) as u32; // CAST: small.
        let mut arg = [
            self.some_queue(),
            self.dice.w32(flags),
            ring_lo,
            ring_hi,
            self.dice.w32(1024),
            self.dice.w32(50),
            self.dice.w32(3),
            self.dice.pick(&[32, 64, 1024, 33, 0, 1056]).unwrap_or(32),
            lo,
            hi,
        ];
        self.native_call(Kind::NativeQueueUpdate, native(5, 40), &mut arg);
    }

    fn native_queue_destroy(&mut self) {
        let mut arg = [self.some_queue(), self.dice.w32(0)];
        self.native_call(Kind::NativeQueueDestroy, native(6, 8), &mut arg);
    }

    fn native_event(&mut self) {
        let Ok(counter) = EventFd::from_flags(EfdFlags::EFD_CLOEXEC) else {
            return;
        };
        // CAST: not negative.
        let right = counter.as_fd().as_raw_fd() as u32;
        let fd = if self.dice.odd() {
            // CAST: not negative.
            let native = self.process.native.as_raw_fd() as u32;
            self.dice
                .pick(&[native, u32::MAX, 1 << 20])
                .unwrap_or(right)
        } else {
            right
        };
        let condition = self.dice.below(4) as u32; // CAST: small.
        let mut arg = [fd, self.dice.w32(condition), self.dice.w32(0), 0];
        self.native_call(Kind::NativeEventCreate, native(7, 16), &mut arg);
    }

    fn native_event_destroy(&mut self) {
        let slot = 1 + self.dice.below(32) as u32; // CAST: small.
        let mut arg = [self.dice.w32(slot), self.dice.w32(0)];
        self.native_call(Kind::NativeEventDestroy, native(8, 8), &mut arg);
    }

    fn native_wait(&mut self) {
        let mut word = 5u64;
        let mut op = [0u32; 8];
        let at = self.pointer(std::ptr::from_mut(&mut word).expose_provenance());
        op[0..2].copy_from_slice(&halves(at));
        op[2] = 4 + self.dice.below(3) as u32; // CAST: small.
        op[4] = u32::MAX;
        let compare = self.dice.below(3) as u32; // CAST: small.
        op[6] = self.dice.w32(compare);
        op[7] = self.dice.pick(&[4, 8, 8, 2]).unwrap_or(8);
        let [lo, hi] = halves(self.pointer(op.as_mut_ptr().expose_provenance()));
        let mut arg = [0; 8];
        (arg[0], arg[1]) = (lo, hi);
        // A time that has passed.
        arg[2] = 1;
        arg[4] = if self.dice.odd() { 0 } else { 1 };
        arg[5] = 32;
        arg[6] = self.dice.w32(1);
        self.native_call(Kind::NativeWait, native(9, 32), &mut arg);
    }

    fn native_faults(&mut self) {
        let mut records = [0u64; 3 * 64];
        let [lo, hi] = halves(self.pointer(records.as_mut_ptr().expose_provenance()));
        let mut arg = [0; 8];
        (arg[0], arg[1]) = (lo, hi);
        arg[2] = self.dice.w32(64);
        arg[3] = self.dice.w32(24);
        arg[4] = self.dice.w32(0);
        self.native_call(Kind::NativeFaults, native(10, 32), &mut arg);
    }
}
