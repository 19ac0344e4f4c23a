// SPDX-License-Identifier: GPL-2.0 OR MIT
//! 2: buffers. One in VRAM and one in the machine's memory, mapped for the CPU, and bound at addresses of the GPU.

use std::env;
use std::error::Error;

use rkfd::native::{Heap, Rights, Space};

const PAGE: usize = 4096;
const AT: u64 = 0x1_0000_0000;

fn main() -> Result<(), Box<dyn Error>> {
    let node = env::args().nth(1);
    let space = Space::open(node.as_deref().unwrap_or("/dev/dri/renderD128"))?;
    let vram = space.bo(Heap::Vram, PAGE)?;
    let system = space.bo(Heap::System, PAGE)?;

    let behind = AT + PAGE as u64;
    let mut list = space.list();
    list.map(AT, &vram, 0, PAGE, Rights::Write)?;
    list.map(behind, &system, 0, PAGE, Rights::Read)?;
    space.bind(&list)?;
    println!("VRAM at {AT:#x}, memory of the machine at {behind:#x}");

    for i in 0..PAGE / 4 {
        vram.write_u32(4 * i, (i * i).try_into()?)?;
    }
    for i in 0..PAGE / 4 {
        assert_eq!(vram.read_u32(4 * i)? as usize, i * i);
    }
    let [a, b, c, d] = [0, 4, 8, 12].map(|at| vram.read_u32(at));
    println!(
        "the CPU wrote to VRAM and reads: {} {} {} {} ...",
        a?, b?, c?, d?
    );

    let mut beyond = space.list();
    beyond.unmap(AT, PAGE);
    beyond.map(space.info().va_end, &vram, 0, PAGE, Rights::Read)?;
    let error = space.bind(&beyond).err().ok_or("bound beyond the end")?;
    println!("refused, and nothing of it done: {error}");
    Ok(())
}
