// SPDX-License-Identifier: GPL-2.0 OR MIT
//! How much memory a device takes, whatever is done to it.
//!
//! A test program that measures has [`Counting`] as its global allocator. Counted is what a thread allocates, and taken off
//! what it frees, so tests that run beside each other do not disturb each other.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static USED: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// Counts the memory that a thread has in use, and the most that it had.
pub struct Counting;

fn add(bytes: isize) {
    // A thread that ends has no counters any more, and nobody asks for them.
    let _ = USED.try_with(|used| {
        used.set(used.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(used.get())));
    });
}

// SAFETY: Every call goes to the system's allocator unchanged; the counters allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        // SAFETY: As the caller has it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        add(-(layout.size() as isize));
        // SAFETY: As the caller has it: what `alloc` gave out came from there.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Most memory that a device may take once it is brought up, whatever is done to it: trace, errors, cached translations, and
/// what a call takes for a while.  VRAM and guest RAM are files.
pub const GROWTH: usize = 16 << 20;

/// Measures from its beginning on.
pub struct Meter(isize);

impl Meter {
    pub fn start() -> Self {
        let used = USED.get();
        MOST.set(used);
        Self(used)
    }

    /// The most that this thread had in use since the start, beyond what it had then.
    pub fn most(&self) -> usize {
        usize::try_from(MOST.get() - self.0).unwrap_or(0)
    }
}
