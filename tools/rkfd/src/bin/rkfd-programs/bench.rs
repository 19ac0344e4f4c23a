// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What the cases have in common: a queue, kernels by name, and numbers.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rkfd::code::dispatch::Dispatch;
use rkfd::code::dispatch::Kernargs;
use rkfd::code::program::Kernel;
use rkfd::code::program::Program;
use rkfd::code::target::Target;
use rkfd::device::Device;
use rkfd::memory::Buffer;
use rkfd::memory::Kind;
use rkfd::queue::Queue;
use rkfd::queue::QueueKind;
use rkfd::queue::QueueOptions;
use rkfd::signal::Signals;

use crate::tap::patience;

/// A queue with what launches need.
pub struct Bench {
    pub device: Arc<Device>,
    pub queue: Queue,
    pub kernargs: Kernargs,
    pub done: Signals,
}

impl Bench {
    pub fn new(device: &Arc<Device>) -> Self {
        Self {
            device: device.clone(),
            queue: Queue::new(device, QueueOptions::new(QueueKind::Aql)).unwrap(),
            kernargs: Kernargs::new(device, 1 << 20).unwrap(),
            done: Signals::new(device, 1).unwrap(),
        }
    }

    /// Launches a kernel behind all others.
    pub fn launch(&self, dispatch: Dispatch<'_>) {
        self.queue.dispatch(&dispatch, &self.kernargs).unwrap();
    }

    /// Launches a kernel, and waits for its end.
    pub fn run(&self, dispatch: Dispatch<'_>) {
        self.done.store(0, 1).unwrap();
        self.launch(dispatch.completion(self.done.address(0).unwrap()));
        self.await_end();
    }

    /// Waits for the end of the launch that has the signal.
    pub fn await_end(&self) {
        let value = self.done.wait_below(0, 1, patience());
        if let Err(e) = value {
            panic!("{e}; the queue: {:?}", self.queue.error());
        }
    }

    pub fn memory(&self, bytes: usize) -> Buffer {
        Buffer::new(&self.device, Kind::Gtt, bytes).unwrap()
    }

    pub fn vram(&self, bytes: usize) -> Buffer {
        Buffer::new(&self.device, Kind::Vram, bytes).unwrap()
    }
}

pub fn kernel_file(device: &Device, name: &str) -> Vec<u8> {
    let root = env::var_os("RKFD_KERNELS")
        .expect("RKFD_KERNELS names the directory of the compiled kernels");
    let target = Target::from_version(device.gfx()).expect("a GPU that is known");
    let path = PathBuf::from(root)
        .join(target.processor().unwrap())
        .join(name);
    fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub fn load(device: &Arc<Device>, name: &str) -> Arc<Program> {
    Program::load(device, &kernel_file(device, name)).unwrap()
}

pub fn hip(device: &Arc<Device>, kernel: &str) -> Kernel {
    load(device, "hip.co").kernel(kernel).unwrap()
}

/// Numbers without a pattern, the same each time.
pub fn noise(count: usize) -> Vec<u32> {
    let mut state = 0x1234_5678_u32;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state
        })
        .collect()
}

/// Small whole numbers, whose sums and products are exact.
pub fn small_floats(count: usize) -> Vec<f32> {
    noise(count).iter().map(|n| (n % 15) as f32 - 7.0).collect()
}

/// Others of them.
pub fn other_floats(count: usize) -> Vec<f32> {
    small_floats(count + 11)
        .into_iter()
        .rev()
        .take(count)
        .collect()
}

pub trait Number: Copy + PartialEq + std::fmt::Debug {
    const BYTES: usize;
    fn put(self, to: &mut Vec<u8>);
    fn get(from: &[u8]) -> Self;
}

macro_rules! number {
    ($($ty:ty)*) => { $(
        impl Number for $ty {
            const BYTES: usize = size_of::<$ty>();
            fn put(self, to: &mut Vec<u8>) {
                to.extend(self.to_le_bytes());
            }
            fn get(from: &[u8]) -> Self {
                Self::from_le_bytes(from.try_into().unwrap())
            }
        }
    )* };
}

number!(u8 u32 u64 f32 f64);

pub fn fill<T: Number>(buffer: &Buffer, values: &[T]) {
    let mut bytes = Vec::new();
    values.iter().for_each(|v| v.put(&mut bytes));
    buffer.write_bytes(0, &bytes).unwrap();
}

pub fn contents<T: Number>(buffer: &Buffer, count: usize) -> Vec<T> {
    let mut bytes = vec![0; count * T::BYTES];
    buffer.read_bytes(0, &mut bytes).unwrap();
    bytes.chunks_exact(T::BYTES).map(T::get).collect()
}

/// Compares, and names the first difference.
pub fn same<T: Number>(found: &[T], wanted: &[T]) {
    assert_eq!(found.len(), wanted.len());
    let wrong = found.iter().zip(wanted).position(|(f, w)| f != w);
    if let Some(at) = wrong {
        let count = found.iter().zip(wanted).filter(|(f, w)| f != w).count();
        panic!(
            "{count} of {} differ, the first at {at}: {:?} instead of {:?}",
            wanted.len(),
            found[at],
            wanted[at]
        );
    }
}

pub fn line(items: usize, group: u16) -> ([u32; 3], [u16; 3]) {
    ([u32::try_from(items).unwrap(), 1, 1], [group, 1, 1])
}

pub fn along(kernel: &Kernel, items: usize, group: u16) -> Dispatch<'_> {
    let (grid, group) = line(items, group);
    Dispatch::new(kernel).grid(grid).group(group)
}
