// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers of C facilities that have no Rust abstraction yet.
//!
//! Each module is written as if for the kernel crate: the C names, `# Safety` on what must be
//! promised, `// SAFETY:` on what is. Beside this and [`bindings`](crate::bindings), `unsafe` stands only where
//! the caller gives a guarantee that no wrapper can give for it:
//!
//! - `driver`, `gpu::registry`, `kfd`: the locks that the whole module shares are initialised once, before their
//!   first use;
//! - `gpu`: the DMA masks are set while nothing is mapped;
//! - `gpu::access`: a caller with access to the hardware has a device that is bound;
//! - `drm`: the registration is dropped before the device goes, the driver is the only one of the module, and its
//!   table of ioctls says which argument each number has.

pub(crate) mod abi;
pub(crate) mod chrdev;
pub(crate) mod class;
pub(crate) mod devmem;
pub(crate) mod dma;
pub(crate) mod dma_buf;
pub(crate) mod dma_map;
mod dma_table;
pub(crate) mod dmem;
mod drm_fdinfo;
pub(crate) mod drm_file;
pub(crate) mod drm_ioctl;
pub(crate) mod drm_prime;
pub(crate) mod event_file;
pub(crate) mod eventfd;
pub(crate) mod exec;
pub(crate) mod fence;
pub(crate) mod gate;
pub(crate) mod gem;
pub(crate) mod gpuvm;
pub(crate) mod hmm;
pub(crate) mod irq;
pub(crate) mod kobject;
#[cfg(rkfd_kunit)]
pub(crate) mod kunit;
pub(crate) mod log;
pub(crate) mod lru;
pub(crate) mod mappable;
pub(crate) mod memcg;
pub(crate) mod migrate;
pub(crate) mod mmio;
pub(crate) mod pages;
pub(crate) mod parameters;
pub(crate) mod pci;
pub(crate) mod range;
pub(crate) mod resv;
pub(crate) mod slots;
pub(crate) mod sysinfo;
pub(crate) mod task;
pub(crate) mod ticker;
pub(crate) mod trace;
pub(crate) mod userpages;
mod vma;
pub(crate) mod waitqueue;
pub(crate) mod workqueue;
