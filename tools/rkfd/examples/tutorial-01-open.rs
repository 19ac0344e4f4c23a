// SPDX-License-Identifier: GPL-2.0 OR MIT
//! 1: opens a render node. What that gives is an address space of the GPU, empty and nobody else's.

use std::env;
use std::error::Error;

use rkfd::native::Space;

fn main() -> Result<(), Box<dyn Error>> {
    let node = env::args().nth(1);
    let node = node.as_deref().unwrap_or("/dev/dri/renderD128");

    let space = Space::open(node)?;
    let info = space.info();
    let gfx = info.gfx_target;
    println!(
        "{node}: gfx{}{:x}{:x}, {} compute units, waves of {} work-items, {} copy engines",
        gfx / 10000,
        gfx / 100 % 100,
        gfx % 100,
        info.compute_units,
        info.wave_size,
        info.sdma_engines
    );
    let (first, last) = (info.va_start, info.va_end - 1);
    print!("addresses from {first:#x} to {last:#x}, pages of");
    for bit in (0..64).filter(|bit| (info.page_sizes >> bit) & 1 == 1) {
        print!(" {} KiB", (1u64 << bit) / 1024);
    }
    println!();
    assert_eq!(info.gfx_target / 10000, 9);
    assert!(first < last);
    Ok(())
}
