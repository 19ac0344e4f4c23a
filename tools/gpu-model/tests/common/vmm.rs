// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What a VMM asks of the device, in any order.

use std::fs::File;
use std::sync::atomic::AtomicU64;
use std::sync::Arc;

use gpu_model::asic::GFX90A;
use gpu_model::clock::Clock;
use gpu_model::device::Gpu;
use gpu_model::server::{make_vram, Shared};
use gpu_model::soc::NoMsi;
use gpu_model::trace::Log;
use proptest::collection::vec;
use proptest::prelude::*;

pub const VRAM: u64 = 64 << 20;
pub const BAR0: u32 = 0;
pub const BAR2: u32 = 2;
pub const BAR5: u32 = 5;
pub const CONFIG: u32 = 7;
/// Bytes of configuration space, BAR2 and BAR5.
pub const SPACE: u64 = 4096;
pub const DOORBELLS: u64 = 2 << 20;
pub const REGISTERS: u64 = 512 << 10;

/// A device without a driver, whose clock stands, and its VRAM.
pub fn device() -> (Arc<Shared>, File) {
    let vram = make_vram(VRAM).unwrap();
    let gpu = Gpu::new(
        &GFX90A,
        GFX90A.board,
        vram.try_clone().unwrap(),
        VRAM,
        Clock::Manual(Arc::new(AtomicU64::new(1_000_000))),
        Log::new(1024, None, false),
        Box::new(NoMsi),
    );
    (Shared::new(gpu.unwrap()), vram)
}

/// An offset in a space of `size` bytes, often near its ends, and now and then outside.
fn offset(size: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..size,
        2 => 0..64u64,
        1 => (size - 16)..(size + 16),
        1 => any::<u64>(),
    ]
}

/// Something that a VMM does.
#[derive(Debug, Clone)]
pub enum Op {
    Read(u32, u64, usize),
    Write(u32, u64, Vec<u8>),
    Map {
        at: u64,
        size: u64,
        offset: u64,
        file: bool,
        write: bool,
    },
    Unmap {
        at: u64,
        size: u64,
        all: bool,
    },
    Irqs {
        index: u32,
        flags: u32,
        count: u32,
        /// With an eventfd.
        event: bool,
    },
    Reset,
}

fn region() -> impl Strategy<Value = (u32, u64)> {
    prop_oneof![
        3 => Just((CONFIG, SPACE)),
        2 => Just((BAR5, REGISTERS)),
        1 => Just((BAR2, DOORBELLS)),
        1 => Just((BAR0, VRAM)),
        1 => (0u32..12).prop_map(|r| (r, SPACE)),
    ]
    .prop_flat_map(|(r, size)| offset(size).prop_map(move |at| (r, at)))
}

pub fn op() -> impl Strategy<Value = Op> {
    // Addresses that meet each other, in pages and not.
    let place = || {
        prop_oneof![
            4 => (0u64..32).prop_map(|n| n << 12),
            1 => (0u64..64).prop_map(|n| n << 11),
            1 => any::<u64>()
        ]
    };
    let size =
        || prop_oneof![4 => (0u64..16).prop_map(|n| n << 12), 1 => any::<u64>(), 1 => 0u64..5000];
    // The message of the device is interrupt 1; ACTION_TRIGGER with DATA_EVENTFD, and with DATA_NONE.
    let irq = prop_oneof![3 => Just(1u32), 1 => 0u32..6];
    let flags = prop_oneof![3 => Just(0x24u32), 2 => Just(0x21u32), 1 => any::<u32>()];
    prop_oneof![
        4 => (region(), 0usize..17).prop_map(|((r, at), n)| Op::Read(r, at, n)),
        4 => (region(), vec(any::<u8>(), 0..17)).prop_map(|((r, at), d)| Op::Write(r, at, d)),
        2 => (place(), size(), place(), any::<bool>(), any::<bool>())
            .prop_map(|(at, size, offset, file, write)| Op::Map { at, size, offset, file, write }),
        2 => (place(), size(), prop::bool::weighted(0.1)).prop_map(|(at, size, all)| Op::Unmap { at, size, all }),
        2 => (irq, flags, 0u32..3, any::<bool>())
            .prop_map(|(index, flags, count, event)| Op::Irqs { index, flags, count, event }),
        1 => Just(Op::Reset),
    ]
}
